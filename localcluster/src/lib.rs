//! A real Kubernetes control plane with simulated nodes, on this machine.
//!
//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler of Kubernetes 1.36 are built once from pinned Go modules (this
//! directory) into the user's cache directory, and run as plain processes: loopback only, TLS, RBAC, own ports and data for each
//! named cluster, so that several run side by side. kwok plays the nodes; a small provisioner of our own binds claims. Where the machine allows
//! it, a real node stands beside the simulated ones.

mod build;
mod clock;
mod cluster;
mod component;
mod error;
mod manifest;
mod node;
mod pki;
mod port;
mod process;
mod state;
pub mod workspace;

pub use build::{Binaries, build, build_node, helm};
pub use cluster::{Builder, Cluster, end_abandoned, names};
pub use component::Component;
pub use error::Error;
pub use node::real_node_unavailable;
pub use port::free_port;
pub use process::{anonymous_rss_bytes_of, cpu_seconds_of, peak_rss_bytes_of, rss_bytes_of, thread_cpu_seconds_of};
