//! What updates in place, lifecycle hooks and launch priorities look at in a pod.

use crate::memo::Memo;
use crate::meta::Labels;
use crate::template::Digest;
use crate::time::Timestamp;
use std::sync::Arc;

/// The parts of a pod that most pods are never asked for. Kept only for pods that a kind of `apps.kruise.io` controls, or that carry a
/// mark of container launch priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDetail {
    /// Parts of the spec; pods of one revision share them.
    pub spec: Arc<DetailSpec>,
    /// `metadata.finalizers`, in their order.
    pub finalizers: Arc<[Arc<str>]>,
    /// Those annotations that decisions read ([`is_kept_annotation`]), and those that a container's environment refers to.
    pub annotations: Labels,
    /// There are annotations at all, kept or not: a patch that puts one in has to know.
    pub is_annotated: bool,
    /// What the kubelet says of each container of `spec`, in the same order; `None` where it has not said anything yet.
    pub statuses: Box<[Option<ContainerStatus>]>,
    /// `status.observedGeneration` of the kubelet, 0 where it does not say.
    pub observed_generation: i64,
    /// `metadata.generation`.
    pub generation: i64,
    /// Condition ContainersReady is True.
    pub containers_ready: bool,
    /// Condition `InPlaceUpdateReady`, if it is there.
    pub in_place_ready: Option<GateCondition>,
    /// Condition `KruisePodReady`, if it is there.
    pub kruise_ready: Option<GateCondition>,
    /// Condition PodResizePending, while it is True.
    pub resize_pending: Option<ResizePending>,
    /// The message of condition PodResizeInProgress, while it is True: empty, or what keeps the kubelet from it.
    pub resize_in_progress: Option<Arc<str>>,
    /// Whether it plainly is in no update in place, once a controller has asked itself that: it is asked of every pod in every pass.
    pub plainly_done: Memo<bool>,
    /// What the bytes of the whole `spec` were, where it was read from bytes: the next version of the pod mostly has the same.
    pub spec_bytes: Memo<Digest>,
}

impl PodDetail {
    /// The containers with what the kubelet says of them.
    pub fn containers(&self) -> impl Iterator<Item = (&ContainerSpec, Option<&ContainerStatus>)> {
        let statuses = self.statuses.iter().map(Option::as_ref);
        self.spec.containers.iter().zip(statuses.chain(std::iter::repeat(None)))
    }

    /// A container by its name.
    pub fn container(&self, name: &str) -> Option<(&ContainerSpec, Option<&ContainerStatus>)> {
        self.containers().find(|(spec, _)| *spec.name == *name)
    }
}

/// Parts of a pod's spec.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct DetailSpec {
    /// Condition types of `readinessGates`, in their order.
    pub gates: Vec<Arc<str>>,
    /// `containers`, in their order; neither init containers nor ephemeral ones.
    pub containers: Vec<ContainerSpec>,
    /// `restartPolicy` is Never.
    pub never_restarts: bool,
}

impl DetailSpec {
    /// Whether readiness depends on a condition of this type.
    pub fn has_gate(&self, condition: &str) -> bool {
        self.gates.iter().any(|gate| **gate == *condition)
    }
}

/// Parts of a container as the pod's spec has it now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ContainerSpec {
    /// Its name.
    pub name: Arc<str>,
    /// Its image.
    pub image: Arc<str>,
    /// Its requests and limits of cpu and memory.
    pub resources: Resources,
    /// `resizePolicy` asks for a restart when cpu changes.
    pub restarts_for_cpu: bool,
    /// `resizePolicy` asks for a restart when memory changes.
    pub restarts_for_memory: bool,
    /// It has a readiness probe.
    pub has_readiness_probe: bool,
    /// Launch priority: the integer behind `p_` in the key of the config map that env `KRUISE_CONTAINER_BARRIER` refers to.
    pub priority: Option<i64>,
    /// Environment entries that refer to a label or an annotation of the pod, in their order.
    pub metadata_env: Vec<MetadataEnv>,
}

/// An environment entry with `fieldRef: metadata.labels['KEY']` or `metadata.annotations['KEY']`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetadataEnv {
    /// Name of the variable.
    pub name: Arc<str>,
    /// Whether it refers to a label; otherwise to an annotation.
    pub is_label: bool,
    /// The key.
    pub key: Arc<str>,
}

/// Requests and limits of cpu (in thousandths of a core) and memory (in bytes); `None` where not stated, or not readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Resources {
    /// `requests.cpu`.
    pub cpu_request_millis: Option<i64>,
    /// `limits.cpu`.
    pub cpu_limit_millis: Option<i64>,
    /// `requests.memory`.
    pub memory_request_bytes: Option<i64>,
    /// `limits.memory`.
    pub memory_limit_bytes: Option<i64>,
}

/// What the kubelet says of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// `image`, as the node resolved it.
    pub image: Arc<str>,
    /// `imageID`.
    pub image_id: Arc<str>,
    /// `containerID`, empty before the first start.
    pub container_id: Arc<str>,
    /// `restartCount`.
    pub restart_count: i32,
    /// `state.running.startedAt`, while it runs.
    pub started_at: Option<Timestamp>,
    /// `ready`.
    pub is_ready: bool,
    /// `started`.
    pub is_started: bool,
    /// `resources`, where the kubelet reports them.
    pub resources: Option<Resources>,
}

/// A condition that gates readiness and that controllers write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateCondition {
    /// Its place in `status.conditions`: a patch may name it there and test that it still is.
    pub index: usize,
    /// `status` is True. A condition without a status (an old defect of the Go manager) is not.
    pub is_true: bool,
    /// `message`: for `KruisePodReady`, a JSON list of `{userAgent, key}`.
    pub message: Arc<str>,
    /// `lastTransitionTime`.
    pub since: Option<Timestamp>,
}

/// Why a change of resources has not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizePending {
    /// Reason Infeasible: it will never fit on this node. Otherwise (Deferred) it may fit later.
    pub is_infeasible: bool,
    /// The kubelet's sentence.
    pub message: Arc<str>,
    /// Since when.
    pub since: Option<Timestamp>,
}

/// Annotations that are kept whatever a pod's environment refers to.
pub fn is_kept_annotation(key: &str) -> bool {
    use flotilla_api::names as n;
    matches!(
        key,
        n::IN_PLACE_STATE
            | n::IN_PLACE_STATE_LEGACY
            | n::IN_PLACE_GRACE
            | n::IN_PLACE_GRACE_LEGACY
            | n::RUNTIME_CONTAINERS_META
            | n::LIFECYCLE_TIMESTAMP
            | n::LAUNCH_PRIORITY
            | n::LAUNCH_ON
            | n::DELETION_COST
            | n::REPLACED_BY_UPDATE
            | n::MADE_AS_SURGE
    )
}
