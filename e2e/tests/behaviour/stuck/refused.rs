//! Pods that the API server does not accept, and fields that nobody can read.

use super::pods::parallel;
use crate::crd::{BACKWARDS, STORED};
use flotilla_e2e::api::{Objects, number, text};
use flotilla_e2e::sets::SOON;
use flotilla_e2e::stuck::{Sort, Stuck, container, template};
use serde_json::{Value, json};

/// How `why` calls a pod that is not there yet: those of CloneSets have no name before they are made.
pub(super) fn wanted_pod(s: &Stuck, name: &'static str) -> &'static str {
    if s.sort == Sort::Clone { "web-…" } else { name }
}

/// The revision of the template, once the manager has made it.
async fn new_revision(s: &Stuck) -> String {
    let is_there = |sets: &Objects| {
        let set = &sets["web"];
        number(set, "/status/observedGeneration") == number(set, "/metadata/generation")
    };
    let mut sets = s.api.until(&s.sort.sets(&s.ns), SOON, "a new revision", is_there).await;
    let set = sets.remove("web").expect("it was there a moment ago");
    text(&set, "/status/updateRevision").to_owned()
}

/// The template names a service account that is not there.
pub(super) async fn account_missing(s: Stuck) {
    s.create(2, |set| template(set)["spec"]["serviceAccountName"] = json!("robot"))
        .await;
    let words = ["ServiceAccountMissing", "robot"];
    let first = s
        .first(wanted_pod(&s, "web-0"), &words, "kubectl create serviceaccount ")
        .await;
    s.type_in(&first);
    s.mended().await;
}

/// Lets there be so many pods in the namespace.
pub(super) async fn limit_pods(s: &Stuck, pods: &str) {
    let quotas = s.core("resourcequotas");
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": {"pods": pods}}});
    s.api.create(&quotas, &quota).await;
    s.api
        .until(&quotas, SOON, "the quota counts", |q| {
            q["small"].pointer("/status/hard/pods").is_some()
        })
        .await;
}

/// Raises the limit.
pub(super) async fn raise_limit(s: &Stuck) {
    let quota = format!("{}/small", s.core("resourcequotas"));
    s.api.patch(&quota, &json!({"spec": {"hard": {"pods": "9"}}})).await;
}

/// There may be one pod in the namespace.
pub(super) async fn quota_full(s: Stuck) {
    limit_pods(&s, "1").await;
    s.create(2, |set| parallel(&s, set)).await;
    let words = ["QuotaExceeded", "small"];
    let first = s
        .first(wanted_pod(&s, "web-1"), &words, "kubectl describe resourcequota ")
        .await;
    let said = s.type_in(&first);
    assert!(said.contains("small") && said.contains("pods"), "{said}");
    raise_limit(&s).await;
    s.mended().await;
}

/// A container mounts what no volume and no claim template gives: no pod goes for that.
pub(super) async fn template_invalid(s: Stuck) {
    s.start(2, |_| ()).await;
    s.change(|set| container(set)["volumeMounts"] = json!([{"name": "spool", "mountPath": "/spool"}]))
        .await;
    let words = ["does not accept pods of this revision", "spool"];
    let first = s.first(&new_revision(&s).await, &words, "kubectl edit ").await;
    assert!(first.advice.contains("add the claim template"), "{first:?}");
    s.edit(&first, "spool", "\\|^        volumeMounts:|,\\|name: spool|d");
    s.mended().await;
}

/// Policies of the cluster.
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

/// Makes a policy, of the name of the namespace, that denies all pods there in these words.
pub(super) async fn deny_pods(s: &Stuck, message: &str, reason: &str) {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": s.ns},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": s.ns}},
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            },
            "validations": [{"expression": "false", "message": message, "reason": reason}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": s.ns},
        "spec": {"policyName": s.ns, "validationActions": ["Deny"]},
    });
    s.api.create(POLICIES, &policy).await;
    s.api
        .create(&POLICIES.replace("policies", "policybindings"), &binding)
        .await;
    denied(s).await;
}

/// Takes it back.
pub(super) async fn allow_pods(s: &Stuck) {
    s.api.delete(&format!("{POLICIES}/{}", s.ns), false).await;
}

/// A policy of the cluster's owner, until it is taken back.
pub(super) async fn denied_by_policy(s: Stuck) {
    deny_pods(&s, "no more pods here", "Invalid").await;
    s.create(2, |_| ()).await;
    let first = s
        .first(
            wanted_pod(&s, "web-0"),
            &["no more pods here", &s.ns],
            "kubectl get validating",
        )
        .await;
    let said = s.type_in(&first);
    assert!(said.contains(&s.ns), "{said}");
    allow_pods(&s).await;
    s.mended().await;
}

/// Waits until a policy or webhook is in force: the API server reads these as others do, by a watch.
pub(super) async fn denied(s: &Stuck) {
    let probe = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"},
        "spec": {"containers": [{"name": "main", "image": "app:v1"}]},
    });
    let path = format!("{}?dryRun=All", s.core("pods"));
    let begun = flotilla_e2e::clock::now();
    let is_denied = async || {
        let sent = s
            .api
            .send(http::Method::POST, &path, Some(("application/json", &probe)));
        sent.await.is_err()
    };
    // Nothing can be watched for that.
    while !is_denied().await {
        assert!(begun.elapsed() < SOON, "the policy is not in force");
        tokio::task::yield_now().await;
    }
}

/// The template names a priority that nobody has made.
pub(super) async fn priority_class_missing(s: Stuck) {
    s.create(2, |set| template(set)["spec"]["priorityClassName"] = json!(s.ns))
        .await;
    let words = ["no PriorityClass with name", &s.ns];
    let first = s
        .first(
            wanted_pod(&s, "web-0"),
            &words,
            &format!("kubectl create priorityclass {} ", s.ns),
        )
        .await;
    s.type_in(&first);
    s.mended().await;
}

/// An update to a runtime that there is not: no pod goes for that, either.
pub(super) async fn runtime_class_missing(s: Stuck) {
    s.start(2, |_| ()).await;
    s.change(|set| template(set)["spec"]["runtimeClassName"] = json!("gvisor"))
        .await;
    let words = ["does not accept pods of this revision", "gvisor"];
    let first = s.first(&new_revision(&s).await, &words, "kubectl edit ").await;
    s.edit(&first, "gvisor", "/runtimeClassName: gvisor/d");
    s.mended().await;
}

/// Such a set cannot be stored any more: it was there before the rule.
pub(super) async fn field_unreadable(s: Stuck) {
    let mut stored = s;
    (stored.ns, stored.name) = (STORED.to_owned(), BACKWARDS.to_owned());
    assert_eq!(stored.sort, Sort::Advanced);
    let fewer = |set: &mut Value| set["spec"]["replicas"] = json!(1);
    stored.change(fewer).await;
    let words = ["reserveOrdinals[0]", "3-1"];
    let first = stored.first(BACKWARDS, &words, "kubectl edit ").await;
    stored.edit(&first, "3-1", "s/^  - 3-1$/  - 1-3/");
    stored.mended().await;
}
