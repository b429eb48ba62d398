//! Defects of CloneSets' hooks, and of pods that are updated in place.

use super::CloneDefect;
use crate::clones::{LIFECYCLE_STATE, SPECIFIED_DELETE};
use crate::defect::empty;
use crate::defect::plant;
use crate::in_place::{GATE, HOOK_GATE, is_in_service, new_state, state};
use flotilla_model::decision::{Body, Command, PatchKind, Report, Scope, ScopedCommand};
use flotilla_model::set::{CloneSpec, PodUpdatePolicy, SetSpec};
use flotilla_model::{Decision, PodRecord, Reader, Resource, SetRecord, Share};
use serde_json::{Value, json};
use std::sync::Arc;

/// What a controller with such a defect sees of the set.
pub(super) fn alter(defect: CloneDefect, spec: &mut SetSpec, clones: &mut CloneSpec, pods: &[Arc<PodRecord>]) {
    let policy = spec.pod_update_policy();
    match defect {
        CloneDefect::SurgeForNothing => clones.switches.surge_in_place = true,
        CloneDefect::LeavingDoNotCount => clones.excludes_preparing_delete = true,
        CloneDefect::NoPreNormalHook => spec.lifecycle.pre_normal = None,
        CloneDefect::NoUpdateHook => empty(&mut spec.lifecycle.in_place_update),
        CloneDefect::ForgetInFlight => {
            let in_flight = pods
                .iter()
                .filter(|pod| pod.detail.is_some() && (!is_in_service(pod) || state(pod) == "PreparingUpdate"));
            let in_flight = i32::try_from(in_flight.count()).unwrap_or(0);
            clones.max_unavailable = Share::Int(clones.max_unavailable.ceil_of(spec.replicas) + in_flight);
        }
        CloneDefect::RecreateAnyway if policy == PodUpdatePolicy::InPlaceIfPossible => recreate(spec),
        CloneDefect::InPlaceOnlyRecreates if policy == PodUpdatePolicy::InPlaceOnly => recreate(spec),
        _ => {}
    }
}

fn recreate(spec: &mut SetSpec) {
    if let Some(rolling) = &mut spec.rolling {
        rolling.pod_update_policy = PodUpdatePolicy::ReCreate;
    }
}

/// What such a defect makes of a decision.
pub(super) fn spoil(defect: CloneDefect, decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    match defect {
        CloneDefect::HooksPassNamed => pass_hooks(decision, reader, set),
        CloneDefect::SweepHeld => sweep_held(decision, reader),
        CloneDefect::TakeBackAnyway => take_back(decision, reader, set),
        CloneDefect::RecreateAnyway | CloneDefect::InPlaceOnlyRecreates => with_gates(decision, set),
        CloneDefect::PrepareAnyway => prepare_new(decision),
        // It waits, as the hook asks, and is let go at once.
        CloneDefect::NoPreNormalHook if set.spec.lifecycle.pre_normal.is_some() => prepare_new(decision),
        CloneDefect::UpdateWhileScaling => update_while_scaling(decision, reader, set),
        _ => {}
    }
}

/// New pods have the gates that the policy asks for, whatever the controller took it for.
fn with_gates(decision: &mut Decision, set: &SetRecord) {
    if set.spec.pod_update_policy() == PodUpdatePolicy::ReCreate {
        return;
    }
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        if let Command::Create {
            body: Body::Pod(draft), ..
        } = &mut scoped.command
        {
            // The gate of hooks is none of the policy's business.
            draft.gates = if draft.gates.contains(&HOOK_GATE) {
                &[GATE, HOOK_GATE]
            } else {
                &[GATE]
            };
        }
    }
}

/// New pods are in the state of those that wait for a hook.
fn prepare_new(decision: &mut Decision) {
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        if let Command::Create {
            body: Body::Pod(draft), ..
        } = &mut scoped.command
        {
            let states = draft.labels.iter_mut().filter(|(key, _)| *key == LIFECYCLE_STATE);
            states.for_each(|(_, state)| "PreparingNormal".clone_into(state));
        }
    }
}

/// The pod that a command prepares for its deletion.
fn prepared<'r>(command: &Command, reader: &'r dyn Reader) -> Option<&'r Arc<PodRecord>> {
    match command {
        Command::Patch {
            resource: Resource::Pods,
            key,
            body,
            ..
        } if new_state(body) == Some("PreparingDelete") => reader.pod(key),
        _ => None,
    }
}

fn is_asked_for(pod: &PodRecord, set: &SetRecord) -> bool {
    let named = set.spec.clones.iter().flat_map(|clones| &clones.pods_to_delete);
    pod.label(SPECIFIED_DELETE).is_some() || named.into_iter().any(|name| *name == *pod.name())
}

/// Pods that users have asked to be deleted go although their hook holds them.
fn pass_hooks(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        if let Some(pod) = prepared(&scoped.command, reader).filter(|pod| is_asked_for(pod, set)) {
            scoped.command = Command::Delete {
                resource: Resource::Pods,
                key: pod.meta.key.clone(),
                uid: pod.meta.uid.clone(),
                resource_version: Some(pod.meta.resource_version),
                report: Report::Delete,
            };
        }
    }
}

/// The claims of a pod go when it begins to wait for its hook.
fn sweep_held(decision: &mut Decision, reader: &dyn Reader) {
    let held = decision.commands().filter_map(|c| prepared(&c.command, reader));
    let claims = held.filter_map(|pod| reader.claim(&pod.meta.key.sibling(format!("data-{}", pod.name()))));
    let commands = claims.map(|claim| ScopedCommand {
        scope: Scope::Named(claim.meta.key.name.to_string()),
        command: Command::Delete {
            resource: Resource::Claims,
            key: claim.meta.key.clone(),
            uid: claim.meta.uid.clone(),
            resource_version: None,
            report: Report::Silent,
        },
    });
    let commands: Vec<ScopedCommand> = commands.collect();
    plant(decision, commands);
}

/// Pods that wait for their hook are taken back although it takes them out of service.
fn take_back(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let marks = set
        .spec
        .lifecycle
        .pre_delete
        .as_ref()
        .is_some_and(|hook| hook.mark_not_ready);
    let (leaving, staying): (Vec<&Arc<PodRecord>>, Vec<_>) = reader
        .pods_of(set.as_owner())
        .iter()
        .filter(|pod| !pod.is_terminal() && !pod.is_terminating())
        .partition(|pod| state(pod) == "PreparingDelete");
    let replicas = usize::try_from(set.spec.replicas).unwrap_or(0);
    let wanted = leaving.into_iter().filter(|pod| !is_asked_for(pod, set));
    let wanted = wanted.take(if marks {
        replicas.saturating_sub(staying.len())
    } else {
        0
    });
    let path = "/metadata/labels/lifecycle.apps.kruise.io~1state";
    let body = json!([{"op": "add", "path": path, "value": "PreparingNormal"}]);
    let commands = wanted.map(|pod| patch(pod, PatchKind::Json, body.clone(), Report::Silent));
    plant(decision, commands);
}

/// A pass that makes pods updates one, too.
fn update_while_scaling(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let makes =
        |c: &ScopedCommand| matches!(&c.command, Command::Create { resource, .. } if *resource == Resource::Pods);
    if !decision.commands().any(makes) {
        return;
    }
    let is_new = |pod: &PodRecord| {
        let revision = pod.revision().map(|name| set.meta.key.sibling(name));
        let digest = revision.and_then(|key| reader.revision(&key)).map(|r| r.digest);
        digest == Some(set.spec.template_digest)
    };
    let mut pods = reader.pods_of(set.as_owner()).iter();
    let old = pods.find(|pod| !pod.is_terminal() && !pod.is_terminating() && !is_new(pod));
    let body = json!({"metadata": {"labels": {SPECIFIED_DELETE: "true"}}});
    let commands = old.map(|pod| patch(pod, PatchKind::Merge, body, Report::ReCreate));
    plant(decision, commands);
}

fn patch(pod: &PodRecord, kind: PatchKind, body: Value, report: Report) -> ScopedCommand {
    ScopedCommand {
        scope: Scope::Named(pod.name().to_owned()),
        command: Command::Patch {
            resource: Resource::Pods,
            key: pod.meta.key.clone(),
            uid: pod.meta.uid.clone(),
            subresource: None,
            kind,
            body,
            resource_version: None,
            guard: None,
            report,
        },
    }
}
