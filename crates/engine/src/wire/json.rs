//! Objects in JSON: sets of both kinds, whose templates and status are JSON anyway, and every other kind from a server that speaks
//! no protobuf.

use super::meta::Identity;
use super::{Object, claim, config_map, image_pull_job, node, pod, revision, set_kind, storage_class};
use bytes::Bytes;
use flotilla_model::set::{read_set, read_set_text};
use flotilla_model::weight::{DEEPEST, weight};
use flotilla_model::{Interner, ObjectKey, Resource, Uid};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// How much memory the tree of an object may take. Sets are read part by part, and built-in kinds in JSON only where a server speaks no
/// protobuf.
const LARGEST_TREE_BYTES: usize = 10 << 20;

pub(super) fn decode(resource: Resource, bytes: &Bytes, interner: &mut Interner) -> Result<Object, String> {
    if let Some(kind) = set_kind(resource) {
        return read_set_text(kind, bytes, interner).map(|set| Object::Set(Arc::new(set)));
    }
    if weight(bytes, DEEPEST) > LARGEST_TREE_BYTES {
        return Err("it would take too much memory".to_owned());
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    read(resource, &value, interner)
}

/// Reads one object that is JSON already.
pub(super) fn read(resource: Resource, value: &Value, interner: &mut Interner) -> Result<Object, String> {
    Ok(match resource {
        Resource::NativeSets | Resource::AdvancedSets | Resource::CloneSets => {
            let kind = set_kind(resource).ok_or("not a set")?;
            let set = read_set(kind, value, interner).ok_or("no usable metadata")?;
            Object::Set(Arc::new(set))
        }
        Resource::Pods => Object::Pod(Arc::new(pod::from_json(value, interner)?)),
        Resource::Claims => Object::Claim(Arc::new(claim::from_json(value, interner)?)),
        Resource::ConfigMaps => Object::ConfigMap(Arc::new(config_map::from_json(value, interner)?)),
        Resource::Revisions => Object::Revision(Arc::new(revision::from_json(value, interner)?)),
        Resource::Nodes => Object::Node(Arc::new(node::from_json(value, interner)?)),
        Resource::StorageClasses => Object::StorageClass(Arc::new(storage_class::from_json(value, interner)?)),
        Resource::ImagePullJobs => Object::ImagePullJob(Arc::new(image_pull_job::from_json(value, interner)?)),
        Resource::Leases | Resource::Events => return Err(format!("{resource} are not kept")),
    })
}

/// A part of an object; its default if it is not there.
pub(super) fn part<T: DeserializeOwned + Default>(object: &Value, field: &str) -> Result<T, String> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => T::deserialize(value).map_err(|e| format!("{field}: {e}")),
    }
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
