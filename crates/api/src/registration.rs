//! What is common to the registrations of our webhooks and to the policy that holds the manager to them.

use crate::names::{KRUISE_POD_READY, LAUNCH_PRIORITY, LAUNCH_PRIORITY_ENV, LIFECYCLE_TIMESTAMP, MADE_AS_LABEL};

/// Name of both configurations, and of the field manager that fills them in.
pub const NAME: &str = "flotilla-webhooks";
/// End of the names of our webhooks: others in the same configuration are somebody else's.
pub const SUFFIX: &str = ".flotilla.rs";

/// The condition, in CEL, on which the API server asks about a pod that is being made: it is controlled by a kind of ours and lacks the
/// readiness gate that somebody needs, or its containers start by priority. Pods that our controllers make have the gates, and need nobody to
/// add one.
pub fn condition_of_pods() -> String {
    let is_made_by_us = format!(
        "has(object.metadata.labels) && '{MADE_AS_LABEL}' in object.metadata.labels || \
         has(object.metadata.annotations) && '{LIFECYCLE_TIMESTAMP}' in object.metadata.annotations"
    );
    let lacks_gate = format!(
        "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, has(o.controller) && \
         o.controller && o.apiVersion.startsWith('apps.kruise.io/')) && !(has(object.spec.readinessGates) && \
         object.spec.readinessGates.exists(g, g.conditionType == '{KRUISE_POD_READY}')) && !({is_made_by_us})"
    );
    let is_marked = format!(
        "has(object.metadata.annotations) && '{LAUNCH_PRIORITY}' in object.metadata.annotations || \
         object.spec.containers.exists(c, has(c.env) && c.env.exists(e, e.name == '{LAUNCH_PRIORITY_ENV}'))"
    );
    format!("({lacks_gate}) || ({is_marked})")
}
