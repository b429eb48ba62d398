//! The simulated cluster by itself, driven by hand: no controller, only what a cluster does.

use flotilla_model::{ObjectKey, PodRecord, Resource, Timestamp};
use flotilla_sim::Cluster;
use flotilla_sim::nodes::{Ailment, Nodes};
use flotilla_sim::server::{Actor, DeleteOptions, Propagation};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn start() -> Timestamp {
    Timestamp::from_seconds(1_000_000)
}

fn cluster() -> Cluster {
    Cluster::new(7, start())
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

fn manifest(name: &str) -> Value {
    json!({
        "metadata": {"namespace": "ns", "name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "app:v1"}]},
    })
}

fn create(cluster: &mut Cluster, resource: Resource, value: Value) -> String {
    let stored = cluster
        .server
        .create(Actor::User, resource, value)
        .expect("it is admitted");
    cluster.react();
    stored.value()["metadata"]["uid"].as_str().expect("a UID").to_owned()
}

fn pod(cluster: &Cluster, name: &str) -> Option<Arc<PodRecord>> {
    match cluster.server.get(Resource::Pods, &key(name))?.object.clone()? {
        flotilla_engine::wire::Object::Pod(pod) => Some(pod),
        _ => None,
    }
}

fn wait(cluster: &mut Cluster, seconds: u64) {
    let until = cluster.now() + Duration::from_secs(seconds);
    cluster.advance(until);
}

#[test]
fn a_pod_is_bound_becomes_ready_and_ends_when_asked() {
    let mut cluster = cluster();
    create(&mut cluster, Resource::Pods, manifest("web-0"));
    assert!(cluster.next_due().is_some(), "the scheduler will look at it");
    wait(&mut cluster, 10);
    let seen = pod(&cluster, "web-0").expect("it is there");
    assert!(seen.is_running_and_ready() && seen.node.is_some());
    let done = cluster
        .server
        .delete(Actor::User, Resource::Pods, &key("web-0"), &DeleteOptions::default());
    assert!(done.is_ok());
    cluster.react();
    assert!(
        pod(&cluster, "web-0").is_some_and(|pod| pod.is_terminating()),
        "the kubelet has its time"
    );
    wait(&mut cluster, 10);
    assert!(pod(&cluster, "web-0").is_none());
    let verbs: Vec<_> = cluster.take_changes().iter().map(|entry| entry.verb).collect();
    assert_eq!(
        verbs,
        ["create", "bind", "status", "status", "delete", "delete", "remove"]
    );
}

#[test]
fn a_pod_waits_for_its_claim_and_the_claim_for_its_pod() {
    let mut cluster = cluster();
    let mut web = manifest("web-0");
    web["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}]);
    create(&mut cluster, Resource::Pods, web);
    wait(&mut cluster, 10);
    assert_eq!(pod(&cluster, "web-0").expect("it is there").node, None);
    let claim = json!({
        "metadata": {"namespace": "ns", "name": "data-web-0"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    create(&mut cluster, Resource::Claims, claim);
    wait(&mut cluster, 10);
    assert!(pod(&cluster, "web-0").is_some_and(|pod| pod.is_running_and_ready()));
    for (resource, name) in [(Resource::Claims, "data-web-0"), (Resource::Pods, "web-0")] {
        let done = cluster
            .server
            .delete(Actor::User, resource, &key(name), &DeleteOptions::default());
        assert!(done.is_ok());
        cluster.react();
        wait(&mut cluster, 5);
        let is_there = cluster.server.get(Resource::Claims, &key("data-web-0")).is_some();
        assert_eq!(
            is_there,
            resource == Resource::Claims,
            "protected while the pod is there"
        );
    }
}

/// A revision stands for an owner's dependents here; it needs no other controller.
fn dependent_of(uid: &str) -> Value {
    json!({
        "metadata": {"namespace": "ns", "name": "web-1", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": uid, "controller": true},
        ]},
        "data": {}, "revision": 1,
    })
}

#[test]
fn what_an_owner_leaves_is_collected_or_orphaned_as_asked() {
    for (propagation, stays) in [
        (Propagation::Background, false),
        (Propagation::Foreground, false),
        (Propagation::Orphan, true),
    ] {
        let mut cluster = cluster();
        let uid = create(&mut cluster, Resource::Pods, manifest("web-0"));
        create(&mut cluster, Resource::Revisions, dependent_of(&uid));
        let options = DeleteOptions {
            propagation: Some(propagation),
            ..DeleteOptions::default()
        };
        let done = cluster
            .server
            .delete(Actor::User, Resource::Pods, &key("web-0"), &options);
        assert!(done.is_ok());
        cluster.react();
        wait(&mut cluster, 60);
        assert!(pod(&cluster, "web-0").is_none(), "{propagation:?}");
        let left = cluster.server.get(Resource::Revisions, &key("web-1"));
        assert_eq!(left.is_some(), stays, "{propagation:?}");
        let owners = left
            .and_then(|s| s.object.as_ref())
            .map_or(0, |o| o.meta().owners().len());
        assert_eq!(owners, 0, "{propagation:?}");
    }
}

#[test]
fn pods_of_a_lost_node_are_unready_until_it_returns() {
    let mut cluster = cluster();
    create(&mut cluster, Resource::Pods, manifest("web-0"));
    wait(&mut cluster, 10);
    let node = pod(&cluster, "web-0")
        .and_then(|pod| pod.node.clone())
        .expect("it is bound");
    let index: usize = node
        .strip_prefix("node-")
        .and_then(|n| n.parse().ok())
        .expect("a number");
    let until = cluster.now() + Duration::from_secs(30);
    cluster.lose_node(index, until);
    wait(&mut cluster, 10);
    assert!(!pod(&cluster, "web-0").expect("it is there").ready.is_true);
    let done = cluster
        .server
        .delete(Actor::User, Resource::Pods, &key("web-0"), &DeleteOptions::default());
    assert!(done.is_ok());
    cluster.react();
    wait(&mut cluster, 10);
    assert!(pod(&cluster, "web-0").is_some(), "nobody there ends it");
    wait(&mut cluster, 20);
    assert!(pod(&cluster, "web-0").is_none());
}

#[test]
fn ailments_end_and_full_nodes_make_pods_wait() {
    let mut cluster = cluster();
    cluster.nodes = Nodes::new(1, 1);
    cluster.nodes.broken_images.push("bad:".to_owned());
    create(&mut cluster, Resource::Pods, manifest("web-0"));
    wait(&mut cluster, 10);
    create(&mut cluster, Resource::Pods, manifest("web-1"));
    wait(&mut cluster, 10);
    assert_eq!(
        pod(&cluster, "web-1").expect("it is there").node,
        None,
        "the node has room for one"
    );
    let until = cluster.now() + Duration::from_secs(20);
    cluster.ail(&key("web-0"), Ailment::CrashLoop, until);
    wait(&mut cluster, 5);
    assert!(!pod(&cluster, "web-0").expect("it is there").ready.is_true);
    wait(&mut cluster, 30);
    assert!(pod(&cluster, "web-0").expect("it is there").ready.is_true);
    cluster.ail(&key("web-0"), Ailment::Evicted, until);
    wait(&mut cluster, 5);
    assert!(pod(&cluster, "web-0").expect("it is there").is_terminal());
}

#[test]
fn the_same_seed_gives_the_same_cluster() {
    let run = |seed| {
        let mut cluster = Cluster::new(seed, start());
        for ordinal in 0..5 {
            create(&mut cluster, Resource::Pods, manifest(&format!("web-{ordinal}")));
        }
        wait(&mut cluster, 20);
        let changes = cluster.take_changes();
        changes.iter().map(|entry| format!("{entry:?}")).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
