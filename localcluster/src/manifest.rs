//! Objects and files that every cluster starts with.

use crate::cluster::Audit;
use serde_json::{Value, json};

/// Simulated nodes.
pub(crate) fn nodes(count: u32) -> Value {
    let node = |number: u32| {
        let room = json!({"cpu": "64", "memory": "256Gi", "pods": "1000", "ephemeral-storage": "1Ti"});
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": format!("node-{number}"),
                "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
                "labels": {
                    "kubernetes.io/hostname": format!("node-{number}"), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                    "type": "kwok", "topology.kubernetes.io/zone": format!("zone-{}", number % 3),
                },
            },
            "status": {"allocatable": room, "capacity": room},
        })
    };
    list(&(0..count).map(node).collect::<Vec<_>>())
}

/// Storage classes of the provisioner: the default one can grow, `fixed` cannot.
pub(crate) fn storage_classes() -> Value {
    let class = |name: &str, grows: bool, default: &str| {
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": default}},
            "provisioner": "volumes.sim.flotilla.rs",
            "allowVolumeExpansion": grows,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
        })
    };
    list(&[class("standard", true, "true"), class("fixed", false, "false")])
}

/// Audit policy: who wrote what, and, if it is asked for, who read what. A watch is told of when it begins.
pub(crate) fn audit_policy(audit: Audit) -> Value {
    let mut verbs = vec!["create", "update", "patch", "delete", "deletecollection"];
    let mut omitted = vec!["RequestReceived"];
    if audit == Audit::Everything {
        verbs.extend(["get", "list", "watch"]);
    } else {
        omitted.push("ResponseStarted");
    }
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": omitted,
        "rules": [{"level": "Metadata", "verbs": verbs}, {"level": "None"}],
    })
}

/// Configuration of the scheduler.
pub(crate) fn scheduler(kubeconfig: &str, stock_limits: bool) -> Value {
    let mut connection = json!({"kubeconfig": kubeconfig});
    if !stock_limits {
        connection["qps"] = json!(5000);
        connection["burst"] = json!(10000);
    }
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        "clientConnection": connection,
    })
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}
