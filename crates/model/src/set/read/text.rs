//! Reading a set from its text, without making a tree of what is known or not needed, nor of what would become too large.

use super::{
    Area, FieldProblem, Interner, ObjectKey, Parts, SetKind, SetRecord, TEMPLATE, Template, Value, key_of,
    status_writers,
};
use crate::intern::{Form, Meant};
use crate::weight::weight;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Map;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The memory that a template may take once it is read, by its [`weight`]. Where people write templates, that is some 300 KB of text.
pub const TEMPLATE_BYTES_MAX: usize = 4 << 20;
/// The same of any other field.
const FIELD_BYTES_MAX: usize = 2 << 20;
/// The same of all of them together, the template included, the status not.
const SET_BYTES_MAX: usize = 6 << 20;
/// How many levels of lists and maps a field may have.
const DEEPEST: usize = 100;
/// More fields than an object of a set has. What is beyond is not read.
const MOST_FIELDS: usize = 256;
/// What of metadata is read into a tree.
const METADATA: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",
    "ownerReferences",
];

/// Reads a set from its text. A part that is too large to be read stops everything, since nobody knows what it says; the set is here all the
/// same, so that its owner is told, and that nothing is done to what it owns.
///
/// # Errors
///
/// If it is no JSON, or its metadata has no name, UID or version.
pub fn read_set_text(kind: SetKind, text: &[u8], interner: &mut Interner) -> Result<SetRecord, String> {
    let said = |e: serde_json::Error| e.to_string();
    let object = Fields::read(text, |field| matches!(field, "metadata" | "spec" | "status")).map_err(said)?;
    let mut limits = Limits {
        left: SET_BYTES_MAX,
        problems: Vec::new(),
    };
    let mut metadata = Map::new();
    let mut writers = Vec::new();
    if let Some(found) = object.get("metadata") {
        let is_read = |field: &str| METADATA.contains(&field) || field == "managedFields";
        for (field, value) in Fields::read(found.get().as_bytes(), is_read).map_err(said)?.0 {
            if field == "managedFields" {
                writers = serde_json::from_str::<Writers>(value.get()).map_err(said)?.0;
            } else {
                let read = limits
                    .tree(format!("metadata.{field}"), value, FIELD_BYTES_MAX)
                    .map_err(said)?;
                metadata.insert(field.into_owned(), read);
            }
        }
    }
    let spec = object.get("spec").map_or("null", RawValue::get);
    let (spec, template) = limits.spec(spec).map_err(said)?;
    let owner = key_of(|field| metadata.get(field).and_then(Value::as_str));
    let (template, tree) = limits.template(&owner, template, interner).map_err(said)?;
    // Whatever else is large: a status that was not read would be written anew, without what others say there.
    limits.left = FIELD_BYTES_MAX;
    let status = match object.get("status") {
        Some(status) => limits
            .tree("status".to_owned(), status, FIELD_BYTES_MAX)
            .map_err(said)?,
        None => Value::Null,
    };
    let parts = Parts {
        metadata: Value::Object(metadata),
        writers: status_writers(writers.iter(), interner),
        spec,
        template,
        tree,
        status,
        problems: limits.problems,
    };
    parts
        .into_record(kind, interner)
        .ok_or_else(|| "no usable metadata".to_owned())
}

/// How much more may be read, and what was not.
struct Limits {
    left: usize,
    problems: Vec<FieldProblem>,
}

impl Limits {
    /// The tree of a field, or null if it is too large.
    fn tree(&mut self, path: String, raw: &RawValue, most: usize) -> Result<Value, serde_json::Error> {
        if !self.has_room(raw.get(), most) {
            self.leave_out(path, raw.get());
            return Ok(Value::Null);
        }
        serde_json::from_str(raw.get())
    }

    fn has_room(&mut self, text: &str, most: usize) -> bool {
        let weight = weight(text.as_bytes(), DEEPEST);
        let fits = weight <= most.min(self.left);
        self.left -= if fits { weight } else { 0 };
        fits
    }

    fn leave_out(&mut self, path: String, text: &str) {
        self.problems.push(FieldProblem {
            path,
            found: format!("{} bytes", text.len()),
            rule: "must be smaller, or have fewer parts",
            stops: Area::Everything,
        });
    }

    /// The spec without its template, and that.
    fn spec<'t>(&mut self, text: &'t str) -> Result<(Value, Option<&'t RawValue>), serde_json::Error> {
        if !text.starts_with('{') {
            let raw: &RawValue = serde_json::from_str(text)?;
            return Ok((self.tree("spec".to_owned(), raw, FIELD_BYTES_MAX)?, None));
        }
        let fields = match Fields::read(text.as_bytes(), |_| true) {
            Ok(fields) => fields,
            Err(e) if e.to_string().starts_with(TOO_MANY) => {
                self.leave_out("spec".to_owned(), text);
                return Ok((Value::Null, None));
            }
            Err(e) => return Err(e),
        };
        let (mut spec, mut template) = (Map::new(), None);
        for (field, value) in fields.0 {
            if field == "template" {
                template = Some(value);
            } else {
                let read = self.tree(format!("spec.{field}"), value, FIELD_BYTES_MAX)?;
                spec.insert(field.into_owned(), read);
            }
        }
        Ok((Value::Object(spec), template))
    }

    /// The template with its tree; null if there is none, or if it is too large.
    fn template(
        &mut self,
        owner: &ObjectKey,
        raw: Option<&RawValue>,
        interner: &mut Interner,
    ) -> Result<(Template, Arc<Value>), serde_json::Error> {
        let text = match raw.map(RawValue::get) {
            Some(text) if !self.has_room(text, TEMPLATE_BYTES_MAX) => {
                self.leave_out(TEMPLATE.to_owned(), text);
                None
            }
            other => other,
        };
        let text = text.unwrap_or("null").as_bytes();
        let found = interner.template_in(owner, Form::Bare, text, |text| serde_json::from_slice(text).map(Some))?;
        let Some(Meant { template, tree }) = found else {
            return Ok((interner.template(owner, &Value::Null), Arc::new(Value::Null)));
        };
        let tree = match tree {
            Some(tree) => {
                template.remember(&tree, text);
                tree
            }
            None => template.tree(),
        };
        Ok((template, tree))
    }
}

/// Begins the message about an object with too many fields.
const TOO_MANY: &str = "too many fields";

/// Fields of an object, their values not looked at.
struct Fields<'t>(Vec<(Cow<'t, str>, &'t RawValue)>);

impl<'t> Fields<'t> {
    /// Those fields that `is_read` names; the last of each name counts.
    fn read(text: &'t [u8], is_read: impl Fn(&str) -> bool) -> Result<Self, serde_json::Error> {
        let mut json = serde_json::Deserializer::from_slice(text);
        let fields = json.deserialize_map(FieldsOf(is_read))?;
        json.end()?;
        Ok(fields)
    }

    fn get(&self, name: &str) -> Option<&'t RawValue> {
        let found = self.0.iter().rev().find(|(field, _)| field == name);
        found.map(|(_, value)| *value).filter(|value| value.get() != "null")
    }
}

struct FieldsOf<F>(F);

impl<'t, F: Fn(&str) -> bool> Visitor<'t> for FieldsOf<F> {
    type Value = Fields<'t>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Fields<'t>, A::Error> {
        let mut fields = Vec::new();
        while let Some(Name(field)) = map.next_key()? {
            if !self.0(&field) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if fields.len() == MOST_FIELDS {
                return Err(A::Error::custom(TOO_MANY));
            }
            fields.push((field, map.next_value()?));
        }
        Ok(Fields(fields))
    }
}

/// A name of a field, as it lies in the text if it can.
#[derive(Deserialize)]
struct Name<'t>(#[serde(borrow)] Cow<'t, str>);

/// Entries of `managedFields`: who wrote what part of the object. Which fields that were, nobody asks.
struct Writers(Vec<Value>);

/// How many entries are read. The API server keeps few (ten of updates, and those of appliers).
const MOST_WRITERS: usize = 1024;

impl<'t> Deserialize<'t> for Writers {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Writer {
            manager: Option<String>,
            subresource: Option<String>,
        }
        struct Entries;
        impl<'t> Visitor<'t> for Entries {
            type Value = Writers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<Writers, E> {
                Ok(Writers(Vec::new()))
            }

            fn visit_seq<A: serde::de::SeqAccess<'t>>(self, mut seq: A) -> Result<Writers, A::Error> {
                let mut writers = Vec::new();
                while writers.len() < MOST_WRITERS
                    && let Some(Writer { manager, subresource }) = seq.next_element()?
                {
                    writers.push(serde_json::json!({"manager": manager, "subresource": subresource}));
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Writers(writers))
            }
        }
        deserializer.deserialize_any(Entries)
    }
}
