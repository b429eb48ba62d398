//! A real node: kubelet, containerd and runc as plain processes, with a registry that holds a few test images.
//!
//! Everything that it writes lies in the cluster's directory, except what a kernel keeps elsewhere: a bridge with a network of its own,
//! a cgroup, mounts, and a few settings that the kubelet changes. Each carries the cluster's tag or lies below its directory, so that
//! taking it down finds all of it whatever has become of the processes, and several clusters stand beside each other.

mod config;
mod end;
mod machine;

pub use machine::real_node_unavailable;
pub(crate) use machine::{restore, settings};

use crate::build::Binaries;
use crate::error::Error;
use crate::pki::{Pki, write_private};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the node.
pub(crate) const NAME: &str = "real-0";
/// How `bridge add` ends when a network is in use.
const TAKEN: i32 = 17;

/// What a cluster remembers of its real node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeState {
    /// The network of its pods is 10.251.`network`.0/24, and .1 is the node itself.
    pub(crate) network: u8,
    /// Settings of the kernel as they were before the kubelet changed them.
    pub(crate) settings: BTreeMap<String, String>,
}

/// The node of one cluster.
pub(crate) struct Node<'a> {
    /// The cluster's directory.
    pub(crate) cluster: &'a Path,
    pub(crate) binaries: &'a Binaries,
    pub(crate) state: &'a NodeState,
}

impl Node<'_> {
    /// The node's own files.
    fn directory(&self) -> PathBuf {
        self.cluster.join("node")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    /// Eight characters that no other cluster of this machine has.
    fn tag(&self) -> String {
        let digest = Sha256::digest(self.cluster.as_os_str().as_encoded_bytes());
        let short = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        format!("{short:08x}")
    }

    /// The bridge. Names of interfaces have at most 15 characters.
    fn bridge(&self) -> String {
        format!("flt-{}", self.tag())
    }

    /// The cgroup below which all pods are, in every hierarchy.
    fn cgroup(&self) -> String {
        format!("{}{}", machine::CGROUP, self.tag())
    }

    /// The node's address, at which the kubelet and the registry serve; nobody else is there, so their ports are free.
    fn address(&self) -> String {
        format!("10.251.{}.1", self.state.network)
    }

    /// The socket of containerd.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path("c.sock")
    }

    /// The address of the registry.
    pub(crate) fn registry(&self) -> String {
        format!("{}:5000", self.address())
    }

    /// Makes the bridge and the cgroup, signs a certificate and writes all configuration. What is there already stays.
    pub(crate) fn prepare(&self, pki: &Pki, apiserver_port: u16) -> Result<(), Error> {
        machine::make_cgroup(&self.cgroup())?;
        pki.sign(
            "kubelet",
            &format!("system:node:{NAME}"),
            &["system:nodes"],
            &[&self.address()],
        )?;
        pki.kubeconfig("kubelet", apiserver_port)?;
        self.write("containerd/certs.d/_default/hosts.toml", &self.hosts())?;
        self.write("containerd/config.toml", &self.containerd()?)?;
        self.write("containerd/cni/10-bridge.conflist", &self.network().to_string())?;
        // A file of resolvers that names none: nothing outside is to be asked.
        self.write("kubelet/resolv.conf", "")?;
        self.write("kubelet/config.json", &self.kubelet(pki).to_string())
    }

    /// Makes the bridge on a network that nobody uses, and returns which. Only one cluster may do so at a time.
    pub(crate) fn choose_network(&self) -> Result<u8, Error> {
        self.run_bridge(&["remove", &self.bridge()])?;
        for network in 0..=u8::MAX {
            let address = format!("10.251.{network}.1/24");
            if self.run_bridge(&["add", &self.bridge(), &address])? {
                return Ok(network);
            }
        }
        Err(Error::RealNode(
            "none of the networks 10.251.0.0/24 to 10.251.255.0/24 is free".to_owned(),
        ))
    }

    /// Runs the program for bridges; `false` if the network is taken.
    fn run_bridge(&self, arguments: &[&str]) -> Result<bool, Error> {
        let output = Command::new(self.binaries.path("bridge")).args(arguments).output();
        let output = output.map_err(|e| Error::Io {
            what: "run the program for bridges".to_owned(),
            source: e,
        })?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(TAKEN) => Ok(false),
            _ => Err(Error::RealNode(
                String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            )),
        }
    }

    /// The registry.
    pub(crate) fn registry_command(&self) -> Command {
        let mut command = Command::new(self.binaries.path("images"));
        command
            .arg(format!("--listen={}", self.registry()))
            .arg(format!("--programs={}", self.binaries.path("images.d").display()));
        command
    }

    pub(crate) fn containerd_command(&self) -> Command {
        let mut command = Command::new(self.binaries.path("containerd"));
        command.arg("--config").arg(self.path("containerd/config.toml"));
        command
    }

    pub(crate) fn kubelet_command(&self, pki: &Pki) -> Command {
        let mut command = Command::new(self.binaries.path("kubelet"));
        command
            .arg(format!("--config={}", self.path("kubelet/config.json").display()))
            .arg(format!("--kubeconfig={}", pki.path("kubelet.kubeconfig").display()))
            .arg(format!("--hostname-override={NAME}"))
            .arg(format!("--node-ip={}", self.address()))
            .arg(format!("--root-dir={}", self.path("kubelet").display()))
            .arg(format!("--cert-dir={}", self.path("kubelet/pki").display()))
            .arg("--node-labels=type=real");
        command
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.path(name);
        let parent = path.parent().unwrap_or(&path);
        fs::create_dir_all(parent).map_err(|e| Error::io("create", parent, e))?;
        write_private(&path, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clusters_share_no_name() {
        let binaries = Binaries::at(PathBuf::from("/b"));
        let state = NodeState::default();
        let node = |cluster: &'static str| Node {
            cluster: Path::new(cluster),
            binaries: &binaries,
            state: &state,
        };
        let (one, two) = (node("/cache/clusters/one"), node("/cache/clusters/two"));
        assert_ne!(one.bridge(), two.bridge());
        assert_ne!(one.cgroup(), two.cgroup());
        assert!(one.bridge().len() <= 15, "{}", one.bridge());
    }
}
