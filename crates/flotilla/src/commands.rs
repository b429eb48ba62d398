//! One file per verb.

pub mod crds;
pub mod manager;
pub mod plan;
pub mod playground;
pub mod rollout;
pub mod why;
