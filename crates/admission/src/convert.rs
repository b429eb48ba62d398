//! Conversion between versions (STS-3.3, R-13).
//!
//! `v1beta1` is stored. On the way down to `v1alpha1`, fields of spec that it lacks go into an annotation; on the way up they come
//! back, and the annotation goes. What the older version has is taken from it, so a change made there wins. An annotation that cannot
//! be read is ignored here, since a conversion cannot warn; `mutate` puts back what was stored, and says so. What does not fit into
//! annotations is left out on the way down, under a label that no way up is open to.

mod clone;
pub(crate) mod fit;

use crate::admit::GROUP;
use crate::json::{at, text};
use flotilla_api::{names, statefulset::v1alpha1};
use serde_json::{Map, Value};

/// All objects in another version, in order; or what is wrong with the first that cannot be converted.
pub(crate) fn all(objects: Vec<Value>, desired: &str) -> Result<Vec<Value>, String> {
    objects.into_iter().map(|object| one(object, desired)).collect()
}

/// Kinds that have two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    StatefulSet,
    CloneSet,
}

impl Kind {
    pub(crate) fn of(kind: &str) -> Option<Self> {
        match kind {
            "StatefulSet" => Some(Kind::StatefulSet),
            "CloneSet" => Some(Kind::CloneSet),
            _ => None,
        }
    }
}

fn one(mut object: Value, desired: &str) -> Result<Value, String> {
    let version = text(&object, &["apiVersion"]);
    let known = |api_version: &str| match api_version.split_once('/') {
        Some((GROUP, version)) => [v1alpha1::HUB, v1alpha1::VERSION].into_iter().find(|v| *v == version),
        _ => None,
    };
    let kind = text(&object, &["kind"]);
    let refused = || {
        format!(
            "failed to convert {kind} {}/{} from {version} to {desired}: only StatefulSets and CloneSets of {GROUP} are converted, between {} and {}",
            text(&object, &["metadata", "namespace"]),
            text(&object, &["metadata", "name"]),
            v1alpha1::VERSION,
            v1alpha1::HUB,
        )
    };
    let (Some(from), Some(to)) = (known(version), known(desired)) else {
        return Err(refused());
    };
    let Some(kind) = Kind::of(kind) else {
        return Err(refused());
    };
    match (from == v1alpha1::VERSION, to == v1alpha1::VERSION) {
        // Also where admission is not asked, as about the status: what is left out would be gone.
        (true, false) if kind == Kind::StatefulSet && fit::is_left_out(&object) => return Err(fit::refusal(&object)),
        (true, false) => up(kind, &mut object),
        (false, true) => down(kind, &mut object),
        _ => {}
    }
    object["apiVersion"] = Value::from(desired);
    Ok(object)
}

/// The fields in an annotation; `None` if it does not hold a JSON object, or is longer than one can be.
pub(crate) fn hub_fields(text: &str) -> Option<Map<String, Value>> {
    if text.len() > fit::ANNOTATION_BYTES_MAX {
        return None;
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Some(fields),
        _ => None,
    }
}

/// To `v1beta1`, in place: the fields in the annotation come back, the annotation goes.
pub(crate) fn up(kind: Kind, set: &mut Value) {
    let kept = take(set, "annotations", names::HUB_FIELDS);
    let kept = kept.as_ref().and_then(Value::as_str).and_then(hub_fields);
    match (kind, kept) {
        (Kind::CloneSet, kept) => clone::up(set, kept.as_ref()),
        (Kind::StatefulSet, Some(fields)) => put_back(set, fields),
        (Kind::StatefulSet, None) => {}
    }
}

/// Fields of spec that the older version lacks.
fn put_back(set: &mut Value, fields: Map<String, Value>) {
    let mut lacking = fields
        .into_iter()
        .filter(|(field, _)| !v1alpha1::SPEC_FIELDS.contains(&field.as_str()))
        .peekable();
    let Some(object) = set.as_object_mut().filter(|_| lacking.peek().is_some()) else {
        return;
    };
    let spec = object.entry("spec").or_insert_with(|| Value::Object(Map::new()));
    if let Some(spec) = spec.as_object_mut() {
        for (field, value) in lacking {
            spec.entry(field).or_insert(value);
        }
    }
}

/// To `v1alpha1`, in place: fields that it lacks go into the annotation; if they do not fit there, the label says so.
pub(crate) fn down(kind: Kind, set: &mut Value) {
    // Where there is no place for an annotation, nothing is taken out. No API server sends such an object.
    let has_place = |path: &[&str]| at(set, path).is_none_or(Value::is_object);
    if !(has_place(&["metadata"]) && has_place(&["metadata", "annotations"]) && has_place(&["metadata", "labels"])) {
        return;
    }
    // What somebody wrote into the hub would come back as fields, or hold up writes.
    take(set, "annotations", names::HUB_FIELDS);
    take(set, "labels", names::HUB_FIELDS);
    let kept = match kind {
        Kind::CloneSet => clone::down(set),
        Kind::StatefulSet => take_out(set),
    };
    if kept.is_empty() {
        return;
    }
    let kept = Value::Object(kept);
    let text = kept.to_string();
    if !fit::has_room(set, names::HUB_FIELDS, &text) {
        match kind {
            Kind::CloneSet => clone::keep_in_label(set, &kept),
            Kind::StatefulSet => fit::mark_left_out(set),
        }
        return;
    }
    let metadata = set.as_object_mut().and_then(|object| child(object, "metadata"));
    if let Some(annotations) = metadata.and_then(|metadata| child(metadata, "annotations")) {
        annotations.insert(names::HUB_FIELDS.to_owned(), Value::from(text));
    }
}

/// Fields of spec that the older version lacks.
fn take_out(set: &mut Value) -> Map<String, Value> {
    let mut kept = Map::new();
    let Some(spec) = set.get_mut("spec").and_then(Value::as_object_mut) else {
        return kept;
    };
    let lacking: Vec<String> = spec
        .keys()
        .filter(|field| !v1alpha1::SPEC_FIELDS.contains(&field.as_str()))
        .cloned()
        .collect();
    for field in lacking {
        kept.extend(spec.remove_entry(&field));
    }
    kept
}

/// The object in a field, made if there is none.
fn child<'o>(object: &'o mut Map<String, Value>, field: &str) -> Option<&'o mut Map<String, Value>> {
    let place = object.entry(field).or_insert(Value::Null);
    if place.is_null() {
        *place = Value::Object(Map::new());
    }
    place.as_object_mut()
}

/// Takes a label or an annotation away, and with it the map that would be empty without it.
fn take(set: &mut Value, of: &str, key: &str) -> Option<Value> {
    at(set, &["metadata", of, key])?;
    let metadata = set.get_mut("metadata")?.as_object_mut()?;
    let map = metadata.get_mut(of)?.as_object_mut()?;
    let taken = map.remove(key);
    if map.is_empty() {
        metadata.remove(of);
    }
    taken
}
