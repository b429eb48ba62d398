//! What is published for a custom resource definition, against what kube-apiserver 1.36 published: `data/box.json`.

use flotilla_apimachinery::openapi::{Builtin, custom_document, custom_group, group, resource_list};
use serde_json::Value;

fn record() -> Value {
    serde_json::from_str(include_str!("data/box.json")).expect("the record is JSON")
}

/// Without the parts that are shared by all documents, whose names are compared instead.
fn own_part(mut document: Value) -> (Value, Vec<String>) {
    let schemas = document["components"]["schemas"].as_object_mut().expect("schemas");
    let shared = schemas
        .keys()
        .filter(|name| !name.starts_with("com.example"))
        .cloned()
        .collect();
    schemas.retain(|name, _| name.starts_with("com.example"));
    (document, shared)
}

/// The order of entries means nothing in lists of parameters.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(fields.iter().map(|(k, v)| (k.clone(), sorted(v))).collect()),
        Value::Array(items) => {
            let mut items: Vec<_> = items.iter().map(sorted).collect();
            items.sort_by_key(Value::to_string);
            Value::Array(items)
        }
        other => other.clone(),
    }
}

#[test]
fn documents_are_those_of_the_api_server() {
    let (record, builtin) = (record(), Builtin::load());
    for version in ["v1", "v1alpha1"] {
        let document = custom_document(&record["definition"], version, &builtin).expect("a served version");
        let (mut own, shared) = own_part(document);
        let mut expected = record["documents"][version].clone();
        let names: Vec<_> = expected["shared"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        expected.as_object_mut().expect("a document").remove("shared");
        for part in ["info", "components", "paths"] {
            for (path, item) in expected[part].as_object().expect("an object") {
                let got = own[part]
                    .as_object_mut()
                    .and_then(|o| o.remove(path))
                    .unwrap_or_default();
                assert_eq!(sorted(&got), sorted(item), "{version} {part} {path}");
            }
            assert_eq!(own[part], serde_json::json!({}), "{version}: more in {part}");
        }
        assert!(shared.iter().all(|name| names.contains(name)), "{version}: {shared:?}");
    }
    assert_eq!(custom_document(&record["definition"], "v2", &builtin), None);
}

#[test]
fn discovery_is_that_of_the_api_server() {
    let record = record();
    let found = custom_group("am.example.com", [&record["definition"]]).expect("a served version");
    assert_eq!(found, record["discovery"]);
    assert_eq!(group(&found), record["group"]);
    for version in ["v1", "v1alpha1"] {
        let list = resource_list(&found, version).expect("a served version");
        assert_eq!(list["resources"], record["resources"][version]);
    }
    assert_eq!(resource_list(&found, "v2"), None);
}
