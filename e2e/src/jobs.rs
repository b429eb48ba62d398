//! `ImagePullJob`s: of their definition, which comes with OpenKruise, as much as whoever makes them needs.

use crate::api::{Api, Objects, name};
use crate::sets::SOON;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Path of the collection in a namespace.
pub fn jobs(namespace: &str) -> String {
    format!("/apis/apps.kruise.io/v1beta1/namespaces/{namespace}/imagepulljobs")
}

/// Defines the kind, in these versions, of which the last is stored, and waits until it is served.
pub async fn define(api: &Api, versions: &[&str]) {
    let version = |version: &&str| {
        json!({
            "name": version, "served": true, "storage": Some(version) == versions.last(), "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    let versions: Vec<Value> = versions.iter().map(version).collect();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "imagepulljobs.apps.kruise.io"},
        "spec": {
            "group": "apps.kruise.io", "scope": "Namespaced", "versions": versions,
            "names": {"kind": "ImagePullJob", "listKind": "ImagePullJobList", "plural": "imagepulljobs", "singular": "imagepulljob"},
        },
    });
    api.create(CRDS, &definition).await;
    let is_established = |crds: &Objects| {
        let conditions = crds
            .get("imagepulljobs.apps.kruise.io")
            .and_then(|crd| crd["status"]["conditions"].as_array());
        let established = |c: &Value| c["type"] == "Established" && c["status"] == "True";
        conditions.is_some_and(|conditions| conditions.iter().any(established))
    };
    api.until(CRDS, SOON, "jobs are defined", is_established).await;
}

/// The jobs' names and images.
pub fn images(jobs: &Objects) -> Vec<(String, String)> {
    let image = |job: &Value| job["spec"]["image"].as_str().unwrap_or_default().to_owned();
    jobs.values().map(|job| (name(job), image(job))).collect()
}
