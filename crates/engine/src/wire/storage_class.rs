//! Storage classes: the fields of `storage.k8s.io/v1` that a [`StorageClassRecord`] keeps.

use super::meta::Metadata;
use bytes::Bytes;
use flotilla_api::names;
use flotilla_model::{Interner, StorageClassRecord};
use prost::Message;
use serde_json::Value;

/// `storage.k8s.io/v1` StorageClass.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StorageClass {
    /// Decoded twice; see the claim's message.
    #[prost(bytes = "bytes", tag = "1")]
    metadata: Bytes,
    #[prost(bool, tag = "6")]
    allows_expansion: bool,
}

impl StorageClass {
    pub(crate) fn into_record(self, interner: &mut Interner) -> Result<StorageClassRecord, String> {
        record(Metadata::from_protobuf(self.metadata)?, self.allows_expansion, interner)
    }
}

/// The record of a storage class in JSON.
pub(super) fn from_json(value: &Value, interner: &mut Interner) -> Result<StorageClassRecord, String> {
    let allows = value.get("allowVolumeExpansion").and_then(Value::as_bool);
    record(Metadata::from_json(value)?, allows.unwrap_or(false), interner)
}

fn record(metadata: Metadata, allows_expansion: bool, interner: &mut Interner) -> Result<StorageClassRecord, String> {
    let is_true = |name: &&str| metadata.annotations.get(*name).is_some_and(|v| v == "true");
    let is_default = names::DEFAULT_STORAGE_CLASS.iter().any(is_true);
    Ok(StorageClassRecord {
        meta: metadata.object.into_meta(interner, |_, _| true)?,
        allows_expansion,
        is_default,
    })
}
