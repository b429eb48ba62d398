//! Two sets that select the same pods (CS-9 and CS-11).

use crate::Lab;
use flotilla_e2e::Manager;
use flotilla_e2e::api::{Api, Objects, is_ready, is_terminating, text};
use flotilla_e2e::clones::{manifest, named_settled, sets, uids, web};
use flotilla_e2e::sets::{SOON, pods, set_image};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const OTHER: &str = "other";

/// Pods that a set manages, by their controller references.
fn of(pods: &Objects, set: &Value) -> Objects {
    let uid = &set["metadata"]["uid"];
    let own = pods
        .iter()
        .filter(|(_, pod)| &pod["metadata"]["ownerReferences"][0]["uid"] == uid);
    own.map(|(name, pod)| (name.clone(), pod.clone())).collect()
}

/// Waits until a set is at rest with so many pods, and nothing of it is going.
async fn rests_with(api: &Api, ns: &str, set: &Value, count: usize) -> BTreeMap<String, String> {
    let name = text(set, "/metadata/name");
    named_settled(api, ns, name, SOON).await;
    let all = api
        .until(&pods(ns), SOON, &format!("{count} pods of {name}"), |pods| {
            let own = of(pods, set);
            own.len() == count && own.values().all(|pod| is_ready(pod) && !is_terminating(pod))
        })
        .await;
    uids(&of(&all, set))
}

/// Each keeps to the pods that it made, whatever becomes of the other; what nobody owns is taken only by who asks for it.
pub(crate) async fn with_one_selector_keep_to_their_pods(lab: &Lab) {
    let ns = "neighbours";
    let api = lab.enter(ns).await;
    let _manager = Manager::alone(&lab.kubeconfig);
    let one = api.create(&sets(ns), &manifest(3)).await;
    let mut second = manifest(2);
    second["metadata"]["name"] = json!(OTHER);
    let two = api.create(&sets(ns), &second).await;
    let at_first = rests_with(&api, ns, &one, 3).await;
    rests_with(&api, ns, &two, 2).await;
    assert!(at_first.keys().all(|name| name.starts_with("web-")));

    let path = format!("{}/{OTHER}", sets(ns));
    api.patch(&path, &json!({"spec": {"replicas": 4}})).await;
    set_image(&api, &path, "app:v2").await;
    let theirs = rests_with(&api, ns, &two, 4).await;
    api.patch(&path, &json!({"spec": {"replicas": 1}})).await;
    let left = rests_with(&api, ns, &two, 1).await;
    assert!(left.iter().all(|(name, uid)| theirs.get(name) == Some(uid)));
    assert_eq!(
        rests_with(&api, ns, &one, 3).await,
        at_first,
        "the first knows nothing of it"
    );

    // What the second leaves behind is nobody's, and the first has as many as it wants: it does not take it unless asked.
    api.delete_by(&path, "Orphan").await;
    api.until(&sets(ns), SOON, "the second is gone", |sets| !sets.contains_key(OTHER))
        .await;
    api.patch(&web(ns), &json!({"spec": {"replicas": 4}})).await;
    let grown = rests_with(&api, ns, &one, 4).await;
    assert!(left.keys().all(|name| !grown.contains_key(name)), "{grown:?}");
    let asks = json!({"metadata": {"annotations": {"flotilla.rs/adopt-orphans": "true"}}, "spec": {"replicas": 5}});
    api.patch(&web(ns), &asks).await;
    api.until(&pods(ns), SOON, "what is nobody's is taken", |pods| {
        let active = pods.values().filter(|pod| !is_terminating(pod)).count();
        assert!(active <= 5, "{active} pods: one was made for the one that is taken");
        left.keys().all(|name| of(pods, &one).contains_key(name))
    })
    .await;
    // It is of another revision, and is made again; those that are ours already stay.
    let whole = rests_with(&api, ns, &one, 5).await;
    assert!(
        grown.iter().all(|(name, uid)| whole.get(name) == Some(uid)),
        "{whole:?}"
    );
    assert_eq!(api.list(&pods(ns)).await.len(), 5, "nobody's pod is left");
    api.delete(&web(ns), false).await;
    api.until(&pods(ns), SOON, "pods go with their set", Objects::is_empty)
        .await;
}
