//! How a set ends, by the garbage collector of the controller-manager (CS-10 and CS-11).

use crate::Lab;
use flotilla_e2e::Manager;
use flotilla_e2e::api::{Objects, is_terminating};
use flotilla_e2e::clones::{manifest, sets, settled, uids, web, with_claims};
use flotilla_e2e::real::incarnation;
use flotilla_e2e::sets::{SOON, claims, pods, ready, revisions};
use serde_json::{Value, json};
use std::time::Duration;

/// For how long something must not happen.
const A_WHILE: Duration = Duration::from_secs(2);

/// Three pods with claims, which take a second to end.
fn three() -> Value {
    let mut set = with_claims(manifest(3));
    set["spec"]["template"]["metadata"]["annotations"] = json!({"sim.flotilla.rs/stop": "1s"});
    set
}

/// In the foreground the set is the last to go, in the background the first; nothing is left, and nothing is made meanwhile.
pub(crate) async fn in_foreground_and_background(lab: &Lab) {
    let ns = "ends";
    let api = lab.enter(ns).await;
    let _manager = Manager::alone(&lab.kubeconfig);
    for policy in ["Foreground", "Background"] {
        api.create(&sets(ns), &three()).await;
        settled(&api, ns, SOON).await;
        let made = uids(&ready(&api, ns, 3).await);
        api.delete_by(&web(ns), policy).await;
        if policy == "Foreground" {
            let set = api.read(&web(ns)).await;
            assert!(is_terminating(&set), "it waits for what it owns");
        } else {
            assert!(api.get(&web(ns)).await.is_none(), "it is gone at once");
        }
        api.until(&pods(ns), SOON, "its pods go", |pods| {
            let known = uids(pods).into_iter().all(|(name, uid)| made.get(&name) == Some(&uid));
            assert!(known, "{policy}: a pod was made for a set that is going");
            if policy == "Background" {
                return pods.is_empty();
            }
            pods.values().all(is_terminating)
        })
        .await;
        if policy == "Foreground" {
            api.until(&sets(ns), SOON, "the set goes", Objects::is_empty).await;
            assert!(api.list(&pods(ns)).await.is_empty(), "after its pods");
        }
        for what in [claims(ns), revisions(ns)] {
            api.until(&what, SOON, &format!("{policy}: nothing is left"), Objects::is_empty)
                .await;
        }
    }
}

fn has_no_owner(object: &Value) -> bool {
    object["metadata"]["ownerReferences"]
        .as_array()
        .is_none_or(Vec::is_empty)
}

/// Whether this one is the only owner, and the controller.
fn is_of(object: &Value, uid: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|owners| owners.len() == 1 && &owners[0]["uid"] == uid && owners[0]["controller"] == true)
}

/// Orphans stay as they are while nobody asks for them, and are taken as they are by a set of the same name that asks (CS-11).
pub(crate) async fn orphans_stay_and_are_taken_again(lab: &Lab) {
    let ns = "ends-orphans";
    let api = lab.enter(ns).await;
    let _manager = Manager::alone(&lab.kubeconfig);
    api.create(&sets(ns), &three()).await;
    settled(&api, ns, SOON).await;
    ready(&api, ns, 3).await;
    let all = [pods(ns), claims(ns), revisions(ns)];
    let mut before = Vec::new();
    for what in &all {
        before.push(uids(&api.list(what).await));
    }
    api.delete_by(&web(ns), "Orphan").await;
    api.until(&sets(ns), SOON, "the set goes", Objects::is_empty).await;
    for (what, before) in all.iter().zip(&before) {
        let stay = |now: &Objects| uids(now) == *before && now.values().all(has_no_owner);
        api.throughout(what, A_WHILE, "orphans stay", stay).await;
    }

    let mut set = three();
    set["metadata"]["annotations"] = json!({"flotilla.rs/adopt-orphans": "true"});
    let owner = api.create(&sets(ns), &set).await["metadata"]["uid"].clone();
    settled(&api, ns, SOON).await;
    let taken = |now: &Objects| now.values().all(|object| is_of(object, &owner));
    for (what, before) in [&all[0], &all[2]].into_iter().zip([&before[0], &before[2]]) {
        let now = api.until(what, SOON, "they are taken", taken).await;
        assert_eq!(uids(&now), *before, "{what}: the same, and no others");
    }
    for (name, pod) in api.list(&pods(ns)).await {
        assert_eq!(incarnation(&pod, "main").0, 0, "{name} was not restarted");
    }
    let same = |claims: &Objects| uids(claims) == before[1] && claims.values().all(has_no_owner);
    api.delete(&web(ns), false).await;
    for what in [&all[0], &all[2]] {
        api.until(what, SOON, "nothing is left", Objects::is_empty).await;
    }
    // Claims were used as they were, and stay nobody's: only pods and revisions are asked for.
    let claims = api.list(&all[1]).await;
    assert!(same(&claims), "{claims:?}");
}
