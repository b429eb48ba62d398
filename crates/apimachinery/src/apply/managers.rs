//! `metadata.managedFields`: who manages what.

use super::set::Set;
use serde_json::{Map, Value, json};

/// How many entries of operation Update are kept before old ones are joined.
const UPDATERS_MAX: usize = 10;
/// The manager of joined entries.
const ANCIENT: &str = "ancient-changes";

/// What tells entries apart. For Apply the version does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) manager: String,
    pub(super) is_apply: bool,
    pub(super) subresource: String,
    /// Of Update; empty for Apply.
    pub(super) version: String,
}

impl Who {
    /// How conflicts name it.
    pub(super) fn words(&self) -> String {
        let mut words = crate::field::quote(&self.manager);
        if !self.subresource.is_empty() {
            words = format!("{words} with subresource {}", crate::field::quote(&self.subresource));
        }
        if !self.is_apply {
            words = format!("{words} using {}", self.version);
        }
        words
    }

    const fn operation(&self) -> &'static str {
        if self.is_apply { "Apply" } else { "Update" }
    }
}

/// An entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) who: Who,
    pub(super) version: String,
    pub(super) time: Option<String>,
    pub(super) fields: Set,
}

/// All entries of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Managers(pub(super) Vec<Entry>);

impl Managers {
    /// Reads the entries of an object; none if any of them makes no sense.
    pub(super) fn of(object: &Value) -> Self {
        let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
        Managers(entries.map(read).collect::<Option<_>>().unwrap_or_default())
    }

    /// Writes the entries into an object.
    pub(super) fn write_to(mut self, object: &mut Value) {
        self.0.retain(|entry| !entry.fields.is_empty());
        self.0.sort_by(|a, b| a.order().cmp(&b.order()));
        let entries: Vec<_> = self.0.iter().map(write).collect();
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            return;
        };
        if entries.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), Value::Array(entries));
        }
    }

    pub(super) fn get(&self, who: &Who) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.who == *who)
    }

    pub(super) fn put(&mut self, entry: Entry) {
        self.0.retain(|e| e.who != entry.who);
        self.0.push(entry);
    }

    /// Joins the oldest entries of operation Update if there are too many.
    pub(super) fn cap(&mut self) {
        loop {
            let mut updaters: Vec<usize> = (0..self.0.len()).filter(|i| !self.0[*i].who.is_apply).collect();
            if updaters.len() <= UPDATERS_MAX {
                return;
            }
            updaters.sort_by(|a, b| self.0[*a].order().cmp(&self.0[*b].order()));
            let oldest_pair = updaters.iter().enumerate().find_map(|(rank, second)| {
                let first = updaters[..rank]
                    .iter()
                    .find(|first| self.0[**first].version == self.0[*second].version)?;
                Some((*first, *second))
            });
            let Some((first, second)) = oldest_pair else { return };
            let mut joined = self.0[second].clone();
            joined.fields = joined.fields.union(&self.0[first].fields);
            joined.who = Who {
                manager: ANCIENT.to_owned(),
                is_apply: false,
                subresource: String::new(),
                version: joined.version.clone(),
            };
            let gone = [self.0[first].who.clone(), self.0[second].who.clone()];
            self.0.retain(|entry| !gone.contains(&entry.who));
            self.put(joined);
        }
    }
}

impl Entry {
    /// Apply before Update, then by time, then by name.
    fn order(&self) -> (&str, &str, &str, &str, &str) {
        (
            self.who.operation(),
            self.time.as_deref().unwrap_or_default(),
            &self.who.manager,
            &self.version,
            &self.who.subresource,
        )
    }
}

fn read(entry: &Value) -> Option<Entry> {
    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let is_apply = match entry["operation"].as_str()? {
        "Apply" => true,
        "Update" => false,
        _ => return None,
    };
    let version = text("apiVersion");
    if version.is_empty() || entry["fieldsType"] != "FieldsV1" {
        return None;
    }
    Some(Entry {
        who: Who {
            manager: text("manager"),
            is_apply,
            subresource: text("subresource"),
            version: if is_apply { String::new() } else { version.clone() },
        },
        version,
        time: entry["time"].as_str().map(str::to_owned),
        fields: Set::from_json(&entry["fieldsV1"]),
    })
}

fn write(entry: &Entry) -> Value {
    let mut written = Map::new();
    let mut put = |name: &str, text: &str| {
        if !text.is_empty() {
            written.insert(name.to_owned(), json!(text));
        }
    };
    put("manager", &entry.who.manager);
    put("operation", entry.who.operation());
    put("apiVersion", &entry.version);
    put("time", entry.time.as_deref().unwrap_or_default());
    put("subresource", &entry.who.subresource);
    put("fieldsType", "FieldsV1");
    written.insert("fieldsV1".to_owned(), entry.fields.to_json());
    Value::Object(written)
}
