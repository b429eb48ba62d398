//! Updates in place: which writes, in which stages, and in every state (rules 4.1 to 4.7, 8.12, 8.18, 8.19).

use crate::shared::inplace::state::{State as InPlaceState, whole_seconds};
use crate::testing::{Cluster, NOW, PodFixture, advanced, at, brief, container_status, pod, template};
use flotilla_api::names;
use flotilla_model::decision::{Command, PatchKind, Subresource};
use flotilla_model::records::{ContainerSpec, DetailSpec, GateCondition, ResizePending, Resources};
use flotilla_model::{Decision, Timestamp, WaitCause};
use serde_json::{Value, json};
use std::sync::Arc;

const STATE: &str = names::IN_PLACE_STATE;
const GRACE: &str = names::IN_PLACE_GRACE;

fn policy(cluster: Cluster, policy: &str) -> Cluster {
    cluster.rolling(json!({"podUpdatePolicy": policy, "maxUnavailable": 1}))
}

fn in_place(replicas: i32) -> Cluster {
    policy(advanced(replicas), "InPlaceIfPossible")
}

/// A pod of a revision with one container that runs an image.
fn seen(name: &str, revision: &str, image: &str) -> PodFixture {
    pod(name).revision(revision).detailed(|d| {
        set_image(d, image);
        d.statuses = Box::new([Some(container_status(image))]);
    })
}

fn set_image(detail: &mut flotilla_model::records::PodDetail, image: &str) {
    let spec: &mut DetailSpec = Arc::make_mut(&mut detail.spec);
    spec.containers[0].image = image.into();
}

/// Out of service, as the first write of an update leaves it.
fn out(fixture: PodFixture) -> PodFixture {
    fixture.unready().detailed(|d| {
        d.in_place_ready = Some(GateCondition {
            index: 0,
            is_true: false,
            message: "".into(),
            since: Some(at(NOW - 10)),
        });
    })
}

/// The note of an update to `revision` that began `ago` seconds ago, from image `v1`.
fn note(revision: &str, ago: i64) -> InPlaceState {
    let before = crate::shared::inplace::state::Before::of(Some(&container_status("v1")));
    InPlaceState {
        revision: revision.to_owned(),
        updated_at: at(NOW - ago),
        before: [("main".to_owned(), before)].into(),
        images: true,
        ..InPlaceState::default()
    }
}

/// Patches of a decision: stage, pod, what of it, and the body; JSON patches of the pod itself by what they set.
fn patches(decision: &Decision) -> Vec<(&'static str, String, &'static str, Value)> {
    let mut found = Vec::new();
    for stage in &decision.stages {
        for command in &stage.commands {
            if let Command::Patch {
                key, subresource, body, ..
            } = &command.command
            {
                let part = subresource.map_or("", Subresource::name);
                let body = match subresource {
                    Some(Subresource::Status) => body.clone(),
                    _ => super::kubelet::folded(body),
                };
                found.push((stage.name, key.name.to_string(), part, body));
            }
        }
    }
    found
}

fn condition<'a>(body: &'a Value, kind: &str) -> &'a Value {
    let list = body
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .expect("conditions");
    list.iter().find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

fn state_of(body: &Value) -> InPlaceState {
    let text = body["metadata"]["annotations"][STATE].as_str().expect("a state");
    InPlaceState::parse(text).expect("it can be read")
}

fn told<'d>(decision: &'d Decision, kind: &str) -> Option<&'d Value> {
    let conditions = decision.status.as_ref()?.desired.get("conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == kind)
}

#[test]
fn rule_4_3_one_pass_writes_out_of_service_and_then_the_pod() {
    let cluster = in_place(2)
        .pod(seen("web-0", "old", "v1"))
        .pod(seen("web-1", "old", "v1"));
    let decision = cluster.decide();
    let found = patches(&decision);
    let places: Vec<_> = found
        .iter()
        .map(|(stage, pod, part, _)| (*stage, pod.as_str(), *part))
        .collect();
    assert_eq!(places, [("unready", "web-1", "status"), ("in-place", "web-1", "")]);
    let unready = &found[0].3;
    assert_eq!(condition(unready, "InPlaceUpdateReady")["reason"], "StartInPlaceUpdate");
    assert_eq!(condition(unready, "InPlaceUpdateReady")["status"], "False");
    assert_eq!(condition(unready, "Ready")["reason"], "ReadinessGatesNotReady");
    let written = &found[1].3;
    assert_eq!(
        written["metadata"]["labels"],
        json!({"controller-revision-hash": "new"})
    );
    assert_eq!(written["spec"]["containers"], json!([{"name": "main", "image": "v2"}]));
    let state = state_of(written);
    assert_eq!(
        (state.revision.as_str(), state.images, state.resources),
        ("new", true, false)
    );
    assert_eq!(state.before["main"].image_id, "id-of-v1");
    assert_eq!(state.before["main"].restart_count, Some(0));
    assert!(
        decision
            .commands()
            .all(|c| matches!(&c.scope, flotilla_model::Scope::Slot(1)))
    );
}

#[test]
fn rule_4_6_a_complete_update_is_put_back_by_one_tested_write() {
    let text = note("new", 30).to_text();
    let cluster = in_place(1).pod(out(seen("web-0", "new", "v2")).annotated(STATE, &text));
    let decision = cluster.decide();
    let found = patches(&decision);
    assert_eq!(found.len(), 1, "{:?}", brief(&decision));
    let (stage, _, part, body) = &found[0];
    assert_eq!((*stage, *part), ("ready", "status"));
    let operations = body.as_array().expect("a JSON patch");
    assert_eq!(
        operations[0],
        json!({"op": "test", "path": "/metadata/annotations/apps.kruise.io~1inplace-update-state", "value": text})
    );
    assert_eq!(
        operations[1],
        json!({"op": "test", "path": "/status/conditions/0/type", "value": "InPlaceUpdateReady"})
    );
    assert_eq!(
        operations[2],
        json!({"op": "test", "path": "/status/conditions/0/lastTransitionTime", "value": whole_seconds(at(NOW - 10))})
    );
    assert_eq!(operations[3]["value"]["status"], "True");
    let all = decision.commands().map(|c| &c.command);
    let versions = all.filter(|c| {
        matches!(
            c,
            Command::Patch {
                resource_version: Some(_),
                ..
            } | Command::Patch {
                kind: PatchKind::Merge,
                ..
            }
        )
    });
    assert_eq!(
        versions.count(),
        0,
        "nothing that loses races with the kubelet, or wipes conditions"
    );
}

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
fn rule_4_3_what_puts_a_pod_back_and_comes_late_opens_no_gate_that_was_closed_again() {
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
        let applied = super::kubelet::patch(&mut pod, kind, &body, at(NOW));
        assert_eq!(applied.is_ok(), opens, "{what}: {applied:?}");
    }
}

#[test]
fn rule_4_3_the_first_that_puts_a_pod_into_service_holds_only_for_the_version_that_was_examined() {
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
fn rule_4_3_a_change_that_comes_late_is_made_only_to_the_pod_that_was_examined() {
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
            let applied = super::kubelet::patch(&mut pod, PatchKind::Json, body, at(NOW));
            assert_eq!(applied.is_ok(), is_made, "{what}, {which}: {applied:?}");
        }
    }
}

#[test]
fn rule_4_3_the_end_of_a_grace_period_and_the_next_batch_are_of_the_update_that_was_examined() {
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
        let applied = super::kubelet::patch(&mut pod, PatchKind::Json, &body, at(NOW));
        assert_eq!(applied.is_ok(), is_made, "{what}: {applied:?}");
    }
}

#[test]
fn rule_4_3_each_leaving_is_told_from_every_other() {
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
fn rule_4_6_nothing_is_written_while_the_container_has_not_restarted() {
    let waiting = out(seen("web-0", "new", "v2"))
        .detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]))
        .annotated(STATE, &note("new", 30).to_text());
    let decision = in_place(1).pod(waiting).decide();
    assert_eq!(brief(&decision), [] as [&str; 0]);
    let restart =
        |w: &&flotilla_model::Wait| matches!(&w.cause, WaitCause::InPlaceRestart { container } if container == "main");
    assert_eq!(
        decision.waits.iter().find(restart).and_then(|w| w.since),
        Some(at(NOW - 30))
    );
}

#[test]
fn rule_4_6_traps_of_completion() {
    type Change = fn(&mut flotilla_model::records::ContainerStatus);
    let rows: [(&str, Change, bool); 7] = [
        ("another image id", |s| s.image_id = "other".into(), true),
        (
            "the spec's image in another spelling",
            |s| s.image = "docker.io/library/v2:latest".into(),
            true,
        ),
        ("nothing has happened", |_| {}, false),
        (
            "an image that cannot be pulled has no id",
            |s| {
                s.image = "v2".into();
                s.image_id = "".into();
            },
            false,
        ),
        (
            "same content, restarted since, spec seen",
            |s| {
                s.restart_count = 1;
                s.started_at = Some(at(NOW - 5));
            },
            true,
        ),
        (
            "same content, restarted before",
            |s| {
                s.restart_count = 1;
                s.started_at = Some(at(NOW - 500));
            },
            false,
        ),
        (
            "same content in a new container",
            |s| {
                s.container_id = "containerd://2".into();
                s.started_at = Some(at(NOW - 5));
            },
            true,
        ),
    ];
    for (what, change, complete) in rows {
        let fixture = out(seen("web-0", "new", "v2"))
            .annotated(STATE, &note("new", 30).to_text())
            .detailed(|d| {
                let mut status = container_status("v1");
                change(&mut status);
                d.statuses = Box::new([Some(status)]);
                d.observed_generation = d.generation;
            });
        let decision = in_place(1).pod(fixture).decide();
        assert_eq!(patches(&decision).len() == 1, complete, "{what}");
    }
}

#[test]
fn rule_4_6_a_container_of_an_update_that_was_overtaken_is_not_what_is_waited_for() {
    // From v1 to v0, and to v2 before the container of v0 was there.
    let mut noted = note("new", 30);
    noted.before.get_mut("main").expect("it is noted").superseded = vec!["v0".to_owned()];
    for (what, image, id, restarts, complete) in [
        ("the old one still", "v1", "id-of-v1", 0, false),
        ("the one between", "v0", "id-of-v0", 1, false),
        ("the one asked for", "v2", "id-of-v2", 2, true),
        (
            "the one asked for, and the one between never came up",
            "v2",
            "id-of-v2",
            1,
            true,
        ),
        (
            "content of the one between under the new name",
            "v0",
            "id-of-v0",
            2,
            true,
        ),
    ] {
        let fixture = out(seen("web-0", "new", "v2"))
            .annotated(STATE, &noted.to_text())
            .detailed(|d| {
                let mut status = container_status(image);
                status.image_id = id.into();
                status.restart_count = restarts;
                status.started_at = Some(at(NOW - 5));
                d.statuses = Box::new([Some(status)]);
                d.observed_generation = d.generation;
            });
        let decision = in_place(1).pod(fixture).decide();
        assert_eq!(patches(&decision).len() == 1, complete, "{what}");
    }
}

#[test]
fn rule_4_6_an_update_that_is_overtaken_is_remembered_also_through_a_grace_period() {
    // Asked for v0, which has not come up, from v1; now the set wants v2.
    let stored = |grace: Option<&str>| {
        let fixture = out(seen("web-0", "old", "v0"))
            .detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]))
            .annotated(STATE, &note("old", 30).to_text());
        grace.map_or_else(|| fixture.clone(), |text| fixture.clone().annotated(GRACE, text))
    };
    let grace = json!({"revision": "old", "containerImages": {"main": "v9"}, "graceSeconds": 30}).to_string();
    for (what, fixture) in [("at once", stored(None)), ("in a grace period", stored(Some(&grace)))] {
        let decision = in_place(1).pod(fixture).decide();
        let found = patches(&decision);
        let (_, _, _, body) = found.iter().find(|(stage, ..)| *stage == "in-place").expect(what);
        assert_eq!(body["spec"]["containers"][0]["image"], "v2", "{what}");
        assert_eq!(state_of(body).before["main"].superseded, ["v0"], "{what}");
    }
}

#[test]
fn rule_4_6_the_node_agent_knows_better() {
    let meta = |id: &str, hash: u32| {
        json!({"containers": [{"name": "main", "containerID": id, "hashes": {"plainHash": hash}}]}).to_string()
    };
    let of = |image: &str| crate::shared::inplace::hash::container("main", image);
    for (id, hash, complete) in [
        ("containerd://1", of("v2"), true),
        ("containerd://1", of("docker.io/library/v2:latest"), true),
        ("containerd://1", of("v1"), false),
        ("containerd://0", of("v2"), false),
    ] {
        let fixture = out(seen("web-0", "new", "v2"))
            .detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]))
            .annotated(STATE, &note("new", 30).to_text())
            .annotated(names::RUNTIME_CONTAINERS_META, &meta(id, hash));
        assert_eq!(
            patches(&in_place(1).pod(fixture).decide()).len() == 1,
            complete,
            "{id} {hash}"
        );
    }
}

#[test]
fn rule_4_2_a_change_that_cannot_be_made_in_place() {
    let mut wanted = template("v2");
    wanted["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "b"}]);
    let cluster = |of: &str| {
        policy(advanced(2), of)
            .spec("/template", wanted.clone())
            .no_revisions()
            .revision("old", 1, "v1")
            .revision_of("new", 2, &wanted)
            .pod(seen("web-0", "old", "v1"))
            .pod(seen("web-1", "old", "v1"))
    };
    assert_eq!(brief(&cluster("InPlaceIfPossible").decide()), ["-web-1"]);
    let barred = cluster("InPlaceOnly").decide();
    assert_eq!(brief(&barred), [] as [&str; 0]);
    let said = barred
        .waits
        .iter()
        .filter(|w| matches!(w.cause, WaitCause::InPlaceNotPossible { .. }));
    assert_eq!(said.count(), 2, "it goes on with the others");
    let condition = told(&barred, "FailedUpdatePod").expect("a condition");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("True"), &json!("InPlaceNotPossible"))
    );
    assert!(
        condition["message"]
            .as_str()
            .is_some_and(|m| m.contains("spec.containers[0].env was added"))
    );
    assert_eq!(brief(&cluster("ReCreate").decide()), ["-web-1"]);
}

#[test]
fn rule_4_1_a_revision_that_is_gone_is_made_again() {
    assert_eq!(
        brief(&in_place(1).pod(seen("web-0", "forgotten", "v1")).decide()),
        ["-web-0"]
    );
}

#[test]
fn rule_4_3_the_grace_period_runs_between_out_of_service_and_the_change() {
    let cluster = advanced(1).rolling(json!({
        "podUpdatePolicy": "InPlaceIfPossible", "inPlaceUpdateStrategy": {"gracePeriodSeconds": 30},
    }));
    let begun = cluster.clone().pod(seen("web-0", "old", "v1")).decide();
    let found = patches(&begun);
    assert_eq!(
        found.iter().map(|(stage, ..)| *stage).collect::<Vec<_>>(),
        ["unready", "in-place"]
    );
    let body = &found[1].3;
    assert!(body.get("spec").is_none(), "containers are left alone");
    let (state, grace) = (state_of(body).to_text(), body["metadata"]["annotations"][GRACE].clone());
    let grace = grace.as_str().expect("a grace annotation").to_owned();
    let during = |millis: i64| {
        let mut c = cluster.clone().pod(
            out(seen("web-0", "new", "v1"))
                .annotated(STATE, &state)
                .annotated(GRACE, &grace),
        );
        c.now = Timestamp::from_millis(at(NOW).as_millis() + millis);
        c.decide()
    };
    let waiting = during(10_000);
    assert_eq!(brief(&waiting), [] as [&str; 0]);
    assert_eq!(waiting.wake_after, Some(std::time::Duration::from_secs(21)));
    assert!(
        waiting
            .waits
            .iter()
            .any(|w| matches!(w.cause, WaitCause::InPlaceGrace { .. }))
    );
    // That it began is written in whole seconds, cut off: begun up to a second later, it is no shorter than asked for.
    for (millis, writes) in [(0, 0), (29_999, 0), (30_000, 0), (30_999, 0), (31_000, 1), (90_000, 1)] {
        assert_eq!(patches(&during(millis)).len(), writes, "{millis} ms");
    }
    let ended = patches(&during(31_000));
    let body = &ended[0].3;
    assert_eq!(body["spec"]["containers"], json!([{"name": "main", "image": "v2"}]));
    assert_eq!(body["metadata"]["annotations"][GRACE], Value::Null);
    assert!(
        body["metadata"]["annotations"]
            .as_object()
            .is_some_and(|a| a.contains_key(GRACE))
    );
    assert_eq!(state_of(body).before["main"].image_id, "id-of-v1");
}

#[test]
fn rule_4_3_a_rollback_in_the_grace_period_restarts_nothing() {
    let grace = json!({"revision": "new", "containerImages": {"main": "v2"}, "graceSeconds": 30}).to_string();
    let waiting = out(seen("web-0", "new", "v1"))
        .annotated(STATE, &note("new", 5).to_text())
        .annotated(GRACE, &grace);
    let back = in_place(1)
        .spec("/template", template("v1"))
        .no_revisions()
        .revision("new", 2, "v2")
        .revision("old", 3, "v1")
        .pod(waiting)
        .decide();
    let found = patches(&back);
    assert_eq!(found.len(), 1, "{found:?}");
    let body = &found[0].3;
    assert_eq!(body["metadata"]["labels"]["controller-revision-hash"], "old");
    assert!(body.get("spec").is_none(), "the container never changed: {body}");
    assert!(
        body["metadata"]["annotations"]
            .as_object()
            .is_some_and(|a| a[GRACE].is_null())
    );
}

#[test]
fn rule_4_3_a_further_revision_does_not_lose_what_the_grace_period_kept() {
    // old: image v1; new: image v2; newest: image v2 and one more label. The pod says "new" and still runs v1.
    let mut newest = template("v2");
    newest["metadata"]["labels"]["tier"] = json!("b");
    let grace = json!({"revision": "new", "containerImages": {"main": "v2"}, "graceSeconds": 30}).to_string();
    let waiting = out(seen("web-0", "new", "v1"))
        .annotated(STATE, &note("new", 5).to_text())
        .annotated(GRACE, &grace);
    let decision = in_place(1)
        .spec("/template", newest.clone())
        .revision_of("newest", 3, &newest)
        .pod(waiting)
        .decide();
    let found = patches(&decision);
    let body = &found
        .iter()
        .find(|(stage, ..)| *stage == "in-place")
        .expect("a patch of the pod")
        .3;
    assert_eq!(body["spec"]["containers"], json!([{"name": "main", "image": "v2"}]));
    assert_eq!(body["metadata"]["labels"]["tier"], "b");
}

#[test]
fn rule_4_3_a_grace_period_of_another_revision_is_dropped() {
    let grace = json!({"revision": "other", "containerImages": {"main": "v9"}, "graceSeconds": 30}).to_string();
    let decision = in_place(1)
        .pod(seen("web-0", "new", "v2").annotated(GRACE, &grace))
        .decide();
    let found = patches(&decision);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].3, json!({"metadata": {"annotations": {GRACE: null}}}));
}

#[test]
fn rule_3_5_new_pods_get_their_conditions_at_once_in_every_strategy() {
    let fresh = |name: &str| {
        pod(name).revision("new").never_ready().detailed(|d| {
            d.in_place_ready = None;
            d.kruise_ready = None;
        })
    };
    for cluster in [
        advanced(1).spec("/updateStrategy/type", json!("OnDelete")),
        advanced(1).rolling(json!({"paused": true})),
        in_place(1).ordered(),
    ] {
        let found = patches(&cluster.pod(fresh("web-0")).decide());
        assert_eq!(found.len(), 1);
        for kind in ["InPlaceUpdateReady", "KruisePodReady"] {
            assert_eq!(condition(&found[0].3, kind)["status"], "True");
        }
        assert!(
            condition(&found[0].3, "Ready").is_null(),
            "that it is ready says the kubelet (8.12)"
        );
    }
}

#[test]
fn admission_2_new_pods_of_our_kinds_have_the_gate() {
    let decision = advanced(1).decide();
    let create = decision.commands().find_map(|c| match &c.command {
        Command::Create { body, .. } => Some(body.render()),
        _ => None,
    });
    let pod = create.expect("a pod is created");
    assert_eq!(
        pod["spec"]["readinessGates"],
        json!([{"conditionType": "KruisePodReady"}])
    );
    assert_eq!(pod["metadata"]["labels"].get(names::LIFECYCLE_STATE_LABEL), None);
    let native = crate::testing::native(1).decide();
    let create = native.commands().find_map(|c| match &c.command {
        Command::Create { body, .. } => Some(body.render()),
        _ => None,
    });
    assert_eq!(create.expect("a pod is created")["spec"].get("readinessGates"), None);
}

fn sized(name: &str, revision: &str, cpu: i64, actual: i64) -> PodFixture {
    let of = |millis| Resources {
        cpu_request_millis: Some(millis),
        ..Resources::default()
    };
    seen(name, revision, "v1").detailed(|d| {
        Arc::make_mut(&mut d.spec).containers[0].resources = of(cpu);
        let mut status = container_status("v1");
        status.resources = Some(of(actual));
        d.statuses = Box::new([Some(status)]);
    })
}

fn resizing(replicas: i32, policy: &str) -> Cluster {
    let with = |cpu: &str| {
        let mut t = template("v1");
        t["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        t
    };
    super::in_place::policy(advanced(replicas), policy)
        .spec("/template", with("2"))
        .no_revisions()
        .revision_of("old", 1, &with("1"))
        .revision_of("new", 2, &with("2"))
}

#[test]
fn rules_4_4_and_8_18_a_pure_resize_keeps_readiness_and_uses_no_budget() {
    let cluster = resizing(3, "InPlaceIfPossible");
    let cluster = (0..3).fold(cluster, |c, i| c.pod(sized(&format!("web-{i}"), "old", 1000, 1000)));
    let found = patches(&cluster.decide());
    let stages: Vec<_> = found.iter().map(|(stage, _, part, _)| (*stage, *part)).collect();
    assert_eq!(
        stages,
        [("in-place", ""); 3]
            .into_iter()
            .chain([("resize", "resize"); 3])
            .collect::<Vec<_>>()
    );
    assert_eq!(
        found[3].3,
        json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}})
    );
    assert!(found[0].3.get("spec").is_none() && state_of(&found[0].3).resources);
    // On its way it is available all the same.
    let state = InPlaceState {
        resources: true,
        images: false,
        before: std::collections::BTreeMap::default(),
        ..note("new", 5)
    };
    let going =
        resizing(1, "InPlaceIfPossible").pod(sized("web-0", "new", 2000, 1000).annotated(STATE, &state.to_text()));
    let decision = going.decide();
    assert_eq!(brief(&decision), [] as [&str; 0]);
    assert_eq!(
        decision.status.as_ref().map(|s| s.desired["availableReplicas"].clone()),
        Some(json!(1))
    );
    assert!(
        decision
            .waits
            .iter()
            .any(|w| matches!(w.cause, WaitCause::InPlaceResize { .. }))
    );
}

#[test]
fn rule_8_18_a_pod_that_has_its_new_resources_is_available_before_its_state_says_so() {
    let state = InPlaceState {
        resources: true,
        images: false,
        before: std::collections::BTreeMap::default(),
        ..note("old", 5)
    };
    // The next update must not take it for free.
    let pods = (0..2).map(|i| {
        let fixture = sized(&format!("web-{i}"), "old", 1000, 1000).annotated(STATE, &state.to_text());
        fixture.label(names::LIFECYCLE_STATE_LABEL, "Updating")
    });
    let decision = pods.fold(in_place(2), Cluster::pod).decide();
    let status = decision.status.as_ref().expect("a status");
    assert_eq!(status.desired["availableReplicas"], 2);
    let taken_out = patches(&decision)
        .iter()
        .filter(|(stage, ..)| *stage == "unready")
        .count();
    assert_eq!(taken_out, 1, "the budget");
}

#[test]
fn rule_4_3_a_resize_is_noted_before_and_made_until_it_is_there() {
    let found = patches(
        &resizing(1, "InPlaceIfPossible")
            .pod(sized("web-0", "old", 1000, 1000))
            .decide(),
    );
    let text = found[0].3["metadata"]["annotations"][STATE]
        .as_str()
        .expect("a note")
        .to_owned();
    assert_eq!(
        state_of(&found[0].3).next.resources["main"],
        json!({"requests": {"cpu": "2"}})
    );
    let noted = |wanted, actual| sized("web-0", "new", wanted, actual).annotated(STATE, &text);
    for (what, fixture, stages) in [
        ("the resize never came", noted(1000, 1000), vec!["in-place", "resize"]),
        ("its kubelet is at it", noted(2000, 1000), vec![]),
        ("it is there", noted(2000, 2000), vec![]),
    ] {
        let found = patches(&resizing(1, "InPlaceIfPossible").pod(fixture).decide());
        assert_eq!(
            found.iter().map(|(stage, ..)| *stage).collect::<Vec<_>>(),
            stages,
            "{what}"
        );
    }
    // Taken back before it came, or after: the old amount is asked for again.
    let mut former = template("v1");
    former["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    for wanted in [1000, 2000] {
        let back = resizing(1, "InPlaceIfPossible").pod(noted(wanted, 1000));
        let back = back.spec("/template", former.clone());
        let found = patches(&back.decide());
        let resize = found.iter().find(|(stage, ..)| *stage == "resize").expect("a resize");
        assert_eq!(resize.3["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
    }
}

#[test]
fn rule_4_4_a_resize_that_restarts_leaves_service() {
    let mut fixture = sized("web-0", "old", 1000, 1000);
    fixture = fixture.detailed(|d| Arc::make_mut(&mut d.spec).containers[0].restarts_for_cpu = true);
    let found = patches(&resizing(1, "InPlaceIfPossible").pod(fixture).decide());
    assert_eq!(
        found.iter().map(|(stage, ..)| *stage).collect::<Vec<_>>(),
        ["unready", "in-place", "resize"]
    );
}

#[test]
fn rule_4_6_a_resize_that_does_not_fit() {
    let state = InPlaceState {
        resources: true,
        images: false,
        before: std::collections::BTreeMap::default(),
        ..note("new", 5)
    };
    let pending = |is_infeasible, since| {
        sized("web-0", "new", 2000, 1000)
            .annotated(STATE, &state.to_text())
            .detailed(|d| {
                d.resize_pending = Some(ResizePending {
                    is_infeasible,
                    message: "too big".into(),
                    since: Some(at(since)),
                });
            })
    };
    let given_up = resizing(1, "InPlaceIfPossible").pod(pending(true, NOW - 5)).decide();
    assert_eq!(brief(&given_up), ["-web-0"], "made again within the budget");
    let only = resizing(1, "InPlaceOnly").pod(pending(true, NOW - 5)).decide();
    assert_eq!(brief(&only), [] as [&str; 0]);
    assert!(only.events.iter().any(|e| e.warning && e.message.contains("too big")));
    assert_eq!(
        told(&only, "FailedUpdatePod").map(|c| c["reason"].clone()),
        Some(json!("ResizeInfeasible"))
    );
    let soon = resizing(1, "InPlaceIfPossible").pod(pending(false, NOW - 5)).decide();
    assert_eq!((brief(&soon).len(), told(&soon, "InPlaceUpdateStuck")), (0, None));
    let late = resizing(1, "InPlaceIfPossible").pod(pending(false, NOW - 400)).decide();
    assert_eq!(
        told(&late, "InPlaceUpdateStuck").map(|c| c["reason"].clone()),
        Some(json!("ResizeDeferred"))
    );
}

#[test]
fn rule_8_12_the_deadline_reports_and_may_recreate() {
    let stuck = |action: &str, ago: i64| {
        let fixture = out(seen("web-0", "new", "v2"))
            .detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]))
            .annotated(STATE, &note("new", ago).to_text());
        in_place(1)
            .annotation("flotilla.rs/in-place-deadline-seconds", "60")
            .annotation("flotilla.rs/in-place-deadline-action", action)
            .pod(fixture)
    };
    let reported = stuck("report", 61).decide();
    assert_eq!(brief(&reported), [] as [&str; 0]);
    assert_eq!(
        told(&reported, "InPlaceUpdateStuck").map(|c| c["status"].clone()),
        Some(json!("True"))
    );
    assert_eq!(brief(&stuck("recreate", 61).decide()), ["-web-0"]);
    assert_eq!(
        brief(&stuck("recreate", 61).ordered().decide()),
        ["-web-0"],
        "also where it holds up the order itself"
    );
    let early = stuck("recreate", 40).decide();
    assert_eq!(
        (brief(&early).len(), early.wake_after),
        (0, Some(std::time::Duration::from_secs(20)))
    );
    let mut restarted = stuck("recreate", 61);
    restarted.observing_since = at(NOW - 10);
    assert_eq!(
        brief(&restarted.decide()),
        [] as [&str; 0],
        "deadlines do not run while nobody watched"
    );
}

#[test]
fn rule_8_19_a_state_that_cannot_be_read_is_told_once_and_forgotten() {
    let cluster = in_place(1).pod(out(seen("web-0", "new", "v2")).annotated(STATE, "{nonsense"));
    let first = cluster.decide();
    assert_eq!(patches(&first).len(), 1, "back into service");
    assert_eq!(first.events.len(), 1);
    let again = cluster.hints(first.hints.clone().expect("hints")).decide();
    assert_eq!(again.events.len(), 0);
}

#[test]
fn rule_8_19_what_a_grace_period_was_for_must_be_readable() {
    let lost = out(seen("web-0", "new", "v1"))
        .annotated(STATE, &note("new", 5).to_text())
        .annotated(GRACE, "{nonsense");
    assert_eq!(
        brief(&in_place(1).pod(lost).decide()),
        ["-web-0"],
        "nobody knows what it lacks"
    );
    let grace = json!({"revision": "new", "containerImages": {"main": "v2"}, "graceSeconds": 30}).to_string();
    let undated = out(seen("web-0", "new", "v1"))
        .annotated(STATE, "{nonsense")
        .annotated(GRACE, &grace);
    let found = patches(&in_place(1).pod(undated).decide());
    assert_eq!(found.len(), 1);
    assert_eq!(state_of(&found[0].3).updated_at, at(NOW), "the period begins anew");
}

#[test]
fn rule_4_5_batches_follow_when_containers_are_ready() {
    let two = |c: &str, s: &str| {
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
            {"name": "main", "image": c}, {"name": "side", "image": s},
        ]}})
    };
    let cluster = || {
        in_place(1)
            .spec("/template", two("v2", "v2"))
            .no_revisions()
            .revision_of("old", 1, &two("v1", "v1"))
            .revision_of("new", 2, &two("v2", "v2"))
    };
    let fixture = |revision: &str, images: [&str; 2], ready: bool| {
        pod("web-0").revision(revision).detailed(|d| {
            let spec = |name: &str, image: &str, priority| ContainerSpec {
                name: name.into(),
                image: image.into(),
                priority: Some(priority),
                ..ContainerSpec::default()
            };
            Arc::make_mut(&mut d.spec).containers = vec![spec("main", images[0], 0), spec("side", images[1], 1)];
            let mut side = container_status(images[1]);
            side.is_ready = ready;
            d.statuses = Box::new([Some(container_status(images[0])), Some(side)]);
        })
    };
    let found = patches(&cluster().pod(fixture("old", ["v1", "v1"], true)).decide());
    let body = &found[1].3;
    assert_eq!(
        body["spec"]["containers"],
        json!([{"name": "side", "image": "v2"}]),
        "the highest priority first"
    );
    let text = state_of(body).to_text();
    assert_eq!(state_of(body).next.images["main"], "v2");
    let waiting = cluster()
        .pod(out(fixture("new", ["v1", "v2"], false)).annotated(STATE, &text))
        .decide();
    assert_eq!(brief(&waiting), [] as [&str; 0]);
    assert!(
        waiting
            .waits
            .iter()
            .any(|w| matches!(&w.cause, WaitCause::InPlaceBatch { containers } if containers == &["side"]))
    );
    let next = patches(
        &cluster()
            .pod(out(fixture("new", ["v1", "v2"], true)).annotated(STATE, &text))
            .decide(),
    );
    assert_eq!(next.len(), 1);
    assert_eq!(
        next[0].3["spec"]["containers"],
        json!([{"name": "main", "image": "v2"}])
    );
    assert!(state_of(&next[0].3).next.is_empty());
}

#[test]
fn rule_4_7_former_keys_are_read_and_removed_on_write() {
    let legacy = names::IN_PLACE_STATE_LEGACY;
    let done = out(seen("web-0", "new", "v2")).annotated(legacy, &note("new", 30).to_text());
    let found = patches(&in_place(1).pod(done).decide());
    assert_eq!(found[0].3[0]["path"], "/metadata/annotations/inplace-update-state");
    let old = seen("web-0", "old", "v1").annotated(legacy, &note("old", 300).to_text());
    let found = patches(&in_place(1).pod(old).decide());
    let annotations = found[1].3["metadata"]["annotations"].as_object().expect("annotations");
    assert!(annotations.get(legacy).is_some_and(Value::is_null) && annotations.contains_key(STATE));
}

#[test]
fn keep_ready_containers_change_without_leaving_service_and_count_as_unavailable() {
    let cluster = in_place(2).annotation("flotilla.rs/keep-ready-containers", "main");
    let found = patches(
        &cluster
            .clone()
            .pod(seen("web-0", "old", "v1"))
            .pod(seen("web-1", "old", "v1"))
            .decide(),
    );
    assert_eq!(
        found
            .iter()
            .map(|(stage, pod, ..)| (*stage, pod.as_str()))
            .collect::<Vec<_>>(),
        [("in-place", "web-1")]
    );
    let text = state_of(&found[0].3).to_text();
    let going = seen("web-1", "new", "v2").detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]));
    let decision = cluster
        .pod(seen("web-0", "old", "v1"))
        .pod(going.annotated(STATE, &text))
        .decide();
    assert_eq!(brief(&decision), [] as [&str; 0], "the budget is used");
}

#[test]
fn a_crash_between_the_two_writes_is_taken_up_again() {
    let half = out(seen("web-0", "old", "v1"));
    let again = patches(&in_place(1).pod(half.clone()).decide());
    assert_eq!(
        again.iter().map(|(stage, ..)| *stage).collect::<Vec<_>>(),
        ["unready", "in-place"]
    );
    let paused = advanced(1)
        .rolling(json!({"podUpdatePolicy": "InPlaceIfPossible", "paused": true}))
        .pod(half);
    let found = patches(&paused.decide());
    assert_eq!(
        found.iter().map(|(stage, ..)| *stage).collect::<Vec<_>>(),
        ["ready"],
        "what is not updated serves (9.9)"
    );
}

#[test]
fn rule_9_8_a_settled_pod_with_a_state_is_left_alone() {
    let settled = seen("web-0", "new", "v2").annotated(STATE, &note("new", 300).to_text());
    let decision = in_place(1)
        .status("/currentRevision", json!("new"))
        .pod(settled)
        .decide();
    assert_eq!((brief(&decision).len(), decision.waits.len()), (0, 0));
}

#[test]
fn ruling_18_a_special_pod_keeps_its_resources() {
    let with = |image: &str, cpu: &str| {
        let mut t = template(image);
        t["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        t
    };
    let cluster = in_place(1)
        .spec("/template", with("v2", "2"))
        .spec("/specialPodsSelectors", json!([{"matchLabels": {"special": "1"}}]))
        .no_revisions()
        .revision_of("old", 1, &with("v1", "1"))
        .revision_of("new", 2, &with("v2", "2"))
        .pod(seen("web-0", "old", "v1").label("special", "1"));
    let found = patches(&cluster.decide());
    assert_eq!(
        found.iter().map(|(stage, ..)| *stage).collect::<Vec<_>>(),
        ["unready", "in-place"],
        "no resize"
    );
    assert!(!state_of(&found[1].3).resources);
}

/// What the Go manager left on a pod at the moment of the hand-over, and all that is left to do.
#[test]
fn hand_over_in_every_state_restarts_nothing_twice() {
    let go = |extra: &str| {
        format!(
            r#"{{"revision":"new","updateTimestamp":"1970-01-02T03:46:10Z","lastContainerStatuses":{{"main":{{"imageID":"id-of-v1"}}}}{extra}}}"#
        )
    };
    let restarted = || out(seen("web-0", "new", "v2").label(names::LIFECYCLE_STATE_LABEL, "Updating"));
    let not_yet = || restarted().detailed(|d| d.statuses = Box::new([Some(container_status("v1"))]));
    let prepared = || {
        out(seen("web-0", "new", "v1").label(names::LIFECYCLE_STATE_LABEL, "Updating")).annotated(
            GRACE,
            r#"{"revision":"new","containerImages":{"main":"v2"},"graceSeconds":10,"metaDataPatch":"eyJtZXRhZGF0YSI6eyJsYWJlbHMiOnsidGllciI6ImIifX19","oldTemplate":{"spec":{}}}"#,
        )
    };
    let null = r#"{"revision":"new","updateTimestamp":"1970-01-02T03:46:10Z","lastContainerStatuses":null}"#.to_owned();
    for (what, fixture, text, expected) in [
        (
            "restarted",
            restarted(),
            go(r#","updateImages":true"#),
            vec!["in-place", "ready"],
        ),
        ("not restarted", not_yet(), go(r#","updateImages":true"#), vec![]),
        (
            "written before there were flags",
            restarted(),
            go(""),
            vec!["in-place", "ready"],
        ),
        ("grace period over", prepared(), null.clone(), vec!["in-place"]),
        ("nothing was changed", restarted(), null, vec!["in-place", "ready"]),
        (
            "a batch to come, of the same container's resources",
            restarted(),
            go(
                r#","nextContainerResources":{"main":{"limits":{"cpu":"2"}}},"preCheckBeforeNext":{"containersRequiredReady":["main"]}"#,
            ),
            vec!["in-place", "resize"],
        ),
    ] {
        let decision = in_place(1).pod(fixture.annotated(STATE, &text)).decide();
        let found = patches(&decision);
        assert_eq!(
            found.iter().map(|(stage, ..)| *stage).collect::<Vec<_>>(),
            expected,
            "{what}"
        );
        let images = found
            .iter()
            .filter_map(|(.., body)| body.pointer("/spec/containers/0/image"))
            .count();
        assert_eq!(images, usize::from(what == "grace period over"), "{what}");
        if what == "grace period over" {
            assert_eq!(found[0].3["metadata"]["labels"]["tier"], "b");
        }
    }
}

#[test]
fn rule_4_6_environments_are_complete_when_the_agent_says_so() {
    use flotilla_model::records::MetadataEnv;
    let expected = crate::shared::inplace::hash::environment([("ROLE", "leader")]);
    let state = InPlaceState {
        env_from_metadata: true,
        images: false,
        before: std::collections::BTreeMap::default(),
        ..note("new", 5)
    };
    let fixture = |meta: Option<(&str, u32)>| {
        let fixture = out(seen("web-0", "new", "v2").label("role", "leader")).annotated(STATE, &state.to_text());
        let fixture = fixture.detailed(|d| {
            Arc::make_mut(&mut d.spec).containers[0].metadata_env = vec![MetadataEnv {
                name: "ROLE".into(),
                is_label: true,
                key: "role".into(),
            }];
        });
        match meta {
            None => fixture,
            Some((id, hash)) => {
                let hashes = json!({"plainHash": 1, "extractedEnvFromMetadataHash": hash});
                let meta = json!({"containers": [{"name": "main", "containerID": id, "hashes": hashes}]});
                fixture.annotated(names::RUNTIME_CONTAINERS_META, &meta.to_string())
            }
        }
    };
    for (what, meta, complete) in [
        ("no agent", None, false),
        ("another environment", Some(("containerd://1", expected ^ 1)), false),
        ("another container", Some(("containerd://0", expected)), false),
        ("as expected", Some(("containerd://1", expected)), true),
    ] {
        let decision = in_place(1).pod(fixture(meta)).decide();
        assert_eq!(patches(&decision).len() == 1, complete, "{what}");
        let said = decision
            .waits
            .iter()
            .any(|w| matches!(w.cause, WaitCause::InPlaceEnvironment { .. }));
        assert_eq!(said, !complete, "{what}");
    }
}

#[test]
fn rule_4_6_a_state_of_another_revision_concludes_nothing() {
    // The label is what the pod is; the note about another revision is not used, and the pod serves.
    let fixture = out(seen("web-0", "new", "v2")).annotated(STATE, &note("old", 30).to_text());
    let decision = in_place(1).pod(fixture).decide();
    assert_eq!(
        patches(&decision).iter().map(|(stage, ..)| *stage).collect::<Vec<_>>(),
        ["ready"]
    );
    assert!(decision.events.iter().any(|e| e.message.contains("revision old")));
}

#[test]
fn rule_4_3_an_old_server_gets_resources_in_the_pod_itself() {
    use crate::shared::inplace::apply::Target;
    use crate::shared::inplace::{Changes, UpdateSpec};
    let pod = seen("web-0", "old", "v1").build("web");
    let detail = pod.detail.clone().expect("a detail");
    let spec = UpdateSpec {
        changes: Changes {
            resources: [("main".to_owned(), json!({"limits": {"cpu": "2"}}))].into(),
            ..Changes::default()
        },
        ..UpdateSpec::default()
    };
    for supports_resize in [true, false] {
        let target = Target {
            pod: &pod,
            detail: &detail,
            now: at(NOW),
            supports_resize,
            is_out_of_service: false,
        };
        let writes = target.begin(note("new", 0), &spec, json!({}));
        let Command::Patch { body, .. } = &writes.pod else {
            panic!("{:?}", writes.pod)
        };
        assert_eq!(writes.resize.is_some(), supports_resize);
        let set = super::kubelet::folded(body);
        assert_eq!(set.pointer("/spec/containers/0/resources").is_some(), !supports_resize);
    }
}
