//! Gates and states where somebody needs them, in decisions about any kind.

use super::{Verdict, require};
use crate::in_place::{GATE, HOOK_GATE, STATE, new_state, state};
use flotilla_model::decision::PodDraft;
use flotilla_model::set::{Hook, PodUpdatePolicy};
use flotilla_model::{PodRecord, SetKind, SetRecord};
use serde_json::Value;

const RULE_GATES: &str = "R-27 gates";
const RULE_STATES: &str = "R-27 states";

/// Whether a hook takes the pods that it holds out of service.
fn is_marked_by_a_hook(set: &SetRecord) -> bool {
    let hooks = &set.spec.lifecycle;
    let hooks = [&hooks.pre_delete, &hooks.in_place_update];
    hooks.into_iter().flatten().any(|hook| hook.mark_not_ready)
}

/// A new pod has the gates that its set uses, and no other: with a gate it gets ready only while a manager runs. Nobody else puts them in.
pub(crate) fn new_pod(set: &SetRecord, draft: &PodDraft) -> Verdict {
    let own = draft.template.pointer("/spec/readinessGates").and_then(Value::as_array);
    let is_own = |gate: &str| own.into_iter().flatten().any(|own| own["conditionType"] == gate);
    let is_native = set.kind == SetKind::Native;
    let is_in_place = !is_native && set.spec.pod_update_policy() != PodUpdatePolicy::ReCreate;
    let is_held = !is_native && is_marked_by_a_hook(set);
    let name = &draft.key.name;
    for (gate, is_needed) in [(GATE, is_in_place), (HOOK_GATE, is_held)] {
        let has_it = draft.gates.contains(&gate);
        require(has_it == is_needed || is_own(gate), RULE_GATES, || {
            let with = if has_it { "with" } else { "without" };
            format!("{name} is made {with} the gate {gate}, and that it is needed is {is_needed}")
        })?;
    }
    let state = draft
        .labels
        .iter()
        .find(|(key, _)| *key == STATE)
        .map(|(_, state)| &**state);
    let hook = set.spec.lifecycle.pre_normal.as_ref();
    let waits = hook.is_some_and(|hook| !has_markers(hook, draft));
    let fits = match state {
        None => set.kind != SetKind::Clone && !waits,
        Some("Normal") => !waits,
        Some("PreparingNormal") => waits,
        Some(_) => false,
    };
    require(fits, RULE_STATES, || {
        format!("{name} is made in state {state:?}, and that it waits for its preNormal hook is {waits}")
    })
}

/// Whether a new pod carries all markers of a hook from its template.
fn has_markers(hook: &Hook, draft: &PodDraft) -> bool {
    let metadata = |field: &str| draft.template.pointer(&format!("/metadata/{field}"));
    let labels = metadata("labels");
    let finalizers = metadata("finalizers").and_then(Value::as_array);
    hook.labels
        .iter()
        .all(|(key, value)| labels.is_some_and(|labels| labels[key] == **value))
        && hook
            .finalizers
            .iter()
            .all(|name| finalizers.is_some_and(|all| all.iter().any(|one| one == name)))
}

/// Where no hook follows an update in place, a pod stays in the state in which the update finds it, unless it was on its way out of that.
pub(crate) fn stays_in_its_state(set: &SetRecord, pod: &PodRecord, body: &Value) -> Verdict {
    let is_followed = set.spec.lifecycle.in_place_update.is_some();
    let is_changed = new_state(body) == Some("Updating") && matches!(state(pod), "Normal" | "PreparingNormal");
    require(is_followed || !is_changed, RULE_STATES, || {
        format!(
            "{} leaves {} for Updating, which no hook follows",
            pod.name(),
            state(pod)
        )
    })
}
