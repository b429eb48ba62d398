//! What there is of each kind, counted: for whoever answers questions beside the core and must not wait for it.

use super::Core;
use flotilla_model::{Resource, StorageClassRecord};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Numbers by namespace.
pub type ByNamespace = BTreeMap<Arc<str>, usize>;

/// A copy of what the caches say in numbers. What has not been listed yet, or is not watched, is `None`.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Pods in each namespace that has any.
    pub pods: Option<ByNamespace>,
    /// Claims in each namespace that has any.
    pub claims: Option<ByNamespace>,
    /// Advanced StatefulSets, all namespaces together.
    pub advanced_sets: Option<usize>,
    /// CloneSets, all namespaces together.
    pub clone_sets: Option<usize>,
    /// The storage classes.
    pub storage_classes: Option<Vec<Arc<StorageClassRecord>>>,
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
        let (pods, claims) = (&self.cache.pods, &self.cache.claims);
        Census {
            pods: is_known(Resource::Pods).then(|| by_namespace(pods.iter().map(|pod| &pod.meta.key.namespace))),
            claims: is_known(Resource::Claims)
                .then(|| by_namespace(claims.iter().map(|claim| &claim.meta.key.namespace))),
            advanced_sets: is_known(Resource::AdvancedSets).then(|| self.cache.advanced_sets.len()),
            clone_sets: is_known(Resource::CloneSets).then(|| self.cache.clone_sets.len()),
            storage_classes: is_known(Resource::StorageClasses)
                .then(|| self.cache.storage_classes.iter().cloned().collect()),
        }
    }
}
