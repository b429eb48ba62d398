//! What is kept of a claim and of a storage class.

use crate::meta::Meta;
use crate::time::Timestamp;
use std::sync::Arc;

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
    /// Annotations; templates may spread theirs to existing claims (opt-in `flotilla.rs/claim-labels`).
    pub annotations: crate::meta::Labels,
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
