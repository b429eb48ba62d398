//! By what two requests are known to be the same: what they do, whatever time it is and whichever version was seen.

use crate::core::request::Call;
use flotilla_api::names;
use flotilla_model::decision::PodDraft;
use flotilla_model::{Body, Command, ObjectKey, Resource};
use serde_json::Value;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Names an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectDigest(u64);

impl ObjectDigest {
    /// The digest of an object.
    pub fn of(resource: Resource, key: &ObjectKey) -> Self {
        let mut hasher = DefaultHasher::new();
        (resource, key).hash(&mut hasher);
        ObjectDigest(hasher.finish())
    }
}

/// Names a write: what it does to which object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    pub(super) object: ObjectDigest,
    pub(super) request: u64,
}

/// For what a request was decided.
#[derive(Clone, Copy, Debug)]
pub struct Author<'a> {
    /// The resource of the pass's object.
    pub resource: Resource,
    /// The object.
    pub key: &'a ObjectKey,
    /// Its generation: after an edit, everything is asked for anew.
    pub generation: i64,
}

impl Fingerprint {
    /// The fingerprint of a write; of anything else there is none.
    ///
    /// The UID counts and the version does not: our own writes move it. Nor do moments in texts, by which two notes of the same thing
    /// differ.
    pub fn of(call: &Call, author: Author<'_>) -> Option<Self> {
        let mut hasher = DefaultHasher::new();
        let object = match call {
            Call::Write(command) => {
                hash_command(command, &mut hasher);
                (command.resource(), command.key())
            }
            Call::Status(patch) => {
                ("status", &patch.uid).hash(&mut hasher);
                hash_value(&patch.status, &mut hasher);
                (patch.resource, &patch.key)
            }
            Call::Get { .. } | Call::Lease(_) | Call::Event(_) => return None,
        };
        // What is written to the author itself may be what raises its generation.
        if object != (author.resource, author.key) {
            author.generation.hash(&mut hasher);
        }
        object.hash(&mut hasher);
        Some(Fingerprint {
            object: ObjectDigest::of(object.0, object.1),
            request: hasher.finish(),
        })
    }
}

fn hash_command(command: &Command, hasher: &mut DefaultHasher) {
    match command {
        Command::Create { body, .. } => {
            "create".hash(hasher);
            match body {
                Body::Json(body) => hash_value(body, hasher),
                Body::Pod(draft) => hash_draft(draft, hasher),
            }
        }
        Command::Patch {
            uid,
            subresource,
            kind,
            body,
            ..
        } => {
            let subresource = subresource.map(flotilla_model::decision::Subresource::name);
            ("patch", uid, subresource, *kind as u8).hash(hasher);
            hash_value(body, hasher);
        }
        Command::Delete { uid, .. } => ("delete", uid).hash(hasher),
        Command::Try { pod } => {
            "try".hash(hasher);
            hash_draft(pod, hasher);
        }
        Command::Read { .. } => "read".hash(hasher),
    }
}

/// The template itself is left out: its revision is among the labels, and it may be large.
fn hash_draft(draft: &PodDraft, hasher: &mut DefaultHasher) {
    draft.owner.uid.hash(hasher);
    draft.host.hash(hasher);
    draft.claims.hash(hasher);
    for (key, text) in draft.labels.iter().chain(&draft.annotations) {
        key.hash(hasher);
        hash_text(text, hasher);
    }
}

fn hash_value(value: &Value, hasher: &mut DefaultHasher) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        Value::Null => {}
        Value::Bool(is_true) => is_true.hash(hasher),
        Value::Number(number) => number.hash(hasher),
        Value::String(text) => hash_text(text, hasher),
        Value::Array(items) => {
            items.len().hash(hasher);
            for item in items {
                hash_value(item, hasher);
            }
        }
        Value::Object(fields) => {
            fields.len().hash(hasher);
            for (field, value) in fields {
                field.hash(hasher);
                // The version that was seen, which our own write moves.
                if field != names::CLAIM_TAKEN_AT {
                    hash_value(value, hasher);
                }
            }
        }
    }
}

/// Hashes a text without the moments in it, as in `2026-01-01T00:00:46.926Z`.
fn hash_text(text: &str, hasher: &mut DefaultHasher) {
    const DATE: &[u8] = b"dddd-dd-ddT";
    let is_date = |window: &[u8]| {
        let fits = |(found, wanted): (&u8, &u8)| match wanted {
            b'd' => found.is_ascii_digit(),
            exact => found == exact,
        };
        window.len() == DATE.len() && window.iter().zip(DATE).all(fits)
    };
    let is_of_moment = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b':' | b'.' | b'-' | b'+' | b'T' | b'Z');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.windows(DATE.len()).position(is_date) {
        hasher.write(&rest[..at]);
        let moment = rest[at..].iter().take_while(|byte| is_of_moment(byte)).count();
        rest = &rest[at + moment..];
    }
    hasher.write(rest);
    hasher.write_u8(0xff);
}
