//! What is around objects: the protobuf envelope and lists.

use bytes::Bytes;
use flotilla_model::Resource;
use prost::Message;
use serde::Deserialize;
use serde_json::value::RawValue;

/// How a body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl Encoding {
    /// In which encoding we ask for objects of `resource`. Sets are asked for in JSON: their templates and their status are kept
    /// as JSON, and custom resources come in nothing else.
    pub fn preferred(resource: Resource) -> Self {
        match resource {
            Resource::Pods
            | Resource::Claims
            | Resource::ConfigMaps
            | Resource::Revisions
            | Resource::Nodes
            | Resource::StorageClasses => Encoding::Protobuf,
            Resource::NativeSets
            | Resource::AdvancedSets
            | Resource::CloneSets
            | Resource::ImagePullJobs
            | Resource::Leases
            | Resource::Events => Encoding::Json,
        }
    }

    /// The media types to accept for a list of `resource`, and for a watch.
    pub fn accepted(resource: Resource) -> (&'static str, &'static str) {
        if resource.is_metadata_only() {
            // A server that cannot leave the rest away sends all of it.
            return (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            );
        }
        let encoding = Encoding::preferred(resource);
        (encoding.media_type(), encoding.watch_media_type())
    }

    /// The media type to accept.
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            // A server that speaks no protobuf answers in JSON, and says so.
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf,application/json",
        }
    }

    /// The media type to accept for a watch.
    pub fn watch_media_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch,application/json",
        }
    }

    /// From a `Content-Type`; anything but protobuf counts as JSON, which errors of proxies pretend to be.
    pub fn of_content_type(content_type: &str) -> Self {
        if content_type.starts_with("application/vnd.kubernetes.protobuf") {
            Encoding::Protobuf
        } else {
            Encoding::Json
        }
    }
}

/// Four bytes before every protobuf object that is not inside another.
const MAGIC: &[u8] = b"k8s\0";

/// `k8s.io.apimachinery.pkg.runtime.Unknown`, as far as what is inside.
#[derive(Clone, PartialEq, Message)]
struct Opened {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

/// The same, as far as what kind that is.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Unknown {
    #[prost(message, optional, tag = "1")]
    pub(crate) type_meta: Option<TypeMeta>,
}

/// `k8s.io.apimachinery.pkg.runtime.TypeMeta`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TypeMeta {
    #[prost(string, tag = "2")]
    pub(crate) kind: String,
}

/// `k8s.io.apimachinery.pkg.apis.meta.v1.ListMeta`, shared by both encodings.
#[derive(Clone, PartialEq, Message, Deserialize)]
struct ListMeta {
    #[prost(string, tag = "2")]
    #[serde(default, rename = "resourceVersion")]
    resource_version: String,
    #[prost(string, tag = "3")]
    #[serde(default, rename = "continue")]
    continue_token: String,
}

/// Any `...List` message: they differ only in what the items are.
#[derive(Clone, PartialEq, Message)]
struct ProtobufList {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMeta>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    items: Vec<Bytes>,
}

#[derive(Deserialize)]
struct JsonList<'a> {
    metadata: Option<ListMeta>,
    /// Null where only metadata was asked for and there is nothing.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

/// One page of a list, its items not yet looked at.
#[derive(Clone, Debug)]
pub struct List {
    /// The version of the collection: a watch that starts here misses nothing.
    pub resource_version: u64,
    /// Asks for the next page; empty on the last one.
    pub continue_token: String,
    /// The items, bare.
    pub items: Vec<Bytes>,
}

/// The bytes of the object itself: the envelope is taken off if there is one.
pub fn open(bytes: &Bytes) -> Result<Bytes, String> {
    match without_magic(bytes) {
        Some(envelope) => decoded::<Opened>(envelope).map(|opened| opened.raw),
        None => Ok(bytes.clone()),
    }
}

/// The envelope, if there is one.
pub(crate) fn enveloped(bytes: &Bytes) -> Result<Option<Unknown>, String> {
    without_magic(bytes).map(decoded).transpose()
}

fn without_magic(bytes: &Bytes) -> Option<Bytes> {
    bytes.starts_with(MAGIC).then(|| bytes.slice(MAGIC.len()..))
}

fn decoded<M: Message + Default>(envelope: Bytes) -> Result<M, String> {
    M::decode(envelope).map_err(|e| format!("broken protobuf envelope: {e}"))
}

/// Splits a list into its items.
pub fn split_list(encoding: Encoding, body: &Bytes) -> Result<List, String> {
    let (metadata, items) = match encoding {
        Encoding::Protobuf => {
            let list = ProtobufList::decode(open(body)?).map_err(|e| format!("broken protobuf list: {e}"))?;
            (list.metadata, list.items)
        }
        Encoding::Json => {
            let list: JsonList<'_> = serde_json::from_slice(body).map_err(|e| format!("broken list: {e}"))?;
            (
                list.metadata,
                list.items
                    .iter()
                    .flatten()
                    .map(|item| body.slice_ref(item.get().as_bytes()))
                    .collect(),
            )
        }
    };
    let metadata = metadata.ok_or("the list has no metadata")?;
    let resource_version = parse_version(&metadata.resource_version)?;
    Ok(List {
        resource_version,
        continue_token: metadata.continue_token,
        items,
    })
}

/// Kubernetes documents resource versions as integers that may be compared within a kind.
pub(crate) fn parse_version(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("resourceVersion {text:?} is not a number"))
}
