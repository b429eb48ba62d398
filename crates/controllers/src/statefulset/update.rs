//! Step *update*: pods of old revisions are replaced (STS-2.5, STS-2.6, STS-3.7, STS-3.8).
//!
//! The budget counts unavailable slots over the whole range, also below the partition. A pod that is unavailable already costs nothing
//! to replace, so under Parallel all old unavailable pods of the partition window go first, wherever they stand (two-phase); under
//! OrderedReady and for native sets without a budget the order is kept, unless the set opts in to unblocking.

use super::claims::Growth;
use super::plan::{Plan, Slot};
use crate::shared::budget::Budget;
use crate::shared::health::since;
use crate::shared::occupant::Occupant;
use crate::shared::ordering::rank;
use flotilla_model::decision::{Report, Scope};
use flotilla_model::set::{Area, UpdateKind};
use flotilla_model::{IntOrPercent, WaitCause};

impl Plan<'_> {
    pub(super) fn update(&mut self) {
        let spec = self.view.set.spec.clone();
        if spec.is_stopped(Area::Update) {
            return;
        }
        match spec.update {
            UpdateKind::OnDelete => {}
            _ if spec.is_paused() => {}
            UpdateKind::Recreate => self.recreate_all(),
            UpdateKind::RollingUpdate if self.is_classic() => self.roll_classic(),
            UpdateKind::RollingUpdate => self.roll(),
        }
        self.say_what_is_up_to_users();
    }

    /// Which pods no update replaces until users do something about it, also while another pod holds up all others.
    pub(super) fn say_what_is_up_to_users(&mut self) {
        let view = self.view;
        let spec = &view.set.spec;
        if spec.is_stopped(Area::Update) {
            return;
        }
        if spec.update == UpdateKind::OnDelete {
            self.say_what_users_delete();
        } else if spec.is_paused() {
            let is_left = |o: &Occupant| !o.doomed && (o.is_old() || self.claims_lag(&o.pod));
            if self.slots.iter().any(|s| s.occupant.as_ref().is_some_and(is_left)) {
                self.pass.wait(self.view.set.name().to_owned(), WaitCause::Paused, None);
            }
        }
        self.say_what_the_partition_keeps();
    }

    /// With OnDelete users delete the old pods. Their claims do not grow with that, which is said as well.
    fn say_what_users_delete(&mut self) {
        let occupants = self.slots.iter().filter_map(|s| s.occupant.as_ref());
        let (mut old, mut lagging) = (0, 0);
        for occupant in occupants.filter(|o| !o.doomed && !o.pod.is_terminating()) {
            old += usize::from(occupant.is_old());
            lagging += usize::from(self.claims_lag(&occupant.pod));
        }
        let name = self.view.set.name();
        if old > 0 {
            self.pass.wait(name.to_owned(), WaitCause::OnDelete { old }, None);
        }
        if lagging > 0 {
            let cause = WaitCause::ClaimsLeftBehind { pods: lagging };
            self.pass.wait(name.to_owned(), cause, None);
        }
    }

    /// A native set that names no budget: one pod at a time, the way Kubernetes does it with its default gates.
    fn is_classic(&self) -> bool {
        let spec = &self.view.set.spec;
        let opted_in = spec.is_monotonic() && spec.switches.ordered_max_unavailable.is_some();
        !opted_in && spec.rolling.as_ref().is_none_or(|r| r.max_unavailable.is_none())
    }

    /// How many pods the update may make unavailable.
    fn budget_limit(&self) -> IntOrPercent {
        let spec = &self.view.set.spec;
        let declared = spec
            .rolling
            .as_ref()
            .and_then(|r| r.max_unavailable)
            .unwrap_or(IntOrPercent::Int(1));
        match (
            spec.is_monotonic(),
            self.is_advanced(),
            spec.switches.ordered_max_unavailable,
        ) {
            (true, _, Some(opted_in)) => opted_in,
            // An Advanced set under OrderedReady may not name more than 1, except by opting in to batches.
            (true, true, None) => IntOrPercent::Int(1),
            _ => declared,
        }
    }

    /// The update's budget, charged with every slot that is unavailable now.
    fn update_budget(&self) -> Budget {
        let mut budget = Budget::new(self.budget_limit(), self.view.set.spec.replicas);
        for index in (0..self.slots.len()).filter(|index| !self.is_costly(*index)) {
            budget.charge(|| self.name(self.slots[index].ordinal));
        }
        budget.charge_others(self.left_out);
        budget
    }

    /// The budget for pods that are in the middle of an update and serve: charged with every slot whose pod is not up, or is taken out of
    /// service by this pass. Under OrderedReady with those alone that updates have taken out: others wait for this one, and it may not wait
    /// for them.
    pub(super) fn leaving_budget(&self) -> Budget {
        let mut budget = Budget::new(self.budget_limit(), self.view.set.spec.replicas);
        let is_monotonic = self.view.set.spec.is_monotonic();
        let taken_down = self.pass.taken_down();
        let is_down = |slot: &&Slot| match &slot.occupant {
            Some(occupant) => {
                let is_out = occupant.is_in_flight() && occupant.is_replaceable();
                let is_lost = !occupant.is_up() && (!is_monotonic || is_out);
                is_lost || taken_down.contains(occupant.pod.name())
            }
            None => !is_monotonic,
        };
        for slot in self.slots.iter().filter(is_down) {
            budget.charge(|| self.name(slot.ordinal));
        }
        if !is_monotonic {
            budget.charge_others(self.left_out);
        }
        budget
    }

    /// The update's budget, charged with every slot whose pod does not serve. A pod that is ready and not available yet, or in an update in
    /// place that does not take it out of service yet, costs none of the budget of what is available; but it serves, and when all pods are
    /// so, as after `minReadySeconds` was raised, they are not to go all at once.
    fn serving_budget(&self) -> Budget {
        let mut budget = Budget::new(self.budget_limit(), self.view.set.spec.replicas);
        let serves = |slot: &Slot| slot.occupant.as_ref().is_some_and(Occupant::serves);
        for slot in self.slots.iter().filter(|slot| !serves(slot)) {
            budget.charge(|| self.name(slot.ordinal));
        }
        budget.charge_others(self.left_out);
        budget
    }

    /// Whether the pod of a slot serves, and does not count as available.
    fn serves_young(&self, index: usize) -> bool {
        let occupant = self.slots[index].occupant.as_ref();
        occupant.is_some_and(|o| o.serves() && !o.health.is_available())
    }

    /// Whether the pod of a slot may go as far as the pods that are ready are concerned. If not, that is said.
    fn may_go_ready(&mut self, index: usize, serving: &Budget) -> bool {
        if !self.serves_young(index) || serving.left() > 0 {
            return true;
        }
        let cause = WaitCause::UpdateBudget {
            budget: serving.limit(),
            used_by: serving.used_by(),
        };
        self.pass.wait(self.name(self.slots[index].ordinal), cause, None);
        false
    }

    /// Whether replacing the pod of a slot uses the budget: it is available, and none of its claims is on the way to a new size.
    fn is_costly(&self, index: usize) -> bool {
        let slot = &self.slots[index];
        slot.is_available() && slot.occupant.as_ref().is_some_and(|o| !self.is_expanding(&o.pod))
    }

    /// Whether the partition counts pods instead of naming the lowest.
    pub(super) fn is_unordered(&self) -> bool {
        let spec = &self.view.set.spec;
        !spec.is_monotonic() && spec.rolling.as_ref().is_some_and(|r| r.unordered.is_some())
    }

    /// Lowest index that the update may touch in order; slots below keep the current revision.
    pub(super) fn window_start(&self) -> usize {
        let partition = i64::from(self.view.set.spec.partition());
        self.slots.partition_point(|slot| slot.rank < partition)
    }

    /// Slots in the order in which the update takes them, at most as many as the partition leaves.
    pub(super) fn targets(&self) -> Vec<usize> {
        let spec = &self.view.set.spec;
        let descending = (0..self.slots.len()).rev();
        let Some(strategy) = spec
            .rolling
            .as_ref()
            .and_then(|r| r.unordered.as_ref())
            .filter(|_| !spec.is_monotonic())
        else {
            let start = self.window_start();
            return descending.take_while(|index| *index >= start).collect();
        };
        // What is updated, going or gone counts against the limit, so that the partition's pods stay however many are on their way.
        let counts_already = |index: &usize| {
            self.slots[*index]
                .occupant
                .as_ref()
                .is_none_or(|o| o.labels.is_updated || o.is_prepared() || !o.is_replaceable())
        };
        let (mut targets, mut waiting): (Vec<usize>, Vec<usize>) = descending.partition(counts_already);
        waiting.sort_by_cached_key(|index| {
            let occupant = self.slots[*index].occupant.as_ref();
            let is_available = occupant.is_some_and(|o| o.health.is_available());
            (occupant.map(|o| rank(strategy.as_ref(), &o.pod)), is_available)
        });
        targets.extend(waiting);
        let keeps = usize::try_from(spec.partition()).unwrap_or(0);
        targets.truncate(self.slots.len().saturating_sub(keeps));
        targets
    }

    /// Within a budget (STS-3.7, and STS-2.5 for native sets that name one).
    pub(super) fn roll(&mut self) {
        let targets = self.targets();
        let mut budget = self.update_budget();
        let (costly, free): (Vec<usize>, Vec<usize>) = targets.into_iter().partition(|index| {
            self.is_costly(*index) && !(self.is_old_and(*index, |_| true) && self.changes_gently(*index))
        });
        let mut serving = self.serving_budget();
        for index in free {
            if !self.needs_work(index) {
                continue;
            }
            let serves = self.serves_young(index) && !self.changes_gently(index);
            if serves && !self.may_go_ready(index, &serving) {
                continue;
            }
            let ordinal = self.slots[index].ordinal;
            if self.replace(index) && serves {
                serving.charge(|| self.name(ordinal));
            }
        }
        for index in costly {
            if !self.needs_work(index) {
                continue;
            }
            let ordinal = self.slots[index].ordinal;
            if budget.left() == 0 {
                let cause = WaitCause::UpdateBudget {
                    budget: budget.limit(),
                    used_by: budget.used_by(),
                };
                self.pass.wait(self.name(ordinal), cause, None);
                return;
            }
            if self.replace(index) {
                budget.charge(|| self.name(ordinal));
            } else if self.view.set.spec.is_monotonic() && self.pass.held_back.contains(&Scope::Slot(ordinal)) {
                // Where pods go in order, those below wait for one that was refused.
                return;
            }
        }
    }

    /// Whether the change of a slot's pod takes it out of nothing, and nothing has to be done for its volumes that counts.
    fn changes_gently(&mut self, index: usize) -> bool {
        let pod = self.slots[index].occupant.as_ref().map(|o| o.pod.clone());
        self.is_gentle(index) && !pod.is_some_and(|pod| self.growth_is_costly(&pod))
    }

    /// Whether the pod of a slot has to be replaced, or its claims have to grow.
    fn needs_work(&mut self, index: usize) -> bool {
        self.is_old_and(index, |_| true) || self.has_growth(index)
    }

    /// Whether the occupant of a slot is old, may be deleted, and its availability is as asked.
    pub(super) fn is_old_and(&self, index: usize, availability: impl Fn(bool) -> bool) -> bool {
        self.slots[index]
            .occupant
            .as_ref()
            .is_some_and(|o| o.is_old() && o.is_replaceable() && availability(o.health.is_available()))
    }

    /// Whether claims of an up-to-date pod have to follow their templates.
    fn has_growth(&mut self, index: usize) -> bool {
        let Some(occupant) = self.slots[index].occupant.as_ref().filter(|o| o.is_replaceable()) else {
            return false;
        };
        let pod = occupant.pod.clone();
        matches!(self.growth(&pod), Growth::Needed(_) | Growth::NeedsRestart)
    }

    /// Whether a pod that is not available, old or not, has claims that have to grow first. To ask for that takes nothing down.
    fn lacks_space(&self, index: usize) -> bool {
        let occupant = self.slots[index].occupant.as_ref();
        let occupant = occupant.filter(|o| o.is_replaceable() && !o.health.is_available());
        occupant.is_some_and(|o| matches!(self.look_at_growth(&o.pod).0, Growth::Needed(_)))
    }

    /// Replaces a pod, its claims first where they have to grow. Whether anything was done.
    pub(super) fn replace(&mut self, index: usize) -> bool {
        let Some(occupant) = &self.slots[index].occupant else {
            return false;
        };
        let (pod, is_old) = (occupant.pod.clone(), occupant.is_old());
        match self.growth(&pod) {
            Growth::Needed(commands) => self.expand(index, commands),
            Growth::Waiting => false,
            Growth::Done if !is_old => false,
            Growth::Done => self.renew(index),
            Growth::NeedsRestart => self.make_again(index),
        }
    }

    /// The classic path (STS-2.5): from the highest ordinal down to the partition, the first old pod goes; a pod that is not available
    /// ends the walk. Broken pods below therefore do not hold up, those above do.
    fn roll_classic(&mut self) {
        if self.view.set.spec.switches.unblock_after.is_some() && self.unblock() {
            return;
        }
        for index in (self.window_start()..self.slots.len()).rev() {
            let Some(occupant) = &self.slots[index].occupant else {
                self.held_up_by(index);
                return;
            };
            if occupant.is_old() && occupant.is_replaceable() {
                self.make_again(index);
                return;
            }
            if !self.slots[index].is_available() {
                self.held_up_by(index);
                return;
            }
        }
    }

    /// Says which old pod the classic walk would take next, were it not for the pod at `index`.
    fn held_up_by(&mut self, index: usize) {
        let start = self.window_start();
        let next = (start..index).rev().find(|i| self.is_old_and(*i, |_| true));
        if let Some(next) = next {
            let used_by = vec![self.name(self.slots[index].ordinal)];
            let subject = self.name(self.slots[next].ordinal);
            self.pass
                .wait(subject, WaitCause::UpdateBudget { budget: 1, used_by }, None);
        }
    }

    /// Opt-in unblocking (STS-8.1): the first old pod of the partition window that has been bad for long enough is replaced although
    /// the order would wait for it, its claims first. One at a time; never a pod of the update revision, which may just be starting: of that
    /// no more than the claims grow. One that is ready, and not available yet, serves: it goes as everywhere only where the budget has room
    /// for one that does not.
    pub(super) fn unblock(&mut self) -> bool {
        let spec = self.view.set.spec.clone();
        let Some(after) = spec.switches.unblock_after else {
            return false;
        };
        let applies = spec.update == UpdateKind::RollingUpdate && !spec.is_paused() && !spec.is_stopped(Area::Update);
        // Also what this pass goes on with already, and what has ended on its way out.
        let is_going = |o: &Occupant| o.doomed || o.is_dealt_with || o.pod.is_terminating();
        if !applies || self.slots.iter().any(|s| s.occupant.as_ref().is_some_and(is_going)) {
            return false;
        }
        let may_take_one_that_serves = self.serving_budget().left() > 0;
        for index in self.window_start()..self.slots.len() {
            if !self.is_old_and(index, |available| !available) && !self.lacks_space(index) {
                continue;
            }
            if self.serves_young(index) && !may_take_one_that_serves && !self.changes_gently(index) {
                continue;
            }
            let Some(occupant) = &self.slots[index].occupant else {
                continue;
            };
            let pod = &occupant.pod;
            let bad_for = self
                .view
                .now
                .since(since(pod, occupant.health).max(self.view.observing_since));
            if !pod.has_been_ready || bad_for >= after {
                return self.replace(index);
            }
            self.pass.wake_within(after.saturating_sub(bad_for));
        }
        false
    }

    /// Pods that somebody asked to have recreated, by label, within the budget (STS-3.8): in every strategy, also while paused, and
    /// also when an unhealthy pod holds up everything else, since that may be the very pod.
    pub(super) fn recreate_specified(&mut self) {
        let mut occupants = self.slots.iter().filter_map(|s| s.occupant.as_ref());
        if !occupants.any(|o| o.labels.is_specified) || self.view.set.spec.is_stopped(Area::Update) {
            return;
        }
        let (mut budget, mut serving) = (self.update_budget(), self.serving_budget());
        let kept_back = self.kept_back();
        for index in (0..self.slots.len()).rev() {
            let Some(occupant) = &self.slots[index].occupant else {
                continue;
            };
            if !occupant.labels.is_specified || !occupant.is_replaceable() {
                continue;
            }
            let (name, is_available) = (occupant.pod.name().to_owned(), occupant.health.is_available());
            if is_available && budget.left() == 0 {
                let cause = WaitCause::UpdateBudget {
                    budget: budget.limit(),
                    used_by: budget.used_by(),
                };
                self.pass.wait(name, cause, None);
                continue;
            }
            let serves = self.serves_young(index);
            if !self.may_go_ready(index, &serving) {
                continue;
            }
            // Asked last: where one pod may go to prove its revision, one that has to wait is not to be it.
            let revision = self.successor_of(index, kept_back);
            if !self.is_accepted(index, &revision) || !self.has_claims(index, &revision) {
                continue;
            }
            // What waits for its next attempt takes nothing from the budget.
            if !self.delete_slot(index, Report::Delete) {
                continue;
            }
            if serves {
                serving.charge(|| name.clone());
            }
            if is_available {
                budget.charge(|| name);
            }
        }
    }

    /// Old pods that the partition keeps are waited for by nobody, and that is said.
    fn say_what_the_partition_keeps(&mut self) {
        let spec = &self.view.set.spec;
        if spec.update == UpdateKind::OnDelete || spec.partition() == 0 {
            return;
        }
        let is_held_at_nothing = self.pass.is_held_at_nothing();
        // Also those that are at the update revision, and keep the claims of other templates than today's (STS-8.6), or smaller ones.
        let is_old = |slot: &&Slot| {
            let occupant = slot.occupant.as_ref();
            occupant.is_some_and(|o| !o.labels.is_updated || o.storage_differs || self.claims_lag(&o.pod))
        };
        let kept = if self.is_unordered() {
            let partition = usize::try_from(spec.partition()).unwrap_or(0);
            self.slots.iter().filter(is_old).count().min(partition)
        } else {
            self.slots[..self.window_start()].iter().filter(is_old).count()
        };
        if kept > 0 || is_held_at_nothing {
            self.pass
                .wait(self.view.set.name().to_owned(), WaitCause::Partition { kept }, None);
        }
    }
}
