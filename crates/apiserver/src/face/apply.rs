//! Server-side apply.

use super::route::Target;
use super::write::{self, BY};
use super::{Asked, Good, body, events, not_supported, set_type};
use crate::rules::{self, Write};
use crate::store::{Part, Server};
use flotilla_apimachinery::apply::{Writer, apply};
use flotilla_apimachinery::field;
use flotilla_apimachinery::status::{Qualified, Status};
use serde_json::Value;

pub(super) fn serve(server: &mut Server, asked: &Asked<'_>, target: &Target, part: Part) -> Result<Good, Status> {
    let info = target.info.clone();
    if events::is_view(&info) {
        return Err(not_supported("server-side apply of events"));
    }
    let manager = asked.query.get("fieldManager").ok_or_else(|| {
        let error = field::Error::required("fieldManager", "is required for apply patch");
        Status::invalid(&Qualified::new("meta.k8s.io", "PatchOptions"), "", &[error])
    })?;
    let mut config = body::from_yaml(asked.body)?;
    if config["metadata"].get("managedFields").is_none() {
        write::check_name(target, &mut config)?;
    }
    if config.get("apiVersion").is_none() && config.get("kind").is_none() {
        return Err(Status::bad_request("invalid object type: /, Kind="));
    }
    server.schemas();
    let time = server.time();
    let version = info.api_version();
    let subresource = target.subresource.clone().unwrap_or_default();
    let writer = Writer {
        manager,
        version: &version,
        subresource: &subresource,
        ignored: rules::ignored(&info, target.subresource.as_deref()),
        now: time.as_str().unwrap_or_default(),
    };
    let merged = |server: &Server, live: Option<&Value>| {
        let schemas = server.known_schemas();
        let schema = schemas.kind(&info.group, &info.version, &info.kind);
        let schema = schema.ok_or_else(|| not_supported(&format!("server-side apply of {}", info.plural)))?;
        apply(live, &config, schema, &writer, asked.query.is_true("force"))
    };
    let is_dry_run = asked.query.is_dry_run()?;
    if server.get(info.store, &target.key()).is_none() && part == Part::Main {
        let name = target.name.as_deref().unwrap_or_default();
        write::require_namespace(server, target, name)?;
        if let Some(uid) = config["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(&info.resource(), name, &why));
        }
        let object = merged(server, None)?;
        let stored = server.create_by((BY, is_dry_run), info.store, object, &mut |server, _, value| {
            let write = Write::apply(&info, manager, &time, true, None);
            rules::finish(server, &write, None, value)
        })?;
        return write::answer(server, asked, &info, 201, &stored);
    }
    let mut make = |server: &Server, old: &Value| {
        let mut live = old.clone();
        set_type(&info, &mut live);
        merged(server, Some(&live))
    };
    let by = ((BY, "patch"), is_dry_run);
    let stored = server.change_by(
        by,
        (info.store, &target.key()),
        part,
        &mut make,
        &mut |server, old, new| {
            let write = Write::apply(&info, manager, &time, false, target.subresource.as_deref());
            rules::finish(server, &write, old, new)
        },
    )?;
    write::answer(server, asked, &info, 200, &stored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_manager_is_required() {
        let mut server = Server::new();
        let request = http::Request::patch("/api/v1/namespaces/a/configmaps/c")
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(json!({"apiVersion": "v1", "kind": "ConfigMap"}).to_string().into())
            .unwrap();
        let crate::Reply::Answer(answer) = crate::handle(&mut server, &request) else {
            panic!("a watch")
        };
        assert_eq!(answer.status(), 422);
    }
}
