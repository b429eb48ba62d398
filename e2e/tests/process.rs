//! `flotilla playground` as a process: what it does, and what it says when it cannot. No control plane but its own is needed.

use flotilla_e2e::api::{Objects, number, text};
use flotilla_e2e::manager::binary;
use flotilla_e2e::playground::command;
use flotilla_e2e::{Api, Kind, Playground};
use http::Method;
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

/// How long anything may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);
const PODS: &str = "/api/v1/namespaces/default/pods";

/// An empty directory for one test.
fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if path.exists() {
        fs::remove_dir_all(&path).expect("what an earlier run left can be removed");
    }
    fs::create_dir_all(&path).expect("a directory can be made");
    path
}

/// What there is in a directory.
fn left_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

/// Runs it to its end, which has to come at once.
fn refused(directory: &Path, args: &[&str]) -> (i32, String) {
    let Output { status, stderr, .. } = command(directory).args(args).output().expect("it runs");
    let said = String::from_utf8_lossy(&stderr).trim_end().to_owned();
    (status.code().unwrap_or(-1), said)
}

/// A set whose pods need some time to start.
fn set(replicas: i64, start: &str) -> Value {
    let mut set = Kind::Advanced.manifest("web", replicas);
    set["spec"]["template"]["metadata"]["annotations"] = json!({"sim.flotilla.rs/start": start});
    set
}

async fn until_ready(api: &Api, replicas: i64) {
    let ready = |sets: &Objects| number(&sets["web"], "/status/readyReplicas") == replicas;
    api.until(&Kind::Advanced.sets("default"), SOON, "all pods ready", ready)
        .await;
}

fn has_ready(object: &Value, status: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|c| c["type"] == "Ready" && c["status"] == status)
}

#[test]
fn what_cannot_be_done_is_said_in_one_sentence() {
    let directory = directory("refused");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).expect("a file can be written");
    write("newer.json", r#"{"flotillaPlayground": 99, "server": {}}"#);
    write("other.json", r#"{"apiVersion": "v1"}"#);
    write("broken.json", "not JSON at all");
    write("mine.kubeconfig", "apiVersion: v1\nkind: Config\n");
    // Arguments, what is said, and whether the command line itself is wrong, which is followed by a hint, as for every command.
    let rows: &[(&[&str], &str, bool)] = &[
        (&["--port", &port], "is in use; name another with --port", false),
        (&["--load", "newer.json"], "newer.json: it was saved in form 99", false),
        (
            &["--load", "other.json"],
            "other.json: this is not what `flotilla playground --save` writes",
            false,
        ),
        (&["--load", "broken.json"], "broken.json: expected", false),
        (&["--load", "missing.json"], "missing.json: No such file", false),
        (
            &["--fail", "node-9", "--at", "1s"],
            "there is no node-9: the 3 nodes are node-0 to node-2",
            false,
        ),
        (&["--fail", "node-1"], "each --fail needs an --at of its own", false),
        (
            &["--fail", "web-1", "--at", "1s"],
            "names neither a node (node-2) nor a pod (pod/web-1",
            true,
        ),
        (
            &["--fail", "node-1", "--at", "soon"],
            "must be a time such as 30s or 2m",
            true,
        ),
        (&["--speed", "0"], "must be between 0.01 and 1000", true),
        (
            &["--write-kubeconfig", "mine.kubeconfig"],
            "was not written by a playground",
            false,
        ),
    ];
    for (args, words, is_usage) in rows {
        let (code, said) = refused(&directory, args);
        assert!(said.contains(words), "{args:?}: {said}");
        assert_eq!(code, 1, "{args:?}: {said}");
        assert_eq!(said.lines().count() > 1, *is_usage, "{args:?}: {said}");
    }
    let kept = fs::read_to_string(directory.join("mine.kubeconfig")).expect("the file of somebody else");
    assert!(kept.starts_with("apiVersion"));
}

#[tokio::test]
async fn a_saved_playground_goes_on_with_the_same_pods() {
    let directory = directory("saved");
    let playground = Playground::start(&directory, &["--speed", "10", "--save", "state.json"]);
    let api = Api::connect(playground.kubeconfig()).await;
    api.create(&Kind::Advanced.sets("default"), &set(2, "5s")).await;
    until_ready(&api, 2).await;
    let before = api.read(&format!("{PODS}/web-1")).await;
    assert!(playground.interrupt().success());
    assert_eq!(left_in(&directory), ["state.json"], "the kubeconfig is gone");

    // What was saved can be planned with, while nothing runs.
    let planned = std::process::Command::new(binary())
        .args(["plan", "asts/web", "--replicas", "1", "--from", "state.json"])
        .current_dir(&directory)
        .output()
        .expect("it runs");
    let told = String::from_utf8_lossy(&planned.stdout);
    assert!(told.contains("wave  1  delete web-1"), "{told}");
    assert_eq!(planned.status.code(), Some(2), "a pod would be disrupted");

    let playground = Playground::start(&directory, &["--load", "state.json"]);
    let api = Api::connect(playground.kubeconfig()).await;
    until_ready(&api, 2).await;
    let after = api.read(&format!("{PODS}/web-1")).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    let version = |pod: &Value| text(pod, "/metadata/resourceVersion").parse::<u64>().ok();
    assert!(version(&after) > version(&before), "versions only grow");
    // The manager works on it as before.
    let path = format!("{}/web", Kind::Advanced.sets("default"));
    api.patch(&path, &json!({"spec": {"replicas": 1}})).await;
    api.until(PODS, SOON, "one pod", |pods| pods.len() == 1).await;
    assert!(playground.interrupt().success());
    assert_eq!(left_in(&directory), ["state.json"], "nothing else is left");
}

#[tokio::test]
async fn trouble_comes_when_it_was_asked_for() {
    let directory = directory("trouble");
    let troubles = ["--fail", "node-1", "--at", "12s", "--fail", "pod/web-0", "--at", "13s"];
    let playground = Playground::start(&directory, &[&["--nodes", "2"], &troubles[..]].concat());
    let api = Api::connect(playground.kubeconfig()).await;
    let mut wanted = set(2, "100ms");
    wanted["spec"]["podManagementPolicy"] = json!("Parallel");
    api.create(&Kind::Advanced.sets("default"), &wanted).await;
    let is_lost = |nodes: &Objects| has_ready(&nodes["node-1"], "Unknown");
    api.until("/api/v1/nodes", SOON, "node-1 is lost", is_lost).await;
    let on_lost_node = |pods: &Objects| {
        let mut there = pods
            .values()
            .filter(|pod| pod["spec"]["nodeName"] == "node-1")
            .peekable();
        there.peek().is_some() && there.all(|pod| has_ready(pod, "False"))
    };
    api.until(PODS, SOON, "its pods are not ready", on_lost_node).await;
    let events = "/api/v1/namespaces/default/events";
    let evicted = |events: &Objects| events.values().any(|event| event["reason"] == "Evicted");
    api.until(events, SOON, "web-0 is evicted", evicted).await;
}

#[tokio::test]
async fn what_is_not_supported_is_refused_by_name() {
    let directory = directory("unsupported");
    let playground = Playground::start(&directory, &[]);
    let api = Api::connect(playground.kubeconfig()).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    api.create(PODS, &pod).await;
    for (path, words) in [
        (
            format!("{PODS}/p/log"),
            "does not support logs: its pods are simulated and run no containers",
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments".to_owned(),
            "does not serve deployments.apps",
        ),
    ] {
        match api.send(Method::GET, &path, None).await {
            Err(kube::Error::Api(status)) if status.code == 501 && status.message.contains(words) => {}
            other => panic!("{path}: {other:?}"),
        }
    }
}

#[test]
fn the_demo_tells_its_story_and_leaves_nothing() {
    let directory = directory("demo");
    let demo = command(&directory).arg("--demo").output().expect("it runs");
    let told = String::from_utf8_lossy(&demo.stdout);
    let wrong = String::from_utf8_lossy(&demo.stderr);
    assert!(demo.status.success(), "{told}{wrong}");
    for words in [
        "== three pods",
        "1 pod is replaced",
        "== a new image",
        "== an image that does not exist",
        "== the broken pod is replaced",
    ] {
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(wrong, "");
    assert!(left_in(&directory).is_empty(), "nothing is left");
}

#[tokio::test]
async fn ctrl_c_ends_the_demo_in_the_middle() {
    let directory = directory("interrupted");
    let playground = Playground::start(&directory, &["--demo"]);
    let api = Api::connect(playground.kubeconfig()).await;
    api.until(PODS, SOON, "web-0", |pods| pods.contains_key("web-0")).await;
    assert_eq!(playground.interrupt().code(), Some(1));
    assert!(left_in(&directory).is_empty(), "nothing is left");
}
