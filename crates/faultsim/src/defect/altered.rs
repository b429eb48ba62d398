//! What a controller with a defect sees: its set, pods, claims and revisions, some of them altered.

use super::{Defect, arrival, asks, claims, in_place, switches};
use crate::judge::view_claims::former_owner;
use crate::tenants::as_named;
use flotilla_model::set::PodManagement;
use flotilla_model::{
    ClaimRecord, ConfigMapRecord, IntOrPercent, NodeRecord, ObjectKey, Owner, PodRecord, Reader, RevisionRecord,
    SetKind, SetRecord, StorageClassRecord,
};
use std::sync::Arc;
use std::time::Duration;

/// Claims of the set's pods as a controller with such a defect sees them.
fn alter_claims(defect: Defect, inner: &dyn Reader, set: &SetRecord) -> Vec<Arc<ClaimRecord>> {
    if !matches!(
        defect,
        Defect::ForgetFileSystems | Defect::LargerIsUnlike | Defect::MountStale
    ) {
        return Vec::new();
    }
    let templates = || set.spec.claim_templates.iter();
    let ordinals = set.spec.ordinals();
    let named = ordinals
        .iter()
        .flat_map(|o| templates().map(move |t| (t, format!("{}-{o}", set.name()))));
    let altered = named.filter_map(|(template, pod)| {
        let name = format!("{}-{pod}", template.name);
        let mut claim = (**inner.claim(&set.meta.key.sibling(name))?).clone();
        match defect {
            Defect::ForgetFileSystems if claim.resize_pending_since.take().is_some() => {
                claim.capacity_bytes = claim.requested_bytes;
            }
            Defect::MountStale => {
                let present = inner.pod(&set.meta.key.sibling(pod.as_str())).map(|pod| &pod.meta.uid);
                let former = former_owner(&claim, set, &pod, present)?.uid.clone();
                let others = claim.meta.owners().iter().filter(|owner| owner.uid != former);
                claim.meta.owners = Some(Arc::new(others.cloned().collect()));
            }
            Defect::LargerIsUnlike if Some(claim.requested_bytes) > template.requested_bytes => {
                claim.capacity_bytes = 1;
            }
            _ => return None,
        }
        Some(Arc::new(claim))
    });
    altered.collect()
}

/// What a controller with a defect sees.
pub(crate) struct Altered<'a> {
    inner: &'a dyn Reader,
    set: Arc<SetRecord>,
    revisions: Option<Vec<Arc<RevisionRecord>>>,
    pods: Option<in_place::Pods>,
    claims: Vec<Arc<ClaimRecord>>,
    /// Claims of the set, if not all are seen.
    own_claims: Option<Vec<Arc<ClaimRecord>>>,
}

impl<'a> Altered<'a> {
    pub(crate) fn new(defect: Defect, inner: &'a dyn Reader, set: &Arc<SetRecord>) -> Self {
        let mut altered = (**set).clone();
        let spec = Arc::make_mut(&mut altered.spec);
        let mut revisions = None;
        match defect {
            Defect::NoPartition => {
                if let Some(rolling) = &mut spec.rolling {
                    rolling.partition = 0;
                }
            }
            Defect::LargerBudget => {
                if let Some(rolling) = &mut spec.rolling
                    && let Some(IntOrPercent::Int(max)) = &mut rolling.max_unavailable
                {
                    *max += 1;
                }
            }
            Defect::NoMinReady => spec.min_ready = Duration::ZERO,
            Defect::NoOrder => spec.pod_management = PodManagement::Parallel,
            Defect::CreateWhileDeleting => altered.meta.deleted = None,
            Defect::ForgetRevisions => {
                let all = inner.revisions_of(set.as_owner());
                revisions = Some(all.iter().max_by_key(|r| r.number).cloned().into_iter().collect());
            }
            Defect::OwnersByUid => {
                let (own, named) = (inner.revisions_of(set.as_owner()), inner.revisions_of(as_named(set)));
                revisions = Some(own.iter().chain(named).cloned().collect());
            }
            Defect::ClaimsOfToday => revisions = Some(claims::without_records(inner, set)),
            Defect::LoseOldTemplates => revisions = in_place::without_old_templates(inner, set),
            _ => {
                asks::alter_set(defect, spec);
                switches::alter_set(defect, spec);
                arrival::alter_set(defect, spec, inner.pods_of(set.as_owner()));
                in_place::alter_set(defect, spec, inner.pods_of(set.as_owner()));
            }
        }
        Altered {
            pods: in_place::Pods::new(defect, inner, set),
            claims: alter_claims(defect, inner, set),
            own_claims: None,
            inner,
            set: Arc::new(altered),
            revisions,
        }
    }
}

impl<'a> Altered<'a> {
    /// With this set in place of its own, and with these claims of it, if not all are seen.
    pub(crate) fn of(inner: &'a dyn Reader, set: SetRecord, own_claims: Option<Vec<Arc<ClaimRecord>>>) -> Self {
        Altered {
            inner,
            set: Arc::new(set),
            revisions: None,
            pods: None,
            claims: Vec::new(),
            own_claims,
        }
    }

    /// With these revisions of its set, if they are not seen as they are.
    pub(crate) fn with_revisions(mut self, revisions: Option<Vec<Arc<RevisionRecord>>>) -> Self {
        self.revisions = revisions;
        self
    }

    /// With these pods of its set, if they are not seen as they are.
    pub(crate) fn with_pods(mut self, pods: Option<Vec<Arc<PodRecord>>>) -> Self {
        self.pods = pods.map(in_place::Pods::of);
        self
    }
}

impl Reader for Altered<'_> {
    fn set(&self, kind: SetKind, key: &ObjectKey) -> Option<&Arc<SetRecord>> {
        if kind == self.set.kind && *key == self.set.meta.key {
            return Some(&self.set);
        }
        self.inner.set(kind, key)
    }

    fn sets_in(&self, kind: SetKind, namespace: &str) -> Vec<Arc<SetRecord>> {
        self.inner.sets_in(kind, namespace)
    }

    fn all_sets(&self, kind: SetKind) -> Vec<Arc<SetRecord>> {
        self.inner.all_sets(kind)
    }

    fn pod(&self, key: &ObjectKey) -> Option<&Arc<PodRecord>> {
        let altered = self.pods.as_ref().and_then(|pods| pods.get(key));
        altered.or_else(|| self.inner.pod(key))
    }

    fn pods_of(&self, owner: Owner<'_>) -> &[Arc<PodRecord>] {
        match &self.pods {
            Some(pods) if *owner.uid == self.set.meta.uid => pods.all(),
            _ => self.inner.pods_of(owner),
        }
    }

    fn orphan_pods(&self, namespace: &str) -> &[Arc<PodRecord>] {
        self.inner.orphan_pods(namespace)
    }

    fn pods_mounting(&self, claim: &ObjectKey) -> Vec<&Arc<PodRecord>> {
        self.inner.pods_mounting(claim)
    }

    fn claim(&self, key: &ObjectKey) -> Option<&Arc<ClaimRecord>> {
        let altered = self.claims.iter().find(|claim| claim.meta.key == *key);
        altered.or_else(|| self.inner.claim(key))
    }

    fn claims_of(&self, owner: Owner<'_>) -> &[Arc<ClaimRecord>] {
        match &self.own_claims {
            Some(claims) if *owner.uid == self.set.meta.uid => claims,
            _ => self.inner.claims_of(owner),
        }
    }

    fn node(&self, name: &str) -> Option<&Arc<NodeRecord>> {
        self.inner.node(name)
    }
    fn config_map(&self, key: &ObjectKey) -> Option<&Arc<ConfigMapRecord>> {
        self.inner.config_map(key)
    }

    fn revision(&self, key: &ObjectKey) -> Option<&Arc<RevisionRecord>> {
        self.inner.revision(key)
    }

    fn revisions_of(&self, owner: Owner<'_>) -> &[Arc<RevisionRecord>] {
        match &self.revisions {
            Some(revisions) if *owner.uid == self.set.meta.uid => revisions,
            _ => self.inner.revisions_of(owner),
        }
    }

    fn orphan_revisions(&self, namespace: &str) -> &[Arc<RevisionRecord>] {
        self.inner.orphan_revisions(namespace)
    }

    fn storage_class(&self, name: &str) -> Option<&Arc<StorageClassRecord>> {
        self.inner.storage_class(name)
    }

    fn supports_resize(&self) -> bool {
        self.inner.supports_resize()
    }
}
