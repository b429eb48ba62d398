//! Columns of custom resources (`additionalPrinterColumns`).

use super::age::age;
use super::cells::name;
use super::jsonpath::Path;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A column behind the name.
#[derive(Clone, Debug)]
pub(super) struct Column {
    path: Option<Path>,
    kind: String,
}

/// Definitions and columns of a version of a definition. Without columns of its own, a kind shows its age.
pub(super) fn columns(definition: &Value, version: &str) -> (Value, Vec<Column>) {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let declared = versions
        .filter(|v| v["name"] == version)
        .find_map(|v| v["additionalPrinterColumns"].as_array());
    let age =
        [json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": CREATION})];
    let declared = declared.map_or(&age[..], Vec::as_slice);
    let mut definitions =
        vec![json!({"name": "Name", "type": "string", "format": "name", "description": NAME, "priority": 0})];
    let mut columns = Vec::new();
    for column in declared {
        let text = |field: &str| column[field].as_str().unwrap_or_default();
        let path = text("jsonPath");
        let description = match text("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            words => words.to_owned(),
        };
        definitions.push(json!({
            "name": text("name"), "type": text("type"), "format": text("format"), "description": description,
            "priority": column["priority"].as_i64().unwrap_or_default(),
        }));
        columns.push(Column {
            path: Path::parse(path).ok(),
            kind: text("type").to_owned(),
        });
    }
    (json!(definitions), columns)
}

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a \
    client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and \
    configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not \
    guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in \
    RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The cells of an object.
pub(super) fn cells(columns: &[Column], object: &Value, now: Timestamp) -> Vec<Value> {
    let found = |column: &Column| column.path.as_ref().and_then(|path| path.find(object).first().copied());
    let others = columns
        .iter()
        .map(|column| found(column).map_or(Value::Null, |value| cell(&column.kind, value, now)));
    std::iter::once(name(object)).chain(others).collect()
}

fn cell(kind: &str, value: &Value, now: Timestamp) -> Value {
    match (kind, value) {
        ("string", Value::Null) => json!("<no value>"),
        ("string", Value::String(_)) | ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("string", other) => json!(other.to_string()),
        ("integer", Value::Number(number)) => match number.as_i64() {
            Some(whole) => json!(whole),
            None => json!(number.as_f64().unwrap_or_default().trunc() as i64),
        },
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(_) => json!(age(Some(text), now)),
            Err(_) => json!("<invalid>"),
        },
        _ => Value::Null,
    }
}
