//! The part of a cluster's life that its real node has, if there is one.

use super::{Cluster, END_WITHIN, READY_WITHIN};
use crate::build::cache_directory;
use crate::clock;
use crate::component::Component;
use crate::error::Error;
use crate::node::{self, Node};
use std::fs::File;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

impl Cluster {
    /// Starts the node and waits until it is ready. Nodes start one after the other: each looks for a network that nobody uses, and for
    /// settings that no kubelet has changed.
    pub(super) fn bring_up_node(&mut self) -> Result<(), Error> {
        let lock = cache_directory().join("node.lock");
        let file = File::create(&lock).map_err(|e| Error::io("create", &lock, e))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|e| Error::io("lock", &lock, e.into()))?;
        self.choose_network()?;
        let Some(node) = self.node() else { return Ok(()) };
        node.prepare(&self.pki, self.state.ports.apiserver)?;
        self.launch(Component::Registry)?;
        self.wait_for(Component::Registry, || TcpStream::connect(node.registry()).is_ok())?;
        self.launch(Component::Containerd)?;
        self.wait_for(Component::Containerd, || UnixStream::connect(node.socket()).is_ok())?;
        self.launch(Component::Kubelet)?;
        let name = format!("node/{}", node::NAME);
        let ready = ["wait", "--for=condition=Ready", "--timeout=1s", &name];
        self.wait_for(Component::Kubelet, || {
            self.kubectl(&ready).is_ok_and(|output| output.status.success())
        })?;
        // The kubelet has changed them by now, and does so only when it starts.
        node::restore(&node.state.settings)
    }

    /// Makes the bridge, unless something of the node is running, which then is on it already.
    fn choose_network(&mut self) -> Result<(), Error> {
        if Component::REAL
            .into_iter()
            .any(|component| self.pid(component).is_some())
        {
            return Ok(());
        }
        let state = self.state.node.get_or_insert_default();
        // A start that failed has kept those from before it.
        if state.settings.is_empty() {
            state.settings = node::settings();
        }
        // Written before anything is made or changed, so that whoever takes the cluster down finds it.
        self.state.write(&self.directory)?;
        let network = self.node().map(|node| node.choose_network()).transpose()?;
        self.state.node.get_or_insert_default().network = network.unwrap_or_default();
        self.state.write(&self.directory)
    }

    /// Waits until a component of the node is as `ready` says; one that ends never will be.
    fn wait_for(&self, component: Component, ready: impl Fn() -> bool) -> Result<(), Error> {
        let has_ended = || self.pid(component).is_none();
        if clock::poll(READY_WITHIN, || ready() || has_ended()) && !has_ended() {
            return Ok(());
        }
        Err(self.not_ready(component))
    }

    /// The node, if the cluster has one.
    pub(super) fn node(&self) -> Option<Node<'_>> {
        Some(Node {
            cluster: &self.directory,
            binaries: self.node_binaries.as_ref()?,
            state: self.state.node.as_ref()?,
        })
    }

    /// Ends everything that runs on the node, and takes away what the kernel keeps of it.
    pub(super) fn end_node(&self) -> Result<(), Error> {
        let Some(node) = self.node() else { return Ok(()) };
        self.process(Component::Kubelet).stop(END_WITHIN);
        let sockets = node.shim_sockets();
        node.end_pods()?;
        self.process(Component::Containerd).stop(END_WITHIN);
        node.end_shims(sockets)?;
        self.process(Component::Registry).stop(END_WITHIN);
        node.clear()
    }
}
