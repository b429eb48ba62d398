//! The deciding: pure functions from what is seen to what is wanted.
//!
//! One folder per workload kind, each with the same inner names: `view` (what it looks at), `decide` (the steps, in the order in
//! which they matter), `status`. Ideas that kinds share stand once, in [`shared`]. Nothing here knows a client, a clock, a log or
//! a random number; a check on the dependencies of this crate keeps it so.

pub mod cloneset;
pub mod launch;
pub mod predownload;
pub mod shared;
pub mod statefulset;

pub use shared::conditions::{failed_creation, failed_update};
pub use shared::health::wait_of_pod;

use flotilla_model::{Controller, SetKind};

/// The controller of sets of this kind, in a manager that decides so for all CloneSets.
pub fn of_kind(kind: SetKind, clones: cloneset::Defaults) -> Box<dyn Controller> {
    match kind {
        SetKind::Native | SetKind::Advanced => Box::new(statefulset::StatefulSetController::new(kind)),
        SetKind::Clone => Box::new(cloneset::CloneSetController::new(clones)),
    }
}

#[cfg(test)]
mod proportion;
#[cfg(test)]
mod testing;
