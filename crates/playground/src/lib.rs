//! The cluster of `flotilla playground`.
//!
//! [`World`] is the simulated API server with nodes, a scheduler, a volume binder and what controllers of the control plane do. Its pods
//! behave as their annotations `sim.flotilla.rs/…` say, the same ones as on the project's local clusters, and their status has
//! everything in it that `kubectl` shows. No time passes in it but what its driver gives it.

mod events;
mod kubelet;
mod saved;
mod stock;
mod trouble;
mod volumes;
mod world;

pub use saved::{LoadError, Saved};
pub use trouble::{Trouble, TroubleError};
pub use world::World;
