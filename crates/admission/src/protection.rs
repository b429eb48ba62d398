//! Protection from deletion by a label (STS-7.5): `Always` forbids it; `Cascading` forbids it while the object has something that
//! would be deleted with it. Who deletes an object a second time is let through, since it is going already.

use crate::json::{at, label, list, text};
use crate::{Counted, CustomResource, Memory, Reply, Request, Verdict};
use flotilla_api::names;
use serde_json::Value;

/// How each refusal begins: programs compare it.
const FORBIDDEN: &str = "forbidden by ResourcesProtectionDeletion";

/// What helps where objects of a definition may not be listed.
const LET_IT_LIST: &str = "let that account (ServiceAccount flotilla-manager of an installation) list them in the whole cluster by a ClusterRole \
                           and a ClusterRoleBinding, as SECURITY.md shows";

/// What an object holds that would go with it.
enum Contents {
    Nothing,
    Something(String),
    /// It cannot be found out, and trying again does not help: why, and what does.
    Uncountable(String, &'static str),
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
    let refused = |code, value: &str, what: &str, advice: &str| -> Reply {
        let key = names::DELETE_PROTECTION_LABEL;
        let described = described(request, object);
        Verdict::deny(
            code,
            format!("{FORBIDDEN} for {key}={value}{what}: {described} may not be deleted; {advice}"),
        )
        .into()
    };
    match label(object, names::DELETE_PROTECTION_LABEL) {
        None => Reply::allow(),
        Some(value @ "Always") => refused(403, value, "", "remove the label to delete it anyway"),
        Some(value @ "Cascading") => match contents(request, object, memory) {
            Contents::Nothing => Reply::allow(),
            Contents::Something(what) => refused(
                403,
                value,
                &format!(" and {what}"),
                "remove the label to delete it anyway",
            ),
            Contents::Uncountable(why, advice) => refused(
                403,
                value,
                &format!(" and {why}"),
                &format!("{advice}, or remove the label to delete it anyway"),
            ),
            Contents::Unknown => refused(
                409,
                value,
                " and contents that are not known yet",
                "try again in a few seconds",
            ),
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

fn contents(request: &Request<'_>, object: &Value, memory: &dyn Memory) -> Contents {
    match (request.group, request.kind) {
        ("", "Namespace") => in_namespace(text(object, &["metadata", "name"]), memory),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => of_definition(object, memory),
        // Kinds with a pod on each node say in their status how many there are.
        (_, "DaemonSet") => counted(
            at(object, &["status", "currentNumberScheduled"]),
            0,
            "nodes that run a pod",
        ),
        // An absent number of replicas means one.
        (_, kind) if has_replicas(kind) => counted(at(object, &["spec", "replicas"]), 1, "replicas"),
        // With a Service or an Ingress nothing else goes: these are protected by Always alone.
        _ => Contents::Nothing,
    }
}

fn has_replicas(kind: &str) -> bool {
    matches!(
        kind,
        "StatefulSet" | "Deployment" | "ReplicaSet" | "ReplicationController" | "CloneSet" | "UnitedDeployment"
    )
}

fn counted(number: Option<&Value>, default: i64, what: &str) -> Contents {
    match number.map_or(Some(default), Value::as_i64) {
        Some(n) if n > 0 => Contents::Something(format!("{what} {n}>0")),
        _ => Contents::Nothing,
    }
}

/// What stands in the way is known as soon as one of the two is; that nothing does, only from both.
fn in_namespace(name: &str, memory: &dyn Memory) -> Contents {
    let (pods, claims) = (memory.active_pods_in(name), memory.bound_claims_in(name));
    let counts = [(pods, "active pods"), (claims, "\"Bound\" status pvc")];
    let found: Vec<String> = counts
        .iter()
        .filter_map(|(count, what)| count.filter(|n| *n > 0).map(|n| format!("{what} {n}>0")))
        .collect();
    if !found.is_empty() {
        Contents::Something(found.join(" and "))
    } else if pods.is_none() || claims.is_none() {
        Contents::Unknown
    } else {
        Contents::Nothing
    }
}

fn of_definition(object: &Value, memory: &dyn Memory) -> Contents {
    let is_established = list(object, &["status", "conditions"])
        .iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
    if !is_established {
        // There never was a way to make an object of it.
        return Contents::Nothing;
    }
    let versions = list(object, &["spec", "versions"]);
    let Some(version) = versions.iter().find(|version| version["served"] == true) else {
        return Contents::Uncountable(
            "no version of it that is served, so that its objects cannot be counted".to_owned(),
            "serve one",
        );
    };
    let resource = CustomResource {
        group: text(object, &["spec", "group"]),
        version: text(version, &["name"]),
        plural: text(object, &["spec", "names", "plural"]),
    };
    match memory.active_objects(&resource) {
        Counted::Unknown => Contents::Unknown,
        Counted::Is(0) => Contents::Nothing,
        Counted::Is(n) => Contents::Something(format!("active CRs {n}>0")),
        Counted::Forbidden => {
            let why = format!(
                "objects that cannot be counted, since Flotilla's account lacks the right to list {}.{}",
                resource.plural, resource.group
            );
            Contents::Uncountable(why, LET_IT_LIST)
        }
    }
}
