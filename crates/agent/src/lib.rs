//! What the agent of a node decides.
//!
//! The kubelet starts a container with the labels and annotations that the pod has at that moment, and never looks at them again. So that
//! an update in place can change them, somebody on the node has to know which environment a container really has, to restart it where that
//! is not what the pod says, and to tell the controllers (AGT-8.1). Here is what that takes, without a runtime and without a clock: from a
//! [`Pod`] and from what the runtime told of its containers ([`Told`]), [`decide`] makes a [`Decision`]. Whoever carries it out is
//! `flotilla-node`.

mod decide;
pub mod environment;
mod memory;
mod pod;
mod relevance;
pub mod stopping;
mod told;

pub use decide::{Asked, Decision, Hold, Reason, Restart, View, decide};
pub use memory::{Memory, RESTARTS_MAX};
pub use pod::{Container, Pod};
pub use relevance::{Seen, is_relevant};
pub use told::{State, Told, newest};

#[cfg(test)]
mod tests;
