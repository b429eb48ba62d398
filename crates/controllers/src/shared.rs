//! Ideas that workload kinds share: each rule once.

pub mod adoption;
pub mod budget;
pub mod claim;
pub(crate) mod conditions;
pub(crate) mod course;
pub(crate) mod health;
pub mod identity;
pub mod inplace;
pub mod lifecycle;
pub(crate) mod moment;
pub(crate) mod occupant;
pub mod ordering;
pub(crate) mod origin;
pub(crate) mod pass;
pub(crate) mod pointer;
pub mod readiness;
pub(crate) mod renewal;
pub mod revision;
pub mod routing;
pub(crate) mod trial;
pub(crate) mod waits;
pub(crate) mod withheld;
