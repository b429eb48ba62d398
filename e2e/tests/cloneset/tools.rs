//! What people type: kubectl, and `flotilla rollout`.

use crate::Lab;
use flotilla_e2e::Manager;
use flotilla_e2e::api::{Objects, number, revision, text};
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

/// CS-2, as kubectl makes use of it.
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

/// `flotilla rollout` and a verb.
fn rollout(lab: &Lab, ns: &str, verb: &str) -> Output {
    let words: Vec<&str> = std::iter::once("rollout").chain(verb.split(' ')).collect();
    flotilla(&lab.kubeconfig, ns, &words)
}

/// Numbers of the revisions, and how many pods each has.
fn history(lab: &Lab, ns: &str) -> Vec<(i64, i64)> {
    let told = said("history", &rollout(lab, ns, "history cloneset/web -o json"));
    let told: Value = serde_json::from_str(&told).expect("it is JSON");
    let of = |r: &Value| (number(r, "/revision"), number(r, "/pods"));
    told["revisions"]
        .as_array()
        .expect("revisions")
        .iter()
        .map(of)
        .collect()
}

const DONE: &str = "status cloneset/web --timeout-seconds 60";

/// `flotilla rollout` for a CloneSet: told of, taken back to the revision before and to one that is named, and done again.
pub(crate) async fn rollout_undoes_and_tells_history(lab: &Lab) {
    let ns = "tools-rollout";
    let api = lab.enter(ns).await;
    let _manager = Manager::alone(&lab.kubeconfig);
    api.create(&sets(ns), &manifest(2)).await;
    settled(&api, ns, SOON).await;
    let run = |verb: &str| said(verb, &rollout(lab, ns, verb));
    assert!(run("pause cloneset/web").contains("paused"));
    set_image(&api, &web(ns), "app:v2").await;
    let held = rollout(lab, ns, "status cloneset/web --watch=false");
    assert_eq!(held.status.code(), Some(3), "{}", String::from_utf8_lossy(&held.stdout));
    assert!(run("resume cloneset/web").contains("resumed"));
    assert!(run(DONE).contains("complete"));
    set_image(&api, &web(ns), "app:v3").await;
    assert!(run(DONE).contains("complete"));
    assert_eq!(history(lab, ns), [(1, 0), (2, 0), (3, 2)]);
    // A label may hold the hash alone, as pods from OpenKruise with short hashes have it (CS-12.6).
    let (pod, object) = ready(&api, ns, 2).await.into_iter().next().expect("two pods");
    let (_, hash) = revision(&object).rsplit_once('-').expect("set and hash");
    let short = json!({"metadata": {"labels": {"controller-revision-hash": hash}}});
    api.patch(&format!("{}/{pod}", pods(ns)), &short).await;
    assert_eq!(history(lab, ns), [(1, 0), (2, 0), (3, 2)]);
    let table = run("history cloneset/web");
    assert_eq!(table.lines().count(), 4, "a heading and three revisions: {table}");

    // The revision that is used again becomes the newest (CS-12.2).
    for (verb, word, image, after) in [
        (
            "undo cloneset/web",
            "rolled back",
            "app:v2",
            &[(1, 0), (3, 0), (4, 2)][..],
        ),
        (
            "undo cloneset/web --to-revision 1",
            "rolled back",
            "app:v1",
            &[(3, 0), (4, 0), (5, 2)],
        ),
        (
            "restart cloneset/web",
            "restarted",
            "app:v1",
            &[(3, 0), (4, 0), (5, 0), (6, 2)],
        ),
    ] {
        assert!(run(verb).contains(word), "{verb}");
        assert!(run(DONE).contains("complete"), "{verb}");
        let set = settled(&api, ns, SOON).await;
        assert_eq!(text(&set, "/spec/template/spec/containers/0/image"), image, "{verb}");
        assert_eq!(history(lab, ns), after, "{verb}");
    }
    api.delete(&web(ns), false).await;
    api.until(&pods(ns), SOON, "pods go with their set", Objects::is_empty)
        .await;
}
