//! Real pods to measure with: made by a manager in a cluster of its own, listed, and kept when the cluster is gone.

use crate::noop;
use bytes::Bytes;
use flotilla_e2e::{Api, Kind, Manager, sets, suite};
use flotilla_engine::core::cache::Cache;
use flotilla_engine::io::snapshot::snapshot;
use flotilla_engine::wire::Encoding;
use flotilla_localcluster::Cluster;
use flotilla_model::Resource;
use http::Request;
use serde_json::{Value, json};
use std::time::Duration;

/// The sets among which the pods of the memory and decode benches are spread, and how many each has. Pods of many small sets share
/// less than those of one big set: this is the harder case.
const SETS: i64 = 50;
const PODS_EACH: i64 = 20;
/// Replicas of the one big set.
pub(crate) const BIG: i64 = 5000;
/// Name of the big set, and its namespace.
pub(crate) const BIG_SET: (&str, &str) = ("big", "web");
/// How long the cluster may take to run the pods.
const PATIENCE: Duration = Duration::from_secs(600);

/// The same pods in both encodings, as the API server sent them.
pub(crate) struct Pods {
    pub(crate) protobuf: Bytes,
    pub(crate) json: Bytes,
}

/// Everything that was kept.
pub(crate) struct Corpus {
    /// A thousand pods with claims, in fifty sets.
    pub(crate) many: Pods,
    /// Five thousand pods in one set.
    pub(crate) one: Pods,
    /// The big set's namespace as a manager sees it, with nothing left to do.
    pub(crate) settled: Cache,
    /// What a pass of the built-in controller over the big set takes, in milliseconds.
    pub(crate) builtin_pass_ms: f64,
}

/// Starts a cluster, makes the pods, and ends it.
pub(crate) async fn gather() -> Corpus {
    eprintln!(
        "corpus: a cluster with {} pods in {SETS} sets and {BIG} pods in one …",
        SETS * PODS_EACH
    );
    let mut cluster = Cluster::disposable("bench-corpus")
        .nodes(10)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let api = suite::enter(cluster.kubeconfig_path(), "many").await;
    suite::make_namespace(&api, BIG_SET.0).await;
    suite::install_crds(&api, std::convert::identity).await;
    let mut manager = Manager::alone(cluster.kubeconfig_path());
    for number in 0..SETS {
        api.create(&Kind::Native.sets("many"), &small_set(number)).await;
    }
    let all_ready =
        |sets: &flotilla_e2e::api::Objects| sets.values().all(|set| set["status"]["readyReplicas"] == PODS_EACH);
    api.until(&Kind::Native.sets("many"), PATIENCE, "all small sets ready", all_ready)
        .await;
    let mut big = Kind::Native.manifest(BIG_SET.1, BIG);
    big["spec"]["podManagementPolicy"] = json!("Parallel");
    api.create(&Kind::Native.sets(BIG_SET.0), &big).await;
    sets::rolled_out_within(&api, Kind::Native, BIG_SET.0, BIG_SET.1, PATIENCE).await;
    let settled = settle(&api).await;
    manager.kill();
    let (many, one) = (list(&api, "many").await, list(&api, BIG_SET.0).await);
    eprintln!("corpus: the built-in controller looks at the big set …");
    cluster
        .set_statefulset_controller(true)
        .expect("the controller-manager restarts");
    let builtin_pass_ms = noop::builtin_pass_ms(&cluster, &api).await;
    cluster.down().expect("the cluster ends");
    Corpus {
        many,
        one,
        settled,
        builtin_pass_ms,
    }
}

/// A set with a claim and with a name of usual length: one that does not fit the space that short names do.
fn small_set(number: i64) -> Value {
    let mut set = Kind::Native.manifest(&format!("orders-postgresql-primary-{number}"), PODS_EACH);
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    set["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    set
}

/// The big set's namespace, once the manager has nothing left to do in it.
async fn settle(api: &Api) -> Cache {
    let resources = [
        Resource::NativeSets,
        Resource::Pods,
        Resource::Claims,
        Resource::Revisions,
        Resource::StorageClasses,
    ];
    for _ in 0..60 {
        let (cache, _) = snapshot(api.client().clone(), &resources, Some(BIG_SET.0))
            .await
            .expect("the cluster can be read");
        if noop::is_settled(&cache) {
            return cache;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("the big set did not settle within a minute");
}

async fn list(api: &Api, namespace: &str) -> Pods {
    Pods {
        protobuf: list_as(api, namespace, Encoding::Protobuf).await,
        json: list_as(api, namespace, Encoding::Json).await,
    }
}

async fn list_as(api: &Api, namespace: &str, encoding: Encoding) -> Bytes {
    let request = Request::get(sets::pods(namespace)).header(http::header::ACCEPT, encoding.media_type());
    let request = request.body(kube::client::Body::empty()).expect("the path is valid");
    let response = api.client().send(request).await.expect("pods can be listed");
    assert!(response.status().is_success(), "listing pods: {}", response.status());
    response
        .into_body()
        .collect_bytes()
        .await
        .expect("the list arrives whole")
}
