//! The one place with effects.
pub mod core;
pub mod wire;
