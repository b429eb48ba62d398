//! Defects in whose the claims of StatefulSets are.

use super::{Defect, delete, plant};
use crate::claim_templates::has_others;
use crate::judge::ordinal_in;
use flotilla_model::decision::{Command, PatchKind, Report, Scope, ScopedCommand};
use flotilla_model::{Decision, PodRecord, Reader, Resource, RevisionRecord, SetRecord, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;

/// What it makes of a decision.
pub(super) fn spoil(defect: Defect, decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    match defect {
        Defect::OwnEarly => own_early(decision, reader, set),
        Defect::LeaveClaims => {
            for stage in &mut decision.stages {
                stage.commands.retain(|c| !gives_to_pod(&c.command));
            }
        }
        Defect::KeepOwners => {
            let has_pod = |command: &Command| {
                let pod = command.key().name.split_once('-').map_or("", |(_, pod)| pod);
                reader.pod(&command.key().sibling(pod)).is_some()
            };
            for stage in &mut decision.stages {
                stage
                    .commands
                    .retain(|c| !leaves_all(&c.command) || has_pod(&c.command));
            }
        }
        _ => {}
    }
}

/// That claim templates come and go is forgotten: by pods, by the record, or by the status.
pub(super) fn forget_templates(defect: Defect, decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let has_to_go = |command: &Command| match command {
        Command::Delete {
            resource: Resource::Pods,
            key,
            ..
        } => {
            let is_wanted = ordinal_in(&key.name, set.name()).is_some_and(|o| set.spec.ordinals().contains(o));
            is_wanted && reader.pod(key).is_some_and(|pod| has_others(pod, set))
        }
        _ => false,
    };
    let records = |command: &Command| match command {
        Command::Patch {
            resource: Resource::Revisions,
            body,
            ..
        } => body
            .pointer("/metadata/annotations/flotilla.rs~1claim-templates")
            .is_some(),
        _ => false,
    };
    for stage in &mut decision.stages {
        stage.commands.retain(|c| match defect {
            Defect::KeepOtherClaims => !has_to_go(&c.command),
            Defect::RecordOnce => !records(&c.command),
            _ => true,
        });
    }
    decision.stages.retain(|stage| !stage.commands.is_empty());
    if defect == Defect::SilentLeftovers
        && let Some(fields) = decision.status.as_mut().and_then(|s| s.desired.as_object_mut())
    {
        fields.remove("unusedVolumeClaims");
    }
}

/// Revisions as a controller sees them that knows of old ones nothing of what was recorded of claim templates.
pub(crate) fn without_records(reader: &dyn Reader, set: &SetRecord) -> Vec<Arc<RevisionRecord>> {
    let all = reader.revisions_of(set.as_owner()).iter();
    let forgotten = all.map(|revision| {
        if revision.digest == set.spec.template_digest {
            return revision.clone();
        }
        let mut forgotten = (**revision).clone();
        forgotten.claim_templates = None;
        Arc::new(forgotten)
    });
    forgotten.collect()
}

/// Whether a patch takes all its owners off a claim.
fn leaves_all(command: &Command) -> bool {
    let Command::Patch {
        resource: Resource::Claims,
        body,
        ..
    } = command
    else {
        return false;
    };
    let owners = body.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.is_some_and(Vec::is_empty)
}

fn gives_to_pod(command: &Command) -> bool {
    let Command::Patch {
        resource: Resource::Claims,
        body,
        ..
    } = command
    else {
        return false;
    };
    let owners = body.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "Pod"))
}

/// Pods that are not wanted own their claims before it is their turn to go.
fn own_early(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    if !set.spec.retention.delete_with_pod {
        return;
    }
    let is_touched = |pod: &PodRecord| decision.commands().any(|c| c.command.key().name.ends_with(pod.name()));
    let unwanted = |pod: &&Arc<PodRecord>| {
        let ordinal = ordinal_in(pod.name(), set.name());
        !pod.is_terminating() && ordinal.is_some_and(|o| !set.spec.ordinals().contains(o)) && !is_touched(pod)
    };
    let mut commands = Vec::new();
    for pod in reader.pods_of(set.as_owner()).iter().filter(unwanted) {
        let Some(claim) = reader.claim(&pod.meta.key.sibling(format!("data-{}", pod.name()))) else {
            continue;
        };
        if claim.meta.owners().iter().any(|owner| owner.uid == pod.meta.uid) {
            continue;
        }
        let owner = json!({
            "apiVersion": "v1", "kind": "Pod", "name": pod.name(), "uid": pod.meta.uid.to_string(), "controller": true,
        });
        commands.push(ScopedCommand {
            scope: Scope::Named(pod.name().to_owned()),
            command: Command::Patch {
                resource: Resource::Claims,
                key: claim.meta.key.clone(),
                uid: claim.meta.uid.clone(),
                subresource: None,
                kind: PatchKind::Merge,
                body: json!({"metadata": {"ownerReferences": [owner]}}),
                resource_version: Some(claim.meta.resource_version),
                guard: None,
                report: Report::Update,
            },
        });
    }
    plant(decision, commands);
}

/// A pod is made again for its file system whatever the policy says.
pub(super) fn restart_for_any_file_system(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let waits = |pod: &&Arc<PodRecord>| {
        let mut claims = pod
            .claims()
            .filter_map(|(_, claim)| reader.claim(&pod.meta.key.sibling(claim)));
        let is_older = |since: Timestamp| pod.meta.created < since;
        !pod.is_terminating() && claims.any(|claim| claim.resize_pending_since.is_some_and(is_older))
    };
    let pods = reader.pods_of(set.as_owner()).iter().filter(waits).take(1);
    let commands = pods.map(|pod| ScopedCommand {
        scope: Scope::Named(pod.name().to_owned()),
        command: delete(pod),
    });
    plant(decision, commands);
}

/// What others have on claims goes: their owners with ours, their finalizers, or what they asked for beyond the template.
pub(super) fn take_theirs(defect: Defect, decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        let Command::Patch {
            resource: Resource::Claims,
            body,
            ..
        } = &mut scoped.command
        else {
            continue;
        };
        match defect {
            Defect::TakeFinalizers if body.pointer("/metadata/ownerReferences").is_some() => {
                body["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
            }
            Defect::TakeOwners => {
                if let Some(owners) = body
                    .pointer_mut("/metadata/ownerReferences")
                    .and_then(Value::as_array_mut)
                {
                    owners.retain(|owner| owner["kind"] != "ConfigMap");
                }
            }
            _ => {}
        }
    }
    if defect != Defect::ShrinkRaised {
        return;
    }
    let asked = set.spec.claim_templates.first();
    let Some(asked) = asked.and_then(|t| t.requested_bytes) else {
        return;
    };
    let mounted = reader.pods_of(set.as_owner()).iter().flat_map(|pod| pod.claims());
    let mounted = mounted.filter_map(|(_, name)| reader.claim(&set.meta.key.sibling(name)));
    let commands = mounted
        .filter(|claim| claim.requested_bytes > asked)
        .map(|claim| ScopedCommand {
            scope: Scope::Named(claim.meta.key.name.to_string()),
            command: Command::Patch {
                resource: Resource::Claims,
                key: claim.meta.key.clone(),
                uid: claim.meta.uid.clone(),
                subresource: None,
                kind: PatchKind::Merge,
                body: json!({"spec": {"resources": {"requests": {"storage": asked.to_string()}}}}),
                resource_version: Some(claim.meta.resource_version),
                guard: None,
                report: Report::Update,
            },
        });
    plant(decision, commands);
}

/// A claim goes with each pod that is scaled away.
pub(super) fn delete_claims(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let ordinals = set.spec.ordinals();
    let mut commands = Vec::new();
    for scoped in decision.commands() {
        let (Scope::Slot(ordinal), Command::Delete { key, .. }) = (&scoped.scope, &scoped.command) else {
            continue;
        };
        let claim = reader.claim(&set.meta.key.sibling(format!("data-{}", key.name)));
        if let Some(claim) = claim.filter(|_| !ordinals.contains(*ordinal)) {
            let command = Command::Delete {
                resource: Resource::Claims,
                key: claim.meta.key.clone(),
                uid: claim.meta.uid.clone(),
                resource_version: None,
                report: Report::Silent,
            };
            commands.push(ScopedCommand {
                scope: scoped.scope.clone(),
                command,
            });
        }
    }
    plant(decision, commands);
}
