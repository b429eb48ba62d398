//! What is served: groups, versions, resources; health and version.

use super::negotiate::Form;
use super::route::no_such_path;
use super::{Asked, Good, not_allowed};
use crate::store::{Server, Stored};
use crate::types::TypeInfo;
use flotilla_apimachinery::openapi;
use flotilla_apimachinery::status::Status;
use flotilla_model::ObjectKey;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;

/// The version that the server says it has: that of the API server whose answers it is held to.
const VERSION: (&str, &str, &str) = ("1", "36", "v1.36.3");

pub(super) fn serve(server: &mut Server, asked: &Asked<'_>, path: &str) -> Result<Good, Status> {
    if !matches!(*asked.method, Method::GET | Method::HEAD) {
        return Err(if matches!(path, "/version" | "/api" | "/apis") {
            not_allowed()
        } else {
            super::route::no_such_group()
        });
    }
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    match segments.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Ok(Good::text("ok")),
        ["version"] => Ok(Good::json(200, version().to_string())),
        ["api" | "apis"] if asked.form == Form::Discovery => Ok(aggregated(server, segments[0] == "api")),
        ["api"] => Ok(Good::json(200, core_versions().to_string())),
        ["apis"] => Ok(Good::json(200, groups(server).to_string())),
        ["apis", group] => group_of(server, group)
            .map(|g| Good::json(200, g.to_string()))
            .ok_or_else(no_such_path),
        ["api", version] => resources(server, "", version),
        ["apis", group, version] => resources(server, group, version),
        ["openapi", ..] => openapi(server, &segments),
        [] => Ok(Good::json(
            200,
            json!({"paths": ["/api", "/apis", "/healthz", "/openapi/v3", "/version"]}).to_string(),
        )),
        _ => Err(super::route::no_such_group()),
    }
}

fn version() -> Value {
    let (major, minor, git) = VERSION;
    json!({
        "major": major, "minor": minor, "gitVersion": git, "emulationMajor": major, "emulationMinor": minor,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none: simulated by flotilla", "compiler": "rustc", "platform": "flotilla/simulated",
    })
}

fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]})
}

/// Versions of a group with their kinds, in the order in which they were added.
type Versions<'s> = Vec<(&'s str, Vec<&'s Arc<TypeInfo>>)>;

fn by_group(server: &Server) -> Vec<(&str, Versions<'_>)> {
    let mut groups: Vec<(&str, Versions<'_>)> = Vec::new();
    for info in server.types.all() {
        let at = groups
            .iter()
            .position(|(group, _)| *group == info.group)
            .unwrap_or_else(|| {
                groups.push((&info.group, Vec::new()));
                groups.len() - 1
            });
        let versions = &mut groups[at].1;
        match versions.iter_mut().find(|(version, _)| *version == info.version) {
            Some((_, kinds)) => kinds.push(info),
            None => versions.push((&info.version, vec![info])),
        }
    }
    groups
}

fn group_json(group: &str, versions: &Versions<'_>) -> Value {
    let version = |version: &str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let all: Vec<Value> = versions.iter().map(|(v, _)| version(v)).collect();
    json!({"name": group, "versions": all, "preferredVersion": all[0]})
}

fn groups(server: &Server) -> Value {
    let groups: Vec<Value> = by_group(server)
        .iter()
        .filter(|(g, _)| !g.is_empty())
        .map(|(g, v)| group_json(g, v))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_of(server: &Server, group: &str) -> Option<Value> {
    let all = by_group(server);
    let (name, versions) = all.iter().find(|(g, _)| *g == group && !g.is_empty())?;
    let mut json = group_json(name, versions);
    json["kind"] = json!("APIGroup");
    json["apiVersion"] = json!("v1");
    Some(json)
}

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

fn verbs(info: &TypeInfo) -> Vec<&'static str> {
    if !info.is_stored() {
        return vec!["create"];
    }
    VERBS
        .into_iter()
        .filter(|verb| info.plural != "namespaces" || *verb != "deletecollection")
        .collect()
}

/// A subresource: its name, its kind with group and version (empty if they are those of the resource), and its verbs.
type Subresource = (&'static str, (&'static str, &'static str, String), Vec<&'static str>);

/// Subresources of a kind.
fn subresources(info: &TypeInfo) -> Vec<Subresource> {
    let own = || (("", ""), info.kind.clone());
    let mut all = Vec::new();
    if info.has_status {
        let ((group, version), kind) = own();
        all.push(("status", (group, version, kind), vec!["get", "patch", "update"]));
    }
    if info.has_scale {
        all.push((
            "scale",
            ("autoscaling", "v1", "Scale".to_owned()),
            vec!["get", "patch", "update"],
        ));
    }
    if info.kind == "Pod" && info.group.is_empty() {
        all.push(("resize", ("", "", info.kind.clone()), vec!["get", "patch", "update"]));
        all.push(("binding", ("", "v1", "Binding".to_owned()), vec!["create"]));
        all.push(("eviction", ("policy", "v1", "Eviction".to_owned()), vec!["create"]));
        all.push(("log", ("", "v1", "Pod".to_owned()), vec!["get"]));
        all.push(("exec", ("", "v1", "PodExecOptions".to_owned()), vec!["create", "get"]));
        all.push((
            "attach",
            ("", "v1", "PodAttachOptions".to_owned()),
            vec!["create", "get"],
        ));
        all.push((
            "portforward",
            ("", "v1", "PodPortForwardOptions".to_owned()),
            vec!["create", "get"],
        ));
    }
    all
}

/// All kinds of a group and version, as older clients want them.
fn resources(server: &Server, group: &str, version: &str) -> Result<Good, Status> {
    if !server.types.has_version(group, version) {
        return Err(no_such_path());
    }
    let mut all = Vec::new();
    for info in server
        .types
        .all()
        .iter()
        .filter(|t| t.group == group && t.version == version)
    {
        let mut resource = json!({
            "name": info.plural, "singularName": info.singular, "namespaced": info.is_namespaced, "kind": info.kind,
            "verbs": verbs(info),
        });
        if !info.short_names.is_empty() {
            resource["shortNames"] = json!(info.short_names);
        }
        if !info.categories.is_empty() {
            resource["categories"] = json!(info.categories);
        }
        all.push(resource);
        for (name, (group, version, kind), verbs) in subresources(info) {
            let mut sub = json!({
                "name": format!("{}/{name}", info.plural), "singularName": "", "namespaced": info.is_namespaced,
                "kind": kind, "verbs": verbs,
            });
            if !version.is_empty() {
                sub["version"] = json!(version);
                sub["group"] = json!(group);
            }
            all.push(sub);
        }
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": all});
    Ok(Good::json(200, list.to_string()))
}

/// Everything at once, as newer clients want it.
fn aggregated(server: &Server, is_core: bool) -> Good {
    let mut items = Vec::new();
    for (group, versions) in by_group(server).iter().filter(|(g, _)| g.is_empty() == is_core) {
        let versions: Vec<Value> = versions
            .iter()
            .map(|(version, kinds)| {
                let resources: Vec<Value> = kinds.iter().map(|info| aggregated_resource(info)).collect();
                json!({"version": version, "freshness": "Current", "resources": resources})
            })
            .collect();
        let mut metadata = json!({"creationTimestamp": null});
        if !group.is_empty() {
            metadata["name"] = json!(group);
        }
        items.push(json!({"metadata": metadata, "versions": versions}));
    }
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    Good {
        content_type: "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        ..Good::json(200, list.to_string())
    }
}

fn aggregated_resource(info: &TypeInfo) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let subresources: Vec<Value> = subresources(info)
        .into_iter()
        .map(|(name, (group, version, sub_kind), verbs)| {
            let (group, version) = if version.is_empty() {
                (info.group.as_str(), info.version.as_str())
            } else {
                (group, version)
            };
            json!({"subresource": name, "responseKind": kind(group, version, &sub_kind), "verbs": verbs})
        })
        .collect();
    let mut resource = json!({
        "resource": info.plural, "singularResource": info.singular, "verbs": verbs(info),
        "responseKind": kind(&info.group, &info.version, &info.kind),
        "scope": if info.is_namespaced { "Namespaced" } else { "Cluster" },
    });
    if !info.short_names.is_empty() {
        resource["shortNames"] = json!(info.short_names);
    }
    if !info.categories.is_empty() {
        resource["categories"] = json!(info.categories);
    }
    if !subresources.is_empty() {
        resource["subresources"] = json!(subresources);
    }
    resource
}

/// The documents, by their paths: those of built-in kinds, and one for each version of a definition.
fn openapi(server: &mut Server, segments: &[&str]) -> Result<Good, Status> {
    let builtin = openapi::Builtin::load();
    match segments {
        ["openapi", "v3"] => {
            let mut index: Vec<(String, String)> =
                builtin.paths().map(|p| (p.to_owned(), VERSION.2.to_owned())).collect();
            for info in server.types.all().iter().filter(|t| t.custom.is_some()) {
                let hash = definition_of(server, info).map_or(0, |d| d.version);
                index.push((format!("apis/{}/{}", info.group, info.version), hash.to_string()));
            }
            let index = openapi::index(index.iter().map(|(path, hash)| (path.as_str(), hash.as_str())));
            Ok(Good::json(200, index.to_string()))
        }
        ["openapi", "v3", path @ ..] => {
            let path = path.join("/");
            let custom = || {
                let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
                custom_document(server, group, version, &builtin)
            };
            let document = builtin.document(&path).or_else(custom).ok_or_else(no_such_path)?;
            Ok(Good::json(200, document.to_string()))
        }
        _ => Err(no_such_path()),
    }
}

fn definition_of<'s>(server: &'s Server, info: &TypeInfo) -> Option<&'s Stored> {
    let definitions = server
        .types
        .builtin("apiextensions.k8s.io", "customresourcedefinitions");
    server.get(
        definitions,
        &ObjectKey::new("", format!("{}.{}", info.plural, info.group)),
    )
}

/// One document for all definitions of a group and version.
fn custom_document(server: &Server, group: &str, version: &str, builtin: &openapi::Builtin) -> Option<Value> {
    let mut whole: Option<Value> = None;
    let infos = server
        .types
        .all()
        .iter()
        .filter(|t| t.custom.is_some() && t.group == group && t.version == version);
    for info in infos {
        let definition = definition_of(server, info)?.value();
        let document = openapi::custom_document(&definition, version, builtin)?;
        match &mut whole {
            None => whole = Some(document),
            Some(whole) => {
                for part in ["/paths", "/components/schemas"] {
                    let (Some(Value::Object(all)), Some(Value::Object(more))) =
                        (whole.pointer_mut(part), document.pointer(part))
                    else {
                        continue;
                    };
                    all.extend(more.clone());
                }
            }
        }
    }
    whole
}
