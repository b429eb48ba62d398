//! Claims: the fields of `core/v1` that a [`ClaimRecord`] keeps.

use super::json::part;
use super::meta::{Metadata, Quantity, Time};
use bytes::Bytes;
use flotilla_api::names;
use flotilla_model::template::parse_bytes;
use flotilla_model::{ClaimRecord, Interner, Timestamp};
use prost::Message;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// `core/v1` PersistentVolumeClaim.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Claim {
    /// Decoded twice: annotations are declared apart from the rest, because pods do without them.
    #[prost(bytes = "bytes", tag = "1")]
    metadata: Bytes,
    #[prost(message, optional, tag = "2")]
    spec: Option<ClaimSpec>,
    #[prost(message, optional, tag = "3")]
    status: Option<ClaimStatus>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimSpec {
    #[prost(string, repeated, tag = "1")]
    access_modes: Vec<String>,
    #[prost(message, optional, tag = "2")]
    resources: Option<Requirements>,
    #[prost(string, optional, tag = "5")]
    #[serde(rename = "storageClassName")]
    storage_class: Option<String>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Requirements {
    #[prost(btree_map = "string, message", tag = "2")]
    requests: BTreeMap<String, Quantity>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimStatus {
    #[prost(string, tag = "1")]
    phase: String,
    #[prost(btree_map = "string, message", tag = "3")]
    capacity: BTreeMap<String, Quantity>,
    #[prost(message, repeated, tag = "4")]
    conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Condition {
    #[prost(string, tag = "1")]
    #[serde(rename = "type")]
    type_: String,
    #[prost(string, tag = "2")]
    status: String,
    #[prost(message, optional, tag = "4")]
    #[serde(rename = "lastTransitionTime")]
    last_transition: Option<Time>,
}

impl ClaimStatus {
    fn resize_pending_since(&self) -> Option<Timestamp> {
        let pending = self
            .conditions
            .iter()
            .find(|c| c.type_ == "FileSystemResizePending" && c.status == "True")?;
        Some(pending.last_transition.map(Timestamp::from).unwrap_or_default())
    }
}

impl Claim {
    pub(crate) fn into_record(self, interner: &mut Interner) -> Result<ClaimRecord, String> {
        let metadata = Metadata::from_protobuf(self.metadata)?;
        let (spec, status) = (self.spec.unwrap_or_default(), self.status.unwrap_or_default());
        record(metadata, spec, &status, interner)
    }
}

/// The record of a claim in JSON.
pub(super) fn from_json(value: &Value, interner: &mut Interner) -> Result<ClaimRecord, String> {
    record(
        Metadata::from_json(value)?,
        part(value, "spec")?,
        &part(value, "status")?,
        interner,
    )
}

fn record(
    metadata: Metadata,
    spec: ClaimSpec,
    status: &ClaimStatus,
    interner: &mut Interner,
) -> Result<ClaimRecord, String> {
    let annotations = metadata.annotations;
    let kept: Vec<_> = annotations
        .iter()
        .map(|(key, value)| (key, ClaimRecord::kept_value(value)))
        .collect();
    let requests = spec.resources.unwrap_or_default().requests;
    Ok(ClaimRecord {
        meta: metadata.object.into_meta(interner, |_, _| true)?,
        storage_class: annotations
            .get(names::STORAGE_CLASS)
            .or(spec.storage_class.as_ref())
            .map(|class| interner.string(class)),
        access_modes: (!spec.access_modes.is_empty()).then(|| interner.string(&spec.access_modes.join(","))),
        requested_bytes: storage(&requests),
        capacity_bytes: storage(&status.capacity),
        resize_pending_since: status.resize_pending_since(),
        is_bound: status.phase == "Bound",
        expanded_by: annotations
            .get(names::CLAIM_EXPANDED_BY)
            .map(|set| interner.string(set)),
        annotations: interner.labels(kept.iter().map(|(key, value)| (key.as_str(), &**value))),
    })
}

fn storage(quantities: &BTreeMap<String, Quantity>) -> u64 {
    quantities
        .get("storage")
        .and_then(|q| parse_bytes(&q.text))
        .unwrap_or(0)
}
