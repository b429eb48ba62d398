//! Defects in what becomes of revisions (STS-1.1).

use super::plant;
use flotilla_model::decision::{Command, Report, Scope, ScopedCommand};
use flotilla_model::{Decision, PatchKind, Reader, Resource, SetRecord};
use serde_json::json;

/// Whatever nobody owns and the selector selects is adopted.
pub(super) fn adopt_anothers(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let owner = json!({
        "apiVersion": set.kind.resource().api_version(), "kind": set.kind.resource().kind(),
        "name": set.name(), "uid": set.meta.uid.to_string(), "controller": true, "blockOwnerDeletion": true,
    });
    let orphans = reader.orphan_revisions(&set.meta.key.namespace).iter();
    let commands = orphans.map(|revision| ScopedCommand {
        scope: Scope::Named(revision.name().to_owned()),
        command: Command::Patch {
            resource: Resource::Revisions,
            key: revision.meta.key.clone(),
            uid: revision.meta.uid.clone(),
            subresource: None,
            kind: PatchKind::Merge,
            body: json!({"metadata": {"ownerReferences": [owner]}}),
            resource_version: None,
            guard: None,
            report: Report::Silent,
        },
    });
    plant(decision, commands);
}

/// All but the newest are dropped.
pub(super) fn forget_history(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let all = reader.revisions_of(set.as_owner());
    let newest = all.iter().map(|r| r.number).max();
    let dropped = all
        .iter()
        .filter(|r| Some(r.number) != newest)
        .map(|revision| ScopedCommand {
            scope: Scope::Named(revision.name().to_owned()),
            command: Command::Delete {
                resource: Resource::Revisions,
                key: revision.meta.key.clone(),
                uid: revision.meta.uid.clone(),
                resource_version: None,
                report: Report::Silent,
            },
        });
    plant(decision, dropped);
}

/// In place of the oldest revision that is dropped goes the newest that nobody has and that would stay.
pub(super) fn drop_newest(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let all = reader.revisions_of(set.as_owner());
    let pods = reader.pods_of(set.as_owner());
    let mut unused: Vec<_> = all
        .iter()
        .filter(|r| r.digest != set.spec.template_digest && r.name() != set.status_text("currentRevision"))
        .filter(|r| !pods.iter().any(|pod| pod.revision() == Some(r.name())))
        .collect();
    unused.sort_by_key(|r| r.number);
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        if let Command::Delete {
            resource: Resource::Revisions,
            key,
            uid,
            ..
        } = &mut scoped.command
            && let Some(newest) = unused.pop()
        {
            key.clone_from(&newest.meta.key);
            uid.clone_from(&newest.meta.uid);
        }
    }
}
