//! The request as the API server asks it, and the answer.

use serde_json::Value;

/// What a request would do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Store a new one.
    Create,
    /// Change one.
    Update,
    /// Remove one.
    Delete,
}

/// One request, as the API server asks about it. Objects are the JSON received, never a typed round trip of it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Names the request; the same when the API server asks again about the same one.
    pub uid: &'a str,
    /// What it would do.
    pub operation: Operation,
    /// Group of the object's kind; empty for the core group.
    pub group: &'a str,
    /// Version of the object's kind.
    pub version: &'a str,
    /// The object's kind.
    pub kind: &'a str,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// The object's name; empty where the server makes one up from `generateName`.
    pub name: &'a str,
    /// The object as it would be stored; `None` for a deletion.
    pub object: Option<&'a Value>,
    /// The object as it is stored; `None` for a creation.
    pub old_object: Option<&'a Value>,
    /// Nothing will be stored in any case.
    pub dry_run: bool,
}

/// The answer, with what the user should hear besides.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Whether it may go on, and how.
    pub verdict: Verdict,
    /// Sentences that kubectl prints: accepted, but probably not meant.
    pub warnings: Vec<String>,
}

/// Whether a request may go on.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// As it is.
    Allow,
    /// Not.
    Deny(Refusal),
    /// With these changes: an RFC 6902 patch on the object received.
    Mutate(Vec<Value>),
}

/// Why a request may not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status: 422 for bad content, 403 for forbidden changes, 409 where a retry can help, 429 for quota.
    pub code: u16,
    /// The sentence: field, value, rule, and what would be accepted; one problem a line.
    pub message: String,
}

impl Verdict {
    /// A refusal.
    pub const fn deny(code: u16, message: String) -> Self {
        Verdict::Deny(Refusal { code, message })
    }
}

impl From<Verdict> for Reply {
    fn from(verdict: Verdict) -> Self {
        Reply {
            verdict,
            warnings: Vec::new(),
        }
    }
}

impl Reply {
    /// As it is, without a word.
    pub const fn allow() -> Self {
        Reply {
            verdict: Verdict::Allow,
            warnings: Vec::new(),
        }
    }
}
