//! Which containers change together (STS-4.5): those with a launch priority one priority after the other, the highest first.

use super::{Changes, RefMetadata};
use flotilla_model::records::PodDetail;
use std::collections::{BTreeMap, BTreeSet};

/// Splits changes into those of the next batch and the remainder. The batch is empty only if there are no changes.
pub fn split(changes: &Changes, detail: &PodDetail) -> (Changes, Changes) {
    let mut batch: BTreeSet<&str> = BTreeSet::new();
    let changed = changes.containers();
    let priority = |name: &str| detail.container(name).and_then(|(spec, _)| spec.priority);
    let highest = changed.iter().filter_map(|name| priority(name)).max();
    for name in &changed {
        let own = priority(name);
        if own.is_none() || own == highest {
            batch.insert(name);
        }
    }
    while let Some(name) = joins(changes, &batch) {
        batch.insert(name);
    }
    let part = |is_in: bool| Changes {
        images: only(&changes.images, |name| batch.contains(name) == is_in),
        ref_metadata: only(&changes.ref_metadata, |name| batch.contains(name) == is_in),
        resources: only(&changes.resources, |name| batch.contains(name) == is_in),
    };
    (part(true), part(false))
}

fn only<T: Clone>(map: &BTreeMap<String, T>, keep: impl Fn(&str) -> bool) -> BTreeMap<String, T> {
    let kept = map.iter().filter(|(name, _)| keep(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A container outside of the batch that refers to a key that the batch changes: a key cannot have two values.
fn joins<'c>(changes: &'c Changes, batch: &BTreeSet<&str>) -> Option<&'c str> {
    let share = |a: &RefMetadata, b: &RefMetadata| {
        a.labels.keys().any(|key| b.labels.contains_key(key))
            || a.annotations.keys().any(|key| b.annotations.contains_key(key))
    };
    let inside: Vec<&RefMetadata> = changes
        .ref_metadata
        .iter()
        .filter(|(name, _)| batch.contains(name.as_str()))
        .map(|(_, refs)| refs)
        .collect();
    let outside = changes
        .ref_metadata
        .iter()
        .filter(|(name, _)| !batch.contains(name.as_str()));
    outside
        .into_iter()
        .find(|(_, refs)| inside.iter().any(|other| share(refs, other)))
        .map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::detail;
    use serde_json::json;

    fn changes(images: &[&str], refs: &[(&str, &str)], resources: &[&str]) -> Changes {
        let mut changes = Changes::default();
        for name in images {
            changes.images.insert((*name).to_owned(), "new".to_owned());
        }
        for (name, key) in refs {
            let refs = changes.ref_metadata.entry((*name).to_owned()).or_default();
            refs.labels.insert((*key).to_owned(), "v".to_owned());
        }
        for name in resources {
            changes
                .resources
                .insert((*name).to_owned(), json!({"limits": {"cpu": "1"}}));
        }
        changes
    }

    #[test]
    fn sts_4_5_priorities_one_after_the_other_and_those_without_at_once() {
        let pod = detail(&[("a", Some(2)), ("b", Some(1)), ("c", None), ("d", Some(2))]);
        for (what, all, first, rest) in [
            ("no changes", changes(&[], &[], &[]), vec![], vec![]),
            (
                "highest and those without",
                changes(&["a", "b", "c"], &[], &[]),
                vec!["a", "c"],
                vec!["b"],
            ),
            (
                "all of one priority",
                changes(&["a"], &[], &["d"]),
                vec!["a", "d"],
                vec![],
            ),
            ("the highest that changes", changes(&["b"], &[], &[]), vec!["b"], vec![]),
            (
                "resources alone follow",
                changes(&["a"], &[], &["b"]),
                vec!["a"],
                vec!["b"],
            ),
            (
                "a shared key joins",
                changes(&["a"], &[("a", "k"), ("b", "k")], &[]),
                vec!["a", "b"],
                vec![],
            ),
            (
                "and those joined bring more",
                {
                    let mut all = changes(&["a"], &[("a", "k"), ("b", "k"), ("b", "l")], &[]);
                    all.ref_metadata
                        .entry("x".into())
                        .or_default()
                        .labels
                        .insert("l".into(), "v".into());
                    all
                },
                vec!["a", "b", "x"],
                vec![],
            ),
        ] {
            let (batch, remainder) = split(&all, &pod);
            assert_eq!(batch.containers().into_iter().collect::<Vec<_>>(), first, "{what}");
            assert_eq!(remainder.containers().into_iter().collect::<Vec<_>>(), rest, "{what}");
        }
    }
}
