//! Objects of reviews of admission, as trees.

use flotilla_model::weight::{DEEPEST, weight};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;

/// How many levels a field may have to be read: within its object it comes to what the reader of JSON, which goes down by recursion, allows.
const LEVELS_MAX: usize = DEEPEST - 8;

/// An object without `metadata.managedFields`: they are a large part of it, and no rule looks at them.
pub(super) struct Object<'a> {
    /// What is too deep is null here.
    pub(super) tree: Value,
    /// Fields that are too deep to be read, by their paths.
    deep: Vec<(String, &'a RawValue)>,
}

impl<'a> Object<'a> {
    pub(super) fn read(raw: &'a RawValue) -> serde_json::Result<Self> {
        let mut deep = Vec::new();
        let reader = Reader {
            place: "",
            deep: &mut deep,
        };
        let tree = reader.deserialize(&mut serde_json::Deserializer::from_str(raw.get()))?;
        Ok(Object { tree, deep })
    }

    /// The path of a field that is too deep and that the stored object does not have like that already: what is stored can be edited elsewhere.
    pub(super) fn too_deep(&self, stored: Option<&Object<'_>>) -> Option<&str> {
        let is_stored = |path: &str, raw: &RawValue| {
            stored.is_some_and(|stored| stored.deep.iter().any(|(p, r)| p == path && r.get() == raw.get()))
        };
        let new = self.deep.iter().find(|(path, raw)| !is_stored(path, raw))?;
        Some(&new.0)
    }
}

/// What is said of such a field.
pub(super) fn too_deep(path: &str) -> String {
    format!(
        "{path}: Invalid value: it is nested more than {LEVELS_MAX} levels deep, and cannot be looked at: make it flatter"
    )
}

/// Reads an object, its metadata or its spec.
struct Reader<'r, 'a> {
    /// Empty for the object itself.
    place: &'static str,
    deep: &'r mut Vec<(String, &'a RawValue)>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_, 'de> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_, 'de> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = match (self.place, key.as_str()) {
                ("", "metadata") => entries.next_value_seed(Reader {
                    place: "metadata.",
                    deep: self.deep,
                })?,
                ("metadata.", "managedFields") => {
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
                (place, field) => {
                    self::value(entries.next_value()?, (place, field), self.deep).map_err(serde::de::Error::custom)?
                }
            };
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// A field as a tree; null if it is too deep. Of a spec each field is looked at by itself.
fn value<'a>(
    raw: &'a RawValue,
    (place, field): (&str, &str),
    deep: &mut Vec<(String, &'a RawValue)>,
) -> serde_json::Result<Value> {
    if weight(raw.get().as_bytes(), LEVELS_MAX - 1) != usize::MAX {
        return serde_json::from_str(raw.get());
    }
    if (place, field) == ("", "spec") && raw.get().starts_with('{') {
        let reader = Reader { place: "spec.", deep };
        return reader.deserialize(&mut serde_json::Deserializer::from_str(raw.get()));
    }
    deep.push((format!("{place}{field}"), raw));
    Ok(Value::Null)
}
