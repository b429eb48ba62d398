//! Nodes that are lost, gone, or too small.

use flotilla_e2e::api::{Objects, is_ready, name, text};
use flotilla_e2e::real::condition;
use flotilla_e2e::sets::{SOON, pods};
use flotilla_e2e::stuck::{Stuck, container, template};
use serde_json::{Value, json};
use std::time::Duration;

/// Where nodes are.
pub(super) const NODES: &str = "/api/v1/nodes";
/// The label, and the taint, of nodes that only pods of one scenario go to.
const OWN: &str = "e2e.flotilla.rs/own";
/// Pods of a node that is deleted are ended by the garbage collector of pods, which first waits 40 s whether the node comes back, and looks
/// every 20 s.
const COLLECTED: Duration = Duration::from_secs(150);

/// Makes a node to which no pod goes but those of this scenario. One that is not played has no kubelet but the scenario.
pub(super) async fn add_node(s: &Stuck, name: &str, cpu: &str, is_played: bool) {
    let room = json!({"cpu": cpu, "memory": "256Gi", "pods": "100"});
    let player = if is_played {
        json!({"kwok.x-k8s.io/node": "fake"})
    } else {
        json!({})
    };
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "annotations": player, "labels": {OWN: s.ns, "kubernetes.io/hostname": name},
        },
        "spec": {"taints": [{"key": OWN, "value": s.ns, "effect": "NoSchedule"}]},
        "status": {"allocatable": room, "capacity": room},
    });
    s.api.create(NODES, &node).await;
}

/// Has pods go to the nodes of this scenario, whatever state these are in.
pub(super) fn on_own_nodes(s: &Stuck, set: &mut Value) {
    let spec = &mut template(set)["spec"];
    spec["nodeSelector"] = json!({OWN: s.ns});
    spec["tolerations"] = json!([{"operator": "Exists"}]);
}

/// Says of an object that it is ready, or not, as kubelets and the controller of nodes do.
async fn say_ready(s: &Stuck, path: &str, status: &str, more: Value) {
    let mut body = json!({"status": {"conditions": [
        {"type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."},
    ]}});
    for (field, value) in more.as_object().into_iter().flatten() {
        body["status"][field] = value.clone();
    }
    s.api.patch(&format!("{path}/status"), &body).await;
}

/// The node does not answer any more, and its pods are marked as the controller of nodes does then.
pub(super) async fn lost(s: Stuck) {
    let node = format!("{NODES}/lost-0");
    add_node(&s, "lost-0", "64", false).await;
    say_ready(&s, &node, "True", Value::Null).await;
    s.create(1, |set| on_own_nodes(&s, set)).await;
    let is_placed = |pods: &Objects| pods.values().any(|pod| text(pod, "/spec/nodeName") == "lost-0");
    s.api.until(&pods(&s.ns), SOON, "web-0 on the node", is_placed).await;
    say_ready(&s, &s.pod("web-0"), "True", json!({"phase": "Running"})).await;
    s.mended().await;
    say_ready(&s, &node, "Unknown", Value::Null).await;
    say_ready(&s, &s.pod("web-0"), "False", Value::Null).await;
    add_node(&s, "lost-1", "64", true).await;
    let first = s.first("node lost-0", &["is lost"], "kubectl delete node lost-0").await;
    s.type_in(&first);
    let is_elsewhere = |pods: &Objects| {
        let is_there = |pod: &Value| is_ready(pod) && text(pod, "/spec/nodeName") == "lost-1";
        pods.get("web-0").is_some_and(is_there)
    };
    s.api
        .until(&pods(&s.ns), COLLECTED, "web-0 on the other node", is_elsewhere)
        .await;
    s.mended().await;
}

/// The node is gone, and so is whoever would end its pods.
pub(super) async fn gone(s: Stuck) {
    add_node(&s, "gone-0", "64", true).await;
    s.start(2, |set| on_own_nodes(&s, set)).await;
    add_node(&s, "gone-1", "64", true).await;
    let is_up = |nodes: &Objects| nodes.get("gone-1").is_some_and(is_ready);
    s.api.until(NODES, SOON, "the other node", is_up).await;
    s.api.delete(&format!("{NODES}/gone-0"), false).await;
    s.api.delete(&s.pod("web-1"), false).await;
    let first = s
        .first(
            "node gone-0",
            &["is gone from the cluster"],
            "kubectl delete pod web-1 ",
        )
        .await;
    s.type_in(&first);
    let is_elsewhere = |pods: &Objects| {
        let is_there = |pod: &Value| is_ready(pod) && text(pod, "/spec/nodeName") == "gone-1";
        pods.get("web-1").is_some_and(is_there)
    };
    s.api
        .until(&pods(&s.ns), SOON, "web-1 on the other node", is_elsewhere)
        .await;
    s.mended_within(COLLECTED).await;
}

/// No node has so many processors, until somebody brings one.
pub(super) async fn too_small(s: Stuck) {
    s.create(2, |set| {
        container(set)["resources"] = json!({"requests": {"cpu": "100"}});
        template(set)["spec"]["tolerations"] = json!([{"key": OWN, "operator": "Exists"}]);
    })
    .await;
    let is_stuck = |pod: &Value| condition(pod, "PodScheduled")["reason"] == "Unschedulable";
    let pods = s
        .api
        .until(&pods(&s.ns), SOON, "no node for any", |pods| {
            pods.len() == 2 && pods.values().all(is_stuck)
        })
        .await;
    let pod = pods.keys().next().expect("there are two");
    let first = s
        .first(pod, &["Unschedulable", "Insufficient cpu"], "kubectl describe pod ")
        .await;
    assert!(pods.values().any(|pod| first.command.contains(&name(pod))), "{first:?}");
    let said = s.type_in(&first);
    assert!(said.contains("Insufficient cpu"), "{said}");
    add_node(&s, "large-0", "200", true).await;
    s.mended().await;
}
