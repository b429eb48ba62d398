//! A pod of the node, as far as the agent looks at it.

use flotilla_model::{ObjectKey, Uid, containers_meta};

/// A pod. Few fields, since a node has some hundred of them and the agent some megabytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Which incarnation of that name.
    pub uid: Uid,
    /// Version of this copy.
    pub version: u64,
    /// Whether the agent has anything to do with it (AGT-8.2): a kind of `apps.kruise.io` controls it, or a sidecar was injected; and it
    /// neither has ended nor is to be deleted.
    pub is_concerned: bool,
    /// Condition `InPlaceUpdateReady` is False: it is out of service for an update in place.
    pub is_out_of_service: bool,
    /// The revision that its label names; empty if none does.
    pub revision: String,
    /// Its address, empty before it has one.
    pub ip: String,
    /// The annotation `apps.kruise.io/runtime-containers-meta`.
    pub noted: Option<String>,
    /// Containers, sorted by name, and after them the init containers that run beside them.
    pub containers: Vec<Container>,
}

impl Pod {
    /// A container by its name. Never by its place: the kubelet sorts statuses by name, and the spec is in an order of its own (AGT-8.2).
    pub fn container(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|c| c.name == *name)
    }

    /// The runtime that runs it: what stands before the first container ID that is not empty (AGT-8.2).
    pub fn runtime(&self) -> Option<&str> {
        self.containers
            .iter()
            .find_map(|c| c.id.split_once("://"))
            .map(|(runtime, _)| runtime)
    }
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// The image that the spec asks for.
    pub image: String,
    /// The variables that refer to the pod's metadata, in their order, with the values that they ought to have now.
    pub environment: Vec<(String, String)>,
    /// Whether the kubelet starts it again however it ends.
    pub always_restarts: bool,
    /// `containerID` of its status; empty if it has none.
    pub id: String,
}

impl Container {
    /// The hash of the environment that it ought to have.
    pub fn expected_hash(&self) -> u64 {
        let entries = self.environment.iter();
        containers_meta::env_hash(entries.map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// The hash of the kubelet for the spec as it is now.
    pub fn plain_hash(&self) -> u64 {
        containers_meta::plain_hash(&self.name, &self.image)
    }
}
