//! The requests of managers, carried out by the simulated API server: nothing is lost, late or refused but by the server's own rules.

use crate::server::{Actor, DeleteOptions, Server, Status, Stored, Told, refusal, wire_status};
use flotilla_engine::core::WatchEvent;
use flotilla_engine::core::lease::{LeaseCall, LeaseReply};
use flotilla_engine::core::request::{Answer, Call, Refusal};
use flotilla_engine::wire;
use flotilla_model::{Command, ObjectKey, PatchKind, Resource};
use std::time::Duration;

/// Carries a request out. `lease` is where the managers' lease is.
pub fn perform(server: &mut Server, actor: Actor, lease: &ObjectKey, call: &Call) -> Answer {
    match call {
        Call::Get { resource, key } => match server.get(*resource, key) {
            Some(stored) => answer(stored),
            None => refused(&refusal(404, "NotFound", format!("{resource} {} not found", key.name))),
        },
        Call::Write(Command::Create { resource, body, .. }) => result(server.create(actor, *resource, body.render())),
        Call::Write(Command::Try { pod }) => result(server.try_pod(actor, pod.render())),
        Call::Write(Command::Patch {
            resource,
            key,
            uid,
            subresource,
            kind,
            body,
            resource_version,
            ..
        }) => {
            let body = wire::body::patch(*kind, body.clone(), uid, *resource_version);
            let patch = (*kind, &body);
            result(match subresource {
                None => server.patch(actor, *resource, key, patch),
                Some(part) => server.patch_subresource(actor, ((*resource).into(), key), *part, patch),
            })
        }
        Call::Write(Command::Delete {
            resource,
            key,
            uid,
            resource_version,
            ..
        }) => {
            let options = DeleteOptions {
                uid: Some(uid.to_string()),
                resource_version: resource_version.map(|v| v.to_string()),
                ..DeleteOptions::default()
            };
            result(server.delete(actor, *resource, key, &options))
        }
        Call::Write(Command::Read { .. }) | Call::Event(_) => Answer::Success,
        Call::Status(patch) => {
            let body = wire::body::status_patch(patch);
            result(server.patch_status(actor, patch.resource, &patch.key, &body))
        }
        Call::Lease(call) => Answer::Lease(elect(server, actor, lease, call)),
    }
}

fn elect(server: &mut Server, actor: Actor, key: &ObjectKey, call: &LeaseCall) -> LeaseReply {
    let written = match call {
        LeaseCall::Get => match server.get(Resource::Leases, key) {
            Some(stored) => Ok(stored.clone()),
            None => return LeaseReply::Missing,
        },
        LeaseCall::Create(spec) => {
            let body = wire::lease::create_body(key, spec);
            server.create(actor, Resource::Leases, body)
        }
        LeaseCall::Update { resource_version, spec } => {
            let body = wire::lease::update_body(*resource_version, spec);
            server.patch(actor, Resource::Leases, key, (PatchKind::Merge, &body))
        }
    };
    match written {
        Ok(stored) => serde_json::to_vec(&*stored.value())
            .ok()
            .and_then(|bytes| wire::lease::read(&bytes).ok())
            .map_or(LeaseReply::Failed, LeaseReply::Found),
        Err(status) if status.code == 409 => LeaseReply::Conflict,
        Err(status) if status.code == 404 => LeaseReply::Missing,
        Err(_) => LeaseReply::Failed,
    }
}

/// What a watch tells of a change.
pub fn event_of(resource: Resource, told: Told) -> WatchEvent {
    match told {
        Told::Upsert(_, object) => WatchEvent::Upsert(object),
        Told::Deleted(version, key, uid) => WatchEvent::Deleted(resource, key, uid, version),
    }
}

/// A write as its answer.
pub fn result(result: Result<Stored, Status>) -> Answer {
    match result {
        Ok(stored) => answer(&stored),
        Err(status) => refused(&status),
    }
}

fn answer(stored: &Stored) -> Answer {
    stored.object.clone().map_or(Answer::Success, Answer::Object)
}

/// A refusal as an answer.
pub fn refused(status: &Status) -> Answer {
    let status = wire_status(status);
    let retry_after = (status.code == 429).then_some(Duration::from_secs(1));
    Answer::Refused(Refusal { status, retry_after })
}
