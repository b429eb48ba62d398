//! Step *scale down*: pods that are not wanted go, the highest ordinal first (STS-2.3 steps 8 and 9, and STS-3.5 step 4).

use super::fill::Flow;
use super::plan::Plan;
use crate::shared::health::Health;
use crate::shared::lifecycle::{self, State};
use flotilla_model::decision::{Report, Scope};
use flotilla_model::set::Area;
use flotilla_model::{PodRecord, WaitCause};

impl Plan<'_> {
    /// Under OrderedReady one pod goes at a time, and only when those that stay are well; an unhealthy pod that is not wanted itself
    /// may go only if it is the lowest unhealthy one, or has ended. `flotilla.rs/scale-down: ignore-unhealthy` waits for nothing but higher pods.
    pub(super) fn scale_down(&mut self, flow: Flow) -> Flow {
        if self.condemned.is_empty() {
            return flow;
        }
        let spec = self.view.set.spec.clone();
        if spec.is_stopped(Area::ScaleDown) {
            return Flow::Blocked;
        }
        if !spec.is_monotonic() {
            for index in (0..self.condemned.len()).rev() {
                self.condemn(index);
            }
            return flow;
        }
        let heedless = spec.switches.scale_down_ignores_unhealthy;
        let highest = self.condemned.len() - 1;
        let occupant = &self.condemned[highest].1;
        let name = occupant.pod.name().to_owned();
        let is_going = matches!(occupant.health, Health::Terminating | Health::Ended) || is_preparing(&occupant.pod);
        let is_well = occupant.health.is_available() || is_going;
        let lowest = self.lowest_unhealthy();
        let behind_another = !is_well && lowest.as_deref() != Some(&name);
        if !heedless && (flow == Flow::Blocked || behind_another) {
            let pod = lowest.unwrap_or_default();
            self.wait_for_condemned(&pod);
            self.pass.wait(name, WaitCause::ScaleDownBehindUnhealthy { pod }, None);
            return Flow::Blocked;
        }
        self.condemn(highest);
        Flow::Blocked
    }

    /// Says what is wrong with a pod that is not wanted itself; wanted ones have been told of by the step *fill*.
    fn wait_for_condemned(&mut self, name: &str) {
        let found = self.condemned.iter().find(|(_, o)| o.pod.name() == name);
        if let Some((pod, health)) = found.map(|(_, o)| (o.pod.clone(), o.health)) {
            self.pass.wait_for(&pod, health);
        }
    }

    /// Deletes a pod that is not wanted, or waits for one on its way out.
    pub(super) fn condemn(&mut self, index: usize) {
        let (ordinal, occupant) = &mut self.condemned[index];
        let (ordinal, pod) = (*ordinal, occupant.pod.clone());
        self.in_turn.insert(ordinal);
        if pod.is_terminating() {
            self.pass.wait_for(&pod, Health::Terminating);
        } else if !self.pass.is_backing_off(&Scope::Slot(ordinal), pod.name()) {
            self.condemned[index].1.doomed = true;
            let is_deleted = self.pass.take_away(&Scope::Slot(ordinal), &pod, false, Report::Delete);
            if is_deleted {
                self.deleted.insert(ordinal);
            }
        }
    }

    /// Claims go with a pod that is not wanted where the policy says so, and only with one that scaling down takes away (STS-1.4.4): what
    /// others delete while its turn has not come leaves them, for the set may be scaled up again. The owner is written in the pass that
    /// deletes the pod, before it, and is taken back from a pod that stays after all.
    pub(super) fn tend_condemned_claims(&mut self) {
        let spec = &self.view.set.spec;
        if spec.is_stopped(Area::ScaleDown) {
            return;
        }
        let goes_with_pod = spec.retention.delete_with_pod;
        let hook = spec.lifecycle.pre_delete.clone();
        let hook = hook.as_ref();
        for index in 0..self.condemned.len() {
            let (ordinal, pod) = (self.condemned[index].0, self.condemned[index].1.pod.clone());
            let is_deleted = self.deleted.contains(&ordinal);
            // We would have deleted it by now: its turn has come, and its hook lets it go.
            let is_due = self.in_turn.contains(&ordinal) && lifecycle::held_by(hook, &pod).is_empty();
            if pod.is_terminating() && goes_with_pod && !is_due {
                // It may be one that scaling down took away before it was blocked.
                continue;
            }
            let takes_them_along = is_deleted || pod.is_terminating() && is_due;
            self.keep_claims_of(ordinal, &pod, takes_them_along);
        }
    }

    /// The lowest pod that is not available: among wanted ordinals first, then among the others. One of these that has ended will never
    /// be ready again; to wait for it would be to wait for ever.
    fn lowest_unhealthy(&self) -> Option<String> {
        let wanted = self
            .slots
            .iter()
            .find(|s| !s.is_available())
            .map(|s| self.name(s.ordinal));
        wanted.or_else(|| {
            self.condemned
                .iter()
                .find(|(_, o)| !o.health.is_available() && o.health != Health::Ended && !is_preparing(&o.pod))
                .map(|(_, o)| o.pod.name().to_owned())
        })
    }
}

/// Whether a pod is only waiting for its preDelete hook: that it is not healthy then holds nobody up (STS-8.4).
fn is_preparing(pod: &PodRecord) -> bool {
    State::of(pod) == State::PreparingDelete
}
