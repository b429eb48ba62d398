//! Claims.

use super::{Errors, default, each, text};
use crate::store::Server;
use flotilla_apimachinery::field;
use flotilla_model::records::storage_class_of;
use flotilla_model::{ObjectKey, Resource};
use serde_json::{Value, json};

/// Keeps a claim while a pod uses it.
pub(crate) const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Either marks the class of claims that name none.
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

pub(super) fn defaults(claim: &mut Value) {
    if claim["spec"].is_object() {
        default(&mut claim["spec"], "volumeMode", "Filesystem");
    }
}

/// A new claim is protected, and gets the default class if it names none.
pub(super) fn admit(server: &Server, claim: &mut Value) {
    let finalizers = &mut claim["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(list) if !list.iter().any(|f| f == PROTECTION) => list.push(json!(PROTECTION)),
        Some(_) => {}
        None => *finalizers = json!([PROTECTION]),
    }
    let names_none = claim["spec"].is_object() && storage_class_of(claim).is_none();
    if let Some(class) = names_none.then(|| default_class(server)).flatten() {
        claim["spec"]["storageClassName"] = class;
    }
}

/// The name of the class that claims are given which name none.
pub(super) fn default_class(server: &Server) -> Option<Value> {
    let mut classes = server.all(Resource::StorageClasses).map(crate::Stored::value);
    let is_default = |class: &std::sync::Arc<Value>| {
        let annotations = &class["metadata"]["annotations"];
        DEFAULT_CLASS.iter().any(|name| annotations[*name] == "true")
    };
    let class = classes.find(is_default)?;
    Some(class["metadata"]["name"].clone())
}

/// How a volume can be mounted.
const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(super) fn validate(server: &Server, old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let spec = &new["spec"];
    if each(spec, "accessModes").next().is_none() {
        errors.push(field::Error::required(
            "spec.accessModes",
            "at least 1 access mode is required",
        ));
    }
    for (path, mode) in each(spec, "accessModes")
        .enumerate()
        .map(|(at, mode)| (format!("spec.accessModes[{at}]"), mode))
    {
        if !ACCESS_MODES.iter().any(|known| mode == known) {
            errors.push(field::Error::not_supported(path, mode.clone(), ACCESS_MODES));
        }
    }
    if spec.pointer("/resources/requests/storage").is_none() {
        errors.push(field::Error::required("spec.resources[storage]", ""));
    }
    let Some(old) = old.filter(|old| old["spec"] != *spec) else {
        return;
    };
    let mut same = spec.clone();
    let is_bound = old["status"]["phase"] == "Bound";
    if is_bound && may_expand(server, new) {
        same["resources"] = old["spec"]["resources"].clone();
    }
    // The binder names the volume.
    if text(&old["spec"], "volumeName").is_empty() {
        same.as_object_mut().map(|fields| fields.remove("volumeName"));
    }
    if same != old["spec"] {
        let why =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.push(field::Error::without_value(field::Fault::Forbidden, "spec", why));
    }
}

fn may_expand(server: &Server, claim: &Value) -> bool {
    let class = storage_class_of(claim).unwrap_or_default();
    let class = server.get(Resource::StorageClasses, &ObjectKey::new("", class));
    class.is_some_and(|class| class.value()["allowVolumeExpansion"] == true)
}
