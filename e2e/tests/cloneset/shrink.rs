//! A set of fifteen hundred pods whose claims may be used again goes down to ten, while its manager ends ten times, by SIGINT and SIGKILL in
//! turn: no claim of a pod that was scaled away is left, and none of its data comes back (CS-14.7, CS-15.3 and CS-15.5).

use crate::Lab;
use flotilla_e2e::api::{Api, Objects, is_terminating};
use flotilla_e2e::clones::{manifest, sets, settled, uids, web, with_claims};
use flotilla_e2e::sets::{claims, pods};
use flotilla_e2e::{Manager, clock};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const NS: &str = "shrink";
const MANY: usize = 1500;
const FEW: usize = 10;
/// The garbage collector takes claims at its own pace, which its client limits to some twenty requests a second.
const LONG: Duration = Duration::from_secs(900);

/// Ends a manager in one of two ways, and starts another.
async fn replace(lab: &Lab, manager: &mut Manager, gently: bool) {
    if gently {
        manager.signal("INT");
        manager.ended(LONG).await;
    } else {
        manager.kill();
    }
    *manager = Manager::alone(&lab.kubeconfig);
}

/// How many pods are there to stay.
fn staying(pods: &Objects) -> usize {
    pods.values().filter(|pod| !is_terminating(pod)).count()
}

fn goes_with_a_pod(claim: &Value) -> bool {
    let owners = claim["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "Pod"))
}

/// Waits until there are so many pods, each with its claim, and nothing else.
async fn at_rest(api: &Api, count: usize) -> (Objects, Objects) {
    settled(api, NS, LONG).await;
    let pods = api
        .until(&pods(NS), LONG, "pods as asked for", |pods| {
            pods.len() == count && staying(pods) == count
        })
        .await;
    let wanted: BTreeSet<String> = pods.keys().map(|pod| format!("data-{pod}")).collect();
    let claims = api
        .until(&claims(NS), LONG, "a claim for each pod, and no others", |claims| {
            claims.keys().eq(&wanted)
                && !claims
                    .values()
                    .any(|claim| is_terminating(claim) || goes_with_a_pod(claim))
        })
        .await;
    (pods, claims)
}

async fn scale(api: &Api, count: usize) {
    api.patch(&web(NS), &json!({"spec": {"replicas": count}})).await;
}

pub(crate) async fn with_ten_ends(lab: &Lab) {
    let api = lab.enter(NS).await;
    let begun = clock::now();
    let mut manager = Manager::alone(&lab.kubeconfig);
    let mut set = with_claims(manifest(0));
    set["spec"]["scaleStrategy"] = json!({"enablePVCReuse": true});
    api.create(&sets(NS), &set).await;
    scale(&api, MANY).await;
    let (_, before) = at_rest(&api, MANY).await;
    let old: BTreeSet<String> = uids(&before).into_values().collect();

    scale(&api, FEW).await;
    // Right between the two writes: claims have been given away, and their pods are still there.
    api.until(&claims(NS), LONG, "the first claim goes with its pod", |claims| {
        claims.values().any(goes_with_a_pod)
    })
    .await;
    replace(lab, &mut manager, true).await;
    for end in 1..10 {
        let left = MANY - end * 150;
        api.until(&pods(NS), LONG, &format!("{left} pods left"), |pods| {
            staying(pods) <= left
        })
        .await;
        replace(lab, &mut manager, end % 2 == 0).await;
    }
    let (kept, held) = at_rest(&api, FEW).await;
    assert!(uids(&held).values().all(|uid| old.contains(uid)), "they kept theirs");

    scale(&api, 2 * FEW).await;
    let (grown, now) = at_rest(&api, 2 * FEW).await;
    let (held, now) = (uids(&held), uids(&now));
    for pod in grown.keys() {
        let claim = format!("data-{pod}");
        if kept.contains_key(pod) {
            assert_eq!(now[&claim], held[&claim], "{pod} keeps its claim");
        } else {
            assert!(
                !old.contains(&now[&claim]),
                "{pod} has the data of a pod that was scaled away"
            );
        }
    }
    println!("{MANY} to {FEW} to {} in {} s", 2 * FEW, begun.elapsed().as_secs());
    api.delete(&web(NS), false).await;
    api.until(&pods(NS), LONG, "pods go with their set", Objects::is_empty)
        .await;
    api.until(&claims(NS), LONG, "and claims", Objects::is_empty).await;
}
