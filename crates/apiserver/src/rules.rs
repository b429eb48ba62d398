//! What the server makes of an object before it stores it, kind by kind: defaults, admission, validation.
//!
//! Built-in kinds are held to the rules that people run into; a field that is wrong in a way not looked at here is stored as it is.

pub(crate) mod budget;
mod claim;
mod custom;
mod definition;
mod limits;
mod meta;
mod pod;
mod pod_change;
mod pod_defaults;
mod quota;
mod set;
mod simple;

pub(crate) use budget::recount as recount_budgets;
pub(crate) use definition::established;
pub(crate) use limits::fill as fill_limits;
pub(crate) use pod::check_own_priority;
pub(crate) use pod_change::{changed as pod_changed, resize as resize_pod, resized as pod_resized};
pub(crate) use quota::recount as recount_quotas;
pub use simple::base64;

use crate::store::{Part, Server, StoreId};
use crate::types::TypeInfo;
use flotilla_apimachinery::schema::{self, Schema};
use flotilla_apimachinery::status::{Qualified, Status};
use flotilla_apimachinery::{apply, field};
use flotilla_model::Resource;
use serde_json::Value;

/// A write, as rules see it.
pub(crate) struct Write<'w> {
    pub(crate) info: &'w TypeInfo,
    pub(crate) manager: &'w str,
    pub(crate) now: &'w Value,
    pub(crate) is_create: bool,
    pub(crate) subresource: Option<&'w str>,
    /// The field managers are known already: the write was an apply.
    pub(crate) is_apply: bool,
}

impl<'w> Write<'w> {
    pub(crate) fn create(info: &'w TypeInfo, manager: &'w str, now: &'w Value) -> Self {
        Write {
            info,
            manager,
            now,
            is_create: true,
            subresource: None,
            is_apply: false,
        }
    }

    pub(crate) fn change(info: &'w TypeInfo, manager: &'w str, now: &'w Value, subresource: Option<&'w str>) -> Self {
        Write {
            is_create: false,
            subresource,
            ..Write::create(info, manager, now)
        }
    }

    pub(crate) fn apply(
        info: &'w TypeInfo,
        manager: &'w str,
        now: &'w Value,
        is_create: bool,
        subresource: Option<&'w str>,
    ) -> Self {
        Write {
            is_create,
            subresource,
            is_apply: true,
            ..Write::create(info, manager, now)
        }
    }

    fn is_status(&self) -> bool {
        self.subresource == Some("status")
    }
}

/// Errors about fields, in the order in which they were found.
pub(crate) type Errors = Vec<field::Error>;

/// The last word on an object: what it is stored as, or why it is not.
pub(crate) fn finish(server: &Server, write: &Write<'_>, old: Option<&Value>, new: &mut Value) -> Result<(), Status> {
    let info = write.info;
    defaults(server, write, new);
    // What admission and the server itself add is nobody's.
    track(server, write, old, new);
    if write.is_create {
        admit(server, info, new)?;
        prepare(info, new);
    } else if info.kind == "Pod" && write.is_status() {
        pod::keep_class(old, new);
    } else if info.group.is_empty() && !write.is_status() {
        match info.kind.as_str() {
            "Pod" => pod::tolerations(&mut new["spec"]),
            "Service" => simple::prepare(info, new),
            _ => {}
        }
    }
    let mut errors = Errors::new();
    meta::validate(server, info, old, new, &mut errors);
    validate(server, write, old, new, &mut errors);
    if !errors.is_empty() {
        let name = new["metadata"]["name"]
            .as_str()
            .or(new["metadata"]["generateName"].as_str());
        return Err(Status::invalid(
            &info.qualified_kind(),
            name.unwrap_or_default(),
            &errors,
        ));
    }
    if info.is_namespaced {
        let part = match write.subresource {
            None => Part::Main,
            Some("resize") => Part::Resize,
            Some(_) => Part::Status,
        };
        check_room(server, (info.store, &info.group, &info.plural), (old, new), part)?;
    }
    Ok(())
}

/// Whether an object of a built-in kind can be read, which is asked before anything else: a field holds values of one type.
pub(crate) fn check_types(info: &TypeInfo, object: &Value, schema: Schema<'_>) -> Result<(), Status> {
    let wrong = schema::mistyped(object, schema).filter(|_| info.custom.is_none());
    wrong.map_or(Ok(()), |why| {
        let (kind, version) = (&info.kind, &info.version);
        Err(Status::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
        )))
    })
}

/// Whether a claim that is to be made is one.
pub(crate) fn check_claim(server: &Server, new: &Value) -> Result<(), Status> {
    let mut errors = Errors::new();
    claim::validate(server, None, new, &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    Err(Status::invalid(
        &Qualified::new("", "PersistentVolumeClaim"),
        name,
        &errors,
    ))
}

/// Whether limit ranges and quotas have room for what is made, or for what grows: pods by being resized, and claims.
///
/// Limit ranges are asked about a claim whatever of it is changed, unless it is being deleted: one that was made before the limit range,
/// and is too large for it, cannot even be given another owner.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/plugin/pkg/admission/limitranger/admission.go>
pub(crate) fn check_room(
    server: &Server,
    (resource, group, plural): (StoreId, &str, &str),
    (old, new): (Option<&Value>, &Value),
    part: Part,
) -> Result<(), Status> {
    let is_of_main = part == Part::Main && resource == Resource::Claims;
    let is_limited = |old: &Value| match part {
        Part::Resize => true,
        _ => is_of_main && old["metadata"]["deletionTimestamp"].is_null(),
    };
    if old.is_none_or(is_limited) {
        limits::check(server, resource, (group, plural), new)?;
    }
    let may_grow = |old: &Value| (is_of_main || part == Part::Resize) && old["spec"] != new["spec"];
    if old.is_none_or(may_grow) {
        quota::check(server, resource, (group, plural), (old, new))?;
    }
    Ok(())
}

/// Fields that cannot be written through a part of an object, so that nobody manages them for having sent them.
pub(crate) fn ignored(info: &TypeInfo, subresource: Option<&str>) -> &'static [&'static str] {
    match subresource {
        Some("status") if info.custom.is_some() => &["spec", "metadata"],
        Some("status") => &["spec"],
        Some("resize") => &["status"],
        None if info.has_status => &["status"],
        _ => &[],
    }
}

/// Notes who manages which field.
fn track(server: &Server, write: &Write<'_>, old: Option<&Value>, new: &mut Value) {
    let info = write.info;
    let schemas = server.known_schemas();
    let Some(schema) = schemas.kind(&info.group, &info.version, &info.kind) else {
        return;
    };
    if write.is_apply {
        return;
    }
    let version = info.api_version();
    let writer = apply::Writer {
        manager: write.manager,
        version: &version,
        subresource: write
            .subresource
            .filter(|s| matches!(*s, "status" | "scale" | "resize"))
            .unwrap_or_default(),
        ignored: ignored(info, write.subresource),
        now: write.now.as_str().unwrap_or_default(),
    };
    apply::track(old, new, schema, &writer);
}

/// Fills in what was left out.
fn defaults(server: &Server, write: &Write<'_>, new: &mut Value) {
    let info = write.info;
    match (info.group.as_str(), info.kind.as_str()) {
        _ if info.custom.is_some() => custom::defaults(server, info, new),
        ("", "Pod") => pod_defaults::pod(new),
        ("apps", "StatefulSet") => set::defaults(new),
        ("", "PersistentVolumeClaim") => claim::defaults(new),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition::defaults(new),
        _ => simple::defaults(info, new),
    }
}

/// What admission adds to new objects, or refuses.
fn admit(server: &Server, info: &TypeInfo, new: &mut Value) -> Result<(), Status> {
    match (info.group.as_str(), info.kind.as_str()) {
        ("", "Pod") => {
            fill_limits(server, new);
            pod::admit(server, new)
        }
        ("", "PersistentVolumeClaim") => {
            claim::admit(server, new);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whatever a client says of the status of a new object is not heard.
fn prepare(info: &TypeInfo, new: &mut Value) {
    simple::prepare(info, new);
    let status = match (info.group.as_str(), info.kind.as_str()) {
        ("", "Pod") => Some(pod::first_status(new)),
        ("", "PersistentVolumeClaim" | "PersistentVolume") => Some(serde_json::json!({"phase": "Pending"})),
        ("", "Namespace") => Some(serde_json::json!({"phase": "Active"})),
        ("", "Service") => Some(serde_json::json!({"loadBalancer": {}})),
        ("apps", "StatefulSet") if info.custom.is_none() => {
            Some(serde_json::json!({"replicas": 0, "availableReplicas": 0}))
        }
        ("policy", "PodDisruptionBudget") => Some(
            serde_json::json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}),
        ),
        ("", "ResourceQuota") => Some(serde_json::json!({})),
        ("", "Node") | ("apiextensions.k8s.io", _) => None,
        _ if info.has_status => {
            new.as_object_mut().map(|fields| fields.remove("status"));
            None
        }
        _ => None,
    };
    if let Some(status) = status {
        new["status"] = status;
    }
}

fn validate(server: &Server, write: &Write<'_>, old: Option<&Value>, new: &mut Value, errors: &mut Errors) {
    let info = write.info;
    match (info.group.as_str(), info.kind.as_str()) {
        _ if info.custom.is_some() => custom::validate(server, info, old, new, errors),
        ("", "Pod") if write.is_status() => {}
        ("", "Pod") if write.subresource == Some("resize") => pod_change::validate_resize(old, new, errors),
        ("", "Pod") => pod_change::validate(old, new, errors),
        ("apps", "StatefulSet") if write.is_status() => set::validate_status(new, errors),
        ("apps", "StatefulSet") => set::validate(old, new, errors),
        ("", "PersistentVolumeClaim") => claim::validate(server, old, new, errors),
        ("apiextensions.k8s.io", _) => definition::validate(new, errors),
        _ => simple::validate(info, old, new, errors),
    }
}

/// Puts a value where there is none.
pub(crate) fn default(object: &mut Value, field: &str, value: impl Into<Value>) {
    if object.get(field).is_none_or(Value::is_null) {
        object[field] = value.into();
    }
}

/// The items of a list, to be changed.
pub(crate) fn items<'v>(object: &'v mut Value, field: &str) -> impl Iterator<Item = &'v mut Value> {
    object
        .get_mut(field)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// The items of a list.
pub(crate) fn each<'v>(object: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// A text, empty if it is absent.
pub(crate) fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}
