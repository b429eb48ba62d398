//! Claim templates: their names, and what may change in them while existing claims follow (STS-7.4).

use super::Problems;
use crate::json::{annotation, at, list, text};
use crate::{Found, Memory, Request, StorageAsked};
use flotilla_api::messages;
use flotilla_api::names as keys;
use flotilla_apimachinery::names;
use flotilla_model::records::storage_class_of;
use flotilla_model::template::parse_bytes;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const PATH: &str = "spec.volumeClaimTemplates";
const TEMPLATES: [&str; 2] = ["spec", "volumeClaimTemplates"];
const REQUEST: [&str; 4] = ["spec", "resources", "requests", "storage"];

fn name(template: &Value) -> &str {
    text(template, &["metadata", "name"])
}

/// Each has a name that no other has, and that a volume can have: pods mount its claims by it.
pub(super) fn check(set: &Value, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for (index, template) in list(set, &TEMPLATES).iter().enumerate() {
        if name(template).is_empty() || !seen.insert(name(template)) {
            let path = format!("{PATH}[{index}].metadata.name");
            problems.invalid(path, &Value::from(name(template)), messages::CLAIM_NAMES);
        } else if !names::dns_label(name(template)).is_empty() {
            let path = format!("{PATH}[{index}].metadata.name");
            problems.invalid(path, &Value::from(name(template)), messages::CLAIM_NAME_LABEL);
        }
    }
}

/// With `OnPodRollingUpdate`, only the storage that is asked for may change: upwards, if the class can expand claims, or back to what was
/// asked for before. It is the strategy after the change that counts.
pub(super) fn check_change(
    request: &Request<'_>,
    old: &Value,
    new: &Value,
    memory: &dyn Memory,
    problems: &mut Problems,
    warnings: &mut Vec<String>,
) {
    let follows = text(new, &["spec", "volumeClaimUpdateStrategy", "type"]) == "OnPodRollingUpdate";
    let (before, after) = (list(old, &TEMPLATES), list(new, &TEMPLATES));
    if !follows || before == after {
        return;
    }
    let labels_follow = annotation(new, keys::CLAIM_LABELS) == Some("propagate");
    let kept = |template: &Value| before.iter().find(|t| name(t) == name(template));
    if before.len() != after.len() {
        let names: Vec<&str> = after.iter().map(name).collect();
        problems.changed(PATH, &json!(names), messages::CLAIMS_ONLY_STORAGE);
    }
    for (index, template) in after.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        match kept(template) {
            None => problems.changed(path, &json!(name(template)), messages::CLAIMS_ONLY_STORAGE),
            Some(old) if without_storage(old, labels_follow) != without_storage(template, labels_follow) => {
                problems.changed(path, &json!(name(template)), messages::CLAIMS_ONLY_STORAGE);
            }
            Some(old) => match (requested(old), requested(template)) {
                (Some(before), Some(after)) if after < before => {
                    let asked = memory.storage_asked(request.namespace, request.name, name(template));
                    shrinks(&path, (template, after), asked, problems, warnings);
                }
                _ => grows(&path, old, template, memory, problems, warnings),
            },
        }
    }
}

/// A template may go back to what a revision has, and to what is not below the smallest claim: nothing that is there shrinks for it. Claims
/// that are larger ask for what they have been given.
fn shrinks(
    path: &str,
    (template, bytes): (&Value, u64),
    asked: Option<StorageAsked>,
    problems: &mut Problems,
    warnings: &mut Vec<String>,
) {
    let field = format!("{path}.{}", REQUEST.join("."));
    let shown = at(template, &REQUEST).unwrap_or(&Value::Null);
    let keep = "claims never shrink: those that are larger stay so, and count as matching";
    match asked {
        None => warnings.push(format!(
            "{field}: whether {shown} has been asked for before is not known yet; {keep}"
        )),
        Some(asked) if asked.recorded.contains(&bytes) || asked.smallest_claim.is_some_and(|least| least <= bytes) => {
            warnings.push(format!("{field}: goes back to {shown}; {keep}"));
        }
        Some(_) => problems.changed(field, shown, messages::CLAIMS_SMALLER),
    }
}

/// A template without what may change, defaults filled in.
fn without_storage(template: &Value, labels_follow: bool) -> Value {
    let mut rest = json!({"spec": at(template, &["spec"])});
    if !labels_follow {
        rest["labels"] = json!(at(template, &["metadata", "labels"]));
        rest["annotations"] = json!(at(template, &["metadata", "annotations"]));
    }
    crate::defaults::fill_claim(&mut rest);
    if let Some(spec) = rest["spec"].as_object_mut() {
        if let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut) {
            for list in ["requests", "limits"] {
                if let Some(quantities) = resources.get_mut(list).and_then(Value::as_object_mut) {
                    quantities.remove("storage");
                }
            }
            resources.retain(|_, part| !part.is_null() && part != &json!({}));
        }
        spec.retain(|field, value| !(value.is_null() || field == "resources" && value == &json!({})));
    }
    rest
}

fn requested(template: &Value) -> Option<u64> {
    let text = match at(template, &REQUEST)? {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    parse_bytes(&text)
}

fn grows(
    path: &str,
    old: &Value,
    new: &Value,
    memory: &dyn Memory,
    problems: &mut Problems,
    warnings: &mut Vec<String>,
) {
    let field = format!("{path}.{}", REQUEST.join("."));
    let (before, after) = (requested(old), requested(new));
    let shown = at(new, &REQUEST).unwrap_or(&Value::Null);
    match (before, after) {
        (_, None) if at(new, &REQUEST) == at(old, &REQUEST) => return,
        (_, None) if !shown.is_null() => {
            problems.invalid(field, shown, "must be a quantity of storage, such as 10Gi");
            return;
        }
        (Some(_), None) => {
            problems.changed(field, shown, messages::CLAIMS_SMALLER);
            return;
        }
        (before, after) if before == after => return,
        _ => {}
    }
    let class = storage_class_of(new);
    let (answer, named) = match class {
        // No class by intention: the claims are bound to volumes made by hand.
        Some("") => return,
        Some(class) => (memory.storage_class_expands(class), format!("storage class {class:?}")),
        None => (memory.default_class_expands(), "the default storage class".to_owned()),
    };
    let class_path = format!("{path}.spec.storageClassName");
    match answer {
        Found::Is(true) => {}
        Found::Is(false) => problems.changed(
            field,
            shown,
            format!("{named} does not allow claims to be expanded: it must have allowVolumeExpansion: true"),
        ),
        // Without any default class there is nothing to ask; the controller says what becomes of the claims.
        Found::Missing if class.is_none() => {}
        Found::Missing => problems.add(
            super::Reach::Change,
            flotilla_apimachinery::field::Fault::NotFound,
            class_path,
            &Value::from(class),
            "only claims of an existing class with allowVolumeExpansion: true can be expanded",
        ),
        Found::Unknown => warnings.push(format!(
            "{field}: whether {named} allows claims to be expanded is not known yet; if it does not, the set's condition FailedUpdatePod \
             will say so"
        )),
    }
}
