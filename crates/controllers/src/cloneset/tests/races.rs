//! What was asked for and has not come, what a cache still shows, and events that must not be missed (CS-9, CS-10, STS-4.3 and STS-4.6).

use super::super::CloneSetController;
use super::{done, name, one, pods, said};
use crate::testing::{Cluster, PodFixture, clones};
use flotilla_api::names;
use flotilla_model::decision::Command;
use flotilla_model::records::Phase;
use flotilla_model::{Change, Controller};
use serde_json::{Value, json};
use std::sync::Arc;

fn in_place(replicas: i32) -> Cluster {
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1});
    clones(replicas).spec("/updateStrategy/rollingUpdate", rolling)
}

/// #1765: nothing is remembered that could be waited for in vain.
#[test]
fn cs_10_what_was_asked_for_and_never_came_is_asked_for_again() {
    let mut cluster = pods(clones(5), "2n");
    for _ in 0..3 {
        let decision = cluster.decide();
        assert_eq!(done(&cluster, &decision).created, 3);
        cluster.hints = decision.hints.unwrap_or(cluster.hints);
    }
    let mut surplus = pods(clones(1), "3n");
    for _ in 0..3 {
        let decision = surplus.decide();
        assert_eq!(done(&surplus, &decision).surplus, 2);
        surplus.hints = decision.hints.unwrap_or(surplus.hints);
    }
}

/// #2528.
#[test]
fn cs_4_a_set_that_says_nothing_of_replicas_has_one() {
    let cluster = clones(0).spec("/replicas", Value::Null);
    assert_eq!(done(&cluster, &cluster.decide()).created, 1);
}

/// #2473: also of a pod that ends, or that has begun to go.
#[test]
fn cs_9_whatever_becomes_of_a_pod_its_set_is_looked_at() {
    let mut cluster = pods(clones(1), "1n");
    cluster.record = Some(cluster.record());
    let pod = || one(&name(0), "n");
    for (what, after) in [
        ("failed", pod().phase(Phase::Failed)),
        ("succeeded", pod().phase(Phase::Succeeded)),
        ("is going", pod().terminating()),
        ("is not ready", pod().unready()),
    ] {
        let [before, after] = [pod(), after].map(|pod| Some(Arc::new(pod.build("web"))));
        let mut keys = Vec::new();
        CloneSetController::default().route(&Change::Pod(before, after), &cluster, &mut keys);
        let keys: Vec<&str> = keys.iter().map(|key| &*key.name).collect();
        assert_eq!(keys, ["web"], "{what}");
    }
}

/// With the gate of updates at this value.
fn gated(pod: PodFixture, is_true: bool) -> PodFixture {
    pod.detailed(|d| d.in_place_ready.as_mut().expect("the gate").is_true = is_true)
}

/// #2276, #418: the condition may be of an update before, and its end on its way.
#[test]
fn sts_4_3_a_pod_is_taken_out_of_service_whatever_its_condition_seems_to_be() {
    for is_true in [true, false] {
        let cluster = in_place(1).pod(gated(one(&name(0), "o"), is_true));
        let said = said(&cluster.decide());
        assert_eq!(
            said,
            ["unready: ~Pod web-b0000", "in-place: ~Pod web-b0000"],
            "{is_true}"
        );
    }
}

/// #2274, #463: it ends for the revision, the state and the note that were seen, and not for what has overtaken it meanwhile.
#[test]
fn sts_4_6_the_end_of_an_update_holds_for_the_pod_that_was_seen() {
    let note = json!({"revision": "web-new", "updateTimestamp": "2026-01-01T00:00:00Z", "lastContainerStatuses": {}});
    let pod = one(&name(0), "n")
        .unready()
        .label(names::LIFECYCLE_STATE_LABEL, "Updating")
        .annotated(names::IN_PLACE_STATE, &note.to_string());
    let decision = in_place(1).pod(gated(pod, false)).decide();
    assert_eq!(said(&decision), ["in-place: ~Pod web-b0000", "ready: ~Pod web-b0000"]);
    for scoped in decision.commands() {
        let Command::Patch { body, .. } = &scoped.command else {
            panic!("{:?}", scoped.command);
        };
        let operations = body.as_array().into_iter().flatten();
        let tested: Vec<&str> = operations
            .filter(|operation| operation["op"] == "test")
            .filter_map(|operation| operation["path"].as_str())
            .collect();
        for path in [
            "/metadata/labels/controller-revision-hash",
            "/metadata/annotations/apps.kruise.io~1inplace-update-state",
        ] {
            assert!(tested.contains(&path), "{path}: {tested:?}");
        }
    }
}

/// A change that comes late tests that the gate is closed, which it cannot do of a condition that was not there.
#[test]
fn sts_4_3_a_gate_that_nobody_has_seen_is_closed_first() {
    let new = || one(&name(0), "o").unready().detailed(|d| d.in_place_ready = None);
    assert_eq!(said(&in_place(1).pod(new()).decide()), ["unready: ~Pod web-b0000"]);
    let without_gate = new().detailed(|d| Arc::make_mut(&mut d.spec).gates.clear());
    assert_eq!(
        said(&in_place(1).pod(without_gate).decide()),
        ["in-place: ~Pod web-b0000"]
    );
}

/// The same of the gate of hooks, which the state of a pod that one holds tests.
#[test]
fn sts_4_8_the_gate_of_hooks_is_closed_before_the_state_says_so() {
    let hook = json!({"labelsHandler": {"update": "wait"}, "markPodNotReady": true});
    let hooked = || in_place(1).spec("/lifecycle/inPlaceUpdate", hook.clone());
    let held = || one(&name(0), "o").label("update", "wait");
    let unseen = held().detailed(|d| d.kruise_ready = None);
    assert_eq!(said(&hooked().pod(unseen).decide()), ["unready: ~Pod web-b0000"]);
    assert_eq!(
        said(&hooked().pod(held()).decide()),
        ["unready: ~Pod web-b0000", "in-place: ~Pod web-b0000"]
    );
}

/// Of a pod without the gate the change of its containers is the first write, and holds for what was seen if that used no budget.
#[test]
fn cs_13_12_and_16_7_what_seemed_unavailable_and_cannot_leave_service_is_changed_as_it_was_seen() {
    let version = |pod: PodFixture| {
        let decision = in_place(1).pod(pod).decide();
        assert_eq!(said(&decision), ["in-place: ~Pod web-b0000"]);
        let first = decision.commands().next().map(|c| c.command.clone());
        let Some(Command::Patch { resource_version, .. }) = first else {
            panic!("{first:?}")
        };
        resource_version
    };
    let ungated = |pod: PodFixture| pod.detailed(|d| Arc::make_mut(&mut d.spec).gates.clear());
    assert_eq!(version(ungated(one(&name(0), "o"))), None);
    assert!(version(ungated(one(&name(0), "o").unready())).is_some());
}
