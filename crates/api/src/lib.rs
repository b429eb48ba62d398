//! The kinds that Flotilla serves: their types, schemas and rules, and the well-known names around them. No behaviour.

pub mod cloneset;
pub mod common;
mod crd;
pub mod messages;
pub mod names;
pub mod registration;
mod rules;
pub mod statefulset;
pub mod workload;

pub use crd::{Address, CONVERT_PATH, Converter, Rule, crds, crds_with_conversion, set_conversion};
