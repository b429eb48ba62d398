//! Records: what the cache keeps of each API object.

mod claim;
mod config_map;
mod detail;
mod image_pull_job;
mod node;
mod pod;
mod recorded_claims;
mod revision;

pub use claim::{ClaimRecord, StorageClassRecord, storage_class_of};
pub use config_map::ConfigMapRecord;
pub use detail::{
    ContainerSpec, ContainerStatus, DetailSpec, GateCondition, MetadataEnv, PodDetail, ResizePending, Resources,
    is_kept_annotation,
};
pub use image_pull_job::ImagePullJobRecord;
pub use node::NodeRecord;
pub use pod::{Phase, PodRecord, PodTrouble, ReadyCondition, VolumeClaim};
pub use recorded_claims::RecordedClaims;
pub use revision::{ClaimSizes, RevisionRecord};

use crate::meta::Meta;

/// Anything the cache stores: it knows its metadata.
pub trait Record: Send + Sync + 'static {
    /// Who the object is.
    fn meta(&self) -> &Meta;
}

macro_rules! record {
    ($($name:ty),*) => { $(impl Record for $name { fn meta(&self) -> &Meta { &self.meta } })* };
}
record!(
    PodRecord,
    ClaimRecord,
    ConfigMapRecord,
    ImagePullJobRecord,
    NodeRecord,
    RevisionRecord,
    StorageClassRecord,
    crate::set::SetRecord
);
