//! Label selectors, and keys and values of labels and annotations.

use super::Problems;
use crate::json::{at, entries, list, text};
use flotilla_api::messages;
use flotilla_apimachinery::names;
use serde_json::Value;

/// The most bytes that all annotations of an object may have together.
const ANNOTATIONS_SIZE_MAX: usize = 256 * 1024;

/// Checks a selector that must not be empty.
pub(super) fn check(path: &str, selector: &Value, empty: &'static str, problems: &mut Problems) {
    if !selector.is_object() {
        problems.invalid(
            path,
            selector,
            "must be a label selector: matchLabels, matchExpressions, or both",
        );
        return;
    }
    let expressions = list(selector, &["matchExpressions"]);
    if entries(selector, &["matchLabels"]).next().is_none() && expressions.is_empty() {
        problems.invalid(path, selector, empty);
    }
    for (key, value) in entries(selector, &["matchLabels"]) {
        label(&format!("{path}.matchLabels"), key, value, problems);
    }
    for (index, expression) in expressions.iter().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let values = list(expression, &["values"]);
        let is_well_formed = match text(expression, &["operator"]) {
            "In" | "NotIn" => !values.is_empty(),
            "Exists" | "DoesNotExist" => values.is_empty(),
            _ => false,
        };
        if !is_well_formed {
            problems.invalid(path.as_str(), expression, messages::OPERATORS);
        }
        let key = text(expression, &["key"]);
        let wrong = names::label_key(key)
            .into_iter()
            .map(|why| ("key", Value::from(key), why));
        let wrong: Vec<_> = wrong.chain(values.iter().filter_map(bad_value)).collect();
        for (field, value, why) in wrong {
            problems.invalid(format!("{path}.{field}"), &value, why);
        }
    }
}

fn bad_value(value: &Value) -> Option<(&'static str, Value, String)> {
    let why = match value.as_str() {
        Some(text) => names::label_value(text).into_iter().next()?,
        None => "must be text".to_owned(),
    };
    Some(("values", value.clone(), why))
}

/// Checks a label's key and value.
pub(super) fn label(path: &str, key: &str, value: &Value, problems: &mut Problems) {
    for why in names::label_key(key) {
        problems.invalid(path, &Value::from(key), why);
    }
    if let Some((_, value, why)) = bad_value(value) {
        problems.invalid(format!("{path}[{key}]"), &value, why);
    }
}

/// Checks annotations: their keys, that values are text, and their size.
pub(super) fn annotations(path: &str, object: &Value, problems: &mut Problems) {
    let mut size = 0;
    for (key, value) in entries(object, &["annotations"]) {
        size += key.len() + value.as_str().map_or(0, str::len);
        if !names::label_key(&key.to_ascii_lowercase()).is_empty() {
            problems.invalid(path, &Value::from(key.as_str()), messages::TEMPLATE_ANNOTATIONS);
        }
        if !value.is_string() {
            problems.invalid(format!("{path}[{key}]"), value, "must be text; put it in quotes");
        }
    }
    if size > ANNOTATIONS_SIZE_MAX {
        let rule = format!("all annotations together may have at most {ANNOTATIONS_SIZE_MAX} bytes");
        problems.invalid(path, &Value::from(size), rule);
    }
}

/// Checks that keys of finalizers are qualified, such as `example.com/backup`.
pub(super) fn is_qualified_finalizer(value: &Value) -> bool {
    value.as_str().is_some_and(|name| match name.split_once('/') {
        Some((domain, rest)) => !domain.is_empty() && names::label_key(name).is_empty() && !rest.is_empty(),
        None => false,
    })
}

/// Whether labels are selected; `false` if the selector cannot be read.
pub(super) fn matches(selector: &Value, labels: Option<&Value>) -> bool {
    flotilla_model::Selector::from_json(selector).is_some_and(|selector| {
        selector.matches(|key| labels.and_then(|labels| at(labels, &[key])).and_then(Value::as_str))
    })
}
