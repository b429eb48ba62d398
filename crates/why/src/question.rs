//! What is asked, and what the manager's functions say of it.

use crate::set::LiveSet;
use crate::trial::Tried;
use crate::{pods, told};
use flotilla_controllers::cloneset::Defaults;
use flotilla_engine::core::cache::Cache;
use flotilla_model::{
    Decision, Hints, ObjectKey, PassContext, PodRecord, Reader as _, Resource, Timestamp, Wait, WaitCause,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A set, and what a manager would know of it that has just started.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    /// The set.
    pub set: &'q LiveSet,
    /// It, its pods, claims and revisions, and storage classes.
    pub cache: &'q Cache,
    /// What the manager takes for fields that CloneSets do not have.
    pub clones: Defaults,
    /// The time.
    pub now: Timestamp,
}

/// What waits, as far as the manager looks.
#[derive(Clone, Debug)]
pub struct Held {
    pub(crate) decision: Decision,
    pub(crate) waits: Vec<Wait>,
    /// What the API server would create by now.
    pub(crate) creatable: BTreeSet<(Resource, String)>,
    /// Pods on their way out that nothing waits for.
    pub(crate) terminating: Vec<Arc<PodRecord>>,
    is_deleted: bool,
}

impl Held {
    /// Nothing waits, and the set stays: no facts are needed to tell why.
    pub fn is_nothing(&self) -> bool {
        self.waits.is_empty() && self.terminating.is_empty() && !self.is_deleted
    }
}

impl Question<'_> {
    /// What a manager would decide that knows no more than can be read, and what was tried. `None` if the cache does not have the set.
    pub fn decide(&self, tried: &Tried) -> Option<Decision> {
        let context = PassContext {
            now: self.now,
            observing_since: Timestamp::from_millis(0),
            entropy: 0,
            hints: &self.hints(tried),
        };
        flotilla_controllers::of_kind(self.set.kind, self.clones).reconcile(self.cache, &self.set.key, context)
    }

    /// What its manager knows, as far as trials and the set's conditions tell.
    fn hints(&self, tried: &Tried) -> Hints {
        let is_there = |ordinal: i64| {
            let pod = ObjectKey::new(&*self.set.key.namespace, format!("{}-{ordinal}", self.set.key.name));
            self.cache.pod(&pod).is_some()
        };
        let slots = told::slots_tried(self.set).into_iter();
        Hints {
            held: slots.filter(|ordinal| !is_there(*ordinal)).collect(),
            accepted: tried.accepted.clone(),
            ..Hints::default()
        }
    }

    /// What waits, now that is known what the API server says of what was decided.
    pub fn held(&self, decision: Decision, tried: &Tried) -> Held {
        let refused = &tried.refused;
        let is_answered =
            |w: &Wait| w.cause == WaitCause::RevisionUntried && refused.iter().any(|r| r.subject == w.subject);
        let decided = decision.waits.iter().filter(|w| !is_answered(w)).cloned();
        let mut waits: Vec<Wait> = decided.chain(refused.iter().cloned()).collect();
        let set = self.cache.set(self.set.kind, &self.set.key).cloned();
        if let Some(set) = &set {
            for wait in &mut waits {
                wait.cause = wait.cause.clone().for_set(set);
            }
        }
        let down = set
            .iter()
            .flat_map(|set| pods::down(self.cache, set, &decision, &waits));
        let down: Vec<Wait> = down.collect();
        waits.extend(down);
        let terminating = set.iter().flat_map(|set| pods::unnamed(self.cache, set, &waits));
        Held {
            is_deleted: set.as_ref().is_some_and(|set| set.is_deleted()),
            terminating: terminating.collect(),
            creatable: tried.creatable.clone(),
            decision,
            waits,
        }
    }
}
