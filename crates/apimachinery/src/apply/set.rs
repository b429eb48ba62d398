//! Sets of fields, in the form of `fieldsV1`.
//!
//! A step of a path is written as there: `f:name` for a field, `k:{…}` for an item of a keyed list, `v:…` for an item of a set.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Fields, and fields below them. A field with others below it need not be in the set itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Set {
    pub(super) members: BTreeSet<String>,
    pub(super) children: BTreeMap<String, Set>,
}

impl Set {
    /// Reads `fieldsV1`.
    pub(super) fn from_json(fields: &Value) -> Self {
        let mut set = Set::default();
        for (step, below) in fields
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(step, _)| *step != ".")
        {
            let inner = Set::from_json(below);
            if inner.is_empty() || below.get(".").is_some() {
                set.members.insert(step.clone());
            }
            if !inner.is_empty() {
                set.children.insert(step.clone(), inner);
            }
        }
        set
    }

    /// Writes `fieldsV1`.
    pub(super) fn to_json(&self) -> Value {
        let mut fields: Map<String, Value> = self.members.iter().map(|step| (step.clone(), json!({}))).collect();
        for (step, inner) in &self.children {
            let mut below = inner.to_json();
            if self.members.contains(step) {
                below["."] = json!({});
            }
            fields.insert(step.clone(), below);
        }
        Value::Object(fields)
    }

    /// The set of these paths of fields, such as `metadata.name`.
    pub(super) fn of_fields(paths: &[&str]) -> Self {
        let mut set = Set::default();
        for path in paths {
            let steps: Vec<_> = path.split('.').map(field).collect();
            set.insert(&steps);
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Set::is_empty)
    }

    pub(super) fn insert(&mut self, path: &[String]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// The set below a step, if there is anything.
    pub(super) fn below(&self, step: &str) -> Option<&Set> {
        self.children.get(step).filter(|set| !set.is_empty())
    }

    pub(super) fn union(&self, other: &Set) -> Set {
        let mut set = self.clone();
        set.members.extend(other.members.iter().cloned());
        for (step, inner) in &other.children {
            let place = set.children.entry(step.clone()).or_default();
            *place = place.union(inner);
        }
        set
    }

    pub(super) fn intersection(&self, other: &Set) -> Set {
        let both = self.children.iter().filter_map(|(step, inner)| {
            let inner = inner.intersection(other.children.get(step)?);
            (!inner.is_empty()).then(|| (step.clone(), inner))
        });
        Set {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: both.collect(),
        }
    }

    /// What is here and not there; fields below one that is there stay.
    pub(super) fn difference(&self, other: &Set) -> Set {
        self.without(other, false)
    }

    /// What is here and neither there nor below a field that is there.
    pub(super) fn recursive_difference(&self, other: &Set) -> Set {
        self.without(other, true)
    }

    fn without(&self, other: &Set, recursively: bool) -> Set {
        let rest = self.children.iter().filter_map(|(step, inner)| {
            if recursively && other.members.contains(step) {
                return None;
            }
            let inner = other
                .children
                .get(step)
                .map_or_else(|| inner.clone(), |o| inner.without(o, recursively));
            (!inner.is_empty()).then(|| (step.clone(), inner))
        });
        Set {
            members: self.members.difference(&other.members).cloned().collect(),
            children: rest.collect(),
        }
    }

    /// All paths, as conflicts name them: `.spec.containers[name="main"].image`.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.members.iter().map(|step| words(step)).collect();
        for (step, inner) in &self.children {
            paths.extend(inner.paths().iter().map(|below| format!("{}{below}", words(step))));
        }
        paths.sort();
        paths
    }
}

/// The step to a field.
pub(super) fn field(name: &str) -> String {
    format!("f:{name}")
}

/// The field that a step leads to.
pub(super) fn field_of(step: &str) -> Option<&str> {
    step.strip_prefix("f:")
}

fn words(step: &str) -> String {
    match step.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        Some(("v", value)) => format!("[={value}]"),
        Some((_, index)) => format!("[{index}]"),
        None => step.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_they_are_read() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {"f:replicas": {}, "f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:image": {}}}, "f:finalizers": {"v:\"a\"": {}}},
        });
        let set = Set::from_json(&fields);
        assert_eq!(set.to_json(), fields);
        assert_eq!(
            set.paths(),
            [
                ".metadata.labels",
                ".metadata.labels.app",
                ".spec.containers[name=\"main\"]",
                ".spec.containers[name=\"main\"].image",
                ".spec.finalizers[=\"a\"]",
                ".spec.replicas",
            ]
        );
    }

    #[test]
    fn differences_keep_what_is_below_unless_told() {
        let set = Set::from_json(&json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}}));
        let other = Set::from_json(&json!({"f:a": {".": {}, "f:b": {}}}));
        assert_eq!(set.difference(&other).to_json(), json!({"f:a": {"f:c": {}}}));
        assert!(set.recursive_difference(&other).is_empty());
        assert_eq!(set.intersection(&other), other);
        assert_eq!(set.union(&other), set);
    }
}
