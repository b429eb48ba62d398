//! Tables: given a cluster like this, expect these commands and these waits. Tests name the rule they show.

mod cases;
mod properties;
mod world;

use crate::testing::{advanced, brief, native, pod};
use flotilla_model::records::Phase;
use serde_json::json;

#[test]
fn burst_creates_all_that_are_missing() {
    let decision = advanced(3)
        .pods([1], "new")
        .status("/currentRevision", json!("new"))
        .decide();
    assert_eq!(brief(&decision), ["+web-0@new", "+web-2@new"]);
}

#[test]
fn rule_2_3_monotonic_creates_one_and_stops() {
    let decision = native(3).ordered().status("/currentRevision", json!("new")).decide();
    assert_eq!(brief(&decision), ["+web-0@new"]);
    let decision = native(3)
        .ordered()
        .status("/currentRevision", json!("new"))
        .pod(pod("web-0").revision("new").unready())
        .decide();
    assert_eq!(brief(&decision), [] as [&str; 0]);
}

#[test]
fn rule_3_5_a_failed_pod_is_replaced_although_the_budget_is_one() {
    let decision = advanced(2)
        .spec("/scaleStrategy/maxUnavailable", json!(1))
        .status("/currentRevision", json!("new"))
        .pods([0], "new")
        .pod(pod("web-1").revision("new").phase(Phase::Failed))
        .decide();
    assert_eq!(brief(&decision), ["-web-1"]);
}

#[test]
fn rule_3_7_updates_within_the_budget_from_the_top() {
    let decision = advanced(4)
        .rolling(json!({"maxUnavailable": 2}))
        .pods(0..4, "old")
        .decide();
    assert_eq!(brief(&decision), ["-web-3", "-web-2"]);
    let decision = advanced(4).rolling(json!({"partition": 3})).pods(0..4, "old").decide();
    assert_eq!(brief(&decision), ["-web-3"]);
}

#[test]
fn invariant_8_a_settled_set_gets_no_writes() {
    let settled = advanced(3).pods(0..3, "new").status("/currentRevision", json!("new"));
    let decision = settled.decide();
    assert_eq!(brief(&decision), [] as [&str; 0]);
    let written = decision.status.unwrap().diff().unwrap();
    let mut again = settled;
    for (field, value) in written.as_object().unwrap() {
        again = again.status(&format!("/{field}"), value.clone());
    }
    let decision = again.decide();
    assert_eq!(decision.status.unwrap().diff(), None);
    assert_eq!(decision.waits, []);
}
