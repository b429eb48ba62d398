//! Filling slots and scaling down (STS-2.3, STS-2.4, STS-3.4, STS-3.5, STS-3.6).

use crate::testing::{Cluster, NOW, PodFixture, advanced, at, brief, native, pod};
use flotilla_api::names;
use flotilla_model::records::Phase;
use flotilla_model::set::IntervalSet;
use flotilla_model::{Hints, Report, Scope, Wait, WaitCause};
use serde_json::{Value, json};
use std::time::Duration;

const NOTHING: [&str; 0] = [];

fn rolled_out(cluster: Cluster) -> Cluster {
    cluster.status("/currentRevision", json!("new"))
}

#[test]
fn sts_2_3_burst_creates_all_that_are_missing() {
    assert_eq!(
        brief(&rolled_out(advanced(3)).pods([1], "new").decide()),
        ["+web-0@new", "+web-2@new"]
    );
}

#[test]
fn sts_2_3_monotonic_creates_one_and_stops() {
    for set in [native(3).ordered(), advanced(3).ordered()] {
        let set = rolled_out(set);
        assert_eq!(brief(&set.decide()), ["+web-0@new"]);
        for (what, first) in [
            ("not ready", pod("web-0").revision("new").unready()),
            ("terminating", pod("web-0").revision("new").terminating()),
            ("without a phase", pod("web-0").revision("new").phase(Phase::None)),
        ] {
            assert_eq!(brief(&set.clone().pod(first).decide()), NOTHING, "{what}");
        }
        let failed = set.clone().pod(pod("web-0").revision("new").phase(Phase::Failed));
        assert_eq!(brief(&failed.decide()), ["-web-0"]);
        assert_eq!(brief(&set.pods([0, 2], "new").decide()), ["+web-1@new"]);
    }
}

#[test]
fn sts_2_3_monotonic_scales_down_from_the_top_one_at_a_time_when_all_is_well() {
    let set = rolled_out(native(1).ordered()).pods([0], "new");
    let two = set.clone().pods([1, 2], "new");
    assert_eq!(brief(&two.decide()), ["-web-2"]);
    let going = set
        .clone()
        .pods([1], "new")
        .pod(pod("web-2").revision("new").terminating());
    assert_eq!(brief(&going.decide()), NOTHING);
    let unwell = rolled_out(native(1).ordered())
        .pod(pod("web-0").revision("new").unready())
        .pods([1, 2], "new");
    assert_eq!(brief(&unwell.decide()), NOTHING, "a wanted pod is not well");
    let one_broken = set.clone().pods([1], "new").pod(pod("web-2").revision("new").unready());
    assert_eq!(brief(&one_broken.decide()), ["-web-2"], "it is the lowest broken one");
    let two_broken = set
        .pod(pod("web-1").revision("new").unready())
        .pod(pod("web-2").revision("new").unready());
    assert_eq!(brief(&two_broken.decide()), NOTHING, "as documented; STS-8.4 is opt-in");
    assert_eq!(
        brief(&rolled_out(advanced(0)).pods(0..3, "new").decide()),
        ["-web-2", "-web-1", "-web-0"]
    );
}

#[test]
fn sts_1_7_a_scale_down_wakes_up_when_the_lower_pod_becomes_available_by_the_clock() {
    let set = rolled_out(native(0).ordered()).spec("/minReadySeconds", json!(10));
    let young = |name: &str, since: i64| pod(name).revision("new").ready_since(NOW - since);
    let decision = set.pod(young("web-0", 6)).pod(young("web-1", 1)).decide();
    assert_eq!(brief(&decision), NOTHING);
    assert_eq!(decision.wake_after, Some(Duration::from_secs(4)));
    assert!(
        decision.waits.iter().any(|w| w.subject == "web-0" && w.since.is_some()),
        "{:?}",
        decision.waits
    );
}

#[test]
fn sts_1_7_the_exact_remaining_time_is_waited_and_the_smallest_wins() {
    let set = rolled_out(advanced(3))
        .rolling(json!({"minReadySeconds": 30}))
        .pods([0], "new");
    let set = set
        .pod(pod("web-1").revision("new").ready_since(NOW - 10))
        .pod(pod("web-2").revision("new").ready_since(NOW - 25));
    assert_eq!(set.decide().wake_after, Some(Duration::from_secs(5)));
    let settled = rolled_out(advanced(1))
        .rolling(json!({"minReadySeconds": 30}))
        .pods([0], "new");
    assert_eq!(settled.decide().wake_after, None, "nothing to wait for");
}

/// Seen: `availableReplicas` stayed too low until something else happened.
#[test]
fn sts_1_5_a_pod_that_no_step_comes_to_wakes_the_set_when_it_becomes_available() {
    // Before anything is told after a minute.
    let young = |name: &str| pod(name).revision("new").ready_since(NOW - 250);
    let slow = |set: Cluster| rolled_out(set).spec("/minReadySeconds", json!(300));
    let broken = |name: &str| pod(name).revision("new").unready_since(NOW - 2000);
    let ordered = slow(native(3).ordered()).pods([1], "new").pod(young("web-2"));
    let two = slow(native(1).ordered()).pod(broken("web-0")).pod(young("web-1"));
    let unusable = slow(native(1)).pods([0], "new").pod(young("web-9999999999"));
    for (what, set) in [
        ("behind a broken one", ordered.pod(broken("web-0"))),
        ("not wanted, behind a broken one", two),
        ("its ordinal fills no slot", unusable),
        (
            "of a set that is deleted",
            slow(native(2)).pods([0], "new").pod(young("web-1")).deleted(),
        ),
    ] {
        assert_eq!(set.decide().wake_after, Some(Duration::from_secs(50)), "{what}");
    }
}

#[test]
fn sts_1_5_a_pod_whose_state_keeps_it_from_being_available_wakes_nobody() {
    let set = rolled_out(advanced(2).ordered()).rolling(json!({"minReadySeconds": 300}));
    let set = set.pod(pod("web-0").revision("new").unready_since(NOW - 2000));
    let held = pod("web-1").revision("new").ready_since(NOW - 10);
    let held = held.label(names::LIFECYCLE_STATE_LABEL, "PreparingDelete");
    assert_eq!(set.pod(held).decide().wake_after, None);
}

#[test]
fn sts_1_5_a_ready_time_in_the_future_is_just_now() {
    let set = rolled_out(native(1)).spec("/minReadySeconds", json!(10));
    let decision = set.pod(pod("web-0").revision("new").ready_since(NOW + 500)).decide();
    assert_eq!(decision.wake_after, Some(Duration::from_secs(10)));
}

#[test]
fn sts_3_5_a_failed_pod_is_replaced_although_the_budget_is_one() {
    for set in [advanced(2), advanced(2).ordered()] {
        let set = rolled_out(set)
            .spec("/scaleStrategy/maxUnavailable", json!(1))
            .pods([0], "new");
        for phase in [Phase::Failed, Phase::Succeeded] {
            let decision = set.clone().pod(pod("web-1").revision("new").phase(phase)).decide();
            assert_eq!(brief(&decision), ["-web-1"], "{phase:?}");
        }
    }
}

#[test]
fn sts_3_5_slots_emptied_by_the_update_are_no_business_of_the_scaling_budget() {
    let set = advanced(4)
        .spec("/scaleStrategy/maxUnavailable", json!(1))
        .rolling(json!({"maxUnavailable": 3}));
    let held = Hints {
        generation: 1,
        held: (0..4).collect(),
        ..Hints::default()
    };
    let set = set.pods([0], "old").pod(pod("web-1").revision("old").terminating());
    assert_eq!(brief(&set.clone().hints(held).decide()), ["+web-2@new", "+web-3@new"]);
    assert_eq!(
        brief(&set.decide()),
        ["+web-2@new"],
        "without memory: as if for the first time, one at a time"
    );
}

#[test]
fn sts_3_5_a_slot_without_memory_is_filled_although_a_pod_that_was_up_is_broken() {
    let set = rolled_out(advanced(5)).spec("/scaleStrategy/maxUnavailable", json!(1));
    let others = set.pods([0, 2, 3], "new");
    let broken = |pod: PodFixture| pod.revision("new").unready_since(NOW - 3600);
    for (what, cluster, comes) in [
        ("broken", others.clone().pod(broken(pod("web-1"))), true),
        (
            "broken and about to be taken",
            others.clone().pod(broken(pod("web-1")).orphan()),
            true,
        ),
        ("leaving", others.clone().pod(broken(pod("web-1")).terminating()), true),
        (
            "never up",
            others.clone().pod(broken(pod("web-1")).never_ready()),
            false,
        ),
        (
            "no longer ready when its hook let it in",
            others
                .clone()
                .pod(broken(pod("web-1")).annotated(names::LIFECYCLE_TIMESTAMP, &at(NOW - 3600).to_string())),
            false,
        ),
        (
            "ready, and not let in by its hook",
            others.pod(broken(pod("web-1")).label(names::LIFECYCLE_STATE_LABEL, "PreparingNormal")),
            false,
        ),
    ] {
        let said = brief(&cluster.decide());
        assert_eq!(said.contains(&"+web-4@new".to_owned()), comes, "{what}: {said:?}");
    }
}

/// Somebody else took it down before it was up; that it became ready on its way out does not count.
#[test]
fn sts_3_5_a_pod_that_became_ready_on_its_way_out_has_not_come_up() {
    let set = rolled_out(advanced(2))
        .spec("/scaleStrategy/maxUnavailable", json!(1))
        .spec("/updateStrategy/rollingUpdate/minReadySeconds", json!(3));
    let leaving = pod("web-0").revision("new").ready_since(NOW - 60).terminating();
    assert_eq!(brief(&set.pod(leaving).decide()), [] as [&str; 0]);
}

#[test]
fn sts_3_5_the_update_remembers_the_slots_that_it_empties() {
    let set = advanced(3)
        .spec("/scaleStrategy/maxUnavailable", json!(1))
        .rolling(json!({"maxUnavailable": 2}))
        .pods(0..3, "old");
    let decision = set.decide();
    assert_eq!(brief(&decision), ["-web-2", "-web-1"]);
    assert_eq!(decision.hints.expect("hints").held, IntervalSet::new([(0, 2)]));
}

#[test]
fn sts_3_5_a_pod_stuck_terminating_stops_no_other_ordinal() {
    let set = rolled_out(advanced(3)).spec("/scaleStrategy/maxUnavailable", json!(1));
    let stuck = set.pod(pod("web-0").revision("new").terminating()).pods([1], "new");
    assert_eq!(brief(&stuck.decide()), ["+web-2@new"]);
    let rolling = advanced(3)
        .rolling(json!({"maxUnavailable": 2}))
        .pod(pod("web-0").revision("old").terminating());
    assert_eq!(brief(&rolling.pods([1, 2], "old").decide()), ["-web-2"]);
}

#[test]
fn sts_3_5_each_slot_is_charged_once() {
    let set = rolled_out(advanced(4)).spec("/scaleStrategy/maxUnavailable", json!(2));
    let dying = pod("web-0").revision("new").never_ready().terminating();
    assert_eq!(brief(&set.pod(dying).pods([1], "new").decide()), ["+web-2@new"]);
}

#[test]
fn sts_3_5_a_pod_that_is_being_adopted_is_on_its_way_up_too() {
    let set = rolled_out(advanced(3)).spec("/scaleStrategy/maxUnavailable", json!(1));
    let starting = set.clone().pod(pod("web-0").revision("new").never_ready().orphan());
    assert!(!brief(&starting.decide()).iter().any(|c| c.starts_with('+')));
    let held_by_its_hook = set.clone().pod(
        pod("web-0")
            .revision("new")
            .orphan()
            .label("lifecycle.apps.kruise.io/state", "Updated"),
    );
    assert_eq!(
        brief(&held_by_its_hook.decide()),
        brief(&starting.decide()),
        "it is ready, and not let in"
    );
    let up = set.pod(pod("web-0").revision("new").orphan());
    assert!(brief(&up.decide()).iter().any(|c| c == "+web-1@new"));
}

#[test]
fn sts_3_5_what_fails_in_one_slot_concerns_no_other() {
    let set = rolled_out(advanced(3))
        .claim_templates(&["data"])
        .claim(crate::testing::claim("data-web-0").terminating());
    let quota = super::refused(
        set,
        flotilla_model::Scope::Slot(1),
        flotilla_model::Report::Create,
        "QuotaExceeded",
    );
    assert_eq!(brief(&quota.decide()), ["+claim data-web-2", "+web-2@new"]);
    let rolling = advanced(3).pods([1, 2], "old").rolling(json!({"maxUnavailable": 2}));
    let rolling = super::refused(
        rolling,
        flotilla_model::Scope::Slot(0),
        flotilla_model::Report::Create,
        "QuotaExceeded",
    );
    assert_eq!(brief(&rolling.decide()), ["-web-2"], "and the update goes on");
    assert!(rolling.decide().stages.iter().all(|s| !s.all_or_stop));
    assert!(
        native(1).ordered().decide().stages.iter().all(|s| s.all_or_stop),
        "OrderedReady stops"
    );
}

#[test]
fn sts_3_4_and_8_14_start_and_reserved_ordinals_say_who_is_wanted() {
    for (what, replicas, start, reserved, expected) in [
        (
            "the example",
            4,
            2,
            json!([1, 3]),
            vec!["+web-2@new", "+web-4@new", "+web-5@new", "+web-6@new", "-web-0"],
        ),
        (
            "ranges",
            2,
            0,
            json!(["0-2", 4]),
            vec!["+web-3@new", "+web-5@new", "-web-0"],
        ),
        ("beyond the end", 1, 0, json!([7, "9-12"]), vec![]),
        ("moved up", 1, 0, json!([0]), vec!["+web-1@new", "-web-0"]),
        (
            "overlapping",
            1,
            0,
            json!(["0-5", "3-8", 0]),
            vec!["+web-9@new", "-web-0"],
        ),
        (
            "a very wide range",
            1,
            0,
            json!(["0-999999"]),
            vec!["+web-1000000@new", "-web-0"],
        ),
    ] {
        let set = rolled_out(advanced(replicas))
            .spec("/ordinals/start", json!(start))
            .spec("/reserveOrdinals", reserved);
        assert_eq!(brief(&set.pods([0], "new").decide()), expected, "{what}");
    }
    assert_eq!(
        brief(&rolled_out(native(1)).spec("/ordinals/start", json!(5)).decide()),
        ["+web-5@new"]
    );
}

#[test]
fn sts_3_4_and_8_19_a_bad_entry_is_ignored_alone_and_nothing_is_scaled_away() {
    for bad in [
        json!("5-3"),
        json!("x"),
        json!(-1),
        json!("0-99999999"),
        json!("1-2-3"),
        json!(null),
        json!("99999999999999999999-9"),
    ] {
        let set = rolled_out(advanced(2)).spec("/reserveOrdinals", json!([bad, 1]));
        let decision = set.pods([0, 1], "new").decide();
        assert_eq!(
            brief(&decision),
            ["+web-2@new"],
            "{bad}: 1 is still reserved, and web-1 stays for now"
        );
        assert!(
            decision.waits.iter().any(
                |w| matches!(&w.cause, WaitCause::FieldUnreadable { path, .. } if path == "spec.reserveOrdinals[0]")
            )
        );
        assert_eq!(decision.events.len(), 1);
    }
    let nonsense = rolled_out(advanced(1))
        .spec("/reserveOrdinals", json!({"a": 1}))
        .pods([0, 3], "new");
    assert_eq!(brief(&nonsense.decide()), NOTHING);
}

#[test]
fn sts_3_4_nothing_is_deleted_on_the_strength_of_a_field_that_cannot_be_read() {
    let broken = |pointer: &str, value: Value| {
        let set = advanced(3).spec(pointer, value).pods([0, 1, 5], "old");
        let set = set.pod(
            pod("web-2")
                .revision("old")
                .phase(Phase::Failed)
                .label("apps.kruise.io/specified-delete", ""),
        );
        set.pod(
            pod("web-6")
                .revision("old")
                .label("apps.kruise.io/specified-delete", ""),
        )
    };
    for (pointer, value) in [
        ("/replicas", json!("three")),
        ("/replicas", json!(-3)),
        ("/ordinals/start", json!(-1)),
        ("/ordinals/start", json!("a")),
    ] {
        assert_eq!(
            brief(&broken(pointer, value.clone()).decide()),
            NOTHING,
            "{pointer} {value}"
        );
    }
    for (pointer, value) in [
        ("/selector", json!({})),
        ("/template", json!(null)),
        ("/volumeClaimTemplates", json!([{"metadata": {}}])),
    ] {
        assert_eq!(
            brief(&broken(pointer, value.clone()).decide()),
            NOTHING,
            "{pointer} {value}"
        );
    }
    for (field, value) in [
        ("partition", json!(-1)),
        ("maxUnavailable", json!("3")),
        ("maxUnavailable", json!(0)),
        ("minReadySeconds", json!("x")),
    ] {
        let set = advanced(2).rolling(json!({field: value})).pods([0], "old");
        let set = set.pod(
            pod("web-1")
                .revision("old")
                .label("apps.kruise.io/specified-delete", ""),
        );
        assert_eq!(brief(&set.decide()), NOTHING, "{field} {value}");
    }
}

#[test]
fn sts_2_4_a_bare_strategy_keeps_what_lies_below_a_pod_that_stays_old() {
    let bare = || native(4).spec("/updateStrategy/type", json!("RollingUpdate"));
    assert_eq!(
        brief(&bare().pods([0, 1], "old").decide()),
        ["+web-2@new", "+web-3@new"]
    );
    let hole = bare().pods([1, 2], "old").pods([3], "new").decide();
    assert_eq!(brief(&hole), ["+web-0@old", "-web-2"]);
    let lagging = bare().status("/currentReplicas", json!(4)).pods(0..3, "old").decide();
    assert_eq!(
        brief(&lagging),
        ["+web-3@new"],
        "a count that lags brings no pod back at the revision it was deleted for"
    );
}

#[test]
fn sts_3_6_exactly_the_lowest_keep_the_current_revision_wherever_ordinals_are_reserved() {
    let set = advanced(4)
        .spec("/reserveOrdinals", json!([0, 2]))
        .rolling(json!({"partition": 2}));
    assert_eq!(
        brief(&set.decide()),
        ["+web-1@old", "+web-3@old", "+web-4@new", "+web-5@new"]
    );
    let native_start = native(3)
        .spec("/ordinals/start", json!(5))
        .rolling(json!({"partition": 1}));
    assert_eq!(
        brief(&native_start.decide()),
        ["+web-5@old", "+web-6@new", "+web-7@new"],
        "relative to the start"
    );
    assert_eq!(
        brief(&advanced(1).spec("/updateStrategy/type", json!("OnDelete")).decide()),
        ["+web-0@new"]
    );
    let all = advanced(2).rolling(json!({"partition": 9}));
    assert_eq!(brief(&all.decide()), ["+web-0@old", "+web-1@old"]);
}

#[test]
fn sts_3_6_unordered_counts_no_pod_that_cannot_come_yet() {
    let set = || {
        advanced(3)
            .rolling(json!({"partition": 2, "unorderedUpdate": {}}))
            .pods([2], "old")
    };
    assert_eq!(brief(&set().decide()), ["+web-0@old", "+web-1@new"]);
    let waits = super::refused(set(), Scope::Slot(0), Report::Create, "Forbidden");
    assert_eq!(
        brief(&waits.decide()),
        ["+web-1@old"],
        "web-0 waits for its next attempt, and keeps no place"
    );
    let waits = waits.pods([1], "old");
    assert_eq!(brief(&waits.decide()), NOTHING);
}

#[test]
fn sts_3_6_unordered_counts_a_pod_that_is_about_to_be_taken() {
    let set = advanced(3)
        .rolling(json!({"partition": 1, "unorderedUpdate": {}}))
        .pods([2], "new");
    let orphan = |revision: &str| pod("web-0").revision(revision).orphan();
    assert_eq!(
        brief(&set.clone().pod(orphan("old")).decide()),
        ["~pod web-0", "+web-1@new"]
    );
    assert_eq!(brief(&set.pod(orphan("new")).decide()), ["~pod web-0", "+web-1@old"]);
}

#[test]
fn sts_3_6_unordered_counts_pods_that_are_not_updated() {
    let set = advanced(4).rolling(json!({"partition": 2, "unorderedUpdate": {}}));
    assert_eq!(
        brief(&set.clone().pods([3], "old").decide()),
        ["+web-0@old", "+web-1@new", "+web-2@new"]
    );
    assert_eq!(
        brief(&set.clone().pods([1, 3], "old").pods([0], "new").decide()),
        ["+web-2@new"]
    );
    assert_eq!(brief(&set.pods(0..3, "new").decide()), ["+web-3@old"]);
}

#[test]
fn sts_3_8_a_pod_that_waits_for_its_next_attempt_keeps_no_other_from_being_made_again() {
    let asked = |name: &str| pod(name).revision("new").label("apps.kruise.io/specified-delete", "");
    let set = advanced(2).rolling(json!({"maxUnavailable": 1}));
    let set = set.pod(asked("web-0")).pod(asked("web-1"));
    assert_eq!(brief(&set.clone().decide()), ["-web-1"], "the budget is 1");
    let waits = super::refused(set, Scope::Slot(1), Report::Delete, "Forbidden").decide();
    assert_eq!(brief(&waits), ["-web-0"]);
    let others = waits.waits.iter().filter(|wait| wait.subject == "web-0");
    assert_eq!(others.count(), 0, "{:?}", waits.waits);
}

/// Nobody knows how many pods the partition keeps: one that was evicted comes back as it was.
#[test]
fn sts_3_4_with_a_partition_that_cannot_be_read_no_pod_is_updated_by_an_eviction() {
    let set = || advanced(3).pods([1, 2], "old");
    assert_eq!(
        brief(&set().rolling(json!({"partition": "x"})).decide()),
        ["+web-0@old"]
    );
    assert_eq!(brief(&set().decide())[0], "+web-0@new");
}

/// All old pods go before new ones come, and one that is not wanted may not: none goes.
#[test]
fn sts_2_6_and_3_4_nothing_is_recreated_while_an_old_pod_cannot_go() {
    let unreadable = || {
        let set = advanced(3).annotation("flotilla.rs/update-type", "Recreate");
        set.spec("/reserveOrdinals", json!(["x"]))
    };
    let decision = unreadable().pods(0..4, "old").decide();
    assert_eq!(brief(&decision), [] as [&str; 0]);
    let told = |wait: &Wait| matches!(wait.cause, WaitCause::OldPodsRemain { left: 1 }) && wait.subject == "web-2";
    assert!(decision.waits.iter().any(told), "{:?}", decision.waits);
}
