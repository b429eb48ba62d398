//! StatefulSets: native and Advanced, one implementation.
//!
//! A pass looks at one set ([`view`]), then goes through these steps ([`decide`]):
//! 1. *claim*: adopt and release pods and revisions; find the current and the update revision.
//! 2. *fill*: in ascending order, replace pods that have ended, create those that are missing with their claims, repair identity.
//! 3. *scale down*: in descending order, delete pods that are not wanted.
//! 4. *update*: replace pods of old revisions, or change them in place, within the budget, partition and order of the strategy.
//! 5. *course*: pods go on with updates in place and lifecycle hooks.
//! 6. *status*: counts, revisions, conditions ([`status`]); unused revisions go.

mod claims;
pub mod decide;
mod fill;
mod plan;
mod pod;
mod recreate;
mod renew;
mod scale_down;
pub mod status;
mod update;
pub mod view;

#[cfg(test)]
mod tests;

use crate::shared::{claim, routing};
use flotilla_model::{
    Change, Controller, Decision, ObjectKey, PassContext, PodRecord, Reader, Resource, SetKind, SetRecord,
    StorageClassRecord,
};
use std::sync::Arc;

/// The controller of one of the two kinds.
#[derive(Clone, Copy, Debug)]
pub struct StatefulSetController {
    kind: SetKind,
}

impl StatefulSetController {
    /// For sets of this kind.
    pub fn new(kind: SetKind) -> Self {
        StatefulSetController { kind }
    }

    fn route_pod(
        self,
        old: Option<&PodRecord>,
        new: Option<&PodRecord>,
        reader: &dyn Reader,
        keys: &mut Vec<ObjectKey>,
    ) {
        let before = old.and_then(|pod| routing::owner_key(self.kind, &pod.meta, reader));
        let after = new.and_then(|pod| routing::owner_key(self.kind, &pod.meta, reader));
        if before != after {
            keys.extend(before);
        }
        keys.extend(after);
        // An orphan may be one to adopt; a stranger that leaves may free a name that a set waits for.
        let pod = match (old, new) {
            (_, Some(pod)) if pod.meta.controller().is_none() => pod,
            (Some(pod), None) if routing::owner_key(self.kind, &pod.meta, reader).is_none() => pod,
            _ => return,
        };
        keys.extend(self.set_for(pod, reader));
    }

    /// The set whose slot a pod occupies by its name. No other has anything to do with it, whatever it selects: who adopts looks at both, and a
    /// pod that many sets select is not to wake them all whenever it changes.
    fn set_for(self, pod: &PodRecord, reader: &dyn Reader) -> Option<ObjectKey> {
        let (set, _) = pod.name().rsplit_once('-')?;
        let key = pod.meta.key.sibling(set);
        reader.set(self.kind, &key).map(|_| key)
    }

    fn route_claim(self, key: &ObjectKey, reader: &dyn Reader, keys: &mut Vec<ObjectKey>) {
        // `<template>-<set>-<ordinal>`: which dashes separate is not known, so every set of the namespace is asked whether one of its
        // templates makes this name, or one that pods of its old revisions have.
        let Some((prefix, ordinal)) = key.name.rsplit_once('-') else {
            return;
        };
        if ordinal.is_empty() || !ordinal.bytes().all(|b| b.is_ascii_digit()) {
            return;
        }
        for set in reader.sets_in(self.kind, &key.namespace) {
            let names_it = |template: &str| {
                prefix.strip_prefix(template).and_then(|rest| rest.strip_prefix('-')) == Some(set.name())
            };
            let mut recorded = reader.revisions_of(set.as_owner()).iter();
            if set.spec.claim_templates.iter().any(|t| names_it(&t.name))
                || recorded.any(|r| claim::recorded_names(r).any(names_it))
            {
                keys.push(set.meta.key.clone());
            }
        }
    }

    /// Sets whose claims follow their templates: what a class allows now may be what one waits for (STS-3.9).
    fn route_class(self, reader: &dyn Reader, keys: &mut Vec<ObjectKey>) {
        if self.kind != SetKind::Advanced {
            return;
        }
        let sets = reader.all_sets(self.kind);
        let follows = sets
            .iter()
            .filter(|set| set.spec.expand_claims && !set.spec.claim_templates.is_empty());
        keys.extend(follows.map(|set| set.meta.key.clone()));
    }
}

impl Controller for StatefulSetController {
    fn name(&self) -> &'static str {
        match self.kind {
            SetKind::Native => "statefulset",
            SetKind::Advanced | SetKind::Clone => "advanced-statefulset",
        }
    }

    fn resource(&self) -> Resource {
        self.kind.resource()
    }

    fn route(&self, change: &Change, reader: &dyn Reader, keys: &mut Vec<ObjectKey>) {
        match change {
            Change::Set(old, new) => keys.extend(routing::of_set(self.kind, old.as_deref(), new.as_deref())),
            Change::Pod(old, new) => self.route_pod(old.as_deref(), new.as_deref(), reader, keys),
            Change::Claim(old, new) => {
                if let Some(claim) = new.as_ref().or(old.as_ref()) {
                    self.route_claim(&claim.meta.key, reader, keys);
                }
            }
            Change::StorageClass(old, new) => {
                let allows = |class: &Option<Arc<StorageClassRecord>>| class.as_ref().map(|c| c.allows_expansion);
                if allows(old) != allows(new) {
                    self.route_class(reader, keys);
                }
            }
            Change::ConfigMap(..) | Change::ImagePullJob(..) => {}
            Change::Revision(old, new) => {
                for revision in [old, new].into_iter().flatten() {
                    routing::route_revision(self.kind, revision, reader, keys);
                }
            }
        }
    }

    fn reconcile(&self, reader: &dyn Reader, key: &ObjectKey, context: PassContext<'_>) -> Option<Decision> {
        let set: Arc<SetRecord> = reader.set(self.kind, key)?.clone();
        Some(decide::decide(&view::View::observe(set, reader, context)))
    }
}
