//! Launch priorities of pods that are made through a set, by the webhook that gives their containers a barrier (ADM-3, STS-4.5).

use crate::Lab;
use crate::sets::{assert_started_anew, start, time};
use flotilla_e2e::api::{Objects, is_ready, text};
use flotilla_e2e::real::{container, incarnation};
use flotilla_e2e::sets::{SOON, pods, ready, rolled_out};
use flotilla_e2e::{Api, Kind};
use http::Method;
use libtest_mimic::Trial;
use serde_json::{Value, json};

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    crate::scenarios!(
        lab,
        "order",
        [
            containers_of_a_set_start_by_their_priority,
            containers_of_a_set_start_in_the_order_of_the_list,
            containers_change_in_batches_by_their_priority,
        ]
    )
}

/// `main` is ready so long after its start, so that times in whole seconds tell.
const LATENCY_SECONDS: i64 = 2;

/// The containers of a set: `side`, which is ready at once, and `main`, in this order.
fn side_first(set: &mut Value) -> &mut Vec<Value> {
    let containers = set["spec"]["template"]["spec"]["containers"]
        .as_array_mut()
        .expect("a list");
    containers[0]["readinessProbe"]["initialDelaySeconds"] = json!(LATENCY_SECONDS);
    containers.reverse();
    containers
}

fn prioritized(set: &mut Value) {
    let containers = side_first(set);
    for (container, priority) in containers.iter_mut().zip(["1", "5"]) {
        container["env"] = json!([{"name": "KRUISE_CONTAINER_PRIORITY", "value": priority}]);
    }
}

fn started(pod: &Value, name: &str) -> i64 {
    time(container(pod, name), "/state/running/startedAt").as_second()
}

/// Each pod's barrier is there, and `first` runs before `second` is started.
fn assert_order(pods: &Objects, first: &str, second: &str, apart: i64) {
    for (name, pod) in pods {
        let lag = started(pod, second) - started(pod, first);
        assert!(lag >= apart, "{name}: {second} started {lag} s after {first}");
        let containers = pod["spec"]["containers"].as_array().expect("a list");
        let has_barrier = |c: &Value| {
            let env = c["env"].as_array().into_iter().flatten();
            env.into_iter().any(|e| e["name"] == "KRUISE_CONTAINER_BARRIER")
        };
        assert!(containers.iter().all(has_barrier), "{name}");
    }
}

async fn containers_of_a_set_start_by_their_priority(api: &Api, ns: &str) {
    let pods = start(api, ns, 2, prioritized).await;
    assert_order(&pods, "main", "side", LATENCY_SECONDS);
}

async fn containers_of_a_set_start_in_the_order_of_the_list(api: &Api, ns: &str) {
    let pods = start(api, ns, 1, |set| {
        side_first(set).reverse();
        set["spec"]["template"]["metadata"]["annotations"] =
            json!({"apps.kruise.io/container-launch-priority": "Ordered"});
    })
    .await;
    assert_order(&pods, "main", "side", LATENCY_SECONDS);
}

async fn containers_change_in_batches_by_their_priority(api: &Api, ns: &str) {
    let before = start(api, ns, 1, prioritized).await;
    let image = |index: u8, image: &str| json!({"op": "replace", "path": format!("/spec/template/spec/containers/{index}/image"), "value": image});
    // Another name of the same image is another image to the kubelet.
    let body = json!([image(0, "registry.test/pause:1"), image(1, "app:v2")]);
    let content = Some(("application/json-patch+json", &body));
    let sent = api.send(Method::PATCH, &Kind::Advanced.set(ns, "web"), content).await;
    sent.expect("it is accepted");
    let was_early = |pod: &Value| incarnation(pod, "side").0 > 0 && incarnation(pod, "main").0 == 0;
    api.until(&pods(ns), SOON, "both have restarted", |pods| {
        let pod = &pods["web-0"];
        assert!(!was_early(pod), "the other one does not change before main: {pod}");
        incarnation(pod, "side").0 == 1 && is_ready(pod)
    })
    .await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
    let after = ready(api, ns, 1).await;
    assert_order(&after, "main", "side", LATENCY_SECONDS);
    for name in ["main", "side"] {
        assert_started_anew(&before["web-0"], &after["web-0"], name);
    }
    let state = text(
        &after["web-0"],
        "/metadata/annotations/apps.kruise.io~1inplace-update-state",
    );
    let state: Value = serde_json::from_str(state).expect("JSON");
    let batches: Vec<&Value> = state["containerBatchesRecord"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|batch| &batch["containers"])
        .collect();
    assert_eq!(batches, [&json!(["main"]), &json!(["side"])]);
}
