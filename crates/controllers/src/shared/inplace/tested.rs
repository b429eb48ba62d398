//! JSON patches of a pod that hold only while it is as it was examined (STS-4.3).
//!
//! A write may be delivered late, when its pod has gone on to another revision, or back into service. So it tests what it rests on:
//! revision, lifecycle state, what is noted of an update, and where containers restart, the closed gate. It carries no version, which
//! would lose races with the kubelet's writes: between leaving service and the change of containers there always is one.

use crate::shared::pointer::{ANNOTATIONS, FINALIZERS, LABELS, below};
use flotilla_api::names;
use flotilla_model::PodRecord;
use flotilla_model::records::{GateCondition, PodDetail};
use serde_json::{Value, json};

/// A patch in the making.
#[derive(Debug)]
pub(super) struct Tested<'a> {
    detail: &'a PodDetail,
    operations: Vec<Value>,
}

impl<'a> Tested<'a> {
    /// Begins with what every write rests on. The API server takes what is absent for null.
    pub(super) fn new(pod: &PodRecord, detail: &'a PodDetail) -> Self {
        let mut patch = Tested {
            detail,
            operations: Vec::new(),
        };
        for key in [names::REVISION_LABEL, names::LIFECYCLE_STATE_LABEL] {
            patch.test(below(LABELS, key), json!(pod.label(key)));
        }
        if detail.is_annotated {
            for key in [names::IN_PLACE_STATE, names::IN_PLACE_STATE_LEGACY] {
                patch.test(below(ANNOTATIONS, key), json!(detail.annotations.get(key)));
            }
        } else {
            patch.test(ANNOTATIONS.to_owned(), Value::Null);
        }
        patch
    }

    /// Begins with what is written right before: a pod of this revision with this note.
    pub(super) fn noted(detail: &'a PodDetail, revision: &str, note: &str) -> Self {
        let mut patch = Tested {
            detail,
            operations: Vec::new(),
        };
        patch.test(below(LABELS, names::REVISION_LABEL), json!(revision));
        patch.test(below(ANNOTATIONS, names::IN_PLACE_STATE), json!(note));
        patch
    }

    fn test(&mut self, path: String, value: Value) {
        self.operations
            .push(json!({"op": "test", "path": path, "value": value}));
    }

    fn add(&mut self, path: String, value: Value) {
        self.operations.push(json!({"op": "add", "path": path, "value": value}));
    }

    /// Only while the gate of updates is closed.
    pub(super) fn out_of_service(self) -> Self {
        let gate = self.detail.in_place_ready.as_ref();
        self.closed(gate, names::IN_PLACE_UPDATE_READY)
    }

    /// Only while the gate of hooks is closed.
    pub(super) fn held(self) -> Self {
        let gate = self.detail.kruise_ready.as_ref();
        self.closed(gate, names::KRUISE_POD_READY)
    }

    /// Of a pod that has no such condition yet this cannot be tested.
    fn closed(mut self, gate: Option<&GateCondition>, kind: &str) -> Self {
        if let Some(gate) = gate {
            let path = format!("/status/conditions/{}", gate.index);
            self.test(below(&path, "type"), json!(kind));
            self.test(below(&path, "status"), json!("False"));
        }
        self
    }

    /// What a strategic-merge patch of `metadata` would do.
    pub(super) fn metadata(mut self, patch: &Value) -> Self {
        self.entries(LABELS, &patch["labels"]);
        if patch["annotations"].is_object() && !self.detail.is_annotated {
            self.add(ANNOTATIONS.to_owned(), json!({}));
        }
        self.entries(ANNOTATIONS, &patch["annotations"]);
        self.finalizers(&patch["finalizers"], &patch["$deleteFromPrimitiveList/finalizers"]);
        self
    }

    fn entries(&mut self, path: &str, patch: &Value) {
        for (key, value) in patch.as_object().into_iter().flatten() {
            let path = below(path, key);
            if value.is_null() {
                // Whether it is there is not known of every key, and what is not there cannot be removed.
                self.add(path.clone(), json!(""));
                self.operations.push(json!({"op": "remove", "path": path}));
            } else {
                self.add(path, value.clone());
            }
        }
    }

    /// The list as a whole, if it is still the one that was seen.
    fn finalizers(&mut self, added: &Value, removed: &Value) {
        let names = |list: &Value| -> Vec<String> {
            let list = list.as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let (added, removed) = (names(added), names(removed));
        let known: Vec<String> = self.detail.finalizers.iter().map(ToString::to_string).collect();
        let mut all: Vec<String> = known.iter().filter(|f| !removed.contains(f)).cloned().collect();
        all.extend(added.into_iter().filter(|f| !known.contains(f)));
        if all == known {
            return;
        }
        let seen = if known.is_empty() { Value::Null } else { json!(known) };
        self.test(FINALIZERS.to_owned(), seen);
        self.add(FINALIZERS.to_owned(), json!(all));
    }

    /// Sets a field of a container that was seen.
    pub(super) fn container(mut self, name: &str, fields: &[&str], value: &Value) -> Self {
        let mut names = self.detail.spec.containers.iter();
        if let Some(index) = names.position(|c| *c.name == *name) {
            let path = format!("/spec/containers/{index}");
            self.test(below(&path, "name"), json!(name));
            let path = fields.iter().fold(path, |path, field| below(&path, field));
            self.add(path, value.clone());
        }
        self
    }

    /// The operations.
    pub(super) fn into_body(self) -> Value {
        Value::Array(self.operations)
    }
}
