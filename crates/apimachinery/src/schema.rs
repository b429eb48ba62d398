//! What the fields of objects are: types read from OpenAPI v3 documents and from custom resource definitions.
//!
//! [`Types`] holds the types of any number of documents; a [`Schema`] is a place in them, from which one goes to the schema of a field
//! or item. The submodules are what an API server does by them: fill in defaults, drop unknown fields, validate.

mod cel;
mod default;
mod mistyped;
mod prune;
mod read;
mod rules;
mod validate;

pub use default::fill_defaults;
pub use mistyped::mistyped;
pub use prune::{Unknown, drop_empty, drop_nulls, drop_unknown, unknown_fields};
pub use read::ReadError;
pub use validate::validate;

use serde_json::Value;
use std::collections::BTreeMap;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Kind {
    /// Anything at all.
    #[default]
    Any,
    /// An object.
    Object,
    /// A list.
    Array,
    /// A text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A whole number or a text (`x-kubernetes-int-or-string`).
    IntOrString,
}

impl Kind {
    /// The schema's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Any => "",
            Kind::Object => "object",
            Kind::Array => "array",
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
            Kind::IntOrString => "integer,string",
        }
    }
}

/// What tells the items of a list apart.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum ListType {
    /// Nothing: the list is one value.
    #[default]
    Atomic,
    /// Their value.
    Set,
    /// The values of these fields.
    Map(Vec<String>),
}

/// How a strategic merge patch treats a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PatchStrategy {
    /// Objects are merged, lists replaced.
    #[default]
    Default,
    /// Lists are merged as well.
    Merge,
    /// Objects are replaced as well.
    Replace,
}

/// A regular expression that texts must match.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    /// Compiled; or what is wrong with it.
    pub(crate) regex: Result<regex::Regex, String>,
}

/// Bounds on values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) required: Vec<String>,
    pub(crate) allowed: Vec<Value>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) minimum: Option<(f64, bool)>,
    pub(crate) maximum: Option<(f64, bool)>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) length: (Option<u64>, Option<u64>),
    pub(crate) items: (Option<u64>, Option<u64>),
    pub(crate) properties: (Option<u64>, Option<u64>),
    pub(crate) all_of: Vec<usize>,
    pub(crate) any_of: Vec<usize>,
    pub(crate) one_of: Vec<usize>,
    pub(crate) not: Option<usize>,
}

/// One type. Numbers are places of other types in [`Types`].
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a keyword of its own in schemas, and any may be set"
)]
pub(crate) struct Node {
    /// Another type that says everything this one does not.
    pub(crate) target: Option<usize>,
    pub(crate) kind: Kind,
    pub(crate) format: String,
    pub(crate) properties: BTreeMap<String, usize>,
    pub(crate) values: Option<usize>,
    pub(crate) items: Option<usize>,
    pub(crate) list_type: Option<ListType>,
    pub(crate) is_atomic: bool,
    pub(crate) strategy: PatchStrategy,
    pub(crate) merge_key: Option<String>,
    pub(crate) default: Option<Value>,
    pub(crate) is_nullable: bool,
    pub(crate) keeps_unknown: bool,
    pub(crate) is_embedded: bool,
    pub(crate) bounds: Option<Box<Bounds>>,
    pub(crate) rules: Vec<rules::Rule>,
    /// Paths of the scale subresource that lead to counts.
    pub(crate) counts: Vec<String>,
}

/// The types of one or more documents.
#[derive(Clone, Debug, Default)]
pub struct Types {
    pub(crate) nodes: Vec<Node>,
    pub(crate) names: BTreeMap<String, usize>,
    kinds: BTreeMap<(String, String, String), usize>,
}

impl Types {
    /// The schema of a kind.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<Schema<'_>> {
        let key = (group.to_owned(), version.to_owned(), kind.to_owned());
        self.kinds.get(&key).map(|place| self.at(*place))
    }

    fn at(&self, place: usize) -> Schema<'_> {
        Schema {
            types: self,
            node: &self.nodes[place],
        }
    }
}

/// A place in [`Types`].
#[derive(Clone, Copy, Debug)]
pub struct Schema<'t> {
    types: &'t Types,
    node: &'t Node,
}

impl<'t> Schema<'t> {
    /// The type that says what this one leaves to it.
    fn target(self) -> Option<Schema<'t>> {
        self.node.target.map(|place| self.types.at(place))
    }

    /// The first of this type and those it leaves things to of which something is known.
    fn first<T>(self, ask: impl Fn(&'t Node) -> Option<T>) -> Option<T> {
        let mut schema = Some(self);
        while let Some(at) = schema {
            if let Some(answer) = ask(at.node) {
                return Some(answer);
            }
            schema = at.target();
        }
        None
    }

    /// What a value is.
    pub fn kind(self) -> Kind {
        self.first(|n| (n.kind != Kind::Any).then_some(n.kind))
            .unwrap_or_default()
    }

    /// The format of a text or number; empty if there is none.
    pub fn format(self) -> &'t str {
        self.first(|n| (!n.format.is_empty()).then_some(n.format.as_str()))
            .unwrap_or_default()
    }

    /// The name of the component that this is; empty if it has none.
    pub fn name(self) -> &'t str {
        let is_this =
            |place: &usize| self.first(|n| std::ptr::eq(n, &raw const self.types.nodes[*place]).then_some(()));
        let mut names = self.types.names.iter();
        names
            .find(|(_, place)| is_this(place).is_some())
            .map_or("", |(name, _)| name.as_str())
    }

    /// The schema of a declared field.
    pub fn property(self, name: &str) -> Option<Schema<'t>> {
        self.first(|n| n.properties.get(name))
            .map(|place| self.types.at(*place))
    }

    /// All declared fields.
    pub fn properties(self) -> impl Iterator<Item = (&'t str, Schema<'t>)> {
        let fields = self.first(|n| (!n.properties.is_empty()).then_some(&n.properties));
        fields
            .into_iter()
            .flatten()
            .map(move |(name, place)| (name.as_str(), self.types.at(*place)))
    }

    /// The schema of the values of a map.
    pub fn values(self) -> Option<Schema<'t>> {
        self.first(|n| n.values).map(|place| self.types.at(place))
    }

    /// The schema of a field of an object or a value of a map.
    pub fn field(self, name: &str) -> Option<Schema<'t>> {
        self.property(name).or_else(|| self.values())
    }

    /// The schema of the items of a list.
    pub fn items(self) -> Option<Schema<'t>> {
        self.first(|n| n.items).map(|place| self.types.at(place))
    }

    /// What tells the items of a list apart.
    pub fn list_type(self) -> &'t ListType {
        self.first(|n| n.list_type.as_ref()).unwrap_or(&ListType::Atomic)
    }

    /// Whether an object or map is one value for server-side apply.
    pub fn is_atomic(self) -> bool {
        self.first(|n| n.is_atomic.then_some(())).is_some()
    }

    /// How a strategic merge patch treats it.
    pub fn patch_strategy(self) -> PatchStrategy {
        self.first(|n| (n.strategy != PatchStrategy::Default).then_some(n.strategy))
            .unwrap_or_default()
    }

    /// The field that tells items of a list apart in strategic merge patches.
    pub fn patch_merge_key(self) -> Option<&'t str> {
        self.first(|n| n.merge_key.as_deref())
    }

    /// The default.
    pub fn default(self) -> Option<&'t Value> {
        self.node.default.as_ref()
    }

    /// Whether null is a value.
    pub fn is_nullable(self) -> bool {
        self.first(|n| n.is_nullable.then_some(())).is_some()
    }

    /// Whether fields that are not declared are kept.
    pub fn keeps_unknown(self) -> bool {
        self.first(|n| n.keeps_unknown.then_some(())).is_some()
    }

    /// Whether it is an object of the API inside of another (`x-kubernetes-embedded-resource`).
    pub fn is_embedded(self) -> bool {
        self.first(|n| n.is_embedded.then_some(())).is_some()
    }

    /// Whether anything is known of what is inside: an object with fields or values, a list with items, or a scalar.
    pub fn is_opaque(self) -> bool {
        match self.kind() {
            Kind::Object => self.properties().next().is_none() && self.values().is_none(),
            Kind::Array => self.items().is_none(),
            Kind::Any => true,
            _ => false,
        }
    }

    pub(crate) fn bounds(self) -> Option<&'t Bounds> {
        self.first(|n| n.bounds.as_deref())
    }

    pub(crate) fn rules(self) -> &'t [rules::Rule] {
        &self.node.rules
    }

    pub(crate) fn counts(self) -> &'t [String] {
        &self.node.counts
    }

    pub(crate) fn other(self, place: usize) -> Schema<'t> {
        self.types.at(place)
    }
}
