//! Reviews of conversion. Each object is read by itself, and of it only what conversion looks at: templates, the status and the rest of the
//! metadata are copied byte for byte, however deep they are. So no object of one tenant fails the review, which may list all namespaces.

use super::{Answer, CONVERSION, Unreadable, read};
use crate::weight;
use flotilla_model::weight::weight;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// How many levels a part may have to be read: fewer than what the reader of JSON, which goes down by recursion, allows.
const LEVELS_MAX: usize = 100;
/// What the parts of one object that are read may take together.
const HEAP_BYTES_MAX: usize = weight::HEAP_BYTES_MAX / 2;
/// More fields than any object, metadata or spec has.
const FIELDS_MAX: usize = 1000;
/// Fields that are looked at in an object and in its metadata; of spec it is all but [`COPIED`].
const READ: [&str; 4] = ["apiVersion", "kind", "metadata", "spec"];
const READ_OF_METADATA: [&str; 4] = ["name", "namespace", "labels", "annotations"];
const COPIED: [&str; 2] = ["template", "volumeClaimTemplates"];

#[derive(Deserialize)]
struct Conversion<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow, rename = "desiredAPIVersion")]
    desired: Cow<'a, str>,
    #[serde(borrow)]
    objects: &'a RawValue,
}

/// Answers a review.
pub(super) fn convert(body: &[u8]) -> Result<Answer, Unreadable> {
    let asked: Conversion<'_> = read(body, CONVERSION, "ConversionReview")?;
    // Written as it is read, object by object: a tree of the whole answer would be another copy of each.
    let mut out = format!(
        r#"{{"apiVersion":"{CONVERSION}","kind":"ConversionReview","response":{{"uid":{},"convertedObjects":["#,
        Value::from(asked.uid.as_ref())
    )
    .into_bytes();
    let objects = Objects {
        desired: &asked.desired,
        out: &mut out,
    };
    let failed = objects
        .deserialize(&mut serde_json::Deserializer::from_str(asked.objects.get()))
        .map_err(|why| Unreadable(format!("the objects of the ConversionReview cannot be read: {why}")))?;
    let Some(message) = failed else {
        out.extend_from_slice(br#"],"result":{"status":"Success"}}}"#);
        return Ok(Answer {
            body: out,
            verdict: "converted",
        });
    };
    let response =
        json!({"uid": asked.uid, "convertedObjects": [], "result": {"status": "Failure", "message": message}});
    let review = json!({"apiVersion": CONVERSION, "kind": "ConversionReview", "response": response});
    Ok(Answer {
        body: review.to_string().into_bytes(),
        verdict: "unconverted",
    })
}

/// Converts the objects of a list, one after the other. Gives what is wrong with the first that cannot be converted.
struct Objects<'o> {
    desired: &'o str,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Objects<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Objects<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut objects: A) -> Result<Self::Value, A::Error> {
        let mut failed = None;
        let mut is_first = true;
        // After a failure the rest is passed over: the reader wants to come to the end.
        while let Some(raw) = objects.next_element::<&RawValue>()? {
            if failed.is_some() {
                continue;
            }
            let mut object = Sparse::read(raw);
            match flotilla_admission::convert(vec![std::mem::take(&mut object.tree)], self.desired) {
                Ok(converted) => object.tree = converted.into_iter().next().unwrap_or_default(),
                Err(message) => {
                    failed = Some(message);
                    continue;
                }
            }
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            serde_json::to_writer(&mut *self.out, &object).map_err(A::Error::custom)?;
        }
        Ok(failed)
    }
}

/// An object of which some parts are a tree, and the others the text that they are.
#[derive(Default)]
struct Sparse<'a> {
    tree: Value,
    object: Copied<'a>,
    metadata: Copied<'a>,
    spec: Copied<'a>,
}

/// Fields that are copied.
type Copied<'a> = Vec<(String, &'a RawValue)>;

impl<'a> Sparse<'a> {
    fn read(raw: &'a RawValue) -> Self {
        let mut room = HEAP_BYTES_MAX;
        let mut read = Sparse::default();
        let Some(Fields(fields)) = open(raw) else {
            // No object is converted from this, and the refusal names no more than null would.
            return read;
        };
        let mut tree = serde_json::Map::new();
        for (field, raw) in fields {
            let inner = match field.as_str() {
                "metadata" => open(raw)
                    .map(|fields| split(fields, &mut room, &mut read.metadata, |f| READ_OF_METADATA.contains(&f))),
                "spec" => open(raw).map(|fields| split(fields, &mut room, &mut read.spec, |f| !COPIED.contains(&f))),
                _ => None,
            };
            let is_read = READ.contains(&field.as_str());
            match inner.or_else(|| is_read.then(|| value(raw, &mut room)).flatten()) {
                Some(value) => {
                    tree.insert(field, value);
                }
                None => read.object.push((field, raw)),
            }
        }
        read.tree = Value::Object(tree);
        read
    }
}

/// The fields that are looked at, as a tree; the others are copied, as are those that are too deep or too heavy to be read. The definition
/// bounds what is looked at, so that no API server sends such.
fn split<'a>(fields: Fields<'a>, room: &mut usize, copied: &mut Copied<'a>, is_read: impl Fn(&str) -> bool) -> Value {
    let mut tree = serde_json::Map::new();
    for (field, raw) in fields.0 {
        match is_read(&field).then(|| value(raw, room)).flatten() {
            Some(value) => {
                tree.insert(field, value);
            }
            None => copied.push((field, raw)),
        }
    }
    Value::Object(tree)
}

/// A part, unless it is too deep or too heavy.
fn value(raw: &RawValue, room: &mut usize) -> Option<Value> {
    *room = room.checked_sub(weight(raw.get().as_bytes(), LEVELS_MAX - 1))?;
    serde_json::from_str(raw.get()).ok()
}

/// The fields of an object; `None` if it is none, or has too many.
fn open(raw: &RawValue) -> Option<Fields<'_>> {
    serde_json::from_str(raw.get()).ok()
}

/// Fields as the texts that they are; of two of the same name the last.
struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(FieldsVisitor).map(Fields)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = BTreeMap<String, &'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((key, raw)) = entries.next_entry::<String, &RawValue>()? {
            if fields.len() == FIELDS_MAX {
                return Err(A::Error::custom("it has too many fields"));
            }
            fields.insert(key, raw);
        }
        Ok(fields)
    }
}

impl Serialize for Sparse<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Value::Object(tree) = &self.tree else {
            return self.tree.serialize(to);
        };
        let mut map = to.serialize_map(None)?;
        for (field, value) in tree {
            let copied = match field.as_str() {
                "metadata" => &self.metadata,
                "spec" => &self.spec,
                _ => &Vec::new(),
            };
            map.serialize_entry(field, &Joined(value, copied))?;
        }
        for (field, raw) in self.object.iter().filter(|(field, _)| !tree.contains_key(field)) {
            map.serialize_entry(field, raw)?;
        }
        map.end()
    }
}

/// A tree with fields that were copied.
struct Joined<'s, 'a>(&'s Value, &'s Copied<'a>);

impl Serialize for Joined<'_, '_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Value::Object(tree) = self.0 else {
            return self.0.serialize(to);
        };
        let mut map = to.serialize_map(None)?;
        for (field, value) in tree {
            map.serialize_entry(field, value)?;
        }
        for (field, raw) in self.1.iter().filter(|(field, _)| !tree.contains_key(field)) {
            map.serialize_entry(field, raw)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests;
