//! What becomes of claims (CS-15).

use crate::Lab;
use flotilla_e2e::Manager;
use flotilla_e2e::api::{Api, Objects, is_terminating, text};
use flotilla_e2e::clones::{manifest, sets, settled, web, with_claims};
use flotilla_e2e::sets::{SOON, claims, pods};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Names of claims that stay.
fn staying(claims: &Objects) -> BTreeSet<String> {
    let stays = claims.iter().filter(|(_, claim)| !is_terminating(claim));
    stays.map(|(name, _)| name.clone()).collect()
}

/// The claims of these pods.
fn of(pods: &Objects) -> BTreeSet<String> {
    pods.keys().map(|pod| format!("data-{pod}")).collect()
}

async fn at_rest(api: &Api, ns: &str) -> Objects {
    settled(api, ns, SOON).await;
    let pods = api
        .until(&pods(ns), SOON, "two pods", |pods| {
            pods.len() == 2 && !pods.values().any(is_terminating)
        })
        .await;
    let wanted = of(&pods);
    api.until(&claims(ns), SOON, "their claims, and no others", |claims| {
        staying(claims) == wanted && claims.len() == 2
    })
    .await;
    pods
}

/// somebody else deletes this pod, and it takes its time to go. Its replacement waits for its id and claim; growth meanwhile takes
/// another id, and goes again.
async fn replaced_by_itself(api: &Api, ns: &str, gone: &str, first: &Objects) {
    let path = format!("{}/{gone}", pods(ns));
    let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    api.patch(&path, &hold(json!(["example.com/hold"]))).await;
    api.delete(&path, false).await;
    let scaled = api.patch(&web(ns), &json!({"spec": {"replicas": 3}})).await;
    let generation = scaled["metadata"]["generation"].as_i64();
    let grown = api
        .until(&pods(ns), SOON, "another pod for the growth alone", |pods| {
            pods.len() == 3 && is_terminating(&pods[gone])
        })
        .await;
    let other = grown
        .keys()
        .find(|name| !first.contains_key(*name))
        .expect("a third pod");
    api.until(&sets(ns), SOON, "a status of the two that serve", |sets| {
        let status = &sets["web"]["status"];
        status["observedGeneration"].as_i64() == generation && status["availableReplicas"] == 2
    })
    .await;
    let meanwhile = api.read(&pods(ns)).await;
    assert_eq!(
        meanwhile["items"].as_array().map(Vec::len),
        Some(3),
        "its replacement waits"
    );
    let made = api.read(&claims(ns)).await;
    assert_eq!(made["items"].as_array().map(Vec::len), Some(3), "with its claim");

    api.patch(&path, &hold(Value::Null)).await;
    let uid = first[gone]["metadata"]["uid"].clone();
    api.until(&pods(ns), SOON, "another pod of the same name", |pods| {
        pods.get(gone).is_some_and(|pod| pod["metadata"]["uid"] != uid)
    })
    .await;
    let shrink = json!({"spec": {"replicas": 2, "scaleStrategy": {"podsToDelete": [other]}}});
    api.patch(&web(ns), &shrink).await;
    assert_eq!(of(&at_rest(api, ns).await), of(first));
}

/// With reuse, the id and claim of a pod that somebody else deleted are used again as soon as the pod is gone; a pod that we are asked to
/// delete takes its claim along. Without reuse, a claim always goes with its pod.
pub(crate) async fn are_used_again_or_go(lab: &Lab) {
    let ns = "claims";
    let api = lab.enter(ns).await;
    let _manager = Manager::alone(&lab.kubeconfig);
    let mut set = with_claims(manifest(2));
    set["spec"]["scaleStrategy"] = json!({"enablePVCReuse": true});
    api.create(&sets(ns), &set).await;
    let first = at_rest(&api, ns).await;
    for (name, pod) in &first {
        let id = text(pod, "/metadata/labels/apps.kruise.io~1cloneset-instance-id");
        assert_eq!(name, &format!("web-{id}"));
    }
    let gone = first.keys().next().expect("two pods").clone();
    replaced_by_itself(&api, ns, &gone, &first).await;

    let mark = json!({"metadata": {"labels": {"apps.kruise.io/specified-delete": "true"}}});
    api.patch(&format!("{}/{gone}", pods(ns)), &mark).await;
    api.until(&claims(ns), SOON, "its claim goes with it", |claims| {
        !claims.contains_key(&format!("data-{gone}"))
    })
    .await;
    let second = at_rest(&api, ns).await;
    assert!(!second.contains_key(&gone));

    api.patch(&web(ns), &json!({"spec": {"scaleStrategy": {"enablePVCReuse": false}}}))
        .await;
    let gone = second.keys().next().expect("two pods").clone();
    api.delete(&format!("{}/{gone}", pods(ns)), false).await;
    api.until(&claims(ns), SOON, "without reuse it goes too", |claims| {
        !claims.contains_key(&format!("data-{gone}"))
    })
    .await;
    let third = at_rest(&api, ns).await;
    assert!(!third.contains_key(&gone));
    api.delete(&web(ns), false).await;
}
