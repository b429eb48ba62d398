//! Pods that share an id or a claim: copies of a pod do, and whoever writes labels can let all pods of a set share one.

use super::{id_of, is_active};
use crate::cloneset::plan::Plan;
use flotilla_api::names;
use flotilla_model::{PodRecord, Uid};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pods with one id, or that mount one claim, in whatever phase.
#[derive(Default)]
pub(in crate::cloneset) struct Sharing<'v> {
    pub(super) all: Vec<&'v Arc<PodRecord>>,
    /// Those that are there to stay.
    pub(super) active: Vec<&'v Arc<PodRecord>>,
    /// Which of those with one id has the claims with it, where somebody asks.
    pub(super) holder: OnceCell<Option<&'v Arc<PodRecord>>>,
}

impl<'v> Sharing<'v> {
    pub(super) fn add(&mut self, pod: &'v Arc<PodRecord>) {
        self.all.push(pod);
        if is_active(pod) {
            self.active.push(pod);
        }
    }
}

/// Pods whose deletion is one of the commands of a plan, by what they have.
#[derive(Default)]
pub(in crate::cloneset) struct Deleted {
    /// By their ids.
    ids: Someone<String>,
    /// By the names of claims that they mount.
    claims: Someone<String>,
    /// By the ids of claims of the set that they mount.
    ids_of_claims: Someone<String>,
}

/// One pod for each key, and whether there are others.
type Someone<K> = BTreeMap<K, (Uid, bool)>;

fn add(someone: &mut Someone<String>, key: String, pod: &Uid) {
    let known = someone.entry(key).or_insert_with(|| (pod.clone(), false));
    known.1 |= known.0 != *pod;
}

/// Whether there is another pod than this one for a key.
fn has_another(someone: &Someone<String>, key: &str, pod: &Uid) -> bool {
    someone.get(key).is_some_and(|(one, are_more)| *are_more || one != pod)
}

impl Plan<'_> {
    /// The id of a pod; of one that has lost its label the one in its name, if we gave it that.
    pub(super) fn own_id<'p>(&self, pod: &'p PodRecord) -> Option<&'p str> {
        let labelled = pod.label(names::INSTANCE_ID_LABEL).filter(|id| !id.is_empty());
        labelled.or_else(|| pod.name().strip_prefix(self.view.set.name())?.strip_prefix('-'))
    }

    /// Notes that the deletion of a pod is one of the commands of this plan.
    pub(in crate::cloneset) fn note_deletion(&mut self, pod: &PodRecord) {
        let uid = &pod.meta.uid;
        let mut deleted = std::mem::take(&mut self.deleted);
        if let Some(id) = self.own_id(pod) {
            add(&mut deleted.ids, id.to_owned(), uid);
        }
        for (_, name) in pod.claims() {
            let set = &self.view.set.meta.uid;
            let claim = self.view.claim(&name);
            let claim = claim.filter(|c| c.meta.is_controlled_by(set) && c.meta.deleted.is_none());
            if let Some(id) = claim.and_then(|claim| id_of(claim)) {
                add(&mut deleted.ids_of_claims, id.to_owned(), uid);
            }
            add(&mut deleted.claims, name, uid);
        }
        self.deleted = deleted;
    }

    /// Whether a pod has a claim that another has, too, which this plan deletes. Which of the two deletions fails nobody knows yet, so that
    /// the claim can go with neither: the pod is deleted when the other is known to go.
    pub(in crate::cloneset) fn goes_after_another(&self, pod: &PodRecord) -> bool {
        let (deleted, uid) = (&self.deleted, &pod.meta.uid);
        if deleted.ids.is_empty() && deleted.claims.is_empty() {
            return false;
        }
        let id = self.own_id(pod);
        // Of claims with its own id, of which there may be as many as pods, it is known without a look at each.
        let shares_id = id
            .filter(|id| !self.claims_with(id).is_empty())
            .is_some_and(|id| has_another(&deleted.ids, id, uid) || has_another(&deleted.ids_of_claims, id, uid));
        shares_id
            || self.claims_beside_id(pod).any(|claim| {
                let is_live = claim.meta.deleted.is_none();
                let has_it = |id: &str| {
                    has_another(&deleted.ids, id, uid) || has_another(&deleted.claims, &claim.meta.key.name, uid)
                };
                is_live && id_of(claim).is_some_and(has_it)
            })
    }
}
