//! Known problems of StatefulSets that need more than one pass to show (STS-8); others stand with the step that they concern.

use super::world::World;
use crate::testing::{Cluster, NOW, advanced, at, brief, native, pod, template};
use flotilla_api::names;
use flotilla_model::decision::{Body, Command};
use flotilla_model::records::Phase;
use flotilla_model::{Decision, Report, WaitCause};
use serde_json::json;
use std::time::Duration;

const NOTHING: [&str; 0] = [];

/// Passes until a set of all available pods rests; how many pods were made on the way.
fn created_until_rest(world: &mut World) -> usize {
    let mut created = 0;
    for _ in 0..60 {
        let decision = world.pass().expect("the world accepts it");
        created += brief(&decision).iter().filter(|c| c.starts_with("+web")).count();
        world.go_on();
    }
    created
}

#[test]
fn sts_8_1_recreate_ends_a_rollout_that_a_broken_revision_blocked() {
    let broken = |set: Cluster| {
        set.ordered()
            .pods([0], "old")
            .pod(pod("web-1").revision("old").never_ready())
            .pods([2], "old")
    };
    let mut stuck = World::new(broken(native(3)), 1);
    stuck.manners.stuck = true;
    assert_eq!(created_until_rest(&mut stuck), 0);
    let mut freed = World::new(broken(native(3)).annotation("flotilla.rs/update-type", "Recreate"), 1);
    assert_eq!(created_until_rest(&mut freed), 3);
    assert_eq!(freed.set().status_text("currentRevision"), "new");
}

#[test]
fn sts_8_2_a_rollout_ends_although_old_pods_are_broken() {
    for set in [advanced(4), native(4).rolling(json!({"maxUnavailable": 1}))] {
        let mut world = World::new(set.pod(pod("web-0").revision("old").never_ready()).pods(1..4, "old"), 7);
        assert_eq!(created_until_rest(&mut world), 4);
        assert_eq!(world.set().status_text("currentRevision"), "new");
    }
}

#[test]
fn sts_8_5_a_slot_whose_pods_end_at_once_backs_off() {
    let mut cluster = advanced(1).status("/currentRevision", json!("new"));
    let mut waits = Vec::new();
    for _ in 0..4 {
        let born = cluster.now.as_millis() / 1000;
        let failed = cluster
            .clone()
            .pod(pod("web-0").revision("new").phase(Phase::Failed).created(born - 5));
        let decision = failed.decide();
        let commands: Vec<_> = decision.commands().collect();
        assert_eq!(
            commands[0].command.report(),
            Report::RecreateFailed,
            "a warning on the set"
        );
        cluster = cluster.hints(decision.hints.expect("the failed start is remembered"));
        let empty = cluster.decide();
        assert_eq!(brief(&empty), NOTHING);
        assert!(
            empty
                .waits
                .iter()
                .any(|w| matches!(w.cause, WaitCause::StartBackOff { .. }))
        );
        let left = empty.wake_after.expect("it wakes up");
        waits.push(left.as_secs());
        cluster.now = cluster.now + left;
        assert_eq!(brief(&cluster.decide()), ["+web-0@new"]);
        cluster.now = cluster.now + Duration::from_secs(5);
    }
    assert_eq!(waits, [1, 2, 4, 8]);
    let up = |since: i64| {
        let mut set = cluster.clone().pod(pod("web-0").revision("new").ready_since(NOW));
        set.now = at(NOW + since);
        set.decide()
            .hints
            .map_or_else(|| set.hints.starts.len(), |h| h.starts.len())
    };
    assert_eq!((up(599), up(600)), (1, 0), "forgiven after ten minutes of availability");
    let long = advanced(1)
        .pod(pod("web-0").revision("new").phase(Phase::Failed).created(NOW - 61))
        .decide();
    assert!(
        long.hints.is_none_or(|h| h.starts.is_empty()),
        "one that ran for a minute was no failed start"
    );
    let ended_well = advanced(1)
        .pod(pod("web-0").revision("new").phase(Phase::Succeeded))
        .decide();
    assert_eq!(
        ended_well.commands().next().map(|c| c.command.report()),
        Some(Report::RecreateTerminated)
    );
}

#[test]
fn sts_8_8_other_defaults_and_spelling_restart_nothing() {
    let mut spelled = template("v2");
    spelled["spec"]["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
    spelled["spec"]["containers"][0]["image"] = json!("v2:1");
    spelled["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1000m"}, "requests": {"cpu": 1}});
    spelled["metadata"]["creationTimestamp"] = json!(null);
    let mut plain = template("v2:1");
    plain["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
    let set = native(2)
        .no_revisions()
        .revision_of("stored", 1, &spelled)
        .spec("/template", plain);
    let set = set
        .status("/currentRevision", json!("stored"))
        .status("/updateRevision", json!("stored"))
        .pods(0..2, "stored");
    assert_eq!(brief(&set.decide()), NOTHING);
}

#[test]
fn sts_8_9_a_decision_acts_on_the_incarnation_that_it_saw_and_skips_no_pass() {
    let mut world = World::new(advanced(3).rolling(json!({"maxUnavailable": 3})).pods(0..3, "old"), 3);
    // The world refuses a deletion of another incarnation or of a pod that is going, and a creation under a name that is taken.
    assert_eq!(created_until_rest(&mut world), 3);
}

#[test]
fn sts_8_10_a_pod_comes_when_its_terminating_claim_has_gone() {
    let set = advanced(1)
        .claim_templates(&["data"])
        .status("/currentRevision", json!("new"));
    let waiting = set.clone().claim(crate::testing::claim("data-web-0").terminating());
    assert_eq!(brief(&waiting.decide()), NOTHING);
    assert_eq!(brief(&set.decide()), ["+claim data-web-0", "+web-0@new"]);
}

#[test]
fn sts_8_14_scaling_by_an_autoscaler_leaves_the_reserved_ordinals_alone() {
    let set = |replicas: i32| {
        advanced(replicas)
            .spec("/reserveOrdinals", json!([1]))
            .status("/currentRevision", json!("new"))
    };
    assert_eq!(brief(&set(2).pods([0, 2, 3], "new").decide()), ["-web-3"]);
    assert_eq!(brief(&set(1).pods([0, 2], "new").decide()), ["-web-2"]);
    assert_eq!(brief(&set(3).pods([0, 2], "new").decide()), ["+web-3@new"]);
}

#[test]
fn sts_8_19_what_go_panicked_on_is_only_a_default() {
    for strategy in [
        json!(null),
        json!({}),
        json!({"type": "RollingUpdate"}),
        json!({"type": "RollingUpdate", "rollingUpdate": null}),
        json!({"rollingUpdate": {"partition": null, "maxUnavailable": null, "minReadySeconds": null}}),
    ] {
        for set in [advanced(2), native(2)] {
            let decision = set.spec("/updateStrategy", strategy.clone()).pods(0..2, "old").decide();
            assert_eq!(brief(&decision), ["-web-1"], "{strategy}");
            assert_eq!(decision.events, []);
        }
    }
    let defaulted = advanced(1)
        .spec("/replicas", json!(null))
        .spec("/revisionHistoryLimit", json!(null))
        .pods([0], "new");
    assert_eq!(brief(&defaulted.decide()), NOTHING);
}

/// Each pod would be deleted as soon as it is ready, and made again.
#[test]
fn sts_3_5_no_pod_is_born_to_be_deleted() {
    let mut marked = template("v2");
    marked["metadata"]["labels"][names::SPECIFIED_DELETE_LABEL] = json!("true");
    marked["metadata"]["labels"][names::LIFECYCLE_STATE_LABEL] = json!("PreparingDelete");
    let set = advanced(2).spec("/template", marked.clone()).no_revisions();
    let decision = set.revision_of("new", 1, &marked).decide();
    let made = decision.commands().filter_map(|c| match &c.command {
        Command::Create {
            body: Body::Pod(pod), ..
        } => Some(pod.render()),
        _ => None,
    });
    let made: Vec<_> = made.collect();
    assert!(!made.is_empty());
    for pod in made {
        let labels = &pod["metadata"]["labels"];
        assert_eq!(
            (
                &labels[names::SPECIFIED_DELETE_LABEL],
                &labels[names::LIFECYCLE_STATE_LABEL]
            ),
            (&json!(null), &json!(null))
        );
    }
    assert!(
        decision.events.iter().any(|e| e.reason == "TemplateKeyIgnored"),
        "{:?}",
        decision.events
    );
}

/// R-15 makes these opt-ins of native sets too, and no webhook is asked about native sets: whoever sets one in vain is told on the set.
#[test]
fn r_15_a_native_set_says_which_switches_do_nothing_yet() {
    for (key, what) in &names::NOT_YET {
        let told = |decision: &Decision| {
            let events = decision.events.iter().filter(|e| e.reason == "SwitchWithoutEffect");
            let texts = events.map(|e| (e.warning, e.message.clone()));
            texts.collect::<Vec<_>>()
        };
        let set = native(1).annotation(key, "true").pods([0], "new");
        let first = set.decide();
        assert_eq!(told(&first), [(true, format!("the annotation {key} {what}"))]);
        let second = set.hints(first.hints.expect("what was told is remembered")).decide();
        assert!(told(&second).is_empty(), "once");
        let by_admission = advanced(1).annotation(key, "true").pods([0], "new").decide();
        assert!(told(&by_admission).is_empty());
        assert!(told(&native(1).pods([0], "new").decide()).is_empty());
    }
}
