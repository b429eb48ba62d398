//! `InPlaceOnly`: a template may change only in what can be changed in running pods (STS-7.4 and STS-4.1).
//!
//! What counts are the revisions that pods are at, since those pods would have to follow. Where they are not known, or there are no
//! pods, the template before the change stands for them. So switching to `InPlaceOnly` and changing the template in one step is no way
//! around the rule, and a change that no pod has followed yet can be taken back.

use super::Problems;
use crate::json::{at, text};
use crate::{Memory, Request};
use flotilla_api::messages;
use flotilla_model::template::in_place::{Comparable, Obstacle, container_changes};
use serde_json::Value;

const POLICY: [&str; 4] = ["spec", "updateStrategy", "rollingUpdate", "podUpdatePolicy"];
const TEMPLATE: [&str; 2] = ["spec", "template"];

/// Checks a change of the template, or of the policy.
pub(super) fn check(request: &Request<'_>, old: &Value, new: &Value, memory: &dyn Memory, problems: &mut Problems) {
    if text(new, &POLICY) != "InPlaceOnly" {
        return;
    }
    let (Some(before), Some(after)) = (at(old, &TEMPLATE), at(new, &TEMPLATE)) else {
        return;
    };
    if before == after {
        return;
    }
    let wanted = Comparable::new(after);
    let pods = memory
        .revisions_in_use(request.namespace, request.name)
        .unwrap_or_default();
    if pods.is_empty() {
        if let Err(obstacle) = container_changes(&Comparable::new(before), &wanted) {
            refuse(problems, &obstacle, messages::IN_PLACE_ONLY.to_owned());
        }
        return;
    }
    for revision in pods {
        if let Err(obstacle) = container_changes(&Comparable::new(&revision.template), &wanted) {
            let rule = format!(
                "{}; there are pods at revision {}, which differs",
                messages::IN_PLACE_ONLY,
                revision.name
            );
            refuse(problems, &obstacle, rule);
        }
    }
}

fn refuse(problems: &mut Problems, obstacle: &Obstacle, rule: String) {
    problems.changed(format!("spec.template.{}", obstacle.field()), &obstacle.value(), rule);
}
