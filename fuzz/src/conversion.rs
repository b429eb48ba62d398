//! Target `conversion`: the other version of an object says the same.

use crate::reached::Reached;
use crate::{GROUP, objects};
use flotilla_admission::convert;
use serde_json::Value;

/// Conversion down and up again loses nothing of the spec, and is stable from then on.
pub fn run(input: &[u8]) -> Reached {
    let mut reached = Reached::default();
    let Some((mut set, _)) = objects(input) else {
        return reached;
    };
    if !set.is_object() {
        assert!(
            convert(vec![set], "apps.kruise.io/v1beta1").is_err(),
            "no object is converted"
        );
        return reached;
    }
    // What no API server sends, since it has read the metadata itself.
    for pointer in ["/metadata", "/metadata/annotations"] {
        if let Some(place) = set.pointer_mut(pointer).filter(|place| !place.is_object()) {
            *place = serde_json::json!({});
        }
    }
    // It says that fields are not there, and is not converted up.
    if let Some(labels) = set.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove("flotilla.rs/hub-fields");
    }
    set["kind"] = "StatefulSet".into();
    for (from, to) in [("v1beta1", "v1alpha1"), ("v1alpha1", "v1beta1")] {
        set["apiVersion"] = format!("{GROUP}/{from}").into();
        let there = one(&set, to);
        reached.note_difference(&set, &there);
        let back = one(&there, from);
        if from == "v1beta1" {
            assert_eq!(back.get("spec"), set.get("spec"), "the spec survives");
        }
        assert_eq!(
            one(&back, to).get("spec"),
            there.get("spec"),
            "what was converted once converts to the same"
        );
    }
    reached
}

fn one(object: &Value, version: &str) -> Value {
    let converted = convert(vec![object.clone()], &format!("{GROUP}/{version}"));
    let mut converted = converted.expect("a StatefulSet can be converted");
    converted.pop().expect("as many come back as went in")
}
