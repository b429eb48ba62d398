//! The shell around the core: sockets, timers, signals. It decides nothing.

pub mod clock;
pub mod connection;
mod discovery;
pub mod fence;
pub mod http;
pub mod listen;
pub mod manager;
pub mod patience;
mod render;
mod requests;
pub mod snapshot;
pub mod versions;
pub mod watch;

pub use requests::request_of;
