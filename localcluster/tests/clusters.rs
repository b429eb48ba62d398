//! Clusters as their users meet them: side by side, quickly, complete, and gone afterwards.

use flotilla_localcluster::{Cluster, Component, build, names};
use std::time::{Duration, Instant};

/// How soon a cluster must be ready once it is built.
const READY_WITHIN: Duration = Duration::from_secs(15);

fn kubectl(cluster: &Cluster, arguments: &[&str]) -> String {
    let output = cluster.kubectl(arguments).expect("kubectl runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "kubectl {arguments:?}: {told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What there is of a component's process; another may have got its process id since.
fn left_of(pid: u32) -> String {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_component = ["kube", "etcd", "kwok"].iter().any(|name| state.contains(name));
    if is_component { state } else { String::new() }
}

// How long something took is what this test is about.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn clusters_run_side_by_side_and_leave_nothing_behind() {
    build().expect("the control plane builds");
    let begun = now();
    let first = Cluster::disposable("it-one")
        .nodes(2)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let took = begun.elapsed();
    println!("ready after {took:.1?}");
    assert!(took < READY_WITHIN, "ready after {took:?}");
    let second = Cluster::disposable("it-two")
        .nodes(1)
        .start()
        .expect("another cluster beside it");
    assert_ne!(first.apiserver_port(), second.apiserver_port());
    assert_eq!(kubectl(&first, &["get", "nodes", "-o", "name"]).lines().count(), 2);
    assert_eq!(kubectl(&second, &["get", "nodes", "-o", "name"]).lines().count(), 1);
    assert!(kubectl(&first, &["version"]).contains("Server Version: v1.36"));
    assert!(
        kubectl(
            &first,
            &[
                "get",
                "storageclass",
                "standard",
                "-o",
                "jsonpath={.allowVolumeExpansion}"
            ]
        )
        .contains("true")
    );

    // The built-in controller acts in the second cluster only.
    for cluster in [&first, &second] {
        kubectl(
            cluster,
            &[
                "create",
                "-f",
                concat!(env!("CARGO_MANIFEST_DIR"), "/tests/native.yaml"),
            ],
        );
    }
    kubectl(&second, &["wait", "pod/probe-0", "--for=create", "--timeout=30s"]);
    kubectl(
        &second,
        &["wait", "pod/probe-0", "--for=condition=Ready", "--timeout=30s"],
    );
    kubectl(
        &second,
        &[
            "wait",
            "pvc/data-probe-0",
            "--for=jsonpath={.status.phase}=Bound",
            "--timeout=30s",
        ],
    );
    assert_eq!(
        kubectl(&first, &["get", "pods", "-o", "name"]),
        "",
        "no built-in controller here"
    );

    let name = format!("it-one-{}", std::process::id());
    assert!(names().contains(&name));
    let pids: Vec<u32> = Component::ALL.iter().filter_map(|c| first.pid(*c)).collect();
    assert!(pids.len() >= 5, "{pids:?}");
    let directory = first
        .kubeconfig_path()
        .ancestors()
        .nth(2)
        .expect("the cluster's directory")
        .to_owned();
    assert!(directory.exists());
    first.down().expect("it goes");
    assert!(!directory.exists(), "{} is left", directory.display());
    assert!(!names().contains(&name));
    for pid in pids {
        assert_eq!(left_of(pid), "", "process {pid} is left");
    }
    second.down().expect("it goes too");
}

#[test]
fn a_disposable_cluster_begins_empty_whatever_a_killed_run_has_left() {
    build().expect("the control plane builds");
    // A process that has ended, which is what a killed run is to the next one.
    let mut ended = std::process::Command::new("true").spawn().expect("true runs");
    ended.wait().expect("true ends");
    let mut left = Cluster::builder(&format!("it-left-{}", ended.id()))
        .nodes(1)
        .start()
        .expect("a cluster");
    left.keep();
    kubectl(&left, &["create", "namespace", "left"]);
    let pids: Vec<u32> = Component::ALL.iter().filter_map(|c| left.pid(*c)).collect();
    let fresh = Cluster::disposable("it-left")
        .nodes(1)
        .start()
        .expect("a fresh cluster");
    assert!(!kubectl(&fresh, &["get", "namespaces", "-o", "name"]).contains("namespace/left"));
    assert!(!names().contains(&format!("it-left-{}", ended.id())));
    assert!(
        pids.iter().all(|pid| left_of(*pid).is_empty()),
        "its processes are gone"
    );
    fresh.down().expect("it goes");
}

#[test]
fn what_is_not_there_is_named() {
    let told = Cluster::open("nobody-made-this")
        .err()
        .expect("no such cluster")
        .to_string();
    assert!(
        told.contains("cargo xtask cluster up --name nobody-made-this"),
        "{told}"
    );
    let told = Cluster::builder("Not A Name")
        .start()
        .err()
        .expect("not a name")
        .to_string();
    assert!(told.contains("lower-case"), "{told}");
}
