//! What `kubectl apply` sends: the manifest over the live object, without what the last manifest had and this one has not.

use crate::state::list;
use flotilla_apimachinery::schema::{PatchStrategy, Schema};
use serde_json::{Value, json};

/// Where `kubectl apply` keeps the manifest that was applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Metadata that the server gives and a manifest cannot change.
const SERVERS_OWN: [&str; 6] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
];

/// The patch that makes `live` what the manifest says. With a schema it is a strategic merge patch, otherwise a merge patch.
pub(crate) fn patch(live: &Value, manifest: &Value, schema: Option<Schema<'_>>) -> Value {
    let mut patch = manifest.clone();
    if let Some(fields) = patch.as_object_mut() {
        fields.remove("status");
    }
    if let Some(meta) = patch["metadata"].as_object_mut() {
        meta.retain(|field, _| !SERVERS_OWN.contains(&field.as_str()));
    }
    let last = live["metadata"]["annotations"][LAST_APPLIED].as_str();
    if let Some(last) = last.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
        take_away(&mut patch, &last, schema);
    }
    patch
}

/// Adds to a patch that what `last` had and the patch has not is to go.
fn take_away(patch: &mut Value, last: &Value, schema: Option<Schema<'_>>) {
    let (Some(patch), Some(last)) = (patch.as_object_mut(), last.as_object()) else {
        return;
    };
    for (name, before) in last {
        let field = schema.and_then(|s| s.field(name));
        match patch.get_mut(name) {
            None if name == "status" => {}
            None => drop(patch.insert(name.clone(), Value::Null)),
            Some(now) if now.is_array() => take_items_away(now, before, field),
            Some(now) => take_away(now, before, field),
        }
    }
}

/// The same for a list whose items have names; other lists are replaced as they are.
fn take_items_away(now: &mut Value, before: &Value, schema: Option<Schema<'_>>) {
    let merges = schema.filter(|s| s.patch_strategy() == PatchStrategy::Merge);
    let Some((schema, key)) = merges.and_then(|s| Some((s, s.patch_merge_key()?))) else {
        return;
    };
    let Some(items) = now.as_array_mut() else { return };
    let mut gone = Vec::new();
    for before in list(before) {
        match items.iter_mut().find(|item| item[key] == before[key]) {
            Some(item) => take_away(item, before, schema.items()),
            None => gone.push(json!({"$patch": "delete", key: before[key]})),
        }
    }
    items.extend(gone);
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_apimachinery::openapi::Builtin;

    fn set(spec: Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": spec})
    }

    fn applied(last: &Value) -> Value {
        let mut live = last.clone();
        live["metadata"]["annotations"] = json!({LAST_APPLIED: last.to_string()});
        live
    }

    #[test]
    fn what_the_file_has_no_more_goes() {
        let types = Builtin::load().types().unwrap();
        let schema = types.kind("apps", "v1", "StatefulSet");
        let containers = |names: &[&str]| -> Value { names.iter().map(|n| json!({"name": n})).collect() };
        let template = |names: &[&str]| json!({"spec": {"containers": containers(names)}});
        let last = set(json!({"replicas": 3, "minReadySeconds": 5, "template": template(&["a", "b"])}));
        let now = set(json!({"replicas": 3, "template": template(&["a"])}));
        let made = patch(&applied(&last), &now, schema);
        assert_eq!(made["spec"]["minReadySeconds"], Value::Null);
        assert!(made["spec"].as_object().unwrap().contains_key("minReadySeconds"));
        assert_eq!(
            made["spec"]["template"]["spec"]["containers"],
            json!([{"name": "a"}, {"$patch": "delete", "name": "b"}])
        );
        let custom = patch(&applied(&last), &now, None);
        assert_eq!(custom["spec"]["template"]["spec"]["containers"], json!([{"name": "a"}]));
    }

    #[test]
    fn what_somebody_else_added_stays() {
        let last = set(json!({"template": {}}));
        let mut live = applied(&last);
        live["spec"]["replicas"] = json!(7);
        let made = patch(&live, &set(json!({"template": {}})), None);
        assert!(made["spec"].get("replicas").is_none());
    }
}
