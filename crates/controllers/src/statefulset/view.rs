//! What a pass looks at: the set, its revisions, its pods by slot, and whatever stands in their way.

use crate::shared::adoption::{SelectorMemo, controller_ref};
use crate::shared::identity::{Membership, membership, pod_name};
use crate::shared::moment::Moment;
use crate::shared::revision;
use flotilla_model::set::Ordinals;
use flotilla_model::{
    ClaimRecord, Hints, OwnerRef, PassContext, PodRecord, Reader, RevisionRecord, SetRecord, StorageClassRecord,
    Timestamp,
};
use std::sync::Arc;

/// A pod of the set with its ordinal.
#[derive(Clone, Debug)]
pub struct Member {
    /// The ordinal in its name.
    pub ordinal: i64,
    /// The pod.
    pub pod: Arc<PodRecord>,
}

/// One set and what belongs to it, at one moment.
pub struct View<'a> {
    /// The set.
    pub set: Arc<SetRecord>,
    /// The reference to the set that its pods and revisions carry.
    pub owner: OwnerRef,
    /// The ordinals that are wanted.
    pub ordinals: Ordinals,
    /// Pods that the set manages, by ordinal, ascending.
    pub members: Vec<Member>,
    /// Pods that it manages and whose ordinal is out of any range: counted, never acted upon (STS-1.3.4).
    pub unusable: Vec<Arc<PodRecord>>,
    /// Pods that it manages and should let go (STS-1.2.2), sorted by name.
    pub to_release: Vec<Arc<PodRecord>>,
    /// Pods that it should take (STS-1.2.2), sorted by name.
    pub to_adopt: Vec<Arc<PodRecord>>,
    /// Revisions that are the set's, and orphans that match its selector.
    pub revisions: Vec<Arc<RevisionRecord>>,
    /// The one clock value of the pass.
    pub now: Timestamp,
    /// Since when this process has been watching.
    pub observing_since: Timestamp,
    /// What earlier passes remembered.
    pub hints: &'a Hints,
    reader: &'a dyn Reader,
}

impl<'a> View<'a> {
    /// Gathers the view of one set: handles, not copies.
    pub fn observe(set: Arc<SetRecord>, reader: &'a dyn Reader, context: PassContext<'a>) -> Self {
        let owner = controller_ref(set.kind.resource(), set.name(), &set.meta.uid);
        let mut view = View {
            owner,
            ordinals: set.spec.ordinals(),
            members: Vec::new(),
            unusable: Vec::new(),
            to_release: Vec::new(),
            to_adopt: Vec::new(),
            revisions: revision::candidates(&set, reader),
            now: context.now,
            observing_since: context.observing_since,
            hints: context.hints,
            reader,
            set,
        };
        view.sort_owned();
        view.find_orphans();
        view
    }

    /// Sorts what the set manages into members, those with unusable names, and those to release.
    fn sort_owned(&mut self) {
        let set = self.set.clone();
        let mut selected = SelectorMemo::new(&set.spec.selector);
        let pods = self.reader.pods_of(set.as_owner());
        self.members.reserve(pods.len());
        for pod in pods {
            let kind = membership(set.name(), pod.name());
            if !selected.matches(pod) || kind == Membership::Stranger {
                // A set that is being deleted leaves its pods to the garbage collector.
                if !set.is_deleted() {
                    self.to_release.push(pod.clone());
                }
                continue;
            }
            match kind {
                Membership::Member(ordinal) => self.members.push(Member {
                    ordinal,
                    pod: pod.clone(),
                }),
                Membership::Unusable | Membership::Stranger => self.unusable.push(pod.clone()),
            }
        }
        self.members.sort_unstable_by_key(|m| m.ordinal);
    }

    /// Finds orphans that are members by name and selector; pods on their way out are not taken.
    fn find_orphans(&mut self) {
        if self.set.is_deleted() {
            return;
        }
        let orphans = self.reader.orphan_pods(&self.set.meta.key.namespace);
        let fits = |pod: &&Arc<PodRecord>| {
            !pod.is_terminating()
                && matches!(membership(self.set.name(), pod.name()), Membership::Member(_))
                && self.set.spec.selector.matches(|key| pod.label(key))
        };
        self.to_adopt = orphans.iter().filter(fits).cloned().collect();
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

    /// Whether a pod of this name is about to be taken or let go.
    pub fn is_changing_hands(&self, name: &str) -> bool {
        self.pod_to_adopt(name).is_some() || with_name(&self.to_release, name).is_some()
    }

    /// The pod of this name that is about to be taken.
    pub fn pod_to_adopt(&self, name: &str) -> Option<&Arc<PodRecord>> {
        with_name(&self.to_adopt, name)
    }

    /// The pod that has the name of a slot although the set does not manage it.
    pub fn stranger(&self, ordinal: i64) -> Option<&Arc<PodRecord>> {
        self.reader
            .pod(&self.set.meta.key.sibling(pod_name(self.set.name(), ordinal)))
    }

    /// Claims that go with the set.
    pub fn claims(&self) -> &'a [Arc<ClaimRecord>] {
        self.reader.claims_of(self.set.as_owner())
    }

    /// A claim in the set's namespace.
    pub fn claim(&self, name: &str) -> Option<&Arc<ClaimRecord>> {
        self.reader.claim(&self.set.meta.key.sibling(name))
    }

    /// A revision in the set's namespace, whoever manages it.
    pub fn revision_named(&self, name: &str) -> Option<Arc<RevisionRecord>> {
        self.reader.revision(&self.set.meta.key.sibling(name)).cloned()
    }

    /// Whether there is a pod of this name, whoever manages it.
    pub fn has_pod(&self, name: &str) -> bool {
        self.reader.pod(&self.set.meta.key.sibling(name)).is_some()
    }

    /// The storage class of this name.
    pub fn storage_class(&self, name: &str) -> Option<&Arc<StorageClassRecord>> {
        self.reader.storage_class(name)
    }

    /// All pods that count in the status.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<PodRecord>> {
        self.members.iter().map(|m| &m.pod).chain(&self.unusable)
    }
}

/// The pod of this name among pods that are sorted by name.
fn with_name<'p>(pods: &'p [Arc<PodRecord>], name: &str) -> Option<&'p Arc<PodRecord>> {
    let found = pods.binary_search_by(|pod| pod.name().cmp(name));
    found.ok().map(|place| &pods[place])
}
