//! What the process knows besides the request: its caches, as admission asks them, and how its manager was started.

use serde_json::Value;
use std::sync::Arc;

/// An answer about one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// The cache has not been filled yet: nobody knows.
    Unknown,
    /// There is none.
    Missing,
    /// This.
    Is(T),
}

/// A resource that a definition defines, in a version that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomResource<'a> {
    /// Its group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// Its name in paths.
    pub plural: &'a str,
}

/// How many objects there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Nobody knows yet.
    Unknown,
    /// So many.
    Is(usize),
    /// Whoever wants to count them may not list them.
    Forbidden,
}

/// A pod that a set names for deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedPod {
    /// The set manages it.
    Managed,
    /// The set manages it, and its deletion has been asked for.
    Terminating,
    /// The set does not manage it.
    Foreign,
}

/// A revision that pods of a set are at.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionInUse {
    /// Its name.
    pub name: Arc<str>,
    /// The pod template in it.
    pub template: Arc<Value>,
}

/// What was asked for of storage for one claim template of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageAsked {
    /// By recorded revisions, in bytes.
    pub recorded: Vec<u64>,
    /// By the claim that asks for least, in bytes, if there is any.
    pub smallest_claim: Option<u64>,
}

/// What admission asks of the process's caches. Each answer may be "not known", while a cache is being filled or because nothing of that
/// kind is watched; what admission does then stands with the question. A reply never waits for a cache.
pub trait Memory {
    /// Whether a storage class allows its claims to be expanded (unset: it does not).
    ///
    /// Not known: the change is accepted with a warning, since the controller asks again before it touches a claim.
    fn storage_class_expands(&self, name: &str) -> Found<bool>;

    /// The same of the newest default class. Not known: as above.
    fn default_class_expands(&self) -> Found<bool>;

    /// How many pods of a namespace have neither ended nor are being deleted.
    ///
    /// Not known: a protected namespace is kept, with a text that says to try again (409).
    fn active_pods_in(&self, namespace: &str) -> Option<usize>;

    /// How many bound claims of a namespace are not being deleted. Not known: as above.
    fn bound_claims_in(&self, namespace: &str) -> Option<usize>;

    /// How many objects of a custom resource are not being deleted. Not known: a protected definition is kept, as above.
    fn active_objects(&self, resource: &CustomResource<'_>) -> Counted;

    /// The revisions that pods of an Advanced StatefulSet are at, each once.
    ///
    /// Not known: `InPlaceOnly` compares with the template before the change alone; what that misses, the controller reports at the pod.
    fn revisions_in_use(&self, namespace: &str, set: &str) -> Option<Vec<RevisionInUse>>;

    /// How much storage the revisions and claims of an Advanced StatefulSet ask for by one of its claim templates.
    ///
    /// Not known: a smaller template is accepted with a warning, since claims never shrink, whatever it says.
    fn storage_asked(&self, namespace: &str, set: &str, template: &str) -> Option<StorageAsked>;

    /// A pod that the CloneSet with this UID names for deletion (CS-6).
    ///
    /// Not known, which is also said of a name that is merely not remembered: the name is accepted with a warning, since the controller takes
    /// names of pods that do not exist out again.
    fn named_pod(&self, namespace: &str, pod: &str, set: &str) -> Found<NamedPod>;

    /// Whether the manager runs with gate `CloneSetShortHash`: it labels new pods of CloneSets with the hash of their revision alone.
    fn labels_with_hashes(&self) -> bool;
}

/// A process that knows nothing yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Memory for Nothing {
    fn storage_class_expands(&self, _: &str) -> Found<bool> {
        Found::Unknown
    }

    fn default_class_expands(&self) -> Found<bool> {
        Found::Unknown
    }

    fn active_pods_in(&self, _: &str) -> Option<usize> {
        None
    }

    fn bound_claims_in(&self, _: &str) -> Option<usize> {
        None
    }

    fn active_objects(&self, _: &CustomResource<'_>) -> Counted {
        Counted::Unknown
    }

    fn revisions_in_use(&self, _: &str, _: &str) -> Option<Vec<RevisionInUse>> {
        None
    }

    fn storage_asked(&self, _: &str, _: &str, _: &str) -> Option<StorageAsked> {
        None
    }

    fn named_pod(&self, _: &str, _: &str, _: &str) -> Found<NamedPod> {
        Found::Unknown
    }

    fn labels_with_hashes(&self) -> bool {
        false
    }
}
