//! Objects in JSON: sets of both kinds, whose templates and status are JSON anyway.

use super::meta::Identity;
use super::{Object, set_kind};
use bytes::Bytes;
use flotilla_model::set::read_set;
use flotilla_model::{Interner, ObjectKey, Resource, Uid};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

pub(super) fn decode(resource: Resource, bytes: &Bytes, interner: &mut Interner) -> Result<Object, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if let Some(kind) = set_kind(resource) {
        let set = read_set(kind, &value, interner).ok_or("no usable metadata")?;
        return Ok(Object::Set(Arc::new(set)));
    }
    Err(format!("{resource} are read as protobuf"))
}

#[derive(Deserialize)]
struct OnlyMeta {
    metadata: Named,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
}

pub(super) fn identity(bytes: &[u8]) -> Option<Identity> {
    let found: OnlyMeta = serde_json::from_slice(bytes).ok()?;
    let Named {
        name,
        namespace,
        uid,
        resource_version,
    } = found.metadata;
    (!name.is_empty()).then(|| {
        (
            ObjectKey::new(namespace, name),
            Uid::new(&uid),
            resource_version.parse().unwrap_or(0),
        )
    })
}

pub(super) fn find_version(bytes: &[u8]) -> Option<u64> {
    let found: OnlyMeta = serde_json::from_slice(bytes).ok()?;
    found.metadata.resource_version.parse().ok()
}
