//! What containers are restarted for, what resizing means to them, and fields of the pod in their variables.

use super::{each, text};
use crate::field::{Error, Fault};
use crate::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const RESIZE_POLICIES: [&str; 2] = ["NotRequired", "RestartContainer"];
const RESIZED: [&str; 2] = ["cpu", "memory"];
/// What only runs to its end cannot have.
const OF_RUNNING: [&str; 4] = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
/// Fields that a variable can hold.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields that can be referred to, though not by a variable.
const OTHER_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
];

/// Checks a container of one of both lists of a pod with this restart policy.
pub(super) fn check(container: &Value, (path, is_init): (&str, bool), policy: &str, errors: &mut Vec<Error>) {
    for (index, variable) in each(container, "env").enumerate() {
        let reference = &variable["valueFrom"]["fieldRef"];
        if reference.is_object() {
            field_of_pod(reference, &format!("{path}.env[{index}].valueFrom.fieldRef"), errors);
        }
    }
    let is_sidecar = container["restartPolicy"] == "Always";
    resizing(container, path, policy, errors);
    restarts(container, path, errors);
    if !is_init || is_sidecar {
        return;
    }
    for field in OF_RUNNING {
        if !container[field].is_null() {
            let why = "may not be set for init containers without restartPolicy=Always";
            errors.push(Error::without_value(Fault::Forbidden, format!("{path}.{field}"), why));
        }
    }
    for (index, entry) in each(container, "resizePolicy").enumerate() {
        if entry["restartPolicy"] == "RestartContainer" {
            let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            let path = format!("{path}.resizePolicy[{index}].restartPolicy");
            errors.push(Error::invalid(path, json!("RestartContainer"), why));
        }
    }
}

fn restarts(container: &Value, path: &str, errors: &mut Vec<Error>) {
    let path = format!("{path}.restartPolicy");
    match container["restartPolicy"].as_str() {
        Some(policy) if !RESTART_POLICIES.contains(&policy) => {
            errors.push(Error::not_supported(path, json!(policy), RESTART_POLICIES));
        }
        None if each(container, "restartPolicyRules").next().is_some() => {
            let why = "must specify restartPolicy when restart rules are used";
            errors.push(Error::required(path, why));
        }
        _ => {}
    }
}

fn resizing(container: &Value, path: &str, pod: &str, errors: &mut Vec<Error>) {
    let path = format!("{path}.resizePolicy");
    let mut seen = BTreeSet::new();
    for (index, entry) in each(container, "resizePolicy").enumerate() {
        let (resource, policy) = (text(entry, "resourceName"), text(entry, "restartPolicy"));
        if !seen.insert(resource) {
            let path = format!("{path}[{index}]");
            errors.push(Error::new(Fault::Duplicate, path, json!(resource), ""));
        }
        for (value, allowed) in [(resource, &RESIZED), (policy, &RESIZE_POLICIES)] {
            if value.is_empty() {
                errors.push(Error::required(path.as_str(), ""));
            } else if !allowed.contains(&value) {
                errors.push(Error::not_supported(path.as_str(), json!(value), *allowed));
            }
        }
        if pod == "Never" && policy != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(Error::invalid(path.as_str(), json!(policy), why));
        }
    }
}

/// A reference to a field of the pod, from a variable.
fn field_of_pod(reference: &Value, path: &str, errors: &mut Vec<Error>) {
    let (version, field) = (text(reference, "apiVersion"), text(reference, "fieldPath"));
    let place = format!("{path}.fieldPath");
    let mut refuse = |why: &str| {
        let why = format!("error converting fieldPath: {why}");
        errors.push(Error::invalid(place.as_str(), json!(field), why));
    };
    let entry = field.strip_suffix("']").and_then(|field| field.split_once("['"));
    match entry.filter(|(map, _)| !map.is_empty()) {
        _ if field.is_empty() => errors.push(Error::required(place, "")),
        // Where it is left out, a default fills it in.
        _ if !matches!(version, "" | "v1") => refuse(&format!("unsupported pod version: {version}")),
        Some((map, key)) => {
            let key = match map {
                "metadata.labels" => key.to_owned(),
                "metadata.annotations" => key.to_lowercase(),
                _ => return refuse(&format!("field label does not support subscript: {field}")),
            };
            let wrong = names::label_key(&key).into_iter();
            errors.extend(wrong.map(|why| Error::invalid(path, json!(key), why)));
        }
        // The last is the former name of `spec.nodeName`.
        None if FIELDS.contains(&field) || field == "spec.host" => {}
        None if OTHER_FIELDS.contains(&field) => {
            errors.push(Error::not_supported(place, json!(field), FIELDS));
        }
        None => refuse(&format!("field label not supported: {field}")),
    }
}
