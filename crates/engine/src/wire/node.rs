//! Nodes: of `core/v1` Node, nothing but who it is.

use super::meta::Metadata;
use bytes::Bytes;
use flotilla_model::{Interner, NodeRecord};
use prost::Message;
use serde_json::Value;

/// `core/v1` Node. Spec and status are skipped.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Node {
    /// Decoded twice; see the claim's message.
    #[prost(bytes = "bytes", tag = "1")]
    metadata: Bytes,
}

impl Node {
    pub(crate) fn into_record(self, interner: &mut Interner) -> Result<NodeRecord, String> {
        record(Metadata::from_protobuf(self.metadata)?, interner)
    }
}

/// The record of a node in JSON.
pub(super) fn from_json(value: &Value, interner: &mut Interner) -> Result<NodeRecord, String> {
    record(Metadata::from_json(value)?, interner)
}

fn record(metadata: Metadata, interner: &mut Interner) -> Result<NodeRecord, String> {
    let meta = metadata.object.into_meta(interner, |_, _| true)?;
    Ok(NodeRecord { meta })
}
