//! Writes to claims, revisions and the set itself, judged by what really is.

use super::recreate::is_on_delete;
use super::truth::{Judge, Scene, Writing, revision_of, set_of};
use super::{Verdict, is_at_nothing, ordinal_in, place_of, require};
use crate::clones::older;
use crate::storage::claim_written;
use crate::{tenants, theirs};
use flotilla_engine::wire::Object;
use flotilla_model::{ClaimRecord, Meta, OwnerRef, RevisionRecord, SetRecord};
use flotilla_sim::server::{Actor, Entry};

impl Judge {
    /// Whoever is adopted is so by a set that was not under deletion when the decision was made: the set is read after that
    /// (STS-1.1.7 and STS-1.2.3).
    pub(super) fn adopted(&self, before: &Meta, after: &Meta, writing: &Writing) -> Verdict {
        let set = &writing.decided.set.meta.uid;
        if before.controller().is_some() || !after.is_controlled_by(set) {
            return Ok(());
        }
        let was_deleted = self.sets_deleted.get(set).is_some_and(|at| *at < writing.decided_at);
        require(!was_deleted, "STS-1.2.3 adoption", || {
            format!(
                "{} is adopted for a set whose deletion had begun before that was decided",
                after.key.name
            )
        })
    }

    /// Whether a claim of a CloneSet may be left without a pod.
    pub(crate) fn may_be_left(&self, claim: &ClaimRecord, set: &SetRecord) -> bool {
        self.clones
            .as_ref()
            .is_some_and(|clones| clones.may_be_left(claim, set))
    }

    pub(super) fn claim_changed(&mut self, entry: &Entry, scene: &Scene<'_>) -> Verdict {
        if let (Actor::Manager(_), Some(before), Some(after)) = (entry.actor, &entry.before, &entry.after) {
            theirs::stay(&before.value(), &after.value())?;
        }
        if let Some(clones) = &mut self.clones {
            return clones.claim_changed(entry, scene);
        }
        let Some(after) = &entry.after else {
            self.claims_removed.insert(entry.key.clone());
            return Ok(());
        };
        if let Some(Object::Claim(claim)) = &after.object
            && let Some(since) = claim.resize_pending_since
        {
            self.pending.insert(entry.key.clone(), since);
        }
        let Some(writing) = scene.writing else { return Ok(()) };
        self.asked.see_claim(entry, scene);
        if let Some(before) = &entry.before {
            claim_written(&before.value(), &after.value())?;
        }
        let owners = |stored: &flotilla_sim::server::Stored| match &stored.object {
            Some(Object::Claim(claim)) => claim.meta.owners().to_vec(),
            _ => Vec::new(),
        };
        let before = entry.before.as_ref().map(owners).unwrap_or_default();
        let added: Vec<OwnerRef> = owners(after).into_iter().filter(|o| !before.contains(o)).collect();
        claim_owners(&entry.key.name, &added, &writing.decided.set)
    }

    pub(super) fn revision_changed(&mut self, entry: &Entry, scene: &Scene<'_>) -> Verdict {
        let Some(writing) = scene.writing else { return Ok(()) };
        let there = revision_of(entry.before.as_ref()).or(revision_of(entry.after.as_ref()));
        let is_neighbours = there.is_some_and(|r| tenants::is_neighbours(&r.meta));
        require(!is_neighbours, "STS-1.1.5 revisions of others", || {
            format!("{} {}, which another set has left", entry.verb, entry.key.name)
        })?;
        match (
            entry.verb,
            revision_of(entry.before.as_ref()),
            revision_of(entry.after.as_ref()),
        ) {
            ("create", None, Some(new)) => {
                self.asked.see_revision(scene);
                new_revision(new, &writing.decided.set, scene)
            }
            ("delete", Some(old), _) => self.dropped_revision(old, writing, scene),
            ("patch", Some(before), Some(after)) => self.adopted(&before.meta, &after.meta, writing),
            _ => Ok(()),
        }
    }

    /// What is in use stays (STS-1.1.8). In which order others go, and how many, is judged by what was seen (`history`).
    fn dropped_revision(&self, old: &RevisionRecord, writing: &Writing, scene: &Scene<'_>) -> Verdict {
        let (name, set) = (old.name(), &writing.decided.set);
        require(old.meta.is_controlled_by(&set.meta.uid), "STS-1.1.8 history", || {
            format!("revision {name} is dropped, and is not the set's")
        })?;
        // A pod of a CloneSet that came late has a name that nobody looks for.
        let may_be_unknown =
            |pod: &flotilla_model::PodRecord| self.clones.as_ref().is_some_and(|clones| !clones.must_know(pod));
        let mut pods = scene.pods_of(&set.meta.uid);
        let user = pods.find(|pod| older::revision_of(pod).as_deref() == Some(name) && !may_be_unknown(pod));
        require(user.is_none(), "STS-1.1.8 history", || {
            format!(
                "revision {name} is dropped while {} has it",
                user.map_or("", |p| p.name())
            )
        })?;
        // By what was seen when it was decided: a request that is late cannot know that users have gone back to it since. It is made anew then.
        let named = |name: &str| set.status_text("currentRevision") == name;
        let mut all = scene.revisions_of(&set.meta.uid);
        let has_twin = all.any(|r| r.digest == old.digest && r.number > old.number);
        let is_update = old.digest == set.spec.template_digest && !has_twin;
        require(!named(name) && !is_update, "STS-1.1.8 history", || {
            format!("revision {name} is dropped, and is the current or the update revision")
        })
    }

    pub(super) fn set_changed(&mut self, entry: &Entry, scene: &Scene<'_>) -> Verdict {
        let (before, after) = (set_of(entry.before.as_ref()), set_of(entry.after.as_ref()));
        if let (Some(before), Some(after)) = (before, after)
            && after.spec.replicas < before.spec.replicas
        {
            // Whoever went first for an unproven revision has no successor to wait for: fewer are wanted.
            self.went_first = None;
        }
        let ends = after.is_none_or(|set| set.is_deleted());
        if let Some(set) = before.or(after).filter(|_| ends) {
            self.sets_deleted.entry(set.meta.uid.clone()).or_insert(scene.now);
        }
        if let Some(stored) = &entry.after {
            self.is_on_delete = is_on_delete(&stored.value());
        }
        if let Some(after) = after {
            if self
                .set
                .as_ref()
                .is_some_and(|seen| seen.generation != after.generation)
            {
                // Fewer may be asked for.
                self.went_first = None;
            }
            self.set = Some(after.clone());
        }
        let (Actor::Manager(_), Some(before), Some(after)) = (entry.actor, before, after) else {
            return Ok(());
        };
        let is_narrow = entry.verb == "status" || self.clones.is_some() && forgets_names_only(before, after);
        require(is_narrow, "narrow writes", || {
            "a manager writes more of the set than its status".into()
        })?;
        status_written(before, after)?;
        let (was, is) = (
            before.status_text("currentRevision"),
            after.status_text("currentRevision"),
        );
        if was.is_empty() || was == is {
            return Ok(());
        }
        // What is true of all pods is true of none; the partition is for those to come. A revision that is gone is nobody's any more.
        let is_held = is_at_nothing(after) && scene.revisions_of(&after.meta.uid).any(|r| r.name() == was);
        require(!is_held, "STS-3.10 completion", || {
            format!("{is} becomes the current revision while there is no pod, and a partition for those to come")
        })?;
        let other = match &self.clones {
            Some(clones) => clones.another_revision(after, scene, is),
            None => another_revision(after, scene, is),
        };
        require(other.is_none(), "STS-3.10 completion", || {
            let other = other.as_deref().unwrap_or_default();
            format!("{is} becomes the current revision while {other} has another")
        })
    }
}

/// Who a claim may come to belong to (table STS-1.4.4).
fn claim_owners(claim: &str, added: &[OwnerRef], set: &SetRecord) -> Verdict {
    let retention = set.spec.retention;
    let pod = claim.split_once('-').map_or("", |(_, pod)| pod);
    let is_wanted = ordinal_in(pod, set.name()).is_some_and(|ordinal| place_of(ordinal, set).is_some());
    for owner in added {
        let goes_with_pod = retention.delete_with_pod && !is_wanted;
        let fits = match &*owner.kind {
            "Pod" => goes_with_pod && *owner.name == *pod,
            // Also of a pod that is not wanted, as long as it stays: it is given its claims when it goes.
            _ => retention.delete_with_set && owner.uid == set.meta.uid,
        };
        require(fits, "STS-I6 claims", || {
            format!(
                "{claim} comes to belong to {} {}; the policy is {retention:?}",
                owner.kind, owner.name
            )
        })?;
    }
    Ok(())
}

/// No revision is made of a template that has one (STS-1.1.5, STS-I7).
fn new_revision(new: &RevisionRecord, set: &SetRecord, scene: &Scene<'_>) -> Verdict {
    let mut others = scene.revisions_of(&set.meta.uid).filter(|r| r.meta.uid != new.meta.uid);
    let twin = others.find(|r| r.digest == new.digest);
    require(twin.is_none(), "STS-I7 revisions", || {
        format!(
            "{} is made of the same template as {}",
            new.name(),
            twin.map_or("", |r| r.name())
        )
    })
}

/// Whether nothing but names of pods to delete went, and only such under which there is none (CS-10.9).
fn forgets_names_only(before: &SetRecord, after: &SetRecord) -> bool {
    let without_names = |set: &SetRecord| {
        let mut spec = (*set.spec).clone();
        let mut clones = spec.clones.take()?;
        let names = std::mem::take(&mut clones.pods_to_delete);
        Some((spec, clones, names))
    };
    let (Some((was, clones_was, before)), Some((is, clones_is, after))) = (without_names(before), without_names(after))
    else {
        return false;
    };
    was == is && clones_was == clones_is && after.iter().all(|name| before.contains(name))
}

/// The status is of the generation at which the set is (STS-1.6).
fn status_written(before: &SetRecord, after: &SetRecord) -> Verdict {
    let generation = |set: &SetRecord| set.status.get("observedGeneration").and_then(serde_json::Value::as_i64);
    let (was, is) = (generation(before).unwrap_or(0), generation(after).unwrap_or(0));
    let fits = is == after.generation || is == was;
    require(fits && is >= was, "STS-1.6 status", || {
        format!(
            "the status of generation {} says {is}, and said {was}",
            after.generation
        )
    })
}

/// A wanted pod that has another revision: it is promoted only once all have it (STS-3.10).
fn another_revision(set: &SetRecord, scene: &Scene<'_>, revision: &str) -> Option<String> {
    let is_wanted = |name: &str| ordinal_in(name, set.name()).is_some_and(|o| place_of(o, set).is_some());
    let mut wanted = scene
        .pods_of(&set.meta.uid)
        .filter(|p| is_wanted(p.name()) && !p.is_terminating());
    let other = wanted.find(|pod| pod.revision() != Some(revision));
    other.map(|pod| pod.name().to_owned())
}
