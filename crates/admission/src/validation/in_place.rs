//! `InPlaceOnly`: a template may change only in what can be changed in running pods (rules 7.4 and 4.1).
//!
//! What counts are the revisions that pods are at, since those pods would have to follow. Where they are not known, or there are no
//! pods, the template before the change stands for them. So switching to `InPlaceOnly` and changing the template in one step is no way
//! around the rule, and a change that no pod has followed yet can be taken back.

use super::Problems;
use crate::json::{at, list, text};
use crate::{Memory, Request};
use flotilla_api::messages;
use flotilla_model::template::normal_form;
use serde_json::Value;

const POLICY: [&str; 4] = ["spec", "updateStrategy", "rollingUpdate", "podUpdatePolicy"];
const TEMPLATE: [&str; 2] = ["spec", "template"];

/// Checks a change of the template, or of the policy.
pub(super) fn check(request: &Request<'_>, old: &Value, new: &Value, memory: &dyn Memory, problems: &mut Problems) {
    if text(new, &POLICY) != "InPlaceOnly" {
        return;
    }
    let (Some(before), Some(after)) = (at(old, &TEMPLATE), at(new, &TEMPLATE)) else {
        return;
    };
    if before == after {
        return;
    }
    let wanted = normal_form(after);
    let pods = memory
        .revisions_in_use(request.namespace, request.name)
        .unwrap_or_default();
    if pods.is_empty() {
        if let Some((field, value)) = obstacle(&normal_form(before), &wanted) {
            problems.changed(field, &value, messages::IN_PLACE_ONLY);
        }
        return;
    }
    for revision in pods {
        if let Some((field, value)) = obstacle(&normal_form(&revision.template), &wanted) {
            problems.changed(
                field,
                &value,
                format!(
                    "{}; there are pods at revision {}, which differs",
                    messages::IN_PLACE_ONLY,
                    revision.name
                ),
            );
        }
    }
}

/// The first field that differs between two templates in normal form, and cannot be changed in a running pod; with what it should become
/// (null: go away).
fn obstacle(old: &Value, new: &Value) -> Option<(String, Value)> {
    let (Some(old), Some(new)) = (at(old, &["spec"]), at(new, &["spec"])) else {
        return Some(("spec.template.spec".to_owned(), Value::Null));
    };
    let mut resizes = false;
    for operation in crate::difference(old, new) {
        let path: Vec<&str> = text(&operation, &["path"]).split('/').skip(1).collect();
        let is_replaced = operation["op"] == "replace";
        match path[..] {
            ["containers", _, "image"] if is_replaced => {}
            ["containers", _, "resources", "limits" | "requests", "cpu" | "memory"] if is_replaced => resizes = true,
            _ => return Some((written(&path), operation.get("value").cloned().unwrap_or_default())),
        }
    }
    let (before, after) = (quality(old), quality(new));
    (resizes && before != after).then(|| {
        let field = "spec.template.spec.containers[*].resources (quality of service class)";
        (field.to_owned(), Value::from(after))
    })
}

/// A path as Kubernetes writes it.
fn written(path: &[&str]) -> String {
    let mut text = "spec.template.spec".to_owned();
    for field in path {
        if !field.is_empty() && field.bytes().all(|b| b.is_ascii_digit()) {
            text.extend(["[", field, "]"]);
        } else {
            text.push('.');
            text.push_str(&field.replace("~1", "/").replace("~0", "~"));
        }
    }
    text
}

/// Kubernetes' quality of service class of a pod with this spec, in normal form.
fn quality(spec: &Value) -> &'static str {
    let (mut is_guaranteed, mut has_any) = (true, false);
    let all = list(spec, &["containers"])
        .iter()
        .chain(list(spec, &["initContainers"]));
    for container in all {
        let quantity = |part, name| at(container, &["resources", part, name]).filter(|q| *q != "0n");
        for name in ["cpu", "memory"] {
            let (limit, request) = (quantity("limits", name), quantity("requests", name));
            has_any |= limit.is_some() || request.is_some();
            is_guaranteed &= limit.is_some() && limit == request;
        }
    }
    match (has_any, is_guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
