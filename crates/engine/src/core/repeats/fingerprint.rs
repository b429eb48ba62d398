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

/// Names a write: what it does to which object. Two are equal that are the same request.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprint {
    pub(super) object: ObjectDigest,
    pub(super) request: u64,
    /// It makes one of many equal objects, whose name is made up. That there are more of them is no repetition; that one is refused after
    /// the other is.
    pub(super) is_one_of_many: bool,
    /// What it is written to; that may not be there yet.
    pub(super) target: ObjectDigest,
    /// It deletes its target.
    pub(super) is_deletion: bool,
    /// It makes a pod, under whatever name.
    pub(super) is_new_pod: bool,
    /// For what it was decided, as that was asked for then.
    pub(super) author: u64,
    /// The same, whatever was asked for.
    pub(super) set: ObjectDigest,
    /// What was asked for then.
    pub(super) generation: i64,
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

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        (self.object, self.request) == (other.object, other.request)
    }
}

impl Eq for Fingerprint {}

impl Fingerprint {
    /// What others have to change for a repetition to make sense.
    pub fn object(self) -> ObjectDigest {
        self.object
    }

    /// The fingerprint of a write; of anything else there is none.
    ///
    /// The UID counts and the version does not: our own writes move it. Nor do moments in texts, by which two notes of the same thing
    /// differ.
    pub fn of(call: &Call, author: Author<'_>) -> Option<Self> {
        let made_up = made_up(call).unwrap_or_default();
        let mut words = Words {
            hasher: DefaultHasher::new(),
            left_out: made_up,
        };
        let (resource, key) = match call {
            Call::Write(command) => {
                words.command(command);
                (command.resource(), command.key())
            }
            Call::Status(patch) => {
                ("status", &patch.uid).hash(&mut words.hasher);
                words.value(&patch.status);
                (patch.resource, &patch.key)
            }
            Call::Get { .. } | Call::Lease(_) | Call::Event(_) => return None,
        };
        // What is written to the author itself may be what raises its generation.
        if (resource, key) != (author.resource, author.key) {
            author.generation.hash(&mut words.hasher);
        }
        (resource, &key.namespace).hash(&mut words.hasher);
        words.text(&key.name);
        // Nobody changes what has never been there: what others do to the author counts.
        let object = if made_up.is_empty() {
            ObjectDigest::of(resource, key)
        } else {
            ObjectDigest::of(author.resource, author.key)
        };
        let mut hasher = DefaultHasher::new();
        (author.resource, author.key, author.generation).hash(&mut hasher);
        let is_creation = matches!(call, Call::Write(Command::Create { .. }));
        Some(Fingerprint {
            object,
            request: words.hasher.finish(),
            is_one_of_many: !made_up.is_empty() && is_creation,
            target: ObjectDigest::of(resource, key),
            is_deletion: matches!(call, Call::Write(Command::Delete { .. })),
            is_new_pod: is_creation && resource == Resource::Pods,
            author: hasher.finish(),
            set: ObjectDigest::of(author.resource, author.key),
            generation: author.generation,
        })
    }
}

/// What is made up anew in the names of a new object, if anything is: the id by which pods of CloneSets and their claims are told apart.
fn made_up(call: &Call) -> Option<&str> {
    let draft = match call {
        Call::Write(Command::Create { body, .. }) => match body {
            Body::Json(body) => return body["metadata"]["labels"][names::INSTANCE_ID_LABEL].as_str(),
            Body::Pod(draft) => draft,
        },
        Call::Write(Command::Try { pod }) => pod,
        _ => return None,
    };
    let mut labels = draft.labels.iter();
    labels
        .find(|(key, _)| *key == names::INSTANCE_ID_LABEL)
        .map(|(_, id)| id.as_str())
}

/// Hashes what a write says, without what is made up in it.
struct Words<'a> {
    hasher: DefaultHasher,
    /// Empty if nothing is.
    left_out: &'a str,
}

impl Words<'_> {
    fn command(&mut self, command: &Command) {
        match command {
            Command::Create { body, .. } => {
                "create".hash(&mut self.hasher);
                match body {
                    Body::Json(body) => self.value(body),
                    Body::Pod(draft) => self.draft(draft),
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
                ("patch", uid, subresource, *kind as u8).hash(&mut self.hasher);
                self.value(body);
            }
            Command::Delete { uid, .. } => ("delete", uid).hash(&mut self.hasher),
            Command::Try { pod } => {
                "try".hash(&mut self.hasher);
                self.draft(pod);
            }
            Command::Read { .. } => "read".hash(&mut self.hasher),
        }
    }

    /// The template itself is left out: its revision is among the labels, and it may be large.
    fn draft(&mut self, draft: &PodDraft) {
        draft.owner.uid.hash(&mut self.hasher);
        draft.host.hash(&mut self.hasher);
        for (volume, claim) in &draft.claims {
            volume.hash(&mut self.hasher);
            self.text(claim);
        }
        for (key, text) in draft.labels.iter().chain(&draft.annotations) {
            key.hash(&mut self.hasher);
            self.text(text);
        }
    }

    fn value(&mut self, value: &Value) {
        std::mem::discriminant(value).hash(&mut self.hasher);
        match value {
            Value::Null => {}
            Value::Bool(is_true) => is_true.hash(&mut self.hasher),
            Value::Number(number) => number.hash(&mut self.hasher),
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                items.len().hash(&mut self.hasher);
                for item in items {
                    self.value(item);
                }
            }
            Value::Object(fields) => {
                fields.len().hash(&mut self.hasher);
                for (field, value) in fields {
                    field.hash(&mut self.hasher);
                    // The version that was seen, which our own write moves.
                    if field != names::CLAIM_TAKEN_AT {
                        self.value(value);
                    }
                }
            }
        }
    }

    /// A text without the moments in it, as in `2026-01-01T00:00:46.926Z`, and without what is made up.
    fn text(&mut self, text: &str) {
        if self.left_out.is_empty() {
            self.without_moments(text);
        } else {
            for part in text.split(self.left_out) {
                self.without_moments(part);
            }
        }
        self.hasher.write_u8(0xff);
    }

    fn without_moments(&mut self, text: &str) {
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
            self.hasher.write(&rest[..at]);
            let moment = rest[at..].iter().take_while(|byte| is_of_moment(byte)).count();
            rest = &rest[at + moment..];
        }
        self.hasher.write(rest);
        self.hasher.write_u8(0xfe);
    }
}
