//! What may change of a pod that is there: its images by itself, cpu and memory through `resize`, and little else.

use super::pod::validate_spec;
use super::pod_defaults::quality;
use super::{Errors, each, items, text};
use flotilla_apimachinery::field::{Error, Fault};
use flotilla_apimachinery::pod::check_new;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What the refusal says that may be changed.
const CHANGEABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const ONLY_CPU_AND_MEMORY: &str = "only cpu and memory resources are mutable";
const LISTS: [&str; 2] = ["containers", "initContainers"];

fn forbidden(path: impl Into<String>, why: &str) -> Error {
    Error::without_value(Fault::Forbidden, path, why)
}

/// A pod that is new, or that was changed through its main resource.
pub(super) fn validate(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    match old {
        None => {
            validate_spec(&new["spec"], "spec", errors);
            check_new(&new["spec"], "spec", errors);
        }
        Some(old) if old["spec"] != new["spec"] => {
            validate_spec(&new["spec"], "spec", errors);
            changed(&old["spec"], &new["spec"], errors);
        }
        Some(_) => {}
    }
}

/// A pod that was changed through `resize`.
pub(super) fn validate_resize(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    validate_spec(&new["spec"], "spec", errors);
    if let Some(old) = old {
        resized(old, new, errors);
    }
}

/// A pod's spec after a change through the main resource.
pub(crate) fn changed(old: &Value, new: &Value, errors: &mut Errors) {
    for list in LISTS {
        if each(old, list).count() != each(new, list).count() {
            errors.push(forbidden(
                format!("spec.{list}"),
                "pod updates may not add or remove containers",
            ));
            return;
        }
        for (index, container) in each(new, list).enumerate() {
            if text(container, "image").is_empty() {
                errors.push(Error::required(format!("spec.{list}[{index}].image"), ""));
            }
        }
    }
    deadline(old, new, errors);
    tolerations(old, new, errors);
    if without_changeable(old, new) != *old {
        errors.push(forbidden("spec", CHANGEABLE));
    }
}

/// The new spec with the old one's values where a change is allowed.
fn without_changeable(old: &Value, new: &Value) -> Value {
    let mut same = new.clone();
    let was_negative = old["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0);
    let is_one = new["terminationGracePeriodSeconds"] == 1;
    let kept = ["activeDeadlineSeconds", "tolerations", "schedulingGates"];
    let grace = (was_negative && is_one).then_some("terminationGracePeriodSeconds");
    for field in kept.into_iter().chain(grace) {
        match old.get(field) {
            Some(value) => same[field] = value.clone(),
            None => drop(same.as_object_mut().map(|fields| fields.remove(field))),
        }
    }
    for list in LISTS {
        for (container, old) in items(&mut same, list).zip(each(old, list)) {
            container["image"] = old["image"].clone();
        }
    }
    same
}

/// The deadline may only come closer.
fn deadline(old: &Value, new: &Value, errors: &mut Errors) {
    const PATH: &str = "spec.activeDeadlineSeconds";
    match (
        old["activeDeadlineSeconds"].as_i64(),
        new["activeDeadlineSeconds"].as_i64(),
    ) {
        (Some(_), None) => {
            let why = "must not update from a positive integer to nil value";
            errors.push(Error::invalid(PATH, Value::Null, why));
        }
        (Some(old), Some(new)) if old < new => {
            let why = "must be less than or equal to previous value";
            errors.push(Error::invalid(PATH, json!(new), why));
        }
        _ => {}
    }
}

/// Tolerations are only added to, but for how long they last.
fn tolerations(old: &Value, new: &Value, errors: &mut Errors) {
    let untimed = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration
            .as_object_mut()
            .map(|fields| fields.remove("tolerationSeconds"));
        toleration
    };
    let new: Vec<Value> = each(new, "tolerations").map(untimed).collect();
    if !each(old, "tolerations").all(|old| new.contains(&untimed(old))) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(forbidden("spec.tolerations", why));
    }
}

/// What `resize` makes of a pod: `old` with the resources that `new` asks for. Containers that are not the same are left for
/// [`resized`] to refuse.
pub(crate) fn resize(old: &Value, new: &mut Value) {
    let is_same = LISTS.iter().all(|list| {
        let names = |pod: &Value| -> Vec<String> {
            let containers = each(&pod["spec"], list);
            containers.map(|c| text(c, "name").to_owned()).collect()
        };
        names(old) == names(new)
    });
    let mut spec = old["spec"].clone();
    if is_same {
        for list in LISTS {
            for (container, asked) in items(&mut spec, list).zip(each(&new["spec"], list)) {
                for field in ["resources", "resizePolicy"] {
                    match asked.get(field) {
                        Some(value) => container[field] = value.clone(),
                        None => drop(container.as_object_mut().map(|fields| fields.remove(field))),
                    }
                }
            }
        }
        new["spec"] = spec;
    }
    new["status"] = old["status"].clone();
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        match old["metadata"].get(field) {
            Some(value) => new["metadata"][field] = value.clone(),
            None => drop(new["metadata"].as_object_mut().map(|fields| fields.remove(field))),
        }
    }
}

/// A pod after a change through `resize`.
pub(crate) fn resized(old: &Value, new: &Value, errors: &mut Errors) {
    let (was, spec) = (&old["spec"], &new["spec"]);
    if quality(old) != quality(new) {
        let why = "Pod QOS Class may not change as a result of resizing";
        errors.push(Error::invalid("spec", old["status"]["qosClass"].clone(), why));
    }
    let mut running = each(&old["status"], "containerStatuses").filter(|c| c["state"]["running"].is_object());
    if running.next().is_some_and(|c| !c["resources"].is_object()) {
        errors.push(forbidden("spec", "Pod running on node without support for resize"));
    }
    if !has_same_containers(was, spec, errors) {
        return;
    }
    for list in LISTS {
        for (index, (old, new)) in each(was, list).zip(each(spec, list)).enumerate() {
            let path = format!("spec.{list}[{index}].resources");
            removed(&old["resources"], &new["resources"], &path, errors);
        }
    }
    for (old, new) in each(was, "containers").zip(each(spec, "containers")) {
        if without_cpu_and_memory(old, new) != normal(old) {
            errors.push(forbidden("spec", ONLY_CPU_AND_MEMORY));
        }
    }
    for (index, (old, new)) in each(was, "initContainers")
        .zip(each(spec, "initContainers"))
        .enumerate()
    {
        if without_cpu_and_memory(old, new) != normal(old) {
            let why = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.push(forbidden(format!("spec.initContainers[{index}]"), why));
        }
    }
}

/// Whether the containers are those that were there, in their order.
fn has_same_containers(old: &Value, new: &Value, errors: &mut Errors) -> bool {
    let before = errors.len();
    for list in LISTS {
        if each(old, list).count() != each(new, list).count() {
            let why = format!("{list} may not be added or removed on resize");
            errors.push(forbidden(format!("spec.{list}"), &why));
            continue;
        }
        for (index, (old, new)) in each(old, list).zip(each(new, list)).enumerate() {
            if old["name"] != new["name"] {
                let why = format!("{list} may not be renamed or reordered on resize");
                errors.push(forbidden(format!("spec.{list}[{index}].name"), &why));
            }
        }
    }
    errors.len() == before
}

/// Requests and limits change, but do not go away.
fn removed(old: &Value, new: &Value, path: &str, errors: &mut Errors) {
    for kind in ["requests", "limits"] {
        let names = |resources: &Value| -> BTreeSet<String> {
            let amounts = resources[kind].as_object().into_iter().flatten();
            amounts.map(|(name, _)| name.clone()).collect()
        };
        if !names(old).is_subset(&names(new)) {
            let why = format!("resource {kind} cannot be removed");
            errors.push(forbidden(format!("{path}.{kind}"), &why));
        }
    }
}

/// The new container with the cpu and memory of the old one.
fn without_cpu_and_memory(old: &Value, new: &Value) -> Value {
    let mut same = new.clone();
    for kind in ["requests", "limits"] {
        for name in ["cpu", "memory"] {
            match old["resources"][kind].get(name) {
                Some(amount) => same["resources"][kind][name] = amount.clone(),
                None => drop(
                    same.pointer_mut(&format!("/resources/{kind}"))
                        .and_then(Value::as_object_mut)
                        .map(|amounts| amounts.remove(name)),
                ),
            }
        }
    }
    normal(&same)
}

/// A container whose resources are as good as none has none.
fn normal(container: &Value) -> Value {
    let mut container = container.clone();
    if let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) {
        resources.retain(|_, amounts| amounts.as_object().is_none_or(|a| !a.is_empty()));
    }
    if container["resources"].as_object().is_none_or(serde_json::Map::is_empty) {
        container.as_object_mut().map(|fields| fields.remove("resources"));
    }
    container
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {
                "restartPolicy": "Always",
                "containers": [
                    {"name": "a", "image": "a:1", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
                    {"name": "b", "image": "b:1"},
                ],
            },
            "status": {"qosClass": "Burstable"},
        })
    }

    /// What is said to a change through the main resource.
    fn main(change: impl Fn(&mut Value)) -> Vec<String> {
        let mut new = pod();
        change(&mut new);
        let mut errors = Errors::new();
        changed(&pod()["spec"], &new["spec"], &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    /// What is said to a change through `resize`, and what comes of it.
    fn through_resize(change: impl Fn(&mut Value)) -> (Value, Vec<String>) {
        let mut new = pod();
        change(&mut new);
        resize(&pod(), &mut new);
        let mut errors = Errors::new();
        resized(&pod(), &new, &mut errors);
        (new, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn images_change_through_the_main_resource_and_little_else() {
        assert_eq!(main(|p| p["spec"]["containers"][1]["image"] = json!("b:2")), [""; 0]);
        assert_eq!(main(|p| p["spec"]["activeDeadlineSeconds"] = json!(9)), [""; 0]);
        assert_eq!(
            main(|p| p["spec"]["tolerations"] = json!([{"operator": "Exists"}])),
            [""; 0]
        );
        let said = main(|p| p["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2"));
        assert!(said[0].starts_with("spec: Forbidden: pod updates may not change fields other than"));
        let said = main(|p| drop(p["spec"]["containers"].as_array_mut().map(Vec::pop)));
        assert_eq!(
            said,
            ["spec.containers: Forbidden: pod updates may not add or remove containers"]
        );
    }

    #[test]
    fn a_resize_changes_cpu_and_memory_of_the_same_containers() {
        let (new, said) = through_resize(|p| {
            p["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
            p["spec"]["containers"][0]["image"] = json!("a:2");
            p["metadata"]["labels"] = json!({});
        });
        assert_eq!(said, [""; 0]);
        let mut expected = pod();
        expected["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
        assert_eq!(new, expected, "whatever else was sent is not heard");

        let (_, said) = through_resize(|p| {
            p["spec"]["containers"][0]["resources"] = json!({"requests": {"memory": "1Gi"}});
        });
        assert_eq!(
            said,
            ["spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"]
        );
        let (_, said) = through_resize(|p| {
            p["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = json!("1");
        });
        assert_eq!(said, ["spec: Forbidden: only cpu and memory resources are mutable"]);
        let (_, said) = through_resize(|p| p["spec"]["containers"][1]["name"] = json!("c"));
        assert_eq!(
            said,
            ["spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize"]
        );
        let (_, said) = through_resize(|p| {
            let amounts = json!({"cpu": "1", "memory": "1Gi"});
            for index in 0..2 {
                p["spec"]["containers"][index]["resources"] = json!({"limits": amounts, "requests": amounts});
            }
        });
        assert_eq!(
            said,
            ["spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing"]
        );
    }

    #[test]
    fn a_node_that_does_not_report_resources_cannot_resize() {
        let mut old = pod();
        old["status"]["containerStatuses"] = json!([{"name": "a", "state": {"running": {}}}]);
        let mut errors = Errors::new();
        resized(&old, &old, &mut errors);
        let said: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            ["spec: Forbidden: Pod running on node without support for resize"]
        );
    }
}
