//! What the suites share: a cluster, the manager as a process, and waiting by watches.
//!
//! Nothing here waits by the clock for something to have happened: [`api::Api::until`] follows a watch, and a deadline only bounds it.

pub mod api;
pub mod audit;
pub mod balancer;
pub mod clock;
pub mod clones;
pub mod denier;
pub mod jobs;
pub mod manager;
pub mod metrics;
pub mod playground;
pub mod proxy;
pub mod real;
pub mod sets;
pub mod stuck;
pub mod suite;
pub mod webhooks;
pub mod why;

pub use api::Api;
pub use manager::Manager;
pub use playground::Playground;
pub use proxy::Proxy;
pub use sets::Kind;
