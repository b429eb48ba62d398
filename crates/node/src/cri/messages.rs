//! Messages of `runtime.v1`, with the fields that are used.

use prost::Message;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionRequest {
    #[prost(string, tag = "1")]
    pub(super) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionResponse {
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) version: String,
    #[prost(string, tag = "4")]
    pub(super) api: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusRequest {
    #[prost(bool, tag = "1")]
    pub(super) verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<RuntimeStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    pub(super) conditions: Vec<RuntimeCondition>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RuntimeCondition {
    #[prost(string, tag = "1")]
    pub(super) type_: String,
    #[prost(bool, tag = "2")]
    pub(super) status: bool,
    #[prost(string, tag = "3")]
    pub(super) reason: String,
    #[prost(string, tag = "4")]
    pub(super) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListContainersRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) filter: Option<ContainerFilter>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerFilter {
    #[prost(btree_map = "string, string", tag = "4")]
    pub(super) label_selector: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListContainersResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) containers: Vec<Container>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Container {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, optional, tag = "3")]
    pub(super) metadata: Option<ContainerMetadata>,
    #[prost(int32, tag = "6")]
    pub(super) state: i32,
    #[prost(int64, tag = "7")]
    pub(super) created_at: i64,
    #[prost(btree_map = "string, string", tag = "8")]
    pub(super) labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "9")]
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerStatusRequest {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(bool, tag = "2")]
    pub(super) verbose: bool,
}

/// Its `info` holds the environment, which is why none of these messages is ever printed.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerStatusResponse {
    #[prost(btree_map = "string, string", tag = "2")]
    pub(super) info: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExecSyncRequest {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) cmd: Vec<String>,
    #[prost(int64, tag = "3")]
    pub(super) timeout: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExecSyncResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) stdout: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) stderr: Vec<u8>,
    #[prost(int32, tag = "3")]
    pub(super) exit_code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StopContainerRequest {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(int64, tag = "2")]
    pub(super) timeout: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StopContainerResponse {}
