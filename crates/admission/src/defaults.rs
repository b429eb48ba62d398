//! What is filled in where the author of an object said nothing (STS-7.2): a table for each kind, and pod templates, which kinds share.
//!
//! The controllers read absent fields as the same defaults, since objects may have been stored while nobody filled them in.

mod cloneset;
mod statefulset;
mod table;
mod template;
mod workload;

pub(crate) use template::fill_claim;
pub(crate) use workload::workload;
