//! Events have two faces, `v1` and `events.k8s.io/v1`, over one storage. They are stored as `v1`.

use crate::types::TypeInfo;
use serde_json::{Value, json};

/// Fields that are named differently: in `v1`, and in `events.k8s.io/v1`.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Whether the kind is the newer face.
pub(crate) fn is_view(info: &TypeInfo) -> bool {
    info.group == "events.k8s.io"
}

/// A stored event as the newer face shows it.
pub(crate) fn to_view(stored: &Value) -> Value {
    let mut view = rename(stored, RENAMED);
    if let Some(fields) = view.as_object_mut() {
        for name in ["reportingController", "reportingInstance"] {
            if fields.get(name).is_some_and(|v| v == "") {
                fields.remove(name);
            }
        }
    }
    view
}

/// An event that came through the newer face, as it is stored.
pub(crate) fn from_view(view: &Value) -> Value {
    rename(view, RENAMED.map(|(old, new)| (new, old)))
}

fn rename(event: &Value, names: [(&str, &str); 7]) -> Value {
    let mut renamed = event.clone();
    if let (Some(fields), Some(old)) = (renamed.as_object_mut(), event.as_object()) {
        for (from, _) in names {
            fields.remove(from);
        }
        for (from, to) in names {
            if let Some(value) = old.get(from) {
                fields.insert(to.to_owned(), value.clone());
            }
        }
    }
    renamed
}

/// Fields that are always there, as the `v1` face prints them.
pub(crate) fn fill(event: &mut Value) {
    for (field, value) in [
        ("source", json!({})),
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("eventTime", Value::Null),
        ("reportingComponent", json!("")),
        ("reportingInstance", json!("")),
        ("involvedObject", json!({})),
    ] {
        if event.get(field).is_none() {
            event[field] = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_faces_show_the_same_event() {
        let view = json!({"note": "n", "regarding": {"name": "a"}, "deprecatedCount": 2, "reason": "R"});
        let stored = from_view(&view);
        assert_eq!(
            stored,
            json!({"message": "n", "involvedObject": {"name": "a"}, "count": 2, "reason": "R"})
        );
        assert_eq!(to_view(&stored), view);
    }
}
