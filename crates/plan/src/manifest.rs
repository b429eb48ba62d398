//! What a manifest leaves out, or says of the object that it is applied to, beside what it asks for.

use crate::Change;
use crate::change::kind_name;
use crate::state::{State, list};
use serde_json::Value;

/// Fields named of those that go, at most.
const NAMED_MAX: usize = 5;

/// What applying a manifest may come to that the plan does not follow, in sentences.
pub(crate) fn doubts(state: &State, changes: &[Change]) -> Vec<String> {
    let manifests = changes.iter().filter_map(|change| match change {
        Change::Apply(manifest) => Some((change.target(), manifest)),
        Change::Edit(..) | Change::Delete(..) => None,
    });
    let mut doubts = Vec::new();
    for ((kind, key), manifest) in manifests {
        let Some(live) = state.set(kind, &key) else { continue };
        let set = format!("{} in namespace {}", kind_name(kind, &key.name), key.namespace);
        doubts.extend(left_out(live, manifest).map(|(manager, fields)| {
            format!(
                "{set}: {manager} has applied it with --server-side, and what the file leaves out goes when it is applied so again: {}",
                named(&fields)
            )
        }));
        doubts.extend(is_of_another_version(live, manifest).then(|| {
            format!(
                "{set}: the file is for version {} of it, and it is at {} now: whoever applies the file gets a conflict, and nothing changes",
                manifest["metadata"]["resourceVersion"], live["metadata"]["resourceVersion"]
            )
        }));
    }
    doubts
}

fn named(fields: &[String]) -> String {
    let shown = fields.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match fields.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Whether a manifest holds for another version of the object than the one that is there.
fn is_of_another_version(live: &Value, manifest: &Value) -> bool {
    let wanted = &manifest["metadata"]["resourceVersion"];
    wanted.as_str().is_some_and(|wanted| !wanted.is_empty()) && *wanted != live["metadata"]["resourceVersion"]
}

/// Fields that the manifest lacks and that whoever applied the set server-side has set, with whom.
/// <https://kubernetes.io/docs/reference/using-api/server-side-apply/>
fn left_out<'v>(live: &'v Value, manifest: &'v Value) -> impl Iterator<Item = (&'v str, Vec<String>)> {
    let entries = list(&live["metadata"]["managedFields"]);
    // Others own single fields of it, such as whoever scales it.
    let is_of_the_set = |entry: &&Value| {
        entry["operation"] == "Apply"
            && entry["subresource"].as_str().is_none_or(str::is_empty)
            && entry["fieldsV1"]["f:spec"]["f:template"].is_object()
    };
    entries.filter(is_of_the_set).filter_map(|entry| {
        let mut fields = Vec::new();
        collect(&entry["fieldsV1"], Some(manifest), "", &mut fields);
        (!fields.is_empty()).then(|| (entry["manager"].as_str().unwrap_or("somebody"), fields))
    })
}

/// Collects the paths of what is owned and not there.
fn collect(owned: &Value, there: Option<&Value>, path: &str, fields: &mut Vec<String>) {
    for (name, within) in owned.as_object().into_iter().flatten() {
        let (found, place) = match name.split_once(':') {
            Some(("f", field)) => {
                let separator = if path.is_empty() { "" } else { "." };
                let found = there
                    .and_then(|there| there.get(field))
                    .filter(|value| !value.is_null());
                (found, format!("{path}{separator}{field}"))
            }
            Some(("k", keys)) => {
                let keys: Value = serde_json::from_str(keys).unwrap_or_default();
                let found = list(there.unwrap_or(&Value::Null)).find(|item| has(item, &keys));
                (found, format!("{path}[{keys}]"))
            }
            Some(("v", value)) => {
                let value: Value = serde_json::from_str(value).unwrap_or_default();
                let found = list(there.unwrap_or(&Value::Null)).find(|item| **item == value);
                (found, format!("{path}[{value}]"))
            }
            // The field itself, which its owner has looked at already.
            _ => continue,
        };
        match found {
            Some(_) => collect(within, found, &place, fields),
            None => fields.push(place),
        }
    }
}

/// Whether an item of a list is the one with these keys. What the API server fills in of them need not be in a file.
fn has(item: &Value, keys: &Value) -> bool {
    let mut keys = keys.as_object().into_iter().flatten();
    keys.all(|(key, value)| item[key].is_null() || item[key] == *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn applied(fields: Value) -> Value {
        json!({"metadata": {"managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": fields}]}})
    }

    #[test]
    fn what_was_applied_and_is_left_out_goes() {
        let live = applied(json!({
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {
                "f:replicas": {},
                "f:updateStrategy": {"f:rollingUpdate": {"f:partition": {}}},
                "f:template": {"f:spec": {"f:containers": {
                    ".": {},
                    "k:{\"name\":\"main\"}": {".": {}, "f:image": {}, "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {"f:containerPort": {}}}},
                    "k:{\"name\":\"side\"}": {"f:image": {}},
                }}},
            },
        }));
        let manifest = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"replicas": 3, "updateStrategy": {"rollingUpdate": {}},
                "template": {"spec": {"containers": [{"name": "main", "image": "a", "ports": [{"containerPort": 80}]}]}}},
        });
        let found: Vec<_> = left_out(&live, &manifest).collect();
        assert_eq!(
            found,
            [(
                "kubectl",
                vec![
                    "spec.template.spec.containers[{\"name\":\"side\"}]".to_owned(),
                    "spec.updateStrategy.rollingUpdate.partition".to_owned()
                ]
            )]
        );
    }

    #[test]
    fn whoever_owns_single_fields_applies_no_file() {
        let scaler = applied(json!({"f:spec": {"f:replicas": {}}}));
        assert_eq!(left_out(&scaler, &json!({"spec": {}})).count(), 0);
        let mut by_update = applied(json!({"f:spec": {"f:template": {}, "f:replicas": {}}}));
        by_update["metadata"]["managedFields"][0]["operation"] = json!("Update");
        assert_eq!(left_out(&by_update, &json!({"spec": {"template": {}}})).count(), 0);
    }
}
