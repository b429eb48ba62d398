//! Whether a change of the template can be made in running pods (rule 4.1).
//!
//! Templates are compared in their normal form, so that spelling and defaults force no pod to be made again. Images, cpu and memory, and
//! metadata may change; anything else, fields that are newer than we are included, may not.

use super::{Changes, UpdateSpec};
use flotilla_api::names;
use flotilla_model::template::normal_form;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// One difference between two documents.
struct Difference<'a> {
    path: Vec<String>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
}

/// What brings a pod of template `old` to template `new`, or why that cannot be done in place.
pub fn compare(old: &Value, new: &Value) -> Result<UpdateSpec, String> {
    let (mut old_normal, mut new_normal) = (normal_form(old), normal_form(new));
    align_pull_policies(old, new, &mut old_normal, &mut new_normal);
    let mut differences = Vec::new();
    let absent = json!({});
    differ(
        old_normal.get("spec").unwrap_or(&absent),
        new_normal.get("spec").unwrap_or(&absent),
        &mut vec!["spec".to_owned()],
        &mut differences,
    );
    let mut changes = Changes::default();
    for difference in &differences {
        take(difference, old, new, &mut changes)?;
    }
    if !changes.resources.is_empty() && qos(&old_normal) != qos(&new_normal) {
        return Err(format!(
            "the quality of service class would change from {} to {}",
            qos(&old_normal),
            qos(&new_normal)
        ));
    }
    let mut spec = UpdateSpec {
        changes,
        ..UpdateSpec::default()
    };
    compare_metadata(old, new, &mut spec);
    Ok(spec)
}

/// A pull policy that is not stated depends on the image's tag, and the change of the image alone must not look like one of the policy.
fn align_pull_policies(old: &Value, new: &Value, old_normal: &mut Value, new_normal: &mut Value) {
    let raw = |template: &Value, i: usize| {
        let policy = template.pointer(&format!("/spec/containers/{i}/imagePullPolicy"));
        policy
            .and_then(Value::as_str)
            .filter(|p| !p.is_empty())
            .map(str::to_owned)
    };
    let count = |template: &Value| {
        template
            .pointer("/spec/containers")
            .and_then(Value::as_array)
            .map_or(0, Vec::len)
    };
    for i in 0..count(old).min(count(new)) {
        let effective = match (raw(old, i), raw(new, i)) {
            (None, None) => (Value::Null, Value::Null),
            (before, after) => (
                json!(before.unwrap_or_else(|| default_policy(old, i))),
                json!(after.unwrap_or_else(|| default_policy(new, i))),
            ),
        };
        for (normal, policy) in [(&mut *old_normal, effective.0), (&mut *new_normal, effective.1)] {
            let container = normal
                .pointer_mut(&format!("/spec/containers/{i}"))
                .and_then(Value::as_object_mut);
            if let Some(container) = container {
                container.remove("imagePullPolicy");
                if !policy.is_null() {
                    container.insert("imagePullPolicy".to_owned(), policy);
                }
            }
        }
    }
}

/// Always for what moves, IfNotPresent for the rest.
fn default_policy(template: &Value, container: usize) -> String {
    let image = template.pointer(&format!("/spec/containers/{container}/image"));
    let image = image.and_then(Value::as_str).unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let moving = !last.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    if moving { "Always" } else { "IfNotPresent" }.to_owned()
}

/// Collects where two documents differ: lists by index.
fn differ<'a>(old: &'a Value, new: &'a Value, path: &mut Vec<String>, found: &mut Vec<Difference<'a>>) {
    let mut enter = |step: String, old: Option<&'a Value>, new: Option<&'a Value>| {
        path.push(step);
        match (old, new) {
            (Some(old), Some(new)) => differ(old, new, path, found),
            _ => found.push(Difference {
                path: path.clone(),
                old,
                new,
            }),
        }
        path.pop();
    };
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let fields: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for field in fields {
                enter(field.clone(), a.get(field), b.get(field));
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for i in 0..a.len().max(b.len()) {
                enter(i.to_string(), a.get(i), b.get(i));
            }
        }
        _ if old == new => {}
        _ => found.push(Difference {
            path: path.clone(),
            old: Some(old),
            new: Some(new),
        }),
    }
}

/// Takes one difference into `changes`, or says why it cannot be made in place.
fn take(difference: &Difference<'_>, old: &Value, new: &Value, changes: &mut Changes) -> Result<(), String> {
    let path: Vec<&str> = difference.path.iter().map(String::as_str).collect();
    let is_replaced = difference.old.is_some() && difference.new.is_some();
    let container = |index: &str| {
        let name = old.pointer(&format!("/spec/containers/{index}/name"));
        name.and_then(Value::as_str).map(str::to_owned)
    };
    match path.as_slice() {
        ["spec", "containers", index, "image"] if is_replaced => {
            let image = difference.new.and_then(Value::as_str);
            if let (Some(name), Some(image)) = (container(index), image) {
                changes.images.insert(name, image.to_owned());
                return Ok(());
            }
        }
        [
            "spec",
            "containers",
            index,
            "resources",
            list @ ("limits" | "requests"),
            resource @ ("cpu" | "memory"),
        ] if is_replaced => {
            let stated = new.pointer(&format!("/spec/containers/{index}/resources/{list}/{resource}"));
            // A request that is not stated follows the limit.
            let stated = stated
                .filter(|v| !v.is_null())
                .or_else(|| new.pointer(&format!("/spec/containers/{index}/resources/limits/{resource}")));
            if let (Some(name), Some(value)) = (container(index), stated) {
                let change = changes.resources.entry(name).or_insert_with(|| json!({}));
                change[*list][*resource] = value.clone();
                return Ok(());
            }
        }
        _ => {}
    }
    let verb = match (difference.old.is_some(), difference.new.is_some()) {
        (false, _) => "was added",
        (_, false) => "was removed",
        _ => "changed",
    };
    Err(format!("{} {verb}", field_name(&path)))
}

/// A path in the way users write it: `spec.containers[0].env`.
fn field_name(path: &[&str]) -> String {
    let mut name = String::new();
    for step in path {
        if step.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() {
            name.push('[');
            name.push_str(step);
            name.push(']');
        } else {
            if !name.is_empty() {
                name.push('.');
            }
            name.push_str(step);
        }
    }
    name
}

/// The quality of service class of pods of a template in normal form.
fn qos(template: &Value) -> &'static str {
    let lists = ["/spec/containers", "/spec/initContainers"];
    let containers = lists
        .iter()
        .filter_map(|list| template.pointer(list).and_then(Value::as_array))
        .flatten();
    let amount = |c: &Value, list: &str, resource: &str| {
        let value = c.pointer(&format!("/resources/{list}/{resource}"));
        value.filter(|v| v.as_str() != Some("0n")).cloned()
    };
    let (mut states_any, mut guaranteed) = (false, true);
    for container in containers {
        for resource in ["cpu", "memory"] {
            let (limit, request) = (
                amount(container, "limits", resource),
                amount(container, "requests", resource),
            );
            states_any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && limit == request;
        }
    }
    match (states_any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Metadata may change in any way. What environments refer to changes together with the container; the rest at once.
fn compare_metadata(old: &Value, new: &Value, spec: &mut UpdateSpec) {
    let mut patch = Map::new();
    for field in ["labels", "annotations"] {
        let at = |template: &Value| -> Map<String, Value> {
            let map = template
                .pointer(&format!("/metadata/{field}"))
                .and_then(Value::as_object);
            map.cloned().unwrap_or_default()
        };
        let (before, after) = (at(old), at(new));
        let mut changed = Map::new();
        for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(value)) {
            let text = value.as_str().unwrap_or_default();
            let users = users_of(new, field, key);
            if users.is_empty() {
                changed.insert(key.clone(), value.clone());
            }
            for container in users {
                let refs = spec.changes.ref_metadata.entry(container).or_default();
                let map = if field == "labels" {
                    &mut refs.labels
                } else {
                    &mut refs.annotations
                };
                map.insert(key.clone(), text.to_owned());
                spec.env_from_metadata = true;
            }
        }
        let removed = before.keys().filter(|key| !after.contains_key(*key));
        changed.extend(removed.map(|key| (key.clone(), Value::Null)));
        if !changed.is_empty() {
            patch.insert(field.to_owned(), Value::Object(changed));
        }
    }
    compare_finalizers(old, new, &mut patch);
    if !patch.is_empty() {
        spec.metadata = Value::Object(patch);
    }
}

/// A strategic-merge patch of the list, which leaves finalizers of others alone.
fn compare_finalizers(old: &Value, new: &Value, patch: &mut Map<String, Value>) {
    let list = |template: &Value| -> Vec<Value> {
        let found = template.pointer("/metadata/finalizers").and_then(Value::as_array);
        found.cloned().unwrap_or_default()
    };
    let (before, after) = (list(old), list(new));
    let added: Vec<&Value> = after.iter().filter(|f| !before.contains(f)).collect();
    let removed: Vec<&Value> = before.iter().filter(|f| !after.contains(f)).collect();
    if !added.is_empty() {
        patch.insert("finalizers".to_owned(), json!(added));
    }
    if !removed.is_empty() {
        patch.insert("$deleteFromPrimitiveList/finalizers".to_owned(), json!(removed));
    }
}

/// Containers of a template whose environment refers to a label or an annotation.
fn users_of(template: &Value, field: &str, key: &str) -> Vec<String> {
    let path = format!("metadata.{field}['{key}']");
    let containers = template.pointer("/spec/containers").and_then(Value::as_array);
    let refers = |entry: &Value| {
        let text = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str);
        let is_literal = text("/value").is_some_and(|v| !v.is_empty());
        let is_counted = !names::ENV_NOT_COUNTED.contains(&text("/name").unwrap_or_default());
        !is_literal && is_counted && text("/valueFrom/fieldRef/fieldPath") == Some(&path)
    };
    let uses = |c: &&Value| {
        c.get("env")
            .and_then(Value::as_array)
            .is_some_and(|env| env.iter().any(refers))
    };
    let users = containers.into_iter().flatten().filter(uses);
    users
        .filter_map(|c| c.get("name").and_then(Value::as_str))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(containers: Value) -> Value {
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}})
    }

    fn main(extra: Value) -> Value {
        let mut container = json!({"name": "main", "image": "web:1"});
        super::super::overlay(&mut container, &extra);
        container
    }

    #[test]
    fn rule_4_1_images_cpu_and_memory_may_change() {
        let resources =
            |cpu: &str| json!({"resources": {"limits": {"cpu": cpu, "memory": "1Gi"}, "requests": {"cpu": "1"}}});
        let old = template(json!([main(resources("2")), {"name": "side", "image": "s:1"}]));
        let new = template(json!([main(resources("3")), {"name": "side", "image": "s:2"}]));
        let spec = compare(&old, &new).expect("it can be done in place");
        assert_eq!(
            spec.changes.images.into_iter().collect::<Vec<_>>(),
            [("side".into(), "s:2".into())]
        );
        assert_eq!(spec.changes.resources["main"], json!({"limits": {"cpu": "3"}}));
        assert!(spec.metadata.is_null() && !spec.env_from_metadata);
    }

    #[test]
    fn rule_4_1_spelling_and_defaults_are_no_change() {
        let old = template(json!([main(json!({"resources": {"limits": {"cpu": "1000m"}}}))]));
        let mut new = template(json!([main(json!({
            "resources": {"limits": {"cpu": "1"}}, "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent",
        }))]));
        new["spec"]["restartPolicy"] = json!("Always");
        assert!(compare(&old, &new).is_ok_and(|spec| spec.is_empty()));
    }

    #[test]
    fn rule_4_1_a_new_tag_is_no_new_pull_policy() {
        let image = |image: &str, extra: Value| {
            let mut container = main(extra);
            container["image"] = json!(image);
            template(json!([container]))
        };
        let stated = json!({"imagePullPolicy": "IfNotPresent"});
        for (old, new) in [
            (image("web:1", json!({})), image("web:latest", json!({}))),
            (image("web:1", stated.clone()), image("web:latest", stated.clone())),
            (image("web:1", json!({})), image("web:latest", stated.clone())),
        ] {
            assert!(compare(&old, &new).is_ok_and(|s| s.changes.images.len() == 1), "{new}");
        }
        let (old, new) = (
            image("web:1", json!({})),
            image("web:2", json!({"imagePullPolicy": "Always"})),
        );
        assert!(compare(&old, &new).is_err());
    }

    #[test]
    fn rule_4_1_anything_else_may_not_change() {
        let plain = template(json!([main(json!({}))]));
        let two = template(json!([main(json!({})), {"name": "side", "image": "s"}]));
        let with = |extra: Value| template(json!([main(extra)]));
        let limits = |cpu: &str| with(json!({"resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}}));
        let init = |image: &str| {
            let mut t = plain.clone();
            t["spec"]["initContainers"] = json!([{"name": "init", "image": image}]);
            t
        };
        for (what, old, new, reason) in [
            (
                "added container",
                plain.clone(),
                two.clone(),
                "spec.containers[1] was added",
            ),
            (
                "removed container",
                two.clone(),
                plain.clone(),
                "spec.containers[1] was removed",
            ),
            (
                "order",
                two,
                template(json!([{"name": "side", "image": "s"}, main(json!({}))])),
                "spec.containers[0].name changed",
            ),
            (
                "env",
                plain.clone(),
                with(json!({"env": [{"name": "A", "value": "b"}]})),
                "spec.containers[0].env was added",
            ),
            (
                "resources added",
                plain.clone(),
                limits("1"),
                "spec.containers[0].resources was added",
            ),
            (
                "other resource",
                with(json!({"resources": {"limits": {"gpu": "1"}}})),
                with(json!({"resources": {"limits": {"gpu": "2"}}})),
                "spec.containers[0].resources.limits.gpu changed",
            ),
            (
                "init container",
                init("i:1"),
                init("i:2"),
                "spec.initContainers[0].image changed",
            ),
            (
                "unknown field",
                plain.clone(),
                with(json!({"hyperdrive": true})),
                "spec.containers[0].hyperdrive was added",
            ),
            (
                "class",
                limits("1"),
                with(json!({"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}})),
                "the quality of service class would change from Guaranteed to Burstable",
            ),
        ] {
            assert_eq!(compare(&old, &new), Err(reason.to_owned()), "{what}");
        }
    }

    #[test]
    fn rule_4_1_a_request_that_is_not_stated_follows_its_limit() {
        let with = |cpu: &str| {
            template(json!([main(
                json!({"resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}})
            )]))
        };
        let spec = compare(&with("1"), &with("2")).expect("it can be done in place");
        assert_eq!(
            spec.changes.resources["main"],
            json!({"limits": {"cpu": "2"}, "requests": {"cpu": "2"}})
        );
    }

    #[test]
    fn rule_4_1_metadata_is_patched_at_once_unless_an_environment_refers_to_it() {
        let refers = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let env = json!({"env": [
            refers("ROLE", "metadata.labels['role']"), refers("SIDECARSET_VERSION", "metadata.annotations['v']"),
        ]});
        let metadata = |labels: Value, annotations: Value, finalizers: Value| {
            let mut t = template(json!([main(env.clone())]));
            t["metadata"] = json!({"labels": labels, "annotations": annotations, "finalizers": finalizers});
            t
        };
        let old = metadata(
            json!({"app": "web", "role": "a", "gone": "x"}),
            json!({"v": "1"}),
            json!(["f/a", "f/b"]),
        );
        let new = metadata(
            json!({"app": "web", "role": "b", "tier": "y"}),
            json!({"v": "2"}),
            json!(["f/b", "f/c"]),
        );
        let spec = compare(&old, &new).expect("it can be done in place");
        assert!(spec.env_from_metadata);
        assert_eq!(spec.changes.ref_metadata["main"].labels["role"], "b");
        assert_eq!(
            spec.metadata,
            json!({
                "labels": {"gone": null, "tier": "y"}, "annotations": {"v": "2"},
                "finalizers": ["f/c"], "$deleteFromPrimitiveList/finalizers": ["f/a"],
            })
        );
    }

    #[test]
    fn rule_4_1_nothing_to_change_can_be_done_in_place() {
        let same = template(json!([main(json!({}))]));
        assert!(compare(&same, &same).is_ok_and(|spec| spec.is_empty()));
    }
}
