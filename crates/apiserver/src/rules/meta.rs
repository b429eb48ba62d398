//! Metadata: names, labels, annotations, finalizers, owners.

use super::{Errors, each, text};
use crate::store::Server;
use crate::types::TypeInfo;
use flotilla_apimachinery::{field, names};
use serde_json::{Value, json};

/// Kinds whose names are labels, since they become parts of DNS names.
const LABEL_NAMES: &[&str] = &["Service", "Namespace"];
/// Finalizers that need no domain.
const PLAIN_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

pub(super) fn validate(_server: &Server, info: &TypeInfo, old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let meta = &new["metadata"];
    name(info, meta, old.is_none(), errors);
    labels(&meta["labels"], "metadata.labels", errors);
    annotations(&meta["annotations"], errors);
    owners(meta, errors);
    finalizers(old, meta, errors);
    if old.is_some() && info.custom.is_none() {
        // On updates the real server looks twice, and says so.
        let again = errors.clone();
        errors.extend(again);
    }
}

fn name(info: &TypeInfo, meta: &Value, is_new: bool, errors: &mut Errors) {
    let given = text(meta, "name");
    if given.is_empty() {
        if is_new {
            let why = "name or generateName is required";
            errors.push(field::Error::required("metadata.name", why));
        }
        return;
    }
    let wrong = if LABEL_NAMES.contains(&info.kind.as_str()) && info.custom.is_none() {
        names::dns_label(given)
    } else {
        names::dns_subdomain(given)
    };
    if is_new {
        errors.extend(
            wrong
                .into_iter()
                .map(|why| field::Error::invalid("metadata.name", json!(given), why)),
        );
    }
}

/// Labels, at any path.
pub(super) fn labels(labels: &Value, path: &str, errors: &mut Errors) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        let wrong = names::label_key(key);
        errors.extend(
            wrong
                .into_iter()
                .map(|why| field::Error::invalid(path, json!(key), why)),
        );
        let value = value.as_str().unwrap_or_default();
        let wrong = names::label_value(value);
        errors.extend(
            wrong
                .into_iter()
                .map(|why| field::Error::invalid(path, json!(value), why)),
        );
    }
}

fn annotations(annotations: &Value, errors: &mut Errors) {
    for key in annotations.as_object().into_iter().flatten().map(|(key, _)| key) {
        let wrong = names::label_key(&key.to_lowercase());
        errors.extend(
            wrong
                .into_iter()
                .map(|why| field::Error::invalid("metadata.annotations", json!(key), why)),
        );
    }
}

fn owners(meta: &Value, errors: &mut Errors) {
    let mut managing = Vec::new();
    for owner in each(meta, "ownerReferences") {
        // The real server does not say which one, either.
        let path = "metadata.ownerReferences";
        for wanted in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, wanted).is_empty() {
                let why = if wanted == "apiVersion" {
                    "version must not be empty"
                } else {
                    "must not be empty"
                };
                errors.push(field::Error::invalid(
                    format!("{path}.{wanted}"),
                    owner[wanted].as_str().unwrap_or_default().into(),
                    why,
                ));
            }
        }
        if owner["controller"] == true {
            managing.push(format!("{}/{}", text(owner, "kind"), text(owner, "name")));
        }
    }
    if let [first, second, ..] = managing.as_slice() {
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        errors.push(field::Error::invalid(
            "metadata.ownerReferences",
            meta["ownerReferences"].clone(),
            why,
        ));
    }
}

fn finalizers(old: Option<&Value>, meta: &Value, errors: &mut Errors) {
    let before: Vec<&str> = old
        .map(|o| each(&o["metadata"], "finalizers").filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let now: Vec<&str> = each(meta, "finalizers").filter_map(Value::as_str).collect();
    for (index, finalizer) in now.iter().enumerate() {
        let wrong = names::label_key(finalizer);
        let path = format!("metadata.finalizers[{index}]");
        if !wrong.is_empty() {
            errors.extend(
                wrong
                    .into_iter()
                    .map(|why| field::Error::invalid("metadata.finalizers", json!(finalizer), why)),
            );
        } else if !finalizer.contains('/') && !PLAIN_FINALIZERS.contains(finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(field::Error::invalid(path, json!(finalizer), why));
        }
    }
    if meta.get("deletionTimestamp").is_some() {
        let added: Vec<&str> = now.into_iter().filter(|f| !before.contains(f)).collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.iter().map(|f| field::quote(f)).collect::<Vec<_>>().join(", ")
            );
            errors.push(field::Error::without_value(
                field::Fault::Forbidden,
                "metadata.finalizers",
                why,
            ));
        }
    }
}
