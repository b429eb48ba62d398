//! Which pods are made and deleted, with which names and claims (CS-5, CS-11, CS-14, CS-15 and CS-18).

use super::super::CloneSetController;
use super::{done, name, one, pods, said};
use crate::shared::adoption::controller_ref;
use crate::testing::{Cluster, NOW, PodFixture, at, claim, clones, owner, pod, set_uid};
use flotilla_api::names;
use flotilla_model::decision::{Body, Command, Report, Scope};
use flotilla_model::records::Phase;
use flotilla_model::set::MOST_PODS;
use flotilla_model::{Change, Controller as _, Decision, Failure, Interner, NodeRecord, OwnerRef, Resource, WaitCause};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn created(decision: &Decision) -> Vec<Value> {
    let bodies = decision.commands().filter_map(|c| match &c.command {
        Command::Create {
            resource: Resource::Pods,
            body,
            ..
        } => Some(body.render()),
        _ => None,
    });
    bodies.collect()
}

pub(super) fn deleted(decision: &Decision) -> Vec<String> {
    let pods = decision.commands().filter_map(|c| match &c.command {
        Command::Delete {
            resource: Resource::Pods,
            key,
            ..
        } => Some(key.name.to_string()),
        _ => None,
    });
    pods.collect()
}

/// CS-5: the gate of updates in place only where there are any; #892.
#[test]
fn cs_5_and_14_3_and_15_1_what_a_new_pod_is_made_of() {
    for (policy, gates) in [
        ("ReCreate", json!(null)),
        ("InPlaceIfPossible", json!([{"conditionType": "InPlaceUpdateReady"}])),
    ] {
        let cluster = clones(1).spec("/updateStrategy/rollingUpdate/podUpdatePolicy", json!(policy));
        let cluster = cluster.claim_templates(&["data"]);
        let decision = cluster.decide();
        let body = created(&decision).remove(0);
        assert_eq!(body["spec"]["readinessGates"], gates);
        let name = body["metadata"]["name"].as_str().expect("a name");
        let id = name.strip_prefix("web-").expect("the set's name");
        assert!(
            id.len() == 5 && id.bytes().all(|b| b"bcdfghjklmnpqrstvwxz2456789".contains(&b)),
            "{id}"
        );
        let labels = &body["metadata"]["labels"];
        assert_eq!(labels[names::INSTANCE_ID_LABEL], id);
        assert_eq!(
            (&labels[names::REVISION_LABEL], &labels[names::TEMPLATE_HASH_LABEL]),
            (&json!("web-new"), &json!("new"))
        );
        assert_eq!(labels[names::LIFECYCLE_STATE_LABEL], "Normal");
        assert_eq!(body["metadata"]["generateName"], "web-");
        let reference = &body["metadata"]["ownerReferences"][0];
        assert_eq!(
            (
                &reference["apiVersion"],
                &reference["kind"],
                &reference["controller"],
                &reference["blockOwnerDeletion"]
            ),
            (
                &json!("apps.kruise.io/v1beta1"),
                &json!("CloneSet"),
                &json!(true),
                &json!(true)
            )
        );
        let volume = &body["spec"]["volumes"][0];
        assert_eq!(volume["persistentVolumeClaim"]["claimName"], format!("data-{name}"));
        let claims: Vec<Value> = decision
            .commands()
            .filter_map(|c| match &c.command {
                Command::Create {
                    resource: Resource::Claims,
                    body: Body::Json(body),
                    ..
                } => Some((**body).clone()),
                _ => None,
            })
            .collect();
        assert_eq!(
            claims[0]["metadata"]["labels"],
            json!({"app": "web", names::INSTANCE_ID_LABEL: id})
        );
        assert_eq!(claims[0]["metadata"]["ownerReferences"][0]["kind"], "CloneSet");
        assert_eq!(
            said(&decision).len(),
            2,
            "the same pass gives the same: {:?}",
            said(&decision)
        );
        assert_eq!(created(&cluster.decide()), created(&decision));
    }
}

/// Names differ from one another, and a refused creation is tried again under the same name.
#[test]
fn cs_15_1_names_differ_and_refused_ones_are_kept() {
    let decision = clones(6).decide();
    let mut made: Vec<String> = created(&decision)
        .iter()
        .map(|b| b["metadata"]["name"].to_string())
        .collect();
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 6);

    let mut cluster = clones(2);
    let failure = Failure::follow(None, Report::Create, "QuotaExceeded".into(), "no".into(), at(NOW - 100));
    cluster.hints.failures.insert(Scope::Named("web-zzzzz".into()), failure);
    let again = created(&cluster.decide());
    assert_eq!(
        (again[0]["metadata"]["name"].as_str(), again.len()),
        (Some("web-zzzzz"), 2)
    );
    // While it backs off, no other is made in its place.
    let failure = Failure::follow(None, Report::Create, "QuotaExceeded".into(), "no".into(), at(NOW));
    cluster.hints.failures.insert(Scope::Named("web-zzzzz".into()), failure);
    let decision = cluster.decide();
    assert_eq!(created(&decision).len(), 1);
    assert!(
        decision
            .waits
            .iter()
            .any(|w| matches!(w.cause, WaitCause::Refused { .. }))
    );
    assert!(
        decision
            .hints
            .is_none_or(|h| h.failures.contains_key(&Scope::Named("web-zzzzz".into())))
    );
}

/// #1099, #1433, #313: an id is free only if no pod of any phase has it, and no terminating claim.
#[test]
fn cs_15_3_claims_of_vanished_pods_are_used_first() {
    let reuses = |replicas| {
        clones(replicas)
            .claim_templates(&["data"])
            .spec("/scaleStrategy/enablePVCReuse", json!(true))
    };
    let free = || claim("data-web-bbbbb").of_clone("bbbbb");
    let first = |cluster: &Cluster| {
        let decision = cluster.decide();
        let made = created(&decision).remove(0)["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        (
            made,
            said(&decision)
                .iter()
                .filter(|s| s.contains("+PersistentVolumeClaim"))
                .count(),
        )
    };
    assert_eq!(first(&reuses(1).claim(free())), ("web-bbbbb".to_owned(), 0));
    let going = reuses(1).claim(free().terminating());
    assert_ne!(first(&going).0, "web-bbbbb", "the claim is on its way out");
    // Its pod is still there: one that has ended is no replica, and one that is going hands its claims over.
    let ended = pod("web-bbbbb").phase(Phase::Failed);
    let cluster = reuses(1)
        .claim(free())
        .pod(ended.label(names::INSTANCE_ID_LABEL, "bbbbb").detailed(|_| {}));
    assert_ne!(first(&cluster).0, "web-bbbbb");
    assert_eq!(first(&reuses(1)).1, 1);
}

/// the replacement of a pod that others deleted waits for its id and its claims; growth does not.
#[test]
fn cs_15_5_with_reuse_the_replacement_of_a_pod_that_others_delete_waits_for_its_claims() {
    let going = |replicas| {
        clones(replicas)
            .claim_templates(&["data"])
            .spec("/scaleStrategy/enablePVCReuse", json!(true))
            .pod(one(&name(1), "n"))
            .claim(claim("data-web-b0001").of_clone("b0001"))
            .pod(one(&name(0), "n").terminating().on(Some("node-0")))
    };
    let its_claim = || claim("data-web-b0000").of_clone("b0000");
    let decision = going(2).claim(its_claim()).decide();
    assert_eq!(said(&decision), [] as [&str; 0]);
    let waits = |w: &flotilla_model::Wait| {
        w.subject == name(0)
            && matches!(&w.cause, WaitCause::PodTerminating { node, .. } if node.as_deref() == Some("node-0"))
    };
    assert!(decision.waits.iter().any(waits), "{:?}", decision.waits);
    let grows = going(3).claim(its_claim()).decide();
    let made = created(&grows);
    assert_eq!(made.len(), 1, "only what is to be more");
    assert_ne!(made[0]["metadata"]["name"], json!(name(0)));
    // Nor does growth within a budget for creations wait: what is waited for does not use the budget.
    let limited = going(3)
        .claim(its_claim())
        .spec("/scaleStrategy/maxUnavailable", json!(1));
    assert_eq!(created(&limited.decide()).len(), 1);
    // One that we delete was given its claim, which goes with it: nothing is waited for.
    let ours = its_claim().owners(vec![pod_owner(&name(0))]);
    assert_eq!(created(&going(2).claim(ours).decide()).len(), 1);
}

/// The managing owner of a claim that goes with a pod.
pub(super) fn pod_owner(name: &str) -> OwnerRef {
    controller_ref(Resource::Pods, name, &one(name, "n").build("web").meta.uid)
}

/// Between the two writes of a deletion anything may happen: nothing that is left looks as if it might be used again, and what was begun
/// for nothing is taken back.
#[test]
fn cs_14_7_and_15_5_the_claim_of_a_pod_that_stays_after_all_is_taken_back() {
    let begun = |replicas, budget| {
        clones(replicas)
            .claim_templates(&["data"])
            .spec("/scaleStrategy/enablePVCReuse", json!(true))
            .spec("/updateStrategy/rollingUpdate/maxUnavailable", json!(budget))
            .pod(one(&name(0), "n"))
            .claim(
                claim("data-web-b0000")
                    .of_clone("b0000")
                    .owners(vec![pod_owner(&name(0))]),
            )
    };
    let goes_on = begun(0, "100%").decide();
    assert_eq!(
        said(&goes_on),
        [
            "claims: ~PersistentVolumeClaim data-web-b0000",
            "delete: -Pod web-b0000"
        ]
    );
    let decision = begun(1, "100%").decide();
    assert_eq!(said(&decision), ["claims: ~PersistentVolumeClaim data-web-b0000"]);
    let Some(Command::Patch {
        body, resource_version, ..
    }) = decision.commands().next().map(|c| &c.command)
    else {
        panic!("{decision:?}");
    };
    assert!(resource_version.is_some(), "as it was seen");
    let owners = body["metadata"]["ownerReferences"].as_array().expect("owners");
    assert_eq!((owners.len(), &owners[0]["kind"]), (1, &json!("CloneSet")));
    // One that has to wait, here for another try, is not taken back and given again in turn.
    let mut refused = begun(0, "100%");
    let failure = Failure::follow(None, Report::Delete, "Forbidden".into(), "no".into(), at(NOW));
    refused.hints.failures.insert(Scope::Named(name(0)), failure);
    assert_eq!(said(&refused.decide()), [] as [&str; 0]);
    // One that stays is not to be deleted any more, and what was refused of that holds nothing up. A refused patch does.
    for (attempt, expected) in [
        (Report::Delete, &["claims: ~PersistentVolumeClaim data-web-b0000"][..]),
        (Report::ReCreate, &["claims: ~PersistentVolumeClaim data-web-b0000"]),
        (Report::Update, &[]),
    ] {
        let mut stays = begun(1, "100%");
        let failure = Failure::follow(None, attempt, "Forbidden".into(), "no".into(), at(NOW));
        stays.hints.failures.insert(Scope::Named(name(0)), failure);
        assert_eq!(said(&stays.decide()), expected, "{attempt:?}");
    }
}

/// Also where that was the last claim that the set had, of a template that it has no more.
#[test]
fn cs_15_5_the_last_claim_of_a_set_without_templates_is_taken_back() {
    let mounting = one(&name(0), "n").mounts(&["data"]);
    let given = claim("data-web-b0000")
        .of_clone("b0000")
        .owners(vec![pod_owner(&name(0))]);
    let set = |pod: PodFixture| {
        clones(1)
            .spec("/scaleStrategy/enablePVCReuse", json!(true))
            .pod(pod)
            .claim(given.clone())
    };
    assert_eq!(
        said(&set(mounting).decide()),
        ["claims: ~PersistentVolumeClaim data-web-b0000"]
    );
}

/// A pod that was adopted may have any name: the label says which claims are its.
#[test]
fn cs_11_and_15_4_a_claim_belongs_to_the_pod_with_its_id_whatever_its_name() {
    let adopted = |reuses: bool| {
        clones(1)
            .claim_templates(&["data"])
            .spec("/scaleStrategy/enablePVCReuse", json!(reuses))
            .pod(one("other-b0000", "n"))
            .claim(claim("data-other-b0000").of_clone("b0000"))
    };
    assert_eq!(said(&adopted(false).decide()), [] as [&str; 0], "it stays");
    let grows = adopted(true).spec("/replicas", json!(2)).decide();
    let made = created(&grows);
    assert_ne!(made[0]["metadata"]["labels"][names::INSTANCE_ID_LABEL], json!("b0000"));
    let goes = adopted(false).spec("/replicas", json!(0)).decide();
    assert_eq!(
        said(&goes),
        [
            "claims: ~PersistentVolumeClaim data-other-b0000",
            "delete: -Pod other-b0000"
        ]
    );
    // Also once it was let go.
    let let_go = clones(0)
        .claim_templates(&["data"])
        .pod(one("other-b0000", "n").orphan())
        .claim(claim("data-other-b0000").of_clone("b0000"));
    assert_eq!(said(&let_go.decide()), [] as [&str; 0]);
}

/// What is still on its way to the claim, a deletion or a change of its owner, was decided of another version of it.
#[test]
fn cs_15_3_and_15_4_a_claim_is_taken_and_deleted_as_it_was_seen() {
    let reuses = clones(1)
        .claim_templates(&["data"])
        .spec("/scaleStrategy/enablePVCReuse", json!(true));
    let free = || claim("data-web-bbbbb").of_clone("bbbbb");
    let decision = reuses.claim(free()).decide();
    assert_eq!(
        said(&decision),
        [
            "claims: ~PersistentVolumeClaim data-web-bbbbb",
            "create: +Pod web-bbbbb"
        ]
    );
    let version = |command: &Command| match command {
        Command::Patch {
            resource_version, body, ..
        } => (*resource_version, Some(body.clone())),
        Command::Delete { resource_version, .. } => (*resource_version, None),
        _ => (None, None),
    };
    let first = |decision: &flotilla_model::Decision| version(&decision.commands().next().expect("a command").command);
    let (seen, body) = first(&decision);
    let seen = seen.expect("a version").to_string();
    let taken = body.expect("a body")["metadata"]["annotations"][names::CLAIM_TAKEN_AT].clone();
    assert_eq!(taken, json!(seen), "each time another value");
    let stray = clones(0).claim_templates(&["data"]).claim(free()).decide();
    assert_eq!(said(&stray), ["claims: -PersistentVolumeClaim data-web-bbbbb"]);
    assert!(first(&stray).0.is_some());
}

/// Otherwise the replacement would come before, with an empty claim, and the old one would go with its pod.
#[test]
fn cs_15_5_a_replacement_waits_for_the_id_and_the_claims_of_the_pod_that_hands_them_over() {
    let hands_over = |pod: PodFixture| {
        clones(2)
            .claim_templates(&["data"])
            .annotation(names::KEEP_CLAIMS_ON_RECREATE, "true")
            .pod(one(&name(1), "n"))
            .claim(claim("data-web-b0001").of_clone("b0001"))
            .pod(pod)
            .claim(claim("data-web-b0000").of_clone("b0000"))
    };
    let going = || one(&name(0), "o").terminating().on(Some("node-0"));
    let marked = |pod: PodFixture| {
        pod.annotated(names::REPLACED_BY_UPDATE, "true")
            .label(names::SPECIFIED_DELETE_LABEL, "true")
    };
    let replaced = hands_over(marked(going())).decide();
    assert_eq!(
        said(&replaced),
        ["claims: ~PersistentVolumeClaim data-web-b0000"],
        "it is noted"
    );
    let waits = |w: &flotilla_model::Wait| {
        w.subject == name(0)
            && matches!(&w.cause, WaitCause::PodTerminating { node, .. } if node.as_deref() == Some("node-0"))
    };
    assert!(replaced.waits.iter().any(waits), "{:?}", replaced.waits);
    // The claim of one that others delete goes with it.
    let decision = hands_over(going()).decide();
    assert_eq!(said(&decision)[0], "claims: ~PersistentVolumeClaim data-web-b0000");
    assert_eq!(created(&decision).len(), 1);
}

/// Seen: the replacement took a claim that had been free for long, since its id came first.
#[test]
fn r_34_a_replacement_takes_the_id_that_was_waited_for() {
    let set = || {
        clones(2)
            .claim_templates(&["data"])
            .spec("/scaleStrategy/enablePVCReuse", json!(true))
            .pod(one(&name(0), "n"))
            .claim(claim("data-web-b0000").of_clone("b0000"))
            .claim(claim("data-web-aaaaa").of_clone("aaaaa"))
            .claim(claim("data-web-ccccc").of_clone("ccccc"))
    };
    let waiting = set().pod(one("web-ccccc", "n").terminating());
    let decision = waiting.decide();
    assert_eq!(created(&decision), [] as [Value; 0]);
    let mut gone = set();
    gone.hints = decision.hints.expect("whom it waits for");
    assert_eq!(created(&gone.decide())[0]["metadata"]["name"], "web-ccccc");
    // What is remembered may be lost.
    assert_eq!(created(&set().decide())[0]["metadata"]["name"], "web-aaaaa");
    // Nobody is waited for once the pod is there again.
    let back = gone.pod(one("web-ccccc", "n")).decide();
    assert!(
        back.hints.is_some_and(|hints| hints.awaited.is_empty()),
        "it is forgotten"
    );
}

#[test]
fn cs_15_4_without_reuse_claims_go_with_their_pods() {
    let cluster = clones(1)
        .claim_templates(&["data"])
        .pod(one(&name(0), "n"))
        .pod(pod("web-bbbbb").terminating().detailed(|_| {}))
        .claim(claim("data-web-b0000").of_clone("b0000"))
        .claim(claim("data-web-bbbbb").of_clone("bbbbb"))
        .claim(claim("data-web-ccccc").of_clone("ccccc"));
    assert_eq!(
        said(&cluster.decide()),
        [
            "claims: ~PersistentVolumeClaim data-web-bbbbb",
            "claims: -PersistentVolumeClaim data-web-ccccc"
        ]
    );
    let keeps = cluster.clone().spec("/scaleStrategy/enablePVCReuse", json!(true));
    assert_eq!(said(&keeps.decide()), [] as [&str; 0]);
    // What others have deleted hands nothing over.
    let hands_over = cluster.clone().annotation(names::KEEP_CLAIMS_ON_RECREATE, "true");
    assert_eq!(said(&hands_over.decide()), said(&cluster.decide()));
}

/// References of others on a claim are not ours to remove.
#[test]
fn cs_15_4_other_owners_of_a_claim_stay_when_it_goes_with_its_pod() {
    let note = owner("v1", "Note", "n", "n-uid");
    let of_set = OwnerRef {
        uid: set_uid("web"),
        controller: true,
        ..owner("apps.kruise.io/v1beta1", "CloneSet", "web", "")
    };
    let shared = claim("data-web-b0000").of_clone("b0000");
    let cluster = clones(0)
        .claim_templates(&["data"])
        .pod(one(&name(0), "n").terminating())
        .claim(shared.owners(vec![note.clone(), of_set]));
    let decision = cluster.decide();
    let Some(Command::Patch { body, .. }) = decision.commands().next().map(|c| &c.command) else {
        panic!("{decision:?}");
    };
    let owners = &body["metadata"]["ownerReferences"];
    assert_eq!((&owners[0], &owners[1]["kind"]), (&note.to_json(), &json!("Pod")));
}

#[test]
fn sts_1_4_3_a_pod_that_has_not_started_gets_the_claim_that_it_lacks() {
    let came_late = |phase| {
        clones(1)
            .claim_templates(&["data"])
            .pod(one(&name(0), "nx").phase(phase).mounts(&["data"]))
    };
    let cluster = came_late(Phase::Pending);
    let decision = cluster.decide();
    assert_eq!(said(&decision), ["claims: +PersistentVolumeClaim data-web-b0000"]);
    let Some(Command::Create { body, .. }) = decision.commands().next().map(|c| &c.command) else {
        panic!("{decision:?}");
    };
    let made = body.render();
    assert_eq!(made["metadata"]["labels"][names::INSTANCE_ID_LABEL], "b0000");
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "CloneSet");
    // What runs has its volume; a claim that is there is enough, and one that is going is waited for.
    let quiet = |cluster: Cluster| assert_eq!(said(&cluster.decide()), [] as [&str; 0]);
    quiet(came_late(Phase::Running));
    quiet(came_late(Phase::Pending).claim(claim("data-web-b0000").of_clone("b0000")));
    quiet(came_late(Phase::Pending).claim(claim("data-web-b0000").of_clone("b0000").terminating()));
    // A pod that goes needs none.
    let goes = said(&came_late(Phase::Pending).spec("/replicas", json!(0)).decide());
    assert_eq!(goes, ["delete: -Pod web-b0000"]);
}

/// Seen: its claim was made with an empty id, and deleted in the next pass as that of no pod, for ever.
#[test]
fn cs_15_4_the_claim_of_an_adopted_pod_without_an_id_is_not_made_and_deleted_in_turn() {
    let adopted = || {
        let adopted = pod("foo-1")
            .revision("web-new")
            .label(names::TEMPLATE_HASH_LABEL, "new");
        let adopted = adopted.phase(Phase::Pending).never_ready().detailed(|_| {});
        clones(1).claim_templates(&["data"]).pod(adopted.mounts(&["data"]))
    };
    assert_eq!(said(&adopted().decide()), [] as [&str; 0]);
    // Whatever its label says: the pod has it.
    for id in ["", "b0000"] {
        let mounted = adopted().claim(claim("data-foo-1").of_clone(id));
        assert_eq!(said(&mounted.decide()), [] as [&str; 0], "{id}");
    }
}

#[test]
fn cs_14_7_and_15_5_claims_go_with_the_pod_unless_it_hands_them_over() {
    let cluster = clones(0)
        .claim_templates(&["data"])
        .spec("/scaleStrategy/enablePVCReuse", json!(true))
        .pod(
            one(&name(0), "o")
                .label(names::SPECIFIED_DELETE_LABEL, "true")
                .annotated(names::REPLACED_BY_UPDATE, "true"),
        )
        .claim(claim("data-web-b0000").of_clone("b0000"));
    assert_eq!(
        said(&cluster.decide()),
        [
            "claims: ~PersistentVolumeClaim data-web-b0000",
            "delete: -Pod web-b0000"
        ]
    );
    let hands_over = cluster.annotation(names::KEEP_CLAIMS_ON_RECREATE, "true");
    assert_eq!(said(&hands_over.decide()), ["delete: -Pod web-b0000"]);
}

/// #1872: pods of an old revision get the claims of their time.
#[test]
fn cs_12_5_old_pods_get_the_claims_of_their_time() {
    let old = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
        {"name": "main", "image": "v1", "volumeMounts": [{"name": "logs", "mountPath": "/logs"}]}]}});
    let base = |recorded: bool| {
        let cluster = clones(2).no_revisions().revision_of("web-old", 1, &old);
        let cluster = if recorded {
            cluster.recording_claims(&["logs"])
        } else {
            cluster
        };
        let cluster = cluster
            .revision("web-new", 2, "v2")
            .spec("/updateStrategy/rollingUpdate/partition", json!(1));
        pods(cluster.claim_templates(&["data"]), "1n")
    };
    let body = created(&base(true).decide()).remove(0);
    assert_eq!(body["spec"]["volumes"][0]["name"], "logs");
    assert_eq!(body["metadata"]["labels"][names::REVISION_LABEL], "web-old");
    let decision = base(false).decide();
    assert_eq!(created(&decision), [] as [Value; 0], "nobody knows the claim");
    let missing =
        |w: &flotilla_model::Wait| matches!(&w.cause, WaitCause::ClaimTemplateMissing { volume } if volume == "logs");
    assert!(decision.waits.iter().any(missing), "{:?}", decision.waits);
    let status = decision.status.expect("a status").desired;
    assert_eq!(status["conditions"][0]["type"], "FailedScale");
}

/// A pod that nobody can make takes no other pod's name, whose failure would be forgotten: it would be asked for again at once.
#[test]
fn cs_15_3_a_refused_name_waits_also_beside_pods_that_cannot_be_made() {
    let old = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
        {"name": "main", "image": "v1", "volumeMounts": [{"name": "logs", "mountPath": "/logs"}]}]}});
    let mut cluster = clones(2)
        .no_revisions()
        .revision_of("web-old", 1, &old)
        .revision("web-new", 2, "v2")
        .spec("/updateStrategy/rollingUpdate/partition", json!(1));
    cluster = cluster.claim_templates(&["data"]);
    let refused = Scope::Named(name(7));
    let failure = Failure::follow(None, Report::Create, "Invalid".to_owned(), "no".to_owned(), at(NOW));
    cluster.hints.failures.insert(refused.clone(), failure);
    let decision = cluster.decide();
    assert_eq!(
        created(&decision),
        [] as [Value; 0],
        "one cannot be made, the other waits"
    );
    let kept = decision.hints.is_none_or(|hints| hints.failures.contains_key(&refused));
    assert!(kept, "it is still known when it may be tried again");
}

/// Seen: a pod whose creation the core held back kept its name, while its claim was deleted and made again in each pass.
#[test]
fn cs_15_4_the_claim_of_a_pod_that_is_tried_again_stays() {
    let held = Failure::follow(None, Report::Create, "Repeated".to_owned(), "no".to_owned(), at(NOW));
    let unmounted = claim("data-web-zzzzz").of_clone("zzzzz");
    let cluster = clones(1).claim_templates(&["data"]).claim(unmounted);
    let told = |told: &str| {
        let mut cluster = cluster.clone();
        let hints = &mut cluster.hints;
        let list = if told == "refused" {
            &mut hints.failures
        } else {
            &mut hints.repeated
        };
        list.insert(Scope::Named("web-zzzzz".into()), held.clone());
        said(&cluster.decide())
    };
    for why in ["refused", "held back"] {
        let words = told(why);
        assert!(
            !words.iter().any(|word| word.contains("-PersistentVolumeClaim")),
            "{why}: {words:?}"
        );
    }
    assert_eq!(
        said(&cluster.decide())[0],
        "claims: -PersistentVolumeClaim data-web-zzzzz",
        "it is of no pod"
    );
}

/// What refuses writes to claims would see new ones for each try, under new names, and none of them could be deleted.
#[test]
fn cs_15_4_a_pod_whose_claim_cannot_be_taken_is_tried_again_under_its_name() {
    let left = claim("data-web-zzzzz").of_clone("zzzzz");
    let mut cluster = clones(1).claim_templates(&["data"]).claim(left);
    let refused = |retry_at: i64| {
        let mut failure = Failure::follow(None, Report::Take, "Forbidden".to_owned(), "no".to_owned(), at(NOW));
        failure.retry_at = at(retry_at);
        failure
    };
    let scope = || Scope::Named("web-zzzzz".into());
    cluster.hints.failures.insert(scope(), refused(NOW + 10));
    assert_eq!(
        said(&cluster.decide()),
        [] as [&str; 0],
        "it waits, and no other is made"
    );
    cluster.hints.failures.insert(scope(), refused(NOW));
    let again = [
        "claims: ~PersistentVolumeClaim data-web-zzzzz",
        "create: +Pod web-zzzzz",
    ];
    assert_eq!(said(&cluster.decide()), again);
}

#[test]
fn cs_14_2_a_deletion_is_taken_back_where_nothing_marks_the_pod() {
    let hook = json!({"labelsHandler": {"hold": "yes"}});
    let cluster = pods(clones(3).spec("/lifecycle/preDelete", hook), "2n 1dn");
    assert_eq!(said(&cluster.decide()), ["in-place: ~Pod web-b0002"]);
    let asked = cluster.clone().spec("/scaleStrategy/podsToDelete", json!([name(2)]));
    assert_eq!(
        said(&asked.decide()),
        [] as [&str; 0],
        "it was asked for, and its hook holds it"
    );
    let marks = cluster
        .clone()
        .spec("/lifecycle/preDelete/markPodNotReady", json!(true));
    assert_eq!(said(&marks.decide()), ["unready: ~Pod web-b0002"], "it is only marked");
    let fewer = cluster.spec("/replicas", json!(2));
    assert_eq!(said(&fewer.decide()), [] as [&str; 0], "nobody wants it back");
}

#[test]
fn cs_14_5_pods_go_by_name_and_names_of_pods_that_are_gone_are_forgotten() {
    let cluster = pods(clones(3), "3n").spec("/scaleStrategy/podsToDelete", json!([name(1), "web-gone1"]));
    let decision = cluster.decide();
    assert_eq!(said(&decision), ["delete: -Pod web-b0001", "history: ~CloneSet web"]);
    let Some(Command::Patch { body, .. }) = decision.commands().map(|c| &c.command).last() else {
        panic!("a patch")
    };
    assert_eq!(
        *body,
        json!([
            {"op": "test", "path": "/spec/scaleStrategy/podsToDelete", "value": [name(1), "web-gone1"]},
            {"op": "replace", "path": "/spec/scaleStrategy/podsToDelete", "value": [name(1)]},
        ])
    );
}

/// `ScaleUpLimited` is told when it begins, and not again.
#[test]
fn cs_14_3_limited_creation_is_told_once() {
    let mut cluster = pods(clones(5).spec("/scaleStrategy/maxUnavailable", json!(1)), "2n 1nx");
    let decision = cluster.decide();
    let told = |d: &Decision| d.events.iter().filter(|e| e.reason == "ScaleUpLimited").count();
    assert_eq!(told(&decision), 1);
    let limited = |w: &flotilla_model::Wait| matches!(&w.cause, WaitCause::ScaleBudget { budget: 1, used_by } if *used_by == [name(2)]);
    assert!(decision.waits.iter().any(limited));
    cluster.hints = decision.hints.expect("it remembers");
    assert_eq!(told(&cluster.decide()), 0);
}

/// #925, #947.
#[test]
fn finished_pods_stay_unless_opted_out_of() {
    let ended = || pod("web-ended").phase(Phase::Failed).detailed(|_| {});
    let cluster = pods(clones(2), "2n").pod(ended());
    assert_eq!(said(&cluster.decide()), [] as [&str; 0]);
    let cluster = cluster.annotation(names::FINISHED_PODS, "delete");
    assert_eq!(deleted(&cluster.decide()), ["web-ended"]);
    let too_few = pods(clones(3), "2n")
        .pod(ended())
        .annotation(names::FINISHED_PODS, "delete");
    assert_eq!(deleted(&too_few.decide()), [] as [String; 0]);
}

#[test]
fn cs_14_1_a_pod_that_has_ended_goes_when_it_was_asked_for() {
    let ended = || one("web-ended", "n").phase(Phase::Failed);
    let with = |fixture| {
        pods(clones(2), "2n")
            .claim_templates(&["data"])
            .claim(claim("data-web-ended").of_clone("ended"))
            .spec("/scaleStrategy/enablePVCReuse", json!(true))
            .pod(fixture)
    };
    let both = [
        "claims: ~PersistentVolumeClaim data-web-ended",
        "delete: -Pod web-ended",
    ];
    let named = with(ended()).spec("/scaleStrategy/podsToDelete", json!(["web-ended"]));
    assert_eq!(said(&named.decide()), both);
    let marked = || ended().label(names::SPECIFIED_DELETE_LABEL, "true");
    assert_eq!(said(&with(marked()).decide()), both);
    let without_reuse = with(marked()).spec("/scaleStrategy/enablePVCReuse", json!(false));
    assert_eq!(said(&without_reuse.decide()), both);
    // It serves nobody: no budget holds it.
    let no_budget = with(marked()).rolling(json!({"maxUnavailable": 0, "maxSurge": 1}));
    assert_eq!(said(&no_budget.decide()), both);
    // One that an update makes again hands its claim over where that was asked for.
    let replaced = marked().annotated(names::REPLACED_BY_UPDATE, "true");
    let hands_over = with(replaced).annotation(names::KEEP_CLAIMS_ON_RECREATE, "true");
    assert_eq!(said(&hands_over.decide()), both[1..]);
}

#[test]
fn cs_11_who_names_the_set_is_promoted_and_orphans_are_taken_only_on_request() {
    let plain = OwnerRef {
        uid: set_uid("web"),
        ..owner("apps.kruise.io/v1beta1", "CloneSet", "web", "")
    };
    let mut named = pod("web-named").orphan().build("web");
    named.meta.owners = Some(Arc::new(vec![plain]));
    let cluster = pods(clones(2), "2n").pod_record(named).pod(pod("web-alone").orphan());
    assert_eq!(said(&cluster.decide()), ["claim: ~Pod web-named"]);
    let opted_in = cluster.annotation(names::ADOPT_ORPHANS, "true");
    assert_eq!(
        said(&opted_in.decide()),
        ["claim: ~Pod web-alone", "claim: ~Pod web-named"]
    );
    let strayed = pods(clones(2), "2n").pod(pod("web-other").unlabelled().label("app", "other"));
    assert_eq!(said(&strayed.decide()), ["claim: ~Pod web-other"]);
    assert_eq!(
        said(&strayed.deleted().decide()),
        [] as [&str; 0],
        "a set that goes lets nothing go"
    );
}

/// Somebody lets it go again and again. Its own pods are wanted all the same.
#[test]
fn cs_11_and_14_3_who_is_not_taken_for_now_holds_up_neither_new_pods_nor_those_that_come_back() {
    let hook = json!({"labelsHandler": {"hold": "yes"}});
    let set = || {
        let set = clones(3).spec("/lifecycle/preDelete", hook.clone());
        let set = pods(set.annotation(names::ADOPT_ORPHANS, "true"), "1n 1dn");
        set.pod(one("web-alone", "n").orphan())
    };
    assert_eq!(said(&set().decide()), ["claim: ~Pod web-alone"], "it is waited for");
    let failure = Failure::follow(
        None,
        Report::Silent,
        Failure::REPEATED.to_owned(),
        "no".to_owned(),
        at(NOW),
    );
    for why in ["refused", "held back"] {
        let mut set = set();
        let hints = &mut set.hints;
        let list = if why == "refused" {
            &mut hints.failures
        } else {
            &mut hints.repeated
        };
        list.insert(Scope::Named("web-alone".into()), failure.clone());
        let decision = set.decide();
        let words = said(&decision);
        assert!(
            words.contains(&"in-place: ~Pod web-b0001".to_owned()),
            "{why}: {words:?}"
        );
        assert_eq!(created(&decision).len(), 1, "{why}: {words:?}");
    }
}

/// Nothing else wakes the set, since the pod is not its any more when it goes.
#[test]
fn cs_10_9_and_15_4_names_and_claims_are_looked_at_when_a_pod_that_was_let_go_is_gone() {
    let told = |cluster: &Cluster, pod: PodFixture| {
        let mut cluster = cluster.clone();
        cluster.record = Some(cluster.record());
        let gone = Change::Pod(Some(Arc::new(pod.orphan().build("web"))), None);
        let mut keys = Vec::new();
        CloneSetController::default().route(&gone, &cluster, &mut keys);
        keys.into_iter().map(|key| key.name.to_string()).collect::<Vec<_>>()
    };
    let set = clones(1).spec("/scaleStrategy/podsToDelete", json!(["web-named"]));
    assert_eq!(told(&set, pod("web-named")), ["web"]);
    assert_eq!(told(&set, pod("web-other")), [] as [&str; 0]);
    let made = |name: &str| pod(name).label(names::INSTANCE_ID_LABEL, "b0000");
    assert_eq!(told(&set, made("web-b0000")), ["web"]);
    assert_eq!(told(&set, made("web-x-b0000")), [] as [&str; 0], "of another set");
}

/// A set that is made anew over the pods of its predecessor.
#[test]
fn cs_11_and_13_8_nothing_is_made_before_pods_that_can_be_taken_are_here() {
    let alone = |name: &str| pod(name).orphan();
    let mut cluster = pods(clones(3), "1n").pod(alone("web-alone"));
    assert_eq!(created(&cluster.decide()).len(), 2, "who does not ask takes none");
    cluster = cluster.annotation(names::ADOPT_ORPHANS, "true");
    assert_eq!(said(&cluster.decide()), ["claim: ~Pod web-alone"]);
    // One that cannot be taken is not waited for.
    let failure = Failure::follow(None, Report::Silent, "Forbidden".into(), "no".into(), at(NOW));
    cluster.hints.failures.insert(Scope::Named("web-alone".into()), failure);
    assert_eq!(created(&cluster.decide()).len(), 2);
    let ended = pods(clones(2), "1n").pod(alone("web-ended").phase(Phase::Failed));
    let ended = ended.annotation(names::ADOPT_ORPHANS, "true");
    assert_eq!(created(&ended.decide()).len(), 1, "what has ended is no replica");
}

fn first_to_go(cluster: Cluster) -> String {
    deleted(&cluster.decide()).remove(0)
}

#[test]
fn cs_18_pods_that_are_worth_least_go_first() {
    let set = || clones(2).spec("/updateStrategy/rollingUpdate/maxUnavailable", json!("100%"));
    let other = || one(&name(1), "n");
    for (what, worse) in [
        ("unassigned", other().on(None)),
        ("pending", other().phase(Phase::Pending)),
        ("not ready", other().unready()),
        ("cheap", other().annotated(names::DELETION_COST, "-5")),
        ("with a companion on its node", other().on(Some("node-1"))),
        ("ready more recently", other().ready_since(NOW - 10)),
        (
            "restarted",
            other().detailed(|d| d.statuses[0].as_mut().expect("a status").restart_count = 3),
        ),
        ("younger", other().created(NOW - 10)),
    ] {
        let companion = if what.contains("companion") {
            one(&name(2), "n").on(Some("node-1"))
        } else {
            one(&name(2), "n").on(Some("node-2"))
        };
        let cluster = set().pod(one(&name(0), "n")).pod(worse).pod(companion);
        assert_eq!(first_to_go(cluster), name(1), "{what}");
    }
    let dear = set()
        .pod(one(&name(0), "n").annotated(names::DELETION_COST, "+7"))
        .pod(other().annotated(names::DELETION_COST, "1"));
    assert_eq!(
        first_to_go(dear.pod(one(&name(2), "n").annotated(names::DELETION_COST, "2"))),
        name(0),
        "a plus is no number"
    );
}

/// One of the zone that has most goes first.
#[test]
fn cs_18_spread_pods_go_where_there_are_most() {
    let zone = "topology.kubernetes.io/zone";
    let spread = json!([{"topologyKey": zone, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]);
    let mut cluster = clones(3).spec("/template/spec/topologySpreadConstraints", spread.clone());
    let mut template = crate::testing::template("v2");
    template["spec"]["topologySpreadConstraints"] = spread;
    cluster = cluster
        .no_revisions()
        .revision_of("web-old", 1, &crate::testing::template("v1"))
        .revision_of("web-new", 2, &template);
    for (node, place) in [("a1", "a"), ("b1", "b"), ("b2", "b"), ("b3", "b")] {
        let labels = Interner::new().labels([(zone, place)]);
        let mut meta = one("web-x", "n").build("web").meta;
        meta.labels = labels;
        cluster.nodes.insert(node.to_owned(), Arc::new(NodeRecord { meta }));
    }
    // Older pods stand in zone b: by age alone the one of zone a would go.
    for (n, node, created) in [
        (0, "a1", NOW - 10),
        (1, "b1", NOW - 900),
        (2, "b2", NOW - 800),
        (3, "b3", NOW - 700),
    ] {
        cluster = cluster.pod(one(&name(n), "n").on(Some(node)).created(created));
    }
    assert_eq!(deleted(&cluster.decide()), [name(3)]);
    assert_eq!(done(&cluster, &cluster.decide()).surplus, 1);
}

/// numbers in a spec are claims, not sizes.
#[test]
fn r_26_a_pass_makes_a_thousand_pods_whatever_the_spec_asks_for() {
    for replicas in [2_000_000_000, i32::MAX, 1_001] {
        let rolling = json!({"maxSurge": i32::MAX, "maxUnavailable": i32::MAX, "partition": i32::MAX});
        let set = || clones(replicas).rolling(rolling.clone());
        assert_eq!(created(&set().decide()).len(), 1_000, "{replicas}");
        let rest = (i64::from(replicas) - 17).min(1_000);
        let with_some = pods(set(), "5o 5n 5x 2d").decide();
        assert_eq!(created(&with_some).len() as i64, rest, "{replicas}");
    }
}

/// Claims come before their pods, and whether there is room is said of the pods only.
#[test]
fn r_26_claims_are_made_or_taken_for_as_many_new_pods_as_have_come_so_far() {
    for (there, expected) in [(0, 16), (8, 16), (9, 18), (30, 60)] {
        let set = || pods(clones(2_000), &format!("{there}n"));
        assert_eq!(
            created(&set().decide()).len(),
            1_000,
            "without claims there is nothing to lose"
        );
        let with_claims = set().claim_templates(&["data"]);
        assert_eq!(created(&with_claims.decide()).len(), expected, "{there}");
        let mut with_free = set().claim_templates(&["data"]);
        for number in 0..100 {
            let id = format!("z{number:04}");
            with_free = with_free.claim(claim(&format!("data-web-{id}")).of_clone(&id));
        }
        assert_eq!(
            created(&with_free.decide()).len(),
            expected,
            "{there}, with claims that are free"
        );
    }
}

/// Names that wait for a claim of theirs to be gone, or for another try, use up none of what may be made.
#[test]
fn cs_15_3_and_r_2_names_that_cannot_be_made_take_the_place_of_no_others() {
    for stuck in [1, 15, 16, 20, 40] {
        let set = || {
            clones(100)
                .claim_templates(&["data", "logs"])
                .spec("/scaleStrategy/enablePVCReuse", json!(true))
        };
        let going = (0..stuck).fold(set(), |set, n| {
            let logs = claim(&format!("logs-{}", name(n)))
                .of_clone(&format!("b{n:04}"))
                .terminating();
            set.claim(claim(&format!("data-{}", name(n))).of_clone(&format!("b{n:04}")))
                .claim(logs)
        });
        assert_eq!(created(&going.decide()).len(), 16, "{stuck} hang on their way out");
        let mut refused = set();
        for n in 0..stuck {
            let failure = Failure::follow(None, Report::Take, "Forbidden".into(), "no".into(), at(NOW));
            refused.hints.failures.insert(Scope::Named(name(n)), failure);
        }
        let decision = refused.decide();
        assert_eq!(created(&decision).len(), 16, "{stuck} are refused");
        assert!(decision.wake_after.is_some());
    }
}

/// Only as many replacements are waited for as replicas are missing.
#[test]
fn r_34_surge_does_not_wait_for_a_pod_whose_replacement_is_there() {
    let going = one("web-b0009", "n").mounts(&["data"]).terminating();
    let set = (0..3).fold(clones(3), |set, n| {
        let claim = claim(&format!("data-{}", name(n))).of_clone(&format!("b{n:04}"));
        set.pod(one(&name(n), "o").mounts(&["data"])).claim(claim)
    });
    let set = set
        .claim_templates(&["data"])
        .spec("/scaleStrategy/enablePVCReuse", json!(true))
        .rolling(json!({"maxUnavailable": 0, "maxSurge": 1}));
    let decision = set.claim(claim("data-web-b0009").of_clone("b0009")).pod(going).decide();
    assert_eq!(created(&decision).len(), 1, "{:?}", said(&decision));
}

/// Its hook holds a pod that has ended like any other.
#[test]
fn cs_14_7_a_pod_that_has_ended_waits_for_its_hook_before_it_is_deleted() {
    let ended = |marks: &str| one(&name(0), marks).phase(Phase::Failed);
    let hook = json!({"labelsHandler": {"hold": "yes"}});
    let set = || {
        clones(1)
            .spec("/lifecycle/preDelete", hook.clone())
            .pod(one(&name(1), "n"))
    };
    let opted_in = || set().annotation("flotilla.rs/finished-pods", "delete");
    for (what, set, marks) in [("asked for", set(), "n!"), ("opted in to", opted_in(), "n")] {
        let held = set.clone().pod(ended(marks).label("hold", "yes")).decide();
        assert_eq!(deleted(&held), [] as [String; 0], "{what}");
        assert!(
            said(&held).iter().any(|word| word.contains(&name(0))),
            "{what}: {:?}",
            said(&held)
        );
        assert_eq!(deleted(&set.pod(ended(marks)).decide()), [name(0)], "{what}");
    }
}

/// A quota has no room for any name: claims of pods that cannot come are not made, only to be deleted again.
#[test]
fn r_26_while_a_quota_refuses_pods_no_others_are_tried() {
    let refused: Vec<String> = "bcdfghjk".chars().map(|letter| format!("web-bbbb{letter}")).collect();
    for (now, expected) in [(NOW, &[][..]), (NOW + 3_600, &refused[..])] {
        let mut cluster = pods(clones(2_000).claim_templates(&["data"]), "5n");
        for name in &refused {
            let reason = Failure::QUOTA_EXCEEDED.to_owned();
            let failure = Failure::follow(None, Report::Create, reason, "exceeded quota".to_owned(), at(NOW));
            cluster.hints.failures.insert(Scope::Named(name.clone()), failure);
        }
        cluster.now = at(now);
        let made = created(&cluster.decide());
        let names = made.iter().filter_map(|pod| pod["metadata"]["name"].as_str());
        assert_eq!(names.collect::<Vec<_>>(), expected);
    }
}

/// Stored under a definition without our bound, as Go's managers bring it.
#[test]
fn r_26_more_replicas_than_a_set_may_have_count_as_those_and_that_is_told() {
    let cluster = clones(1).spec("/replicas", json!(i32::MAX)).spec(
        "/updateStrategy/rollingUpdate",
        json!({"maxSurge": 1, "maxUnavailable": 0}),
    );
    let cluster = pods(cluster, "1o");
    assert_eq!(cluster.record().spec.replicas, MOST_PODS);
    let decision = cluster.decide();
    assert_eq!(done(&cluster, &decision).created, 1_000);
    let is_told = |w: &flotilla_model::Wait| matches!(&w.cause, WaitCause::FieldUnreadable { path, .. } if path == "spec.replicas");
    let told = decision.events.iter().any(|e| e.message.contains("spec.replicas"));
    assert!(
        told,
        "{:?} {:?}",
        decision.events,
        decision.waits.iter().find(|w| is_told(w))
    );
}
