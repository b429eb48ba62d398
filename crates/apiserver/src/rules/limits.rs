//! Limit ranges: what each container, pod and claim of a namespace may ask for, and what containers are given that say nothing.
//! <https://kubernetes.io/docs/concepts/policy/limit-range/>

use super::quota::{each, shown};
use super::text;
use crate::store::{Server, StoreId};
use flotilla_apimachinery::status::{Qualified, Status};
use flotilla_model::Resource;
use flotilla_model::template::{Amounts, amount, amounts_of_container, amounts_of_pod};
use serde_json::Value;

/// Broken rules that are told, at most.
const TOLD_MAX: usize = 16;
/// In billionths.
const ONE: i128 = 1_000_000_000;

fn is_map_or_absent(value: &Value) -> bool {
    value.is_object() || value.is_null()
}

/// Rules about things of a type.
fn rules(server: &Server, namespace: &str, about: &str) -> Vec<Value> {
    let ranges = server.types.builtin("", "limitranges");
    if server.count(ranges, None) == 0 {
        return Vec::new();
    }
    let all = server.after(ranges, Some(namespace), None);
    let rules = all.flat_map(|(_, range)| each(&range.value()["spec"]["limits"]).cloned().collect::<Vec<_>>());
    rules.filter(|rule| rule["type"] == about).collect()
}

/// Fills in what limit ranges of its namespace give containers that say nothing of a resource.
pub(crate) fn fill(server: &Server, pod: &mut Value) {
    let rules = rules(server, text(&pod["metadata"], "namespace"), "Container");
    if rules.is_empty() {
        return;
    }
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            // What is no container is refused later, in the words of that.
            let resources = &container["resources"];
            let is_readable = ["limits", "requests"]
                .iter()
                .all(|list| is_map_or_absent(&resources[*list]));
            if !container.is_object() || !is_map_or_absent(resources) || !is_readable {
                continue;
            }
            // What a container is limited to, it asks for, whatever the range would give it.
            let own_limits = container["resources"]["limits"].clone();
            for rule in &rules {
                for (field, given) in [("limits", "default"), ("requests", "defaultRequest")] {
                    for (name, value) in rule[given].as_object().into_iter().flatten() {
                        let is_said = !container["resources"][field][name].is_null()
                            || field == "requests" && !own_limits[name].is_null();
                        if !is_said {
                            container["resources"][field][name] = value.clone();
                        }
                    }
                }
            }
        }
    }
}

/// Whether a pod or claim keeps to the limit ranges of its namespace.
pub(crate) fn check(
    server: &Server,
    resource: StoreId,
    (group, plural): (&str, &str),
    object: &Value,
) -> Result<(), Status> {
    let namespace = text(&object["metadata"], "namespace");
    let rules = |about| rules(server, namespace, about);
    let mut broken = Vec::new();
    match resource.watched() {
        Some(Resource::Pods) => {
            let spec = &object["spec"];
            let containers = || each(&spec["initContainers"]).chain(each(&spec["containers"]));
            for rule in rules("Container") {
                for container in containers() {
                    let amounts = ["requests", "limits"].map(|list| amounts_of_container(container, list));
                    broken.extend(broken_by(&rule, &amounts));
                }
            }
            for rule in rules("Pod") {
                broken.extend(broken_by(
                    &rule,
                    &["requests", "limits"].map(|list| amounts_of_pod(spec, list)),
                ));
            }
        }
        Some(Resource::Claims) => {
            let requests = &object["spec"]["resources"]["requests"];
            let asked = amount(&requests["storage"]).map(|amount| ("storage".to_owned(), amount));
            // Claims have no limits: what they ask for is all that they get.
            let asked: Amounts = asked.into_iter().collect();
            for rule in rules("PersistentVolumeClaim") {
                broken.extend(broken_by(&rule, &[asked.clone(), asked.clone()]));
            }
        }
        _ => {}
    }
    // Thousands of rules would be told in megabytes.
    broken.truncate(TOLD_MAX);
    let why = match broken.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let name = text(&object["metadata"], "name");
    Err(Status::forbidden(&Qualified::new(group, plural), name, &why))
}

/// What of a rule is broken by something that asks for so much and is limited to so much, in the words of the API server.
fn broken_by(rule: &Value, [requests, limits]: &[Amounts; 2]) -> Vec<String> {
    let about = text(rule, "type");
    let limited = if about == "PersistentVolumeClaim" {
        "request"
    } else {
        "limit"
    };
    let bounds = |field: &str| -> Vec<(String, i128, String)> {
        let bounds = rule[field].as_object().into_iter().flatten();
        let read = |(name, value): (&String, &Value)| {
            let words = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some((name.clone(), amount(value)?, words))
        };
        bounds.filter_map(read).collect()
    };
    let mut broken = Vec::new();
    for (name, least, words) in bounds("min") {
        let why = match requests.get(&name) {
            None => ".  No request is specified".to_owned(),
            Some(asked) if *asked < least => format!(", but request is {}", shown(*asked)),
            Some(_) => continue,
        };
        broken.push(format!("minimum {name} usage per {about} is {words}{why}"));
    }
    for (name, most, words) in bounds("max") {
        let why = match (limits.get(&name), requests.get(&name)) {
            (None, _) => ".  No limit is specified".to_owned(),
            (Some(limit), _) if *limit > most => format!(", but {limited} is {}", shown(*limit)),
            (_, Some(asked)) if *asked > most => format!(", but request is {}", shown(*asked)),
            _ => continue,
        };
        broken.push(format!("maximum {name} usage per {about} is {words}{why}"));
    }
    for (name, ratio, words) in bounds("maxLimitRequestRatio") {
        let most = requests.get(&name).map(|asked| asked.saturating_mul(ratio) / ONE);
        if most.is_none_or(|most| limits.get(&name).is_none_or(|limit| *limit > most)) {
            broken.push(format!("{name} max limit to request ratio per {about} is {words}"));
        }
    }
    broken
}
