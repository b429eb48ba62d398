//! Filling in the defaults that a custom resource definition declares (`apiextensions-apiserver/pkg/apiserver/schema/defaulting`).

use super::Schema;
use serde_json::Value;

/// Fills in defaults for absent fields, and for nulls where null is no value.
///
/// Defaults of built-in types are code of the API server, and are not in its documents: this is for custom resources.
pub fn fill_defaults(value: &mut Value, schema: Schema<'_>) {
    match value {
        Value::Object(fields) => {
            for (name, property) in schema.properties() {
                let Some(default) = property.default() else { continue };
                let is_missing = match fields.get(name) {
                    None => true,
                    Some(value) => is_wrongly_null(value, property),
                };
                if is_missing {
                    fields.insert(name.to_owned(), default.clone());
                }
            }
            for (name, value) in fields {
                if let Some(property) = schema.field(name) {
                    fill_entry(value, property);
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = schema.items() {
                for item in items {
                    fill_entry(item, of);
                }
            }
        }
        _ => {}
    }
}

fn fill_entry(value: &mut Value, schema: Schema<'_>) {
    if let Some(default) = schema.default().filter(|_| is_wrongly_null(value, schema)) {
        *value = default.clone();
    }
    fill_defaults(value, schema);
}

fn is_wrongly_null(value: &Value, schema: Schema<'_>) -> bool {
    value.is_null() && !schema.is_nullable()
}

#[cfg(test)]
mod tests {
    use super::super::Types;
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_are_filled_in_at_any_depth() {
        let mut types = Types::default();
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": {
            "size": {"type": "integer", "default": 3},
            "mode": {"type": "string", "nullable": true, "default": "a"},
            "ports": {"type": "array", "items": {"type": "object", "properties": {"protocol": {"type": "string", "default": "TCP"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "integer", "default": 1}}}},
        }}}});
        types
            .add_custom("g", "K", &json!({"name": "v1", "schema": {"openAPIV3Schema": schema}}))
            .unwrap();
        let schema = types.kind("g", "v1", "K").unwrap();
        for (object, expected) in [
            (json!({}), json!({"spec": {"size": 3, "mode": "a"}})),
            (
                json!({"spec": {"size": null, "mode": null}}),
                json!({"spec": {"size": 3, "mode": null}}),
            ),
            (
                json!({"spec": {"size": 1, "mode": "b", "ports": [{}, {"protocol": "UDP"}], "map": {"k": {}}}}),
                json!({"spec": {"size": 1, "mode": "b", "ports": [{"protocol": "TCP"}, {"protocol": "UDP"}], "map": {"k": {"x": 1}}}}),
            ),
        ] {
            let mut filled = object.clone();
            fill_defaults(&mut filled, schema);
            assert_eq!(filled, expected, "{object}");
        }
    }
}
