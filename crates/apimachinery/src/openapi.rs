//! What an API server says of itself: OpenAPI v3 documents, discovery and version.
//!
//! Those of the built-in types were taken from a real API server by `cargo xtask generate openapi` and are embedded compressed; those
//! of custom resources are made from their definitions. Path items are cut down to what clients look at: actions, kinds, names of
//! parameters and media types of bodies.

mod custom;
mod discovery;

pub use custom::{component_name, document as custom_document};
pub use discovery::{
    Resource, api_versions, custom_group, group, group_list, groups_discovery, resource_list, resources_of,
};

use crate::schema::{ReadError, Types};
use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

static COMPRESSED: &[u8] = include_bytes!("openapi/builtin.json.gz");

/// The built-in API groups.
#[derive(Clone, Debug)]
pub struct Builtin {
    components: Map<String, Value>,
    documents: BTreeMap<String, Document>,
    discovery: Vec<Value>,
    version: Value,
}

/// One document, without the components that it shares with others.
#[derive(Clone, Debug)]
struct Document {
    paths: Value,
    components: Vec<String>,
}

impl Builtin {
    /// Unpacks them, which takes some milliseconds and megabytes: once a process is enough.
    ///
    /// # Panics
    /// Never: a test unpacks what is embedded.
    pub fn load() -> Self {
        let data: Value =
            serde_json::from_reader(GzDecoder::new(COMPRESSED)).expect("the embedded file is compressed JSON");
        let Value::Object(mut data) = data else {
            unreachable!("the embedded file is an object")
        };
        let mut take = |name: &str| data.remove(name).unwrap_or_default();
        let documents = take("documents");
        let read = |(path, document): (&String, &Value)| {
            let names = document["components"].as_array().into_iter().flatten();
            let document = Document {
                paths: document["paths"].clone(),
                components: names.filter_map(Value::as_str).map(str::to_owned).collect(),
            };
            (path.clone(), document)
        };
        Builtin {
            documents: documents.as_object().into_iter().flatten().map(read).collect(),
            components: take("components").as_object().cloned().unwrap_or_default(),
            discovery: take("discovery").as_array().cloned().unwrap_or_default(),
            version: take("version"),
        }
    }

    /// The paths of all documents, such as `api/v1` and `apis/apps/v1`.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.documents.keys().map(String::as_str)
    }

    /// The document that `/openapi/v3/{path}` serves.
    pub fn document(&self, path: &str) -> Option<Value> {
        let document = self.documents.get(path)?;
        Some(json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "v1.36"},
            "paths": document.paths,
            "components": {"schemas": self.pick(document.components.iter().map(String::as_str))},
        }))
    }

    /// Components by name.
    pub fn pick<'n>(&self, names: impl Iterator<Item = &'n str>) -> Map<String, Value> {
        names
            .filter_map(|name| self.components.get(name).map(|c| (name.to_owned(), c.clone())))
            .collect()
    }

    /// The types of all documents.
    pub fn types(&self) -> Result<Types, ReadError> {
        let mut types = Types::default();
        types.add_openapi(&json!({"components": {"schemas": self.components}}))?;
        Ok(types)
    }

    /// An `APIGroupDiscovery` for each group; the core group is the one without a name.
    pub fn discovery(&self) -> &[Value] {
        &self.discovery
    }

    /// The answer to `/version`.
    pub fn version(&self) -> &Value {
        &self.version
    }
}

/// The answer to `/openapi/v3`: where documents are. Clients keep a document for as long as its `hash` is the same.
pub fn index<'p>(documents: impl IntoIterator<Item = (&'p str, &'p str)>) -> Value {
    let entry = |(path, hash): (&str, &str)| {
        let url = format!("/openapi/v3/{path}?hash={hash}");
        (path.to_owned(), json!({"serverRelativeURL": url}))
    };
    json!({"paths": documents.into_iter().map(entry).collect::<Map<_, _>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Kind, ListType, PatchStrategy};

    #[test]
    fn built_in_documents_are_complete() {
        let builtin = Builtin::load();
        let expected = [
            "api/v1",
            "apis/apiextensions.k8s.io/v1",
            "apis/apps/v1",
            "apis/authorization.k8s.io/v1",
            "apis/coordination.k8s.io/v1",
            "apis/events.k8s.io/v1",
            "apis/policy/v1",
            "apis/rbac.authorization.k8s.io/v1",
            "apis/scheduling.k8s.io/v1",
            "apis/storage.k8s.io/v1",
        ];
        assert_eq!(builtin.paths().collect::<Vec<_>>(), expected);
        for path in expected {
            let document = builtin.document(path).unwrap();
            let mut references = Vec::new();
            collect(&document, &mut references);
            let schemas = &document["components"]["schemas"];
            let missing: Vec<_> = references
                .iter()
                .filter(|name| schemas.get(name.as_str()).is_none())
                .collect();
            assert!(missing.is_empty(), "{path}: {missing:?}");
        }
        assert!(builtin.version()["gitVersion"].as_str().unwrap().starts_with("v1.36."));
        assert_eq!(builtin.discovery().len(), expected.len());
    }

    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                    found.push(reference.trim_start_matches("#/components/schemas/").to_owned());
                }
                fields.values().for_each(|v| collect(v, found));
            }
            Value::Array(items) => items.iter().for_each(|v| collect(v, found)),
            _ => {}
        }
    }

    #[test]
    fn built_in_types_say_what_patches_and_apply_need() {
        let types = Builtin::load().types().unwrap();
        let pod = types.kind("", "v1", "Pod").unwrap().property("spec").unwrap();
        let containers = pod.property("containers").unwrap();
        assert_eq!(containers.patch_strategy(), PatchStrategy::Merge);
        assert_eq!(containers.patch_merge_key(), Some("name"));
        assert_eq!(*containers.list_type(), ListType::Map(vec!["name".to_owned()]));
        let port = containers.items().unwrap().property("ports").unwrap().items().unwrap();
        assert_eq!(port.property("protocol").unwrap().default(), Some(&json!("TCP")));
        assert_eq!(port.property("containerPort").unwrap().kind(), Kind::Integer);
        assert!(pod.property("nodeSelector").unwrap().is_atomic());
        let set = types
            .kind("apps", "v1", "StatefulSet")
            .unwrap()
            .property("spec")
            .unwrap();
        assert!(set.property("selector").unwrap().is_atomic());
        assert_eq!(
            *set.property("volumeClaimTemplates").unwrap().list_type(),
            ListType::Atomic
        );
        let template = set.property("template").unwrap().property("spec").unwrap();
        assert_eq!(
            template.property("terminationGracePeriodSeconds").unwrap().format(),
            "int64"
        );
    }
}
