//! Pods whose revision label webhooks of others change on the way are not made again for that, time after time (CS-12.6 and
//! STS-1.4.2).

use super::scaling::{created, deleted};
use super::{name, one, said};
use crate::testing::{Cluster, PodFixture, clones};
use flotilla_api::names;
use flotilla_model::{Decision, WaitCause};
use serde_json::json;

fn set(replicas: i32) -> Cluster {
    clones(replicas)
        .status("/currentRevision", json!("web-new"))
        .spec("/updateStrategy/rollingUpdate/maxUnavailable", json!("100%"))
}

/// What its set noted on a pod as it made it.
fn note(set: &Cluster) -> String {
    let made = created(&set.decide()).remove(0);
    let note = &made["metadata"]["labels"][names::MADE_AS_LABEL];
    note.as_str().expect("a note of what it was made as").to_owned()
}

/// Another label, or none.
fn relabelled(pod: PodFixture, label: Option<&str>) -> PodFixture {
    match label {
        None => pod.without_label(names::REVISION_LABEL),
        Some(label) => pod.label(names::REVISION_LABEL, label),
    }
}

fn told(decision: &Decision) -> Vec<&WaitCause> {
    let waits = decision.waits.iter().map(|w| &w.cause);
    waits
        .filter(|c| matches!(c, WaitCause::ChangedByOthers { .. }))
        .collect()
}

const LABELS: [Option<&str>; 4] = [None, Some("blue"), Some("web-blue"), Some("v2")];

/// Seen: 71 pods were made and 67 deleted in an hour, and it went on.
#[test]
fn sts_1_4_2_a_pod_whose_label_was_changed_as_it_was_made_is_of_the_revision_it_was_made_from() {
    let note = note(&set(1));
    for label in LABELS {
        let made = |n: usize| relabelled(one(&name(n), "n").label(names::MADE_AS_LABEL, &note), label);
        let decision = (0..3).fold(set(3), |set, n| set.pod(made(n))).decide();
        assert_eq!(said(&decision), [] as [&str; 0], "{label:?}");
        assert_eq!(told(&decision).len(), 3, "{label:?}: {:?}", decision.waits);
        assert_eq!(decision.events.len(), 1, "told once: {:?}", decision.events);
        let status = decision.status.expect("a status").desired;
        assert_eq!(status["updatedReplicas"], 3, "{label:?}");
        assert_eq!(status["updatedReadyReplicas"], 3, "{label:?}");
    }
}

/// Of another revision it is, when the template changes: once.
#[test]
fn sts_1_4_2_a_pod_whose_label_was_changed_is_updated_like_others() {
    for label in LABELS {
        let old = one(&name(0), "o").label(names::MADE_AS_LABEL, "old");
        let decision = set(1).pod(relabelled(old, label)).decide();
        assert_eq!(said(&decision), ["in-place: ~Pod web-b0000"], "{label:?}");
    }
}

/// Whoever makes a pod one of another revision that there is, says so: users, and updates in place, which note it. So does the label of a pod
/// that nobody noted anything on, as of one that was taken over.
#[test]
fn cs_12_6_a_label_that_names_a_revision_counts_whatever_the_pod_was_made_as() {
    let note = note(&set(1));
    let in_place =
        json!({"revision": "web-new", "updateTimestamp": "1970-01-02T00:00:00Z", "lastContainerStatuses": {}});
    for (what, pod, is_updated) in [
        (
            "made as the new, called old",
            one(&name(0), "o").label(names::MADE_AS_LABEL, &note),
            false,
        ),
        (
            "made as the old, called new",
            one(&name(0), "n").label(names::MADE_AS_LABEL, "old"),
            true,
        ),
        (
            "by the hash alone",
            one(&name(0), "n")
                .label(names::REVISION_LABEL, "new")
                .label(names::MADE_AS_LABEL, "old"),
            true,
        ),
        ("taken over", relabelled(one(&name(0), "n"), Some("blue")), false),
        (
            "updated in place, and changed after that",
            relabelled(one(&name(0), "n").label(names::MADE_AS_LABEL, &note), Some("blue"))
                .annotated(names::IN_PLACE_STATE, &in_place.to_string()),
            false,
        ),
    ] {
        let decision = set(1).pod(pod).decide();
        assert_eq!(said(&decision).is_empty(), is_updated, "{what}: {:?}", said(&decision));
        assert_eq!(told(&decision), [] as [&WaitCause; 0], "{what}");
        assert_eq!(deleted(&decision), [] as [&str; 0], "{what}");
    }
}
