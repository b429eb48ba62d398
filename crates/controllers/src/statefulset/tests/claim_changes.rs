//! Claim templates that change while pods run: what is made before a pod goes, and what pods of old revisions had (8.6, rulings 11 and 31).

use super::refused;
use crate::testing::{Cluster, PodFixture, advanced, brief, claim, pod};
use flotilla_model::decision::{Command, Scope};
use flotilla_model::{Report, WaitCause};
use serde_json::json;

/// A pod that was made with the claim of `data`.
fn with_data(name: &str, revision: &str) -> PodFixture {
    pod(name).revision(revision).mounts(&["data"])
}

/// Two pods with `data` and its claims, of a set that has `logs`, too.
fn with_logs(set: Cluster, revision: &str) -> Cluster {
    let set = set
        .claim_templates(&["data", "logs"])
        .status("/currentRevision", json!("new"))
        .pod(with_data("web-0", revision))
        .pod(with_data("web-1", revision));
    set.claim(claim("data-web-0")).claim(claim("data-web-1"))
}

/// The set with this pod instead of that of its name.
fn replacing(mut set: Cluster, pod: PodFixture) -> Cluster {
    let record = pod.build("web");
    set.own_pods.retain(|p| p.name() != record.name());
    set.pod_record(record)
}

#[test]
fn problem_8_6_a_pod_goes_only_when_the_claims_of_its_successor_are_there() {
    for (what, set) in [
        ("only a claim template", with_logs(advanced(2), "new")),
        ("a revision, too", with_logs(advanced(2), "old")),
        ("in order", with_logs(advanced(2).ordered(), "new")),
        (
            "unavailable",
            replacing(with_logs(advanced(2), "new"), with_data("web-1", "new").unready()),
        ),
    ] {
        assert_eq!(brief(&set.decide()), ["+claim logs-web-1"], "{what}");
        let there = set.clone().claim(claim("logs-web-1"));
        assert_eq!(brief(&there.decide()), ["-web-1"], "{what}");
        let goes = set.clone().claim(claim("logs-web-1").terminating());
        assert_eq!(
            brief(&goes.decide()),
            ["-web-1"],
            "{what}: it may be the pod that keeps it"
        );
        let bad = refused(set, Scope::Slot(1), Report::Create, "Forbidden").decide();
        assert!(
            brief(&bad).iter().all(|c| !c.starts_with("-web")),
            "{what}: {:?}",
            brief(&bad)
        );
        let is_said = |cause: &WaitCause| matches!(cause, WaitCause::Refused { reason, .. } if reason == "Forbidden");
        assert!(
            bad.waits.iter().any(|w| w.subject == "web-1" && is_said(&w.cause)),
            "{what}"
        );
    }
}

#[test]
fn problem_8_6_where_all_pods_go_at_once_all_claims_are_made_first() {
    let recreated = || with_logs(advanced(2).annotation("flotilla.rs/update-type", "Recreate"), "old");
    assert_eq!(brief(&recreated().decide()), ["+claim logs-web-0", "+claim logs-web-1"]);
    assert_eq!(
        brief(&refused(recreated(), Scope::Slot(1), Report::Create, "Forbidden").decide()),
        ["+claim logs-web-0"]
    );
    let there = recreated().claim(claim("logs-web-0")).claim(claim("logs-web-1"));
    assert_eq!(brief(&there.decide()), ["-web-1", "-web-0"]);
}

#[test]
fn problem_8_6_claims_that_are_made_first_are_owned_as_the_policy_says() {
    let set = with_logs(advanced(2), "new");
    let set = set.spec("/persistentVolumeClaimRetentionPolicy/whenDeleted", json!("Delete"));
    let owners = set.decide().commands().find_map(|c| match &c.command {
        Command::Create { key, body, .. } if *key.name == *"logs-web-1" => {
            Some(body.render()["metadata"]["ownerReferences"][0]["kind"].clone())
        }
        _ => None,
    });
    assert_eq!(owners, Some(json!("StatefulSet")));
}
