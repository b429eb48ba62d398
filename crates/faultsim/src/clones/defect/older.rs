//! Defects where a CloneSet is taken over from an older manager.

use super::CloneDefect;
use flotilla_model::{PodRecord, Reader, SetRecord};
use std::sync::Arc;

const REVISION: &str = "controller-revision-hash";

/// Pods that the controller sees of the set, if not as they are.
pub(crate) fn pods_seen(defect: CloneDefect, reader: &dyn Reader, set: &SetRecord) -> Option<Vec<Arc<PodRecord>>> {
    if defect != CloneDefect::FullNamesOnly {
        return None;
    }
    let unread = |pod: &Arc<PodRecord>| {
        let is_short = pod.revision().is_some_and(|label| !label.starts_with(set.name()));
        if !is_short {
            return pod.clone();
        }
        let mut altered = (**pod).clone();
        let labels = pod.meta.labels.iter();
        let labels = labels.map(|(key, value)| (key, if key == REVISION { "unread" } else { value }));
        altered.meta.labels = labels.collect();
        Arc::new(altered)
    };
    Some(reader.pods_of(set.as_owner()).iter().map(unread).collect())
}
