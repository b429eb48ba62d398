//! CloneSets as users write them, and when they are at rest.

use crate::api::{Api, Objects, number, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Path of the collection in a namespace.
pub fn sets(namespace: &str) -> String {
    format!("/apis/apps.kruise.io/v1beta1/namespaces/{namespace}/clonesets")
}

/// The same in the older version, which is converted.
pub fn old_sets(namespace: &str) -> String {
    format!("/apis/apps.kruise.io/v1alpha1/namespaces/{namespace}/clonesets")
}

/// Path of the set `web`.
pub fn web(namespace: &str) -> String {
    format!("{}/web", sets(namespace))
}

/// The set `web` with this many pods of image `app:v1`.
pub fn manifest(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "CloneSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "app:v1"}]},
            },
        },
    })
}

/// Gives a set a template of claims.
pub fn with_claims(mut set: Value) -> Value {
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    set
}

/// Whether the status is of the present spec and says that all pods that are to be updated are, and that all are available.
pub fn is_settled(set: &Value) -> bool {
    let replicas = number(set, "/spec/replicas");
    let status = |field: &str| number(set, &format!("/status/{field}"));
    status("observedGeneration") >= number(set, "/metadata/generation")
        && !text(set, "/status/updateRevision").is_empty()
        && status("replicas") == replicas
        && status("availableReplicas") == replicas
        && status("updatedReplicas") >= status("expectedUpdatedReplicas")
}

/// Waits until the set `web` is at rest.
pub async fn settled(api: &Api, namespace: &str, within: Duration) -> Value {
    named_settled(api, namespace, "web", within).await
}

/// Waits until the set of this name is at rest.
pub async fn named_settled(api: &Api, namespace: &str, name: &str, within: Duration) -> Value {
    let done = |sets: &Objects| sets.get(name).is_some_and(is_settled);
    let what = format!("CloneSet {name} at rest");
    let mut found = api.until(&sets(namespace), within, &what, done).await;
    found.remove(name).expect("it was there a moment ago")
}

/// Name and UID of each object.
pub fn uids(objects: &Objects) -> BTreeMap<String, String> {
    let uid = |object: &Value| text(object, "/metadata/uid").to_owned();
    let named = objects.iter().map(|(name, object)| (name.clone(), uid(object)));
    named.collect()
}
