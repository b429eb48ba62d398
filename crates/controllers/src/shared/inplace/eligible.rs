//! What a change of the template does to running pods: of containers what [`flotilla_model::template::in_place`] lets through, and of
//! metadata everything (STS-4.1).

use super::{Changes, UpdateSpec};
use crate::shared::withheld;
use flotilla_model::SetKind;
use flotilla_model::containers_meta::{Source, source_of};
use flotilla_model::template::in_place::{Changed, Comparable, ContainerChange, container_changes};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What brings a pod of template `old` to template `new` in a set of this kind, or why that cannot be done in place.
pub fn compare(kind: SetKind, old: &Value, new: &Value) -> Result<UpdateSpec, String> {
    let found = container_changes(&Comparable::new(old), &Comparable::new(new)).map_err(|o| o.to_string())?;
    let mut changes = Changes::default();
    for ContainerChange { container, what } in found {
        match what {
            Changed::Image(image) => drop(changes.images.insert(container, image)),
            Changed::Resource { list, resource, value } => {
                let change = changes.resources.entry(container).or_insert_with(|| json!({}));
                change[list][resource] = value;
            }
        }
    }
    let mut spec = UpdateSpec {
        changes,
        ..UpdateSpec::default()
    };
    compare_metadata(kind, old, new, &mut spec);
    Ok(spec)
}

/// Metadata may change in any way. What environments refer to changes together with the container; the rest at once.
fn compare_metadata(kind: SetKind, old: &Value, new: &Value, spec: &mut UpdateSpec) {
    let mut patch = Map::new();
    let users = Users::of(new);
    for field in ["labels", "annotations"] {
        let at = |template: &Value| -> Map<String, Value> {
            let map = template
                .pointer(&format!("/metadata/{field}"))
                .and_then(Value::as_object);
            let mut map = map.cloned().unwrap_or_default();
            map.retain(|key, _| !withheld::is_of_one_pod(kind, key));
            map
        };
        let (before, after) = (at(old), at(new));
        let mut changed = Map::new();
        for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(value)) {
            let text = value.as_str().unwrap_or_default();
            let source = match field {
                "labels" => Source::Label(key),
                _ => Source::Annotation(key),
            };
            let users = users.of_source(source);
            if users.is_none() {
                changed.insert(key.clone(), value.clone());
            }
            for container in users.into_iter().flatten() {
                let refs = spec.changes.ref_metadata.entry((*container).to_owned()).or_default();
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
    // By their texts: whoever writes templates chooses how many there are.
    let texts = |list: &[Value]| -> BTreeSet<String> { list.iter().map(Value::to_string).collect() };
    let (had, has) = (texts(&before), texts(&after));
    let added: Vec<&Value> = after.iter().filter(|f| !had.contains(&f.to_string())).collect();
    let removed: Vec<&Value> = before.iter().filter(|f| !has.contains(&f.to_string())).collect();
    if !added.is_empty() {
        patch.insert("finalizers".to_owned(), json!(added));
    }
    if !removed.is_empty() {
        patch.insert("$deleteFromPrimitiveList/finalizers".to_owned(), json!(removed));
    }
}

/// Containers of a template by the labels and annotations that their environment refers to, looked through once: a template has room for
/// thousands of either.
struct Users<'t>(BTreeMap<Source<'t>, BTreeSet<&'t str>>);

impl<'t> Users<'t> {
    fn of(template: &'t Value) -> Self {
        let mut users = BTreeMap::<_, BTreeSet<_>>::new();
        let containers = template.pointer("/spec/containers").and_then(Value::as_array);
        for container in containers.into_iter().flatten() {
            let Some(name) = container.get("name").and_then(Value::as_str) else {
                continue;
            };
            let env = container.get("env").and_then(Value::as_array);
            for source in env.into_iter().flatten().filter_map(referred_to) {
                users.entry(source).or_default().insert(name);
            }
        }
        Users(users)
    }

    fn of_source<'a>(&'a self, source: Source<'a>) -> Option<&'a BTreeSet<&'a str>> {
        self.0.get(&source)
    }
}

/// The label or annotation that an entry of an environment refers to.
fn referred_to(entry: &Value) -> Option<Source<'_>> {
    let text = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    source_of(text("/name"), text("/value"), text("/valueFrom/fieldRef/fieldPath"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(old: &Value, new: &Value) -> Result<UpdateSpec, String> {
        super::compare(SetKind::Advanced, old, new)
    }

    fn template(containers: Value) -> Value {
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}})
    }

    fn main(extra: Value) -> Value {
        let mut container = json!({"name": "main", "image": "web:1"});
        super::super::overlay(&mut container, &extra);
        container
    }

    #[test]
    fn sts_4_1_images_cpu_and_memory_may_change() {
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
    fn sts_4_1_spelling_and_defaults_are_no_change() {
        let old = template(json!([main(json!({"resources": {"limits": {"cpu": "1000m"}}}))]));
        let mut new = template(json!([main(json!({
            "resources": {"limits": {"cpu": "1"}}, "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent",
        }))]));
        new["spec"]["restartPolicy"] = json!("Always");
        assert!(compare(&old, &new).is_ok_and(|spec| spec.is_empty()));
    }

    #[test]
    fn sts_4_1_a_new_tag_is_no_new_pull_policy() {
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
    fn sts_4_1_anything_else_may_not_change() {
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
    fn sts_4_1_a_request_that_is_not_stated_follows_its_limit() {
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
    fn sts_4_1_metadata_is_patched_at_once_unless_an_environment_refers_to_it() {
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
    fn sts_4_1_nothing_to_change_can_be_done_in_place() {
        let same = template(json!([main(json!({}))]));
        assert!(compare(&same, &same).is_ok_and(|spec| spec.is_empty()));
    }
}
