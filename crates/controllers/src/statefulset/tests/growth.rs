//! Growth of volumes whose file systems follow later, and growth that is taken back (STS-3.9, R-16 and R-35).

use super::storage::growing;
use crate::testing::{ClaimFixture, Cluster, NOW, PodFixture, at, brief, claim, container_status, pod};
use flotilla_api::names;
use flotilla_model::records::{Phase, Resources};
use flotilla_model::{Decision, WaitCause};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const NOTHING: [&str; 0] = [];

/// Two pods whose volumes have grown so many seconds ago, and whose file systems have not.
fn pending(policy: &str, ago: i64) -> Cluster {
    let pending = |name: &str| {
        let claim = claim(name).class("fast").size(20).capacity(10);
        claim.resize_pending_since(NOW - ago)
    };
    growing([pending("data-web-0"), pending("data-web-1")])
        .rolling(json!({"podUpdatePolicy": policy, "maxUnavailable": 1}))
}

fn words(decision: &Decision) -> Vec<String> {
    decision
        .waits
        .iter()
        .map(|w| format!("{}: {}", w.subject, w.cause))
        .collect()
}

fn condition(decision: &Decision, kind: &str) -> Value {
    let status = decision.status.as_ref().expect("a status");
    let conditions = status.desired["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|c| c["type"] == kind).unwrap_or_default()
}

#[test]
fn r_16_the_policy_decides_whether_a_pod_is_made_again_for_its_file_system() {
    for (policy, ago, expected) in [
        ("ReCreate", 1, vec!["-web-1"]),
        ("InPlaceIfPossible", 1, vec![]),
        ("InPlaceIfPossible", 299, vec![]),
        ("InPlaceIfPossible", 300, vec!["-web-1"]),
        ("InPlaceOnly", 1, vec![]),
        ("InPlaceOnly", 100_000, vec![]),
    ] {
        assert_eq!(
            brief(&pending(policy, ago).decide()),
            expected,
            "{policy} after {ago} s"
        );
    }
}

#[test]
fn r_16_what_a_file_system_waits_for_is_said() {
    let soon = pending("InPlaceIfPossible", 100).decide();
    let restart_at = Some(at(NOW + 200));
    let waits: Vec<_> = soon.waits.iter().map(|w| (&*w.subject, &w.cause)).collect();
    let cause = WaitCause::FileSystemPending { restart_at };
    assert_eq!(waits, [("data-web-1", &cause), ("data-web-0", &cause)]);
    assert_eq!(
        soon.wake_after,
        Some(Duration::from_secs(60)),
        "it is told after a minute"
    );
    let late = pending("InPlaceIfPossible", 200).decide();
    assert!(
        late.wake_after <= Some(Duration::from_secs(100)),
        "{:?}",
        late.wake_after
    );
    let kept = pending("InPlaceOnly", 300).decide();
    assert!(
        words(&kept)[0].contains("data-web-1 grows only when the pod is made again"),
        "{:?}",
        kept.waits
    );
    assert_eq!(condition(&kept, "FailedUpdatePod")["reason"], "InPlaceNotPossible");
    assert_eq!(
        pending("InPlaceOnly", 1).decide().waits[0].cause,
        WaitCause::FileSystemPending { restart_at: None }
    );
}

#[test]
fn r_21_a_file_system_has_its_time_while_somebody_watches() {
    let mut young = pending("InPlaceIfPossible", 100_000);
    young.observing_since = at(NOW - 10);
    assert_eq!(brief(&young.decide()), NOTHING);
}

#[test]
fn sts_3_9_a_change_without_a_restart_is_not_made_by_a_restart_without_budget() {
    let claim = |name: &str| {
        let claim = claim(name).class("fast").size(20).capacity(10);
        claim.resize_pending_since(NOW - 400)
    };
    let mut old = crate::testing::template("v2");
    old["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    let mut set = growing([claim("data-web-0"), claim("data-web-1")]).no_revisions();
    set.own_pods.clear();
    let set = set
        .revision_of("old", 1, &old)
        .revision("new", 2, "v2")
        .recording_sizes(&[10, 20]);
    let mounted = |name: &str, revision: &str| pod(name).revision(revision).mounts(&["data"]).detailed(|_| {});
    let set = set
        .rolling(json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1}))
        .pod(mounted("web-0", "old"))
        .pod(mounted("web-1", "old"));
    assert_eq!(brief(&set.decide()), ["-web-1"], "one at a time");
}

#[test]
fn r_35_a_claim_that_is_larger_than_asked_counts_as_grown() {
    let grown = |name: &str| claim(name).class("fast").size(50);
    for (what, larger) in [
        ("grown", grown("data-web-1")),
        ("still growing", grown("data-web-1").capacity(20)),
        (
            "its file system too",
            grown("data-web-1").capacity(20).resize_pending_since(NOW - 400),
        ),
    ] {
        let set = growing([claim("data-web-0").class("fast").size(20), larger]);
        for policy in ["ReCreate", "InPlaceIfPossible", "InPlaceOnly"] {
            let decision = set.clone().rolling(json!({"podUpdatePolicy": policy})).decide();
            assert_eq!(brief(&decision), NOTHING, "{what}, {policy}");
            assert_eq!(words(&decision), NOTHING, "{what}, {policy}");
            let status = decision.status.expect("a status").desired;
            assert_eq!(
                status["volumeClaims"][0]["compatibleReadyReplicas"], 2,
                "{what}, {policy}"
            );
        }
    }
}

#[test]
fn sts_3_9_growth_of_a_claim_that_is_not_bound_holds_up_nothing() {
    let claims = |is_bound: bool| {
        let grown = |name: &str| claim(name).class("fast").size(20);
        let mut set = growing([grown("data-web-0"), grown("data-web-1")]);
        let mut small = claim("data-web-1").class("fast").build();
        small.is_bound = is_bound;
        set.claims.insert("data-web-1".to_owned(), Arc::new(small));
        set
    };
    let pending = |set: Cluster| {
        set.pod(
            pod("web-1")
                .revision("old")
                .mounts(&["data"])
                .phase(Phase::Pending)
                .never_ready(),
        )
    };
    let mut set = claims(false);
    set.own_pods.retain(|p| p.name() != "web-1");
    assert_eq!(brief(&pending(set).decide()), ["-web-1"], "what would bind it goes on");
    assert_eq!(brief(&claims(false).decide()), NOTHING, "it could not be asked to grow");
    assert_eq!(
        brief(&claims(true).decide()),
        ["~claim data-web-1"],
        "it grows when it is bound"
    );
}

#[test]
fn sts_3_9_a_claim_on_its_way_out_does_not_grow_and_says_so() {
    let grown = |name: &str| claim(name).class("fast").size(20);
    let small = claim("data-web-1").class("fast");
    let pending = grown("data-web-1").capacity(10).resize_pending_since(NOW - 50);
    for (state, found) in [("too small", small), ("file system pending", pending)] {
        let mut set = growing([grown("data-web-0"), grown("data-web-1")]);
        let mut found = found.build();
        found.meta.deleted = Some(at(NOW - 100));
        set.claims.insert("data-web-1".to_owned(), Arc::new(found));
        let decision = set.decide();
        assert_eq!(
            brief(&decision),
            NOTHING,
            "{state}: its pod runs, and it goes with the pod"
        );
        let waits: Vec<_> = decision.waits.iter().map(|w| (&*w.subject, &w.cause)).collect();
        assert_eq!(waits, [("data-web-1", &WaitCause::CLAIM_TERMINATING)], "{state}");
    }
}

/// Seen: beside a change that needs no restart all claims were asked to grow at once, which cannot be taken back.
#[test]
fn sts_3_9_growth_keeps_the_budget_also_beside_a_change_without_a_restart() {
    let with = |cpu: &str| {
        let mut template = crate::testing::template("v2");
        template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        template
    };
    let small = |name: &str| claim(name).class("fast");
    let set = |new: &str, claims| {
        let mut set = growing(claims).no_revisions().spec("/template", with(new));
        set.own_pods.clear();
        let of = Resources {
            cpu_request_millis: Some(1000),
            ..Resources::default()
        };
        let sized = |name: &str| {
            pod(name).revision("old").mounts(&["data"]).detailed(|d| {
                Arc::make_mut(&mut d.spec).containers[0].resources = of;
                let mut status = container_status("v2");
                status.resources = Some(of);
                d.statuses = Box::new([Some(status)]);
            })
        };
        let set = set
            .rolling(json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1}))
            .revision_of("old", 1, &with("1"))
            .pod(sized("web-0"))
            .pod(sized("web-1"));
        let set = if new == "1" {
            set
        } else {
            set.revision_of("new", 2, &with(new))
        };
        set.recording_sizes(&[10, 20])
    };
    for (what, cpu) in [("size alone", "1"), ("size and resources", "2")] {
        let before = set(cpu, [small("data-web-0"), small("data-web-1")]);
        assert_eq!(brief(&before.decide()), ["~claim data-web-1"], "{what}: one at a time");
        let growing = small("data-web-1").size(20).capacity(10);
        let under_way = set(cpu, [small("data-web-0"), growing]);
        assert_eq!(brief(&under_way.decide()), NOTHING, "{what}: the next waits for it");
    }
    let grown = set("2", [small("data-web-0"), small("data-web-1").size(20)]);
    assert_eq!(
        brief(&grown.decide()),
        ["~claim data-web-0", "~pod web-1", "~pod web-1"],
        "who has grown is changed at once, which costs nothing: a note, and the resources"
    );
}

/// Two pods, of which the second is not ready, or waits for its hook, and whose claims may have to grow. Nobody waits for a minute.
fn held_up(ordered: bool, second: PodFixture, claims: [ClaimFixture; 2]) -> Cluster {
    let mut set = growing(claims).rolling(json!({"podUpdatePolicy": "InPlaceIfPossible"}));
    set.own_pods.clear();
    let set = set
        .annotation("flotilla.rs/unblock", "broken-first")
        .annotation("flotilla.rs/unblock-after-seconds", "0")
        .pod(pod("web-0").revision("new").mounts(&["data"]))
        .pod(second.mounts(&["data"]));
    if ordered { set.ordered() } else { set }
}

/// Seen: a pod whose disk was full was made again with that disk, and nothing grew any more.
#[test]
fn sts_8_1_claims_grow_before_a_broken_pod_goes() {
    let small = |name: &str| claim(name).class("fast");
    let grown = |name: &str| small(name).size(20);
    let broken = |revision: &str| pod("web-1").revision(revision).unready();
    for (what, second, found, expected) in [
        ("old", broken("old"), small("data-web-1"), vec!["~claim data-web-1"]),
        ("old, growing", broken("old"), grown("data-web-1").capacity(10), vec![]),
        ("old, grown", broken("old"), grown("data-web-1"), vec!["-web-1"]),
        ("new", broken("new"), small("data-web-1"), vec!["~claim data-web-1"]),
        ("new, growing", broken("new"), grown("data-web-1").capacity(10), vec![]),
        ("new, grown", broken("new"), grown("data-web-1"), vec![]),
    ] {
        for ordered in [true, false] {
            let set = held_up(ordered, second.clone(), [grown("data-web-0"), found.clone()]);
            assert_eq!(brief(&set.decide()), expected, "{what}, ordered: {ordered}");
        }
    }
    let pending = grown("data-web-1").capacity(10).resize_pending_since(NOW - 400);
    let set = held_up(true, broken("new"), [grown("data-web-0"), pending]);
    assert_eq!(brief(&set.decide()), NOTHING, "it may just be starting");
}

#[test]
fn sts_3_7_claims_grow_before_a_prepared_pod_goes_on() {
    let small = |name: &str| claim(name).class("fast");
    let prepared = pod("web-1").revision("old").detailed(|_| {});
    let prepared = prepared.label(names::LIFECYCLE_STATE_LABEL, "PreparingUpdate");
    for ordered in [true, false] {
        let set = held_up(
            ordered,
            prepared.clone(),
            [small("data-web-0").size(20), small("data-web-1")],
        );
        let set = set.spec(
            "/lifecycle",
            json!({"inPlaceUpdate": {"labelsHandler": {"hold": "yes"}}}),
        );
        // The pod serves until they have.
        let expected = ["~claim data-web-1", "~pod web-1"];
        assert_eq!(brief(&set.decide()), expected, "ordered: {ordered}");
    }
}

/// Seen: nothing was said, and Progressing told that the rollout was complete.
#[test]
fn sts_i12_growth_that_is_held_back_is_said() {
    let small = |name: &str| claim(name).class("fast");
    let growing_now = |name: &str| small(name).size(20).capacity(10);
    let pending = |name: &str| growing_now(name).resize_pending_since(NOW - 400);
    let under_way = json!([{"type": "Progressing", "status": "True", "reason": "RolloutInProgress"}]);
    let paused = json!({"type": "RollingUpdate", "rollingUpdate": {"paused": true}});
    let kept = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
    for (strategy, wait, reason) in [
        (paused, "web: the update is paused", "RolloutPaused"),
        (
            json!({"type": "OnDelete"}),
            "web: 2 with claims that follow their templates only in a rolling update",
            "WaitingForUser",
        ),
        (
            kept,
            "web: the partition keeps 2 on the old revision",
            "PartitionReached",
        ),
    ] {
        let set = |claims| {
            let set = growing(claims).status("/currentRevision", json!("new"));
            set.status("/conditions", under_way.clone())
                .spec("/updateStrategy", strategy.clone())
        };
        for (what, claims) in [
            ("small", [small("data-web-0"), small("data-web-1")]),
            ("growing", [growing_now("data-web-0"), growing_now("data-web-1")]),
            ("file systems", [pending("data-web-0"), pending("data-web-1")]),
        ] {
            let decision = set(claims).decide();
            assert_eq!(brief(&decision), NOTHING, "{what}: {wait}");
            assert_eq!(words(&decision), [wait], "{what}");
            assert_eq!(condition(&decision, "Progressing")["reason"], reason, "{what}");
        }
        let grown = |name: &str| small(name).size(20);
        let over = set([grown("data-web-0"), grown("data-web-1")]).decide();
        assert_eq!(words(&over), NOTHING, "{strategy}");
        assert_eq!(
            condition(&over, "Progressing")["reason"],
            "RolloutComplete",
            "{strategy}"
        );
    }
}

/// Two pods of a revision, whose claims have to grow, in a set whose pods all go at once.
fn recreating(revision: &str, claims: [ClaimFixture; 2]) -> Cluster {
    let mut set = growing(claims).annotation("flotilla.rs/update-type", "Recreate");
    set.own_pods.clear();
    let mounted = |name: &str| pod(name).revision(revision).mounts(&["data"]);
    set.pod(mounted("web-0")).pod(mounted("web-1"))
}

/// Seen: pods were made again with the claims as they were, and nothing asked these to grow.
#[test]
fn sts_2_6_claims_grow_before_all_pods_go() {
    let small = |name: &str| claim(name).class("fast");
    let grown = |name: &str| small(name).size(20);
    let slow = |name: &str| claim(name).class("slow");
    for (what, first, second, expected, waits) in [
        (
            "small",
            small("data-web-0"),
            small("data-web-1"),
            vec!["~claim data-web-0", "~claim data-web-1"],
            vec![],
        ),
        (
            "one is growing",
            grown("data-web-0"),
            grown("data-web-1").capacity(10),
            vec![],
            vec!["data-web-1: the claim is being expanded"],
        ),
        (
            "one cannot grow, and no pod could come before its pod has gone",
            grown("data-web-0"),
            slow("data-web-1"),
            vec![],
            vec!["data-web-1: the claim cannot follow its template: storage class slow does not allow expansion"],
        ),
        (
            "grown",
            grown("data-web-0"),
            grown("data-web-1"),
            vec!["-web-1", "-web-0"],
            vec![],
        ),
    ] {
        for set in [
            recreating("old", [first.clone(), second.clone()]),
            recreating("old", [first, second]).ordered(),
        ] {
            let decision = set.decide();
            assert_eq!(brief(&decision), expected, "{what}");
            assert_eq!(words(&decision), waits, "{what}");
        }
    }
    let kept = recreating("old", [small("data-web-0"), small("data-web-1")]).rolling(json!({"partition": 1}));
    assert_eq!(brief(&kept.decide()), ["~claim data-web-1"]);
}

#[test]
fn sts_2_6_where_no_pod_is_old_claims_grow_as_in_a_rolling_update() {
    let small = |name: &str| claim(name).class("fast");
    let grown = |name: &str| small(name).size(20);
    let pending = |name: &str| grown(name).capacity(10).resize_pending_since(NOW - 400);
    for ordered in [true, false] {
        let set = |claims| {
            let set = recreating("new", claims).status("/currentRevision", json!("new"));
            if ordered { set.ordered() } else { set }
        };
        for (what, claims, expected) in [
            (
                "small",
                [small("data-web-0"), small("data-web-1")],
                vec!["~claim data-web-1"],
            ),
            (
                "one is growing",
                [small("data-web-0"), grown("data-web-1").capacity(10)],
                vec![],
            ),
            (
                "one has grown",
                [small("data-web-0"), grown("data-web-1")],
                vec!["~claim data-web-0"],
            ),
            (
                "file systems",
                [pending("data-web-0"), pending("data-web-1")],
                vec!["-web-1"],
            ),
        ] {
            let decision = set(claims).decide();
            assert_eq!(brief(&decision), expected, "{what}, ordered: {ordered}");
            assert!(
                !decision.waits.is_empty() || what == "one has grown",
                "{what}, ordered: {ordered}"
            );
        }
    }
    let mut broken = recreating("new", [pending("data-web-0"), pending("data-web-1")]).ordered();
    broken.own_pods.clear();
    let mounted = |name: &str| pod(name).revision("new").mounts(&["data"]);
    let broken = broken.pod(mounted("web-0").unready()).pod(mounted("web-1"));
    assert_eq!(brief(&broken.decide()), NOTHING, "what blocks the order comes first");
}
