//! `flotilla why` as a user types it, against a playground: the root first, each cause once, advice that helps when pasted.

mod support;

use flotilla_model::Timestamp;
use http::{Method, Request};
use serde_json::{Value, json};
use std::time::Duration;
use support::{Limits, Playground, flotilla, within};

const SETS: &str = "/apis/apps.kruise.io/v1beta1/namespaces/default/statefulsets";
const CLONES: &str = "/apis/apps.kruise.io/v1beta1/namespaces/default/clonesets";
const NATIVE: &str = "/apis/apps/v1/namespaces/default/statefulsets";

impl Playground {
    async fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Value {
        let request = Request::builder().method(method).uri(path);
        let request = request
            .header("Content-Type", content_type)
            .body(body.to_string().into_bytes());
        let answer = self.client.request(request.expect("a request")).await;
        answer.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Waits until `why` says this of an Advanced StatefulSet; each look is a process of its own, which takes its time.
    fn until(&self, set: &str, words: &str) -> String {
        let mut said = String::new();
        for _ in 0..200 {
            said = self.run(&["why", set]);
            if said.contains(words) {
                return said;
            }
        }
        panic!("{words:?} is never said; at last:\n{said}");
    }

    fn run(&self, words: &[&str]) -> String {
        self.run_to_end(words).1
    }

    /// The exit code of a command, and what it said.
    fn run_to_end(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = flotilla();
        let output = command.args(words).env("KUBECONFIG", &self.kubeconfig).output();
        let output = output.expect("the binary runs");
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.code(), text.concat())
    }

    async fn patch(&self, path: &str, body: &Value) {
        self.send(Method::PATCH, path, "application/merge-patch+json", body)
            .await;
    }
}

/// What a user of one namespace may not do.
const NOT_ALLOWED: Limits = &[
    (
        "GET",
        "/apis/coordination.k8s.io/",
        403,
        "it is forbidden: User \"jane\" cannot get resource \"leases\" in API group \"coordination.k8s.io\"",
    ),
    (
        "GET",
        "/apis/storage.k8s.io/v1/storageclasses",
        403,
        "it is forbidden: User \"jane\" cannot list resource \"storageclasses\" in API group \"storage.k8s.io\"",
    ),
    (
        "GET",
        "/api/v1/nodes",
        403,
        "it is forbidden: User \"jane\" cannot list resource \"nodes\" in API group \"\"",
    ),
    (
        "GET",
        "/api/v1/namespaces/default?",
        403,
        "it is forbidden: User \"jane\" cannot get resource \"namespaces\" in API group \"\"",
    ),
    (
        "POST",
        "/api",
        403,
        "it is forbidden: User \"jane\" cannot create resource \"pods\" in API group \"\"",
    ),
];

fn set(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {"replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}},
    })
}

fn clone_set(name: &str, replicas: i32) -> Value {
    let mut clones = set(name, replicas);
    clones["kind"] = json!("CloneSet");
    clones["spec"]
        .as_object_mut()
        .expect("a specification")
        .remove("serviceName");
    clones
}

#[tokio::test]
async fn after_a_rollback_the_advice_is_to_delete_the_pod_that_holds_it_up() {
    let lab = Playground::begin("undo").await;
    lab.send(Method::POST, SETS, "application/json", &set("web", 2)).await;
    lab.until("asts/web", "2 wanted, 2 ready, 2 updated\nnothing is waited for");
    let broken = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "app:broken"}]);
    lab.send(
        Method::PATCH,
        &format!("{SETS}/web"),
        "application/json-patch+json",
        &broken,
    )
    .await;
    let said = lab.until("asts/web", "cannot start");
    let undo = "flotilla rollout undo statefulset.apps.kruise.io/web -n default";
    assert!(said.contains(undo), "{said}");
    let words: Vec<&str> = undo.split(' ').skip(1).collect();
    assert!(lab.run(&words).contains("rolled back"));
    let said = lab.until("asts/web", "kubectl delete pod web-1 -n default");
    assert!(!said.contains("undo"), "{said}");
    let pod = "/api/v1/namespaces/default/pods/web-1";
    lab.send(Method::DELETE, pod, "application/json", &json!({})).await;
    lab.until("asts/web", "2 wanted, 2 ready, 2 updated\nnothing is waited for");
}

#[tokio::test]
async fn a_pod_that_somebody_gave_a_broken_image_is_to_be_deleted() {
    let lab = Playground::begin("patched").await;
    lab.send(Method::POST, SETS, "application/json", &set("web", 1)).await;
    lab.until("asts/web", "1 wanted, 1 ready, 1 updated\nnothing is waited for");
    let pod = "/api/v1/namespaces/default/pods/web-0";
    let broken = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "app:broken"}]);
    lab.send(Method::PATCH, pod, "application/json-patch+json", &broken)
        .await;
    let said = lab.until("asts/web", "app:broken");
    assert!(
        said.contains("you can: delete it: ") && said.contains("kubectl delete pod web-0 -n default"),
        "{said}"
    );
    assert!(!said.contains("correct the image"), "{said}");
    lab.send(Method::DELETE, pod, "application/json", &json!({})).await;
    lab.until("asts/web", "1 wanted, 1 ready, 1 updated\nnothing is waited for");
}

/// The revision before is broken, too, and whoever goes back to it is sent back here, for ever.
#[tokio::test]
async fn after_two_broken_images_the_way_back_is_to_the_revision_that_serves() {
    let lab = Playground::begin("twice").await;
    lab.send(Method::POST, SETS, "application/json", &set("web", 2)).await;
    lab.until("asts/web", "2 wanted, 2 ready, 2 updated\nnothing is waited for");
    let path = format!("{SETS}/web");
    for image in ["app:broken", "other:broken"] {
        let broken = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}]);
        lab.send(Method::PATCH, &path, "application/json-patch+json", &broken)
            .await;
        if image == "app:broken" {
            lab.until("asts/web", "cannot start");
            continue;
        }
        let pod = "/api/v1/namespaces/default/pods/web-1";
        lab.until("asts/web", "kubectl delete pod web-1 -n default");
        lab.send(Method::DELETE, pod, "application/json", &json!({})).await;
    }
    let undo = "flotilla rollout undo statefulset.apps.kruise.io/web -n default --to-revision 1";
    let said = lab.until("asts/web", undo);
    assert!(said.contains("other:broken"), "{said}");
    let words: Vec<&str> = undo.split(' ').skip(1).collect();
    assert!(lab.run(&words).contains("rolled back to revision 1 "));
    let pod = "/api/v1/namespaces/default/pods/web-1";
    lab.until("asts/web", "kubectl delete pod web-1 -n default");
    lab.send(Method::DELETE, pod, "application/json", &json!({})).await;
    lab.until("asts/web", "2 wanted, 2 ready, 2 updated\nnothing is waited for");
}

#[tokio::test]
async fn a_claim_without_its_class_is_the_one_cause() {
    let lab = Playground::begin("class").await;
    let mut needy = set("db", 2);
    needy["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec":
        {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    lab.send(Method::POST, SETS, "application/json", &needy).await;
    let said = lab.until(
        "asts/db",
        "claim data-db-0: is not bound: storage class fast does not exist",
    );
    assert!(said.contains("holds up: db-0, db-1"), "{said}");
    assert_eq!(said.matches("rule:").count(), 1, "{said}");
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "disk"});
    lab.send(
        Method::POST,
        "/apis/storage.k8s.io/v1/storageclasses",
        "application/json",
        &class,
    )
    .await;
    lab.until("asts/db", "2 wanted, 2 ready, 2 updated\nnothing is waited for");
}

#[tokio::test]
async fn a_definition_that_is_gone_is_told() {
    let lab = Playground::begin("definition").await;
    let said = lab.run(&["why", "sts/web"]);
    assert!(
        said.contains("statefulset/web was not found in namespace default; name another"),
        "{said}"
    );
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/statefulsets.apps.kruise.io";
    lab.send(Method::DELETE, definition, "application/json", &json!({}))
        .await;
    for target in ["asts/web", "sts/web"] {
        let said = lab.run(&["why", target]);
        assert!(
            said.contains("the cluster has no definition statefulsets.apps.kruise.io"),
            "{said}"
        );
        assert!(said.contains("flotilla install --only-crds --yes"), "{said}");
    }
    let said = lab.run(&["why", "cloneset/web"]);
    assert!(!said.contains("definition"), "{said}");
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clonesets.apps.kruise.io";
    lab.send(Method::DELETE, definition, "application/json", &json!({}))
        .await;
    let said = lab.run(&["why", "cloneset/web"]);
    assert!(
        said.contains("the cluster has no definition clonesets.apps.kruise.io")
            && said.contains("flotilla install --only-crds --yes"),
        "{said}"
    );
}

/// Nothing is done for such a set, and somebody has to say so.
#[tokio::test]
async fn a_set_that_is_too_heavy_to_be_read_is_no_idle_one() {
    let lab = Playground::begin("heavy").await;
    let variables: Vec<Value> = (0..8000)
        .map(|n| json!({"name": format!("N{n}"), "value": "1"}))
        .collect();
    for (collection, kind, name) in [
        (SETS, "asts", "heavy"),
        (CLONES, "cloneset", "clones"),
        (NATIVE, "sts.apps", "native"),
    ] {
        let mut heavy = set(name, 2);
        heavy["spec"]["template"]["spec"]["containers"][0]["env"] = json!(variables);
        match kind {
            "cloneset" => {
                heavy["kind"] = json!("CloneSet");
                heavy["spec"].as_object_mut().unwrap().remove("serviceName");
            }
            "sts.apps" => heavy["apiVersion"] = json!("apps/v1"),
            _ => {}
        }
        lab.send(Method::POST, collection, "application/json", &heavy).await;
        let said = lab.run(&["why", &format!("{kind}/{name}")]);
        assert!(
            said.contains("spec.template holds") && said.contains("must be smaller"),
            "{said}"
        );
        assert!(!said.contains("nothing is waited for"), "{said}");
    }
}

/// What was left out may be what is waited for.
#[tokio::test]
async fn what_is_too_heavy_to_be_looked_at_is_named() {
    let lab = Playground::begin("unread").await;
    lab.send(Method::POST, SETS, "application/json", &set("web", 1)).await;
    lab.until("asts/web", "1 wanted, 1 ready, 1 updated\nnothing is waited for");
    let variables: Vec<Value> = (0..18_000)
        .map(|n| json!({"name": format!("N{n}"), "value": "1"}))
        .collect();
    let huge = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "huge", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "app:1", "env": variables}]},
    });
    let pods = "/api/v1/namespaces/default/pods";
    lab.send(Method::POST, pods, "application/json", &huge).await;
    let said = lab.run(&["why", "asts/web"]);
    assert!(
        said.contains("note: ") && said.contains("huge") && said.contains("it would take too much memory"),
        "{said}"
    );
}

/// They are as good as absent, and whoever wrote them counts on them.
#[tokio::test]
async fn sts_3_4_a_switch_that_cannot_be_read_is_told_also_where_nothing_else_is() {
    let lab = Playground::begin("switches").await;
    let mut advanced = set("web", 1);
    advanced["metadata"]["annotations"] = json!({"flotilla.rs/unblock": "brokn", "flotilla.rs/scale-down": "zzz"});
    lab.send(Method::POST, SETS, "application/json", &advanced).await;
    let mut native = set("db", 1);
    native["apiVersion"] = json!("apps/v1");
    native["metadata"]["annotations"] = json!({"flotilla.rs/ordered-max-unavailable": "many"});
    lab.send(Method::POST, NATIVE, "application/json", &native).await;
    for (target, switches) in [
        ("asts/web", &[("unblock", "brokn"), ("scale-down", "zzz")][..]),
        ("sts.apps/db", &[("ordered-max-unavailable", "many")]),
    ] {
        lab.until(target, "1 wanted, 1 ready, 1 updated");
        let (code, said) = lab.run_to_end(&["why", target]);
        for (key, value) in switches {
            let line = format!("metadata.annotations[flotilla.rs/{key}] holds \"{value}\", and must be ");
            assert!(said.contains(&line), "{said}");
        }
        assert!(
            said.contains("you can: correct metadata.annotations[flotilla.rs/"),
            "{said}"
        );
        assert!(!said.contains("nothing is waited for"), "{said}");
        assert_eq!(code, Some(3), "{said}");
    }
}

#[tokio::test]
async fn a_set_that_is_being_deleted_is_no_idle_one() {
    let lab = Playground::begin("deleted").await;
    let mut held = set("web", 1);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    lab.send(Method::POST, SETS, "application/json", &held).await;
    lab.until("asts/web", "1 wanted, 1 ready, 1 updated\nnothing is waited for");
    let path = format!("{SETS}/web");
    lab.send(Method::DELETE, &path, "application/json", &json!({})).await;
    let (code, said) = lab.run_to_end(&["why", "asts/web"]);
    assert!(
        said.contains("web: is being deleted, and held by finalizer example.com/hold (for "),
        "{said}"
    );
    assert!(
        said.contains("kubectl edit statefulset.apps.kruise.io/web -n default"),
        "{said}"
    );
    assert_eq!(code, Some(3), "{said}");
}

#[tokio::test]
async fn a_set_in_a_namespace_that_is_being_deleted_is_no_idle_one() {
    let lab = Playground::begin("namespace").await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    lab.send(Method::POST, "/api/v1/namespaces", "application/json", &namespace)
        .await;
    let mut held = set("web", 0);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let sets = SETS.replace("default", "shop");
    lab.send(Method::POST, &sets, "application/json", &held).await;
    lab.send(
        Method::DELETE,
        "/api/v1/namespaces/shop",
        "application/json",
        &json!({}),
    )
    .await;
    let said = lab.run(&["why", "asts/web", "-n", "shop"]);
    assert!(said.contains("namespace shop: is being deleted"), "{said}");
    assert!(!said.contains("nothing is waited for"), "{said}");
}

/// The pods are gone by then, or about to go.
#[tokio::test]
async fn sts_8_5_a_set_whose_pods_end_at_once_says_so_with_a_command_that_finds_something() {
    let lab = Playground::begin("starts").await;
    let mut clones = clone_set("clones", 1);
    clones["spec"]["template"]["metadata"]["annotations"] = json!({"sim.flotilla.rs/fail": "OutOfcpu"});
    lab.send(Method::POST, CLONES, "application/json", &clones).await;
    let said = lab.until("clone/clones", "right after their start");
    assert!(said.contains("kubectl get events -n default"), "{said}");
    assert!(!said.contains("nothing is waited for"), "{said}");
}

#[tokio::test]
async fn a_pod_that_finalizers_hold_is_told_with_them() {
    let lab = Playground::begin("finalizer").await;
    let clones = clone_set("clones", 0);
    lab.send(Method::POST, CLONES, "application/json", &clones).await;
    lab.send(Method::POST, SETS, "application/json", &set("web", 1)).await;
    lab.until("asts/web", "1 wanted, 1 ready, 1 updated\nnothing is waited for");
    let pod = "/api/v1/namespaces/default/pods/web-0";
    lab.patch(pod, &json!({"metadata": {"finalizers": ["example.com/keep"]}}))
        .await;
    lab.send(Method::DELETE, pod, "application/json", &json!({})).await;
    let said = lab.until("asts/web", "is terminating on node ");
    assert!(said.contains(", and held by finalizer example.com/keep"), "{said}");
    assert!(said.contains("kubectl edit pod web-0 -n default"), "{said}");
    // A CloneSet makes another under another name, and the one that stays is told all the same.
    let path = format!("{CLONES}/clones");
    lab.patch(&path, &json!({"spec": {"replicas": 1}})).await;
    lab.until("clone/clones", "1 wanted, 1 ready, 1 updated\nnothing is waited for");
    let pods = "/api/v1/namespaces/default/pods?labelSelector=app%3Dclones";
    let list = lab.send(Method::GET, pods, "application/json", &json!({})).await;
    let name = list["items"][0]["metadata"]["name"].as_str().expect("a pod").to_owned();
    let pod = format!("/api/v1/namespaces/default/pods/{name}");
    lab.patch(&pod, &json!({"metadata": {"finalizers": ["example.com/keep"]}}))
        .await;
    let now = json!({"gracePeriodSeconds": 1});
    lab.send(Method::DELETE, &pod, "application/json", &now).await;
    let said = lab.until("clone/clones", &format!("{name}: is terminating"));
    assert!(said.contains("held by finalizer example.com/keep"), "{said}");
}

#[tokio::test]
async fn a_readiness_gate_that_nobody_sets_and_what_the_kubelet_says_are_told() {
    let lab = Playground::begin("gate").await;
    let mut gated = set("web", 1);
    gated["spec"]["template"]["spec"]["readinessGates"] = json!([{"conditionType": "example.com/lb"}]);
    lab.send(Method::POST, SETS, "application/json", &gated).await;
    let said = lab.until("asts/web", "readiness gate example.com/lb is not set");
    assert!(said.contains("you can: "), "{said}");
    let mut slow = set("db", 1);
    slow["spec"]["template"]["metadata"]["annotations"] = json!({"sim.flotilla.rs/never-ready": "true"});
    // Of what it does not name, nobody is told that it lacks it.
    slow["spec"]["template"]["spec"]["volumes"] = json!([{"name": "conf", "secret": {"secretName": "nosec"}}]);
    lab.send(Method::POST, SETS, "application/json", &slow).await;
    lab.until("asts/db", "db-0: is not ready");
    let pod = "/api/v1/namespaces/default/pods/db-0";
    let pod = lab.send(Method::GET, pod, "application/json", &json!({})).await;
    let involved = json!({"kind": "Pod", "name": "db-0", "namespace": "default", "uid": pod["metadata"]["uid"]});
    // What was said before its container started is over.
    let made: Timestamp = pod["metadata"]["creationTimestamp"]
        .as_str()
        .expect("a time")
        .parse()
        .expect("a time");
    let at = made + Duration::from_secs(30);
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "db-0.1"}, "involvedObject": involved,
        "type": "Warning", "reason": "FailedMount", "lastTimestamp": at.to_string(),
        "message": "MountVolume.SetUp failed for volume \"conf\" : secret \"nosec\" not found\u{9b}2J"});
    let events = "/api/v1/namespaces/default/events";
    lab.send(Method::POST, events, "application/json", &event).await;
    // Nobody has the last word for ever, nor leads whoever asks to what the pod does not refer to.
    let mut forged = event;
    forged["metadata"]["name"] = json!("db-0.2");
    forged["lastTimestamp"] = json!("2099-01-01T00:00:00Z");
    forged["message"] = json!("couldn't find key admin in Secret default/payroll-secret");
    lab.send(Method::POST, events, "application/json", &forged).await;
    let said = lab.run(&["why", "asts/db"]);
    assert!(
        said.contains("db-0: is not ready: FailedMount: MountVolume.SetUp failed for volume"),
        "{said}"
    );
    assert!(
        said.contains("kubectl create secret generic nosec -n default") && !said.contains("payroll"),
        "{said}"
    );
    // Nor does a terminal obey what is meant for programs.
    let json = lab.run(&["why", "asts/db", "-o", "json"]);
    assert!(
        json.contains("not found\\u009b2J") && !json.contains('\u{9b}'),
        "{json}"
    );
}

#[tokio::test]
async fn a_pod_that_ends_on_a_node_that_is_gone_is_told_also_where_its_set_has_another() {
    let lab = Playground::begin("gone").await;
    let mut clones = clone_set("clones", 1);
    clones["spec"]["template"]["metadata"]["annotations"] = json!({"sim.flotilla.rs/stop": "600m"});
    lab.send(Method::POST, CLONES, "application/json", &clones).await;
    lab.until("clone/clones", "1 wanted, 1 ready, 1 updated\nnothing is waited for");
    let pods = "/api/v1/namespaces/default/pods?labelSelector=app%3Dclones";
    let list = lab.send(Method::GET, pods, "application/json", &json!({})).await;
    let text = |pointer: &str| {
        let text = list["items"][0].pointer(pointer).and_then(Value::as_str);
        text.expect("a pod on a node").to_owned()
    };
    let (name, node) = (text("/metadata/name"), text("/spec/nodeName"));
    let pod = format!("/api/v1/namespaces/default/pods/{name}");
    lab.send(Method::DELETE, &pod, "application/json", &json!({})).await;
    let node_path = format!("/api/v1/nodes/{node}");
    lab.send(Method::DELETE, &node_path, "application/json", &json!({}))
        .await;
    let said = lab.until("clone/clones", "1 wanted, 1 ready, 1 updated\nwaiting:");
    assert!(
        said.contains(&format!("node {node}: is gone from the cluster")),
        "{said}"
    );
    assert!(said.contains(&format!("holds up: {name}")), "{said}");
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_is_the_one_cause_of_an_update_in_place_that_does_not_end() {
    let lab = Playground::begin("image").await;
    let mut clones = clone_set("clones", 4);
    clones["spec"]["updateStrategy"] =
        json!({"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 2}});
    lab.send(Method::POST, CLONES, "application/json", &clones).await;
    lab.until("clone/clones", "4 wanted, 4 ready, 4 updated\nnothing is waited for");
    let broken = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "app:broken"}]);
    let path = format!("{CLONES}/clones");
    lab.send(Method::PATCH, &path, "application/json-patch+json", &broken)
        .await;
    let said = lab.until("clone/clones", "cannot start: ");
    assert!(!said.contains("has not restarted"), "{said}");
    let root = said.split("      rule:").next().unwrap_or_default();
    assert!(root.contains("cannot start: ") && root.contains("holds up: "), "{said}");
}

#[tokio::test]
async fn a_priority_class_that_is_missing_is_named() {
    let lab = Playground::begin("priority").await;
    let mut urgent = set("web", 1);
    urgent["spec"]["template"]["spec"]["priorityClassName"] = json!("high");
    lab.send(Method::POST, SETS, "application/json", &urgent).await;
    let said = lab.until("asts/web", "no PriorityClass with name high was found");
    assert!(said.contains("kubectl create priorityclass high --value=0"), "{said}");
    assert!(!said.contains("webhookconfigurations"), "{said}");
}

/// Pods of the new revision are accepted, and what comes before them is not: it is tried, too, and not told in words of before.
#[tokio::test]
async fn a_claim_that_is_refused_in_an_update_is_told_with_what_helps() {
    let lab = Playground::begin("claims").await;
    let mut web = set("web", 1);
    let claim = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let good = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    web["spec"]["volumeClaimTemplates"] = json!([claim("data", good.clone())]);
    lab.send(Method::POST, SETS, "application/json", &web).await;
    lab.until("asts/web", "1 wanted, 1 ready, 1 updated");
    let without_modes = json!({"resources": {"requests": {"storage": "1Gi"}}});
    let templates = json!([claim("data", good), claim("logs", without_modes)]);
    let image = json!([{"name": "main", "image": "app:2"}]);
    let change = json!({"spec": {"volumeClaimTemplates": templates, "template": {"spec": {"containers": image}}}});
    lab.patch(&format!("{SETS}/web"), &change).await;
    let said = lab.until(
        "asts/web",
        "PersistentVolumeClaim \"logs-web-0\" is invalid: spec.accessModes: Required value",
    );
    assert!(said.contains("you can: correct the template: kubectl edit "), "{said}");
    assert!(
        !said.contains("when the manager last tried") && !said.contains("webhook"),
        "{said}"
    );
}

#[tokio::test]
async fn a_native_set_that_is_paused_is_resumed_and_not_edited() {
    let lab = Playground::begin("paused").await;
    let mut native = set("web", 2);
    native["apiVersion"] = json!("apps/v1");
    lab.send(Method::POST, NATIVE, "application/json", &native).await;
    lab.until("sts.apps/web", "2 wanted, 2 ready, 2 updated\nnothing is waited for");
    lab.run(&["rollout", "pause", "sts.apps/web"]);
    let template = json!({"metadata": {"annotations": {"example.com/changed": "yes"}}});
    lab.patch(&format!("{NATIVE}/web"), &json!({"spec": {"template": template}}))
        .await;
    let said = lab.until("sts.apps/web", "the partition keeps 2 on the old revision");
    let resume = "you can: resume: flotilla rollout resume statefulset.apps/web -n default";
    assert!(said.contains(resume), "{said}");
    assert!(!said.contains("kubectl edit"), "{said}");
}

#[tokio::test]
async fn a_user_of_one_namespace_gets_an_answer_and_what_it_may_lack() {
    let lab = Playground::begin("user").await;
    let mut needy = set("db", 1);
    needy["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec":
        {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    lab.send(Method::POST, SETS, "application/json", &needy).await;
    lab.until("asts/db", "holds up: db-0");
    let kubeconfig = within(&lab, NOT_ALLOWED).await;
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_flotilla"));
    command.args(["why", "asts/db", "--kubeconfig"]).arg(&kubeconfig);
    let output = command.output().await.expect("the binary runs");
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let said = text.concat();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("claim data-db-0: is not bound"), "{said}");
    for (what, times) in [("storageclasses", 1), ("nodes", 1), ("namespaces", 1)] {
        let told = format!(
            "cannot {} resource \"{what}\"",
            if what == "namespaces" { "get" } else { "list" }
        );
        assert_eq!(said.matches(&told).count(), times, "{said}");
    }
    assert!(said.contains("are not told: "), "{said}");
    let unread = "note: whether a manager leads is not told: the lease could not be read: it is forbidden: User \"jane\" cannot get";
    assert!(said.contains(unread), "{said}");
    // That whoever asks may not make pods is nothing that the set waits for.
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "1"}}});
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    lab.send(Method::POST, quotas, "application/json", &quota).await;
    lab.send(Method::POST, SETS, "application/json", &set("web", 2)).await;
    lab.until("asts/web", "the API server refused: QuotaExceeded");
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_flotilla"));
    command.args(["why", "asts/web", "--kubeconfig"]).arg(&kubeconfig);
    let output = command.output().await.expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("accepts what comes next could not be tried, and its condition FailedCreatePod says"),
        "{said}"
    );
    assert!(!said.contains("the API server refused: Forbidden"), "{said}");
    // It may never have been written.
    let _ = std::fs::remove_file(&kubeconfig);
}

/// A revision has a name of its own, and the set's condition tells of it under the name of the set.
#[tokio::test]
async fn a_revision_that_is_refused_is_told_once() {
    let lab = Playground::begin("refused").await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
        "spec": {"hard": {"count/controllerrevisions.apps": "0"}}});
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    lab.send(Method::POST, quotas, "application/json", &quota).await;
    lab.send(Method::POST, CLONES, "application/json", &clone_set("clones", 2))
        .await;
    lab.until("clone/clones", "exceeded quota: none");
    let path = format!("{CLONES}/clones");
    let mut conditions = String::new();
    for _ in 0..200 {
        let clones = lab.send(Method::GET, &path, "application/json", &json!({})).await;
        conditions = clones["status"]["conditions"].to_string();
        if conditions.contains("exceeded quota") {
            break;
        }
        // A process of its own takes its time.
        lab.run(&["why", "clone/clones"]);
    }
    assert!(conditions.contains("clones: QuotaExceeded: "), "{conditions}");
    let said = lab.run(&["why", "clone/clones"]);
    assert_eq!(said.matches("exceeded quota: none").count(), 1, "{said}");
}

#[tokio::test]
async fn a_claim_that_goes_when_its_pod_ends_is_noted_also_where_nothing_is_waited_for() {
    let lab = Playground::begin("going").await;
    let mut web = set("web", 1);
    web["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec":
        {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    lab.send(Method::POST, SETS, "application/json", &web).await;
    let said = lab.until("asts/web", "1 wanted, 1 ready, 1 updated\nnothing is waited for");
    assert!(!said.contains("note: "), "{said}");
    let claim = "/api/v1/namespaces/default/persistentvolumeclaims/data-web-0";
    // What the API server puts on each claim.
    lab.patch(
        claim,
        &json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}}),
    )
    .await;
    lab.send(Method::DELETE, claim, "application/json", &json!({})).await;
    let note = "note: claim data-web-0 is being deleted: it goes, with its data, when pod web-0 ends";
    lab.until("asts/web", note);
}

/// What the API server fails at says nothing of rights, and of no manager.
#[tokio::test]
async fn a_lease_that_cannot_be_read_is_no_reason_not_to_answer() {
    const NO_LEASES: Limits = &[("GET", "/apis/coordination.k8s.io/", 503, "etcd is not there")];
    let lab = Playground::begin("leases").await;
    lab.send(Method::POST, SETS, "application/json", &set("web", 1)).await;
    lab.until("asts/web", "1 wanted, 1 ready, 1 updated\nnothing is waited for");
    let kubeconfig = within(&lab, NO_LEASES).await;
    let ask = async |words: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_flotilla"));
        command.args(words).arg("--kubeconfig").arg(&kubeconfig);
        let output = command.output().await.expect("the binary runs");
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.code(), text.concat())
    };
    let told = "whether a manager leads is not told: the lease could not be read: etcd is not there; ask again";
    let (code, said) = ask(&["why", "asts/web"]).await;
    assert!(said.contains(&format!("note: {told}")), "{said}");
    assert_eq!(code, Some(0), "{said}");
    let (_, json) = ask(&["why", "asts/web", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["manager"], &json["notes"]), (&Value::Null, &json!([told])));
    let (code, said) = ask(&["plan", "asts/web", "--replicas", "2"]).await;
    assert!(said.contains(told), "{said}");
    assert_eq!(code, Some(0), "{said}");
    // It may never have been written.
    let _ = std::fs::remove_file(&kubeconfig);
}
