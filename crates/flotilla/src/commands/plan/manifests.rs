//! Manifests in files: YAML or JSON, any number of documents in each.

use crate::error::Error;
use flotilla_plan::Change;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What the files hold.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    /// Sets to apply, in order.
    pub(super) changes: Vec<Change>,
    /// Everything else, as kind and name.
    pub(super) others: Vec<String>,
}

impl Manifests {
    /// Reads files; `-` is standard input.
    pub(super) fn read(files: &[PathBuf]) -> Result<Self, Error> {
        let mut manifests = Manifests::default();
        for file in files {
            let is_input = file.as_os_str() == "-";
            let name = if is_input {
                "standard input".to_owned()
            } else {
                file.display().to_string()
            };
            let text = if is_input {
                std::io::read_to_string(std::io::stdin())
            } else {
                std::fs::read_to_string(file)
            };
            let text = text.map_err(|why| Error::NotPossible(format!("failed to read {name}: {why}")))?;
            manifests.add(&name, &text)?;
        }
        if !files.is_empty() && manifests.changes.is_empty() {
            return Err(Error::NotPossible(nothing(&manifests.others)));
        }
        Ok(manifests)
    }

    /// Adds the documents of a file.
    pub(super) fn add(&mut self, file: &str, text: &str) -> Result<(), Error> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|why| unparsable(file, &why))?;
        for (index, document) in documents.into_iter().enumerate() {
            let place = format!("document {} of {file}", index + 1);
            match document {
                Value::Null => {}
                Value::Object(mut list) if list.get("kind").is_some_and(|kind| kind == "List") => {
                    let items = list.get_mut("items").map(Value::take).unwrap_or_default();
                    for (index, item) in items.as_array().into_iter().flatten().enumerate() {
                        self.add_one(&format!("item {} of {place}", index + 1), item.clone())?;
                    }
                }
                document => self.add_one(&place, document)?,
            }
        }
        Ok(())
    }

    fn add_one(&mut self, place: &str, manifest: Value) -> Result<(), Error> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let (version, kind) = (text(&manifest["apiVersion"]), text(&manifest["kind"]));
        let (Some(version), Some(kind)) = (version, kind) else {
            let why = format!("{place} is no manifest: it has no apiVersion and kind");
            return Err(Error::NotPossible(why));
        };
        let Some(name) = text(&manifest["metadata"]["name"]) else {
            return Err(Error::NotPossible(format!("{place} ({kind}) has no metadata.name")));
        };
        let is_set = kind == "StatefulSet" && (version.starts_with("apps/") || version.starts_with("apps.kruise.io/"));
        if is_set {
            self.changes.push(Change::Apply(manifest));
        } else {
            self.others.push(format!("{kind} {name} ({version})"));
        }
        Ok(())
    }

    /// Puts sets that name no namespace into this one. One that was asked for on the command line must be theirs.
    pub(super) fn enter(&mut self, namespace: &str, asked_for: Option<&str>) -> Result<(), Error> {
        for change in &mut self.changes {
            let Change::Apply(manifest) = change else { continue };
            let own = manifest["metadata"]["namespace"].as_str();
            match (own, asked_for) {
                (None, _) => manifest["metadata"]["namespace"] = json!(namespace),
                (Some(own), Some(asked_for)) if own != asked_for => {
                    let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
                    let why =
                        format!("the manifest of {name} is for namespace {own}, and --namespace says {asked_for}");
                    return Err(Error::NotPossible(why));
                }
                (Some(_), _) => {}
            }
        }
        Ok(())
    }

    /// Namespaces of the sets.
    pub(super) fn namespaces(&self) -> BTreeSet<String> {
        self.changes
            .iter()
            .map(|change| change.target().1.namespace.to_string())
            .collect()
    }
}

/// No set is among the manifests.
fn nothing(others: &[String]) -> String {
    let known = "plan knows StatefulSets of apps/v1 and of apps.kruise.io/v1beta1";
    if others.is_empty() {
        return format!("the files hold no manifest; {known}");
    }
    format!(
        "the files hold only kinds that Flotilla does not know: {}; {known}",
        others.join(", ")
    )
}

/// Where a file stops making sense.
fn unparsable(file: &str, why: &serde_saphyr::Error) -> Error {
    let place = why.location().map_or_else(String::new, |at| {
        format!(", line {}, column {}", at.line(), at.column())
    });
    let words = why.to_string();
    // The first line is the sentence; what follows is a picture of the place.
    let words = words.lines().next().unwrap_or_default();
    let words = words.trim_start_matches("error: ");
    // The place is told already.
    let words = match (why.location(), words.split_once(": ")) {
        (Some(_), Some((head, rest))) if head.starts_with("line ") => rest,
        _ => words,
    };
    Error::NotPossible(format!("failed to parse {file}{place}: {words}"))
}
