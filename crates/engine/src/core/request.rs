//! What goes out to the API server and what comes back.

use super::events::EventCall;
use super::lease::{LeaseCall, LeaseReply};
use crate::wire::status::Status;
use crate::wire::{Object, Unreadable};
use flotilla_model::{Command, ObjectKey, Resource, Uid};
use serde_json::Value;
use std::time::Duration;

/// Names a request until its answer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request that the shell is to send.
#[derive(Clone, Debug)]
pub struct Request {
    /// Give it back with the answer.
    pub id: RequestId,
    /// What to ask.
    pub call: Call,
}

/// What is asked of the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// A command of a decision that creates, changes or deletes.
    Write(Command),
    /// A merge patch of a status subresource.
    Status(StatusPatch),
    /// Read one object, as it is now.
    Get {
        /// Of which resource.
        resource: Resource,
        /// Which.
        key: ObjectKey,
    },
    /// Leader election.
    Lease(LeaseCall),
    /// Tell users something.
    Event(EventCall),
}

impl Call {
    /// Whether it may only be sent while the lease is held (R-6: events and the lease itself are exempt).
    pub fn needs_lease(&self) -> bool {
        matches!(self, Call::Write(_) | Call::Status(_))
    }

    /// The resource it is about.
    pub fn resource(&self) -> Resource {
        match self {
            Call::Write(command) => command.resource(),
            Call::Status(patch) => patch.resource,
            Call::Get { resource, .. } => *resource,
            Call::Lease(_) => Resource::Leases,
            Call::Event(_) => Resource::Events,
        }
    }

    /// The verb, for metrics.
    pub fn verb(&self) -> &'static str {
        match self {
            Call::Write(Command::Create { .. } | Command::Try { .. })
            | Call::Lease(LeaseCall::Create(_))
            | Call::Event(EventCall::Create(_)) => "create",
            Call::Write(Command::Patch { .. })
            | Call::Status(_)
            | Call::Lease(LeaseCall::Update { .. })
            | Call::Event(EventCall::Repeat { .. }) => "patch",
            Call::Write(Command::Delete { .. }) => "delete",
            Call::Write(Command::Read { .. }) | Call::Get { .. } | Call::Lease(LeaseCall::Get) => "get",
        }
    }
}

/// A status to write, if the object is still at this version.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusPatch {
    /// Of which resource.
    pub resource: Resource,
    /// Which object.
    pub key: ObjectKey,
    /// Which incarnation.
    pub uid: Uid,
    /// The version the status was computed from.
    pub resource_version: u64,
    /// The fields of `status` that change.
    pub status: Value,
}

/// What came back.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Success, with the object as it is now; after a delete, as it was left.
    Object(Object),
    /// Success without an object of ours in it.
    Success,
    /// Success, but what came back could not be read.
    Unreadable(Unreadable),
    /// The server said no.
    Refused(Refusal),
    /// The request went out and no answer came: it may have had its effect.
    Lost(String),
    /// The request did not reach the server.
    NotSent(String),
    /// Not sent because the lease was not held at that moment.
    Fenced,
    /// The answer to a [`Call::Lease`].
    Lease(LeaseReply),
}

/// How the server said no.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The HTTP status code and what the body says.
    pub status: Status,
    /// The header `Retry-After`, or the same in the body.
    pub retry_after: Option<Duration>,
}
