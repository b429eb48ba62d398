//! Ideas that workload kinds share: each rule once.

pub mod adoption;
pub mod budget;
pub mod claim;
pub mod identity;
pub mod ordering;
pub mod revision;
