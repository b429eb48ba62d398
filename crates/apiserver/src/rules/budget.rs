//! PodDisruptionBudgets: how they stand, and which evictions they let pass.

use crate::store::{Server, Stored, key_of};
use flotilla_apimachinery::selector::LabelSelector;
use flotilla_apimachinery::status::Status;
use flotilla_engine::wire::Object;
use flotilla_model::records::Phase;
use flotilla_model::{ObjectKey, OwnerRef, PodRecord, Resource};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How a budget stands.
struct Standing {
    /// Pods that are ready.
    healthy: i64,
    /// How many have to be.
    desired: i64,
    /// How many there should be altogether.
    expected: i64,
}

impl Standing {
    /// How many pods may be disrupted.
    fn allowed(&self) -> i64 {
        if self.expected > 0 {
            (self.healthy - self.desired).max(0)
        } else {
            0
        }
    }

    fn status(&self, budget: &Value, now: &Value) -> Value {
        let (word, reason) = if self.allowed() > 0 {
            ("True", "SufficientPods")
        } else {
            ("False", "InsufficientPods")
        };
        let known = &budget["status"]["conditions"][0];
        let since = if known["status"] == word {
            known["lastTransitionTime"].clone()
        } else {
            now.clone()
        };
        let generation = &budget["metadata"]["generation"];
        json!({
            "conditions": [{"type": "DisruptionAllowed", "status": word, "reason": reason, "message": "",
                "lastTransitionTime": since, "observedGeneration": generation}],
            "currentHealthy": self.healthy, "desiredHealthy": self.desired, "disruptionsAllowed": self.allowed(),
            "expectedPods": self.expected, "observedGeneration": generation,
        })
    }
}

fn record(stored: &Stored) -> Option<&PodRecord> {
    match stored.object.as_ref()? {
        Object::Pod(pod) => Some(pod),
        _ => None,
    }
}

fn selects(selector: &LabelSelector, pod: &PodRecord) -> bool {
    let mut requirements = selector.requirements().iter();
    requirements.all(|requirement| requirement.matches(pod.label(&requirement.key)))
}

/// `None` for a budget without a selector, which covers nothing.
fn selector(spec: &Value) -> Option<LabelSelector> {
    LabelSelector::from_json(&spec["selector"]).ok().flatten()
}

/// How a budget with this spec stands.
fn standing(server: &Server, namespace: &str, spec: &Value) -> Standing {
    let covering = selector(spec);
    let is_covered = |pod: &&PodRecord| covering.as_ref().is_some_and(|selector| selects(selector, pod));
    let pods: Vec<&PodRecord> = server
        .after(Resource::Pods, Some(namespace), None)
        .filter_map(|(_, stored)| record(stored))
        .filter(is_covered)
        .filter(|pod| !pod.is_terminal())
        .collect();
    let healthy = pods.iter().filter(|p| p.ready.is_true && !p.is_terminating()).count() as i64;
    let (expected, desired) = match (spec.get("maxUnavailable"), &spec["minAvailable"]) {
        (Some(most), _) => {
            let expected = expected(server, &pods);
            (expected, expected - scaled(most, expected))
        }
        (None, least @ Value::String(_)) => {
            let expected = expected(server, &pods);
            (expected, scaled(least, expected))
        }
        (None, least) => (pods.len() as i64, scaled(least, 0)),
    };
    Standing {
        healthy,
        desired: desired.max(0),
        expected,
    }
}

/// A number, or a percentage of `whole`, rounded up.
fn scaled(value: &Value, whole: i64) -> i64 {
    match value.as_str().and_then(|text| text.strip_suffix('%')) {
        Some(percent) => (whole * percent.parse::<i64>().unwrap_or(0) + 99) / 100,
        None => value.as_i64().unwrap_or(0),
    }
}

/// How many pods there should be: as many as those who control them want, and every pod that nobody controls.
fn expected(server: &Server, pods: &[&PodRecord]) -> i64 {
    let mut wanted = BTreeMap::new();
    let mut alone = 0;
    for pod in pods {
        match pod.meta.controller() {
            Some(owner) => drop(
                wanted
                    .entry(&owner.uid)
                    .or_insert_with(|| replicas(server, &pod.meta.key, owner)),
            ),
            None => alone += 1,
        }
    }
    alone + wanted.values().sum::<i64>()
}

fn replicas(server: &Server, pod: &ObjectKey, owner: &OwnerRef) -> i64 {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let store = server.types.store_of_kind(group, &owner.kind);
    let owner = store.and_then(|store| server.get(store, &pod.sibling(&*owner.name)));
    owner.map_or(0, |owner| owner.value()["spec"]["replicas"].as_i64().unwrap_or(1))
}

/// Says in the status of each budget how it stands.
pub(crate) fn recount(server: &mut Server) {
    let budgets = server.types.builtin("policy", "poddisruptionbudgets");
    let known: Vec<Value> = server.all(budgets).map(Stored::to_value).collect();
    let now = server.time();
    for budget in known {
        let key = key_of(&budget);
        let status = standing(server, &key.namespace, &budget["spec"]).status(&budget, &now);
        if budget["status"] != status {
            // It is there.
            let _ = server.amend(budgets, &key, |budget| budget["status"] = status);
        }
    }
}

/// Refuses an eviction that a budget does not allow.
pub(crate) fn check(server: &Server, key: &ObjectKey) -> Result<(), Status> {
    let Some(pod) = record(server.require(Resource::Pods.into(), key)?) else {
        return Ok(());
    };
    // Nobody misses a pod that does not run yet, or no more.
    if matches!(pod.phase, Phase::Pending | Phase::Succeeded | Phase::Failed) || pod.is_terminating() {
        return Ok(());
    }
    let budgets = server.types.builtin("policy", "poddisruptionbudgets");
    let covering: Vec<Value> = server
        .after(budgets, Some(&key.namespace), None)
        .map(|(_, stored)| stored.to_value())
        .filter(|budget| selector(&budget["spec"]).is_some_and(|selector| selects(&selector, pod)))
        .collect();
    let [budget] = covering.as_slice() else {
        return match covering.len() {
            0 => Ok(()),
            _ => Err(Status::new(500, "InternalError", TOO_MANY)),
        };
    };
    let standing = standing(server, &key.namespace, &budget["spec"]);
    let is_harmless = !pod.ready.is_true && standing.desired > 0 && standing.healthy >= standing.desired;
    if is_harmless || standing.allowed() > 0 {
        return Ok(());
    }
    Err(disrupted(&key_of(budget).name, &standing))
}

const TOO_MANY: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";

fn disrupted(name: &str, standing: &Standing) -> Status {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut status = Status::new(429, "TooManyRequests", message);
    let Standing { healthy, desired, .. } = standing;
    let why = format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently");
    status
        .details
        .get_or_insert_default()
        .insert("causes".into(), json!([{"reason": "DisruptionBudget", "message": why}]));
    status
}
