//! Where pods may run: tolerations, terms of affinity between pods, spreading, and gates before scheduling.

use super::{each, one_of, text};
use crate::field::{Error, Fault};
use crate::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const TERMS: [&str; 2] = [
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
];
const NOT_POSITIVE: &str = "must be greater than zero";
const EMPTY: &str = "can not be empty";

pub(super) fn check(spec: &Value, path: &str, errors: &mut Vec<Error>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        affinity(&spec["affinity"][kind], &format!("{path}.affinity.{kind}"), errors);
    }
    gates(spec, path, errors);
    spread(spec, path, errors);
    for (index, toleration) in each(spec, "tolerations").enumerate() {
        tolerates(toleration, &format!("{path}.tolerations[{index}]"), errors);
    }
}

fn affinity(affinity: &Value, path: &str, errors: &mut Vec<Error>) {
    let [required, preferred] = TERMS;
    for (index, item) in each(affinity, required).enumerate() {
        term(item, &format!("{path}.{required}[{index}]"), errors);
    }
    for (index, item) in each(affinity, preferred).enumerate() {
        let path = format!("{path}.{preferred}[{index}]");
        let weight = item["weight"].as_i64().unwrap_or(0);
        if !(1..=100).contains(&weight) {
            let why = "must be in the range 1-100";
            errors.push(Error::invalid(format!("{path}.weight"), json!(weight), why));
        }
        term(&item["podAffinityTerm"], &format!("{path}.podAffinityTerm"), errors);
    }
}

fn term(term: &Value, path: &str, errors: &mut Vec<Error>) {
    let (path, key) = (format!("{path}.topologyKey"), text(term, "topologyKey"));
    if key.is_empty() {
        errors.push(Error::required(path.as_str(), EMPTY));
    }
    let wrong = names::label_key(key).into_iter();
    errors.extend(wrong.map(|why| Error::invalid(path.as_str(), json!(key), why)));
}

fn gates(spec: &Value, path: &str, errors: &mut Vec<Error>) {
    let mut seen = BTreeSet::new();
    for (index, gate) in each(spec, "schedulingGates").enumerate() {
        let (path, name) = (format!("{path}.schedulingGates[{index}]"), text(gate, "name"));
        let wrong = names::label_key(name).into_iter();
        errors.extend(wrong.map(|why| Error::invalid(path.as_str(), json!(name), why)));
        if !seen.insert(name) {
            errors.push(Error::new(Fault::Duplicate, path, json!(name), ""));
        }
    }
}

fn spread(spec: &Value, path: &str, errors: &mut Vec<Error>) {
    let kind = |constraint| [text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable")];
    let kinds: Vec<_> = each(spec, "topologySpreadConstraints").map(kind).collect();
    for (index, constraint) in each(spec, "topologySpreadConstraints").enumerate() {
        let path = format!("{path}.topologySpreadConstraints[{index}]");
        let [key, action] = kinds[index];
        let skew = constraint["maxSkew"].as_i64().unwrap_or(0);
        if skew <= 0 {
            errors.push(Error::invalid(format!("{path}.maxSkew"), json!(skew), NOT_POSITIVE));
        }
        if key.is_empty() {
            errors.push(Error::required(format!("{path}.topologyKey"), EMPTY));
        }
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&action) {
            let path = format!("{path}.whenUnsatisfiable");
            errors.push(Error::not_supported(
                path,
                json!(action),
                ["DoNotSchedule", "ScheduleAnyway"],
            ));
        }
        if kinds[index + 1..].contains(&kinds[index]) {
            let path = format!("{path}.{{topologyKey, whenUnsatisfiable}}");
            let kind = format!("{{{key}, {action}}}");
            errors.push(Error::new(Fault::Duplicate, path, json!(kind), ""));
        }
    }
}

fn tolerates(toleration: &Value, path: &str, errors: &mut Vec<Error>) {
    let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
    let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
    let at = |field: &str| format!("{path}.{field}");
    if key.is_empty() {
        if operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(Error::invalid(at("operator"), json!(operator), why));
        }
    } else {
        let wrong = names::label_key(key).into_iter();
        errors.extend(wrong.map(|why| Error::invalid(at("key"), json!(key), why)));
    }
    if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(Error::invalid(at("effect"), json!(effect), why));
    }
    match operator {
        "" | "Equal" => {
            let wrong = names::label_value(value);
            if !wrong.is_empty() {
                errors.push(Error::invalid(at("operator"), json!(value), wrong.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            let why = "value must be empty when `operator` is 'Exists'";
            errors.push(Error::invalid(at("operator"), json!(value), why));
        }
        // A feature that clusters may have switched on compares numbers.
        "Exists" | "Lt" | "Gt" => {}
        other => errors.push(Error::not_supported(at("operator"), json!(other), ["Equal", "Exists"])),
    }
    one_of(effect, &EFFECTS, || at("effect"), errors);
}
