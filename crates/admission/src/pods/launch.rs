//! Container launch priority (ADM-3): each container of a pod with a mark gets an environment entry that refers to a
//! key of the pod's barrier, a config map. The kubelet holds a container whose key is not there yet.

use crate::Request;
use crate::json::{annotation, at, list, text};
use flotilla_api::names;
use serde_json::{Value, json};

/// Longest prefix that the API server keeps of `generateName`.
const PREFIX_LENGTH_MAX: usize = 58;
/// What the API server draws the ends of generated names from: no vowels, nothing that looks like something else.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

/// What is to be done to a pod, decided before anything is copied.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Barrier entry of each container, in order; empty if nothing is to be done.
    barriers: Vec<Value>,
    /// The pod's final name, if it has none yet.
    name: Option<String>,
    /// What the user should hear.
    pub(super) warnings: Vec<String>,
}

impl Plan {
    /// Puts the barriers last into each container's environment, where others look for them. One that is there already is replaced, as
    /// other containers may have been injected before this one since.
    pub(super) fn operations(&self, pod: &Value, operations: &mut Vec<Value>) {
        if let Some(name) = &self.name {
            operations.push(json!({"op": "add", "path": "/metadata/name", "value": name}));
        }
        let containers = list(pod, &["spec", "containers"]).iter().zip(&self.barriers);
        for (index, (container, barrier)) in containers.enumerate().filter(|(_, (c, _))| c.is_object()) {
            let path = format!("/spec/containers/{index}/env");
            let is_barrier = |entry: &&Value| text(entry, &["name"]) == names::LAUNCH_BARRIER_ENV;
            let entries = list(container, &["env"]);
            let found = entries.iter().filter(is_barrier).count();
            if found == 1 && entries.last() == Some(barrier) {
                continue;
            }
            operations.push(if found == 0 && !entries.is_empty() {
                json!({"op": "add", "path": format!("{path}/-"), "value": barrier})
            } else {
                let others = entries.iter().filter(|entry| !is_barrier(entry));
                let env: Vec<&Value> = others.chain([barrier]).collect();
                json!({"op": "add", "path": path, "value": env})
            });
        }
    }
}

/// What launch priority asks for.
///
/// # Errors
/// If a priority is not an integer.
pub(super) fn plan(request: &Request<'_>, pod: &Value) -> Result<Plan, String> {
    let containers = list(pod, &["spec", "containers"]);
    let mark = annotation(pod, names::LAUNCH_PRIORITY);
    let is_ordered = mark == Some("Ordered");
    let mut plan = Plan::default();
    if let Some(other) = mark.filter(|_| !is_ordered) {
        plan.warnings.push(format!(
            "metadata.annotations[{}]: {other:?} does nothing: only Ordered does",
            names::LAUNCH_PRIORITY
        ));
    }
    let mut priorities = Vec::with_capacity(containers.len());
    for (index, container) in containers.iter().enumerate() {
        let of_order = if is_ordered {
            -i64::try_from(index).unwrap_or(i64::MAX)
        } else {
            0
        };
        priorities.push(own_priority(index, container)?.unwrap_or(of_order));
    }
    let (Some(lowest), Some(highest)) = (priorities.iter().min(), priorities.iter().max()) else {
        return Ok(plan);
    };
    if lowest == highest {
        return Ok(plan);
    }
    if let Some(holder) = may_hold_forever(pod, containers, &priorities, *lowest) {
        plan.warnings.push(format!(
            "launch priority is not applied: with restartPolicy Never, containers that wait for {holder} to be ready might never start; \
             use another restartPolicy, or the annotation {}=started and no readiness probe on that container",
            names::LAUNCH_ON
        ));
        return Ok(plan);
    }
    let Some((name, is_new)) = final_name(request, pod) else {
        return Ok(plan);
    };
    let barrier = |priority: &i64| {
        json!({"name": names::LAUNCH_BARRIER_ENV, "valueFrom": {"configMapKeyRef": {
            "name": format!("{name}-barrier"), "key": names::launch_barrier_key(*priority),
        }}})
    };
    plan.barriers = priorities.iter().map(barrier).collect();
    plan.name = is_new.then_some(name);
    Ok(plan)
}

/// The priority that a container names in its environment. As for the kubelet, the last entry of a name counts.
fn own_priority(index: usize, container: &Value) -> Result<Option<i64>, String> {
    let entries = list(container, &["env"]);
    let Some(entry) = entries
        .iter()
        .rfind(|entry| text(entry, &["name"]) == names::LAUNCH_PRIORITY_ENV)
    else {
        return Ok(None);
    };
    let value = at(entry, &["value"]).and_then(Value::as_str);
    match value.and_then(|text| text.parse().ok()) {
        Some(priority) => Ok(Some(priority)),
        None => Err(format!(
            "spec.containers[{index}].env[{}]: Invalid value: {:?}: a launch priority must be an integer, such as \"1\" or \"-5\", \
             written as a value and not by valueFrom",
            names::LAUNCH_PRIORITY_ENV,
            value.unwrap_or_default(),
        )),
    }
}

/// A container that others wait for and that may end without ever having been ready, if containers that have ended stay so.
///
/// One that counts as ready by having been started cannot hold others up.
fn may_hold_forever<'p>(pod: &'p Value, containers: &'p [Value], priorities: &[i64], lowest: i64) -> Option<&'p str> {
    if text(pod, &["spec", "restartPolicy"]) != "Never" {
        return None;
    }
    let started_is_enough = annotation(pod, names::LAUNCH_ON) == Some("started");
    let awaited = containers.iter().zip(priorities).filter(|(_, p)| **p > lowest);
    awaited
        .map(|(container, _)| container)
        .find(|container| !started_is_enough || at(container, &["readinessProbe"]).is_some())
        .map(|container| text(container, &["name"]))
}

/// The name that the pod will have, and whether it has to be written into it: the barrier's name is made of it, so it cannot wait for
/// the API server to choose one. `None` if the pod can have no name, which is then refused by the API server.
fn final_name(request: &Request<'_>, pod: &Value) -> Option<(String, bool)> {
    let name = text(pod, &["metadata", "name"]);
    if !name.is_empty() {
        return Some((name.to_owned(), false));
    }
    let prefix = text(pod, &["metadata", "generateName"]);
    if prefix.is_empty() {
        return None;
    }
    let mut end = prefix.len().min(PREFIX_LENGTH_MAX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    Some((format!("{}{}", &prefix[..end], suffix(request.uid)), true))
}

/// Five characters that follow from the request: the API server draws them at random, and a request's uid is as random as that.
fn suffix(uid: &str) -> String {
    // FNV-1a, 64 bits, then mixed so that the low digits depend on all of it.
    let sum = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut rest = sum ^ (sum >> 32);
    let base = SUFFIX_ALPHABET.len() as u64;
    let mut suffix = String::with_capacity(SUFFIX_LENGTH);
    for _ in 0..SUFFIX_LENGTH {
        suffix.push(char::from(SUFFIX_ALPHABET[(rest % base) as usize]));
        rest /= base;
    }
    suffix
}
