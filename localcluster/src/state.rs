//! What a cluster remembers between two commands: its ports and its settings.

use crate::cluster::Settings;
use crate::error::Error;
use crate::node::NodeState;
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::TcpListener;
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
    /// Ports that nobody uses now. They are held together, so that they differ.
    pub(crate) fn free() -> Result<Self, Error> {
        let bind = || {
            TcpListener::bind(("127.0.0.1", 0)).map_err(|e| Error::Io {
                what: "find a free port".to_owned(),
                source: e,
            })
        };
        let listeners = [bind()?, bind()?, bind()?, bind()?, bind()?, bind()?];
        let mut ports = [0; 6];
        for (port, listener) in ports.iter_mut().zip(&listeners) {
            *port = listener
                .local_addr()
                .map_err(|e| Error::Io {
                    what: "find a free port".to_owned(),
                    source: e,
                })?
                .port();
        }
        let [etcd, etcd_peer, apiserver, controller_manager, scheduler, kwok] = ports;
        Ok(Ports {
            etcd,
            etcd_peer,
            apiserver,
            controller_manager,
            scheduler,
            kwok,
        })
    }
}

/// Whether nobody listens on a loopback port.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
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
    fn a_busy_port_is_noticed() {
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(!is_free(port));
        drop(taken);
        assert!(is_free(port));
    }

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
