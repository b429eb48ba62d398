//! Reading types from OpenAPI v3 documents and from custom resource definitions.

use super::rules::Rule;
use super::{Bounds, Kind, ListType, Node, PatchStrategy, Pattern, Types};
use serde_json::{Map, Value};
use std::fmt;

/// Why types could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError(String);

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReadError {}

const REFERENCE: &str = "#/components/schemas/";

/// Keywords that bound values.
const BOUNDS: &[&str] = &[
    "required",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
];

/// Types whose JSON is a scalar whatever the document says of their Go structs.
const SCALARS: &[(&str, Kind)] = &[
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", Kind::IntOrString),
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", Kind::Any),
];

impl Types {
    /// Reads one more OpenAPI v3 document.
    pub fn add_openapi(&mut self, document: &Value) -> Result<(), ReadError> {
        let schemas = document.pointer("/components/schemas").and_then(Value::as_object);
        let schemas = schemas.ok_or_else(|| ReadError("the document has no components.schemas".to_owned()))?;
        // A component that another document brought along already is the same type.
        let new: Vec<_> = schemas.iter().filter(|(name, _)| self.name(name)).collect();
        for (name, schema) in new {
            let mut node = self.node(schema)?;
            // Such types (RawExtension, FieldsV1, JSON) hold what their Go code reads, not nothing.
            if node.kind == Kind::Object && node.properties.is_empty() && node.values.is_none() {
                node.keeps_unknown = true;
                node.is_atomic = true;
            }
            let place = self.names[name];
            self.nodes[place] = node;
            if let Some((_, kind)) = SCALARS.iter().find(|(scalar, _)| scalar == name) {
                self.nodes[place] = Node {
                    kind: *kind,
                    ..Node::default()
                };
            }
            for gvk in schema
                .get("x-kubernetes-group-version-kind")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                self.kinds
                    .insert((text(gvk, "group"), text(gvk, "version"), text(gvk, "kind")), place);
            }
        }
        Ok(())
    }

    /// Reads the structural schema of one version of a custom resource definition: an entry of `spec.versions`. Add the built-in types
    /// before, so that `metadata` has its type.
    pub fn add_custom(&mut self, group: &str, kind: &str, version: &Value) -> Result<(), ReadError> {
        let mut node = self.node(&version["schema"]["openAPIV3Schema"])?;
        node.is_embedded = true;
        self.declare_meta(&mut node);
        let scale = &version["subresources"]["scale"];
        let paths = ["specReplicasPath", "statusReplicasPath"].map(|name| text(scale, name));
        node.counts = paths.into_iter().filter(|path| !path.is_empty()).collect();
        self.nodes.push(node);
        let key = (group.to_owned(), text(version, "name"), kind.to_owned());
        self.kinds.insert(key, self.nodes.len() - 1);
        Ok(())
    }

    /// Gives an object of the API the fields that all have.
    fn declare_meta(&mut self, node: &mut Node) {
        let text = self.push(Node {
            kind: Kind::String,
            ..Node::default()
        });
        for name in ["apiVersion", "kind"] {
            node.properties.entry(name.to_owned()).or_insert(text);
        }
        if let Some(meta) = self.names.get("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") {
            // What a definition says of metadata.name is about validation; the type is always this one.
            let place = *meta;
            let said = node.properties.get("metadata").copied();
            let bounds = said.and_then(|at| self.nodes[at].properties.get("name").copied());
            if bounds.is_none() {
                node.properties.insert("metadata".to_owned(), place);
            }
        }
    }

    /// Makes room for a component; false if it is there already.
    fn name(&mut self, name: &str) -> bool {
        if self.names.contains_key(name) {
            return false;
        }
        let place = self.push(Node::default());
        self.names.insert(name.to_owned(), place);
        true
    }

    fn push(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn add(&mut self, schema: &Value) -> Result<usize, ReadError> {
        if let Some(target) = self.reference(schema)? {
            return Ok(target);
        }
        let node = self.node(schema)?;
        Ok(self.push(node))
    }

    fn reference(&mut self, schema: &Value) -> Result<Option<usize>, ReadError> {
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else {
            return Ok(None);
        };
        let name = reference
            .strip_prefix(REFERENCE)
            .ok_or_else(|| ReadError(format!("a reference that leads out of the document: {reference}")))?;
        self.name(name);
        Ok(Some(self.names[name]))
    }

    fn node(&mut self, schema: &Value) -> Result<Node, ReadError> {
        let fields = schema
            .as_object()
            .ok_or_else(|| ReadError(format!("a schema that is no object: {schema}")))?;
        let mut node = Node {
            kind: kind(fields),
            format: text(schema, "format"),
            list_type: list_type(fields),
            is_atomic: fields.get("x-kubernetes-map-type").is_some_and(|t| t == "atomic"),
            strategy: strategy(fields),
            merge_key: fields
                .get("x-kubernetes-patch-merge-key")
                .and_then(Value::as_str)
                .map(str::to_owned),
            default: fields.get("default").cloned(),
            is_nullable: is_true(fields, "nullable"),
            keeps_unknown: is_true(fields, "x-kubernetes-preserve-unknown-fields"),
            is_embedded: is_true(fields, "x-kubernetes-embedded-resource"),
            rules: rules(fields),
            ..Node::default()
        };
        for (name, property) in fields
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let place = self.add(property)?;
            node.properties.insert(name.clone(), place);
        }
        match fields.get("additionalProperties") {
            Some(Value::Bool(true)) => {
                node.values = Some(self.push(Node {
                    keeps_unknown: true,
                    ..Node::default()
                }));
            }
            Some(values @ Value::Object(_)) => node.values = Some(self.add(values)?),
            _ => {}
        }
        if let Some(items) = fields.get("items") {
            node.items = Some(self.add(items)?);
        }
        // OpenAPI 3.0 wraps a reference that has siblings, such as a default, into an `allOf` of one.
        if let Some([only]) = fields.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
            node.target = self.reference(only)?;
        }
        let bounds = self.bounds(fields, node.target.is_some())?;
        let is_bounded = |name: &&&str| fields.contains_key(**name) && !(**name == "allOf" && node.target.is_some());
        node.bounds = BOUNDS.iter().any(|name| is_bounded(&name)).then(|| Box::new(bounds));
        Ok(node)
    }

    fn bounds(&mut self, fields: &Map<String, Value>, is_reference: bool) -> Result<Bounds, ReadError> {
        let number = |name: &str| fields.get(name).and_then(Value::as_f64);
        let count = |name: &str| fields.get(name).and_then(Value::as_u64);
        let list = |name: &str| fields.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut bounds = Bounds {
            required: list("required")
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            allowed: list("enum"),
            pattern: fields.get("pattern").and_then(Value::as_str).map(Pattern::new),
            minimum: number("minimum").map(|m| (m, is_true(fields, "exclusiveMinimum"))),
            maximum: number("maximum").map(|m| (m, is_true(fields, "exclusiveMaximum"))),
            multiple_of: number("multipleOf"),
            length: (count("minLength"), count("maxLength")),
            items: (count("minItems"), count("maxItems")),
            properties: (count("minProperties"), count("maxProperties")),
            ..Bounds::default()
        };
        for (name, places) in [
            ("allOf", &mut bounds.all_of),
            ("anyOf", &mut bounds.any_of),
            ("oneOf", &mut bounds.one_of),
        ] {
            if name == "allOf" && is_reference {
                continue;
            }
            for schema in list(name) {
                places.push(self.add(&schema)?);
            }
        }
        if let Some(not) = fields.get("not") {
            bounds.not = Some(self.add(not)?);
        }
        Ok(bounds)
    }
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn is_true(fields: &Map<String, Value>, name: &str) -> bool {
    fields.get(name) == Some(&Value::Bool(true))
}

fn kind(fields: &Map<String, Value>) -> Kind {
    if is_true(fields, "x-kubernetes-int-or-string") {
        return Kind::IntOrString;
    }
    match fields.get("type").and_then(Value::as_str) {
        Some("object") => Kind::Object,
        Some("array") => Kind::Array,
        Some("string") => Kind::String,
        Some("integer") => Kind::Integer,
        Some("number") => Kind::Number,
        Some("boolean") => Kind::Boolean,
        _ => Kind::Any,
    }
}

fn list_type(fields: &Map<String, Value>) -> Option<ListType> {
    let keys = fields
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    match fields.get("x-kubernetes-list-type").and_then(Value::as_str)? {
        "set" => Some(ListType::Set),
        "map" => Some(ListType::Map(
            keys.filter_map(Value::as_str).map(str::to_owned).collect(),
        )),
        _ => Some(ListType::Atomic),
    }
}

fn strategy(fields: &Map<String, Value>) -> PatchStrategy {
    let words = fields
        .get("x-kubernetes-patch-strategy")
        .and_then(Value::as_str)
        .unwrap_or_default();
    words.split(',').fold(PatchStrategy::Default, |found, word| match word {
        "merge" => PatchStrategy::Merge,
        "replace" => PatchStrategy::Replace,
        _ => found,
    })
}

fn rules(fields: &Map<String, Value>) -> Vec<Rule> {
    let list = fields.get("x-kubernetes-validations").and_then(Value::as_array);
    list.into_iter().flatten().map(Rule::read).collect()
}

impl Pattern {
    fn new(text: &str) -> Self {
        Pattern {
            text: text.to_owned(),
            regex: regex::Regex::new(text).map_err(|e| e.to_string()),
        }
    }
}
