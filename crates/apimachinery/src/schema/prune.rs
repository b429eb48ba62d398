//! Fields that no schema declares: finding them (`fieldValidation`), and dropping them (`preserveUnknownFields: false`).

use super::{Kind, Schema};
use crate::field;
use serde_json::Value;

/// What to do about a field that is not declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Refuse the object (`fieldValidation=Strict`).
    Strict,
    /// Warn, and drop the field.
    Warn,
    /// Drop the field.
    Ignore,
}

impl Unknown {
    /// Reads `?fieldValidation=`; `Warn` if it is not there.
    pub fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            Some("Strict") => Some(Unknown::Strict),
            None | Some("" | "Warn") => Some(Unknown::Warn),
            Some("Ignore") => Some(Unknown::Ignore),
            Some(_) => None,
        }
    }
}

/// Drops fields that are not declared and gives their paths, sorted.
pub fn drop_unknown(object: &mut Value, schema: Schema<'_>) -> Vec<String> {
    let mut unknown = Vec::new();
    prune(object, Some(schema), "", &mut unknown);
    unknown.sort();
    unknown
}

/// The API server's words for unknown fields, such as `unknown field "spec.foo"`.
pub fn unknown_fields(object: &Value, schema: Schema<'_>) -> Vec<String> {
    let paths = drop_unknown(&mut object.clone(), schema);
    paths
        .iter()
        .map(|path| format!("unknown field {}", field::quote(path)))
        .collect()
}

/// Whether a schema says nothing that could be unknown: everything inside is kept.
fn is_open(schema: Schema<'_>) -> bool {
    schema.keeps_unknown() || schema.kind() == Kind::Any && schema.properties().next().is_none()
}

fn prune(value: &mut Value, schema: Option<Schema<'_>>, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let is_open = schema.is_some_and(is_open);
            fields.retain(|name, value| {
                let place = field::child(path, name);
                if schema.is_some_and(Schema::is_embedded)
                    && is_meta(name)
                    && schema.is_some_and(|s| s.property(name).is_none())
                {
                    return true;
                }
                match schema.and_then(|s| s.field(name)) {
                    Some(of) => prune(value, Some(of), &place, unknown),
                    None if is_open => {}
                    None => {
                        unknown.push(place);
                        return false;
                    }
                }
                true
            });
        }
        Value::Array(items) => {
            if schema.is_some_and(|s| is_open(s) && s.items().is_none()) {
                return;
            }
            for (index, item) in items.iter_mut().enumerate() {
                prune(
                    item,
                    schema.and_then(Schema::items),
                    &field::entry(path, index),
                    unknown,
                );
            }
        }
        _ => {}
    }
}

fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

/// Drops nulls where null is no value and there is no default.
pub fn drop_nulls(value: &mut Value, schema: Option<Schema<'_>>) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let of = schema.and_then(|s| s.field(name));
            if value.is_null() && of.is_some_and(|s| !s.is_nullable() && s.default().is_none()) {
                return false;
            }
            drop_nulls(value, of);
            true
        }),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| drop_nulls(item, schema.and_then(Schema::items))),
        _ => {}
    }
}

/// Drops what Go's encoding of built-in types leaves out: nulls, and empty lists and maps that are not required.
pub fn drop_empty(value: &mut Value, schema: Schema<'_>) {
    match value {
        Value::Object(fields) => {
            let required = schema.bounds().map_or(&[][..], |bounds| bounds.required.as_slice());
            fields.retain(|name, value| {
                let Some(of) = schema.field(name) else { return true };
                drop_empty(value, of);
                let is_left_out = match value {
                    Value::Null => true,
                    Value::Array(items) => items.is_empty(),
                    Value::Object(fields) => fields.is_empty() && of.values().is_some(),
                    _ => false,
                };
                !is_left_out || schema.property(name).is_none() || required.contains(name) || is_open(of)
            });
        }
        Value::Array(items) => {
            if let Some(of) = schema.items() {
                for item in items {
                    drop_empty(item, of);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::Types;
    use super::*;
    use serde_json::json;

    /// Paths recorded from `fieldValidation=Strict` on kube-apiserver 1.36.
    #[test]
    fn fields_that_are_not_declared_are_found_and_dropped() {
        let mut types = Types::default();
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "a": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "integer"}}}},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                    "closed": {"type": "object", "properties": {"x": {"type": "integer"}}},
                }},
                "bare": {"type": "object"},
                "embedded": {
                    "type": "object", "x-kubernetes-embedded-resource": true, "properties": {"data": {"type": "string"}},
                },
            }},
        }});
        types
            .add_custom("g", "K", &json!({"name": "v1", "schema": {"openAPIV3Schema": schema}}))
            .unwrap();
        let schema = types.kind("g", "v1", "K").unwrap();
        let mut object = json!({
            "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "k"}, "extra": 1,
            "spec": {
                "a": "b", "b": 1, "list": [{"x": 1}, {"x": 1, "y": 2}], "map": {"k": {"x": 1, "y": {"z": 1}}}, "bare": {"a": 1},
                "open": {"any": {"thing": 1}, "closed": {"x": 1, "y": 2}},
                "embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}},
            },
        });
        let words = [
            "extra",
            "spec.b",
            "spec.bare.a",
            "spec.embedded.spec",
            "spec.list[1].y",
            "spec.map.k.y",
            "spec.open.closed.y",
        ]
        .map(|path| format!("unknown field \"{path}\""));
        assert_eq!(unknown_fields(&object, schema), words);
        drop_unknown(&mut object, schema);
        assert_eq!(
            object["spec"],
            json!({
                "a": "b", "list": [{"x": 1}, {"x": 1}], "map": {"k": {"x": 1}}, "bare": {},
                "open": {"any": {"thing": 1}, "closed": {"x": 1}},
                "embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}},
            })
        );
    }
}
