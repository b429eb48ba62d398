//! One file per verb.

pub mod crds;
pub mod manager;
pub mod rollout;
pub mod why;
