//! Sending one request of the core and bringing back what came.

use crate::core::FIELD_MANAGER;
use crate::core::cache::Cache;
use crate::core::events::{EventCall, NewEvent};
use crate::core::lease::{LeaseCall, LeaseReply};
use crate::core::request::{Answer, Call, Refusal};
use crate::io::versions::Versions;
use crate::wire::lease::micro_time;
use crate::wire::status::Status;
use crate::wire::{self, Encoding, body};
use bytes::Bytes;
use flotilla_model::template::canonical;
use flotilla_model::{Command, ObjectKey, PatchKind, Resource, Subresource};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Method, Request, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use std::error::Error as StdError;
use std::time::Duration;

/// How long an answer may take. The API server itself gives up on a request after a minute.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A renewal that takes longer is no use: another try must fit before the deadline.
const LEASE_TIMEOUT: Duration = Duration::from_secs(4);

/// What came back, before it is read.
#[derive(Debug)]
pub(super) enum Raw {
    /// An HTTP answer.
    Http(StatusCode, HeaderMap, Bytes),
    /// It went out, and no answer came.
    Lost(String),
    /// It did not go out.
    NotSent(String),
    /// The lease was not held when it was to go out.
    Fenced,
}

/// Sends `call` and waits for the answer, not longer than its kind allows.
pub(super) async fn send(client: &kube::Client, (lease, versions): (&ObjectKey, &Versions), call: Call) -> Raw {
    let timeout = if matches!(call, Call::Lease(_)) {
        LEASE_TIMEOUT
    } else {
        TIMEOUT
    };
    let request = match build_in(versions, lease, call) {
        Ok(request) => request,
        Err(error) => return Raw::NotSent(format!("cannot build the request: {error}")),
    };
    match tokio::time::timeout(timeout, exchange(client, request)).await {
        Ok(raw) => raw,
        Err(_) => Raw::Lost(format!("no answer within {} s", timeout.as_secs())),
    }
}

async fn exchange(client: &kube::Client, request: Request<Body>) -> Raw {
    let response = match client.send(request).await {
        Ok(response) => response,
        Err(error) if was_not_sent(&error) => return Raw::NotSent(error.to_string()),
        Err(error) => return Raw::Lost(error.to_string()),
    };
    let (head, body) = response.into_parts();
    match body.collect_bytes().await {
        Ok(bytes) => Raw::Http(head.status, head.headers, bytes),
        Err(error) => Raw::Lost(error.to_string()),
    }
}

/// Whether an error proves that the server has not seen the request: there was no connection, or no credentials to send.
fn was_not_sent(error: &kube::Error) -> bool {
    if matches!(error, kube::Error::Auth(_)) {
        return true;
    }
    let mut source: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = source {
        if error
            .downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(hyper_util::client::legacy::Error::is_connect)
        {
            return true;
        }
        source = error.source();
    }
    false
}

/// Reads an answer in the light of what was asked and of what is known.
pub(super) fn read(call: Asked, raw: Raw, cache: &mut Cache) -> Answer {
    match raw {
        Raw::Fenced => Answer::Fenced,
        Raw::Lost(why) => Answer::Lost(why),
        Raw::NotSent(why) => Answer::NotSent(why),
        Raw::Http(code, headers, body) => {
            let encoding = encoding_of(&headers);
            match call {
                Asked::Lease => Answer::Lease(read_lease(code, &body)),
                _ if !code.is_success() => refused(code, &headers, encoding, &body),
                Asked::Event | Asked::Trial => Answer::Success,
                Asked::Object(resource) => match cache.read(resource, encoding, &body) {
                    Ok(object) => Answer::Object(object),
                    Err(_) if Status::of_success(encoding, &body).is_some() => Answer::Success,
                    Err(unreadable) => Answer::Unreadable(unreadable),
                },
                Asked::Delete(resource) => match Status::of_success(encoding, &body) {
                    Some(_) => Answer::Success,
                    None => cache
                        .read(resource, encoding, &body)
                        .map_or_else(Answer::Unreadable, Answer::Object),
                },
            }
        }
    }
}

/// What was asked, as far as reading the answer needs it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Lease,
    Event,
    Trial,
    Object(Resource),
    Delete(Resource),
}

impl Asked {
    pub(super) fn of(call: &Call) -> Asked {
        match call {
            Call::Lease(_) => Asked::Lease,
            Call::Event(_) => Asked::Event,
            Call::Write(Command::Delete { resource, .. }) => Asked::Delete(*resource),
            Call::Write(Command::Try { .. }) => Asked::Trial,
            Call::Write(_) | Call::Status(_) | Call::Get { .. } => Asked::Object(call.resource()),
        }
    }
}

pub(super) fn encoding_of(headers: &HeaderMap) -> Encoding {
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    Encoding::of_content_type(content_type)
}

fn read_lease(code: StatusCode, body: &Bytes) -> LeaseReply {
    match code {
        StatusCode::NOT_FOUND => LeaseReply::Missing,
        StatusCode::CONFLICT => LeaseReply::Conflict,
        code if code.is_success() => wire::lease::read(body).map_or(LeaseReply::Failed, LeaseReply::Found),
        _ => LeaseReply::Failed,
    }
}

fn refused(code: StatusCode, headers: &HeaderMap, encoding: Encoding, body: &Bytes) -> Answer {
    let status = Status::read(code.as_u16(), encoding, body);
    let header = headers.get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
    let in_body = status
        .details
        .as_ref()
        .map(|d| d.retry_after_seconds)
        .filter(|s| *s > 0);
    let seconds = header.or_else(|| in_body.and_then(|s| u64::try_from(s).ok()));
    Answer::Refused(Refusal {
        status,
        retry_after: seconds.map(Duration::from_secs),
    })
}

/// The request, in the version of the kind that the server has.
fn build_in(versions: &Versions, lease: &ObjectKey, call: Call) -> Result<Request<Body>, String> {
    let resource = call.resource();
    let call = match call {
        Call::Write(command) => Call::Write(versions.command(command)),
        other => other,
    };
    versions.request(resource, build(lease, call)?)
}

fn build(lease: &ObjectKey, call: Call) -> Result<Request<Body>, String> {
    let accept = Encoding::preferred(call.resource()).media_type();
    match call {
        Call::Get { resource, key } => request(Method::GET, resource.object_path(&key, None), accept, "", None),
        Call::Write(command) => command_request(command, accept),
        Call::Status(patch) => {
            let path = patch.resource.object_path(&patch.key, Some("status"));
            request(
                Method::PATCH,
                managed(path),
                accept,
                MERGE_PATCH,
                Some(&body::status_patch(&patch)),
            )
        }
        Call::Lease(LeaseCall::Get) => {
            request(Method::GET, Resource::Leases.object_path(lease, None), accept, "", None)
        }
        Call::Lease(LeaseCall::Create(spec)) => {
            let path = Resource::Leases.collection_path(Some(&lease.namespace));
            request(
                Method::POST,
                managed(path),
                accept,
                JSON,
                Some(&wire::lease::create_body(lease, &spec)),
            )
        }
        Call::Lease(LeaseCall::Update { resource_version, spec }) => {
            let path = Resource::Leases.object_path(lease, None);
            request(
                Method::PATCH,
                managed(path),
                accept,
                MERGE_PATCH,
                Some(&wire::lease::update_body(resource_version, &spec)),
            )
        }
        Call::Event(event) => event_request(&event, accept),
    }
}

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Our writes are recorded under one field manager.
fn managed(path: String) -> String {
    path + "?fieldManager=" + FIELD_MANAGER
}

fn request(
    method: Method,
    path: String,
    accept: &str,
    content_type: &str,
    body: Option<&Value>,
) -> Result<Request<Body>, String> {
    let mut builder = Request::builder().method(method).uri(path).header(ACCEPT, accept);
    if body.is_some() {
        builder = builder.header(CONTENT_TYPE, content_type);
    }
    // Go's spelling, since a revision's data is stored as it is sent, and Go managers compare it by its bytes (STS-1.1.2).
    let bytes = body.map(|body| canonical(body).into_bytes());
    builder
        .body(bytes.map_or_else(Body::empty, Body::from))
        .map_err(|e| e.to_string())
}

fn command_request(command: Command, accept: &str) -> Result<Request<Body>, String> {
    match command {
        Command::Create {
            resource, key, body, ..
        } => {
            let path = resource.collection_path(Some(&key.namespace));
            request(Method::POST, managed(path), accept, JSON, Some(&body.render()))
        }
        Command::Try { pod } => {
            let path = managed(Resource::Pods.collection_path(Some(&pod.key.namespace)));
            request(Method::POST, path + "&dryRun=All", accept, JSON, Some(&pod.render()))
        }
        Command::Patch {
            resource,
            key,
            uid,
            subresource,
            kind,
            body,
            resource_version,
            ..
        } => {
            let body = body::patch(kind, body, &uid, resource_version);
            request(
                Method::PATCH,
                managed(resource.object_path(&key, subresource.map(Subresource::name))),
                accept,
                patch_type(kind),
                Some(&body),
            )
        }
        Command::Delete {
            resource,
            key,
            uid,
            resource_version,
            ..
        } => {
            let body = body::delete_options(&uid, resource_version);
            request(
                Method::DELETE,
                resource.object_path(&key, None),
                accept,
                JSON,
                Some(&body),
            )
        }
        Command::Read { resource, key } => request(Method::GET, resource.object_path(&key, None), accept, "", None),
    }
}

/// The request that carries out a command, as the manager sends it.
///
/// # Errors
/// If the names in it do not make a path.
pub fn request_of(command: Command) -> Result<Request<Body>, String> {
    let accept = Encoding::preferred(command.resource()).media_type();
    command_request(command, accept)
}

fn patch_type(kind: PatchKind) -> &'static str {
    match kind {
        PatchKind::Merge => MERGE_PATCH,
        PatchKind::Strategic => "application/strategic-merge-patch+json",
        PatchKind::Json => "application/json-patch+json",
    }
}

fn event_request(call: &EventCall, accept: &str) -> Result<Request<Body>, String> {
    match call {
        EventCall::Create(event) => {
            let path = Resource::Events.collection_path(Some(event_namespace(&event.regarding.key)));
            request(Method::POST, managed(path), accept, JSON, Some(&event_body(event)))
        }
        EventCall::Repeat { key, count, at, note } => {
            let body = json!({ "series": { "count": count, "lastObservedTime": micro_time(*at) }, "note": note });
            let key = ObjectKey::new(event_namespace(key), key.name.clone());
            request(
                Method::PATCH,
                managed(Resource::Events.object_path(&key, None)),
                accept,
                MERGE_PATCH,
                Some(&body),
            )
        }
    }
}

/// Events about cluster-scoped objects live in the default namespace.
fn event_namespace(key: &ObjectKey) -> &str {
    if key.namespace.is_empty() {
        "default"
    } else {
        &key.namespace
    }
}

fn event_body(event: &NewEvent) -> Value {
    let regarding = &event.regarding;
    json!({
        "apiVersion": Resource::Events.api_version(),
        "kind": Resource::Events.kind(),
        "metadata": { "name": event.name, "namespace": event_namespace(&regarding.key) },
        "eventTime": micro_time(event.at),
        "reportingController": format!("{}-controller", regarding.resource.kind().to_lowercase()),
        "reportingInstance": FIELD_MANAGER,
        "action": event.note.reason,
        "reason": event.note.reason,
        "type": if event.note.warning { "Warning" } else { "Normal" },
        "note": event.note.message,
        "regarding": {
            "apiVersion": regarding.resource.api_version(),
            "kind": regarding.resource.kind(),
            "namespace": &*regarding.key.namespace,
            "name": regarding.key.name.as_str(),
            "uid": regarding.uid.to_string(),
        },
    })
}
