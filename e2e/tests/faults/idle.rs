//! A settled cluster: no writes, and next to no processor time.

use flotilla_e2e::api::text;
use flotilla_e2e::sets::{all_ready, pods};
use flotilla_e2e::{Kind, Manager, clock, suite};
use flotilla_localcluster::{Cluster, cpu_seconds_of};
use serde_json::{Value, json};
use std::time::Duration;

const SETS: usize = 50;
const PODS_EACH: usize = 20;
const WATCHED_FOR: Duration = Duration::from_secs(60);
/// Processor time allowed to an idle manager, in thousandths of a core.
const MILLICORES: f64 = 5.0;

/// A thousand pods in fifty sets: for a minute not one write, and less than five thousandths of a core.
pub(crate) async fn a_settled_cluster_gets_no_write() {
    let cluster = Cluster::disposable("e2e-idle")
        .nodes(5)
        .without_statefulset_controller()
        .audit_log()
        .start()
        .expect("a cluster");
    let api = suite::enter(cluster.kubeconfig_path(), "idle").await;
    suite::install_crds(&api, std::convert::identity).await;
    suite::make_namespace(&api, "flotilla-system").await;
    let kubeconfig = cluster
        .user_kubeconfig("idler", &["system:masters"])
        .expect("a kubeconfig");
    let manager = Manager::start(
        &kubeconfig,
        "idler",
        &["--observation-seconds=0", "--http-address=none"],
    );
    for number in 0..SETS {
        let kind = if number % 2 == 0 { Kind::Advanced } else { Kind::Native };
        let mut set = kind.manifest(&format!("web{number}"), i64::try_from(PODS_EACH).expect("small"));
        set["spec"]["podManagementPolicy"] = json!("Parallel");
        api.create(&kind.sets("idle"), &set).await;
    }
    let all = SETS * PODS_EACH;
    api.until(&pods("idle"), Duration::from_secs(240), "all pods ready", |p| {
        all_ready(p, all)
    })
    .await;
    wait_until_silent(&cluster, &api).await;

    let (before, cpu, begun) = (
        writes(&cluster),
        cpu_seconds_of(manager.pid()).expect("it runs"),
        clock::now(),
    );
    api.throughout(&pods("idle"), WATCHED_FOR, "all pods stay", |p| p.len() == all)
        .await;
    let spent = (cpu_seconds_of(manager.pid()).expect("it runs") - cpu) / begun.elapsed().as_secs_f64() * 1000.0;
    let written = &writes(&cluster)[before.len()..];
    println!(
        "{all} pods in {SETS} sets, settled: {} writes in {WATCHED_FOR:?}; {spent:.2} millicores",
        written.len()
    );
    assert!(written.is_empty(), "a settled cluster gets no writes, not {written:?}");
    assert!(spent < MILLICORES, "idle processor time: {spent:.2} millicores");
}

/// Waits until the manager has said its last words. The counts of repeated events come up to half a minute after what they tell of.
async fn wait_until_silent(cluster: &Cluster, api: &flotilla_e2e::Api) {
    let mut last = writes(cluster).len();
    for _ in 0..5 {
        api.throughout(&pods("idle"), Duration::from_secs(35), "pods stay", |_| true)
            .await;
        let now = writes(cluster).len();
        if now == last {
            return;
        }
        last = now;
    }
    panic!("the manager did not fall silent within three minutes");
}

/// The writes of the manager that the audit log holds, the lease's renewals left out: what was done, and to what.
fn writes(cluster: &Cluster) -> Vec<String> {
    let log = std::fs::read_to_string(cluster.audit_log_path()).expect("the audit log is there");
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let own = entries.filter(|e| text(e, "/user/username") == "idler" && text(e, "/objectRef/resource") != "leases");
    own.filter(|e| ["create", "update", "patch", "delete"].contains(&text(e, "/verb")))
        .map(|e| {
            let name = text(&e, "/objectRef/name");
            format!("{} {} {name}", text(&e, "/verb"), text(&e, "/objectRef/resource"))
        })
        .collect()
}
