//! Two managers and one lease. Who wrote what is read from the API server's audit log.

use flotilla_e2e::api::{Objects, text};
use flotilla_e2e::sets::{SOON, pods, ready};
use flotilla_e2e::webhooks::Ports;
use flotilla_e2e::{Api, Kind, Manager, clock, suite};
use flotilla_localcluster::Cluster;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const NS: &str = "leaders";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/flotilla-system/leases";

/// Only the holder of the lease writes; a killed holder is followed within 20 s, one that is told to end within 3 s; one that was
/// stopped and comes back writes nothing.
pub(crate) async fn only_the_lease_holder_writes() {
    let cluster = Cluster::disposable("e2e-leaders")
        .nodes(2)
        .without_statefulset_controller()
        .audit_log()
        .start()
        .expect("a cluster");
    let api = suite::enter(cluster.kubeconfig_path(), NS).await;
    suite::install_crds(&api, std::convert::identity).await;
    suite::make_namespace(&api, "flotilla-system").await;
    let start = |name: &'static str| {
        let kubeconfig = cluster
            .user_kubeconfig(name, &["system:masters"])
            .expect("a kubeconfig");
        let ports = Ports::free();
        let address = format!("--http-address=127.0.0.1:{}", ports.http);
        let manager = Manager::start(&kubeconfig, name, &["--observation-seconds=0", &address]);
        (manager, ports)
    };

    let (mut first, _) = start("first");
    holder_is(&api, "first", SOON).await;
    let (mut second, ports) = start("second");
    api.create(&Kind::Advanced.sets(NS), &Kind::Advanced.manifest("web", 3))
        .await;
    ready(&api, NS, 3).await;
    // A standby that could go on.
    ports.ready().await;
    assert_eq!(writers(&cluster), ["first"], "the standby has not written");

    let begun = clock::now();
    first.kill();
    delete_pod(&api, "web-2").await;
    holder_is(&api, "second", Duration::from_secs(20)).await;
    ready(&api, NS, 3).await;
    println!("takeover after SIGKILL: {:.1} s", begun.elapsed().as_secs_f32());
    assert!(begun.elapsed() < Duration::from_secs(20));

    let (mut third, ports) = start("third");
    ports.ready().await;
    let begun = clock::now();
    second.signal("TERM");
    assert!(
        second.ended(SOON).await.success(),
        "SIGTERM ends it well: {}",
        second.log()
    );
    holder_is(&api, "third", Duration::from_secs(5)).await;
    println!("takeover after SIGTERM: {:.1} s", begun.elapsed().as_secs_f32());
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());

    let (mut fourth, ports) = start("fourth");
    ports.ready().await;
    third.signal("STOP");
    delete_pod(&api, "web-2").await;
    holder_is(&api, "fourth", Duration::from_secs(25)).await;
    ready(&api, NS, 3).await;
    let before = writes_of(&cluster, "third").len();
    third.signal("CONT");
    delete_pod(&api, "web-1").await;
    ready(&api, NS, 3).await;
    api.throughout(&pods(NS), Duration::from_secs(5), "all is well", |p| p.len() >= 2)
        .await;
    assert_eq!(
        writes_of(&cluster, "third").len(),
        before,
        "the old leader wrote after it came back"
    );
    assert!(third.is_running() && fourth.is_running());
    third.kill();
    fourth.kill();
}

async fn delete_pod(api: &Api, pod: &str) {
    let uid = text(&api.read(&format!("{}/{pod}", pods(NS))).await, "/metadata/uid").to_owned();
    api.delete(&format!("{}/{pod}", pods(NS)), false).await;
    api.until(&pods(NS), SOON, "the pod is gone", |p| {
        p.get(pod).is_none_or(|p| text(p, "/metadata/uid") != uid)
    })
    .await;
}

async fn holder_is(api: &Api, identity: &str, within: Duration) {
    let held = |leases: &Objects| leases.values().any(|l| text(l, "/spec/holderIdentity") == identity);
    api.until(LEASES, within, &format!("{identity} holds the lease"), held)
        .await;
}

/// Writes of one manager in the audit log, except those on leases and events.
fn writes_of(cluster: &Cluster, user: &str) -> Vec<Value> {
    audit(cluster.audit_log_path())
        .into_iter()
        .filter(|entry| text(entry, "/user/username") == user)
        .collect()
}

/// Names of the managers that have written anything but leases and events.
fn writers(cluster: &Cluster) -> Vec<String> {
    let names = ["first", "second", "third", "fourth"];
    names
        .into_iter()
        .filter(|name| !writes_of(cluster, name).is_empty())
        .map(str::to_owned)
        .collect()
}

fn audit(path: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(path).expect("the audit log is there");
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_write = |e: &Value| ["create", "update", "patch", "delete", "deletecollection"].contains(&text(e, "/verb"));
    let is_exempt = |e: &Value| ["leases", "events"].contains(&text(e, "/objectRef/resource"));
    let complete = entries.filter(|e| e["stage"] == json!("ResponseComplete"));
    complete.filter(|e| is_write(e) && !is_exempt(e)).collect()
}
