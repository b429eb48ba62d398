//! Opt-in annotations: off by default, and what each does when it is on; for native and Advanced sets alike.

use crate::testing::{Cluster, NOW, advanced, at, brief, claim, native, pod};
use flotilla_model::WaitCause;
use flotilla_model::records::Phase;
use serde_json::json;
use std::time::Duration;

const NOTHING: [&str; 0] = [];

fn both(replicas: i32) -> [Cluster; 2] {
    [advanced(replicas), native(replicas)]
}

fn old(name: &str) -> crate::testing::PodFixture {
    pod(name).revision("old")
}

#[test]
fn sts_8_1_an_old_broken_pod_is_replaced_only_by_opting_in() {
    for set in both(3) {
        let stuck = set
            .ordered()
            .pods([0], "old")
            .pod(old("web-1").unready_since(NOW - 90))
            .pods([2], "old");
        assert_eq!(brief(&stuck.decide()), NOTHING, "off by default");
        let on = stuck.annotation("flotilla.rs/unblock", "broken-first");
        assert_eq!(brief(&on.decide()), ["-web-1"]);
        assert_eq!(
            brief(
                &on.clone()
                    .annotation("flotilla.rs/unblock-after-seconds", "120")
                    .decide()
            ),
            NOTHING
        );
        assert_eq!(
            on.clone()
                .annotation("flotilla.rs/unblock-after-seconds", "120")
                .decide()
                .wake_after,
            Some(Duration::from_secs(30))
        );
        assert_eq!(
            brief(&on.clone().rolling(json!({"partition": 2})).decide()),
            NOTHING,
            "below the partition"
        );
        let mut young = on.clone();
        young.observing_since = at(NOW - 10);
        assert_eq!(
            brief(&young.decide()),
            NOTHING,
            "bad times count from when we began to watch"
        );
        let bad = on
            .clone()
            .annotation("flotilla.rs/unblock-after-seconds", "soon")
            .decide();
        assert_eq!(brief(&bad), ["-web-1"], "the default holds");
        assert_eq!(bad.events.len(), 1, "and it is told");
    }
    let paused = advanced(1)
        .ordered()
        .rolling(json!({"paused": true}))
        .pod(old("web-0").never_ready());
    assert_eq!(
        brief(&paused.annotation("flotilla.rs/unblock", "broken-first").decide()),
        NOTHING
    );
}

#[test]
fn sts_8_1_never_ready_goes_at_once_one_at_a_time_and_never_the_update_revision() {
    for set in both(3) {
        let on = set.ordered().annotation("flotilla.rs/unblock", "broken-first");
        let never = on
            .clone()
            .pod(old("web-0").never_ready().created(NOW - 3))
            .pod(old("web-1").never_ready());
        assert_eq!(brief(&never.decide()), ["-web-0"]);
        let one_goes = on
            .clone()
            .pod(old("web-0").terminating())
            .pod(old("web-1").never_ready());
        assert_eq!(brief(&one_goes.decide()), NOTHING);
        let one_has_ended = on
            .clone()
            .pod(old("web-0").never_ready())
            .pod(old("web-1").phase(Phase::Failed).terminating());
        assert_eq!(brief(&one_has_ended.decide()), NOTHING, "it is still on its way out");
        let starting = on.pod(pod("web-0").revision("new").never_ready()).pods([1], "old");
        assert_eq!(brief(&starting.decide()), NOTHING);
    }
}

#[test]
fn sts_8_1_a_pod_that_serves_is_not_broken_and_goes_only_where_the_others_serve_too() {
    for set in [
        advanced(3).rolling(json!({"minReadySeconds": 60})),
        native(3).spec("/minReadySeconds", json!(60)),
    ] {
        let on = set
            .ordered()
            .annotation("flotilla.rs/unblock", "broken-first")
            .annotation("flotilla.rs/unblock-after-seconds", "0");
        let starting = on.clone().pods([0], "old").pod(old("web-1").ready_since(NOW - 20));
        assert_eq!(brief(&starting.decide()), NOTHING, "web-2 is still to come");
        let never = on.pods([0, 2], "old").pod(old("web-1").ready_since(NOW - 20));
        assert_eq!(brief(&never.decide()), ["-web-1"], "all others serve");
    }
}

#[test]
fn sts_8_1_the_classic_walk_of_a_parallel_set_is_unblocked_too() {
    let set = native(3)
        .pod(old("web-0").unready_since(NOW - 90))
        .pods([1], "old")
        .pod(pod("web-2").revision("new").unready());
    assert_eq!(brief(&set.decide()), NOTHING);
    assert_eq!(
        brief(&set.annotation("flotilla.rs/unblock", "broken-first").decide()),
        ["-web-0"]
    );
}

#[test]
fn sts_2_6_and_8_1_recreate_lets_all_old_pods_go_before_the_first_new_one_comes() {
    for set in both(3) {
        for set in [set.clone(), set.ordered()] {
            let on = set.annotation("flotilla.rs/update-type", "Recreate");
            assert_eq!(
                brief(&on.clone().pods([0, 1, 2, 5], "old").decide()),
                ["-web-5", "-web-2", "-web-1", "-web-0"]
            );
            let broken = on.clone().pod(old("web-0").unready()).pods([1, 2], "old");
            assert_eq!(
                brief(&broken.decide()),
                ["-web-2", "-web-1", "-web-0"],
                "a broken one holds up nothing"
            );
            let ended = on.clone().pod(old("web-2").phase(Phase::Failed));
            assert_eq!(brief(&ended.decide()), ["-web-2"]);
            let left = on.clone().pod(old("web-2").terminating()).decide();
            assert_eq!(brief(&left), NOTHING);
            assert!(
                left.waits
                    .iter()
                    .any(|w| w.cause == WaitCause::OldPodsRemain { left: 1 }),
                "{:?}",
                left.waits
            );
            assert!(brief(&on.decide()).contains(&"+web-0@new".to_owned()));
        }
    }
    let declared = native(1)
        .spec("/updateStrategy/type", json!("Recreate"))
        .pods([0], "old");
    assert_eq!(brief(&declared.decide()), ["-web-0"]);
}

#[test]
fn sts_2_6_and_3_2_recreate_respects_paused() {
    let set = advanced(2)
        .annotation("flotilla.rs/update-type", "Recreate")
        .rolling(json!({"paused": true}))
        .pods(0..2, "old");
    let decision = set.decide();
    assert_eq!(brief(&decision), NOTHING);
    assert_eq!(
        decision.waits.iter().map(|w| &w.cause).collect::<Vec<_>>(),
        [&WaitCause::Paused]
    );
}

#[test]
fn sts_2_6_on_delete_holds_whatever_the_annotation_says() {
    for set in both(3) {
        let is_native = set.kind == flotilla_model::SetKind::Native;
        let on = set.annotation("flotilla.rs/update-type", "Recreate");
        let on_delete = on.clone().spec("/updateStrategy", json!({"type": "OnDelete"}));
        let decision = on_delete.clone().pods(0..3, "old").decide();
        assert_eq!(brief(&decision), NOTHING);
        assert!(decision.waits.iter().any(|w| w.cause == WaitCause::OnDelete { old: 3 }));
        let told = decision.events.iter().filter(|e| e.reason == "SwitchWithoutEffect");
        let texts: Vec<_> = told.map(|e| e.message.as_str()).collect();
        let text = "the annotation flotilla.rs/update-type does nothing with updateStrategy.type OnDelete: a pod is updated when somebody \
                    deletes it";
        // Of the others admission warns whoever sets it.
        assert_eq!(texts, if is_native { vec![text] } else { vec![] });
        // Whoever deletes one gets a new one at once.
        let lost = on_delete.pods([0, 2], "old").decide();
        assert_eq!(brief(&lost), ["+web-1@new"]);
        let rolling = on.pods(0..3, "old").decide();
        assert!(rolling.events.iter().all(|e| e.reason != "SwitchWithoutEffect"));
    }
}

#[test]
fn sts_2_6_and_i4_recreate_keeps_what_the_partition_keeps() {
    for set in both(3) {
        for set in [set.clone(), set.ordered()] {
            let on = |partition: i32| {
                let set = set.clone().annotation("flotilla.rs/update-type", "Recreate");
                set.rolling(json!({"partition": partition}))
            };
            assert_eq!(brief(&on(1).pods(0..3, "old").decide()), ["-web-2", "-web-1"]);
            let kept = on(1).pods(0..3, "old").decide();
            assert!(kept.waits.iter().any(|w| w.cause == WaitCause::Partition { kept: 1 }));
            // Those that are to go have gone: what the partition keeps is not waited for.
            let gone = brief(&on(1).pods([0], "old").decide());
            assert_eq!(gone.first().map(String::as_str), Some("+web-1@new"), "{gone:?}");
            let one_left = on(1).pods([0], "old").pod(old("web-2").terminating()).decide();
            assert_eq!(brief(&one_left), NOTHING);
            assert!(
                one_left
                    .waits
                    .iter()
                    .any(|w| w.cause == WaitCause::OldPodsRemain { left: 1 })
            );
            // What it keeps and others delete comes back as it was, whoever else is on the way out.
            let lost = on(2).pods([1], "old").pod(old("web-2").terminating()).decide();
            assert_eq!(brief(&lost), ["+web-0@old"]);
            // As `rollout pause` does it with a native set: nothing goes, and what is lost comes back.
            for all in [3, i32::MAX] {
                assert_eq!(brief(&on(all).pods(0..3, "old").decide()), NOTHING);
                assert_eq!(brief(&on(all).pods([0, 2], "old").decide()), ["+web-1@old"]);
            }
            // Also after a rollback, where the update revision is the current one and a pod of another is kept.
            let back = on(i32::MAX).status("/currentRevision", json!("new")).pods([0], "new");
            assert_eq!(brief(&back.pods([2], "old").decide()), ["+web-1@new"]);
        }
    }
}

/// Seen: all pods of the window went, and the order, which waits for the broken pod that the partition keeps, let none come back.
#[test]
fn sts_2_6_and_2_3_recreate_takes_nothing_that_the_order_could_not_make_again() {
    for set in both(4) {
        let on = |set: &Cluster| {
            let set = set.clone().annotation("flotilla.rs/update-type", "Recreate");
            set.rolling(json!({"partition": 2}))
        };
        let ordered = on(&set.clone().ordered());
        let broken = |set: &Cluster| set.clone().pod(old("web-0").unready()).pods(1..4, "old");
        for (what, set, expected) in [
            ("broken", broken(&ordered), &NOTHING[..]),
            (
                "one more, that is not wanted",
                broken(&ordered).pods([7], "old"),
                &NOTHING,
            ),
            (
                "ended",
                ordered.clone().pod(old("web-0").phase(Phase::Failed)).pods(1..4, "old"),
                &["-web-0"],
            ),
            ("missing", ordered.clone().pods([0, 2, 3], "old"), &["+web-1@old"]),
            (
                "one of the window, too",
                broken(&ordered).pod(old("web-3").unready()),
                &NOTHING,
            ),
            (
                "others have taken one",
                ordered.clone().pod(old("web-0").unready()).pods(1..3, "old"),
                &NOTHING,
            ),
            ("in order", ordered.clone().pods(0..4, "old"), &["-web-3", "-web-2"]),
            ("parallel", broken(&on(&set)), &["-web-3", "-web-2"]),
        ] {
            assert_eq!(brief(&set.decide()), expected, "{what}");
        }
        let waits = broken(&ordered).decide().waits;
        let held = waits
            .iter()
            .find(|wait| wait.subject == "web-3")
            .map(|wait| &wait.cause);
        assert_eq!(held, Some(&WaitCause::Order { behind: "web-0".into() }), "{waits:?}");
        // What has gone before is made in order, as soon as that lets it.
        let gone = |kept: crate::testing::PodFixture| ordered.clone().pod(kept).pods([1], "old").decide();
        let waits = gone(old("web-0").unready()).waits;
        let held = waits
            .iter()
            .find(|wait| wait.subject == "web-2")
            .map(|wait| &wait.cause);
        assert_eq!(held, Some(&WaitCause::Order { behind: "web-0".into() }), "{waits:?}");
        assert_eq!(brief(&gone(old("web-0"))), ["+web-2@new"]);
    }
}

#[test]
fn sts_2_6_and_3_2_recreate_keeps_as_many_as_the_partition_of_unordered_mode() {
    let set = || {
        let set = advanced(4).annotation("flotilla.rs/update-type", "Recreate");
        set.rolling(json!({"partition": 2, "unorderedUpdate": {}}))
    };
    assert_eq!(brief(&set().pods(0..4, "old").decide()), ["-web-3", "-web-2"]);
    assert_eq!(brief(&set().pods(0..2, "old").decide()), ["+web-2@new", "+web-3@new"]);
    let going = set().pods(0..2, "old").pod(old("web-3").terminating()).decide();
    assert_eq!(brief(&going), NOTHING);
    assert!(
        going
            .waits
            .iter()
            .any(|w| w.cause == WaitCause::OldPodsRemain { left: 1 })
    );
    // One that it keeps is lost: another comes in its stead, and none more goes.
    assert_eq!(
        brief(&set().pods([1], "old").pods(2..4, "new").decide()),
        ["+web-0@old"]
    );
}

#[test]
fn sts_2_6_and_3_6_a_pod_that_is_lost_while_recreate_is_paused_is_made_again_at_once() {
    let paused = |partition: i32| {
        let set = advanced(3).annotation("flotilla.rs/update-type", "Recreate");
        set.rolling(json!({"paused": true, "partition": partition}))
    };
    for (partition, revision) in [(0, "new"), (1, "new"), (2, "old"), (3, "old")] {
        let lost = paused(partition).pods([0, 2], "old").decide();
        assert_eq!(brief(&lost), [format!("+web-1@{revision}")], "partition {partition}");
        let rolling = advanced(3).rolling(json!({"paused": true, "partition": partition}));
        assert_eq!(
            brief(&rolling.pods([0, 2], "old").decide()),
            brief(&lost),
            "as a rolling update"
        );
    }
    let mut kept = paused(0)
        .annotation("flotilla.rs/paused-keeps-revision", "true")
        .pods([0, 2], "old");
    kept.hints.last_revision.insert(1, "old".into());
    assert_eq!(brief(&kept.decide()), ["+web-1@old"]);
}

#[test]
fn sts_8_3_ordered_sets_may_opt_in_to_batches() {
    for set in both(4) {
        let set = set.ordered().pods(0..4, "old");
        assert_eq!(brief(&set.decide()), ["-web-3"], "off by default");
        for (value, expected) in [
            ("2", vec!["-web-3", "-web-2"]),
            ("50%", vec!["-web-3", "-web-2"]),
            ("0", vec!["-web-3"]),
            ("many", vec!["-web-3"]),
        ] {
            let decision = set
                .clone()
                .annotation("flotilla.rs/ordered-max-unavailable", value)
                .decide();
            assert_eq!(brief(&decision), expected, "{value}");
        }
        let batch = set.annotation("flotilla.rs/ordered-max-unavailable", "2");
        let down = batch.decide();
        assert!(
            down.waits
                .iter()
                .any(|w| matches!(w.cause, WaitCause::UpdateBudget { budget: 2, .. }))
        );
    }
    let next = advanced(4)
        .ordered()
        .annotation("flotilla.rs/ordered-max-unavailable", "2")
        .pods([0, 1], "old");
    assert_eq!(brief(&next.decide()), ["+web-2@new"], "creation stays one by one");
}

#[test]
fn sts_3_6_paused_keeps_the_revision_that_a_pod_had() {
    let set = advanced(2)
        .rolling(json!({"paused": true}))
        .pods([0], "new")
        .pods([1], "old");
    let on = set.clone().annotation("flotilla.rs/paused-keeps-revision", "true");
    let hints = on.decide().hints.expect("what was seen is remembered");
    let gone = |set: Cluster| {
        advanced(2)
            .rolling(json!({"paused": true}))
            .pods([0], "new")
            .hints(set.hints)
    };
    assert_eq!(
        brief(&gone(set.clone()).decide()),
        ["+web-1@new"],
        "off by default: the partition decides"
    );
    let kept = gone(on.clone().hints(hints.clone())).annotation("flotilla.rs/paused-keeps-revision", "true");
    assert_eq!(brief(&kept.decide()), ["+web-1@old"]);
    assert_eq!(
        brief(&kept.clone().rolling(json!({"paused": false})).decide()),
        ["+web-1@new"],
        "not paused"
    );
    assert_eq!(
        brief(&kept.clone().hints(set.hints).decide()),
        ["+web-1@new"],
        "nothing remembered: the rule decides"
    );
    let fewer = on.hints(hints).spec("/replicas", json!(1)).decide();
    assert_eq!(
        fewer.hints.map(|h| h.last_revision.len()),
        Some(1),
        "what is not wanted is forgotten"
    );
}

/// While nobody asks for it nothing is noted; so what was noted before is older than the pods are, when somebody asks again.
#[test]
fn sts_3_6_what_was_noted_before_the_switch_was_off_is_forgotten() {
    let paused = || advanced(1).rolling(json!({"paused": true}));
    let on = |set: Cluster| set.annotation("flotilla.rs/paused-keeps-revision", "true");
    let noted = on(paused().pods([0], "old")).decide();
    let hints = noted.hints.expect("what was seen is remembered");
    let off = paused().pods([0], "new").hints(hints).decide();
    let hints = off.hints.expect("what was noted is forgotten");
    assert_eq!(brief(&on(paused().hints(hints)).decide()), ["+web-0@new"]);
}

/// A manager that starts looks at a new template first, and makes its revision; what it saw of the pods meanwhile counts.
#[test]
fn sts_3_6_the_revision_of_a_pod_is_known_from_the_first_look() {
    let asks = |set: Cluster| set.annotation("flotilla.rs/paused-keeps-revision", "true");
    let unrecorded = advanced(2).no_revisions().revision("old", 1, "v1");
    let first = asks(unrecorded).pods([0, 1], "old").decide();
    assert_eq!(brief(&first), ["+revision"], "nothing can be planned yet");
    let hints = first.hints.expect("what was seen is remembered");
    let gone = asks(advanced(2).rolling(json!({"paused": true})))
        .pods([0], "old")
        .hints(hints);
    assert_eq!(brief(&gone.decide()), ["+web-1@old"]);
}

/// One who was the leader before, and becomes it again, has noted what pods were then.
#[test]
fn sts_1_1_8_and_3_6_what_was_noted_long_ago_holds_no_revision() {
    let on = |set: Cluster| set.annotation("flotilla.rs/paused-keeps-revision", "true");
    let set = advanced(1)
        .no_revisions()
        .revision("older", 1, "v0")
        .revision("old", 2, "v1")
        .revision("new", 3, "v2")
        .spec("/revisionHistoryLimit", json!(1));
    let hints = on(set.clone().pods([0], "older")).decide().hints;
    let hints = hints.expect("what was seen is remembered");
    assert_eq!(
        brief(
            &on(set
                .status("/currentRevision", json!("new"))
                .pods([0], "new")
                .hints(hints))
            .decide()
        ),
        ["-revision older"]
    );
}

/// No pod has the revision at this moment, and one is being made at it.
#[test]
fn sts_1_1_8_and_3_6_what_a_pod_comes_back_at_is_not_dropped() {
    let set = advanced(2)
        .no_revisions()
        .revision("older", 1, "v0")
        .revision("old", 2, "v1")
        .revision("new", 3, "v2")
        .spec("/revisionHistoryLimit", json!(0))
        .rolling(json!({"paused": true}))
        .status("/currentRevision", json!("new"))
        .annotation("flotilla.rs/paused-keeps-revision", "true");
    let seen = set.clone().pods([0], "new").pods([1], "old").decide();
    let gone = set
        .hints(seen.hints.expect("what was seen is remembered"))
        .pods([0], "new");
    assert_eq!(brief(&gone.decide()), ["+web-1@old", "-revision older"]);
}

#[test]
fn sts_8_4_scale_down_may_opt_out_of_waiting() {
    for set in both(1) {
        let set = set.ordered().status("/currentRevision", json!("new"));
        let two_broken = set
            .clone()
            .pods([0], "new")
            .pod(pod("web-1").revision("new").unready())
            .pod(pod("web-2").revision("new").unready());
        let wanted_broken = set.pod(pod("web-0").revision("new").unready()).pods([1, 2], "new");
        for stuck in [two_broken, wanted_broken] {
            assert_eq!(brief(&stuck.decide()), NOTHING);
            let on = stuck.annotation("flotilla.rs/scale-down", "ignore-unhealthy");
            assert_eq!(brief(&on.decide()), ["-web-2"], "the highest, one at a time");
            let going = on.pod(pod("web-3").revision("new").terminating());
            assert_eq!(
                brief(&going.decide()),
                NOTHING,
                "a higher one that is still there holds it up"
            );
        }
    }
}

#[test]
fn sts_8_4_pods_that_have_ended_are_not_waited_for() {
    let ended = |name: &str| pod(name).revision("new").phase(Phase::Failed);
    let set = native(1)
        .ordered()
        .status("/currentRevision", json!("new"))
        .pods([0], "new")
        .pod(ended("web-1"))
        .pod(ended("web-2"));
    assert_eq!(brief(&set.decide()), ["-web-2"]);
}

#[test]
fn sts_3_9_labels_of_claim_templates_reach_claims_only_by_opting_in() {
    let templates =
        json!([{"metadata": {"name": "data", "labels": {"team": "a"}, "annotations": {"note": "b"}}, "spec": {}}]);
    let set = advanced(1)
        .spec("/volumeClaimTemplates", templates)
        .status("/currentRevision", json!("new"));
    let set = set
        .pod(pod("web-0").revision("new").mounts(&["data"]))
        .claim(claim("data-web-0"));
    assert_eq!(brief(&set.decide()), NOTHING);
    let on = set.annotation("flotilla.rs/claim-labels", "propagate");
    assert_eq!(brief(&on.decide()), ["~claim data-web-0"]);
    let refused = super::refused(
        on,
        flotilla_model::Scope::Slot(0),
        flotilla_model::Report::Update,
        "Forbidden",
    );
    assert_eq!(brief(&refused.decide()), NOTHING, "not repeated at once");
}

/// Of long annotations claims keep what tells them apart.
#[test]
fn sts_3_9_long_annotations_of_claim_templates_reach_claims_once() {
    let long = |end: &str| format!("{}{end}", "x".repeat(100_000));
    let wanted = long("wanted");
    let set = |has: &str| {
        let templates = json!([{"metadata": {"name": "data", "annotations": {"note": wanted}}, "spec": {}}]);
        let set = advanced(1)
            .spec("/volumeClaimTemplates", templates)
            .status("/currentRevision", json!("new"))
            .annotation("flotilla.rs/claim-labels", "propagate");
        let labelled = claim("data-web-0").annotated("note", has);
        set.pod(pod("web-0").revision("new").mounts(&["data"])).claim(labelled)
    };
    for (has, expected) in [(long("wanted"), &NOTHING[..]), (long("others"), &["~claim data-web-0"])] {
        let decision = set(&has).decide();
        let words: Vec<String> = decision
            .commands()
            .map(|scoped| format!("{:?}", scoped.command))
            .filter(|command| command.contains("note"))
            .collect();
        assert_eq!(words.len(), expected.len(), "{}", &has[has.len() - 6..]);
        assert!(
            words.iter().all(|command| command.contains(&wanted)),
            "it is written whole"
        );
    }
}

#[test]
fn a_switch_that_cannot_be_read_is_absent_and_told() {
    for (key, value) in [
        ("unblock", "yes"),
        ("unblock-after-seconds", "-1"),
        ("ordered-max-unavailable", "-2"),
        ("paused-keeps-revision", "yes"),
        ("update-type", "OnDelete"),
        ("scale-down", "fast"),
        ("claim-labels", "true"),
    ] {
        let decision = advanced(1)
            .pods([0], "new")
            .annotation(&format!("flotilla.rs/{key}"), value)
            .decide();
        assert_eq!(brief(&decision), NOTHING, "{key}");
        let conditions = decision.status.expect("a status").desired["conditions"].to_string();
        assert!(
            conditions.contains(key) && conditions.contains("InvalidSpec"),
            "{key}: {conditions}"
        );
    }
}
