//! What happens to claims of CloneSets, judged by what really is (CS-14.7, CS-15.4 and CS-15.5).

use super::copies::has;
use super::surge::is_of_surge;
use super::truth::{INSTANCE_ID, Step, Writes, is_active};
use crate::judge::{Scene, Verdict, require};
use flotilla_engine::wire::Object;
use flotilla_model::set::CloneSpec;
use flotilla_model::{ClaimRecord, Meta, PodRecord, Resource, SetRecord, Timestamp};
use flotilla_sim::server::{Actor, Entry};
use std::time::Duration;

/// The note on a claim that it is kept for the replacement of a pod.
pub(super) const KEPT_FROM: &str = "flotilla.rs/kept-from";
/// A pod that was there for so long has been seen, however late the watches are.
const SEEN_AFTER: Duration = Duration::from_secs(45);

/// The pod, by its UID, for whose replacement a claim is noted as kept.
pub(super) fn kept_from(claim: &ClaimRecord) -> Option<&str> {
    claim.annotations.get(KEPT_FROM)
}

/// The same, as a patch of a claim writes it.
pub(super) fn kept_from_by(patch: &serde_json::Value) -> Option<&str> {
    patch["metadata"]["annotations"][KEPT_FROM].as_str()
}

impl Writes {
    /// CS-14.7, CS-15.4 and CS-15.5: a claim goes only when its pod goes or is gone; with reuse only for those that managers delete.
    pub(crate) fn claim_changed(&mut self, entry: &Entry, scene: &Scene<'_>) -> Verdict {
        let by_manager = matches!(entry.actor, Actor::Manager(_));
        let writing = scene.writing.filter(|writing| by_manager && !writing.is_late);
        let before = entry.before.as_ref().and_then(|stored| stored.object.as_ref());
        let after = entry.after.as_ref().and_then(|stored| stored.object.as_ref());
        if let (true, None, Some(Object::Claim(claim))) = (by_manager, before, after) {
            // Whatever pod had this id before: what is on this claim is nobody's yet.
            let id = claim.meta.labels.get(INSTANCE_ID).unwrap_or_default();
            let is_of = |pod: &String| pod.rsplit_once('-').is_some_and(|(_, of)| of == id);
            self.deleted.retain(|pod| !is_of(pod));
        }
        if let (false, Some(Object::Claim(was)), Some(Object::Claim(is))) = (by_manager, before, after) {
            self.mingled.see_claim(was, is);
        }
        let (Some(writing), Some(Object::Claim(claim))) = (writing, before) else {
            return Ok(());
        };
        let set = &writing.decided.set;
        let name = &claim.meta.key.name;
        if entry.verb != "delete" {
            return self.claim_stays(claim, after.map(Object::meta), set);
        }
        require(claim.meta.is_controlled_by(&set.meta.uid), "CS-15.4 claims", || {
            format!("{name} is deleted, and is not the set's")
        })?;
        let id = claim.meta.labels.get(INSTANCE_ID).unwrap_or_default();
        let pod = format!("{}-{id}", set.name());
        let is_its = |p: &PodRecord| (p.name() == pod || has(p, claim)) && is_active(p) && self.must_know(p);
        let there = scene.pods_of(&set.meta.uid).find(|p| is_its(p));
        require(there.is_none(), "CS-15.4 claims", || {
            format!("{name} is deleted while {} stays", there.map_or("", |p| p.name()))
        })?;
        let spec = set.spec.clones.as_deref();
        let keeps = spec.is_some_and(|spec| spec.switches.keep_claims_on_recreate);
        // A copy may have had it last: what that leaves goes (CS-15.4).
        let is_replaced = self.replaced.contains(&pod) && self.deleted.contains(&pod);
        require(
            !(keeps && is_replaced) || self.mingled.knows(claim),
            "CS-15.5 claims of pods that are made again",
            || format!("{name} is deleted, and the replacement of {pod} is to have it"),
        )?;
        let reuses = spec.is_some_and(|spec| spec.reuses_claims);
        require(
            !reuses || self.deleted.contains(&pod) || is_of_surge(claim, &pod),
            "CS-15.5 claims that are used again",
            || format!("{name} is deleted, and no manager has deleted {pod}"),
        )
    }

    /// CS-15.5: what the replacement of a pod is to have is not given to the pod, with which it would go.
    fn claim_stays(&self, claim: &ClaimRecord, after: Option<&Meta>, set: &SetRecord) -> Verdict {
        let pod = claim
            .meta
            .labels
            .get(INSTANCE_ID)
            .map(|id| format!("{}-{id}", set.name()));
        let is_given = after.is_some_and(|after| !after.is_controlled_by(&set.meta.uid));
        let is_replaced = pod.is_some_and(|pod| self.replaced.contains(&pod));
        let keeps = set
            .spec
            .clones
            .as_deref()
            .is_some_and(|spec| spec.switches.keep_claims_on_recreate);
        require(
            !(is_given && is_replaced && keeps) || self.mingled.knows(claim),
            "CS-15.5 claims of pods that are made again",
            || {
                format!(
                    "{} is given away, and the replacement of its pod is to have it",
                    claim.meta.key.name
                )
            },
        )
    }

    /// Whether a claim of the set without a pod is one that a new pod may take (CS-15.4 and CS-15.5). With reuse, that of a pod which no
    /// manager has deleted. Without, only that of a pod which an update was to make again, whoever deleted it then: managers wrote so on the
    /// pod, or on the claim, of which [others](super::claims) judge that it is true. What a lost pod leaves goes.
    pub(crate) fn may_be_left(&self, claim: &ClaimRecord, set: &SetRecord) -> bool {
        let Some(spec) = set.spec.clones.as_deref() else {
            return false;
        };
        let id = claim.meta.labels.get(INSTANCE_ID).unwrap_or_default();
        let pod = format!("{}-{id}", set.name());
        let is_kept = self.replaced.contains(&pod) || kept_from(claim).is_some();
        let may_be_another = self.mingled.knows(claim) || !self.deleted.contains(&pod);
        let may_be_another = may_be_another && !is_of_surge(claim, &pod);
        spec.switches.keep_claims_on_recreate && is_kept || spec.reuses_claims && may_be_another
    }

    /// Remembers when a pod was gone.
    pub(super) fn note_end(&mut self, (before, after): Step<'_>, now: Timestamp) {
        if let (Some(pod), None) = (before, after)
            && now.since(pod.meta.created) >= SEEN_AFTER
        {
            self.gone.insert(pod.name().to_owned(), now);
        }
    }

    /// CS-15.4 and CS-15.5: without reuse a new pod mounts nothing that a former pod has left, unless that was made again.
    pub(super) fn mounts_nothing_left_over(&self, pod: &PodRecord, spec: &CloneSpec, scene: &Scene<'_>) -> Verdict {
        let Some(gone) = self.gone.get(pod.name()).filter(|_| !spec.reuses_claims) else {
            return Ok(());
        };
        let is_left = |claim: &ClaimRecord| {
            let is_kept = spec.switches.keep_claims_on_recreate && kept_from(claim).is_some();
            // When it was made is told to the second.
            claim.meta.created + Duration::from_secs(1) <= *gone && !is_kept && !self.mingled.knows(claim)
        };
        let left = pod.claims().find_map(|(_, name)| {
            let stored = scene.server.get(Resource::Claims, &pod.meta.key.sibling(name))?;
            match &stored.object {
                Some(Object::Claim(claim)) if is_left(claim) => Some(claim.meta.key.name.to_string()),
                _ => None,
            }
        });
        require(left.is_none(), "CS-15.5 claims of lost pods", || {
            let left = left.as_deref().unwrap_or_default();
            format!("{} mounts {left}, which a lost pod left behind", pod.name())
        })
    }
}
