//! The shell around the core: sockets, timers, signals. It decides nothing.

pub mod clock;
mod http;
mod manager;
mod options;
mod render;
mod requests;
mod snapshot;
mod watch;

pub use manager::{Error, run};
pub use options::Options;
pub use snapshot::{SnapshotError, snapshot};
