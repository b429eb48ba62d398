//! What a set's metadata says.

use crate::intern::Interner;
use crate::meta::{Meta, ObjectKey, Uid};
use crate::time::Timestamp;
use serde_json::Value;
use std::sync::Arc;

/// Metadata from its JSON form.
pub(crate) fn read_meta(metadata: &Value, interner: &mut Interner) -> Option<Meta> {
    let text = |field: &str| metadata.get(field).and_then(Value::as_str);
    let time = |field: &str| text(field).and_then(|t| t.parse::<Timestamp>().ok());
    let labels = metadata.get("labels").and_then(Value::as_object);
    let owners = metadata
        .get("ownerReferences")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let owners = owners.iter().filter_map(|owner| {
        let text = |field: &str| owner.get(field).and_then(Value::as_str);
        let flag = |field: &str| owner.get(field).and_then(Value::as_bool).unwrap_or(false);
        Some(interner.owner(
            text("apiVersion")?,
            text("kind")?,
            text("name")?,
            text("uid")?,
            (flag("controller"), flag("blockOwnerDeletion")),
        ))
    });
    let owners = owners.collect();
    Some(Meta {
        key: ObjectKey {
            namespace: interner.string(text("namespace").unwrap_or_default()),
            name: text("name")?.into(),
        },
        uid: Uid::new(text("uid")?),
        resource_version: text("resourceVersion")?.parse().ok()?,
        created: time("creationTimestamp").unwrap_or_default(),
        deleted: time("deletionTimestamp"),
        labels: interner.labels(
            labels
                .into_iter()
                .flatten()
                .filter_map(|(k, v)| Some((k.as_str(), v.as_str()?))),
        ),
        owners: interner.owners(owners),
    })
}

/// Who wrote the status subresource, from managedFields.
pub(super) fn status_writers<'e>(entries: impl Iterator<Item = &'e Value>, interner: &mut Interner) -> Arc<[Arc<str>]> {
    let mut writers: Vec<Arc<str>> = entries
        .filter(|entry| entry.get("subresource").and_then(Value::as_str) == Some("status"))
        .filter_map(|entry| Some(interner.string(entry.get("manager")?.as_str()?)))
        .collect();
    writers.sort();
    writers.dedup();
    writers.into()
}
