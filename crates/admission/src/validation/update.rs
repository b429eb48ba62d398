//! Rule 7.4: what may not change.

use super::{Problems, claims, in_place};
use crate::json::{at, text};
use crate::{Memory, Request};
use flotilla_api::statefulset::messages;
use serde_json::{Value, json};

/// Checks a change from `old` to `new`.
pub(super) fn check(
    request: &Request<'_>,
    old: &Value,
    new: &Value,
    memory: &dyn Memory,
    problems: &mut Problems,
    warnings: &mut Vec<String>,
) {
    let selector = ["spec", "selector"];
    if at(old, &selector).map(meaning) != at(new, &selector).map(meaning) {
        problems.forbidden(selector.join("."), messages::SELECTOR_FIXED);
    }
    let service = ["spec", "serviceName"];
    if text(old, &service) != text(new, &service) {
        problems.forbidden(
            service.join("."),
            format!("{} from {:?}", messages::SERVICE_NAME_FIXED, text(old, &service)),
        );
    }
    let policy = ["spec", "podManagementPolicy"];
    let is_parallel = |set| text(set, &policy) == "Parallel";
    if is_parallel(old) != is_parallel(new) {
        problems.forbidden(
            policy.join("."),
            format!("{} from {:?}", messages::POD_MANAGEMENT_FIXED, text(old, &policy)),
        );
    }
    in_place::check(request, old, new, memory, problems);
    claims::check_change(old, new, memory, problems, warnings);
}

/// A selector without parts that are absent in other words.
fn meaning(selector: &Value) -> Value {
    let mut meant = selector.clone();
    if let Some(parts) = meant.as_object_mut() {
        parts.retain(|_, part| !part.is_null() && part != &json!({}) && part != &json!([]));
    }
    meant
}
