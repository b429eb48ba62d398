//! Pod templates of workloads, as far as they can be judged from JSON whose newer fields nobody here has heard of.
//!
//! Checked: labels, annotations, restartPolicy, activeDeadlineSeconds, readiness gates; and, with the list by which the simulated API server
//! checks pods ([`flotilla_apimachinery::pod`]), containers and volumes. An image may be absent, since webhooks for pods may fill it in. Left
//! to the API server: security contexts, affinity, what is inside volumes, and every field that is newer than this. What it refuses there
//! costs no pod, since controllers ask it before the first goes; condition and `flotilla why` tell its words.

use super::{Problems, selector};
use crate::json::{at, entries, list, text};
use flotilla_api::messages;
use flotilla_apimachinery::names;
use flotilla_apimachinery::pod::{self, Subject};
use serde_json::Value;

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
    let claims = list(object, &["spec", "volumeClaimTemplates"]).iter();
    let claims = claims.map(|claim| text(claim, &["metadata", "name"]));
    let mut errors = Vec::new();
    pod::check(spec, &format!("{PATH}.spec"), claims, Subject::Template, &mut errors);
    // The definition says the same in its own words.
    for none in errors.iter_mut().filter(|e| e.path == "spec.template.spec.containers") {
        messages::CONTAINERS.clone_into(&mut none.detail);
    }
    problems.take_in(errors);
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

/// Containers without an image, which most clusters will refuse.
pub(super) fn without_image(object: &Value) -> Vec<&str> {
    let containers = |field| list(object, &["spec", "template", "spec", field]).iter();
    let all = containers("containers").chain(containers("initContainers"));
    all.filter(|c| text(c, &["image"]).is_empty())
        .map(|c| text(c, &["name"]))
        .collect()
}
