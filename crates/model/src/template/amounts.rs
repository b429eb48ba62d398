//! What a pod asks for in all, and what it is limited to, as the scheduler and quotas count it.
//! <https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers>

use super::quantity_in_billionths;
use serde_json::Value;
use std::collections::BTreeMap;

/// Amounts in billionths, by the names of resources.
pub type Amounts = BTreeMap<String, i128>;

/// What the pod of this `spec` asks for (`requests`) or is limited to (`limits`): its containers and the sidecars among the steps before them, or
/// what the largest of those steps needs beside the sidecars before it; what the pod as a whole says instead; and its overhead. What cannot be
/// read counts as nothing, and what is too large to be counted as the most there is.
pub fn amounts_of_pod(spec: &Value, list: &str) -> Amounts {
    let (mut running, mut steps, mut sidecars) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in each(&spec["containers"]) {
        add(&mut running, &amounts_of_container(container, list));
    }
    for container in each(&spec["initContainers"]) {
        let mut amounts = amounts_of_container(container, list);
        if container["restartPolicy"] == "Always" {
            add(&mut running, &amounts);
            add(&mut sidecars, &amounts);
            amounts = sidecars.clone();
        } else {
            add(&mut amounts, &sidecars);
        }
        for (name, amount) in amounts {
            let most = steps.entry(name).or_default();
            *most = (*most).max(amount);
        }
    }
    for (name, amount) in steps {
        let most = running.entry(name).or_default();
        *most = (*most).max(amount);
    }
    running.extend(named(&spec["resources"][list]));
    if list == "requests" {
        for (name, limit) in named(&spec["resources"]["limits"]) {
            running.entry(name).or_insert(limit);
        }
    }
    add(&mut running, &named(&spec["overhead"]));
    running
}

/// The same of one container; what it has limits for only, it asks for.
pub fn amounts_of_container(container: &Value, list: &str) -> Amounts {
    let resources = &container["resources"];
    let mut amounts = named(&resources[list]);
    if list == "requests" {
        for (name, amount) in named(&resources["limits"]) {
            amounts.entry(name).or_insert(amount);
        }
    }
    amounts
}

/// An amount, as text or as a number.
pub fn amount(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => quantity_in_billionths(text),
        Value::Number(number) => quantity_in_billionths(&number.to_string()),
        _ => None,
    }
}

fn named(list: &Value) -> Amounts {
    let all = list.as_object().into_iter().flatten();
    // What is too large to be counted is more than anybody has.
    let counted = |value: &Value| amount(value).or_else(|| is_written(value).then_some(i128::MAX));
    all.filter_map(|(name, value)| Some((name.clone(), counted(value)?)))
        .collect()
}

/// Whether an amount is written there, as far as its first letter tells: the API server accepts no other texts.
fn is_written(value: &Value) -> bool {
    match value {
        Value::String(text) => text.starts_with(|c: char| c.is_ascii_digit()),
        Value::Number(number) => number.as_f64().is_some_and(|number| number > 0.0),
        _ => false,
    }
}

fn add(all: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = all.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn containers_sidecars_and_the_steps_before_them_are_counted() {
        let asks = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        let whole = json!({"containers": [asks("1")], "resources": {"requests": {"cpu": "7"}}});
        let huge = asks("100000000000E");
        let rows = [
            ("containers", json!({"containers": [asks("1"), asks("500m")]}), 1_500),
            (
                "limits",
                json!({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}),
                2_000,
            ),
            (
                "a large step",
                json!({"containers": [asks("1")], "initContainers": [asks("3"), asks("2")]}),
                3_000,
            ),
            (
                "a sidecar",
                json!({"containers": [asks("1")], "initContainers": [sidecar("3")]}),
                4_000,
            ),
            (
                "a step beside a sidecar",
                json!({"containers": [asks("1")], "initContainers": [sidecar("3"), asks("5")]}),
                8_000,
            ),
            (
                "a step before a sidecar",
                json!({"containers": [asks("1")], "initContainers": [asks("5"), sidecar("3")]}),
                5_000,
            ),
            ("the pod as a whole", whole, 7_000),
            (
                "a limit of the whole",
                json!({"containers": [asks("1")], "resources": {"limits": {"cpu": "64"}}}),
                1_000,
            ),
            (
                "overhead",
                json!({"containers": [asks("1")], "overhead": {"cpu": "250m"}}),
                1_250,
            ),
            (
                "what cannot be read",
                json!({"containers": [asks("much"), asks("1")]}),
                1_000,
            ),
        ];
        for (what, spec, milli) in rows {
            let cpu = amounts_of_pod(&spec, "requests").get("cpu").copied();
            assert_eq!(cpu, Some(milli * 1_000_000), "{what}");
        }
        let most = amounts_of_pod(&json!({"containers": [huge, huge, huge]}), "requests");
        assert!(most["cpu"] > 0, "{most:?}");
    }
}
