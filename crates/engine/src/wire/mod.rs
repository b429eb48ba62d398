//! The wire: bytes of the Kubernetes API to records, and back to bodies of requests.
//!
//! Built-in kinds arrive in protobuf and are decoded through narrow messages that declare only the fields decisions read; what is
//! not declared is skipped without being allocated. Custom resources arrive in JSON. One object that does not decode never hides
//! its neighbours: lists are split into items before any item is looked at.

pub mod body;
mod claim;
mod config_map;
mod detail;
mod envelope;
mod image_pull_job;
mod json;
pub mod lease;
mod meta;
mod node;
mod pod;
mod revision;
pub mod status;
mod storage_class;
pub mod watch;

pub use envelope::{Encoding, List, open, split_list};
pub use pod::NORMAL_WAITS;

use bytes::Bytes;
use flotilla_model::{
    ClaimRecord, ConfigMapRecord, ImagePullJobRecord, Interner, Meta, NodeRecord, ObjectKey, PodRecord, Record,
    Resource, RevisionRecord, SetKind, SetRecord, StorageClassRecord, Uid,
};
use prost::Message;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// One object of any kind that the cache holds.
#[derive(Clone, Debug)]
pub enum Object {
    /// A pod.
    Pod(Arc<PodRecord>),
    /// A claim.
    Claim(Arc<ClaimRecord>),
    /// A config map.
    ConfigMap(Arc<ConfigMapRecord>),
    /// A revision.
    Revision(Arc<RevisionRecord>),
    /// A set of either kind.
    Set(Arc<SetRecord>),
    /// A storage class.
    StorageClass(Arc<StorageClassRecord>),
    /// A node.
    Node(Arc<NodeRecord>),
    /// An `ImagePullJob`.
    ImagePullJob(Arc<ImagePullJobRecord>),
}

impl Object {
    /// Who it is.
    pub fn meta(&self) -> &Meta {
        match self {
            Object::Pod(record) => record.meta(),
            Object::Claim(record) => record.meta(),
            Object::ConfigMap(record) => record.meta(),
            Object::Revision(record) => record.meta(),
            Object::Set(record) => record.meta(),
            Object::StorageClass(record) => record.meta(),
            Object::Node(record) => record.meta(),
            Object::ImagePullJob(record) => record.meta(),
        }
    }

    /// Which resource it is an object of.
    pub fn resource(&self) -> Resource {
        match self {
            Object::Pod(_) => Resource::Pods,
            Object::Claim(_) => Resource::Claims,
            Object::ConfigMap(_) => Resource::ConfigMaps,
            Object::Revision(_) => Resource::Revisions,
            Object::Set(set) => set.kind.resource(),
            Object::StorageClass(_) => Resource::StorageClasses,
            Object::Node(_) => Resource::Nodes,
            Object::ImagePullJob(_) => Resource::ImagePullJobs,
        }
    }
}

/// An object that could not be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot read an object of {resource}{}: {reason}", key.as_ref().map_or_else(String::new, |k| format!(" ({k})")))]
pub struct Unreadable {
    /// What it should have been.
    pub resource: Resource,
    /// Its name, if at least that could be read.
    pub key: Option<ObjectKey>,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads one object of `resource` in the given encoding. Protobuf objects may come bare, as in lists, or in their envelope.
pub fn decode(
    resource: Resource,
    encoding: Encoding,
    bytes: &Bytes,
    interner: &mut Interner,
) -> Result<Object, Unreadable> {
    let decoded = match encoding {
        Encoding::Protobuf => decode_protobuf(resource, bytes, interner),
        Encoding::Json => json::decode(resource, bytes, interner),
    };
    decoded.map_err(|reason| unreadable(resource, encoding, bytes, reason))
}

/// Reads a pod of which an earlier version is known. A spec that has not changed in the bytes is taken from there; it is half of what
/// there is to read, and changes least.
pub fn decode_again(
    encoding: Encoding,
    bytes: &Bytes,
    known: &PodRecord,
    interner: &mut Interner,
) -> Result<Object, Unreadable> {
    let decoded = match encoding {
        Encoding::Protobuf => envelope::open(bytes).and_then(|raw| pod::from_protobuf(&raw, Some(known), interner)),
        Encoding::Json => return decode(Resource::Pods, encoding, bytes, interner),
    };
    decoded
        .map(|pod| Object::Pod(Arc::new(pod)))
        .map_err(|reason| unreadable(Resource::Pods, encoding, bytes, reason))
}

fn unreadable(resource: Resource, encoding: Encoding, bytes: &Bytes, reason: String) -> Unreadable {
    Unreadable {
        resource,
        key: identity(encoding, bytes).map(|(key, ..)| key),
        reason,
    }
}

fn decode_protobuf(resource: Resource, bytes: &Bytes, interner: &mut Interner) -> Result<Object, String> {
    let raw = envelope::open(bytes)?;
    match resource {
        Resource::Pods => pod::from_protobuf(&raw, None, interner).map(|r| Object::Pod(Arc::new(r))),
        Resource::Claims => claim::Claim::decode(raw)
            .map_err(said)?
            .into_record(interner)
            .map(|r| Object::Claim(Arc::new(r))),
        Resource::ConfigMaps => config_map::ConfigMap::decode(raw)
            .map_err(said)?
            .into_record(interner)
            .map(|r| Object::ConfigMap(Arc::new(r))),
        Resource::Revisions => revision::Revision::decode(raw)
            .map_err(said)?
            .into_record(interner)
            .map(|r| Object::Revision(Arc::new(r))),
        Resource::StorageClasses => storage_class::StorageClass::decode(raw)
            .map_err(said)?
            .into_record(interner)
            .map(|r| Object::StorageClass(Arc::new(r))),
        Resource::Nodes => node::Node::decode(raw)
            .map_err(said)?
            .into_record(interner)
            .map(|r| Object::Node(Arc::new(r))),
        Resource::NativeSets
        | Resource::AdvancedSets
        | Resource::CloneSets
        | Resource::ImagePullJobs
        | Resource::Leases
        | Resource::Events => Err(format!("{resource} are read as JSON")),
    }
}

/// Reads one object of `resource` that has been parsed as JSON already.
pub fn read(resource: Resource, value: &serde_json::Value, interner: &mut Interner) -> Result<Object, String> {
    json::read(resource, value, interner)
}

/// Key, UID and version of an object, without reading the rest of it: all that a deletion needs, and what a broken object may
/// still say. An unreadable version is 0. Whoever may store objects chooses these bytes; should they make a decoder panic, they say nothing.
pub fn identity(encoding: Encoding, bytes: &Bytes) -> Option<(ObjectKey, Uid, u64)> {
    unless_it_panics(|| match encoding {
        Encoding::Protobuf => meta::OnlyMeta::decode(envelope::open(bytes).ok()?).ok()?.identity(),
        Encoding::Json => json::identity(bytes),
    })
}

/// What a decoder reads, if it reads something. Decoders leave nothing half done behind.
fn unless_it_panics<T>(decode: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(decode)).ok().flatten()
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The record kind that `resource` is read into when it is a set.
pub(crate) fn set_kind(resource: Resource) -> Option<SetKind> {
    match resource {
        Resource::NativeSets => Some(SetKind::Native),
        Resource::AdvancedSets => Some(SetKind::Advanced),
        Resource::CloneSets => Some(SetKind::Clone),
        Resource::Pods
        | Resource::Claims
        | Resource::ConfigMaps
        | Resource::Revisions
        | Resource::Nodes
        | Resource::StorageClasses
        | Resource::ImagePullJobs
        | Resource::Leases
        | Resource::Events => None,
    }
}

#[cfg(test)]
mod tests;
