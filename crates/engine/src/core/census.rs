//! What there is of each kind, counted: for whoever answers questions beside the core and must not wait for it.

use super::Core;
use flotilla_model::set::ClaimTemplate;
use flotilla_model::{
    Labels, Meta, ObjectKey, PodRecord, Reader, Resource, RevisionRecord, SetRecord, StorageClassRecord, Uid,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Numbers by namespace.
pub type ByNamespace = BTreeMap<Arc<str>, usize>;

/// A copy of what the caches say in numbers. What has not been listed yet, or is not watched, is `None`.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Pods that have neither ended nor are being deleted, in each namespace that has any.
    pub active_pods: Option<ByNamespace>,
    /// Bound claims that are not being deleted, in each namespace that has any.
    pub bound_claims: Option<ByNamespace>,
    /// Advanced StatefulSets that are not being deleted, all namespaces together.
    pub advanced_sets: Option<usize>,
    /// CloneSets that are not being deleted, all namespaces together.
    pub clone_sets: Option<usize>,
    /// Pods of CloneSets, by the UID of their set and in order of name; sets without pods are left out.
    pub clone_pods: Option<BTreeMap<Uid, Vec<Arc<PodRecord>>>>,
    /// Revisions that pods of Advanced StatefulSets are at, each once, by set; sets without pods are left out.
    pub revisions_in_use: Option<BTreeMap<ObjectKey, Vec<Arc<RevisionRecord>>>>,
    /// What was asked for by each claim template of each Advanced StatefulSet that has any.
    pub storage_asked: Option<BTreeMap<ObjectKey, BTreeMap<Arc<str>, Asked>>>,
    /// The storage classes.
    pub storage_classes: Option<Vec<Arc<StorageClassRecord>>>,
}

/// How much storage is asked for by one claim template of a set, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// By its revisions, as they record it.
    pub recorded: Vec<u64>,
    /// By the smallest of its claims.
    pub smallest_claim: Option<u64>,
}

fn by_namespace<'n>(namespaces: impl Iterator<Item = &'n Arc<str>>) -> ByNamespace {
    let mut numbers = ByNamespace::new();
    for namespace in namespaces {
        match numbers.get_mut(namespace) {
            Some(number) => *number += 1,
            None => drop(numbers.insert(namespace.clone(), 1)),
        }
    }
    numbers
}

impl Core {
    /// Counts.
    pub fn census(&self) -> Census {
        let is_known = |resource| self.kinds.get(&resource).is_some_and(|kind| kind.is_known());
        let stays = |meta: &Meta| meta.deleted.is_none();
        let active_pods = self
            .cache
            .pods
            .iter()
            .filter(|pod| !pod.is_terminal() && !pod.is_terminating());
        let bound_claims = self
            .cache
            .claims
            .iter()
            .filter(|claim| claim.is_bound && stays(&claim.meta));
        Census {
            active_pods: is_known(Resource::Pods).then(|| by_namespace(active_pods.map(|pod| &pod.meta.key.namespace))),
            bound_claims: is_known(Resource::Claims)
                .then(|| by_namespace(bound_claims.map(|claim| &claim.meta.key.namespace))),
            advanced_sets: is_known(Resource::AdvancedSets)
                .then(|| self.cache.advanced_sets.iter().filter(|set| stays(&set.meta)).count()),
            clone_sets: is_known(Resource::CloneSets)
                .then(|| self.cache.clone_sets.iter().filter(|set| stays(&set.meta)).count()),
            clone_pods: [Resource::CloneSets, Resource::Pods]
                .into_iter()
                .all(is_known)
                .then(|| self.clone_pods()),
            revisions_in_use: [Resource::AdvancedSets, Resource::Pods, Resource::Revisions]
                .into_iter()
                .all(is_known)
                .then(|| self.revisions_in_use()),
            storage_asked: [Resource::AdvancedSets, Resource::Claims, Resource::Revisions]
                .into_iter()
                .all(is_known)
                .then(|| self.storage_asked()),
            storage_classes: is_known(Resource::StorageClasses)
                .then(|| self.cache.storage_classes.iter().cloned().collect()),
        }
    }

    fn clone_pods(&self) -> BTreeMap<Uid, Vec<Arc<PodRecord>>> {
        let of = |set: &Arc<SetRecord>| {
            let pods = self.cache.pods.of_owner(set.as_owner());
            (!pods.is_empty()).then(|| (set.meta.uid.clone(), pods.to_vec()))
        };
        self.cache.clone_sets.iter().filter_map(of).collect()
    }

    fn revisions_in_use(&self) -> BTreeMap<ObjectKey, Vec<Arc<RevisionRecord>>> {
        let of = |set: &Arc<SetRecord>| {
            let found = self.revisions_of_pods(set);
            (!found.is_empty()).then(|| (set.meta.key.clone(), found))
        };
        self.cache.advanced_sets.iter().filter_map(of).collect()
    }

    /// A revision that does not exist any more says nothing; nor does a pod that is going.
    fn revisions_of_pods(&self, set: &SetRecord) -> Vec<Arc<RevisionRecord>> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let mut last: Option<&Labels> = None;
        for pod in self
            .cache
            .pods
            .of_owner(set.as_owner())
            .iter()
            .filter(|pod| !pod.is_terminating())
        {
            // Pods of one revision share their labels.
            if !last.is_some_and(|labels| labels.is_same(&pod.meta.labels)) {
                names.extend(pod.revision());
            }
            last = Some(&pod.meta.labels);
        }
        let revision = |name: &str| self.cache.revision(&set.meta.key.sibling(name)).cloned();
        names.into_iter().filter_map(revision).collect()
    }

    fn storage_asked(&self) -> BTreeMap<ObjectKey, BTreeMap<Arc<str>, Asked>> {
        let with_claims = self.cache.advanced_sets.iter();
        let with_claims: Vec<_> = with_claims.filter(|set| !set.spec.claim_templates.is_empty()).collect();
        if with_claims.is_empty() {
            return BTreeMap::new();
        }
        let smallest = self.smallest_claims();
        let of_set = |set: &Arc<SetRecord>| {
            let revisions = self.cache.revisions.of_owner(set.as_owner());
            let of_template = |template: &ClaimTemplate| {
                let claims = set.meta.key.sibling(format!("{}-{}", template.name, set.name()));
                let asked = Asked {
                    recorded: revisions.iter().flat_map(|r| r.sizes_asked(&template.name)).collect(),
                    smallest_claim: smallest.get(&claims).copied(),
                };
                (template.name.clone(), asked)
            };
            let templates = set.spec.claim_templates.iter().map(of_template).collect();
            (set.meta.key.clone(), templates)
        };
        with_claims.into_iter().map(of_set).collect()
    }

    /// What the smallest claim asks for of all whose names differ only in the ordinal at their end, by what stands before that.
    fn smallest_claims(&self) -> BTreeMap<ObjectKey, u64> {
        let mut smallest = BTreeMap::new();
        for claim in self.cache.claims.iter() {
            let Some((name, ordinal)) = claim.meta.key.name.rsplit_once('-') else {
                continue;
            };
            if !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit()) {
                let known = smallest.entry(claim.meta.key.sibling(name)).or_insert(u64::MAX);
                *known = claim.requested_bytes.min(*known);
            }
        }
        smallest
    }
}
