//! Selectors: which objects a list, watch or deletion is about, and which pods an object claims.

mod fields;
mod label;
mod parse;

pub use fields::FieldSelector;
pub use label::{LabelSelector, Operator, Requirement};
