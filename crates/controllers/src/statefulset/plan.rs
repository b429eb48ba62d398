//! The plan that the steps of a pass fill in: slots, commands by stage, waits.

use super::course::{Held, Trouble};
use super::pod::{Health, LabelFacts, LabelReader, cause, is_quiet, since};
use super::view::View;
use crate::shared::identity::pod_name;
use crate::shared::inplace::UpdateSpec;
use crate::shared::inplace::complete;
use crate::shared::inplace::progress::Progress;
use crate::shared::lifecycle::{self, State};
use crate::shared::readiness::PRE_DELETE;
use crate::shared::revision::Revisions;
use flotilla_model::decision::{Command, Scope, ScopedCommand, Stage};
use flotilla_model::records::PodDetail;
use flotilla_model::set::Lifecycle;
use flotilla_model::{
    Decision, Failure, Hints, ObjectKey, PodRecord, Report, Resource, RevisionRecord, Timestamp, Wait, WaitCause,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A pod with what is known of it in this pass.
// Independent facts, not a state.
#[allow(clippy::struct_excessive_bools)]
pub(super) struct Occupant {
    pub(super) pod: Arc<PodRecord>,
    pub(super) health: Health,
    pub(super) labels: LabelFacts,
    /// Its deletion is part of this plan.
    pub(super) doomed: bool,
    /// Its volumes do not match the claim templates: it has to be made again (rule 8.6).
    pub(super) storage_differs: bool,
    /// An update in place, a hook or a condition of it may ask for something.
    pub(super) is_restless: bool,
    /// Where its update in place stands, if it is in one.
    pub(super) progress: Option<Box<Progress>>,
    /// Why its update in place is given up: it has to be made again.
    pub(super) abandoned: Option<String>,
    /// Its node cannot give it what it should get, and the policy does not let it be made again.
    pub(super) is_stuck: bool,
    /// This pass has decided about it.
    pub(super) is_dealt_with: bool,
}

impl Occupant {
    /// Whether it has to be replaced to come to the update revision.
    pub(super) fn is_old(&self) -> bool {
        !self.labels.is_updated || self.storage_differs || self.abandoned.is_some()
    }

    /// Whether it waits for its hook to be updated in place: in unordered mode it counts as updated already (3.6, 8.12).
    pub(super) fn is_prepared(&self) -> bool {
        self.is_restless && State::of(&self.pod) == State::PreparingUpdate
    }

    /// Whether it is in the middle of an update in place, whether that disrupts it or not.
    pub(super) fn is_in_flight(&self) -> bool {
        self.progress.as_ref().is_some_and(|p| p.is_in_flight())
    }

    /// Whether the update may still delete it: it has neither ended nor begun to go.
    pub(super) fn is_replaceable(&self) -> bool {
        !self.doomed && !matches!(self.health, Health::Ended | Health::Terminating)
    }
}

/// A wanted ordinal and who has it.
pub(super) struct Slot {
    pub(super) ordinal: i64,
    pub(super) occupant: Option<Occupant>,
}

impl Slot {
    pub(super) fn is_available(&self) -> bool {
        self.occupant
            .as_ref()
            .is_some_and(|o| o.health.is_available() && !o.doomed)
    }
}

/// Commands of a pass, by what they are for. Executed in this order.
#[derive(Default)]
pub(super) struct Stages {
    /// Adoption, release, revisions.
    pub(super) claim: Vec<ScopedCommand>,
    /// Claims of new pods, and owner references of existing claims.
    pub(super) claims: Vec<ScopedCommand>,
    /// New pods.
    pub(super) create: Vec<ScopedCommand>,
    /// Labels of pods.
    pub(super) repair: Vec<ScopedCommand>,
    /// Conditions that take pods out of service; in the end also those of `back` that wait for nothing.
    pub(super) unready: Vec<ScopedCommand>,
    /// Pods that are changed, and states of their lifecycle.
    pub(super) in_place: Vec<ScopedCommand>,
    /// Resources of containers.
    pub(super) resize: Vec<ScopedCommand>,
    /// Conditions that put pods back into service.
    pub(super) back: Vec<ScopedCommand>,
    /// Pods that end, are not wanted, or are old.
    pub(super) delete: Vec<ScopedCommand>,
    /// Unused revisions.
    pub(super) history: Vec<ScopedCommand>,
}

impl Stages {
    /// What goes back into service waits for no other pod: it goes with what leaves service, if anything does, unless its own pod is
    /// changed before. In a rolling update every pass would otherwise hold it up for two round trips.
    fn hurry_back(&mut self) {
        if self.unready.is_empty() {
            return;
        }
        let changed = [&self.unready, &self.resize, &self.in_place].into_iter().flatten();
        let changed: BTreeSet<Scope> = changed.map(|c| c.scope.clone()).collect();
        let back = std::mem::take(&mut self.back);
        let (after, now): (Vec<_>, Vec<_>) = back.into_iter().partition(|c| changed.contains(&c.scope));
        self.unready.splice(0..0, now);
        self.back = after;
    }
}

/// Everything that the steps of one pass read and write.
pub(super) struct Plan<'v> {
    pub(super) view: &'v View<'v>,
    pub(super) revisions: Revisions,
    /// The update revision, which exists when there is a plan.
    pub(super) update: Arc<RevisionRecord>,
    /// The current revision.
    pub(super) current: Arc<RevisionRecord>,
    /// Wanted ordinals, ascending.
    pub(super) slots: Vec<Slot>,
    /// Pods that are not wanted, by ordinal, ascending.
    pub(super) condemned: Vec<(i64, Occupant)>,
    pub(super) stages: Stages,
    pub(super) waits: Vec<Wait>,
    pub(super) wake_after: Option<Duration>,
    pub(super) hints: Hints,
    /// Scopes in which something is wanted and not tried, because it failed a moment ago.
    pub(super) held_back: BTreeSet<Scope>,
    pub(super) events: Vec<flotilla_model::EventNote>,
    /// What conditions tell about updates in place.
    pub(super) troubles: Vec<Trouble>,
    /// What old revisions differ in from the update revision, as far as it was asked.
    pub(super) differences: BTreeMap<String, Result<UpdateSpec, String>>,
}

impl<'v> Plan<'v> {
    pub(super) fn new(view: &'v View<'v>, revisions: Revisions, update: Arc<RevisionRecord>) -> Self {
        let current = revisions.current.clone().unwrap_or_else(|| update.clone());
        let mut plan = Plan {
            view,
            current,
            update,
            revisions,
            slots: Vec::new(),
            condemned: Vec::new(),
            stages: Stages::default(),
            waits: Vec::new(),
            wake_after: None,
            hints: hints_of(view),
            held_back: BTreeSet::new(),
            events: Vec::new(),
            troubles: Vec::new(),
            differences: BTreeMap::new(),
        };
        plan.seat();
        plan
    }

    /// Puts each member into its slot, or among the condemned.
    fn seat(&mut self) {
        let view = self.view;
        let (update, history) = (self.update.clone(), self.revisions.history.clone());
        let current = self.current.clone();
        let mut reader = LabelReader {
            kind: view.set.kind,
            update: Some(&update),
            current: current.name(),
            special: &view.set.spec.special_pods,
            revisions: &history,
            last: None,
        };
        let min_ready = view.set.spec.min_ready;
        let hooks = &view.set.spec.lifecycle;
        let is_advanced = self.is_advanced();
        let mut members = view.members.iter().peekable();
        let mut occupant = |pod: &Arc<PodRecord>| {
            let labels = reader.read(pod);
            let is_restless = is_advanced && !is_quiet(pod, labels);
            let detail = pod.detail.as_ref().filter(|_| is_restless);
            let progress = detail.and_then(|detail| Progress::of(pod, detail)).map(Box::new);
            let allows = match detail {
                Some(detail) => allows_health(hooks, progress.as_deref(), detail, pod, labels),
                None => labels.lifecycle_allows,
            };
            let health = Health::of(pod, allows, min_ready, view.now);
            Occupant {
                is_restless,
                progress,
                abandoned: None,
                is_stuck: false,
                is_dealt_with: false,
                pod: pod.clone(),
                health,
                labels,
                doomed: false,
                storage_differs: false,
            }
        };
        for ordinal in view.ordinals.iter() {
            while let Some(member) = members.next_if(|m| m.ordinal < ordinal) {
                self.condemned.push((member.ordinal, occupant(&member.pod)));
            }
            let found = members.next_if(|m| m.ordinal == ordinal).map(|m| occupant(&m.pod));
            self.slots.push(Slot {
                ordinal,
                occupant: found,
            });
        }
        self.condemned.extend(members.map(|m| (m.ordinal, occupant(&m.pod))));
    }

    /// Pods that may be in an update in place, with whether they may count as available.
    pub(super) fn in_flight(&self) -> BTreeMap<&str, bool> {
        let wanted = self.slots.iter().filter_map(|s| s.occupant.as_ref());
        let all = wanted
            .chain(self.condemned.iter().map(|(_, o)| o))
            .filter(|o| o.is_restless);
        let hooks = &self.view.set.spec.lifecycle;
        let allows = |o: &Occupant| match &o.pod.detail {
            Some(detail) => allows_health(hooks, o.progress.as_deref(), detail, &o.pod, o.labels),
            None => false,
        };
        all.map(|o| (o.pod.name(), allows(o))).collect()
    }

    pub(super) fn name(&self, ordinal: i64) -> String {
        pod_name(self.view.set.name(), ordinal)
    }

    pub(super) fn key(&self, name: &str) -> ObjectKey {
        self.view.set.meta.key.sibling(name)
    }

    pub(super) fn wait(&mut self, subject: String, cause: WaitCause, since: Option<Timestamp>) {
        self.waits.push(Wait { subject, cause, since });
    }

    /// Notes since when each wait that has no time of its own has been there; the first few, as memory is bounded.
    pub(super) fn date_waits(&mut self) {
        const DATED: usize = 64;
        let known = std::mem::take(&mut self.hints.waiting);
        let undated = self
            .waits
            .iter()
            .filter(|w| w.since.is_none() && !w.cause.is_intended());
        for wait in undated.take(DATED) {
            let key = wait.key();
            let since = known.get(&key).copied().unwrap_or(self.view.now);
            self.hints.waiting.insert(key, since);
        }
    }

    /// Waits for a pod to become available, and wakes up when it does so by the clock.
    pub(super) fn wait_for(&mut self, pod: &PodRecord, health: Health) {
        if let Health::NotAvailable(left) = health {
            self.wake_within(left);
        }
        self.wait(pod.name().to_owned(), cause(pod, health), Some(since(pod, health)));
    }

    pub(super) fn wake_within(&mut self, delay: Duration) {
        self.wake_after = Some(self.wake_after.map_or(delay, |known| known.min(delay)));
    }

    /// Whether a slot's last command failed a moment ago. Then it is said, and not repeated yet.
    pub(super) fn is_backing_off(&mut self, ordinal: i64, subject: &str) -> bool {
        let scope = Scope::Slot(ordinal);
        let Some(Failure {
            reason,
            message,
            since,
            retry_at,
            ..
        }) = self.hints.failures.get(&scope).cloned()
        else {
            return false;
        };
        if retry_at <= self.view.now || reason == Failure::NODE_TOO_SMALL && self.is_given_up(ordinal) {
            return false;
        }
        self.held_back.insert(scope);
        self.wake_within(retry_at.since(self.view.now));
        let cause = WaitCause::Refused {
            reason,
            message,
            retry_at,
        };
        let is_said = self
            .waits
            .last()
            .is_some_and(|w| w.subject == subject && w.cause == cause);
        if !is_said {
            self.wait(subject.to_owned(), cause, Some(since));
        }
        true
    }

    /// Whether the pod of a slot is to be made again instead of being changed: what was refused is not what is tried.
    fn is_given_up(&self, ordinal: i64) -> bool {
        let occupant = self
            .slots
            .iter()
            .find(|s| s.ordinal == ordinal)
            .and_then(|s| s.occupant.as_ref());
        occupant.is_some_and(|o| o.abandoned.is_some())
    }

    /// Deletes a pod of ours, once no hook holds it (rule 3.8). Until then it is out of service as far as the hook asks for it.
    pub(super) fn take_away(&mut self, ordinal: i64, pod: &PodRecord, report: Report) {
        let hook = self.view.set.spec.lifecycle.pre_delete.clone();
        let markers = lifecycle::held_by(hook.as_ref(), pod);
        if markers.is_empty() || pod.detail.is_none() {
            self.delete(ordinal, pod, report);
            return;
        }
        if State::of(pod) == State::PreparingDelete {
            let since = pod.detail.as_ref().and_then(|d| super::course::since_state(d));
            let cause = WaitCause::HookHolds {
                hook: "preDelete",
                markers,
            };
            self.wait(pod.name().to_owned(), cause, since);
        }
        let held = Held {
            pod,
            state: State::PreparingDelete,
            key: PRE_DELETE,
            marks: hook.is_some_and(|h| h.mark_not_ready),
            metadata: serde_json::json!({}),
        };
        self.hold(ordinal, held);
    }

    /// Deletes a pod of ours: only this incarnation, only as it was seen (rule 1.6).
    fn delete(&mut self, ordinal: i64, pod: &PodRecord, report: Report) {
        let command = Command::Delete {
            resource: Resource::Pods,
            key: pod.meta.key.clone(),
            uid: pod.meta.uid.clone(),
            resource_version: Some(pod.meta.resource_version),
            report,
        };
        self.stages.delete.push(ScopedCommand {
            scope: Scope::Slot(ordinal),
            command,
        });
    }

    /// Deletes the pod of a slot. `false` if the slot is backing off from a refusal.
    pub(super) fn delete_slot(&mut self, index: usize, report: Report) -> bool {
        let ordinal = self.slots[index].ordinal;
        let name = self.name(ordinal);
        if self.is_backing_off(ordinal, &name) {
            return false;
        }
        let Some(pod) = self.slots[index].occupant.as_mut().map(|occupant| {
            occupant.doomed = true;
            occupant.pod.clone()
        }) else {
            return false;
        };
        self.take_away(ordinal, &pod, report);
        true
    }

    /// A failure is over when nothing is wanted any more where it happened. It need not have been our doing: the write whose answer was
    /// lost took effect after all, somebody else deleted the pod, or it was adopted.
    pub(super) fn forget_failures(&mut self) {
        let stages = &self.stages;
        let all = [
            &stages.claim,
            &stages.claims,
            &stages.create,
            &stages.repair,
            &stages.unready,
            &stages.in_place,
            &stages.resize,
            &stages.back,
            &stages.delete,
            &stages.history,
        ];
        let wanted: BTreeSet<&Scope> = all
            .into_iter()
            .flatten()
            .map(|c| &c.scope)
            .chain(&self.held_back)
            .collect();
        self.hints.failures.retain(|scope, _| wanted.contains(scope));
    }

    /// The stages, as a decision. Under OrderedReady a failure ends the pass.
    pub(super) fn into_decision(mut self, status: flotilla_model::StatusWrite) -> Decision {
        if let Some(delay) = super::status::next_report(self.view, &self.hints, &self.waits) {
            self.wake_within(delay);
        }
        let all_or_stop = self.view.set.spec.is_monotonic();
        self.stages.hurry_back();
        let stage = |name, commands: Vec<ScopedCommand>, slow_start| Stage {
            name,
            commands,
            all_or_stop,
            slow_start,
        };
        let stages = [
            stage("claim", self.stages.claim, false),
            stage("claims", self.stages.claims, true),
            stage("create", self.stages.create, true),
            stage("repair", self.stages.repair, true),
            stage("unready", self.stages.unready, true),
            stage("in-place", self.stages.in_place, true),
            stage("resize", self.stages.resize, true),
            stage("ready", self.stages.back, true),
            stage("delete", self.stages.delete, true),
            stage("history", self.stages.history, false),
        ];
        Decision {
            stages: stages.into_iter().filter(|s| !s.commands.is_empty()).collect(),
            status: Some(status),
            events: self.events,
            waits: self.waits,
            wake_after: self.wake_after,
            hints: (self.hints != *self.view.hints).then_some(self.hints),
        }
    }
}

/// Whether a pod in the course of an update in place may count as healthy: not in the middle of one that disrupts it. That of resources
/// alone does not, whatever its lifecycle label says meanwhile, also when it is over (8.18). Another that is over does not either, although its label does not say
/// so yet, if nothing but the label is to change: where a hook follows, the pod leaves service again at once (4.8).
fn allows_health(
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

/// The hints to work with: an edit of the set clears what failed, as it may have removed the cause.
fn hints_of(view: &View<'_>) -> Hints {
    let mut hints = view.hints.clone();
    if hints.generation != view.set.generation {
        hints.generation = view.set.generation;
        hints.failures.clear();
    }
    hints
}
