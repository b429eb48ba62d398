//! What is noted on pods: former keys, what cannot be read, and taking up what another process began (STS-4.7 and STS-8.19).

use super::{GRACE, STATE, in_place, note, out, patches, seen, state_of};
use crate::testing::{NOW, advanced, at, brief, container_status};
use flotilla_api::names;
use flotilla_model::WaitCause;
use serde_json::{Value, json};

#[test]
fn sts_8_19_a_state_that_cannot_be_read_is_told_once_and_forgotten() {
    let cluster = in_place(1).pod(out(seen("web-0", "new", "v2")).annotated(STATE, "{nonsense"));
    let first = cluster.decide();
    assert_eq!(patches(&first).len(), 1, "back into service");
    assert_eq!(first.events.len(), 1);
    let again = cluster.hints(first.hints.clone().expect("hints")).decide();
    assert_eq!(again.events.len(), 0);
    // Also where nothing is waited for, though every pass finds it.
    let calm = in_place(1).pod(seen("web-0", "new", "v2").annotated(STATE, "{\"next"));
    let first = calm.decide();
    assert_eq!((first.events.len(), first.waits.len()), (1, 0));
    let again = calm.hints(first.hints.expect("hints")).decide();
    assert_eq!(again.events.len(), 0);
}

#[test]
fn sts_8_19_what_a_grace_period_was_for_must_be_readable() {
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
fn sts_4_7_former_keys_are_read_and_removed_on_write() {
    let legacy = names::IN_PLACE_STATE_LEGACY;
    let done = out(seen("web-0", "new", "v2")).annotated(legacy, &note("new", 30).to_text());
    let found = patches(&in_place(1).pod(done).decide());
    assert_eq!(found[0].3[1]["path"], "/metadata/annotations/inplace-update-state");
    let old = seen("web-0", "old", "v1").annotated(legacy, &note("old", 300).to_text());
    let found = patches(&in_place(1).pod(old).decide());
    let annotations = found[1].3["metadata"]["annotations"].as_object().expect("annotations");
    assert!(annotations.get(legacy).is_some_and(Value::is_null) && annotations.contains_key(STATE));
}

#[test]
fn sts_4_7_what_another_release_noted_is_kept_while_the_update_lasts() {
    let with = |text: String| text.replacen('{', r#"{"ofAnother":{"a":[1]},"#, 1);
    let state = with(note("new", 60).to_text());
    let next = state.replacen('{', r#"{"nextContainerImages":{"main":"v3"},"#, 1);
    let grace = with(json!({"revision": "new", "containerImages": {"main": "v2"}, "graceSeconds": 30}).to_string());
    let serving = || seen("web-0", "new", "v1");
    for (what, fixture, keys) in [
        (
            "the period ends",
            out(serving()).annotated(STATE, &state).annotated(GRACE, &grace),
            vec![STATE],
        ),
        (
            "it begins anew",
            serving().annotated(STATE, &state).annotated(GRACE, &grace),
            vec![STATE, GRACE],
        ),
        (
            "the next batch",
            out(seen("web-0", "new", "v2")).annotated(STATE, &next),
            vec![STATE],
        ),
    ] {
        let found = patches(&in_place(1).pod(fixture).decide());
        let written = found.iter().find(|(stage, ..)| *stage == "in-place").expect(what);
        for key in keys {
            let text = written.3["metadata"]["annotations"][key].as_str().expect(what);
            let json: Value = serde_json::from_str(text).expect(what);
            assert_eq!(json["ofAnother"], json!({"a": [1]}), "{what}: {key}");
        }
    }
    // A further update has a note of its own.
    let old = seen("web-0", "old", "v1").annotated(STATE, &with(note("old", 300).to_text()));
    let found = patches(&in_place(1).pod(old).decide());
    assert!(state_of(&found[1].3).others.is_empty());
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
        "what is not updated serves (STS-I9)"
    );
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
fn sts_2_5_a_pod_that_still_serves_in_its_update_goes_only_where_the_others_serve() {
    let waits = note("new", 5)
        .to_text()
        .replacen('{', r#"{"nextContainerImages":{"main":"v3"},"#, 1);
    let begun = || {
        seen("web-1", "new", "v2")
            .annotated(STATE, &waits)
            .label(names::SPECIFIED_DELETE_LABEL, "true")
    };
    let broken = seen("web-0", "new", "v2").never_ready();
    assert_eq!(
        brief(&in_place(2).pod(begun()).pod(seen("web-0", "new", "v2")).decide()),
        ["-web-1"]
    );
    let two_down = in_place(2).pod(begun()).pod(broken).decide();
    assert!(
        !brief(&two_down).contains(&"-web-1".to_owned()),
        "{:?}",
        brief(&two_down)
    );
}

/// Notes that can be read, and that this manager did not write: whoever may write to the pods of a set may write them. What they take out of service costs
/// what an update costs.
#[test]
fn sts_i2_notes_of_others_take_no_more_pods_out_of_service_than_the_budget_has() {
    let grace = r#"{"revision":"new","graceSeconds":5}"#.to_owned();
    let batch = note("new", 5)
        .to_text()
        .replacen('{', r#"{"nextContainerImages":{"main":"v3"},"#, 1);
    for policy in ["InPlaceIfPossible", "ReCreate"] {
        for (what, key, text) in [("a grace period", GRACE, &grace), ("a batch", STATE, &batch)] {
            let leaving = |budget: i32, down: i64| {
                let mut set = super::policy(advanced(5), policy).status("/currentRevision", json!("new"));
                set = set.spec("/updateStrategy/rollingUpdate/maxUnavailable", json!(budget));
                for ordinal in 0..5 {
                    let pod = seen(&format!("web-{ordinal}"), "new", "v2");
                    let is_down = ordinal < down;
                    set = set.pod(if is_down {
                        pod.never_ready()
                    } else {
                        pod.annotated(key, text)
                    });
                }
                let decision = set.decide();
                let out = patches(&decision)
                    .iter()
                    .filter(|(stage, ..)| *stage == "unready")
                    .count();
                let told = decision
                    .waits
                    .iter()
                    .filter(|w| matches!(w.cause, WaitCause::UpdateBudget { .. }));
                (out, told.count())
            };
            assert_eq!(leaving(1, 0), (1, 4), "{what} {policy}");
            assert_eq!(leaving(2, 0), (2, 3), "{what} {policy}");
            assert_eq!(leaving(1, 1), (0, 4), "{what} {policy}: one is down already");
            assert_eq!(leaving(2, 1), (1, 3), "{what} {policy}");
        }
    }
}

/// Under OrderedReady those behind a pod that is not available wait for it: it may not wait for them (seen: neither was made nor went on).
#[test]
fn sts_i2_under_ordered_ready_a_pod_in_the_middle_of_its_update_waits_for_none_behind_it() {
    let batch = note("new", 5)
        .to_text()
        .replacen('{', r#"{"nextContainerImages":{"main":"v3"},"#, 1);
    let noted = |name: &str| seen(name, "new", "v2").annotated(STATE, &batch);
    let set = || super::policy(advanced(3).ordered(), "InPlaceIfPossible").status("/currentRevision", json!("new"));
    let leaving = |set: crate::testing::Cluster| {
        let decision = set.decide();
        let found = patches(&decision).into_iter();
        found
            .filter(|(stage, ..)| *stage == "unready")
            .map(|(_, pod, ..)| pod)
            .collect::<Vec<_>>()
    };
    let alone = set().pod(noted("web-0")).pod(seen("web-2", "new", "v2"));
    assert_eq!(leaving(alone), ["web-0"]);
    let ended = noted("web-1").phase(flotilla_model::records::Phase::Failed);
    assert_eq!(leaving(set().pod(noted("web-0")).pod(ended)), ["web-0"]);
    let all = set().pod(noted("web-0")).pod(noted("web-1")).pod(noted("web-2"));
    assert_eq!(leaving(all), ["web-0"]);
}
