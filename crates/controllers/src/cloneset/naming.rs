//! Names of new pods (CS-15.1, CS-15.3 and CS-13.8): whose claims they get.

use super::claims::{id_of, is_of_creation};
use super::plan::Plan;
use super::scale::count;
use super::surge::is_made_as_surge;
use crate::shared::claim;
use crate::shared::identity::{ID_LENGTH, instance_id};
use flotilla_api::names;
use flotilla_model::ClaimRecord;
use flotilla_model::decision::Scope;
use std::collections::{BTreeMap, BTreeSet};

/// How many ids a pass looks at for each that it needs.
const TRIES: u64 = 64;

impl Plan<'_> {
    /// Names for replicas. First those of what a former pod has stored and is waited for, then those whose creation was refused and whose claims
    /// are there, of other claims that no pod has, of other refusals, new ones. Claims that were made as surge are for none of them.
    pub(super) fn names(&self, wanted: i32) -> Vec<String> {
        self.names_that_fit(wanted, wanted, |name| {
            let mut claims = self.claims_with_id_of(name);
            claims.all(|claim| !is_made_as_surge(name, Some(&claim.annotations)))
        })
    }

    /// Names for pods that are made as surge, other than these. A claim that has such a name was made as surge as well: what others have stored is
    /// for replicas, since a surge takes its claims with it when it goes.
    pub(super) fn names_of_surge(&self, wanted: i32, others: &[String]) -> Vec<String> {
        let others: BTreeSet<&str> = others.iter().map(String::as_str).collect();
        let tries = wanted.saturating_add(count(others.len()));
        self.names_that_fit(wanted, tries, |name| {
            let mut claims = self.claims_with_id_of(name);
            !others.contains(name) && claims.all(|claim| is_made_as_surge(name, Some(&claim.annotations)))
        })
    }

    /// Claims under the names that those of a pod of this name have.
    fn claims_named(&self, pod: &str) -> impl Iterator<Item = &ClaimRecord> {
        let named = self.templates().map(move |t| claim::claim_name(t, pod));
        named.filter_map(|name| self.view.claim(&name)).map(|claim| &**claim)
    }

    /// The same, and all that share the id of such a pod, also of templates that the set has no more: an old revision may mount them yet.
    fn claims_with_id_of(&self, pod: &str) -> impl Iterator<Item = &ClaimRecord> {
        let id = pod.rsplit_once('-').map_or("", |(_, id)| id);
        let with_id = self.claims_with(id).iter().map(|claim| &***claim);
        self.claims_named(pod).chain(with_id)
    }

    /// Names that fit; ids are made up for so many pods.
    fn names_that_fit(&self, wanted: i32, new: i32, fits: impl Fn(&str) -> bool) -> Vec<String> {
        if wanted <= 0 {
            return Vec::new();
        }
        let set = self.view.set.name();
        let used: BTreeSet<&str> = self.ids_in_use().collect();
        let (uid, entropy) = (&self.view.set.meta.uid, self.view.entropy);
        let most = TRIES.saturating_mul(u64::try_from(new).unwrap_or(0));
        let new = (0..most).map(|n| instance_id(uid, entropy, n));
        let new = new.filter(|id| !used.contains(id.as_str()));
        let is_taken = |name: &String| self.view.has_pod(name) || self.claims_named(name).next().is_some();
        let new = new.map(|id| format!("{set}-{id}")).filter(|name| !is_taken(name));
        let mut known = BTreeSet::new();
        let all = self.names_there().into_iter().chain(new).filter(|name| fits(name));
        let all = all.filter(|name| known.insert(name.clone()));
        all.take(usize::try_from(wanted).unwrap_or(0)).collect()
    }

    /// Names that are not made up: of claims that no pod has, and of pods that were refused.
    fn names_there(&self) -> Vec<String> {
        // Nothing is waited for under a name that has nothing worth it.
        let set = &self.view.set.meta.uid;
        let keeps_claims = |name: &String| {
            let mut found = self.claims_named(name);
            // One that is not the set's, as a former set of this name left it, is data of others.
            found.all(|found| {
                let is_ours = found.meta.is_controlled_by(set);
                is_ours && claim::about_to_go(found, name).is_none() && !self.is_mounted(found)
            })
        };
        let (with_claims, without): (Vec<String>, Vec<String>) = self
            .refused()
            .filter(keeps_claims)
            .partition(|name| self.claims_named(name).next().is_some());
        let (awaited, others): (Vec<String>, Vec<String>) = self
            .free_ids()
            .into_iter()
            .partition(|id| self.pass.hints.awaited.contains(id));
        // A pod of that name may have another id, and mount nothing of these.
        let free = |ids: Vec<String>| {
            let names = ids.into_iter().map(|id| self.name_of(&id));
            names.filter(|name| !self.view.has_pod(name)).collect::<Vec<_>>()
        };
        [free(awaited), with_claims, free(others), without].concat()
    }

    /// Names under which a pod was to be made and was refused, and whose ids nobody has got since.
    fn refused(&self) -> impl Iterator<Item = String> {
        let prefix = format!("{}-", self.view.set.name());
        let hints = &self.pass.hints;
        let failures = hints.failures.iter().chain(&hints.repeated);
        failures.filter_map(move |(scope, failure)| match scope {
            Scope::Named(name) if is_of_creation(failure.attempt) => {
                let id = name.strip_prefix(&prefix).filter(|id| id.len() == ID_LENGTH)?;
                let is_free = !self.view.has_pod(name) && self.pods_with(id).is_none();
                is_free.then(|| name.clone())
            }
            _ => None,
        })
    }

    /// Ids on any pod or claim of the set, and on pods that nobody manages: copies of ours, or such as we have let go.
    fn ids_in_use(&self) -> impl Iterator<Item = &str> {
        let pods = self
            .view
            .pods_that_may_hold_claims()
            .filter_map(|pod| pod.label(names::INSTANCE_ID_LABEL));
        pods.chain(self.view.claims.iter().filter_map(|claim| id_of(claim)))
    }

    /// Ids of claims that no pod has (CS-15.3). Without reuse that is what is kept for replacements, if nothing else has the id.
    fn free_ids(&self) -> Vec<String> {
        let clones = &self.view.clones;
        if !clones.reuses_claims && !clones.switches.keep_claims_on_recreate {
            return Vec::new();
        }
        let mut free = BTreeMap::new();
        for claim in &self.view.claims {
            if let Some(id) = id_of(claim) {
                let is_surge = is_made_as_surge(&self.name_of(id), Some(&claim.annotations));
                let is_left = clones.reuses_claims && !is_surge || self.keeps(claim);
                let is_free = is_left && self.holder_of(claim, id).is_none() && !self.is_mounted(claim);
                *free.entry(id).or_insert(true) &= is_free;
            }
        }
        let free = free.into_iter().filter(|(_, is_free)| *is_free);
        free.map(|(id, _)| id.to_owned()).collect()
    }
}
