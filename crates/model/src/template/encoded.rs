//! A pod template as a Go manager of `apps.kruise.io` writes it (STS-1.1.2).
//!
//! Such a manager compares revisions by their bytes. If it takes over again and finds another spelling of the same template, it makes a
//! revision of its own and moves every pod there; a pod in the middle of an update in place loses what is still to be done. So revisions
//! of that group are written in its spelling: what it leaves out when empty is left out, what it always writes is there, quantities are
//! in their shortest form. Fields that it has never heard of stay: they are the user's.

use super::normal::{QUANTITIES, ZERO_IS_ABSENT};
use super::quantity::canonical_quantity;
use serde_json::{Map, Value, json};

/// Maps that are left out when they are empty; other empty objects say something, such as `emptyDir`.
const MAPS: &[&str] = &[
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "limits",
    "requests",
    "overhead",
];

/// Strings that are left out when they are empty, wherever they stand in a template; numbers and booleans are [`ZERO_IS_ABSENT`].
const STRINGS: &[&str] = &["value", "subPath", "workingDir", "hostname", "subdomain", "nodeName"];

/// The template in that spelling.
pub fn encoded(template: &Value) -> Value {
    let mut all = template.clone();
    trim(&mut all, "");
    if let Some(object) = all.as_object_mut() {
        stamped(object);
    }
    let Some(spec) = all.get_mut("spec").and_then(Value::as_object_mut) else {
        return all;
    };
    for list in ["containers", "initContainers"] {
        for container in objects(spec.get_mut(list)) {
            container.entry("resources").or_insert_with(|| json!({}));
        }
    }
    for volume in objects(spec.get_mut("volumes")) {
        let claim = volume
            .get_mut("ephemeral")
            .and_then(|e| e.get_mut("volumeClaimTemplate"));
        if let Some(claim) = claim.and_then(Value::as_object_mut) {
            stamped(claim);
            if let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) {
                spec.entry("resources").or_insert_with(|| json!({}));
            }
        }
    }
    all
}

fn objects(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let items = list.and_then(Value::as_array_mut).into_iter().flatten();
    items.filter_map(Value::as_object_mut)
}

/// Metadata always has a time of creation there, and in a template it is null.
fn stamped(object: &mut Map<String, Value>) {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("creationTimestamp".to_owned(), Value::Null);
    }
}

/// Leaves out what is empty, below the field `parent`.
fn trim(value: &mut Value, parent: &str) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| trim(item, parent)),
        Value::Object(object) => {
            // Names in these maps are the user's, and so are the values.
            if matches!(parent, "labels" | "annotations" | "matchLabels" | "nodeSelector") {
                return;
            }
            object.iter_mut().for_each(|(field, child)| trim(child, field));
            object.retain(|field, child| !is_left_out(field, child, parent));
            if parent == "resourceFieldRef" {
                // Not a pointer there, so it is always written.
                object.entry("divisor").or_insert_with(|| json!("0"));
            }
            let is_quantity =
                |field: &String| QUANTITIES.contains(&parent) || matches!(field.as_str(), "sizeLimit" | "divisor");
            for (_, child) in object.iter_mut().filter(|(field, _)| is_quantity(field)) {
                let short = match &*child {
                    Value::String(text) => canonical_quantity(text),
                    Value::Number(number) => canonical_quantity(&number.to_string()),
                    _ => None,
                };
                if let Some(short) = short {
                    *child = Value::String(short);
                }
            }
        }
        _ => {}
    }
}

fn is_left_out(field: &str, value: &Value, parent: &str) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty() && MAPS.contains(&field),
        Value::String(text) => text.is_empty() && STRINGS.contains(&field) && parent != "httpHeaders",
        Value::Bool(flag) => !flag && ZERO_IS_ABSENT.contains(&field),
        Value::Number(number) => number.as_i64() == Some(0) && ZERO_IS_ABSENT.contains(&field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sts_1_1_2_the_spelling_of_a_go_manager() {
        let written = json!({
            "metadata": {"annotations": {}, "labels": {"app": "web", "tier": ""}},
            "spec": {
                "hostNetwork": false,
                "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}],
                "containers": [
                    {"name": "main", "image": "web:1", "env": [], "args": null,
                     "resources": {"limits": {"cpu": "1000m", "memory": 1_073_741_824}, "requests": {"cpu": 0.5}}},
                    {"name": "side", "image": "side:1", "env": [
                        {"name": "EMPTY", "value": ""},
                        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                    ]},
                ],
            },
        });
        let expected = json!({
            "metadata": {"creationTimestamp": null, "labels": {"app": "web", "tier": ""}},
            "spec": {
                "volumes": [
                    {"name": "tmp", "emptyDir": {}},
                    {"name": "data", "ephemeral": {"volumeClaimTemplate": {
                        "metadata": {"creationTimestamp": null}, "spec": {"resources": {}}}}},
                ],
                "containers": [
                    {"name": "main", "image": "web:1",
                     "resources": {"limits": {"cpu": "1", "memory": "1073741824"}, "requests": {"cpu": "500m"}}},
                    {"name": "side", "image": "side:1", "resources": {}, "env": [
                        {"name": "EMPTY"},
                        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}},
                    ]},
                ],
            },
        });
        assert_eq!(encoded(&written), expected);
        assert_eq!(encoded(&expected), expected, "twice changes nothing");
        assert_eq!(
            super::super::normal_form(&written),
            super::super::normal_form(&expected),
            "the pods are the same"
        );
    }

    #[test]
    fn sts_1_1_2_fields_of_a_later_version_stay() {
        let template =
            json!({"metadata": {"creationTimestamp": null}, "spec": {"later": {"": 0, "on": false}, "containers": []}});
        assert_eq!(
            encoded(&template),
            json!({"metadata": {"creationTimestamp": null}, "spec": {"later": {"": 0, "on": false}}})
        );
    }
}
