//! Resource quotas: how many objects a namespace may hold.

use super::text;
use crate::store::{Server, Stored};
use flotilla_apimachinery::status::{Qualified, Status};
use flotilla_engine::wire::Object;
use flotilla_model::{ObjectKey, Resource};
use serde_json::{Map, Value, json};

/// What is counted, by its names in a quota.
const COUNTED: [(&str, Resource); 4] = [
    ("pods", Resource::Pods),
    ("count/pods", Resource::Pods),
    ("persistentvolumeclaims", Resource::Claims),
    ("count/persistentvolumeclaims", Resource::Claims),
];

fn used(server: &Server, namespace: &str, name: &str) -> Option<usize> {
    let (_, resource) = COUNTED.iter().find(|(counted, _)| *counted == name)?;
    let counts = |stored: &Stored| {
        // Pods that have ended use nothing.
        !matches!(&stored.object, Some(Object::Pod(pod)) if pod.is_terminal())
    };
    Some(
        server
            .after(*resource, Some(namespace), None)
            .filter(|(_, s)| counts(s))
            .count(),
    )
}

/// Whether one more pod fits.
pub(crate) fn check(server: &Server, pod: &Value) -> Result<(), Status> {
    let namespace = text(&pod["metadata"], "namespace");
    let quotas = server.types.builtin("", "resourcequotas");
    for (key, quota) in server.after(quotas, Some(namespace), None) {
        let quota = quota.value();
        let hard = quota["spec"]["hard"].as_object().cloned().unwrap_or_default();
        for (name, limit) in &hard {
            let is_pods = matches!(name.as_str(), "pods" | "count/pods");
            let (Some(used), Some(limit)) = (used(server, namespace, name), number(limit)) else {
                continue;
            };
            if is_pods && used + 1 > limit {
                let why = format!(
                    "exceeded quota: {}, requested: {name}=1, used: {name}={used}, limited: {name}={limit}",
                    key.name
                );
                let name = text(&pod["metadata"], "name");
                return Err(Status::forbidden(&Qualified::new("", "pods"), name, &why));
            }
        }
    }
    Ok(())
}

fn number(limit: &Value) -> Option<usize> {
    match limit {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64().map(|n| n as usize),
    }
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
        let used: Map<String, Value> = hard
            .keys()
            .map(|name| {
                (
                    name.clone(),
                    json!(used(server, &key.namespace, name).unwrap_or(0).to_string()),
                )
            })
            .collect();
        let status = json!({"hard": hard, "used": used});
        if quota["status"] != status {
            // It is there.
            let _ = server.amend(quotas, &key, |quota| quota["status"] = status);
        }
    }
}
