//! The OpenAPI v3 document of a version of a custom resource definition (`apiextensions-apiserver/pkg/controller/openapi/builder`).

use super::{Builtin, Resource, resources_of};
use serde_json::{Map, Value, json};

const LIST_PARAMETERS: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
const WRITE_PARAMETERS: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCH_PARAMETERS: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETE_PARAMETERS: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
const BODIES: &[&str] = &["application/json", "application/yaml"];
const PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
];

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
/// Components of the built-in types that every document of custom resources brings along.
const SHARED: &[&str] = &[
    "DeleteOptions",
    "FieldsV1",
    "ListMeta",
    "ManagedFieldsEntry",
    "ObjectMeta",
    "OwnerReference",
    "Patch",
    "Preconditions",
    "ShardInfo",
    "Status",
    "StatusCause",
    "StatusDetails",
    "Time",
];
const SCALE: &[&str] = &["Scale", "ScaleSpec", "ScaleStatus"];

/// The name of a component: the group's parts reversed, version, kind.
pub fn component_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<_> = group.split('.').rev().collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

/// The document for one version of a definition; `None` if it does not serve that version.
pub fn document(definition: &Value, version: &str, builtin: &Builtin) -> Option<Value> {
    let spec = &definition["spec"];
    let served = spec["versions"]
        .as_array()?
        .iter()
        .find(|v| v["name"] == version && v["served"] == true)?;
    let group = spec["group"].as_str()?;
    let (kind, plural) = (spec["names"]["kind"].as_str()?, spec["names"]["plural"].as_str()?);
    let list_kind = spec["names"]["listKind"]
        .as_str()
        .map_or_else(|| format!("{kind}List"), str::to_owned);
    let resource = resources_of(definition, version)?;

    let shared: Vec<_> = SHARED.iter().map(|name| format!("{META}{name}")).collect();
    let mut schemas = builtin.pick(shared.iter().map(String::as_str));
    if resource.has_scale {
        let scale: Vec<_> = SCALE
            .iter()
            .map(|name| format!("io.k8s.api.autoscaling.v1.{name}"))
            .collect();
        schemas.extend(builtin.pick(scale.iter().map(String::as_str)));
    }
    let name = component_name(group, version, kind);
    let gvk = |kind: &str| json!([{"group": group, "kind": kind, "version": version}]);
    let mut schema = published(&served["schema"]["openAPIV3Schema"]);
    declare_meta(&mut schema, "Standard object's metadata.", "ObjectMeta", "metadata");
    schema["x-kubernetes-group-version-kind"] = gvk(kind);
    schemas.insert(name.clone(), schema);
    let mut list = list_schema(&list_kind, kind, plural, &name);
    list["x-kubernetes-group-version-kind"] = gvk(&list_kind);
    schemas.insert(component_name(group, version, &list_kind), list);
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": paths(group, version, kind, &resource),
        "components": {"schemas": schemas},
    }))
}

/// A schema as it is published: integer-or-string is said in a way that clients know.
fn published(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let mut fields: Map<_, _> = fields.iter().map(|(k, v)| (k.clone(), published(v))).collect();
            if fields.get("x-kubernetes-int-or-string") == Some(&json!(true)) && !fields.contains_key("anyOf") {
                fields.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
            }
            if fields.get("x-kubernetes-embedded-resource") == Some(&json!(true)) {
                return embedded(Value::Object(fields));
            }
            Value::Object(fields)
        }
        Value::Array(items) => Value::Array(items.iter().map(published).collect()),
        other => other.clone(),
    }
}

/// The schema of an object inside of another.
fn embedded(mut schema: Value) -> Value {
    declare_meta(&mut schema, "Standard object's metadata.", "ObjectMeta", "metadata");
    schema["properties"]["apiVersion"]["description"] = json!(format!(
        "apiVersion defines the versioned schema of this representation of an object. {MORE}#resources"
    ));
    schema["properties"]["kind"]["description"] = json!(format!(
        "kind is a string value representing the type of this object. In CamelCase. {MORE}#types-kinds"
    ));
    schema["required"] = json!(["apiVersion", "kind"]);
    schema
}

const MORE: &str = "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// The three fields that all objects have.
fn declare_meta(schema: &mut Value, words: &str, type_name: &str, anchor: &str) {
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({"type": "string", "description": format!(
        "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the \
         latest internal value, and may reject unrecognized values. {MORE}#resources")});
    properties["kind"] = json!({"type": "string", "description": format!(
        "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the \
         client submits requests to. Cannot be updated. In CamelCase. {MORE}#types-kinds")});
    properties["metadata"] = json!({
        "description": format!("{words} {MORE}#{anchor}"),
        "allOf": [{"$ref": format!("#/components/schemas/{META}{type_name}")}],
    });
}

fn list_schema(list_kind: &str, kind: &str, plural: &str, component: &str) -> Value {
    let mut schema = json!({
        "description": format!("{list_kind} is a list of {kind}"),
        "type": "object",
        "required": ["items"],
        "properties": {"items": {
            "description": format!(
                "List of {plural}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"),
            "type": "array",
            "items": {"$ref": format!("#/components/schemas/{component}")},
        }},
    });
    declare_meta(&mut schema, "Standard list metadata.", "ListMeta", "types-kinds");
    schema
}

fn paths(group: &str, version: &str, kind: &str, resource: &Resource) -> Map<String, Value> {
    let root = format!("/apis/{group}/{version}");
    let gvk = json!({"group": group, "version": version, "kind": kind});
    let (collection, mut in_path) = if resource.is_namespaced {
        (
            format!("{root}/namespaces/{{namespace}}/{}", resource.plural),
            vec!["namespace"],
        )
    } else {
        (format!("{root}/{}", resource.plural), Vec::new())
    };
    let mut paths = Map::new();
    let mut whole = path_item(&in_path, &["pretty"]);
    whole["get"] = operation("list", &gvk, LIST_PARAMETERS, &[]);
    whole["post"] = operation("post", &gvk, WRITE_PARAMETERS, BODIES);
    whole["delete"] = operation("deletecollection", &gvk, LIST_PARAMETERS, &[]);
    paths.insert(collection.clone(), whole);
    if resource.is_namespaced {
        let mut everywhere = path_item(&[], LIST_PARAMETERS);
        everywhere["get"] = operation("list", &gvk, &[], &[]);
        paths.insert(format!("{root}/{}", resource.plural), everywhere);
    }
    in_path.insert(0, "name");
    let subresources = [
        (true, ""),
        (resource.has_status, "/status"),
        (resource.has_scale, "/scale"),
    ];
    for (_, subresource) in subresources.into_iter().filter(|(is_there, _)| *is_there) {
        let mut item = path_item(&in_path, &["pretty"]);
        item["get"] = operation("get", &gvk, &["resourceVersion"], &[]);
        item["put"] = operation("put", &gvk, WRITE_PARAMETERS, BODIES);
        item["patch"] = operation("patch", &gvk, PATCH_PARAMETERS, PATCHES);
        if subresource.is_empty() {
            item["delete"] = operation("delete", &gvk, DELETE_PARAMETERS, BODIES);
        }
        paths.insert(format!("{collection}/{{name}}{subresource}"), item);
    }
    paths
}

fn path_item(in_path: &[&str], in_query: &[&str]) -> Value {
    let in_path = in_path.iter().map(|name| json!({"name": name, "in": "path"}));
    let in_query = in_query.iter().map(|name| json!({"name": name, "in": "query"}));
    json!({"parameters": in_path.chain(in_query).collect::<Vec<_>>()})
}

fn operation(action: &str, gvk: &Value, parameters: &[&str], bodies: &[&str]) -> Value {
    let mut operation = json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk});
    if !parameters.is_empty() {
        operation["parameters"] = parameters
            .iter()
            .map(|name| json!({"name": name, "in": "query"}))
            .collect();
    }
    if !bodies.is_empty() {
        let content: Map<_, _> = bodies.iter().map(|b| ((*b).to_owned(), json!({}))).collect();
        operation["requestBody"] = json!({"content": content});
    }
    operation
}
