//! What people type: kubectl, and `flotilla rollout`.

use crate::Lab;
use flotilla_e2e::Manager;
use flotilla_e2e::api::{Objects, text};
use flotilla_e2e::clones::{manifest, sets, settled, web};
use flotilla_e2e::sets::{SOON, pods, ready, set_image};
use flotilla_e2e::why::flotilla;
use serde_json::{Value, json};
use std::process::{Command, Output};

/// What a command said, which has to have succeeded.
fn said(line: &str, output: &Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{line}: {out}{err}");
    out.into_owned()
}

/// Runs kubectl in a namespace.
fn kubectl(lab: &Lab, ns: &str, line: &str) -> String {
    let mut command = Command::new(&*lab.kubectl);
    command.arg("--kubeconfig").arg(&*lab.kubeconfig);
    // What it remembers of a server is filed by address and port, where another cluster may have been.
    let cache = lab.kubeconfig.with_file_name("discovery");
    command.arg("--cache-dir").arg(cache).args(["--namespace", ns]);
    said(line, &command.args(line.split(' ')).output().expect("kubectl runs"))
}

/// Words of each line of a table.
fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// Rule 2, as kubectl makes use of it.
pub(crate) async fn kubectl_scales_lists_and_waits(lab: &Lab) {
    let ns = "tools-kubectl";
    let api = lab.enter(ns).await;
    let _manager = Manager::alone(&lab.kubeconfig);
    let mut set = manifest(2);
    set["spec"]["progressDeadlineSeconds"] = json!(600);
    api.create(&sets(ns), &set).await;
    let run = |line: &str| kubectl(lab, ns, line);
    let told = run("wait --for=condition=Progressing cloneset/web --timeout=60s");
    assert_eq!(told, "cloneset.apps.kruise.io/web condition met\n");
    let told = run("scale clone web --replicas=4 --current-replicas=2");
    assert_eq!(told, "cloneset.apps.kruise.io/web scaled\n");
    for field in ["readyReplicas", "updatedAvailableReplicas"] {
        run(&format!(
            "wait --for=jsonpath={{.status.{field}}}=4 clonesets/web --timeout=60s"
        ));
    }
    let table = run("get clonesets");
    let lines = rows(&table);
    let heading = [
        "NAME",
        "DESIRED",
        "UPDATED",
        "UPDATED_READY",
        "UPDATED_AVAILABLE",
        "READY",
        "TOTAL",
        "AGE",
    ];
    assert_eq!(lines[0], heading, "{table}");
    assert_eq!(lines[1][..7], ["web", "4", "4", "4", "4", "4", "4"], "{table}");
    let wide = run("get clone web -o wide");
    let lines = rows(&wide);
    assert_eq!(lines[0][8..], ["CONTAINERS", "IMAGES", "SELECTOR"], "{wide}");
    assert_eq!(lines[1][8..], ["main", "app:v1", "app=web"], "{wide}");
    assert_eq!(run("get cloneset -o name"), "cloneset.apps.kruise.io/web\n");
    // A pod that kubectl deletes is made again; the set goes with all its pods when kubectl waits for that.
    let first = ready(&api, ns, 4).await.into_keys().next().expect("four pods");
    run(&format!("delete pod {first}"));
    let again = ready(&api, ns, 4).await;
    assert!(!again.contains_key(&first));
    run("delete cloneset web --cascade=foreground --timeout=60s");
    assert!(api.list(&pods(ns)).await.is_empty());
}

/// `flotilla rollout` for a CloneSet: held, let go, told of, taken back to the one before and to one that is named.
pub(crate) async fn rollout_undoes_and_tells_history(lab: &Lab) {
    let ns = "tools-rollout";
    let api = lab.enter(ns).await;
    let _manager = Manager::alone(&lab.kubeconfig);
    api.create(&sets(ns), &manifest(2)).await;
    settled(&api, ns, SOON).await;
    let run = |verb: &str| {
        let words: Vec<&str> = std::iter::once("rollout").chain(verb.split(' ')).collect();
        said(verb, &flotilla(&lab.kubeconfig, ns, &words))
    };
    assert!(run("pause cloneset/web").contains("paused"));
    set_image(&api, &web(ns), "app:v2").await;
    let held = flotilla(
        &lab.kubeconfig,
        ns,
        &["rollout", "status", "cloneset/web", "--watch=false"],
    );
    assert_eq!(held.status.code(), Some(3), "{}", String::from_utf8_lossy(&held.stdout));
    assert!(run("resume cloneset/web").contains("resumed"));
    let done = "status cloneset/web --timeout-seconds 60";
    assert!(run(done).contains("complete"));
    set_image(&api, &web(ns), "app:v3").await;
    assert!(run(done).contains("complete"));

    let history = |ns: &str| -> Vec<Value> {
        let json = flotilla(
            &lab.kubeconfig,
            ns,
            &["rollout", "history", "cloneset/web", "-o", "json"],
        );
        let told: Value = serde_json::from_str(&said("history", &json)).expect("it is JSON");
        told["revisions"].as_array().expect("revisions").clone()
    };
    let counts = |revisions: &[Value]| -> Vec<(i64, i64)> {
        let of = |r: &Value| {
            (
                r["revision"].as_i64().expect("a number"),
                r["pods"].as_i64().expect("a count"),
            )
        };
        revisions.iter().map(of).collect()
    };
    assert_eq!(counts(&history(ns)), [(1, 0), (2, 0), (3, 2)]);
    let text_form = run("history cloneset/web");
    assert_eq!(
        text_form.lines().count(),
        4,
        "a heading and three revisions: {text_form}"
    );

    let image = || async { text(&settled(&api, ns, SOON).await, "/spec/template/spec/containers/0/image").to_owned() };
    assert!(run("undo cloneset/web").contains("rolled back"));
    assert!(run(done).contains("complete"));
    assert_eq!(image().await, "app:v2");
    // The revision that is used again becomes the newest (rule 12.2).
    assert_eq!(counts(&history(ns)), [(1, 0), (3, 0), (4, 2)]);
    assert!(run("undo cloneset/web --to-revision 1").contains("rolled back"));
    assert!(run(done).contains("complete"));
    assert_eq!(image().await, "app:v1");
    assert_eq!(counts(&history(ns)), [(3, 0), (4, 0), (5, 2)]);
    assert!(run("restart cloneset/web").contains("restarted"));
    assert!(run(done).contains("complete"));
    assert_eq!(counts(&history(ns)), [(3, 0), (4, 0), (5, 0), (6, 2)]);
    api.delete(&web(ns), false).await;
    api.until(&pods(ns), SOON, "pods go with their set", Objects::is_empty)
        .await;
}
