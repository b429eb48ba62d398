//! Looking into JSON that anybody may have written: a field of the wrong type counts as absent here, and is refused by the schema.

use serde_json::Value;

/// The value at a path of fields; null counts as absent.
pub(crate) fn at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    let mut place = value;
    for field in path {
        place = place.get(field)?;
    }
    Some(place).filter(|v| !v.is_null())
}

/// The text at a path; empty if there is none.
pub(crate) fn text<'v>(value: &'v Value, path: &[&str]) -> &'v str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The entries of the list at a path.
pub(crate) fn list<'v>(value: &'v Value, path: &[&str]) -> &'v [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The entries of the list in a field, to be changed.
pub(crate) fn list_mut<'v>(value: &'v mut Value, field: &str) -> &'v mut [Value] {
    value
        .get_mut(field)
        .and_then(Value::as_array_mut)
        .map_or(&mut [], Vec::as_mut_slice)
}

/// The entries of the object at a path.
pub(crate) fn entries<'v>(value: &'v Value, path: &[&str]) -> impl Iterator<Item = (&'v String, &'v Value)> {
    at(value, path).and_then(Value::as_object).into_iter().flatten()
}

/// An annotation's value.
pub(crate) fn annotation<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    at(object, &["metadata", "annotations", key]).and_then(Value::as_str)
}

/// A label's value.
pub(crate) fn label<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    at(object, &["metadata", "labels", key]).and_then(Value::as_str)
}
