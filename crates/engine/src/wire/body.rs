//! Bodies of requests, with the preconditions that every write carries.

use crate::core::request::StatusPatch;
use flotilla_model::{PatchKind, Uid};
use serde_json::{Value, json};

/// The body of a patch of the incarnation `uid`, at `version` if one is named. The API server answers 409 if a patch names another
/// UID or version than the object has.
pub fn patch(kind: PatchKind, mut body: Value, uid: &Uid, version: Option<u64>) -> Value {
    let (uid, version) = (uid.to_string(), version.map(|v| v.to_string()));
    match kind {
        PatchKind::Merge | PatchKind::Strategic => {
            body["metadata"]["uid"] = json!(uid);
            if let Some(version) = version {
                body["metadata"]["resourceVersion"] = json!(version);
            }
            body
        }
        PatchKind::Json => {
            let mut operations = vec![json!({ "op": "test", "path": "/metadata/uid", "value": uid })];
            operations
                .extend(version.map(|v| json!({ "op": "test", "path": "/metadata/resourceVersion", "value": v })));
            if let Value::Array(rest) = body {
                operations.extend(rest);
            }
            Value::Array(operations)
        }
    }
}

/// The merge patch of a status subresource.
pub fn status_patch(patch: &StatusPatch) -> Value {
    json!({
        "metadata": { "uid": patch.uid.to_string(), "resourceVersion": patch.resource_version.to_string() },
        "status": patch.status,
    })
}

/// What a deletion of the incarnation `uid` sends along.
pub fn delete_options(uid: &Uid, version: Option<u64>) -> Value {
    let mut preconditions = json!({ "uid": uid.to_string() });
    if let Some(version) = version {
        preconditions["resourceVersion"] = json!(version.to_string());
    }
    json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions })
}
