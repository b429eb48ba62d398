//! What fits into annotations: the API server checks all of an object's after each conversion, and one object that breaks the limit fails
//! the whole list, for every namespace. What does not fit is told by a label, which has room of its own.

use super::child;
use crate::json::{entries, label, text};
use flotilla_api::names;
use flotilla_api::statefulset::v1alpha1;
use serde_json::{Map, Value};

/// The most that keys and values of all annotations of an object may take, in bytes.
pub(crate) const ANNOTATION_BYTES_MAX: usize = 262_144;
/// Value of label `flotilla.rs/hub-fields` on a StatefulSet read through the older version: its fields did not fit, and are not there.
const LEFT_OUT: &str = "left-out";

/// How many bytes the annotations take.
fn annotation_bytes(object: &Value) -> usize {
    entries(object, &["metadata", "annotations"])
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum()
}

/// Whether there is room for one more annotation.
pub(super) fn has_room(object: &Value, key: &str, value: &str) -> bool {
    annotation_bytes(object) + key.len() + value.len() <= ANNOTATION_BYTES_MAX
}

/// Whether fields were left out of this StatefulSet of the older version.
pub(crate) fn is_left_out(set: &Value) -> bool {
    label(set, names::HUB_FIELDS) == Some(LEFT_OUT)
}

/// Says that fields were left out.
pub(super) fn mark_left_out(set: &mut Value) {
    put_label(set, LEFT_OUT);
}

/// Sets our label; a set without a place for labels comes from no API server.
pub(super) fn put_label(set: &mut Value, value: &str) {
    let metadata = set.as_object_mut().and_then(|object| child(object, "metadata"));
    if let Some(labels) = metadata.and_then(|metadata| child(metadata, "labels")) {
        labels.insert(names::HUB_FIELDS.to_owned(), Value::from(value));
    }
}

/// Why a StatefulSet with fields left out is not written through the older version, and what to do.
pub(crate) fn refusal(set: &Value) -> String {
    format!(
        "StatefulSet {}/{} cannot be written as {old}: the fields of spec that {old} lacks do not fit into its annotations, which may take \
         {ANNOTATION_BYTES_MAX} bytes, and are left out (label {}={LEFT_OUT}), so that they would be lost; write it as {new}, or make its \
         annotations or these fields smaller as {new} first",
        text(set, &["metadata", "namespace"]),
        text(set, &["metadata", "name"]),
        names::HUB_FIELDS,
        old = v1alpha1::VERSION,
        new = v1alpha1::HUB,
    )
}

/// A warning, if the fields of a StatefulSet of the stored version that the older one lacks will not fit into its annotations.
pub(crate) fn warning(set: &Value) -> Option<String> {
    let lacking: Map<String, Value> = entries(set, &["spec"])
        .filter(|(field, _)| !v1alpha1::SPEC_FIELDS.contains(&field.as_str()))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    let present = entries(set, &["metadata", "annotations"])
        .find(|(key, _)| *key == names::HUB_FIELDS)
        .map_or(0, |(key, value)| key.len() + value.as_str().map_or(0, str::len));
    let fields = Value::Object(lacking).to_string().len();
    let bytes = annotation_bytes(set) - present + names::HUB_FIELDS.len() + fields;
    (fields > "{}".len() && bytes > ANNOTATION_BYTES_MAX).then(|| {
        format!(
            "metadata.annotations: with the fields of spec that {old} lacks they would take {bytes} bytes, more than {ANNOTATION_BYTES_MAX}: \
             whoever reads this set as {old} does not see these fields, and it cannot be written as {old}",
            old = v1alpha1::VERSION,
        )
    })
}
