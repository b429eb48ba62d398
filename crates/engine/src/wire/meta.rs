//! `metadata` in protobuf.

use super::envelope::parse_version;
use super::json;
use bytes::Bytes;
use flotilla_model::{Interner, Meta, ObjectKey, Timestamp, Uid};
use prost::Message;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// `metav1.Time`; in JSON an RFC 3339 text.
#[derive(Clone, Copy, PartialEq, Message, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

impl TryFrom<String> for Time {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let time: Timestamp = text.parse().map_err(|_| format!("{text:?} is not a time"))?;
        Ok(Time {
            seconds: time.as_millis().div_euclid(1000),
        })
    }
}

impl From<Time> for Timestamp {
    /// The API server truncates `metav1.Time` to seconds.
    fn from(time: Time) -> Self {
        Timestamp::from_seconds(time.seconds)
    }
}

/// `resource.Quantity`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(from = "Value")]
pub(crate) struct Quantity {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

impl From<Value> for Quantity {
    /// A text, or a bare number.
    fn from(value: Value) -> Self {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Quantity { text }
    }
}

/// `metav1.ObjectMeta`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
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
    #[serde(rename = "creationTimestamp")]
    created: Option<Time>,
    #[prost(message, optional, tag = "9")]
    #[serde(rename = "deletionTimestamp")]
    deleted: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    pub(crate) labels: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    #[serde(rename = "ownerReferences")]
    owners: Vec<OwnerReference>,
}

/// `metav1.OwnerReference`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
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
    /// The kind of the owner that manages the object.
    pub(crate) fn controller_kind(&self) -> Option<&str> {
        self.owners.iter().find(|o| o.controller).map(|o| &*o.kind)
    }

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

/// Texts as they lie in what was received: every event is looked at so, and most of them are then read as a whole.
#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    namespace: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    uid: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    resource_version: Bytes,
}

impl Named {
    fn version(&self) -> Option<u64> {
        std::str::from_utf8(&self.resource_version).ok()?.parse().ok()
    }
}

impl OnlyMeta {
    pub(crate) fn identity(&self) -> Option<Identity> {
        let metadata = self.metadata.as_ref().filter(|m| !m.name.is_empty())?;
        let text = |bytes| std::str::from_utf8(bytes).ok();
        Some((
            ObjectKey::new(text(&metadata.namespace)?, text(&metadata.name)?),
            Uid::new(text(&metadata.uid)?),
            metadata.version().unwrap_or(0),
        ))
    }

    pub(crate) fn resource_version(&self) -> Option<u64> {
        self.metadata.as_ref()?.version()
    }
}

/// The annotations of an object, where a record needs some of them.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct Annotated {
    #[prost(btree_map = "string, string", tag = "12")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Metadata with its annotations.
pub(crate) struct Metadata {
    pub(crate) object: ObjectMeta,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// Decoded twice: annotations are declared apart from the rest, because pods do without them.
    pub(crate) fn from_protobuf(bytes: Bytes) -> Result<Self, String> {
        let said = |e: prost::DecodeError| e.to_string();
        Ok(Metadata {
            annotations: Annotated::decode(bytes.clone()).map_err(said)?.annotations,
            object: ObjectMeta::decode(bytes).map_err(said)?,
        })
    }

    /// The same from the JSON of the whole object.
    pub(crate) fn from_json(object: &Value) -> Result<Self, String> {
        Ok(Metadata {
            annotations: json::part::<Annotated>(object, "metadata")?.annotations,
            object: json::part(object, "metadata")?,
        })
    }
}
