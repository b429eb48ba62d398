//! Defects where pods were prepared for an update or a deletion, and are let go again.

use super::Defect;
use crate::in_place::{STATE_PATH, new_state, state};
use flotilla_model::{Command, Decision, PodRecord, Reader, Resource, SetRecord};
use serde_json::json;
use std::sync::Arc;

/// The pod that a command lets go, if it does.
fn let_go<'r>(command: &Command, reader: &'r dyn Reader) -> Option<&'r Arc<PodRecord>> {
    let Command::Patch {
        resource: Resource::Pods,
        key,
        body,
        ..
    } = command
    else {
        return None;
    };
    let was_prepared = |pod: &&Arc<PodRecord>| matches!(state(pod), "PreparingUpdate" | "PreparingDelete");
    let comes_back = matches!(new_state(body), Some("Updated" | "Normal" | "PreparingNormal"));
    reader.pod(key).filter(was_prepared).filter(|_| comes_back)
}

/// What such a defect makes of a decision.
pub(super) fn spoil(defect: Defect, decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    match defect {
        Defect::LetGoServes => {
            for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
                if let_go(&scoped.command, reader).is_some()
                    && let Command::Patch { body, .. } = &mut scoped.command
                {
                    let operations = body.as_array_mut().into_iter().flatten();
                    let states = operations.filter(|o| o["op"] == "add" && o["path"] == STATE_PATH);
                    states.for_each(|operation| operation["value"] = json!("Normal"));
                }
            }
        }
        Defect::KeepPrepared if set.spec.is_paused() => {
            for stage in &mut decision.stages {
                stage.commands.retain(|scoped| {
                    let pod = let_go(&scoped.command, reader);
                    pod.is_none_or(|pod| state(pod) != "PreparingUpdate")
                });
            }
            decision.stages.retain(|stage| !stage.commands.is_empty());
        }
        _ => {}
    }
}
