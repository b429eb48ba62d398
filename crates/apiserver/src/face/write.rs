//! POST, PUT and PATCH.

use super::route::Target;
use super::{Asked, Good, body, events, not_allowed, read, set_type};
use crate::rules::{self, Write};
use crate::store::{Actor, Part, Server, Stored};
use crate::types::TypeInfo;
use flotilla_apimachinery::patch::{json_patch, merge_patch, strategic_merge_patch};
use flotilla_apimachinery::schema::{self, Unknown};
use flotilla_apimachinery::status::Status;
use flotilla_model::ObjectKey;
use serde_json::{Value, json};
use std::cell::RefCell;

/// Who writes through the face.
pub(super) const BY: Actor = Actor::User;

/// How unknown fields are met, and what the client is told of them.
struct Strictness<'r> {
    unknown: Unknown,
    warnings: &'r RefCell<Vec<String>>,
}

impl<'r> Strictness<'r> {
    fn of(asked: &Asked<'r>) -> Result<Self, Status> {
        let given = asked.query.get("fieldValidation");
        let unknown = Unknown::parse(given).ok_or_else(|| {
            let given = given.unwrap_or_default();
            super::query::invalid_option("fieldValidation", json!(given), &["", "Ignore", "Strict", "Warn"])
        })?;
        Ok(Strictness {
            unknown,
            warnings: asked.warnings,
        })
    }

    /// Meets what was found.
    fn meet(&self, info: &TypeInfo, found: Vec<String>) -> Result<(), Status> {
        if found.is_empty() {
            return Ok(());
        }
        match self.unknown {
            Unknown::Ignore => {}
            Unknown::Warn => self.warnings.borrow_mut().extend(found),
            Unknown::Strict => {
                let list = found.join(", ");
                let (kind, version) = (&info.kind, &info.version);
                return Err(Status::bad_request(format!(
                    "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {list}"
                )));
            }
        }
        Ok(())
    }
}

pub(super) fn create(server: &mut Server, asked: &Asked<'_>, target: &Target) -> Result<Good, Status> {
    let info = target.info.clone();
    let strictness = Strictness::of(asked)?;
    let is_dry_run = asked.query.is_dry_run()?;
    let mut object = decode(server, asked, &info, &strictness)?;
    check_namespace(target, &mut object)?;
    require_namespace(server, target, object["metadata"]["name"].as_str().unwrap_or_default())?;
    if object
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
        .is_some_and(|v| !v.is_empty())
    {
        return Err(Status::new(
            500,
            "",
            "resourceVersion should not be set on objects to be created",
        ));
    }
    if events::is_view(&info) {
        object = events::from_view(&object);
    }
    let manager = manager(asked);
    let now = server.time();
    let stored = server.create_by((BY, is_dry_run), info.store, object, &mut |server, _, value| {
        let write = Write::create(&info, &manager, &now);
        rules::finish(server, &write, None, value)
    })?;
    after(server, &info, &stored, is_dry_run);
    answer(server, asked, &info, 201, &stored)
}

/// The body as an object of the kind, without fields that nobody knows.
fn decode(
    server: &mut Server,
    asked: &Asked<'_>,
    info: &TypeInfo,
    strictness: &Strictness<'_>,
) -> Result<Value, Status> {
    let mut object = body::read(asked)?;
    body::check_kind(info, &mut object)?;
    let mut found = Vec::new();
    if strictness.unknown != Unknown::Ignore && body::content_type(asked) == "application/json" {
        let doubled = body::doubled_fields(asked.body);
        found.extend(doubled.into_iter().map(|path| format!("duplicate field \"{path}\"")));
    }
    found.extend(clean(server, info, &mut object)?);
    strictness.meet(info, found)?;
    Ok(object)
}

/// Drops fields that are not declared, and says which; refuses values of the wrong type.
fn clean(server: &mut Server, info: &TypeInfo, object: &mut Value) -> Result<Vec<String>, Status> {
    let schemas = server.schemas();
    let Some(schema) = schemas.kind(&info.group, &info.version, &info.kind) else {
        return Ok(Vec::new());
    };
    let found = schema::unknown_fields(object, schema);
    schema::drop_unknown(object, schema);
    schema::drop_nulls(object, Some(schema));
    rules::check_types(info, object, schema)?;
    Ok(found)
}

pub(super) fn update(server: &mut Server, asked: &Asked<'_>, target: &Target) -> Result<Good, Status> {
    let info = target.info.clone();
    let strictness = Strictness::of(asked)?;
    let mut object = decode(server, asked, &info, &strictness)?;
    check_name(target, &mut object)?;
    check_namespace(target, &mut object)?;
    require_version(server, target, &object)?;
    if events::is_view(&info) {
        object = events::from_view(&object);
    }
    let mut object = Some(object);
    let stored = change(server, asked, target, Part::Main, "update", &mut |_, _| {
        Ok(object.take().unwrap_or_default())
    })?;
    answer(server, asked, &info, 200, &stored)
}

/// Custom resources are only replaced by those who say which version they have seen.
fn require_version(server: &Server, target: &Target, object: &Value) -> Result<(), Status> {
    let info = &target.info;
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if info.custom.is_none() || !version.is_empty() {
        return Ok(());
    }
    server.require(info.store, &target.key())?;
    let error = flotilla_apimachinery::field::Error::invalid(
        "metadata.resourceVersion",
        json!(0),
        "must be specified for an update",
    );
    Err(Status::invalid(
        &info.resource(),
        target.name.as_deref().unwrap_or_default(),
        &[error],
    ))
}

/// Replaces a part of an object.
pub(super) fn update_part(server: &mut Server, asked: &Asked<'_>, target: &Target, part: Part) -> Result<Good, Status> {
    let info = target.info.clone();
    let strictness = Strictness::of(asked)?;
    let mut object = decode(server, asked, &info, &strictness)?;
    check_name(target, &mut object)?;
    check_namespace(target, &mut object)?;
    require_version(server, target, &object)?;
    let (field, verb) = match part {
        Part::Resize => ("spec", "resize"),
        Part::Status | Part::Main | Part::All => ("status", "status"),
    };
    let stored = change(server, asked, target, part, verb, &mut |_, old| {
        let mut new = old.clone();
        new[field] = object[field].clone();
        new["metadata"] = object["metadata"].clone();
        Ok(new)
    })?;
    answer(server, asked, &info, 200, &stored)
}

/// Changes the object that `target` names. `make` gets and gives it with its kind.
pub(super) fn change(
    server: &mut Server,
    asked: &Asked<'_>,
    target: &Target,
    part: Part,
    verb: &'static str,
    make: &mut dyn FnMut(&Server, &Value) -> Result<Value, Status>,
) -> Result<Stored, Status> {
    let info = target.info.clone();
    let is_dry_run = asked.query.is_dry_run()?;
    let manager = manager(asked);
    let now = server.time();
    let subresource = target.subresource.clone();
    let mut make_typed = |server: &Server, old: &Value| {
        let mut old = old.clone();
        set_type(&info, &mut old);
        make(server, &old)
    };
    let by = ((BY, verb), is_dry_run);
    let stored = server.change_by(
        by,
        (info.store, &target.key()),
        part,
        &mut make_typed,
        &mut |server, old, new| {
            let write = Write::change(&info, &manager, &now, subresource.as_deref());
            rules::finish(server, &write, old, new)
        },
    )?;
    after(server, &info, &stored, is_dry_run);
    Ok(stored)
}

pub(super) fn patch(server: &mut Server, asked: &Asked<'_>, target: &Target) -> Result<Good, Status> {
    patch_part(server, asked, target, Part::Main)
}

/// Patches an object or its status.
pub(super) fn patch_part(server: &mut Server, asked: &Asked<'_>, target: &Target, part: Part) -> Result<Good, Status> {
    let info = target.info.clone();
    let strictness = Strictness::of(asked)?;
    let kind = PatchType::of(asked, &info)?;
    if kind == PatchType::Apply {
        return super::apply::serve(server, asked, target, part);
    }
    if asked.query.is_true("force") {
        let fault = flotilla_apimachinery::field::Fault::Forbidden;
        let why = "may not be specified for non-apply patch";
        let error = flotilla_apimachinery::field::Error::without_value(fault, "force", why);
        let kind = flotilla_apimachinery::status::Qualified::new("meta.k8s.io", "PatchOptions");
        return Err(Status::invalid(&kind, "", &[error]));
    }
    // Its types are read before the object is looked at, so that both can be borrowed.
    server.schemas();
    let body = asked.body.clone();
    let mut unknown = Vec::new();
    let stored = change(server, asked, target, part, "patch", &mut |server, old| {
        let old = if events::is_view(&info) {
            events::to_view(old)
        } else {
            old.clone()
        };
        let mut new = kind.apply(server, &info, &old, &body)?;
        check_name(target, &mut new)?;
        if let Some(schema) = server.known_schemas().kind(&info.group, &info.version, &info.kind) {
            unknown = schema::unknown_fields(&new, schema);
            schema::drop_unknown(&mut new, schema);
            schema::drop_nulls(&mut new, Some(schema));
            let wrong = schema::mistyped(&new, schema).filter(|_| info.custom.is_none());
            if let Some(why) = wrong {
                return Err(undecodable(&new, &why));
            }
        }
        if strictness.unknown == Unknown::Strict && !unknown.is_empty() && info.custom.is_none() {
            return Err(undecodable(
                &new,
                &format!("strict decoding error: {}", unknown.join(", ")),
            ));
        }
        strictness.meet(&info, std::mem::take(&mut unknown))?;
        Ok(if events::is_view(&info) {
            events::from_view(&new)
        } else {
            new
        })
    })?;
    answer(server, asked, &info, 200, &stored)
}

/// What a patch made cannot be read.
fn undecodable(object: &Value, why: &str) -> Status {
    let error = flotilla_apimachinery::field::Error::invalid("patch", json!(object.to_string()), why);
    Status::invalid(&flotilla_apimachinery::status::Qualified::new("", ""), "", &[error])
}

/// The languages of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    fn of(asked: &Asked<'_>, info: &TypeInfo) -> Result<Self, Status> {
        let given = body::content_type(asked);
        if info.custom.is_none() && !given.contains("patch") {
            return Err(Status {
                details: Some(serde_json::Map::new()),
                ..Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
            });
        }
        match given.as_str() {
            "application/json-patch+json" => Ok(PatchType::Json),
            "application/merge-patch+json" => Ok(PatchType::Merge),
            "application/apply-patch+yaml" => Ok(PatchType::Apply),
            "application/strategic-merge-patch+json" if info.custom.is_none() => Ok(PatchType::Strategic),
            _ => {
                let mut accepted = vec!["application/json-patch+json", "application/merge-patch+json"];
                if info.custom.is_none() {
                    accepted.push("application/strategic-merge-patch+json");
                }
                accepted.push("application/apply-patch+yaml");
                Err(body::unsupported(&given, &accepted))
            }
        }
    }

    fn apply(self, server: &Server, info: &TypeInfo, old: &Value, body: &[u8]) -> Result<Value, Status> {
        let patch =
            serde_json::from_slice(body).map_err(|why| Status::bad_request(format!("error decoding patch: {why}")))?;
        match self {
            PatchType::Json => json_patch(old, &patch),
            PatchType::Merge => merge_patch(old, &patch),
            PatchType::Strategic => {
                let schemas = server.known_schemas();
                match schemas.kind(&info.group, &info.version, &info.kind) {
                    Some(schema) => strategic_merge_patch(old, &patch, schema),
                    None => Err(super::not_supported(&format!(
                        "strategic merge patches of {}",
                        info.plural
                    ))),
                }
            }
            PatchType::Apply => Err(not_allowed()),
        }
    }
}

/// What the client calls itself: the field manager, or the first word of its user agent.
pub(super) fn manager(asked: &Asked<'_>) -> String {
    if let Some(manager) = asked.query.get("fieldManager") {
        return manager.to_owned();
    }
    let agent = asked
        .headers
        .get(http::header::USER_AGENT)
        .and_then(|v| v.to_str().ok());
    let agent = agent.and_then(|a| a.split('/').next()).unwrap_or_default();
    if agent.is_empty() {
        "unknown".to_owned()
    } else {
        agent.to_owned()
    }
}

/// Puts what follows at once from a write into effect.
fn after(server: &mut Server, info: &TypeInfo, stored: &Stored, is_dry_run: bool) {
    let is_served = stored.value().pointer("/status/conditions").is_some();
    if !is_dry_run && is_served && info.plural == "customresourcedefinitions" {
        let crd = stored.value();
        server.define(&crd);
    }
}

pub(super) fn answer(
    server: &Server,
    asked: &Asked<'_>,
    info: &TypeInfo,
    code: u16,
    stored: &Stored,
) -> Result<Good, Status> {
    Ok(Good::json(code, read::render(server, asked, info, stored)?))
}

pub(super) fn check_name(target: &Target, object: &mut Value) -> Result<(), Status> {
    let Some(name) = &target.name else { return Ok(()) };
    let given = object["metadata"]["name"].as_str().unwrap_or_default();
    if !given.is_empty() && given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    object["metadata"]["name"] = json!(name);
    if let Some(namespace) = &target.namespace
        && object["metadata"]["namespace"].as_str().unwrap_or_default().is_empty()
    {
        object["metadata"]["namespace"] = json!(namespace);
    }
    Ok(())
}

pub(super) fn check_namespace(target: &Target, object: &mut Value) -> Result<(), Status> {
    let given = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    match &target.namespace {
        Some(namespace) if given.is_empty() => object["metadata"]["namespace"] = json!(namespace),
        Some(namespace) if given != *namespace => {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Some(_) => {}
        None => drop(object["metadata"].as_object_mut().map(|m| m.remove("namespace"))),
    }
    Ok(())
}

/// Objects are only created in a namespace that is there to stay.
pub(super) fn require_namespace(server: &Server, target: &Target, new_name: &str) -> Result<(), Status> {
    let Some(name) = &target.namespace else { return Ok(()) };
    let namespaces = server.types.builtin("", "namespaces");
    let namespace = server.require(namespaces, &ObjectKey::new("", name.as_str()))?.value();
    if namespace["metadata"].get("deletionTimestamp").is_some() {
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let mut status = Status::forbidden(&target.info.resource(), new_name, &why);
        let cause = json!({"reason": "NamespaceTerminating", "message": format!("namespace {name} is being terminated"), "field": "metadata.namespace"});
        status
            .details
            .get_or_insert_default()
            .insert("causes".into(), json!([cause]));
        return Err(status);
    }
    Ok(())
}
