//! Steps *update* and *course* for the pods of slots: how one of them comes to the update revision, and how it goes on with that.

use super::plan::{Plan, Slot};
use crate::shared::course::Course;
use crate::shared::health::Health;
use crate::shared::lifecycle::State;
use crate::shared::occupant::Occupant;
use crate::shared::renewal::Way;
use flotilla_model::decision::{Report, Scope};
use flotilla_model::set::{Area, UpdateKind};
use flotilla_model::{RevisionRecord, WaitCause};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Plan<'_> {
    /// Before the update: pods whose update in place leads nowhere have to be made again, where that is allowed.
    pub(super) fn judge_courses(&mut self) {
        let has_failures = !self.pass.hints.failures.is_empty();
        for slot in &mut self.slots {
            if let Some(occupant) = slot.occupant.as_mut().filter(|o| o.is_restless || has_failures) {
                self.pass.judge(&Scope::Slot(slot.ordinal), occupant);
            }
        }
    }

    /// After the update: whatever pod is not quiet and was not dealt with goes on.
    pub(super) fn tend_courses(&mut self) {
        if !self.is_advanced() {
            return;
        }
        let mut budget = None;
        for index in 0..self.slots.len() {
            let ordinal = self.slots[index].ordinal;
            // What its node cannot give is not asked for again.
            let occupant = self.slots[index].occupant.as_ref().filter(|o| !o.is_stuck);
            let Some(course) = occupant.and_then(|o| Course::of(o, true)) else {
                continue;
            };
            if course.leaves_service(&self.pass) {
                let budget = budget.get_or_insert_with(|| self.leaving_budget());
                let name = course.pod_name().to_owned();
                if !budget.take(|| name.clone()) {
                    let cause = WaitCause::UpdateBudget {
                        budget: budget.limit(),
                        used_by: budget.used_by(),
                    };
                    self.pass.wait(name, cause, None);
                    continue;
                }
            }
            self.pass.go_on(&Scope::Slot(ordinal), course);
        }
        for (ordinal, occupant) in &self.condemned {
            if let Some(course) = Course::of(occupant, false) {
                self.pass.go_on(&Scope::Slot(*ordinal), course);
            }
        }
    }

    /// Brings the pod of a slot to the update revision. Whether anything was done that makes it unavailable.
    pub(super) fn renew(&mut self, index: usize) -> bool {
        if !self.may_leave_service(index) {
            return false;
        }
        let slot = &mut self.slots[index];
        let Some(occupant) = slot.occupant.as_mut() else {
            return false;
        };
        match self.pass.way(occupant) {
            Way::Recreate => self.make_again(index),
            Way::InPlace(spec) => self.pass.update_in_place(&Scope::Slot(slot.ordinal), occupant, &spec),
            Way::Stays => false,
            Way::Barred(reason) => {
                self.pass.bar(&occupant.pod, reason);
                false
            }
        }
    }

    /// Deletes the pod of a slot for one of the update revision, once that is accepted and has its claims. Whether it goes, or would
    /// but for the claims that are being made.
    pub(super) fn make_again(&mut self, index: usize) -> bool {
        let update = self.pass.update.clone();
        self.is_accepted(index, &update)
            && if self.has_claims(index, &update) {
                self.delete_slot(index, Report::Delete)
            } else {
                !self.pass.held_back.contains(&Scope::Slot(self.slots[index].ordinal))
            }
    }

    /// Whether pods of a revision are accepted, so that the pod of a slot may go for one.
    pub(super) fn is_accepted(&mut self, index: usize, revision: &Arc<RevisionRecord>) -> bool {
        let view = self.view;
        let takes_all = self.comes_after_all_old(index, revision);
        let company = Company {
            slots: &self.slots,
            left_out: self.left_out,
            condemned: &self.condemned,
            tried: &self.tried,
        };
        let known = if takes_all {
            self.pass
                .may_all_go_for(revision, view.pods(), || company.leaves_room_for_all(index))
        } else {
            self.pass
                .may_go_for(revision, view.pods(), || company.is_whole_but_for(index))
        };
        match known {
            Some(known) => known,
            None => self.ask(index, revision),
        }
    }

    /// Whether the pod of a slot may leave service for its update in place, if it is to.
    fn may_leave_service(&mut self, index: usize) -> bool {
        let Some(occupant) = &self.slots[index].occupant else {
            return false;
        };
        let leaves = matches!(self.pass.way(occupant), Way::InPlace(_)) && self.pass.takes_out_of_service(occupant);
        let update = self.pass.update.clone();
        if !leaves {
            return true;
        }
        match self.pass.may_change_to(&update, self.view.pods()) {
            Some(known) => known,
            None => self.ask(index, &update),
        }
    }

    /// Asks whether pods of a revision are accepted, unless that is being asked. No pod goes for it yet.
    fn ask(&mut self, index: usize, revision: &Arc<RevisionRecord>) -> bool {
        if let Some(occupant) = &mut self.slots[index].occupant {
            // Until the answer is there it stays as it is: out of service, if it has been prepared.
            occupant.is_dealt_with = true;
        }
        if !self.pass.is_untried(revision) {
            return false;
        }
        let ordinal = self.slots[index].ordinal;
        let pod = self.draft_pod(ordinal, self.name(ordinal), revision);
        self.pass.try_pod(revision, pod);
        false
    }

    /// Whether the change of a slot's pod takes it out of nothing (STS-8.18).
    pub(super) fn is_gentle(&mut self, index: usize) -> bool {
        let occupant = self.slots[index].occupant.as_ref();
        occupant.is_some_and(|occupant| self.pass.is_gentle(occupant))
    }

    /// Under OrderedReady, while something holds up the update: pods that it prepared, or that have to be made again, are unavailable
    /// already, and it goes on with them. They may be the very ones that hold it up. Whether anything was done.
    pub(super) fn resume(&mut self) -> bool {
        let spec = &self.view.set.spec;
        if !self.is_advanced()
            || spec.update != UpdateKind::RollingUpdate
            || spec.is_paused()
            || spec.is_stopped(Area::Update)
        {
            return false;
        }
        let mut is_going = false;
        for index in self.window_start()..self.slots.len() {
            let Some(o) = &self.slots[index].occupant else { continue };
            if !o.is_replaceable() || o.health.is_available() {
                continue;
            }
            let (state, pod) = (State::of(&o.pod), o.pod.clone());
            let is_prepared = matches!(state, State::PreparingUpdate | State::PreparingDelete);
            if o.is_old() && (is_prepared || o.abandoned.is_some()) {
                is_going |= self.replace(index);
            } else if state == State::PreparingDelete && self.needs_restart(&pod) {
                // Its volume has grown, and its hook has yet to let it go.
                is_going |= self.make_again(index);
            }
        }
        is_going
    }
}

/// All pods beside which one would go for a revision that nobody has accepted yet.
struct Company<'p> {
    slots: &'p [Slot],
    left_out: usize,
    condemned: &'p [(i64, Occupant)],
    tried: &'p BTreeSet<i64>,
}

impl<'p> Company<'p> {
    /// Slots, other than this one, whose pod is missing or on its way out.
    fn lacking(&self, index: usize) -> impl Iterator<Item = &'p Slot> {
        let stays = |slot: &Slot| slot.occupant.as_ref().is_some_and(Occupant::stays);
        let others = self.slots.iter().enumerate().filter(move |(other, _)| *other != index);
        others.map(|(_, slot)| slot).filter(move |slot| !stays(slot))
    }

    /// Whether the set lacks no pod but the one that would go. One that is down takes nothing down by that; then, what nobody has tried to make
    /// is not what an earlier one has gone for: it waits in the order, for the budget, or for this very pod.
    fn is_whole_but_for(&self, index: usize) -> bool {
        let is_down = !self.slots[index].is_available();
        let waits = |slot: &Slot| is_down && self.is_left_for_later(slot);
        (is_down || self.left_out == 0) && self.lacking(index).all(waits)
    }

    /// Whether nothing was tried, in this pass or lately, for a slot without a pod, or whose pod has ended.
    fn is_left_for_later(&self, slot: &Slot) -> bool {
        match &slot.occupant {
            Some(occupant) => occupant.health == Health::Ended && !occupant.doomed && !occupant.pod.is_terminating(),
            None => !self.tried.contains(&slot.ordinal),
        }
    }

    /// Whether all old pods leave at least as much room, those included that are not wanted any more, as is needed for what comes after them.
    /// Those that have begun to go, and wait for their hooks, are not let go again for others that have gone before.
    fn leaves_room_for_all(&self, index: usize) -> bool {
        let has_begun = |slot: &Slot| {
            let occupant = slot.occupant.as_ref();
            occupant.is_some_and(|o| o.is_old() && State::of(&o.pod) == State::PreparingDelete)
        };
        // Also one that waits for its hook: scaling down may be waiting for what this very update would make.
        let goes = |(_, occupant): &&(i64, Occupant)| !occupant.labels.is_updated && occupant.is_replaceable();
        let lacking = || self.lacking(index).count().saturating_add(self.left_out);
        self.slots.iter().any(has_begun) || lacking() <= self.condemned.iter().filter(goes).count()
    }
}
