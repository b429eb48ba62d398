//! What a pass looks at: the set, its revisions, its pods and claims, and the nodes on which the pods are.

use super::Defaults;
use crate::shared::adoption::{SelectorMemo, controller_ref};
use crate::shared::moment::Moment;
use crate::shared::revision;
use flotilla_model::set::CloneSpec;
use flotilla_model::{
    ClaimRecord, Hints, NodeRecord, ObjectKey, OwnerRef, PassContext, PodRecord, Reader, Resource, RevisionRecord,
    SetRecord, Timestamp,
};
use std::sync::Arc;

/// One set and what belongs to it, at one moment.
pub struct View<'a> {
    /// The set.
    pub set: Arc<SetRecord>,
    /// What only a CloneSet asks for.
    pub clones: CloneSpec,
    /// What holds for all sets.
    pub defaults: Defaults,
    /// The reference to the set that its pods, claims and revisions carry.
    pub owner: OwnerRef,
    /// Pods that it manages and keeps, in order of name; also those that have ended or are going.
    pub pods: Vec<Arc<PodRecord>>,
    /// Pods that it manages and should let go.
    pub to_release: Vec<Arc<PodRecord>>,
    /// Pods that it should take.
    pub to_adopt: Vec<Arc<PodRecord>>,
    /// Claims that it manages and that are not going, in order of name.
    pub claims: Vec<Arc<ClaimRecord>>,
    /// Revisions that are the set's, and orphans that match its selector.
    pub revisions: Vec<Arc<RevisionRecord>>,
    /// The one clock value of the pass.
    pub now: Timestamp,
    /// Since when this process has been watching.
    pub observing_since: Timestamp,
    /// The number from which new names are made.
    pub entropy: u64,
    /// What earlier passes remembered.
    pub hints: &'a Hints,
    reader: &'a dyn Reader,
}

impl<'a> View<'a> {
    /// Gathers the view of one set: handles, not copies. `None` if it is not a CloneSet.
    pub fn observe(
        set: Arc<SetRecord>,
        reader: &'a dyn Reader,
        defaults: Defaults,
        context: PassContext<'a>,
    ) -> Option<Self> {
        let clones = defaults.apply(set.spec.clones.as_deref()?);
        let owner = controller_ref(set.kind.resource(), set.name(), &set.meta.uid);
        let is_going = |claim: &&Arc<ClaimRecord>| claim.meta.deleted.is_some();
        let claims = reader.claims_of(set.as_owner()).iter();
        let mut view = View {
            owner,
            clones,
            defaults,
            pods: Vec::new(),
            to_release: Vec::new(),
            to_adopt: Vec::new(),
            claims: claims.filter(|claim| !is_going(claim)).cloned().collect(),
            revisions: revision::candidates(&set, reader),
            now: context.now,
            observing_since: context.observing_since,
            entropy: context.entropy,
            hints: context.hints,
            reader,
            set,
        };
        view.sort_pods();
        Some(view)
    }

    /// CS-11: pods of ours that match are kept, others let go; of orphans those are taken that name the set as an owner, and all that
    /// match where the set opted in.
    fn sort_pods(&mut self) {
        let set = self.set.clone();
        let mut selected = SelectorMemo::new(&set.spec.selector);
        for pod in self.reader.pods_of(set.as_owner()) {
            if selected.matches(pod) {
                self.pods.push(pod.clone());
            } else if !set.is_deleted() {
                // A set that is being deleted leaves its pods to the garbage collector.
                self.to_release.push(pod.clone());
            }
        }
        if set.is_deleted() {
            return;
        }
        let is_ours = |pod: &PodRecord| pod.meta.owners().iter().any(|o| o.uid == set.meta.uid);
        let orphans = self.reader.orphan_pods(&set.meta.key.namespace).iter();
        let fitting = orphans.filter(|pod| {
            !pod.is_terminating()
                && (is_ours(pod) || self.clones.switches.adopt_orphans)
                && set.spec.selector.matches(|key| pod.label(key))
        });
        self.to_adopt = fitting.cloned().collect();
    }

    /// The set, and the moment at which it is looked at.
    pub(crate) fn moment(&self) -> Moment<'_> {
        Moment {
            set: &self.set,
            owner: &self.owner,
            now: self.now,
            observing_since: self.observing_since,
            hints: self.hints,
            supports_resize: self.reader.supports_resize(),
        }
    }

    /// A pod of the namespace, whoever manages it.
    pub fn pod(&self, name: &str) -> Option<&Arc<PodRecord>> {
        self.reader.pod(&self.set.meta.key.sibling(name))
    }

    /// Whether any pod of the namespace has this name.
    pub fn has_pod(&self, name: &str) -> bool {
        self.pod(name).is_some()
    }

    /// Whether a pod is among those that the set manages and keeps.
    pub fn manages(&self, pod: &PodRecord) -> bool {
        pod.meta.is_controlled_by(&self.set.meta.uid) && self.set.spec.selector.matches(|key| pod.label(key))
    }

    /// A claim of the namespace, whoever manages it.
    pub fn claim(&self, name: &str) -> Option<&Arc<ClaimRecord>> {
        self.reader.claim(&self.set.meta.key.sibling(name))
    }

    /// Pods that mount a claim, in whatever phase and whosever they are.
    pub(super) fn pods_mounting(&self, claim: &ObjectKey) -> Vec<&'a Arc<PodRecord>> {
        self.reader.pods_mounting(claim)
    }

    /// Claims that belong to a pod, and go with it.
    pub(super) fn claims_of_pod(&self, pod: &PodRecord) -> &'a [Arc<ClaimRecord>] {
        self.reader.claims_of(pod.meta.as_owner(Resource::Pods.kind()))
    }

    /// Pods that may be those of our claims by their id: ours, and orphans, such as we have let go.
    pub(super) fn pods_that_may_hold_claims(&self) -> impl Iterator<Item = &Arc<PodRecord>> {
        self.pods_let_go().chain(&self.pods)
    }

    /// Pods that we have let go or are to let go: of orphans nobody knows whose they were.
    pub(super) fn pods_let_go(&self) -> impl Iterator<Item = &Arc<PodRecord>> {
        let orphans = self.reader.orphan_pods(&self.set.meta.key.namespace).iter();
        orphans.chain(&self.to_release)
    }

    /// A revision of the namespace, whoever manages it.
    pub fn revision_named(&self, name: &str) -> Option<Arc<RevisionRecord>> {
        self.reader.revision(&self.set.meta.key.sibling(name)).cloned()
    }

    /// The node of a pod.
    pub fn node_of(&self, pod: &PodRecord) -> Option<&Arc<NodeRecord>> {
        self.reader.node(pod.node.as_deref()?)
    }
}
