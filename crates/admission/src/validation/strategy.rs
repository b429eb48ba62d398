//! `updateStrategy` and `scaleStrategy`, and numbers with bounds.

use super::{Problems, selector};
use crate::json::{at, list, text};
use flotilla_api::messages;
use flotilla_api::names;
use serde_json::Value;

const ROLLING: &str = "spec.updateStrategy.rollingUpdate";

/// Whether a value is a number of at least 1, or a percentage from 1 to 100.
pub(super) fn is_budget(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_i64().is_some_and(|n| n >= 1),
        Value::String(text) => text.strip_suffix('%').is_some_and(|digits| {
            digits.bytes().all(|b| b.is_ascii_digit())
                && digits.parse::<u64>().is_ok_and(|percent| (1..=100).contains(&percent))
        }),
        _ => false,
    }
}

/// Checks a whole number with bounds.
pub(super) fn number(object: &Value, path: &[&str], bounds: (i64, i64), problems: &mut Problems) {
    let Some(value) = at(object, path) else { return };
    if !value.as_i64().is_some_and(|n| (bounds.0..=bounds.1).contains(&n)) {
        let field = path.last().copied().unwrap_or_default();
        let rule = if bounds.1 == i64::from(i32::MAX) {
            format!("{field} must be a whole number, greater than or equal to {}", bounds.0)
        } else {
            format!("{field} must be a whole number from {} to {}", bounds.0, bounds.1)
        };
        problems.invalid(path.join("."), value, rule);
    }
}

/// Checks a word; an empty one counts as absent.
pub(super) fn word(object: &Value, path: &[&str], words: &[&str], rule: &'static str, problems: &mut Problems) {
    if let Some(value) = at(object, path)
        && !value
            .as_str()
            .is_some_and(|text| text.is_empty() || words.contains(&text))
    {
        problems.invalid(path.join("."), value, rule);
    }
}

fn is_parallel(set: &Value) -> bool {
    text(set, &["spec", "podManagementPolicy"]) == "Parallel"
}

/// Checks a budget that can only be 1 unless pods are managed in parallel.
fn budget(set: &Value, path: &[&str], rules: (&'static str, &'static str), problems: &mut Problems) {
    let Some(value) = at(set, path) else { return };
    if !is_budget(value) {
        problems.invalid(path.join("."), value, rules.0);
    } else if !is_parallel(set) && value.as_i64() != Some(1) {
        problems.unfit(path.join("."), value, rules.1);
    }
}

/// Rows of STS-7.3 from `scaleStrategy` to `unorderedUpdate`.
pub(super) fn check(set: &Value, problems: &mut Problems) {
    let scale = (messages::SCALE_BUDGET, messages::SCALE_BUDGET_PARALLEL);
    budget(set, &["spec", "scaleStrategy", "maxUnavailable"], scale, problems);
    let kinds = ["RollingUpdate", "OnDelete"];
    let kind = ["spec", "updateStrategy", "type"];
    word(set, &kind, &kinds, messages::UPDATE_TYPE, problems);
    let Some(rolling) = at(set, &["spec", "updateStrategy", "rollingUpdate"]) else {
        return;
    };
    if text(set, &kind) == "OnDelete" {
        problems.unfit(ROLLING, rolling, messages::ROLLING_WITH_ON_DELETE);
        return;
    }
    let at_rolling = |field| ["spec", "updateStrategy", "rollingUpdate", field];
    let most = i64::from(i32::MAX);
    number(set, &at_rolling("partition"), (0, most), problems);
    number(set, &at_rolling("minReadySeconds"), (0, 300), problems);
    let update = (messages::UPDATE_BUDGET, messages::UPDATE_BUDGET_PARALLEL);
    budget(set, &at_rolling("maxUnavailable"), update, problems);
    let policies = ["ReCreate", "InPlaceIfPossible", "InPlaceOnly"];
    let policy = at_rolling("podUpdatePolicy");
    word(set, &policy, &policies, messages::POD_UPDATE_POLICY, problems);
    if text(set, &policy).starts_with("InPlace") && !has_in_place_gate(set) {
        problems.unfit(
            policy.join("."),
            &Value::from(text(set, &policy)),
            messages::IN_PLACE_GATE,
        );
    }
    in_place(set, is_budget, messages::PRE_DOWNLOAD_PARALLELISM, problems);
    if let Some(unordered) = at(rolling, &["unorderedUpdate"]) {
        if !is_parallel(set) {
            let path = format!("{ROLLING}.unorderedUpdate");
            problems.unfit(path, unordered, messages::UNORDERED_PARALLEL);
        }
        if let Some(strategy) = at(unordered, &["priorityStrategy"]) {
            priority(
                &format!("{ROLLING}.unorderedUpdate.priorityStrategy"),
                strategy,
                problems,
            );
        }
    }
}

fn has_in_place_gate(set: &Value) -> bool {
    list(set, &["spec", "template", "spec", "readinessGates"])
        .iter()
        .any(|gate| text(gate, &["conditionType"]) == names::IN_PLACE_UPDATE_READY)
}

/// Checks `inPlaceUpdateStrategy`, with what a parallelism may be.
pub(super) fn in_place(set: &Value, is_parallelism: fn(&Value) -> bool, rule: &'static str, problems: &mut Problems) {
    let at_strategy = |field| {
        [
            "spec",
            "updateStrategy",
            "rollingUpdate",
            "inPlaceUpdateStrategy",
            field,
        ]
    };
    let most = i64::from(i32::MAX);
    for field in [
        "gracePeriodSeconds",
        "imagePreDownloadTimeoutSeconds",
        "imagePreDownloadMinUpdatedReadyPods",
    ] {
        number(set, &at_strategy(field), (0, most), problems);
    }
    let path = at_strategy("imagePreDownloadParallelism");
    if let Some(value) = at(set, &path).filter(|value| !is_parallelism(value)) {
        problems.invalid(path.join("."), value, rule);
    }
}

/// Checks a priorityStrategy at this path.
pub(super) fn priority(path: &str, strategy: &Value, problems: &mut Problems) {
    let (order, weight) = (list(strategy, &["orderPriority"]), list(strategy, &["weightPriority"]));
    if !order.is_empty() && !weight.is_empty() {
        problems.invalid(path, strategy, messages::PRIORITY_ONE_OF);
    }
    for (index, term) in order.iter().enumerate() {
        if text(term, &["orderedKey"]).is_empty() {
            problems.invalid(format!("{path}.orderPriority[{index}]"), term, messages::ORDERED_KEY);
        }
    }
    for (index, term) in weight.iter().enumerate() {
        let path = format!("{path}.weightPriority[{index}]");
        let number = at(term, &["weight"]).and_then(Value::as_i64);
        if !number.is_some_and(|weight| (0..=100).contains(&weight)) {
            problems.invalid(path.as_str(), term, messages::WEIGHT);
        }
        let selected = at(term, &["matchSelector"]).unwrap_or(&Value::Null);
        let path = format!("{path}.matchSelector");
        selector::check(&path, selected, messages::MATCH_SELECTOR_EMPTY, problems);
    }
}
