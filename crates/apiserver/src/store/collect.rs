//! The garbage collector: what all owners have left goes; what is to be orphaned is let go; what goes in the foreground waits.

use super::delete::{DeleteOptions, FOREGROUND, ORPHAN, Propagation};
use super::{Actor, Place, Server, StoreId};
use flotilla_model::ObjectKey;
use serde_json::Value;
use std::collections::BTreeSet;

/// What the garbage collector has to look at. It costs nothing while nothing is deleted.
#[derive(Debug, Default)]
pub(super) struct Litter {
    /// UIDs of owners that are gone, or never were.
    gone: BTreeSet<String>,
    /// Objects under deletion that name a propagation.
    propagating: BTreeSet<Place>,
    /// Something changed that may let a propagation go on.
    is_stirred: bool,
}

impl Litter {
    pub(super) fn note_orphan(&mut self, uid: String) {
        self.gone.insert(uid);
    }
}

impl Server {
    /// Whether the garbage collector may have something to do.
    pub fn has_litter(&self) -> bool {
        !self.litter.gone.is_empty() || (self.litter.is_stirred && !self.litter.propagating.is_empty())
    }

    /// One step of the garbage collector. What it deletes may leave litter for the next step.
    pub fn collect_garbage(&mut self) {
        self.litter.is_stirred = false;
        for (resource, key) in self.litter.propagating.clone() {
            self.propagate(resource, &key);
        }
        // Each object is looked at once, however many of its owners are gone.
        let mut bereft: BTreeSet<Place> = BTreeSet::new();
        for uid in std::mem::take(&mut self.litter.gone) {
            if !self.has_uid(&uid) {
                bereft.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
            }
        }
        for (resource, key) in bereft {
            self.judge(resource, &key);
        }
    }

    /// An object is under deletion.
    pub(super) fn note_deletion(&mut self, resource: StoreId, key: &ObjectKey, value: &Value) {
        self.litter.is_stirred = true;
        if finalizers(value).iter().any(|f| f == ORPHAN || f == FOREGROUND) {
            self.litter.propagating.insert((resource, key.clone()));
        }
    }

    /// An object is gone.
    pub(super) fn note_removal(&mut self, resource: StoreId, key: &ObjectKey, uid: &str) {
        self.litter.is_stirred = true;
        self.litter.propagating.remove(&(resource, key.clone()));
        if self.dependents.contains_key(uid) {
            self.litter.gone.insert(uid.to_owned());
        }
    }

    fn propagate(&mut self, resource: StoreId, key: &ObjectKey) {
        let Some(value) = self.get(resource, key).map(super::Stored::value) else {
            self.litter.propagating.remove(&(resource, key.clone()));
            return;
        };
        let has = |name: &str| finalizers(&value).iter().any(|f| f == name);
        let Some(finalizer) = [ORPHAN, FOREGROUND].into_iter().find(|name| has(name)) else {
            self.litter.propagating.remove(&(resource, key.clone()));
            return;
        };
        let uid = super::uid_of(&value).to_owned();
        let dependents = self.dependents.get(&uid).cloned().unwrap_or_default();
        let mut is_done = true;
        for (kind, dependent) in &dependents {
            if finalizer == ORPHAN {
                self.drop_owners(*kind, dependent, &BTreeSet::from([uid.clone()]));
            } else {
                is_done &= !self.blocks(*kind, dependent, &uid);
                self.discard(*kind, dependent);
            }
        }
        if is_done {
            self.drop_finalizer(resource, key, finalizer);
        }
    }

    /// Whether the foreground deletion of an owner waits for an object.
    fn blocks(&self, resource: StoreId, key: &ObjectKey, owner: &str) -> bool {
        let Some(value) = self.get(resource, key).map(super::Stored::value) else {
            return false;
        };
        let owners = value["metadata"]["ownerReferences"].as_array();
        let is_blocking = |o: &Value| o["uid"] == owner && o["blockOwnerDeletion"] == true;
        owners.into_iter().flatten().any(is_blocking)
    }

    /// Takes a finalizer away, which may be what a deletion waited for.
    pub fn drop_finalizer(&mut self, resource: impl Into<StoreId>, key: &ObjectKey, finalizer: &str) {
        // It exists, and only its finalizers change.
        let _ = self.amend(resource.into(), key, |value| {
            if let Some(list) = value["metadata"]["finalizers"].as_array_mut() {
                list.retain(|f| f != finalizer);
                if list.is_empty() {
                    value["metadata"].as_object_mut().map(|m| m.remove("finalizers"));
                }
            }
        });
    }

    /// An object some of whose owners are gone: it goes with the last of them.
    fn judge(&mut self, resource: StoreId, key: &ObjectKey) {
        let Some(value) = self.get(resource, key).map(super::Stored::value) else {
            return;
        };
        let owners = super::owner_uids(&value);
        let (there, gone): (BTreeSet<_>, BTreeSet<_>) = owners.into_iter().partition(|uid| self.has_uid(uid));
        if there.is_empty() {
            self.discard(resource, key);
        } else {
            self.drop_owners(resource, key, &gone);
        }
    }

    fn discard(&mut self, resource: StoreId, key: &ObjectKey) {
        let Some(value) = self.get(resource, key).map(super::Stored::value) else {
            return;
        };
        if value["metadata"].get("deletionTimestamp").is_none() {
            let options = DeleteOptions {
                propagation: Some(Propagation::Background),
                ..DeleteOptions::default()
            };
            // It exists, and there are no preconditions.
            let _ = self.delete(Actor::System, resource, key, &options);
        }
    }

    fn drop_owners(&mut self, resource: StoreId, key: &ObjectKey, gone: &BTreeSet<String>) {
        // It exists, and fewer owners break no rule.
        let _ = self.amend(resource, key, |value| {
            if let Some(list) = value["metadata"]["ownerReferences"].as_array_mut() {
                list.retain(|o| !o["uid"].as_str().is_some_and(|uid| gone.contains(uid)));
                if list.is_empty() {
                    value["metadata"].as_object_mut().map(|m| m.remove("ownerReferences"));
                }
            }
        });
    }
}

pub(super) fn finalizers(value: &Value) -> &[Value] {
    value
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}
