//! Sets as users write them, for both kinds.

use crate::api::{Api, Objects, is_ready, is_terminating, number, text};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a scenario waits for something that should take a few seconds.
pub const SOON: Duration = Duration::from_secs(60);

/// Which of the two kinds a scenario runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// apps/v1.
    Native,
    /// apps.kruise.io/v1beta1.
    Advanced,
}

impl Kind {
    /// Both, each with a word for names.
    pub const BOTH: [(Kind, &'static str); 2] = [(Kind::Native, "native"), (Kind::Advanced, "advanced")];

    /// Group and version.
    pub fn api_version(self) -> &'static str {
        match self {
            Kind::Native => "apps/v1",
            Kind::Advanced => "apps.kruise.io/v1beta1",
        }
    }

    /// Path of the collection in a namespace.
    pub fn sets(self, namespace: &str) -> String {
        format!("/apis/{}/namespaces/{namespace}/statefulsets", self.api_version())
    }

    /// Path of one set.
    pub fn set(self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.sets(namespace))
    }

    /// A set of `replicas` pods with image `app:v1`; OrderedReady.
    pub fn manifest(self, name: &str, replicas: i64) -> Value {
        json!({
            "apiVersion": self.api_version(),
            "kind": "StatefulSet",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "serviceName": name,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "main", "image": "app:v1"}]},
                },
            },
        })
    }
}

/// Path of the pods of a namespace.
pub fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// Path of the claims of a namespace.
pub fn claims(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims")
}

/// Path of the revisions of a namespace.
pub fn revisions(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/controllerrevisions")
}

/// A patch that gives the template of [`Kind::manifest`] another image.
pub fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

/// Gives the first container of a set another image and leaves everything else as it is.
pub async fn set_image(api: &Api, set: &str, image: &str) {
    let body = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}]);
    let sent = api
        .send(http::Method::PATCH, set, Some(("application/json-patch+json", &body)))
        .await;
    sent.unwrap_or_else(|e| panic!("PATCH {set}: {e}"));
}

/// A patch that sets the partition.
pub fn partition(partition: i64) -> Value {
    json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}}})
}

/// Whether there are exactly `count` pods, all ready and staying.
pub fn all_ready(pods: &Objects, count: usize) -> bool {
    pods.len() == count && pods.values().all(|pod| is_ready(pod) && !is_terminating(pod))
}

/// Waits until a namespace holds exactly `count` ready pods.
pub async fn ready(api: &Api, namespace: &str, count: usize) -> Objects {
    api.until(&pods(namespace), SOON, &format!("{count} pods ready"), |pods| {
        all_ready(pods, count)
    })
    .await
}

/// Waits until a set says that its rollout is over: current and update revision are one, and all pods are ready.
pub async fn rolled_out(api: &Api, kind: Kind, namespace: &str, name: &str) -> Value {
    rolled_out_within(api, kind, namespace, name, SOON).await
}

/// Whether a set of any kind says so of its present spec.
pub fn is_rolled_out(set: &Value) -> bool {
    number(set, "/status/observedGeneration") >= number(set, "/metadata/generation")
        && text(set, "/status/currentRevision") == text(set, "/status/updateRevision")
        && !text(set, "/status/updateRevision").is_empty()
        && number(set, "/status/readyReplicas") == number(set, "/spec/replicas")
        && number(set, "/status/replicas") == number(set, "/spec/replicas")
}

/// The same with a bound of its own.
pub async fn rolled_out_within(api: &Api, kind: Kind, namespace: &str, name: &str, within: Duration) -> Value {
    let done = |sets: &Objects| sets.get(name).is_some_and(is_rolled_out);
    let mut sets = api
        .until(
            &kind.sets(namespace),
            within,
            &format!("rollout of {name} complete"),
            done,
        )
        .await;
    sets.remove(name).expect("it was there a moment ago")
}

/// Puts an annotation on a pod by which the simulated kubelet shapes it; `None` takes it away.
pub async fn shape(api: &Api, namespace: &str, pod: &str, key: &str, value: Option<&str>) {
    let body = json!({"metadata": {"annotations": {format!("sim.flotilla.rs/{key}"): value}}});
    api.patch(&format!("{}/{pod}", pods(namespace)), &body).await;
}
