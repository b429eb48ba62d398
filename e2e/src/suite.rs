//! A suite: scenarios with names, each with its own runtime and, where it shares a cluster, its own namespace.

use crate::api::{Api, name};
use crate::clock;
use crate::manager::Manager;
use flotilla_localcluster::{Builder, Cluster};
use http::Method;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use std::future::Future;
use std::path::{Path, PathBuf};

/// One scenario as a test.
pub fn trial<F, Fut>(name: impl Into<String>, scenario: F) -> Trial
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()>,
{
    Trial::test(name, move || {
        runtime().map_err(Failed::from)?.block_on(scenario());
        Ok(())
    })
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Does what a suite does outside of its scenarios.
///
/// # Panics
/// Without a runtime.
pub fn wait_for<T>(work: impl Future<Output = T>) -> T {
    runtime().expect("a runtime").block_on(work)
}

/// Starts the cluster that the scenarios of a suite share, for our manager to control its sets, and has done with it what they rest on.
///
/// # Panics
/// Without a cluster.
pub fn start(cluster: Builder, prepare: impl AsyncFnOnce(&Api)) -> Cluster {
    let cluster = cluster.without_statefulset_controller().start().expect("a cluster");
    wait_for(async { prepare(&Api::connect(cluster.kubeconfig_path()).await).await });
    cluster
}

/// Prints the end of a manager's log, for whoever looks into a scenario that failed.
pub fn print_last_words(manager: &Manager, lines: usize) {
    let log = manager.log();
    let tail: Vec<&str> = log.lines().rev().take(lines).collect();
    eprintln!(
        "the last words of the manager {}:\n{}",
        manager.name(),
        tail.into_iter().rev().collect::<Vec<_>>().join("\n")
    );
}

/// Connects, and makes a namespace for one scenario.
pub async fn enter(kubeconfig: &Path, namespace: &str) -> Api {
    let api = Api::connect(kubeconfig).await;
    make_namespace(&api, namespace).await;
    api
}

/// Makes a namespace in which pods can be created.
pub async fn make_namespace(api: &Api, namespace: &str) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    api.create("/api/v1/namespaces", &object).await;
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    api.until(&accounts, crate::sets::SOON, "default service account", |accounts| {
        accounts.contains_key("default")
    })
    .await;
}

/// A kubeconfig of whoever has this token, beside the administrator's; with another address of the API server, if one is given.
pub fn kubeconfig_with(admin: &Path, name: &str, token: &Value, server: Option<String>) -> PathBuf {
    let mut config: Value = serde_json::from_slice(&std::fs::read(admin).expect("it is there")).expect("it is JSON");
    if let Some(server) = server {
        config["clusters"][0]["cluster"]["server"] = json!(server);
    }
    let user = config["contexts"][0]["context"]["user"].clone();
    config["users"] = json!([{"name": user, "user": {"token": token}}]);
    let kubeconfig = admin.with_file_name(format!("{name}.kubeconfig"));
    std::fs::write(&kubeconfig, config.to_string()).expect("it can be written");
    kubeconfig
}

/// Path of the definitions.
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Installs the custom resource definitions, each changed by `change`, and waits until they are served.
pub async fn install_crds(api: &Api, change: impl Fn(Value) -> Value) {
    let output = std::process::Command::new(crate::manager::binary())
        .args(["crds", "--output", "json"])
        .output();
    let output = output.expect("the manager's binary runs");
    let list: Value = serde_json::from_slice(&output.stdout).expect("crds prints JSON");
    for crd in list["items"].as_array().expect("a list") {
        let path = format!("{CRDS}/{}?fieldManager=e2e&force=true", name(crd));
        let body = change(crd.clone());
        let sent = api
            .send(Method::PATCH, &path, Some(("application/apply-patch+yaml", &body)))
            .await;
        sent.unwrap_or_else(|e| panic!("apply {path}: {e}"));
    }
    let served = |crds: &crate::api::Objects| {
        crds.values().all(|crd| {
            let conditions = crd
                .pointer("/status/conditions")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            conditions
                .into_iter()
                .any(|c| c["type"] == "Established" && c["status"] == "True")
        })
    };
    api.until(CRDS, crate::sets::SOON, "definitions established", served)
        .await;
}

/// Where the API server lists the schemas that it publishes, and the one of our group.
const SCHEMAS: (&str, &str) = ("/openapi/v3", "apis/apps.kruise.io/v1beta1");

/// Waits until the schemas of the definitions are published, which `kubectl explain` reads: some seconds after they are served, and
/// nothing can be watched for that.
///
/// # Panics
/// When they are not within the time of a scenario.
pub async fn schemas_published(api: &Api) {
    let begun = clock::now();
    while !explains_sets(api).await {
        assert!(
            begun.elapsed() < crate::sets::SOON,
            "GET {}: {} is not there",
            SCHEMAS.0,
            SCHEMAS.1
        );
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Whether the list of schemas names our group, and its schema our kind.
async fn explains_sets(api: &Api) -> bool {
    let list = api.read(SCHEMAS.0).await;
    if list["paths"][SCHEMAS.1].is_null() {
        return false;
    }
    // Without the hash that the list names: it changes while the schema is being published, and an old one is answered by a redirect.
    let path = format!("{}/{}", SCHEMAS.0, SCHEMAS.1);
    let schema = api.get(&path).await.unwrap_or_default();
    schema["components"]["schemas"]
        .as_object()
        .is_some_and(|kinds| kinds.keys().any(|kind| kind.ends_with(".v1beta1.StatefulSet")))
}

/// A definition as it was before there were rules: the same fields, any value.
pub fn without_rules(mut crd: Value) -> Value {
    const RULES: [&str; 8] = [
        "x-kubernetes-validations",
        "minimum",
        "maximum",
        "maxLength",
        "maxItems",
        "maxProperties",
        "pattern",
        "required",
    ];
    fn strip(schema: &mut Value) {
        match schema {
            Value::Object(fields) => {
                // Only where these words are keywords of the schema and not names of fields.
                if !fields.values().all(Value::is_object) {
                    fields.retain(|key, _| !RULES.contains(&key.as_str()));
                }
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
        strip(&mut version["schema"]);
    }
    crd
}
