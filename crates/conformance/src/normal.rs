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
                if let Some(version) = fields.get("resourceVersion").and_then(Value::as_str)
                    && version.parse::<u64>().is_ok_and(|v| v > 0)
                    && !is_of_list(fields)
                {
                    symbol(&mut self.versions, version, "version");
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
                if is_of_list(fields) {
                    fields.insert("resourceVersion".to_owned(), "<version-of-list>".into());
                }
                // Keys of managed fields quote UIDs and names.
                for (name, mut value) in std::mem::take(fields) {
                    // Of a part that was picked out, the name is a pointer.
                    self.replace(&mut value, name.rsplit('/').next().unwrap_or_default());
                    fields.insert(self.text(&name), value);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|v| self.replace(v, "")),
            Value::String(text) if field == "continue" && !text.is_empty() => "<token>".clone_into(text),
            Value::String(text) if field == "resourceVersion" && text.parse::<u64>().is_ok_and(|v| v > 0) => {
                *text = symbol(&mut self.versions, text, "version");
            }
            Value::String(text) => *text = self.text(text),
            _ => {}
        }
    }

    /// One text with its symbols.
    pub(crate) fn text(&mut self, text: &str) -> String {
        if AGE.is_match(text) {
            return "<age>".to_owned();
        }
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

/// Whether these are the metadata of a list. Its version is the one that the whole store has reached, by anybody's writes, so that two lists
/// have the same one or not by chance.
fn is_of_list(metadata: &Map<String, Value>) -> bool {
    let is_version = |version: &Value| {
        version
            .as_str()
            .is_some_and(|text| text.parse::<u64>().is_ok_and(|v| v > 0))
    };
    metadata.get("resourceVersion").is_some_and(is_version)
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
        assert_eq!(
            ["0s", "12s", "s", "2d"].map(|text| symbols.text(text)),
            ["<age>", "<age>", "s", "2d"]
        );
    }
}
