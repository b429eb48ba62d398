//! The three kinds of patches.
//!
//! Of strategic merge patches, which need to know how every list merges, this supports what controllers and `kubectl annotate` use:
//! maps merge, `metadata.ownerReferences` merges by UID, a pod's containers by name and conditions by type, `metadata.finalizers` as a
//! set, `$patch: delete` and `$patch: replace`. `$setElementOrder` is taken for granted. A patch of any other list is refused by name.

use super::refusal;
use flotilla_apimachinery::patch::json_patch;
use flotilla_apimachinery::status::Status;
use flotilla_model::PatchKind;
use serde_json::{Map, Value};

/// What `value` becomes by a patch.
pub(super) fn apply(kind: PatchKind, value: &Value, patch: &Value) -> Result<Value, Status> {
    if kind == PatchKind::Json {
        return json_patch(value, patch);
    }
    let mut patched = value.clone();
    match kind {
        PatchKind::Strategic => merge(&mut patched, patch, "")?,
        PatchKind::Merge | PatchKind::Json => ::json_patch::merge(&mut patched, patch),
    }
    Ok(patched)
}

fn merge(target: &mut Value, patch: &Value, path: &str) -> Result<(), Status> {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return Ok(());
    };
    if fields.get("$patch").and_then(Value::as_str) == Some("replace") {
        let rest = fields.iter().filter(|(name, _)| *name != "$patch");
        *target = Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect());
        return Ok(());
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else {
        return Ok(());
    };
    for (name, value) in fields.iter().filter(|(name, _)| !name.starts_with("$setElementOrder/")) {
        let path = format!("{path}.{name}");
        match value {
            Value::Null => drop(target.remove(name)),
            Value::Object(_) => merge(target.entry(name.clone()).or_insert(Value::Null), value, &path)?,
            Value::Array(items) => merge_list(target, name, items, &path)?,
            plain => drop(target.insert(name.clone(), plain.clone())),
        }
    }
    Ok(())
}

fn merge_list(target: &mut Map<String, Value>, name: &str, items: &[Value], path: &str) -> Result<(), Status> {
    let key = match path {
        ".metadata.ownerReferences" => Some("uid"),
        ".spec.containers" | ".spec.initContainers" => Some("name"),
        ".status.conditions" => Some("type"),
        ".metadata.finalizers" => None,
        _ => {
            let message = format!("strategic merge of the list {path} is not supported by the simulated API server");
            return Err(refusal(415, "UnsupportedMediaType", message));
        }
    };
    let mut list = target.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    for item in items {
        let same = |known: &Value| match key {
            Some(key) => known.get(key) == item.get(key),
            None => known == item,
        };
        let place = list.iter().position(same);
        let deletes = item.get("$patch").and_then(Value::as_str) == Some("delete");
        match (place, deletes) {
            (Some(place), true) => drop(list.remove(place)),
            (Some(place), false) => merge(&mut list[place], item, path)?,
            (None, true) => {}
            (None, false) => list.push(item.clone()),
        }
    }
    if list.is_empty() {
        target.remove(name);
    } else {
        target.insert(name.to_owned(), Value::Array(list));
    }
    Ok(())
}
