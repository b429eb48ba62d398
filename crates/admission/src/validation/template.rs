//! Pod templates of workloads, as far as they can be judged from JSON whose newer fields nobody here has heard of.
//!
//! Checked: labels, annotations, restartPolicy, activeDeadlineSeconds; that there are containers; that containers, init containers and
//! volumes have names, well-formed and each once; readiness gates. Left to the API server, which refuses the pod (condition
//! `FailedCreatePod` and `flotilla why` tell it): everything inside containers and volumes, whether mounts name volumes (claims are
//! volumes too), security contexts, resources, affinity, and every field that is newer than this.

use super::{Problems, selector};
use crate::json::{at, entries, list, text};
use flotilla_api::messages;
use flotilla_apimachinery::field::Fault;
use flotilla_apimachinery::names;
use serde_json::Value;
use std::collections::BTreeSet;

const PATH: &str = "spec.template";

/// Checks `spec.template` of a workload whose pods run until they are deleted.
pub(super) fn check(object: &Value, problems: &mut Problems) {
    let Some(template) = at(object, &["spec", "template"]) else {
        problems.required(PATH, "must be a pod template");
        return;
    };
    metadata(template, problems);
    let Some(spec) = at(template, &["spec"]).filter(|s| s.is_object()) else {
        problems.required(format!("{PATH}.spec"), "must say which containers a pod has");
        return;
    };
    if let Some(policy) = at(spec, &["restartPolicy"]).filter(|p| *p != "" && *p != "Always") {
        problems.invalid(format!("{PATH}.spec.restartPolicy"), policy, messages::RESTART_POLICY);
    }
    if let Some(seconds) = at(spec, &["activeDeadlineSeconds"]) {
        let path = format!("{PATH}.spec.activeDeadlineSeconds");
        problems.invalid(path, seconds, messages::ACTIVE_DEADLINE);
    }
    if list(spec, &["containers"]).is_empty() {
        problems.required(format!("{PATH}.spec.containers"), messages::CONTAINERS);
    }
    let mut seen = BTreeSet::new();
    for field in ["containers", "initContainers"] {
        for (index, container) in list(spec, &[field]).iter().enumerate() {
            let path = format!("{PATH}.spec.{field}[{index}]");
            name(&path, container, &mut seen, problems);
            image(&path, container, problems);
        }
    }
    let mut seen = BTreeSet::new();
    for (index, volume) in list(spec, &["volumes"]).iter().enumerate() {
        name(&format!("{PATH}.spec.volumes[{index}]"), volume, &mut seen, problems);
    }
    for (index, gate) in list(spec, &["readinessGates"]).iter().enumerate() {
        let condition = text(gate, &["conditionType"]);
        for why in names::label_key(condition) {
            let path = format!("{PATH}.spec.readinessGates[{index}].conditionType");
            problems.invalid(path, &Value::from(condition), why);
        }
    }
}

fn metadata(template: &Value, problems: &mut Problems) {
    let path = format!("{PATH}.metadata.labels");
    for (key, value) in entries(template, &["metadata", "labels"]) {
        if names::label_key(key).is_empty() {
            selector::label(&path, key, value, problems);
        } else {
            problems.invalid(path.as_str(), &Value::from(key.as_str()), messages::TEMPLATE_LABELS);
        }
    }
    if let Some(metadata) = at(template, &["metadata"]) {
        selector::annotations(&format!("{PATH}.metadata.annotations"), metadata, problems);
    }
}

/// A name that must be there, a DNS label, and used once.
fn name<'v>(path: &str, item: &'v Value, seen: &mut BTreeSet<&'v str>, problems: &mut Problems) {
    let path = format!("{path}.name");
    let name = text(item, &["name"]);
    if name.is_empty() {
        problems.required(path, "must be a name that no other has");
        return;
    }
    for why in names::dns_label(name) {
        problems.invalid(path.as_str(), &Value::from(name), why);
    }
    if !seen.insert(name) {
        problems.add(
            super::Reach::Field,
            Fault::Duplicate,
            path,
            &Value::from(name),
            "another has this name; it must be used once",
        );
    }
}

/// An image may be absent, since webhooks for pods may fill it in.
fn image(path: &str, container: &Value, problems: &mut Problems) {
    if let Some(image) = at(container, &["image"]) {
        let is_fine = image.as_str().is_some_and(|image| image.trim() == image);
        if !is_fine {
            problems.invalid(
                format!("{path}.image"),
                image,
                "must be an image without spaces around it",
            );
        }
    }
}

/// Containers without an image, which most clusters will refuse.
pub(super) fn without_image(object: &Value) -> Vec<&str> {
    let containers = |field| list(object, &["spec", "template", "spec", field]).iter();
    let all = containers("containers").chain(containers("initContainers"));
    all.filter(|c| text(c, &["image"]).is_empty())
        .map(|c| text(c, &["name"]))
        .collect()
}
