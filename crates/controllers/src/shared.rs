//! Ideas that workload kinds share: each rule once.

pub mod adoption;
pub mod budget;
pub mod claim;
pub mod identity;
pub mod inplace;
pub mod lifecycle;
pub mod ordering;
pub mod readiness;
pub mod revision;
