//! `flotilla plan` against a cluster of which not everything can be read: it says what it did not look at, and takes nothing of it for missing.

mod support;

use serde_json::{Value, json};
use std::path::Path;
use support::{Limits, Playground, flotilla, within};

/// A user who may read the sets of a namespace with what is theirs, and nothing of the cluster.
const OF_ONE_NAMESPACE: Limits = &[
    ("GET", "/api/v1/nodes", 403, "nodes is forbidden"),
    ("GET", "/api/v1/namespaces?", 403, "namespaces is forbidden"),
    (
        "GET",
        "/api/v1/persistentvolumes",
        403,
        "persistentvolumes is forbidden",
    ),
    (
        "GET",
        "/apis/storage.k8s.io/v1/storageclasses",
        403,
        "storageclasses is forbidden",
    ),
    (
        "GET",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        403,
        "priorityclasses is forbidden",
    ),
    (
        "GET",
        "/api/v1/namespaces/default/resourcequotas",
        403,
        "resourcequotas is forbidden",
    ),
    (
        "GET",
        "/api/v1/namespaces/default/limitranges",
        403,
        "limitranges is forbidden",
    ),
    (
        "GET",
        "/api/v1/namespaces/default/serviceaccounts",
        403,
        "serviceaccounts is forbidden",
    ),
];

/// A user who may read nothing.
const NOTHING: Limits = &[("GET", "/api", 403, "it is forbidden")];

/// Volumes are what a large cluster has most of.
const VOLUMES_FAIL: Limits = &[("GET", "/api/v1/persistentvolumes", 500, "etcdserver: request timed out")];

fn set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {
                "priorityClassName": "high", "serviceAccountName": "robot",
                "containers": [{"name": "main", "image": "app:1"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast",
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]},
    })
}

/// The exit code of `plan -f` with this manifest, and what it said.
fn plan(kubeconfig: &Path, manifest: &Value) -> (Option<i32>, String) {
    let file = kubeconfig.with_extension("app.json");
    std::fs::write(&file, manifest.to_string()).expect("a file of our own");
    let mut command = flotilla();
    command
        .args(["plan", "-f"])
        .arg(&file)
        .arg("--kubeconfig")
        .arg(kubeconfig);
    let output = command.output().expect("the binary runs");
    let _ = std::fs::remove_file(&file);
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code(), text.concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_read_is_said_and_is_not_missing() {
    let lab = Playground::begin("rights").await;
    let kubeconfig = within(&lab, OF_ONE_NAMESPACE).await;
    let (code, said) = plan(&kubeconfig, &set());
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "2 pods are created",
        "nodes are not looked at",
        "quotas are not looked at",
        "limit ranges are not looked at",
        "service accounts are not looked at",
        "priority classes are not looked at",
        "namespace default is taken to be there",
    ] {
        assert!(said.contains(words), "{words:?}: {said}");
    }
    assert!(
        !said.contains("was not found") && !said.contains("is missing"),
        "{said}"
    );
    // Whoever may read it all is told what is missing.
    let (code, said) = plan(&lab.kubeconfig, &set());
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("high was not found") && said.contains("robot was not found"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_file_asks_for_in_vain_is_told_with_its_line() {
    let lab = Playground::begin("places").await;
    let kubeconfig = within(&lab, NOTHING).await;
    let (code, said) = plan(&kubeconfig, &set());
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("kubectl auth can-i list") && said.contains("app.json, line 1"),
        "{said}"
    );
    let mut elsewhere = set();
    elsewhere["metadata"]["namespace"] = json!("nowhere");
    let (code, said) = plan(&lab.kubeconfig, &elsewhere);
    assert_eq!(code, Some(1), "{said}");
    let words = "namespace nowhere does not exist; it is named in ";
    assert!(said.contains(words) && said.contains("app.json, line 1"), "{said}");
}

/// Nothing of what else it knows is lost for that.
#[tokio::test(flavor = "multi_thread")]
async fn volumes_that_cannot_be_listed_do_not_end_the_plan() {
    let lab = Playground::begin("volumes").await;
    let kubeconfig = within(&lab, VOLUMES_FAIL).await;
    let mut by_hand = set();
    by_hand["spec"]["template"]["spec"] = json!({"containers": [{"name": "main", "image": "app:1"}]});
    by_hand["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] = json!("");
    let (_, said) = plan(&kubeconfig, &by_hand);
    assert!(said.contains("2 pods are created"), "{said}");
    let words = "take volumes which somebody provides, and these could not be looked up";
    assert!(said.contains(words), "{said}");
}
