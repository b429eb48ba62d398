//! The update of one pod: in place where policy and change allow it, or made again (STS-4.2 and STS-4.3).

use crate::shared::conditions;
use crate::shared::course::{Held, Trouble};
use crate::shared::inplace::apply::{Target, Writes};
use crate::shared::inplace::grace::Grace;
use crate::shared::inplace::state::State as InPlaceState;
use crate::shared::inplace::{UpdateSpec, eligible, overlay};
use crate::shared::lifecycle::{self, State, since_state};
use crate::shared::occupant::{Occupant, of_what_was_seen};
use crate::shared::origin;
use crate::shared::pass::Pass;
use crate::shared::readiness::{self, Leaving, PRE_UPDATE};
use crate::shared::revision;
use flotilla_api::names;
use flotilla_model::decision::{Scope, ScopedCommand};
use flotilla_model::records::PodDetail;
use flotilla_model::set::{PodUpdatePolicy, UpdateKind};
use flotilla_model::template::without_resources;
use flotilla_model::{PodRecord, SetKind, SetRecord, Uid, WaitCause};
use serde_json::{Value, json};
use std::time::Duration;

/// Which two revisions are compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Compared {
    /// The pod's, by whatever its label says.
    from: Uid,
    /// The target.
    to: Uid,
    /// Resources are left out.
    keeps_resources: bool,
}

/// How an old pod comes to the update revision.
pub(crate) enum Way {
    /// It is made again.
    Recreate,
    /// It is changed.
    InPlace(UpdateSpec),
    /// It would have to be made again, and may not.
    Barred(String),
    /// It stays as it is, and it has been told why.
    Stays,
}

/// Why environment from metadata does not change in place everywhere: the agent restarts no container that serves (CS-16.7).
pub(crate) const ONLY_OUT_OF_SERVICE: &str =
    "changes only out of service, for which it lacks readiness gate InPlaceUpdateReady";

/// Whether a pod cannot leave service for an update.
pub(crate) fn lacks_update_gate(detail: Option<&PodDetail>) -> bool {
    detail.is_none_or(|detail| !detail.spec.has_gate(names::IN_PLACE_UPDATE_READY))
}

/// Whether pods of a set are changed in place at all.
pub(crate) fn may_update_in_place(set: &SetRecord) -> bool {
    let policy = set.spec.pod_update_policy();
    set.kind != SetKind::Native && set.spec.update == UpdateKind::RollingUpdate && policy != PodUpdatePolicy::ReCreate
}

impl Pass<'_> {
    /// Says that a pod has to be made again to come to the update revision, and may not.
    pub(crate) fn bar(&mut self, pod: &PodRecord, reason: String) {
        let text = format!("{}: {reason}", pod.name());
        self.event_once(true, "FailedUpdatePodInPlace", text.clone());
        self.troubles.push(Trouble {
            condition: conditions::failed_update(self.moment.set.kind),
            reason: "InPlaceNotPossible",
            message: text,
        });
        self.wait(pod.name().to_owned(), WaitCause::InPlaceNotPossible { reason }, None);
    }

    /// Whether the change of a pod takes it out of nothing: resources without a restart, or nothing at all (STS-8.18).
    pub(crate) fn is_gentle(&mut self, occupant: &Occupant) -> bool {
        let (pod, detail) = (occupant.pod.clone(), occupant.pod.detail.clone());
        if !self.may_update_in_place() || !State::of(&pod).is_normal() {
            return false;
        }
        let hook = self.moment.set.spec.lifecycle.in_place_update.as_ref();
        if !lifecycle::held_by(hook, &pod).is_empty() {
            return false;
        }
        let keep_ready = &self.moment.set.spec.switches.keep_ready;
        match (self.way(occupant), detail) {
            (Way::InPlace(spec), Some(detail)) => !spec.restarts(&detail) && !spec.leaves_service(&detail, keep_ready),
            _ => false,
        }
    }

    /// Whether an update in place takes a pod out of service that serves.
    pub(crate) fn takes_out_of_service(&mut self, occupant: &Occupant) -> bool {
        occupant.health.is_available() && !self.is_gentle(occupant)
    }

    pub(crate) fn may_update_in_place(&self) -> bool {
        may_update_in_place(self.moment.set)
    }

    /// How a pod comes to the target of the update.
    pub(crate) fn way(&mut self, occupant: &Occupant) -> Way {
        if !self.may_update_in_place() || self.has_to_be_made_again(occupant) {
            return Way::Recreate;
        }
        if occupant.is_stuck {
            return Way::Stays;
        }
        let pod = occupant.pod.clone();
        let compared = match (&pod.detail, occupant.storage_differs) {
            (_, true) => Err("its volumes differ from the claim templates".to_owned()),
            (None, _) => Err("nothing is known of its containers".to_owned()),
            (Some(detail), _) => self.change_of(occupant, detail),
        };
        match compared {
            Ok(spec) => Way::InPlace(spec),
            Err(reason) if self.moment.set.spec.pod_update_policy() == PodUpdatePolicy::InPlaceOnly => {
                Way::Barred(reason)
            }
            Err(_) => Way::Recreate,
        }
    }

    /// What a pod lacks to be at the update revision: the difference of the two templates, and what an earlier update left to do.
    fn change_of(&mut self, occupant: &Occupant, detail: &PodDetail) -> Result<UpdateSpec, String> {
        let pod = &occupant.pod;
        let selectors = &self.moment.set.spec.special_pods;
        let is_special = selectors.iter().any(|s| s.matches(|key| pod.label(key)));
        let mut spec = self.difference(pod.revision().unwrap_or_default(), is_special)?;
        if let Some(left) = occupant.progress.as_ref().and_then(|p| p.left_to_do()) {
            spec.take_over(&left);
        }
        spec.leave_out_what_is_there(detail);
        if spec.changes_environment() && lacks_update_gate(Some(detail)) {
            return Err(format!("its environment {ONLY_OUT_OF_SERVICE}"));
        }
        if is_special {
            // Also what was to come before it was special.
            spec.changes.resources.clear();
        }
        Ok(spec)
    }

    /// The difference of a revision to the target; worked out once a pass. A special pod keeps its own resources: whether they
    /// could change in place, too, is nothing to it.
    fn difference(&mut self, revision: &str, keeps_resources: bool) -> Result<UpdateSpec, String> {
        let set = self.moment.set;
        let found = origin::named_by(set, &self.revisions.names, revision);
        let found = found.or_else(|| origin::named_by(set, &self.revisions.former_names, revision));
        let Some((from, old)) = found.and_then(|r| Some((r.meta.uid.clone(), r.template.as_ref()?))) else {
            return Err(format!("its revision {revision} does not exist any more"));
        };
        let key = Compared {
            from,
            to: self.target.meta.uid.clone(),
            keeps_resources,
        };
        if let Some(known) = self.differences.get(&key) {
            return known.clone();
        }
        let old = old.tree();
        let new = self
            .target
            .template
            .as_ref()
            .unwrap_or(&self.moment.set.spec.template)
            .tree();
        let difference = if keeps_resources {
            let bare = |template: &Value| without_resources(template.clone());
            eligible::compare(set.kind, &bare(&old), &bare(&new))
        } else {
            eligible::compare(set.kind, &old, &new)
        };
        self.differences.insert(key, difference.clone());
        difference
    }

    /// By lifecycle state (STS-4.2).
    pub(crate) fn update_in_place(&mut self, scope: &Scope, occupant: &mut Occupant, spec: &UpdateSpec) -> bool {
        let pod = occupant.pod.clone();
        let hook = self.moment.set.spec.lifecycle.in_place_update.clone();
        let held = lifecycle::held_by(hook.as_ref(), &pod);
        let marks = hook.as_ref().is_some_and(|h| h.mark_not_ready);
        let only_as_seen = !occupant.health.is_available();
        let prepare = |metadata| Held {
            pod: &pod,
            only_as_seen,
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
        occupant.is_dealt_with = true;
        if self.is_backing_off(scope, pod.name()) {
            return false;
        }
        match state {
            State::Updated => {
                let markers = hook.as_ref().map_or_else(|| json!({}), lifecycle::markers_patch);
                self.hold(scope, prepare(markers));
            }
            State::Unset | State::Normal | State::PreparingNormal if !held.is_empty() => {
                self.hold(scope, prepare(json!({})));
            }
            State::PreparingUpdate if !held.is_empty() => {
                let since = pod.detail.as_ref().and_then(|d| since_state(d));
                self.hold(scope, prepare(json!({})));
                let cause = lifecycle::hold_of("inPlaceUpdate", hook.as_ref(), &pod);
                self.wait(pod.name().to_owned(), cause, since);
            }
            _ => self.begin_update(scope, occupant, spec),
        }
        true
    }

    /// Whether a pod whose update takes it out of service goes on serving while its resources change: they may be refused.
    fn stays_at_first(
        &self,
        occupant: &Occupant,
        spec: &UpdateSpec,
        carried: &InPlaceState,
        detail: &PodDetail,
    ) -> bool {
        let settings = &self.moment.set.spec;
        let has_grace = settings.rolling.as_ref().is_some_and(|r| !r.in_place_grace.is_zero());
        // Who is down may have come up since, and nobody would have paid for it.
        if !occupant.health.is_available() || has_grace || !self.moment.supports_resize {
            return false;
        }
        let first = spec.first_step(detail, carried);
        !first.leaves_service(detail, &settings.switches.keep_ready)
    }

    /// The writes of an update (STS-4.3): out of service, then the pod.
    fn begin_update(&mut self, scope: &Scope, occupant: &Occupant, spec: &UpdateSpec) {
        let pod = &occupant.pod;
        let Some(detail) = pod.detail.clone() else { return };
        let moment = self.moment;
        let settings = &moment.set.spec;
        // The first write uses the budget, or, where the pod seemed unavailable, it does not: so that holds only as it was seen.
        let is_available = occupant.health.is_available();
        let period = settings.rolling.as_ref().map_or(Duration::ZERO, |r| r.in_place_grace);
        let leaves_in_the_end = spec.leaves_service(&detail, &settings.switches.keep_ready);
        let carried = occupant.progress.as_ref().map(|p| p.carried_on(&detail));
        let carried = carried.unwrap_or_default();
        let leaves = leaves_in_the_end && !self.stays_at_first(occupant, spec, &carried, &detail);
        let as_seen = |command| {
            if is_available {
                command
            } else {
                of_what_was_seen(pod, command)
            }
        };
        let leaving = Leaving::Update(self.target.name());
        let exit = leaves.then(|| readiness::take_out(pod, &detail, leaving, moment.now));
        let exit = exit.flatten();
        let goes_out_first = exit.is_some();
        if let Some(command) = exit {
            let (scope, command) = (scope.clone(), as_seen(command));
            self.stages.unready.push(ScopedCommand { scope, command });
            if detail.in_place_ready.is_none() {
                // What follows tests that the gate is closed, which it cannot do of a condition that nobody has seen.
                return;
            }
        }
        let target = Target {
            pod,
            detail: &detail,
            now: moment.now,
            supports_resize: moment.supports_resize,
            is_out_of_service: leaves,
        };
        let (revision, labels) = revision::labels(moment.set.kind, &self.target);
        let state = InPlaceState {
            revision: revision.clone(),
            updated_at: moment.now,
            kept_ready: !leaves_in_the_end && spec.restarts(&detail),
            ..carried
        };
        let mut metadata = json!({"labels": labels});
        if let Some(state) = lifecycle::while_updating(&settings.lifecycle, pod) {
            overlay(&mut metadata, &lifecycle::patch(state, pod, moment.now));
        }
        // Who stays in service has nothing to wait for.
        let writes = if period.is_zero() || !leaves {
            target.begin(state, spec, metadata)
        } else {
            self.wake_within(period);
            let grace = Grace {
                revision,
                spec: spec.clone(),
                period,
                ..Grace::default()
            };
            target.begin_later(state, &grace, metadata)
        };
        let writes = if spec.restarts(&detail) && !goes_out_first {
            let pod = writes.pod.map(as_seen);
            Writes { pod, ..writes }
        } else {
            writes
        };
        self.write(scope, writes);
    }
}
