//! Protection from deletion by a label (rule 7.5): `Always` forbids it; `Cascading` forbids it while the object has something that
//! would be deleted with it. Who deletes an object a second time is let through, since it is going already.

use crate::json::{at, label, text};
use crate::{Memory, Reply, Request, Verdict};
use flotilla_api::names;
use serde_json::Value;

/// What an object holds that would go with it.
enum Contents {
    Nothing,
    Something(String),
    /// The caches are not filled: what is not known is not deleted.
    Unknown,
}

/// Whether the object of a DELETE request may go.
pub(crate) fn protect(request: &Request<'_>, memory: &dyn Memory) -> Reply {
    let Some(object) = request.old_object else {
        return Reply::allow();
    };
    if at(object, &["metadata", "deletionTimestamp"]).is_some() {
        return Reply::allow();
    }
    let described = || described(request, object);
    match label(object, names::DELETE_PROTECTION_LABEL) {
        None => Reply::allow(),
        Some("Always") => forbidden(&described(), "Always", "it may not be deleted"),
        Some("Cascading") => match contents(request, object, memory) {
            Contents::Nothing => Reply::allow(),
            Contents::Something(what) => {
                forbidden(&described(), "Cascading", &format!("it may not be deleted while {what}"))
            }
            Contents::Unknown => Verdict::deny(
                409,
                format!(
                    "{} is protected by the label {}=Cascading, and what it holds is not known yet because Flotilla has just \
                     started; try again in a few seconds",
                    described(),
                    names::DELETE_PROTECTION_LABEL
                ),
            )
            .into(),
        },
        Some(other) => Reply {
            verdict: Verdict::Allow,
            warnings: vec![format!(
                "the label {}={other:?} protects nothing: only Always and Cascading do",
                names::DELETE_PROTECTION_LABEL
            )],
        },
    }
}

fn described(request: &Request<'_>, object: &Value) -> String {
    let name = if request.name.is_empty() {
        text(object, &["metadata", "name"])
    } else {
        request.name
    };
    match request.namespace {
        "" => format!("{} {name}", request.kind),
        _ if request.kind == "Namespace" => format!("{} {name}", request.kind),
        namespace => format!("{} {namespace}/{name}", request.kind),
    }
}

fn forbidden(described: &str, value: &str, what: &str) -> Reply {
    let key = names::DELETE_PROTECTION_LABEL;
    Verdict::deny(
        403,
        format!("{described} is protected by the label {key}={value}: {what}; remove the label to delete it anyway"),
    )
    .into()
}

fn contents(request: &Request<'_>, object: &Value, memory: &dyn Memory) -> Contents {
    match (request.group, request.kind) {
        ("", "Namespace") => in_namespace(text(object, &["metadata", "name"]), memory),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => of_definition(object, memory),
        // Kinds with a pod on each node say in their status how many there are.
        (_, "DaemonSet") => counted(at(object, &["status", "currentNumberScheduled"]), 0, |n| {
            format!("{n} nodes run a pod of it")
        }),
        // An absent number of replicas means one.
        (_, kind) if has_replicas(kind) => counted(at(object, &["spec", "replicas"]), 1, |n| {
            format!("spec.replicas is {n} (0 is needed)")
        }),
        _ => Contents::Nothing,
    }
}

fn has_replicas(kind: &str) -> bool {
    matches!(
        kind,
        "StatefulSet" | "Deployment" | "ReplicaSet" | "ReplicationController" | "CloneSet" | "UnitedDeployment"
    )
}

fn counted(number: Option<&Value>, default: i64, what: impl Fn(i64) -> String) -> Contents {
    match number.map_or(Some(default), Value::as_i64) {
        Some(n) if n > 0 => Contents::Something(what(n)),
        _ => Contents::Nothing,
    }
}

fn in_namespace(name: &str, memory: &dyn Memory) -> Contents {
    match (memory.pods_in(name), memory.claims_in(name)) {
        (Some(0), Some(0)) => Contents::Nothing,
        (Some(0) | None, None) | (None, Some(0)) => Contents::Unknown,
        (pods, claims) => Contents::Something(format!(
            "there are {} pods and {} volume claims in it",
            pods.map_or_else(|| "perhaps".to_owned(), |n| n.to_string()),
            claims.map_or_else(|| "perhaps".to_owned(), |n| n.to_string()),
        )),
    }
}

fn of_definition(object: &Value, memory: &dyn Memory) -> Contents {
    let plural = text(object, &["spec", "names", "plural"]);
    match memory.custom_objects(text(object, &["spec", "group"]), plural) {
        None => Contents::Unknown,
        Some(0) => Contents::Nothing,
        Some(n) => Contents::Something(format!("there are {n} objects of it (kubectl get {plural} -A)")),
    }
}
