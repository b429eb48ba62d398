//! Claims that new pods do not take, and writes to claims that are refused, and what claims are made of (CS-14.7, CS-15.1,
//! CS-15.2, CS-15.4 and CS-15.5).

use super::scaling::{created, pod_owner};
use super::{name, one, said};
use crate::testing::{ClaimFixture, Cluster, NOW, PodFixture, at, claim, clones, folded};
use flotilla_api::names;
use flotilla_model::decision::{Command, Report, Scope, ScopedCommand};
use flotilla_model::records::Phase;
use flotilla_model::{Decision, Failure, Resource, WaitCause};
use serde_json::{Value, json};

/// For new pods, with a surge or without, and for pods that lack one (STS-1.4.3).
#[test]
fn cs_15_2_and_sts_1_4_1_a_claim_has_what_its_template_says_of_its_metadata() {
    let template = json!({
        "metadata": {
            "name": "data", "annotations": {"a": "b"}, "finalizers": ["example.com/keep"],
            "labels": {"app": "mine", "tier": "db", names::INSTANCE_ID_LABEL: "mine"},
        },
        "spec": {"x": 1},
    });
    let of = |set: Cluster| {
        set.claim_templates(&["data"])
            .spec("/volumeClaimTemplates", json!([template]))
    };
    let surging = || {
        clones(1)
            .spec("/updateStrategy/rollingUpdate/maxSurge", json!(1))
            .status("/currentRevision", json!("web-old"))
            .pod(one(&name(0), "o"))
    };
    let lacking = || clones(1).pod(one(&name(0), "nx").phase(Phase::Pending).mounts(&["data"]));
    for (what, set, is_surge) in [
        ("a new pod", clones(1), false),
        ("a surge", surging(), true),
        ("a pod that lacks it", lacking(), false),
    ] {
        let decision = of(set).decide();
        let [claim] = &claims_made(&decision)[..] else {
            panic!("{what}: {:?}", said(&decision));
        };
        let id = claim["metadata"]["name"].as_str().expect("a name");
        let id = id.strip_prefix("data-web-").expect("the pod's name");
        let mut annotations = json!({"a": "b"});
        if is_surge {
            annotations[names::MADE_AS_SURGE] = json!(format!("web-{id}"));
        }
        let metadata = &claim["metadata"];
        assert_eq!(metadata["annotations"], annotations, "{what}");
        assert_eq!(metadata["finalizers"], json!(["example.com/keep"]), "{what}");
        let labels = json!({"app": "web", "tier": "db", names::INSTANCE_ID_LABEL: id});
        assert_eq!(metadata["labels"], labels, "{what}");
        assert_eq!(claim["spec"], json!({"x": 1}), "{what}");
        let owner = &metadata["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["controller"]),
            (&json!("CloneSet"), &json!(true)),
            "{what}"
        );
    }
}

fn claims_made(decision: &Decision) -> Vec<Value> {
    let made = |command: &Command| match command {
        Command::Create {
            resource: Resource::Claims,
            body,
            ..
        } => Some(body.render()),
        _ => None,
    };
    decision.commands().filter_map(|c| made(&c.command)).collect()
}

/// A pod that mounts a claim on its way out would wait for ever, or go with it.
#[test]
fn cs_14_7_and_15_5_no_new_pod_mounts_a_claim_that_is_about_to_go() {
    let logs = || claim("logs-web-b0000").of_clone("b0000");
    let of_pod = || logs().owners(vec![pod_owner(&name(0))]);
    let set = clones(1)
        .claim_templates(&["data", "logs"])
        .spec("/scaleStrategy/enablePVCReuse", json!(true))
        .claim(claim("data-web-b0000").of_clone("b0000"));
    let is_wait = |w: &flotilla_model::Wait| w.subject == "logs-web-b0000";
    for (what, logs, made) in [
        ("there", logs(), 1),
        ("under deletion", logs().terminating(), 0),
        ("of a former pod", of_pod(), 0),
    ] {
        let decision = set.clone().claim(logs).decide();
        assert_eq!(created(&decision).len(), made, "{what}: {:?}", said(&decision));
        assert_eq!(
            decision.waits.iter().filter(|w| is_wait(w)).count(),
            1 - made,
            "{what}: {:?}",
            decision.waits
        );
    }
    // A name whose pod was refused before is given up (CS-15.1): nothing of it is worth the wait.
    let mut refused = clones(1)
        .claim_templates(&["data"])
        .claim(claim("data-web-b0000").of_clone("b0000").terminating());
    let mut failure = Failure::follow(None, Report::Create, "Forbidden".into(), "no".into(), at(NOW));
    failure.retry_at = at(NOW);
    refused.hints.failures.insert(Scope::Named(name(0)), failure);
    let decision = refused.decide();
    let made = created(&decision);
    assert_eq!(made.len(), 1, "{:?}", said(&decision));
    assert_ne!(made[0]["metadata"]["name"], json!(name(0)));
}

/// Seen: the failure was forgotten in the pass after it, and nobody looked again for ten hours.
#[test]
fn cs_15_4_and_10_11_a_refused_write_to_a_claim_backs_off_and_is_tried_again() {
    let set = || {
        clones(1)
            .claim_templates(&["data"])
            .status("/currentRevision", json!("web-new"))
    };
    let it = || claim("data-web-b0001").of_clone("b0001");
    let stays = || one(&name(0), "n");
    let of_no_pod = set().pod(stays()).claim(it());
    let leaving = one(&name(1), "n").mounts(&["data"]);
    let going = set().pod(stays()).pod(leaving.clone().terminating()).claim(it());
    let ended = set().pod(stays()).pod(leaving.phase(Phase::Failed)).claim(it());
    for (what, cluster, attempt, command, condition) in [
        ("of no pod", of_no_pod, Report::Delete, '-', "FailedScale"),
        ("of a pod that goes", going, Report::Update, '~', "FailedUpdate"),
        ("of a pod that has ended", ended, Report::Update, '~', "FailedUpdate"),
    ] {
        let wanted = [format!("claims: {command}PersistentVolumeClaim data-web-b0001")];
        assert_eq!(said(&cluster.decide()), wanted, "{what}");
        let scope = Scope::Named(name(1));
        let failure = Failure::follow(None, attempt, "Forbidden".into(), "not this claim".into(), at(NOW));
        let mut backing_off = cluster.clone();
        backing_off.hints.failures.insert(scope.clone(), failure.clone());
        let decision = backing_off.decide();
        assert_eq!(said(&decision), [] as [&str; 0], "{what}");
        assert!(
            decision.wake_after <= Some(failure.retry_at.since(at(NOW))),
            "{what}: {:?}",
            decision.wake_after
        );
        assert!(decision.wake_after.is_some(), "{what}: somebody looks again");
        let waits = decision.waits.iter().filter(|w| w.subject == "data-web-b0001");
        let causes: Vec<_> = waits.map(|w| &w.cause).collect();
        assert_eq!(causes, [&failure.wait_cause()], "{what}: {:?}", decision.waits);
        let is_kept = decision.hints.is_none_or(|hints| hints.failures.contains_key(&scope));
        assert!(is_kept, "{what}: it waits longer each time");
        let status = decision.status.expect("a status").desired;
        let conditions = status["conditions"].as_array().expect("conditions");
        let told = conditions.iter().find(|c| c["status"] == "True").expect("a condition");
        assert_eq!(told["type"], condition, "{what}");
        let mut due = backing_off;
        due.now = failure.retry_at;
        assert_eq!(said(&due.decide()), wanted, "{what}: when it is due");
    }
}

/// A pod that was refused, and is not wanted any more, leaves its claim only for as long as the failure is known.
#[test]
fn cs_15_4_the_claim_of_a_refused_pod_that_nobody_wants_any_more_is_looked_at_again() {
    let claim = claim("data-web-b0001").of_clone("b0001");
    let mut cluster = clones(1)
        .claim_templates(&["data"])
        .pod(one(&name(0), "n"))
        .claim(claim);
    let failure = Failure::follow(None, Report::Create, "QuotaExceeded".into(), "no".into(), at(NOW));
    cluster.hints.failures.insert(Scope::Named(name(1)), failure);
    let decision = cluster.decide();
    assert_eq!(said(&decision), [] as [&str; 0]);
    assert!(decision.wake_after.is_some(), "somebody looks again");
    let next = cluster.hints(decision.hints.expect("the failure is over")).decide();
    assert_eq!(said(&next), ["claims: -PersistentVolumeClaim data-web-b0001"]);
}

/// Without reuse, with `flotilla.rs/keep-claims-on-recreate`.
fn keeping(replicas: i32) -> Cluster {
    clones(replicas)
        .claim_templates(&["data"])
        .annotation(names::KEEP_CLAIMS_ON_RECREATE, "true")
}

fn data(n: usize) -> ClaimFixture {
    claim(&format!("data-{}", name(n))).of_clone(&format!("b{n:04}"))
}

/// What is written to claims of the note that they are kept.
fn noted(decision: &Decision) -> Vec<(String, Value)> {
    let note = |command: &Command| match command {
        Command::Patch {
            resource: Resource::Claims,
            key,
            body,
            resource_version,
            ..
        } => {
            assert!(resource_version.is_some(), "as it was seen");
            let note = body.pointer("/metadata/annotations")?.get(names::KEPT_FROM)?;
            Some((key.name.to_string(), note.clone()))
        }
        _ => None,
    };
    decision.commands().filter_map(|c| note(&c.command)).collect()
}

/// Seen: the claim of a pod that was deleted by force stayed, and the next growth mounted what was on it.
#[test]
fn cs_15_4_and_15_5_what_a_lost_pod_leaves_goes_and_what_an_update_makes_again_is_kept() {
    let set = |claim: ClaimFixture| keeping(1).pod(one(&name(1), "n")).claim(data(1)).claim(claim);
    let kept = || data(0).annotated(names::KEPT_FROM, "web-b0000-uid");
    let goes = ["claims: -PersistentVolumeClaim data-web-b0000"];
    assert_eq!(said(&set(data(0)).decide()), goes);
    assert_eq!(said(&set(kept()).decide()), [] as [&str; 0]);
    // Who has turned the switch off wants none kept.
    let off = set(kept()).annotation(names::KEEP_CLAIMS_ON_RECREATE, "false");
    assert_eq!(said(&off.decide()), goes);
    // Who has misspelt it has not.
    for misspelt in ["True", "yes", ""] {
        let unreadable = set(kept()).annotation(names::KEEP_CLAIMS_ON_RECREATE, misspelt);
        assert_eq!(said(&unreadable.decide()), [] as [&str; 0], "{misspelt:?}");
    }
    // The next pod takes what is kept, and nothing of a lost one.
    let grows = |claim| created(&set(claim).spec("/replicas", json!(2)).decide())[0]["metadata"]["name"].clone();
    assert_eq!(grows(kept()), json!(name(0)));
    assert_ne!(grows(data(0)), json!(name(0)));
    // It stays noted until its pod is there: the creation may be lost.
    let taken = set(kept()).spec("/replicas", json!(2)).decide();
    assert_eq!(noted(&taken), []);
}

/// What several claims of one id say has to be the same.
#[test]
fn cs_15_5_an_id_is_kept_with_all_of_its_claims() {
    let set = keeping(1)
        .claim_templates(&["data", "logs"])
        .claim(data(0).annotated(names::KEPT_FROM, "web-b0000-uid"))
        .claim(claim("logs-web-b0000").of_clone("b0000"));
    let decision = set.decide();
    assert_ne!(created(&decision)[0]["metadata"]["name"], json!(name(0)));
    assert_eq!(said(&decision)[0], "claims: -PersistentVolumeClaim logs-web-b0000");
}

#[test]
fn cs_15_5_the_claims_of_a_pod_that_is_made_again_are_noted_before_it_goes() {
    let marked = || {
        one(&name(0), "o")
            .label(names::SPECIFIED_DELETE_LABEL, "true")
            .annotated(names::REPLACED_BY_UPDATE, "true")
    };
    let set = |claim| keeping(1).pod(one(&name(1), "n")).claim(data(1)).claim(claim);
    let uid = one(&name(0), "o").build("web").meta.uid.to_string();
    let note = || vec![("data-web-b0000".to_owned(), json!(uid))];
    let both = [
        "claims: ~PersistentVolumeClaim data-web-b0000",
        "delete: -Pod web-b0000",
    ];
    // Each time anew: what would take the note off, and is still on its way, fails from then on.
    for claim in [data(0), data(0).annotated(names::KEPT_FROM, &uid)] {
        let decision = set(claim).pod(marked()).decide();
        assert_eq!(
            (said(&decision), noted(&decision)),
            (both.map(str::to_owned).to_vec(), note())
        );
    }
    // Also one that has ended before its turn came: seen, the claim went for good.
    let ended = set(data(0)).pod(marked().phase(Phase::Failed)).decide();
    assert_eq!(
        (said(&ended), noted(&ended)),
        (both.map(str::to_owned).to_vec(), note())
    );
    // One that goes already, by whomever, and has the mark: an older manager may have deleted it.
    let going = set(data(0)).pod(marked().terminating()).decide();
    assert_eq!((said(&going), noted(&going)), (vec![both[0].to_owned()], note()));
    let told = set(data(0).annotated(names::KEPT_FROM, &uid));
    assert_eq!(said(&told.pod(marked().terminating()).decide()), [] as [&str; 0]);
    // Where claims are used again no note is needed.
    let reuses = set(data(0))
        .pod(marked())
        .spec("/scaleStrategy/enablePVCReuse", json!(true));
    assert_eq!(said(&reuses.decide()), both[1..]);
}

/// The note of the former pod may be there still: a claim would stay with no pod.
#[test]
fn cs_14_7_the_claim_of_a_replacement_goes_with_it_also_before_the_note_is_off() {
    let pod = one(&name(0), "n").mounts(&["data"]);
    let set = keeping(0).claim(data(0).annotated(names::KEPT_FROM, "former"));
    assert_eq!(owners_given(&set.pod(pod).decide()), [json!(name(0))]);
}

/// A copy, by its mount or by its id, has the claim, too. It has ended, or goes: what is kept for the replacement does not go with it.
#[test]
fn cs_15_5_what_is_kept_for_a_replacement_goes_with_no_copy_of_its_pod() {
    let copy = || {
        one("web-debug", "n")
            .label(names::INSTANCE_ID_LABEL, "b0000")
            .mounting("data", "data-web-b0000")
    };
    for (what, copy) in [
        ("ended", copy().phase(Phase::Failed)),
        (
            "ended, and is to go",
            copy().phase(Phase::Failed).label(names::SPECIFIED_DELETE_LABEL, "true"),
        ),
        ("going", copy().terminating()),
    ] {
        let claim = data(0).annotated(names::KEPT_FROM, "former");
        let set = keeping(1).pod(one(&name(1), "n")).claim(data(1)).claim(claim).pod(copy);
        let said = said(&set.decide());
        assert!(
            !said.iter().any(|word| word.contains("PersistentVolumeClaim")),
            "{what}: {said:?}"
        );
    }
}

/// Else the claim would seem to be kept when that pod is lost later.
#[test]
fn cs_15_5_the_note_goes_when_the_replacement_is_there_or_the_pod_stays_after_all() {
    let note = |uid: &str| data(0).annotated(names::KEPT_FROM, uid);
    let own = one(&name(0), "n").build("web").meta.uid.to_string();
    for (what, uid) in [("its replacement", "former"), ("it stays", own.as_str())] {
        let set = keeping(1).pod(one(&name(0), "n")).claim(note(uid));
        let decision = set.decide();
        assert_eq!(noted(&decision), [("data-web-b0000".to_owned(), json!(null))], "{what}");
    }
    // Users have taken its id off: it is mounted by name.
    let nameless = note("former").without_labels();
    let decision = keeping(1)
        .pod(one(&name(0), "n").mounts(&["data"]))
        .claim(nameless)
        .decide();
    assert_eq!(noted(&decision), [("data-web-b0000".to_owned(), json!(null))]);
    assert_eq!(
        said(&keeping(1).pod(one(&name(0), "n")).claim(data(0)).decide()),
        [] as [&str; 0]
    );
}

/// A user took the label of the mark off, and the annotation is left over: the pod that is scaled in later takes its claim along.
#[test]
fn cs_14_7_and_15_5_half_a_mark_keeps_no_claim() {
    for reuses in [false, true] {
        let half = one(&name(0), "n")
            .mounts(&["data"])
            .annotated(names::REPLACED_BY_UPDATE, "true");
        let set = keeping(0).spec("/scaleStrategy/enablePVCReuse", json!(reuses));
        let decision = set.claim(data(0)).pod(half).decide();
        assert_eq!(noted(&decision), [], "reuse {reuses}");
        assert_eq!(owners_given(&decision), [json!(name(0))], "reuse {reuses}");
    }
}

/// A mark that comes late, when the pod goes already because it is one too many, would keep its claims: the next new pod has their data.
#[test]
fn cs_14_7_and_16_5_the_mark_of_an_update_holds_only_for_the_pod_as_it_was_seen() {
    let pod = || one(&name(0), "o").mounts(&["data"]);
    let seen = pod().build("web").meta.resource_version;
    let decision = keeping(1).claim(data(0)).pod(pod()).decide();
    let marks = decision.commands().filter_map(|c| match &c.command {
        Command::Patch {
            report: Report::ReCreate,
            resource_version,
            ..
        } => Some(*resource_version),
        _ => None,
    });
    assert_eq!(marks.collect::<Vec<_>>(), [Some(seen)]);
}

/// The claim was given to the pod for a deletion that was refused, and then the switch was turned on: unless another has been made in its place.
#[test]
fn cs_15_5_a_claim_that_was_given_before_it_was_to_be_kept_is_taken_back() {
    let marked = || {
        one(&name(0), "o")
            .mounts(&["data"])
            .label(names::SPECIFIED_DELETE_LABEL, "true")
            .annotated(names::REPLACED_BY_UPDATE, "true")
    };
    let uid = json!(marked().build("web").meta.uid.to_string());
    for reuses in [false, true] {
        for (what, replicas, pod) in [
            ("is deleted", 1, marked()),
            ("goes", 2, marked().terminating()),
            ("is replaced", 1, marked().terminating()),
        ] {
            let given = data(0).owners(vec![pod_owner(&name(0))]);
            let set = keeping(replicas).spec("/scaleStrategy/enablePVCReuse", json!(reuses));
            let decision = set
                .pod(one(&name(1), "n"))
                .claim(data(1))
                .claim(given)
                .pod(pod)
                .decide();
            let is_late = what == "is replaced";
            let back: &[_] = if is_late { &[] } else { &[json!("web")] };
            assert_eq!(owners_given(&decision), back, "{what}, reuse {reuses}");
            let note = (!reuses && !is_late).then(|| ("data-web-b0000".to_owned(), uid.clone()));
            let noted: Vec<_> = noted(&decision)
                .into_iter()
                .filter(|(_, from)| !from.is_null())
                .collect();
            assert_eq!(noted, note.into_iter().collect::<Vec<_>>(), "{what}, reuse {reuses}");
        }
    }
}

/// A note is left over from when claims were not used again.
#[test]
fn cs_14_7_where_claims_are_used_again_no_note_keeps_that_of_a_pod_that_is_scaled_in() {
    let set = keeping(0).spec("/scaleStrategy/enablePVCReuse", json!(true));
    let pod = one(&name(0), "n").mounts(&["data"]);
    let decision = set
        .pod(pod)
        .claim(data(0).annotated(names::KEPT_FROM, "former"))
        .decide();
    assert_eq!(owners_given(&decision), [json!(name(0))]);
}

fn owners_given(decision: &Decision) -> Vec<Value> {
    let owner = |command: &Command| match command {
        Command::Patch {
            resource: Resource::Claims,
            body,
            ..
        } => body.pointer("/metadata/ownerReferences/0/name").cloned(),
        _ => None,
    };
    decision.commands().filter_map(|c| owner(&c.command)).collect()
}

/// Kubernetes made the claim of a generic ephemeral volume, and deletes it. Seen: it was written to before its pod went, and where that was
/// refused the pod stayed.
#[test]
fn cs_15_5_the_claim_of_an_ephemeral_volume_is_not_written_to_when_its_pod_goes() {
    let of_pod = |claim: ClaimFixture| claim.owners(vec![pod_owner(&name(0))]);
    let scratch = || of_pod(claim("web-b0000-scratch"));
    let given = || of_pod(data(0));
    // What was given to the pod for its deletion is written to once more, also where users took the id off.
    let deletion = "delete: -Pod web-b0000".to_owned();
    let (written, nothing) = (vec!["claims: ~PersistentVolumeClaim data-web-b0000".to_owned()], vec![]);
    for (what, claim, wanted) in [
        ("none of ours", None, &nothing),
        ("one that is the set's", Some(data(0)), &written),
        ("one that it was given", Some(given()), &written),
        (
            "one that it was given, without the id",
            Some(given().without_labels()),
            &written,
        ),
    ] {
        for reuses in [false, true] {
            let set = clones(0)
                .claim_templates(&["data"])
                .spec("/scaleStrategy/enablePVCReuse", json!(reuses))
                .pod(one(&name(0), "n").mounts(&["data"]))
                .claim(scratch());
            let set = claim.iter().cloned().fold(set, Cluster::claim);
            let wanted: Vec<_> = wanted.iter().cloned().chain([deletion.clone()]).collect();
            assert_eq!(said(&set.decide()), wanted, "{what}, reuse {reuses}");
        }
    }
}

/// A set with a preDelete hook that keeps claims, two pods of it, and web-b0002, which the update has marked.
fn with_hooked(change: impl FnOnce(PodFixture) -> PodFixture) -> Cluster {
    use super::surge::{data, surging, with_data};
    let marked = one(&name(2), "o")
        .mounts(&["data"])
        .label("hold", "yes")
        .label(names::SPECIFIED_DELETE_LABEL, "true")
        .annotated(names::REPLACED_BY_UPDATE, "true");
    with_data(surging(3, &json!({"maxUnavailable": 1, "maxSurge": 0})), "n o")
        .pod(change(marked))
        .claim(data(2))
        .spec("/lifecycle/preDelete", json!({"labelsHandler": {"hold": "yes"}}))
        .annotation(names::KEEP_CLAIMS_ON_RECREATE, "true")
}

/// The replacement of a pod that is made again takes its id and claims, also where the pod counts as a replica no more: an empty volume beside it
/// would be all that is left when it comes to be wanted again.
#[test]
fn cs_15_5_a_replacement_waits_for_a_pod_that_its_hook_holds_or_that_has_ended() {
    let leaving = |pod: PodFixture| pod.label(names::LIFECYCLE_STATE_LABEL, "PreparingDelete");
    let excluding = |set: Cluster| set.spec("/scaleStrategy/excludePreparingDelete", json!(true));
    let rows = [
        ("left out", excluding(with_hooked(leaving))),
        ("evicted", with_hooked(|pod| leaving(pod).phase(Phase::Failed))),
        ("both", excluding(with_hooked(|pod| leaving(pod).phase(Phase::Failed)))),
    ];
    for (what, set) in rows {
        let decision = set.decide();
        assert_eq!(said(&decision), [] as [&str; 0], "{what}");
        let of_hook =
            |w: &flotilla_model::Wait| matches!(&w.cause, WaitCause::HookHolds { .. }) && w.subject == name(2);
        assert!(decision.waits.iter().any(of_hook), "{what}: {:?}", decision.waits);
    }
    // Who pauses has it back.
    let paused = excluding(with_hooked(leaving)).spec("/updateStrategy/rollingUpdate/paused", json!(true));
    let state = |c: &ScopedCommand| match &c.command {
        Command::Patch { body, .. } => folded(body)["metadata"]["labels"][names::LIFECYCLE_STATE_LABEL].clone(),
        _ => Value::Null,
    };
    let states: Vec<Value> = paused.decide().commands().map(state).collect();
    assert_eq!(states, [json!("PreparingNormal")]);
}

/// Whoever takes the mark off a pod that goes already does not keep it: its claim is noted as its replacement's, and stays that.
#[test]
fn cs_15_5_a_claim_that_is_noted_stays_for_the_replacement_though_the_mark_is_taken_off() {
    let uid = one(&name(0), "o").build("web").meta.uid.to_string();
    for (from, given) in [(uid.as_str(), None), ("uid-of-another", Some(json!(name(0))))] {
        let going = one(&name(0), "o").mounts(&["data"]).terminating();
        let going = going.annotated(names::REPLACED_BY_UPDATE, "true");
        let set = keeping(1).pod(going).claim(data(0).annotated(names::KEPT_FROM, from));
        let decision = set.decide();
        assert_eq!(owners_given(&decision), given.into_iter().collect::<Vec<_>>(), "{from}");
    }
}
