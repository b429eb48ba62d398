//! New pods that do not last (STS-8.5, CS-14.1 and CS-14.3): they are not made at the speed at which they end.

use super::scaling::created;
use super::{name, one, said};
use crate::testing::{Cluster, NOW, PodFixture, at, clones, template};
use flotilla_api::names;
use flotilla_model::decision::Command;
use flotilla_model::hints::Starts;
use flotilla_model::records::Phase;
use flotilla_model::{Decision, Resource, WaitCause};
use serde_json::json;

/// A set whose template has a label and an annotation that users and controllers put on single pods.
fn marked() -> Cluster {
    let mut template = template("v2");
    template["metadata"]["labels"][names::SPECIFIED_DELETE_LABEL] = json!("true");
    template["metadata"]["labels"][names::LIFECYCLE_STATE_LABEL] = json!("PreparingDelete");
    template["metadata"]["annotations"] = json!({names::REPLACED_BY_UPDATE: "true", "note": "x"});
    let set = clones(2).spec("/template", template.clone());
    set.revision_of("web-marked", 3, &template)
}

/// Each pod would be deleted as soon as it is there, and another made under another name.
#[test]
fn cs_14_1_no_pod_is_born_to_be_deleted() {
    let decision = marked().decide();
    let made = created(&decision);
    assert_eq!(made.len(), 2);
    for pod in made {
        let metadata = &pod["metadata"];
        assert_eq!(metadata["labels"][names::SPECIFIED_DELETE_LABEL], json!(null));
        assert_eq!(metadata["labels"][names::LIFECYCLE_STATE_LABEL], json!("Normal"));
        assert_eq!(metadata["annotations"][names::REPLACED_BY_UPDATE], json!(null));
        assert_eq!(metadata["annotations"]["note"], json!("x"));
    }
    let told = |decision: &Decision| {
        let events = decision.events.iter();
        let told = events.filter(|e| e.warning && e.reason == "TemplateKeyIgnored");
        told.map(|e| e.message.clone()).collect::<Vec<_>>()
    };
    assert_eq!(told(&decision).len(), 3);
    assert!(
        told(&decision)[0].contains(names::SPECIFIED_DELETE_LABEL),
        "{:?}",
        told(&decision)
    );
    let mut again = marked();
    again.hints = decision.hints.expect("what was told");
    assert_eq!(told(&again.decide()), [] as [&str; 0], "once");
}

/// Nor does an update in place hand it to all pods at once.
#[test]
fn cs_14_1_no_update_in_place_asks_for_the_deletion_of_pods() {
    let mut set = (0..2).fold(marked(), |set, n| set.pod(one(&name(n), "n")));
    // It is not what the trial of a revision would ask.
    set.hints.accepted.insert("web-marked".to_owned());
    let decision = set
        .spec(
            "/updateStrategy/rollingUpdate/podUpdatePolicy",
            json!("InPlaceIfPossible"),
        )
        .decide();
    let patches = decision.commands().filter_map(|c| match &c.command {
        Command::Patch {
            resource: Resource::Pods,
            body,
            ..
        } => Some(body.to_string()),
        _ => None,
    });
    let patches: Vec<String> = patches.collect();
    assert!(!patches.is_empty(), "{:?}", said(&decision));
    for patch in patches {
        // Slashes are escaped in paths of a patch.
        for (_, asks) in
            [names::SPECIFIED_DELETE_LABEL, names::REPLACED_BY_UPDATE].map(|key| key.split_once('/').expect("a prefix"))
        {
            assert!(!patch.contains(asks), "{patch}");
        }
        assert!(!patch.contains("PreparingDelete"), "{patch}");
    }
}

/// Copied from a pod into the template.
#[test]
fn cs_15_1_what_a_pod_is_known_by_reaches_no_other_from_the_template() {
    let mut new = template("v2");
    let others = [
        names::INSTANCE_ID_LABEL,
        names::REVISION_LABEL,
        names::TEMPLATE_HASH_LABEL,
    ];
    for key in others {
        new["metadata"]["labels"][key] = json!("zzzzz");
    }
    // It means nothing to a CloneSet.
    new["metadata"]["labels"][names::POD_NAME_LABEL] = json!("other-0");
    new["metadata"]["annotations"] = json!({names::RUNTIME_CONTAINERS_META: "{}"});
    let set = || {
        clones(2)
            .spec("/template", new.clone())
            .rolling(json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 2}))
            .no_revisions()
            .revision("web-old", 1, "v1")
            .revision_of("web-new", 2, &new)
    };
    let decision = set().pod(one(&name(0), "o")).decide();
    let made = created(&decision);
    assert_eq!(made.len(), 1);
    assert_ne!(made[0]["metadata"]["labels"][names::INSTANCE_ID_LABEL], "zzzzz");
    assert_eq!(made[0]["metadata"]["labels"][names::POD_NAME_LABEL], "other-0");
    assert!(
        made[0]["metadata"]["annotations"]
            .get(names::RUNTIME_CONTAINERS_META)
            .is_none()
    );
    let decision = set().pod(one(&name(0), "o")).pod(one(&name(1), "o")).decide();
    let patches: Vec<String> = decision
        .commands()
        .filter_map(|c| match &c.command {
            Command::Patch { body, .. } => Some(body.to_string()),
            _ => None,
        })
        .collect();
    assert!(patches.iter().any(|p| p.contains("other-0")), "{patches:?}");
    for patch in patches {
        assert!(
            !patch.contains("zzzzz") && !patch.contains("runtime-containers-meta"),
            "{patch}"
        );
    }
}

fn ended(n: usize, ago: i64) -> PodFixture {
    one(&name(n), "nx").created(NOW - ago).phase(Phase::Failed)
}

fn set(replicas: i32) -> Cluster {
    clones(replicas).status("/currentRevision", json!("web-new"))
}

fn back_off(decision: &Decision) -> Option<u32> {
    let mut found = decision.waits.iter().filter_map(|wait| match wait.cause {
        WaitCause::StartBackOff { failed, .. } => Some(failed),
        _ => None,
    });
    found.next()
}

/// A node refuses them (OutOfcpu), each stays, and another comes at once under another name: fifty in five seconds.
#[test]
fn sts_8_5_pods_that_end_at_once_are_made_again_ever_later() {
    let mut set = set(2);
    let mut rounds = Vec::new();
    let mut n = 0;
    for second in 0..1_800 {
        let now = NOW + second;
        set.now = at(now);
        let decision = set.decide();
        let made = created(&decision);
        if made.is_empty() {
            assert!(back_off(&decision).is_some(), "{:?}", decision.waits);
            assert!(decision.wake_after.is_some());
        } else {
            assert_eq!(made.len(), 2);
            rounds.push(second);
        }
        if back_off(&decision).is_some_and(|failed| failed > 1) {
            let status = decision.status.expect("a status").desired;
            assert_eq!(status["conditions"][0]["reason"], "StartBackOff", "{status}");
        }
        for _ in made {
            set = set.pod(ended(n, NOW - now));
            n += 1;
        }
        if let Some(hints) = decision.hints {
            set.hints = hints;
        }
    }
    assert!((10..=15).contains(&rounds.len()), "{} rounds", rounds.len());
    let waits: Vec<_> = rounds.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(waits.windows(2).all(|two| two[0] <= two[1] + 1), "{waits:?}");
}

#[test]
fn sts_8_5_a_few_pods_that_end_among_many_that_live_hold_up_nothing() {
    let many = (0..40).fold(set(100), |set, n| set.pod(one(&name(n), "nx").created(NOW - 5)));
    let decision = (40..50).fold(many, |set, n| set.pod(ended(n, 3))).decide();
    assert_eq!(created(&decision).len(), 60, "{:?}", decision.waits);
    // Nor do those that ran for a while, those that are being deleted, or those of long ago.
    for pod in [ended(0, 61), ended(0, 3).terminating()] {
        let decision = set(2).pod(pod).decide();
        assert_eq!(created(&decision).len(), 2, "{:?}", decision.waits);
    }
}

#[test]
fn sts_8_5_a_pod_that_lives_or_an_edit_forgives_those_that_ended_before() {
    let counted = |ago: i64| {
        let mut set = set(3).pod(ended(0, ago + 5));
        let starts = Starts {
            failed: 7,
            last_created: at(NOW - ago - 5),
            retry_at: at(NOW - ago),
        };
        set.hints.starts.insert(0, starts);
        set
    };
    let known = |decision: Decision, before: &Cluster| {
        decision
            .hints
            .map_or_else(|| before.hints.starts.len(), |h| h.starts.len())
    };
    for (what, age, ago, left) in [
        ("young", 50, 70, 1),
        ("lives", 61, 70, 0),
        ("nothing for long", 0, 601, 0),
    ] {
        let mut set = counted(ago);
        if age > 0 {
            set = set.pod(one(&name(1), "n").created(NOW - age));
        }
        let decision = set.decide();
        assert_eq!(known(decision, &set), left, "{what}");
    }
    let mut edited = counted(70);
    edited
        .hints
        .starts
        .values_mut()
        .for_each(|starts| starts.retry_at = at(NOW + 100));
    assert_eq!(created(&edited.decide()).len(), 0, "held back");
    edited.hints.generation -= 1;
    assert_eq!(created(&edited.decide()).len(), 3);
}
