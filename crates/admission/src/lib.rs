//! What happens to a request before it is stored.
//!
//! Pure functions from a [`Request`] and what the process knows ([`Memory`]) to a [`Reply`]. The server that calls them is
//! `flotilla-webhook`. Objects are the JSON received; a reply holds the changes to it and nothing else, so that fields which this
//! version has never heard of survive.

mod admit;
mod convert;
mod defaults;
mod json;
mod memory;
mod patch;
mod pods;
mod protection;
mod request;
mod scope;
mod switches;
mod validation;

pub use admit::{convert, mutate, mutate_pod, protect, validate};
pub use memory::{Counted, CustomResource, Found, Memory, NamedPod, Nothing, RevisionInUse, StorageAsked};
pub use patch::{apply, difference};
pub use request::{Operation, Refusal, Reply, Request, Verdict};
