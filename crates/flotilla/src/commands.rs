//! One file per verb.

pub mod agent;
pub mod crds;
pub mod install;
pub mod manager;
pub mod migrate;
pub mod plan;
pub mod playground;
pub mod rollout;
pub mod uninstall;
pub mod why;
