//! Pods: the fields of `core/v1` that a [`PodRecord`] keeps.

use super::meta::{ObjectMeta, Time};
use super::{detail, said};
use bytes::Bytes;
use flotilla_api::names;
use flotilla_model::records::{Phase, PodTrouble, ReadyCondition, VolumeClaim};
use flotilla_model::template::Digest;
use flotilla_model::{Interner, PodRecord, Timestamp};
use prost::Message;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// `core/v1` Pod.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Pod {
    metadata: Option<ObjectMeta>,
    spec: Option<PodSpec>,
    status: Option<PodStatus>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    #[prost(message, repeated, tag = "1")]
    volumes: Vec<Volume>,
    #[prost(string, tag = "10")]
    node_name: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(from = "JsonVolume")]
struct Volume {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    source: Option<VolumeSource>,
}

#[derive(Clone, PartialEq, Message)]
struct VolumeSource {
    #[prost(message, optional, tag = "10")]
    claim: Option<ClaimSource>,
}

/// A volume as it stands in JSON, where the source is not a message of its own.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonVolume {
    name: String,
    persistent_volume_claim: Option<ClaimSource>,
}

impl From<JsonVolume> for Volume {
    fn from(volume: JsonVolume) -> Self {
        let claim = volume.persistent_volume_claim;
        Volume {
            name: volume.name,
            source: claim.map(|claim| VolumeSource { claim: Some(claim) }),
        }
    }
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimSource {
    #[prost(string, tag = "1")]
    claim_name: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    #[prost(string, tag = "1")]
    phase: String,
    #[prost(message, repeated, tag = "2")]
    conditions: Vec<Condition>,
    #[prost(string, tag = "3")]
    message: String,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(message, optional, tag = "7")]
    #[serde(rename = "startTime")]
    started: Option<Time>,
    #[prost(message, repeated, tag = "8")]
    #[serde(rename = "containerStatuses")]
    containers: Vec<ContainerStatus>,
    #[prost(message, repeated, tag = "10")]
    #[serde(rename = "initContainerStatuses")]
    init_containers: Vec<ContainerStatus>,
}

/// `core/v1` PodCondition.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Condition {
    #[prost(string, tag = "1")]
    #[serde(rename = "type")]
    pub(super) type_: String,
    #[prost(string, tag = "2")]
    pub(super) status: String,
    #[prost(message, optional, tag = "4")]
    #[serde(rename = "lastTransitionTime")]
    last_transition: Option<Time>,
    #[prost(string, tag = "5")]
    pub(super) reason: String,
    #[prost(string, tag = "6")]
    pub(super) message: String,
}

impl Condition {
    /// Since when. A transition time of zero is how the Go types write "never".
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.last_transition
            .map(Timestamp::from)
            .filter(|t| *t > Timestamp::default())
    }
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    state: Option<ContainerState>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerState {
    #[prost(message, optional, tag = "1")]
    waiting: Option<Waiting>,
    #[prost(message, optional, tag = "3")]
    terminated: Option<Terminated>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Waiting {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    message: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    #[prost(int32, tag = "1")]
    exit_code: i32,
    #[prost(string, tag = "3")]
    reason: String,
    #[prost(string, tag = "4")]
    message: String,
}

/// `core/v1` Pod as its parts lie in the bytes, before they are read.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Parts {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) metadata: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) spec: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) status: Option<Bytes>,
}

/// One part, if it is there.
pub(super) fn part<M: Message + Default>(bytes: Option<&Bytes>) -> Result<Option<M>, String> {
    bytes.map(|bytes| M::decode(bytes.clone())).transpose().map_err(said)
}

/// The record of a pod in protobuf. What its spec says is taken from the record of the same pod at an earlier version, if that had the same.
pub(super) fn from_protobuf(
    raw: &Bytes,
    known: Option<&PodRecord>,
    interner: &mut Interner,
) -> Result<PodRecord, String> {
    let parts = Parts::decode(raw.clone()).map_err(said)?;
    let may_have_detail = detail::may_be_wanted(raw);
    let digest = may_have_detail.then(|| Digest::of_bytes(parts.spec.as_deref().unwrap_or_default()));
    let same = known.filter(|pod| {
        let detail = pod.detail.as_ref();
        digest.is_some() && detail.and_then(|detail| detail.spec_bytes.known()) == digest.as_ref()
    });
    let pod = Pod {
        metadata: part(parts.metadata.as_ref())?,
        spec: part(parts.spec.as_ref().filter(|_| same.is_none()))?,
        status: part(parts.status.as_ref())?,
    };
    let (mut record, conditions) = pod.into_record(interner)?;
    if let Some(same) = same {
        (record.node, record.volumes) = (same.node.clone(), same.volumes.clone());
    }
    if let Some(digest) = digest {
        let known = same.and_then(|pod| pod.detail.as_ref()).map(|detail| &detail.spec);
        record.detail = detail::from_protobuf(&parts, (digest, known), &record.meta, &conditions, interner)?;
    }
    Ok(record)
}

/// The record of a pod in JSON.
pub(super) fn from_json(value: &Value, interner: &mut Interner) -> Result<PodRecord, String> {
    let (mut record, conditions) = Pod::deserialize(value).map_err(said)?.into_record(interner)?;
    record.detail = detail::from_json(value, &record.meta, &conditions, interner)?;
    Ok(record)
}

impl Pod {
    /// The record, and the conditions, of which a detail is made too.
    fn into_record(self, interner: &mut Interner) -> Result<(PodRecord, Vec<Condition>), String> {
        let metadata = self.metadata.ok_or("no metadata")?;
        let (spec, status) = (self.spec.unwrap_or_default(), self.status.unwrap_or_default());
        let NameLabels { name, index, instance } = NameLabels::of(&metadata);
        let volumes = spec
            .volumes
            .iter()
            .filter_map(|v| volume_claim(v, &metadata.name, interner))
            .collect();
        let meta = metadata.into_meta(interner, |key, _| match key {
            names::POD_NAME_LABEL => !name,
            names::POD_INDEX_LABEL => !index,
            names::INSTANCE_ID_LABEL => !instance,
            _ => true,
        })?;
        let record = PodRecord {
            meta,
            phase: Phase::parse(&status.phase),
            ready: status.ready(),
            has_been_ready: status.has_been_ready(),
            has_name_label: name,
            has_index_label: index,
            has_instance_label: instance,
            node: (!spec.node_name.is_empty()).then(|| interner.string(&spec.node_name)),
            volumes: interner.volumes(volumes),
            trouble: status.trouble().map(Arc::new),
            detail: None,
        };
        Ok((record, status.conditions))
    }
}

/// Which of the labels that may merely repeat the pod's name do so.
struct NameLabels {
    name: bool,
    index: bool,
    instance: bool,
}

impl NameLabels {
    fn of(metadata: &ObjectMeta) -> Self {
        let end = metadata.name.rsplit_once('-').map(|(_, end)| end);
        let ends_with = |key: &str| end.is_some() && metadata.labels.get(key).map(String::as_str) == end;
        NameLabels {
            name: metadata.labels.get(names::POD_NAME_LABEL) == Some(&metadata.name),
            index: ends_with(names::POD_INDEX_LABEL),
            instance: ends_with(names::INSTANCE_ID_LABEL),
        }
    }
}

fn volume_claim(volume: &Volume, pod: &str, interner: &mut Interner) -> Option<VolumeClaim> {
    let claim = &volume.source.as_ref()?.claim.as_ref()?.claim_name;
    let from_template = claim.strip_prefix(&volume.name).and_then(|rest| rest.strip_prefix('-')) == Some(pod);
    Some(VolumeClaim {
        volume: interner.string(&volume.name),
        claim: (!from_template).then(|| interner.string(claim)),
    })
}

/// Words under which a container waits while all is well.
pub const NORMAL_WAITS: [&str; 2] = ["ContainerCreating", "PodInitializing"];

impl PodStatus {
    fn ready(&self) -> ReadyCondition {
        self.conditions
            .iter()
            .find(|c| c.type_ == "Ready")
            .map_or_else(ReadyCondition::default, |c| ReadyCondition {
                is_true: c.status == "True",
                since: c.since(),
            })
    }

    /// The condition begins as False when the pod starts, and the time of the last transition is all that tells whether it ever
    /// was True. Both times are cut to seconds, so a difference of one may be none.
    fn has_been_ready(&self) -> bool {
        const CUT: Duration = Duration::from_secs(1);
        let ready = self.ready();
        let started = self.started.map(Timestamp::from);
        ready.is_true
            || started
                .zip(ready.since)
                .is_some_and(|(started, since)| since > started + CUT)
    }

    /// The most telling complaint: about the pod as a whole, else about a container, else from the scheduler.
    fn trouble(&self) -> Option<PodTrouble> {
        if !self.reason.is_empty() {
            return Some(trouble("", &self.reason, &self.message));
        }
        let mut containers = self.init_containers.iter().chain(&self.containers);
        containers.find_map(ContainerStatus::trouble).or_else(|| {
            let scheduled = self
                .conditions
                .iter()
                .find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
            Some(trouble("", &scheduled.reason, &scheduled.message))
        })
    }
}

impl ContainerStatus {
    fn trouble(&self) -> Option<PodTrouble> {
        let state = self.state.as_ref()?;
        if let Some(waiting) = &state.waiting {
            let normal = waiting.reason.is_empty() || NORMAL_WAITS.contains(&waiting.reason.as_str());
            return (!normal).then(|| trouble(&self.name, &waiting.reason, &waiting.message));
        }
        let terminated = state.terminated.as_ref().filter(|t| t.exit_code != 0)?;
        Some(trouble(&self.name, &terminated.reason, &terminated.message))
    }
}

fn trouble(container: &str, reason: &str, message: &str) -> PodTrouble {
    PodTrouble {
        container: container.into(),
        reason: reason.into(),
        message: message.into(),
    }
}
