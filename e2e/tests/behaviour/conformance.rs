//! The behaviours of the Kubernetes conformance tests for StatefulSets, for both kinds.
//!
//! After <https://github.com/kubernetes/kubernetes/blob/master/test/e2e/apps/statefulset.go>: the same stories, told with simulated
//! nodes on which an annotation breaks and mends a pod.

use crate::Lab;
use flotilla_e2e::api::{Objects, is_ready, is_terminating, number, revision, text};
use flotilla_e2e::sets::{SOON, all_ready, image, partition, pods, ready, revisions, rolled_out, shape};
use flotilla_e2e::suite::trial;
use flotilla_e2e::{Api, Kind};
use http::Method;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::time::Duration;

/// For how long something must not happen.
const A_WHILE: Duration = Duration::from_secs(5);

pub(crate) fn trials(lab: &Lab) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (kind, word) in Kind::BOTH {
        macro_rules! story {
            ($name:ident) => {
                let own = lab.clone();
                let namespace = format!("{}-{word}", stringify!($name).replace('_', "-"));
                trials.push(trial(
                    format!("conformance::{word}::{}", stringify!($name)),
                    move || async move {
                        let api = own.enter(&namespace).await;
                        $name(api, kind, namespace).await;
                    },
                ));
            };
        }
        story!(ordered_scaling_halts_on_an_unhealthy_pod);
        story!(burst_scaling_goes_on_with_unhealthy_pods);
        story!(canary_and_phased_updates_by_partition);
        story!(rolling_update_and_rollback);
        story!(an_evicted_pod_is_recreated);
        story!(the_scale_subresource_works);
        story!(collections_are_listed_patched_and_deleted);
        story!(the_status_subresource_keeps_foreign_conditions);
        story!(claims_are_made_kept_and_deleted_by_policy);
        story!(unknown_template_fields_reach_revision_and_pod);
    }
    trials
}

async fn ordered_scaling_halts_on_an_unhealthy_pod(api: Api, kind: Kind, ns: String) {
    api.create(&kind.sets(&ns), &kind.manifest("web", 1)).await;
    ready(&api, &ns, 1).await;
    shape(&api, &ns, "web-0", "unready", Some("true")).await;
    api.until(&pods(&ns), SOON, "web-0 not ready", |pods| !is_ready(&pods["web-0"]))
        .await;

    scale(&api, kind, &ns, 3).await;
    api.throughout(&pods(&ns), A_WHILE, "scale-up halts on an unhealthy pod", |pods| {
        pods.len() == 1
    })
    .await;

    let mut order = Vec::new();
    shape(&api, &ns, "web-0", "unready", None).await;
    let everything = pods(&ns);
    let watching = api.until(&everything, SOON, "three pods, in order", |pods| {
        for name in pods
            .keys()
            .filter(|name| !order.contains(*name))
            .cloned()
            .collect::<Vec<_>>()
        {
            let lower_are_ready = order.iter().all(|lower: &String| is_ready(&pods[lower]));
            assert!(lower_are_ready, "{name} was created before {order:?} were ready");
            order.push(name);
        }
        all_ready(pods, 3)
    });
    watching.await;
    assert_eq!(order, ["web-0", "web-1", "web-2"]);

    for pod in ["web-0", "web-1", "web-2"] {
        shape(&api, &ns, pod, "unready", Some("true")).await;
    }
    api.until(&pods(&ns), SOON, "no pod ready", |pods| {
        pods.values().all(|p| !is_ready(p))
    })
    .await;
    api.until(&kind.sets(&ns), SOON, "the status says so", |sets| {
        number(&sets["web"], "/status/readyReplicas") == 0
    })
    .await;
    scale(&api, kind, &ns, 0).await;
    api.throughout(&pods(&ns), A_WHILE, "scale-down halts on unhealthy pods", |pods| {
        pods.len() == 3
    })
    .await;

    let mut left = Vec::new();
    for pod in ["web-2", "web-1", "web-0"] {
        shape(&api, &ns, pod, "unready", None).await;
    }
    api.until(&pods(&ns), SOON, "all pods gone", |pods| {
        for name in ["web-0", "web-1", "web-2"] {
            if !pods.contains_key(name) && !left.contains(&name) {
                left.push(name);
            }
        }
        pods.is_empty()
    })
    .await;
    assert_eq!(left, ["web-2", "web-1", "web-0"], "the highest goes first");
}

async fn burst_scaling_goes_on_with_unhealthy_pods(api: Api, kind: Kind, ns: String) {
    let mut set = kind.manifest("web", 1);
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    api.create(&kind.sets(&ns), &set).await;
    ready(&api, &ns, 1).await;
    shape(&api, &ns, "web-0", "unready", Some("true")).await;
    api.until(&pods(&ns), SOON, "web-0 not ready", |pods| !is_ready(&pods["web-0"]))
        .await;
    scale(&api, kind, &ns, 3).await;
    api.until(&pods(&ns), SOON, "three pods although one is unhealthy", |pods| {
        pods.len() == 3
    })
    .await;
    scale(&api, kind, &ns, 0).await;
    api.until(
        &pods(&ns),
        SOON,
        "all pods gone although one is unhealthy",
        Objects::is_empty,
    )
    .await;
}

async fn canary_and_phased_updates_by_partition(api: Api, kind: Kind, ns: String) {
    let mut set = kind.manifest("web", 3);
    set["spec"]["updateStrategy"] = partition(3)["spec"]["updateStrategy"].clone();
    let path = kind.set(&ns, "web");
    api.create(&kind.sets(&ns), &set).await;
    ready(&api, &ns, 3).await;
    let settled = rolled_out(&api, kind, &ns, "web").await;
    let old = text(&settled, "/status/updateRevision").to_owned();

    api.patch(&path, &image("app:v2")).await;
    let sets = api
        .until(&kind.sets(&ns), SOON, "a new update revision", |s| {
            text(&s["web"], "/status/updateRevision") != old
        })
        .await;
    let new = text(&sets["web"], "/status/updateRevision").to_owned();
    api.throughout(&pods(&ns), A_WHILE, "the partition keeps every pod", |p| {
        p.values().all(|p| revision(p) == old)
    })
    .await;

    let at = |pods: &Objects, revisions: [&str; 3]| {
        all_ready(pods, 3)
            && revisions
                .iter()
                .enumerate()
                .all(|(i, r)| revision(&pods[&format!("web-{i}")]) == *r)
    };
    api.patch(&path, &partition(2)).await;
    api.until(&pods(&ns), SOON, "the canary is new", |p| at(p, [&old, &old, &new]))
        .await;

    for pod in ["web-0", "web-2"] {
        api.delete(&format!("{}/{pod}", pods(&ns)), false).await;
    }
    api.until(&pods(&ns), SOON, "deleted pods come back at their revision", |p| {
        at(p, [&old, &old, &new])
    })
    .await;

    api.patch(&path, &partition(1)).await;
    api.until(&pods(&ns), SOON, "the second phase", |p| at(p, [&old, &new, &new]))
        .await;
    api.patch(&path, &partition(0)).await;
    api.until(&pods(&ns), SOON, "the last phase", |p| at(p, [&new, &new, &new]))
        .await;
    let done = rolled_out(&api, kind, &ns, "web").await;
    assert_eq!(text(&done, "/status/currentRevision"), new);
    assert_eq!(number(&done, "/status/currentReplicas"), 3);
}

async fn rolling_update_and_rollback(api: Api, kind: Kind, ns: String) {
    let path = kind.set(&ns, "web");
    api.create(&kind.sets(&ns), &kind.manifest("web", 3)).await;
    ready(&api, &ns, 3).await;
    let first = text(&rolled_out(&api, kind, &ns, "web").await, "/status/updateRevision").to_owned();

    api.patch(&path, &image("app:v2")).await;
    assert_eq!(replacements(&api, &ns, "app:v2").await, ["web-2", "web-1", "web-0"]);
    let second = text(&rolled_out(&api, kind, &ns, "web").await, "/status/updateRevision").to_owned();
    assert_ne!(first, second);

    api.patch(&path, &image("app:v1")).await;
    assert_eq!(replacements(&api, &ns, "app:v1").await, ["web-2", "web-1", "web-0"]);
    let back = rolled_out(&api, kind, &ns, "web").await;
    assert_eq!(
        text(&back, "/status/updateRevision"),
        first,
        "the rollback re-uses the old revision by name"
    );
    let history = api.list(&revisions(&ns)).await;
    assert_eq!(history.len(), 2, "no revision was added");
    assert_eq!(number(&history[&first], "/revision"), 3, "its number was raised");
}

/// The order in which pods come to an image, until all have it and are ready; at most one is unavailable at any time.
async fn replacements(api: &Api, ns: &str, image: &str) -> Vec<String> {
    let mut order = Vec::new();
    let has_image = |pod: &Value| text(pod, "/spec/containers/0/image") == image;
    api.until(&pods(ns), SOON, &format!("all pods with {image}"), |pods| {
        let well = pods.values().filter(|p| is_ready(p) && !is_terminating(p)).count();
        assert!(well >= 2, "more than one unavailable");
        for (name, pod) in pods {
            if has_image(pod) && !order.contains(name) {
                order.push(name.clone());
            }
        }
        all_ready(pods, 3) && pods.values().all(has_image)
    })
    .await;
    order
}

async fn an_evicted_pod_is_recreated(api: Api, kind: Kind, ns: String) {
    api.create(&kind.sets(&ns), &kind.manifest("web", 2)).await;
    let before = ready(&api, &ns, 2).await;
    let uid = text(&before["web-1"], "/metadata/uid").to_owned();
    shape(&api, &ns, "web-1", "fail", Some("Evicted")).await;
    let is_new = |pods: &Objects| all_ready(pods, 2) && text(&pods["web-1"], "/metadata/uid") != uid;
    api.until(&pods(&ns), SOON, "web-1 is another pod, ready", is_new).await;
}

async fn the_scale_subresource_works(api: Api, kind: Kind, ns: String) {
    let scale_path = format!("{}/scale", kind.set(&ns, "web"));
    api.create(&kind.sets(&ns), &kind.manifest("web", 1)).await;
    ready(&api, &ns, 1).await;
    api.until(&kind.sets(&ns), SOON, "the status counts it", |s| {
        number(&s["web"], "/status/replicas") == 1
    })
    .await;
    let mut scale = api.read(&scale_path).await;
    assert_eq!(
        (number(&scale, "/spec/replicas"), number(&scale, "/status/replicas")),
        (1, 1)
    );
    assert_eq!(
        text(&scale, "/status/selector"),
        "app=web",
        "an autoscaler finds the pods"
    );
    scale["spec"]["replicas"] = json!(2);
    // Whatever its status says by now, as `kubectl scale` does.
    scale["metadata"]["resourceVersion"] = json!(null);
    api.put(&scale_path, &scale).await;
    ready(&api, &ns, 2).await;
    assert_eq!(number(&api.read(&kind.set(&ns, "web")).await, "/spec/replicas"), 2);
}

async fn collections_are_listed_patched_and_deleted(api: Api, kind: Kind, ns: String) {
    for name in ["red", "blue"] {
        let mut set = kind.manifest(name, 1);
        set["metadata"]["labels"] = json!({"fleet": "test"});
        api.create(&kind.sets(&ns), &set).await;
    }
    ready(&api, &ns, 2).await;
    let query = format!("{}?labelSelector=fleet%3Dtest", kind.sets(&ns));
    assert_eq!(api.list(&query).await.len(), 2);
    let body = json!({"metadata": {"labels": {"patched": "yes"}}, "spec": {"replicas": 2}});
    api.patch(&kind.set(&ns, "red"), &body).await;
    ready(&api, &ns, 3).await;
    api.delete(&query, false).await;
    api.until(&kind.sets(&ns), SOON, "no sets", Objects::is_empty).await;
    api.until(
        &pods(&ns),
        SOON,
        "the garbage collector took their pods",
        Objects::is_empty,
    )
    .await;
}

async fn the_status_subresource_keeps_foreign_conditions(api: Api, kind: Kind, ns: String) {
    let path = kind.set(&ns, "web");
    api.create(&kind.sets(&ns), &kind.manifest("web", 1)).await;
    ready(&api, &ns, 1).await;
    rolled_out(&api, kind, &ns, "web").await;
    let condition =
        json!([{"type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "Set from an e2e test"}]);
    api.patch(&format!("{path}/status"), &json!({"status": {"conditions": condition}}))
        .await;
    scale(&api, kind, &ns, 2).await;
    ready(&api, &ns, 2).await;
    let set = rolled_out(&api, kind, &ns, "web").await;
    let kept = set
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    assert!(
        kept.into_iter().any(|c| c["type"] == "StatusUpdate"),
        "a condition of somebody else stays: {}",
        set["status"]
    );
}

async fn claims_are_made_kept_and_deleted_by_policy(api: Api, kind: Kind, ns: String) {
    let mut set = kind.manifest("web", 2);
    set["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenScaled": "Delete", "whenDeleted": "Retain"});
    api.create(&kind.sets(&ns), &set).await;
    ready(&api, &ns, 2).await;
    let claims = flotilla_e2e::sets::claims(&ns);
    let bound = |c: &Objects| c.len() == 2 && c.values().all(|c| text(c, "/status/phase") == "Bound");
    let made = api.until(&claims, SOON, "two claims, bound", bound).await;
    assert_eq!(text(&made["data-web-0"], "/metadata/labels/app"), "web");

    scale(&api, kind, &ns, 1).await;
    api.until(&claims, SOON, "the claim went with its pod", |c| {
        c.len() == 1 && c.contains_key("data-web-0")
    })
    .await;
    api.delete(&kind.set(&ns, "web"), false).await;
    api.until(&pods(&ns), SOON, "no pods", Objects::is_empty).await;
    api.throughout(&claims, Duration::from_secs(2), "the other claim is retained", |c| {
        c.contains_key("data-web-0")
    })
    .await;
}

async fn unknown_template_fields_reach_revision_and_pod(api: Api, kind: Kind, ns: String) {
    // Of a native set the API server itself drops what it does not know; there a field that our types do not have must do.
    let mut set = kind.manifest("web", 1);
    set["spec"]["template"]["spec"]["containers"][0]["restartPolicyRules"] = Value::Null;
    set["spec"]["template"]["spec"]["hostUsers"] = json!(true);
    set["spec"]["template"]["spec"]["resources"] = json!({"limits": {"cpu": "1"}});
    if kind == Kind::Advanced {
        set["spec"]["template"]["spec"]["fieldOfTheFuture"] = json!({"b": [1, 2], "a": "<&>"});
    }
    api.create(&kind.sets(&ns), &set).await;
    let history = api.until(&revisions(&ns), SOON, "a revision", |r| r.len() == 1).await;
    let template = history
        .values()
        .next()
        .and_then(|r| r.pointer("/data/spec/template/spec"))
        .cloned()
        .unwrap_or_default();
    assert_eq!(template["hostUsers"], json!(true));
    if kind == Kind::Advanced {
        assert_eq!(template["fieldOfTheFuture"], json!({"b": [1, 2], "a": "<&>"}));
    }
    let made = api.until(&pods(&ns), SOON, "a pod", |p| p.len() == 1).await;
    assert_eq!(made["web-0"]["spec"]["hostUsers"], json!(true));
}

/// Sets the number of replicas by the scale subresource.
async fn scale(api: &Api, kind: Kind, ns: &str, replicas: i64) {
    let path = format!("{}/scale", kind.set(ns, "web"));
    let body = json!({"spec": {"replicas": replicas}});
    let sent = api
        .send(Method::PATCH, &path, Some(("application/merge-patch+json", &body)))
        .await;
    sent.unwrap_or_else(|e| panic!("scale {path}: {e}"));
}
