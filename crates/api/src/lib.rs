//! The kinds that Flotilla serves: their types, schemas and rules, and the well-known names around them. No behaviour.

pub mod common;
mod crd;
pub mod names;
pub mod statefulset;

pub use crd::{Rule, crds};
