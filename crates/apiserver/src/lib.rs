//! The simulated API server.
//!
//! [`Server`] is storage with versions, history and the verbs; simulations call it directly, in their own time. [`handle`] is its HTTP
//! face: a request in, an answer or a [`Watch`] out. Nothing here waits, reads a clock or opens a socket: whoever drives it sets
//! [`Server::now`].
//!
//! What the face answers is held to what the real API server answers by the scripts of `flotilla-conformance`. What it does not
//! support it refuses by name.

pub mod face;
mod rules;
mod store;
mod tend;
pub mod types;

pub use face::{Reply, Watch, handle};
pub use flotilla_apimachinery::status::Status;
pub use rules::base64;
pub use store::{
    Absent, AbsentKind, Actor, Admission, Change, DeleteOptions, Entry, Foreign, Gone, Propagation, RevisionLabel,
    Server, StoreId, Stored, Told, Volumes, refusal, wire_status,
};
pub use tend::Caretaker;
