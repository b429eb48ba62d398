//! Which changes of which pods are looked into (AGT-8.2).

use crate::pod::Pod;
use flotilla_model::containers_meta;
use std::collections::BTreeSet;

/// How a pod was seen.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'p> {
    /// In the first list after the start.
    First,
    /// For the first time since then.
    New,
    /// Once more; it was like this before, and was left alone so far or not.
    Again {
        /// As it was.
        before: &'p Pod,
        /// Whether it was in the first list without the annotation, and nothing about it has changed since.
        left_alone: bool,
    },
}

/// Whether the pod is to be looked into.
///
/// Pods that carry no annotation when the agent starts are left alone until something about them changes, or else an agent that is rolled
/// out would write to every pod at once. Those that are out of service are not: what they wait for may be the annotation.
pub fn is_relevant(pod: &Pod, seen: Seen<'_>) -> bool {
    if !pod.is_concerned {
        return false;
    }
    let Some(noted) = &pod.noted else {
        return match seen {
            Seen::First => pod.is_out_of_service,
            Seen::New | Seen::Again { left_alone: false, .. } => true,
            Seen::Again { before, .. } => has_changed(before, pod),
        };
    };
    let noted = containers_meta::parse(noted);
    let noted_names: BTreeSet<&str> = noted.iter().map(|c| c.name.as_str()).collect();
    let names: BTreeSet<&str> = pod.containers.iter().map(|c| c.name.as_str()).collect();
    let differs = |c: &crate::Container| {
        let entry = noted.iter().find(|entry| entry.name == c.name);
        let as_noted = |entry: &containers_meta::ContainerMeta| {
            entry.container_id == c.id && entry.env_hash == Some(c.expected_hash())
        };
        !c.id.is_empty() && !entry.is_some_and(as_noted)
    };
    names != noted_names || pod.containers.iter().any(differs)
}

/// Whether anything that the annotation tells of is another than it was.
fn has_changed(before: &Pod, now: &Pod) -> bool {
    let ids = |pod: &Pod| -> Vec<(String, String, u64)> {
        let containers = pod.containers.iter();
        containers
            .map(|c| (c.name.clone(), c.id.clone(), c.expected_hash()))
            .collect()
    };
    now.is_out_of_service && !before.is_out_of_service || ids(before) != ids(now)
}
