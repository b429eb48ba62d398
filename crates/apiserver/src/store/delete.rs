//! Deletion: what is asked, what holds it up, and what becomes of dependents.

use super::collect::finalizers;
use super::{Actor, Server, StoreId, Stored, uid_of};
use flotilla_apimachinery::status::Status;
use flotilla_model::{ObjectKey, Resource, Timestamp};
use serde_json::{Value, json};

/// What becomes of what a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// It goes afterwards.
    Background,
    /// It goes first.
    Foreground,
    /// It stays, without the owner.
    Orphan,
}

/// How to delete.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Only this incarnation.
    pub uid: Option<String>,
    /// Only at this version.
    pub resource_version: Option<String>,
    /// How long a pod may take, instead of what it says itself.
    pub grace_seconds: Option<i64>,
    /// What becomes of dependents; in the background unless it is said, or the object's finalizers say otherwise.
    pub propagation: Option<Propagation>,
}

/// What a deletion came to.
#[derive(Clone, Debug)]
pub(crate) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Stored),
    /// Something holds it up.
    Going(Stored),
}

/// How long a pod may take to end unless it says otherwise.
const DEFAULT_GRACE_SECONDS: i64 = 30;
/// Finalizers by which the garbage collector is told of a propagation.
pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

impl Server {
    /// Asks for the deletion of an object. Says what is left of it, or what it was at the end.
    pub fn delete(
        &mut self,
        actor: Actor,
        resource: impl Into<StoreId>,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Stored, Status> {
        match self.delete_by((actor, false), resource.into(), key, options)? {
            Deleted::Gone(stored) | Deleted::Going(stored) => Ok(stored),
        }
    }

    /// Deletes an object, or only says what would come of it.
    pub(crate) fn delete_by(
        &mut self,
        (actor, is_dry_run): (Actor, bool),
        resource: StoreId,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        let old = self.require(resource, key)?.clone();
        let mut value = old.to_value();
        self.check_preconditions(resource, key, &value, options)?;
        let grace = grace_seconds(resource, &value, options);
        set_propagation(&mut value, options.propagation);
        let known = value["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let is_first = value["metadata"].get("deletionTimestamp").is_none();
        if is_first || known.is_some_and(|known| grace < known) {
            let at = Timestamp::from_seconds(self.now.as_millis().div_euclid(1000) + grace);
            value["metadata"]["deletionTimestamp"] = json!(at.to_string());
            value["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        if let Some(generation) = value["metadata"]["generation"].as_i64().filter(|g| is_first && *g > 0) {
            value["metadata"]["generation"] = json!(generation + 1);
        }
        if value == *old.value() {
            return Ok(Deleted::Going(old));
        }
        if is_finished(resource, &value) {
            if is_dry_run {
                return Ok(Deleted::Gone(Stored::new(value, old.object, old.version, false)));
            }
            let last = if self.shows_end && resource == Resource::Pods {
                self.put((actor, "delete"), resource, key, value)?
            } else {
                self.note((actor, "delete"), resource, key, Some(old.clone()), Some(old.clone()));
                Stored::new(value, old.object, old.version, false)
            };
            self.remove(actor, resource, key);
            return Ok(Deleted::Gone(last));
        }
        if is_dry_run {
            return Ok(Deleted::Going(Stored::new(value, None, old.version, false)));
        }
        self.put((actor, "delete"), resource, key, value).map(Deleted::Going)
    }

    fn check_preconditions(
        &self,
        resource: StoreId,
        key: &ObjectKey,
        value: &Value,
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        let version = value["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let (again, changed) = ("deleted and then recreated", "modified");
        let checks = [
            ("UID", &options.uid, uid_of(value), again),
            ("ResourceVersion", &options.resource_version, version, changed),
        ];
        for (field, wanted, actual, what) in checks {
            if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != actual) {
                let why = format!(
                    "the {field} in the precondition ({wanted}) does not match the {field} in record ({actual}). The object might have been {what}"
                );
                return Err(Status::conflict(&self.qualified_kind(resource), &key.name, &why));
            }
        }
        Ok(())
    }
}

/// Deletion was asked for, no finalizer holds it up, and a pod's time is over.
pub(super) fn is_finished(resource: StoreId, value: &Value) -> bool {
    let metadata = &value["metadata"];
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    // A namespace is held up by a finalizer of its own.
    let is_held = value
        .pointer("/spec/finalizers")
        .and_then(Value::as_array)
        .is_some_and(|f| !f.is_empty());
    metadata.get("deletionTimestamp").is_some()
        && finalizers(value).is_empty()
        && !is_held
        && (resource != Resource::Pods || grace == 0)
}

/// A pod that no kubelet has, or that has ended, is given no time.
fn grace_seconds(resource: StoreId, value: &Value, options: &DeleteOptions) -> i64 {
    let phase = value
        .pointer("/status/phase")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let is_bound = value
        .pointer("/spec/nodeName")
        .and_then(Value::as_str)
        .is_some_and(|n| !n.is_empty());
    if resource != Resource::Pods || !is_bound || matches!(phase, "Failed" | "Succeeded") {
        return 0;
    }
    let own = value
        .pointer("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_i64);
    options.grace_seconds.or(own).unwrap_or(DEFAULT_GRACE_SECONDS)
}

/// Tells the garbage collector what is to become of dependents, by finalizers.
fn set_propagation(value: &mut Value, propagation: Option<Propagation>) {
    let wanted = match propagation {
        None => return,
        Some(Propagation::Background) => None,
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
    };
    let mut list = finalizers(value).to_vec();
    list.retain(|f| f != ORPHAN && f != FOREGROUND);
    list.extend(wanted.map(|finalizer| json!(finalizer)));
    if list.is_empty() {
        value["metadata"].as_object_mut().map(|m| m.remove("finalizers"));
    } else {
        value["metadata"]["finalizers"] = json!(list);
    }
}
