//! Sets that wait for somebody: because they were told to, because a hook asks for it, or because they are on their way out.

use super::pods::{HOLD, pod_which};
use flotilla_e2e::api::{Objects, is_ready, number, revision, text};
use flotilla_e2e::sets::{SOON, pods};
use flotilla_e2e::stuck::{Stuck, cause, container, template};
use serde_json::{Value, json};

/// What hooks look for.
const MARKER: &str = "example.com/drained";

/// An update in the middle of a pause.
pub(super) async fn paused(s: Stuck) {
    s.start(2, |_| ()).await;
    s.flotilla(&["rollout", "pause"]);
    s.set_image("app:v2").await;
    let first = s.first("web", &[], "flotilla rollout resume ").await;
    s.type_in(&first);
    s.mended().await;
}

/// An update of which half is kept back.
pub(super) async fn partition(s: Stuck) {
    s.start(2, |_| ()).await;
    s.change(|set| {
        set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
        container(set)["image"] = json!("app:v2");
    })
    .await;
    let first = s
        .first("web", &["the partition keeps 1 on the old revision"], "kubectl edit ")
        .await;
    s.edit(&first, "partition", "s/^      partition: 1$/      partition: 0/");
    s.mended().await;
}

/// Users say when a pod goes.
pub(super) async fn on_delete(s: Stuck) {
    s.start(2, |set| set["spec"]["updateStrategy"] = json!({"type": "OnDelete"}))
        .await;
    let old = text(&s.api.read(&s.set()).await, "/status/updateRevision").to_owned();
    s.set_image("app:v2").await;
    let words = ["2 old, replaced when they are deleted"];
    let first = s.first("web", &words, "kubectl get pods ").await;
    let said = s.type_in(&first);
    let mut lines = said.lines().filter(|line| line.contains(&old));
    let named: Vec<&str> = lines
        .by_ref()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(named, ["web-0", "web-1"], "{said}");
    for pod in named {
        s.api.delete(&s.pod(pod), false).await;
    }
    let are_new = |pods: &Objects| pods.len() == 2 && pods.values().all(|pod| is_ready(pod) && revision(pod) != old);
    s.api.until(&pods(&s.ns), SOON, "new pods", are_new).await;
    s.mended().await;
}

/// A pod that is to go waits until somebody has drained it.
pub(super) async fn pre_delete(s: Stuck) {
    s.start(2, |set| {
        set["spec"]["lifecycle"] = json!({"preDelete": {"labelsHandler": {MARKER: "no"}}});
        template(set)["metadata"]["labels"][MARKER] = json!("no");
    })
    .await;
    s.change(|set| set["spec"]["replicas"] = json!(1)).await;
    let is_leaving = |pod: &Value| text(pod, "/metadata/labels/lifecycle.apps.kruise.io~1state") == "PreparingDelete";
    let pod = pod_which(&s, "a pod that is to go", is_leaving).await;
    let first = s
        .first(&pod, &["hook preDelete holds it", MARKER], "kubectl edit pod ")
        .await;
    assert!(first.advice.contains(MARKER), "{first:?}");
    s.edit(&first, MARKER, &format!("\\|^    {MARKER}: |d"));
    s.mended().await;
}

/// A pod that is up waits until somebody has let it in.
pub(super) async fn pre_normal(s: Stuck) {
    s.create(1, |set| {
        set["spec"]["lifecycle"] = json!({"preNormal": {"labelsHandler": {MARKER: "yes"}}});
    })
    .await;
    let pod = pod_which(&s, "a pod", |pod| text(pod, "/status/phase") == "Running").await;
    let first = s
        .first(&pod, &["hook preNormal waits for", MARKER], "kubectl edit pod ")
        .await;
    assert!(first.advice.contains(&format!("{MARKER}=yes")), "{first:?}");
    let script = format!("s|^  labels:$|  labels:\\n    {MARKER}: \"yes\"|");
    s.edit(&first, MARKER, &script);
    s.mended().await;
}

/// What nobody can change in place, and nothing else is allowed: pod by pod.
pub(super) async fn in_place_only(s: Stuck) {
    s.start(2, |set| {
        template(set)["spec"]["readinessGates"] = json!([{"conditionType": "InPlaceUpdateReady"}]);
        set["spec"]["updateStrategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceOnly"}});
    })
    .await;
    s.change(|set| container(set)["env"] = json!([{"name": "COLOUR", "value": "green"}]))
        .await;
    for left in (0..2).rev() {
        let pod = pod_which(&s, "an old one", |pod| pod["spec"]["containers"][0]["env"].is_null()).await;
        let first = s
            .first(&pod, &["cannot be updated in place"], "kubectl delete pod ")
            .await;
        s.type_in(&first);
        let is_one_fewer = |sets: &Objects| number(&sets["web"], "/status/updatedReadyReplicas") == 2 - left;
        s.api
            .until(&s.sort.sets(&s.ns), SOON, "one more is new", is_one_fewer)
            .await;
    }
    s.mended().await;
}

/// A set that was deleted, and stays for a finalizer.
pub(super) async fn set_terminating(s: Stuck) {
    s.start(1, |set| set["metadata"]["finalizers"] = json!([HOLD])).await;
    s.api.delete(&s.set(), false).await;
    let first = s.first("web", &["is being deleted", HOLD], "kubectl edit ").await;
    s.edit(&first, HOLD, &format!("\\|^  - {HOLD}$|d"));
    s.api
        .until(&s.sort.sets(&s.ns), SOON, "no set", Objects::is_empty)
        .await;
}

/// A set that goes after its pods, of which one does not go.
pub(super) async fn set_terminating_in_foreground(s: Stuck) {
    s.start(2, |_| ()).await;
    s.api
        .patch(&s.pod("web-1"), &json!({"metadata": {"finalizers": [HOLD]}}))
        .await;
    s.api.delete_by(&s.set(), "Foreground").await;
    let first = s.first("web-1", &["is terminating", HOLD], "kubectl edit pod ").await;
    s.edit(&first, HOLD, &format!("\\|^  - {HOLD}$|d"));
    s.api
        .until(&s.sort.sets(&s.ns), SOON, "no set", Objects::is_empty)
        .await;
}

/// The namespace was deleted, and what is in it does not go.
pub(super) async fn namespace_terminating(s: Stuck) {
    s.start(1, |set| set["metadata"]["finalizers"] = json!([HOLD])).await;
    let namespace = format!("/api/v1/namespaces/{}", s.ns);
    s.api.delete(&namespace, false).await;
    let one = format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{}", s.ns);
    // Only the controller of namespaces knows what is left in it, and says so when it has tried.
    let is_told = |namespaces: &Objects| namespaces.values().any(|n| n["status"].to_string().contains(HOLD));
    s.api.until(&one, SOON, "what is left is told", is_told).await;
    let subject = format!("namespace {}", s.ns);
    let words = ["is being deleted", HOLD];
    let namespace_goes = cause(&subject, &words, "kubectl get namespace ");
    let told = s.told(&[namespace_goes, cause("web", &words, "kubectl edit ")]).await;
    let said = s.type_in(&told[0]);
    assert!(
        said.contains(HOLD) && said.contains("statefulsets.apps.kruise.io"),
        "{said}"
    );
    s.edit(&told[1], HOLD, &format!("\\|^  - {HOLD}$|d"));
    s.api.until(&one, SOON, "no namespace", Objects::is_empty).await;
}
