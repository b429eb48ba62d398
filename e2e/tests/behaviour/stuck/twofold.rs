//! Sets with two troubles at once: both are told, the root first where one is that of the other, and what is advised helps, one after the
//! other. Where one trouble hides the other, that is told as soon as the first is over.

use super::nodes::{NODES, add_node, on_own_nodes};
use super::pods::{HOLD, parallel, pod_not_ready, pod_which, shaped};
use super::refused::{limit_pods, raise_limit, wanted_pod};
use super::volumes::{CLASSES, PROVISIONERS, class, provide, with_claims};
use flotilla_e2e::api::{Objects, is_ready, text};
use flotilla_e2e::real::set_condition;
use flotilla_e2e::sets::{SOON, claims, pods};
use flotilla_e2e::stuck::{Expected, Stuck, cause, container, template};
use serde_json::{Value, json};

/// What hooks look for.
const MARKER: &str = "example.com/drained";

/// By which editor a finalizer goes.
fn without_hold() -> String {
    format!("\\|^  - {HOLD}$|d")
}

/// A rolling update that keeps one pod as it is.
fn keep_one(set: &mut Value) {
    set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
}

/// What is told of that.
const KEEPS_ONE: Expected<'static> = cause("web", &["the partition keeps 1"], "kubectl edit ");

/// The partition is what is left.
async fn lower_partition(s: &Stuck) {
    let told = s.told(&[KEEPS_ONE]).await;
    s.edit(&told[0], "partition", "s/^      partition: 1$/      partition: 0/");
}

/// For one pod there is no room, and the other cannot pull its image.
pub(super) async fn quota_and_image(s: Stuck) {
    limit_pods(&s, "1").await;
    s.create(2, |set| {
        parallel(&s, set);
        container(set)["image"] = json!("app:broken");
    })
    .await;
    let pod = pod_not_ready(&s).await;
    let other = if pod == "web-1" { "web-0" } else { "web-1" };
    let quota = cause(
        wanted_pod(&s, other),
        &["QuotaExceeded", "small"],
        "kubectl describe resourcequota ",
    );
    let image = cause(&pod, &["main", "Image"], "kubectl edit ");
    let told = s.told_beside(&[quota, image]).await;
    let said = s.type_in(&told[0]);
    assert!(said.contains("small") && said.contains("pods"), "{said}");
    raise_limit(&s).await;
    let waits = |pod: &Value| text(pod, "/status/containerStatuses/0/state/waiting/reason") == "ImagePullBackOff";
    let both_wait = |pods: &Objects| pods.len() == 2 && pods.values().all(waits);
    s.api
        .until(&pods(&s.ns), SOON, "both pods lack the image", both_wait)
        .await;
    let image = s.first(&pod, &["main", "Image"], "kubectl edit ").await;
    s.edit(&image, "app:broken", "s/app:broken/app:v2/");
    s.mended().await;
}

/// One pod waits for its claim, and the update of the other is paused.
pub(super) async fn claim_and_pause(s: Stuck) {
    s.start(2, |set| {
        parallel(&s, set);
        with_claims(set, None);
    })
    .await;
    s.flotilla(&["rollout", "pause"]);
    s.set_image("app:v2").await;
    let claim = format!("{}/data-web-1", claims(&s.ns));
    s.api.patch(&claim, &json!({"metadata": {"finalizers": [HOLD]}})).await;
    s.api.delete(&claim, false).await;
    s.api.delete(&s.pod("web-1"), false).await;
    let words = ["is being deleted, and held by finalizer", HOLD];
    let claim = cause("data-web-1", &words, "kubectl edit pvc data-web-1 ");
    let pause = cause("web", &[], "flotilla rollout resume ");
    let told = s.told(&[claim, pause]).await;
    s.edit(&told[0], HOLD, &without_hold());
    let pause = s.first("web", &[], "flotilla rollout resume ").await;
    s.type_in(&pause);
    s.mended().await;
}

/// The pod that the update has changed cannot pull its image, and the one that the partition keeps was on a node that is gone.
pub(super) async fn gone_node_and_image(s: Stuck) {
    for node in ["twofold-0", "twofold-1"] {
        add_node(&s, node, "1", true).await;
    }
    s.start(2, |set| {
        parallel(&s, set);
        keep_one(set);
        on_own_nodes(&s, set);
        // Each node has room for one of them.
        container(set)["resources"] = json!({"requests": {"cpu": "1"}});
    })
    .await;
    s.set_image("app:broken").await;
    pod_which(&s, "the new one", |pod| {
        text(pod, "/spec/containers/0/image") == "app:broken" && !text(pod, "/spec/nodeName").is_empty()
    })
    .await;
    let kept = s.api.read(&s.pod("web-0")).await;
    let node = text(&kept, "/spec/nodeName");
    add_node(&s, "twofold-2", "1", true).await;
    s.api.delete(&format!("{NODES}/{node}"), false).await;
    s.api.delete(&s.pod("web-0"), false).await;
    let gone = format!("node {node}");
    let gone = cause(&gone, &["is gone from the cluster"], "kubectl delete pod web-0 ");
    let image = cause("web-1", &["main", "Image"], "flotilla rollout undo ");
    let told = s.told(&[gone, image, KEEPS_ONE]).await;
    s.type_in(&told[0]);
    let is_back = |pod: &Value| text(pod, "/spec/nodeName") == "twofold-2" && is_ready(pod);
    pod_which(&s, "the one that is kept, on another node", is_back).await;
    let told = s.told(&[image, KEEPS_ONE]).await;
    s.type_in(&told[0]);
    s.mended().await;
}

/// One pod does not go, and another does not count.
pub(super) async fn two_pods(s: Stuck) {
    s.start(2, |set| parallel(&s, set)).await;
    let state = json!({"metadata": {"labels": {"lifecycle.apps.kruise.io/state": "Draining"}}});
    s.api.patch(&s.pod("web-1"), &state).await;
    s.api
        .patch(&s.pod("web-0"), &json!({"metadata": {"finalizers": [HOLD]}}))
        .await;
    s.api.delete(&s.pod("web-0"), false).await;
    let held = cause("web-0", &["is terminating", HOLD], "kubectl edit pod web-0 ");
    let words = ["lifecycle.apps.kruise.io/state=Draining"];
    let state = cause("web-1", &words, "kubectl label pod web-1 ");
    let told = s.told_beside(&[held, state]).await;
    s.edit(&told[0], HOLD, &without_hold());
    let state = s.first("web-1", &words, "kubectl label pod web-1 ").await;
    s.type_in(&state);
    s.mended().await;
}

/// One pod does not go, and the other waits for users to delete it.
pub(super) async fn finalizer_and_on_delete(s: Stuck) {
    s.start(2, |set| {
        parallel(&s, set);
        set["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    })
    .await;
    held_and_old(s).await;
}

/// The same in a set whose pods are made in order: users may delete the other one all the same.
pub(super) async fn finalizer_and_on_delete_in_order(s: Stuck) {
    s.start(2, |set| set["spec"]["updateStrategy"] = json!({"type": "OnDelete"}))
        .await;
    held_and_old(s).await;
}

async fn held_and_old(s: Stuck) {
    s.set_image("app:v2").await;
    s.api
        .patch(&s.pod("web-1"), &json!({"metadata": {"finalizers": [HOLD]}}))
        .await;
    s.api.delete(&s.pod("web-1"), false).await;
    let held = cause("web-1", &["is terminating", HOLD], "kubectl edit pod web-1 ");
    let old = cause("web", &["1 old, replaced when they are deleted"], "kubectl get pods ");
    let told = s.told(&[held, old]).await;
    s.edit(&told[0], HOLD, &without_hold());
    let old = s
        .first("web", &["1 old, replaced when they are deleted"], "kubectl get pods ")
        .await;
    s.type_in(&old);
    s.api.delete(&s.pod("web-0"), false).await;
    s.mended().await;
}

/// A hook holds the pod that the update replaces, and the partition keeps the other, which a hook holds, too, when its turn comes.
pub(super) async fn hook_and_partition(s: Stuck) {
    s.start(2, |set| {
        set["spec"]["lifecycle"] = json!({"preDelete": {"labelsHandler": {MARKER: "no"}}});
        template(set)["metadata"]["labels"][MARKER] = json!("no");
    })
    .await;
    s.change(|set| {
        keep_one(set);
        container(set)["image"] = json!("app:v2");
    })
    .await;
    let is_leaving = |pod: &Value| text(pod, "/metadata/labels/lifecycle.apps.kruise.io~1state") == "PreparingDelete";
    let words = ["hook preDelete holds it", MARKER];
    let script = format!("\\|^    {MARKER}: |d");
    let pod = pod_which(&s, "a pod that is to go", is_leaving).await;
    let hook = cause(&pod, &words, "kubectl edit pod ");
    let told = s.told(&[hook, KEEPS_ONE]).await;
    s.edit(&told[0], MARKER, &script);
    lower_partition(&s).await;
    let pod = pod_which(&s, "the other", is_leaving).await;
    let hook = s.first(&pod, &words, "kubectl edit pod ").await;
    s.edit(&hook, MARKER, &script);
    s.mended().await;
}

/// There is no room for a further pod, and the partition keeps one of the others.
pub(super) async fn quota_and_partition(s: Stuck) {
    s.start(2, |set| parallel(&s, set)).await;
    limit_pods(&s, "2").await;
    s.change(|set| {
        set["spec"]["replicas"] = json!(3);
        keep_one(set);
        container(set)["image"] = json!("app:v2");
    })
    .await;
    let quota = cause("web-2", &["QuotaExceeded", "small"], "kubectl describe resourcequota ");
    let told = s.told(&[quota, KEEPS_ONE]).await;
    s.type_in(&told[0]);
    raise_limit(&s).await;
    let is_there = |pod: &Value| text(pod, "/metadata/name") == "web-2";
    pod_which(&s, "the third", is_there).await;
    lower_partition(&s).await;
    s.mended().await;
}

/// Where pods are made in order, the update does not begin before the further one is there; what the partition will keep then is told already.
pub(super) async fn quota_then_partition(s: Stuck) {
    s.start(2, |_| ()).await;
    limit_pods(&s, "2").await;
    s.change(|set| {
        set["spec"]["replicas"] = json!(3);
        keep_one(set);
        container(set)["image"] = json!("app:v2");
    })
    .await;
    let quota = cause("web-2", &["QuotaExceeded", "small"], "kubectl describe resourcequota ");
    let told = s.told(&[quota, KEEPS_ONE]).await;
    s.type_in(&told[0]);
    raise_limit(&s).await;
    let is_new = |pod: &Value| text(pod, "/spec/containers/0/image") == "app:v2" && is_ready(pod);
    let are_new = |pods: &Objects| pods.values().filter(|pod| is_new(pod)).count() == 2;
    s.api.until(&pods(&s.ns), SOON, "two new pods", are_new).await;
    lower_partition(&s).await;
    s.mended().await;
}

/// One name is taken, and no pod is accepted for want of a priority.
pub(super) async fn taken_and_priority(s: Stuck) {
    let spec = json!({"containers": [{"name": "main", "image": "app:v1"}]});
    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0"}, "spec": spec});
    s.api.create(&pods(&s.ns), &other).await;
    s.create(2, |set| {
        parallel(&s, set);
        template(set)["spec"]["priorityClassName"] = json!(s.ns);
    })
    .await;
    let words = ["no PriorityClass with name", &s.ns];
    let create = format!("kubectl create priorityclass {} ", s.ns);
    let priority = cause("web-1", &words, &create);
    let taken = cause("web-0", &["belongs to nobody"], "kubectl delete pod web-0 ");
    let told = s.told_beside(&[priority, taken]).await;
    s.type_in(&told[0]);
    let taken = s
        .first("web-0", &["belongs to nobody"], "kubectl delete pod web-0 ")
        .await;
    s.type_in(&taken);
    s.mended().await;
}

/// The API server looks for the account before it counts pods.
pub(super) async fn account_then_quota(s: Stuck) {
    limit_pods(&s, "1").await;
    s.create(2, |set| template(set)["spec"]["serviceAccountName"] = json!("robot"))
        .await;
    let words = ["ServiceAccountMissing", "robot"];
    let account = s
        .first(wanted_pod(&s, "web-0"), &words, "kubectl create serviceaccount ")
        .await;
    s.type_in(&account);
    pod_which(&s, "one pod", is_ready).await;
    let words = ["QuotaExceeded", "small"];
    let quota = s
        .first(wanted_pod(&s, "web-1"), &words, "kubectl describe resourcequota ")
        .await;
    s.type_in(&quota);
    raise_limit(&s).await;
    s.mended().await;
}

/// A pod has to have its claim before it pulls its image.
pub(super) async fn class_then_image(s: Stuck) {
    s.create(1, |set| {
        with_claims(set, Some(&s.ns));
        container(set)["image"] = json!("app:broken");
    })
    .await;
    let words = ["storage class", &s.ns, "does not exist"];
    let class_missing = s.first("claim data-web-0", &words, "kubectl get storageclass").await;
    s.type_in(&class_missing);
    s.api.create(CLASSES, &class(&s, PROVISIONERS[1])).await;
    provide(&s, "data-web-0", &s.ns).await;
    let is_waiting = |pod: &Value| pod.pointer("/status/containerStatuses/0/state/waiting").is_some();
    pod_which(&s, "the pod on its node", is_waiting).await;
    let image = s.first("web-0", &["main", "Image"], "kubectl edit ").await;
    s.edit(&image, "app:broken", "s/app:broken/app:v2/");
    let image = s.first("web-0", &["main", "Image"], "kubectl delete pod web-0 ").await;
    s.type_in(&image);
    s.mended().await;
}

/// What cannot be changed in place is seen when the pause is over.
pub(super) async fn pause_then_in_place_only(s: Stuck) {
    s.start(1, |set| {
        template(set)["spec"]["readinessGates"] = json!([{"conditionType": "InPlaceUpdateReady"}]);
        set["spec"]["updateStrategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceOnly"}});
    })
    .await;
    s.flotilla(&["rollout", "pause"]);
    s.change(|set| container(set)["env"] = json!([{"name": "COLOUR", "value": "green"}]))
        .await;
    let pause = s.first("web", &[], "flotilla rollout resume ").await;
    s.type_in(&pause);
    let pod = pod_which(&s, "the pod", |_| true).await;
    let in_place = s
        .first(&pod, &["cannot be updated in place"], "kubectl delete pod ")
        .await;
    s.type_in(&in_place);
    s.mended().await;
}

/// The pod that the update has changed cannot pull its image, and the other is taken out of service by whoever sets its readiness gate.
pub(super) async fn gate_and_image(s: Stuck) {
    const GATE: &str = "example.com/lb";
    s.create(2, |set| {
        parallel(&s, set);
        keep_one(set);
        template(set)["spec"]["readinessGates"] = json!([{"conditionType": GATE}]);
    })
    .await;
    for pod in ["web-0", "web-1"] {
        pod_which(&s, pod, |own| text(own, "/metadata/name") == pod).await;
        set_condition(&s.api, &s.ns, pod, GATE, "True").await;
    }
    s.mended().await;
    s.set_image("app:broken").await;
    // With the other out of service first, the update would wait for that.
    pod_which(&s, "the new one", |pod| {
        text(pod, "/spec/containers/0/image") == "app:broken"
    })
    .await;
    set_condition(&s.api, &s.ns, "web-0", GATE, "False").await;
    let image = cause("web-1", &["main", "Image"], "flotilla rollout undo ");
    let gate = cause(
        "web-0",
        &["readiness gate example.com/lb is False"],
        "kubectl describe pod web-0 ",
    );
    let told = s.told_beside(&[image, gate, KEEPS_ONE]).await;
    s.type_in(&told[0]);
    pod_which(&s, "a pod of the old image", |pod| {
        text(pod, "/metadata/name") == "web-1" && text(pod, "/spec/containers/0/image") == "app:v1"
    })
    .await;
    let new_gate = cause(
        "web-1",
        &["readiness gate example.com/lb is not set"],
        "kubectl describe pod web-1 ",
    );
    for told in s.told_beside(&[gate, new_gate]).await {
        let said = s.type_in(&told);
        assert!(said.contains("Readiness Gates") && said.contains(GATE), "{said}");
    }
    for pod in ["web-0", "web-1"] {
        set_condition(&s.api, &s.ns, pod, GATE, "True").await;
    }
    s.mended().await;
}

/// A pod of an update that never gets ready, in a set that is to be larger than there is room for.
async fn grown_with_one_that_is_not_ready(s: &Stuck) -> String {
    s.start(2, |set| {
        parallel(s, set);
        set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    })
    .await;
    limit_pods(s, "2").await;
    s.change(|set| {
        container(set)["image"] = json!("app:v2");
        shaped(set, "never-ready", "true");
    })
    .await;
    let is_new =
        |pod: &Value| text(pod, "/spec/containers/0/image") == "app:v2" && text(pod, "/status/phase") == "Running";
    let pod = pod_which(s, "the new one", is_new).await;
    s.change(|set| set["spec"]["replicas"] = json!(3)).await;
    pod
}

/// A pod never gets ready and holds the update up, and the set is to be larger than there is room for.
pub(super) async fn budget_and_quota(s: Stuck) {
    let pod = grown_with_one_that_is_not_ready(&s).await;
    let words = ["QuotaExceeded", "small"];
    let quota = cause(wanted_pod(&s, "web-2"), &words, "kubectl describe resourcequota ");
    let describe = format!("kubectl describe pod {pod} ");
    let not_ready = cause(&pod, &["not ready"], &describe);
    let told = s.told_beside(&[quota, not_ready]).await;
    s.type_in(&told[0]);
    raise_limit(&s).await;
    let is_third = |pods: &Objects| pods.len() == 3;
    s.api.until(&pods(&s.ns), SOON, "the third pod", is_third).await;
    let told = s.told(&[cause(&pod, &["not ready"], "kubectl describe pod ")]).await;
    let said = s.type_in(&told[0]);
    assert!(said.contains("sim.flotilla.rs/never-ready"), "{said}");
    s.change(|set| template(set)["metadata"]["annotations"] = Value::Null)
        .await;
    s.mended().await;
}

/// The same, and the template is corrected first.
pub(super) async fn budget_before_quota(s: Stuck) {
    let pod = grown_with_one_that_is_not_ready(&s).await;
    s.change(|set| template(set)["metadata"]["annotations"] = Value::Null)
        .await;
    let quota = cause(
        wanted_pod(&s, "web-2"),
        &["QuotaExceeded", "small"],
        "kubectl describe resourcequota ",
    );
    let old = cause(&pod, &["is not ready"], "kubectl delete pod ");
    let told = s.told(&[quota, old]).await;
    s.type_in(&told[0]);
    raise_limit(&s).await;
    s.mended().await;
}
