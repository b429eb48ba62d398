//! Pods that the API server does not accept, and fields that nobody can read.

use super::pods::parallel;
use crate::crd::{BACKWARDS, STORED};
use flotilla_e2e::sets::SOON;
use flotilla_e2e::stuck::{Sort, Stuck, container, template};
use serde_json::{Value, json};

/// The template names a service account that is not there.
pub(super) async fn account_missing(s: Stuck) {
    s.create(2, |set| template(set)["spec"]["serviceAccountName"] = json!("robot"))
        .await;
    let first = s
        .first(
            "",
            &["ServiceAccountMissing", "robot"],
            "kubectl create serviceaccount ",
        )
        .await;
    s.type_in(&first);
    s.mended().await;
}

/// There may be one pod in the namespace.
pub(super) async fn quota_full(s: Stuck) {
    let quotas = s.core("resourcequotas");
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": {"pods": "1"}}});
    s.api.create(&quotas, &quota).await;
    s.api
        .until(&quotas, SOON, "the quota counts", |q| {
            q["small"].pointer("/status/hard/pods").is_some()
        })
        .await;
    s.create(2, |set| parallel(&s, set)).await;
    let words = ["QuotaExceeded", "small"];
    let first = s.first("", &words, "kubectl describe resourcequota ").await;
    let said = s.type_in(&first);
    assert!(said.contains("small") && said.contains("pods"), "{said}");
    s.api
        .patch(&format!("{quotas}/small"), &json!({"spec": {"hard": {"pods": "5"}}}))
        .await;
    s.mended().await;
}

/// A container mounts what no volume and no claim template gives: no pod goes for that.
pub(super) async fn template_invalid(s: Stuck) {
    s.start(2, |_| ()).await;
    s.change(|set| container(set)["volumeMounts"] = json!([{"name": "spool", "mountPath": "/spool"}]))
        .await;
    let words = ["does not accept pods of this revision", "spool"];
    let first = s.first("", &words, "kubectl edit ").await;
    assert!(first.advice.contains("add the claim template"), "{first:?}");
    s.edit(&first, "\\|^        volumeMounts:|,\\|name: spool|d");
    s.mended().await;
}

/// A policy of the cluster's owner, until it is taken back.
pub(super) async fn denied_by_policy(s: Stuck) {
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": s.ns},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": s.ns}},
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            },
            "validations": [{"expression": "false", "message": "no more pods here"}],
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
    denied(&s).await;
    s.create(2, |_| ()).await;
    let first = s
        .first("", &["no more pods here", &s.ns], "kubectl get validating")
        .await;
    let said = s.type_in(&first);
    assert!(said.contains(&s.ns), "{said}");
    s.api.delete(&format!("{POLICIES}/{}", s.ns), false).await;
    s.mended().await;
}

/// Waits until the policy is in force: the API server reads policies as others do, by a watch.
async fn denied(s: &Stuck) {
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
        .first("", &words, &format!("kubectl create priorityclass {} ", s.ns))
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
    let first = s.first("", &words, "kubectl edit ").await;
    s.edit(&first, "/runtimeClassName: gvisor/d");
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
    stored.edit(&first, "s/^  - 3-1$/  - 1-3/");
    stored.mended().await;
}
