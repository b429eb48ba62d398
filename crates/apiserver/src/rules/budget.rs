//! PodDisruptionBudgets, as evictions see them.

use crate::store::Server;
use flotilla_apimachinery::selector::LabelSelector;
use flotilla_apimachinery::status::Status;
use flotilla_model::ObjectKey;
use serde_json::{Value, json};

/// Refuses an eviction that a budget does not allow. Budgets are counted here, where evictions come: nobody else keeps their status.
pub(crate) fn check(server: &Server, key: &ObjectKey) -> Result<(), Status> {
    let pods = flotilla_model::Resource::Pods;
    let pod = server.require(pods.into(), key)?.value();
    let budgets = server.types.builtin("policy", "poddisruptionbudgets");
    for (budget_key, budget) in server.after(budgets, Some(&key.namespace), None) {
        let budget = budget.value();
        let Ok(Some(selector)) = LabelSelector::from_json(&budget["spec"]["selector"]) else {
            continue;
        };
        if !selector.matches(pod.pointer("/metadata/labels")) {
            continue;
        }
        let covered: Vec<_> = server
            .after(pods, Some(&key.namespace), None)
            .map(|(_, stored)| stored.value())
            .filter(|p| selector.matches(p.pointer("/metadata/labels")))
            .collect();
        let healthy = covered.iter().filter(|p| is_ready(p)).count() as i64;
        if healthy - 1 < needed(&budget["spec"], covered.len() as i64) {
            return Err(disrupted(&budget_key.name, &budget["spec"], healthy));
        }
    }
    Ok(())
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    conditions
        .into_iter()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// How many pods have to stay healthy.
fn needed(spec: &Value, expected: i64) -> i64 {
    let scaled = |value: &Value| match value.as_str().and_then(|t| t.strip_suffix('%')) {
        Some(percent) => {
            let percent: i64 = percent.parse().unwrap_or(0);
            (expected * percent + 99) / 100
        }
        None => value.as_i64().unwrap_or(0),
    };
    match spec.get("maxUnavailable") {
        Some(most) => expected - scaled(most),
        None => scaled(&spec["minAvailable"]),
    }
}

fn disrupted(name: &str, spec: &Value, healthy: i64) -> Status {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut status = Status::new(429, "TooManyRequests", message);
    let wanted = if spec.get("minAvailable").is_some() {
        needed(spec, healthy)
    } else {
        healthy
    };
    let why = format!("The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently");
    status
        .details
        .get_or_insert_default()
        .insert("causes".into(), json!([{"reason": "DisruptionBudget", "message": why}]));
    status
}
