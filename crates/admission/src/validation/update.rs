//! STS-7.4: what may not change.

use super::{Problems, claims, in_place};
use crate::json::{at, text};
use crate::{Memory, Request};
use flotilla_api::messages;
use serde_json::{Value, json};

/// How a field of a set's spec is compared.
type Meaning = fn(&Value, &str) -> Value;

/// Fields that stay as they were created.
const FIXED: [(&str, Meaning, &str); 3] = [
    ("selector", selector, messages::SELECTOR_FIXED),
    ("serviceName", service, messages::SERVICE_NAME_FIXED),
    ("podManagementPolicy", is_parallel, messages::POD_MANAGEMENT_FIXED),
];

/// Checks a change from `old` to `new`.
pub(super) fn check(
    request: &Request<'_>,
    old: &Value,
    new: &Value,
    memory: &dyn Memory,
    problems: &mut Problems,
    warnings: &mut Vec<String>,
) {
    for (field, meaning, rule) in FIXED {
        if meaning(old, field) != meaning(new, field) {
            let value = at(new, &["spec", field]).unwrap_or(&Value::Null);
            problems.changed(format!("spec.{field}"), value, rule);
        }
    }
    in_place::check(request, old, new, memory, problems);
    claims::check_change(request, old, new, memory, problems, warnings);
}

/// A selector without parts that are absent in other words.
pub(super) fn selector(set: &Value, field: &str) -> Value {
    let mut meant = at(set, &["spec", field]).cloned().unwrap_or_default();
    if let Some(parts) = meant.as_object_mut() {
        parts.retain(|_, part| !(part.is_null() || part == &json!({}) || part == &json!([])));
    }
    meant
}

fn service(set: &Value, field: &str) -> Value {
    text(set, &["spec", field]).into()
}

fn is_parallel(set: &Value, field: &str) -> Value {
    (text(set, &["spec", field]) == "Parallel").into()
}
