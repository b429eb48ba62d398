//! What a pod is to its set in this pass: its health, and how its revision compares.

use crate::launch::held_at_barrier;
use flotilla_api::names;
use flotilla_model::{Labels, PodRecord, RevisionRecord, Selector, SetKind, Timestamp, WaitCause};
use std::sync::Arc;
use std::time::Duration;

/// Health of a pod, worst first (rule 1.5). One value a pod, so that nobody charges it twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
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
    pub(super) fn of(pod: &PodRecord, lifecycle_allows: bool, min_ready: Duration, now: Timestamp) -> Self {
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

    pub(super) fn is_available(self) -> bool {
        self == Health::Available
    }
}

/// Whether neither an update in place nor a hook or condition of it can ask anything of a pod. Asked of every pod in every pass.
pub(super) fn is_quiet(pod: &PodRecord, labels: LabelFacts) -> bool {
    let Some(detail) = &pod.detail else { return true };
    let holds_nothing = match &detail.kruise_ready {
        Some(condition) => condition.is_true && condition.message.is_empty(),
        None => !detail.spec.has_gate(names::KRUISE_POD_READY),
    };
    labels.lifecycle_allows && holds_nothing && crate::shared::inplace::complete::is_plainly_done(detail)
}

/// Why a pod that is not available is waited for.
pub(super) fn cause(pod: &PodRecord, health: Health) -> WaitCause {
    match health {
        Health::NotAvailable(remaining) => WaitCause::PodNotAvailable { remaining },
        Health::Terminating => WaitCause::PodTerminating {
            node: pod.node.as_deref().map(str::to_owned),
        },
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

/// Since when a pod has been as it is.
pub(super) fn since(pod: &PodRecord, health: Health) -> Timestamp {
    match health {
        Health::Terminating => pod.meta.deleted.unwrap_or(pod.meta.created),
        _ => pod.ready.since.unwrap_or(pod.meta.created).max(pod.meta.created),
    }
}

/// What a pod's labels say to its set. Pods of one revision share their labels, so this is worked out once for many.
// Four independent facts, not a state.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LabelFacts {
    /// Made from the update revision, or as good as (special pods).
    pub(super) is_updated: bool,
    /// Carries the name of the current revision.
    pub(super) is_current: bool,
    /// Somebody asked for it to be recreated.
    pub(super) is_specified: bool,
    /// Its lifecycle lets it count as healthy (Advanced sets only).
    pub(super) lifecycle_allows: bool,
}

/// Answers [`LabelFacts`] for pods of one set.
pub(super) struct LabelReader<'a> {
    pub(super) kind: SetKind,
    pub(super) update: Option<&'a RevisionRecord>,
    pub(super) current: &'a str,
    pub(super) special: &'a [Selector],
    pub(super) revisions: &'a [Arc<RevisionRecord>],
    pub(super) last: Option<(Labels, LabelFacts)>,
}

impl LabelReader<'_> {
    pub(super) fn read(&mut self, pod: &PodRecord) -> LabelFacts {
        if let Some((labels, facts)) = &self.last
            && labels.is_same(&pod.meta.labels)
        {
            return *facts;
        }
        let revision = pod.revision().unwrap_or_default();
        let advanced = self.kind == SetKind::Advanced;
        let facts = LabelFacts {
            is_updated: self
                .update
                .is_some_and(|update| update.name() == revision || self.is_special_and_same(pod, update)),
            is_current: !revision.is_empty() && revision == self.current,
            is_specified: advanced && pod.label(names::SPECIFIED_DELETE_LABEL).is_some(),
            lifecycle_allows: !advanced
                || pod
                    .label(names::LIFECYCLE_STATE_LABEL)
                    .is_none_or(|state| state == "Normal"),
        };
        // The answer for special pods rests on labels alone unless a selector names the pod; such a set is too small to care.
        if self.special.is_empty() {
            self.last = Some((pod.meta.labels.clone(), facts));
        }
        facts
    }

    /// A special pod whose revision differs from the update revision in container resources only counts as updated.
    fn is_special_and_same(&self, pod: &PodRecord, update: &RevisionRecord) -> bool {
        self.special
            .iter()
            .any(|selector| selector.matches(|key| pod.label(key)))
            && self
                .revisions
                .iter()
                .find(|r| Some(r.name()) == pod.revision())
                .is_some_and(|r| r.digest_without_resources == update.digest_without_resources)
    }
}
