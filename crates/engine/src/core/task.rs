//! What a pass wants sent, as requests.

use super::limiter;
use super::pass::Task;
use super::request::{Call, StatusPatch};
use flotilla_model::Command;
use std::sync::Arc;

/// What the limiter has to know of a task that changes something.
pub(super) fn written_to(task: &Task) -> Option<(&Arc<str>, limiter::Write)> {
    match task {
        Task::Read(..) | Task::Guard(_) => None,
        Task::Command(scoped) if matches!(scoped.command, Command::Read { .. }) => None,
        Task::Command(scoped) => Some((&scoped.command.key().namespace, limiter::Write::Command)),
        Task::Status(write) => Some((&write.key.namespace, limiter::Write::Status)),
    }
}

/// The request that carries a task out.
pub(super) fn call_of(task: Task) -> Option<Call> {
    Some(match task {
        Task::Read(resource, key) => Call::Get { resource, key },
        Task::Guard(guard) => Call::Get {
            resource: guard.resource,
            key: guard.key,
        },
        Task::Command(scoped) => match scoped.command {
            Command::Read { resource, key } => Call::Get { resource, key },
            command @ (Command::Create { .. }
            | Command::Patch { .. }
            | Command::Delete { .. }
            | Command::Try { .. }) => Call::Write(command),
        },
        Task::Status(write) => Call::Status(StatusPatch {
            status: write.diff()?,
            resource: write.resource,
            key: write.key,
            uid: write.uid,
            resource_version: write.resource_version,
        }),
    })
}
