//! What a template asks of each of its pods that only one pod can be asked for.
//!
//! A template with the label that asks for a pod's deletion would have each pod deleted as soon as it is there, and made again, for ever. So
//! pods do not get from their template what users and controllers note on one pod.

use flotilla_api::names;
use flotilla_model::template::Template;
use flotilla_model::{Selector, SetKind};
use serde_json::Value;

/// Labels and annotations of a template that its pods do not get. A label by which the set knows its pods stays, whatever it means: pods
/// without it would not be the set's.
pub(crate) fn of(kind: SetKind, template: &Template, selector: &Selector) -> Vec<&'static str> {
    if template.asks_what_is_of_one_pod() {
        from(kind, &template.tree(), selector)
    } else {
        Vec::new()
    }
}

fn from(kind: SetKind, template: &Value, selector: &Selector) -> Vec<&'static str> {
    let fields = |field: &str| {
        template
            .pointer(&format!("/metadata/{field}"))
            .and_then(Value::as_object)
    };
    let (labels, annotations) = (fields("labels"), fields("annotations"));
    let has = |key: &&&str| {
        [labels, annotations]
            .into_iter()
            .flatten()
            .any(|map| map.contains_key(**key))
    };
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let is_needed = |left_out: &str| !selector.matches(|key| label(key).filter(|_| key != left_out));
    let found = names::OF_ONE_POD.iter().chain(of_kind(kind)).filter(has);
    found
        .copied()
        .filter(|key| label(key).is_none() || !is_needed(key))
        .collect()
}

/// What pods of a set of this kind are known by.
fn of_kind(kind: SetKind) -> &'static [&'static str] {
    match kind {
        SetKind::Clone => &names::OF_ONE_POD_OF_A_CLONESET,
        SetKind::Native | SetKind::Advanced => &names::OF_ONE_POD_OF_A_STATEFULSET,
    }
}

/// Whether a key of a template's metadata is none that its pods get.
pub(crate) fn is_of_one_pod(kind: SetKind, key: &str) -> bool {
    names::OF_ONE_POD.contains(&key) || of_kind(kind).contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_only_one_pod_can_be_asked_for_is_withheld_unless_pods_are_known_by_it() {
        let template = json!({"metadata": {
            "labels": {"app": "web", names::SPECIFIED_DELETE_LABEL: "true", names::LIFECYCLE_STATE_LABEL: "PreparingDelete"},
            "annotations": {"note": "x", names::REPLACED_BY_UPDATE: "true"},
        }});
        let selector = |labels: Value| Selector::from_json(&json!({"matchLabels": labels})).expect("a selector");
        assert_eq!(
            from(SetKind::Clone, &template, &selector(json!({"app": "web"}))),
            [
                names::SPECIFIED_DELETE_LABEL,
                names::LIFECYCLE_STATE_LABEL,
                names::REPLACED_BY_UPDATE
            ]
        );
        assert_eq!(
            from(
                SetKind::Clone,
                &template,
                &selector(json!({"app": "web", names::SPECIFIED_DELETE_LABEL: "true"}))
            ),
            [names::LIFECYCLE_STATE_LABEL, names::REPLACED_BY_UPDATE]
        );
        assert_eq!(
            from(SetKind::Clone, &json!({}), &selector(json!({"app": "web"}))),
            [] as [&str; 0]
        );
    }
}
