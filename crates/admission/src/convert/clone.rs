//! CloneSets between `v1beta1`, which is stored, and `v1alpha1` (CS-8). Both say the same in other shapes: strategies are
//! flat in the older version, reuse of claims is said the other way round, and some fields are labels or annotations.

use super::{fit, take};
use crate::json::{annotation, at, label, text};
use flotilla_api::names;
use serde_json::{Map, Value, json};

/// Fields of `rollingUpdate` that the older version has in `updateStrategy`, under the same names.
const FLAT: [&str; 7] = [
    "partition",
    "maxUnavailable",
    "maxSurge",
    "paused",
    "priorityStrategy",
    "scatterStrategy",
    "inPlaceUpdateStrategy",
];
/// Fields of `inPlaceUpdateStrategy` that the older version has as annotations.
const PRE_DOWNLOAD: [(&str, &str); 3] = [
    ("imagePreDownloadParallelism", names::PRE_DOWNLOAD_PARALLELISM),
    ("imagePreDownloadTimeoutSeconds", names::PRE_DOWNLOAD_TIMEOUT),
    (
        "imagePreDownloadMinUpdatedReadyPods",
        names::PRE_DOWNLOAD_MIN_UPDATED_READY,
    ),
];
const ON_DELETE: &str = "OnDelete";
const POLICIES: [&str; 3] = ["ReCreate", "InPlaceIfPossible", "InPlaceOnly"];

/// To `v1beta1`, in place.
pub(super) fn up(set: &mut Value, kept: Option<&Map<String, Value>>) {
    if !set.get("spec").is_some_and(Value::is_object) {
        return;
    }
    scale_up(set);
    let settings = pre_download_up(set);
    let in_label = take(set, "labels", names::HUB_FIELDS);
    let policy = kept.and_then(|fields| fields.get("updateStrategy")?.pointer("/rollingUpdate/podUpdatePolicy"));
    let policy = policy.or(in_label
        .as_ref()
        .filter(|word| word.as_str().is_some_and(|word| POLICIES.contains(&word))));
    strategy_up(set, policy);
    for (field, value) in settings {
        // The annotation decides, also where the older version has a leftover of the same name.
        let place = deep(
            set,
            &["spec", "updateStrategy", "rollingUpdate", "inPlaceUpdateStrategy"],
        );
        place.map(|place| place.insert(field.to_owned(), value));
    }
    if at(set, &["spec", "updateStrategy", "rollingUpdate"]).is_some()
        && at(set, &["spec", "updateStrategy", "type"]).is_none()
    {
        set["spec"]["updateStrategy"]["type"] = json!("RollingUpdate");
    }
}

/// To `v1alpha1`, in place. Returns what that version lacks, for the annotation.
pub(super) fn down(set: &mut Value) -> Map<String, Value> {
    if !set.get("spec").is_some_and(Value::is_object) {
        return Map::new();
    }
    scale_down(set);
    pre_download_down(set);
    strategy_down(set)
}

/// Where there is no room for the annotation: the policy under OnDelete, which is all that it ever holds, as the label's value.
pub(super) fn keep_in_label(set: &mut Value, kept: &Value) {
    let policy = text(kept, &["updateStrategy", "rollingUpdate", "podUpdatePolicy"]);
    if let Some(policy) = POLICIES.into_iter().find(|p| *p == policy) {
        fit::put_label(set, policy);
    }
}

fn scale_up(set: &mut Value) {
    let excludes = label(set, names::EXCLUDE_PREPARING_DELETE) == Some("true");
    if excludes {
        take(set, "labels", names::EXCLUDE_PREPARING_DELETE);
    }
    let Some(scale) = deep(set, &["spec", "scaleStrategy"]) else {
        return;
    };
    let disables = scale
        .remove("disablePVCReuse")
        .and_then(|v| v.as_bool())
        .unwrap_or(false);
    scale.insert("enablePVCReuse".to_owned(), json!(!disables));
    if excludes {
        scale.insert("excludePreparingDelete".to_owned(), json!(true));
    }
}

fn scale_down(set: &mut Value) {
    let Some(scale) = deep(set, &["spec", "scaleStrategy"]) else {
        return;
    };
    let enables = scale
        .remove("enablePVCReuse")
        .and_then(|v| v.as_bool())
        .unwrap_or(false);
    let excludes = scale
        .remove("excludePreparingDelete")
        .and_then(|v| v.as_bool())
        .unwrap_or(false);
    if !enables {
        scale.insert("disablePVCReuse".to_owned(), json!(true));
    }
    let is_empty = scale.is_empty();
    if is_empty && let Some(spec) = set["spec"].as_object_mut() {
        spec.remove("scaleStrategy");
    }
    if excludes {
        if let Some(labels) = deep(set, &["metadata", "labels"]) {
            labels.insert(names::EXCLUDE_PREPARING_DELETE.to_owned(), json!("true"));
        }
    } else if label(set, names::EXCLUDE_PREPARING_DELETE) == Some("true") {
        take(set, "labels", names::EXCLUDE_PREPARING_DELETE);
    }
}

fn strategy_up(set: &mut Value, policy_kept: Option<&Value>) {
    let Some(old) = set["spec"].get_mut("updateStrategy").and_then(Value::as_object_mut) else {
        return;
    };
    let mut rolling = Map::new();
    for field in FLAT {
        rolling.extend(old.remove_entry(field));
    }
    let word = old.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if word == ON_DELETE {
        if let Some(policy) = policy_kept {
            rolling.insert("podUpdatePolicy".to_owned(), policy.clone());
        }
    } else {
        let policy = POLICIES.into_iter().find(|p| *p == word).unwrap_or(POLICIES[0]);
        rolling.insert("podUpdatePolicy".to_owned(), json!(policy));
        old.insert("type".to_owned(), json!("RollingUpdate"));
    }
    if !rolling.is_empty() {
        old.insert("rollingUpdate".to_owned(), Value::Object(rolling));
    }
}

fn strategy_down(set: &mut Value) -> Map<String, Value> {
    let mut kept = Map::new();
    let Some(new) = set["spec"].get_mut("updateStrategy").and_then(Value::as_object_mut) else {
        return kept;
    };
    let mut rolling = match new.remove("rollingUpdate") {
        Some(Value::Object(rolling)) => rolling,
        _ => Map::new(),
    };
    let policy = rolling
        .remove("podUpdatePolicy")
        .filter(|p| p.as_str().is_some_and(|p| !p.is_empty()));
    if new.get("type").and_then(Value::as_str) == Some(ON_DELETE) {
        if let Some(policy) = policy {
            kept.insert(
                "updateStrategy".to_owned(),
                json!({"rollingUpdate": {"podUpdatePolicy": policy}}),
            );
        }
    } else {
        new.insert("type".to_owned(), policy.unwrap_or_else(|| json!(POLICIES[0])));
    }
    new.extend(rolling);
    kept
}

/// What annotations say of images that are pulled ahead, and with which fields these are said. What cannot be read stays an annotation.
fn pre_download_up(set: &mut Value) -> Vec<(&'static str, Value)> {
    let mut found = Vec::new();
    for (field, key) in PRE_DOWNLOAD {
        if let Some(value) = annotation(set, key).and_then(|text| parse(field, text)) {
            take(set, "annotations", key);
            found.push((field, value));
        }
    }
    found
}

/// A setting for whose annotation there is no room stays a field: it is taken on the way up where there is no annotation.
fn pre_download_down(set: &mut Value) {
    const PLACE: &str = "/spec/updateStrategy/rollingUpdate/inPlaceUpdateStrategy";
    for (field, key) in PRE_DOWNLOAD {
        let strategy = set.pointer_mut(PLACE).and_then(Value::as_object_mut);
        let value = strategy.and_then(|s| s.remove(field)).filter(|v| !v.is_null());
        let Some(value) = value else {
            if annotation(set, key).is_some_and(|text| parse(field, text).is_some()) {
                take(set, "annotations", key);
            }
            continue;
        };
        take(set, "annotations", key);
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if !fit::has_room(set, key, &text) {
            let strategy = set.pointer_mut(PLACE).and_then(Value::as_object_mut);
            strategy.map(|s| s.insert(field.to_owned(), value));
        } else if let Some(annotations) = deep(set, &["metadata", "annotations"]) {
            annotations.insert(key.to_owned(), json!(text));
        }
    }
}

/// A number; of the parallelism, also a percentage.
fn parse(field: &str, text: &str) -> Option<Value> {
    if let Ok(number) = text.parse::<i32>() {
        return Some(json!(number));
    }
    let digits = text.strip_suffix('%')?;
    let is_percentage = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    (is_percentage && field == PRE_DOWNLOAD[0].0).then(|| json!(text))
}

/// The object at a path, made where there is none; `None` if something else stands on the way.
fn deep<'v>(value: &'v mut Value, path: &[&str]) -> Option<&'v mut Map<String, Value>> {
    let mut place = value.as_object_mut()?;
    for field in path {
        place = super::child(place, field)?;
    }
    Some(place)
}
