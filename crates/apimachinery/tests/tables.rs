//! Tables of recorded objects against those that kube-apiserver 1.36 sent with them: `data/tables.json`.

use flotilla_apimachinery::table::{Columns, Include};
use serde_json::{Value, json};

fn columns(record: &Value) -> Columns {
    let (kind, group) = record["kind"]
        .as_str()
        .and_then(|k| k.split_once('.'))
        .unwrap_or((record["kind"].as_str().unwrap_or_default(), ""));
    let Some(recorded) = record.get("columns").filter(|_| kind != "ClusterRole") else {
        return Columns::built_in(group, kind);
    };
    // The definition as its table shows it: the recorded columns tell the paths.
    let paths = recorded.as_array().into_iter().flatten().skip(1).map(|column| {
        let words = column["description"].as_str().unwrap_or_default();
        let path = words.rsplit_once("format): ").map_or(".spec.o", |(_, path)| path);
        let path = PATHS
            .iter()
            .find(|(g, name, _)| *g == group && column["name"] == *name)
            .map_or(path, |(_, _, path)| path);
        let mut column = column.clone();
        column["jsonPath"] = json!(path);
        column
    });
    let definition =
        json!({"spec": {"versions": [{"name": "v", "additionalPrinterColumns": paths.collect::<Vec<_>>()}]}});
    Columns::custom(&definition, "v")
}

/// Paths of columns whose description does not show them.
const PATHS: &[(&str, &str, &str)] = &[
    ("apps.kruise.io", "DESIRED", ".spec.replicas"),
    ("apps.kruise.io", "CURRENT", ".status.replicas"),
    ("apps.kruise.io", "UPDATED", ".status.updatedReplicas"),
    ("apps.kruise.io", "READY", ".status.readyReplicas"),
    ("apps.kruise.io", "AGE", ".metadata.creationTimestamp"),
    ("apps.kruise.io", "CONTAINERS", ".spec.template.spec.containers[*].name"),
    ("apps.kruise.io", "IMAGES", ".spec.template.spec.containers[*].image"),
];

#[test]
fn tables_show_what_the_api_server_shows() {
    let records: Vec<Value> = serde_json::from_str(include_str!("data/tables.json")).expect("the records are JSON");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for record in &records {
        let columns = columns(record);
        let now = record["now"].as_str().and_then(|now| now.parse().ok()).expect("a time");
        for row in record["rows"].as_array().into_iter().flatten() {
            let table = columns.table(&row["object"], Include::Object, true, now);
            if table["rows"][0] != *row {
                wrong.push(format!(
                    "{}: expected {}\n  got {}",
                    record["kind"], row["cells"], table["rows"][0]["cells"]
                ));
            }
            seen += 1;
        }
        if let Some(definitions) = record.get("columns") {
            let table = columns.table(&json!({"items": []}), Include::None, true, now);
            if table["columnDefinitions"] != *definitions {
                wrong.push(format!(
                    "{}: columns\n  {definitions}\n  {}",
                    record["kind"], table["columnDefinitions"]
                ));
            }
        }
    }
    assert!(seen > 60, "the records are complete");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tables_carry_what_was_asked_for() {
    let list = json!({"metadata": {"resourceVersion": "7", "continue": "x", "remainingItemCount": 2}, "items": [
        {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": {"a": "b"}},
    ]});
    let columns = Columns::built_in("", "ConfigMap");
    let table =
        |include, with_definitions| columns.table(&list, include, with_definitions, jiff::Timestamp::UNIX_EPOCH);
    let metadata = table(Include::parse(None).expect("the default"), true);
    assert_eq!(metadata["metadata"], list["metadata"]);
    assert_eq!(metadata["columnDefinitions"][1]["name"], "Data");
    assert_eq!(
        metadata["rows"],
        json!([{"cells": ["c", 1, "<unknown>"], "object": {
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "c"},
        }}])
    );
    let bare = table(Include::parse(Some("None")).expect("a value"), false);
    assert_eq!(
        (&bare["rows"][0]["object"], &bare["columnDefinitions"]),
        (&Value::Null, &json!([]))
    );
    assert_eq!(
        Include::parse(Some("Foo")).unwrap_err().message,
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": must be 'Metadata', 'Object', 'None', or empty"
    );
}
