//! Somebody else in the cluster writes what reads like the words of the API server or of a kubelet: into events, into what his webhook denies
//! with, and into policies. `flotilla why` gives no advice that follows such words.

use super::pods::{parallel, pod_which, shaped};
use super::refused::{allow_pods, denied, deny_pods, wanted_pod};
use super::volumes::{CLASSES, PROVISIONERS, class, provide, with_claims};
use flotilla_e2e::api::{Objects, is_ready, name, text};
use flotilla_e2e::denier::Denier;
use flotilla_e2e::real::set_condition;
use flotilla_e2e::sets::{SOON, claims, pods};
use flotilla_e2e::stuck::{Stuck, template};
use serde_json::{Value, json};
use std::time::Duration;

/// What a quota says that is full.
const QUOTA: &str = "exceeded quota: x, requested: pods=1, used: pods=1, limited: pods=1";
/// Where webhooks and policies are seen.
const SEE_WEBHOOKS: &str = "kubectl get validatingwebhookconfigurations,";

/// A webhook denies all pods in these words: whoever is asked leads to the webhook, and does not say that it is `not_so`.
async fn denied_by_webhook(s: Stuck, (code, words): (u16, &str), not_so: &str) {
    let denier = Denier::serve(&s.api, &s.ns, (code, words)).await;
    denied(&s).await;
    s.create(1, |_| ()).await;
    let said = [denier.name(), words];
    let first = s.first(wanted_pod(&s, "web-0"), &said, SEE_WEBHOOKS).await;
    let own_words = first.message.replace(words, "");
    assert!(!own_words.contains(not_so), "{first:?}");
    let said = s.type_in(&first);
    assert!(said.contains(&s.ns), "{said}");
    denier.end().await;
    s.mended().await;
}

/// As a quota that is full denies them.
pub(super) async fn webhook_like_a_quota(s: Stuck) {
    denied_by_webhook(s, (403, QUOTA), "QuotaExceeded").await;
}

/// As they are denied whose service account is not there.
pub(super) async fn webhook_like_an_account(s: Stuck) {
    let words = "error looking up service account shop/admin: serviceaccount \"admin\" not found";
    denied_by_webhook(s, (403, words), "ServiceAccountMissing").await;
}

/// As they are denied whose priority is not there.
pub(super) async fn webhook_like_a_class(s: Stuck) {
    denied_by_webhook(s, (403, "no PriorityClass with name admin was found"), "PriorityClass").await;
}

/// As a policy denies them.
pub(super) async fn webhook_like_a_policy(s: Stuck) {
    let words = "ValidatingAdmissionPolicy 'guard' with binding 'guard' denied request: no";
    denied_by_webhook(s, (403, words), "ValidatingAdmissionPolicy").await;
}

/// As the API server itself, with its code for what is invalid: that the template mounts what is not there.
pub(super) async fn webhook_like_the_api_server(s: Stuck) {
    let words = "Pod \"web-0\" is invalid: spec.containers[0].volumeMounts[0].name: Not found: \"admin\"";
    denied_by_webhook(s, (422, words), "claim template").await;
}

/// A full quota has room again when an old pod goes; a webhook that says so denies the new one all the same: no pod goes for that.
pub(super) async fn webhook_like_a_quota_in_an_update(s: Stuck) {
    s.start(2, |set| parallel(&s, set)).await;
    let before: Vec<Value> = uids(&s.api.list(&pods(&s.ns)).await);
    let denier = Denier::serve(&s.api, &s.ns, (403, QUOTA)).await;
    denied(&s).await;
    s.set_image("app:v2").await;
    let stay = |pods: &Objects| uids(pods) == before && pods.values().all(is_ready);
    let time = Duration::from_secs(5);
    s.api.throughout(&pods(&s.ns), time, "no pod goes", stay).await;
    denier.end().await;
    s.mended().await;
}

fn uids(pods: &Objects) -> Vec<Value> {
    pods.values().map(|pod| pod["metadata"]["uid"].clone()).collect()
}

/// A policy denies all pods in these words: it is named by its own name.
async fn denied_by_policy(s: Stuck, words: &str, reason: &str, not_so: &str) {
    deny_pods(&s, words, reason).await;
    s.create(1, |_| ()).await;
    let own = format!("kubectl get validatingadmissionpolicy {} ", s.ns);
    let first = s.first(wanted_pod(&s, "web-0"), &[words, &s.ns], &own).await;
    let own_words = first.message.replace(words, "");
    assert!(!own_words.contains(not_so), "{first:?}");
    let said = s.type_in(&first);
    assert!(said.contains(&s.ns), "{said}");
    allow_pods(&s).await;
    s.mended().await;
}

/// As another policy would.
pub(super) async fn policy_like_another(s: Stuck) {
    let words = "ValidatingAdmissionPolicy 'guard' with binding 'guard' denied request: no";
    denied_by_policy(s, words, "Forbidden", "'guard'").await;
}

/// As a quota that is full.
pub(super) async fn policy_like_a_quota(s: Stuck) {
    denied_by_policy(s, QUOTA, "Forbidden", "QuotaExceeded").await;
}

/// As the API server itself, which does not accept what the template mounts.
pub(super) async fn policy_like_a_volume(s: Stuck) {
    let words = "spec.containers[0].volumeMounts[0].name: Not found: \"admin\"";
    denied_by_policy(s, words, "Invalid", "claim template").await;
}

/// Makes a warning about an object, as anybody can who may make events in the namespace.
async fn warn(s: &Stuck, kind: &str, object: &Value, reason: &str, message: &str) {
    let now = flotilla_e2e::clock::wall().to_string();
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "forged-"},
        "involvedObject": {
            "apiVersion": "v1", "kind": kind, "namespace": s.ns, "name": name(object), "uid": object["metadata"]["uid"],
        },
        "type": "Warning", "reason": reason, "message": message, "count": 1,
        "firstTimestamp": now, "lastTimestamp": now, "source": {"component": "kubelet"},
    });
    s.api.create(&s.core("events"), &event).await;
}

/// A pod never gets ready, and somebody says of it what kubelets say of volumes: that of a Secret, or ConfigMap, which it does not mount.
pub(super) async fn event_of_a_volume(s: Stuck) {
    s.create(1, |set| shaped(set, "never-ready", "true")).await;
    let is_up = |pod: &Value| text(pod, "/status/phase") == "Running";
    let pod = pod_which(&s, "a pod", is_up).await;
    let object = s.api.read(&s.pod(&pod)).await;
    for message in ["secret \"admin\" not found", "configmap \"admin\" not found"] {
        warn(&s, "Pod", &object, "FailedMount", message).await;
        let first = s.first(&pod, &["not ready"], "kubectl describe pod ").await;
        let said = s.type_in(&first);
        assert!(said.contains("sim.flotilla.rs/never-ready"), "{said}");
    }
    s.change(|set| template(set)["metadata"]["annotations"] = Value::Null)
        .await;
    if s.api.get(&s.pod(&pod)).await.is_some_and(|pod| !is_ready(&pod)) && pod == "web-0" {
        s.api.delete(&s.pod(&pod), false).await;
    }
    s.mended().await;
}

/// A claim has no volume, and somebody says why, and what to type.
pub(super) async fn event_of_a_claim(s: Stuck) {
    s.api.create(CLASSES, &class(&s, PROVISIONERS[1])).await;
    s.create(1, |set| with_claims(set, Some(&s.ns))).await;
    s.api
        .until(&claims(&s.ns), SOON, "a claim", |claims| !claims.is_empty())
        .await;
    let claim = s.api.read(&format!("{}/data-web-0", claims(&s.ns))).await;
    let forged = "no room; you can: kubectl delete pvc --all (you can: kubectl delete pods --all)\n      you can: kubectl delete ns shop";
    warn(&s, "PersistentVolumeClaim", &claim, "ProvisioningFailed", forged).await;
    let first = s
        .first(
            "claim data-web-0",
            &["is not bound"],
            "kubectl describe pvc data-web-0 ",
        )
        .await;
    let said = s.type_in(&first);
    assert!(said.contains(PROVISIONERS[1]), "{said}");
    provide(&s, "data-web-0", &s.ns).await;
    s.mended().await;
}

/// Whoever sets the condition of a readiness gate says what kubelets say.
pub(super) async fn condition_of_a_gate(s: Stuck) {
    const GATE: &str = "example.com/lb";
    s.create(1, |set| {
        template(set)["spec"]["readinessGates"] = json!([{"conditionType": GATE}]);
    })
    .await;
    let is_up = |pod: &Value| text(pod, "/status/phase") == "Running";
    let pod = pod_which(&s, "a pod", is_up).await;
    let forged = json!({"status": {"conditions": [{
        "type": GATE, "status": "False", "reason": "FailedMount", "message": "secret \"admin\" not found: Unschedulable",
    }]}});
    let path = format!("{}/status", s.pod(&pod));
    let body = Some(("application/strategic-merge-patch+json", &forged));
    let sent = s.api.send(http::Method::PATCH, &path, body).await;
    sent.unwrap_or_else(|e| panic!("PATCH {path}: {e}"));
    let words = ["readiness gate example.com/lb is False"];
    let first = s.first(&pod, &words, "kubectl describe pod ").await;
    let said = s.type_in(&first);
    assert!(said.contains("Readiness Gates"), "{said}");
    set_condition(&s.api, &s.ns, &pod, GATE, "True").await;
    s.mended().await;
}
