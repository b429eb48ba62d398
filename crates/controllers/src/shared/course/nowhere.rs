//! Updates in place that lead nowhere (STS-4.6 and STS-8.12, R-37): the pod is made again, where the policy lets it be; else that is told,
//! and it stays.

use super::Trouble;
use crate::shared::conditions;
use crate::shared::inplace::complete::Missing;
use crate::shared::inplace::progress::{Progress, Stage};
use crate::shared::inplace::state::State as InPlaceState;
use crate::shared::occupant::{Abandoned, Occupant};
use crate::shared::pass::Pass;
use crate::shared::renewal::{ONLY_OUT_OF_SERVICE, lacks_update_gate};
use flotilla_model::decision::{Report, Scope};
use flotilla_model::set::PodUpdatePolicy;
use flotilla_model::{Failure, PodRecord, Timestamp, WaitCause};

/// Why a pod that its node is too small for is made again.
const NO_ROOM: &str = "its node cannot give it its resources";

/// Why an update in place leads nowhere.
enum Nowhere {
    /// Nobody knows what the pod lacks.
    Unknown(String),
    /// It has been told.
    Told(String),
    /// It has not.
    Untold(String),
}

/// Whether a pod's new resources are noted, asked for, and not written down.
fn awaits_resize(occupant: &Occupant) -> bool {
    let state = occupant.progress.as_ref().and_then(|progress| progress.state.as_ref());
    state.is_some_and(InPlaceState::awaits_resize)
}

/// Whether the API server has refused new resources such that a pod that is made again may have what this one cannot get. A quota that is
/// used up is another matter: it would refuse a pod that is made again as well, and has room again some day.
fn is_refused_to_this_pod(failure: &Failure) -> bool {
    let is_resize = failure.attempt == Report::InPlace;
    failure.reason == Failure::NODE_TOO_SMALL
        || is_resize && [Failure::INVALID, Failure::FORBIDDEN].contains(&&*failure.reason)
}

impl Pass<'_> {
    /// Before the update: whether a pod whose update in place leads nowhere has to be made again, where that is allowed.
    pub(crate) fn judge(&mut self, scope: &Scope, occupant: &mut Occupant) {
        if occupant.is_restless {
            let reason = self.leads_nowhere(occupant);
            self.give_up(occupant, reason);
        }
        self.judge_refused_resize(scope, occupant);
        if self.has_to_be_made_again(occupant) {
            self.given_up.insert(scope.clone());
        }
    }

    /// Why a pod's update in place leads nowhere, if it does.
    fn leads_nowhere(&mut self, occupant: &Occupant) -> Option<Nowhere> {
        let progress = occupant.progress.as_ref()?;
        let pod = &occupant.pod;
        let lacks_gate = || lacks_update_gate(pod.detail.as_deref());
        match &progress.stage {
            Stage::Lost(error) => Some(Nowhere::Unknown(format!(
                "what its grace period was for cannot be read: {error}"
            ))),
            Stage::Missing(Missing::Infeasible(message)) => {
                self.tell_infeasible(pod, message);
                // It stays where the policy does not let it be made again, and does not end either.
                self.is_overdue(pod, progress);
                Some(Nowhere::Told(NO_ROOM.to_owned()))
            }
            Stage::Missing(Missing::Environment(container)) if lacks_gate() => Some(Nowhere::Untold(format!(
                "the environment of container {container} {ONLY_OUT_OF_SERVICE}"
            ))),
            stage => {
                let is_overdue = self.is_overdue(pod, progress);
                if let Stage::Missing(Missing::Resize(message, put_off)) = stage {
                    let since = put_off.or(progress.state.as_ref().map(InPlaceState::last_change));
                    self.tell_deferred(pod, message, since);
                }
                is_overdue.then(|| Nowhere::Told("its update in place does not end".to_owned()))
            }
        }
    }

    /// Whether the policy lets a pod be made again that cannot be changed in place.
    fn may_make_again(&self) -> bool {
        self.moment.set.spec.pod_update_policy() != PodUpdatePolicy::InPlaceOnly
    }

    /// Whether an update in place was given up, and that is for the revision to which its pod is to go, or for any. To another revision it
    /// may go in place (STS-4.2): that may ask for less, and a pod that serves goes for nothing else.
    pub(crate) fn has_to_be_made_again(&self, occupant: &Occupant) -> bool {
        let given_up = occupant.abandoned.as_ref();
        given_up.is_some_and(|given_up| self.is_in_vain(given_up, occupant.labels.is_updated))
    }

    /// The same of a pod that is at the update revision, or is not.
    pub(super) fn is_in_vain(&self, given_up: &Abandoned, is_updated: bool) -> bool {
        // Where pods go back (CS-13.5), the others are where they are to be.
        let goes_back = self.target.meta.uid != self.update.meta.uid;
        given_up.is_for_good || is_updated != goes_back
    }

    /// A pod whose update leads nowhere is made again, where the policy lets it be; else that is told, and it stays.
    fn give_up(&mut self, occupant: &mut Occupant, why: Option<Nowhere>) {
        let may = self.may_make_again();
        match why {
            Some(Nowhere::Told(reason)) if may => {
                let is_for_good = false;
                occupant.abandoned = Some(Abandoned { reason, is_for_good });
            }
            Some(Nowhere::Unknown(reason) | Nowhere::Untold(reason)) if may => {
                let is_for_good = true;
                occupant.abandoned = Some(Abandoned { reason, is_for_good });
            }
            None | Some(Nowhere::Told(_)) => {}
            Some(Nowhere::Untold(reason)) => self.bar(&occupant.pod, reason),
            Some(Nowhere::Unknown(reason)) => {
                // Neither does another revision know what it lacks.
                occupant.is_stuck = true;
                self.bar(&occupant.pod, reason);
            }
        }
    }

    /// The API server may know already that a node cannot give what a pod should get, or may not be changed to it, and refuse to write it
    /// down: the same as if the kubelet had found out (STS-4.6).
    fn judge_refused_resize(&mut self, scope: &Scope, occupant: &mut Occupant) {
        let failure = self.hints.failures.get(scope);
        let Some(failure) = failure.filter(|f| is_refused_to_this_pod(f)).cloned() else {
            return;
        };
        // Whoever is to go to yet another revision asks for what that says, which may be less.
        let is_concerned = awaits_resize(occupant)
            && occupant.labels.is_updated
            && occupant.abandoned.is_none()
            && occupant.is_replaceable();
        if !is_concerned || !self.may_update_in_place() {
            return;
        }
        if occupant.pod.meta.created > failure.since {
            // Another pod, which may be on another node.
            self.hints.failures.remove(scope);
            return;
        }
        let is_for_good = failure.reason == Failure::NODE_TOO_SMALL;
        if !is_for_good && !self.may_make_again() {
            if failure.retry_at <= self.moment.now {
                // A policy, or somebody's webhook, may have changed its mind, and nobody would tell us.
                return;
            }
            self.wake_within(failure.retry_at.since(self.moment.now));
        }
        // Remembered for as long as it stands: forgotten, it would be tried again.
        self.held_back.insert(scope.clone());
        let reason = if is_for_good {
            self.tell_infeasible(&occupant.pod, &failure.message);
            NO_ROOM.to_owned()
        } else {
            // Condition and event tell it as every refusal.
            let reason = format!("the API server refuses its new resources: {}", failure.message);
            let subject = occupant.pod.name().to_owned();
            self.wait(subject, WaitCause::InPlaceNotPossible { reason: reason.clone() }, None);
            reason
        };
        self.give_up(occupant, Some(Nowhere::Told(reason)));
        occupant.is_stuck = occupant.abandoned.is_none();
    }

    fn tell_infeasible(&mut self, pod: &PodRecord, message: &str) {
        let text = format!("{}: resize infeasible: {message}", pod.name());
        self.event_once(true, "FailedUpdatePodInPlace", text.clone());
        self.troubles.push(Trouble {
            condition: conditions::failed_update(self.moment.set.kind),
            reason: "ResizeInfeasible",
            message: text,
        });
        let message = message.to_owned();
        self.wait(pod.name().to_owned(), WaitCause::ResizeInfeasible { message }, None);
    }

    /// A change of resources that the kubelet has put off for long is reported, also where the pod is about to go on to another revision. What is
    /// being carried out, or has not been looked at yet, is not put off.
    fn tell_deferred(&mut self, pod: &PodRecord, message: &str, since: Option<Timestamp>) {
        let is_put_off = pod
            .detail
            .as_ref()
            .is_some_and(|detail| detail.resize_pending.is_some());
        let Some(since) = since.filter(|_| is_put_off) else {
            return;
        };
        if !self.is_late(since, self.moment.set.spec.switches.resize_wait) {
            return;
        }
        self.troubles.push(Trouble {
            condition: conditions::STUCK,
            reason: "ResizeDeferred",
            message: format!("{}: resize put off: {message}", pod.name()),
        });
    }

    /// Whether an update has passed its deadline and is to be given up; that it has passed is told in any case.
    fn is_overdue(&mut self, pod: &PodRecord, progress: &Progress) -> bool {
        let switches = &self.moment.set.spec.switches;
        let (deadline, recreates) = (switches.in_place_deadline, switches.deadline_recreates);
        let (Some(deadline), Some(state)) = (deadline, &progress.state) else {
            return false;
        };
        if !matches!(progress.stage, Stage::Missing(_) | Stage::NextBatch(_)) {
            return false;
        }
        if !self.is_late(state.updated_at, deadline) {
            return false;
        }
        self.troubles.push(Trouble {
            condition: conditions::STUCK,
            reason: "DeadlineExceeded",
            message: format!("{}: not complete {} s after it began", pod.name(), deadline.as_secs()),
        });
        recreates
    }
}
