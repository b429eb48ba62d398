//! What controllers see and say.
//!
//! Records are what the watches leave of an API object: a few hundred bytes that decisions read ([`records`]). A controller
//! looks at them through a [`Reader`] and answers with a [`Decision`]: commands in stages, the status it wants, events, and a
//! reason for everything it waits for. Nothing here does I/O, reads a clock, or draws a random number.

pub mod containers_meta;
pub mod controller;
pub mod decision;
pub mod hints;
pub mod int_or_percent;
pub mod intern;
pub mod lines;
pub mod memo;
pub mod meta;
pub mod packed;
pub mod reader;
pub mod records;
pub mod resource;
pub mod selector;
pub mod set;
pub mod template;
pub mod time;
pub mod wait;
pub mod weight;

pub use controller::{Change, Controller, PassContext};
pub use decision::{
    Body, Command, Decision, EventNote, Guard, PatchKind, PodDraft, Report, Scope, ScopedCommand, Stage, StatusWrite,
    Subresource,
};
pub use hints::{Failure, Hints};
pub use int_or_percent::{IntOrPercent, Share};
pub use intern::Interner;
pub use lines::Lines;
pub use memo::Memo;
pub use meta::{Labels, Meta, ObjectKey, Owner, OwnerRef, Uid};
pub use packed::Packed;
pub use reader::Reader;
pub use records::{
    ClaimRecord, ClaimSizes, ConfigMapRecord, ImagePullJobRecord, NodeRecord, PodRecord, Record, RecordedClaims,
    RevisionRecord, StorageClassRecord,
};
pub use resource::Resource;
pub use selector::Selector;
pub use set::{SetKind, SetRecord};
pub use time::Timestamp;
pub use wait::{GoBack, Keeper, Refusal, Right, Wait, WaitCause, Whom};
