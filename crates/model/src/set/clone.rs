//! What only a CloneSet has.

use super::spec::PriorityStrategy;
use crate::int_or_percent::Share;
use std::time::Duration;

/// The part of a CloneSet's specification that no other set has.
#[derive(Clone, Debug, PartialEq)]
pub struct CloneSpec {
    /// How many pods stay old.
    pub partition: Share,
    /// How many pods may be unavailable for our doing.
    pub max_unavailable: Share,
    /// How many pods there may be beyond the replicas.
    pub max_surge: Share,
    /// Which pods are updated first.
    pub priority: Option<PriorityStrategy>,
    /// Labels whose pods are updated as far from one another as possible.
    pub scatter: Vec<(String, String)>,
    /// No pod is made while this many are unavailable.
    pub scale_max_unavailable: Option<Share>,
    /// Pods that the user wants to have deleted.
    pub pods_to_delete: Vec<String>,
    /// Claims of pods that others deleted are kept and used again.
    pub reuses_claims: bool,
    /// Pods that wait for their preDelete hook do not count as replicas.
    pub excludes_preparing_delete: bool,
    /// After how long without progress that is said.
    pub progress_deadline: Option<Duration>,
    /// Label keys of the template's `topologySpreadConstraints`, in their order, each once and 16 at most.
    pub spread_over: Vec<String>,
    /// Opt-in switches that only a CloneSet has.
    pub switches: CloneSwitches,
}

/// Opt-in switches, from the annotations of a CloneSet.
// Each is an annotation of its own, not a part of a state.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CloneSwitches {
    /// `flotilla.rs/partition-rollback: true`.
    pub partition_rollback: bool,
    /// `flotilla.rs/surge-in-place: true`.
    pub surge_in_place: bool,
    /// `flotilla.rs/recreate-on-claim-change: true`.
    pub recreate_on_claim_change: bool,
    /// `flotilla.rs/keep-claims-on-recreate: true`.
    pub keep_claims_on_recreate: bool,
    /// `flotilla.rs/adopt-orphans: true`.
    pub adopt_orphans: bool,
    /// `flotilla.rs/finished-pods: delete`.
    pub delete_finished: bool,
}
