//! What is kept of a claim and of a storage class.

use crate::meta::{Labels, Meta, OwnerRef};
use crate::resource::Resource;
use crate::template::Digest;
use crate::time::Timestamp;
use flotilla_api::names;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// The storage class that a claim, a template of claims, or a volume names. The annotation that was there before the field still comes first.
/// <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#class-1>
pub fn storage_class_of(claim: &Value) -> Option<&str> {
    let annotation = &claim["metadata"]["annotations"][names::STORAGE_CLASS];
    annotation
        .as_str()
        .or_else(|| claim["spec"]["storageClassName"].as_str())
}

/// One PersistentVolumeClaim, as decisions see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRecord {
    /// Who it is.
    pub meta: Meta,
    /// `spec.storageClassName`; `None` if it names none.
    pub storage_class: Option<Arc<str>>,
    /// `spec.accessModes`, in order, joined by commas; `None` if it has none.
    pub access_modes: Option<Arc<str>>,
    /// `spec.resources.requests.storage`, in bytes.
    pub requested_bytes: u64,
    /// `status.capacity.storage`, in bytes; 0 before it is bound.
    pub capacity_bytes: u64,
    /// Since when condition FileSystemResizePending is True: the volume has grown, the file system grows at the next mount.
    pub resize_pending_since: Option<Timestamp>,
    /// Whether `status.phase` is Bound.
    pub is_bound: bool,
    /// Annotation `apps.kruise.io/owned-by-asts`: the set that expands this claim.
    pub expanded_by: Option<Arc<str>>,
    /// Annotations; templates may spread theirs to existing claims (opt-in `flotilla.rs/claim-labels`). Of long values [what tells them
    /// apart](ClaimRecord::kept_value).
    pub annotations: Labels,
}

/// Annotations of claims that are longer are compared, and nothing of them is read.
const KEPT_WHOLE_BYTES: usize = 256;

impl ClaimRecord {
    /// The owner under which it is found: the one that manages it, or else a StatefulSet that it goes with by a plain reference, as OpenKruise's
    /// manager writes them (STS-1.4.4).
    pub fn owner(&self) -> Option<&OwnerRef> {
        let is_of_set = |owner: &&OwnerRef| *owner.kind == *Resource::AdvancedSets.kind();
        let plain = || self.meta.owners.iter().flat_map(|owners| owners.iter()).find(is_of_set);
        self.meta.controller().or_else(plain)
    }

    /// What is kept of the value of an annotation: itself, or of a long one its digest. Whatever it is, a template that asks for it is told
    /// by the same words.
    pub fn kept_value(value: &str) -> Cow<'_, str> {
        if value.len() <= KEPT_WHOLE_BYTES {
            return value.into();
        }
        format!("{} bytes, {:x}", value.len(), Digest::of_bytes(value.as_bytes())).into()
    }
}

/// One StorageClass, as decisions see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageClassRecord {
    /// Who it is.
    pub meta: Meta,
    /// `allowVolumeExpansion`; unset means no.
    pub allows_expansion: bool,
    /// Whether it is annotated as the default class.
    pub is_default: bool,
}
