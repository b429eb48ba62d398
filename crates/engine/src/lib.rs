//! The one place with effects.
//!
//! [`core`] is the manager's logic, as plain data structures with time as an argument; [`wire`] turns bytes of the Kubernetes API
//! into records; `io` is the thin shell of watches, requests, signals and HTTP around them, behind a feature of this name;
//! `io::manager::run` is all of it together.

pub mod core;
#[cfg(feature = "io")]
pub mod io;
pub mod wire;
