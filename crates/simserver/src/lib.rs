//! The simulated API server as an HTTP service.
//!
//! [`Service`] is a tower service: give it to `kube::Client::new` and a client talks to the simulation without a socket. [`serve`]
//! offers the same over HTTPS on loopback, with certificates made for the occasion, so that kubectl can use it. Whatever lives around
//! the API server (nodes, volumes, time) is a [`Host`].

mod clock;
mod host;
mod https;
mod service;
mod stream;

pub use clock::Clock;
pub use host::{Bare, Host, Shared};
pub use https::{Endpoint, ServeError, serve};
pub use service::Service;
