//! What the runtime tells of a container.

use std::collections::BTreeMap;

/// How a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Made, and not started yet.
    Created,
    /// It runs.
    Running,
    /// It has ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

/// A container as the runtime tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its name in the pod.
    pub name: String,
    /// Its ID, with the name of the runtime before it.
    pub id: String,
    /// When it was made, in nanoseconds since the epoch.
    pub created_at: i64,
    /// How it is.
    pub state: State,
    /// What the kubelet noted on it when it made it.
    pub annotations: BTreeMap<String, String>,
}

/// The kubelet's hash of the spec that it made the container from, in hexadecimal.
const HASH: &str = "io.kubernetes.container.hash";
/// How often the container was restarted before.
const RESTARTS: &str = "io.kubernetes.container.restartCount";

impl Told {
    /// The kubelet's hash of the spec that the container was made from.
    pub fn plain_hash(&self) -> Option<u64> {
        u64::from_str_radix(self.annotations.get(HASH)?, 16).ok()
    }

    /// How often the container was restarted before.
    pub fn restart_count(&self) -> i32 {
        let count = self.annotations.get(RESTARTS);
        count.and_then(|n| n.parse().ok()).unwrap_or_default()
    }
}

/// Of the containers of this name the one that was made last (AGT-8.3).
pub fn newest<'t>(told: &'t [Told], name: &str) -> Option<&'t Told> {
    let named = told.iter().filter(|t| t.name == *name);
    named.max_by_key(|t| t.created_at)
}
