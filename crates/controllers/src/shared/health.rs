//! What a pod is to its set in a pass: its health, and what its labels say.

use crate::launch::held_at_barrier;
use crate::shared::inplace::complete;
use crate::shared::inplace::progress::Progress;
use crate::shared::lifecycle::{self, State};
use flotilla_api::names;
use flotilla_model::records::PodDetail;
use flotilla_model::set::Lifecycle;
use flotilla_model::{PodRecord, Timestamp, Wait, WaitCause};
use std::time::Duration;

/// Health of a pod, worst first (STS-1.5). One value a pod, so that nobody charges it twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Failed or Succeeded; its object may be terminating or not.
    Ended,
    /// Its deletion has been asked for.
    Terminating,
    /// Not ready, or its lifecycle does not let it count.
    NotReady,
    /// Ready, and available after this long.
    NotAvailable(Duration),
    /// Available.
    Available,
}

impl Health {
    pub(crate) fn of(pod: &PodRecord, lifecycle_allows: bool, min_ready: Duration, now: Timestamp) -> Self {
        if pod.is_terminal() {
            return Health::Ended;
        }
        if pod.is_terminating() {
            return Health::Terminating;
        }
        if !lifecycle_allows {
            return Health::NotReady;
        }
        match pod.available_in(min_ready, now) {
            None => Health::NotReady,
            Some(Duration::ZERO) => Health::Available,
            Some(left) => Health::NotAvailable(left),
        }
    }

    /// Whether it is ready, available or not yet.
    pub(crate) fn is_ready(self) -> bool {
        matches!(self, Health::Available | Health::NotAvailable(_))
    }

    pub(crate) fn is_available(self) -> bool {
        self == Health::Available
    }
}

/// Whether neither an update in place nor a hook or condition of it can ask anything of a pod. Asked of every pod in every pass.
pub(crate) fn is_quiet(pod: &PodRecord, labels: LabelFacts) -> bool {
    let Some(detail) = &pod.detail else { return true };
    let holds_nothing = match &detail.kruise_ready {
        Some(condition) => condition.is_true && condition.message.is_empty(),
        None => !detail.spec.has_gate(names::KRUISE_POD_READY),
    };
    labels.lifecycle_allows && holds_nothing && complete::is_plainly_done(detail)
}

/// Why a pod that is not available is waited for.
pub(crate) fn cause(pod: &PodRecord, health: Health) -> WaitCause {
    match health {
        Health::NotAvailable(remaining) => WaitCause::PodNotAvailable { remaining },
        Health::Terminating => WaitCause::PodTerminating {
            node: pod.node.as_deref().map(str::to_owned),
            finalizers: Vec::new(),
        },
        Health::NotReady if let Some(state) = state_in_the_way(pod) => WaitCause::LifecycleState { state },
        Health::Ended | Health::NotReady | Health::Available => match &pod.trouble {
            Some(trouble) if let Some(barrier) = held_at_barrier(pod, trouble) => barrier,
            Some(trouble) if !trouble.container.is_empty() => WaitCause::ContainerCannotStart {
                container: trouble.container.clone(),
                reason: trouble.reason.clone(),
                message: trouble.message.clone(),
            },
            Some(trouble) => WaitCause::PodNotReady {
                reason: trouble.reason.clone(),
                message: trouble.message.clone(),
            },
            None if !pod.is_created() => WaitCause::PodStarting,
            None => WaitCause::PodNotReady {
                reason: String::new(),
                message: String::new(),
            },
        },
    }
}

/// What keeps a pod from being ready, for whoever asks about that pod: a pass in order waits for the first that is down, and looks at no other.
/// `None` of one that is ready, that goes, or that has ended.
pub fn wait_of_pod(pod: &PodRecord) -> Option<Wait> {
    if pod.is_terminal() || pod.is_terminating() || pod.is_running_and_ready() {
        return None;
    }
    Some(Wait {
        subject: pod.name().to_owned(),
        cause: cause(pod, Health::NotReady),
        since: Some(since(pod, Health::NotReady)),
    })
}

/// The state that keeps a pod from counting although it is ready (STS-1.5): neither its kubelet nor its logs say anything of it.
fn state_in_the_way(pod: &PodRecord) -> Option<String> {
    let state = pod.label(names::LIFECYCLE_STATE_LABEL)?;
    let is_in_the_way = pod.is_running_and_ready() && !State::of(pod).is_normal();
    is_in_the_way.then(|| state.to_owned())
}

/// Since when a pod has been as it is.
pub(crate) fn since(pod: &PodRecord, health: Health) -> Timestamp {
    match health {
        Health::Terminating => pod.meta.deleted.unwrap_or(pod.meta.created),
        _ => pod.ready.since.unwrap_or(pod.meta.created).max(pod.meta.created),
    }
}

/// What a pod's labels say to its set. Pods of one revision share their labels, so this is worked out once for many.
// Four independent facts, not a state.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LabelFacts {
    /// Made from the update revision, or as good as (special pods).
    pub(crate) is_updated: bool,
    /// Carries the name of the current revision.
    pub(crate) is_current: bool,
    /// Somebody asked for it to be recreated.
    pub(crate) is_specified: bool,
    /// Its lifecycle lets it count as healthy (Advanced sets only).
    pub(crate) lifecycle_allows: bool,
}

/// Whether a pod in the course of an update in place may count as healthy: not in the middle of one that disrupts it. That of resources
/// alone does not, whatever its lifecycle label says meanwhile, also when it is over (STS-8.18). Another that is over does not either,
/// although its label does not say so yet, if nothing but the label is to change: where a hook follows, the pod leaves service again at once
/// (STS-4.8).
pub(crate) fn allows_health(
    hooks: &Lifecycle,
    progress: Option<&Progress>,
    detail: &PodDetail,
    pod: &PodRecord,
    labels: LabelFacts,
) -> bool {
    let is_updating = State::of(pod) == State::Updating;
    let is_as_good_as_normal = is_updating && lifecycle::after_update(hooks, pod) == State::Normal;
    match progress {
        None if complete::changed_resources_only(detail) => labels.lifecycle_allows || is_updating,
        None => labels.lifecycle_allows || is_as_good_as_normal,
        Some(p) if p.is_gentle(detail) => labels.lifecycle_allows || is_updating,
        Some(p) => labels.lifecycle_allows && !p.disrupts(detail),
    }
}
