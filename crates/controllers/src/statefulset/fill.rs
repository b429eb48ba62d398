//! Step *fill*: every wanted ordinal gets a pod that runs (STS-2.3 step 7 and STS-3.5 step 3).
//!
//! In ascending order. Under OrderedReady the first slot that is not in order ends the step; under Parallel every slot is worked on,
//! and what fails in one does not concern the others. `scaleStrategy.maxUnavailable` bounds how many slots may be on their way up at
//! once; slots that our own update emptied are the update budget's business.

use super::plan::{MOST_EMPTY, Plan, Slot};
use crate::shared::budget::Budget;
use crate::shared::health::Health;
use crate::shared::inplace::state::whole_seconds;
use crate::shared::lifecycle::State;
use crate::shared::pass::QUOTA_TRIES;
use crate::shared::withheld;
use crate::shared::{claim, lifecycle, readiness};
use flotilla_api::names;
use flotilla_model::decision::{Command, PatchKind, PodDraft, Report, Scope, ScopedCommand};
use flotilla_model::hints::Starts;
use flotilla_model::set::{Area, UpdateKind};
use flotilla_model::{PodRecord, Resource, RevisionRecord, SetKind, WaitCause};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// When further pods with claims are made at the latest, if those of a pass do not come.
const NEXT_WITH_CLAIMS: Duration = Duration::from_secs(1);

/// Whether later steps may go on (OrderedReady).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Everything so far is in order.
    Through,
    /// Something has to come first.
    Blocked,
}

impl Plan<'_> {
    pub(super) fn fill(&mut self) -> Flow {
        let spec = self.view.set.spec.clone();
        let mut budget = spec
            .scale_max_unavailable
            .filter(|_| !spec.is_monotonic())
            .map(|b| Budget::new(b, spec.replicas));
        let mut not_updated = self.kept_back();
        if let Some(budget) = &mut budget {
            self.charge_starting(budget);
        }
        let highest = self.highest_tried();
        let there = self.slots.iter().filter(|slot| slot.occupant.is_some()).count();
        let mut left_with_claims = claim::most_new(there);
        for index in 0..self.slots.len() {
            self.note_start(index);
            let ordinal = self.slots[index].ordinal;
            let is_enough = self.pass.stages.create.len() >= MOST_EMPTY || left_with_claims == 0;
            let blocked = match &self.slots[index].occupant {
                None if is_enough || ordinal > highest => true,
                None => {
                    let revision = self.revision_for(index, not_updated);
                    let claims = self.pass.stages.claims.len();
                    // What cannot come yet keeps no place of those that the partition keeps: another may come instead.
                    let comes = self.create(index, &revision, budget.as_mut());
                    not_updated += usize::from(comes && revision.meta.uid != self.pass.update.meta.uid);
                    left_with_claims -= usize::from(self.pass.stages.claims.len() > claims);
                    true
                }
                Some(occupant) => match occupant.health {
                    Health::Ended => {
                        self.replace_ended(index);
                        true
                    }
                    health => {
                        let pod = occupant.pod.clone();
                        if !health.is_available() {
                            self.pass.wait_for(&pod, health);
                        }
                        self.repair(index);
                        !health.is_available()
                    }
                },
            };
            if blocked && spec.is_monotonic() {
                self.say_who_comes_after(index);
                return Flow::Blocked;
            }
        }
        if left_with_claims == 0 {
            // Should none of them come, others have their turn.
            self.pass.wake_within(NEXT_WITH_CLAIMS);
        }
        Flow::Through
    }

    /// Above which ordinal no pod is tried: a quota that has refused a few has no room for those above either, whose claims would be made
    /// for nothing. Those below were there before, and may have left room.
    fn highest_tried(&self) -> i64 {
        let is_empty = |ordinal: i64| {
            let index = self.slots.binary_search_by_key(&ordinal, |slot| slot.ordinal);
            index.is_ok_and(|index| self.slots[index].occupant.is_none())
        };
        let refused = self.pass.refused_by_quota().filter_map(|scope| match scope {
            Scope::Slot(ordinal) => Some(*ordinal).filter(|ordinal| is_empty(*ordinal)),
            _ => None,
        });
        let refused: Vec<i64> = refused.collect();
        let highest = refused.iter().max().filter(|_| refused.len() >= QUOTA_TRIES);
        highest.copied().unwrap_or(i64::MAX)
    }

    /// Under OrderedReady: the first slot behind `index` that is still to be created waits for it, and so does the first whose pod has ended.
    fn say_who_comes_after(&mut self, index: usize) {
        let after = &self.slots[index + 1..];
        let missing = after.iter().find(|slot| slot.occupant.is_none());
        let has_ended = |slot: &&Slot| {
            let occupant = slot.occupant.as_ref();
            occupant.is_some_and(|occupant| occupant.health == Health::Ended && !occupant.pod.is_terminating())
        };
        let ended = after.iter().find(has_ended);
        let ordinals: Vec<i64> = missing.into_iter().chain(ended).map(|slot| slot.ordinal).collect();
        for ordinal in ordinals {
            let cause = WaitCause::Order {
                behind: self.name(self.slots[index].ordinal),
            };
            self.pass.wait(self.name(ordinal), cause, None);
        }
    }

    /// Slots on their way up for the first time use the scaling budget, each once. A pod that is about to be taken is on its way up in its
    /// slot, too.
    fn charge_starting(&self, budget: &mut Budget) {
        let (min_ready, now) = (self.view.set.spec.min_ready, self.view.now);
        let is_adopted_down = |name: &str| {
            let pod = self.view.pod_to_adopt(name);
            let is_up = |pod: &PodRecord| Health::of(pod, State::of(pod).is_normal(), min_ready, now).is_available();
            pod.is_some_and(|pod| !is_up(pod) && !self.was_up(pod))
        };
        let starting = self.slots.iter().filter(|slot| match &slot.occupant {
            Some(occupant) => !slot.is_available() && !self.was_up(&occupant.pod),
            None => !self.view.to_adopt.is_empty() && is_adopted_down(&self.name(slot.ordinal)),
        });
        let first = starting.filter(|slot| !self.pass.hints.held.contains(slot.ordinal));
        first.for_each(|slot| budget.charge(|| self.name(slot.ordinal)));
    }

    /// Whether a pod that is not available says itself that it was, and so has held its slot: hints may be lost without harm, and an empty
    /// slot must not wait for a pod that broke long ago, nor for one that has been ready for long and is in the midst of an update in place,
    /// whose next step may wait for that very slot. Whether one was ready for long enough that is not ready now it does not tell, nor whether
    /// it was before its hooks let it in.
    pub(super) fn was_up(&self, pod: &PodRecord) -> bool {
        let let_in = pod.detail.as_ref().and_then(|detail| lifecycle::since_state(detail));
        let since_let_in = let_in.is_none_or(|at| pod.ready.is_true || pod.ready.since > Some(at));
        // The state of one that leaves says how it goes, not how it came.
        let was_in = pod.is_terminating() || State::of(pod).is_normal() && since_let_in;
        let min_ready = self.view.set.spec.min_ready;
        let is_ready_for_long = !pod.is_terminating() && pod.is_available(min_ready, self.view.now);
        was_in && (is_ready_for_long || min_ready.is_zero() && pod.has_been_ready)
    }

    /// Keeps the record of failed starts (STS-8.5).
    fn note_start(&mut self, index: usize) {
        let Some(occupant) = &self.slots[index].occupant else {
            return;
        };
        let ordinal = self.slots[index].ordinal;
        match occupant.health {
            Health::Ended => {
                let known = self.pass.hints.starts.get(&ordinal);
                if let Some(starts) = Starts::follow(known, occupant.pod.meta.created, self.view.now) {
                    self.pass.hints.starts.insert(ordinal, starts);
                }
            }
            Health::Available if !self.pass.hints.starts.is_empty() => {
                let since = occupant
                    .pod
                    .ready
                    .since
                    .unwrap_or(self.view.now)
                    .max(self.view.observing_since);
                if Starts::is_forgiven(self.view.now.since(since)) {
                    self.pass.hints.starts.remove(&ordinal);
                }
            }
            _ => {}
        }
    }

    /// A pod that has ended is deleted, whatever any budget says: it does not run anyway (STS-3.5). Its successor comes in a later
    /// pass, once the object is gone.
    fn replace_ended(&mut self, index: usize) {
        let Some(occupant) = &self.slots[index].occupant else {
            return;
        };
        let pod = occupant.pod.clone();
        if pod.is_terminating() {
            self.pass.wait_for(&pod, Health::Terminating);
            return;
        }
        if self.view.set.spec.is_stopped(Area::Scale) {
            // It could not be made again.
            return;
        }
        let report = match pod.phase {
            flotilla_model::records::Phase::Succeeded => Report::RecreateTerminated,
            _ => Report::RecreateFailed,
        };
        self.delete_slot(index, report);
    }

    /// Creates the pod of an empty slot with its claims, or says what is in the way. Whether it comes.
    fn create(&mut self, index: usize, revision: &Arc<RevisionRecord>, budget: Option<&mut Budget>) -> bool {
        let ordinal = self.slots[index].ordinal;
        let name = self.name(ordinal);
        self.tried.insert(ordinal);
        if self.view.set.spec.is_stopped(Area::Scale) || self.is_in_the_way(index, &name, revision) {
            return false;
        }
        if self.takes_claims_back(ordinal, &name, revision) {
            return false;
        }
        let Some(claims) = self.claims_for(&name, revision) else {
            return false;
        };
        if let Some(budget) = budget
            && !self.pass.hints.held.contains(ordinal)
            && !budget.take(|| name.clone())
        {
            let cause = WaitCause::ScaleBudget {
                budget: budget.limit(),
                used_by: budget.used_by(),
            };
            self.pass.wait(name, cause, None);
            self.tried.remove(&ordinal);
            return false;
        }
        let scope = Scope::Slot(ordinal);
        self.pass.write_claims(&scope, claims);
        let command = self.draft_pod(ordinal, name, revision).into_command();
        self.pass.stages.create.push(ScopedCommand { scope, command });
        true
    }

    /// Whether something else than a claim keeps the slot empty for now.
    fn is_in_the_way(&mut self, index: usize, name: &str, revision: &RevisionRecord) -> bool {
        let ordinal = self.slots[index].ordinal;
        if self.view.is_changing_hands(name) {
            return true;
        }
        if let Some(stranger) = self.view.stranger(ordinal) {
            if let Some(since) = stranger.meta.deleted {
                // Whoever it belonged to, the name will be free.
                let cause = WaitCause::PodTerminating {
                    node: stranger.node.as_deref().map(str::to_owned),
                    finalizers: Vec::new(),
                };
                self.pass.wait(name.to_owned(), cause, Some(since));
                return true;
            }
            let owner = stranger.meta.controller().map(|o| format!("{} {}", o.kind, o.name));
            let since = stranger.meta.created;
            self.pass
                .wait(name.to_owned(), WaitCause::NameTaken { owner }, Some(since));
            return true;
        }
        if self.comes_after_all_old(index, revision) {
            let left = self.old_pods();
            if left > 0 {
                self.pass.wait(name.to_owned(), WaitCause::OldPodsRemain { left }, None);
                self.tried.remove(&ordinal);
                return true;
            }
        }
        if let Some(starts) = self
            .pass
            .hints
            .starts
            .get(&ordinal)
            .copied()
            .filter(|s| s.retry_at > self.view.now)
        {
            self.pass.wake_within(starts.retry_at.since(self.view.now));
            let cause = WaitCause::StartBackOff {
                failed: starts.failed,
                retry_at: starts.retry_at,
            };
            self.pass.wait(name.to_owned(), cause, Some(starts.last_created));
            return true;
        }
        self.pass.is_backing_off(&Scope::Slot(ordinal), name)
    }

    /// The commands that give a new pod its claims. `None` if one of them is on its way out, or goes with a former pod or set: a pod that
    /// mounted it would never start, or lose it.
    fn claims_for(&mut self, pod: &str, revision: &RevisionRecord) -> Option<Vec<Command>> {
        let view = self.view;
        let mut commands = Vec::new();
        for template in self.claim_templates_of(revision).iter() {
            let name = claim::claim_name(template, pod);
            match view.claim(&name) {
                None => commands.push(self.new_claim(template, &name)),
                Some(found) if found.meta.deleted.is_some() => {
                    let since = found.meta.deleted;
                    self.pass.wait(name, WaitCause::CLAIM_TERMINATING, since);
                    return None;
                }
                Some(found) => {
                    if let Some(former) = claim::former_owner(found, &self.claimants(pod, None)) {
                        let owner = format!("{} {}", former.kind, former.name);
                        self.pass
                            .wait(name, WaitCause::ClaimStale { owner, stays: false }, None);
                        return None;
                    }
                    commands.extend(self.keep_claim(found, pod, None, false));
                }
            }
        }
        Some(commands)
    }

    /// The pod of a slot, as it is made from a revision.
    pub(super) fn draft_pod(&self, ordinal: i64, name: String, revision: &Arc<RevisionRecord>) -> PodDraft {
        let set = &self.view.set;
        let template = revision.template.as_ref().unwrap_or(&set.spec.template);
        let tree = template.tree();
        let templates = self.claim_templates_of(revision);
        let claims = templates
            .iter()
            .map(|t| (t.name.clone(), claim::claim_name(t, &name)))
            .collect();
        let mut labels = vec![
            (names::POD_NAME_LABEL, name.clone()),
            (names::POD_INDEX_LABEL, ordinal.to_string()),
            (names::REVISION_LABEL, revision.name().to_owned()),
            (names::MADE_AS_LABEL, claim::made_as(revision.name(), &templates)),
        ];
        let mut annotations = Vec::new();
        if !set.spec.lifecycle.is_empty() {
            // Where there are no hooks the label stays away, which counts as Normal and saves a write in every update in place.
            let state = lifecycle::of_new(&set.spec.lifecycle, &tree);
            labels.push((names::LIFECYCLE_STATE_LABEL, state.name().to_owned()));
            annotations.push((names::LIFECYCLE_TIMESTAMP, whole_seconds(self.view.now)));
        }
        PodDraft {
            key: self.key(&name),
            generate_name: format!("{}-", set.name()).into(),
            withheld: withheld::of(set.kind, template, &set.spec.selector),
            template: tree,
            labels,
            annotations,
            gates: readiness::gates_of_new(set),
            owner: Arc::new(self.view.owner.clone()),
            host: Some((name, set.spec.service_name.clone())),
            claims,
        }
    }

    /// How many slots have a pod that counts as one that the partition keeps back.
    pub(super) fn kept_back(&self) -> usize {
        self.slots.iter().filter(|slot| self.keeps_back(slot)).count()
    }

    /// The revision that the pod in this slot would be followed by, if it went, where so many are [kept back][Self::kept_back], with its own.
    pub(super) fn successor_of(&self, index: usize, kept_back: usize) -> Arc<RevisionRecord> {
        let own = usize::from(self.keeps_back(&self.slots[index]));
        self.revision_for(index, kept_back - own)
    }

    /// The revision that a new pod in this slot is made from (STS-2.4 and STS-3.6). `not_updated` counts, over all other slots, pods that
    /// are not at the update revision, with what this pass has created already.
    fn revision_for(&self, index: usize, not_updated: usize) -> Arc<RevisionRecord> {
        let spec = &self.view.set.spec;
        if spec.switches.paused_keeps_revision
            && spec.is_paused()
            && let Some(kept) = self.pass.hints.last_revision.get(&self.slots[index].ordinal)
            && let Some(found) = self.pass.revisions.names.exactly(kept)
        {
            return found.clone();
        }
        if spec.update == UpdateKind::OnDelete || self.pass.update.meta.uid == self.pass.current.meta.uid {
            return self.pass.update.clone();
        }
        if spec.lacks_partition() {
            // Nobody knows which are to be kept: none is updated, as no other pod is (STS-3.4).
            return self.pass.current.clone();
        }
        let kept = usize::try_from(spec.partition()).unwrap_or(0);
        let is_current = match &spec.rolling {
            // All go, and come at the new one.
            None => spec.update == UpdateKind::RollingUpdate && index < self.frontier(),
            Some(rolling) if rolling.unordered.is_some() && !spec.is_monotonic() => not_updated < kept,
            // The rank counts wanted ordinals, and so what is not reserved: exactly the lowest pods keep the old revision.
            Some(_) => index < self.window_start(),
        };
        if is_current {
            self.pass.current.clone()
        } else {
            self.pass.update.clone()
        }
    }

    /// First index above all pods that still stay at the current revision. `status.currentReplicas` says the same unless it lags: a pod
    /// that nobody runs is gone at once when it is deleted, and must not come back at the revision that it was deleted for.
    fn frontier(&self) -> usize {
        let stays = |s: &Slot| {
            s.occupant
                .as_ref()
                .is_some_and(|o| o.labels.is_current && o.is_replaceable())
        };
        *self
            .frontier
            .get_or_init(|| self.slots.iter().rposition(stays).map_or(0, |index| index + 1))
    }

    /// Keeps what the API server lets us keep right on a running pod: its labels, and the claims of one that has not started.
    fn repair(&mut self, index: usize) {
        let slot = &self.slots[index];
        let Some(occupant) = &slot.occupant else { return };
        let (pod, ordinal) = (occupant.pod.clone(), slot.ordinal);
        let scope = Scope::Slot(ordinal);
        let commands = self.missing_claims(&pod);
        if !commands.is_empty() && !self.pass.is_backing_off(&scope, pod.name()) {
            self.pass.write_claims(&scope, commands);
        }
        if !pod.has_name_label && !pod.is_terminating() && !self.pass.is_backing_off(&Scope::Slot(ordinal), pod.name())
        {
            let command = Command::Patch {
                resource: Resource::Pods,
                key: pod.meta.key.clone(),
                uid: pod.meta.uid.clone(),
                subresource: None,
                kind: PatchKind::Merge,
                body: json!({"metadata": {"labels": {names::POD_NAME_LABEL: pod.name(), names::POD_INDEX_LABEL: ordinal.to_string()}}}),
                resource_version: None,
                guard: None,
                report: Report::Update,
            };
            self.pass.stages.repair.push(ScopedCommand { scope, command });
        }
    }

    /// Whether this is the Advanced kind.
    pub(super) fn is_advanced(&self) -> bool {
        self.view.set.kind == SetKind::Advanced
    }

    /// Whether the pod of a slot counts as one that the partition keeps back; also one that is about to be taken.
    fn keeps_back(&self, slot: &Slot) -> bool {
        if let Some(occupant) = &slot.occupant {
            return !occupant.labels.is_updated && !occupant.is_prepared();
        }
        if self.view.to_adopt.is_empty() {
            return false;
        }
        let adopted = self.view.pod_to_adopt(&self.name(slot.ordinal));
        let is_old = |pod: &PodRecord| pod.revision() != Some(self.pass.update.name());
        adopted.is_some_and(|pod| is_old(pod) && State::of(pod) != State::PreparingUpdate)
    }
}
