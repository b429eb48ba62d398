//! Updates in place and hooks (CS-14.7 and CS-19).

use crate::Lab;
use flotilla_e2e::Manager;
use flotilla_e2e::api::{Api, Objects, is_ready, text};
use flotilla_e2e::clones::{manifest, sets, settled, uids, web};
use flotilla_e2e::real::{container, incarnation};
use flotilla_e2e::sets::{SOON, pods, set_image};
use serde_json::{Value, json};
use std::time::Duration;

/// For how long something must not happen.
const A_WHILE: Duration = Duration::from_secs(2);
const STATE: &str = "/metadata/labels/lifecycle.apps.kruise.io~1state";

fn in_place(replicas: i64) -> Value {
    let mut set = manifest(replicas);
    set["spec"]["updateStrategy"] =
        json!({"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1}});
    set["spec"]["template"]["metadata"]["annotations"] = json!({"sim.flotilla.rs/restart": "300ms"});
    set
}

/// Pods keep name, UID and node; one at a time is out of service; back and forth.
pub(crate) async fn images_change_and_pods_stay(lab: &Lab) {
    let ns = "place-images";
    let api = lab.enter(ns).await;
    let _manager = Manager::alone(&lab.kubeconfig);
    api.create(&sets(ns), &in_place(4)).await;
    settled(&api, ns, SOON).await;
    let before = uids(&api.list(&pods(ns)).await);
    for (round, image) in [(1, "app:v2"), (2, "app:v1")] {
        set_image(&api, &web(ns), image).await;
        let after = api
            .until(&pods(ns), SOON, image, |pods| {
                let out = pods.values().filter(|pod| !is_ready(pod)).count();
                assert!(out <= 1, "{out} out of service");
                out == 0 && pods.values().all(|pod| text(container(pod, "main"), "/image") == image)
            })
            .await;
        assert_eq!(uids(&after), before, "no pod was made again");
        for (name, pod) in &after {
            assert_eq!(incarnation(pod, "main").0, round, "{name} was restarted once a round");
        }
        let set = settled(&api, ns, SOON).await;
        assert_eq!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
    }
    // What cannot be done in place is made again.
    let command = json!([{"op": "add", "path": "/spec/template/spec/containers/0/command", "value": ["run"]}]);
    let sent = api
        .send(
            http::Method::PATCH,
            &web(ns),
            Some(("application/json-patch+json", &command)),
        )
        .await;
    sent.unwrap_or_else(|e| panic!("PATCH {}: {e}", web(ns)));
    let set = settled(&api, ns, SOON).await;
    assert_eq!(set["status"]["updatedReplicas"], 4);
    let others = uids(&api.list(&pods(ns)).await);
    assert!(others.keys().all(|name| !before.contains_key(name)), "{others:?}");
    api.delete(&web(ns), false).await;
}

async fn hold(api: &Api, ns: &str, pod: &str, on: bool) {
    let value = if on { json!("yes") } else { Value::Null };
    api.patch(
        &format!("{}/{pod}", pods(ns)),
        &json!({"metadata": {"labels": {"hold": value}}}),
    )
    .await;
}

/// A hook holds an update and a deletion until its marker is taken away, and an updated pod until the marker is back; a pod that is wanted
/// again stays.
pub(crate) async fn hooks_hold_and_let_go(lab: &Lab) {
    let ns = "place-hooks";
    let api = lab.enter(ns).await;
    let _manager = Manager::alone(&lab.kubeconfig);
    let mut set = in_place(1);
    let hook = json!({"labelsHandler": {"hold": "yes"}});
    set["spec"]["lifecycle"] = json!({"inPlaceUpdate": hook, "preDelete": hook});
    set["spec"]["template"]["metadata"]["labels"]["hold"] = json!("yes");
    api.create(&sets(ns), &set).await;
    settled(&api, ns, SOON).await;
    let before = uids(&api.list(&pods(ns)).await);
    let pod = before.keys().next().expect("one pod").clone();
    let is_in = |state: &'static str| {
        let pod = pod.clone();
        move |pods: &Objects| pods.get(&pod).is_some_and(|pod| text(pod, STATE) == state)
    };
    set_image(&api, &web(ns), "app:v2").await;
    api.until(&pods(ns), SOON, "prepared", is_in("PreparingUpdate")).await;
    api.throughout(&pods(ns), A_WHILE, "the hook holds it", |pods| {
        text(&pods[&pod], "/spec/containers/0/image") == "app:v1"
    })
    .await;
    hold(&api, ns, &pod, false).await;
    api.until(&pods(ns), SOON, "updated", is_in("Updated")).await;
    hold(&api, ns, &pod, true).await;
    api.until(&pods(ns), SOON, "normal again", is_in("Normal")).await;
    settled(&api, ns, SOON).await;
    assert_eq!(uids(&api.list(&pods(ns)).await), before);

    let replicas = |count: i64| json!({"spec": {"replicas": count}});
    api.patch(&web(ns), &replicas(0)).await;
    api.until(&pods(ns), SOON, "held at its end", is_in("PreparingDelete"))
        .await;
    api.throughout(&pods(ns), A_WHILE, "the hook holds it", |pods| pods.contains_key(&pod))
        .await;
    api.patch(&web(ns), &replicas(1)).await;
    api.until(&pods(ns), SOON, "wanted again", is_in("Normal")).await;
    api.patch(&web(ns), &replicas(0)).await;
    api.until(&pods(ns), SOON, "held at its end", is_in("PreparingDelete"))
        .await;
    hold(&api, ns, &pod, false).await;
    api.until(&pods(ns), SOON, "let go", Objects::is_empty).await;
    api.delete(&web(ns), false).await;
}
