//! The three kinds of patches: JSON patch (RFC 6902), merge patch (RFC 7396) and Kubernetes' own strategic merge patch.
//!
//! Each takes the object as it is and the patch as it was sent, and gives the new object or the API server's refusal.

mod strategic;

pub use strategic::strategic_merge_patch;

use crate::status::Status;
use json_patch::PatchOperation;
use serde_json::Value;

/// The most operations that the API server accepts in one JSON patch.
const OPERATIONS_MAX: usize = 10_000;

/// Applies a JSON patch.
pub fn json_patch(object: &Value, patch: &Value) -> Result<Value, Status> {
    let Some(operations) = patch.as_array() else {
        let kind = go_kind(patch);
        let message =
            format!("error decoding patch: json: cannot unmarshal {kind} into Go value of type []handlers.jsonPatchOp");
        return Err(Status::bad_request(message));
    };
    if operations.len() > OPERATIONS_MAX {
        let message = format!(
            "Request entity is too large: The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        );
        return Err(Status::new(413, "RequestEntityTooLarge", message));
    }
    let mut patched = object.clone();
    for operation in operations {
        if tests_for_absence(&patched, operation) {
            continue;
        }
        let mut operation = operation.clone();
        if replaces_nothing(&patched, &operation) {
            operation["op"] = "add".into();
        }
        let operation: PatchOperation = serde_json::from_value(operation).map_err(|_| Status::unprocessable())?;
        json_patch::patch(&mut patched, &[operation]).map_err(|_| Status::unprocessable())?;
    }
    Ok(patched)
}

/// The API server's library takes an absent field for null in tests, which RFC 6902 does not.
fn tests_for_absence(object: &Value, operation: &Value) -> bool {
    let is_test = operation["op"] == "test" && operation["value"].is_null();
    is_test
        && operation["path"]
            .as_str()
            .is_some_and(|path| object.pointer(path).is_none())
}

/// The API server's library replaces absent fields of objects that are there, which RFC 6902 does not.
fn replaces_nothing(object: &Value, operation: &Value) -> bool {
    let Some(path) = operation["path"].as_str().filter(|_| operation["op"] == "replace") else {
        return false;
    };
    let parent = path.rsplit_once('/').and_then(|(parent, _)| object.pointer(parent));
    parent.is_some_and(Value::is_object) && object.pointer(path).is_none()
}

/// Applies a merge patch.
pub fn merge_patch(object: &Value, patch: &Value) -> Result<Value, Status> {
    if !patch.is_object() {
        let kind = go_kind(patch);
        let message = format!(
            "error decoding patch: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        );
        return Err(Status::bad_request(message));
    }
    let mut patch = patch.clone();
    discard_nulls_in_lists(&mut patch);
    let mut patched = object.clone();
    json_patch::merge(&mut patched, &patch);
    Ok(patched)
}

/// What Go's JSON decoder calls a value.
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// RFC 7396 keeps nulls of objects in lists; the API server's library drops them.
fn discard_nulls_in_lists(patch: &mut Value) {
    match patch {
        Value::Object(fields) => fields.values_mut().for_each(discard_nulls_in_lists),
        Value::Array(items) => items.iter_mut().for_each(strategic::discard_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is refused and what is not was recorded from kube-apiserver 1.36.
    #[test]
    fn json_patches_do_what_the_api_server_does() {
        let object = json!({"metadata": {"labels": {"a": "1"}}, "list": [1, 2]});
        let rows = [
            (
                json!([{"op": "add", "path": "/metadata/labels/b", "value": "2"}]),
                Some(json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "list": [1, 2]})),
            ),
            (
                json!([{"op": "add", "path": "/list/-", "value": 3}, {"op": "remove", "path": "/metadata"}]),
                Some(json!({"list": [1, 2, 3]})),
            ),
            (
                json!([{"op": "test", "path": "/list/0", "value": 1}, {"op": "replace", "path": "/list/0", "value": 0}]),
                Some(json!({"metadata": {"labels": {"a": "1"}}, "list": [0, 2]})),
            ),
            (
                json!([{"op": "test", "path": "/none", "value": null}]),
                Some(object.clone()),
            ),
            (json!([{"op": "test", "path": "/list/0", "value": 2}]), None),
            (json!([{"op": "remove", "path": "/none"}]), None),
            (json!([{"op": "replace", "path": "/none/x", "value": 1}]), None),
            (
                json!([{"op": "replace", "path": "/metadata/none", "value": 1}]),
                Some(json!({"metadata": {"labels": {"a": "1"}, "none": 1}, "list": [1, 2]})),
            ),
            (json!([{"op": "add", "path": "/none/x", "value": 1}]), None),
            (json!([{"op": "increase", "path": "/list/0"}]), None),
        ];
        for (patch, expected) in rows {
            match expected {
                Some(expected) => assert_eq!(json_patch(&object, &patch).unwrap(), expected, "{patch}"),
                None => assert_eq!(
                    json_patch(&object, &patch).unwrap_err(),
                    Status::unprocessable(),
                    "{patch}"
                ),
            }
        }
        assert_eq!(json_patch(&object, &json!({})).unwrap_err().code, 400);
    }

    #[test]
    fn merge_patches_do_what_rfc_7396_says() {
        let object = json!({"a": {"b": 1, "c": 2}, "list": [1, 2]});
        let patch = json!({"a": {"b": null, "d": {"e": null, "f": 1}}, "list": [{"x": null, "y": 1}]});
        assert_eq!(
            merge_patch(&object, &patch).unwrap(),
            json!({"a": {"c": 2, "d": {"f": 1}}, "list": [{"y": 1}]})
        );
        assert_eq!(merge_patch(&object, &json!([])).unwrap_err().code, 400);
    }
}
