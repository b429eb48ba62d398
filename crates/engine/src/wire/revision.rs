//! ControllerRevisions: the fields of `apps/v1` that a [`RevisionRecord`] keeps.

use super::meta::Metadata;
use bytes::Bytes;
use flotilla_api::names;
use flotilla_model::{Interner, RevisionRecord};
use prost::Message;
use serde_json::Value;

/// `apps/v1` ControllerRevision.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Revision {
    /// Decoded twice; see the claim's message.
    #[prost(bytes = "bytes", tag = "1")]
    metadata: Bytes,
    #[prost(message, optional, tag = "2")]
    data: Option<RawExtension>,
    #[prost(int64, tag = "3")]
    number: i64,
}

/// `runtime.RawExtension`: JSON in protobuf.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) raw: Bytes,
}

impl Revision {
    pub(crate) fn into_record(self, interner: &mut Interner) -> Result<RevisionRecord, String> {
        let metadata = Metadata::from_protobuf(self.metadata)?;
        let data = match self.data.filter(|d| !d.raw.is_empty()) {
            Some(data) => serde_json::from_slice(&data.raw).map_err(|e| format!("data is not JSON: {e}"))?,
            None => Value::Null,
        };
        record(metadata, self.number, &data, interner)
    }
}

/// The record of a revision in JSON.
pub(super) fn from_json(value: &Value, interner: &mut Interner) -> Result<RevisionRecord, String> {
    let number = value.get("revision").and_then(Value::as_i64).unwrap_or(0);
    let data = value.get("data").unwrap_or(&Value::Null);
    record(Metadata::from_json(value)?, number, data, interner)
}

fn record(metadata: Metadata, number: i64, data: &Value, interner: &mut Interner) -> Result<RevisionRecord, String> {
    let claim_templates = metadata.annotations.get(names::CLAIM_TEMPLATES).map(String::as_str);
    let claim_hash = metadata.annotations.get(names::CLAIM_TEMPLATES_HASH);
    let claim_hash = claim_hash.map(|hash| interner.string(hash));
    let meta = metadata.object.into_meta(interner, |_, _| true)?;
    Ok(RevisionRecord {
        claim_hash,
        ..RevisionRecord::new(meta, number, data, claim_templates)
    })
}
