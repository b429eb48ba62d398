//! How a controller reads the cluster: lookups that cost as much as their answer, never a scan.

use crate::meta::{ObjectKey, Owner};
use crate::records::{
    ClaimRecord, ConfigMapRecord, ImagePullJobRecord, NodeRecord, PodRecord, RevisionRecord, StorageClassRecord,
};
use crate::set::{SetKind, SetRecord};
use std::sync::Arc;

/// Read access to the cache. Answers already contain all our own writes.
pub trait Reader {
    /// The set of this kind with this key.
    fn set(&self, kind: SetKind, key: &ObjectKey) -> Option<&Arc<SetRecord>>;
    /// All sets of this kind in a namespace.
    fn sets_in(&self, kind: SetKind, namespace: &str) -> Vec<Arc<SetRecord>>;
    /// All sets of this kind, in every namespace.
    fn all_sets(&self, kind: SetKind) -> Vec<Arc<SetRecord>>;
    /// The pod with this key.
    fn pod(&self, key: &ObjectKey) -> Option<&Arc<PodRecord>>;
    /// Pods that this owner manages, sorted by name.
    fn pods_of(&self, owner: Owner<'_>) -> &[Arc<PodRecord>];
    /// Pods in a namespace that no owner manages, sorted by name.
    fn orphan_pods(&self, namespace: &str) -> &[Arc<PodRecord>];
    /// Pods that mount this claim, whoever manages them, sorted by name.
    fn pods_mounting(&self, claim: &ObjectKey) -> Vec<&Arc<PodRecord>>;
    /// The claim with this key.
    fn claim(&self, key: &ObjectKey) -> Option<&Arc<ClaimRecord>>;
    /// Claims that this owner manages, sorted by name.
    fn claims_of(&self, owner: Owner<'_>) -> &[Arc<ClaimRecord>];
    /// The node of this name.
    fn node(&self, name: &str) -> Option<&Arc<NodeRecord>>;
    /// The config map with this key, if it is one that is watched ([`crate::Resource::selector`]) or was read.
    fn config_map(&self, key: &ObjectKey) -> Option<&Arc<ConfigMapRecord>>;
    /// The revision with this key.
    fn revision(&self, key: &ObjectKey) -> Option<&Arc<RevisionRecord>>;
    /// Revisions that this owner manages, sorted by name.
    fn revisions_of(&self, owner: Owner<'_>) -> &[Arc<RevisionRecord>];
    /// Revisions in a namespace that no owner manages, sorted by name.
    fn orphan_revisions(&self, namespace: &str) -> &[Arc<RevisionRecord>];
    /// The storage class of this name.
    fn storage_class(&self, name: &str) -> Option<&Arc<StorageClassRecord>>;
    /// Whether the API server has the subresource `resize` of pods; found by discovery, never by a version number (STS-4.3).
    fn supports_resize(&self) -> bool {
        true
    }
    /// Whether images can be pulled ahead: the API server has the kind `ImagePullJob`, and all there are of it are known. Found by
    /// watching, where that was asked for.
    fn knows_image_pull_jobs(&self) -> bool {
        false
    }
    /// The `ImagePullJob` with this key.
    fn image_pull_job(&self, _key: &ObjectKey) -> Option<&Arc<ImagePullJobRecord>> {
        None
    }
    /// `ImagePullJob`s that this owner manages, sorted by name.
    fn image_pull_jobs_of(&self, _owner: Owner<'_>) -> &[Arc<ImagePullJobRecord>] {
        &[]
    }
}
