//! What is there from the beginning.

use crate::world::World;
use bytes::Bytes;
use flotilla_apiserver::{Reply, handle};
use http::Request;
use serde_json::{Value, json};

/// Namespaces, storage classes, nodes, and Flotilla's definitions.
pub(crate) fn furnish(world: &mut World) {
    for name in ["default", "kube-system", "kube-public", "flotilla-system"] {
        create(world, "/api/v1/namespaces", &json!({"metadata": {"name": name}}));
    }
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    for (name, may_expand) in [("standard", true), ("fixed", false)] {
        let class = json!({
            "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": (name == "standard").to_string()}},
            "provisioner": "sim.flotilla.rs/provisioner", "allowVolumeExpansion": may_expand,
        });
        create(world, classes, &class);
    }
    for index in 0..world.nodes.len() {
        create(world, "/api/v1/nodes", &node(index, &world.wall()));
    }
    for crd in flotilla_api::crds() {
        create(world, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd);
    }
}

fn node(index: usize, wall: &Value) -> Value {
    let name = format!("node-{index}");
    let room = json!({"cpu": "32", "memory": "256Gi", "pods": "110"});
    json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "type": "simulated",
        }},
        "status": {
            "capacity": room, "allocatable": room,
            "addresses": [{"type": "InternalIP", "address": format!("10.244.0.{}", 2 + index)}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the node is simulated",
                "lastHeartbeatTime": wall, "lastTransitionTime": wall}],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "osImage": "simulated", "kernelVersion": "none",
                "containerRuntimeVersion": "sim://0", "operatingSystem": "linux", "architecture": "amd64", "machineID": "",
                "systemUUID": "", "bootID": "", "kubeProxyVersion": ""},
        },
    })
}

/// Creates an object as a client would.
///
/// # Panics
/// If it is refused: what is created here is this program's own.
fn create(world: &mut World, path: &str, object: &Value) {
    let body = Bytes::from(object.to_string());
    let request = Request::post(format!("{path}?fieldManager=playground"))
        .body(body)
        .expect("a valid path");
    match handle(&mut world.server, &request) {
        Reply::Answer(answer) => {
            let words = String::from_utf8_lossy(answer.body()).into_owned();
            assert!(answer.status().is_success(), "{path}: {words}");
        }
        Reply::Watch(_) => unreachable!("creating opens no watch"),
    }
    world.react();
}

impl World {
    /// The moment as objects show it.
    pub(crate) fn wall(&self) -> Value {
        let seconds = self.server.now.as_millis().div_euclid(1000);
        json!(flotilla_model::Timestamp::from_seconds(seconds).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_model::Timestamp;

    #[test]
    fn a_new_world_has_what_every_cluster_has() {
        let mut world = World::new(3, 1.0, Timestamp::from_seconds(1_700_000_000));
        for path in [
            "/api/v1/namespaces/default",
            "/api/v1/namespaces/flotilla-system/serviceaccounts/default",
            "/api/v1/nodes/node-2",
            "/apis/apps.kruise.io/v1beta1/statefulsets",
            "/apis/apps.kruise.io/v1beta1/clonesets",
        ] {
            let request = Request::get(path).body(Bytes::new()).unwrap();
            let Reply::Answer(answer) = handle(&mut world.server, &request) else {
                panic!("a watch")
            };
            assert_eq!(answer.status(), 200, "{path}");
        }
    }
}
