//! Parts of objects: status, scale, binding, eviction; and those that there cannot be, since no container runs.

use super::route::{Target, no_such_path};
use super::{Asked, Good, body, delete, not_allowed, read, shown_value, write};
use crate::store::{Part, Server, Stored};
use crate::types::TypeInfo;
use flotilla_apimachinery::field;
use flotilla_apimachinery::patch::{json_patch, merge_patch};
use flotilla_apimachinery::status::{Qualified, Status};
use http::Method;
use serde_json::{Value, json};

pub(super) fn serve(server: &mut Server, asked: &Asked<'_>, target: &Target) -> Result<Good, Status> {
    let info = &target.info;
    match (info.plural.as_str(), target.subresource.as_deref().unwrap_or_default()) {
        (_, "status") if info.has_status => part(server, asked, target, Part::Status),
        (_, "scale") if info.has_scale => scale(server, asked, target),
        ("pods", "binding") => binding(server, asked, target),
        ("pods", "eviction") => eviction(server, asked, target),
        ("namespaces", "finalize") => finalize(server, asked, target),
        ("pods", sub @ ("log" | "exec" | "attach" | "portforward" | "proxy")) => {
            server.require(info.store, &target.key())?;
            let what = match sub {
                "log" => "logs: its pods are simulated and run no containers, so that there is no output to show",
                "portforward" => "port-forward: its pods are simulated and listen on no ports",
                _ => "exec, attach and proxy: its pods are simulated and run no containers",
            };
            Err(super::not_supported(what))
        }
        ("pods", "resize") => part(server, asked, target, Part::Resize),
        ("pods", "ephemeralcontainers") => Err(super::not_supported("the subresource ephemeralcontainers of pods")),
        ("serviceaccounts", "token") => Err(super::not_supported("tokens of service accounts")),
        _ => Err(no_such_path()),
    }
}

/// A part that is read and written as the whole object.
fn part(server: &mut Server, asked: &Asked<'_>, target: &Target, part: Part) -> Result<Good, Status> {
    match *asked.method {
        Method::GET => {
            let stored = server.require(target.info.store, &target.key())?;
            Ok(Good::json(200, read::render(server, asked, &target.info, stored)?))
        }
        Method::PATCH => write::patch_part(server, asked, target, part),
        Method::PUT => write::update_part(server, asked, target, part),
        _ => Err(not_allowed()),
    }
}

/// Where a kind keeps the numbers that a scale shows.
struct Paths {
    spec: String,
    status: String,
    selector: Option<String>,
}

fn paths(info: &TypeInfo) -> Paths {
    let Some(custom) = &info.custom else {
        return Paths {
            spec: "/spec/replicas".into(),
            status: "/status/replicas".into(),
            selector: None,
        };
    };
    let pointer = |field: &str| custom.scale[field].as_str().map(|path| path.replace('.', "/"));
    Paths {
        spec: pointer("specReplicasPath").unwrap_or_default(),
        status: pointer("statusReplicasPath").unwrap_or_default(),
        selector: pointer("labelSelectorPath"),
    }
}

/// An object's scale.
fn scale_of(info: &TypeInfo, stored: &Stored) -> Value {
    let object = shown_value(info, stored);
    let paths = paths(info);
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let metadata = &object["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {},
        "status": {"replicas": number(&paths.status)},
    });
    if number(&paths.spec) != 0 {
        scale["spec"]["replicas"] = json!(number(&paths.spec));
    }
    let selector = match &paths.selector {
        Some(pointer) => object.pointer(pointer).and_then(Value::as_str).map(str::to_owned),
        None => flotilla_apimachinery::selector::LabelSelector::from_json(&object["spec"]["selector"])
            .ok()
            .flatten()
            .map(|s| s.to_string()),
    };
    if let Some(selector) = selector.filter(|s| !s.is_empty()) {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}

fn scale(server: &mut Server, asked: &Asked<'_>, target: &Target) -> Result<Good, Status> {
    let info = target.info.clone();
    let old = scale_of(&info, server.require(info.store, &target.key())?);
    let new = match *asked.method {
        Method::GET => return Ok(Good::json(200, old.to_string())),
        Method::PUT => body::read(asked)?,
        Method::PATCH => {
            let patch = body::from_json(asked.body)?;
            match body::content_type(asked).as_str() {
                "application/merge-patch+json" | "application/strategic-merge-patch+json" => merge_patch(&old, &patch)?,
                "application/json-patch+json" => json_patch(&old, &patch)?,
                other => return Err(super::not_supported(&format!("{other} of a scale"))),
            }
        }
        _ => return Err(not_allowed()),
    };
    let replicas = new.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    // Of custom resources, the schema says how many there may be.
    if replicas < 0 && info.custom.is_none() {
        let why = "must be greater than or equal to 0";
        let error = field::Error::invalid("spec.replicas", json!(replicas), why);
        let name = target.name.as_deref().unwrap_or_default();
        return Err(Status::invalid(&Qualified::new("autoscaling", "Scale"), name, &[error]));
    }
    let pointer = paths(&info).spec;
    let version = new.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    let stored = write::change(server, asked, target, Part::Main, "scale", &mut |_, object| {
        let mut object = object.clone();
        if let Some(field) = object.pointer_mut(&pointer) {
            *field = json!(replicas);
        } else {
            object["spec"]["replicas"] = json!(replicas);
        }
        if !version.is_null() {
            object["metadata"]["resourceVersion"] = version.clone();
        }
        Ok(object)
    })?;
    Ok(Good::json(200, scale_of(&info, &stored).to_string()))
}

fn binding(server: &mut Server, asked: &Asked<'_>, target: &Target) -> Result<Good, Status> {
    if *asked.method != Method::POST {
        return Err(not_allowed());
    }
    let binding = body::read(asked)?;
    let key = target.key();
    let pod = server.require(target.info.store, &key)?.value();
    if let Some(node) = pod
        .pointer("/spec/nodeName")
        .and_then(Value::as_str)
        .filter(|n| !n.is_empty())
    {
        let why = format!("pod {} is already assigned to node \"{node}\"", key.name);
        return Err(Status::conflict(&Qualified::new("", "pods/binding"), &key.name, &why));
    }
    let node = binding
        .pointer("/target/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if node.is_empty() {
        return Err(Status::invalid(
            &Qualified::new("", "Binding"),
            &key.name,
            &[field::Error::required("target.name", "")],
        ));
    }
    server.bind(&key, node)?;
    Ok(Good::json(201, created().to_string()))
}

fn created() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

fn eviction(server: &mut Server, asked: &Asked<'_>, target: &Target) -> Result<Good, Status> {
    if *asked.method != Method::POST {
        return Err(not_allowed());
    }
    let eviction = body::read(asked)?;
    crate::rules::budget::check(server, &target.key())?;
    delete::evict(server, target, &eviction, asked.query.is_dry_run()?)?;
    Ok(Good::json(201, created().to_string()))
}

/// What a namespace controller does at the end: it takes the finalizer of the spec away.
fn finalize(server: &mut Server, asked: &Asked<'_>, target: &Target) -> Result<Good, Status> {
    let namespace = body::read(asked)?;
    let info = target.info.clone();
    let finalizers = namespace["spec"]["finalizers"].clone();
    let stored = server.amend(info.store, &target.key(), |object| {
        object["spec"]["finalizers"] = finalizers;
    })?;
    Ok(Good::json(200, read::render(server, asked, &info, &stored)?))
}
