//! Somebody with every right in a namespace of his own: what he stores there concerns no set of another namespace.

use crate::Lab;
use flotilla_e2e::api::{Objects, text};
use flotilla_e2e::sets::{SOON, pods, ready, rolled_out};
use flotilla_e2e::suite::{self, trial};
use flotilla_e2e::{Api, Kind};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let trial = |(kind, word): (Kind, &str)| {
        let (own, ns) = (lab.clone(), format!("owners-{word}"));
        trial(
            format!("tenants::names_the_owner_of_others_{word}"),
            move || async move {
                names_the_owner_of_another_namespace(&own.enter(&ns).await, kind, &ns).await;
            },
        )
    };
    Kind::BOTH.into_iter().map(trial).collect()
}

/// A copy of an object for the other namespace, with what names its owner. A finalizer keeps it, though the garbage collector wants it gone.
fn copied(object: &Value, (version, kind): (&str, &str), name: &str) -> Value {
    let meta = &object["metadata"];
    json!({
        "apiVersion": version, "kind": kind,
        "metadata": {
            "name": name, "labels": meta["labels"], "ownerReferences": meta["ownerReferences"],
            "finalizers": ["tenant.example.com/stays"],
        },
    })
}

/// The UID of a set is in each of its pods; whoever knows it can write it into an owner reference of his own.
async fn names_the_owner_of_another_namespace(api: &Api, kind: Kind, ns: &str) {
    let revisions = |ns: &str| format!("/apis/apps/v1/namespaces/{ns}/controllerrevisions");
    let uid = |pod: &Value| text(pod, "/metadata/uid").to_owned();
    let tenant = format!("{ns}-tenant");
    suite::make_namespace(api, &tenant).await;
    api.create(&kind.sets(ns), &kind.manifest("web", 2)).await;
    let before = ready(api, ns, 2).await;
    rolled_out(api, kind, ns, "web").await;

    let mut pod = copied(&before["web-0"], ("v1", "Pod"), "web-0");
    pod["spec"] = json!({"containers": [{"name": "main", "image": "app:evil"}]});
    api.create(&pods(&tenant), &pod).await;
    let of_set = api.list(&revisions(ns)).await;
    let (_, revision) = of_set.first_key_value().expect("the set has a revision");
    let mut evil = copied(revision, ("apps/v1", "ControllerRevision"), "web-evil");
    evil["revision"] = json!(1000);
    evil["data"] = revision["data"].clone();
    evil["data"]["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:evil");
    api.create(&revisions(&tenant), &evil).await;

    let is_untouched = |now: &Objects| now.len() == 2 && now.iter().all(|(name, pod)| uid(pod) == uid(&before[name]));
    let time = Duration::from_secs(3);
    api.throughout(&pods(ns), time, "its own pods stay", is_untouched).await;
    // A pod that goes comes back as it was.
    api.delete(&format!("{}/web-0", pods(ns)), false).await;
    let is_new = |now: &Objects| now.get("web-0").is_some_and(|pod| uid(pod) != uid(&before["web-0"]));
    api.until(&pods(ns), SOON, "web-0 is made again", is_new).await;
    let after = ready(api, ns, 2).await;
    let image = |pod: &Value| text(pod, "/spec/containers/0/image").to_owned();
    assert_eq!(image(&after["web-0"]), image(&before["web-0"]));
    assert_eq!(uid(&after["web-1"]), uid(&before["web-1"]));
    assert_eq!(
        api.list(&revisions(ns)).await.len(),
        of_set.len(),
        "no further revision"
    );
    let there = api.list(&pods(&tenant)).await;
    assert!(there.contains_key("web-0"), "that of the tenant is his business");
}
