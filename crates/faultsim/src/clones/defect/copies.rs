//! Defects of CloneSets where users copy pods, and change ids.

use super::{CloneDefect, gives_to_a_pod};
use crate::clones::copies::has;
use crate::clones::truth::INSTANCE_ID;
use flotilla_model::decision::{Body, Command, PatchKind, Report, Scope, ScopedCommand, Stage};
use flotilla_model::{ClaimRecord, Decision, PodRecord, Reader, Resource, SetRecord};
use serde_json::json;

/// What such a defect makes of a decision.
pub(super) fn spoil(defect: CloneDefect, decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    match defect {
        CloneDefect::SweepShared => sweep_shared(decision, reader, set),
        CloneDefect::IdOfAnother => take_id(decision, reader, set),
        CloneDefect::KeepMounted => keep_mounted(decision, reader, set),
        _ => {}
    }
}

/// Whenever a pod is deleted, its claims go with it, whoever else has them.
fn sweep_shared(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let deleted = decision.commands().filter_map(|c| match &c.command {
        Command::Delete {
            resource: Resource::Pods,
            key,
            ..
        } => reader.pod(key),
        _ => None,
    });
    let give = |pod: &PodRecord, claim: &ClaimRecord| Command::Patch {
        resource: Resource::Claims,
        key: claim.meta.key.clone(),
        uid: claim.meta.uid.clone(),
        subresource: None,
        kind: PatchKind::Merge,
        body: json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": pod.name(), "uid": pod.meta.uid.to_string(), "controller": true},
        ]}}),
        resource_version: Some(claim.meta.resource_version),
        guard: None,
        report: Report::Silent,
    };
    let pods = reader.pods_of(set.as_owner());
    let is_shared = |pod: &PodRecord, claim: &ClaimRecord| {
        let mut others = pods
            .iter()
            .filter(|other| other.meta.uid != pod.meta.uid && !other.is_terminating());
        others.any(|other| has(other, claim))
    };
    let claims = reader.claims_of(set.as_owner());
    let given: Vec<ScopedCommand> = deleted
        .flat_map(|pod| claims.iter().map(move |claim| (pod, claim)))
        .filter(|(pod, claim)| claim.meta.deleted.is_none() && has(pod, claim) && is_shared(pod, claim))
        .map(|(pod, claim)| ScopedCommand {
            scope: Scope::Named(pod.name().to_owned()),
            command: give(pod, claim),
        })
        .collect();
    if !given.is_empty() {
        let planted = Stage {
            name: "planted",
            commands: given,
            ..Stage::default()
        };
        decision.stages.insert(0, planted);
    }
}

/// A new pod gets the id of a pod that is there.
fn take_id(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let mut pods = reader.pods_of(set.as_owner()).iter();
    let Some(taken) = pods.find_map(|pod| pod.label(INSTANCE_ID)) else {
        return;
    };
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        if let Command::Create {
            body: Body::Pod(draft), ..
        } = &mut scoped.command
        {
            let ids = draft.labels.iter_mut().filter(|(key, _)| *key == INSTANCE_ID);
            ids.for_each(|(_, id)| taken.clone_into(id));
        }
    }
}

/// Claims whose ids are not those of their pods are not given to these.
fn keep_mounted(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let is_by_id = |c: &ScopedCommand| {
        let claim = reader.claim(c.command.key());
        let id = claim.and_then(|claim| claim.meta.labels.get(INSTANCE_ID));
        let Scope::Named(pod) = &c.scope else { return true };
        let pod = reader.pod(&set.meta.key.sibling(pod.as_str()));
        pod.is_none_or(|pod| pod.label(INSTANCE_ID) == id)
    };
    for stage in &mut decision.stages {
        stage.commands.retain(|c| !gives_to_a_pod(&c.command) || is_by_id(c));
    }
    decision.stages.retain(|stage| !stage.commands.is_empty());
}
