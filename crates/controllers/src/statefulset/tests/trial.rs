//! No pod goes for a revision of which the API server has not accepted one (R-31).

use super::refused;
use crate::testing::{Cluster, NOW, advanced, at, brief, claim, native, pod};
use flotilla_api::names;
use flotilla_model::decision::{Command, Scope};
use flotilla_model::records::Phase;
use flotilla_model::{Decision, Failure, Hints, Report, SetKind, Wait, WaitCause, Whom};
use serde_json::json;

const NOTHING: [&str; 0] = [];

/// As a manager that has just started knows it.
fn untried(cluster: Cluster) -> Cluster {
    let generation = cluster.hints.generation;
    cluster.hints(Hints {
        generation,
        ..Hints::default()
    })
}

#[test]
fn r_31_the_first_old_pod_waits_until_one_of_the_revision_was_accepted() {
    for (set, after) in [
        (native(3), &["-web-2"][..]),
        (
            native(3).rolling(json!({"maxUnavailable": 2})),
            &["-web-2", "-web-1"][..],
        ),
        (
            advanced(3).rolling(json!({"maxUnavailable": "100%"})),
            &["-web-2", "-web-1", "-web-0"][..],
        ),
        (
            advanced(3).annotation("flotilla.rs/update-type", "Recreate"),
            &["-web-2", "-web-1", "-web-0"][..],
        ),
    ] {
        let set = set.pods(0..3, "old");
        let decision = untried(set.clone()).decide();
        assert_eq!(brief(&decision), ["(web-2)"], "one request, and nothing goes");
        assert_eq!(decision.waits[0].subject, "new");
        assert_eq!(decision.waits[0].cause, WaitCause::RevisionUntried);
        assert_eq!(brief(&set.decide()), after, "once it is known");
    }
}

/// The very pod that would be made.
#[test]
fn r_31_what_is_tried_is_the_pod_that_would_be_made() {
    let set = advanced(2).pods(0..2, "old");
    let decision = untried(set).decide();
    let Some(Command::Try { pod: tried }) = decision.commands().next().map(|c| &c.command) else {
        panic!("a trial: {decision:?}");
    };
    let emptied = advanced(2).pods(0..1, "old").rolling(json!({"partition": 1})).decide();
    let Some(Command::Create { body, .. }) = emptied.commands().next().map(|c| &c.command) else {
        panic!("a creation: {emptied:?}");
    };
    assert_eq!(tried.render(), body.render());
}

#[test]
fn r_31_nothing_is_asked_where_a_pod_proves_it_or_none_would_go() {
    let paused = advanced(2).rolling(json!({"paused": true})).pods(0..2, "old");
    let on_delete = advanced(2)
        .spec("/updateStrategy/type", json!("OnDelete"))
        .pods(0..2, "old");
    for (set, expected) in [
        (advanced(3).pods(0..2, "old").pods([2], "new"), &["-web-1"][..]),
        (native(3).pods(0..2, "old").pods([2], "new"), &["-web-1"]),
        (advanced(2), &["+web-0@new", "+web-1@new"]),
        (advanced(2).pods(0..2, "new"), &NOTHING),
        (paused, &NOTHING),
        (on_delete, &NOTHING),
    ] {
        assert_eq!(brief(&untried(set).decide()), expected);
    }
}

/// A patch of a pod, or a note of somebody's, shows nothing about creations.
#[test]
fn r_31_only_a_pod_that_was_made_from_the_revision_proves_it() {
    let note = r#"{"revision":"new","updateTimestamp":"2026-07-01T10:00:00Z","lastContainerStatuses":null}"#;
    let of_new = || pod("web-2").revision("new");
    for (what, proof, expected) in [
        ("made from it", of_new().label(names::MADE_AS_LABEL, "new"), "-web-1"),
        ("by a Go manager, which does not say so", of_new(), "-web-1"),
        (
            "made from another",
            of_new().label(names::MADE_AS_LABEL, "old"),
            "(web-1)",
        ),
        (
            "updated in place",
            of_new().annotated(names::IN_PLACE_STATE, note),
            "(web-1)",
        ),
        (
            "the same, long ago",
            of_new().annotated(names::IN_PLACE_STATE_LEGACY, note),
            "(web-1)",
        ),
    ] {
        let set = advanced(3).pods(0..2, "old").pod(proof);
        assert_eq!(brief(&untried(set).decide()), [expected], "{what}");
    }
}

#[test]
fn r_31_what_was_refused_is_said_and_asked_again_after_a_while() {
    let set = untried(
        advanced(3)
            .pods(0..2, "old")
            .pod(pod("web-2").revision("old").unready()),
    );
    let refused = refused(set, Scope::Acceptance("new".to_owned()), Report::Try, "Invalid");
    let decision = refused.decide();
    assert_eq!(
        brief(&decision),
        NOTHING,
        "neither is it asked at once, nor does anything go"
    );
    let wait = &decision.waits.iter().find(|w| w.subject == "new").expect("a wait");
    assert!(
        matches!(&wait.cause, WaitCause::RevisionRefused { reason, .. } if reason == "Invalid"),
        "{wait:?}"
    );
    let conditions = &decision.status.as_ref().expect("a status").desired["conditions"];
    let told = conditions.as_array().into_iter().flatten();
    let told = told.filter(|c| c["type"] == "FailedCreatePod" && c["status"] == "True");
    assert_eq!(told.count(), 1, "{conditions}");
    let mut later = refused.clone();
    later.now = at(NOW + 120);
    assert_eq!(brief(&later.decide()), ["(web-2)"]);
}

#[test]
fn r_31_a_pod_that_was_asked_for_waits_for_the_trial_of_what_replaces_it() {
    let set = |partition: i32, paused: bool| {
        let set = advanced(2).rolling(json!({"partition": partition, "paused": paused}));
        let asked = pod("web-1")
            .revision("old")
            .label("apps.kruise.io/specified-delete", "1");
        untried(set.pods(0..1, "old").pod(asked))
    };
    for paused in [false, true] {
        assert_eq!(brief(&set(0, paused).decide()), ["(web-1)"]);
        assert_eq!(
            brief(&set(2, paused).decide()),
            ["-web-1"],
            "a pod of its revision proves it"
        );
        let bad = refused(
            set(0, paused),
            Scope::Acceptance("new".to_owned()),
            Report::Try,
            "Invalid",
        );
        assert_eq!(brief(&bad.decide()), NOTHING);
    }
}

/// A pass that makes a pod of the old revision, and asks for none of the new, does not take the refusal of that for over.
#[test]
fn r_31_a_refused_trial_waits_its_time_also_across_passes_that_do_not_ask() {
    let scope = Scope::Acceptance("new".to_owned());
    let set = advanced(3).rolling(json!({"partition": 3})).pods(0..3, "old");
    let set = refused(untried(set), scope.clone(), Report::Try, "Invalid");
    let told = set.decide().hints.unwrap_or(set.hints.clone());
    assert!(told.failures.contains_key(&scope), "{:?}", told.failures);
}

/// Seen: with a quota full of others' pods, a set went down to one pod while every successor was refused.
#[test]
fn r_31_what_a_full_quota_leaves_unproven_takes_one_pod_out_of_a_whole_set() {
    let scope = Scope::Acceptance("new".to_owned());
    let quota = |set: Cluster| refused(untried(set), scope.clone(), Report::Try, "QuotaExceeded");
    let webhook = |set: Cluster| refused(untried(set), scope.clone(), Report::Try, "DryRunUnsupported");
    let all_at_once = || advanced(4).rolling(json!({"maxUnavailable": "100%"}));
    let unready = |ordinal: i32| pod(&format!("web-{ordinal}")).revision("old").unready();
    for (what, set, expected) in [
        ("whole", all_at_once().pods(0..4, "old"), &["-web-3"][..]),
        ("native", native(4).pods(0..4, "old"), &["-web-3"]),
        (
            "unavailable ones go one at a time, too",
            advanced(4)
                .pods(0..1, "old")
                .pod(unready(1))
                .pod(unready(2))
                .pod(unready(3)),
            &["-web-3"],
        ),
        (
            "one is on its way out",
            all_at_once()
                .pods(0..3, "old")
                .pod(pod("web-3").revision("old").terminating()),
            &NOTHING,
        ),
        ("one is missing", all_at_once().pods(0..3, "old"), &["+web-3@new"]),
        (
            "its successor is there",
            all_at_once().pods(0..3, "old").pods([3], "new"),
            &["-web-2", "-web-1", "-web-0"],
        ),
    ] {
        assert_eq!(brief(&quota(set.clone()).decide()), expected, "{what}, a full quota");
        assert_eq!(
            brief(&webhook(set).decide()),
            expected,
            "{what}, a webhook that is not asked on trial"
        );
    }
    let decision = quota(all_at_once().pods(0..4, "old")).decide();
    let told = decision.waits.iter().find(|wait| wait.subject == "new");
    assert!(
        told.is_some_and(
            |w| matches!(&w.cause, WaitCause::RevisionUnproven { reason, .. } if reason == "QuotaExceeded")
        ),
        "{:?}",
        decision.waits
    );
    let conditions = decision.status.map(|status| status.desired["conditions"].to_string());
    assert!(
        !conditions.is_some_and(|c| c.contains("FailedCreatePod")),
        "nothing has failed yet"
    );
}

/// Under a hook pods go one after the other, and a set that lacks some is not whole any more: those that wait are not let go for it.
#[test]
fn r_31_and_sts_2_6_what_has_begun_to_go_for_room_waits_for_its_hook() {
    let waiting = |name: &str, held: bool| {
        let old = pod(name).revision("old").detailed(|_| {});
        let pod = old.label(names::LIFECYCLE_STATE_LABEL, "PreparingDelete");
        if held { pod.label("hold", "yes") } else { pod }
    };
    let set = advanced(3)
        .annotation("flotilla.rs/update-type", "Recreate")
        .spec("/lifecycle", json!({"preDelete": {"labelsHandler": {"hold": "yes"}}}));
    let told = |set: Cluster| {
        let scope = Scope::Acceptance("new".to_owned());
        brief(&refused(untried(set), scope, Report::Try, "QuotaExceeded").decide())
    };
    let all = |held: bool| {
        ["web-0", "web-1", "web-2"]
            .into_iter()
            .fold(set.clone(), |set, name| set.pod(waiting(name, held)))
    };
    assert_eq!(told(all(true)), NOTHING);
    assert_eq!(told(set.clone().pod(waiting("web-0", true))), NOTHING, "two have gone");
    assert_eq!(told(set.clone().pod(waiting("web-0", false))), ["-web-0"]);
}

/// All that Recreate takes leave their room together; nor does a successor prove anything for those that have gone with the pod before it.
#[test]
fn r_31_and_sts_2_6_for_what_is_unproven_all_go_only_where_no_more_than_room_is_missing() {
    let told = |set: Cluster, reason: &str| {
        refused(untried(set), Scope::Acceptance("new".to_owned()), Report::Try, reason).decide()
    };
    for set in [advanced(3), native(3), advanced(3).ordered()] {
        let set = set.annotation("flotilla.rs/update-type", "Recreate");
        let unwell = set
            .clone()
            .pods(0..2, "old")
            .pod(pod("web-2").revision("old").unready());
        for (what, set, for_a_quota) in [
            (
                "whole",
                set.clone().pods(0..3, "old"),
                &["-web-2", "-web-1", "-web-0"][..],
            ),
            ("none is missing", unwell, &["-web-2", "-web-1", "-web-0"]),
            ("one is missing", set.clone().pods(0..2, "old"), &NOTHING),
            ("all have gone", set.clone(), &["+web-0@new"]),
        ] {
            let after = |reason: &str| brief(&told(set.clone(), reason));
            let of_quota = after("QuotaExceeded");
            assert_eq!(of_quota[..for_a_quota.len()], *for_a_quota, "{what}, a full quota");
            assert_eq!(of_quota.is_empty(), for_a_quota.is_empty(), "{what}, a full quota");
            let is_made = of_quota.first().is_some_and(|word| word.starts_with('+'));
            let of_webhook = after("DryRunUnsupported");
            assert_eq!(
                !of_webhook.is_empty(),
                is_made,
                "{what}, a webhook that takes no dry runs: {of_webhook:?}"
            );
        }
        let whom = Whom::of("statefulset/web", "shop");
        for (reason, words) in [
            ("QuotaExceeded", "ResourceQuota"),
            ("DryRunUnsupported", "RollingUpdate"),
        ] {
            let waits = told(set.clone().pods(0..2, "old"), reason).waits;
            let wait = waits.iter().find(|wait| wait.subject == "new").expect("a wait");
            let advice = wait.cause.advice("new", &whom).unwrap_or_default();
            assert!(advice.contains(words), "{reason}: {advice}");
        }
    }
}

#[test]
fn r_31_a_pod_beyond_the_whole_quota_is_refused() {
    let words = "pods \"web-2\" is forbidden: exceeded quota: small, requested: requests.cpu=8, used: requests.cpu=3, \
        limited: requests.cpu=4";
    let mut set = untried(advanced(3).pods(0..3, "old"));
    let failure = Failure::follow(None, Report::Try, "QuotaExceeded".to_owned(), words.to_owned(), at(NOW));
    set.hints.failures.insert(Scope::Acceptance("new".to_owned()), failure);
    let decision = set.decide();
    assert_eq!(brief(&decision), NOTHING);
    let is_refused = |cause: &WaitCause| matches!(cause, WaitCause::RevisionRefused { .. });
    assert!(
        decision.waits.iter().any(|wait| is_refused(&wait.cause)),
        "{:?}",
        decision.waits
    );
}

/// As the API server says it of a pod on trial.
fn invalid(field: &str) -> Failure {
    let words = format!("Pod \"web-3\" is invalid: {field}");
    Failure::follow(None, Report::Try, Failure::INVALID.to_owned(), words, at(NOW))
}

/// What is done to pods.
fn on_pods(decision: &Decision) -> Vec<String> {
    let words = brief(decision).into_iter();
    words.filter(|word| word.starts_with(['(', '-'])).collect()
}

/// Four pods that were made with `data` alone, while the set's claim templates are these by now; all may go at once.
fn made_with_data(kind: SetKind, templates: &[&str], says_so: bool) -> Cluster {
    let set = match kind {
        SetKind::Native => native(4),
        _ => advanced(4).rolling(json!({"maxUnavailable": "100%"})),
    };
    let set = untried(set.claim_templates(templates).status("/currentRevision", json!("new")));
    (0..4).fold(set, |set, n| {
        let pod = pod(&format!("web-{n}")).revision("new").mounts(&["data"]);
        let pod = if says_so {
            pod.label(names::MADE_AS_LABEL, "new_data")
        } else {
            pod
        };
        let claims = templates
            .iter()
            .chain(&["data"])
            .map(|t| claim(&format!("{t}-web-{n}")));
        claims.fold(set.pod(pod), Cluster::claim)
    })
}

/// Seen: a claim template that no pod can have took down every pod of its set, since the pods of yesterday proved its revision.
#[test]
fn r_31_pods_prove_their_revision_with_the_claim_templates_that_they_were_made_with() {
    let long = "x".repeat(64);
    for (what, templates, of, field) in [
        (
            "dots",
            &["data", "logs.v1"][..],
            "new_data_logs.v1",
            "spec.volumes[1].name: Invalid value",
        ),
        (
            "length",
            &["data", &long],
            &format!("new_data_{long}"),
            "spec.volumes[1].name: Invalid value",
        ),
        (
            "capitals",
            &["data", "Logs"],
            "new_Logs_data",
            "spec.volumes[1].name: Invalid value",
        ),
        (
            "a mount of one that is gone",
            &[],
            "new",
            "spec.containers[0].volumeMounts[0].name: Not found",
        ),
        (
            "a device of one that is gone",
            &[],
            "new",
            "spec.containers[0].volumeDevices[0].name: Not found",
        ),
    ] {
        for says_so in [true, false] {
            let set = made_with_data(SetKind::Advanced, templates, says_so);
            // What the set has had it knows by its record.
            let set = set.recording_claims(&["data"]);
            let decision = set.decide();
            assert_eq!(on_pods(&decision), ["(web-3)"], "{what}, says so: {says_so}");
            let is_told = |wait: &Wait| wait.subject == "new" && wait.cause == WaitCause::RevisionUntried;
            assert!(decision.waits.iter().any(is_told), "{what}: {:?}", decision.waits);
            let mut refused = set.clone();
            let scope = Scope::Acceptance(of.to_owned());
            refused.hints.failures.insert(scope, invalid(field));
            assert_eq!(on_pods(&refused.decide()), NOTHING, "{what}, refused");
            let mut accepted = set;
            accepted.hints.accepted.insert(of.to_owned());
            assert_eq!(on_pods(&accepted.decide()).len(), 4, "{what}, accepted");
        }
    }
}

/// What is as it was is not asked again: neither at rest, nor when pods of a Go manager, which do not say how they were made, are taken over.
#[test]
fn r_31_a_pod_with_the_claims_of_today_proves_its_revision_whoever_made_it() {
    for kind in [SetKind::Advanced, SetKind::Native] {
        for says_so in [true, false] {
            let at_rest = made_with_data(kind, &["data"], says_so);
            assert_eq!(brief(&at_rest.decide()), NOTHING);
            let mut amid = at_rest;
            let old = pod("web-0").revision("old").mounts(&["data"]).build("web");
            amid.own_pods.retain(|p| p.name() != "web-0");
            let amid = amid.pod_record(old).status("/currentRevision", json!("old"));
            assert_eq!(brief(&amid.decide()), ["-web-0"], "{kind:?} {says_so}");
        }
    }
}

/// What was accepted with other claim templates is forgotten, as is what was accepted of other revisions.
#[test]
fn r_31_what_was_accepted_is_remembered_with_its_claim_templates() {
    let mut set = made_with_data(SetKind::Advanced, &["data", "logs"], true);
    set.hints.accepted = ["new", "new_data", "new_data_logs", "newer_data_logs"]
        .map(str::to_owned)
        .into();
    let hints = set.decide().hints.expect("some are forgotten");
    assert_eq!(hints.accepted.into_iter().collect::<Vec<_>>(), ["new_data_logs"]);
}

/// A pod that was asked for and has to wait for the budget is not the one that goes to prove the revision: one that is down is.
#[test]
fn r_31_and_sts_3_8_what_waits_for_the_budget_keeps_no_other_from_proving_its_revision() {
    for reason in ["QuotaExceeded", "DryRunUnsupported"] {
        let set = untried(advanced(3))
            .pod(pod("web-0").revision("old").unready())
            .pods([1], "old")
            .pod(asked("web-2"));
        let decision = unproven(set, reason).decide();
        assert_eq!(brief(&decision), ["-web-0"], "{reason}");
    }
}

fn asked(name: &str) -> crate::testing::PodFixture {
    pod(name).revision("old").label(names::SPECIFIED_DELETE_LABEL, "")
}

fn unproven(set: Cluster, reason: &str) -> Cluster {
    refused(untried(set), Scope::Acceptance("new".into()), Report::Try, reason)
}

/// A set that lacks pods for which nobody has gone: they wait for the very pod that would go, in the order or for a budget. It is down, and so
/// takes nothing down.
#[test]
fn r_31_a_pod_that_is_down_waits_for_none_that_wait_for_it() {
    let no = |set| unproven(set, "DryRunUnsupported");
    let old = |name: &str| pod(name).revision("old");
    let two_at_once = advanced(3).spec("/scaleStrategy/maxUnavailable", json!(2));
    let never_ready = two_at_once
        .pod(old("web-0").never_ready())
        .pod(old("web-1").never_ready());
    assert_eq!(
        brief(&no(never_ready).decide()),
        ["-web-1"],
        "for the budget of scaling"
    );

    for set in [advanced(3), native(3)] {
        let unblocked = set.ordered().annotation("flotilla.rs/unblock", "broken-first");
        let decision = no(unblocked.pod(old("web-0").never_ready())).decide();
        assert_eq!(brief(&decision), ["-web-0"], "in the order");
    }
    let asked_for = || advanced(3).ordered().pods([0], "old").pod(asked("web-1").unready());
    assert_eq!(brief(&no(asked_for()).decide()), ["-web-1"], "in the order");
    let ended = || asked_for().pod(old("web-2").phase(Phase::Failed));
    assert_eq!(
        brief(&no(ended()).decide()),
        ["-web-1"],
        "one that has ended, in the order"
    );

    // The slot of one that the update has made go waits for the budget that the other uses.
    let slow = advanced(2)
        .spec("/scaleStrategy/maxUnavailable", json!(1))
        .rolling(json!({"minReadySeconds": 10}));
    assert_eq!(brief(&no(slow.pod(old("web-0").unready())).decide()), ["-web-0"]);

    // What is being made, or was refused, is what an earlier one may have gone for.
    let being_made = advanced(3).pods([0], "old").pod(old("web-1").unready());
    assert_eq!(brief(&no(being_made.clone()).decide()), ["+web-2@new"]);
    let backing_off = refused(no(being_made), Scope::Slot(2), Report::Create, "Forbidden");
    assert_eq!(brief(&backing_off.decide()), NOTHING);
    // Nor does one go that is up.
    let up = advanced(3).ordered().pods([0], "old").pod(asked("web-1"));
    assert!(!brief(&no(up).decide()).contains(&"-web-1".to_owned()));
}

/// Old pods that are not wanted leave room for as many that are missing.
#[test]
fn r_31_and_sts_2_6_pods_that_are_not_wanted_leave_room_too() {
    let set = advanced(2).ordered().annotation("flotilla.rs/update-type", "Recreate");
    let moved = |replicas: i32| {
        let set = set
            .clone()
            .spec("/replicas", json!(replicas))
            .spec("/reserveOrdinals", json!([0]));
        brief(&unproven(set.pods([0, 1], "old"), "QuotaExceeded").decide())
    };
    let mut gone = moved(2);
    gone.sort();
    assert_eq!(gone, ["-web-0", "-web-1"]);
    assert_eq!(moved(3), NOTHING, "there would be more than have gone");

    // Scaling down has begun to take one away, and waits for the one that is missing, which waits for all old ones to go.
    let begun = pod("web-0").revision("old");
    let begun = begun.label(names::LIFECYCLE_STATE_LABEL, "PreparingDelete");
    let set = set.clone().spec("/reserveOrdinals", json!([0]));
    let mut gone = brief(&unproven(set.pod(begun).pods([1], "old"), "QuotaExceeded").decide());
    gone.sort();
    assert_eq!(gone, ["-web-0", "-web-1"]);
}
