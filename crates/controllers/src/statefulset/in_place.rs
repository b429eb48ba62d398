//! The update of one pod: in place where policy and change allow it, or made again (rules 4.2 and 4.3).

use super::course::{Held, Trouble, since_state};
use super::plan::Plan;
use crate::shared::inplace::apply::Target;
use crate::shared::inplace::grace::Grace;
use crate::shared::inplace::state::State as InPlaceState;
use crate::shared::inplace::{UpdateSpec, eligible, overlay};
use crate::shared::lifecycle::{self, State};
use crate::shared::readiness::{self, Leaving, PRE_UPDATE};
use flotilla_api::names;
use flotilla_model::decision::{Command, Report, Scope, ScopedCommand};
use flotilla_model::records::PodDetail;
use flotilla_model::set::{Area, PodUpdatePolicy, UpdateKind};
use flotilla_model::{PodRecord, WaitCause};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How an old pod comes to the update revision.
enum Way {
    /// It is made again.
    Recreate,
    /// It is changed.
    InPlace(UpdateSpec),
    /// It would have to be made again, and may not.
    Barred(String),
    /// It stays as it is, and it has been told why.
    Stays,
}

impl Plan<'_> {
    /// Brings the pod of a slot to the update revision. Whether anything was done that makes it unavailable.
    pub(super) fn renew(&mut self, index: usize) -> bool {
        match self.way(index) {
            Way::Recreate => self.delete_slot(index, Report::Delete),
            Way::InPlace(spec) => self.update_in_place(index, &spec),
            Way::Stays => false,
            Way::Barred(reason) => {
                let name = self.name(self.slots[index].ordinal);
                let text = format!("{name}: {reason}");
                self.event_once(true, "FailedUpdatePodInPlace", text.clone());
                self.troubles.push(Trouble {
                    condition: "FailedUpdatePod",
                    reason: "InPlaceNotPossible",
                    message: text,
                });
                self.wait(name, WaitCause::InPlaceNotPossible { reason }, None);
                false
            }
        }
    }

    /// Whether the change of a slot's pod takes it out of nothing: resources without a restart, or nothing at all (8.18).
    pub(super) fn is_gentle(&mut self, index: usize) -> bool {
        let Some(occupant) = &self.slots[index].occupant else {
            return false;
        };
        let (pod, detail) = (occupant.pod.clone(), occupant.pod.detail.clone());
        if !self.may_update_in_place() || !State::of(&pod).is_normal() {
            return false;
        }
        let hook = self.view.set.spec.lifecycle.in_place_update.as_ref();
        if !lifecycle::held_by(hook, &pod).is_empty() {
            return false;
        }
        let keep_ready = self.view.set.spec.switches.keep_ready.clone();
        match (self.way(index), detail) {
            (Way::InPlace(spec), Some(detail)) => !spec.restarts(&detail) && !spec.leaves_service(&detail, &keep_ready),
            _ => false,
        }
    }

    pub(super) fn may_update_in_place(&self) -> bool {
        let spec = &self.view.set.spec;
        let policy = spec.pod_update_policy();
        self.is_advanced() && spec.update == UpdateKind::RollingUpdate && policy != PodUpdatePolicy::ReCreate
    }

    fn way(&mut self, index: usize) -> Way {
        let Some(occupant) = &self.slots[index].occupant else {
            return Way::Recreate;
        };
        if !self.may_update_in_place() || occupant.abandoned.is_some() {
            return Way::Recreate;
        }
        if occupant.is_stuck {
            return Way::Stays;
        }
        let pod = occupant.pod.clone();
        let compared = match (&pod.detail, occupant.storage_differs) {
            (_, true) => Err("its volumes differ from the claim templates".to_owned()),
            (None, _) => Err("nothing is known of its containers".to_owned()),
            (Some(detail), _) => self.change_of(&pod, detail, index),
        };
        match compared {
            Ok(spec) => Way::InPlace(spec),
            Err(reason) if self.view.set.spec.pod_update_policy() == PodUpdatePolicy::InPlaceOnly => {
                Way::Barred(reason)
            }
            Err(_) => Way::Recreate,
        }
    }

    /// What a pod lacks to be at the update revision: the difference of the two templates, and what an earlier update left to do.
    fn change_of(&mut self, pod: &PodRecord, detail: &PodDetail, index: usize) -> Result<UpdateSpec, String> {
        let mut spec = self.difference(pod.revision().unwrap_or_default())?;
        let progress = self.slots[index].occupant.as_ref().and_then(|o| o.progress.as_ref());
        if let Some(left) = progress.and_then(|p| p.left_to_do()) {
            spec.take_over(&left);
        }
        spec.leave_out_what_is_there(detail);
        let selectors = &self.view.set.spec.special_pods;
        if selectors.iter().any(|s| s.matches(|key| pod.label(key))) {
            // A special pod keeps its own resources.
            spec.changes.resources.clear();
        }
        Ok(spec)
    }

    /// The difference of a revision to the update revision; worked out once a pass.
    fn difference(&mut self, revision: &str) -> Result<UpdateSpec, String> {
        if let Some(known) = self.differences.get(revision) {
            return known.clone();
        }
        let found = self.revisions.history.iter().find(|r| r.name() == revision);
        let old = found.and_then(|r| r.template.clone());
        let new = self
            .update
            .template
            .clone()
            .unwrap_or_else(|| self.view.set.spec.template.clone());
        let difference = match old {
            Some(old) => eligible::compare(&old, &new),
            None => Err(format!("its revision {revision} does not exist any more")),
        };
        self.differences.insert(revision.to_owned(), difference.clone());
        difference
    }

    /// By lifecycle state (rule 4.2).
    fn update_in_place(&mut self, index: usize, spec: &UpdateSpec) -> bool {
        let ordinal = self.slots[index].ordinal;
        let Some(pod) = self.slots[index].occupant.as_ref().map(|o| o.pod.clone()) else {
            return false;
        };
        let hook = self.view.set.spec.lifecycle.in_place_update.clone();
        let held = lifecycle::held_by(hook.as_ref(), &pod);
        let marks = hook.as_ref().is_some_and(|h| h.mark_not_ready);
        let prepare = |metadata| Held {
            pod: &pod,
            state: State::PreparingUpdate,
            key: PRE_UPDATE,
            marks,
            metadata,
        };
        let state = State::of(&pod);
        if matches!(state, State::PreparingDelete | State::Other) {
            // Not ours to update now; what becomes of it is decided elsewhere.
            return false;
        }
        self.deal_with(index);
        if self.is_backing_off(ordinal, pod.name()) {
            return false;
        }
        match state {
            State::Updated => {
                let markers = hook.as_ref().map_or_else(|| json!({}), lifecycle::markers_patch);
                self.hold(ordinal, prepare(markers));
            }
            State::Unset | State::Normal | State::PreparingNormal if !held.is_empty() => {
                self.hold(ordinal, prepare(json!({})));
            }
            State::PreparingUpdate if !held.is_empty() => {
                let since = pod.detail.as_ref().and_then(|d| since_state(d));
                self.hold(ordinal, prepare(json!({})));
                let cause = WaitCause::HookHolds {
                    hook: "inPlaceUpdate",
                    markers: held,
                };
                self.wait(pod.name().to_owned(), cause, since);
            }
            _ => self.begin_update(index, &pod, spec),
        }
        true
    }

    /// The writes of an update (rule 4.3): out of service, then the pod.
    fn begin_update(&mut self, index: usize, pod: &Arc<PodRecord>, spec: &UpdateSpec) {
        let Some(detail) = pod.detail.clone() else { return };
        let (view, ordinal) = (self.view, self.slots[index].ordinal);
        let settings = &view.set.spec;
        let leaves = spec.leaves_service(&detail, &settings.switches.keep_ready);
        let leaving = Leaving::Update(self.update.name());
        if leaves && let Some(command) = readiness::take_out(pod, &detail, leaving, view.now) {
            let (scope, command) = (Scope::Slot(ordinal), self.of_what_was_seen(index, command));
            self.stages.unready.push(ScopedCommand { scope, command });
        }
        let target = Target {
            pod,
            detail: &detail,
            now: view.now,
            supports_resize: view.supports_resize(),
            is_out_of_service: leaves,
        };
        let progress = self.slots[index].occupant.as_ref().and_then(|o| o.progress.as_ref());
        let state = InPlaceState {
            revision: self.update.name().to_owned(),
            updated_at: view.now,
            kept_ready: !leaves && spec.restarts(&detail),
            ..progress.map_or_else(InPlaceState::default, |p| p.carried_on(&detail))
        };
        let mut metadata = json!({"labels": {names::REVISION_LABEL: self.update.name()}});
        if !matches!(State::of(pod), State::Unset | State::Updating) {
            overlay(&mut metadata, &lifecycle::patch(State::Updating, &target.time()));
        }
        let period = settings.rolling.as_ref().map_or(Duration::ZERO, |r| r.in_place_grace);
        // Who stays in service has nothing to wait for.
        let writes = if period.is_zero() || !leaves {
            target.begin(state, spec, metadata)
        } else {
            self.wake_within(period);
            let grace = Grace {
                revision: self.update.name().to_owned(),
                spec: spec.clone(),
                period,
                ..Grace::default()
            };
            target.begin_later(state, &grace, metadata)
        };
        self.write(ordinal, writes);
    }

    /// A pod that is unavailable is taken without using the budget, which rests on what was seen: it may have come up since. So the first
    /// write of the update holds for that version only.
    pub(super) fn of_what_was_seen(&self, index: usize, mut command: Command) -> Command {
        let occupant = self.slots.get(index).and_then(|slot| slot.occupant.as_ref());
        if let (Some(occupant), Command::Patch { resource_version, .. }) = (occupant, &mut command)
            && !occupant.health.is_available()
        {
            *resource_version = Some(occupant.pod.meta.resource_version);
        }
        command
    }

    /// The pod of a slot has been dealt with in this pass.
    fn deal_with(&mut self, index: usize) {
        if let Some(occupant) = self.slots[index].occupant.as_mut() {
            occupant.is_dealt_with = true;
        }
    }

    /// Under OrderedReady, while something holds up the update: pods that it prepared, or that have to be made again, are unavailable
    /// already, and it goes on with them. They may be the very ones that hold it up.
    pub(super) fn resume(&mut self) {
        let spec = &self.view.set.spec;
        if !self.is_advanced()
            || spec.update != UpdateKind::RollingUpdate
            || spec.is_paused()
            || spec.is_stopped(Area::Update)
        {
            return;
        }
        for index in self.window_start()..self.slots.len() {
            let is_begun = self.slots[index].occupant.as_ref().is_some_and(|o| {
                let prepared = matches!(State::of(&o.pod), State::PreparingUpdate | State::PreparingDelete);
                o.is_old() && o.is_replaceable() && !o.health.is_available() && (prepared || o.abandoned.is_some())
            });
            if is_begun {
                self.renew(index);
            }
        }
    }
}
