//! Conditions that gate a pod's readiness (STS-4.3, STS-4.4 and STS-4.8): how a pod is taken out of service and put back.
//!
//! Ready itself is only ever set False; that it is True again says the kubelet (STS-8.12). A patch names single conditions and leaves the
//! others alone.
//!
//! What puts a pod back into service may be delivered late, when the pod has been taken out again for the next update. So it tests the
//! condition that was examined, whose message names that one leaving, instead of carrying a version, which would lose every race with
//! the kubelet's own writes. Only that a condition is absent cannot be tested: there the version is carried, as soon as the kubelet
//! has said its first word and writes less often.

use crate::shared::inplace::state::whole_seconds;
use crate::shared::lifecycle::State;
use crate::shared::pointer::{ANNOTATIONS, LABELS, below};
use flotilla_api::names;
use flotilla_model::decision::{PatchKind, Report, Subresource};
use flotilla_model::records::{GateCondition, PodDetail};
use flotilla_model::set::PodUpdatePolicy;
use flotilla_model::{Command, PodRecord, Resource, SetKind, SetRecord, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The gates of a new pod: those that somebody needs, as with a gate it gets ready only while a manager runs (R-27).
pub fn gates_of_new(set: &SetRecord) -> &'static [&'static str] {
    const BOTH: &[&str] = &[names::IN_PLACE_UPDATE_READY, names::KRUISE_POD_READY];
    let is_in_place = set.spec.pod_update_policy() != PodUpdatePolicy::ReCreate;
    match (is_in_place, set.spec.lifecycle.marks_not_ready()) {
        _ if set.kind == SetKind::Native => &[],
        (false, false) => &[],
        (true, false) => &BOTH[..1],
        (false, true) => &BOTH[1..],
        (true, true) => BOTH,
    }
}

/// Who holds a pod down, in the message of condition `KruisePodReady`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Who.
    pub user_agent: String,
    /// What for.
    pub key: String,
}

/// Key of a pod that is held by preDelete.
pub const PRE_DELETE: &str = "preDeleteHook";
/// Key of a pod that is held by inPlaceUpdate.
pub const PRE_UPDATE: &str = "preUpdateHook";
/// Who writes these two.
const LIFECYCLE: &str = "Lifecycle";

/// A key of ours.
fn ours(key: &str) -> Key {
    Key {
        user_agent: LIFECYCLE.to_owned(),
        key: key.to_owned(),
    }
}

/// Keys in a message. One that cannot be read holds nothing.
pub fn keys(message: &str) -> BTreeSet<Key> {
    let json: Value = serde_json::from_str(message).unwrap_or(Value::Null);
    let read = |entry: &Value| {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).map(str::to_owned);
        Some(Key {
            user_agent: text("userAgent")?,
            key: text("key")?,
        })
    };
    json.as_array().into_iter().flatten().filter_map(read).collect()
}

/// The message of these keys, as Go writes it.
pub fn message(keys: &BTreeSet<Key>) -> String {
    if keys.is_empty() {
        return String::new();
    }
    let entry = |k: &Key| format!(r#"{{"userAgent":{},"key":{}}}"#, json!(k.user_agent), json!(k.key));
    format!("[{}]", keys.iter().map(entry).collect::<Vec<_>>().join(","))
}

/// Whether one of our keys holds a pod.
pub fn is_held(detail: &PodDetail, key: &str) -> bool {
    detail
        .kruise_ready
        .as_ref()
        .is_some_and(|c| c.message.contains(key) && keys(&c.message).contains(&ours(key)))
}

fn condition(kind: &str, is_true: bool, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({
        "type": kind, "status": if is_true { "True" } else { "False" }, "reason": reason, "message": message,
        "lastTransitionTime": whole_seconds(now),
    })
}

/// A patch of `pods/status`.
fn patch(pod: &PodRecord, kind: PatchKind, body: Value, resource_version: Option<u64>) -> Command {
    Command::Patch {
        resource: Resource::Pods,
        key: pod.meta.key.clone(),
        uid: pod.meta.uid.clone(),
        subresource: Some(Subresource::Status),
        kind,
        body,
        resource_version,
        guard: None,
        report: Report::Silent,
    }
}

/// Why a pod leaves service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving<'a> {
    /// Its containers are about to change to this revision.
    Update(&'a str),
    /// A hook holds it, under this key.
    Hook(&'static str),
}

/// Takes a pod out of service. `None` if it lacks the gate for it.
pub fn take_out(pod: &PodRecord, detail: &PodDetail, why: Leaving<'_>, now: Timestamp) -> Option<Command> {
    let first = match why {
        Leaving::Update(_) if !detail.spec.has_gate(names::IN_PLACE_UPDATE_READY) => return None,
        Leaving::Update(revision) => {
            // Unlike any other leaving's: what puts the pod back tests it.
            let text = format!("to {revision}, begun at {now}");
            condition(names::IN_PLACE_UPDATE_READY, false, "StartInPlaceUpdate", &text, now)
        }
        Leaving::Hook(_) if !detail.spec.has_gate(names::KRUISE_POD_READY) => return None,
        Leaving::Hook(key) => {
            let mut held = detail
                .kruise_ready
                .as_ref()
                .map(|c| keys(&c.message))
                .unwrap_or_default();
            held.insert(ours(key));
            condition(names::KRUISE_POD_READY, false, "", &message(&held), now)
        }
    };
    let mut conditions = vec![first];
    if detail.containers_ready && pod.ready.is_true {
        let text = "the status of a pod readiness gate is not True";
        conditions.push(condition("Ready", false, "ReadinessGatesNotReady", text, now));
    }
    let body = json!({"status": {"conditions": conditions}});
    Some(patch(pod, PatchKind::Strategic, body, None))
}

/// What of a pod is to be put back into service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Back<'a> {
    /// Its update in place has ended, or there is none.
    pub updated: bool,
    /// Keys of ours that hold it no longer.
    pub released: &'a [&'static str],
    /// The state of its lifecycle in which they do not.
    pub state: State,
    /// An annotation on which this rests, with the text that was examined.
    pub examined: Option<(&'static str, &'a str)>,
}

/// Puts a pod back into service as far as `back` says. `None` if nothing is to be changed.
pub fn put_back(pod: &PodRecord, detail: &PodDetail, back: Back<'_>, now: Timestamp) -> Option<Command> {
    let mut wanted: Vec<(Option<&GateCondition>, Value)> = Vec::new();
    let in_place = detail.in_place_ready.as_ref();
    if back.updated && detail.spec.has_gate(names::IN_PLACE_UPDATE_READY) && !in_place.is_some_and(|c| c.is_true) {
        wanted.push((in_place, condition(names::IN_PLACE_UPDATE_READY, true, "", "", now)));
    }
    if let Some(condition) = without_keys(detail, back.released, now) {
        wanted.push((detail.kruise_ready.as_ref(), condition));
    }
    if wanted.is_empty() {
        return None;
    }
    let known: Option<Vec<&GateCondition>> = wanted.iter().map(|(known, _)| *known).collect();
    let Some(known) = known else {
        let is_told_of = detail.statuses.iter().any(Option::is_some);
        let conditions: Vec<Value> = wanted.into_iter().map(|(_, condition)| condition).collect();
        let body = json!({"status": {"conditions": conditions}});
        let version = pod.meta.resource_version;
        return is_told_of.then(|| patch(pod, PatchKind::Strategic, body, Some(version)));
    };
    let mut operations = Vec::new();
    if let Some(revision) = pod.revision() {
        // An update that was given up may arrive yet, without a note that could be tested before.
        let path = below(LABELS, names::REVISION_LABEL);
        operations.push(json!({"op": "test", "path": path, "value": revision}));
    }
    if let Some((key, text)) = back.examined {
        let path = below(ANNOTATIONS, key);
        operations.push(json!({"op": "test", "path": path, "value": text}));
    }
    let opens = wanted.iter().any(|(_, c)| c["type"] == names::KRUISE_POD_READY);
    if opens && !matches!(back.state, State::Unset | State::Other) {
        // A claim that a hook holds the pod may arrive between: each tests what the other writes.
        let path = below(LABELS, names::LIFECYCLE_STATE_LABEL);
        operations.push(json!({"op": "test", "path": path, "value": back.state.name()}));
    }
    for (known, (_, condition)) in known.into_iter().zip(&wanted) {
        let path = format!("/status/conditions/{}", known.index);
        let mut test = |field: &str, value: Value| {
            operations.push(json!({"op": "test", "path": format!("{path}/{field}"), "value": value}));
        };
        test("type", condition["type"].clone());
        // The API server leaves out what is empty, and what is not there cannot be tested.
        if !known.message.is_empty() {
            test("message", json!(&*known.message));
        }
        if let Some(since) = known.since {
            test("lastTransitionTime", json!(whole_seconds(since)));
        }
        operations.push(json!({"op": "replace", "path": path, "value": condition}));
    }
    Some(patch(pod, PatchKind::Json, Value::Array(operations), None))
}

/// Condition `KruisePodReady` without some keys of ours, if it is to change: it is True exactly when no key is left.
fn without_keys(detail: &PodDetail, released: &[&'static str], now: Timestamp) -> Option<Value> {
    if !detail.spec.has_gate(names::KRUISE_POD_READY) {
        return None;
    }
    let Some(known) = &detail.kruise_ready else {
        return Some(condition(names::KRUISE_POD_READY, true, "", "", now));
    };
    if known.is_true && known.message.is_empty() {
        return None;
    }
    let held = keys(&known.message);
    let left: BTreeSet<Key> = held
        .iter()
        .filter(|key| !released.iter().any(|r| ours(r) == **key))
        .cloned()
        .collect();
    let is_right = known.is_true == left.is_empty();
    if is_right && left == held {
        return None;
    }
    Some(condition(
        names::KRUISE_POD_READY,
        left.is_empty(),
        "",
        &message(&left),
        now,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, at, pod};

    fn held(message: &str, is_true: bool) -> PodRecord {
        let fixture = pod("web-0").detailed(|d| {
            d.kruise_ready = Some(GateCondition {
                index: 1,
                is_true,
                message: message.into(),
                since: None,
            });
        });
        fixture.build("web")
    }

    const OURS: &str = r#"[{"userAgent":"Lifecycle","key":"preUpdateHook"}]"#;
    const BOTH: &str = r#"[{"userAgent":"Lifecycle","key":"preUpdateHook"},{"userAgent":"Probe","key":"x"}]"#;

    #[test]
    fn sts_4_7_the_message_is_a_sorted_list_as_go_writes_it() {
        let unsorted = r#"[{"key":"x","userAgent":"Probe"},{"key":"preUpdateHook","userAgent":"Lifecycle"}]"#;
        assert_eq!(message(&keys(unsorted)), BOTH);
        assert_eq!(message(&BTreeSet::new()), "");
        for nonsense in ["", "x", "{}", r#"[{"key":1}]"#] {
            assert!(keys(nonsense).is_empty());
        }
    }

    #[test]
    fn sts_4_8_a_key_is_always_written_with_status_false() {
        for message in ["", r#"[{"userAgent":"Probe","key":"x"}]"#] {
            let pod = held(message, true);
            let detail = pod.detail.clone().expect("a detail");
            let Some(Command::Patch { body, .. }) = take_out(&pod, &detail, Leaving::Hook(PRE_UPDATE), at(NOW)) else {
                panic!("it has the gate")
            };
            let written = &body["status"]["conditions"][0];
            assert_eq!(written["status"], "False");
            assert_eq!(
                keys(written["message"].as_str().unwrap_or_default()).len(),
                1 + usize::from(!message.is_empty())
            );
        }
    }

    #[test]
    fn sts_4_8_the_condition_is_true_exactly_when_no_key_is_left() {
        for (what, message, is_true, released, expected) in [
            (
                "ours alone is released",
                OURS,
                false,
                vec![PRE_UPDATE],
                Some(("True", "")),
            ),
            (
                "another's stays",
                BOTH,
                false,
                vec![PRE_UPDATE],
                Some(("False", r#"[{"userAgent":"Probe","key":"x"}]"#)),
            ),
            ("nothing is released", OURS, false, vec![PRE_DELETE], None),
            (
                "a condition without keys and status",
                "",
                false,
                vec![],
                Some(("True", "")),
            ),
            ("True in spite of a key", OURS, true, vec![], Some(("False", OURS))),
            ("as it should be", "", true, vec![PRE_UPDATE], None),
        ] {
            let pod = held(message, is_true);
            let detail = pod.detail.clone().expect("a detail");
            let back = Back {
                updated: false,
                released: &released,
                state: State::Unset,
                examined: None,
            };
            let found = put_back(&pod, &detail, back, at(NOW)).map(|command| match command {
                Command::Patch { body, .. } => {
                    let last = body
                        .as_array()
                        .and_then(|list| list.last())
                        .cloned()
                        .unwrap_or_default();
                    (last["value"]["status"].clone(), last["value"]["message"].clone())
                }
                other => panic!("{other:?}"),
            });
            assert_eq!(
                found,
                expected.map(|(status, message)| (json!(status), json!(message))),
                "{what}"
            );
        }
    }

    /// A claim of a state in which a hook holds the pod tests the closed gate, so what opens the gate tests the state.
    #[test]
    fn sts_4_8_the_gate_is_opened_in_the_state_for_which_that_was_decided() {
        let tested = |message: &str, state| {
            let pod = held(message, false);
            let detail = pod.detail.clone().expect("a detail");
            let back = Back {
                state,
                released: &[PRE_UPDATE],
                ..Back::default()
            };
            let Some(Command::Patch { body, .. }) = put_back(&pod, &detail, back, at(NOW)) else {
                panic!("it is put back")
            };
            let path = "/metadata/labels/lifecycle.apps.kruise.io~1state";
            let operations = body.as_array().cloned().unwrap_or_default();
            operations
                .iter()
                .find(|o| o["path"] == path)
                .map(|o| o["value"].clone())
        };
        assert_eq!(tested(OURS, State::Normal), Some(json!("Normal")));
        assert_eq!(tested(OURS, State::Updated), Some(json!("Updated")));
        assert_eq!(tested(OURS, State::Unset), None);
    }
}
