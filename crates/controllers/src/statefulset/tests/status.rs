//! The status: counts, completion, conditions (STS-2.2, STS-2.8, STS-3.2, STS-3.10).

use crate::testing::{Cluster, NOW, advanced, at, brief, claim, native, pod};
use flotilla_model::records::Phase;
use flotilla_model::{Report, Scope, WaitCause};
use serde_json::{Value, json};

/// What the status would say.
fn desired(cluster: &Cluster) -> Value {
    cluster.decide().status.expect("a status").desired
}

/// The condition of a type that would be written, if any changes.
fn condition(cluster: &Cluster, kind: &str) -> Option<Value> {
    let conditions = desired(cluster).get("conditions")?.as_array()?.clone();
    conditions.into_iter().find(|c| c["type"] == kind)
}

/// The cluster with its status written.
fn written(mut cluster: Cluster) -> Cluster {
    let diff = cluster.decide().status.and_then(|s| s.diff()).unwrap_or_default();
    for (field, value) in diff.as_object().into_iter().flatten() {
        cluster = cluster.status(&format!("/{field}"), value.clone());
    }
    cluster
}

#[test]
fn sts_2_2_and_8_16_counts_are_over_all_pods_also_where_the_pass_ends_early() {
    let set = |set: Cluster| {
        let set = set
            .pods([0], "old")
            .pod(pod("web-1").revision("old").unready())
            .pod(pod("web-2").revision("new").terminating());
        set.pod(pod("web-3").revision("new").phase(Phase::Pending))
            .pod(pod("web-4").phase(Phase::None))
            .pods([9], "new")
    };
    for cluster in [
        set(advanced(5)),
        set(advanced(5).ordered()),
        set(advanced(5).spec("/template", json!(null))),
    ] {
        let status = desired(&cluster);
        for (field, expected) in [
            ("replicas", 5),
            ("readyReplicas", 3),
            ("availableReplicas", 3),
            ("currentReplicas", 2),
            ("updatedReplicas", 2),
        ] {
            assert_eq!(status[field], json!(expected), "{field}");
        }
        assert_eq!(
            (&status["updatedReadyReplicas"], &status["updatedAvailableReplicas"]),
            (&json!(2), &json!(2))
        );
        assert_eq!(status["labelSelector"], json!("app=web"));
    }
    assert_eq!(
        desired(&set(native(5))).get("updatedReadyReplicas"),
        None,
        "the native kind has no such field"
    );
}

/// Ready is what serves; available is what may be relied upon, which the lifecycle of an Advanced set decides as well (STS-1.5).
#[test]
fn sts_2_2_a_pod_that_serves_is_ready_whatever_its_lifecycle_says() {
    let hooks = json!({"preNormal": {"labelsHandler": {"held": "yes"}}});
    for state in ["PreparingNormal", "PreparingUpdate", "PreparingDelete"] {
        let held = pod("web-0")
            .revision("new")
            .label("lifecycle.apps.kruise.io/state", state);
        let status = desired(&advanced(1).spec("/lifecycle", hooks.clone()).pod(held));
        assert_eq!(status["readyReplicas"], json!(1), "{state}");
        assert_eq!(status["updatedReadyReplicas"], json!(1), "{state}");
        assert_eq!(status["availableReplicas"], json!(0), "{state}");
        assert_eq!(status["updatedAvailableReplicas"], json!(0), "{state}");
    }
    for cluster in [advanced(1).pods([0], "new"), native(1).pods([0], "new")] {
        assert_eq!(desired(&cluster)["collisionCount"], json!(0));
    }
}

#[test]
fn sts_2_2_both_counts_name_a_pod_when_both_revisions_are_one() {
    let status = desired(&advanced(2).status("/currentRevision", json!("new")).pods([0], "new"));
    assert_eq!(
        (&status["currentReplicas"], &status["updatedReplicas"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn sts_3_2_every_field_is_compared_and_what_others_wrote_stays() {
    let settled = written(
        advanced(1)
            .status("/currentRevision", json!("new"))
            .pods([0], "new")
            .status("/foreign", json!({"x": 1})),
    );
    let changes = |field: &str, value: Value| {
        settled
            .clone()
            .status(field, value)
            .decide()
            .status
            .and_then(|s| s.diff())
    };
    assert_eq!(changes("/foreign", json!(2)), None);
    for field in [
        "replicas",
        "updatedReadyReplicas",
        "updatedAvailableReplicas",
        "labelSelector",
        "observedGeneration",
    ] {
        let diff = changes(&format!("/{field}"), json!(77)).expect("a difference");
        assert_eq!(
            diff.as_object().map(|d| d.keys().collect::<Vec<_>>()),
            Some(vec![&field.to_owned()])
        );
    }
}

#[test]
fn sts_3_2_and_8_17_zeros_are_written_once_or_never() {
    // The native API stores no zero for these counts: writing one would never end.
    let empty = native(0)
        .status("/currentRevision", json!("new"))
        .status("/replicas", json!(0))
        .status("/collisionCount", json!(0))
        .status("/observedGeneration", json!(1));
    assert_eq!(
        empty
            .status("/updateRevision", json!("new"))
            .decide()
            .status
            .and_then(|s| s.diff()),
        None
    );
    let status = desired(&advanced(0));
    for field in [
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "currentReplicas",
        "updatedReplicas",
    ] {
        assert_eq!(
            status[field],
            json!(0),
            "{field} is shown in columns and required by the schema"
        );
    }
}

#[test]
fn sts_3_10_and_8_7_completion_asks_for_all_wanted_pods_updated_and_available() {
    let current = |cluster: Cluster| desired(&cluster)["currentRevision"].clone();
    let done = json!("new");
    assert_eq!(current(advanced(2).pods(0..2, "new")), done);
    assert_eq!(
        current(
            native(2)
                .spec("/updateStrategy/type", json!("OnDelete"))
                .pods(0..2, "new")
        ),
        done,
        "every strategy"
    );
    assert_eq!(
        current(
            advanced(2)
                .annotation("flotilla.rs/update-type", "Recreate")
                .pods(0..2, "new")
        ),
        done
    );
    assert_eq!(current(advanced(0)), done, "nothing wanted, nothing missing");
    for (what, cluster) in [
        ("one is missing", advanced(2).pods([0], "new")),
        ("none is there", advanced(2)),
        ("one too many", advanced(1).pods(0..2, "new")),
        (
            "one is not ready",
            advanced(2).pods([0], "new").pod(pod("web-1").revision("new").unready()),
        ),
        (
            "one is not available",
            native(2)
                .spec("/minReadySeconds", json!(30))
                .pods([0], "new")
                .pod(pod("web-1").revision("new").ready_since(NOW - 1)),
        ),
        ("one is old", advanced(2).pods([0], "new").pods([1], "old")),
        (
            "one is going",
            advanced(2)
                .pods([0], "new")
                .pod(pod("web-1").revision("new").terminating()),
        ),
        (
            "one is asked to go",
            advanced(2).pods([0], "new").pod(
                pod("web-1")
                    .revision("new")
                    .label("apps.kruise.io/specified-delete", ""),
            ),
        ),
        (
            "the partition keeps one",
            advanced(2)
                .rolling(json!({"partition": 1}))
                .pods([0], "old")
                .pods([1], "new"),
        ),
    ] {
        assert_eq!(current(cluster), json!("old"), "{what}");
    }
    let promoted = desired(&advanced(2).pods(0..2, "new"));
    assert_eq!(promoted["currentReplicas"], json!(2));
}

/// "Zero pods exist" promotes nothing that a partition holds back: back at five, the canary goes on where it was.
#[test]
fn sts_3_6_and_3_10_a_partition_holds_through_a_night_at_no_replicas() {
    let partitioned = |of: fn(i32) -> Cluster, replicas| of(replicas).rolling(json!({"partition": 4}));
    for of in [advanced, native] {
        let night = partitioned(of, 0);
        let current = desired(&night)["currentRevision"].clone();
        assert_eq!(current, json!("old"));
        let morning = partitioned(of, 5)
            .spec("/podManagementPolicy", json!("Parallel"))
            .status("/currentRevision", current);
        assert_eq!(
            brief(&morning.decide()),
            ["+web-0@old", "+web-1@old", "+web-2@old", "+web-3@old", "+web-4@new"]
        );
    }
    // It says what holds it back, and not that it goes on for ever.
    let stored = json!([{"type": "Progressing", "status": "True", "reason": "RolloutInProgress"}]);
    let told = condition(&partitioned(advanced, 0).status("/conditions", stored), "Progressing").expect("a condition");
    assert_eq!(told["reason"], json!("PartitionReached"));
    // Nothing to hold back: nothing that waits.
    let same = partitioned(advanced, 0).status("/currentRevision", json!("new"));
    assert_eq!(same.decide().waits, []);
}

#[test]
fn sts_8_7_current_replicas_counts_pods_of_the_current_revision_only() {
    let status = desired(
        &advanced(3)
            .pods([0], "old")
            .pod(pod("web-1").revision("forgotten"))
            .pods([2], "new"),
    );
    assert_eq!(
        (&status["currentReplicas"], &status["updatedReplicas"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn sts_3_2_conditions_keep_their_time_and_recover() {
    let failing = super::refused(advanced(1), Scope::Slot(0), Report::Create, "QuotaExceeded");
    let told = condition(&failing, "FailedCreatePod").expect("a condition");
    assert_eq!(
        (&told["status"], &told["reason"]),
        (&json!("True"), &json!("QuotaExceeded"))
    );
    assert!(
        told["message"]
            .as_str()
            .is_some_and(|m| m.contains("web-0") && m.contains("QuotaExceeded")),
        "{told}"
    );
    let mut later = written(failing);
    later.now = at(NOW + 30);
    assert_eq!(condition(&later, "FailedCreatePod"), None, "nothing new to say");
    later.hints.failures.clear();
    assert_eq!(
        condition(&later, "FailedCreatePod"),
        None,
        "a restart forgets failures; the condition waits for the pod"
    );
    let healed = later.status("/currentRevision", json!("new")).pods([0], "new");
    let told = condition(&healed, "FailedCreatePod").expect("a condition");
    assert_eq!(
        (&told["status"], &told["reason"]),
        (&json!("False"), &json!("Recovered"))
    );
    assert_eq!(told["lastTransitionTime"], json!(at(NOW + 30).to_string()));
}

#[test]
fn sts_3_2_a_failure_ends_when_nothing_is_wanted_there_any_more() {
    let settled = advanced(1).status("/currentRevision", json!("new"));
    let refused = |attempt| super::refused(settled.clone(), Scope::Slot(0), attempt, "Forbidden");
    let waiting = refused(Report::Create).decide();
    assert!(
        waiting.hints.is_none_or(|h| !h.failures.is_empty()),
        "the pod is still to be created"
    );
    // Whoever brought it about: the creation whose answer was lost, or a user who gave the pod back.
    for attempt in [Report::Create, Report::Delete] {
        let there = written(refused(attempt)).pods([0], "new");
        let kind = if attempt == Report::Create {
            "FailedCreatePod"
        } else {
            "FailedUpdatePod"
        };
        let told = condition(&there, kind).map_or(Value::Null, |c| c["status"].clone());
        assert_ne!(told, json!("True"), "{kind}");
        assert_eq!(there.decide().hints.map(|h| h.failures.len()), Some(0), "{kind}");
    }
}

/// Conditions of pods, adoption and claims that are taken are written in silence: no event tells of them. A webhook that refuses them holds
/// up the rollout all the same.
#[test]
fn sts_3_2_what_is_refused_without_an_event_stands_in_the_condition() {
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1});
    let set = advanced(2).rolling(rolling);
    let orphan = || set.clone().pods([0], "new").pod(pod("web-1").revision("new").orphan());
    for (what, cluster, scope, kind) in [
        (
            "pods/status",
            set.clone().pods(0..2, "old"),
            Scope::Slot(1),
            "FailedUpdatePod",
        ),
        (
            "a claim that is taken",
            set.clone().pods([0], "new"),
            Scope::Slot(1),
            "FailedCreatePod",
        ),
        (
            "an adoption",
            orphan(),
            Scope::Named("web-1".to_owned()),
            "FailedUpdatePod",
        ),
    ] {
        let refused = super::refused(cluster, scope, Report::Silent, "Forbidden");
        let told = condition(&refused, kind).map_or(Value::Null, |c| json!([c["status"], c["reason"], c["message"]]));
        assert_eq!(
            told,
            json!(["True", "Forbidden", "web-1: Forbidden: it says why"]),
            "{what}"
        );
    }
    // A pod's update does not wait for a revision that somebody keeps us from labelling.
    let revision = super::refused(
        advanced(1).pods([0], "new"),
        Scope::Named("new".to_owned()),
        Report::Silent,
        "Forbidden",
    );
    assert_eq!(condition(&revision, "FailedUpdatePod"), None);
}

#[test]
fn sts_3_2_an_edit_takes_back_what_failed() {
    let mut failing = super::refused(advanced(1), Scope::Slot(0), Report::Create, "Invalid");
    assert_eq!(brief(&failing.decide()), [] as [&str; 0]);
    failing.set["metadata"]["generation"] = json!(2);
    assert_eq!(brief(&failing.decide()), ["+web-0@new"]);
}

#[test]
fn sts_3_10_progressing_names_what_blocks_after_a_minute() {
    let stuck = |since: i64| {
        native(2)
            .ordered()
            .pod(pod("web-0").revision("old").unready_since(NOW - since))
            .pods([1], "old")
    };
    assert_eq!(condition(&stuck(59), "Progressing"), None);
    assert_eq!(
        stuck(59).decide().wake_after.map(|d| d.as_secs()),
        Some(1),
        "it is told when it is due"
    );
    let told = condition(&stuck(60), "Progressing").expect("a condition");
    assert_eq!(
        (&told["status"], &told["reason"]),
        (&json!("False"), &json!("RolloutBlocked"))
    );
    assert!(
        told["message"]
            .as_str()
            .is_some_and(|m| m.contains("web-0") && m.contains("since")),
        "{told}"
    );
    let mut restarted = stuck(600);
    restarted.observing_since = at(NOW - 5);
    assert_eq!(
        condition(&restarted, "Progressing"),
        None,
        "deadlines do not run while nobody watched"
    );
    let mut told_before = written(stuck(600));
    told_before.observing_since = at(NOW - 5);
    assert_eq!(
        condition(&told_before, "Progressing"),
        None,
        "and what was told stays told"
    );
}

#[test]
fn sts_3_10_what_is_new_has_its_own_minute_although_something_else_was_blocked() {
    let blocked = written(
        advanced(2)
            .pods([0], "old")
            .pod(pod("web-1").revision("new").unready_since(NOW - 90)),
    );
    let mut moving = advanced(2)
        .pods([1], "new")
        .pod(pod("web-0").revision("new").never_ready().created(NOW - 2));
    moving.set["status"] = blocked.set["status"].clone();
    let told = condition(&moving, "Progressing").expect("a condition");
    assert_eq!(
        (&told["status"], &told["reason"]),
        (&json!("True"), &json!("RolloutInProgress")),
        "{told}"
    );
}

#[test]
fn sts_8_15_the_status_says_when_the_partition_is_reached_and_not_before() {
    let set = |budget: i32| advanced(4).rolling(json!({"partition": 2, "maxUnavailable": budget}));
    let reached = condition(&set(1).pods([0, 1], "old").pods([2, 3], "new"), "Progressing").expect("a condition");
    assert_eq!(
        (&reached["status"], &reached["reason"]),
        (&json!("True"), &json!("PartitionReached"))
    );
    for (what, cluster) in [
        ("deleting", set(2).pods(0..4, "old")),
        ("creating", set(2).pods([0, 1], "old").pods([2], "new")),
        (
            "starting",
            set(2)
                .pods([0, 1], "old")
                .pods([2], "new")
                .pod(pod("web-3").revision("new").never_ready().created(NOW - 1)),
        ),
    ] {
        assert_eq!(condition(&cluster, "Progressing"), None, "{what}");
    }
    let nothing_kept = advanced(3)
        .rolling(json!({"partition": 2}))
        .pods([0, 1], "new")
        .pods([2], "old")
        .decide();
    assert!(
        nothing_kept
            .waits
            .iter()
            .all(|w| !matches!(w.cause, flotilla_model::WaitCause::Partition { .. })),
        "{:?}",
        nothing_kept.waits
    );
}

#[test]
fn sts_3_10_paused_on_delete_and_complete_are_told() {
    let reason = |cluster: &Cluster| condition(cluster, "Progressing").map(|c| c["reason"].clone());
    let paused = advanced(1).rolling(json!({"paused": true})).pods([0], "old");
    assert_eq!(reason(&paused), Some(json!("RolloutPaused")));
    let by_hand = advanced(1)
        .spec("/updateStrategy/type", json!("OnDelete"))
        .pods([0], "old");
    assert_eq!(reason(&by_hand), Some(json!("WaitingForUser")));
    let mut done = advanced(1).pods([0], "new");
    done.set["status"] = written(paused).set["status"].clone();
    assert_eq!(reason(&done), Some(json!("RolloutComplete")));
}

/// Pods that are at the update revision and lack the claim of a template that came later are made again still.
#[test]
fn sts_3_10_and_8_6_a_rollout_of_claim_templates_is_complete_when_all_pods_have_their_claims() {
    let before = written(advanced(1).rolling(json!({"paused": true})).pods([0], "old")).set["status"].clone();
    let reason = |mounts: &[&str]| {
        let mut set = advanced(1)
            .claim_templates(&["data", "logs"])
            .pod(pod("web-0").revision("new").mounts(mounts))
            .claim(claim("data-web-0"));
        set.set["status"] = before.clone();
        set = set.status("/currentRevision", json!("new"));
        let decision = set.decide();
        let words = brief(&decision);
        (words, condition(&set, "Progressing").map(|c| c["reason"].clone()))
    };
    let (words, told) = reason(&["data"]);
    assert_eq!(words, ["+claim logs-web-0"], "its pod goes when that is there");
    assert_eq!(told, Some(json!("RolloutInProgress")));
    assert_eq!(reason(&["data", "logs"]).1, Some(json!("RolloutComplete")));
}

/// Seen: pods that the partition keeps with the claims of a former template, at the update revision after a rollback, left the rollout in
/// progress for ever.
#[test]
fn sts_3_10_and_8_6_a_partition_that_keeps_pods_with_former_claims_is_reached() {
    let before = written(advanced(2).rolling(json!({"paused": true})).pods([0, 1], "old")).set["status"].clone();
    for strategy in [json!({"partition": 1}), json!({"partition": 1, "unorderedUpdate": {}})] {
        let mut set = advanced(2).rolling(strategy.clone()).claim_templates(&["data", "logs"]);
        set.set["status"] = before.clone();
        let set = set.status("/currentRevision", json!("new")).claim(claim("data-web-0"));
        let set = set.claim(claim("data-web-1")).claim(claim("logs-web-1"));
        let kept = pod("web-0").revision("new").mounts(&["data"]);
        let set = set
            .pod(kept)
            .pod(pod("web-1").revision("new").mounts(&["data", "logs"]));
        assert_eq!(brief(&set.decide()), [] as [&str; 0], "{strategy}");
        let told = condition(&set, "Progressing").map(|c| c["reason"].clone());
        assert_eq!(told, Some(json!("PartitionReached")), "{strategy}");
    }
}

#[test]
fn sts_i12_a_refused_revision_is_told() {
    let mut refused = super::refused(advanced(1).no_revisions(), Scope::Object, Report::Silent, "Forbidden");
    let decision = refused.decide();
    assert_eq!(brief(&decision), [] as [&str; 0]);
    assert!(decision.wake_after.is_some());
    refused.now = at(NOW + 61);
    let failure = refused.hints.failures.get_mut(&Scope::Object).expect("the failure");
    failure.retry_at = at(NOW + 90);
    let told = condition(&refused, "Progressing").expect("a condition");
    assert!(
        told["message"].as_str().is_some_and(|m| m.contains("Forbidden")),
        "{told}"
    );
}

#[test]
fn sts_i12_a_wait_without_a_time_of_its_own_is_counted_from_when_it_was_first_seen() {
    let template = json!([{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}]);
    let set = advanced(1)
        .spec("/volumeClaimTemplates", template)
        .spec("/volumeClaimUpdateStrategy/type", json!("OnPodRollingUpdate"));
    let mut set = set
        .pod(pod("web-0").revision("old").mounts(&["data"]))
        .claim(crate::testing::claim("data-web-0").class("slow"));
    let decision = set.decide();
    assert_eq!(decision.wake_after.map(|d| d.as_secs()), Some(60));
    set = set.hints(decision.hints.expect("it is remembered"));
    set.now = at(NOW + 60);
    let told = condition(&set, "Progressing").expect("a condition");
    assert!(
        told["message"].as_str().is_some_and(|m| m.contains("data-web-0")),
        "{told}"
    );
}

#[test]
fn sts_3_4_unreadable_fields_are_a_condition_that_recovers() {
    let broken = advanced(1)
        .spec("/reserveOrdinals", json!(["x"]))
        .status("/currentRevision", json!("new"))
        .pods([0], "new");
    let told = condition(&broken, "InvalidSpec").expect("a condition");
    assert!(
        told["message"]
            .as_str()
            .is_some_and(|m| m.contains("spec.reserveOrdinals[0]")),
        "{told}"
    );
    let healed = written(broken).spec("/reserveOrdinals", json!([]));
    assert_eq!(
        condition(&healed, "InvalidSpec").map(|c| c["status"].clone()),
        Some(json!("False"))
    );
}

/// Hints that the passes over one set after another leave behind, and what they tell.
fn told_in_turn(sets: impl IntoIterator<Item = Cluster>) -> (flotilla_model::Hints, Vec<String>) {
    let (mut hints, mut told) = (flotilla_model::Hints::default(), Vec::new());
    for set in sets {
        let decision = set.hints(hints.clone()).decide();
        told.extend(decision.events.into_iter().map(|note| note.message));
        hints = decision.hints.unwrap_or(hints);
    }
    (hints, told)
}

#[test]
fn r_5_what_was_told_is_forgotten_when_only_what_was_asked_for_is_waited_for() {
    // A canary that stays for long.
    let set = |n: usize| {
        let set = advanced(2).rolling(json!({"partition": 2})).pods([0, 1], "old");
        if n == 0 {
            set
        } else {
            set.annotation("flotilla.rs/unblock", &format!("value-{n}"))
        }
    };
    let (hints, _) = told_in_turn((0..2_000).map(set));
    assert_eq!(hints.reported.len(), 1, "what is so still");
    let (_, told) = told_in_turn([1, 1, 0, 1].map(set));
    assert_eq!(told.len(), 2, "told once, and anew when it is so again: {told:?}");
}

#[test]
fn r_5_what_was_told_is_bounded_while_something_is_in_the_way() {
    let set = |n: usize| {
        let set = advanced(2).pods([0], "old").pod(pod("web-1").revision("new").unready());
        set.annotation("flotilla.rs/unblock", &format!("value-{n}"))
    };
    assert!(!set(0).decide().waits.is_empty());
    let (hints, _) = told_in_turn((0..2_000).map(set));
    assert!(
        hints.reported.len() <= 65,
        "{} notes are kept for one set",
        hints.reported.len()
    );
    let (_, told) = told_in_turn([1, 2, 1].map(set));
    assert_eq!(told.len(), 2, "what comes and goes in a rollout is told once: {told:?}");
}

/// A pod whose ordinal no pod can have fills no slot, so the rollout does not wait for it; whoever made it is told.
#[test]
fn sts_1_3_4_and_3_10_a_pod_with_an_impossible_ordinal_is_told_of_and_keeps_no_rollout_from_its_end() {
    for set in [advanced(2), native(2)] {
        let too_high = || pod("web-4000000000").revision("old");
        let cluster = set.clone().pods([0, 1], "new").pod(too_high());
        let decision = cluster.decide();
        assert_eq!(brief(&decision), [] as [&str; 0], "it is never acted upon");
        let status = desired(&cluster);
        assert_eq!(
            (&status["replicas"], &status["readyReplicas"]),
            (&json!(3), &json!(3)),
            "it is counted"
        );
        assert_eq!(status["currentRevision"], "new", "all slots are up to date: {status}");
        let told: Vec<_> = decision
            .waits
            .iter()
            .map(|w| (&*w.subject, &w.cause, w.since.is_some()))
            .collect();
        let cause = WaitCause::OrdinalTooLarge {
            pods: vec!["web-4000000000".to_owned()],
        };
        assert_eq!(told, [("web-4000000000", &cause, true)]);
        let progressing = condition(&cluster, "Progressing").expect("the status tells of it");
        let message = progressing["message"].as_str().unwrap_or_default();
        assert!(message.contains("web-4000000000"), "{progressing}");
        assert_eq!(progressing["status"], "True", "nothing is in the way: {progressing}");
        // What goes is told of no more.
        let going = set.clone().pods([0, 1], "new").pod(too_high().terminating());
        assert_eq!(going.decide().waits, []);
        // Nor is an update over by it.
        let begun = set.pods([0], "new").pods([1], "old").pod(too_high());
        assert_eq!(desired(&begun)["currentRevision"], "old");
    }
}
