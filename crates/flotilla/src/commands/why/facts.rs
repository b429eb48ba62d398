//! What is read of the cluster to get from a pod that waits to the cause: its node, its claims, their classes, and what was said of them.

use crate::cluster::Cluster;
use crate::error::Error;
use flotilla_model::{Resource, Timestamp};
use http::Method;
use serde_json::Value;

/// What was found. A list that may not be read is `None`.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Pods of the namespace.
    pub(super) pods: Option<Vec<Value>>,
    /// Nodes.
    pub(super) nodes: Option<Vec<Value>>,
    /// Claims of the namespace.
    pub(super) claims: Option<Vec<Value>>,
    /// Storage classes.
    pub(super) classes: Option<Vec<Value>>,
    /// Events about claims of the namespace.
    pub(super) events: Option<Vec<Value>>,
    /// Warnings about pods of the namespace.
    pub(super) pod_events: Option<Vec<Value>>,
    /// What could not be looked at, in sentences.
    pub(super) unread: Vec<String>,
}

impl Facts {
    /// Reads them; classes not where it is known already that whoever asks may not.
    pub(super) async fn read(cluster: &Cluster, may_read_classes: bool) -> Result<Self, Error> {
        let namespace = &cluster.namespace;
        let events = |about: &str| format!("/api/v1/namespaces/{namespace}/events?fieldSelector={about}");
        let of_claims = events("involvedObject.kind%3DPersistentVolumeClaim");
        let of_pods = events("involvedObject.kind%3DPod,type%3DWarning");
        let pods = Resource::Pods.collection_path(Some(namespace));
        let claims = Resource::Claims.collection_path(Some(namespace));
        let classes = Resource::StorageClasses.collection_path(None);
        let mut facts = Facts::default();
        facts.pods = facts.list(cluster, "pods", &pods).await?;
        facts.nodes = facts.list(cluster, "nodes", "/api/v1/nodes").await?;
        facts.claims = facts.list(cluster, "claims", &claims).await?;
        if may_read_classes {
            facts.classes = facts.list(cluster, "storage classes", &classes).await?;
        }
        facts.events = facts.list(cluster, "events of claims", &of_claims).await?;
        facts.pod_events = facts.list(cluster, "events of pods", &of_pods).await?;
        Ok(facts)
    }

    async fn list(&mut self, cluster: &Cluster, what: &str, path: &str) -> Result<Option<Vec<Value>>, Error> {
        match cluster.send(Method::GET, path, None).await {
            Ok(mut list) => match list.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) => Ok(Some(items)),
                _ => Ok(Some(Vec::new())),
            },
            Err(error) => {
                let said = refused(&error).ok_or_else(|| crate::cluster::describe(format!("list {what}"), &error))?;
                self.unread.push(format!(
                    "{what} could not be looked at, and causes that they would show are not told: {said}"
                ));
                Ok(None)
            }
        }
    }

    /// A pod.
    pub(super) fn pod(&self, name: &str) -> Option<&Value> {
        named(self.pods.as_deref()?, name)
    }
}

/// The object of this name.
pub(super) fn named<'v>(objects: &'v [Value], name: &str) -> Option<&'v Value> {
    objects.iter().find(|object| object["metadata"]["name"] == name)
}

/// What the API server said, if it does not let whoever asks look, or has nothing of that kind.
pub(super) fn refused(error: &kube::Error) -> Option<&str> {
    match error {
        kube::Error::Api(status) if matches!(status.code, 403 | 404) => Some(&status.message),
        _ => None,
    }
}

/// What was said last against an object, of these events.
pub(super) fn last_warning<'f>(events: &'f [Value], object: &Value) -> Option<&'f Value> {
    let metadata = &object["metadata"];
    let is_of_it = |event: &&Value| {
        let involved = &event["involvedObject"];
        // One of that name that was there before may have been told of, too.
        involved["name"] == metadata["name"] && (involved["uid"].is_null() || involved["uid"] == metadata["uid"])
    };
    let warnings = events.iter().filter(is_of_it);
    let warnings = warnings.filter(|event| event["type"] == "Warning" && event["message"].is_string());
    warnings.max_by_key(|event| (happened(event), event["message"].as_str()))
}

/// When an event happened last. Lists are in the order of names, which tells nothing.
pub(super) fn happened(event: &Value) -> Option<Timestamp> {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    times.into_iter().filter_map(time).max()
}

/// A time as objects have it.
pub(super) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
