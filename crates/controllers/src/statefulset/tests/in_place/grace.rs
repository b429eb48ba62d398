//! The period between leaving service and the change (STS-4.3).

use super::{GRACE, STATE, in_place, note, out, patches, seen, state_of};
use crate::testing::{NOW, advanced, at, brief, template};
use flotilla_model::{Timestamp, WaitCause};
use serde_json::{Value, json};

#[test]
fn sts_4_3_the_grace_period_runs_between_out_of_service_and_the_change() {
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
fn sts_4_3_a_rollback_in_the_grace_period_restarts_nothing() {
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
fn sts_4_3_a_further_revision_does_not_lose_what_the_grace_period_kept() {
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
fn sts_4_3_a_grace_period_of_another_revision_is_dropped() {
    let grace = json!({"revision": "other", "containerImages": {"main": "v9"}, "graceSeconds": 30}).to_string();
    let decision = in_place(1)
        .pod(seen("web-0", "new", "v2").annotated(GRACE, &grace))
        .decide();
    let found = patches(&decision);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].3, json!({"metadata": {"annotations": {GRACE: null}}}));
}

/// InPlaceOnly deletes nothing: what leads nowhere is told, and the pod stays.
#[test]
fn sts_4_2_in_place_only_keeps_a_pod_whose_grace_period_cannot_be_read() {
    let lost = |policy: &str| {
        let state = json!({"revision": "new", "updateTimestamp": "2026-01-01T00:00:00Z", "lastContainerStatuses": {}});
        advanced(1)
            .rolling(json!({"podUpdatePolicy": policy, "inPlaceUpdateStrategy": {"gracePeriodSeconds": 30}}))
            .pod(
                out(seen("web-0", "new", "v1"))
                    .annotated(STATE, &state.to_string())
                    .annotated(GRACE, "{broken"),
            )
            .decide()
    };
    assert_eq!(brief(&lost("InPlaceIfPossible")), ["-web-0"]);
    let kept = lost("InPlaceOnly");
    assert_eq!(brief(&kept), [] as [&str; 0]);
    let told = |w: &flotilla_model::Wait| {
        w.subject == "web-0"
            && matches!(&w.cause, WaitCause::InPlaceNotPossible { reason } if reason.contains("cannot be read"))
    };
    assert!(kept.waits.iter().any(told), "{:?}", kept.waits);
    let status = kept.status.expect("a status").desired;
    let conditions = status["conditions"].as_array().expect("conditions");
    let failed = conditions.iter().find(|c| c["type"] == "FailedUpdatePod");
    assert_eq!(failed.map(|c| &c["reason"]), Some(&json!("InPlaceNotPossible")));
}

/// Nobody has taken it out of service: that somebody has written on it what nobody can read makes it no pod that may go for nothing.
#[test]
fn sts_2_5_and_8_19_a_pod_that_serves_with_a_note_that_cannot_be_read_goes_within_the_budget() {
    let noted = |image: &str| seen("web-1", "new", image).annotated(GRACE, "{broken");
    let other = || seen("web-0", "new", "v2");
    for (what, other, noted, expected) in [
        ("the other serves", other(), noted("v2"), &["-web-1"][..]),
        ("the other is down", other().unready(), noted("v2"), &[]),
        (
            "it is down itself, too",
            other().unready(),
            out(noted("v1")),
            &["-web-1"],
        ),
    ] {
        for set in [in_place(2), in_place(2).ordered()] {
            let is_ordered = set.set["spec"]["podManagementPolicy"] == "OrderedReady";
            let decision = set.pod(other.clone()).pod(noted.clone()).decide();
            assert_eq!(brief(&decision), expected, "{what}, in order: {is_ordered}");
        }
    }
}

/// A manager whose clock was ahead noted the begin, and another one goes on: the period is as long as asked from its first look on, and not
/// as long as the clocks differ (STS-1.5).
#[test]
fn sts_1_5_a_grace_period_that_begins_in_the_future_begins_now() {
    let grace = json!({"revision": "new", "containerImages": {"main": "v2"}, "graceSeconds": 10}).to_string();
    let noted = |text: &str| {
        out(seen("web-0", "new", "v1"))
            .annotated(STATE, text)
            .annotated(GRACE, &grace)
    };
    for ahead in [2, 3_600, 1_000_000_000] {
        let first = in_place(1).pod(noted(&note("new", -ahead).to_text())).decide();
        let found = patches(&first);
        assert_eq!(found.len(), 1, "{ahead} s: {:?}", brief(&first));
        let state = state_of(&found[0].3);
        assert_eq!(state.updated_at, at(NOW), "{ahead} s");
        assert_eq!(state.before["main"].image_id, "id-of-v1", "what was noted else stays");
        assert!(found[0].3.get("spec").is_none(), "containers are left alone");
        for (later, writes) in [(1, 0), (10, 0), (11, 1)] {
            let mut set = in_place(1).pod(noted(&state.to_text()));
            set.now = at(NOW + later);
            assert_eq!(patches(&set.decide()).len(), writes, "{later} s after the first look");
        }
    }
    let running = in_place(1).pod(noted(&note("new", 5).to_text())).decide();
    assert_eq!(brief(&running), [] as [&str; 0], "one that has begun goes on");
}
