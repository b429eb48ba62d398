//! Records: what the cache keeps of each API object.

mod claim;
mod config_map;
mod detail;
mod node;
mod pod;
mod revision;

pub use claim::{ClaimRecord, StorageClassRecord};
pub use config_map::ConfigMapRecord;
pub use detail::{
    ContainerSpec, ContainerStatus, DetailSpec, GateCondition, MetadataEnv, PodDetail, ResizePending, Resources,
    is_kept_annotation,
};
pub use node::NodeRecord;
pub use pod::{Phase, PodRecord, PodTrouble, ReadyCondition, VolumeClaim};
pub use revision::RevisionRecord;

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
    NodeRecord,
    RevisionRecord,
    StorageClassRecord,
    crate::set::SetRecord
);
