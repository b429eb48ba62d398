//! Which nodes a pod could run on, by what is written in it and in them: labels, affinity to nodes, taints, and what they have at all.
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/>
//!
//! What runs there already, and where other pods are, is not looked at: a pod that fits nowhere by this fits nowhere, and one that fits
//! may find no room all the same.

use crate::containers::each;
use flotilla_model::template::{amount, amounts_of_pod};
use serde_json::Value;
use std::collections::BTreeMap;

/// Why no node would take a pod with this `spec`, as the scheduler says it: how many nodes for which reason. `None` if one would, or if
/// there are no nodes to look at.
pub fn why_nowhere<'n>(spec: &Value, nodes: impl IntoIterator<Item = &'n Value>) -> Option<String> {
    if !is_placed_by_default(spec) {
        return None;
    }
    let (mut reasons, mut all): (BTreeMap<&'static str, usize>, usize) = Default::default();
    for node in nodes {
        all += 1;
        *reasons.entry(why_not(spec, node)?).or_default() += 1;
    }
    if reasons.is_empty() {
        return None;
    }
    Some(nodes_are_not_available(all, &reasons))
}

/// What the scheduler says of a pod that so many nodes do not take, so many each for a reason.
pub(crate) fn nodes_are_not_available<R: std::fmt::Display>(all: usize, reasons: &BTreeMap<R, usize>) -> String {
    let counted = reasons.iter().map(|(reason, count)| format!("{count} {reason}"));
    let counted = counted.collect::<Vec<_>>().join(", ");
    format!("0/{all} nodes are available: {counted}")
}

/// Whether the scheduler of Kubernetes places such a pod. What another goes by, nobody here knows.
pub fn is_placed_by_default(spec: &Value) -> bool {
    matches!(spec["schedulerName"].as_str(), None | Some("" | "default-scheduler"))
}

/// Whether a node is silent, by the word of the control plane. One that says itself that it is not ready still ends pods.
pub fn is_silent(node: &Value) -> bool {
    each(&node["status"]["conditions"]).any(|c| c["type"] == "Ready" && c["status"] == "Unknown")
}

/// What is said of a node with a pod from which another keeps away.
pub(crate) const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";

/// What is said of a node that cannot reach a volume.
pub(crate) const VOLUME_ELSEWHERE: &str = "node(s) didn't match PersistentVolume's node affinity";

/// Whether a volume can be reached from a node, by its `required` node selector.
/// <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#node-affinity>
pub(crate) fn is_reached_from(node: &Value, required: &Value) -> bool {
    has_term_for(required, node)
}

/// Why a node takes no pod of this `spec`, whatever else is there.
pub(crate) fn why_not(spec: &Value, node: &Value) -> Option<&'static str> {
    if spec["nodeName"].as_str().is_some_and(|name| !name.is_empty()) {
        return (spec["nodeName"] != node["metadata"]["name"]).then_some("node(s) are not the one that the pod names");
    }
    if !matches_labels(&spec["nodeSelector"], node) || !matches_affinity(spec, node) {
        return Some("node(s) didn't match the pod's node affinity/selector");
    }
    let is_closed = node["spec"]["unschedulable"] == true && !tolerates(spec, &unschedulable());
    if is_closed {
        return Some("node(s) were unschedulable");
    }
    let stops = |taint: &&Value| matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute"));
    if each(&node["spec"]["taints"])
        .filter(stops)
        .any(|taint| !tolerates(spec, taint))
    {
        return Some("node(s) had untolerated taints");
    }
    if !has_resources(spec, node) {
        return Some("node(s) have less than the pod requests");
    }
    None
}

/// The taint of a node that was cordoned.
fn unschedulable() -> Value {
    serde_json::json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
}

fn matches_labels(selector: &Value, node: &Value) -> bool {
    let mut wanted = selector.as_object().into_iter().flatten();
    wanted.all(|(key, value)| node["metadata"]["labels"][key] == *value)
}

fn matches_affinity(spec: &Value, node: &Value) -> bool {
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    required.is_null() || has_term_for(required, node)
}

/// Whether a node selector, a list of terms of which one has to hold, takes a node.
fn has_term_for(selector: &Value, node: &Value) -> bool {
    each(&selector["nodeSelectorTerms"]).any(|term| {
        let (labels, fields) = (&term["matchExpressions"], &term["matchFields"]);
        // A term without requirements matches nothing.
        let is_empty = each(labels).next().is_none() && each(fields).next().is_none();
        let of_labels = |rule: &Value| matches_rule(rule, &node["metadata"]["labels"][key_of(rule)]);
        let of_fields =
            |rule: &Value| matches_rule(rule, &node["metadata"][key_of(rule).trim_start_matches("metadata.")]);
        !is_empty && each(labels).all(of_labels) && each(fields).all(of_fields)
    })
}

fn key_of(rule: &Value) -> &str {
    rule["key"].as_str().unwrap_or_default()
}

fn matches_rule(rule: &Value, held: &Value) -> bool {
    let is_among = || each(&rule["values"]).any(|value| value == held);
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<i64>().ok());
    let bound = || each(&rule["values"]).next().and_then(number);
    match rule["operator"].as_str().unwrap_or_default() {
        "In" => is_among(),
        "NotIn" => !is_among(),
        "Exists" => !held.is_null(),
        "DoesNotExist" => held.is_null(),
        "Gt" => number(held).zip(bound()).is_some_and(|(held, bound)| held > bound),
        "Lt" => number(held).zip(bound()).is_some_and(|(held, bound)| held < bound),
        // One that is newer than this code may match.
        _ => true,
    }
}

fn tolerates(spec: &Value, taint: &Value) -> bool {
    each(&spec["tolerations"]).any(|toleration| {
        let key = toleration["key"].as_str().unwrap_or_default();
        let is_of_effect = matches!(&toleration["effect"], Value::Null)
            || toleration["effect"] == ""
            || toleration["effect"] == taint["effect"];
        let is_of_key = key.is_empty() || toleration["key"] == taint["key"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_of_value = match toleration["operator"].as_str() {
            None | Some("" | "Equal") => !key.is_empty() && text(&toleration["value"]) == text(&taint["value"]),
            // One that is newer than this code may tolerate it.
            Some(_) => true,
        };
        is_of_effect && is_of_key && is_of_value
    })
}

/// Whether a node has at all what a pod requests; of what cannot be read it is taken to have enough.
fn has_resources(spec: &Value, node: &Value) -> bool {
    let allocatable = &node["status"]["allocatable"];
    let has = |name: &str| amount(&allocatable[name]);
    // A node that says nothing of itself is too young to be judged.
    !allocatable.is_object()
        || amounts_of_pod(spec, "requests")
            .iter()
            .all(|(name, wanted)| *wanted <= 0 || has(name).is_some_and(|has| has >= *wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, fields: &Value) -> Value {
        let mut node = json!({
            "metadata": {"name": name, "labels": {"disk": "ssd", "cores": "8"}},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
        });
        for (pointer, value) in fields.as_object().into_iter().flatten() {
            let (place, field) = pointer.rsplit_once('/').expect("a pointer");
            node.pointer_mut(place).expect("a place")[field] = value.clone();
        }
        node
    }

    #[test]
    fn a_pod_fits_by_labels_affinity_taints_and_size() {
        let plain = json!({});
        let tainted = json!({"/spec/taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]});
        let preferred = json!({"/spec/taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]});
        let cordoned = json!({"/spec/unschedulable": true});
        let lost = json!({"/spec/taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]});
        let silent = json!({"/status/conditions": [{"type": "Ready", "status": "False"}]});
        let affinity = |rules: &Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": rules}]}}}})
        };
        let rule = |key: &str, operator: &str, values: &Value| {
            affinity(&json!([{"key": key, "operator": operator, "values": values}]))
        };
        let asks = |requests: &Value| json!({"containers": [{"resources": {"requests": requests}}, {"resources": {"limits": {"cpu": "1"}}}]});
        let tolerating = |toleration: &Value| json!({"tolerations": [toleration]});
        let rows = [
            ("nothing asked", &plain, json!({}), true),
            ("label", &plain, json!({"nodeSelector": {"disk": "ssd"}}), true),
            ("other label", &plain, json!({"nodeSelector": {"disk": "hdd"}}), false),
            ("in", &plain, rule("disk", "In", &json!(["hdd", "ssd"])), true),
            ("not in", &plain, rule("disk", "NotIn", &json!(["ssd"])), false),
            ("exists", &plain, rule("gpu", "Exists", &json!([])), false),
            ("does not exist", &plain, rule("gpu", "DoesNotExist", &json!([])), true),
            ("greater", &plain, rule("cores", "Gt", &json!(["4"])), true),
            ("less", &plain, rule("cores", "Lt", &json!(["8"])), false),
            ("an empty term", &plain, affinity(&json!([])), false),
            ("tainted", &tainted, json!({}), false),
            ("preferred", &preferred, json!({}), true),
            (
                "tolerated by value",
                &tainted,
                tolerating(&json!({"key": "gpu", "value": "yes"})),
                true,
            ),
            (
                "another value",
                &tainted,
                tolerating(&json!({"key": "gpu", "value": "no"})),
                false,
            ),
            (
                "tolerated by key",
                &tainted,
                tolerating(&json!({"key": "gpu", "operator": "Exists"})),
                true,
            ),
            (
                "all tolerated",
                &tainted,
                tolerating(&json!({"operator": "Exists"})),
                true,
            ),
            (
                "another effect",
                &tainted,
                tolerating(&json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"})),
                false,
            ),
            ("cordoned", &cordoned, json!({}), false),
            (
                "cordoned, tolerated",
                &cordoned,
                tolerating(&json!({"operator": "Exists"})),
                true,
            ),
            ("lost", &lost, json!({}), false),
            (
                "lost, tolerated",
                &lost,
                tolerating(&json!({"operator": "Exists"})),
                true,
            ),
            ("the scheduler goes by taints", &silent, json!({}), true),
            (
                "as large as it may be",
                &plain,
                asks(&json!({"cpu": "3", "memory": "8Gi"})),
                true,
            ),
            (
                "limits count where there are no requests",
                &plain,
                asks(&json!({"cpu": "3001m"})),
                false,
            ),
            (
                "what no node has",
                &plain,
                asks(&json!({"example.com/gpu": "1"})),
                false,
            ),
            (
                "nothing of what no node has",
                &plain,
                asks(&json!({"example.com/gpu": "0"})),
                true,
            ),
            (
                "the first steps are larger",
                &plain,
                json!({"initContainers": [{"resources": {"requests": {"cpu": "5"}}}]}),
                false,
            ),
        ];
        for (name, fields, spec, fits) in rows {
            let why = why_nowhere(&spec, &[node("one", fields)]);
            assert_eq!(why.is_none(), fits, "{name}: {why:?}");
        }
    }

    #[test]
    fn it_is_said_how_many_nodes_do_not_fit_for_which_reason() {
        let nodes = [
            node("one", &json!({"/spec/unschedulable": true})),
            node("two", &json!({"/metadata/labels": {"disk": "hdd"}})),
            node("three", &json!({"/metadata/labels": {"disk": "hdd"}})),
        ];
        let spec = json!({"nodeSelector": {"disk": "ssd"}});
        let why = why_nowhere(&spec, &nodes).expect("nowhere");
        assert_eq!(
            why,
            "0/3 nodes are available: 2 node(s) didn't match the pod's node affinity/selector, 1 node(s) were unschedulable"
        );
        assert_eq!(why_nowhere(&spec, &[]), None, "without nodes nobody knows");
    }
}
