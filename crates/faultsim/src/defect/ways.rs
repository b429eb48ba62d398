//! Defects in the way in which a pod comes to another revision: made again where it could be changed in place (STS-4.1, STS-4.2 and CS-16.5).

use super::{Defect, delete};
use crate::in_place::{new_revision, new_state};
use crate::resizes::is_infeasible;
use flotilla_model::decision::{Command, Report};
use flotilla_model::set::PodUpdatePolicy;
use flotilla_model::{Decision, PatchKind, PodRecord, Reader, Resource, SetKind, SetRecord};
use serde_json::json;

/// Pods whose update in place begins are made again.
pub(super) fn spoil(defect: Defect, decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    if set.spec.pod_update_policy() == PodUpdatePolicy::InPlaceOnly {
        return;
    }
    let only_overtaken = defect == Defect::RemakeOvertaken;
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        let Command::Patch {
            resource: Resource::Pods,
            key,
            body,
            ..
        } = &scoped.command
        else {
            continue;
        };
        let is_changed = new_revision(body).is_some() || new_state(body) == Some("PreparingUpdate");
        let pod = reader.pod(key).filter(|_| is_changed);
        if let Some(pod) = pod.filter(|pod| !only_overtaken || is_infeasible(pod)) {
            scoped.command = match set.kind {
                SetKind::Clone => mark(pod),
                SetKind::Native | SetKind::Advanced => delete(pod),
            };
        }
    }
}

/// Asks for a pod of a CloneSet to be made again.
fn mark(pod: &PodRecord) -> Command {
    Command::Patch {
        resource: Resource::Pods,
        key: pod.meta.key.clone(),
        uid: pod.meta.uid.clone(),
        subresource: None,
        kind: PatchKind::Merge,
        body: json!({"metadata": {
            "labels": {"apps.kruise.io/specified-delete": "true"},
            "annotations": {"flotilla.rs/replaced-by-update": "true"},
        }}),
        resource_version: Some(pod.meta.resource_version),
        guard: None,
        report: Report::ReCreate,
    }
}
