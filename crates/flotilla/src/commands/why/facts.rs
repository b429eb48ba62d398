//! What is read of the cluster to get from a pod that waits to the cause: its node, its claims, their classes.

use crate::cluster::Cluster;
use crate::error::Error;
use flotilla_model::Resource;
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
    /// What could not be looked at, in sentences.
    pub(super) unread: Vec<String>,
}

impl Facts {
    /// Reads them.
    pub(super) async fn read(cluster: &Cluster) -> Result<Self, Error> {
        let namespace = &cluster.namespace;
        let events =
            format!("/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.kind%3DPersistentVolumeClaim");
        let mut facts = Facts::default();
        facts.pods = facts
            .list(cluster, "pods", &Resource::Pods.collection_path(Some(namespace)))
            .await?;
        facts.nodes = facts.list(cluster, "nodes", "/api/v1/nodes").await?;
        facts.claims = facts
            .list(cluster, "claims", &Resource::Claims.collection_path(Some(namespace)))
            .await?;
        let classes = Resource::StorageClasses.collection_path(None);
        facts.classes = facts.list(cluster, "storage classes", &classes).await?;
        facts.events = facts.list(cluster, "events", &events).await?;
        Ok(facts)
    }

    async fn list(&mut self, cluster: &Cluster, what: &str, path: &str) -> Result<Option<Vec<Value>>, Error> {
        match cluster.send(Method::GET, path, None).await {
            Ok(mut list) => match list.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) => Ok(Some(items)),
                _ => Ok(Some(Vec::new())),
            },
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                self.unread
                    .push(format!("{what} could not be looked at: {}", status.message));
                Ok(None)
            }
            Err(error) => Err(crate::cluster::describe(format!("list {what}"), &error)),
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
