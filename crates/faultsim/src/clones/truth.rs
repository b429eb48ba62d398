//! Writes to pods and claims of CloneSets, judged by what really is when they take effect (CS-13.12, CS-14 and CS-15).
//!
//! As with StatefulSets, a manager answers for what managers have done, and for what the preconditions of its writes make certain. What
//! users and nodes do it may not have seen, however long ago that was: a pod that they took away may still seem to be there.

use crate::clones::copies::{Mingled, has_another_id};
use crate::clones::older::revision_of;
use crate::clones::surge::was_made_as_surge as is_surge;
use crate::clones::{LIFECYCLE_STATE, SPECIFIED_DELETE};
use crate::in_place::{Change, InPlace, Restarts, awaits_restart, is_in_grace, lacks_resources, state, unheld};
use crate::judge::{Scene, Verdict, Writing, available_from, is_available, overdue, require};
use crate::resizes::is_infeasible;
use flotilla_model::set::{CloneSpec, PodUpdatePolicy, UpdateKind};
use flotilla_model::{Command, ObjectKey, PodRecord, Resource, SetRecord, Timestamp, Uid};
use flotilla_sim::server::Actor;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const RULE_OVER: &str = "CS-13.12 never more than replicas and surge";
const RULE_KEEP: &str = "CS-13.12 keeps pods available";
const RULE_MARKS: &str = "R-28 marks of an update";
pub(crate) const INSTANCE_ID: &str = "apps.kruise.io/cloneset-instance-id";
pub(super) const REPLACED: &str = "flotilla.rs/replaced-by-update";

/// What is known of a pod for as long as a cache may show it.
#[derive(Debug)]
struct Known {
    /// As it was last.
    pod: Arc<PodRecord>,
    /// From when on a cache can show it as available, unless a manager has taken it down since.
    seems_up: Option<Timestamp>,
    /// A manager has asked for its deletion, or begun it; that of a pod that waits for its hook may be taken back.
    goes: bool,
    /// A manager has begun its deletion.
    is_gone: bool,
    /// Users had a hand in whose it is, or its creation came late: a cache may not show it as one of the set.
    is_uncertain: bool,
    /// Whose it was before users took it away, which a cache may not show.
    formerly: Option<Uid>,
}

impl Known {
    fn is_going(&self) -> bool {
        self.goes || state(&self.pod) == "PreparingDelete"
    }
}

/// What managers have done to pods of CloneSets, and so must know.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// How far the fastest clock of a manager is ahead.
    ahead: Duration,
    /// How pods are updated in place, and what holds them.
    in_place: Option<InPlace>,
    pods: BTreeMap<Uid, Known>,
    /// Pods whose images managers have changed.
    restarts: Restarts,
    /// Names of pods that managers have deleted.
    pub(super) deleted: BTreeSet<String>,
    /// Names of pods that managers have marked in order to make them again.
    pub(super) replaced: BTreeSet<String>,
    /// When pods that every manager must have seen were gone, by their names.
    pub(super) gone: BTreeMap<String, Timestamp>,
    /// What users have mixed up.
    pub(super) mingled: Mingled,
    /// Pods that the API server has refused other resources.
    pub(crate) resize_refused: BTreeSet<ObjectKey>,
    /// Pods whose nodes have said that they will never get other resources: who is marked for that goes, though it was not the last word.
    infeasible: BTreeSet<Uid>,
    /// Whether new pods are labelled with the hash of their revision alone.
    short_hash: bool,
}

/// A pod before and after a change.
pub(crate) type Step<'a> = (Option<&'a Arc<PodRecord>>, Option<&'a Arc<PodRecord>>);

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

pub(super) fn is_active(pod: &PodRecord) -> bool {
    !pod.is_terminal() && !pod.is_terminating()
}

/// Surge and what may be unavailable (CS-13.2).
fn budgets(set: &SetRecord, spec: &CloneSpec) -> (i32, i32) {
    let replicas = set.spec.replicas;
    let is_paused = set.spec.is_paused();
    match spec.max_surge.ceil_of(replicas) {
        surge if surge > 0 && !is_paused => (surge, spec.max_unavailable.floor_of(replicas)),
        _ => (0, spec.max_unavailable.ceil_of(replicas)),
    }
}

/// What is going already stays what it was when it was deleted: its end changes nothing.
fn is_deletion((before, after): Step<'_>) -> bool {
    before.is_some_and(|pod| !pod.is_terminating() && after.is_none_or(|after| after.is_terminating()))
}

fn is_old(pod: &PodRecord, set: &SetRecord, scene: &Scene<'_>) -> bool {
    let revision = revision_of(pod).map(|revision| set.meta.key.sibling(revision));
    revision.and_then(|key| scene.digest_of(&key)) != Some(set.spec.template_digest)
}

/// Whether an update has asked for a pod to be deleted. An annotation that is left over says nothing.
pub(super) fn is_marked(pod: &PodRecord) -> bool {
    let annotations = pod.detail.as_ref().map(|detail| &detail.annotations);
    pod.label(SPECIFIED_DELETE).is_some() && annotations.is_some_and(|a| a.get(REPLACED).is_some())
}

/// A pod is deleted as it was seen, or not at all, also by what comes late (CS-14.7).
fn deleted_as_seen(step: Step<'_>, writing: &Writing) -> Verdict {
    let Some(pod) = step.0.filter(|_| is_deletion(step)) else {
        return Ok(());
    };
    let version = pod.meta.resource_version;
    let is_asked_for = writing.decided.decision.commands().any(|c| {
        matches!(&c.command, Command::Delete { resource: Resource::Pods, key, uid, resource_version, .. }
            if *key == pod.meta.key && *uid == pod.meta.uid && resource_version.is_none_or(|seen| seen == version))
    });
    require(is_asked_for, "CS-14.7 preconditions", || {
        format!(
            "{} with uid {} is deleted on the evidence of another, or at another version",
            pod.name(),
            pod.meta.uid
        )
    })
}

impl Writes {
    pub(crate) fn new(ahead: Duration, in_place: Option<InPlace>, short_hash: bool) -> Self {
        Writes {
            ahead,
            in_place,
            short_hash,
            ..Writes::default()
        }
    }

    /// Takes notice of a change of a pod, and judges it if a manager made it. `set`: as it was last.
    pub(crate) fn pod_changed(
        &mut self,
        actor: Actor,
        step: Step<'_>,
        set: Option<&SetRecord>,
        scene: &Scene<'_>,
    ) -> Verdict {
        if let (Some(before), Some(set)) = (step.0, set) {
            self.see_up(before, set);
        }
        // Nodes answer a write in the same moment.
        let by_manager = matches!(actor, Actor::Manager(_));
        let writing = scene.writing.filter(|_| by_manager);
        if let Some(writing) = writing {
            deleted_as_seen(step, writing)?;
        }
        let writing = writing.filter(|writing| !writing.is_late);
        let verdict = match writing {
            Some(writing) => self.judge(step, writing, scene),
            None => Ok(()),
        };
        self.learn(step, writing.is_some());
        self.note_end(step, scene.now);
        self.mingled.see_pod(step.1);
        self.infeasible
            .extend(step.1.filter(|pod| is_infeasible(pod)).map(|pod| pod.meta.uid.clone()));
        verdict
    }

    fn judge(&mut self, step: Step<'_>, writing: &Writing, scene: &Scene<'_>) -> Verdict {
        let set = &writing.decided.set;
        let Some(spec) = set.spec.clones.as_deref() else {
            return Ok(());
        };
        match step {
            (None, Some(pod)) => self.created(pod, (set, spec), scene),
            (Some(pod), after) => match after {
                _ if is_deletion(step) => self.deleted(pod, (set, spec), writing, scene),
                Some(after) => self.patched((pod, after), (set, spec), writing, scene),
                None => Ok(()),
            },
            (None, None) => Ok(()),
        }
    }

    /// CS-13.12 and CS-15.1: not too many, and an id of its own.
    fn created(&self, pod: &PodRecord, (set, spec): (&SetRecord, &CloneSpec), scene: &Scene<'_>) -> Verdict {
        let name = pod.name();
        require(pod.meta.is_controlled_by(&set.meta.uid), "CS-11 ownership", || {
            format!("{name} is made for somebody else")
        })?;
        let id = pod.label(INSTANCE_ID);
        require(
            id.is_some() && name.rsplit_once('-').map(|(_, id)| id) == id,
            "CS-15.1 id",
            || format!("{name} has the id {id:?}"),
        )?;
        let is_short = pod.revision().is_some_and(|label| !label.starts_with(set.name()));
        require(is_short == self.short_hash, "R-33 short hashes", || {
            format!(
                "{name} is made with the label {:?}; the gate says {}",
                pod.revision(),
                self.short_hash
            )
        })?;
        let mut others = scene.pods().filter(|other| other.meta.uid != pod.meta.uid);
        // An id that others wrote may not have been seen.
        let twin = others.find(|other| other.label(INSTANCE_ID) == id && !has_another_id(other));
        require(twin.is_none(), "CS-15.1 id", || {
            format!("{name} has the id of {}", twin.map_or("", |p| p.name()))
        })?;
        self.mounts_nothing_left_over(pod, spec, scene)?;
        let counts = |other: &&Arc<PodRecord>| {
            let is_sure = other.meta.uid == pod.meta.uid || self.must_know(other);
            let is_leaving = other.label(LIFECYCLE_STATE) == Some("PreparingDelete");
            is_sure && is_active(other) && !(spec.excludes_preparing_delete && is_leaving)
        };
        let there = count(scene.pods_of(&set.meta.uid).filter(counts).count());
        // Replicas are made also where there is more surge than there may be any more, since it waits for them.
        let surge = scene.pods_of(&set.meta.uid).filter(counts).filter(|pod| is_surge(pod));
        let most = set.spec.replicas + budgets(set, spec).0.max(count(surge.count()));
        require(there <= most, RULE_OVER, || {
            format!("with {name} there are {there} pods, and {most} are the most")
        })
    }

    /// CS-13.10, CS-14.5 to CS-14.7: for a reason, once its hook lets it go, and no more than the budget allows.
    fn deleted(
        &self,
        pod: &PodRecord,
        (set, spec): (&SetRecord, &CloneSpec),
        writing: &Writing,
        scene: &Scene<'_>,
    ) -> Verdict {
        let name = pod.name();
        require(pod.meta.is_controlled_by(&set.meta.uid), "CS-11 ownership", || {
            format!("{name} is not the set's, and is deleted")
        })?;
        self.takes_along(pod, set, scene)?;
        if pod.is_terminal() {
            return Ok(());
        }
        unheld(self.in_place, pod, true)?;
        let is_wished = pod.label(SPECIFIED_DELETE).is_some()
            || pod.label(LIFECYCLE_STATE) == Some("PreparingDelete")
            || spec.pods_to_delete.iter().any(|named| *named == *name);
        let stays = |known: &&Known| !known.is_going() && !is_surge(&known.pod);
        let staying = count(self.others(pod, set).filter(stays).count());
        let replicas = set.spec.replicas;
        // Of the surge any may go, as far as enough others serve.
        let is_wished = is_wished || is_surge(pod);
        require(is_wished || staying >= replicas, "CS-14.5 deletes for a reason", || {
            format!("{name} is deleted, which nobody asked for; {staying} others may seem to stay, of {replicas}")
        })?;
        if is_marked(pod) && staying < replicas {
            self.is_wanted_by_update(pod, (set, spec), writing, scene)?;
        }
        self.keeps_available(pod, (set, spec), writing, scene.now)
    }

    /// a pod that an update has marked, and nobody else, goes only as long as an update is to make it again.
    fn is_wanted_by_update(
        &self,
        pod: &PodRecord,
        (set, spec): (&SetRecord, &CloneSpec),
        writing: &Writing,
        scene: &Scene<'_>,
    ) -> Verdict {
        let hooks = &set.spec.lifecycle;
        let mut hooks = [&hooks.pre_delete, &hooks.in_place_update].into_iter().flatten();
        // Out of service for its deletion, it is never taken back (CS-14.2).
        let is_lost = state(pod) == "PreparingDelete" && hooks.any(|hook| hook.mark_not_ready);
        if is_lost || spec.pods_to_delete.iter().any(|named| *named == *pod.name()) {
            return Ok(());
        }
        let rests = set.spec.is_paused()
            || set.spec.update == UpdateKind::OnDelete
            || set.spec.pod_update_policy() == PodUpdatePolicy::InPlaceOnly;
        require(!rests, RULE_MARKS, || {
            format!("{} goes for an update, and none is under way", pod.name())
        })?;
        // It has begun to be new, and lacks what it asks for: the update that wanted it made again is not over.
        let is_halfway = is_in_grace(pod) || lacks_resources(pod);
        if self.is_given_up(pod, set, writing) || is_halfway {
            return Ok(());
        }
        if !is_old(pod, set, scene) {
            return require(spec.switches.partition_rollback, RULE_MARKS, || {
                format!("{} goes for an update, and is new", pod.name())
            });
        }
        // Whose mark may have been taken off.
        let old = self
            .others(pod, set)
            .filter(|known| !known.is_gone && is_old(&known.pod, set, scene));
        let (left, kept) = (count(old.count()), spec.partition.kept_of(set.spec.replicas));
        require(left >= kept, RULE_MARKS, || {
            format!(
                "{} goes for an update while {left} other old pods may seem to be there, and {kept} are to stay",
                pod.name()
            )
        })
    }

    /// Whoever is available goes only where as many others as have to be may seem available (CS-13.12).
    fn keeps_available(
        &self,
        pod: &PodRecord,
        (set, spec): (&SetRecord, &CloneSpec),
        writing: &Writing,
        now: Timestamp,
    ) -> Verdict {
        if !is_available(pod, set, writing.decided.now) {
            return Ok(());
        }
        let up = self.others(pod, set).filter(|known| {
            let from = [known.seems_up, available_from(&known.pod, set)];
            !known.is_gone && from.into_iter().flatten().any(|from| now + self.ahead >= from)
        });
        let up = count(up.count());
        let keep = (set.spec.replicas - budgets(set, spec).1).max(0);
        require(up >= keep, RULE_KEEP, || {
            format!(
                "{} is taken down while {up} others may seem available, and {keep} are to stay",
                pod.name()
            )
        })
    }

    fn others(&self, pod: &PodRecord, set: &SetRecord) -> impl Iterator<Item = &Known> {
        let (pod, set) = (pod.meta.uid.clone(), set.meta.uid.clone());
        let of_set = move |known: &&Known| {
            let may_seem_so = known.formerly.as_ref() == Some(&set);
            known.pod.meta.uid != pod && (known.pod.meta.is_controlled_by(&set) || may_seem_so)
        };
        self.pods.values().filter(of_set)
    }

    /// CS-13.5, CS-13.12 and CS-16: what an update does to a pod, and what it costs.
    fn patched(
        &mut self,
        (before, after): (&PodRecord, &PodRecord),
        (set, spec): (&SetRecord, &CloneSpec),
        writing: &Writing,
        scene: &Scene<'_>,
    ) -> Verdict {
        let change = Change::of(before, after);
        let is_marked = before.label(SPECIFIED_DELETE).is_none() && after.label(SPECIFIED_DELETE).is_some();
        let name = before.name();
        // Whom users have set free it may not have seen; what has another owner it never had.
        let owner = before.meta.controller();
        require(owner.is_none_or(|o| o.uid == set.meta.uid), "CS-11 ownership", || {
            format!("{name} is somebody else's, and is changed")
        })?;
        // What was begun is finished when its grace period has ended, whatever the set asks for meanwhile.
        if before.is_terminal() || !change.revision && (is_in_grace(before) || awaits_restart(before)) {
            return Ok(());
        }
        let restarts = change.image || change.environment;
        if change.prepares || change.leaves_service || change.puts_off || change.is_held || restarts {
            self.keeps_available(before, (set, spec), writing, scene.now)?;
        }
        if change.image {
            self.restarts.note(before, set)?;
        }
        // A new pod may have been taken hold of since it was seen.
        if (change.revision || change.image) && state(before) != "PreparingNormal" {
            unheld(self.in_place, before, false)?;
        }
        if change.revision {
            let revision = revision_of(after).unwrap_or_default();
            let goes_back = spec.switches.partition_rollback && revision == set.status_text("currentRevision");
            let fits = goes_back || scene.is_of_template(&revision, set);
            require(fits, "STS-4.3 revision", || {
                format!("{name} is changed to {revision}, which is not the update revision")
            })?;
        }
        let is_prepared = change.prepares && state(after) == "PreparingUpdate";
        if is_marked || change.revision || is_prepared {
            self.update_begins(before, (set, spec), is_marked, writing, scene)?;
        }
        Ok(())
    }

    /// CS-13.5 and CS-16.2 to CS-16.5: a pod that an update changes, or is to make again, is old, and the partition keeps others.
    fn update_begins(
        &self,
        pod: &PodRecord,
        (set, spec): (&SetRecord, &CloneSpec),
        is_marked: bool,
        writing: &Writing,
        scene: &Scene<'_>,
    ) -> Verdict {
        let name = pod.name();
        let is_only = set.spec.pod_update_policy() == PodUpdatePolicy::InPlaceOnly;
        require(!(is_marked && is_only), "CS-16.5 InPlaceOnly", || {
            format!("{name} is marked")
        })?;
        let rests = set.spec.is_paused() || set.spec.update == UpdateKind::OnDelete;
        require(!rests, "CS-16.2 paused or OnDelete", || format!("{name} is updated"))?;
        if self.is_given_up(pod, set, writing) {
            return Ok(());
        }
        let is_old = |pod: &PodRecord| is_old(pod, set, scene) && !is_surge(pod);
        let kept = spec.partition.kept_of(set.spec.replicas);
        let old = self
            .others(pod, set)
            .filter(|known| !known.is_going() && is_old(&known.pod));
        if spec.switches.partition_rollback && !is_old(pod) {
            // Those of which every manager must know, and whom nobody wants to be deleted.
            let is_plain = |pod: &PodRecord| {
                pod.label(SPECIFIED_DELETE).is_none() && !spec.pods_to_delete.iter().any(|named| *named == *pod.name())
            };
            let is_there = |uid: &Uid| {
                scene
                    .pods_of(&set.meta.uid)
                    .any(|pod| pod.meta.uid == *uid && is_active(pod))
            };
            let sure = old.filter(|known| !known.is_uncertain && is_plain(&known.pod) && is_there(&known.pod.meta.uid));
            let there = count(sure.count());
            return require(there < kept, "CS-13.5 partition", || {
                format!("{name} goes back while {there} other pods are old, and {kept} are to be")
            });
        }
        require(is_old(pod), "CS-16.3 candidates", || {
            format!("{name} is new, and is updated")
        })?;
        let left = count(old.count());
        require(left >= kept, "CS-13.5 partition", || {
            format!("{name} is updated while {left} other old pods may seem to stay, and {kept} are to")
        })
    }

    /// Whether a pod's label, by which the partition counts, says already what its resources will never be: it falls back to being made
    /// again. Or its update takes too long (STS-8.12).
    fn is_given_up(&self, pod: &PodRecord, set: &SetRecord, writing: &Writing) -> bool {
        let is_told = self.infeasible.contains(&pod.meta.uid) || crate::notes::is_unreadable(pod);
        let is_late = overdue::may_be_made_again(pod, set, writing.decided.now);
        is_told || is_late || lacks_resources(pod) && self.resize_refused.contains(&pod.meta.key)
    }

    fn see_up(&mut self, pod: &PodRecord, set: &SetRecord) {
        let Some(known) = self.pods.get_mut(&pod.meta.uid) else {
            return;
        };
        if let Some(from) = available_from(pod, set) {
            known.seems_up = Some(known.seems_up.map_or(from, |seems| seems.min(from)));
        }
    }

    /// Remembers what was done, and by whom.
    fn learn(&mut self, (before, after): Step<'_>, by_manager: bool) {
        let Some(pod) = after.or(before) else { return };
        let known = self.pods.entry(pod.meta.uid.clone()).or_insert_with(|| Known {
            pod: pod.clone(),
            seems_up: None,
            goes: false,
            is_gone: false,
            // A webhook may have taken it out of the selector: then it is not the set's, and is let go as soon as that works.
            is_uncertain: !by_manager || pod.label("app") != Some("web"),
            formerly: None,
        });
        let whose = |pod: &PodRecord| {
            (
                pod.meta.controller().map(|o| o.uid.clone()),
                pod.label("app").map(str::to_owned),
                pod.label(INSTANCE_ID).map(str::to_owned),
            )
        };
        let is_moved = before.is_some_and(|before| whose(before) != whose(pod));
        known.is_uncertain |= is_moved;
        if let Some(owner) = before.and_then(|before| before.meta.controller()).filter(|_| is_moved) {
            known.formerly = Some(owner.uid.clone());
        }
        if !is_moved {
            known.pod = pod.clone();
        }
        if before.is_none() {
            // Also where its creation came late: it is what was to be made again.
            self.replaced.remove(pod.name());
            self.deleted.remove(pod.name());
        }
        let marked = |pod: &PodRecord| pod.label(SPECIFIED_DELETE).is_some();
        let is_released = before.is_some_and(|before| is_marked(before)) && after.is_some_and(|after| !marked(after));
        if is_released {
            // It stays after all, also where that came late: if it goes later, it is not made again (CS-15.5).
            self.replaced.remove(pod.name());
            known.goes = known.is_gone;
        }
        if !by_manager {
            return;
        }
        if before.is_some_and(|before| !marked(before)) && after.is_some_and(|after| marked(after)) {
            self.replaced.insert(pod.name().to_owned());
        }
        let is_gone = is_deletion((before, after));
        known.is_gone |= is_gone;
        known.goes |= is_gone || pod.label(SPECIFIED_DELETE).is_some();
        let leaves = before.is_some_and(|before| {
            let change = Change::of(before, pod);
            change.leaves_service || change.is_held || change.image
        });
        if is_gone || leaves || matches!(state(pod), "PreparingDelete" | "PreparingUpdate" | "Updating") {
            // Every manager has to know of this: it is an act of one of them.
            known.seems_up = None;
        }
        if is_gone {
            self.deleted.insert(pod.name().to_owned());
            // The mark may have come late, and was seen all the same.
            if is_marked(pod) {
                self.replaced.insert(pod.name().to_owned());
            }
        }
    }

    /// Whether every manager must know of a pod, and that it is the set's.
    pub(crate) fn must_know(&self, pod: &PodRecord) -> bool {
        self.pods.get(&pod.meta.uid).is_some_and(|known| !known.is_uncertain)
    }

    /// A pod that all managers must know of, and that has another revision (CS-21.2).
    pub(crate) fn another_revision(&self, set: &SetRecord, scene: &Scene<'_>, revision: &str) -> Option<String> {
        let mut pods = scene.pods_of(&set.meta.uid);
        let other =
            pods.find(|pod| self.must_know(pod) && is_active(pod) && revision_of(pod).as_deref() != Some(revision));
        other.map(|pod| pod.name().to_owned())
    }
}
