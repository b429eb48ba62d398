//! `metadata` in protobuf.

use super::envelope::parse_version;
use flotilla_model::{Interner, Meta, ObjectKey, Timestamp, Uid};
use prost::Message;
use std::collections::BTreeMap;

/// `metav1.Time`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

impl From<Time> for Timestamp {
    /// The API server truncates `metav1.Time` to seconds.
    fn from(time: Time) -> Self {
        Timestamp::from_seconds(time.seconds)
    }
}

/// `metav1.ObjectMeta`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(message, optional, tag = "8")]
    created: Option<Time>,
    #[prost(message, optional, tag = "9")]
    deleted: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    pub(crate) labels: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    owners: Vec<OwnerReference>,
}

/// `metav1.OwnerReference`.
#[derive(Clone, PartialEq, Message)]
struct OwnerReference {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(string, tag = "5")]
    api_version: String,
    #[prost(bool, tag = "6")]
    controller: bool,
    #[prost(bool, tag = "7")]
    block_owner_deletion: bool,
}

impl ObjectMeta {
    /// The record's part. Labels that `keep` refuses are left out.
    pub(crate) fn into_meta(self, interner: &mut Interner, keep: impl Fn(&str, &str) -> bool) -> Result<Meta, String> {
        if self.name.is_empty() || self.uid.is_empty() {
            return Err("metadata has no name or no uid".into());
        }
        let labels = self
            .labels
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .filter(|(k, v)| keep(k, v));
        let owners = self.owners.iter().map(|o| {
            interner.owner(
                &o.api_version,
                &o.kind,
                &o.name,
                &o.uid,
                (o.controller, o.block_owner_deletion),
            )
        });
        let owners = owners.collect();
        Ok(Meta {
            uid: Uid::new(&self.uid),
            resource_version: parse_version(&self.resource_version)?,
            created: self.created.map(Timestamp::from).unwrap_or_default(),
            deleted: self.deleted.map(Timestamp::from),
            labels: interner.labels(labels),
            owners: interner.owners(owners),
            key: ObjectKey {
                namespace: interner.string(&self.namespace),
                name: self.name.into(),
            },
        })
    }
}

/// Key, UID and version of an object.
pub(crate) type Identity = (ObjectKey, Uid, u64);

/// Any object, as far as its metadata.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OnlyMeta {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Named>,
}

#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
}

impl OnlyMeta {
    pub(crate) fn identity(self) -> Option<Identity> {
        let metadata = self.metadata.filter(|m| !m.name.is_empty())?;
        let version = metadata.resource_version.parse().ok();
        Some((
            ObjectKey::new(metadata.namespace, metadata.name),
            Uid::new(&metadata.uid),
            version.unwrap_or(0),
        ))
    }

    pub(crate) fn resource_version(&self) -> Option<u64> {
        self.metadata.as_ref()?.resource_version.parse().ok()
    }
}

/// The annotations of an object, where a record needs some of them.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Annotated {
    #[prost(btree_map = "string, string", tag = "12")]
    pub(crate) annotations: BTreeMap<String, String>,
}
