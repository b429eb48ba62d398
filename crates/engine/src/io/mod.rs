//! The shell around the core: sockets, timers, signals. It decides nothing.

pub mod clock;
pub mod connection;
mod discovery;
pub mod fence;
mod http;
pub mod manager;
mod render;
mod requests;
pub mod snapshot;
mod watch;

pub use requests::request_of;
