//! Manifests in files: YAML or JSON, any number of documents in each.

use super::lines::Lines;
use super::live::Wanted;
use super::typos;
use crate::error::Error;
use flotilla_model::SetKind;
use flotilla_plan::{Change, Foreign};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where a manifest stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    file: String,
    lines: Lines,
}

impl Place {
    /// The file, and the line on which the manifest begins or, with a path, the line of that field.
    pub(super) fn words(&self, path: Option<&str>) -> String {
        let line = path
            .and_then(|path| self.lines.line(path))
            .or_else(|| self.lines.first());
        match line {
            Some(line) => format!("{}, line {line}", self.file),
            None => self.file.clone(),
        }
    }
}

/// What the files hold.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    /// Sets to apply, in order.
    pub(super) changes: Vec<Change>,
    /// Where each of them stands.
    places: Vec<Place>,
    /// Everything else: kind, name and place of each.
    pub(super) others: Vec<String>,
    /// What could touch pods in a way that no plan tells, in sentences.
    pub(super) unknowns: Vec<String>,
    /// What sets need and the files bring along.
    pub(super) brought: Vec<Foreign>,
}

/// Groups and kinds that touch no pod when they are applied. Whatever is not listed may.
const HARMLESS: [(&str, &str); 12] = [
    ("", "ConfigMap"),
    ("", "Endpoints"),
    ("", "Namespace"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("", "ResourceQuota"),
    ("", "Secret"),
    ("", "Service"),
    ("", "ServiceAccount"),
    ("policy", "PodDisruptionBudget"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "StorageClass"),
];
/// Groups of which no kind touches a pod when it is applied.
const HARMLESS_GROUPS: [&str; 4] = [
    "discovery.k8s.io",
    "networking.k8s.io",
    "gateway.networking.k8s.io",
    "rbac.authorization.k8s.io",
];
/// Kinds that a plan takes to be there because a file brings them: group, kind, plural, and whether they belong to a namespace.
const BROUGHT: [(&str, &str, &str, bool); 9] = [
    ("", "ConfigMap", "configmaps", true),
    ("", "Namespace", "namespaces", false),
    ("", "PersistentVolume", "persistentvolumes", false),
    ("", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    ("", "ResourceQuota", "resourcequotas", true),
    ("", "Secret", "secrets", true),
    ("", "ServiceAccount", "serviceaccounts", true),
    ("scheduling.k8s.io", "PriorityClass", "priorityclasses", false),
    ("storage.k8s.io", "StorageClass", "storageclasses", false),
];

/// Up to here, floats hold every integer: 2^53.
const GREATEST_EXACT: f64 = 9_007_199_254_740_992.0;

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
        // kubectl reads 010 as 8.
        let options = serde_saphyr::options! { legacy_octal_numbers: true };
        let documents: Vec<Value> =
            serde_saphyr::from_multiple_with_options(text, options).map_err(|why| unparsable(file, &why))?;
        let mut lines = Lines::of(text).into_iter();
        for (index, mut document) in documents.into_iter().enumerate() {
            make_whole(&mut document);
            let words = format!("document {} of {file}", index + 1);
            let lines = lines.next().unwrap_or_default();
            self.add_all(&words, file, lines, document)?;
        }
        Ok(())
    }

    /// Adds what stands in a document. Whatever has items is a list for kubectl, whatever kind it says it is; and a list may hold lists.
    fn add_all(&mut self, words: &str, file: &str, lines: Lines, mut document: Value) -> Result<(), Error> {
        let place = Place {
            file: file.to_owned(),
            lines: lines.clone(),
        };
        let is_list = document.get("kind").is_some_and(|kind| kind == "List");
        match document.get_mut("items").map(Value::take) {
            _ if document.is_null() => Ok(()),
            Some(Value::Array(items)) => {
                for (index, item) in items.into_iter().enumerate() {
                    let within = lines.field("items").and_then(|items| items.item(index)).cloned();
                    let words = format!("item {} of {words}", index + 1);
                    self.add_all(&words, file, within.unwrap_or_default(), item)?;
                }
                Ok(())
            }
            None | Some(Value::Null) if is_list => Ok(()),
            None | Some(Value::Null) => self.add_one(words, place, document),
            Some(_) => Err(Error::NotPossible(format!(
                "{} ({words}): items is no list, and kubectl takes whatever has items for a list",
                place.words(Some("items"))
            ))),
        }
    }

    fn add_one(&mut self, words: &str, place: Place, manifest: Value) -> Result<(), Error> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let (version, kind) = (text(&manifest["apiVersion"]), text(&manifest["kind"]));
        let at = place.words(None);
        let (Some(version), Some(kind)) = (version, kind) else {
            let why = format!("{at}: {words} is no manifest: it has no apiVersion and kind");
            return Err(Error::NotPossible(why));
        };
        let Some(name) = text(&manifest["metadata"]["name"]) else {
            let found = match &manifest["metadata"]["name"] {
                Value::Null | Value::String(_) => String::new(),
                other => format!(" that is a text: YAML reads {other} there, unless it is quoted"),
            };
            let at = place.words(Some("metadata.name"));
            return Err(Error::NotPossible(format!(
                "{at}: {words} ({kind}) has no metadata.name{found}"
            )));
        };
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let is_set = match kind.as_str() {
            "StatefulSet" => group == "apps" || group == "apps.kruise.io",
            kind => group == "apps.kruise.io" && kind == SetKind::Clone.resource().kind(),
        };
        if is_set {
            for (path, words) in typos::of(&manifest) {
                self.unknowns.push(format!("{}: {words}", place.words(Some(&path))));
            }
            self.places.push(place);
            self.changes.push(Change::Apply(manifest));
            return Ok(());
        }
        self.others
            .push(format!("{kind} {name} ({version}), in {}", place.words(None)));
        if !HARMLESS.contains(&(group, &kind)) && !HARMLESS_GROUPS.contains(&group) {
            self.unknowns.push(format!(
                "{}: {kind} {name} could touch pods, and plan does not look at it",
                place.words(None)
            ));
        }
        if manifest["metadata"]["ownerReferences"]
            .as_array()
            .is_some_and(|owners| !owners.is_empty())
        {
            self.unknowns.push(format!(
                "{}: {kind} {name} names owners, and goes when they are gone; whether they are there is not looked at",
                place.words(Some("metadata.ownerReferences"))
            ));
        }
        if let Some((group, _, resource, _)) = BROUGHT.iter().find(|(g, k, ..)| (*g, *k) == (group, &kind)) {
            self.brought.push(Foreign {
                group: (*group).to_owned(),
                resource: (*resource).to_owned(),
                object: manifest,
            });
        }
        Ok(())
    }

    /// Where the manifest of a set stands, and the field in it.
    pub(super) fn place(&self, object: &str, namespace: &str, path: Option<&str>) -> Option<String> {
        let mut all = self.changes.iter().zip(&self.places);
        let (_, place) = all.find(|(change, _)| {
            let (kind, key) = change.target();
            kind.describe(&key.name) == object && &*key.namespace == namespace
        })?;
        Some(place.words(path))
    }

    /// Puts sets that name no namespace into this one. One that was asked for on the command line must be theirs.
    pub(super) fn enter(&mut self, namespace: &str, asked_for: Option<&str>) -> Result<(), Error> {
        for (change, place) in self.changes.iter_mut().zip(&self.places) {
            let Change::Apply(manifest) = change else { continue };
            let own = manifest["metadata"]["namespace"].as_str();
            match (own, asked_for) {
                (None, _) => manifest["metadata"]["namespace"] = json!(namespace),
                (Some(own), Some(asked_for)) if own != asked_for => {
                    let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
                    let place = place.words(Some("metadata.namespace"));
                    let why = format!(
                        "{place}: the manifest of {name} is for namespace {own}, and --namespace says {asked_for}"
                    );
                    return Err(Error::NotPossible(why));
                }
                (Some(_), _) => {}
            }
        }
        for (change, place) in self.changes.iter().zip(&self.places) {
            // It becomes a part of what is asked of the server.
            if let Some(why) = change.why_nowhere() {
                let place = place.words(Some("metadata.namespace"));
                return Err(Error::NotPossible(format!(
                    "{place}: metadata.namespace is no name of a namespace: {why}"
                )));
            }
        }
        for object in &mut self.brought {
            let is_namespaced = BROUGHT.iter().any(|(group, _, resource, is_namespaced)| {
                *is_namespaced && (*group, *resource) == (&object.group, &object.resource)
            });
            if is_namespaced && object.object["metadata"]["namespace"].is_null() {
                object.object["metadata"]["namespace"] = json!(namespace);
            }
        }
        Ok(())
    }

    /// What has to be read of the cluster for them.
    pub(super) fn wanted(&self) -> Wanted {
        let targets = || self.changes.iter().map(Change::target);
        let mut places = BTreeMap::new();
        for ((_, key), place) in targets().zip(&self.places) {
            places
                .entry(key.namespace.to_string())
                .or_insert_with(|| place.words(None));
        }
        let brought = self.brought.iter().filter(|object| object.resource == "namespaces");
        Wanted {
            namespaces: targets().map(|(_, key)| key.namespace.to_string()).collect(),
            places,
            brought: brought
                .filter_map(|object| object.object["metadata"]["name"].as_str().map(str::to_owned))
                .collect(),
            clones: targets().any(|(kind, _)| kind == SetKind::Clone),
            sets: self
                .changes
                .iter()
                .filter_map(|change| match change {
                    Change::Apply(set) => Some(set.clone()),
                    _ => None,
                })
                .collect(),
        }
    }
}

/// Numbers without a fraction are integers, however they are written (`1.0`, `1e1`): so kubectl sends them.
fn make_whole(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0);
            // Of greater ones JSON does not say more than a float does.
            if let Some(whole) = whole.filter(|whole| whole.abs() <= GREATEST_EXACT) {
                #[allow(clippy::cast_possible_truncation)]
                let whole = whole as i64;
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        _ => {}
    }
}

/// No set is among the manifests.
fn nothing(others: &[String]) -> String {
    let known = "plan knows StatefulSets of apps/v1, and StatefulSets and CloneSets of apps.kruise.io/v1beta1";
    if others.is_empty() {
        return format!("the files hold no manifest; {known}");
    }
    format!(
        "the files hold only kinds that Flotilla does not know: {}; {known}",
        others.join("; ")
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
