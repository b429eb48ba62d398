//! Revisions: which one is the update revision, what is written, what is forgotten (STS-1.1).

use crate::testing::{Cluster, NOW, NS, advanced, at, brief, native, owner, pod, set_uid, template};
use flotilla_model::decision::Command;
use flotilla_model::{Guard, Hints, OwnerRef, PatchKind, Resource, WaitCause};
use serde_json::{Value, json};

/// The commands about revisions alone, in short form.
fn about_revisions(cluster: &Cluster) -> Vec<String> {
    let all = brief(&cluster.decide());
    all.into_iter().filter(|c| c.contains("revision")).collect()
}

/// The name of the revision that a decision creates, with its body.
fn made(cluster: &Cluster) -> Option<(String, Value)> {
    let decision = cluster.decide();
    decision.commands().find_map(|c| match &c.command {
        Command::Create {
            resource: Resource::Revisions,
            key,
            body,
            ..
        } => Some((key.name.to_string(), body.render())),
        _ => None,
    })
}

#[test]
fn sts_1_1_2_and_1_1_6_spelling_alone_makes_no_revision() {
    let mut by_go = template("v2");
    by_go["metadata"]["creationTimestamp"] = Value::Null;
    by_go["spec"]["containers"][0]["resources"] = json!({});
    by_go["spec"]["containers"][0]["terminationMessagePath"] = json!("/dev/termination-log");
    by_go["spec"]["restartPolicy"] = json!("Always");
    by_go["spec"]["securityContext"] = json!({});
    by_go["$patch"] = json!("replace");
    let taken_over = native(1)
        .no_revisions()
        .revision_of("by-go", 1, &by_go)
        .status("/currentRevision", json!("by-go"));
    assert_eq!(about_revisions(&taken_over), [] as [&str; 0]);
    assert_eq!(
        brief(&taken_over.pods([0], "by-go").decide()),
        [] as [&str; 0],
        "no pod is restarted"
    );
}

#[test]
fn sts_1_1_6_a_field_newer_than_our_types_is_kept_and_counts() {
    let mut future = template("v2");
    future["spec"]["hyperdrive"] = json!({"<enabled>": true});
    let set = advanced(1).no_revisions().spec("/template", future.clone());
    let (name, body) = made(&set).expect("a new revision");
    assert_eq!(
        body["data"]["spec"]["template"]["spec"]["hyperdrive"],
        json!({"<enabled>": true})
    );
    let stored = set
        .revision_of(&name, 1, &future)
        .status("/currentRevision", json!(name));
    let decision = stored.decide();
    assert_eq!(brief(&decision), [format!("+web-0@{name}")]);
    let Command::Create { body, .. } = &decision.commands().next().expect("a pod").command else {
        panic!("a creation")
    };
    assert_eq!(
        body.render()["spec"]["hyperdrive"],
        json!({"<enabled>": true}),
        "the pod has it too"
    );
}

/// Anybody who may write the status may write this. Seen: the search for a free name had no end, and with it every set of the cluster stood still.
#[test]
fn sts_1_1_5_after_the_last_number_of_collisions_comes_the_first() {
    for counted in [i32::MAX, i32::MAX - 1, i32::MIN] {
        let mut set = advanced(1).no_revisions().status("/collisionCount", json!(counted));
        let mut names = Vec::new();
        for _ in 0..3 {
            let (name, _) = made(&set).expect("a new revision");
            set = set.revision_of(&name, 1, &template("other"));
            names.push(name);
        }
        names.dedup();
        assert_eq!(names.len(), 3, "{counted}: {names:?}");
    }
    // Of none is known that it is free: the API server says so of the last.
    let mut taken = advanced(1).no_revisions().status("/collisionCount", json!(i32::MAX));
    for _ in 0..70 {
        let (name, _) = made(&taken).expect("a new revision");
        taken = taken.revision_of(&name, 1, &template("other"));
    }
    assert!(made(&taken).is_some());
}

#[test]
fn sts_1_1_5_a_revision_of_another_owner_under_the_name_is_a_collision() {
    let fresh = advanced(1).no_revisions();
    let (name, _) = made(&fresh).expect("a new revision");
    let other = OwnerRef {
        controller: true,
        ..owner("apps/v1", "StatefulSet", "web", "a former web")
    };
    for (what, present) in [
        (
            "another's, although equal",
            fresh
                .clone()
                .revision_record(&name, 1, &template("v2"), Some(other.clone())),
        ),
        (
            "ours, and different",
            fresh.clone().revision_of(&name, 1, &template("other")),
        ),
    ] {
        let (second, _) = made(&present).expect("a new revision");
        assert_ne!(second, name, "{what}");
        let status = present.decide().status.expect("a status").desired;
        assert_eq!(status["collisionCount"], json!(1), "{what}");
    }
    let counted = fresh.status("/collisionCount", json!(3));
    assert_eq!(
        counted.decide().status.expect("a status").desired["collisionCount"],
        json!(3),
        "never lowered"
    );
}

/// Whoever may label a revision could restart every pod: another name was made up for the same template.
#[test]
fn sts_1_1_5_a_revision_whose_labels_are_gone_is_the_set_s_still() {
    for set in [native(2), advanced(2)] {
        let set = set.status("/currentRevision", json!("new")).pods([0, 1], "new");
        let decision = set.unlabelled_revisions().decide();
        assert_eq!(brief(&decision), ["~revision old", "~revision new"]);
        for scoped in decision.commands() {
            let Command::Patch { body, .. } = &scoped.command else {
                panic!("a patch")
            };
            assert_eq!(*body, json!({"metadata": {"labels": {"app": "web"}}}));
        }
    }
}

/// Somebody deletes it, and a finalizer keeps it: another name for the same template would restart every pod.
#[test]
fn sts_1_1_5_a_revision_that_is_being_deleted_stays_what_it_is() {
    for set in [native(2), advanced(2)] {
        let set = set.status("/currentRevision", json!("new")).pods([0, 1], "new");
        let decision = set.deleted_revision("new").decide();
        assert_eq!(brief(&decision), [""; 0]);
    }
}

#[test]
fn sts_1_1_5_what_a_former_incarnation_leaves_is_waited_for() {
    let fresh = native(1).no_revisions();
    let (name, _) = made(&fresh).expect("a new revision");
    let former = OwnerRef {
        controller: true,
        ..owner("apps/v1", "StatefulSet", "web", "a former web")
    };
    let present = fresh
        .clone()
        .revision_record(&name, 1, &template("v2"), Some(former.clone()));
    let decision = present.decide();
    assert_eq!(
        brief(&decision),
        [] as [&str; 0],
        "a second revision would restart every pod"
    );
    assert_eq!(decision.waits[0].cause, WaitCause::RevisionLeaving);
    let different = fresh.revision_record(&name, 1, &template("other"), Some(former));
    assert!(made(&different).is_some(), "a different template is a collision");
}

/// Written while no webhook filled in its defaults, the same template has another hash.
#[test]
fn sts_1_1_5_what_pods_of_a_former_incarnation_name_is_waited_for_whatever_its_name() {
    let fresh = native(1).no_revisions();
    let former = OwnerRef {
        controller: true,
        ..owner("apps/v1", "StatefulSet", "web", "a former web")
    };
    let of = |template: &Value| {
        let left = fresh
            .clone()
            .revision_record("web-filled", 1, template, Some(former.clone()));
        left.pod(pod("web-0").revision("web-filled").orphan())
    };
    let decision = of(&template("v2")).decide();
    assert!(made(&of(&template("v2"))).is_none(), "{:?}", brief(&decision));
    assert_eq!(decision.waits[0].cause, WaitCause::RevisionLeaving);
    assert!(
        made(&of(&template("other"))).is_some(),
        "pods of another template wait for nothing"
    );
}

#[test]
fn tko_3_a_young_set_waits_for_what_the_other_kind_lets_go() {
    let mut fresh = advanced(1).no_revisions();
    let (name, _) = made(&fresh).expect("a new revision");
    let native = OwnerRef {
        controller: true,
        ..owner("apps/v1", "StatefulSet", "web", "the native web")
    };
    fresh = fresh.revision_record(&name, 1, &template("v2"), Some(native));
    assert!(made(&fresh).is_some(), "both kinds may have a set of this name");
    let created = at(NOW - 20).to_string();
    fresh.set["metadata"]["creationTimestamp"] = json!(created);
    let decision = fresh.decide();
    assert_eq!(
        brief(&decision),
        [] as [&str; 0],
        "a second revision would restart every pod"
    );
    assert_eq!(decision.waits[0].cause, WaitCause::RevisionLeaving);
    let left = std::time::Duration::from_secs(40);
    assert!(
        decision.wake_after.is_some_and(|wake| wake <= left),
        "{:?}",
        decision.wake_after
    );
}

#[test]
fn sts_1_1_5_an_equal_orphan_is_adopted_and_used() {
    let set = advanced(1)
        .no_revisions()
        .revision_record("web-found", 7, &template("v2"), None);
    assert_eq!(brief(&set.decide()), ["~revision web-found", "+web-0@web-found"]);
}

#[test]
fn sts_1_1_5_a_rollback_raises_the_old_revision_and_no_pod_of_it_is_touched() {
    let back = advanced(2)
        .spec("/template", template("v1"))
        .pods([0], "old")
        .pods([1], "new");
    assert_eq!(brief(&back.decide()), ["~revision old", "-web-1"]);
    let decision = back.decide();
    let Command::Patch { body, .. } = &decision.commands().next().expect("a patch").command else {
        panic!("a patch")
    };
    assert_eq!(*body, json!({"revision": 3}), "one above the highest");
}

#[test]
fn sts_1_1_5_the_revision_comes_before_everything_that_rests_on_its_name() {
    let set = advanced(2).spec("/template", template("v3")).pods([0], "old");
    let commands = brief(&set.decide());
    assert_eq!(commands, ["+revision"]);
    let status = set.decide().status.expect("a status").desired;
    assert_eq!(
        status.get("observedGeneration"),
        None,
        "not observed before it has a revision"
    );
}

#[test]
fn sts_1_1_7_adoption_asks_for_a_set_that_lives() {
    let decision = advanced(0)
        .no_revisions()
        .revision_record("web-found", 1, &template("v2"), None)
        .decide();
    let Command::Patch {
        uid, kind, guard, body, ..
    } = &decision.commands().next().expect("an adoption").command
    else {
        panic!("a patch")
    };
    assert_eq!(uid.to_string(), "uid-of-web-found", "this incarnation only");
    assert_eq!(*kind, PatchKind::Strategic);
    assert_eq!(
        body["metadata"]["ownerReferences"][0]["apiVersion"],
        json!("apps.kruise.io/v1beta1")
    );
    let expected = Guard {
        resource: Resource::AdvancedSets,
        key: flotilla_model::ObjectKey::new(NS, "web"),
        uid: set_uid("web"),
    };
    assert_eq!(
        guard.as_ref(),
        Some(&expected),
        "looked at afresh: this UID, not under deletion"
    );
    let dying = advanced(0)
        .no_revisions()
        .revision_record("web-found", 1, &template("v2"), None)
        .deleted();
    assert_eq!(
        brief(&dying.decide()),
        [] as [&str; 0],
        "a set that is being deleted takes nothing"
    );
}

#[test]
fn sts_1_1_7_an_adoption_that_was_refused_is_not_repeated_at_once() {
    let set = advanced(0)
        .no_revisions()
        .revision_record("web-found", 1, &template("v2"), None);
    let refused = super::refused(
        set,
        flotilla_model::Scope::Named("web-found".into()),
        flotilla_model::Report::Silent,
        "Forbidden",
    );
    let decision = refused.decide();
    assert_eq!(brief(&decision), [] as [&str; 0]);
    assert_eq!(decision.waits.len(), 1, "{:?}", decision.waits);
}

#[test]
fn sts_1_1_8_history_is_cut_to_the_limit_lowest_first_and_nothing_in_use_goes() {
    let many = |limit: Value| {
        let mut set = advanced(1)
            .spec("/revisionHistoryLimit", limit)
            .status("/currentRevision", json!("new"));
        for n in 3..7 {
            set = set.revision(&format!("r{n}"), n, &format!("image-{n}"));
        }
        set.revision("new", 9, "v2").pods([0], "new")
    };
    assert_eq!(about_revisions(&many(json!(10))), [] as [&str; 0]);
    assert_eq!(about_revisions(&many(json!(3))), ["-revision old", "-revision r3"]);
    assert_eq!(
        about_revisions(&many(json!(3)).pod(pod("web-7").revision("old"))),
        ["-revision r3"],
        "a pod still has it, wanted or not"
    );
    assert_eq!(
        about_revisions(&many(json!(3)).pod(pod("web-8").revision("old").orphan())),
        ["-revision r3"],
        "a pod that is being adopted has it"
    );
    assert_eq!(
        about_revisions(&many(json!(0)).status("/currentRevision", json!("r3"))).len(),
        4,
        "current stays"
    );
}

/// It may be made yet, at a revision that nobody names any more.
#[test]
fn sts_1_1_8_nothing_is_dropped_while_the_creation_of_a_pod_is_lost() {
    let set = advanced(1)
        .spec("/revisionHistoryLimit", json!(0))
        .status("/currentRevision", json!("new"));
    let lost_until = |until: i64| {
        set.clone().hints(Hints {
            arrivals_until: Some(at(until)),
            ..Hints::default()
        })
    };
    let waits = lost_until(NOW + 7);
    assert_eq!(about_revisions(&waits), [] as [&str; 0]);
    let wake = waits.decide().wake_after.expect("looks again");
    assert!(wake <= std::time::Duration::from_secs(7), "{wake:?}");
    assert_eq!(about_revisions(&lost_until(NOW)), ["-revision old"]);
}

#[test]
fn sts_1_1_8_a_revision_is_dropped_as_it_was_seen() {
    // The request may come late: by then the set may be gone without its revisions, and another may have adopted this one.
    let set = advanced(1)
        .spec("/revisionHistoryLimit", json!(0))
        .revision("stale", 0, "ancient");
    let decision = set.revision("new", 9, "v2").pods([0], "new").decide();
    let versions: Vec<_> = decision
        .commands()
        .filter_map(|scoped| match &scoped.command {
            Command::Delete {
                key, resource_version, ..
            } => Some((&*key.name, resource_version.is_some())),
            _ => None,
        })
        .collect();
    assert!(versions.contains(&("stale", true)), "{versions:?}");
    assert!(versions.iter().all(|(_, is_tested)| *is_tested), "{versions:?}");
}

#[test]
fn sts_1_1_8_and_8_19_a_negative_history_limit_keeps_everything() {
    let mut set = advanced(1).spec("/revisionHistoryLimit", json!(-1)).pods([0], "new");
    for n in 3..20 {
        set = set.revision(&format!("r{n}"), n, &format!("image-{n}"));
    }
    let set = set.revision("new", 99, "v2");
    assert_eq!(about_revisions(&set), [] as [&str; 0]);
    let conditions = set.decide().status.expect("a status").desired["conditions"].clone();
    assert!(
        conditions.to_string().contains("spec.revisionHistoryLimit"),
        "{conditions}"
    );
}

#[test]
fn sts_1_1_8_it_is_cut_also_while_the_set_is_held_up() {
    let set = native(2)
        .ordered()
        .spec("/revisionHistoryLimit", json!(0))
        .revision("stale", 0, "ancient");
    assert_eq!(
        about_revisions(&set.pod(pod("web-0").revision("old").unready())),
        ["-revision stale"]
    );
}

#[test]
fn sts_8_6_the_claim_templates_are_recorded_beside_the_payload() {
    let (_, with) = made(&advanced(1).no_revisions().claim_templates(&["data"])).expect("a revision");
    let (_, without) = made(&advanced(1).no_revisions()).expect("a revision");
    assert_eq!(with["data"], without["data"], "the hash stays what it was");
    assert_eq!(with["metadata"]["name"], without["metadata"]["name"]);
    let record = with["metadata"]["annotations"]["flotilla.rs/claim-templates"]
        .as_str()
        .expect("our record");
    assert!(record.contains("\"data\""), "{record}");
}

/// Whatever number somebody gave a revision, no write is decided that changes nothing.
#[test]
fn sts_1_1_5_a_revision_is_raised_only_where_a_number_above_is_left() {
    const MOST: i64 = i64::MAX;
    for (number, other, expected) in [
        (1, MOST - 1, Some(MOST)),
        (1, MOST, Some(MOST)),
        (MOST - 1, MOST, Some(MOST)),
        (MOST, MOST, None),
    ] {
        let set = advanced(1)
            .no_revisions()
            .revision("new", number, "v2")
            .revision("old", other, "v1")
            .status("/currentRevision", json!("new"))
            .pods([0], "new");
        let decision = set.decide();
        let raised = decision.commands().find_map(|c| match &c.command {
            Command::Patch { key, body, .. } if key.name == *"new" => body["revision"].as_i64(),
            _ => None,
        });
        assert_eq!(raised, expected, "{number} below {other}");
        assert_eq!(
            brief(&decision).len(),
            usize::from(expected.is_some()),
            "no pod is touched"
        );
    }
}

/// Labels are put back where that helps: a merge takes none away that the selector forbids.
#[test]
fn sts_1_1_5_labels_of_a_revision_are_put_back_only_where_it_is_found_by_them() {
    let selector =
        json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "canary", "operator": "DoesNotExist"}]});
    let set = || {
        advanced(1)
            .spec("/selector", selector.clone())
            .status("/currentRevision", json!("new"))
            .pods([0], "new")
    };
    assert_eq!(brief(&set().labelled("new", "canary").decide()), [] as [&str; 0]);
    assert_eq!(
        brief(&set().unlabelled_revisions().decide()),
        ["~revision old", "~revision new"]
    );
    assert_eq!(
        brief(&set().unlabelled_revisions().labelled("new", "canary").decide()),
        ["~revision old"]
    );
}

/// A former set with the same name and template was deleted, and its revision left to nobody.
#[test]
fn sts_1_1_5_what_a_former_set_has_left_restarts_no_pod() {
    let set = || {
        let set = advanced(2).no_revisions().revision("own", 1, "v2");
        set.status("/currentRevision", json!("own"))
    };
    let left = || set().revision_record("web-left", 5, &template("v2"), None);
    let about_pods = |set: &Cluster| {
        let all = brief(&set.decide());
        all.into_iter().filter(|c| !c.contains("revision")).collect::<Vec<_>>()
    };
    let before = left().pods([0, 1], "own");
    assert_eq!(about_revisions(&before).len(), 2, "adopted, and the own one raised");
    assert_eq!(about_pods(&before), [] as [&str; 0]);
    // The adoption went through, and the other write did not.
    let adopted = set().revision("web-left", 5, "v2").pods([0, 1], "own");
    assert_eq!(about_pods(&adopted), [] as [&str; 0]);
    assert_eq!(
        about_pods(&left()),
        ["+web-0@own", "+web-1@own"],
        "no pod names one, and the own one counts"
    );
    // A manager that took the newest one has begun to bring pods to it.
    let begun = set()
        .revision("web-left", 5, "v2")
        .pods([0], "own")
        .pods([1], "web-left");
    assert_eq!(about_pods(&begun), ["-web-0"]);
    // Both are the set's, and pods name both, as one was adopted with its revision: those of the set's own stay.
    let with_status = |begun: &Cluster| begun.clone().status("/updateRevision", json!("own"));
    assert_eq!(about_pods(&with_status(&begun)), ["-web-1"]);
    let more = set().revision("web-left", 5, "v2").pods([0, 1], "own");
    assert_eq!(
        about_pods(&with_status(&more.pods([7], "web-left"))),
        ["-web-7"],
        "scaling down alone"
    );
    let changed = begun
        .no_revisions()
        .revision("web-left", 5, "v2")
        .revision("own", 1, "v1");
    assert_eq!(
        about_pods(&with_status(&changed)),
        ["-web-0"],
        "the status counts only among equal ones"
    );
}

/// Two sets with one selector. One is deleted and leaves pods and revision to nobody, to be made again: it must find them as they were.
#[test]
fn sts_1_1_5_an_orphan_with_the_name_of_another_set_is_left_to_that() {
    for set in [native(2), advanced(2)] {
        let set = set.no_revisions().revision("web-own", 1, "v2");
        let set = set.status("/currentRevision", json!("web-own")).pods([0, 1], "web-own");
        let beside = set.clone().revision_record("blue-left", 5, &template("v2"), None);
        assert_eq!(brief(&beside.decide()), [] as [&str; 0], "equal");
        let other = set.clone().revision_record("blue-left", 5, &template("other"), None);
        assert_eq!(brief(&other.decide()), [] as [&str; 0], "of another template");
        // A name that begins like ours is another set's as well.
        let longer = set.clone().revision_record("web-blue-left", 5, &template("v2"), None);
        assert_eq!(brief(&longer.decide()), [] as [&str; 0], "web-blue");
        let recorded = set.status("/currentRevision", json!("blue-left"));
        let recorded = recorded.revision_record("blue-left", 1, &template("other"), None);
        assert_eq!(
            about_revisions(&recorded),
            ["~revision blue-left"],
            "our status names it"
        );
    }
    // Pods that are ours by name, and came from it.
    let moved = advanced(1).no_revisions().pods([0], "blue-left");
    let moved = moved.revision_record("blue-left", 5, &template("v2"), None);
    assert_eq!(about_revisions(&moved), ["~revision blue-left"]);
}
