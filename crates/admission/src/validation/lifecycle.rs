//! Lifecycle hooks: what they mark pods with (STS-7.3).

use super::{Problems, selector};
use crate::json::{at, entries, list};
use flotilla_api::messages;
use flotilla_model::Selector;
use flotilla_model::set::unfit_for_hooks;
use serde_json::Value;

const HOOKS: [&str; 3] = ["preDelete", "inPlaceUpdate", "preNormal"];

/// The hooks of a set, with the paths where they stand.
fn hooks(set: &Value) -> impl Iterator<Item = (String, &Value)> {
    HOOKS.into_iter().filter_map(|name| {
        let hook = at(set, &["spec", "lifecycle", name])?;
        Some((format!("spec.lifecycle.{name}"), hook))
    })
}

/// Of both kinds: no label of a hook is one that pods are known by, or that is written for them. Controllers leave out the same.
pub(super) fn labels(set: &Value, problems: &mut Problems) {
    let own = at(set, &["spec", "selector"])
        .and_then(Selector::from_json)
        .unwrap_or_default();
    for (path, hook) in hooks(set) {
        for (key, _) in entries(hook, &["labelsHandler"]) {
            if let Some(rule) = unfit_for_hooks(&own, key) {
                problems.invalid(format!("{path}.labelsHandler"), &Value::from(key.as_str()), rule);
            }
        }
    }
}

/// Of StatefulSets, beside that: a hook has markers, and they are well formed.
pub(super) fn markers(set: &Value, problems: &mut Problems) {
    for (path, hook) in hooks(set) {
        let finalizers = list(hook, &["finalizersHandler"]);
        if finalizers.is_empty() && entries(hook, &["labelsHandler"]).next().is_none() {
            problems.invalid(path.as_str(), hook, messages::HOOK_MARKS);
        }
        for (key, value) in entries(hook, &["labelsHandler"]) {
            let path = format!("{path}.labelsHandler");
            if flotilla_apimachinery::names::label_key(key).is_empty() {
                selector::label(&path, key, value, problems);
            } else {
                problems.invalid(path.as_str(), &Value::from(key.as_str()), messages::HOOK_LABELS);
            }
        }
        for (index, finalizer) in finalizers.iter().enumerate() {
            if !selector::is_qualified_finalizer(finalizer) {
                let path = format!("{path}.finalizersHandler[{index}]");
                problems.invalid(path, finalizer, messages::HOOK_FINALIZERS);
            }
        }
    }
}
