//! Tables of defaults, as every kind has one.

use serde_json::{Map, Value, json};

/// What a field is set to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Literal {
    Int(i64),
    /// An empty text counts as absent, since that is how Go clients write one.
    Text(&'static str),
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Default {
    /// Fields from the object down, with dots between them.
    pub(super) path: &'static str,
    pub(super) value: Literal,
    /// Whether the row applies to an object, in which the rows before it are filled in already.
    pub(super) when: fn(&Value) -> bool,
}

/// A row that always applies.
pub(super) const fn always(path: &'static str, value: Literal) -> Default {
    Default {
        path,
        value,
        when: |_| true,
    }
}

/// Fills in the rows of a table, in order. What has the wrong type on the way is left to the schema to refuse.
pub(super) fn fill(object: &mut Value, table: &[Default]) {
    for row in table {
        if (row.when)(object) {
            set(object, row.path, row.value);
        }
    }
}

fn set(object: &mut Value, path: &str, value: Literal) {
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut place = object;
    for field in parents.split('.').filter(|f| !f.is_empty()) {
        let Some(fields) = place.as_object_mut() else { return };
        place = fields.entry(field).or_insert(Value::Null);
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
    }
    if let Some(fields) = place.as_object_mut() {
        fill_in(fields, last, value);
    }
}

/// Fills in one field where it is absent.
pub(super) fn fill_in(fields: &mut Map<String, Value>, field: &str, value: Literal) {
    let is_absent = match (fields.get(field), value) {
        (None | Some(Value::Null), _) => true,
        (Some(Value::String(text)), Literal::Text(_)) => text.is_empty(),
        _ => false,
    };
    if is_absent {
        let value = match value {
            Literal::Int(number) => json!(number),
            Literal::Text(text) => json!(text),
        };
        fields.insert(field.to_owned(), value);
    }
}
