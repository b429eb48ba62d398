//! Sets whose pods run, and are updated in place.

use crate::{Lab, agent};
use flotilla_e2e::api::{Objects, is_ready, number, revision, text};
use flotilla_e2e::real::{
    GATE, advanced_set, condition, container, environment, incarnation, pod, pod_until, service, serving, set_image,
    slices, version,
};
use flotilla_e2e::sets::{self, SOON, pods, ready, rolled_out};
use flotilla_e2e::suite::trial;
use flotilla_e2e::why::wait_named;
use flotilla_e2e::{Api, Kind, clock};
use k8s_openapi::jiff::Timestamp;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = crate::scenarios!(
        lab,
        "sets",
        [
            an_advanced_set_runs_and_serves,
            images_change_in_place_out_of_service,
            cpu_changes_in_service,
            cpu_changes_out_of_service_where_that_restarts,
            containers_start_and_change_in_order_of_priority,
            what_cannot_change_in_place_is_made_again,
            in_place_only_refuses_to_make_pods_again,
            the_same_digest_under_another_tag_completes,
        ]
    );
    let own = lab.clone();
    trials.push(trial(
        "sets::a_tag_that_does_not_exist_is_told_and_rolled_back",
        move || async move {
            let ns = "sets-a-tag-that-does-not-exist";
            a_tag_that_does_not_exist(&own.enter(ns).await, &own.kubeconfig, ns).await;
        },
    ));
    trials
}

/// How long pods are out of service before they change.
const GRACE: i64 = 2;

/// Runs a set, changed by `change`, and returns its pods.
pub(crate) async fn start(api: &Api, ns: &str, replicas: usize, change: impl FnOnce(&mut Value)) -> Objects {
    let mut set = advanced_set("web", i64::try_from(replicas).expect("small"), "app:v1");
    change(&mut set);
    api.create(&Kind::Advanced.sets(ns), &set).await;
    ready(api, ns, replicas).await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
    api.list(&pods(ns)).await
}

/// Sets a field of the template's first container.
pub(crate) async fn change(api: &Api, ns: &str, field: &str, value: Value) {
    let body = json!([{"op": "add", "path": format!("/spec/template/spec/containers/0/{field}"), "value": value}]);
    let content = Some(("application/json-patch+json", &body));
    let sent = api
        .send(http::Method::PATCH, &Kind::Advanced.set(ns, "web"), content)
        .await;
    sent.unwrap_or_else(|e| panic!("PATCH {field}: {e}"));
}

/// What no update in place changes.
pub(crate) fn assert_same_pods(before: &Objects, after: &Objects) {
    assert_eq!(before.len(), after.len());
    for (name, pod) in after {
        for pointer in ["/metadata/uid", "/status/podIP", "/spec/nodeName", "/status/startTime"] {
            let (old, new) = (text(&before[name], pointer), text(pod, pointer));
            assert!(!old.is_empty() && old == new, "{pointer} of {name}: {old} and {new}");
        }
        assert_eq!(
            incarnation(&before[name], "side"),
            incarnation(pod, "side"),
            "{name}: the other container stays"
        );
    }
}

/// A container was ended once, and another one runs.
pub(crate) fn assert_started_anew(before: &Value, after: &Value, name: &str) {
    let ((_, old), (restarts, new)) = (incarnation(before, name), incarnation(after, name));
    assert_eq!(restarts, 1, "{name}: {after}");
    assert_ne!(old, new, "{name}");
}

pub(crate) fn time(object: &Value, pointer: &str) -> Timestamp {
    let found = text(object, pointer);
    found.parse().unwrap_or_else(|e| panic!("{pointer} of {object}: {e}"))
}

/// Since when a pod was not to be sent requests, and when it was again for the last time.
type Absences = BTreeMap<String, (Instant, Option<Instant>)>;

/// What endpoints say now; never are two pods out at once.
fn note(absences: &mut Absences, slices: &Objects) {
    for (pod, serves) in serving(slices) {
        match absences.get_mut(&pod) {
            Some((_, back)) if serves => *back = back.or_else(|| Some(clock::now())),
            // A kubelet that has not seen the gate close yet may say once more that the pod is ready.
            Some((_, back)) => *back = None,
            None if serves => {}
            None => drop(absences.insert(pod, (clock::now(), None))),
        }
    }
    let out: Vec<&String> = absences
        .iter()
        .filter(|(_, (_, back))| back.is_none())
        .map(|(pod, _)| pod)
        .collect();
    assert!(out.len() <= 1, "out of service at once: {out:?}");
}

/// Gives the template another image, and watches endpoints until all pods have it and serve again.
async fn update_watched(api: &Api, ns: &str, image: &str) -> Absences {
    let mut absences = Absences::new();
    let endpoints = slices(ns, "web");
    let (tell, looks) = oneshot::channel();
    let mut tell = Some(tell);
    let watch = api.follow(&endpoints, |slices, _| {
        // Somebody waits for that, once.
        let _told = tell.take().map(|tell| tell.send(()));
        note(&mut absences, slices);
        false
    });
    let update = async {
        looks.await.expect("the watch has begun");
        change(api, ns, "image", json!(image)).await;
        rolled_out(api, Kind::Advanced, ns, "web").await;
    };
    tokio::select! {
        () = watch => unreachable!("it has never seen enough"),
        () = update => {}
    }
    api.until(&endpoints, SOON, "all serve again", |slices| {
        note(&mut absences, slices);
        absences.values().all(|(_, back)| back.is_some())
    })
    .await;
    absences
}

/// STS-4.3, STS-4.4 and STS-4.6.
async fn images_change_in_place_out_of_service(api: &Api, ns: &str) {
    api.create(&format!("/api/v1/namespaces/{ns}/services"), &service("web"))
        .await;
    let before = start(api, ns, 3, |set| {
        set["spec"]["updateStrategy"]["rollingUpdate"]["inPlaceUpdateStrategy"] = json!({"gracePeriodSeconds": GRACE});
    })
    .await;
    let all = |slices: &Objects| serving(slices).values().filter(|serves| **serves).count() == 3;
    api.until(&slices(ns, "web"), SOON, "all serve", all).await;
    let absences = update_watched(api, ns, "app:v2").await;
    assert_eq!(absences.len(), 3, "{absences:?}");
    for (pod, (since, back)) in &absences {
        let lasted = back.expect("it is back").duration_since(*since);
        // Endpoints follow the pod's condition within a moment, at both ends.
        let bounds = Duration::from_millis(1800)..Duration::from_secs(20);
        assert!(bounds.contains(&lasted), "{pod}: {lasted:?}");
    }
    let done = rolled_out(api, Kind::Advanced, ns, "web").await;
    let after = ready(api, ns, 3).await;
    assert_same_pods(&before, &after);
    for (name, pod) in &after {
        let ((_, old), (restarts, new)) = (incarnation(&before[name], "main"), incarnation(pod, "main"));
        assert_eq!(restarts, 1, "{name}");
        assert_ne!(old, new, "{name}");
        assert_eq!(revision(pod), text(&done, "/status/updateRevision"), "{name}");
        assert_eq!(version(api, ns, name).await.as_deref(), Some("v2"), "{name}");
        assert_in_order(pod);
    }
}

/// Out of service, the grace period, the change, the end of the old container, the start of the new one, in service.
fn assert_in_order(pod: &Value) {
    let state = text(pod, "/metadata/annotations/apps.kruise.io~1inplace-update-state");
    let state: Value = serde_json::from_str(state).expect("JSON");
    let (begun, changed) = (
        time(&state, "/updateTimestamp"),
        time(&state, "/containerBatchesRecord/0/timestamp"),
    );
    let main = container(pod, "main");
    let ended = time(main, "/lastState/terminated/finishedAt");
    let started = time(main, "/state/running/startedAt");
    let back = time(condition(pod, GATE), "/lastTransitionTime");
    assert!(changed.as_second() - begun.as_second() >= GRACE, "{begun} {changed}");
    let moments = [begun, changed, ended, started, back];
    assert!(moments.is_sorted(), "{moments:?}");
}

/// STS-4.4 and STS-8.18.
async fn cpu_changes_in_service(api: &Api, ns: &str) {
    let before = start(api, ns, 2, |set| {
        set["spec"]["template"]["spec"]["containers"][0]["resources"] =
            json!({"requests": {"cpu": "20m"}, "limits": {"cpu": "100m"}});
    })
    .await;
    change(api, ns, "resources/limits/cpu", json!("150m")).await;
    let after = api
        .until(&pods(ns), SOON, "resized", |pods| {
            assert!(pods.values().all(is_ready), "all stay in service");
            pods.values()
                .all(|pod| text(container(pod, "main"), "/resources/limits/cpu") == "150m")
        })
        .await;
    assert_same_pods(&before, &after);
    for (name, pod) in &after {
        assert_eq!(
            incarnation(&before[name], "main"),
            incarnation(pod, "main"),
            "{name}: nothing restarted"
        );
    }
    rolled_out(api, Kind::Advanced, ns, "web").await;
}

/// STS-4.4: a container that restarts for its cpu is out of service meanwhile.
async fn cpu_changes_out_of_service_where_that_restarts(api: &Api, ns: &str) {
    let before = start(api, ns, 1, |set| {
        let main = &mut set["spec"]["template"]["spec"]["containers"][0];
        main["resources"] = json!({"requests": {"cpu": "20m"}, "limits": {"cpu": "100m"}});
        main["resizePolicy"] = json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
    })
    .await;
    let mut was_out_before_the_restart = false;
    let gate_watched = pods(ns);
    let (tell, looks) = oneshot::channel();
    let mut tell = Some(tell);
    let watch = api.follow(&gate_watched, |pods, _| {
        // Somebody waits for that, once.
        let _told = tell.take().map(|tell| tell.send(()));
        let Some(pod) = pods.get("web-0") else { return false };
        let is_first = incarnation(pod, "main") == incarnation(&before["web-0"], "main");
        was_out_before_the_restart |= is_first && condition(pod, GATE)["status"] == "False";
        incarnation(pod, "main").0 == 1
    });
    let update = async {
        looks.await.expect("the watch has begun");
        change(api, ns, "resources/limits/cpu", json!("150m")).await;
    };
    tokio::join!(watch, update);
    assert!(was_out_before_the_restart, "the gate goes down first");
    rolled_out(api, Kind::Advanced, ns, "web").await;
    let after = ready(api, ns, 1).await;
    assert_same_pods(&before, &after);
    let main = container(&after["web-0"], "main");
    assert_eq!(main["restartCount"], 1);
    assert_eq!(text(main, "/resources/limits/cpu"), "150m");
    assert_eq!(condition(&after["web-0"], GATE)["status"], "True");
}

/// ADM-3 and STS-4.5, with the entries that admission would give the containers of a pod.
async fn containers_start_and_change_in_order_of_priority(api: &Api, ns: &str) {
    let mut object = pod("web", "app:v1");
    let barrier = |key: &str| json!({"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": {"configMapKeyRef": {"name": "web-barrier", "key": key}}});
    let containers = object["spec"]["containers"].as_array_mut().expect("a list");
    // The one that comes last in the list goes first.
    containers.reverse();
    containers[0]["env"] = json!([barrier("p_0")]);
    containers[1]["env"] = json!([barrier("p_5")]);
    api.create(&pods(ns), &object).await;
    let mut alone = false;
    let mut all = api
        .until(&pods(ns), SOON, "both run", |pods| {
            let Some(pod) = pods.get("web") else { return false };
            let side_runs = !container(pod, "side")["state"]["running"].is_null();
            alone |= container(pod, "main")["ready"] == true && !side_runs;
            side_runs
        })
        .await;
    assert!(alone, "main was ready before the other one started");
    let after = all.remove("web").expect("it was there a moment ago");
    let started = |name: &str| time(container(&after, name), "/state/running/startedAt");
    assert!(started("main") <= started("side"), "{after}");
    assert_eq!(container(&after, "main")["ready"], true);
    set_image(api, ns, "web", "main", "app:v2").await;
    pod_until(api, ns, "web", "restarts behind its barrier", |pod| {
        incarnation(pod, "main").0 == 1 && is_ready(pod)
    })
    .await;
}

/// STS-4.1: the environment is fixed when a container is made.
async fn what_cannot_change_in_place_is_made_again(api: &Api, ns: &str) {
    let before = start(api, ns, 1, |_| ()).await;
    let entry = || json!([{"name": "COLOUR", "value": "green"}]);
    change(api, ns, "env", entry()).await;
    let old = text(&before["web-0"], "/metadata/uid");
    let after = pod_until(api, ns, "web-0", "made again", |pod| {
        text(pod, "/metadata/uid") != old && is_ready(pod)
    })
    .await;
    assert_eq!(incarnation(&after, "main").0, 0);
    let environment = environment(api, ns, "web-0").await;
    assert_eq!(environment.get("COLOUR").map(String::as_str), Some("green"));
    rolled_out(api, Kind::Advanced, ns, "web").await;
}

/// STS-4.2.
async fn in_place_only_refuses_to_make_pods_again(api: &Api, ns: &str) {
    let before = start(api, ns, 1, |set| {
        // The webhook would refuse the change, and nothing would be left for the manager to say.
        set["metadata"]["labels"] = json!({"flotilla.rs/webhooks": "ignore"});
        set["spec"]["updateStrategy"]["rollingUpdate"]["podUpdatePolicy"] = json!("InPlaceOnly");
    })
    .await;
    change(api, ns, "env", json!([{"name": "COLOUR", "value": "green"}])).await;
    let refused = |sets: &Objects| {
        let conditions = sets["web"]["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|c| {
            c["type"] == "FailedUpdatePod"
                && c["reason"] == "InPlaceNotPossible"
                && text(c, "/message").contains("web-0")
        })
    };
    api.until(&Kind::Advanced.sets(ns), SOON, "refused", refused).await;
    let after = api.list(&pods(ns)).await;
    assert_same_pods(&before, &after);
    let annotations = |pods: &Objects| {
        let annotations = pods["web-0"]["metadata"]["annotations"].as_object();
        let mut annotations = annotations.cloned().unwrap_or_default();
        // The node's agent may have noted meanwhile what runs.
        annotations.remove(agent::NOTE);
        annotations
    };
    assert_eq!(annotations(&before), annotations(&after));
    for pointer in ["/metadata/generation", "/metadata/labels", "/status/conditions"] {
        assert_eq!(
            before["web-0"].pointer(pointer),
            after["web-0"].pointer(pointer),
            "{pointer}"
        );
    }
    assert_eq!(
        incarnation(&before["web-0"], "main"),
        incarnation(&after["web-0"], "main")
    );
    // What can be changed in place still is.
    let back = json!([
        {"op": "remove", "path": "/spec/template/spec/containers/0/env"},
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "app:v3"},
    ]);
    let content = Some(("application/json-patch+json", &back));
    let sent = api
        .send(http::Method::PATCH, &Kind::Advanced.set(ns, "web"), content)
        .await;
    sent.expect("it is accepted");
    rolled_out(api, Kind::Advanced, ns, "web").await;
    let after = ready(api, ns, 1).await;
    assert_same_pods(&before, &after);
    assert_eq!(version(api, ns, "web-0").await.as_deref(), Some("v3"));
}

/// The trap of STS-4.6.
async fn the_same_digest_under_another_tag_completes(api: &Api, ns: &str) {
    let before = start(api, ns, 1, |_| ()).await;
    change(api, ns, "image", json!("app:v1-same")).await;
    let done = rolled_out(api, Kind::Advanced, ns, "web").await;
    assert_eq!(number(&done, "/status/updatedReadyReplicas"), 1);
    let after = ready(api, ns, 1).await;
    assert_same_pods(&before, &after);
    let (old, new) = (container(&before["web-0"], "main"), container(&after["web-0"], "main"));
    assert_eq!(new["imageID"], old["imageID"]);
    assert_ne!(new["containerID"], old["containerID"]);
    assert_eq!(new["restartCount"], 1);
}

async fn a_tag_that_does_not_exist(api: &Api, kubeconfig: &Path, ns: &str) {
    let before = start(api, ns, 2, |_| ()).await;
    sets::set_image(api, &Kind::Advanced.set(ns, "web"), "app:v9").await;
    let wait = wait_named(api, kubeconfig, ns, "ContainerCannotStart", "web-1").await;
    let message = text(&wait, "/message");
    assert!(message.contains("main") && message.contains("Pull"), "{message}");
    let during = api.list(&pods(ns)).await;
    assert_eq!(
        during["web-0"]["metadata"]["generation"],
        before["web-0"]["metadata"]["generation"]
    );
    assert!(is_ready(&during["web-0"]), "it waits for web-1");
    sets::set_image(api, &Kind::Advanced.set(ns, "web"), "app:v1").await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
    let after = ready(api, ns, 2).await;
    assert_same_pods(&before, &after);
    assert_eq!(
        incarnation(&after["web-0"], "main"),
        incarnation(&before["web-0"], "main")
    );
    assert_eq!(incarnation(&after["web-1"], "main").0, 1);
    assert_eq!(version(api, ns, "web-1").await.as_deref(), Some("v1"));
}

async fn an_advanced_set_runs_and_serves(api: &Api, ns: &str) {
    api.create(&format!("/api/v1/namespaces/{ns}/services"), &service("web"))
        .await;
    let mut set = advanced_set("web", 2, "app:v1");
    // Without the gate, which is its controller's to set.
    set["spec"]["template"]["spec"]["readinessGates"] = json!([]);
    set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
    set["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "COLOUR", "value": "green"}]);
    api.create(&Kind::Advanced.sets(ns), &set).await;
    let pods = ready(api, ns, 2).await;
    for (name, pod) in &pods {
        assert_eq!(pod["spec"]["nodeName"], "real-0", "{name}");
        let (restarts, id) = incarnation(pod, "main");
        assert_eq!(restarts, 0, "{name}");
        assert!(id.starts_with("containerd://"), "{name}: {id}");
        assert_eq!(version(api, ns, name).await.as_deref(), Some("v1"), "{name}");
        assert_eq!(
            environment(api, ns, name).await.get("COLOUR").map(String::as_str),
            Some("green"),
            "{name}"
        );
    }
    let both = |slices: &_| serving(slices).values().filter(|serves| **serves).count() == 2;
    api.until(&slices(ns, "web"), SOON, "both serve", both).await;
}
