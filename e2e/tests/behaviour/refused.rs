//! Templates that the API server does not accept: no pod goes for one.

use crate::Lab;
use flotilla_e2e::api::{Objects, text};
use flotilla_e2e::real::condition;
use flotilla_e2e::sets::{SOON, pods, ready, rolled_out, set_image};
use flotilla_e2e::suite::trial;
use flotilla_e2e::{Api, Kind};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (kind, word) in Kind::BOTH {
        let (own, ns) = (lab.clone(), format!("refused-{word}"));
        trials.push(trial(
            format!("refused::no_pod_goes_for_it_{word}"),
            move || async move {
                no_pod_goes_for_a_template_that_is_refused(&own.enter(&ns).await, kind, &ns).await;
            },
        ));
        let (own, ns) = (lab.clone(), format!("full-{word}"));
        trials.push(trial(
            format!("refused::a_full_quota_is_no_refusal_{word}"),
            move || async move {
                a_quota_that_is_used_up_keeps_no_pod_from_being_replaced(&own.enter(&ns).await, kind, &ns).await;
            },
        ));
    }
    trials
}

fn uids(pods: &Objects) -> BTreeMap<String, String> {
    let uid = |(name, pod): (&String, &Value)| (name.clone(), text(pod, "/metadata/uid").to_owned());
    pods.iter().map(uid).collect()
}

/// A set of three, all of which may go at once.
async fn start(api: &Api, kind: Kind, ns: &str) -> BTreeMap<String, String> {
    let mut set = kind.manifest("web", 3);
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}});
    api.create(&kind.sets(ns), &set).await;
    let before = ready(api, ns, 3).await;
    rolled_out(api, kind, ns, "web").await;
    uids(&before)
}

/// Only of pods it is looked at whether their service account exists.
async fn no_pod_goes_for_a_template_that_is_refused(api: &Api, kind: Kind, ns: &str) {
    let before = start(api, kind, ns).await;
    let as_account = |account: Value| {
        let container = json!({"name": "main", "image": "app:v2"});
        json!({"spec": {"template": {"spec": {"serviceAccountName": account, "containers": [container]}}}})
    };
    api.patch(&kind.set(ns, "web"), &as_account(json!("nowhere"))).await;
    let refused = |sets: &Objects| {
        let said = condition(&sets["web"], "FailedCreatePod");
        said["status"] == "True" && text(said, "/message").contains("nowhere")
    };
    api.until(&kind.sets(ns), SOON, "the condition has the server's words", refused)
        .await;
    assert_eq!(uids(&api.list(&pods(ns)).await), before, "no pod went");
    // An edit is tried at once.
    api.patch(&kind.set(ns, "web"), &as_account(json!("default"))).await;
    rolled_out(api, kind, ns, "web").await;
    let after = ready(api, ns, 3).await;
    assert!(
        after
            .values()
            .all(|pod| text(pod, "/spec/containers/0/image") == "app:v2")
    );
    assert!(uids(&after).iter().all(|(name, uid)| before[name] != *uid));
}

/// The API server looks at the quota last: what it says of it is no verdict on the template.
async fn a_quota_that_is_used_up_keeps_no_pod_from_being_replaced(api: &Api, kind: Kind, ns: &str) {
    let before = start(api, kind, ns).await;
    let quotas = format!("/api/v1/namespaces/{ns}/resourcequotas");
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "3"}}});
    api.create(&quotas, &quota).await;
    api.until(&quotas, SOON, "the quota is used up", |quotas| {
        quotas.values().any(|q| q["status"]["used"]["pods"] == "3")
    })
    .await;
    set_image(api, &kind.set(ns, "web"), "app:v2").await;
    rolled_out(api, kind, ns, "web").await;
    let after = uids(&ready(api, ns, 3).await);
    assert!(after.iter().all(|(name, uid)| before[name] != *uid), "all are replaced");
}
