//! Updates in place and hooks in decisions about a CloneSet, judged by what their controller saw (CS-14.2, CS-14.7, CS-14.8,
//! CS-16.3, CS-16.5 and CS-19).

use super::older::{full, revision_of};
use super::view::Clones;
use crate::defect::says;
use crate::in_place::{
    GATE, HOOK_GATE, awaits_restart, holds, is_in_grace, lacks, new_image, new_revision, new_state, notes_restart,
    state,
};
use crate::judge::view::leaves_for_a_reason;
use crate::judge::{Verdict, available_from, is_available, let_go, needs, overdue, require};
use flotilla_model::set::PodUpdatePolicy;
use flotilla_model::{Command, Decision, PodRecord, Report, Resource};
use serde_json::Value;

/// A patch of an active pod.
pub(super) struct Patch<'a> {
    pub(super) pod: &'a PodRecord,
    body: &'a Value,
    report: Report,
}

impl Patch<'_> {
    /// It asks for the pod to be made again.
    fn marks(&self) -> bool {
        self.report == Report::ReCreate
    }

    /// It begins the pod's update, or prepares it for that.
    pub(super) fn begins(&self) -> bool {
        self.marks() || new_revision(self.body).is_some() || new_state(self.body) == Some("PreparingUpdate")
    }

    /// It prepares the pod for its deletion.
    pub(super) fn prepares_deletion(&self) -> bool {
        new_state(self.body) == Some("PreparingDelete")
    }

    /// A pod that was to be deleted is wanted again.
    pub(super) fn takes_back(&self) -> bool {
        state(self.pod) == "PreparingDelete" && new_state(self.body).is_some_and(|state| state != "PreparingDelete")
    }

    /// It costs the pod its availability. A pod in its grace period that serves, which it should not, leaves service again.
    pub(super) fn takes_down(&self) -> bool {
        let leaves = says(self.body, GATE, "False") || says(self.body, HOOK_GATE, "False");
        let prepares = matches!(new_state(self.body), Some("PreparingUpdate" | "PreparingDelete"));
        let goes = leaves || prepares || notes_restart(self.body) || new_image(self.body).is_some();
        goes && !is_in_grace(self.pod) && !awaits_restart(self.pod)
    }
}

impl Clones<'_> {
    /// Patches of active pods.
    pub(super) fn patches<'b>(&'b self, decision: &'b Decision) -> impl Iterator<Item = Patch<'b>> {
        decision.commands().filter_map(|scoped| match &scoped.command {
            Command::Patch {
                resource: Resource::Pods,
                key,
                body,
                report,
                ..
            } => {
                let pod = self.active.iter().find(|pod| pod.meta.key == *key)?;
                let report = *report;
                Some(Patch { pod, body, report })
            }
            _ => None,
        })
    }

    /// May count as available for others: whoever is not sure to be unavailable (STS-8.18 and CS-13.3).
    pub(super) fn seems_available(&self, pod: &PodRecord) -> bool {
        let gate = pod.detail.as_ref().and_then(|d| d.in_place_ready.as_ref());
        gate.is_none_or(|gate| gate.is_true) && is_available(pod, self.sight.set, self.sight.now)
    }

    /// May serve, whether or not it has for long enough to be available.
    pub(super) fn serves(&self, pod: &PodRecord) -> bool {
        let gate = pod.detail.as_ref().and_then(|d| d.in_place_ready.as_ref());
        gate.is_none_or(|gate| gate.is_true) && available_from(pod, self.sight.set).is_some()
    }

    /// Serves: not one whose hook keeps it from service, as below.
    pub(super) fn surely_serves(&self, pod: &PodRecord) -> bool {
        let hook = self.sight.set.spec.lifecycle.in_place_update.as_ref();
        self.serves(pod) && (state(pod) == "Normal" || !lacks(hook, pod))
    }

    /// Is available: not one whose update is over, and whose hook keeps it from service until its markers are back (CS-19.4).
    pub(super) fn is_surely_available(&self, pod: &PodRecord) -> bool {
        let hook = self.sight.set.spec.lifecycle.in_place_update.as_ref();
        self.seems_available(pod) && (state(pod) == "Normal" || !lacks(hook, pod))
    }

    /// Whether a pod comes to where it is brought without being made again (STS-4.1 and CS-16.5).
    pub(super) fn can_go_in_place(&self, pod: &PodRecord) -> bool {
        let target = self.target().filter(|_| self.back > 0);
        !self.sight.is_made_again_for_claims(pod, self.target()) && self.sight.can_go_in_place(pod, target)
    }

    /// All of it.
    pub(super) fn courses(&self, decision: &Decision) -> Verdict {
        for patch in self.patches(decision) {
            self.update(&patch)?;
            needs::stays_in_its_state(self.sight.set, patch.pod, patch.body)?;
            let_go::comes_back_with_its_markers(self.sight.set, patch.pod, patch.body)?;
        }
        self.sight.lets_go_while_paused(decision)?;
        leaves_for_a_reason(self.sight, decision)?;
        self.taken_back(decision)?;
        self.update_waits_for_scaling(decision)
    }

    /// STS-4.2, CS-16.3 and CS-16.5: whom nobody holds, in place where that can be done, and under InPlaceOnly in no other way.
    fn update(&self, patch: &Patch<'_>) -> Verdict {
        let (pod, spec) = (patch.pod, &self.sight.set.spec);
        let name = pod.name();
        if !patch.begins() {
            return Ok(());
        }
        let policy = spec.pod_update_policy();
        require(
            !(patch.marks() && policy == PodUpdatePolicy::InPlaceOnly),
            "CS-16.5 InPlaceOnly",
            || format!("{name} is to be made again"),
        )?;
        // One that is overdue is made again whatever it was on its way to (STS-8.12).
        let is_late = overdue::may_be_made_again(pod, self.sight.set, self.sight.now);
        let is_due = patch.marks() && self.can_go_in_place(pod) && !self.is_in_vain(pod) && !is_late;
        require(!is_due, "CS-16.5 in place", || {
            format!("{name} is to be made again, and could be updated in place")
        })?;
        require(!is_in_grace(pod), "CS-16.3 candidates", || {
            format!("{name} is updated in its grace period")
        })?;
        let revision = new_revision(patch.body).map(full);
        require(
            revision.is_none() || revision.as_deref() == self.target(),
            "STS-4.3 revision",
            || format!("{name} is changed to {revision:?}, and not to {:?}", self.target()),
        )?;
        let is_changed = revision.is_some();
        // Where it is on its way already, it goes on with that.
        let keeps_claims =
            is_changed && state(pod) == "Normal" && self.sight.is_made_again_for_claims(pod, self.target());
        require(!keeps_claims, "CS-15.6 claim templates", || {
            format!("{name} is updated in place, and is to be made again for its claims")
        })?;
        let is_held = state(pod) != "Updating" && holds(spec.lifecycle.in_place_update.as_ref(), pod);
        require(!(is_changed && is_held), "STS-4.2 hooks", || {
            format!("{name} is updated while its users hold it, in state {}", state(pod))
        })
    }

    /// Whether the API server has refused the resources of the very revision to which a pod is brought. To another it may go.
    fn is_in_vain(&self, pod: &PodRecord) -> bool {
        revision_of(pod).as_deref() == self.target() && self.is_given_up(pod)
    }

    /// CS-14.2: only who is lacking, whom nobody asked to be deleted, and where no hook takes pods out of service.
    fn taken_back(&self, decision: &Decision) -> Verdict {
        let hooks = &self.sight.set.spec.lifecycle;
        let marks = [&hooks.pre_delete, &hooks.in_place_update];
        let marks = marks.into_iter().flatten().any(|hook| hook.mark_not_ready);
        let mut back = 0;
        for patch in self.patches(decision).filter(Patch::takes_back) {
            let name = patch.pod.name();
            require(!self.is_asked_for_by_users(patch.pod), "CS-14.2 taking back", || {
                format!("{name} is taken back, and users have asked for its deletion")
            })?;
            require(!marks, "CS-14.2 taking back", || {
                format!("{name} is taken back, and a hook takes pods out of service")
            })?;
            back += 1;
        }
        let staying = self.active.iter().filter(|pod| self.is_plain_replica(pod)).count();
        let replicas = usize::try_from(self.sight.set.spec.replicas).unwrap_or(0);
        require(back == 0 || staying + back <= replicas, "CS-14.2 taking back", || {
            format!("{back} pods are taken back beside {staying}, of {replicas}")
        })
    }

    /// CS-14.8: a pass that makes or deletes pods updates none.
    fn update_waits_for_scaling(&self, decision: &Decision) -> Verdict {
        let is_of_active = |name: &str| self.active.iter().any(|pod| pod.name() == name);
        let scales = decision.commands().find(|scoped| match &scoped.command {
            Command::Create { resource, .. } => *resource == Resource::Pods,
            Command::Delete { resource, key, .. } => *resource == Resource::Pods && is_of_active(&key.name),
            _ => false,
        });
        let scales = scales.map(|scoped| scoped.command.key().name.to_string());
        let mut patches = self.patches(decision);
        let moved = patches.find(|patch| patch.prepares_deletion() || patch.takes_back());
        let scaled = scales.or_else(|| moved.map(|patch| patch.pod.name().to_owned()));
        let updated = self.patches(decision).find(Patch::begins);
        let (Some(scaled), Some(updated)) = (scaled, updated) else {
            return Ok(());
        };
        let updated = updated.pod.name();
        require(false, "CS-14.8 update after scaling", || {
            format!("{updated} is updated while {scaled} is made or deleted")
        })
    }

    /// CS-14.7: whom a hook holds is not deleted.
    pub(super) fn is_released(&self, pod: &PodRecord) -> Verdict {
        let hook = self.sight.set.spec.lifecycle.pre_delete.as_ref();
        require(pod.is_terminal() || !holds(hook, pod), "CS-14.7 hooks", || {
            format!("{} is deleted while its users hold it", pod.name())
        })
    }

    /// Neither on its way out nor asked to be deleted.
    pub(super) fn is_plain(&self, pod: &PodRecord) -> bool {
        !self.is_asked_for(pod) && !Self::is_leaving(pod)
    }
}
