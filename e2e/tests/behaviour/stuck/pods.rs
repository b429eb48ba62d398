//! Pods that do not come up, or do not go.

use flotilla_e2e::api::{Objects, is_ready, text};
use flotilla_e2e::real::set_condition;
use flotilla_e2e::sets::{SOON, pods};
use flotilla_e2e::stuck::{Sort, Stuck, container, template};
use serde_json::{Value, json};

/// Who holds objects in these scenarios.
pub(super) const HOLD: &str = "e2e.flotilla.rs/hold";

/// The name of a pod of which this holds.
pub(super) async fn pod_which(s: &Stuck, what: &str, is: impl Fn(&Value) -> bool) -> String {
    let is_there = |pods: &Objects| pods.values().any(&is);
    let pods = s.api.until(&pods(&s.ns), SOON, what, is_there).await;
    let found = pods.into_iter().find(|(_, pod)| is(pod));
    found.expect("it was there a moment ago").0
}

/// A pod that does not run yet, or runs and is not ready.
pub(super) async fn pod_not_ready(s: &Stuck) -> String {
    pod_which(s, "a pod that is not ready", |pod| !is_ready(pod)).await
}

/// What lets an Advanced set replace a pod that is broken without the one before; CloneSets know no order.
pub(super) fn parallel(s: &Stuck, set: &mut Value) {
    if s.sort != Sort::Clone {
        set["spec"]["podManagementPolicy"] = json!("Parallel");
    }
}

/// What the simulated kubelet is to do with pods of this template.
pub(super) fn shaped(set: &mut Value, key: &str, value: &str) {
    template(set)["metadata"]["annotations"] = json!({format!("sim.flotilla.rs/{key}"): value});
}

/// An update to it is rolled back, and that is all.
pub(super) async fn image_cannot_be_pulled(s: Stuck) {
    s.start(2, |set| parallel(&s, set)).await;
    s.set_image("app:broken").await;
    let pod = pod_not_ready(&s).await;
    let first = s.first(&pod, &["main", "Image"], "flotilla rollout undo ").await;
    s.type_in(&first);
    s.mended().await;
}

/// A native set in order waits for the pod of the broken revision, which never gets ready.
pub(super) async fn rolled_back(s: Stuck) {
    s.start(2, |_| ()).await;
    s.set_image("app:broken").await;
    let first = s.first("web-1", &["main", "Image"], "flotilla rollout undo ").await;
    s.type_in(&first);
    let first = s.first("web-1", &["main", "Image"], "kubectl delete pod web-1 ").await;
    s.type_in(&first);
    s.mended().await;
}

/// There is nothing to go back to. A native set in order waits for the pod even then.
pub(super) async fn first_image_cannot_be_pulled(s: Stuck) {
    s.create(2, |set| container(set)["image"] = json!("app:broken")).await;
    let pod = pod_not_ready(&s).await;
    let first = s.first(&pod, &["main", "Image"], "kubectl edit ").await;
    s.edit(&first, "app:broken", "s/app:broken/app:v2/");
    if s.sort == Sort::Native {
        let first = s.first("web-0", &["main", "Image"], "kubectl delete pod web-0 ").await;
        s.type_in(&first);
    }
    s.mended().await;
}

/// Simulated pods have no logs.
pub(super) async fn crash_loop(s: Stuck) {
    s.start(2, |set| parallel(&s, set)).await;
    s.change(|set| shaped(set, "crash", "true")).await;
    let pod = pod_not_ready(&s).await;
    let words = ["main", "CrashLoopBackOff"];
    let logs = s.first(&pod, &words, "kubectl logs ").await;
    // A pod is ready until it crashes for the first time, which may be long enough for the next one.
    let one = logs.subject.split(", ").next().unwrap_or_default();
    assert_eq!(
        logs.command,
        format!("kubectl logs {one} -c main -n {} --previous", s.ns)
    );
    let first = s.first(&pod, &words, "flotilla rollout undo ").await;
    s.type_in(&first);
    s.mended().await;
}

/// The others wait for the one that is not ready; it is named before them.
pub(super) async fn budget_used_up(s: Stuck) {
    s.start(3, |set| {
        parallel(&s, set);
        set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    })
    .await;
    s.change(|set| {
        container(set)["image"] = json!("app:v2");
        shaped(set, "never-ready", "true");
    })
    .await;
    let is_new =
        |pod: &Value| text(pod, "/spec/containers/0/image") == "app:v2" && text(pod, "/status/phase") == "Running";
    let pod = pod_which(&s, "the new one", is_new).await;
    let first = s
        .first(&pod, &["not ready"], &format!("kubectl describe pod {pod} "))
        .await;
    assert!(!first.holds_up.is_empty(), "{first:?}");
    let said = s.type_in(&first);
    assert!(said.contains("sim.flotilla.rs/never-ready"), "{said}");
    s.change(|set| template(set)["metadata"]["annotations"] = Value::Null)
        .await;
    s.mended().await;
}

/// Nobody says what the pod's readiness gate waits for.
pub(super) async fn gate_closed(s: Stuck) {
    s.create(1, |set| {
        template(set)["spec"]["readinessGates"] = json!([{"conditionType": "example.com/lb"}]);
    })
    .await;
    let pod = pod_not_ready(&s).await;
    let words = ["readiness gate example.com/lb is not set"];
    let first = s.first(&pod, &words, "kubectl describe pod ").await;
    let said = s.type_in(&first);
    assert!(
        said.contains("Readiness Gates") && said.contains("example.com/lb"),
        "{said}"
    );
    set_condition(&s.api, &s.ns, &pod, "example.com/lb", "True").await;
    s.mended().await;
}

/// Somebody has a pod of that name already.
pub(super) async fn name_taken(s: Stuck) {
    let spec = json!({"containers": [{"name": "main", "image": "app:v1"}]});
    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0"}, "spec": spec});
    s.api.create(&pods(&s.ns), &other).await;
    s.create(2, |_| ()).await;
    let first = s
        .first("web-0", &["belongs to nobody"], "kubectl delete pod web-0 ")
        .await;
    s.type_in(&first);
    s.mended().await;
}

/// A finalizer of which nobody thinks any more.
pub(super) async fn held_by_a_finalizer(s: Stuck) {
    s.start(2, |_| ()).await;
    let last = |pod: &Value| is_ready(pod) && !text(pod, "/metadata/name").ends_with("-0");
    let pod = pod_which(&s, "the last", last).await;
    s.api
        .patch(&s.pod(&pod), &json!({"metadata": {"finalizers": [HOLD]}}))
        .await;
    s.api.delete(&s.pod(&pod), false).await;
    let first = s.first(&pod, &["is terminating", HOLD], "kubectl edit pod ").await;
    assert!(first.advice.contains(HOLD), "{first:?}");
    s.edit(&first, HOLD, &format!("\\|^  - {HOLD}$|d"));
    s.mended().await;
}

/// A label of a state that no hook of the set knows.
pub(super) async fn state_of_its_lifecycle(s: Stuck) {
    s.start(2, |_| ()).await;
    let state = json!({"metadata": {"labels": {"lifecycle.apps.kruise.io/state": "Draining"}}});
    s.api.patch(&s.pod("web-1"), &state).await;
    let first = s
        .first(
            "web-1",
            &["lifecycle.apps.kruise.io/state=Draining"],
            "kubectl label pod web-1 ",
        )
        .await;
    s.type_in(&first);
    s.mended().await;
}

/// More than the node has, which the pod is to have in place.
pub(super) async fn resize_infeasible(s: Stuck) {
    let sized = |cpu: &str| json!({"requests": {"cpu": cpu}});
    s.start(1, |set| {
        container(set)["resources"] = sized("1");
        shaped(set, "resize", "infeasible");
        template(set)["spec"]["readinessGates"] = json!([{"conditionType": "InPlaceUpdateReady"}]);
        set["spec"]["updateStrategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceOnly"}});
    })
    .await;
    s.change(|set| container(set)["resources"] = sized("2")).await;
    let pod = pod_which(&s, "the pod", |_| true).await;
    let first = s
        .first(&pod, &["its node cannot give it its resources"], "kubectl edit ")
        .await;
    s.edit(
        &first,
        "resources",
        "/^        resources:$/,/cpu:/s/cpu: \"2\"/cpu: \"1\"/",
    );
    s.mended().await;
}
