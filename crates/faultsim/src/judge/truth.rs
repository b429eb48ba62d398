//! Writes, judged by what really is at the moment at which they take effect.

use super::growth::Growth;
use super::{
    Places, Verdict, available_from, budget_of, is_available, is_classic, ordinal_in, overdue, partition_of, place_of,
    require, unordered,
};
use crate::asks::is_to_be_made_again;
use crate::claim_templates::has_others;
use crate::clones::truth::Writes;
use crate::in_course::in_course;
use crate::in_place::{Change, InPlace, Restarts, awaits_restart, unheld};
use crate::schedule::Schedule;
use crate::spy::Decided;
use crate::storage::may_restart;
use crate::tenants::{self, ELSEWHERE};
use flotilla_engine::wire::Object;
use flotilla_model::records::PodDetail;
use flotilla_model::template::Digest;
use flotilla_model::{
    Body, Command, ObjectKey, PodRecord, Resource, RevisionRecord, SetKind, SetRecord, Timestamp, Uid,
};
use flotilla_sim::server::{Actor, Entry, Server, Stored};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What a write of a manager rests on.
#[derive(Clone, Debug)]
pub(crate) struct Writing {
    /// The decision that asked for it.
    pub(crate) decided: Arc<Decided>,
    /// When that was, really.
    pub(crate) decided_at: Timestamp,
    /// Its manager has given it up: it cannot know that it takes effect after all, nor when.
    pub(crate) is_late: bool,
}

/// What a check may look at.
pub(crate) struct Scene<'a> {
    pub(crate) server: &'a Server,
    pub(crate) now: Timestamp,
    pub(crate) writing: Option<&'a Writing>,
}

impl Scene<'_> {
    pub(super) fn pod(&self, key: &ObjectKey) -> Option<&Arc<PodRecord>> {
        pod_of(self.server.get(Resource::Pods, key))
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = &Arc<PodRecord>> {
        tenants::all(self.server, Resource::Pods).filter_map(|s| pod_of(Some(s)))
    }

    pub(crate) fn pods_of(&self, owner: &Uid) -> impl Iterator<Item = &Arc<PodRecord>> {
        self.pods().filter(move |pod| pod.meta.is_controlled_by(owner))
    }

    pub(super) fn revisions_of(&self, owner: &Uid) -> impl Iterator<Item = &Arc<RevisionRecord>> {
        let all = tenants::all(self.server, Resource::Revisions).filter_map(|s| revision_of(Some(s)));
        all.filter(move |revision| revision.meta.is_controlled_by(owner))
    }

    pub(crate) fn digest_of(&self, key: &ObjectKey) -> Option<Digest> {
        revision_of(self.server.get(Resource::Revisions, key)).map(|r| r.digest)
    }

    /// Whether a revision is that of the template that was seen. That of a set which is gone meanwhile may be gone with it.
    pub(crate) fn is_of_template(&self, revision: &str, set: &SetRecord) -> bool {
        match self.digest_of(&set.meta.key.sibling(revision)) {
            Some(digest) => digest == set.spec.template_digest,
            None => {
                let there = set_of(self.server.get(set.kind.resource(), &set.meta.key));
                there.is_none_or(|there| there.meta.uid != set.meta.uid || there.is_deleted())
            }
        }
    }
}

/// Whether a pod of a CloneSet is marked in order to be made again, or one that was goes.
fn goes_for_update(pod: &PodRecord, after: Option<&Arc<PodRecord>>, set: &SetRecord) -> bool {
    let Some(clones) = &set.spec.clones else { return false };
    let annotations = |pod: &PodRecord| {
        pod.detail
            .as_ref()
            .is_some_and(|d| d.annotations.get("flotilla.rs/replaced-by-update").is_some())
    };
    let is_marked = !annotations(pod) && after.is_some_and(|after| annotations(after));
    let is_named = clones.pods_to_delete.iter().any(|named| *named == *pod.name());
    let goes = !pod.is_terminating() && after.is_none_or(|after| after.is_terminating());
    // With one that goes back the current revision comes.
    !clones.switches.partition_rollback && (is_marked || goes && annotations(pod) && !is_named)
}

/// Whether a pod leaves service in order to be updated in place.
fn leaves_for_update(pod: &PodRecord, after: Option<&Arc<PodRecord>>, set: &SetRecord) -> bool {
    let goes_back = set.spec.clones.as_ref().is_some_and(|c| c.switches.partition_rollback);
    !goes_back && after.is_some_and(|after| Change::of(pod, after).leaves_service)
}

pub(super) fn pod_of(stored: Option<&Stored>) -> Option<&Arc<PodRecord>> {
    match stored?.object.as_ref()? {
        Object::Pod(pod) => Some(pod),
        _ => None,
    }
}

pub(super) fn revision_of(stored: Option<&Stored>) -> Option<&Arc<RevisionRecord>> {
    match stored?.object.as_ref()? {
        Object::Revision(revision) => Some(revision),
        _ => None,
    }
}

pub(super) fn set_of(stored: Option<&Stored>) -> Option<&Arc<SetRecord>> {
    match stored?.object.as_ref()? {
        Object::Set(set) => Some(set),
        _ => None,
    }
}

/// What has to be remembered in order to judge.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// How far the fastest clock of a manager is ahead: to it, pods are available sooner.
    ahead: Duration,
    /// What was asked for of storage.
    pub(crate) asked: super::asked::Asked,
    /// Whether it declares the type OnDelete.
    pub(super) is_on_delete: bool,
    /// The set as it was last.
    pub(super) set: Option<Arc<SetRecord>>,
    /// From when on a cache can show a pod as available: what happens to it meanwhile may not have been seen.
    seems_up: BTreeMap<Uid, Timestamp>,
    /// The same of slots whose pod others have removed since a manager took it down: a late cache still shows it, and it comes up there.
    removed_up: BTreeMap<i64, Timestamp>,
    /// Slots whose available pod a manager has deleted, until there is one again.
    down: BTreeSet<i64>,
    /// Slots whose pod a manager has deleted, until it is made again.
    pub(super) emptied: BTreeSet<i64>,
    /// Pods that a manager has deleted because they were not wanted.
    leaving: BTreeMap<Uid, ObjectKey>,
    /// Pods on their way up for the first time.
    growth: Growth,
    /// Claims that have been removed.
    pub(super) claims_removed: BTreeSet<ObjectKey>,
    /// Since when the file system of a claim has waited, the last time that it did.
    pub(super) pending: BTreeMap<ObjectKey, Timestamp>,
    /// When each set began to be deleted.
    pub(super) sets_deleted: BTreeMap<Uid, Timestamp>,
    /// How pods are updated in place.
    in_place: Option<InPlace>,
    /// How far the clocks of managers are apart.
    apart: Duration,
    /// Pods whose images a manager has changed.
    restarts: Restarts,
    /// What pods are made of that the API server has accepted: the last part of the name of their revision, and their claim templates.
    pub(super) accepted: BTreeSet<String>,
    /// Those of which it refused one on trial for what says nothing of a pod that takes another's place.
    pub(super) unproven: BTreeSet<String>,
    /// The pod that went for one of these, as long as none has come since.
    pub(super) went_first: Option<Uid>,
    /// Pods that the API server has refused other resources.
    pub(super) resize_refused: BTreeSet<ObjectKey>,
    /// Of CloneSets: what was done to their pods.
    pub(super) clones: Option<Writes>,
}

impl Judge {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let [one, other] = schedule.skews_ms;
        let in_place = schedule.set.in_place;
        let ahead = Duration::from_millis(u64::try_from(one.max(other)).unwrap_or(0));
        Judge {
            in_place,
            apart: Duration::from_millis(one.abs_diff(other)),
            ahead,
            clones: (schedule.set.kind == SetKind::Clone).then(|| {
                Writes::new(
                    ahead,
                    in_place,
                    schedule.set.clones.as_ref().is_some_and(|c| c.short_hash),
                )
            }),
            ..Judge::default()
        }
    }

    /// Judges a command that is about to be carried out by what it names, whether it takes effect or not.
    pub(crate) fn command(command: &Command, kind: SetKind) -> Verdict {
        let deletes_claim = matches!(
            command,
            Command::Delete {
                resource: Resource::Claims,
                ..
            }
        );
        require(kind == SetKind::Clone || !deletes_claim, "STS-I6 claims", || {
            format!("a manager deletes claim {}", command.key().name)
        })
    }

    /// Takes notice of a change, and judges it if a manager made it.
    pub(crate) fn note(&mut self, entry: &Entry, scene: &Scene<'_>) -> Verdict {
        let Some(resource) = entry.resource.watched() else {
            return Ok(());
        };
        if &*entry.key.namespace == ELSEWHERE {
            let is_by_manager = matches!(entry.actor, Actor::Manager(_));
            return require(!is_by_manager, "owners", || {
                format!(
                    "a manager writes {resource} {}, which is no business of the set",
                    entry.key
                )
            });
        }
        match resource {
            Resource::Pods => self.pod_changed(entry, scene),
            Resource::Claims => self.claim_changed(entry, scene),
            Resource::Revisions => self.revision_changed(entry, scene),
            Resource::NativeSets | Resource::AdvancedSets | Resource::CloneSets => self.set_changed(entry, scene),
            Resource::StorageClasses
            | Resource::ConfigMaps
            | Resource::Nodes
            | Resource::ImagePullJobs
            | Resource::Leases
            | Resource::Events => Ok(()),
        }
    }

    fn pod_changed(&mut self, entry: &Entry, scene: &Scene<'_>) -> Verdict {
        let (before, after) = (pod_of(entry.before.as_ref()), pod_of(entry.after.as_ref()));
        if let Some(before) = before {
            self.see_up(before, scene.now);
            if after.is_none() && !matches!(entry.actor, Actor::Manager(_)) {
                self.removed_by_others(before);
            }
        }
        if let (Some(writing), Some(before), Some(after)) = (scene.writing, before, after) {
            // Also what comes late: its preconditions have to see to it.
            in_course(self.in_place, entry, (before, after), &writing.decided, self.apart)?;
        }
        if let Some(pod) = after {
            self.proves(pod);
        }
        self.comes_or_stays(before, after);
        if let (Some(writing), Some(pod)) = (scene.writing.filter(|w| !w.is_late), before)
            && matches!(entry.actor, Actor::Manager(_))
        {
            let set = &writing.decided.set;
            let (goes, leaves) = (goes_for_update(pod, after, set), leaves_for_update(pod, after, set));
            if goes || leaves {
                self.goes_for_what_is_accepted(pod, writing, scene, !goes)?;
            }
        }
        if let Some(clones) = &mut self.clones {
            return clones.pod_changed(entry.actor, (before, after), self.set.as_deref(), scene);
        }
        let writing = scene.writing.filter(|w| !w.is_late);
        if let Some(writing) = writing {
            match (entry.verb, before, after) {
                ("create", None, Some(pod)) => self.pod_created(pod, writing, scene)?,
                ("delete", Some(pod), _) => self.pod_deleted(pod, writing, scene)?,
                ("patch", Some(before), Some(after)) => {
                    self.pod_patched(before, after, writing)?;
                    self.pod_updated(before, after, writing, scene)?;
                }
                ("status", Some(before), Some(after)) => self.pod_updated(before, after, writing, scene)?,
                _ => {}
            }
        }
        if entry.verb == "create"
            && let Some(ordinal) = after.and_then(|pod| ordinal_in(pod.name(), "web"))
        {
            self.emptied.remove(&ordinal);
        }
        Ok(())
    }

    /// Whether the fastest clock, and a cache however late, can show a pod as available.
    fn can_seem_up(&self, pod: &PodRecord, now: Timestamp) -> bool {
        let seems = self.seems_up.get(&pod.meta.uid).copied();
        let is_up = self.set.as_ref().and_then(|set| available_from(pod, set));
        [seems, is_up]
            .into_iter()
            .flatten()
            .any(|from| now + self.ahead >= from)
    }

    fn removed_by_others(&mut self, pod: &PodRecord) {
        let from = self.seems_up.get(&pod.meta.uid).copied();
        if let (Some(from), Some(ordinal)) = (from, ordinal_in(pod.name(), "web")) {
            self.removed_up.insert(ordinal, from);
        }
    }

    fn see_up(&mut self, pod: &PodRecord, now: Timestamp) {
        if let Some(from) = self.set.as_ref().and_then(|set| available_from(pod, set)) {
            let seems = self.seems_up.entry(pod.meta.uid.clone()).or_insert(from);
            *seems = from.min(*seems);
        }
        if self.can_seem_up(pod, now)
            && let Some(ordinal) = ordinal_in(pod.name(), "web")
        {
            self.down.remove(&ordinal);
            self.growth.is_up(ordinal);
        }
    }

    fn pod_created(&mut self, pod: &PodRecord, writing: &Writing, scene: &Scene<'_>) -> Verdict {
        let set = &writing.decided.set;
        let name = pod.name();
        require(pod.meta.is_controlled_by(&set.meta.uid), "STS-1.3 identity", || {
            format!("{name} is created without its set as controller")
        })?;
        let has_labels = pod.label("statefulset.kubernetes.io/pod-name") == Some(name)
            && pod.label("apps.kubernetes.io/pod-index") == name.rsplit_once('-').map(|(_, index)| index);
        require(has_labels, "STS-1.3 identity", || {
            format!("{name} lacks labels of its identity")
        })?;
        // What was asked for: webhooks of others may have changed it.
        let claims = writing.decided.decision.commands().filter_map(|c| match &c.command {
            Command::Create {
                body: Body::Pod(draft),
                key,
                ..
            } if *key == pod.meta.key => Some(&draft.claims),
            _ => None,
        });
        for (_, claim) in claims.flatten() {
            let key = pod.meta.key.sibling(claim.as_str());
            let is_there = scene.server.get(Resource::Claims, &key).is_some();
            // It was there once: its removal may not have been seen yet.
            let went = self.claims_removed.contains(&key);
            require(is_there || went, "STS-1.4.3 claims first", || {
                format!("{name} is created before {}", key.name)
            })?;
        }
        let others: Vec<_> = scene.pods_of(&set.meta.uid).cloned().collect();
        for other in others.iter().filter(|other| other.meta.uid != pod.meta.uid) {
            self.see_up(other, scene.now);
        }
        // Whoever was ready was available, where that needs no further seconds (pods under deletion included), and its slot has been up:
        // that it became ready only when it was leaving is not seen on it.
        let has_left =
            |other: &PodRecord| other.is_terminating() && other.has_been_ready && set.spec.min_ready.is_zero();
        // One whose labels do not fit any more is about to be let go, and not the set's to wait for.
        let is_let_go = |other: &PodRecord| !set.spec.selector.matches(|key| other.label(key));
        let starting = others
            .iter()
            .filter(|other| !self.can_seem_up(other, scene.now) && !has_left(other) && !is_let_go(other));
        let starting = starting.map(|other| other.meta.uid.clone()).collect();
        self.growth.created(pod, set, &starting)?;
        if set.spec.is_monotonic() {
            self.comes_in_order(pod, set, scene)
        } else {
            Ok(())
        }
    }

    /// Under OrderedReady, no lower pod is missing that a manager has deleted, and none is there that never was available: whatever a
    /// cache shows, it cannot show that.
    fn comes_in_order(&self, pod: &PodRecord, set: &SetRecord, scene: &Scene<'_>) -> Verdict {
        let Some(place) = ordinal_in(pod.name(), set.name()).and_then(|ordinal| place_of(ordinal, set)) else {
            return Ok(());
        };
        for lower in Places::of(set).iter().take(place) {
            let key = set.meta.key.sibling(format!("{}-{lower}", set.name()));
            let in_order = match scene.pod(&key) {
                Some(lower) => self.can_seem_up(lower, scene.now),
                None => !self.emptied.contains(&lower),
            };
            require(in_order, "STS-I3 ordered creation", || {
                format!("{} is created while {} has not been available", pod.name(), key.name)
            })?;
        }
        Ok(())
    }

    fn pod_deleted(&mut self, pod: &PodRecord, writing: &Writing, scene: &Scene<'_>) -> Verdict {
        let set = writing.decided.set.clone();
        let name = pod.name();
        let asked_for = writing.decided.decision.commands().any(|c| {
            matches!(&c.command, Command::Delete { resource: Resource::Pods, key, uid, .. }
                if *key == pod.meta.key && *uid == pod.meta.uid)
        });
        require(asked_for, "STS-1.6 incarnation", || {
            format!("{name} with uid {} is deleted on the evidence of another", pod.meta.uid)
        })?;
        require(pod.meta.is_controlled_by(&set.meta.uid), "STS-1.2 foreign pod", || {
            format!("{name} is deleted, and is not the set's")
        })?;
        let Some(ordinal) = ordinal_in(name, set.name()) else {
            return require(false, "STS-1.3.4 names", || {
                format!("{name} has no ordinal, and is deleted")
            });
        };
        unheld(self.in_place, pod, true)?;
        let place = place_of(ordinal, &set);
        self.emptied.insert(ordinal);
        match place {
            _ if pod.is_terminal() => Ok(()),
            None => self.scaled_down(pod, &set, scene),
            Some(place) => {
                self.growth.is_up(ordinal);
                self.updated(pod, (ordinal, place), writing, scene)
            }
        }
    }

    fn scaled_down(&mut self, pod: &PodRecord, set: &SetRecord, scene: &Scene<'_>) -> Verdict {
        let still_ours = |pod: &PodRecord| pod.meta.is_controlled_by(&set.meta.uid);
        self.leaving
            .retain(|uid, key| scene.pod(key).is_some_and(|p| p.meta.uid == *uid && still_ours(p)));
        let others: Vec<_> = self.leaving.iter().filter(|(uid, _)| **uid != pod.meta.uid).collect();
        // A higher one: whatever is adopted meanwhile goes first, though a lower one is on its way out.
        let own = ordinal_in(pod.name(), set.name());
        let is_above = |key: &ObjectKey| {
            let ordinal = ordinal_in(&key.name, set.name());
            ordinal > own && ordinal.is_some_and(|o| place_of(o, set).is_none())
        };
        let other = others.iter().find(|(_, key)| is_above(key));
        require(
            other.is_none() || !set.spec.is_monotonic() || self.recreates(set),
            "STS-I3 ordered scale-down",
            || format!("{} is deleted while {other:?} is still on its way out", pod.name()),
        )?;
        self.leaving.insert(pod.meta.uid.clone(), pod.meta.key.clone());
        if let Some(ordinal) = own {
            self.growth.scaled_down(ordinal);
        }
        Ok(())
    }

    fn updated(
        &mut self,
        pod: &PodRecord,
        (ordinal, place): (i64, usize),
        writing: &Writing,
        scene: &Scene<'_>,
    ) -> Verdict {
        let set = &writing.decided.set;
        let spec = &set.spec;
        let name = pod.name();
        let revision = pod.revision().unwrap_or_default();
        let is_old =
            scene.digest_of(&set.meta.key.sibling(revision)) != Some(spec.template_digest) || has_others(pod, set);
        let claims = pod
            .claims()
            .filter_map(|(_, claim)| self.pending.get(&pod.meta.key.sibling(claim)));
        let restarts = claims
            .copied()
            .any(|since| may_restart(set, pod, since, writing.decided.now));
        let goes_with_all = is_old && self.recreates(set) && !spec.is_paused() && place >= partition_of(set);
        if is_to_be_made_again(pod, set) && !goes_with_all {
            // By whatever strategy, and also while that is paused.
            return self.uses_budget(pod, (ordinal, place), writing, scene);
        }
        let is_late = overdue::may_be_made_again(pod, set, writing.decided.now);
        require(
            is_old || restarts || is_late || self.is_given_up(pod),
            "STS-2.5 update",
            || format!("{name} is deleted, and is wanted and up to date"),
        )?;
        let may_recreate = !self.in_place.is_some_and(|in_place| in_place.only);
        require(may_recreate, "STS-4.2 InPlaceOnly", || {
            format!("{name} is deleted for an update")
        })?;
        self.goes_for_what_is_accepted(pod, writing, scene, false)?;
        self.taken_down(pod, (ordinal, place), writing, scene)
    }

    /// A pod is taken out of service for an update: the set is to be updated, its slot too, and the budget has room.
    fn taken_down(
        &mut self,
        pod: &PodRecord,
        (ordinal, place): (i64, usize),
        writing: &Writing,
        scene: &Scene<'_>,
    ) -> Verdict {
        let set = &writing.decided.set;
        let (spec, name) = (&set.spec, pod.name());
        require(!self.is_on_delete && !spec.is_paused(), "STS-2.5 update", || {
            format!("{name} is taken down, and the set is not to be updated")
        })?;
        let partition = partition_of(set);
        if unordered::is_unordered(set) {
            self.leaves_as_many_as_it_should(pod, writing, scene)?;
        } else {
            require(place >= partition, "STS-I4 partition", || {
                format!("{name} is below the partition {partition}, and is taken down")
            })?;
        }
        if self.recreates(set) {
            return Ok(());
        }
        self.uses_budget(pod, (ordinal, place), writing, scene)
    }

    /// An available pod goes only where the budget has room.
    fn uses_budget(
        &mut self,
        pod: &PodRecord,
        (ordinal, place): (i64, usize),
        writing: &Writing,
        scene: &Scene<'_>,
    ) -> Verdict {
        let (set, name) = (&writing.decided.set, pod.name());
        if !is_available(pod, set, writing.decided.now) {
            return Ok(());
        }
        // What came up meanwhile without any further change.
        let keys = self
            .down
            .iter()
            .map(|ordinal| set.meta.key.sibling(format!("{}-{ordinal}", set.name())));
        let there: Vec<_> = keys.filter_map(|key| scene.pod(&key).cloned()).collect();
        for pod in &there {
            self.see_up(pod, scene.now);
        }
        let may_be_seen_up = |from: &Timestamp| scene.now + self.ahead >= *from;
        self.down
            .retain(|ordinal| !self.removed_up.get(ordinal).is_some_and(may_be_seen_up));
        let counts = |other: &&i64| {
            let other = place_of(**other, set);
            other.is_some_and(|other| other != place && (!is_classic(set) || other > place))
        };
        let down: Vec<i64> = self.down.iter().filter(counts).copied().collect();
        let budget = budget_of(set);
        require(down.len() < budget, "STS-I2 budget", || {
            format!("{name} is taken down while {down:?} are down by managers' acts; the budget is {budget}")
        })?;
        self.down.insert(ordinal);
        // Every manager has to know of this: it is an act of one of them.
        self.removed_up.remove(&ordinal);
        self.seems_up.remove(&pod.meta.uid);
        Ok(())
    }

    /// A pod is changed in place, or taken out of service for that.
    fn pod_updated(&mut self, before: &PodRecord, after: &PodRecord, writing: &Writing, scene: &Scene<'_>) -> Verdict {
        let (set, name) = (writing.decided.set.clone(), before.name());
        let change = Change::of(before, after);
        // What has ended serves nobody, and is made again.
        let prepares = change.prepares && !before.is_terminal();
        let restarts = change.image || change.environment;
        let goes_down = restarts || change.leaves_service || change.puts_off || prepares;
        if !(goes_down || change.revision) {
            return Ok(());
        }
        // What was begun is finished when its grace period has ended, or it has its resources, whatever the set asks for meanwhile.
        let has_begun = |d: &PodDetail| d.annotations.get("apps.kruise.io/inplace-update-grace").is_some();
        let has_begun = before.detail.as_deref().is_some_and(has_begun) || awaits_restart(before);
        if !change.revision && has_begun {
            return Ok(());
        }
        let Some(ordinal) = ordinal_in(name, set.name()) else {
            return require(false, "STS-1.3.4 names", || {
                format!("{name} has no ordinal, and is updated")
            });
        };
        let Some(place) = place_of(ordinal, &set) else {
            let is_leaving = !(change.image || change.leaves_service || change.puts_off || change.revision);
            return require(is_leaving, "STS-4.2 update", || {
                format!("{name} is not wanted, and is updated")
            });
        };
        if change.revision || change.image {
            unheld(self.in_place, before, false)?;
        }
        if change.revision {
            let revision = after.revision().unwrap_or_default();
            require(scene.is_of_template(revision, &set), "STS-4.3 revision", || {
                format!("{name} is changed to {revision}, which is not the update revision")
            })?;
        }
        if change.image {
            self.restarts.note(before, &set)?;
        }
        let is_update = change.image || change.leaves_service || change.revision;
        if prepares && !is_update && is_to_be_made_again(before, &set) {
            return self.uses_budget(before, (ordinal, place), writing, scene);
        }
        if goes_down {
            self.taken_down(before, (ordinal, place), writing, scene)?;
        }
        Ok(())
    }

    /// A pod is adopted for a set that was there when the decision was made, or let go.
    fn pod_patched(&self, before: &PodRecord, after: &PodRecord, writing: &Writing) -> Verdict {
        let set = &writing.decided.set;
        let owner = before.meta.controller();
        let is_ours = owner.is_none_or(|o| o.uid == set.meta.uid);
        require(is_ours, "STS-1.2 foreign pod", || {
            format!("{} is patched, and is not the set's", before.name())
        })?;
        self.adopted(&before.meta, &after.meta, writing)
    }
}
