//! What feature gates and flags of the manager decide for all CloneSets together.

use super::super::Defaults;
use super::{done, name, one, pods};
use crate::testing::{Cluster, clones};
use flotilla_api::names;
use flotilla_model::decision::Command;
use serde_json::{Value, json};

fn with(mut cluster: Cluster, defaults: Defaults) -> Cluster {
    cluster.defaults = defaults;
    cluster
}

/// Labels of the pods that are made.
fn made(cluster: &Cluster) -> Vec<Value> {
    let decision = cluster.decide();
    let pods = decision.commands().filter_map(|c| match &c.command {
        Command::Create { body, .. } => Some(body.render()),
        _ => None,
    });
    let pods = pods.filter(|body| body["kind"] == "Pod");
    pods.map(|pod| pod["metadata"]["labels"].clone()).collect()
}

#[test]
fn r_33_with_short_hashes_pods_carry_the_hash_of_their_revision_alone() {
    for (short_hash, label) in [(false, "web-new"), (true, "new")] {
        let defaults = Defaults {
            short_hash,
            ..Defaults::default()
        };
        let labels = made(&with(pods(clones(1), ""), defaults));
        assert_eq!(labels.len(), 1);
        assert_eq!(labels[0][names::REVISION_LABEL], label);
        assert_eq!(labels[0][names::TEMPLATE_HASH_LABEL], "new");
    }
}

/// What its readers would not take for a name of that revision is not written.
#[test]
fn cs_12_6_with_short_hashes_pods_of_a_former_sets_revision_carry_its_name() {
    let defaults = Defaults {
        short_hash: true,
        ..Defaults::default()
    };
    let set = clones(1).no_revisions().revision("former-new", 2, "v2");
    let labels = made(&with(set, defaults));
    assert_eq!(labels[0][names::REVISION_LABEL], "former-new");
}

/// The gate is the default of the opt-in (CS-13.5).
#[test]
fn r_33_with_partition_rollback_new_pods_go_back() {
    for (partition_rollback, went_back) in [(false, 0), (true, 1)] {
        let defaults = Defaults {
            partition_rollback,
            ..Defaults::default()
        };
        let set = clones(5).spec(
            "/updateStrategy/rollingUpdate",
            json!({"partition": 4, "maxUnavailable": 1}),
        );
        let cluster = with(pods(set, "2o 3n"), defaults);
        assert_eq!(done(&cluster, &cluster.decide()).went_back, went_back);
    }
}

/// When all are updated the update is over (CS-21.2), also if the write that says so was lost: what the status is to say, and what pods are to be, go
/// together.
#[test]
fn cs_13_9_and_21_2_pods_of_an_update_that_is_over_go_back_to_nothing() {
    let defaults = Defaults {
        partition_rollback: true,
        ..Defaults::default()
    };
    for (words, current, went_back) in [("5n", "web-new", 0), ("4n 1o", "web-old", 3)] {
        let set = clones(5).spec(
            "/updateStrategy/rollingUpdate",
            json!({"partition": 4, "maxUnavailable": "100%"}),
        );
        let cluster = with(pods(set, words), defaults);
        let decision = cluster.decide();
        let status = decision.status.as_ref().expect("a status");
        assert_eq!(status.desired["currentRevision"], json!(current), "{words}");
        assert_eq!(done(&cluster, &decision).went_back, went_back, "{words}");
    }
}

/// Pods that wait for their hook do not count as replicas (CS-13.8).
#[test]
fn r_33_what_waits_for_its_deletion_can_be_left_out_of_the_replicas() {
    for (exclude_preparing_delete, created) in [(false, 0), (true, 1)] {
        let defaults = Defaults {
            exclude_preparing_delete,
            ..Defaults::default()
        };
        let hook = json!({"labelsHandler": {"hold": "yes"}, "markPodNotReady": true});
        let set = clones(5).spec("/lifecycle/preDelete", hook);
        let cluster = with(pods(set, "4n 1dn"), defaults);
        assert_eq!(done(&cluster, &cluster.decide()).created, created);
    }
}

/// A pod that is prepared for its update is on the way to the new revision: the one that is missing is made old, and the partition holds.
#[test]
fn r_33_prepared_pods_can_count_as_updated_when_pods_are_made() {
    let hook = json!({"labelsHandler": {"update": "wait"}});
    for (preparing_as_updated, revision) in [(false, "web-new"), (true, "web-old")] {
        let set = clones(5)
            .spec(
                "/updateStrategy/rollingUpdate",
                json!({"partition": 4, "podUpdatePolicy": "InPlaceIfPossible"}),
            )
            .spec("/lifecycle/inPlaceUpdate", hook.clone());
        let prepared = one(&name(9), "o")
            .label(names::LIFECYCLE_STATE_LABEL, "PreparingUpdate")
            .label("update", "wait");
        let defaults = Defaults {
            preparing_as_updated,
            ..Defaults::default()
        };
        let labels = made(&with(pods(set.pod(prepared), "3o"), defaults));
        assert_eq!(labels.len(), 1);
        assert_eq!(labels[0][names::REVISION_LABEL], revision);
    }
}
