//! Gates and states where somebody needs them.

use super::{name, one};
use crate::shared::inplace::state::{Before, State as InPlaceState};
use crate::testing::{Cluster, NOW, PodFixture, advanced, at, clones, container_status, folded, native};
use flotilla_api::names;
use flotilla_model::decision::Command;
use flotilla_model::{Decision, WaitCause};
use serde_json::{Value, json};
use std::sync::Arc;

const UPDATES: &str = names::IN_PLACE_UPDATE_READY;
const HOOKS: &str = names::KRUISE_POD_READY;

fn hook(marks: bool) -> Value {
    json!({"labelsHandler": {"hold": "yes"}, "markPodNotReady": marks})
}

fn in_place(cluster: Cluster) -> Cluster {
    cluster.spec(
        "/updateStrategy/rollingUpdate",
        json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1}),
    )
}

/// The first pod that is made.
fn made(cluster: &Cluster) -> Value {
    let decision = cluster.decide();
    let pod = decision.commands().find_map(|c| match &c.command {
        Command::Create { body, .. } => Some(body.render()),
        _ => None,
    });
    pod.expect("a pod is made")
}

fn gates(pod: &Value) -> Vec<&str> {
    let gates = pod["spec"]["readinessGates"].as_array().into_iter().flatten();
    gates.filter_map(|gate| gate["conditionType"].as_str()).collect()
}

/// #892: without a gate a pod gets ready while no manager runs.
#[test]
fn r_27_a_pod_is_made_with_the_gates_that_somebody_needs() {
    for kind in [clones, advanced] {
        let with = |field: &str, marks| kind(1).spec(&format!("/lifecycle/{field}"), hook(marks));
        for (what, cluster, expected) in [
            ("nothing", kind(1), vec![]),
            ("in place", in_place(kind(1)), vec![UPDATES]),
            ("before a deletion", with("preDelete", true), vec![HOOKS]),
            ("before an update", with("inPlaceUpdate", true), vec![HOOKS]),
            ("a hook that marks nothing", with("preDelete", false), vec![]),
            // A new pod is not in service yet.
            ("before service", with("preNormal", true), vec![]),
            ("both", in_place(with("preDelete", true)), vec![UPDATES, HOOKS]),
            (
                "in place, unmarked",
                in_place(with("inPlaceUpdate", false)),
                vec![UPDATES],
            ),
        ] {
            assert_eq!(gates(&made(&cluster)), expected, "{what}");
        }
    }
    assert_eq!(gates(&made(&native(1))), [""; 0]);
}

#[test]
fn r_27_a_pod_is_made_in_the_state_that_a_hook_asks_for() {
    let waits = || clones(1).spec("/lifecycle/preNormal", hook(false));
    for (what, cluster, expected) in [
        ("no hook", clones(1), "Normal"),
        (
            "another hook",
            clones(1).spec("/lifecycle/preDelete", hook(true)),
            "Normal",
        ),
        ("its markers have to come", waits(), "PreparingNormal"),
        (
            "an empty hook",
            clones(1).spec("/lifecycle/preNormal", json!({})),
            "Normal",
        ),
        (
            "the template has them",
            clones(1).spec("/lifecycle/preNormal", json!({"labelsHandler": {"app": "web"}})),
            "Normal",
        ),
    ] {
        let labels = &made(&cluster)["metadata"]["labels"];
        assert_eq!(labels[names::LIFECYCLE_STATE_LABEL], expected, "{what}");
    }
}

/// What is written to a pod, in order: the subresource, and what of its state and revision.
fn writes(decision: &Decision) -> Vec<(&'static str, Option<String>, Option<String>)> {
    let all = decision.commands().filter_map(|c| match &c.command {
        Command::Patch { subresource, body, .. } => {
            let body = if body.is_array() { folded(body) } else { body.clone() };
            let label = |key| body["metadata"]["labels"][key].as_str().map(str::to_owned);
            let part = subresource.map_or("", |part| part.name());
            Some((part, label(names::LIFECYCLE_STATE_LABEL), label(names::REVISION_LABEL)))
        }
        _ => None,
    });
    all.collect()
}

fn in_state(marks: &str, state: &str) -> PodFixture {
    one(&name(0), marks).label(names::LIFECYCLE_STATE_LABEL, state)
}

/// Three writes: out of service, the change, back into service.
#[test]
fn r_27_without_its_hook_an_update_in_place_leaves_the_state_alone() {
    let plain = || in_place(clones(1));
    let hooked = || plain().spec("/lifecycle/inPlaceUpdate", hook(true));
    let waits = || plain().spec("/lifecycle/preNormal", hook(false));
    let goes_first = |fixture: PodFixture| fixture.on(Some("node-0"));
    for (what, cluster, expected) in [
        ("Normal, no hook", plain().pod(in_state("o", "Normal")), None),
        (
            "Normal, another hook",
            plain()
                .spec("/lifecycle/preDelete", hook(true))
                .pod(in_state("o", "Normal")),
            None,
        ),
        (
            "Normal, its hook",
            hooked().pod(in_state("o", "Normal")),
            Some("Updating"),
        ),
        (
            "waits for its hook",
            waits().pod(goes_first(in_state("o", "PreparingNormal"))),
            None,
        ),
        // A hook that was taken away has prepared it.
        (
            "PreparingUpdate, no hook",
            plain().pod(in_state("o", "PreparingUpdate")),
            Some("Updating"),
        ),
        ("Updating, no hook", plain().pod(in_state("o", "Updating")), None),
    ] {
        let found = writes(&cluster.decide());
        let revision = Some("web-new".to_owned());
        let expected = [("status", None, None), ("", expected.map(str::to_owned), revision)];
        assert_eq!(found[..2], expected, "{what}");
    }
    let over = in_state("n", "Normal").unready().detailed(|d| {
        let gate = d.in_place_ready.as_mut().expect("the gate");
        (gate.is_true, gate.since) = (false, Some(at(NOW - 60)));
    });
    assert_eq!(
        writes(&plain().pod(over).decide()),
        [("status", None, None)],
        "the third"
    );
}

/// In the middle of its update to v2: its container still runs v1.
fn on_its_way(state: &str) -> PodFixture {
    let note = InPlaceState {
        revision: "web-new".to_owned(),
        updated_at: at(NOW - 60),
        before: [("main".to_owned(), Before::of(Some(&container_status("v1"))))].into(),
        images: true,
        ..InPlaceState::default()
    };
    let fixture = in_state("n", state).unready().detailed(|d| {
        d.statuses = Box::new([Some(container_status("v1"))]);
        let gate = d.in_place_ready.as_mut().expect("the gate");
        (gate.is_true, gate.since) = (false, Some(at(NOW - 60)));
    });
    fixture.annotated(names::IN_PLACE_STATE, &note.to_text())
}

/// What another manager began is waited for, in whatever state it left the pod, and is not begun again.
#[test]
fn r_27_an_update_on_its_way_is_waited_for_in_any_state() {
    for state in ["Normal", "Updating", "PreparingNormal"] {
        let decision = in_place(clones(1)).pod(on_its_way(state)).decide();
        assert_eq!(writes(&decision), [], "{state}");
        let status = decision.status.expect("a status").desired;
        assert_eq!(status["availableReplicas"], 0, "{state}");
        let waits = decision.waits.iter().map(|wait| wait.cause.to_string());
        let waits: Vec<String> = waits.filter(|why| why.contains("has not restarted")).collect();
        assert_eq!(waits.len(), 1, "{state}");
    }
}

/// Made before its set had a hook that marks pods not ready.
fn without_gate(fixture: PodFixture) -> PodFixture {
    fixture.label("hold", "yes").detailed(|d| {
        Arc::make_mut(&mut d.spec).gates.retain(|gate| **gate != *HOOKS);
        d.kruise_ready = None;
    })
}

#[test]
fn r_27_a_hook_that_is_added_later_holds_older_pods_and_why_says_that_they_stay_ready() {
    let deleted = || clones(0).spec("/lifecycle/preDelete", hook(true));
    let updated = || in_place(clones(1)).spec("/lifecycle/inPlaceUpdate", hook(true));
    for (what, cluster, marks, state) in [
        ("preDelete", deleted as fn() -> Cluster, "n", "PreparingDelete"),
        ("inPlaceUpdate", updated, "o", "PreparingUpdate"),
    ] {
        let decision = cluster().pod(without_gate(in_state(marks, "Normal"))).decide();
        let held = [("", Some(state.to_owned()), None)];
        assert_eq!(writes(&decision), held, "{what}: it works, and marks nothing");
        for (is_old, fixture) in [
            (true, without_gate(in_state(marks, state))),
            (false, in_state(marks, state)),
        ] {
            let decision = cluster().pod(fixture.label("hold", "yes")).decide();
            let mut causes = decision.waits.iter().map(|wait| &wait.cause);
            let cause = causes.find(|cause| matches!(cause, WaitCause::HookHolds { .. }));
            let why = cause.expect("the hook holds it").to_string();
            assert!(
                why.starts_with(&format!("hook {what} holds it by label hold=yes")),
                "{why}"
            );
            assert_eq!(
                why.contains("made without readiness gate KruisePodReady"),
                is_old,
                "{why}"
            );
        }
    }
}
