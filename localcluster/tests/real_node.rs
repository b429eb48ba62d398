//! The real node as its users meet it: it runs containers, two stand side by side, and nothing of them is left.

use flotilla_localcluster::{Cluster, Component, real_node_unavailable};
use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether this machine cannot run a real node; says so.
fn is_skipped(test: &str) -> bool {
    let reason = real_node_unavailable();
    if let Some(reason) = &reason {
        println!("SKIPPED {test}: {reason}");
    }
    reason.is_some()
}

fn kubectl(cluster: &Cluster, arguments: &[&str]) -> String {
    let output = cluster.kubectl(arguments).expect("kubectl runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "kubectl {arguments:?}: {told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a node could leave on a machine: interfaces, mounts, cgroups, sockets, links, processes, rules and settings.
fn traces() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut names = |directory: &str, prefixes: &[&str]| {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if prefixes.is_empty() || prefixes.iter().any(|prefix| name.starts_with(prefix)) {
                found.insert(format!("{directory}/{name}"));
            }
        }
    };
    names("/sys/class/net", &["flt-", "veth"]);
    names("/sys/fs/cgroup", &["flotilla-", "kubepods"]);
    names("/sys/fs/cgroup/memory", &["flotilla-", "kubepods"]);
    names("/run/containerd/s", &[]);
    names("/var/run/netns", &[]);
    names("/var/log/containers", &[]);
    names("/var/log/pods", &[]);
    names("/run", &["containerd"]);
    names("/var/lib", &["kubelet"]);
    names("/var/log", &["containers"]);
    let mounts = fs::read_to_string("/proc/mounts").expect("mounts");
    found.extend(
        mounts
            .lines()
            .filter(|line| line.contains("/clusters/it-real"))
            .map(str::to_owned),
    );
    for entry in fs::read_dir("/proc").expect("processes").flatten() {
        let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if line.contains("/clusters/it-real") {
            found.insert(line.replace('\0', " "));
        }
    }
    for setting in [
        "vm/overcommit_memory",
        "kernel/panic",
        "kernel/panic_on_oops",
        "net/ipv4/ip_forward",
    ] {
        let value = fs::read_to_string(format!("/proc/sys/{setting}")).expect("a setting");
        found.insert(format!("{setting} = {}", value.trim()));
    }
    found
}

fn start(builder: flotilla_localcluster::Builder) -> Cluster {
    builder
        .nodes(0)
        .real_node()
        .start()
        .expect("a cluster with a real node")
}

/// Runs a pod and asks it for its environment.
fn run(cluster: &Cluster, version: &str) {
    kubectl(
        cluster,
        &["run", "web", &format!("--image=app:{version}"), "--env=COLOUR=green"],
    );
    kubectl(cluster, &["wait", "pod/web", "--for=condition=Ready", "--timeout=60s"]);
    let environment = kubectl(cluster, &["exec", "web", "--", "/app", "env"]);
    assert!(environment.contains("COLOUR=green"), "{environment}");
    assert!(kubectl(cluster, &["logs", "web"]).contains(&format!("serving {version}")));
}

/// What is left on a machine is looked for on all of it, so one test at a time makes nodes.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_real_node_runs_containers_beside_another_and_leaves_nothing_behind() {
    if is_skipped("a_real_node_runs_containers_beside_another_and_leaves_nothing_behind") {
        return;
    }
    let _alone = alone();
    let before = traces();
    let first = start(Cluster::disposable("it-real-one"));
    let second = start(Cluster::disposable("it-real-two"));
    let during = traces();
    assert!(
        before.iter().filter(|t| t.contains(" = ")).all(|t| during.contains(t)),
        "settings changed: {during:?}"
    );
    run(&first, "v1");
    run(&second, "v2");
    for component in [Component::Registry, Component::Containerd, Component::Kubelet] {
        let line = format!("{:<24} running", component.name());
        assert!(first.status().iter().any(|told| told.starts_with(&line)), "{line}");
    }
    first.down().expect("it goes");
    assert!(
        kubectl(&second, &["exec", "web", "--", "/app", "env"]).contains("COLOUR"),
        "the other one stays"
    );
    second.down().expect("it goes too");
    assert_eq!(traces(), before);
}

#[test]
fn what_a_killed_run_has_left_of_a_real_node_is_taken_down() {
    if is_skipped("what_a_killed_run_has_left_of_a_real_node_is_taken_down") {
        return;
    }
    let _alone = alone();
    // A process that has ended, which is what a killed run is to the next one.
    let mut ended = std::process::Command::new("true").spawn().expect("true runs");
    ended.wait().expect("true ends");
    let mut left = start(Cluster::builder(&format!("it-real-left-{}", ended.id())));
    left.keep();
    run(&left, "v1");
    // The worst of it: nobody is left who could be asked what there is.
    for component in [Component::Kubelet, Component::Containerd, Component::Etcd] {
        left.kill(component).expect("it can be killed");
    }
    let fresh = start(Cluster::disposable("it-real-left"));
    let ours = format!("/it-real-left-{}/", ended.id());
    let traces = traces();
    assert!(!traces.iter().any(|trace| trace.contains(&ours)), "{traces:?}");
    fresh.down().expect("it goes");
}
