//! ControllerRevisions: the fields of `apps/v1` that a [`RevisionRecord`] keeps.

use super::meta::{Annotated, ObjectMeta};
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
        let said = |e: prost::DecodeError| e.to_string();
        let annotations = Annotated::decode(self.metadata.clone()).map_err(said)?.annotations;
        let meta = ObjectMeta::decode(self.metadata)
            .map_err(said)?
            .into_meta(interner, |_, _| true)?;
        let data = match self.data.filter(|d| !d.raw.is_empty()) {
            Some(data) => serde_json::from_slice(&data.raw).map_err(|e| format!("data is not JSON: {e}"))?,
            None => Value::Null,
        };
        let claim_templates = annotations.get(names::CLAIM_TEMPLATES).map(String::as_str);
        Ok(RevisionRecord::new(meta, self.number, &data, claim_templates))
    }
}
