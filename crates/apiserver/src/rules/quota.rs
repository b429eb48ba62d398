//! Resource quotas: how much a namespace may hold of objects, of what pods request and are limited to, and of storage.
//! <https://kubernetes.io/docs/concepts/policy/resource-quotas/>

use super::{claim, text};
use crate::store::{Server, StoreId, Stored};
use flotilla_apimachinery::status::{Qualified, Status};
use flotilla_engine::wire::Object;
use flotilla_model::records::storage_class_of;
use flotilla_model::template::{Amounts, amount, amounts_of_container, amounts_of_pod};
use flotilla_model::{ObjectKey, Resource, Timestamp};
use serde_json::{Map, Value, json};
use std::time::Duration;
/// What a quota counts of pods also without `requests.`.
const BY_SHORT_NAME: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// Where a quota counts these, containers that say nothing of them are refused.
const TO_BE_SAID: [&str; 2] = ["cpu", "memory"];
/// Kinds that no quota counts, though they have objects: they were made long before quotas counted other kinds than a few.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/quota/v1/install/registry.go>
const NEVER_COUNTED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];
const ONE: i128 = 1_000_000_000;
const MILLI: i128 = 1_000_000;

/// The name under which quotas count objects of a kind.
fn counted_as(group: &str, plural: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    format!("count/{plural}{dot}{group}")
}

/// What an object uses of all that quotas count.
fn uses(resource: StoreId, (group, plural): (&str, &str), object: &Value, default_class: &str) -> Amounts {
    let mut uses = Amounts::new();
    uses.insert(counted_as(group, plural), ONE);
    match resource.watched() {
        Some(Resource::Pods) => {
            uses.insert("pods".to_owned(), ONE);
            for list in ["requests", "limits"] {
                for (name, amount) in amounts_of_pod(&object["spec"], list) {
                    if list == "requests" && BY_SHORT_NAME.contains(&name.as_str()) {
                        uses.insert(name.clone(), amount);
                    }
                    uses.insert(format!("{list}.{name}"), amount);
                }
            }
        }
        Some(Resource::Claims) => {
            // One that names no class counts for the default one, which it is given as it is made.
            let storage = amount(&object["spec"]["resources"]["requests"]["storage"]).unwrap_or(0);
            let class = storage_class_of(object).unwrap_or(default_class);
            for (name, amount) in [("persistentvolumeclaims", ONE), ("requests.storage", storage)] {
                uses.insert(name.to_owned(), amount);
                uses.insert(format!("{class}.storageclass.storage.k8s.io/{name}"), amount);
            }
        }
        _ => {}
    }
    uses
}

pub(super) fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(super) fn shown(amount: i128) -> String {
    if amount % ONE == 0 {
        (amount / ONE).to_string()
    } else {
        format!("{}m", amount / MILLI)
    }
}

/// Whether a quota is about such a pod. One with a scope that is not known here is about none.
fn is_about(quota: &Value, pod: &Value) -> bool {
    let spec = &quota["spec"];
    let is_best_effort = || {
        let asks = |list| {
            amounts_of_pod(&pod["spec"], list)
                .iter()
                .any(|(name, n)| TO_BE_SAID.contains(&name.as_str()) && *n > 0)
        };
        !asks("requests") && !asks("limits")
    };
    let ends = || !pod["spec"]["activeDeadlineSeconds"].is_null();
    let class = &pod["spec"]["priorityClassName"];
    let in_scope = |scope: &str, operator: &str, values: &Value| match (scope, operator) {
        ("BestEffort", "Exists") => is_best_effort(),
        ("NotBestEffort", "Exists") => !is_best_effort(),
        ("Terminating", "Exists") => ends(),
        ("NotTerminating", "Exists") => !ends(),
        ("PriorityClass", "Exists") => class.is_string(),
        ("PriorityClass", "DoesNotExist") => !class.is_string(),
        ("PriorityClass", "In") => each(values).any(|value| value == class),
        ("PriorityClass", "NotIn") => !each(values).any(|value| value == class),
        _ => false,
    };
    let mut scopes = each(&spec["scopes"]);
    let mut rules = each(&spec["scopeSelector"]["matchExpressions"]);
    scopes.all(|scope| in_scope(scope.as_str().unwrap_or_default(), "Exists", &Value::Null))
        && rules.all(|rule| in_scope(text(rule, "scopeName"), text(rule, "operator"), &rule["values"]))
}

/// Whether a quota has scopes, which only pods have.
fn is_of_pods(quota: &Value) -> bool {
    each(&quota["spec"]["scopes"]).next().is_some() || !quota["spec"]["scopeSelector"].is_null()
}

/// The class that claims are given which name none; empty if there is none.
fn default_class(server: &Server) -> String {
    let class = claim::default_class(server);
    class
        .and_then(|class| class.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// What objects of this kind use of what a quota counts.
fn used(server: &Server, quota: &Value, namespace: &str, resource: StoreId, names: (&str, &str)) -> Amounts {
    let is_pods = resource == Resource::Pods;
    let now: Option<Timestamp> = server.time().as_str().and_then(|now| now.parse().ok());
    let counts = |stored: &&Stored| {
        // Pods that have ended use nothing, nor do those that should have gone by now: their node is lost.
        let is_overdue = || {
            let meta = &stored.value()["metadata"];
            let until = meta["deletionTimestamp"]
                .as_str()
                .and_then(|at| at.parse::<Timestamp>().ok());
            let grace = meta["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
            until
                .zip(now)
                .is_some_and(|(until, now)| now > until + Duration::from_secs(grace))
        };
        let has_ended = matches!(&stored.object, Some(Object::Pod(pod)) if pod.is_terminal() || pod.is_terminating() && is_overdue());
        !has_ended && (!is_pods || is_about(quota, &stored.value()))
    };
    let class = default_class(server);
    let mut all = Amounts::new();
    let objects = server.after(resource, Some(namespace), None).map(|(_, stored)| stored);
    for stored in objects.filter(counts) {
        for (name, amount) in uses(resource, names, &stored.value(), &class) {
            let sum = all.entry(name).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    all
}

/// Whether one more object of a kind, given by group and plural, fits into its namespace; of one that was there before, whether it fits with
/// what it asks for more.
pub(crate) fn check(
    server: &Server,
    resource: StoreId,
    (group, plural): (&str, &str),
    (before, object): (Option<&Value>, &Value),
) -> Result<(), Status> {
    let namespace = text(&object["metadata"], "namespace");
    let (quotas, is_pod) = (server.types.builtin("", "resourcequotas"), resource == Resource::Pods);
    if NEVER_COUNTED.contains(&(group, plural)) {
        return Ok(());
    }
    let refused = |why: &str| {
        let name = text(&object["metadata"], "name");
        Err(Status::forbidden(&Qualified::new(group, plural), name, why))
    };
    for (key, quota) in server.after(quotas, Some(namespace), None) {
        let quota = quota.value();
        let concerns = if is_pod {
            is_about(&quota, object)
        } else {
            !is_of_pods(&quota)
        };
        if !concerns {
            continue;
        }
        let hard = quota["spec"]["hard"].as_object().cloned().unwrap_or_default();
        let unspecified = hard
            .keys()
            .filter_map(|name| unspecified(name, object).filter(|_| is_pod));
        let unspecified = unspecified.collect::<Vec<_>>().join("; ");
        if !unspecified.is_empty() {
            return refused(&format!("failed quota: {}: must specify {unspecified}", key.name));
        }
        let wanted = asked_for(server, resource, (group, plural), (before, object));
        let limited = hard
            .iter()
            .filter_map(|(name, limit)| Some((name, wanted.get(name)?, amount(limit)?)));
        let limited: Vec<_> = limited.filter(|(_, wanted, _)| **wanted > 0).collect();
        if limited.is_empty() {
            continue;
        }
        let used = used(server, &quota, namespace, resource, (group, plural));
        let used = |name: &String| used.get(name).copied().unwrap_or(0);
        let exceeded: Vec<_> = limited
            .iter()
            .filter(|(name, wanted, limit)| used(name).saturating_add(**wanted) > *limit)
            .collect();
        if exceeded.is_empty() {
            continue;
        }
        let list = |amount: &dyn Fn(&(&String, &i128, i128)) -> i128| {
            let all = exceeded.iter().map(|of| format!("{}={}", of.0, shown(amount(of))));
            all.collect::<Vec<_>>().join(",")
        };
        return refused(&format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            key.name,
            list(&|of| *of.1),
            list(&|of| used(of.0)),
            list(&|of| of.2)
        ));
    }
    Ok(())
}

/// What an object uses more than it did before.
fn asked_for(
    server: &Server,
    resource: StoreId,
    names: (&str, &str),
    (before, object): (Option<&Value>, &Value),
) -> Amounts {
    let class = default_class(server);
    let mut wanted = uses(resource, names, object, &class);
    let before = before.map(|before| uses(resource, names, before, &class));
    for (name, amount) in before.into_iter().flatten() {
        wanted
            .entry(name)
            .and_modify(|wanted| *wanted = wanted.saturating_sub(amount));
    }
    wanted
}

/// Which containers of a pod say nothing of what a quota counts, in the words of the API server.
fn unspecified(name: &str, pod: &Value) -> Option<String> {
    let (list, resource) = name.split_once('.').unwrap_or(("requests", name));
    // What the pod says as a whole counts for all of its containers.
    if !matches!(list, "requests" | "limits") || !TO_BE_SAID.contains(&resource) || pod["spec"]["resources"].is_object()
    {
        return None;
    }
    let all = each(&pod["spec"]["initContainers"]).chain(each(&pod["spec"]["containers"]));
    let silent = all.filter(|container| !amounts_of_container(container, list).contains_key(resource));
    let silent: Vec<&str> = silent.map(|container| text(container, "name")).collect();
    (!silent.is_empty()).then(|| format!("{name} for: {}", silent.join(",")))
}

/// The kinds of which a quota counts anything: pods and claims, and those that it names.
fn counted(server: &Server, hard: &Map<String, Value>) -> Vec<(StoreId, (String, String))> {
    let is_counted = |group: &str, plural: &str| {
        let is_always = group.is_empty() && matches!(plural, "pods" | "persistentvolumeclaims");
        is_always || hard.contains_key(&counted_as(group, plural)) && !NEVER_COUNTED.contains(&(group, plural))
    };
    let kinds = server
        .types
        .all()
        .iter()
        .filter(|kind| kind.is_namespaced && kind.is_stored());
    let kinds = kinds.filter(|kind| is_counted(&kind.group, &kind.plural));
    kinds
        .map(|kind| (kind.store, (kind.group.clone(), kind.plural.clone())))
        .collect()
}

/// Says in each quota's status what is used.
pub(crate) fn recount(server: &mut Server) {
    let quotas = server.types.builtin("", "resourcequotas");
    let known: Vec<(ObjectKey, Value)> = server
        .all(quotas)
        .map(|s| {
            let value = s.to_value();
            (crate::store::key_of(&value), value)
        })
        .collect();
    for (key, quota) in known {
        let hard = quota["spec"]["hard"].as_object().cloned().unwrap_or_default();
        let mut all = Amounts::new();
        for (resource, (group, plural)) in counted(server, &hard) {
            if resource == Resource::Pods || !is_of_pods(&quota) {
                all.extend(used(server, &quota, &key.namespace, resource, (&group, &plural)));
            }
        }
        let used: Map<String, Value> = hard
            .keys()
            .map(|name| (name.clone(), json!(shown(all.get(name).copied().unwrap_or(0)))))
            .collect();
        let status = json!({"hard": hard, "used": used});
        if quota["status"] != status {
            // It is there.
            let _ = server.amend(quotas, &key, |quota| quota["status"] = status);
        }
    }
}
