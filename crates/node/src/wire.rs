//! Pods: the fields of `core/v1` that an agent looks at, in protobuf and in JSON.
//!
//! Apart from the engine's record of a pod: a manager has ten thousand of those and needs to know none of this.

use bytes::Bytes;
use flotilla_agent as agent;
use flotilla_api::names;
use flotilla_engine::wire::{self, Encoding};
use flotilla_model::containers_meta::{self, Source};
use flotilla_model::{ObjectKey, Uid};
use prost::Message;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The group whose kinds the agent works for.
const GROUP: &str = "apps.kruise.io/";
/// Annotation of a pod into which sidecars were injected.
const SIDECARS: &str = "kruise.io/sidecarset-hash";
/// Label of a pod: its revision.
const REVISION: &str = names::REVISION_LABEL;

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct Pod {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    spec: Option<Spec>,
    #[prost(message, optional, tag = "3")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(message, optional, tag = "9")]
    deletion_timestamp: Option<Present>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    owner_references: Vec<Owner>,
}

/// A value of which only matters that it is there: a message in protobuf, anything in JSON.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(from = "serde::de::IgnoredAny")]
struct Present {}

impl From<serde::de::IgnoredAny> for Present {
    fn from(_: serde::de::IgnoredAny) -> Self {
        Present {}
    }
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Owner {
    #[prost(string, tag = "5")]
    api_version: String,
    #[prost(bool, tag = "6")]
    controller: bool,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    #[prost(message, repeated, tag = "2")]
    containers: Vec<Container>,
    #[prost(string, tag = "3")]
    restart_policy: String,
    #[prost(message, repeated, tag = "20")]
    init_containers: Vec<Container>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    image: String,
    #[prost(message, repeated, tag = "7")]
    env: Vec<EnvVar>,
    /// Since 1.34 containers may have one of their own; init containers that run beside the others have had it for longer.
    #[prost(string, tag = "24")]
    restart_policy: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EnvVar {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(message, optional, tag = "3")]
    value_from: Option<EnvSource>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EnvSource {
    #[prost(message, optional, tag = "1")]
    field_ref: Option<FieldRef>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FieldRef {
    #[prost(string, tag = "2")]
    field_path: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[prost(string, tag = "1")]
    phase: String,
    #[prost(message, repeated, tag = "2")]
    conditions: Vec<Condition>,
    #[prost(string, tag = "6")]
    #[serde(rename = "podIP")]
    pod_ip: String,
    #[prost(message, repeated, tag = "8")]
    container_statuses: Vec<ContainerStatus>,
    #[prost(message, repeated, tag = "10")]
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct Condition {
    #[prost(string, tag = "1")]
    #[serde(rename = "type")]
    type_: String,
    #[prost(string, tag = "2")]
    status: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "8")]
    #[serde(rename = "containerID")]
    container_id: String,
}

/// A pod from the bytes of an answer or of a watch.
pub(crate) fn pod(encoding: Encoding, bytes: &Bytes) -> Result<agent::Pod, String> {
    let pod = match encoding {
        Encoding::Protobuf => Pod::decode(wire::open(bytes)?).map_err(|e| e.to_string())?,
        Encoding::Json => serde_json::from_slice(bytes).map_err(|e| e.to_string())?,
    };
    pod.record()
}

impl Pod {
    fn record(self) -> Result<agent::Pod, String> {
        let metadata = self.metadata.unwrap_or_default();
        if metadata.name.is_empty() || metadata.uid.is_empty() {
            return Err("a pod without name or uid".to_owned());
        }
        let version = metadata.resource_version.parse();
        let (spec, status) = (self.spec.unwrap_or_default(), self.status.unwrap_or_default());
        let controller = metadata.owner_references.iter().find(|owner| owner.controller);
        let ours = controller.is_some_and(|owner| owner.api_version.starts_with(GROUP));
        let is_meant = ours || metadata.annotations.contains_key(SIDECARS);
        let is_ending =
            metadata.deletion_timestamp.is_some() || matches!(status.phase.as_str(), "Failed" | "Succeeded");
        let is_out = |c: &Condition| c.type_ == names::IN_PLACE_UPDATE_READY && c.status == "False";
        Ok(agent::Pod {
            key: ObjectKey::new(metadata.namespace.as_str(), metadata.name.as_str()),
            uid: Uid::new(&metadata.uid),
            version: version.map_err(|e| format!("resourceVersion {:?}: {e}", metadata.resource_version))?,
            is_concerned: is_meant && !is_ending,
            is_out_of_service: status.conditions.iter().any(is_out),
            revision: metadata.labels.get(REVISION).cloned().unwrap_or_default(),
            ip: status.pod_ip.clone(),
            noted: metadata.annotations.get(names::RUNTIME_CONTAINERS_META).cloned(),
            containers: containers(&spec, &status, &metadata),
        })
    }
}

/// Containers sorted by name, as the kubelet sorts their statuses, and behind them the init containers that run beside them (AGT-8.2).
fn containers(spec: &Spec, status: &Status, metadata: &Metadata) -> Vec<agent::Container> {
    let record = |container: &Container, pod_policy: &str, statuses: &[ContainerStatus]| {
        let policy = if container.restart_policy.is_empty() {
            pod_policy
        } else {
            &container.restart_policy
        };
        let status = statuses.iter().find(|status| status.name == container.name);
        let environment = container.env.iter().filter_map(|entry| entry.resolved(metadata));
        agent::Container {
            name: container.name.clone(),
            image: container.image.clone(),
            environment: environment.collect(),
            always_restarts: policy == "Always",
            id: status.map(|status| status.container_id.clone()).unwrap_or_default(),
        }
    };
    let beside = spec.init_containers.iter().filter(|c| c.restart_policy == "Always");
    let ordinary = spec.containers.iter();
    let mut all: Vec<_> = ordinary
        .map(|c| record(c, &spec.restart_policy, &status.container_statuses))
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.extend(beside.map(|c| record(c, "", &status.init_container_statuses)));
    all
}

impl EnvVar {
    /// Name and value, if it refers to a label or an annotation and counts (AGT-8.4). What is not there is empty.
    fn resolved(&self, metadata: &Metadata) -> Option<(String, String)> {
        let path = &self.value_from.as_ref()?.field_ref.as_ref()?.field_path;
        let (of, key) = match containers_meta::source_of(&self.name, &self.value, path)? {
            Source::Label(key) => (&metadata.labels, key),
            Source::Annotation(key) => (&metadata.annotations, key),
        };
        Some((self.name.clone(), of.get(key).cloned().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(pod: &serde_json::Value) -> agent::Pod {
        super::pod(Encoding::Json, &Bytes::from(pod.to_string())).expect("a pod")
    }

    fn example() -> serde_json::Value {
        let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        json!({
            "metadata": {
                "name": "web-0", "namespace": "ns", "uid": "u", "resourceVersion": "12",
                "labels": {"controller-revision-hash": "r1", "role": "leader"},
                "annotations": {"note": " two words ", "apps.kruise.io/runtime-containers-meta": "{}"},
                "ownerReferences": [{"apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "name": "web", "uid": "s",
                                     "controller": true}],
            },
            "spec": {
                "restartPolicy": "Always",
                "initContainers": [
                    {"name": "once", "image": "i"},
                    {"name": "beside", "image": "i", "restartPolicy": "Always"},
                ],
                "containers": [
                    {"name": "main", "image": "app:v1", "env": [
                        field("ROLE", "metadata.labels['role']"), field("NOTE", "metadata.annotations['note']"),
                        field("NONE", "metadata.annotations['none']"), field("NAME", "metadata.name"),
                        field("SIDECARSET_VERSION", "metadata.annotations['v']"), {"name": "PLAIN", "value": "x"},
                    ]},
                    {"name": "aside", "image": "pause:1", "restartPolicy": "Never"},
                ],
            },
            "status": {
                "phase": "Running", "podIP": "10.0.0.9",
                "conditions": [{"type": "InPlaceUpdateReady", "status": "False"}],
                "containerStatuses": [
                    {"name": "aside", "containerID": "containerd://2"}, {"name": "main", "containerID": "containerd://1"},
                ],
                "initContainerStatuses": [
                    {"name": "once", "containerID": "containerd://3"}, {"name": "beside", "containerID": "containerd://4"},
                ],
            },
        })
    }

    #[test]
    fn agt_8_4_variables_that_refer_to_metadata_are_resolved() {
        let pod = read(&example());
        let main = pod.container("main").expect("there");
        let expected = [("ROLE", "leader"), ("NOTE", " two words "), ("NONE", "")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(main.environment, expected);
        assert!(pod.is_concerned && pod.is_out_of_service);
        assert_eq!(
            (pod.revision.as_str(), pod.version, pod.ip.as_str()),
            ("r1", 12, "10.0.0.9")
        );
    }

    #[test]
    fn agt_8_2_containers_stand_by_name_with_those_that_run_beside_them_last() {
        let pod = read(&example());
        let all: Vec<_> = pod
            .containers
            .iter()
            .map(|c| (c.name.as_str(), c.id.as_str(), c.always_restarts))
            .collect();
        let expected = [
            ("aside", "containerd://2", false),
            ("main", "containerd://1", true),
            ("beside", "containerd://4", true),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn agt_8_2_whose_pods_they_are() {
        let mut object = example();
        object["metadata"]["ownerReferences"][0]["apiVersion"] = json!("apps/v1");
        assert!(!read(&object).is_concerned);
        object["metadata"]["annotations"]["kruise.io/sidecarset-hash"] = json!("{}");
        assert!(read(&object).is_concerned);
        let mut ended = object.clone();
        ended["status"]["phase"] = json!("Succeeded");
        assert!(!read(&ended).is_concerned);
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(!read(&object).is_concerned);
    }

    #[test]
    fn protobuf_says_the_same() {
        // The same fields by hand, since nothing here writes pods.
        let json: Pod = serde_json::from_value(example()).expect("a pod");
        let bytes = Bytes::from(json.encode_to_vec());
        let decoded = super::pod(Encoding::Protobuf, &bytes).expect("a pod");
        assert_eq!(decoded, read(&example()));
    }
}
