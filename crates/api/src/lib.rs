//! The kinds that Flotilla serves: their types, schemas and rules, and the well-known names around them. No behaviour.

pub mod names;
