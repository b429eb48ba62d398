//! A suite: scenarios with names, each with its own runtime and, where it shares a cluster, its own namespace.

use crate::api::Api;
use libtest_mimic::{Failed, Trial};
use serde_json::json;
use std::future::Future;
use std::path::Path;

/// One scenario as a test.
pub fn trial<F, Fut>(name: impl Into<String>, scenario: F) -> Trial
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()>,
{
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::from)?;
        runtime.block_on(scenario());
        Ok(())
    })
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
    api.until(&accounts, crate::sets::SOON, "default service account", |accounts| accounts.contains_key("default")).await;
}

/// Installs the custom resource definitions, and waits until they are served.
pub async fn install_crds(api: &Api) {
    let output = std::process::Command::new(crate::manager::binary()).args(["crds", "--output", "json"]).output();
    let output = output.expect("the manager's binary runs");
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("crds prints JSON");
    for crd in list["items"].as_array().expect("a list") {
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await;
    }
    let served = |crds: &crate::api::Objects| {
        crds.values().all(|crd| {
            let conditions = crd.pointer("/status/conditions").and_then(|c| c.as_array()).into_iter().flatten();
            conditions.into_iter().any(|c| c["type"] == "Established" && c["status"] == "True")
        })
    };
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.until(path, crate::sets::SOON, "definitions established", served).await;
}
