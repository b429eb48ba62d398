//! Scripts: what is asked, in which order.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// One request.
///
/// In `request`, `body` and `text`, `$ns` stands for the namespace of the script, and `$name` for whatever an earlier step kept under
/// that name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Method and path, such as `GET /api/v1/namespaces/$ns/pods`. Blanks in the query are escaped.
    #[serde(rename = "do")]
    pub request: String,
    /// What is sent, as JSON.
    #[serde(default)]
    pub body: Option<Value>,
    /// What is sent, as it stands.
    #[serde(default)]
    pub text: Option<String>,
    /// `Content-Type`; JSON unless it is said.
    #[serde(default, rename = "type")]
    pub content_type: Option<String>,
    /// `Accept`; JSON unless it is said.
    #[serde(default)]
    pub accept: Option<String>,
    /// Parts of the answer to keep under a name: JSON pointers.
    #[serde(default)]
    pub keep: BTreeMap<String, String>,
    /// Ask again until the answer has this code, or these values at these pointers (null: nothing there).
    #[serde(default)]
    pub until: Option<Until>,
    /// The answer is a watch, of which so many events are read.
    #[serde(default)]
    pub events: Option<usize>,
    /// Fields of the body that are looked at; everything unless they are named. JSON pointers.
    #[serde(default)]
    pub only: Vec<String>,
}

/// When to stop asking.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Until {
    /// The HTTP status code is this.
    Code(u16),
    /// The values at these pointers are these.
    Values(BTreeMap<String, Value>),
}

/// A script.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// What it is about, in a few words.
    pub name: String,
    /// What is asked.
    pub steps: Vec<Step>,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../scripts/", $name, ".yaml")))),*] };
}

const FILES: &[(&str, &str)] = files![
    "admission",
    "apply",
    "claims",
    "create",
    "crds",
    "delete",
    "errors",
    "list",
    "namespaces",
    "patch",
    "pods",
    "protobuf",
    "rules",
    "sets",
    "subresources",
    "tables",
    "update",
    "watch",
];

/// All scripts.
///
/// # Panics
/// If a file is not as it should be: they are part of this crate.
pub fn scripts() -> Vec<Script> {
    let mut all = Vec::new();
    for (name, text) in FILES {
        let mut read: Vec<Script> = serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("scripts/{name}.yaml: {e}"));
        for script in &mut read {
            script.name = format!("{name}: {}", script.name);
        }
        all.append(&mut read);
    }
    all
}
