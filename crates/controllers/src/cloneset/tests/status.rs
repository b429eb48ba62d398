//! Counts, revisions and conditions (CS-4, CS-12 and CS-21).

use super::scaling::created;
use super::{name, one, pods, said};
use crate::testing::{Cluster, NOW, at, clones, owner};
use flotilla_api::names;
use flotilla_model::decision::{Command, Report, Scope};
use flotilla_model::{Failure, OwnerRef, Resource, RevisionRecord, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn status(cluster: &Cluster) -> Value {
    cluster.decide().status.expect("a status").desired
}

fn condition(status: &Value, kind: &str) -> Option<Value> {
    let mut all = status["conditions"].as_array().into_iter().flatten();
    all.find(|c| c["type"] == kind).cloned()
}

#[test]
fn cs_21_1_counts_are_over_active_pods() {
    let set = clones(5)
        .spec("/minReadySeconds", json!(10))
        .spec("/updateStrategy/rollingUpdate/partition", json!("40%"));
    let cluster = pods(set, "2o 1n 1nx 1ny").pod(one(&name(9), "n").terminating());
    let found = status(&cluster);
    for (field, value) in [
        ("replicas", 5),
        ("readyReplicas", 4),
        ("availableReplicas", 3),
        ("updatedReplicas", 3),
        ("updatedReadyReplicas", 2),
        ("updatedAvailableReplicas", 1),
        ("expectedUpdatedReplicas", 3),
    ] {
        assert_eq!(found[field], value, "{field}");
    }
    assert_eq!(found["labelSelector"], "app=web");
}

/// Ready is what serves; available is what counts as such for budgets, which the lifecycle decides as well (CS-13.3).
#[test]
fn cs_21_1_a_ready_pod_that_waits_for_a_hook_is_ready_and_not_available() {
    let hooks = json!({"preNormal": {"labelsHandler": {"held": "yes"}}});
    let held = one(&name(0), "n").label(names::LIFECYCLE_STATE_LABEL, "PreparingNormal");
    let found = status(&clones(1).spec("/lifecycle", hooks).pod(held));
    for (field, value) in [
        ("readyReplicas", 1),
        ("updatedReadyReplicas", 1),
        ("availableReplicas", 0),
        ("updatedAvailableReplicas", 0),
    ] {
        assert_eq!(found[field], value, "{field}");
    }
}

/// #1549: all pods have to be there, but not to be ready.
#[test]
fn cs_21_2_the_current_revision_follows_when_all_pods_are_updated() {
    let current = |words: &str| status(&pods(clones(3), words))["currentRevision"].clone();
    assert_eq!(current("3nx"), "web-new");
    assert_eq!(current("2n"), "web-old", "one is missing");
    assert_eq!(current("2n 1o"), "web-old");
    assert_eq!(current("4n"), "web-old", "one is too many");
}

/// A percentage of nothing holds back what it holds back of something: back at five, the canary goes on where it was.
#[test]
fn cs_13_8_and_21_2_a_partition_holds_through_a_night_at_no_replicas() {
    for partition in [json!(4), json!("80%")] {
        let set = |replicas| {
            clones(replicas)
                .spec("/updateStrategy/rollingUpdate/partition", partition.clone())
                .spec("/progressDeadlineSeconds", json!(60))
        };
        let night = status(&set(0));
        assert_eq!(night["currentRevision"], "web-old", "partition {partition}");
        let told = condition(&night, "Progressing").expect("a condition");
        assert_eq!(
            told["reason"], "ProgressPartitionAvailable",
            "it does not time out overnight"
        );
        let morning = set(5).status("/currentRevision", night["currentRevision"].clone());
        let made = created(&morning.decide());
        let revision = |pod: &&Value| pod["metadata"]["labels"][names::REVISION_LABEL] == "web-old";
        assert_eq!(
            (made.len(), made.iter().filter(revision).count()),
            (5, 4),
            "partition {partition}"
        );
        // Once promoted, there is nothing that it could hold back.
        let promoted = status(&set(0).status("/currentRevision", json!("web-new")));
        let told = condition(&promoted, "Progressing").expect("a condition");
        assert_eq!(told["reason"], "CloneSetAvailable");
    }
    for partition in [json!(0), json!("0%")] {
        let set = clones(0).spec("/updateStrategy/rollingUpdate/partition", partition.clone());
        assert_eq!(status(&set)["currentRevision"], "web-new", "partition {partition}");
    }
    assert_eq!(status(&clones(0))["currentRevision"], "web-new");
}

#[test]
fn cs_4_failures_are_a_condition_that_goes() {
    let mut cluster = pods(clones(4), "2n");
    for (n, reason) in [(1, "QuotaExceeded"), (2, "Forbidden")] {
        let failure = Failure::follow(
            None,
            Report::Create,
            reason.into(),
            "it says why".into(),
            at(NOW + n - 10),
        );
        cluster.hints.failures.insert(
            Scope::Named(format!("web-zzzz{n}")),
            Failure {
                retry_at: at(NOW + 60),
                ..failure
            },
        );
    }
    let failed = condition(&status(&cluster), "FailedScale").expect("it is told");
    assert_eq!(
        (&failed["status"], &failed["reason"]),
        (&json!("True"), &json!("QuotaExceeded"))
    );
    let text = failed["message"].as_str().expect("a message");
    assert!(
        text.contains("web-zzzz1: QuotaExceeded") && text.contains("web-zzzz2: Forbidden"),
        "{text}"
    );
    assert_eq!(failed["lastUpdateTime"], failed["lastTransitionTime"]);
    let over = pods(clones(2), "2n").status("/conditions", json!([failed]));
    assert_eq!(
        condition(&status(&over), "FailedScale").expect("it goes")["status"],
        "False"
    );
}

/// A set with a deadline of a minute and this stored condition.
fn rollout(reason: &str, updated: i64, words: &str) -> Cluster {
    let status = if reason == "ProgressDeadlineExceeded" {
        "False"
    } else {
        "True"
    };
    let stored = json!([{"type": "Progressing", "status": status, "reason": reason,
        "lastUpdateTime": at(updated).to_string(), "lastTransitionTime": at(NOW - 5000).to_string(), "message": ""}]);
    let cluster = pods(clones(4).spec("/progressDeadlineSeconds", json!(60)), words);
    let counts = status_counts(&cluster);
    let mut cluster = cluster.status("/conditions", stored);
    for (field, value) in counts {
        cluster = cluster.status(&format!("/{field}"), value);
    }
    cluster
}

fn status_counts(cluster: &Cluster) -> Vec<(String, Value)> {
    let found = status(cluster);
    let fields = found.as_object().expect("fields").iter();
    fields
        .filter(|(_, value)| value.is_number())
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

/// programs compare these.
#[test]
fn cs_21_3_messages_of_progressing() {
    let told = |cluster: &Cluster| {
        let found = condition(&status(cluster), "Progressing").expect("it is written");
        found["message"].as_str().map(str::to_owned)
    };
    let available = rollout("CloneSetUpdated", NOW - 30, "4n");
    let paused =
        rollout("CloneSetUpdated", NOW - 30, "3o 1nx").spec("/updateStrategy/rollingUpdate/paused", json!(true));
    let kept = rollout("CloneSetUpdated", NOW - 30, "3o 1n").spec("/updateStrategy/rollingUpdate/partition", json!(3));
    let late = rollout("CloneSetUpdated", NOW - 61, "3o 1nx");
    let begins = rollout("CloneSetAvailable", NOW - 5000, "3o 1nx");
    let timed_out = format!(
        "CloneSet revision {} has timed out progressing",
        status(&late)["updateRevision"].as_str().expect("a revision")
    );
    for (cluster, expected) in [
        (available, "CloneSet is available"),
        (paused, "CloneSet is paused"),
        (kept, "CloneSet has been paused due to partition ready"),
        (late, timed_out.as_str()),
        (begins, "CloneSet is progressing"),
    ] {
        assert_eq!(told(&cluster).as_deref(), Some(expected));
    }
}

#[test]
fn cs_21_3_and_21_4_progressing() {
    let said = |cluster: &Cluster| {
        let found = condition(&status(cluster), "Progressing")?;
        Some((
            found["status"].as_str()?.to_owned(),
            found["reason"].as_str()?.to_owned(),
            found["lastUpdateTime"].as_str()?.to_owned(),
        ))
    };
    let word = |cluster: &Cluster| said(cluster).map(|(status, reason, _)| format!("{status} {reason}"));
    let at_text = |seconds: i64| at(seconds).to_string();

    assert_eq!(word(&pods(clones(4), "4n")), None, "no deadline, no condition");
    let first = pods(clones(4).spec("/progressDeadlineSeconds", json!(60)), "4o");
    assert_eq!(
        said(&first),
        Some(("True".into(), "CloneSetUpdated".into(), at_text(NOW)))
    );
    let running = rollout("CloneSetUpdated", NOW - 30, "3o 1nx");
    let unchanged = status(&running);
    assert_eq!(
        condition(&unchanged, "Progressing"),
        None,
        "an equal condition is not written"
    );
    assert_eq!(
        running.decide().wake_after.map(|d| d <= Duration::from_secs(31)),
        Some(true)
    );
    assert_eq!(
        word(&rollout("CloneSetUpdated", NOW - 61, "3o 1nx")).as_deref(),
        Some("False ProgressDeadlineExceeded")
    );
    let stays = rollout("ProgressDeadlineExceeded", NOW - 5, "3o 1nx");
    assert_eq!(condition(&status(&stays), "Progressing"), None, "it stays exceeded");
    let moved = rollout("ProgressDeadlineExceeded", NOW - 5, "3o 1nx").status("/updatedReplicas", json!(0));
    assert_eq!(
        said(&moved),
        Some(("True".into(), "CloneSetUpdated".into(), at_text(NOW))),
        "progress ends it"
    );
    let begins = rollout("CloneSetAvailable", NOW - 5000, "3o 1nx");
    assert_eq!(
        said(&begins),
        Some(("True".into(), "CloneSetUpdated".into(), at_text(NOW))),
        "a late rollout has its own time"
    );
    let complete = rollout("CloneSetUpdated", NOW - 30, "4n");
    assert_eq!(word(&complete).as_deref(), Some("True CloneSetAvailable"));
    let paused =
        rollout("CloneSetUpdated", NOW - 30, "3o 1nx").spec("/updateStrategy/rollingUpdate/paused", json!(true));
    assert_eq!(word(&paused).as_deref(), Some("True CloneSetPaused"));
    let kept = rollout("CloneSetUpdated", NOW - 30, "3o 1n").spec("/updateStrategy/rollingUpdate/partition", json!(3));
    assert_eq!(word(&kept).as_deref(), Some("True ProgressPartitionAvailable"));
    let mut restarted = rollout("CloneSetUpdated", NOW - 61, "3o 1nx");
    restarted.observing_since = at(NOW - 10);
    assert_eq!(
        condition(&status(&restarted), "Progressing"),
        None,
        "deadlines do not run while nobody watches"
    );
    let mut without = rollout("CloneSetUpdated", NOW - 30, "4n");
    without.set["spec"]
        .as_object_mut()
        .expect("a spec")
        .remove("progressDeadlineSeconds");
    assert_eq!(status(&without)["conditions"], json!([]));
}

#[test]
fn cs_12_4_the_update_revision_is_refreshed_where_it_says_something_else() {
    let with_hash = |hash: Option<&str>| {
        let mut cluster = pods(clones(1).claim_templates(&["data"]), "1n");
        let hashed = |r: &Arc<RevisionRecord>| {
            Arc::new(RevisionRecord {
                claim_hash: hash.map(Into::into),
                ..(**r).clone()
            })
        };
        cluster.own_revisions = cluster.own_revisions.iter().map(hashed).collect();
        cluster.decide()
    };
    assert_eq!(
        said(&with_hash(None)),
        [] as [&str; 0],
        "who has no hash is left as it is"
    );
    let refreshed = with_hash(Some("1"));
    assert_eq!(said(&refreshed), ["claim: ~ControllerRevision web-new"]);
    let Some(Command::Patch { body, .. }) = refreshed.commands().map(|c| &c.command).next() else {
        panic!("a patch")
    };
    let annotations = &body["metadata"]["annotations"];
    assert!(annotations[names::CLAIM_TEMPLATES_HASH].is_string() && annotations[names::CLAIM_TEMPLATES].is_string());
}

/// what there is no room for is not written again and again; and what is recorded are the templates of today, or none.
#[test]
fn cs_12_4_and_12_5_a_record_that_has_outgrown_its_room_goes_once() {
    let templates: Vec<String> = (0..2_000).map(|n| format!("data-{n}-{}", "x".repeat(40))).collect();
    let templates: Vec<&str> = templates.iter().map(String::as_str).collect();
    let refreshed = |recorded: bool| {
        let mut cluster = pods(clones(1).claim_templates(&templates), "1n");
        let hash = crate::cloneset::claims::templates_hash(&cluster.record().spec.claim_templates);
        let with_record = |r: &Arc<RevisionRecord>| {
            Arc::new(RevisionRecord {
                claim_hash: Some(hash.as_str().into()),
                claim_templates: recorded.then(|| {
                    Arc::new(flotilla_model::RecordedClaims::new(
                        &json!([{"metadata": {"name": "data"}}]),
                    ))
                }),
                ..(**r).clone()
            })
        };
        cluster.own_revisions = cluster.own_revisions.iter().map(with_record).collect();
        cluster.decide()
    };
    let stale = refreshed(true);
    let bodies = stale.commands().filter_map(|c| match &c.command {
        Command::Patch {
            resource: Resource::Revisions,
            body,
            ..
        } => Some(body.clone()),
        _ => None,
    });
    let bodies: Vec<Value> = bodies.collect();
    assert_eq!(bodies.len(), 1);
    let annotations = bodies[0]["metadata"]["annotations"].as_object().expect("annotations");
    assert_eq!(
        annotations.get(names::CLAIM_TEMPLATES),
        Some(&Value::Null),
        "it is taken away"
    );
    let settled = refreshed(false);
    let is_revision = |c: &&flotilla_model::decision::ScopedCommand| {
        matches!(
            &c.command,
            Command::Patch {
                resource: Resource::Revisions,
                ..
            }
        )
    };
    assert_eq!(settled.commands().filter(is_revision).count(), 0, "and that is all");
}

#[test]
fn cs_12_1_a_new_revision_records_the_claims_and_comes_first() {
    let cluster = clones(1).no_revisions().claim_templates(&["data"]);
    let decision = cluster.decide();
    let bodies: Vec<Value> = decision
        .commands()
        .filter_map(|c| match &c.command {
            Command::Create {
                resource: Resource::Revisions,
                body,
                ..
            } => Some(body.render()),
            _ => None,
        })
        .collect();
    assert_eq!(bodies.len(), 1);
    assert_eq!(decision.commands().count(), 1, "nothing else before");
    let annotations = &bodies[0]["metadata"]["annotations"];
    assert!(
        annotations[names::CLAIM_TEMPLATES_HASH]
            .as_str()
            .is_some_and(|h| h.parse::<u32>().is_ok())
    );
    assert!(annotations[names::CLAIM_TEMPLATES].is_string());
    assert_eq!(bodies[0]["metadata"]["ownerReferences"][0]["kind"], "CloneSet");
}

/// The count of collisions is in the status, and not lowered.
/// A rolled-out set whose next revision cannot be recorded, as a quota on `count/controllerrevisions.apps` forbids it.
fn unrecorded(refused_since: Timestamp) -> Cluster {
    let template = crate::testing::template("v3");
    let set = pods(clones(2).spec("/template", template), "2n").status("/currentRevision", json!("web-new"));
    let mut set = set
        .status("/updateRevision", json!("web-new"))
        .status(
            "/conditions",
            json!([{"type": "Progressing", "status": "True", "reason": "CloneSetAvailable",
            "lastUpdateTime": at(NOW - 9000).to_string(), "message": "CloneSet is available"}]),
        )
        .spec("/progressDeadlineSeconds", json!(600));
    let words = "exceeded quota: revisions".to_owned();
    let mut failure = Failure::follow(
        None,
        Report::Silent,
        Failure::QUOTA_EXCEEDED.into(),
        words,
        refused_since,
    );
    failure.retry_at = at(NOW + 30);
    set.hints.failures.insert(Scope::Object, failure);
    set
}

#[test]
fn cs_4_and_sts_i12_a_revision_that_cannot_be_recorded_is_told() {
    let set = unrecorded(at(NOW));
    let told = status(&set);
    let failed = condition(&told, "FailedUpdate").expect("a condition");
    assert_eq!(
        (&failed["status"], &failed["reason"]),
        (&json!("True"), &json!("QuotaExceeded"))
    );
    assert!(
        failed["message"]
            .as_str()
            .is_some_and(|m| m.contains("exceeded quota: revisions")),
        "{failed}"
    );
    // CS-21.4: a rollout begins, and has its time.
    let progressing = condition(&told, "Progressing").expect("a condition");
    assert_eq!(
        (&progressing["status"], &progressing["reason"]),
        (&json!("True"), &json!("CloneSetUpdated"))
    );
    assert_eq!(progressing["lastUpdateTime"], json!(at(NOW).to_string()));
    // Told once: the next pass changes nothing.
    let again = set.clone().status("/conditions", told["conditions"].clone());
    assert_eq!(status(&again)["conditions"], Value::Null);
    let mut late = unrecorded(at(NOW)).status("/conditions", told["conditions"].clone());
    late.now = at(NOW + 700);
    late.hints
        .failures
        .get_mut(&Scope::Object)
        .expect("the failure")
        .retry_at = at(NOW + 730);
    let progressing = condition(&status(&late), "Progressing").expect("a condition");
    assert_eq!(
        (&progressing["status"], &progressing["reason"]),
        (&json!("False"), &json!("ProgressDeadlineExceeded"))
    );
    assert!(late.decide().wake_after.is_some());
    // Nothing is promised of a set that is not refused anything, nor told after an edit.
    let mut edited = unrecorded(at(NOW));
    edited.hints.failures.clear();
    assert_eq!(status(&edited)["conditions"], Value::Null);
    // Once it is recorded, it is over.
    let there = edited
        .revision_of("web-third", 3, &crate::testing::template("v3"))
        .status("/conditions", told["conditions"].clone());
    assert_eq!(
        condition(&status(&there), "FailedUpdate").expect("a condition")["status"],
        "False"
    );
}

/// The revision of a former set of the name is not gone: nothing is refused, and the set waits all the same.
#[test]
fn cs_4_and_sts_i12_a_revision_that_is_waited_for_is_told_after_a_minute() {
    let fresh = pods(clones(2).spec("/template", crate::testing::template("v3")), "2n");
    let made = fresh.decide();
    let mut commands = made.commands().map(|c| &c.command);
    let create = commands.find(|c| {
        matches!(
            c,
            Command::Create {
                resource: Resource::Revisions,
                ..
            }
        )
    });
    let name = create.expect("a new revision").key().name.to_string();
    let former = owner("apps.kruise.io/v1beta1", "CloneSet", "web", "a former web");
    let former = OwnerRef {
        controller: true,
        ..former
    };
    let leaving = |age: i64| {
        let template = crate::testing::template("v3");
        let mut set = fresh.clone().revision_record(&name, 3, &template, Some(former.clone()));
        set.set["metadata"]["creationTimestamp"] = json!(at(NOW - age).to_string());
        set
    };
    assert_eq!(status(&leaving(59))["conditions"], Value::Null);
    let failed = condition(&status(&leaving(61)), "FailedUpdate").expect("a condition");
    assert_eq!(failed["reason"], "RevisionLeaving");
    assert!(
        failed["message"].as_str().is_some_and(|m| m.contains(&name)),
        "{failed}"
    );
}

#[test]
fn cs_4_collisions_are_counted() {
    let counted = clones(1).status("/collisionCount", json!(3));
    assert_eq!(status(&counted)["collisionCount"], 3);
    assert_eq!(status(&clones(1))["collisionCount"], 0, "none is a number, too");
}

#[test]
fn a_deleted_set_gets_its_status_and_nothing_else() {
    let cluster = pods(clones(5), "2o 1n!").deleted();
    let decision = cluster.decide();
    assert_eq!(said(&decision), [] as [&str; 0]);
    assert_eq!(decision.status.expect("a status").desired["replicas"], 3);
}

/// Conditions of pods, release, adoption and claims are written in silence: no event tells of them. A webhook that refuses them holds up the
/// rollout all the same.
#[test]
fn cs_4_a_rollout_that_is_held_up_by_a_silent_write_says_so() {
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1});
    let mut cluster = pods(clones(2).rolling(rolling), "2o");
    let why = "a webhook refuses pods/status";
    let failure = Failure::follow(
        None,
        Report::Silent,
        Failure::FORBIDDEN.to_owned(),
        why.to_owned(),
        at(NOW),
    );
    cluster.hints.failures.insert(Scope::Named(name(0)), failure);
    let told = condition(&status(&cluster), "FailedUpdate").expect("a condition");
    assert_eq!(
        (&told["status"], &told["reason"]),
        (&json!("True"), &json!("Forbidden"))
    );
    assert_eq!(told["message"], format!("web-b0000: Forbidden: {why}"));
}
