//! Readiness gates: hooks take pods of our kinds out of service by one. Our own controllers put into the pods that they make the gates that
//! somebody needs; this is for pods that something else makes under our kinds.

use crate::admit::GROUP;
use crate::json::{at, list, text};
use flotilla_api::names;
use serde_json::{Value, json};

/// Kinds whose pods have lifecycle hooks.
const KINDS: &[&str] = &["CloneSet", "StatefulSet", "DaemonSet"];

/// Whether a pod is controlled by one of our kinds and lacks the gate, and our controllers have not made it.
pub(super) fn are_missing(pod: &Value) -> bool {
    let has_gate = || {
        list(pod, &["spec", "readinessGates"])
            .iter()
            .any(|gate| text(gate, &["conditionType"]) == names::KRUISE_POD_READY)
    };
    at(pod, &["spec"]).is_some_and(Value::is_object) && is_ours(pod) && !is_made_by_us(pod) && !has_gate()
}

/// By what our controllers note on every pod that they make. It has the gates that its set needs, and another would only keep it from
/// getting ready while no manager runs.
fn is_made_by_us(pod: &Value) -> bool {
    let has = |field: &str, key: &str| at(pod, &["metadata", field, key]).is_some();
    has("labels", names::MADE_AS_LABEL) || has("annotations", names::LIFECYCLE_TIMESTAMP)
}

fn is_ours(pod: &Value) -> bool {
    list(pod, &["metadata", "ownerReferences"]).iter().any(|owner| {
        let group = text(owner, &["apiVersion"]).split_once('/').map(|(group, _)| group);
        at(owner, &["controller"]) == Some(&Value::Bool(true))
            && group == Some(GROUP)
            && KINDS.contains(&text(owner, &["kind"]))
    })
}

/// Adds the gate after those that there are. A field that is null is replaced by `add`.
pub(super) fn operation(pod: &Value) -> Value {
    let gate = json!({"conditionType": names::KRUISE_POD_READY});
    if at(pod, &["spec", "readinessGates"]).is_some_and(Value::is_array) {
        json!({"op": "add", "path": "/spec/readinessGates/-", "value": gate})
    } else {
        json!({"op": "add", "path": "/spec/readinessGates", "value": [gate]})
    }
}
