//! How values divide into fields that can have different managers.

use super::set::{Set, field};
use crate::schema::{Kind, ListType, Schema};
use serde_json::{Map, Value};

/// What a value is for the purpose of management.
pub(super) enum Shape<'s> {
    /// One thing: a scalar, or something atomic.
    Leaf,
    /// Fields; the schema of each is asked of [`field_schema`].
    Fields,
    /// Items that are told apart by `list_type`, and their schema.
    Items(&'s ListType, Option<Schema<'s>>),
}

/// The shape of a value; `None` for the schema is where the schema is open, and the value itself tells.
pub(super) fn of<'s>(schema: Option<Schema<'s>>, value: &Value) -> Shape<'s> {
    match (value, schema) {
        (Value::Object(_), None) => Shape::Fields,
        (Value::Object(_), Some(schema))
            if !schema.is_atomic() && (schema.kind() == Kind::Object || schema.keeps_unknown()) =>
        {
            Shape::Fields
        }
        (Value::Array(_), Some(schema)) if *schema.list_type() != ListType::Atomic => {
            Shape::Items(schema.list_type(), schema.items())
        }
        _ => Shape::Leaf,
    }
}

/// The schema of a field, and whether it is declared.
pub(super) fn field_schema<'s>(schema: Option<Schema<'s>>, name: &str) -> (Option<Schema<'s>>, bool) {
    match schema.and_then(|s| s.property(name)) {
        Some(property) => (Some(property), true),
        None => (
            schema
                .and_then(Schema::values)
                .filter(|s| !s.keeps_unknown() || s.kind() != Kind::Any),
            false,
        ),
    }
}

/// Whether there is nothing in it.
pub(super) fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(_) => false,
    }
}

/// The step to an item of a list; an error if it has none of the keys.
pub(super) fn step(item: &Value, list_type: &ListType, schema: Option<Schema<'_>>) -> Result<String, String> {
    let ListType::Map(keys) = list_type else {
        return Ok(format!("v:{item}"));
    };
    let mut found = Map::new();
    for key in keys {
        let default = || schema.and_then(|s| s.property(key)).and_then(Schema::default);
        if let Some(value) = item.get(key).or_else(default) {
            found.insert(key.clone(), value.clone());
        }
    }
    if found.is_empty() {
        let keys: Vec<_> = keys.iter().map(|key| crate::field::quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            keys.join(" ")
        ));
    }
    Ok(format!("k:{}", Value::Object(found)))
}

/// The set of all fields of a value.
pub(super) fn fields(value: &Value, schema: Option<Schema<'_>>) -> Set {
    let mut set = Set::default();
    match (of(schema, value), value) {
        (Shape::Fields, Value::Object(fields)) => {
            for (name, value) in fields {
                let (schema, is_declared) = field_schema(schema, name);
                let is_empty_object = value.as_object().is_some_and(Map::is_empty);
                let is_member =
                    !is_declared || value.is_null() || is_empty_object || matches!(of(schema, value), Shape::Leaf);
                include(&mut set, field(name), value, schema, is_member);
            }
        }
        (Shape::Items(list_type, schema), Value::Array(items)) => {
            for item in items {
                if let Ok(step) = step(item, list_type, schema) {
                    include(&mut set, step, item, schema, true);
                }
            }
        }
        _ => {}
    }
    set
}

fn include(set: &mut Set, step: String, value: &Value, schema: Option<Schema<'_>>, is_member: bool) {
    let below = fields(value, schema);
    if !below.is_empty() {
        set.children.insert(step.clone(), below);
    }
    if is_member {
        set.members.insert(step);
    }
}

/// The set with all declared fields in it that it has only something below of.
pub(super) fn with_declared(set: &Set, schema: Option<Schema<'_>>) -> Set {
    let mut whole = Set {
        members: set.members.clone(),
        ..Set::default()
    };
    for (step, inner) in &set.children {
        let below = match super::set::field_of(step) {
            Some(name) => {
                let (below, is_declared) = field_schema(schema, name);
                if is_declared {
                    whole.members.insert(step.clone());
                }
                below
            }
            None => schema.and_then(Schema::items),
        };
        whole.children.insert(step.clone(), with_declared(inner, below));
    }
    whole
}

/// What no configuration may hold: fields that are not declared, and items of a list that are the same.
pub(super) fn mistakes(value: &Value, schema: Option<Schema<'_>>, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    match (of(schema, value), value) {
        (Shape::Fields, Value::Object(fields)) => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                let (below, is_declared) = field_schema(schema, name);
                let is_open = schema.is_none_or(|s| s.keeps_unknown() || s.values().is_some());
                if !is_declared && !is_open {
                    found.push(format!("{path}: field not declared in schema"));
                } else {
                    found.extend(mistakes(value, below, &path));
                }
            }
        }
        (Shape::Items(list_type, schema), Value::Array(items)) => {
            let mut seen = Vec::new();
            for (index, item) in items.iter().enumerate() {
                match step(item, list_type, schema) {
                    Err(why) => found.push(format!("{path}: element {index}: {why}")),
                    Ok(step) => {
                        let mut one = Set::default();
                        one.insert(std::slice::from_ref(&step));
                        let words = one.paths().concat();
                        if seen.contains(&step) {
                            found.push(format!("{path}: duplicate entries for key {words}"));
                        }
                        found.extend(mistakes(item, schema, &format!("{path}{words}")));
                        seen.push(step);
                    }
                }
            }
        }
        _ => {}
    }
    found
}
