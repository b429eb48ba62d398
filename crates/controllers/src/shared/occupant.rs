//! A pod with what is known of it in a pass, and what has been decided about it.

use crate::shared::health::{Health, LabelFacts, allows_health, is_quiet};
use crate::shared::inplace::progress::Progress;
use crate::shared::lifecycle::State;
use crate::shared::moment::Moment;
use flotilla_model::{Command, PodRecord};
use std::sync::Arc;

/// Why an update in place is given up: the pod has to be made again.
#[derive(Clone)]
pub(crate) struct Abandoned {
    /// In words.
    pub(crate) reason: String,
    /// Whatever revision the pod goes to.
    pub(crate) is_for_good: bool,
}

/// A pod with what is known of it in this pass.
// Independent facts, not a state.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Occupant {
    pub(crate) pod: Arc<PodRecord>,
    pub(crate) health: Health,
    pub(crate) labels: LabelFacts,
    /// Its deletion is part of this plan.
    pub(crate) doomed: bool,
    /// Its volumes do not match the claim templates: it has to be made again (STS-8.6).
    pub(crate) storage_differs: bool,
    /// An update in place, a hook or a condition of it may ask for something.
    pub(crate) is_restless: bool,
    /// Where its update in place stands, if it is in one.
    pub(crate) progress: Option<Box<Progress>>,
    /// Why its update in place is given up.
    pub(crate) abandoned: Option<Abandoned>,
    /// Its node cannot give it what it should get, or nobody knows what that is, and the policy does not let it be made again.
    pub(crate) is_stuck: bool,
    /// This pass has decided about it.
    pub(crate) is_dealt_with: bool,
    /// Its update has its turn, and waits for the budget.
    pub(crate) awaits_budget: bool,
}

impl Occupant {
    /// A pod whose labels say `labels`. Only kinds that update in place ask for what is under way (`looks_closer`).
    pub(crate) fn of(pod: &Arc<PodRecord>, labels: LabelFacts, looks_closer: bool, moment: Moment<'_>) -> Occupant {
        let is_restless = looks_closer && !is_quiet(pod, labels);
        let detail = pod.detail.as_ref().filter(|_| is_restless);
        let progress = detail.and_then(|detail| Progress::of(pod, detail, moment.now));
        let progress = progress.map(Box::new);
        let hooks = &moment.set.spec.lifecycle;
        let allows = match detail {
            Some(detail) => allows_health(hooks, progress.as_deref(), detail, pod, labels),
            None => labels.lifecycle_allows,
        };
        let health = Health::of(pod, allows, moment.set.spec.min_ready, moment.now);
        Occupant {
            is_restless,
            progress,
            abandoned: None,
            is_stuck: false,
            is_dealt_with: false,
            awaits_budget: false,
            pod: pod.clone(),
            health,
            labels,
            doomed: false,
            storage_differs: false,
        }
    }

    /// Whether it has to be replaced to come to the update revision.
    pub(crate) fn is_old(&self) -> bool {
        !self.labels.is_updated || self.storage_differs || self.abandoned.is_some()
    }

    /// Whether it waits for its hook to be updated in place: in unordered mode it counts as updated already (STS-3.6, STS-8.12).
    pub(crate) fn is_prepared(&self) -> bool {
        self.is_restless && State::of(&self.pod) == State::PreparingUpdate
    }

    /// Whether it is in the middle of an update in place, whether that disrupts it or not.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.progress.as_ref().is_some_and(|p| p.is_in_flight())
    }

    /// Whether it is ready and nothing keeps it out of service, however long that lasts: also before it is available, and where its update
    /// in place has begun and does not take it out yet.
    pub(crate) fn serves(&self) -> bool {
        let gate = self
            .pod
            .detail
            .as_ref()
            .and_then(|detail| detail.in_place_ready.as_ref());
        let is_let_in = gate.is_none_or(|gate| gate.is_true) && State::of(&self.pod).is_normal();
        let is_there = !self.doomed && !self.pod.is_terminating() && self.pod.is_running_and_ready();
        is_there && (self.health.is_ready() || is_let_in)
    }

    /// Whether clients reach it as far as nodes and gates go, whatever its labels and notes say of it.
    pub(crate) fn is_up(&self) -> bool {
        let detail = self.pod.detail.as_ref();
        let gate = detail.and_then(|detail| detail.in_place_ready.as_ref());
        let is_left = !self.doomed && !self.pod.is_terminating();
        is_left && self.pod.is_running_and_ready() && gate.is_none_or(|gate| gate.is_true)
    }

    /// Whether it is there and nothing takes it away.
    pub(crate) fn stays(&self) -> bool {
        self.is_replaceable() && State::of(&self.pod) != State::PreparingDelete
    }

    /// Whether the update may still delete it: it has neither ended nor begun to go.
    pub(crate) fn is_replaceable(&self) -> bool {
        !self.doomed && !matches!(self.health, Health::Ended | Health::Terminating)
    }
}

/// A pod that is unavailable is taken without using the budget, which rests on what was seen: it may have come up since. So the first
/// write of the update holds for that version only.
pub(crate) fn of_what_was_seen(pod: &PodRecord, mut command: Command) -> Command {
    if let Command::Patch { resource_version, .. } = &mut command {
        *resource_version = Some(pod.meta.resource_version);
    }
    command
}
