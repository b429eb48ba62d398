//! The agent of a node: its pods watched, its runtime asked, and what `flotilla-agent` decided carried out.
//!
//! A crate of its own beside the engine, as the webhooks are: a manager has no runtime to ask, and what simulates and plans is built on
//! the engine and should not build a client for one. From the engine come the watch, the connection and the HTTP side.
//!
//! [`cri`] is all that can be asked of a runtime; `runtimes` finds runtimes and follows their health; `look` is one look at one pod,
//! `stop` the end of one container; `agent` owns what is known, and starts these.

mod agent;
mod api;
pub mod cri;
mod events;
mod http_hook;
mod look;
mod metrics;
mod runtimes;
mod stop;
mod wire;

pub use agent::{Error, Options, run};
pub use runtimes::endpoints;
