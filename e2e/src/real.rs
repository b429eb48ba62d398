//! Pods on the real node: what runs in them, what their status tells of it, and who serves.

use crate::api::{Api, Objects, text};
use crate::sets::{Kind, SOON, pods};
use http::Request;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The condition by which an in-place update takes a pod out of service.
pub const GATE: &str = "InPlaceUpdateReady";

/// A pod of the test program, for the real node: container `main` serves, container `side` only runs.
pub fn pod(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": spec(image),
    })
}

/// What a pod of the test program is made of.
fn spec(image: &str) -> Value {
    json!({
        "nodeSelector": {"type": "real"},
        "terminationGracePeriodSeconds": 2,
        "containers": [
            {
                "name": "main",
                "image": image,
                "ports": [{"containerPort": 8080}],
                // A container without one is ready before its program listens.
                "readinessProbe": {"httpGet": {"path": "/version", "port": 8080}, "periodSeconds": 1},
            },
            {"name": "side", "image": "pause:1"},
        ],
    })
}

/// An Advanced StatefulSet of the test program on the real node, which may be updated in place; all its pods at once.
pub fn advanced_set(name: &str, replicas: i64, image: &str) -> Value {
    let mut set = Kind::Advanced.manifest(name, replicas);
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    set["spec"]["template"]["spec"] = spec(image);
    set["spec"]["template"]["spec"]["readinessGates"] = json!([{"conditionType": GATE}]);
    set["spec"]["updateStrategy"] = json!({
        "type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible"},
    });
    set
}

/// A Service for the pods of [`pod`] or [`advanced_set`] of this name.
pub fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": "None", "selector": {"app": name}, "ports": [{"port": 8080}]},
    })
}

/// Path of the endpoints of a service, to be followed by [`Api::until`] or [`Api::follow`].
pub fn slices(namespace: &str, service: &str) -> String {
    let selector = format!("labelSelector=kubernetes.io%2Fservice-name%3D{service}");
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?{selector}")
}

/// Which pods the slices of a service hold, and whether each is to be sent requests.
pub fn serving(slices: &Objects) -> BTreeMap<String, bool> {
    let endpoints = slices
        .values()
        .filter_map(|slice| slice["endpoints"].as_array())
        .flatten();
    let pod = |endpoint: &Value| {
        let ready = endpoint.pointer("/conditions/ready").and_then(Value::as_bool);
        (text(endpoint, "/targetRef/name").to_owned(), ready.unwrap_or(false))
    };
    endpoints.map(pod).collect()
}

/// The status of a container; null while there is none.
pub fn container<'p>(pod: &'p Value, name: &str) -> &'p Value {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let mut statuses = statuses.into_iter().flatten();
    statuses.find(|status| status["name"] == name).unwrap_or(&Value::Null)
}

/// How often a container was restarted, and the ID of the one that runs now.
pub fn incarnation(pod: &Value, name: &str) -> (i64, String) {
    let status = container(pod, name);
    let restarts = status["restartCount"].as_i64().unwrap_or(0);
    (restarts, text(status, "/containerID").to_owned())
}

/// A condition of a pod; null while there is none.
pub fn condition<'p>(pod: &'p Value, kind: &str) -> &'p Value {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions
        .find(|condition| condition["type"] == kind)
        .unwrap_or(&Value::Null)
}

/// Waits until a pod is as `is` says, and returns it as it was then.
pub async fn pod_until(api: &Api, namespace: &str, pod: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let mut all = api
        .until(&pods(namespace), SOON, &format!("{pod}: {what}"), |pods| {
            pods.get(pod).is_some_and(&is)
        })
        .await;
    all.remove(pod).expect("it was there a moment ago")
}

/// Gives a container of a pod another image, as an in-place update does.
pub async fn set_image(api: &Api, namespace: &str, pod: &str, container: &str, image: &str) {
    let body = json!({"spec": {"containers": [{"name": container, "image": image}]}});
    strategic(api, &format!("{}/{pod}", pods(namespace)), &body).await;
}

/// Gives a container of a pod other resources, as an in-place update does.
pub async fn resize(api: &Api, namespace: &str, pod: &str, container: &str, resources: &Value) {
    let body = json!({"spec": {"containers": [{"name": container, "resources": resources}]}});
    strategic(api, &format!("{}/{pod}/resize", pods(namespace)), &body).await;
}

/// Sets a condition of a pod, as the owner of a readiness gate does.
pub async fn set_condition(api: &Api, namespace: &str, pod: &str, kind: &str, status: &str) {
    let body = json!({"status": {"conditions": [{"type": kind, "status": status}]}});
    strategic(api, &format!("{}/{pod}/status", pods(namespace)), &body).await;
}

async fn strategic(api: &Api, path: &str, body: &Value) {
    let content = Some(("application/strategic-merge-patch+json", body));
    let sent = api.send(http::Method::PATCH, path, content).await;
    sent.unwrap_or_else(|e| panic!("PATCH {path}: {e}"));
}

/// Asks the test program in a pod; `None` while nobody answers there.
async fn ask(api: &Api, namespace: &str, pod: &str, question: &str) -> Option<String> {
    let path = format!("{}/{pod}:8080/proxy/{question}", pods(namespace));
    let request = Request::get(path).body(Vec::new()).expect("the path is valid");
    api.client().request_text(request).await.ok()
}

/// The version that a pod serves; `None` while it does not answer.
pub async fn version(api: &Api, namespace: &str, pod: &str) -> Option<String> {
    ask(api, namespace, pod, "version").await
}

/// The environment of the container that serves in a pod.
///
/// # Panics
/// When it does not answer.
pub async fn environment(api: &Api, namespace: &str, pod: &str) -> BTreeMap<String, String> {
    let answer = ask(api, namespace, pod, "env").await;
    let answer = answer.unwrap_or_else(|| panic!("{namespace}/{pod} does not answer"));
    serde_json::from_str(&answer).expect("the program answers with names and values")
}
