//! Updates with maxSurge: what pods have stored stays with them (CS-13.5, CS-13.6, CS-13.9), and whatever serves counts (CS-13.11).

use super::{done, name, one, pods, said};
use crate::testing::{ClaimFixture, Cluster, NOW, at, claim, clones, pod};
use flotilla_api::names;
use flotilla_model::decision::{Command, Report, Scope};
use flotilla_model::records::GateCondition;
use flotilla_model::{Decision, Failure, Resource};
use serde_json::{Value, json};

pub(super) fn data(n: usize) -> ClaimFixture {
    claim(&format!("data-{}", name(n))).of_clone(&format!("b{n:04}"))
}

/// Names of claims that are given to their pods, so that they go with them.
fn given_away(decision: &Decision) -> Vec<String> {
    let given = |command: &Command| match command {
        Command::Patch {
            resource: Resource::Claims,
            key,
            body,
            ..
        } => {
            let owner = body.pointer("/metadata/ownerReferences/0/kind")?;
            (owner == "Pod").then(|| key.name.to_string())
        }
        _ => None,
    };
    decision.commands().filter_map(|c| given(&c.command)).collect()
}

/// Pods that are made, and whether as surge.
fn noted(decision: &Decision) -> Vec<(String, bool)> {
    let made = |command: &Command| match command {
        Command::Create {
            resource: Resource::Pods,
            key,
            body,
            ..
        } => {
            let note = &body.render()["metadata"]["annotations"][names::MADE_AS_SURGE];
            Some((key.name.to_string(), note.as_str() == Some(key.name.as_str())))
        }
        _ => None,
    };
    decision.commands().filter_map(|c| made(&c.command)).collect()
}

/// Pods with a claim each, in the words of the table of CS-13.13, one for each; `*` was made as surge.
pub(super) fn with_data(mut set: Cluster, words: &str) -> Cluster {
    for (n, word) in words.split(' ').enumerate() {
        let mut pod = one(&name(n), word.trim_end_matches('*')).mounts(&["data"]);
        if word.ends_with('*') {
            pod = pod.annotated(names::MADE_AS_SURGE, &name(n)).created(NOW - 60);
        }
        set = set.pod(pod).claim(data(n));
    }
    set
}

pub(super) fn surging(replicas: i32, rolling: &Value) -> Cluster {
    let set = clones(replicas)
        .claim_templates(&["data"])
        .status("/currentRevision", json!("web-old"));
    let fields = rolling.as_object().expect("fields").iter();
    fields.fold(set, |set, (field, value)| {
        set.spec(&format!("/updateStrategy/rollingUpdate/{field}"), value.clone())
    })
}

fn taken_out(decision: &Decision) -> Vec<String> {
    said(decision)
        .into_iter()
        .filter(|s| s.starts_with("unready"))
        .collect()
}

/// The default of 20 % is none of four beside a surge: the surge is the only way, and the pod that was made for it goes again, not one that
/// could be updated and has stored something.
#[test]
fn cs_13_5_and_15_5_every_pod_that_can_go_in_place_is_updated_and_the_surge_goes() {
    let set = |words| {
        let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxSurge": 1});
        with_data(surging(4, &rolling), words).decide()
    };
    let made = set("o o o o");
    let is_noted = |command: &Command| match command {
        Command::Create {
            resource: Resource::Pods,
            body,
            ..
        } => {
            let metadata = &body.render()["metadata"];
            metadata["annotations"][names::MADE_AS_SURGE] == metadata["name"]
        }
        _ => false,
    };
    assert!(made.commands().any(|c| is_noted(&c.command)), "{:?}", said(&made));
    for (words, updated) in [
        ("o o o o n*", "in-place: ~Pod web-b0000"),
        ("n o o o n*", "in-place: ~Pod web-b0001"),
        ("n n o o n*", "in-place: ~Pod web-b0002"),
        ("n n n o n*", "in-place: ~Pod web-b0003"),
    ] {
        let decision = set(words);
        assert!(
            said(&decision).iter().any(|s| s == updated),
            "{words}: {:?}",
            said(&decision)
        );
        assert_eq!(given_away(&decision), [] as [&str; 0], "{words}");
    }
    assert_eq!(
        given_away(&set("n n n n n*")),
        ["data-web-b0004"],
        "the youngest data goes"
    );
    // Whatever became of the others: one that is on its way in place is not taken for it either, and the surge waits for that one.
    assert_eq!(given_away(&set("n n n nx n*")), [] as [&str; 0]);
}

/// A pod that is lost while the surge is there is replaced within it.
#[test]
fn cs_13_8_what_only_replaces_a_pod_is_not_noted_as_surge() {
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxSurge": 1, "maxUnavailable": 1});
    let decision = with_data(surging(4, &rolling), "o o o").decide();
    let noted = decision.commands().filter(|c| match &c.command {
        Command::Create { body, .. } => !body.render()["metadata"]["annotations"][names::MADE_AS_SURGE].is_null(),
        _ => false,
    });
    assert_eq!(noted.count(), 0, "{:?}", said(&decision));
}

/// Users may ask in the midst of it that pods keep their claims: nobody knows before whether a surge pod stands for data.
#[test]
fn cs_13_8_whatever_becomes_of_claims_a_surge_is_no_replica() {
    let rolling = json!({"maxSurge": 1, "maxUnavailable": 0});
    let set = |words| with_data(surging(3, &rolling), words).decide();
    assert_eq!(noted(&set("o o o")), [("web-z4jm5".to_owned(), true)]);
    let last = set("n n o n*");
    assert_eq!(given_away(&last), [] as [&str; 0]);
    assert!(
        said(&last).contains(&"in-place: ~Pod web-b0002".to_owned()),
        "it is marked: {:?}",
        said(&last)
    );
    let without_claims = pods(clones(3), "3o")
        .rolling(rolling)
        .status("/currentRevision", json!("web-old"));
    assert_eq!(
        noted(&without_claims.decide())
            .iter()
            .map(|(_, noted)| *noted)
            .collect::<Vec<_>>(),
        [false]
    );
}

/// Given back to OpenKruise in the midst of an update, and taken over after it: that let the surge stay, and it has stored something since.
#[test]
fn cs_13_8_what_somebody_else_has_let_stay_is_a_replica() {
    let settled = |words: &str| in_place(3, 1, words).status("/currentRevision", json!("web-new"));
    let set = settled("n n n*").claim(data(2).annotated(names::MADE_AS_SURGE, &name(2)));
    assert_eq!(
        said(&set.decide()),
        [
            "claims: ~PersistentVolumeClaim data-web-b0002",
            "repair: ~Pod web-b0002"
        ],
        "the notes go"
    );
    // Nor does it matter how the pods are: whom we took for a surge would go with what it has stored.
    let unwell = said(&settled("n nx n*").decide());
    assert_eq!(unwell, ["repair: ~Pod web-b0002"]);
    // It is not while something that a replica has stored waits for a pod, or an update is under way.
    let kept = settled("n n n*").claim(claim("data-web-bcdfg").of_clone("bcdfg"));
    let kept = kept.spec("/scaleStrategy/enablePVCReuse", json!(true)).decide();
    assert_eq!(noted(&kept), [("web-bcdfg".to_owned(), false)]);
    let between = in_place(3, 1, "n n n*").decide();
    assert_eq!(noted(&between).len(), 1, "{:?}", said(&between));
}

/// What another set has made as surge, and users have moved here, is like any other pod (CS-11).
#[test]
fn cs_13_8_a_surge_pod_of_another_set_is_a_replica() {
    let moved = pod("blue-bcdfg").revision("web-new").mounts(&["data"]);
    let moved = moved
        .label(names::INSTANCE_ID_LABEL, "bcdfg")
        .label(names::TEMPLATE_HASH_LABEL, "new");
    let set = in_place(3, 1, "n n").pod(moved.annotated(names::MADE_AS_SURGE, "blue-bcdfg"));
    assert_eq!(said(&set.decide()), [] as [&str; 0]);
}

/// A webhook takes annotations off pods: what they have stored is not a surge's, which nobody would use again.
#[test]
fn cs_13_8_a_claim_is_noted_only_for_as_long_as_its_pod_is() {
    let noted_claim = data(2).annotated(names::MADE_AS_SURGE, &name(2));
    let set = in_place(3, 1, "n n")
        .pod(one(&name(2), "n").mounts(&["data"]))
        .claim(noted_claim);
    assert_eq!(said(&set.decide()), ["claims: ~PersistentVolumeClaim data-web-b0002"]);
}

/// The old pod that the partition keeps comes back when it has gone: the surge that is made beside it is of the update revision, and not old.
#[test]
fn cs_13_8_beside_an_old_replica_that_is_waited_for_the_surge_is_new() {
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxSurge": 1, "maxUnavailable": 0, "partition": 2});
    let set = with_data(surging(4, &rolling), "o o o n").spec("/scaleStrategy/enablePVCReuse", json!(true));
    let mut set = set;
    let lost = set.pods.get_mut(&name(0)).expect("it is there");
    std::sync::Arc::make_mut(lost).meta.deleted = Some(at(NOW));
    set.own_pods = set.pods.values().cloned().collect();
    set.set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(1);
    let decision = set.decide();
    let revisions: Vec<Value> = decision
        .commands()
        .filter_map(|c| match &c.command {
            Command::Create {
                resource: Resource::Pods,
                body,
                ..
            } => Some(body.render()["metadata"]["labels"][names::REVISION_LABEL].clone()),
            _ => None,
        })
        .collect();
    assert_eq!(revisions, ["web-new"], "{:?}", said(&decision));
}

#[test]
fn cs_15_5_claims_that_are_kept_on_recreate_are_kept_of_the_last_pod_too() {
    let set = |words, partition| {
        let rolling = json!({"maxSurge": 1, "maxUnavailable": 0, "partition": partition});
        let set = surging(3, &rolling).annotation(names::KEEP_CLAIMS_ON_RECREATE, "true");
        with_data(set, words).decide()
    };
    for (words, partition) in [("n n o n*", 0), ("o o o n*", 2)] {
        let decision = set(words, partition);
        assert_eq!(given_away(&decision), [] as [&str; 0], "{words}");
        let marks = said(&decision).into_iter().filter(|s| s.starts_with("in-place: ~Pod"));
        assert_eq!(marks.count(), 1, "{words}: {:?}", said(&decision));
    }
}

#[test]
fn cs_13_9_with_no_surge_any_more_what_was_made_as_surge_goes_first() {
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxSurge": 0, "maxUnavailable": 1});
    let decision = with_data(surging(4, &rolling), "o o o o n* n*").decide();
    assert_eq!(given_away(&decision), ["data-web-b0004", "data-web-b0005"]);
}

fn in_place(replicas: i32, surge: i32, words: &str) -> Cluster {
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxSurge": surge, "maxUnavailable": 0});
    with_data(surging(replicas, &rolling), words)
}

/// The template changed while a surge pod was there: what it was made for is no more, and another one is made.
#[test]
fn cs_13_9_a_surge_of_another_revision_goes() {
    let decision = in_place(3, 1, "n n o o*").decide();
    assert_eq!(given_away(&decision), ["data-web-b0003"]);
    assert!(
        !said(&decision).iter().any(|s| s.starts_with("in-place")),
        "{:?}",
        said(&decision)
    );
    // It is not that which serves in the place of a replica, though.
    assert_eq!(given_away(&in_place(3, 1, "nx n o o*").decide()), [] as [&str; 0]);
}

/// Its claim is there by then: it is not taken for one that somebody has stored something on.
#[test]
fn cs_13_8_a_surge_pod_that_was_refused_is_one_when_it_is_tried_again() {
    let refused = |note: Option<&str>| {
        let mut set = in_place(4, 1, "o o o o");
        let mut failure = Failure::follow(None, Report::Create, "Forbidden".into(), "no".into(), at(NOW - 10));
        failure.retry_at = at(NOW - 1);
        set.hints.failures.insert(Scope::Named("web-z4jm5".into()), failure);
        let claim = claim("data-web-z4jm5").of_clone("z4jm5");
        set.claim(match note {
            Some(note) => claim.annotated(names::MADE_AS_SURGE, note),
            None => claim,
        })
    };
    assert_eq!(
        noted(&refused(Some("web-z4jm5")).decide()),
        [("web-z4jm5".to_owned(), true)]
    );
    // What was made for a replica is for a replica.
    for note in [None, Some("true")] {
        let made = noted(&refused(note).decide());
        assert!(made.len() == 1 && made[0].0 != "web-z4jm5" && made[0].1, "{made:?}");
    }
}

/// Nobody is made for it: what is made for those that the update has marked is surge, and no replica.
#[test]
fn cs_13_8_a_surge_pod_that_users_want_deleted_leaves_no_room_for_a_replica() {
    let rolling = json!({"maxSurge": 2, "maxUnavailable": 0});
    let mut set = surging(2, &rolling).annotation(names::KEEP_CLAIMS_ON_RECREATE, "true");
    for n in 0..2 {
        let marked = one(&name(n), "o").mounts(&["data"]);
        let marked = marked.label(names::SPECIFIED_DELETE_LABEL, "true");
        set = set
            .pod(marked.annotated(names::REPLACED_BY_UPDATE, "true"))
            .claim(data(n));
    }
    let surge = one(&name(2), "n!")
        .mounts(&["data"])
        .annotated(names::MADE_AS_SURGE, &name(2));
    let decision = set.pod(surge).claim(data(2)).decide();
    let made = noted(&decision);
    assert!(matches!(&made[..], [(_, true)]), "{made:?}: {:?}", said(&decision));
}

/// Of a template that the set has no more, which the revision of the surge may have yet.
#[test]
fn cs_13_8_a_surge_takes_no_claim_of_a_former_template() {
    let set = in_place(3, 1, "o o o").spec("/scaleStrategy/enablePVCReuse", json!(true));
    let made = noted(&set.claim(claim("former-web-bcdfg").of_clone("bcdfg")).decide());
    assert!(made.len() == 1 && made[0].0 != "web-bcdfg" && made[0].1, "{made:?}");
}

/// With reuse, what it has stored waits for it, whatever else serves meanwhile.
#[test]
fn cs_13_8_and_15_5_a_replica_that_is_lost_beside_a_surge_is_waited_for() {
    let reusing = |words| in_place(4, 1, words).spec("/scaleStrategy/enablePVCReuse", json!(true));
    let mut set = reusing("o o o o n*");
    let lost = set.pods.get_mut(&name(3)).expect("it is there");
    std::sync::Arc::make_mut(lost).meta.deleted = Some(at(NOW));
    set.own_pods = set.pods.values().cloned().collect();
    assert_eq!(noted(&set.decide()), []);
    // It is gone, and its claim is there.
    let gone = reusing("o o o o* n*").claim(claim("data-web-bcdfg").of_clone("bcdfg"));
    assert_eq!(noted(&gone.decide()), [("web-bcdfg".to_owned(), false)]);
}

/// More of it than replicas, and more than there may be now: it goes, however little it leaves.
#[test]
fn cs_13_9_a_large_surge_costs_no_replica_when_there_is_to_be_less() {
    for (surge, gone) in [(0, 3), (1, 2), (2, 2)] {
        let decision = in_place(1, surge, "o n* n* n*").decide();
        let given = given_away(&decision);
        assert!(
            !given.contains(&"data-web-b0000".to_owned()) && given.len() == gone,
            "{surge}: {given:?}"
        );
    }
}

#[test]
fn cs_13_8_pods_that_go_back_leave_the_surge_that_was_made_for_it() {
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxSurge": 1, "maxUnavailable": 0, "partition": 3});
    let set = |words| {
        with_data(
            surging(5, &rolling).annotation(names::PARTITION_ROLLBACK, "true"),
            words,
        )
        .decide()
    };
    let first = noted(&set("o n n n n"));
    assert!(matches!(&first[..], [(_, true)]), "{first:?}");
    assert_eq!(given_away(&set("o o n n n o*")), [] as [&str; 0]);
    assert_eq!(given_away(&set("o o o n n o*")), ["data-web-b0005"]);
}

#[test]
fn cs_13_9_what_an_edit_makes_too_many_goes_beside_the_surge() {
    // Paused, and without any surge since: what replicas have stored stays.
    let paused = in_place(3, 1, "o o o n*").spec("/updateStrategy/rollingUpdate/paused", json!(true));
    assert_eq!(given_away(&paused.decide()), ["data-web-b0003"]);
    // Scaled in when all are new: the broken one goes, though the surge has to stay until others serve.
    let scaled = in_place(3, 1, "n n nx n n*").decide();
    assert_eq!(given_away(&scaled), ["data-web-b0004", "data-web-b0002"]);
    let scaled = in_place(3, 1, "nx nx n n n*").decide();
    assert_eq!(given_away(&scaled), ["data-web-b0000"]);
}

/// A webhook writes it on all pods, or somebody copies it: no more than twice the replicas are made.
#[test]
fn cs_13_8_a_note_makes_no_pods() {
    for (there, made) in [(3, 3), (5, 1), (6, 0), (7, 0)] {
        let decision = in_place(3, 1, &vec!["n*"; there].join(" ")).decide();
        assert_eq!(noted(&decision).len(), made, "{there}: {:?}", said(&decision));
    }
    let mut copied = in_place(3, 1, "n n");
    copied = copied.pod(
        one(&name(2), "n")
            .mounts(&["data"])
            .annotated(names::MADE_AS_SURGE, &name(1)),
    );
    assert_eq!(said(&copied.claim(data(2)).decide()), [] as [&str; 0]);
}

/// With reuse, too: what is noted so and has no pod is nobody's.
#[test]
fn cs_13_8_replicas_take_no_claims_of_a_surge() {
    let set = in_place(3, 1, "n n").spec("/scaleStrategy/enablePVCReuse", json!(true));
    let left = claim("data-web-bcdfg").of_clone("bcdfg");
    let decision = set.claim(left.annotated(names::MADE_AS_SURGE, "web-bcdfg")).decide();
    let made = noted(&decision);
    assert!(made.len() == 1 && made[0].0 != "web-bcdfg" && !made[0].1, "{made:?}");
    assert!(
        said(&decision).contains(&"claims: -PersistentVolumeClaim data-web-bcdfg".to_owned()),
        "it goes"
    );
}

#[test]
fn cs_13_6_pods_that_can_go_back_in_place_need_no_surge() {
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxSurge": 1, "maxUnavailable": 1, "partition": 2});
    let set = surging(4, &rolling).annotation(names::PARTITION_ROLLBACK, "true");
    let decision = with_data(set, "o n n n").decide();
    assert_eq!(
        said(&decision),
        ["unready: ~Pod web-b0001", "in-place: ~Pod web-b0001"],
        "no pod is made for it"
    );
}

/// A user sees a broken new pod, and pauses.
#[test]
fn cs_13_9_a_pause_deletes_no_pod_that_serves_where_one_is_broken() {
    let set = |words, paused: bool| {
        let set = clones(4)
            .spec("/updateStrategy/rollingUpdate/maxSurge", json!(1))
            .spec("/updateStrategy/rollingUpdate/maxUnavailable", json!("20%"))
            .spec("/updateStrategy/rollingUpdate/paused", json!(paused))
            .status("/currentRevision", json!("web-old"));
        let set = pods(set, words);
        done(&set, &set.decide())
    };
    assert_eq!(set("4o 1nx", false).surplus, 0);
    let paused = set("4o 1nx", true);
    assert_eq!((paused.surplus, paused.surplus_old), (1, 0));
}

#[test]
fn cs_13_9_scaled_in_during_a_broken_update_the_broken_pods_go_first() {
    let set = clones(5)
        .spec("/updateStrategy/rollingUpdate/maxUnavailable", json!(4))
        .status("/currentRevision", json!("web-old"));
    let set = pods(set, "6o 4nx");
    let done = done(&set, &set.decide());
    assert_eq!((done.surplus, done.surplus_old), (5, 1));
}

/// Within the surge a pod that is not ready has only begun.
#[test]
fn cs_13_9_at_the_end_of_a_surge_pods_that_begin_are_not_taken_for_broken_ones() {
    let set = clones(10)
        .spec("/updateStrategy/rollingUpdate/maxSurge", json!(3))
        .spec("/updateStrategy/rollingUpdate/maxUnavailable", json!(0))
        .status("/currentRevision", json!("web-old"));
    let set = pods(set, "3o 8n 2nx");
    let done = done(&set, &set.decide());
    assert_eq!((done.surplus, done.surplus_old), (1, 1));
}

fn young(replicas: i32, rolling: &Value, words: &str) -> Cluster {
    pods(surging(replicas, rolling).spec("/minReadySeconds", json!(600)), words)
}

/// Two releases within minReadySeconds: pods that serve and are not available yet are as good as others.
#[test]
fn cs_13_11_with_no_budget_no_young_pod_leaves_service_before_the_surge_serves() {
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxSurge": 1, "maxUnavailable": 0});
    for words in ["3o 1nx", "3oy 1nx"] {
        assert_eq!(
            taken_out(&young(3, &rolling, words).decide()),
            [] as [&str; 0],
            "{words}"
        );
    }
    assert_eq!(taken_out(&young(3, &rolling, "3oy 1ny").decide()).len(), 1);
}

#[test]
fn cs_13_11_a_missing_pod_uses_up_the_budget_of_young_pods_too() {
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1});
    for words in ["4o", "4oy"] {
        let mut set = young(5, &rolling, words);
        let mut failure = Failure::follow(None, Report::Create, "QuotaExceeded".into(), "no".into(), at(NOW));
        failure.retry_at = at(NOW + 10);
        set.hints.failures.insert(Scope::Named("web-bcdfg".into()), failure);
        assert_eq!(taken_out(&set.decide()), [] as [&str; 0], "{words}");
    }
}

/// One is out of service, and its change was refused: no second one leaves service for that.
#[test]
fn cs_13_11_while_changes_are_refused_young_pods_stay_in_service() {
    let out = one(&name(0), "oy").unready_since(NOW - 1).detailed(|d| {
        d.in_place_ready = Some(GateCondition {
            index: 0,
            is_true: false,
            message: "to web-new, begun at x".into(),
            since: Some(at(NOW - 1)),
        });
    });
    let mut set = surging(3, &json!({"podUpdatePolicy": "InPlaceIfPossible"}))
        .spec("/minReadySeconds", json!(600))
        .pod(out)
        .pod(one(&name(1), "oy"))
        .pod(one(&name(2), "oy"));
    set.hints.accepted.insert("web-new".into());
    let mut failure = Failure::follow(None, Report::InPlace, "Forbidden".into(), "no".into(), at(NOW));
    failure.retry_at = at(NOW + 10);
    set.hints.failures.insert(Scope::Named(name(0)), failure);
    set.hints.generation = 1;
    assert_eq!(taken_out(&set.decide()), [] as [&str; 0]);
}

/// Revisions of the pods that are made.
fn revisions_made(decision: &Decision) -> Vec<Value> {
    let made = decision.commands().filter_map(|c| match &c.command {
        Command::Create {
            resource: Resource::Pods,
            body,
            ..
        } => Some(body.render()["metadata"]["labels"][names::REVISION_LABEL].clone()),
        _ => None,
    });
    made.collect()
}

/// What is made as surge is no replica: with all others new, the update is not over while a replica is missing beside it.
#[test]
fn cs_21_2_a_surge_ends_no_update_and_the_partition_holds_for_who_is_missing() {
    let rolling = |surge, unavailable| json!({"podUpdatePolicy": "InPlaceIfPossible", "maxSurge": surge, "maxUnavailable": unavailable, "partition": 1});
    // Nothing is made while one is unavailable, or while a claim is waited for.
    for (words, reuse, surge) in [("n nx n*", false, 1), ("n nx o n*", true, 1), ("n nx o", true, 0)] {
        let mut set = with_data(surging(3, &rolling(surge, 1 - surge)), words)
            .spec("/scaleStrategy", json!({"maxUnavailable": 1, "enablePVCReuse": reuse}));
        if reuse {
            set = set.spec("/scaleStrategy", json!({"enablePVCReuse": true}));
            let lost = set.pods.get_mut(&name(2)).expect("it is there");
            std::sync::Arc::make_mut(lost).meta.deleted = Some(at(NOW));
            set.own_pods = set.pods.values().cloned().collect();
        }
        let first = set.decide();
        assert_eq!(revisions_made(&first), [] as [Value; 0], "{words}");
        let current = first
            .status
            .as_ref()
            .map_or(json!("web-old"), |status| status.desired["currentRevision"].clone());
        assert_eq!(current, "web-old", "{words}");
        let after: String = words.replace("nx", "n").replace(" o", "");
        let claim = data(2);
        let next = with_data(surging(3, &rolling(surge, 1 - surge)), &after)
            .spec("/scaleStrategy/enablePVCReuse", json!(reuse));
        let next = if reuse { next.claim(claim) } else { next };
        assert_eq!(revisions_made(&next.decide()), ["web-old"], "{words}");
    }
}

/// What is made beside a pod that users want deleted is a surge like any other: should they take that back, it goes, and no replica does. It is at the
/// revision of the pod that goes where the partition keeps that.
#[test]
fn cs_13_8_what_is_made_beside_a_pod_that_users_want_deleted_is_noted() {
    let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxSurge": 1, "maxUnavailable": 0, "partition": 3});
    let wished = with_data(surging(3, &rolling), "o o o!").decide();
    assert!(matches!(&noted(&wished)[..], [(_, true)]), "{:?}", said(&wished));
    assert_eq!(revisions_made(&wished), ["web-old"]);
    for (words, gone) in [
        ("o o o! ox*", None),
        ("o o o! o*", Some("data-web-b0002")),
        // It stays until the replacement is there, and serves.
        ("o o o* ox", None),
        ("o o o* o", Some("data-web-b0002")),
        // Users have changed their minds.
        ("o o o ox*", Some("data-web-b0003")),
        ("o o o o*", Some("data-web-b0003")),
    ] {
        let given = given_away(&with_data(surging(3, &rolling), words).decide());
        assert_eq!(given.first().map(String::as_str), gone, "{words}");
        assert!(given.len() <= 1, "{words}: {given:?}");
    }
    // Nor is it taken for a replica where an update goes on.
    for words in ["o o o nx*", "o o o n*", "n o o n*", "n n o n*"] {
        let given = given_away(&in_place(3, 1, words).decide());
        assert_eq!(given, [] as [&str; 0], "{words}");
    }
    assert_eq!(given_away(&in_place(3, 1, "n n n n*").decide()), ["data-web-b0003"]);
}

/// Of the two notes that of the pod counts: the claim of a replica is waited for, and taken again, although it is noted still.
#[test]
fn cs_13_8_and_r_34_the_claim_of_a_replica_that_goes_is_used_again_although_it_is_noted() {
    let set = in_place(3, 1, "n n")
        .spec("/scaleStrategy/enablePVCReuse", json!(true))
        .status("/currentRevision", json!("web-new"))
        .pod(one(&name(2), "n").mounts(&["data"]).terminating())
        .claim(data(2).annotated(names::MADE_AS_SURGE, &name(2)));
    let decision = set.decide();
    assert_eq!(given_away(&decision), [] as [&str; 0]);
    assert_eq!(
        said(&decision),
        ["claims: ~PersistentVolumeClaim data-web-b0002"],
        "its note is taken off"
    );
    let waits = |w: &flotilla_model::Wait| w.subject == name(2);
    assert!(decision.waits.iter().any(waits), "{:?}", decision.waits);
}

/// A webhook, or a user, takes the note off a pod: another will go in its place, and that is said.
#[test]
fn cs_13_8_who_takes_the_note_off_a_pod_is_told_what_follows() {
    for (words, told) in [("o o o n", 1), ("o o o n*", 0)] {
        let set = in_place(3, 1, words);
        let set = set.claim(data(3).annotated(names::MADE_AS_SURGE, &name(3)));
        let events = set.decide().events;
        let found = events
            .iter()
            .filter(|event| event.reason == "PodChangedByOthers")
            .count();
        assert_eq!(found, told, "{words}: {events:?}");
    }
}

/// Users want a pod deleted, and another is lost meanwhile: what is made now takes the place of neither. In that of the lost one its claim would have no
/// pod for good.
#[test]
fn r_34_who_is_lost_comes_back_also_where_another_is_to_be_deleted() {
    let rolling = json!({"maxSurge": 1, "maxUnavailable": 0});
    let set = |words| {
        let set = with_data(surging(3, &rolling).status("/currentRevision", json!("web-new")), words);
        set.spec("/scaleStrategy/enablePVCReuse", json!(true))
    };
    let lost = || one(&name(4), "n").mounts(&["data"]).terminating();
    let made = noted(&set("n! n").pod(lost()).claim(data(4)).decide());
    assert!(matches!(&made[..], [(_, true)]), "{made:?}");
    // It has gone, and so has the one that users wanted deleted.
    let back = noted(&set("n n*").claim(data(4)).decide());
    assert!(back.contains(&(name(4), false)), "{back:?}");
}

/// A surge of a revision between the two, or an old one that the partition needs no more, may never come up: it makes room for one that does.
#[test]
fn cs_13_9_a_surge_for_a_deletion_is_at_a_revision_that_is_asked_for() {
    let set = |partition: i32, revision: &str| {
        let rolling = json!({"maxSurge": 1, "maxUnavailable": 0, "partition": partition});
        let surge = one(&name(3), "ox").mounts(&["data"]).revision(revision);
        let surge = surge.annotated(names::MADE_AS_SURGE, &name(3));
        let set = with_data(surging(3, &rolling), "o o o!").pod(surge).claim(data(3));
        given_away(&set.decide())
    };
    assert_eq!(set(3, "web-old"), [] as [&str; 0], "as the partition asks");
    assert_eq!(set(3, "web-between"), ["data-web-b0003"]);
    assert_eq!(set(0, "web-old"), ["data-web-b0003"]);
    assert_eq!(set(0, "web-new"), [] as [&str; 0]);
}
