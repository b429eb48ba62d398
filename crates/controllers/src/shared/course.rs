//! Step *course*: pods go on with what was begun on them (STS-3.5 step 3 e, STS-4.6 and STS-4.8): grace periods end, batches follow,
//! completed updates go back into service, hooks that were released let pods through. In every strategy, also while paused.
//!
//! It comes after the update, which may have other plans for a pod, and before anything is written.

mod nowhere;

use crate::shared::conditions;
use crate::shared::inplace::apply::{Target, Writes};
use crate::shared::inplace::complete::Missing;
use crate::shared::inplace::grace::Grace;
use crate::shared::inplace::progress::{Progress, Stage};
use crate::shared::inplace::state::State as InPlaceState;
use crate::shared::inplace::{UpdateSpec, annotation, overlay};
use crate::shared::lifecycle::{self, State, since_state};
use crate::shared::occupant::{Abandoned, Occupant, of_what_was_seen};
use crate::shared::pass::Pass;
use crate::shared::readiness::{self, Back, PRE_DELETE, PRE_UPDATE};
use crate::shared::renewal::lacks_update_gate;
use crate::shared::revision::names_it;
use flotilla_api::names;
use flotilla_model::decision::{Command, Scope, ScopedCommand};
use flotilla_model::records::PodDetail;
use flotilla_model::set::Area;
use flotilla_model::{PodRecord, Resource, SetKind, Timestamp, WaitCause};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Why resources that were asked for are not there.
fn untaken(kind: SetKind) -> String {
    let condition = conditions::failed_update(kind);
    format!("the API server has not taken them; condition {condition} says why, if it refuses them")
}

/// Something about an update in place that a condition tells.
pub(crate) struct Trouble {
    /// Condition type.
    pub(crate) condition: &'static str,
    /// Its reason.
    pub(crate) reason: &'static str,
    /// Pod and sentence.
    pub(crate) message: String,
}

impl Pass<'_> {
    /// Goes on with a pod.
    pub(crate) fn go_on(&mut self, scope: &Scope, course: Course) {
        if self.is_backing_off(scope, course.pod.name()) {
            return;
        }
        if course.is_in_flight() && self.peek_state(&course) != State::of(&course.pod) {
            self.transition(scope, &course);
        } else if let Some(given_up) = &course.abandoned
            && self.is_in_vain(given_up, course.is_updated)
        {
            // Further steps would be for nothing, or be refused again.
            let reason = given_up.reason.clone();
            self.wait(course.name(), WaitCause::InPlaceAbandoned { reason }, None);
        } else {
            self.take_next_step(scope, &course);
        }
        self.back_into_service(scope, &course);
    }

    /// Names of pods that this pass may take out of service.
    pub(crate) fn taken_down(&self) -> BTreeSet<String> {
        let stages = [&self.stages.unready, &self.stages.in_place, &self.stages.delete];
        let commands = stages.into_iter().flatten().map(|c| &c.command);
        let of_pods = commands.filter(|command| command.resource() == Resource::Pods);
        of_pods.map(|command| command.key().name.to_string()).collect()
    }

    fn take_next_step(&mut self, scope: &Scope, course: &Course) {
        let stage = course.progress.as_ref().map_or(Stage::Done, |p| p.stage.clone());
        let state = course.progress.as_ref().and_then(|p| p.state.clone());
        match (stage, state) {
            // Whatever put it back, the period is one out of service.
            (Stage::Grace(grace), state @ Some(_)) if course.serves() => {
                self.restart_grace(scope, course, &grace, state);
            }
            // A clock that was ahead has noted it: when it began is not known either (STS-1.5). It begins now, by a note of ours, and so
            // lasts no longer than asked for from our first look on, whoever goes on with it then.
            (Stage::Grace(grace), state @ Some(_))
                if state.as_ref().is_some_and(|s| s.updated_at > self.moment.now) =>
            {
                self.restart_grace(scope, course, &grace, state);
            }
            (Stage::Grace(grace), Some(state)) => self.end_grace(scope, course, &grace, state),
            // When it began is not known, so it begins now.
            (Stage::Grace(grace), None) => self.restart_grace(scope, course, &grace, None),
            (Stage::StaleGrace, _) => {
                let command = course.target(self).without_grace();
                self.patch_pod(scope, command);
            }
            (Stage::Lost(_), _) => self.wait(course.name(), WaitCause::InPlaceUnreadable, None),
            (Stage::Missing(missing), state) => {
                self.say_what_is_missing(course, &missing, state.as_ref());
                if let Some(text) = &course.note {
                    let command = course.target(self).noted_anew(text, json!({}));
                    self.patch_pod(scope, command);
                }
            }
            (Stage::NextBatch(unready), Some(state)) if unready.is_empty() => {
                self.begin_next_batch(scope, course, state);
            }
            (Stage::NextBatch(containers), _) => {
                self.wait(course.name(), WaitCause::InPlaceBatch { containers }, None);
            }
            (Stage::Void(error), _) => {
                let text = format!(
                    "{}: its record of an update in place is not used: {error}",
                    course.pod.name()
                );
                self.event_once(true, "FailedUpdatePodInPlace", text);
                self.transition(scope, course);
            }
            (Stage::Done, _) => self.transition(scope, course),
        }
    }

    /// The containers that come next, since all before them are ready.
    fn begin_next_batch(&mut self, scope: &Scope, course: &Course, state: InPlaceState) {
        if state.awaits_resize() {
            let message = untaken(self.moment.set.kind);
            let since = Some(state.last_change());
            self.wait(course.name(), WaitCause::InPlaceResize { message }, since);
        }
        let mut target = course.target(self);
        let keep_ready = &self.moment.set.spec.switches.keep_ready;
        let step = course.next_step(self, &state);
        if step.is_empty()
            && let Some(container) = state.restarts_first(&course.detail)
        {
            let container = container.clone();
            let since = Some(state.last_change());
            self.wait(course.name(), course.awaits_restart(container), since);
        }
        if !state.kept_ready && step.leaves_service(&course.detail, keep_ready) {
            target.is_out_of_service = true;
            let (revision, changes) = (state.revision.clone(), state.next.clone());
            let writes = target.next_batch(state, &changes, json!({}));
            self.leave_again(scope, course, &revision);
            self.write(scope, writes);
        } else {
            let changes = state.next.clone();
            let writes = target.next_batch(state, &changes, json!({}));
            self.write(scope, writes);
        }
    }

    fn end_grace(&mut self, scope: &Scope, course: &Course, grace: &Grace, state: InPlaceState) {
        // When it began is written in whole seconds, cut off: it may have been up to one later.
        let period = grace.period + Duration::from_secs(1);
        let lasted = self.moment.now.since(state.updated_at);
        if lasted < period {
            let remaining = period.saturating_sub(lasted);
            self.wake_within(remaining);
            let since = Some(state.updated_at);
            self.wait(course.name(), WaitCause::InPlaceGrace { remaining }, since);
            return;
        }
        let mut spec = grace.spec.clone();
        spec.leave_out_what_is_there(&course.detail);
        // An update before this one may have asked for them, and the node has yet to give them: nothing is asked for twice.
        spec.changes.leave_out_resources_that_are_there(&course.detail);
        let writes = course.target(self).begin(state, &spec, json!({}));
        self.write(scope, writes);
    }

    fn restart_grace(&mut self, scope: &Scope, course: &Course, grace: &Grace, state: Option<InPlaceState>) {
        let state = InPlaceState {
            revision: grace.revision.clone(),
            updated_at: self.moment.now,
            // Also what an update that this one overtook has changed.
            ..state
                .filter(|s| names_it(self.moment.set.name(), &s.revision, &grace.revision))
                .unwrap_or_default()
        };
        self.wake_within(grace.period);
        let mut target = course.target(self);
        target.is_out_of_service |= course.serves();
        let writes = target.begin_later(state, grace, json!({}));
        self.leave_again(scope, course, &grace.revision);
        self.write(scope, writes);
    }

    /// Takes a pod out of service that is in the middle of an update and serves, as it does after a put-back that came late.
    fn leave_again(&mut self, scope: &Scope, course: &Course, revision: &str) {
        if !course.serves() {
            return;
        }
        let leaving = readiness::Leaving::Update(revision);
        if let Some(command) = readiness::take_out(&course.pod, &course.detail, leaving, self.moment.now) {
            let scope = scope.clone();
            self.stages.unready.push(ScopedCommand { scope, command });
        }
    }

    fn say_what_is_missing(&mut self, course: &Course, missing: &Missing, state: Option<&InPlaceState>) {
        let mut since = state.map(InPlaceState::last_change);
        let cause = match missing {
            // Said, with what follows from it, before the update.
            Missing::Infeasible(_) | Missing::OtherRevision => return,
            Missing::Restart(container) => {
                let left = state.map_or(Duration::ZERO, |state| state.clocks_may_differ_for(self.moment.now));
                if !left.is_zero() {
                    self.wake_within(left);
                }
                course.awaits_restart(container.clone())
            }
            Missing::Environment(container) => WaitCause::InPlaceEnvironment {
                container: container.clone(),
            },
            Missing::Resize(message, put_off) => {
                since = put_off.or(since);
                WaitCause::InPlaceResize {
                    message: message.clone(),
                }
            }
        };
        self.wait(course.name(), cause, since);
    }

    /// Whether what has been under way since then has been so for too long, counted from when we began to watch at the earliest. What was too
    /// late before that may have been told, and nobody has seen it end.
    fn is_late(&mut self, since: Timestamp, patience: Duration) -> bool {
        let lasted = self.moment.now.since(since.max(self.moment.observing_since));
        if lasted >= patience {
            return true;
        }
        self.may_be_stuck |= self.moment.now.since(since) >= patience;
        self.wake_within(patience.saturating_sub(lasted));
        false
    }

    /// Moves the lifecycle on (STS-4.8).
    fn transition(&mut self, scope: &Scope, course: &Course) {
        let next = self.next_state(course);
        let target = course.target(self);
        let metadata = next.map(|next| lifecycle::patch(next, &course.pod, self.moment.now));
        let command = match (&course.note, metadata) {
            (Some(text), metadata) => target.noted_anew(text, metadata.unwrap_or_else(|| json!({}))),
            (None, Some(metadata)) => target.relabel(&metadata),
            (None, None) => return,
        };
        self.patch_pod(scope, command);
    }

    /// The state that a pod with nothing under way, or one that is prepared for its deletion, should be in, if it is another.
    fn next_state(&mut self, course: &Course) -> Option<State> {
        let hooks = self.moment.set.spec.lifecycle.clone();
        let pod = &course.pod;
        let next = match State::of(pod) {
            State::Unset | State::Normal | State::Other => return None,
            // Without a hook, a pod of a CloneSet is in service as soon as it has a node (CS-19.2).
            State::PreparingNormal if self.is_unscheduled_clone(pod) => return None,
            State::PreparingNormal => {
                let next = lifecycle::back_to_normal(&hooks, pod);
                if next == State::PreparingNormal {
                    let markers = lifecycle::lacking(hooks.pre_normal.as_ref(), pod);
                    let cause = WaitCause::HookLacks {
                        hook: "preNormal",
                        markers,
                    };
                    self.wait(course.name(), cause, course.since());
                }
                next
            }
            State::PreparingUpdate if !course.is_updated && self.keeps_preparing(course) => {
                let cause = lifecycle::hold_of("inPlaceUpdate", hooks.in_place_update.as_ref(), pod);
                // Once the hook has released it, it waits for what the update waits for, which is said there.
                if matches!(&cause, WaitCause::HookHolds { markers, .. } if !markers.is_empty()) {
                    self.wait(course.name(), cause, course.since());
                }
                return None;
            }
            // Also where the update does not want it any more: rolled back, paused, or the partition keeps it. Who drained it has to say that it
            // serves.
            State::PreparingUpdate | State::Updating => lifecycle::after_update(&hooks, pod),
            State::Updated => {
                let next = lifecycle::after_update(&hooks, pod);
                if next == State::Updated {
                    let markers = lifecycle::lacking(hooks.in_place_update.as_ref(), pod);
                    let cause = WaitCause::HookLacks {
                        hook: "inPlaceUpdate",
                        markers,
                    };
                    self.wait(course.name(), cause, course.since());
                }
                next
            }
            // Where the set cannot be read, nobody knows whether it is wanted.
            State::PreparingDelete if self.moment.set.spec.is_stopped(Area::Update) => return None,
            State::PreparingDelete if !course.is_wanted || course.is_specified => return None,
            // It is wanted again, and goes on where it was: the update that it would have to end before may have been overtaken.
            State::PreparingDelete if course.is_in_flight() => State::Updating,
            State::PreparingDelete => lifecycle::let_go(&hooks, pod),
        };
        (next != State::of(pod)).then_some(next)
    }

    fn is_unscheduled_clone(&self, pod: &PodRecord) -> bool {
        let set = self.moment.set;
        set.kind == SetKind::Clone && set.spec.lifecycle.pre_normal.is_none() && pod.node.is_none()
    }

    /// Whether the update is at rest and may go on with an old pod that it prepared, or is about to. Not while pods come back to the old revision:
    /// these would wait for ever, and take the budget from those that come back (CS-13.5). Nor while it is paused: that may last
    ///
    fn keeps_preparing(&self, course: &Course) -> bool {
        let comes_back = self.target.meta.uid != self.update.meta.uid;
        let goes_on = self.update_rests || course.awaits_budget;
        goes_on && !comes_back || self.moment.set.spec.is_stopped(Area::Update)
    }

    /// Writes the conditions of a pod that may serve again, as far as nothing holds it.
    fn back_into_service(&mut self, scope: &Scope, course: &Course) {
        let is_over = !course.is_in_flight();
        let mut released: Vec<&'static str> = Vec::with_capacity(2);
        let next = self.peek_state(course);
        let keeps_update_key = matches!(next, State::PreparingUpdate | State::Updating) || !is_over;
        if !keeps_update_key {
            released.push(PRE_UPDATE);
        }
        if next != State::PreparingDelete {
            released.push(PRE_DELETE);
        }
        let written = course.note.as_deref().map(|text| (names::IN_PLACE_STATE, text));
        let noted = annotation(&course.detail, names::IN_PLACE_STATE, names::IN_PLACE_STATE_LEGACY);
        let examined = written.or(noted);
        let back = Back {
            updated: is_over,
            state: next,
            released: &released,
            examined,
        };
        if let Some(command) = readiness::put_back(&course.pod, &course.detail, back, self.moment.now) {
            let scope = scope.clone();
            self.stages.back.push(ScopedCommand { scope, command });
        }
    }

    /// The state after this pass, without saying anything twice.
    fn peek_state(&mut self, course: &Course) -> State {
        let state = State::of(&course.pod);
        if course.is_in_flight() && state != State::PreparingDelete {
            return state;
        }
        let said = self.waits.len();
        let next = self.next_state(course);
        self.waits.truncate(said);
        next.unwrap_or(state)
    }

    pub(crate) fn write(&mut self, scope: &Scope, writes: Writes) {
        if let Some(command) = writes.resize {
            let scope = scope.clone();
            self.stages.resize.push(ScopedCommand { scope, command });
        }
        if let Some(command) = writes.pod {
            self.patch_pod(scope, command);
        }
    }

    pub(crate) fn patch_pod(&mut self, scope: &Scope, command: Command) {
        let scope = scope.clone();
        self.stages.in_place.push(ScopedCommand { scope, command });
    }

    /// Takes a pod that a hook holds out of service, where the hook asks for it, and sets its state. What the state claims is
    /// written after what it rests on.
    pub(crate) fn hold(&mut self, scope: &Scope, held: Held<'_>) {
        let Some(detail) = held.pod.detail.clone() else { return };
        let target = Target {
            pod: held.pod,
            detail: &detail,
            now: self.moment.now,
            supports_resize: true,
            is_out_of_service: false,
        };
        let first = |command| {
            if held.only_as_seen {
                of_what_was_seen(held.pod, command)
            } else {
                command
            }
        };
        let leaves = (held.marks && !readiness::is_held(&detail, held.key))
            .then(|| readiness::take_out(held.pod, &detail, readiness::Leaving::Hook(held.key), self.moment.now))
            .flatten()
            .map(first);
        let moves = (State::of(held.pod) != held.state).then(|| {
            let mut metadata = held.metadata;
            overlay(&mut metadata, &lifecycle::patch(held.state, held.pod, self.moment.now));
            let command = if held.marks && detail.spec.has_gate(names::KRUISE_POD_READY) {
                target.relabel_held(&metadata)
            } else {
                target.relabel(&metadata)
            };
            if leaves.is_some() { command } else { first(command) }
        });
        let is_seen = detail.kruise_ready.is_some();
        // As where an update begins: the state tests that the gate is closed.
        let moves = moves.filter(|_| leaves.is_none() || is_seen);
        if let Some(command) = leaves {
            let scope = scope.clone();
            self.stages.unready.push(ScopedCommand { scope, command });
        }
        if let Some(command) = moves {
            self.patch_pod(scope, command);
        }
    }
}

/// A pod that a hook holds.
pub(crate) struct Held<'a> {
    pub(crate) pod: &'a PodRecord,
    pub(crate) state: State,
    pub(crate) key: &'static str,
    /// The hook asks for it not to be ready.
    pub(crate) marks: bool,
    /// It is unavailable and uses no budget: the first write holds only for what was seen.
    pub(crate) only_as_seen: bool,
    /// What else is patched with the state.
    pub(crate) metadata: serde_json::Value,
}

/// A pod with something under way.
// Independent facts, not a state.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Course {
    pod: Arc<PodRecord>,
    detail: Arc<PodDetail>,
    progress: Option<Box<Progress>>,
    /// Its note as it is to be, where what was to come has come and nothing else writes it.
    note: Option<String>,
    /// Why its update in place is given up, if it is.
    abandoned: Option<Abandoned>,
    is_updated: bool,
    is_specified: bool,
    is_wanted: bool,
    /// Its update has its turn, and waits for the budget.
    awaits_budget: bool,
}

impl Course {
    /// `None` for a pod that is quiet, or that this pass has dealt with already.
    pub(crate) fn of(occupant: &Occupant, is_wanted: bool) -> Option<Course> {
        if !occupant.is_restless || occupant.is_dealt_with || !occupant.is_replaceable() {
            return None;
        }
        let outdated = occupant.progress.as_ref().filter(|progress| progress.outdates_note);
        let state = outdated.and_then(|progress| progress.state.clone());
        Some(Course {
            pod: occupant.pod.clone(),
            detail: occupant.pod.detail.clone()?,
            progress: occupant.progress.clone(),
            note: state.map(|state| state.without_next().to_text()),
            abandoned: occupant.abandoned.clone(),
            is_updated: occupant.labels.is_updated,
            is_specified: occupant.labels.is_specified,
            is_wanted,
            awaits_budget: occupant.awaits_budget,
        })
    }

    fn name(&self) -> String {
        self.pod.name().to_owned()
    }

    fn since(&self) -> Option<Timestamp> {
        since_state(&self.detail)
    }

    fn is_in_flight(&self) -> bool {
        self.progress.as_ref().is_some_and(|p| p.is_in_flight())
    }

    /// Whether its next step takes a pod that serves out of service. Those of an update of ours are out already, but for one whose put-back came
    /// late; and anybody may write such a note. So this costs what any disruption costs (STS-8.2 and CS-13.12).
    pub(crate) fn leaves_service(&self, pass: &Pass<'_>) -> bool {
        let Some(progress) = self.progress.as_ref().filter(|_| self.abandoned.is_none()) else {
            return false;
        };
        let leaves = match (&progress.stage, &progress.state) {
            (Stage::Grace(_), _) => true,
            (Stage::NextBatch(unready), Some(state)) => {
                let keep_ready = &pass.moment.set.spec.switches.keep_ready;
                let leaves = || self.next_step(pass, state).leaves_service(&self.detail, keep_ready);
                unready.is_empty() && !state.kept_ready && leaves()
            }
            _ => false,
        };
        leaves && self.serves() && self.pod.is_running_and_ready()
    }

    /// What comes first of what is still to be changed.
    fn next_step(&self, pass: &Pass<'_>, state: &InPlaceState) -> UpdateSpec {
        let spec = UpdateSpec {
            changes: state.next.clone(),
            ..UpdateSpec::default()
        };
        if pass.moment.supports_resize {
            spec.first_step(&self.detail, state)
        } else {
            spec
        }
    }

    /// The pod's name.
    pub(crate) fn pod_name(&self) -> &str {
        self.pod.name()
    }

    /// Its gate for updates is open.
    fn serves(&self) -> bool {
        self.detail.in_place_ready.as_ref().is_some_and(|c| c.is_true)
    }

    fn awaits_restart(&self, container: String) -> WaitCause {
        let stays_ready = lacks_update_gate(Some(&self.detail));
        WaitCause::InPlaceRestart { container, stays_ready }
    }

    fn target(&self, pass: &Pass<'_>) -> Target<'_> {
        Target {
            pod: &self.pod,
            detail: &self.detail,
            now: pass.moment.now,
            supports_resize: pass.moment.supports_resize,
            is_out_of_service: self.detail.in_place_ready.as_ref().is_some_and(|c| !c.is_true),
        }
    }
}
