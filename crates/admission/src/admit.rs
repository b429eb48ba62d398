//! The entry points: which rules a request meets.

use crate::convert::{self as conversion, Kind};
use crate::{Memory, Operation, Reply, Request, Verdict, defaults, pods, protection, scope, validation};
use serde_json::Value;

/// Group of the kinds that were OpenKruise's.
pub(crate) const GROUP: &str = "apps.kruise.io";

/// Fills in what the author of one of our objects left out (STS-7.2). Other kinds, and deletions, pass.
pub fn mutate(request: &Request<'_>, _memory: &dyn Memory) -> Reply {
    if scope::is_exempt(request) {
        return Reply::allow();
    }
    match (request.group, request.kind, request.operation) {
        (GROUP, kind, Operation::Create | Operation::Update) => {
            Kind::of(kind).map_or_else(Reply::allow, |kind| defaults::workload(request, kind))
        }
        _ => Reply::allow(),
    }
}

/// Refuses what cannot be carried out or can only do harm (STS-7.3 to STS-7.5). Of native sets only deletions are looked at.
pub fn validate(request: &Request<'_>, memory: &dyn Memory) -> Reply {
    if scope::is_exempt(request) {
        return Reply::allow();
    }
    match (request.group, request.kind, request.operation) {
        (GROUP, kind, Operation::Create | Operation::Update) => {
            Kind::of(kind).map_or_else(Reply::allow, |kind| validation::workload(request, kind, memory))
        }
        (GROUP | "apps", "StatefulSet", Operation::Delete) | (GROUP, "CloneSet", Operation::Delete) => {
            protection::protect(request, memory)
        }
        _ => Reply::allow(),
    }
}

/// What is added to a pod before it is stored: the chain of ADM-2. Asking again changes nothing.
pub fn mutate_pod(request: &Request<'_>, _memory: &dyn Memory) -> Reply {
    if scope::is_exempt(request) || (request.group, request.kind) != ("", "Pod") {
        return Reply::allow();
    }
    match (request.operation, request.object) {
        (Operation::Create, Some(pod)) => pods::chain(request, pod),
        _ => Reply::allow(),
    }
}

/// Keeps what is labelled as protected from deletion (STS-7.5): namespaces, definitions of custom resources, workloads.
pub fn protect(request: &Request<'_>, memory: &dyn Memory) -> Reply {
    if scope::is_exempt(request) || request.operation != Operation::Delete {
        return Reply::allow();
    }
    protection::protect(request, memory)
}

/// Converts objects as a ConversionReview asks: all of them, in order, or none.
///
/// # Errors
/// If an object is not of a kind and version that can be converted; the message names it.
pub fn convert(objects: Vec<Value>, desired_api_version: &str) -> Result<Vec<Value>, String> {
    conversion::all(objects, desired_api_version)
}

/// A reply that changes `from` into `to`.
pub(crate) fn changed(from: &Value, to: &Value, warnings: Vec<String>) -> Reply {
    let operations = crate::difference(from, to);
    let verdict = if operations.is_empty() {
        Verdict::Allow
    } else {
        Verdict::Mutate(operations)
    };
    Reply { verdict, warnings }
}
