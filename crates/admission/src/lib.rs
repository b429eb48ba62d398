//! What happens to a request before it is stored.
//!
//! Pure functions from a request and what the process knows to a [`Reply`]. The server that calls them is `flotilla-webhook`.

mod request;

pub use request::{Operation, Refusal, Reply, Request, Verdict};
