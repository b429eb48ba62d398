//! A simulated control plane as a plain data structure: the API server ([`server`]), and everything of a cluster that acts by itself
//! ([`Cluster`]): scheduler, kubelets, volume binder, garbage collector.
//!
//! There is no clock, no thread and no I/O. Whoever drives a [`Cluster`] says what time it is; chance comes from one seed, so the same
//! calls in the same order give the same cluster. Controllers are no part of it: they are clients like any other.

pub mod agenda;
pub mod cluster;
pub mod containers;
mod image;
mod kubelet;
pub mod nodes;
pub mod placement;
pub mod room;
pub mod service;
pub mod volumes;

pub use flotilla_apiserver as server;

pub use agenda::Agenda;
pub use cluster::Cluster;
