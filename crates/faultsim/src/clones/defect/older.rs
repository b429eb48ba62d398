//! Defects where a CloneSet is taken over from an older manager.

use super::CloneDefect;
use crate::clones::older::full;
use flotilla_model::decision::Body;
use flotilla_model::{Command, Decision, PodRecord, Reader, SetRecord};
use std::sync::Arc;

const REVISION: &str = "controller-revision-hash";
const MADE_AS: &str = "flotilla.rs/made-as";

/// What such a defect makes of a decision.
pub(super) fn spoil(defect: CloneDefect, decision: &mut Decision) {
    if defect != CloneDefect::FullLabels {
        return;
    }
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        if let Command::Create {
            body: Body::Pod(draft), ..
        } = &mut scoped.command
        {
            let labels = draft.labels.iter_mut().filter(|(key, _)| *key == REVISION);
            labels.for_each(|(_, label)| *label = full(label));
        }
    }
}

/// A pod whose note is not read, where that names its revision by the hash alone.
fn without_note(pod: &Arc<PodRecord>) -> Arc<PodRecord> {
    const KEYS: [&str; 2] = ["apps.kruise.io/inplace-update-state", "inplace-update-state"];
    let mut altered = (**pod).clone();
    if let Some(detail) = &mut altered.detail {
        let is_unread = |key: &str, note: &str| KEYS.contains(&key) && !note.contains("\"revision\":\"web-");
        let all = detail.annotations.iter();
        let read = all.filter(|(key, note)| !is_unread(key, note)).collect();
        Arc::make_mut(detail).annotations = read;
    }
    Arc::new(altered)
}

/// A pod of which nobody noted what it was made as.
fn without_made_as(pod: &Arc<PodRecord>) -> Arc<PodRecord> {
    let mut altered = (**pod).clone();
    altered.meta.labels = pod.meta.labels.iter().filter(|(key, _)| *key != MADE_AS).collect();
    Arc::new(altered)
}

/// Pods that the controller sees of the set, if not as they are.
pub(crate) fn pods_seen(defect: CloneDefect, reader: &dyn Reader, set: &SetRecord) -> Option<Vec<Arc<PodRecord>>> {
    if defect == CloneDefect::NotesByName {
        return Some(reader.pods_of(set.as_owner()).iter().map(without_note).collect());
    }
    if defect == CloneDefect::JudgeByLabel {
        return Some(reader.pods_of(set.as_owner()).iter().map(without_made_as).collect());
    }
    if defect != CloneDefect::FullNamesOnly {
        return None;
    }
    let unread = |pod: &Arc<PodRecord>| {
        let is_short = pod.revision().is_some_and(|label| !label.starts_with(set.name()));
        if !is_short {
            return pod.clone();
        }
        let mut altered = (**pod).clone();
        // Nor what it was made as, which would say the same.
        let labels = pod.meta.labels.iter().filter(|(key, _)| *key != MADE_AS);
        let labels = labels.map(|(key, value)| (key, if key == REVISION { "unread" } else { value }));
        altered.meta.labels = labels.collect();
        Arc::new(altered)
    };
    Some(reader.pods_of(set.as_owner()).iter().map(unread).collect())
}
