//! The states of a pod's lifecycle and the hooks that hold it in them (STS-4.8).
//!
//! *Hooked* means that a pod carries any of a hook's markers: it is held. *All hooked* means that it carries every one: it is
//! released to Normal. A hook that is not there, or has no markers, never holds and always releases. Taking markers away is the
//! business of the user's own controller, never ours.

use crate::shared::inplace::state::whole_seconds;
use flotilla_api::names;
use flotilla_model::records::PodDetail;
use flotilla_model::set::{Hook, Lifecycle};
use flotilla_model::{PodRecord, Timestamp, WaitCause};
use serde_json::{Value, json};
use std::time::Duration;

/// How far the clocks of a manager and a node are taken to be apart at most.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(60);

/// Label `lifecycle.apps.kruise.io/state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// No label; counts as Normal.
    #[default]
    Unset,
    /// Created, and not all markers of preNormal are there.
    PreparingNormal,
    /// In service.
    Normal,
    /// To be updated in place, once nobody holds it.
    PreparingUpdate,
    /// Being updated in place.
    Updating,
    /// Updated; not all markers of inPlaceUpdate are back.
    Updated,
    /// To be deleted, once nobody holds it.
    PreparingDelete,
    /// A word that we do not know.
    Other,
}

impl State {
    /// A pod's state.
    pub fn of(pod: &PodRecord) -> State {
        match pod.label(names::LIFECYCLE_STATE_LABEL) {
            None => State::Unset,
            Some("PreparingNormal") => State::PreparingNormal,
            Some("Normal") => State::Normal,
            Some("PreparingUpdate") => State::PreparingUpdate,
            Some("Updating") => State::Updating,
            Some("Updated") => State::Updated,
            Some("PreparingDelete") => State::PreparingDelete,
            Some(_) => State::Other,
        }
    }

    /// The label's value.
    pub const fn name(self) -> &'static str {
        match self {
            State::Unset | State::Other => "",
            State::PreparingNormal => "PreparingNormal",
            State::Normal => "Normal",
            State::PreparingUpdate => "PreparingUpdate",
            State::Updating => "Updating",
            State::Updated => "Updated",
            State::PreparingDelete => "PreparingDelete",
        }
    }

    /// Whether a pod in it may count as available (STS-1.5).
    pub const fn is_normal(self) -> bool {
        matches!(self, State::Unset | State::Normal)
    }
}

/// All markers of a hook with whether the pod carries them.
fn markers<'a>(hook: &'a Hook, pod: &'a PodRecord) -> impl Iterator<Item = (String, bool)> + 'a {
    let labels = hook
        .labels
        .iter()
        .map(|(key, value)| (format!("label {key}={value}"), pod.label(key) == Some(value.as_str())));
    let has = |name: &str| {
        pod.detail
            .as_ref()
            .is_some_and(|d| d.finalizers.iter().any(|f| **f == *name))
    };
    let finalizers = hook
        .finalizers
        .iter()
        .map(move |name| (format!("finalizer {name}"), has(name)));
    labels.chain(finalizers)
}

/// Markers of a hook that a pod carries: by these it is held.
pub fn held_by(hook: Option<&Hook>, pod: &PodRecord) -> Vec<String> {
    let found = hook.into_iter().flat_map(|hook| markers(hook, pod));
    found
        .filter(|(_, is_there)| *is_there)
        .map(|(marker, _)| marker)
        .collect()
}

/// Markers of a hook that a pod lacks: these it waits for.
pub fn lacking(hook: Option<&Hook>, pod: &PodRecord) -> Vec<String> {
    let found = hook.into_iter().flat_map(|hook| markers(hook, pod));
    found
        .filter(|(_, is_there)| !is_there)
        .map(|(marker, _)| marker)
        .collect()
}

/// The state of a new pod: whether its template already carries all markers of preNormal (STS-3.5 step 3 b).
pub fn of_new(lifecycle: &Lifecycle, template: &Value) -> State {
    let Some(hook) = &lifecycle.pre_normal else {
        return State::Normal;
    };
    let labels = template.pointer("/metadata/labels");
    let finalizers = template.pointer("/metadata/finalizers").and_then(Value::as_array);
    let has_label =
        |(key, value): &(String, String)| labels.and_then(|l| l.get(key)).and_then(Value::as_str) == Some(value);
    let has_finalizer = |name: &String| finalizers.is_some_and(|list| list.iter().any(|f| f.as_str() == Some(name)));
    if hook.labels.iter().all(has_label) && hook.finalizers.iter().all(has_finalizer) {
        State::Normal
    } else {
        State::PreparingNormal
    }
}

/// Where a pod goes as its update in place begins, if it goes anywhere. Without a hook of it nobody follows the state: a pod that is in
/// service, or on the way there, stays what it is.
pub fn while_updating(lifecycle: &Lifecycle, pod: &PodRecord) -> Option<State> {
    match State::of(pod) {
        State::Unset | State::Updating => None,
        State::Normal | State::PreparingNormal if lifecycle.in_place_update.is_none() => None,
        _ => Some(State::Updating),
    }
}

/// Where a pod goes whose update in place has ended: back in service, or waiting for its markers.
pub fn after_update(lifecycle: &Lifecycle, pod: &PodRecord) -> State {
    if lacking(lifecycle.in_place_update.as_ref(), pod).is_empty() {
        State::Normal
    } else {
        State::Updated
    }
}

/// Where a pod goes that is wanted again, or whose preNormal markers are all there.
pub fn back_to_normal(lifecycle: &Lifecycle, pod: &PodRecord) -> State {
    if lacking(lifecycle.pre_normal.as_ref(), pod).is_empty() {
        State::Normal
    } else {
        State::PreparingNormal
    }
}

/// Where a pod goes that was prepared for its deletion and is wanted again: it may have been drained, so it waits for its markers.
pub fn let_go(lifecycle: &Lifecycle, pod: &PodRecord) -> State {
    match after_update(lifecycle, pod) {
        State::Updated => State::Updated,
        _ => back_to_normal(lifecycle, pod),
    }
}

/// That a hook holds a pod, as `why` says it. One without the gate of hooks is not marked, though its hook asks for that.
pub(crate) fn hold_of(name: &'static str, hook: Option<&Hook>, pod: &PodRecord) -> WaitCause {
    let has_gate = |detail: &PodDetail| detail.spec.has_gate(names::KRUISE_POD_READY);
    WaitCause::HookHolds {
        hook: name,
        markers: held_by(hook, pod),
        stays_ready: hook.is_some_and(|hook| hook.mark_not_ready) && !pod.detail.as_deref().is_some_and(has_gate),
    }
}

/// Since when a pod has been in its lifecycle state.
pub(crate) fn since_state(detail: &PodDetail) -> Option<Timestamp> {
    detail.annotations.get(names::LIFECYCLE_TIMESTAMP)?.parse().ok()
}

/// A patch of `metadata` that sets a pod's state and when it changed: not before the last change of its readiness that we have seen, though
/// our clock is behind the node's. Whoever compares the two must be able to tell which came first. Clocks are not a minute apart; a time
/// beyond that is somebody's invention.
pub fn patch(state: State, pod: &PodRecord, now: Timestamp) -> Value {
    let seen = pod.ready.since.filter(|seen| seen.since(now) <= CLOCKS_APART_MAX);
    let at = seen.map_or(now, |seen| seen.max(now));
    json!({
        "labels": {names::LIFECYCLE_STATE_LABEL: state.name()},
        "annotations": {names::LIFECYCLE_TIMESTAMP: whole_seconds(at)},
    })
}

/// A strategic-merge patch of `metadata` that puts all markers of a hook on: finalizers of others stay.
pub fn markers_patch(hook: &Hook) -> Value {
    let mut patch = json!({});
    for (key, value) in &hook.labels {
        patch["labels"][key] = json!(value);
    }
    if !hook.finalizers.is_empty() {
        patch["finalizers"] = json!(hook.finalizers);
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, at, pod};

    fn hook() -> Hook {
        Hook {
            labels: vec![("hold".into(), "yes".into())],
            finalizers: vec!["f/hold".into()],
            mark_not_ready: false,
        }
    }

    #[test]
    fn sts_4_8_any_marker_holds_and_every_marker_releases() {
        for (labels, finalizers, held, lacking_count) in [
            (None, vec![], 0, 2),
            (Some("no"), vec![], 0, 2),
            (Some("yes"), vec![], 1, 1),
            (None, vec!["f/other", "f/hold"], 1, 1),
            (Some("yes"), vec!["f/hold"], 2, 0),
        ] {
            let mut fixture =
                pod("web-0").detailed(|d| d.finalizers = finalizers.iter().map(|f| (*f).into()).collect());
            if let Some(value) = labels {
                fixture = fixture.label("hold", value);
            }
            let pod = fixture.build("web");
            let hook = hook();
            assert_eq!(held_by(Some(&hook), &pod).len(), held, "{labels:?} {finalizers:?}");
            assert_eq!(
                lacking(Some(&hook), &pod).len(),
                lacking_count,
                "{labels:?} {finalizers:?}"
            );
            for none in [None, Some(&Hook::default())] {
                assert!(held_by(none, &pod).is_empty() && lacking(none, &pod).is_empty());
            }
        }
    }

    #[test]
    fn sts_3_5_a_state_begins_after_the_readiness_that_was_seen_with_whatever_clock() {
        let patched = |now: i64| patch(State::Normal, &pod("web-0").unready_since(NOW).build("web"), at(now));
        let began = |now: i64| patched(now)["annotations"][names::LIFECYCLE_TIMESTAMP].clone();
        assert_eq!(
            began(NOW - 10),
            json!(at(NOW).to_string()),
            "our clock is behind the node's"
        );
        assert_eq!(began(NOW + 10), json!(at(NOW + 10).to_string()));
        assert_eq!(began(NOW - 61), json!(at(NOW - 61).to_string()), "nobody's clock");
    }

    #[test]
    fn sts_3_5_a_new_pod_is_normal_if_its_template_has_all_markers() {
        let lifecycle = |pre_normal| Lifecycle {
            pre_normal,
            ..Lifecycle::default()
        };
        let full = json!({"metadata": {"labels": {"hold": "yes"}, "finalizers": ["f/hold"]}});
        let half = json!({"metadata": {"labels": {"hold": "yes"}}});
        assert_eq!(of_new(&lifecycle(None), &half), State::Normal);
        assert_eq!(of_new(&lifecycle(Some(hook())), &half), State::PreparingNormal);
        assert_eq!(of_new(&lifecycle(Some(hook())), &full), State::Normal);
    }

    #[test]
    fn names_and_states_are_the_same() {
        for state in [
            State::PreparingNormal,
            State::Normal,
            State::PreparingUpdate,
            State::Updating,
            State::Updated,
            State::PreparingDelete,
        ] {
            let pod = pod("web-0")
                .label(names::LIFECYCLE_STATE_LABEL, state.name())
                .build("web");
            assert_eq!(State::of(&pod), state);
        }
        assert_eq!(State::of(&pod("web-0").build("web")), State::Unset);
        assert_eq!(
            State::of(&pod("web-0").label(names::LIFECYCLE_STATE_LABEL, "x").build("web")),
            State::Other
        );
    }
}
