//! Pods: what updates in place, lifecycle hooks and launch priorities look at, for the pods that these concern.
//!
//! Declared apart from [`super::pod`], and decoded a second time from the same bytes, so that all other pods pay no more than one
//! search through theirs. Conditions, of which a pod has many, are taken from the first time.

use super::meta::{Quantity, Time};
use super::pod::{Condition, Parts, part};
use super::said;
use flotilla_api::names;
use flotilla_model::containers_meta::{self, Source};
use flotilla_model::records::{
    ContainerSpec, ContainerStatus, DetailSpec, GateCondition, MetadataEnv, PodDetail, ResizePending, Resources,
    is_kept_annotation,
};
use flotilla_model::template::{Digest, parse_bytes, parse_millis};
use flotilla_model::{Interner, Labels, Memo, Meta, Timestamp};
use memchr::memmem;
use prost::Message;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The group whose kinds update in place; also the prefix of the annotation that asks for launch priorities.
const GROUP: &str = "apps.kruise.io/";
/// How the names of the environment entries of launch priorities begin.
const LAUNCH_ENV: &str = "KRUISE_CONTAINER_";

/// Whether these bytes could be of a pod with a detail: a pod without these words has none.
pub(super) fn may_be_wanted(raw: &[u8]) -> bool {
    memmem::find(raw, GROUP.as_bytes()).is_some() || memmem::find(raw, LAUNCH_ENV.as_bytes()).is_some()
}

/// `core/v1` Pod, once more.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod {
    metadata: Option<Metadata>,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct Metadata {
    #[prost(int64, tag = "7")]
    generation: i64,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    #[prost(message, repeated, tag = "2")]
    containers: Vec<Container>,
    #[prost(string, tag = "3")]
    restart_policy: String,
    #[prost(message, repeated, tag = "28")]
    readiness_gates: Vec<Gate>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Gate {
    #[prost(string, tag = "1")]
    condition_type: String,
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
    #[prost(message, optional, tag = "8")]
    resources: Option<Requirements>,
    #[prost(message, optional, tag = "11")]
    readiness_probe: Option<Present>,
    #[prost(message, repeated, tag = "23")]
    resize_policy: Vec<ResizePolicy>,
}

/// A message of which only matters that it is there.
#[derive(Clone, PartialEq, Message, Deserialize)]
struct Present {}

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
    #[prost(message, optional, tag = "3")]
    config_map_key_ref: Option<KeyRef>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FieldRef {
    #[prost(string, tag = "2")]
    field_path: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct KeyRef {
    #[prost(string, tag = "2")]
    key: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct Requirements {
    #[prost(btree_map = "string, message", tag = "1")]
    limits: BTreeMap<String, Quantity>,
    #[prost(btree_map = "string, message", tag = "2")]
    requests: BTreeMap<String, Quantity>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResizePolicy {
    #[prost(string, tag = "1")]
    resource_name: String,
    #[prost(string, tag = "2")]
    restart_policy: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[prost(message, repeated, tag = "8")]
    container_statuses: Vec<Running>,
    #[prost(int64, tag = "17")]
    observed_generation: i64,
}

/// `core/v1` ContainerStatus.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Running {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    state: Option<State>,
    #[prost(bool, tag = "4")]
    ready: bool,
    #[prost(int32, tag = "5")]
    restart_count: i32,
    #[prost(string, tag = "6")]
    image: String,
    #[prost(string, tag = "7")]
    #[serde(rename = "imageID")]
    image_id: String,
    #[prost(string, tag = "8")]
    #[serde(rename = "containerID")]
    container_id: String,
    #[prost(bool, tag = "9")]
    started: bool,
    #[prost(message, optional, tag = "11")]
    resources: Option<Requirements>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct State {
    #[prost(message, optional, tag = "2")]
    running: Option<Since>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Since {
    #[prost(message, optional, tag = "1")]
    started_at: Option<Time>,
}

/// The detail of a pod in protobuf, if it is to have one. With the digest of its spec, and what that says if that is known.
pub(super) fn from_protobuf(
    parts: &Parts,
    (digest, known): (Digest, Option<&Arc<DetailSpec>>),
    meta: &Meta,
    conditions: &[Condition],
    interner: &mut Interner,
) -> Result<Option<Arc<PodDetail>>, String> {
    let metadata: Metadata = part(parts.metadata.as_ref())?.unwrap_or_default();
    let is_marked = has_kruise_controller(meta) || metadata.annotations.contains_key(names::LAUNCH_PRIORITY);
    let spec = match known.filter(|_| is_marked) {
        Some(spec) => spec.clone(),
        None => {
            let spec: Spec = part(parts.spec.as_ref())?.unwrap_or_default();
            if !is_marked && !spec.bears_mark() {
                return Ok(None);
            }
            spec.record(interner)
        }
    };
    let status = part(parts.status.as_ref())?.unwrap_or_default();
    let mut detail = detail(&metadata, spec, &status, Conditions(conditions), interner);
    detail.spec_bytes = digest.into();
    Ok(Some(Arc::new(detail)))
}

/// The detail of a pod in JSON, if it is to have one.
pub(super) fn from_json(
    value: &Value,
    meta: &Meta,
    conditions: &[Condition],
    interner: &mut Interner,
) -> Result<Option<Arc<PodDetail>>, String> {
    if !has_kruise_controller(meta) && !bears_mark(value) {
        return Ok(None);
    }
    let pod = Pod::deserialize(value).map_err(said)?;
    let (metadata, status) = (pod.metadata.unwrap_or_default(), pod.status.unwrap_or_default());
    let spec = pod.spec.unwrap_or_default().record(interner);
    Ok(Some(Arc::new(detail(
        &metadata,
        spec,
        &status,
        Conditions(conditions),
        interner,
    ))))
}

fn has_kruise_controller(meta: &Meta) -> bool {
    meta.controller()
        .is_some_and(|owner| owner.api_version.starts_with(GROUP))
}

fn is_launch_env(name: &str) -> bool {
    name == names::LAUNCH_PRIORITY_ENV || name == names::LAUNCH_BARRIER_ENV
}

/// Whether a pod in JSON carries a mark of launch priority.
fn bears_mark(pod: &Value) -> bool {
    let containers = pod["spec"]["containers"].as_array();
    let mut env = containers
        .into_iter()
        .flatten()
        .filter_map(|container| container["env"].as_array())
        .flatten();
    pod["metadata"]["annotations"].get(names::LAUNCH_PRIORITY).is_some()
        || env.any(|entry| entry["name"].as_str().is_some_and(is_launch_env))
}

fn detail(
    metadata: &Metadata,
    spec: Arc<DetailSpec>,
    status: &Status,
    conditions: Conditions<'_>,
    interner: &mut Interner,
) -> PodDetail {
    let referred: BTreeSet<&str> = spec
        .containers
        .iter()
        .flat_map(|container| &container.metadata_env)
        .filter(|env| !env.is_label)
        .map(|env| &*env.key)
        .collect();
    let annotations = metadata.annotations.iter();
    let kept = annotations.filter(|(key, _)| is_kept_annotation(key) || referred.contains(key.as_str()));
    PodDetail {
        // What an update notes is like no other pod's.
        annotations: Labels::new(kept.map(|(key, value)| (interner.string(key), value.as_str().into()))),
        is_annotated: !metadata.annotations.is_empty(),
        finalizers: interner.list(metadata.finalizers.iter().map(String::as_str)),
        statuses: status.containers(&spec, interner),
        observed_generation: status.observed_generation,
        generation: metadata.generation,
        containers_ready: conditions.is_true("ContainersReady"),
        in_place_ready: conditions.gate(names::IN_PLACE_UPDATE_READY, interner),
        kruise_ready: conditions.gate(names::KRUISE_POD_READY, interner),
        resize_pending: conditions.resize_pending(interner),
        resize_in_progress: conditions.resize_in_progress(interner),
        plainly_done: Memo::default(),
        spec_bytes: Memo::default(),
        spec,
    }
}

impl Spec {
    fn bears_mark(&self) -> bool {
        let mut env = self.containers.iter().flat_map(|container| &container.env);
        env.any(|entry| is_launch_env(&entry.name))
    }

    fn record(&self, interner: &mut Interner) -> Arc<DetailSpec> {
        let gates = self.readiness_gates.iter();
        let spec = DetailSpec {
            gates: gates.map(|gate| interner.string(&gate.condition_type)).collect(),
            containers: self.containers.iter().map(|c| c.record(interner)).collect(),
            never_restarts: self.restart_policy == "Never",
        };
        interner.detail_spec(spec)
    }
}

impl Container {
    fn record(&self, interner: &mut Interner) -> ContainerSpec {
        let restarts_for = |resource: &str| {
            let mut policies = self.resize_policy.iter();
            policies.any(|p| p.resource_name == resource && p.restart_policy == "RestartContainer")
        };
        ContainerSpec {
            name: interner.string(&self.name),
            image: interner.string(&self.image),
            resources: self.resources.as_ref().map(Requirements::record).unwrap_or_default(),
            restarts_for_cpu: restarts_for("cpu"),
            restarts_for_memory: restarts_for("memory"),
            has_readiness_probe: self.readiness_probe.is_some(),
            priority: self.env.iter().find_map(EnvVar::priority),
            metadata_env: self.env.iter().filter_map(|e| e.metadata(interner)).collect(),
        }
    }
}

impl EnvVar {
    fn priority(&self) -> Option<i64> {
        let reference = self.value_from.as_ref()?.config_map_key_ref.as_ref()?;
        let priority = reference.key.strip_prefix("p_")?;
        (self.name == names::LAUNCH_BARRIER_ENV)
            .then(|| priority.parse().ok())
            .flatten()
    }

    fn metadata(&self, interner: &mut Interner) -> Option<MetadataEnv> {
        let path = &self.value_from.as_ref()?.field_ref.as_ref()?.field_path;
        let (is_label, key) = match containers_meta::source_of(&self.name, &self.value, path)? {
            Source::Label(key) => (true, key),
            Source::Annotation(key) => (false, key),
        };
        Some(MetadataEnv {
            name: interner.string(&self.name),
            is_label,
            key: interner.string(key),
        })
    }
}

impl Requirements {
    fn record(&self) -> Resources {
        let millis = |of: &BTreeMap<String, Quantity>| of.get("cpu").and_then(|q| parse_millis(&q.text));
        let bytes = |of: &BTreeMap<String, Quantity>| of.get("memory").and_then(|q| parse_bytes(&q.text));
        let signed = |value: Option<u64>| value.and_then(|v| i64::try_from(v).ok());
        Resources {
            cpu_request_millis: signed(millis(&self.requests)),
            cpu_limit_millis: signed(millis(&self.limits)),
            memory_request_bytes: signed(bytes(&self.requests)),
            memory_limit_bytes: signed(bytes(&self.limits)),
        }
    }
}

/// `status.conditions`.
#[derive(Clone, Copy)]
struct Conditions<'a>(&'a [Condition]);

impl<'a> Conditions<'a> {
    fn condition(self, type_: &str) -> Option<&'a Condition> {
        self.0.iter().find(|c| c.type_ == type_)
    }

    fn is_true(self, type_: &str) -> bool {
        self.condition(type_).is_some_and(|c| c.status == "True")
    }

    fn gate(self, type_: &str, interner: &mut Interner) -> Option<GateCondition> {
        let index = self.0.iter().position(|c| c.type_ == type_)?;
        let condition = &self.0[index];
        Some(GateCondition {
            index,
            is_true: condition.status == "True",
            message: interner.string(&condition.message),
            since: condition.since(),
        })
    }

    fn resize_in_progress(self, interner: &mut Interner) -> Option<Arc<str>> {
        let found = self.condition("PodResizeInProgress").filter(|c| c.status == "True")?;
        Some(interner.string(&found.message))
    }

    fn resize_pending(self, interner: &mut Interner) -> Option<ResizePending> {
        let pending = self.condition("PodResizePending").filter(|c| c.status == "True")?;
        Some(ResizePending {
            is_infeasible: pending.reason == "Infeasible",
            message: interner.string(&pending.message),
            since: pending.since(),
        })
    }
}

impl Status {
    /// Statuses in the order of the containers of the spec: the kubelet sorts them by name.
    fn containers(&self, spec: &DetailSpec, interner: &mut Interner) -> Box<[Option<ContainerStatus>]> {
        let status_of = |name: &str| self.container_statuses.iter().find(|status| status.name == name);
        spec.containers
            .iter()
            .map(|container| Some(status_of(&container.name)?.record(interner)))
            .collect()
    }
}

impl Running {
    fn record(&self, interner: &mut Interner) -> ContainerStatus {
        let running = self.state.as_ref().and_then(|state| state.running.as_ref());
        ContainerStatus {
            image: interner.string(&self.image),
            image_id: interner.string(&self.image_id),
            // No two containers share it.
            container_id: self.container_id.as_str().into(),
            restart_count: self.restart_count,
            started_at: running.and_then(|since| since.started_at).map(Timestamp::from),
            is_ready: self.ready,
            is_started: self.started,
            resources: self.resources.as_ref().map(Requirements::record),
        }
    }
}
