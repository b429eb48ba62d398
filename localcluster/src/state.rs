//! What a cluster remembers between two commands: its ports and its settings.

use crate::cluster::Settings;
use crate::error::Error;
use crate::node::NodeState;
use crate::port::free_port;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Loopback ports of the components.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ports {
    pub(crate) etcd: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) apiserver: u16,
    pub(crate) controller_manager: u16,
    pub(crate) scheduler: u16,
    pub(crate) kwok: u16,
}

impl Ports {
    /// Ports that nobody uses now.
    pub(crate) fn free() -> Result<Self, Error> {
        let free = || {
            free_port().map_err(|e| Error::Io {
                what: "find a free port".to_owned(),
                source: e,
            })
        };
        Ok(Ports {
            etcd: free()?,
            etcd_peer: free()?,
            apiserver: free()?,
            controller_manager: free()?,
            scheduler: free()?,
            kwok: free()?,
        })
    }
}

/// The state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) ports: Ports,
    pub(crate) settings: Settings,
    /// Of the real node, if it was asked for.
    #[serde(default)]
    pub(crate) node: Option<NodeState>,
}

impl State {
    /// Reads the state of a cluster; `None` if there is no such cluster, or its file makes no sense any more.
    pub(crate) fn read(directory: &Path) -> Option<Self> {
        let text = fs::read_to_string(directory.join("state.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn write(&self, directory: &Path) -> Result<(), Error> {
        crate::pki::write_private(&directory.join("state.json"), &serde_json::json!(self).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let p = Ports::free().unwrap();
        let all = std::collections::BTreeSet::from([
            p.etcd,
            p.etcd_peer,
            p.apiserver,
            p.controller_manager,
            p.scheduler,
            p.kwok,
        ]);
        assert_eq!(all.len(), 6);
    }
}
