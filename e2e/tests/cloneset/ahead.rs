//! Images that are pulled ahead of updates in place (CS-20), with a definition of jobs that nobody carries out.

use crate::Lab;
use flotilla_e2e::Manager;
use flotilla_e2e::api::{Api, Objects, text};
use flotilla_e2e::clones::{manifest, sets, settled, web};
use flotilla_e2e::jobs::{self, images, jobs};
use flotilla_e2e::sets::{SOON, pods, revisions, set_image};
use serde_json::{Value, json};

const CREATED: &str = "/metadata/labels/apps.kruise.io~1pre-predownload-created";
const GATE: &str = "--feature-gates=PreDownloadImageForInPlaceUpdate=true";

fn in_place(replicas: i64) -> Value {
    let mut set = manifest(replicas);
    set["spec"]["updateStrategy"] = json!({"rollingUpdate": {
        "podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1, "inPlaceUpdateStrategy": {"imagePreDownloadParallelism": "40%"},
    }});
    let template = &mut set["spec"]["template"];
    template["spec"]["imagePullSecrets"] = json!([{"name": "registry"}]);
    template["metadata"]["annotations"] = json!({"team": "a"});
    set
}

fn events(ns: &str) -> String {
    format!("/apis/events.k8s.io/v1/namespaces/{ns}/events")
}

async fn keep(api: &Api, ns: &str, partition: i64) {
    let rolling = json!({"partition": partition});
    api.patch(
        &web(ns),
        &json!({"spec": {"updateStrategy": {"rollingUpdate": rolling}}}),
    )
    .await;
}

/// Sets the image, and waits for the one job that follows, and for the note on its revision.
async fn pulled(api: &Api, ns: &str, image: &str) -> Value {
    set_image(api, &web(ns), image).await;
    let mut found = api
        .until(
            &jobs(ns),
            SOON,
            &format!("one job, for {image}"),
            |jobs| matches!(&images(jobs)[..], [(_, of)] if of == image),
        )
        .await;
    let job = found.pop_first().expect("the job").1;
    let hash = text(&job, "/metadata/labels/controller.kubernetes.io~1hash").to_owned();
    let name = format!("web-{hash}");
    api.until(&revisions(ns), SOON, &format!("{name} says so"), |revisions| {
        revisions.get(&name).is_some_and(|r| text(r, CREATED) == "true")
    })
    .await;
    job
}

/// Without the gate nothing is made. With it there is one job for the image of an update, as long as the update lasts; one that is
/// overtaken goes at once; and a revision that comes back is pulled for again (OpenKruise #1419).
pub(crate) async fn jobs_are_made_for_an_update_and_go_with_it(lab: &Lab) {
    let ns = "ahead";
    let api = lab.enter(ns).await;
    jobs::define(&api, &["v1alpha1", "v1beta1"]).await;
    let manager = Manager::alone(&lab.kubeconfig);
    api.create(&sets(ns), &in_place(5)).await;
    settled(&api, ns, SOON).await;
    set_image(&api, &web(ns), "app:v2").await;
    let set = settled(&api, ns, SOON).await;
    assert_eq!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
    drop(manager);
    let said = |events: &Objects, reason: &str| events.values().any(|event| event["reason"] == reason);
    let told = api.list(&events(ns)).await;
    assert!(said(&told, "SuccessfulUpdatePodInPlace") && !said(&told, "CreatedImagePullJob"));
    assert!(
        api.list(&revisions(ns))
            .await
            .values()
            .all(|r| text(r, CREATED).is_empty())
    );

    let arguments = [
        "--leader-elect=false",
        "--observation-seconds=0",
        "--http-address=none",
        GATE,
    ];
    let _manager = Manager::start(&lab.kubeconfig, "ahead", &arguments);
    keep(&api, ns, 4).await;
    let job = pulled(&api, ns, "app:v3").await;
    let revision = text(&settled(&api, ns, SOON).await, "/status/updateRevision").to_owned();
    let hash = revision.strip_prefix("web-").expect("the set's name");
    assert_eq!(text(&job, "/metadata/name"), format!("{revision}-main"));
    let labels = json!({"app": "web", "controller.kubernetes.io/hash": hash});
    assert_eq!(job["metadata"]["labels"], labels);
    assert_eq!(text(&job, "/metadata/ownerReferences/0/kind"), "CloneSet");
    assert_eq!(
        job["spec"],
        json!({
            "image": "app:v3",
            "pullSecrets": ["registry"],
            "podSelector": {"matchLabels": {"app": "web"}, "matchExpressions": [
                {"key": "controller-revision-hash", "operator": "NotIn", "values": [revision, hash]},
            ]},
            "parallelism": 2,
            "pullPolicy": {"timeoutSeconds": 300, "backoffLimit": 1},
            "completionPolicy": {"type": "Always", "ttlSecondsAfterFinished": 600},
            "sandboxConfig": {"labels": labels, "annotations": {"team": "a"}},
        })
    );
    api.until(&events(ns), SOON, "the event", |events| {
        said(events, "CreatedImagePullJob")
    })
    .await;

    // Overtaken, and then back: the revision of v3 has been noted before.
    let other = pulled(&api, ns, "app:v4").await;
    assert_ne!(other["metadata"]["name"], job["metadata"]["name"]);
    let again = pulled(&api, ns, "app:v3").await;
    assert_eq!(again["metadata"]["name"], job["metadata"]["name"]);
    assert_ne!(again["metadata"]["uid"], job["metadata"]["uid"]);

    keep(&api, ns, 0).await;
    settled(&api, ns, SOON).await;
    api.until(&jobs(ns), SOON, "jobs go when the update is done", Objects::is_empty)
        .await;
    api.delete(&web(ns), false).await;
    api.until(&pods(ns), SOON, "pods go with their set", Objects::is_empty)
        .await;
}
