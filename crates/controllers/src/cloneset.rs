//! CloneSets: pods that can stand in for one another.
//!
//! A pass looks at one set ([`view`]), then goes through these steps ([`decide`]):
//! 1. *claim*: adopt and release pods and revisions; find the current and the update revision.
//! 2. *count*: what there is and what is asked for give how many pods to make, delete and update, and how far ([`diff`]).
//! 3. *scale*: take pods back from their deletion, make pods, delete pods that were asked for and those that are too many.
//! 4. *update*: only where nothing was made or deleted: in place, or by a mark that asks for deletion, in order and within the budget.
//! 5. *course*: pods go on with updates in place and lifecycle hooks.
//! 6. *status*: counts, revisions, conditions ([`status`]); unused revisions and names of deleted pods go.

mod claims;
pub mod decide;
pub mod diff;
mod marks;
mod naming;
mod order;
mod plan;
mod rank;
mod scale;
mod starts;
pub mod status;
mod surge;
mod update;
pub mod view;

#[cfg(test)]
mod tests;

use crate::shared::routing;
use flotilla_api::names;
use flotilla_model::set::CloneSpec;
use flotilla_model::{
    Change, ClaimRecord, Controller, Decision, ObjectKey, PassContext, PodRecord, Reader, Resource, SetKind, SetRecord,
};
use std::sync::Arc;

/// What is decided for all CloneSets together, by feature gates and flags of the manager. All off is the default.
// Each is a gate of its own, not a part of a state.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Gate `CloneSetShortHash`: pods are labelled with the hash of their revision instead of its name.
    pub short_hash: bool,
    /// Gate `CloneSetPartitionRollback`: as if each set had `flotilla.rs/partition-rollback`.
    pub partition_rollback: bool,
    /// Gate `RecreatePodWhenChangeVCTInCloneSetGate`: as if each set had `flotilla.rs/recreate-on-claim-change`.
    pub recreate_on_claim_change: bool,
    /// Gate `PreparingUpdateAsUpdate`: of which revision pods are made is decided as if pods that are prepared for an update had it already.
    pub preparing_as_updated: bool,
    /// Flag `--cloneset-scaling-exclude-preparing-delete`: as if each set had `scaleStrategy.excludePreparingDelete`.
    pub exclude_preparing_delete: bool,
}

impl Defaults {
    /// What a set asks for, with what holds for all.
    pub(crate) fn apply(self, clones: &CloneSpec) -> CloneSpec {
        let mut clones = clones.clone();
        clones.switches.partition_rollback |= self.partition_rollback;
        clones.switches.recreate_on_claim_change |= self.recreate_on_claim_change;
        clones.excludes_preparing_delete |= self.exclude_preparing_delete;
        clones
    }
}

/// The controller of CloneSets.
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneSetController {
    defaults: Defaults,
}

impl CloneSetController {
    /// With what holds for all sets.
    pub fn new(defaults: Defaults) -> Self {
        CloneSetController { defaults }
    }
}

const KIND: SetKind = SetKind::Clone;

/// Sets that an orphan may come to belong to: those that it names as a plain owner, and those that take orphans and select it (CS-11).
fn sets_for_orphan(pod: &PodRecord, reader: &dyn Reader) -> Vec<ObjectKey> {
    let sets = reader.sets_in(KIND, &pod.meta.key.namespace);
    let concerned = sets.iter().filter(|set| {
        let is_named = pod.meta.owners().iter().any(|o| o.uid == set.meta.uid);
        let takes_orphans = set.spec.clones.as_ref().is_some_and(|c| c.switches.adopt_orphans);
        is_named || takes_orphans && set.spec.selector.matches(|key| pod.label(key))
    });
    concerned.map(|set| set.meta.key.clone()).collect()
}

/// Sets that have something to do with a pod that is gone, or has lost its id, and was not theirs: they ask for its deletion, so that its
/// name can be taken out (CS-10.9), made it, or own claims that it had, as a copy may, so that these are without a pod (CS-15.4).
fn sets_missing(lost: &PodRecord, reader: &dyn Reader) -> Vec<ObjectKey> {
    let id = lost.label(names::INSTANCE_ID_LABEL).unwrap_or_default();
    let maker = lost.name().strip_suffix(id).and_then(|name| name.strip_suffix('-'));
    let has_claim_of = |set: &SetRecord| {
        let is_ours = |name: String| {
            let claim = reader.claim(&lost.meta.key.sibling(name));
            claim.is_some_and(|claim| claim.meta.is_controlled_by(&set.meta.uid))
        };
        let has_id = |claim: &Arc<ClaimRecord>| claim.meta.labels.get(names::INSTANCE_ID_LABEL) == Some(id);
        lost.claims().any(|(_, name)| is_ours(name))
            || !id.is_empty() && reader.claims_of(set.as_owner()).iter().any(has_id)
    };
    let sets = reader.sets_in(KIND, &lost.meta.key.namespace);
    let concerned = sets.iter().filter(|set| {
        let mut named = set.spec.clones.iter().flat_map(|clones| &clones.pods_to_delete);
        maker == Some(set.name()) || named.any(|name| *name == *lost.name()) || has_claim_of(set)
    });
    concerned.map(|set| set.meta.key.clone()).collect()
}

fn route_pod(old: Option<&PodRecord>, new: Option<&PodRecord>, reader: &dyn Reader, keys: &mut Vec<ObjectKey>) {
    let before = old.and_then(|pod| routing::owner_key(KIND, &pod.meta, reader));
    let after = new.and_then(|pod| routing::owner_key(KIND, &pod.meta, reader));
    let id = |pod: &PodRecord| pod.label(names::INSTANCE_ID_LABEL).map(str::to_owned);
    let is_lost = |old: &&PodRecord| before.is_none() && new.is_none_or(|new| id(new) != id(old));
    if let Some(lost) = old.filter(is_lost) {
        keys.extend(sets_missing(lost, reader));
    }
    if before != after {
        keys.extend(before);
    }
    keys.extend(after);
    if let Some(orphan) = new.filter(|pod| pod.meta.controller().is_none()) {
        keys.extend(sets_for_orphan(orphan, reader));
    }
}

impl Controller for CloneSetController {
    fn name(&self) -> &'static str {
        "cloneset"
    }

    fn resource(&self) -> Resource {
        KIND.resource()
    }

    fn route(&self, change: &Change, reader: &dyn Reader, keys: &mut Vec<ObjectKey>) {
        match change {
            Change::Set(old, new) => keys.extend(routing::of_set(KIND, old.as_deref(), new.as_deref())),
            Change::Pod(old, new) => route_pod(old.as_deref(), new.as_deref(), reader, keys),
            Change::Claim(old, new) => {
                let owners = [old, new].into_iter().flatten();
                keys.extend(owners.filter_map(|claim| routing::owner_key(KIND, &claim.meta, reader)));
            }
            Change::ConfigMap(..) | Change::ImagePullJob(..) | Change::StorageClass(..) => {}
            Change::Revision(old, new) => {
                for revision in [old, new].into_iter().flatten() {
                    routing::route_revision(KIND, revision, reader, keys);
                }
            }
        }
    }

    fn reconcile(&self, reader: &dyn Reader, key: &ObjectKey, context: PassContext<'_>) -> Option<Decision> {
        let set = reader.set(KIND, key)?.clone();
        Some(decide::decide(&view::View::observe(
            set,
            reader,
            self.defaults,
            context,
        )?))
    }
}
