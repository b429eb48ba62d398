//! Which pods are a set's, which ones it lets go, and who is told of a change (STS-1.2, STS-1.3, STS-1.6).

use crate::statefulset::StatefulSetController;
use crate::testing::{Cluster, advanced, brief, native, owner, pod};
use flotilla_model::decision::Command;
use flotilla_model::records::Phase;
use flotilla_model::{Change, Controller, SetKind, WaitCause};
use serde_json::json;
use std::sync::Arc;

const NOTHING: [&str; 0] = [];

fn settled(replicas: i64) -> Cluster {
    let set = advanced(i32::try_from(replicas).expect("few"));
    set.status("/currentRevision", json!("new")).pods(0..replicas, "new")
}

#[test]
fn sts_1_2_2_what_is_adopted_and_what_is_released() {
    let orphan = |name: &str| pod(name).revision("new").orphan();
    for (what, cluster, expected) in [
        ("orphan member", settled(1).pod(orphan("web-5")), vec!["~pod web-5"]),
        (
            "orphan with another's labels",
            settled(1).pod(orphan("web-5").unlabelled()),
            vec![],
        ),
        (
            "orphan of another set's name",
            settled(1).pod(orphan("other-5")),
            vec![],
        ),
        (
            "orphan on its way out",
            settled(1).pod(orphan("web-5").terminating()),
            vec![],
        ),
        (
            "another's",
            settled(1).pod(orphan("web-5").owned_by(owner("apps/v1", "ReplicaSet", "r", "r"))),
            vec![],
        ),
        (
            "ours with other labels",
            settled(1).pod(pod("web-5").unlabelled()),
            vec!["~pod web-5"],
        ),
        (
            "set under deletion",
            settled(1).pod(orphan("web-5")).pod(pod("web-6").unlabelled()).deleted(),
            vec![],
        ),
    ] {
        assert_eq!(brief(&cluster.decide()), expected, "{what}");
    }
}

#[test]
fn sts_1_3_4_a_name_that_is_not_canonical_is_released_and_occupies_no_slot() {
    let set = advanced(8).status("/currentRevision", json!("new")).pods(0..7, "new");
    assert_eq!(
        brief(&set.pod(pod("web-007").revision("new")).decide()),
        ["~pod web-007", "+web-7@new"]
    );
    let counted = settled(1).pod(pod("web-99999999999").revision("new"));
    let decision = counted.decide();
    assert_eq!(brief(&decision), NOTHING, "never acted upon");
    assert_eq!(
        decision.status.expect("a status").desired["replicas"],
        json!(2),
        "but counted"
    );
}

#[test]
fn sts_1_3_3_a_missing_name_label_is_restored_and_a_missing_index_label_is_not() {
    let set = advanced(1).status("/currentRevision", json!("new"));
    assert_eq!(
        brief(&set.pod(pod("web-0").revision("new").no_name_label()).decide()),
        ["~pod web-0"]
    );
    let dying = advanced(1).status("/currentRevision", json!("new"));
    assert_eq!(
        brief(
            &dying
                .pod(pod("web-0").revision("new").no_name_label().terminating())
                .decide()
        ),
        NOTHING
    );
}

#[test]
fn sts_1_2_2_a_slot_stays_empty_while_its_name_is_taken() {
    let taken = advanced(2).status("/currentRevision", json!("new")).pods([1], "new");
    let stranger = owner("batch/v1", "Job", "nightly", "job-uid");
    for (what, fixture, expected) in [
        (
            "another's",
            pod("web-0").owned_by(stranger),
            Some(Some("Job nightly".to_owned())),
        ),
        ("nobody's, other labels", pod("web-0").orphan().unlabelled(), Some(None)),
        ("being released", pod("web-0").unlabelled(), None),
        ("being adopted", pod("web-0").orphan(), None),
    ] {
        let decision = taken.clone().pod(fixture).decide();
        assert!(
            brief(&decision).iter().all(|c| c == "~pod web-0"),
            "{what}: {:?}",
            brief(&decision)
        );
        let told = decision.waits.iter().find_map(|w| match &w.cause {
            WaitCause::NameTaken { owner } => Some(owner.clone()),
            _ => None,
        });
        assert_eq!(told, expected, "{what}");
    }
}

#[test]
fn sts_1_6_every_deletion_names_the_incarnation_and_the_version_that_was_seen() {
    let failed = advanced(3)
        .pods([0], "old")
        .pod(pod("web-1").revision("old").phase(Phase::Failed));
    let decision = failed.pods([7], "new").rolling(json!({"maxUnavailable": 3})).decide();
    assert_eq!(brief(&decision), ["+web-2@new", "-web-1", "-web-7", "-web-0"]);
    for scoped in decision.commands() {
        if let Command::Delete {
            key,
            uid,
            resource_version,
            ..
        } = &scoped.command
        {
            assert_eq!(uid.to_string(), format!("uid-of-{}", key.name));
            assert_eq!(*resource_version, Some(1), "{key}");
        }
    }
}

#[test]
fn sts_1_6_the_status_is_written_only_over_what_it_was_computed_from() {
    let write = settled(1).decide().status.expect("a status");
    assert_eq!(
        (write.resource_version, write.uid.to_string()),
        (7, "uid-of-web".to_owned())
    );
}

#[test]
fn sts_1_6_a_set_of_the_same_name_made_anew_has_no_pods_of_the_former() {
    let mut cluster = settled(1);
    cluster.set["metadata"]["uid"] = json!("another-web");
    let decision = cluster.no_revisions().decide();
    assert_eq!(brief(&decision), ["+revision"], "starts clean");
}

#[test]
fn sts_1_8_what_is_terminating_is_not_deleted_again() {
    let dying = |name: &str| pod(name).revision("old").terminating();
    for (what, cluster) in [
        ("by the update", advanced(1).pod(dying("web-0"))),
        ("by scaling down", settled(1).pod(dying("web-5"))),
        (
            "by the replacement of a failed pod",
            advanced(1).pod(dying("web-0").phase(Phase::Failed)),
        ),
        (
            "as was asked for",
            advanced(1).pod(dying("web-0").label("apps.kruise.io/specified-delete", "")),
        ),
        (
            "to be recreated",
            advanced(1)
                .annotation("flotilla.rs/update-type", "Recreate")
                .pod(dying("web-0")),
        ),
    ] {
        assert_eq!(brief(&cluster.decide()), NOTHING, "{what}");
    }
}

/// The keys that a change of a pod, claim or revision enqueues.
pub(super) fn told(cluster: &Cluster, change: &Change) -> Vec<String> {
    let mut cluster = cluster.clone();
    cluster.record = Some(cluster.record());
    let mut keys = Vec::new();
    StatefulSetController::new(SetKind::Advanced).route(change, &cluster, &mut keys);
    keys.into_iter().map(|key| key.name.to_string()).collect()
}

#[test]
fn sts_1_2_4_an_orphan_wakes_the_set_that_its_name_names() {
    let set = advanced(1);
    let orphan = Arc::new(pod("web-0").orphan().build("web"));
    assert_eq!(told(&set, &Change::Pod(None, Some(orphan.clone()))), ["web"]);
    let of_another = Arc::new(pod("x-0").orphan().unlabelled().build("web"));
    assert_eq!(told(&set, &Change::Pod(None, Some(of_another))), NOTHING);
    // However many sets select it, none can take it.
    let selected = Arc::new(pod("x-0").orphan().build("web"));
    assert_eq!(told(&set, &Change::Pod(None, Some(selected))), NOTHING);
    let ours = Arc::new(pod("web-0").build("web"));
    assert!(
        told(&set, &Change::Pod(Some(ours.clone()), Some(orphan))).contains(&"web".to_owned()),
        "the old owner"
    );
    assert_eq!(told(&set, &Change::Pod(Some(ours), None)), ["web"], "deleted");
}

#[test]
fn sts_1_2_4_an_owner_is_found_by_its_uid_not_by_its_name() {
    let former = pod("web-0").owned_by(owner("apps.kruise.io/v1beta1", "StatefulSet", "web", "a former web"));
    let change = Change::Pod(None, Some(Arc::new(former.build("web"))));
    assert_eq!(told(&advanced(1), &change), NOTHING);
}

#[test]
fn sts_8_10_a_claim_that_goes_wakes_the_set_whose_pod_waits_for_it() {
    let set = advanced(1).claim_templates(&["data"]);
    for (name, expected) in [
        ("data-web-0", vec!["web"]),
        ("data-web-x", vec![]),
        ("logs-web-0", vec![]),
        ("data-other-0", vec![]),
    ] {
        let claim = Arc::new(crate::testing::claim(name).terminating().build());
        assert_eq!(told(&set, &Change::Claim(Some(claim), None)), expected, "{name}");
    }
}

#[test]
fn sts_2_3_step_6_a_set_under_deletion_only_tells_its_status() {
    for set in [advanced(3), native(3).ordered()] {
        let decision = set
            .pods([0], "old")
            .pod(pod("web-9").revision("old"))
            .deleted()
            .decide();
        assert_eq!(brief(&decision), NOTHING);
        let status = decision.status.expect("a status").desired;
        assert_eq!(status["replicas"], json!(2));
    }
}
