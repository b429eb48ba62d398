//! Claims that new pods do not take (rules 14.7, 15.1 and 15.5).

use super::scaling::{created, pod_owner};
use super::{name, said};
use crate::testing::{NOW, at, claim, clones};
use flotilla_model::Failure;
use flotilla_model::decision::{Report, Scope};
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
