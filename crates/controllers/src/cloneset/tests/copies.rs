//! Pods that users have copied, and labels that they took off: whose claims are whose (CS-14.7, CS-15.4 and CS-15.5).

use super::scaling::{deleted, pod_owner};
use super::{name, one, said};
use crate::cloneset::CloneSetController;
use crate::testing::{ClaimFixture, Cluster, NOW, PodFixture, at, claim, clones, owner, pod};
use flotilla_api::names;
use flotilla_model::decision::{Command, Report, Scope};
use flotilla_model::records::Phase;
use flotilla_model::{Change, Controller, Decision, Failure, OwnerRef, Resource};
use serde_json::{Value, json};
use std::sync::Arc;

/// Names of those to whom a decision gives a claim.
fn given(decision: &Decision, claim: &str) -> Vec<Value> {
    let owners = decision.commands().filter_map(|c| match &c.command {
        Command::Patch {
            resource: Resource::Claims,
            key,
            body,
            ..
        } if key.name.as_str() == claim => body.pointer("/metadata/ownerReferences/0/name").cloned(),
        _ => None,
    });
    owners.collect()
}

fn claims_deleted(decision: &Decision) -> usize {
    let commands = decision.commands().map(|c| &c.command);
    let deletes = |c: &Command| {
        matches!(
            c,
            Command::Delete {
                resource: Resource::Claims,
                ..
            }
        )
    };
    commands.filter(|c| deletes(c)).count()
}

fn set(replicas: i32, reuses: bool) -> Cluster {
    without_claim(replicas, reuses).claim(claim("data-web-b0000").of_clone("b0000"))
}

fn without_claim(replicas: i32, reuses: bool) -> Cluster {
    clones(replicas)
        .status("/currentRevision", json!("web-new"))
        .claim_templates(&["data"])
        .spec("/scaleStrategy/enablePVCReuse", json!(reuses))
        .spec("/updateStrategy/rollingUpdate/maxUnavailable", json!("100%"))
}

fn original() -> PodFixture {
    one(&name(0), "n").mounts(&["data"])
}

/// As `kubectl get -o json`, another name and `kubectl create` make it: labels, owner and volumes are those of the original.
fn copy(marks: &str) -> PodFixture {
    one("web-debug", marks)
        .label(names::INSTANCE_ID_LABEL, "b0000")
        .mounting("data", "data-web-b0000")
}

/// A claim goes with the last pod that has it: whichever is one too many, the other runs on it.
#[test]
fn cs_14_7_and_15_5_no_claim_goes_with_a_pod_while_another_that_stays_has_it() {
    let by_id_alone = || one("web-debug", "nx").label(names::INSTANCE_ID_LABEL, "b0000");
    let by_mount_alone = || copy("nx").label(names::INSTANCE_ID_LABEL, "zzzzz");
    for reuses in [false, true] {
        for (what, original, copy, goes) in [
            ("a copy", original(), copy("nx"), "web-debug"),
            ("its id alone", original(), by_id_alone(), "web-debug"),
            ("its claim alone", original(), by_mount_alone(), "web-debug"),
            (
                "a copy that is better",
                one(&name(0), "nx").mounts(&["data"]),
                copy("n"),
                "web-b0000",
            ),
            (
                "a copy that has ended",
                original(),
                copy("n!").phase(Phase::Failed),
                "web-debug",
            ),
            (
                "a copy of nobody",
                one(&name(0), "n!").mounts(&["data"]),
                copy("n").orphan(),
                "web-b0000",
            ),
        ] {
            let decision = set(1, reuses).pod(original).pod(copy).decide();
            assert_eq!(deleted(&decision), [goes], "{what}, reuse {reuses}");
            assert_eq!(
                given(&decision, "data-web-b0000"),
                [] as [Value; 0],
                "{what}, reuse {reuses}"
            );
            assert_eq!(claims_deleted(&decision), 0, "{what}, reuse {reuses}");
        }
    }
}

/// It may have been given to the copy before the original was seen, or for a deletion that was never made.
#[test]
fn cs_14_7_and_15_5_a_claim_that_was_given_to_one_of_two_pods_is_taken_back_for_the_other() {
    let of_copy = || {
        claim("data-web-b0000")
            .of_clone("b0000")
            .owners(vec![pod_owner("web-debug")])
    };
    for (what, copy) in [
        ("goes", copy("nx")),
        ("has gone", copy("nx").terminating()),
        ("has ended", copy("nx").phase(Phase::Failed)),
    ] {
        let decision = without_claim(1, true)
            .claim(of_copy())
            .pod(original())
            .pod(copy)
            .decide();
        assert_eq!(
            given(&decision, "data-web-b0000"),
            [json!("web")],
            "{what}: {:?}",
            said(&decision)
        );
    }
}

/// Or it would be left without a pod when both are gone: taken back for the copy, while that goes.
#[test]
fn cs_14_7_and_15_5_a_claim_that_was_given_to_a_pod_that_is_going_goes_with_its_last_copy() {
    let of_original = claim("data-web-b0000")
        .of_clone("b0000")
        .owners(vec![pod_owner(&name(0))]);
    let decision = without_claim(0, true)
        .claim(of_original)
        .pod(original().terminating())
        .pod(copy("n"))
        .decide();
    assert_eq!(deleted(&decision), ["web-debug"]);
    assert_eq!(given(&decision, "data-web-b0000"), [json!("web-debug")]);
}

/// Also where the pod has ended, and is to be deleted in the same pass: should the write to the claim be refused, its deletion would take the
/// claim from the copy.
#[test]
fn cs_14_7_and_15_5_a_pod_that_has_ended_goes_after_the_copy_that_takes_its_claim() {
    let of_original = claim("data-web-b0000")
        .of_clone("b0000")
        .owners(vec![pod_owner(&name(0))]);
    let ended = one(&name(0), "n!").mounts(&["data"]).phase(Phase::Failed);
    let decision = without_claim(0, true)
        .claim(of_original)
        .pod(ended)
        .pod(copy("n"))
        .decide();
    assert_eq!(deleted(&decision), ["web-debug"]);
    assert_eq!(given(&decision, "data-web-b0000"), [json!("web-debug")]);
    assert!(decision.wake_after.is_some(), "it goes then");
}

/// Deleting the pod that was let go would take along what the copy runs on. A claim that none of ours has stays with whom it was given to.
#[test]
fn cs_11_and_15_5_a_claim_that_was_given_to_a_pod_that_was_let_go_is_taken_back_for_its_copy() {
    let of_original = || {
        claim("data-web-b0000")
            .of_clone("b0000")
            .owners(vec![pod_owner(&name(0))])
    };
    let other = || one("web-c0000", "n");
    for (what, original, other, wanted) in [
        ("disowned", original().orphan(), copy("n"), vec![json!("web")]),
        ("no copy", original().orphan(), other(), vec![]),
        ("a copy of nobody", original().orphan(), copy("n").orphan(), vec![]),
        (
            "an ended copy",
            original().orphan(),
            copy("n").phase(Phase::Failed),
            vec![],
        ),
        (
            "its labels are another's",
            original().label("app", "other"),
            copy("n"),
            vec![json!("web")],
        ),
    ] {
        let decision = without_claim(1, true)
            .claim(of_original())
            .pod(original)
            .pod(other)
            .decide();
        assert_eq!(
            given(&decision, "data-web-b0000"),
            wanted,
            "{what}: {:?}",
            said(&decision)
        );
    }
}

/// Another controller's pod on the claim: one that was moved there by its owner reference (CS-11), or a Job's. Whose it is does not matter: the claim
/// that it mounts is not one of no pod.
#[test]
fn cs_15_3_and_15_4_a_claim_that_the_pod_of_another_controller_mounts_is_neither_deleted_nor_given_away_nor_used_again()
{
    let moved = || {
        original().owned_by(OwnerRef {
            controller: true,
            ..owner("apps/v1", "ReplicaSet", "theirs", "theirs-uid")
        })
    };
    let running = || one("web-c0000", "n").mounts(&["data"]);
    let with_both = |reuses, moved: PodFixture| {
        set(1, reuses)
            .claim(claim("data-web-c0000").of_clone("c0000"))
            .pod(moved)
            .pod(running())
    };
    for reuses in [false, true] {
        for (what, theirs) in [
            ("that was moved", moved()),
            ("that has ended", moved().phase(Phase::Failed)),
            ("that goes", moved().terminating()),
            ("without the id", moved().label(names::INSTANCE_ID_LABEL, "")),
            ("under another name", one_of_job()),
        ] {
            let decision = with_both(reuses, theirs.clone()).decide();
            assert_eq!(said(&decision), [] as [&str; 0], "{what}, reuse {reuses}");
            let grows = with_both(reuses, theirs).spec("/replicas", json!(2)).decide();
            let made = said(&grows).into_iter().filter(|word| word.contains("b0000")).count();
            assert_eq!(made, 0, "{what}, reuse {reuses}: {:?}", said(&grows));
        }
    }
    // Nor does it go with our pod, while theirs is there to stay.
    let decision = set(0, false).pod(original()).pod(one_of_job()).decide();
    assert_eq!(deleted(&decision), [name(0)]);
    assert_eq!(given(&decision, "data-web-b0000"), [] as [Value; 0]);
}

/// A Job's pod that mounts the claim of one of ours by its name.
fn one_of_job() -> PodFixture {
    pod("job-xyz").mounting("data", "data-web-b0000").owned_by(OwnerRef {
        controller: true,
        ..owner("batch/v1", "Job", "job", "job-uid")
    })
}

/// It is mounted by name; and without the set as its owner it would go with the pod, whoever deletes that.
#[test]
fn cs_15_5_a_claim_whose_id_users_took_off_is_taken_back_when_its_pod_stays() {
    let of_pod = |claim: ClaimFixture| claim.owners(vec![pod_owner(&name(0))]);
    for (what, of, wanted) in [
        ("its own", "data-web-b0000", vec![json!("web")]),
        (
            "one that it does not mount, as of an ephemeral volume",
            "web-b0000-cache",
            vec![],
        ),
    ] {
        let decision = without_claim(1, true).claim(of_pod(claim(of))).pod(original()).decide();
        assert_eq!(given(&decision, of), wanted, "{what}: {:?}", said(&decision));
    }
}

/// Seen: users took the id off the claim of a pod that had ended, and made a copy of that pod.
#[test]
fn cs_14_7_a_claim_whose_id_users_took_off_is_taken_back_for_the_copy_of_a_pod_that_has_ended() {
    let of_ended = claim("data-web-b0000").owners(vec![pod_owner(&name(0))]);
    let ended = original().phase(Phase::Failed);
    let decision = without_claim(1, false)
        .claim(of_ended)
        .pod(ended)
        .pod(copy("n").label(names::INSTANCE_ID_LABEL, "zzzzz"))
        .decide();
    assert_eq!(
        given(&decision, "data-web-b0000"),
        [json!("web")],
        "{:?}",
        said(&decision)
    );
}

/// Which of two deletions in one pass is refused nobody knows: the claim would go with the other, and the pod that stays runs on it.
#[test]
fn cs_14_7_and_15_5_of_two_pods_with_one_claim_one_goes_after_the_other_and_takes_it_along() {
    let first = set(0, true).pod(original()).pod(copy("n")).decide();
    let gone = deleted(&first);
    assert_eq!(gone.len(), 1, "{:?}", said(&first));
    assert_eq!(given(&first, "data-web-b0000"), [] as [Value; 0]);
    assert!(
        first.wake_after.is_some(),
        "nothing else need happen for the other to go"
    );
    let last = if gone[0] == "web-debug" {
        set(0, true).pod(original()).pod(copy("n").terminating())
    } else {
        set(0, true).pod(original().terminating()).pod(copy("n"))
    };
    let second = last.decide();
    assert_eq!(deleted(&second).len(), 1, "{:?}", said(&second));
    assert_eq!(given(&second, "data-web-b0000").len(), 1, "{:?}", said(&second));
    assert_ne!(deleted(&second), gone);
}

/// Whose claim it is, is known by the mount. Under reuse the next pod would take the id and find the data.
#[test]
fn cs_15_5_the_claim_of_a_pod_goes_with_it_whatever_its_label_says() {
    let stripped = |id: &str| original().label(names::INSTANCE_ID_LABEL, id);
    let unlabelled = original().detailed(|_| {});
    for (what, pod) in [
        ("empty", stripped("")),
        ("another", stripped("zzzzz")),
        ("none", unlabelled.without_label(names::INSTANCE_ID_LABEL)),
    ] {
        let goes = set(0, true).pod(pod.clone()).decide();
        assert_eq!(deleted(&goes), [name(0)], "{what}");
        assert_eq!(given(&goes, "data-web-b0000"), [json!(name(0))], "{what}");
        let of_pod = claim("data-web-b0000")
            .of_clone("b0000")
            .owners(vec![pod_owner(&name(0))]);
        let stays = without_claim(1, true).claim(of_pod).pod(pod).decide();
        assert_eq!(
            given(&stays, "data-web-b0000"),
            [json!("web")],
            "{what}: it stays after all"
        );
    }
}

/// Nothing else tells the set that its claim is without a pod.
#[test]
fn cs_15_4_claims_are_looked_at_when_a_pod_of_nobody_that_has_them_is_gone_or_gets_another_id() {
    let told = |old: PodFixture, new: Option<PodFixture>| {
        let mut cluster = set(1, false);
        cluster.record = Some(cluster.record());
        let built = |pod: PodFixture| Arc::new(pod.orphan().build("web"));
        let change = Change::Pod(Some(built(old)), new.map(built));
        let mut keys = Vec::new();
        CloneSetController::default().route(&change, &cluster, &mut keys);
        keys.into_iter().map(|key| key.name.to_string()).collect::<Vec<_>>()
    };
    let by_mount_alone = || one("web-debug", "n").mounting("data", "data-web-b0000");
    let by_id_alone = || one("web-debug", "n").label(names::INSTANCE_ID_LABEL, "b0000");
    let stranger = || {
        one("web-other", "n")
            .label(names::INSTANCE_ID_LABEL, "c0000")
            .mounting("data", "theirs")
    };
    for (what, pod) in [
        ("a copy", copy("n")),
        ("by its claim", by_mount_alone()),
        ("by its id", by_id_alone()),
    ] {
        assert_eq!(told(pod, None), ["web"], "{what}");
    }
    let another = || one("web-debug", "n").label(names::INSTANCE_ID_LABEL, "zzzzz");
    assert_eq!(told(by_id_alone(), Some(another())), ["web"], "it has another id");
    assert_eq!(told(stranger(), None), [] as [&str; 0]);
    assert_eq!(
        told(by_id_alone(), Some(by_id_alone())),
        [] as [&str; 0],
        "it is as it was"
    );
}

#[test]
fn cs_15_3_an_id_is_not_free_while_a_copy_that_leaves_mounts_its_claim() {
    let is_taken = |cluster: Cluster| said(&cluster.decide()).contains(&"create: +Pod web-b0000".to_owned());
    let leaving = copy("n").label(names::INSTANCE_ID_LABEL, "zzzzz").terminating();
    assert!(is_taken(set(2, true)));
    assert!(!is_taken(set(2, true).pod(leaving)));
    // In whatever phase, and also where it is nobody's.
    let ended = || copy("n").label(names::INSTANCE_ID_LABEL, "zzzzz").phase(Phase::Failed);
    for (what, pod) in [
        ("ours, ended", ended()),
        ("nobody's, ended", ended().orphan()),
        ("nobody's, on its way out", ended().orphan().terminating()),
    ] {
        assert!(!is_taken(set(2, true).pod(pod)), "{what}");
    }
}

/// Without reuse a claim goes with the pod that mounts it, also where users wrote another id on it, and the pod has ended.
#[test]
fn cs_15_4_a_claim_with_another_id_goes_with_the_pod_that_ended_on_it() {
    let set = |keeps: bool| {
        without_claim(1, false)
            .claim(claim("data-web-b0000").of_clone("zzzzz"))
            .annotation(
                "flotilla.rs/keep-claims-on-recreate",
                if keeps { "true" } else { "false" },
            )
    };
    let ended = || original().phase(Phase::Failed);
    for keeps in [false, true] {
        let decision = set(keeps).pod(ended()).decide();
        let to = given(&decision, "data-web-b0000");
        assert_eq!(to, [json!(name(0))], "keeps {keeps}: {:?}", said(&decision));
        let nobodys = set(keeps).pod(ended().orphan()).decide();
        assert_eq!(
            given(&nobodys, "data-web-b0000"),
            [] as [Value; 0],
            "it goes with what we let go"
        );
    }
}

/// Of a pod and its copy, which both have ended, the claim goes with that which we delete.
#[test]
fn cs_15_4_a_claim_goes_with_our_pod_before_a_copy_of_nobodys_that_has_ended_as_well() {
    let decision = set(1, false)
        .pod(copy("n").orphan().phase(Phase::Failed))
        .pod(original().phase(Phase::Failed))
        .decide();
    assert_eq!(given(&decision, "data-web-b0000"), [json!(name(0))]);
}

/// Its label says which pod it is; its name does only where it has no such label.
#[test]
fn cs_15_4_a_claim_with_the_id_in_the_name_of_a_pod_that_has_another_is_nobodys() {
    let stray = || claim("data-web-stray").of_clone("b0000");
    let own = || claim("data-web-b0000").of_clone("zzzzz");
    let deletes = |pod: PodFixture| {
        let decision = without_claim(1, false).claim(stray()).claim(own()).pod(pod).decide();
        said(&decision).contains(&"claims: -PersistentVolumeClaim data-web-stray".to_owned())
    };
    assert!(deletes(original().label(names::INSTANCE_ID_LABEL, "zzzzz")));
    assert!(!deletes(original()), "it has that id");
    assert!(
        !deletes(original().without_label(names::INSTANCE_ID_LABEL)),
        "it has that name, and no id"
    );
}

/// Users gave a pod another id, and it mounts no claim: the id in its name is free, and its name is not.
#[test]
fn cs_15_1_and_15_3_no_pod_is_made_under_the_name_of_another() {
    let left = claim("data-web-b0000").of_clone("b0000");
    let named = one(&name(0), "n").label(names::INSTANCE_ID_LABEL, "zzzzz");
    let decision = without_claim(2, true).claim(left).pod(named).decide();
    let made: Vec<String> = said(&decision)
        .into_iter()
        .filter(|word| word.contains("+Pod"))
        .collect();
    assert_eq!(made.len(), 1, "{made:?}");
    assert_ne!(made, ["create: +Pod web-b0000"]);
}

/// The id that would come next is one that a copy has, which nobody manages, or of which the set is to let go.
#[test]
fn cs_15_1_no_pod_gets_the_id_of_a_copy() {
    let made = |set: Cluster| {
        let mut words = said(&set.decide()).into_iter();
        let name = words.find_map(|word| word.strip_prefix("create: +Pod ").map(str::to_owned));
        name.expect("a pod is made")
    };
    let next = made(clones(1));
    let id = next.rsplit_once('-').expect("an id").1;
    let copy = || one("web-debug", "n").label(names::INSTANCE_ID_LABEL, id);
    for copy in [copy().orphan(), copy().label("app", "other"), copy().terminating()] {
        assert_ne!(made(clones(1).pod(copy)), next);
    }
}

/// Users gave a pod the id of one whose creation was refused, with a claim or without: no other pod gets that id.
#[test]
fn cs_15_1_no_refused_pod_is_tried_again_under_an_id_that_a_pod_has_since() {
    let failure = || Failure::follow(None, Report::Create, "Forbidden".into(), "no".into(), at(NOW - 100));
    let refused = Scope::Named("web-zzzzz".into());
    let taken = || one(&name(0), "n").label(names::INSTANCE_ID_LABEL, "zzzzz");
    let made_beside = |mut set: Cluster| {
        set.hints.failures.insert(refused.clone(), failure());
        said(&set.decide()).contains(&"create: +Pod web-zzzzz".to_owned())
    };
    let of_refused = || claim("data-web-zzzzz").of_clone("zzzzz");
    assert!(made_beside(clones(2)) && made_beside(without_claim(2, true).claim(of_refused())));
    assert!(!made_beside(clones(2).pod(taken())));
    assert!(!made_beside(without_claim(2, true).claim(of_refused()).pod(taken())));
    // A former set of this name, whose creation was refused, has left it to nobody.
    for reuses in [true, false] {
        let left = of_refused().owners(Vec::new());
        assert!(!made_beside(without_claim(2, reuses).claim(left)), "{reuses}");
    }
}

/// Users took the id off a pod that goes: a claim with the id in its name, which it does not mount, goes with it all the same.
#[test]
fn cs_14_7_what_a_pod_has_by_the_id_in_its_name_goes_with_it() {
    let labels: [fn(PodFixture) -> PodFixture; 3] = [
        |pod| pod,
        |pod| pod.without_label(names::INSTANCE_ID_LABEL),
        |pod| pod.label(names::INSTANCE_ID_LABEL, ""),
    ];
    for (label, reuses) in labels.into_iter().flat_map(|label| [(label, true), (label, false)]) {
        let decision = without_claim(0, reuses)
            .claim_templates(&["data", "cache"])
            .claim(claim("data-web-b0000").of_clone("b0000"))
            .claim(claim("cache-web-b0000").of_clone("b0000"))
            .pod(label(original()))
            .decide();
        assert_eq!(
            given(&decision, "cache-web-b0000"),
            [json!(name(0))],
            "{reuses}: {:?}",
            said(&decision)
        );
    }
}
