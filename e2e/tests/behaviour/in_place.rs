//! Updates in place on simulated nodes: what changes in a pod, what stays, and what is said meanwhile.

use crate::Lab;
use crate::why::Story;
use flotilla_e2e::api::{Objects, is_ready, name, number, revision, text};
use flotilla_e2e::real::{condition, container, incarnation};
use flotilla_e2e::sets::{SOON, all_ready, pods, ready, rolled_out, set_image, shape};
use flotilla_e2e::suite::trial;
use flotilla_e2e::{Api, Kind};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// For how long something must not happen.
const A_WHILE: Duration = Duration::from_secs(2);
/// What an update in place says of itself.
const STATE: &str = "/metadata/annotations/apps.kruise.io~1inplace-update-state";

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = Vec::new();
    macro_rules! story {
        ($name:ident) => {
            let own = lab.clone();
            let namespace = format!("in-place-{}", stringify!($name).replace('_', "-"));
            trials.push(trial(
                format!("in_place::{}", stringify!($name)),
                move || async move {
                    $name(Story::enter(&own, namespace).await).await;
                },
            ));
        };
    }
    story!(images_change_within_the_budget);
    story!(a_change_of_metadata_restarts_nothing);
    story!(cpu_is_resized_in_service);
    story!(a_deferred_resize_is_waited_for);
    story!(an_infeasible_resize_makes_the_pod_again);
    story!(an_infeasible_resize_is_told_in_place_only);
    story!(a_resize_beyond_the_node_makes_the_pod_again);
    story!(a_resize_beyond_the_node_is_told_in_place_only);
    story!(a_grace_period_lies_between_service_and_change);
    story!(a_broken_tag_is_told_and_rolled_back);
    story!(what_cannot_be_done_in_place_is_refused_in_place_only);
    trials
}

/// A set that is updated in place, its pods all at once and with a restart that takes a moment.
pub(crate) fn in_place_set(replicas: i64) -> Value {
    let mut set = Kind::Advanced.manifest("web", replicas);
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    set["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible"}});
    let template = &mut set["spec"]["template"];
    template["metadata"]["annotations"] = json!({"sim.flotilla.rs/restart": "300ms"});
    template["spec"]["readinessGates"] = json!([{"conditionType": "InPlaceUpdateReady"}]);
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    set
}

/// The path of the set of a story.
pub(crate) fn web(ns: &str) -> String {
    Kind::Advanced.set(ns, "web")
}

/// Makes a set, waits until its pods are ready and its status says so, and returns them.
pub(crate) async fn start(api: &Api, ns: &str, set: &Value) -> Objects {
    api.create(&Kind::Advanced.sets(ns), set).await;
    let count = usize::try_from(number(set, "/spec/replicas")).expect("small");
    ready(api, ns, count).await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
    api.list(&pods(ns)).await
}

/// Replaces a field of the set's template by JSON patch.
pub(crate) async fn change(api: &Api, ns: &str, path: &str, value: Value) {
    let body = json!([{"op": "add", "path": format!("/spec/template/{path}"), "value": value}]);
    let sent = api
        .send(
            http::Method::PATCH,
            &web(ns),
            Some(("application/json-patch+json", &body)),
        )
        .await;
    sent.unwrap_or_else(|e| panic!("PATCH {path}: {e}"));
}

/// UID and restarts by pod.
pub(crate) fn lives(pods: &Objects) -> BTreeMap<String, (String, i64)> {
    let life = |pod: &Value| (text(pod, "/metadata/uid").to_owned(), incarnation(pod, "main").0);
    pods.iter().map(|(name, pod)| (name.clone(), life(pod))).collect()
}

/// The same pods with so many more restarts.
fn restarted(lives: &BTreeMap<String, (String, i64)>, by: i64) -> BTreeMap<String, (String, i64)> {
    let more = |(uid, restarts): &(String, i64)| (uid.clone(), restarts + by);
    lives.iter().map(|(name, life)| (name.clone(), more(life))).collect()
}

/// The image that a pod runs, as its status tells.
pub(crate) fn runs(pod: &Value) -> &str {
    text(container(pod, "main"), "/image")
}

/// STS-3.7, STS-4.3 and STS-4.6.
async fn images_change_within_the_budget(s: Story) {
    let (api, ns) = (&s.api, s.ns.as_str());
    let mut set = in_place_set(6);
    set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = json!(2);
    let before = start(api, ns, &set).await;
    set_image(api, &web(ns), "app:v2").await;
    let mut most = 0;
    let after = api
        .until(&pods(ns), SOON, "all updated", |pods| {
            let out = pods.values().filter(|pod| !is_ready(pod)).count();
            assert!(out <= 2, "{out} out of service");
            most = most.max(out);
            all_ready(pods, 6) && pods.values().all(|pod| runs(pod) == "app:v2")
        })
        .await;
    assert_eq!(most, 2, "the budget is used");
    assert_eq!(lives(&after), restarted(&lives(&before), 1));
    let done = rolled_out(api, Kind::Advanced, ns, "web").await;
    let new = text(&done, "/status/updateRevision");
    assert!(after.values().all(|pod| revision(pod) == new));
    let events = format!("/api/v1/namespaces/{ns}/events");
    api.until(&events, SOON, "an event for each pod", |events| {
        let told: Vec<&str> = events
            .values()
            .filter(|e| e["reason"] == "SuccessfulUpdatePodInPlace" && e["type"] == "Normal")
            .map(|e| text(e, "/message"))
            .collect();
        before
            .keys()
            .all(|pod| told.iter().any(|m| m.contains(&format!("Pod {pod} "))))
    })
    .await;
}

/// STS-4.1.
async fn a_change_of_metadata_restarts_nothing(s: Story) {
    let (api, ns) = (&s.api, s.ns.as_str());
    let mut set = in_place_set(2);
    set["spec"]["template"]["metadata"]["labels"]["tier"] = json!("one");
    let before = start(api, ns, &set).await;
    let metadata =
        json!({"labels": {"app": "web", "colour": "green"}, "annotations": {"sim.flotilla.rs/restart": "200ms"}});
    change(api, ns, "metadata", metadata).await;
    let all_have = |pods: &Objects| {
        pods.values().all(|pod| {
            let labels = &pod["metadata"]["labels"];
            labels["colour"] == "green" && labels["tier"].is_null()
        })
    };
    api.until(&pods(ns), SOON, "labels follow the template", all_have).await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
    assert_eq!(lives(&ready(api, ns, 2).await), lives(&before));
}

/// STS-4.4 and STS-8.18: nothing leaves service, so the budget of one holds nothing up.
async fn cpu_is_resized_in_service(s: Story) {
    let (api, ns) = (&s.api, s.ns.as_str());
    let before = start(api, ns, &in_place_set(3)).await;
    change(api, ns, "spec/containers/0/resources/requests/cpu", json!("200m")).await;
    let after = api
        .until(&pods(ns), SOON, "resized", |pods| {
            assert!(pods.values().all(is_ready), "all stay in service");
            let has = |pod: &Value| text(container(pod, "main"), "/resources/requests/cpu") == "200m";
            pods.values().all(has)
        })
        .await;
    assert_eq!(lives(&after), lives(&before));
    rolled_out(api, Kind::Advanced, ns, "web").await;
}

/// Whether the kubelet puts a resize off, or refuses it.
fn resize_is(pod: &Value, reason: &str) -> bool {
    condition(pod, "PodResizePending")["reason"] == reason
}

/// STS-4.6.
async fn a_deferred_resize_is_waited_for(s: Story) {
    let (api, ns) = (&s.api, s.ns.as_str());
    let before = start(api, ns, &in_place_set(1)).await;
    shape(api, ns, "web-0", "resize", Some("deferred")).await;
    change(api, ns, "spec/containers/0/resources/requests/cpu", json!("200m")).await;
    let put_off = |pods: &Objects| resize_is(&pods["web-0"], "Deferred");
    api.until(&pods(ns), SOON, "put off", put_off).await;
    let wait = s.eventually("InPlaceResize", "web-0").await;
    assert!(text(&wait, "/message").contains("simulated kubelet"), "{wait}");
    shape(api, ns, "web-0", "resize", None).await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
    let after = ready(api, ns, 1).await;
    assert_eq!(
        text(container(&after["web-0"], "main"), "/resources/requests/cpu"),
        "200m"
    );
    assert_eq!(lives(&after), lives(&before));
}

/// STS-4.6.
async fn an_infeasible_resize_makes_the_pod_again(s: Story) {
    let (api, ns) = (&s.api, s.ns.as_str());
    let before = start(api, ns, &in_place_set(2)).await;
    shape(api, ns, "web-1", "resize", Some("infeasible")).await;
    change(api, ns, "spec/containers/0/resources/requests/cpu", json!("200m")).await;
    let is_new = |pods: &Objects| {
        let has = |pod: &Value| text(container(pod, "main"), "/resources/requests/cpu") == "200m";
        all_ready(pods, 2) && pods.values().all(has)
    };
    let after = api.until(&pods(ns), SOON, "resized and made again", is_new).await;
    let (before, after) = (lives(&before), lives(&after));
    assert_eq!(before["web-0"], after["web-0"], "resized");
    assert_ne!(before["web-1"], after["web-1"], "made again");
    rolled_out(api, Kind::Advanced, ns, "web").await;
}

async fn an_infeasible_resize_is_told_in_place_only(s: Story) {
    let (api, ns) = (&s.api, s.ns.as_str());
    let mut set = in_place_set(1);
    set["spec"]["updateStrategy"]["rollingUpdate"]["podUpdatePolicy"] = json!("InPlaceOnly");
    let before = start(api, ns, &set).await;
    shape(api, ns, "web-0", "resize", Some("infeasible")).await;
    change(api, ns, "spec/containers/0/resources/requests/cpu", json!("200m")).await;
    s.told(("FailedUpdatePod", "ResizeInfeasible"), "web-0").await;
    let wait = s.eventually("ResizeInfeasible", "web-0").await;
    assert!(text(&wait, "/message").contains("simulated kubelet"), "{wait}");
    assert_eq!(lives(&api.list(&pods(ns)).await), lives(&before));
    // Rolled back: nothing is left to do, and nothing to report.
    change(api, ns, "spec/containers/0/resources/requests/cpu", json!("100m")).await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
    s.untold("FailedUpdatePod").await;
    assert_eq!(lives(&ready(api, ns, 1).await), lives(&before));
}

/// More cpu than any node has: the API server itself refuses to give it to a pod that runs.
const TOO_MUCH: &str = "100000";

/// STS-4.6: made again, which no node can take either; the other one waits for it, and the way back is open.
async fn a_resize_beyond_the_node_makes_the_pod_again(s: Story) {
    let (api, ns) = (&s.api, s.ns.as_str());
    let before = start(api, ns, &in_place_set(2)).await;
    change(api, ns, "spec/containers/0/resources/requests/cpu", json!(TOO_MUCH)).await;
    let is_new = |pods: &Objects| pods.get("web-1").is_some_and(|pod| uid(pod) != uid(&before["web-1"]));
    api.until(&pods(ns), SOON, "web-1 is made again", is_new).await;
    s.eventually("PodNotReady", "web-1").await;
    change(api, ns, "spec/containers/0/resources/requests/cpu", json!("100m")).await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
    assert_eq!(
        lives(&ready(api, ns, 2).await)["web-0"],
        lives(&before)["web-0"],
        "never touched"
    );
}

/// STS-4.6: it runs on as it was.
async fn a_resize_beyond_the_node_is_told_in_place_only(s: Story) {
    let (api, ns) = (&s.api, s.ns.as_str());
    let mut set = in_place_set(1);
    set["spec"]["updateStrategy"]["rollingUpdate"]["podUpdatePolicy"] = json!("InPlaceOnly");
    let before = start(api, ns, &set).await;
    change(api, ns, "spec/containers/0/resources/requests/cpu", json!(TOO_MUCH)).await;
    s.told(("FailedUpdatePod", "ResizeInfeasible"), "web-0").await;
    // Which asks the controller anew, without what the manager was answered: the set's condition has it.
    let wait = s.eventually("ResizeInfeasible", "web-0").await;
    assert!(text(&wait, "/message").contains("enough allocatable"), "{wait}");
    // As when the kubelet finds out: its revision is the new one, what it runs with is not.
    let cpu = |pod: &Value| text(pod, "/spec/containers/0/resources/requests/cpu").to_owned();
    let runs_on = |pods: &Objects| is_ready(&pods["web-0"]) && cpu(&pods["web-0"]) == cpu(&before["web-0"]);
    api.throughout(&pods(ns), A_WHILE, "it runs on", runs_on).await;
    change(api, ns, "spec/containers/0/resources/requests/cpu", json!("100m")).await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
    s.untold("FailedUpdatePod").await;
    assert_eq!(lives(&ready(api, ns, 1).await), lives(&before));
}

fn uid(pod: &Value) -> &str {
    text(pod, "/metadata/uid")
}

/// STS-4.3 and STS-4.4: the pod leaves service, and its container changes when the period has ended.
async fn a_grace_period_lies_between_service_and_change(s: Story) {
    let (api, ns) = (&s.api, s.ns.as_str());
    let mut set = in_place_set(1);
    set["spec"]["updateStrategy"]["rollingUpdate"]["inPlaceUpdateStrategy"] = json!({"gracePeriodSeconds": 3});
    let before = start(api, ns, &set).await;
    set_image(api, &web(ns), "app:v2").await;
    let mut out_first = false;
    let changed = api
        .until(&pods(ns), SOON, "the image changes", |pods| {
            let pod = &pods["web-0"];
            let is_old = text(pod, "/spec/containers/0/image") == "app:v1";
            out_first |= is_old && !is_ready(pod) && condition(pod, "InPlaceUpdateReady")["status"] == "False";
            !is_old
        })
        .await;
    assert!(out_first, "it was out of service with the old image");
    let state: Value = serde_json::from_str(text(&changed["web-0"], STATE)).expect("JSON");
    let begun: k8s_openapi::jiff::Timestamp = text(&state, "/updateTimestamp").parse().expect("a time");
    let ended = text(&state, "/containerBatchesRecord/0/timestamp");
    let ended: k8s_openapi::jiff::Timestamp = ended.parse().expect("a time");
    let lasted = ended.as_second() - begun.as_second();
    assert!((3..=10).contains(&lasted), "{lasted} s");
    rolled_out(api, Kind::Advanced, ns, "web").await;
    assert_eq!(lives(&ready(api, ns, 1).await), restarted(&lives(&before), 1));
}

/// STS-4.6: it waits, says for what, and the way back is open.
async fn a_broken_tag_is_told_and_rolled_back(s: Story) {
    let (api, ns) = (&s.api, s.ns.as_str());
    let before = start(api, ns, &in_place_set(2)).await;
    set_image(api, &web(ns), "app:broken").await;
    let down = |pods: &Objects| text(container(&pods["web-1"], "main"), "/state/waiting/reason") == "ErrImagePull";
    api.until(&pods(ns), SOON, "web-1 cannot pull", down).await;
    let wait = s.eventually("ContainerCannotStart", "web-1").await;
    assert!(text(&wait, "/message").contains("ErrImagePull"), "{wait}");
    let untouched = |pods: &Objects| is_ready(&pods["web-0"]) && revision(&pods["web-0"]) == revision(&before["web-0"]);
    api.throughout(&pods(ns), A_WHILE, "web-0 waits for web-1", untouched)
        .await;
    set_image(api, &web(ns), "app:v1").await;
    rolled_out(api, Kind::Advanced, ns, "web").await;
    let (before, after) = (lives(&before), lives(&ready(api, ns, 2).await));
    assert_eq!(before["web-0"], after["web-0"], "never touched");
    assert_eq!(restarted(&before, 1)["web-1"], after["web-1"], "the same pod");
}

/// STS-4.1 and STS-4.2.
async fn what_cannot_be_done_in_place_is_refused_in_place_only(s: Story) {
    let (api, ns) = (&s.api, s.ns.as_str());
    let mut set = in_place_set(2);
    set["spec"]["updateStrategy"]["rollingUpdate"]["podUpdatePolicy"] = json!("InPlaceOnly");
    let before = start(api, ns, &set).await;
    let env = json!([{"name": "COLOUR", "value": "green"}]);
    change(api, ns, "spec/containers/0/env", env).await;
    s.told(("FailedUpdatePod", "InPlaceNotPossible"), "web-1").await;
    let wait = s.eventually("InPlaceNotPossible", "web-1").await;
    assert!(text(&wait, "/message").contains("env"), "{wait}");
    let version = |pods: &Objects| -> Vec<(String, String)> {
        let one = |pod: &Value| (name(pod), text(pod, "/metadata/resourceVersion").to_owned());
        pods.values().map(one).collect()
    };
    assert_eq!(
        version(&api.list(&pods(ns)).await),
        version(&before),
        "no pod was touched"
    );
}
