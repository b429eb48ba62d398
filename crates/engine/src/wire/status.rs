//! `metav1.Status`: how the API server says no.

use super::envelope::{self, Encoding};
use bytes::Bytes;
use prost::Message;
use serde::Deserialize;

/// A refusal, or the confirmation of a deletion.
#[derive(Clone, PartialEq, Message, Deserialize)]
pub struct Status {
    /// "Success" or "Failure".
    #[prost(string, tag = "2")]
    #[serde(default)]
    pub status: String,
    /// For people.
    #[prost(string, tag = "3")]
    #[serde(default)]
    pub message: String,
    /// One word for programs, such as "AlreadyExists".
    #[prost(string, tag = "4")]
    #[serde(default)]
    pub reason: String,
    /// More for programs.
    #[prost(message, optional, tag = "5")]
    pub details: Option<Details>,
    /// The HTTP status code.
    #[prost(int32, tag = "6")]
    #[serde(default)]
    pub code: i32,
}

/// Details of a [`Status`].
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// Name of the object that it is about, if it is about one.
    #[prost(string, tag = "1")]
    #[serde(default)]
    pub name: String,
    /// UID of the object that it is about.
    #[prost(string, tag = "6")]
    #[serde(default)]
    pub uid: String,
    /// How long to wait before trying again, in seconds; 0 if it does not say.
    #[prost(int32, tag = "5")]
    #[serde(default)]
    pub retry_after_seconds: i32,
    /// What the refusal was about, such as "StatefulSet".
    #[prost(string, tag = "3")]
    #[serde(default)]
    pub kind: String,
    /// The single complaints.
    #[prost(message, repeated, tag = "4")]
    #[serde(default)]
    pub causes: Vec<Cause>,
}

/// One complaint of a [`Status`].
#[derive(Clone, PartialEq, Message, Deserialize)]
pub struct Cause {
    /// One word for programs, such as "NamespaceTerminating".
    #[prost(string, tag = "1")]
    #[serde(default)]
    pub reason: String,
    /// For people.
    #[prost(string, tag = "2")]
    #[serde(default)]
    pub message: String,
}

impl Status {
    /// Reads a body that says no. One that is no Status, such as a proxy's, becomes the message.
    pub fn read(http_code: u16, encoding: Encoding, body: &Bytes) -> Status {
        let parsed = match encoding {
            Encoding::Protobuf => envelope::open(body).ok().and_then(|raw| Status::decode(raw).ok()),
            Encoding::Json => serde_json::from_slice::<Status>(body).ok(),
        };
        let mut status = parsed.unwrap_or_else(|| Status {
            message: String::from_utf8_lossy(body)
                .chars()
                .take(LONGEST_FOREIGN_BODY)
                .collect(),
            ..Status::default()
        });
        if status.code == 0 {
            status.code = i32::from(http_code);
        }
        status
    }

    /// Reads the answer to a successful delete, if it is a Status and not the object.
    pub fn of_success(encoding: Encoding, body: &Bytes) -> Option<Status> {
        #[derive(Deserialize)]
        struct Kind {
            kind: String,
        }
        let kind = match encoding {
            Encoding::Protobuf => envelope::enveloped(body).ok()??.type_meta?.kind,
            Encoding::Json => serde_json::from_slice::<Kind>(body).ok()?.kind,
        };
        (kind == "Status").then(|| Status::read(200, encoding, body))
    }
}

/// How much of a body that is no Status goes into the message, in characters.
const LONGEST_FOREIGN_BODY: usize = 200;
