//! Numbers in a spec are claims, not sizes: what a pass costs grows with what there is and with what may be done now.

use super::refused;
use crate::testing::{Cluster, NOW, advanced, at, brief, claim, native, pod};
use flotilla_model::{Decision, Failure, Report, Scope, WaitCause};
use serde_json::json;

/// More than fits into memory, as one slot each.
const HUGE: i32 = 2_000_000_000;

fn made(decision: &Decision) -> Vec<String> {
    let all = brief(decision).into_iter();
    all.filter_map(|word| word.strip_prefix('+').map(str::to_owned))
        .collect()
}

fn gone(decision: &Decision) -> Vec<String> {
    brief(decision)
        .into_iter()
        .filter(|word| word.starts_with('-'))
        .collect()
}

/// Pods of ordinals far above everything that is made now.
fn with_two_at_the_end(rolling: serde_json::Value) -> Cluster {
    advanced(5_000).rolling(rolling).pods([4_998, 4_999], "old")
}

#[test]
fn r_26_a_pass_makes_a_thousand_pods_whatever_the_spec_asks_for() {
    for set in [native(HUGE), advanced(HUGE), advanced(1_001)] {
        let decision = set.status("/currentRevision", json!("new")).decide();
        let made = made(&decision);
        assert_eq!(
            (made.len(), &*made[0], &*made[999]),
            (1_000, "web-0@new", "web-999@new")
        );
        assert!(decision.waits.len() < 10, "{:?}", decision.waits);
    }
    let ordered = native(HUGE).ordered().status("/currentRevision", json!("new"));
    assert_eq!(brief(&ordered.decide()), ["+web-0@new"]);
}

/// Claims come before their pods, and whether there is room is said of the pods only: nobody's quota of storage is used up to find that out. What has its
/// claims costs nothing more.
#[test]
fn r_26_claims_are_made_for_as_many_new_pods_as_have_come_so_far() {
    for (there, expected) in [(0, 16), (8, 16), (9, 18), (300, 600), (700, 1_000)] {
        let mut set = advanced(HUGE)
            .status("/currentRevision", json!("new"))
            .claim_templates(&["data"]);
        for ordinal in 0..there {
            let pod = pod(&format!("web-{ordinal}")).revision("new").mounts(&["data"]);
            set = set.pod(pod).claim(claim(&format!("data-web-{ordinal}")));
        }
        let decision = set.decide();
        let claims = made(&decision)
            .iter()
            .filter(|name| name.starts_with("claim data-"))
            .count();
        let pods = made(&decision).len() - claims;
        assert_eq!((claims, pods), (expected, expected), "{there}");
        assert!(decision.wake_after.is_some() || expected == 1_000, "{there}");
    }
}

/// Those that the API server refuses do not keep the others from being made.
#[test]
fn r_26_refused_pods_hold_up_no_others() {
    let mut set = advanced(HUGE).status("/currentRevision", json!("new"));
    for ordinal in 0..900 {
        set = refused(set, Scope::Slot(ordinal), Report::Create, Failure::INVALID);
    }
    let made = made(&set.decide());
    assert_eq!((made.len(), &*made[0]), (1_000, "web-900@new"));
}

/// Nor do those that are tried again beside them make it more than a thousand.
#[test]
fn r_26_a_pass_makes_a_thousand_pods_also_where_some_are_tried_again() {
    let mut set = advanced(HUGE).status("/currentRevision", json!("new"));
    for ordinal in 0..30 {
        set = refused(set, Scope::Slot(ordinal), Report::Create, Failure::INVALID);
    }
    set.now = at(NOW + 3_600);
    let made = made(&set.decide());
    assert_eq!((made.len(), &*made[999]), (1_000, "web-999@new"));
}

/// A quota has no room for any: claims of pods that cannot come are not made, and the API server is not asked for one after the other.
/// Those below were there before, and may have left room.
#[test]
fn r_26_above_pods_that_a_quota_refuses_none_is_tried() {
    for (now, expected) in [(NOW, 1), (NOW + 3_600, 9)] {
        let mut set = advanced(HUGE).status("/currentRevision", json!("new"));
        set = set.pods([0, 1, 3, 4], "new");
        for ordinal in 5..13 {
            set = refused(set, Scope::Slot(ordinal), Report::Create, Failure::QUOTA_EXCEEDED);
        }
        set.now = at(now);
        let made = made(&set.decide());
        assert_eq!((made.len(), &*made[0]), (expected, "web-2@new"), "{made:?}");
    }
}

#[test]
fn sts_1_3_4_no_pod_is_made_whose_ordinal_nobody_could_read() {
    for set in [native(5), advanced(5)] {
        let set = set.status("/currentRevision", json!("new"));
        let set = set.spec("/ordinals/start", json!(i32::MAX - 1));
        let decision = set.decide();
        assert_eq!(made(&decision), ["web-2147483646@new", "web-2147483647@new"]);
        let is_told = decision.waits.iter().any(
            |wait| matches!(&wait.cause, WaitCause::FieldUnreadable { path, .. } if path == "spec.ordinals.start"),
        );
        let conditions = decision
            .status
            .as_ref()
            .map(|status| status.desired["conditions"].to_string());
        assert!(
            is_told || conditions.is_some_and(|all| all.contains("spec.ordinals.start")),
            "{:?}",
            decision.waits
        );
    }
}

#[test]
fn r_26_pods_beyond_are_wanted_and_have_their_place() {
    // STS-3.6: the place is counted over all wanted ordinals.
    for (partition, expected) in [
        (4_999, vec!["-web-4999"]),
        (4_998, vec!["-web-4999", "-web-4998"]),
        (5_000, vec![]),
    ] {
        let set = with_two_at_the_end(json!({"maxUnavailable": 5_000, "partition": partition}));
        assert_eq!(gone(&set.decide()), expected, "{partition}");
    }
    // STS-3.7: what is not there is unavailable, and the budget counts it.
    let set = with_two_at_the_end(json!({"maxUnavailable": 4_998, "partition": 0}));
    assert_eq!(gone(&set.decide()), [] as [&str; 0]);
    let set = with_two_at_the_end(json!({"maxUnavailable": 4_999, "partition": 0}));
    assert_eq!(gone(&set.decide()), ["-web-4999"]);
    // STS-3.2: without order the partition is a number of pods, and those to come count as updated.
    for (partition, expected) in [(1, vec!["-web-4999"]), (0, vec!["-web-4999", "-web-4998"]), (2, vec![])] {
        let rolling = json!({"maxUnavailable": 5_000, "partition": partition, "unorderedUpdate": {}});
        assert_eq!(gone(&with_two_at_the_end(rolling).decide()), expected, "{partition}");
    }
}

#[test]
fn r_26_reserved_ordinals_count_in_no_place() {
    let reserved = json!(["0-99", 4_000]);
    let set = advanced(5_000).spec("/reserveOrdinals", reserved);
    let set = set.rolling(json!({"maxUnavailable": 5_000, "partition": 4_999}));
    let set = set.pods([5_099, 5_100], "old");
    assert_eq!(gone(&set.decide()), ["-web-5100"]);
}
