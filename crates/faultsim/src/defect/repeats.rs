//! Defects by which requests are repeated without end (the core would hold them back).

use super::plant;
use flotilla_model::decision::{Command, Report, Scope, ScopedCommand};
use flotilla_model::{Decision, PatchKind, Reader, Resource, SetRecord};
use serde_json::json;

/// A pod of the set gets a label, and loses it in the pass that follows.
pub(super) fn mark_or_unmark(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let Some(pod) = reader.pods_of(set.as_owner()).first() else {
        return;
    };
    let mark = match pod.label("planted") {
        Some(_) => serde_json::Value::Null,
        None => json!("yes"),
    };
    let command = Command::Patch {
        resource: Resource::Pods,
        key: pod.meta.key.clone(),
        uid: pod.meta.uid.clone(),
        subresource: None,
        kind: PatchKind::Merge,
        body: json!({"metadata": {"labels": {"planted": mark}}}),
        resource_version: None,
        guard: None,
        report: Report::Silent,
    };
    let scope = Scope::Named("planted".to_owned());
    plant(decision, [ScopedCommand { scope, command }]);
}
