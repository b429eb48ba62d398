//! The HTTP face: one request in, one answer or a watch out.

mod apply;
mod body;
mod delete;
mod discovery;
mod events;
mod negotiate;
mod protobuf;
mod query;
mod read;
mod review;
mod route;
mod subresource;
mod table;
mod watch;
mod write;

pub use watch::Watch;

use crate::store::{Server, Stored};
use crate::types::TypeInfo;
use bytes::Bytes;
use flotilla_apimachinery::status::Status;
use flotilla_apimachinery::{openapi, schema};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use negotiate::Form;
use query::Query;
use route::{Route, Target};
use serde_json::Value;
use std::cell::RefCell;
use std::sync::LazyLock;

/// What comes of a request.
#[derive(Debug)]
pub enum Reply {
    /// This.
    Answer(Response<Bytes>),
    /// A stream of events; see [`Watch::poll`].
    Watch(Box<Watch>),
}

/// A request, taken apart.
pub(crate) struct Asked<'r> {
    pub(crate) method: &'r Method,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) query: Query,
    pub(crate) form: Form,
    pub(crate) body: &'r Bytes,
    /// What the client is to be told, whether it is granted or refused.
    pub(crate) warnings: &'r RefCell<Vec<String>>,
}

/// What is answered when all goes well.
pub(crate) struct Good {
    pub(crate) code: u16,
    pub(crate) body: String,
    pub(crate) content_type: &'static str,
}

impl Good {
    pub(crate) fn json(code: u16, body: impl Into<String>) -> Self {
        Good {
            code,
            body: body.into(),
            content_type: "application/json",
        }
    }

    pub(crate) fn text(body: impl Into<String>) -> Self {
        Good {
            content_type: "text/plain",
            ..Good::json(200, body)
        }
    }
}

/// How a request ends.
pub(crate) enum Outcome {
    Good(Good),
    Watch(Box<Watch>),
}

impl From<Good> for Outcome {
    fn from(good: Good) -> Self {
        Outcome::Good(good)
    }
}

/// Answers a request.
pub fn handle(server: &mut Server, request: &Request<Bytes>) -> Reply {
    let warnings = RefCell::default();
    let mut response = match serve(server, request, &warnings) {
        Ok(Outcome::Watch(watch)) => return Reply::Watch(watch),
        Ok(Outcome::Good(good)) => good_response(good),
        Err(status) => refusal_response(&status),
    };
    for warning in warnings.into_inner() {
        let text = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().append(WARNING, value);
        }
    }
    Reply::Answer(response)
}

fn serve(server: &mut Server, request: &Request<Bytes>, warnings: &RefCell<Vec<String>>) -> Result<Outcome, Status> {
    let route = route::parse(server, request.uri().path())?;
    let asked = Asked {
        method: request.method(),
        headers: request.headers(),
        query: Query::parse(request.uri().query().unwrap_or_default()),
        form: negotiate::parse(request.headers(), &route)?,
        body: request.body(),
        warnings,
    };
    match route {
        Route::Plain(path) => discovery::serve(server, &asked, &path).map(Outcome::from),
        Route::Resource(target) => dispatch(server, &asked, &target),
    }
}

fn dispatch(server: &mut Server, asked: &Asked<'_>, target: &Target) -> Result<Outcome, Status> {
    if !target.info.is_stored() {
        return review::serve(server, asked, target).map(Outcome::from);
    }
    if target.subresource.is_some() {
        return subresource::serve(server, asked, target).map(Outcome::from);
    }
    let is_one = target.name.is_some();
    match (asked.method, is_one) {
        (&Method::GET | &Method::HEAD, _) if target.is_watch || (!is_one && asked.query.is_true("watch")) => {
            watch::open(server, asked, target).map(|watch| Outcome::Watch(Box::new(watch)))
        }
        (&Method::GET | &Method::HEAD, true) => read::get(server, asked, target).map(Outcome::from),
        (&Method::GET | &Method::HEAD, false) => read::list(server, asked, target).map(Outcome::from),
        (&Method::POST, false) if target.can_create() => write::create(server, asked, target).map(Outcome::from),
        (&Method::PUT, true) => write::update(server, asked, target).map(Outcome::from),
        (&Method::PATCH, true) => write::patch(server, asked, target).map(Outcome::from),
        (&Method::DELETE, true) => delete::one(server, asked, target).map(Outcome::from),
        (&Method::DELETE, false) if target.can_delete_collection() => {
            delete::collection(server, asked, target).map(Outcome::from)
        }
        _ => Err(not_allowed()),
    }
}

/// 405, as the real server says it.
pub(crate) fn not_allowed() -> Status {
    let message = "the server does not allow this method on the requested resource";
    Status {
        details: Some(serde_json::Map::new()),
        ..Status::new(405, "MethodNotAllowed", message)
    }
}

/// 501, by name.
pub(crate) fn not_supported(what: &str) -> Status {
    let message = format!("the simulated API server does not support {what}");
    Status::new(501, "NotImplemented", message)
}

/// The text of an object with its kind.
pub(crate) fn typed(info: &TypeInfo, text: &str) -> String {
    let inner = text.strip_prefix('{').unwrap_or(text);
    let comma = if inner.starts_with('}') { "" } else { "," };
    format!(
        r#"{{"apiVersion":"{}","kind":"{}"{comma}{inner}"#,
        info.api_version(),
        info.kind
    )
}

/// An object as this version of its kind shows it, with its kind.
pub(crate) fn shown(info: &TypeInfo, stored: &Stored) -> String {
    if events::is_view(info) {
        return typed(info, &events::to_view(&stored.value()).to_string());
    }
    typed(info, &stored.text())
}

/// The same as a value.
pub(crate) fn shown_value(info: &TypeInfo, stored: &Stored) -> Value {
    let mut value = if events::is_view(info) {
        events::to_view(&stored.value())
    } else {
        stored.to_value()
    };
    set_type(info, &mut value);
    value
}

pub(crate) fn set_type(info: &TypeInfo, value: &mut Value) {
    value["apiVersion"] = Value::from(info.api_version());
    value["kind"] = Value::from(info.kind.as_str());
}

fn good_response(good: Good) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(good.body));
    *response.status_mut() = StatusCode::from_u16(good.code).unwrap_or(StatusCode::OK);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(good.content_type));
    response
}

fn refusal_response(status: &Status) -> Response<Bytes> {
    if status.code == 404 && status.reason.is_empty() {
        return good_response(Good {
            code: 404,
            ..Good::text(status.message.clone())
        });
    }
    let mut response = Response::new(Bytes::from(status.to_json().to_string()));
    *response.status_mut() = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = status
        .details
        .as_ref()
        .and_then(|d| d.get("retryAfterSeconds"))
        .and_then(Value::as_u64)
    {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Types of the built-in kinds, read once a process: simulations make a server for each of thousands of schedules.
pub(crate) fn builtin_schemas() -> &'static schema::Types {
    // What is embedded was read when it was made; types that cannot be read leave objects unchecked.
    static TYPES: LazyLock<schema::Types> = LazyLock::new(|| openapi::Builtin::load().types().unwrap_or_default());
    &TYPES
}

pub(crate) use events::fill as fill_event;
