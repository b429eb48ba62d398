//! Writes that the network delivers late do no harm (STS-4.3).

use super::super::kubelet;
use super::{GRACE, STATE, condition, in_place, note, out, patches, seen};
use crate::testing::{Cluster, NOW, PodFixture, advanced, at, brief};
use flotilla_api::names;
use flotilla_model::decision::{Command, PatchKind, Subresource};
use flotilla_model::records::GateCondition;
use serde_json::{Value, json};

/// The only write that puts a pod back into service, and the version that it carries.
fn put_back_of(fixture: &PodFixture) -> (PatchKind, Value, Option<u64>) {
    let decision = in_place(1).pod(fixture.clone()).decide();
    let found: Vec<_> = decision
        .commands()
        .filter_map(|c| match &c.command {
            Command::Patch {
                kind,
                body,
                resource_version,
                subresource: Some(Subresource::Status),
                ..
            } => Some((*kind, body.clone(), *resource_version)),
            _ => None,
        })
        .collect();
    assert_eq!(found.len(), 1, "{:?}", brief(&decision));
    found.into_iter().next().unwrap_or_else(|| unreachable!())
}

#[test]
fn sts_4_3_what_puts_a_pod_back_and_comes_late_opens_no_gate_that_was_closed_again() {
    // Of this revision, and taken out for an update to that one so many seconds ago.
    let taken_out = |revision: &str, to: &str, ago: i64| {
        let fixture = out(seen("web-0", revision, "v2")).annotated(STATE, &note(revision, 30).to_text());
        fixture.detailed(|d| {
            d.in_place_ready = Some(GateCondition {
                index: 0,
                is_true: false,
                message: format!("to {to}, begun at {}", at(NOW - ago)).into(),
                since: Some(at(NOW - ago)),
            });
        })
    };
    let examined = taken_out("new", "new", 10);
    let (kind, body, version) = put_back_of(&examined);
    assert_eq!(
        (kind, version),
        (PatchKind::Json, None),
        "no race with the kubelet is lost"
    );
    for (what, later, opens) in [
        ("nothing has happened", examined.clone(), true),
        ("taken out for the next update", taken_out("new", "newer", 10), false),
        ("again for the same one", taken_out("new", "new", 3), false),
        ("the next one has begun", taken_out("newer", "new", 10), false),
    ] {
        let mut pod = later.build("web");
        let applied = kubelet::patch(&mut pod, kind, &body, at(NOW));
        assert_eq!(applied.is_ok(), opens, "{what}: {applied:?}");
    }
}

#[test]
fn sts_4_3_the_first_that_puts_a_pod_into_service_holds_only_for_the_version_that_was_examined() {
    // That a condition is absent cannot be tested.
    let fresh = seen("web-0", "new", "v2")
        .unready()
        .detailed(|d| d.in_place_ready = None);
    let (kind, _, version) = put_back_of(&fresh);
    assert_eq!(
        (kind, version),
        (
            PatchKind::Strategic,
            Some(fresh.clone().build("web").meta.resource_version)
        )
    );
    // Before the kubelet's first word its version moves on all the time, and it cannot be ready.
    let unseen = fresh.detailed(|d| d.statuses = Box::new([None]));
    assert_eq!(brief(&in_place(1).pod(unseen).decide()), [] as [&str; 0]);
}

/// The patch that changes a pod itself.
fn change_of(cluster: &Cluster) -> Value {
    let decision = cluster.decide();
    let found = decision.commands().find_map(|c| match &c.command {
        Command::Patch {
            subresource: None,
            kind: PatchKind::Json,
            resource_version: None,
            body,
            ..
        } => Some(body.clone()),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no patch of the pod: {:?}", brief(&decision)))
}

#[test]
fn sts_4_3_a_change_that_comes_late_is_made_only_to_the_pod_that_was_examined() {
    let examined = seen("web-0", "old", "v1");
    let graceful = json!({"inPlaceUpdateStrategy": {"gracePeriodSeconds": 5}, "podUpdatePolicy": "InPlaceIfPossible"});
    let at_once = change_of(&in_place(1).pod(examined.clone()));
    let noted = change_of(&advanced(1).rolling(graceful).pod(examined.clone()));
    let taken_out = || out(examined.clone());
    for (what, later, is_made) in [
        ("taken out", taken_out(), true),
        ("not taken out yet, or put back", examined.clone(), false),
        ("of another revision", out(seen("web-0", "newer", "v1")), false),
        (
            "an update is noted on it",
            taken_out().annotated(STATE, &note("old", 9).to_text()),
            false,
        ),
        (
            "its hook holds it",
            taken_out().label(names::LIFECYCLE_STATE_LABEL, "PreparingUpdate"),
            false,
        ),
        (
            "something is annotated",
            taken_out().detailed(|d| d.is_annotated = true),
            false,
        ),
    ] {
        for (body, which) in [(&at_once, "at once"), (&noted, "after a grace period")] {
            let mut pod = later.clone().build("web");
            let applied = kubelet::patch(&mut pod, PatchKind::Json, body, at(NOW));
            assert_eq!(applied.is_ok(), is_made, "{what}, {which}: {applied:?}");
        }
    }
}

#[test]
fn sts_4_3_the_end_of_a_grace_period_and_the_next_batch_are_of_the_update_that_was_examined() {
    let grace = json!({"revision": "new", "containerImages": {"main": "v2"}, "graceSeconds": 5}).to_string();
    let waits = |ago| {
        let fixture = out(seen("web-0", "new", "v1")).annotated(STATE, &note("new", ago).to_text());
        fixture.annotated(GRACE, &grace)
    };
    let body = change_of(&in_place(1).pod(waits(30)));
    let newer = out(seen("web-0", "newer", "v1")).annotated(STATE, &note("newer", 30).to_text());
    let arrived = out(seen("web-0", "new", "v2")).annotated(STATE, &note("new", 3).to_text());
    for (what, later, is_made) in [
        ("as examined", waits(30), true),
        ("the same one, begun again", waits(20), false),
        ("overtaken", newer, false),
        ("done already", arrived, false),
    ] {
        let mut pod = later.build("web");
        let applied = kubelet::patch(&mut pod, PatchKind::Json, &body, at(NOW));
        assert_eq!(applied.is_ok(), is_made, "{what}: {applied:?}");
    }
}

#[test]
fn sts_4_3_each_leaving_is_told_from_every_other() {
    let text = |now: i64| {
        let mut cluster = in_place(1).pod(seen("web-0", "old", "v1"));
        cluster.now = at(now);
        let found = patches(&cluster.decide());
        condition(&found[0].3, "InPlaceUpdateReady")["message"].clone()
    };
    assert_eq!(text(NOW), format!("to new, begun at {}", at(NOW)));
    assert_ne!(text(NOW), text(NOW + 1));
}

#[test]
fn sts_2_5_a_pod_that_is_taken_without_the_budget_is_taken_as_it_was_seen() {
    let hook = json!({"inPlaceUpdate": {"labelsHandler": {"hold": "yes"}}});
    for (what, hooked) in [("out of service", false), ("prepared", true)] {
        for ready in [true, false] {
            let fixture = seen("web-0", "old", "v1").label("hold", "yes");
            let fixture = if ready { fixture } else { fixture.unready() };
            let cluster = in_place(1);
            let cluster = if hooked {
                cluster.spec("/lifecycle", hook.clone())
            } else {
                cluster
            };
            let decision = cluster.pod(fixture.clone()).decide();
            let first = decision.commands().find_map(|c| match &c.command {
                Command::Patch { resource_version, .. } => Some(*resource_version),
                _ => None,
            });
            // It may have come up since: then it is no longer free.
            let expected = (!ready).then(|| fixture.build("web").meta.resource_version);
            assert_eq!(first, Some(expected), "{what}, ready: {ready}");
        }
    }
}

#[test]
fn sts_4_3_a_pod_that_serves_in_its_grace_period_leaves_again_and_waits_anew() {
    let graceful = json!({"podUpdatePolicy": "InPlaceIfPossible", "inPlaceUpdateStrategy": {"gracePeriodSeconds": 30}});
    let first = advanced(1)
        .rolling(graceful.clone())
        .pod(seen("web-0", "old", "v1"))
        .decide();
    let annotations = patches(&first)[1].3["metadata"]["annotations"].clone();
    let text = |key: &str| annotations[key].as_str().expect("a note").to_owned();
    // Noted, and put back by a write that came late.
    let serves = seen("web-0", "new", "v1")
        .annotated(STATE, &text(STATE))
        .annotated(GRACE, &text(GRACE));
    let mut later = advanced(1).rolling(graceful).pod(serves);
    later.now = at(NOW + 3_600);
    let found = patches(&later.decide());
    let stages: Vec<_> = found.iter().map(|(stage, ..)| *stage).collect();
    assert_eq!(stages, ["unready", "in-place"]);
    assert!(found[1].3.get("spec").is_none(), "containers are left alone");
    assert_eq!(super::state_of(&found[1].3).updated_at, at(NOW + 3_600));
}
