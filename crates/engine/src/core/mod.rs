//! The logic of the manager: plain data structures with time as an argument.

pub mod cache;
pub mod lease;
pub mod limiter;
pub mod queue;
pub mod store;
#[cfg(test)]
pub(crate) mod testing;
