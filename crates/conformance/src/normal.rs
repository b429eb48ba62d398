//! Replaces by symbols what differs from run to run, so that equal symbols stand for equal things.

use regex::{Captures, Regex};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

static UUID: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b\d+\b"));
/// Addresses of services, given out by the server.
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b10\.96\.\d+\.\d+\b"));

/// Volumes with credentials, which the server names by chance.
static TOKEN_VOLUME: LazyLock<Regex> = LazyLock::new(|| pattern(r"kube-api-access-[a-z0-9]{5}\b"));

/// A cell of a table that says how old something is: a slow machine may need more than a second for a script.
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{1,2}s$"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern of this file")
}

/// The symbols of one transcript.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    namespace: String,
    uids: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
    /// The newest version of an object or a list so far.
    newest: u64,
    names: BTreeMap<String, String>,
}

impl Symbols {
    pub(crate) fn new(namespace: &str) -> Self {
        Symbols {
            namespace: namespace.to_owned(),
            ..Symbols::default()
        }
    }

    /// The body with its symbols. Versions and generated names are learned from objects before texts are searched for them.
    pub(crate) fn normalise(&mut self, mut body: Value) -> Value {
        self.learn(&body);
        self.replace(&mut body, "");
        body
    }

    fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                if let Some((text, version)) = version_in(fields)
                    && !is_of_list(fields)
                {
                    self.newest = self.newest.max(version);
                    symbol(&mut self.versions, text, "version");
                }
                let text = |field: &str| fields.get(field).and_then(Value::as_str);
                if let (Some(prefix), Some(name)) = (text("generateName"), text("name")) {
                    let count = self.names.len() + 1;
                    let known = self.names.entry(name.to_owned());
                    known.or_insert_with(|| format!("{prefix}<generated-{count}>"));
                }
                fields.values().for_each(|v| self.learn(v));
            }
            Value::Array(items) => items.iter().for_each(|v| self.learn(v)),
            _ => {}
        }
    }

    fn replace(&mut self, value: &mut Value, field: &str) {
        match value {
            Value::Object(fields) => {
                if let Some(row) = version_of_only_row(fields)
                    && let Some(Value::Object(metadata)) = fields.get_mut("metadata")
                {
                    self.replace_version_of_list(metadata, row);
                }
                self.replace_version_of_list(fields, self.newest);
                // Keys of managed fields quote UIDs and names.
                for (name, mut value) in std::mem::take(fields) {
                    // Of a part that was picked out, the name is a pointer.
                    let field = if name.contains("/cells/") {
                        "cells"
                    } else {
                        name.rsplit('/').next().unwrap_or_default()
                    };
                    self.replace(&mut value, field);
                    fields.insert(self.text(&name), value);
                }
            }
            Value::Array(items) => {
                let field = if field == "cells" { field } else { "" };
                for item in items {
                    self.replace(item, field);
                }
            }
            Value::String(text) if field == "cells" && AGE.is_match(text) => "<age>".clone_into(text),
            Value::String(text) if field == "continue" && !text.is_empty() => "<token>".clone_into(text),
            Value::String(text) if field == "resourceVersion" && text.parse::<u64>().is_ok_and(|v| v > 0) => {
                *text = symbol(&mut self.versions, text, "version");
            }
            Value::String(text) => *text = self.text(text),
            _ => {}
        }
    }

    /// Says of the version in the metadata of a list whether it is older than it may be.
    fn replace_version_of_list(&mut self, metadata: &mut Map<String, Value>, at_least: u64) {
        if is_of_list(metadata)
            && let Some((_, version)) = version_in(metadata)
        {
            let is_older = version < at_least;
            let symbol = if is_older {
                "<older-version-of-list>"
            } else {
                "<version-of-list>"
            };
            self.newest = self.newest.max(version);
            metadata.insert("resourceVersion".to_owned(), symbol.into());
        }
    }

    /// One text with its symbols.
    pub(crate) fn text(&mut self, text: &str) -> String {
        let text = text.replace(&self.namespace, "<ns>");
        let uids = &mut self.uids;
        let text = UUID.replace_all(&text, |c: &Captures<'_>| symbol(uids, &c[0], "uid"));
        let text = TIME.replace_all(&text, "<time>");
        let text = ADDRESS.replace_all(&text, "<address>");
        let text = TOKEN_VOLUME.replace_all(&text, "kube-api-access-<generated>");
        let versions = &self.versions;
        let known = |c: &Captures<'_>| versions.get(&c[0]).cloned().unwrap_or_else(|| c[0].to_owned());
        // A number of one or two digits is more likely a port or a count.
        let text = if text.len() > 2 {
            NUMBER.replace_all(&text, known).into_owned()
        } else {
            text.into_owned()
        };
        self.names
            .iter()
            .fold(text, |text, (name, symbol)| text.replace(name, symbol))
    }
}

/// The version in some metadata, as a text and as a number; none in an empty list that no version was given.
fn version_in(metadata: &Map<String, Value>) -> Option<(&str, u64)> {
    let text = metadata.get("resourceVersion")?.as_str()?;
    let version = text.parse().ok().filter(|version| *version > 0)?;
    Some((text, version))
}

/// The version of the object in a table of one row. The table may be of a list, or of that object alone, and then has its version, however
/// far the store has got meanwhile.
fn version_of_only_row(table: &Map<String, Value>) -> Option<u64> {
    let rows = table.get("rows").and_then(Value::as_array)?;
    let [row] = rows.as_slice() else { return None };
    let metadata = row.pointer("/object/metadata")?.as_object()?;
    Some(version_in(metadata)?.1)
}

/// Whether these are the metadata of a list. Its version is the one that the whole store has reached, by anybody's writes, so that two lists
/// have the same one or not by chance; what holds is that it is not older than what was seen before.
fn is_of_list(metadata: &Map<String, Value>) -> bool {
    metadata.contains_key("resourceVersion")
        && metadata
            .keys()
            .all(|field| ["resourceVersion", "continue", "remainingItemCount"].contains(&field.as_str()))
}

fn symbol(known: &mut BTreeMap<String, String>, text: &str, what: &str) -> String {
    let count = known.len() + 1;
    known
        .entry(text.to_owned())
        .or_insert_with(|| format!("<{what}-{count}>"))
        .clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_things_get_equal_symbols() {
        let mut symbols = Symbols::new("script-7");
        let uid = "0b1f2a3c-0000-4000-8000-00000000000a";
        let object = json!({"metadata": {"name": "a-x7k2p", "generateName": "a-", "namespace": "script-7", "uid": uid,
            "resourceVersion": "1234", "creationTimestamp": "2026-01-01T00:00:00Z"}});
        let normal = symbols.normalise(object);
        assert_eq!(
            normal,
            json!({"metadata": {"name": "a-<generated-1>", "generateName": "a-", "namespace": "<ns>", "uid": "<uid-1>",
                "resourceVersion": "<version-1>", "creationTimestamp": "<time>"}})
        );
        let message = format!("a-x7k2p: {uid} at 1234, not 99");
        assert_eq!(
            symbols.text(&message),
            "a-<generated-1>: <uid-1> at <version-1>, not 99"
        );
        let list = json!({"metadata": {"resourceVersion": "1300", "continue": ""}, "items": []});
        assert_eq!(
            symbols.normalise(list)["metadata"],
            json!({"resourceVersion": "<version-of-list>", "continue": ""})
        );
        let table = json!({"rows": [{"cells": ["s", "12s", "2d"]}], "/rows/0/cells/1": "0s", "graceful": "30s"});
        assert_eq!(
            symbols.normalise(table),
            json!({"rows": [{"cells": ["s", "<age>", "2d"]}], "/rows/0/cells/1": "<age>", "graceful": "30s"})
        );
        let old = json!({"metadata": {"resourceVersion": "1299"}, "items": []});
        assert_eq!(
            symbols.normalise(old)["metadata"]["resourceVersion"],
            "<older-version-of-list>"
        );
    }
    #[test]
    fn a_table_of_one_object_has_its_version_and_a_list_that_of_the_store() {
        let row =
            |version: &str| json!({"cells": ["a"], "object": {"metadata": {"name": "a", "resourceVersion": version}}});
        let seen = |table: &str, rows: &[Value]| {
            let mut symbols = Symbols::new("script-7");
            symbols.normalise(json!({"metadata": {"resourceVersion": "1300"}, "items": []}));
            let table = json!({"kind": "Table", "metadata": {"resourceVersion": table}, "rows": rows});
            symbols.normalise(table)["metadata"]["resourceVersion"].clone()
        };
        assert_eq!(
            seen("1200", &[row("1200")]),
            "<version-of-list>",
            "others have written since"
        );
        assert_eq!(
            seen("1199", &[row("1200")]),
            "<older-version-of-list>",
            "older than what it shows"
        );
        assert_eq!(seen("1200", &[row("1200"), row("1100")]), "<older-version-of-list>");
        assert_eq!(seen("1301", &[row("1200"), row("1100")]), "<version-of-list>");
        assert_eq!(seen("1200", &[]), "<older-version-of-list>");
    }
}
