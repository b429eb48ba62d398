//! Storage classes: the fields of `storage.k8s.io/v1` that a [`StorageClassRecord`] keeps.

use super::meta::{Annotated, ObjectMeta};
use bytes::Bytes;
use flotilla_api::names;
use flotilla_model::{Interner, StorageClassRecord};
use prost::Message;

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
        let said = |e: prost::DecodeError| e.to_string();
        let annotations = Annotated::decode(self.metadata.clone()).map_err(said)?.annotations;
        let metadata = ObjectMeta::decode(self.metadata).map_err(said)?;
        Ok(StorageClassRecord {
            meta: metadata.into_meta(interner, |_, _| true)?,
            allows_expansion: self.allows_expansion,
            is_default: annotations
                .get(names::DEFAULT_STORAGE_CLASS)
                .is_some_and(|v| v == "true"),
        })
    }
}
