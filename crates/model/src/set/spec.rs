//! What a set asks for, after reading and defaulting.

use super::ordinals::{IntervalSet, Ordinals};
use crate::int_or_percent::{IntOrPercent, Share};
use crate::packed::Packed;
use crate::records::storage_class_of;
use crate::selector::Selector;
use crate::template::{Digest, Template, parse_bytes};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// `podManagementPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PodManagement {
    /// One after the other, each waiting for those before it: *monotonic*.
    #[default]
    OrderedReady,
    /// All at once: *burst*.
    Parallel,
}

/// `updateStrategy.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UpdateKind {
    /// Old pods are replaced in order, within a budget.
    #[default]
    RollingUpdate,
    /// Old pods are replaced when somebody deletes them.
    OnDelete,
    /// All old pods go before the first new one comes.
    Recreate,
}

/// One way to rank pods for an unordered update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PriorityStrategy {
    /// Terms in order of rank.
    Order(Vec<PriorityTerm>),
    /// Terms whose weights add up.
    Weight(Vec<PriorityTerm>),
}

/// One term of a [`PriorityStrategy`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PriorityTerm {
    /// A label key whose value ends in a number; higher numbers first.
    Key(String),
    /// Pods that match get the weight.
    Match(i64, Selector),
}

/// `updateStrategy.rollingUpdate`, defaulted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollingUpdate {
    /// Pods to keep on the old revision (Advanced), or the ordinal relative to the start below which pods keep it (native).
    pub partition: i32,
    /// Budget of the update. `None` for a native set that does not name one: the classic path, one pod at a time (STS-2.5).
    pub max_unavailable: Option<IntOrPercent>,
    /// Stops the update phase.
    pub paused: bool,
    /// Unordered mode, with its ranking if there is one.
    pub unordered: Option<Option<PriorityStrategy>>,
    /// Whether pods are changed instead of made again.
    pub pod_update_policy: PodUpdatePolicy,
    /// How long a pod is out of service before its containers change (`inPlaceUpdateStrategy.gracePeriodSeconds`).
    pub in_place_grace: Duration,
}

/// `podUpdatePolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PodUpdatePolicy {
    /// Old pods are made again.
    #[default]
    ReCreate,
    /// Old pods are changed in place where that can be done, and made again otherwise.
    InPlaceIfPossible,
    /// Old pods are changed in place; what cannot be is not done.
    InPlaceOnly,
}

/// One hook of a pod's lifecycle: as long as a pod carries its markers, it is held.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Hook {
    /// Labels with exact values.
    pub labels: Vec<(String, String)>,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// Whether a pod that is held does not count as ready.
    pub mark_not_ready: bool,
}

/// `lifecycle`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Lifecycle {
    /// Holds pods that we want to delete.
    pub pre_delete: Option<Hook>,
    /// Holds pods that we want to update in place, and afterwards.
    pub in_place_update: Option<Hook>,
    /// Must be complete before a new pod counts.
    pub pre_normal: Option<Hook>,
}

impl Lifecycle {
    /// Whether no hook is defined.
    pub fn is_empty(&self) -> bool {
        self.pre_delete.is_none() && self.in_place_update.is_none() && self.pre_normal.is_none()
    }

    /// Whether a hook takes pods that it holds out of service. That of new pods never does: they are not in service yet.
    pub fn marks_not_ready(&self) -> bool {
        let hooks = [&self.pre_delete, &self.in_place_update];
        hooks.into_iter().flatten().any(|hook| hook.mark_not_ready)
    }
}

/// How images of an update in place are pulled ahead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreDownload {
    /// On how many nodes at once; a percentage is of the replicas.
    pub parallelism: Share,
    /// How long one pull may take.
    pub timeout_seconds: i32,
    /// How many pods must be updated and ready before it begins.
    pub min_updated_ready: Share,
    /// `flotilla.rs/pre-download-recreate: true`: also for updates that make pods anew.
    pub also_for_recreation: bool,
}

/// `persistentVolumeClaimRetentionPolicy`: true where claims are to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Retention {
    /// When the set is deleted.
    pub delete_with_set: bool,
    /// When the pod is scaled away.
    pub delete_with_pod: bool,
}

/// One entry of `volumeClaimTemplates`.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimTemplate {
    /// Its name, which is also the name of the pod's volume.
    pub name: Arc<str>,
    /// The template, whole: what its author wrote takes little more memory than its text.
    pub body: Packed,
    /// `spec.resources.requests.storage` in bytes, if it parses.
    pub requested_bytes: Option<u64>,
    /// `spec.storageClassName`.
    pub storage_class: Option<Arc<str>>,
    /// `spec.accessModes`, in order, joined by commas.
    pub access_modes: Option<Arc<str>>,
}

impl ClaimTemplate {
    /// From its JSON form; `None` if it has no name.
    pub fn from_json(template: &Value) -> Option<Self> {
        let name = template.pointer("/metadata/name")?.as_str().filter(|n| !n.is_empty())?;
        let storage = template.pointer("/spec/resources/requests/storage");
        let storage = storage.map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
        let modes = template.pointer("/spec/accessModes").and_then(Value::as_array);
        Some(ClaimTemplate {
            name: name.into(),
            requested_bytes: storage.and_then(|text| parse_bytes(&text)),
            storage_class: storage_class_of(template).map(Into::into),
            access_modes: modes.map(|m| m.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",").into()),
            body: Packed::new(template),
        })
    }
}

/// Opt-in switches, from the set's annotations.
// Each is an annotation of its own, not a part of a state.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Switches {
    /// `flotilla.rs/unblock: broken-first`, with how long a pod must have been bad.
    pub unblock_after: Option<Duration>,
    /// `flotilla.rs/ordered-max-unavailable`.
    pub ordered_max_unavailable: Option<IntOrPercent>,
    /// `flotilla.rs/paused-keeps-revision: true`.
    pub paused_keeps_revision: bool,
    /// `flotilla.rs/scale-down: ignore-unhealthy`.
    pub scale_down_ignores_unhealthy: bool,
    /// `flotilla.rs/claim-labels: propagate`.
    pub propagate_claim_labels: bool,
    /// `flotilla.rs/in-place-deadline-seconds`.
    pub in_place_deadline: Option<Duration>,
    /// `flotilla.rs/in-place-deadline-action: recreate`.
    pub deadline_recreates: bool,
    /// `flotilla.rs/keep-ready-containers`.
    pub keep_ready: BTreeSet<String>,
    /// `flotilla.rs/resize-wait-seconds`.
    pub resize_wait: Duration,
    /// Those that are accepted and do nothing, each with what happens instead.
    pub idle: Vec<&'static (&'static str, &'static str)>,
}

/// What a field that could not be read stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// Nothing: a default is used.
    Nothing,
    /// No pod is scaled away.
    ScaleDown,
    /// No pod is replaced or scaled away: somebody may still hold it.
    Removal,
    /// No pod is created, replaced or scaled away, as it is unknown which are wanted.
    Scale,
    /// No pod is replaced.
    Update,
    /// Nothing is done for the set at all.
    Everything,
}

/// A field that was there and could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// Path of the field, as `spec.reserveOrdinals[2]`.
    pub path: String,
    /// What it held, shortened.
    pub found: String,
    /// What it should hold.
    pub rule: &'static str,
    /// What is not done because of it.
    pub stops: Area,
}

/// Path of the partition of a StatefulSet.
pub(super) const PARTITION: &str = "spec.updateStrategy.rollingUpdate.partition";

/// The most pods that a set may have. No API server holds as many; a number beyond is a slip, or means harm.
pub const MOST_PODS: i32 = 1_000_000;

/// The specification of a set of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct SetSpec {
    /// How many pods are wanted, at most [`MOST_PODS`].
    pub replicas: i32,
    /// Lowest ordinal (`ordinals.start`).
    pub start: i64,
    /// Ordinals that are not to be used.
    pub reserved: IntervalSet,
    /// Which pods and revisions may belong to the set.
    pub selector: Selector,
    /// Governing service; becomes the pods' subdomain.
    pub service_name: Arc<str>,
    /// How pods are created and deleted.
    pub pod_management: PodManagement,
    /// How pods are replaced.
    pub update: UpdateKind,
    /// Details of a rolling update; `None` if the block is absent in a native set, or does not apply to the kind of update.
    pub rolling: Option<RollingUpdate>,
    /// How long a pod must have been ready to count as available.
    pub min_ready: Duration,
    /// How many unused revisions are kept; `None` keeps all.
    pub history_limit: Option<usize>,
    /// What becomes of claims.
    pub retention: Retention,
    /// Budget of scaling (`scaleStrategy.maxUnavailable`).
    pub scale_max_unavailable: Option<IntOrPercent>,
    /// Whether existing claims follow a larger template (`volumeClaimUpdateStrategy.type: OnPodRollingUpdate`).
    pub expand_claims: bool,
    /// Claims that every pod gets.
    pub claim_templates: Vec<ClaimTemplate>,
    /// Hooks of the pods' lifecycle.
    pub lifecycle: Lifecycle,
    /// Pods that keep their own container resources (`specialPodsSelectors`).
    pub special_pods: Vec<Selector>,
    /// The pod template, whole.
    pub template: Template,
    /// Digest of the template's normal form.
    pub template_digest: Digest,
    /// The same without container resources.
    pub template_digest_without_resources: Digest,
    /// What only a CloneSet has.
    pub clones: Option<Box<super::CloneSpec>>,
    /// How images are pulled ahead of an update.
    pub pre_download: PreDownload,
    /// Opt-in switches.
    pub switches: Switches,
    /// Fields that could not be read.
    pub problems: Vec<FieldProblem>,
}

impl SetSpec {
    /// The ordinals that are wanted.
    pub fn ordinals(&self) -> Ordinals {
        Ordinals::new(self.start, self.replicas, &self.reserved)
    }

    /// Whether pods come and go one after the other.
    pub fn is_monotonic(&self) -> bool {
        self.pod_management == PodManagement::OrderedReady
    }

    /// Whether a field that could not be read stops work of this kind.
    pub fn is_stopped(&self, work: Area) -> bool {
        self.problems.iter().any(|p| {
            let takes_away = matches!(work, Area::ScaleDown | Area::Update);
            let implied = takes_away && matches!(p.stops, Area::Scale | Area::Removal);
            p.stops == Area::Everything || p.stops == work || implied
        })
    }

    /// Whether old pods are changed in place or made again.
    pub fn pod_update_policy(&self) -> PodUpdatePolicy {
        self.rolling
            .as_ref()
            .map_or_else(PodUpdatePolicy::default, |r| r.pod_update_policy)
    }

    /// Whether the partition could not be read.
    pub fn lacks_partition(&self) -> bool {
        self.problems.iter().any(|problem| problem.path == PARTITION)
    }

    /// The partition, 0 if there is none.
    pub fn partition(&self) -> i32 {
        self.rolling.as_ref().map_or(0, |r| r.partition)
    }

    /// Whether there is a partition that is not zero, as it is written: also a percentage that is nothing of no replicas.
    pub fn has_partition(&self) -> bool {
        match &self.clones {
            Some(clones) => !clones.partition.is_zero(),
            None => self.partition() != 0,
        }
    }

    /// Whether the update phase is paused.
    pub fn is_paused(&self) -> bool {
        self.rolling.as_ref().is_some_and(|r| r.paused)
    }
}
