//! Claims that new pods do not take, and writes to claims that are refused (rules 14.7, 15.1, 15.4 and 15.5).

use super::scaling::{created, pod_owner};
use super::{name, one, said};
use crate::testing::{NOW, at, claim, clones};
use flotilla_model::Failure;
use flotilla_model::decision::{Report, Scope};
use flotilla_model::records::Phase;
use serde_json::json;

/// A pod that mounts a claim on its way out would wait for ever, or go with it.
#[test]
fn rules_14_7_and_15_5_no_new_pod_mounts_a_claim_that_is_about_to_go() {
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
    // A name whose pod was refused before is given up (15.1): nothing of it is worth the wait.
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
fn rules_15_4_and_10_11_a_refused_write_to_a_claim_backs_off_and_is_tried_again() {
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
fn rule_15_4_the_claim_of_a_refused_pod_that_nobody_wants_any_more_is_looked_at_again() {
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
