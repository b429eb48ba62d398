//! In which form the client wants its answer.

use super::route::Route;
use flotilla_apimachinery::status::Status;
use http::HeaderMap;
use http::header::ACCEPT;

/// A form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Objects as they are.
    Plain,
    /// Rows and columns, for people.
    Table,
    /// Only metadata.
    Metadata,
    /// All groups and resources at once.
    Discovery,
}

/// The first form that the client accepts and that there is. Protobuf is passed over: clients that ask for it name JSON as well.
pub(crate) fn parse(headers: &HeaderMap, route: &Route) -> Result<Form, Status> {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|v| v.to_str().ok());
    let accepts: Vec<&str> = accepts
        .flat_map(|v| v.split(','))
        .map(str::trim)
        .filter(|a| !a.is_empty())
        .collect();
    if accepts.is_empty() || matches!(route, Route::Plain(path) if !path.starts_with("/api")) {
        return Ok(Form::Plain);
    }
    let found = accepts
        .iter()
        .find_map(|accept| form_of(accept, matches!(route, Route::Plain(_))));
    found.ok_or_else(|| {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        Status {
            details: Some(serde_json::Map::new()),
            ..Status::new(406, "NotAcceptable", message)
        }
    })
}

fn form_of(accept: &str, is_discovery: bool) -> Option<Form> {
    let mut parts = accept.split(';').map(str::trim);
    if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let (mut kind, mut group, mut version) = ("", "", "");
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => kind = value,
            Some(("g", value)) => group = value,
            Some(("v", value)) => version = value,
            _ => {}
        }
    }
    match (kind, group, version) {
        ("", ..) => Some(Form::Plain),
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") if is_discovery => Some(Form::Discovery),
        ("Table", "meta.k8s.io", "v1") if !is_discovery => Some(Form::Table),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") if !is_discovery => {
            Some(Form::Metadata)
        }
        _ => None,
    }
}
