//! The seeded simulator of faults.
//!
//! From one seed comes a schedule: a set, a rollout, what users do, and which faults strike when ([`schedule`]). A run ([`run()`])
//! lets the manager's own code ([`flotilla_engine::core::Core`] with the real controllers) act on a simulated cluster in virtual
//! time, single-threaded, and judges every decision and every write. When faults have ended, the set must come to be as it asks
//! to be, and then nobody may write any more. The same seed gives the same run, event by event.

pub mod asks;
pub mod claim_labels;
mod claim_templates;
mod clocks;
pub mod clones;
pub mod containers;
mod deadline;
pub mod defect;
mod deferrals;
pub mod environment;
mod event;
pub mod huge;
mod in_course;
pub mod in_place;
pub mod judge;
mod kept_ready;
mod managers;
mod network;
pub mod notes;
mod refusals;
pub mod resizes;
mod run;
pub mod schedule;
pub mod search;
mod spy;
pub mod storage;
mod strike;
pub mod stubborn;
pub mod switches;
pub mod takers;
mod tenants;
pub mod theirs;
mod trace;
pub mod unordered;
mod users;
mod webhook;
mod why;
mod words;

pub use judge::Violation;
pub use run::{Options, Outcome, run};
pub use schedule::{Schedule, Wanted};
