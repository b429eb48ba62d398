//! The pod chain: what is added to a pod before it is stored.
//!
//! In this order, each step seeing the result of the one before: readiness gates; WorkloadSpread and SidecarSet, which come with their
//! kinds; launch priority, last, so that injected containers get their barrier too.

mod gates;
mod launch;

use crate::{Refusal, Reply, Request, Verdict};
use serde_json::Value;

/// The chain for a new pod.
pub(crate) fn chain(request: &Request<'_>, pod: &Value) -> Reply {
    let needs_gate = gates::are_missing(pod);
    let launch = match launch::plan(request, pod) {
        Ok(launch) => launch,
        Err(message) => return Verdict::Deny(Refusal { code: 422, message }).into(),
    };
    let mut operations = Vec::new();
    if needs_gate {
        operations.push(gates::operation(pod));
    }
    launch.operations(pod, &mut operations);
    Reply {
        verdict: if operations.is_empty() {
            Verdict::Allow
        } else {
            Verdict::Mutate(operations)
        },
        warnings: launch.warnings,
    }
}
