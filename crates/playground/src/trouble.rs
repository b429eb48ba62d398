//! Trouble that people ask for: a node is lost, a pod fails.

use crate::kubelet::{record, set_ready};
use crate::world::{Event, World};
use flotilla_model::{ObjectKey, Resource};
use serde_json::json;
use std::str::FromStr;
use std::time::Duration;

/// How long a lost node stays away.
const LOST_FOR: Duration = Duration::from_secs(60);

/// Something bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A node is silent for a minute; its pods are not ready meanwhile.
    Node(usize),
    /// A pod is evicted: phase Failed.
    Pod(ObjectKey),
}

/// What is wrong with the words for trouble.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names neither a node (node-2) nor a pod (pod/web-1, or pod/NAMESPACE/web-1)")]
pub struct TroubleError(String);

impl FromStr for Trouble {
    type Err = TroubleError;

    fn from_str(text: &str) -> Result<Self, TroubleError> {
        let wrong = || TroubleError(text.to_owned());
        if let Some(number) = text.strip_prefix("node/").unwrap_or(text).strip_prefix("node-") {
            return number.parse().map(Trouble::Node).map_err(|_| wrong());
        }
        let pod = text
            .strip_prefix("pod/")
            .filter(|name| !name.is_empty())
            .ok_or_else(wrong)?;
        let (namespace, name) = pod.split_once('/').unwrap_or(("default", pod));
        Ok(Trouble::Pod(ObjectKey::new(namespace, name)))
    }
}

impl World {
    /// Whether there is such a thing as the trouble is about; pods may come later.
    pub fn can_befall(&self, trouble: &Trouble) -> Result<(), String> {
        match trouble {
            Trouble::Node(index) if *index >= self.nodes.len() => {
                let count = self.nodes.len();
                Err(format!(
                    "there is no node-{index}: the {count} nodes are node-0 to node-{}",
                    count.saturating_sub(1)
                ))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn befall(&mut self, trouble: &Trouble) {
        match trouble {
            Trouble::Node(index) => self.lose_node(*index),
            Trouble::Pod(key) => self.fail_pod(key),
        }
    }

    fn fail_pod(&mut self, key: &ObjectKey) {
        let Some(stored) = self.server.get(Resource::Pods, key) else {
            return;
        };
        let Some(pod) = record(Some(stored)).cloned() else {
            return;
        };
        let mut status = stored.value()["status"].clone();
        status["phase"] = json!("Failed");
        status["reason"] = json!("Evicted");
        status["message"] = json!("The node was low on resource: ephemeral-storage.");
        set_ready(&mut status, false, &self.wall());
        self.write_status(key, status);
        self.tell(
            &pod,
            ("Warning", "Evicted"),
            "The node was low on resource: ephemeral-storage.",
            "kubelet",
        );
    }

    fn lose_node(&mut self, index: usize) {
        if let Some(node) = self.nodes.get_mut(index) {
            node.is_lost = true;
            self.node_condition(index, "Unknown", "NodeStatusUnknown");
            self.plan(LOST_FOR, Event::Return(index));
        }
        for key in self.pods_on(index) {
            let Some(value) = self
                .server
                .get(Resource::Pods, &key)
                .map(flotilla_apiserver::Stored::value)
            else {
                continue;
            };
            let mut status = value["status"].clone();
            set_ready(&mut status, false, &self.wall());
            self.write_status(&key, status);
        }
    }

    /// Nodes that were lost when the world was saved are so still, and come back.
    pub(crate) fn resume_nodes(&mut self) {
        for index in 0..self.nodes.len() {
            let key = ObjectKey::new("", format!("node-{index}"));
            let store = self.server.types.store_of_kind("", "Node");
            let node = store.and_then(|store| self.server.get(store, &key));
            let is_lost = node.is_some_and(|node| node.value()["status"]["conditions"][0]["status"] == "Unknown");
            if is_lost {
                self.nodes[index].is_lost = true;
                self.plan(LOST_FOR, Event::Return(index));
            }
        }
    }

    pub(crate) fn return_node(&mut self, index: usize) {
        if let Some(node) = self.nodes.get_mut(index) {
            node.is_lost = false;
            self.node_condition(index, "True", "KubeletReady");
        }
        for key in self.pods_on(index) {
            self.plan(Duration::from_millis(500), Event::Look(key));
        }
    }

    fn pods_on(&self, index: usize) -> Vec<ObjectKey> {
        let name = format!("node-{index}");
        let pods = self.server.all(Resource::Pods).filter_map(|s| record(Some(s)));
        let here = pods.filter(|pod| pod.node.as_deref() == Some(&name));
        here.map(|pod| pod.meta.key.clone()).collect()
    }

    fn node_condition(&mut self, index: usize, status: &str, reason: &str) {
        let wall = self.wall();
        let key = ObjectKey::new("", format!("node-{index}"));
        let Some(store) = self.server.types.store_of_kind("", "Node") else {
            return;
        };
        let Some(node) = self.server.get(store, &key).map(flotilla_apiserver::Stored::value) else {
            return;
        };
        let mut new = node["status"].clone();
        new["conditions"] = json!([{"type": "Ready", "status": status, "reason": reason, "message": "the node is simulated",
            "lastHeartbeatTime": wall, "lastTransitionTime": wall}]);
        // It is there.
        let _ = self.server.replace_status(store, &key, new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_read_or_refused_by_name() {
        assert_eq!("node-2".parse(), Ok(Trouble::Node(2)));
        assert_eq!(
            "pod/web-1".parse(),
            Ok(Trouble::Pod(ObjectKey::new("default", "web-1")))
        );
        assert_eq!("pod/a/web-1".parse(), Ok(Trouble::Pod(ObjectKey::new("a", "web-1"))));
        for wrong in ["web-1", "node-x", "pod/"] {
            let why = wrong.parse::<Trouble>().unwrap_err().to_string();
            assert!(why.contains(wrong), "{why}");
        }
    }
}
