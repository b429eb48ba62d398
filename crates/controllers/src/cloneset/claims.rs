//! Claims of the set: which of them go, which can be used again, and what their templates hash to (CS-12.4 and CS-15).

mod sharing;

pub(super) use sharing::{Deleted, Sharing};

use super::diff::Diff;
use super::marks;
use super::plan::{ClaimsById, Member, Plan};
use super::surge::is_made_as_surge;
use crate::shared::adoption::controller_ref;
use crate::shared::claim::{self, Additions};
use crate::shared::lifecycle::State;
use flotilla_api::names;
use flotilla_model::decision::{Command, Scope};
use flotilla_model::set::ClaimTemplate;
use flotilla_model::template::{canonical, canonical_quantity};
use flotilla_model::{ClaimRecord, PodRecord, Report, Resource, RevisionRecord, Timestamp, Uid, containers_meta};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// When to look again at what should be over by then.
pub(super) const SOON: Duration = Duration::from_secs(1);

/// The id that a claim shares with its pod.
pub(super) fn id_of(claim: &ClaimRecord) -> Option<&str> {
    claim.meta.labels.get(names::INSTANCE_ID_LABEL)
}

/// Whether a claim of ours is a pod's, by its id or by a mount.
fn has(pod: &PodRecord, claim: &ClaimRecord) -> bool {
    id_of(claim).is_some_and(|id| pod.label(names::INSTANCE_ID_LABEL) == Some(id) || mounts(pod, claim))
}

/// Whether what was refused is a part of making a pod under a new name.
pub(super) fn is_of_creation(attempt: Report) -> bool {
    matches!(attempt, Report::Create | Report::Take)
}

/// Whether a pod mounts a claim, whosever that is.
fn mounts(pod: &PodRecord, claim: &ClaimRecord) -> bool {
    pod.claims().any(|(_, name)| *name == *claim.meta.key.name)
}

/// Whether a pod is there to stay, as far as it goes: it has neither ended nor begun to go.
pub(super) fn is_active(pod: &PodRecord) -> bool {
    !pod.is_terminal() && !pod.is_terminating()
}

/// Whether a claim is noted as one that is for the replacement of its pod (CS-15.5).
fn is_kept(claim: &ClaimRecord) -> bool {
    claim.annotations.get(names::KEPT_FROM).is_some()
}

/// Notes, as the claim was seen, from which pod it is kept, or that it is kept no more. Each time it gets another version, also where the note
/// says the same: what would take that off, and is still on its way, fails from then on.
fn note(claim: &ClaimRecord, from: Option<&str>) -> Command {
    let seen = claim.meta.resource_version.to_string();
    let annotations = [(names::KEPT_FROM, from), (names::CLAIM_TAKEN_AT, Some(&seen))];
    claim::annotate(claim, &annotations, Report::Update)
}

/// A patch of a claim's owners that notes from which pod it is kept, too.
fn with_note(mut owners: Command, claim: &ClaimRecord, from: Option<&str>) -> Command {
    if let (Command::Patch { body, .. }, Command::Patch { body: noted, .. }) = (&mut owners, note(claim, from)) {
        body["metadata"]["annotations"] = noted["metadata"]["annotations"].clone();
    }
    owners
}

/// Deletes a claim as it was seen: not one that was let go, or that a new pod has taken, while this was on its way.
fn delete(claim: &ClaimRecord) -> Command {
    Command::Delete {
        resource: Resource::Claims,
        key: claim.meta.key.clone(),
        uid: claim.meta.uid.clone(),
        resource_version: Some(claim.meta.resource_version),
        report: Report::Delete,
    }
}

impl<'v> Plan<'v> {
    /// Without reuse (CS-15.4): claims of pods that have ended or are going go with them, those of no pod go. With reuse that holds for those
    /// that were made as surge, which are nobody's to use again.
    pub(super) fn tend_claims(&mut self) {
        let reuses = self.view.clones.reuses_claims;
        let mut commands = Vec::new();
        for claim in &self.view.claims {
            let Some(id) = id_of(claim) else { continue };
            if reuses && !is_made_as_surge(&self.name_of(id), Some(&claim.annotations)) {
                continue;
            }
            let pod = self.holder_of(claim, id);
            // Of the two notes that of the pod counts (CS-13.8).
            if reuses && pod.is_some_and(|pod| !self.is_surge(pod)) {
                continue;
            }
            if pod.is_some_and(|pod| is_active(pod)) {
                continue;
            }
            let scope = Scope::Named(pod.map_or_else(|| self.name_of(id), |pod| pod.name().to_owned()));
            // One whose creation was refused, or is held back, is tried again under the same name. Should none be wanted by then, the claim goes.
            if pod.is_none()
                && let Some(retry_at) = self.creation_is_due(&scope)
            {
                let until = retry_at.since(self.pass.moment.now);
                self.pass.wake_within(until.max(SOON));
                continue;
            }
            match pod {
                // It belongs to a pod that we let go.
                Some(pod) if !self.view.manages(pod) => {}
                // Its replacement takes it (CS-15.5).
                Some(pod) if self.hands_over(pod) => {
                    let uid = pod.meta.uid.to_string();
                    if pod.is_terminating() && claim.annotations.get(names::KEPT_FROM) != Some(&uid) {
                        commands.push((scope, note(claim, Some(&uid))));
                    }
                }
                // Or that of another pod does, of which this one is a copy.
                Some(pod) if self.keeps_from_another(claim, pod) => {}
                Some(pod) => commands.push((scope, self.give_to(claim, pod))),
                // The replacement of a pod that was made anew takes it. What a lost pod leaves is for nobody.
                None if self.keeps(claim) => {}
                None => commands.push((scope, delete(claim))),
            }
        }
        self.write_claims(commands);
    }

    /// When the creation of a pod is tried again, if it was refused or is held back.
    fn creation_is_due(&self, scope: &Scope) -> Option<Timestamp> {
        let hints = &self.pass.hints;
        let mut known = [&hints.repeated, &hints.failures]
            .into_iter()
            .filter_map(|all| all.get(scope));
        let creation = known.find(|failure| is_of_creation(failure.attempt))?;
        Some(creation.retry_at)
    }

    /// Gives the claims of a pod whose deletion is part of this plan to the pod, so that they go with it (CS-14.7 and CS-15.5). That
    /// comes before the deletion: whatever happens between the two, no claim is left that looks as if it might be used again. What
    /// another pod has that is there to stay, as the original of a copy does, does not go: it goes with the last of them. Claims that
    /// the pod hands over are noted as kept, before the deletion, too: by that they are told from what a lost pod leaves.
    pub(super) fn condemn_claims(&mut self, scope: &Scope, pod: &PodRecord) {
        let set = &self.view.set.meta.uid;
        let hands_over = self.hands_over(pod);
        let is_given = |claim: &ClaimRecord| claim.meta.is_controlled_by(&pod.meta.uid);
        let mut commands = Vec::new();
        for claim in self.claims_of(pod) {
            if self.others_with(claim, pod).next().is_some() || self.keeps_from_another(claim, pod) {
                continue;
            }
            if hands_over {
                commands.extend(self.hand_over(claim, pod));
            } else if claim.meta.is_controlled_by(set) {
                commands.push(self.give_to(claim, pod));
            } else if is_given(claim) {
                // One that was given before is written to once more: what would take it back, and is still on its way, fails from now on.
                commands.push(claim::take(claim, Report::Silent));
            } else if let Some(going) = self.controller_of(claim) {
                // It was given to another pod, which goes or has ended: now this is the last that has it.
                let owner = controller_ref(Resource::Pods, pod.name(), &pod.meta.uid);
                commands.push(claim::hand_to(claim, &going.meta.uid, &owner));
            }
        }
        self.pass.write_claims(scope, commands);
    }

    /// The pod of the set that a claim belongs to.
    fn controller_of(&self, claim: &ClaimRecord) -> Option<&'v Arc<PodRecord>> {
        let pod = self.view.pod(&claim.meta.controller()?.name)?;
        (claim.meta.is_controlled_by(&pod.meta.uid) && self.view.manages(pod)).then_some(pod)
    }

    /// Sees to it that a claim stays for the replacement of a pod: it is the set's, also if it was given to the pod for a deletion that was never
    /// made; and without reuse it is noted, also where it is noted already.
    fn hand_over(&self, claim: &ClaimRecord, pod: &PodRecord) -> Option<Command> {
        let is_given = claim.meta.is_controlled_by(&pod.meta.uid);
        let is_noted = !self.view.clones.reuses_claims;
        if is_given {
            let from = is_noted.then(|| pod.meta.uid.to_string());
            let back = claim::hand_to(claim, &pod.meta.uid, &self.view.owner);
            return Some(with_note(back, claim, from.as_deref()));
        }
        let is_ours = claim.meta.is_controlled_by(&self.view.set.meta.uid);
        (is_ours && is_noted).then(|| note(claim, Some(&pod.meta.uid.to_string())))
    }

    /// Takes back claims of pods that stay after all: they were given to a pod for a deletion that was never made, or that of another pod.
    pub(super) fn spare_claims(&mut self, diff: &Diff) {
        let (view, owner) = (self.view, &self.view.owner);
        let mounts_some = |member: &Member| member.pod().volumes.is_some();
        if view.claims.is_empty() && view.set.spec.claim_templates.is_empty() && !self.members.iter().any(mounts_some) {
            // Most sets have no claims, and are not looked through for any.
            return;
        }
        let going: BTreeSet<&Uid> = self
            .to_go
            .iter()
            .map(|&index| &self.members[index].pod().meta.uid)
            .collect();
        // What goes with a pod that this plan deletes is not taken back in the same breath.
        let written = self.pass.stages.claims.iter().map(|c| c.command.key().clone());
        let written: BTreeSet<_> = written.collect();
        let mut commands = Vec::new();
        let mut replaced = None;
        for pod in &view.pods {
            let scope = || Scope::Named(pod.name().to_owned());
            if pod.is_terminating() && self.hands_over(pod) {
                // They were given to it before they were to be kept: too late, where others have been made in its place.
                let given = view.claims_of_pod(pod).iter().filter(|claim| has(pod, claim));
                let live = given.filter(|claim| claim.meta.deleted.is_none());
                let back: Vec<_> = live
                    .filter_map(|claim| Some((scope(), self.hand_over(claim, pod)?)))
                    .collect();
                let replaced = replaced.get_or_insert_with(|| {
                    let awaited = self.handing_over().len();
                    awaited.saturating_sub(usize::try_from(diff.missing_replicas).unwrap_or(0))
                });
                if *replaced == 0 || back.is_empty() {
                    commands.extend(back);
                } else {
                    *replaced -= 1;
                }
                continue;
            }
            let stays = is_active(pod) && !going.contains(&pod.meta.uid);
            let is_wanted = |claim: &&Arc<ClaimRecord>| {
                let is_live = claim.meta.deleted.is_none() && !written.contains(&claim.meta.key);
                // Only we give claims to pods that mount them by name, so one without an id, which users took off, was ours, too.
                let is_its_own = has(pod, claim) || mounts(pod, claim);
                is_live && (stays && is_its_own || self.others_with(claim, pod).next().is_some())
            };
            for claim in view.claims_of_pod(pod).iter().filter(is_wanted) {
                commands.push((scope(), claim::hand_to(claim, &pod.meta.uid, owner)));
            }
        }
        for pod in view.pods_let_go() {
            for claim in view
                .claims_of_pod(pod)
                .iter()
                .filter(|claim| claim.meta.deleted.is_none() && !written.contains(&claim.meta.key))
            {
                // Whoever deletes the pod that was let go would take it from one of ours.
                let ours = self.others_with(claim, pod).find(|other| view.manages(other));
                if let Some(ours) = ours {
                    let scope = Scope::Named(ours.name().to_owned());
                    commands.push((scope, claim::hand_to(claim, &pod.meta.uid, owner)));
                }
            }
        }
        for (scope, command) in commands {
            let name = command.key().name.to_string();
            if !self.pass.is_backing_off_from_patches(&scope, &name) {
                self.pass.write_claims(&scope, [command]);
            }
        }
    }

    /// Takes the note off claims whose pod stays: the replacement is there, or the pod was not made again after all. Should it be lost one
    /// day, its claims go (CS-15.4).
    pub(super) fn forget_keeping(&mut self) {
        if self.view.clones.reuses_claims {
            return;
        }
        let written = self.pass.stages.claims.iter().map(|c| c.command.key().clone());
        let written: BTreeSet<_> = written.collect();
        let mut commands = Vec::new();
        for claim in self.view.claims.iter().filter(|claim| is_kept(claim)) {
            let stays = |pod: &&Arc<PodRecord>| is_active(pod) && !self.hands_over(pod);
            // Also one that lacks its id, which users took off, and is mounted by name.
            let holder = match id_of(claim) {
                Some(id) => self.holder_of(claim, id),
                None => self.mounting(claim).active.last().copied(),
            };
            if let Some(pod) = holder.filter(|pod| stays(pod) && !written.contains(&claim.meta.key)) {
                commands.push((Scope::Named(pod.name().to_owned()), note(claim, None)));
            }
        }
        self.write_claims(commands);
    }

    /// Adds writes to claims, unless one in the same scope failed a moment ago.
    pub(super) fn write_claims(&mut self, commands: Vec<(Scope, Command)>) {
        for (scope, command) in commands {
            let name = command.key().name.to_string();
            if !self.pass.is_backing_off(&scope, &name) {
                self.pass.write_claims(&scope, [command]);
            }
        }
    }

    fn give_to(&self, claim: &ClaimRecord, pod: &PodRecord) -> Command {
        let owner = controller_ref(Resource::Pods, pod.name(), &pod.meta.uid);
        claim::hand_to(claim, &self.view.set.meta.uid, &owner)
    }

    /// The name that a pod with this id gets from us.
    pub(super) fn name_of(&self, id: &str) -> String {
        format!("{}-{id}", self.view.set.name())
    }

    /// The pod with this id, in whatever phase. Its label says which it is: one that was adopted may have any name. A pod that was let go
    /// may lack the label, and has its name still.
    fn holder(&self, id: &str) -> Option<&'v Arc<PodRecord>> {
        let found = self.pods_with(id).and_then(|sharing| {
            // Of two with one id, that which is there to stay; of two that are not, ours, which we delete.
            let ours = || sharing.all.iter().find(|pod| self.view.manages(pod));
            let stays = || sharing.active.last();
            let found = || stays().or_else(ours).or_else(|| sharing.all.first()).copied();
            *sharing.holder.get_or_init(found)
        });
        let lacks_id = |pod: &&Arc<PodRecord>| pod.label(names::INSTANCE_ID_LABEL).is_none_or(str::is_empty);
        found.or_else(|| self.view.pod(&self.name_of(id)).filter(lacks_id))
    }

    /// The pod of a claim with this id: also one that mounts it, whatever its label says, as that of a pod that was adopted; one that stays
    /// before one that goes or has ended.
    pub(super) fn holder_of(&self, claim: &ClaimRecord, id: &str) -> Option<&'v Arc<PodRecord>> {
        let holder = self.holder(id);
        if holder.is_some_and(|pod| is_active(pod)) {
            return holder;
        }
        let mounting = self.mounting(claim);
        mounting
            .active
            .last()
            .copied()
            .or(holder)
            .or_else(|| mounting.all.last().copied())
    }

    /// Pods that are there to stay, other than this one, and have a claim of ours by their id or by a mount: copies of a pod are such.
    fn others_with(&self, claim: &ClaimRecord, pod: &PodRecord) -> impl Iterator<Item = &'v Arc<PodRecord>> {
        let id = id_of(claim);
        let sharing = id.and_then(|id| self.pods_with(id));
        let with_id = sharing.into_iter().flat_map(|sharing| sharing.active.iter().copied());
        // Who asks whether there is any looks at the first: of pods with the id there may be as many as claims.
        let mounting = std::iter::once(claim).flat_map(|claim| {
            let mounting = self.mounting(claim);
            (0..mounting.active.len()).map(move |place| mounting.active[place])
        });
        with_id.chain(mounting).filter(|other| other.meta.uid != pod.meta.uid)
    }

    /// Pods that may hold claims and have this id, in whatever phase.
    pub(super) fn pods_with(&self, id: &str) -> Option<&Sharing<'v>> {
        let by_id = self.pods_by_id.get_or_init(|| {
            let mut by_id = BTreeMap::<_, Sharing<'v>>::new();
            for pod in self.view.pods_that_may_hold_claims() {
                if let Some(id) = pod.label(names::INSTANCE_ID_LABEL) {
                    by_id.entry(id).or_default().add(pod);
                }
            }
            by_id
        });
        by_id.get(id)
    }

    /// Pods that mount a claim, in whatever phase and whosever they are, ours last: also those that were moved to another controller run on it
    /// (CS-11), and what others mount is theirs as well (CS-15.3 and CS-15.4).
    fn mounting(&self, claim: &ClaimRecord) -> Rc<Sharing<'v>> {
        let mut known = self.mounting.borrow_mut();
        if let Some(found) = known.get(&claim.meta.key) {
            return found.clone();
        }
        let mut pods = self.view.pods_mounting(&claim.meta.key);
        pods.sort_by_key(|pod| self.view.manages(pod));
        let mut sharing = Sharing::default();
        for pod in pods {
            sharing.add(pod);
        }
        let sharing = Rc::new(sharing);
        known.insert(claim.meta.key.clone(), sharing.clone());
        sharing
    }

    /// Claims with an id that are a pod's, whoever they belong to now: those with its own, and those that it mounts, whatever its label
    /// says; and those that were given to it, also where users took the id off. Not claims of its ephemeral volumes.
    fn claims_of(&self, pod: &PodRecord) -> Vec<&'v Arc<ClaimRecord>> {
        let by_id = self.own_id(pod).map_or(&[][..], |id| self.claims_with(id));
        let by_id = by_id.iter().copied();
        let mut claims: Vec<_> = by_id.chain(self.claims_beside_id(pod)).collect();
        claims.retain(|claim| claim.meta.deleted.is_none());
        claims.sort_by_key(|claim| &claim.meta.key.name);
        claims.dedup_by_key(|claim| &claim.meta.uid);
        claims
    }

    /// Of these, such as it mounts or was given, also where they do not have its id; in no order, and some twice.
    fn claims_beside_id(&self, pod: &PodRecord) -> impl Iterator<Item = &'v Arc<ClaimRecord>> {
        let view = self.view;
        // Others may be mounted by all pods.
        let is_ours = move |claim: &&Arc<ClaimRecord>| {
            let owner = claim.meta.controller();
            let of_us_or_a_pod = owner.is_some_and(|o| o.uid == view.set.meta.uid || *o.kind == *Resource::Pods.kind());
            of_us_or_a_pod && id_of(claim).is_some()
        };
        let mounted = pod.claims();
        let mounted = mounted.filter_map(move |(_, name)| view.claim(&name).filter(is_ours));
        // What belongs to the pod otherwise is that of an ephemeral volume: Kubernetes made it, and no claim volume names it.
        let given = view.claims_of_pod(pod).iter();
        let given = given.filter(|claim| id_of(claim).is_some() || mounts(pod, claim));
        mounted.chain(given)
    }

    /// Makes claims that a pod which has not started is missing, as those of StatefulSets are made (STS-1.4.3): the pod came after its
    /// creation had been given up and its claim deleted, or somebody deleted the claim.
    pub(super) fn restore_claims(&mut self) {
        let view = self.view;
        let mut commands = Vec::new();
        // Claim templates of an old revision are read from its record: not for each pod that runs.
        let lacking = |member: &&Member| !member.occupant.doomed && claim::has_to_start(member.pod());
        for member in self.members.iter().filter(lacking) {
            let pod = member.pod();
            let label = pod.revision().unwrap_or_default();
            let own = self.pass.revisions.names.named(view.set.name(), label);
            let templates = self.pass.claim_templates_of(own.unwrap_or(&self.pass.update));
            // Without an id nobody would know whose they are, and they would be deleted as those of no pod.
            let Some(id) = pod.label(names::INSTANCE_ID_LABEL).filter(|id| !id.is_empty()) else {
                continue;
            };
            for (template, name) in claim::missing(pod, &templates, |name| view.claim(name).is_some()) {
                let key = view.set.meta.key.sibling(name);
                let note = [(names::MADE_AS_SURGE, pod.name())];
                let additions = Additions {
                    labels: &[(names::INSTANCE_ID_LABEL, id)],
                    annotations: if member.is_surge { &note } else { &[] },
                };
                let command = claim::create(template, key, &view.set.spec.selector, additions, Some(&view.owner));
                commands.push((member.scope(), pod.name().to_owned(), command));
            }
        }
        for (scope, pod, command) in commands {
            if !self.pass.is_backing_off(&scope, &pod) {
                self.pass.write_claims(&scope, [command]);
            }
        }
    }

    /// Claims of the set with this id.
    pub(super) fn claims_with(&self, id: &str) -> &[&'v Arc<ClaimRecord>] {
        let by_id = self.claims_by_id.get_or_init(|| {
            let mut by_id = ClaimsById::new();
            for claim in &self.view.claims {
                if let Some(id) = id_of(claim) {
                    by_id.entry(id).or_default().push(claim);
                }
            }
            by_id
        });
        by_id.get(id).map_or(&[], Vec::as_slice)
    }

    /// Whether the claims of a pod are for its replacement (CS-15.5). Once its deletion was asked for, the note on the claims says so as well:
    /// whoever takes the mark off a pod that goes already does not keep it.
    pub(super) fn hands_over(&self, pod: &PodRecord) -> bool {
        let was_marked = || {
            let uid = pod.meta.uid.to_string();
            let mut claims = self.claims_beside_id(pod);
            pod.is_terminating() && claims.any(|claim| claim.annotations.get(names::KEPT_FROM) == Some(&*uid))
        };
        self.view.clones.switches.keep_claims_on_recreate
            && !self.is_surge(pod)
            && (marks::is_marked(pod) || was_marked())
    }

    /// Pods that are going and count as replicas no more, and whose claims are for those that replace them: these come when they are gone, under
    /// their ids. With reuse that is every pod whose claims were not given to it, since others deleted it (CS-15.5, R-34), but for the surge,
    /// which has no replacement.
    pub(super) fn handing_over(&self) -> Vec<Arc<PodRecord>> {
        let has_claim = |pod: &PodRecord| {
            let id = pod.label(names::INSTANCE_ID_LABEL);
            // Or one that was given to it before it was to be kept, and that is taken back.
            let is_live = |claim: &&Arc<ClaimRecord>| claim.meta.deleted.is_none() && has(pod, claim);
            let given = || self.view.claims_of_pod(pod).iter().find(is_live);
            id.is_some_and(|id| !self.claims_with(id).is_empty()) || self.hands_over(pod) && given().is_some()
        };
        let reuses = self.view.clones.reuses_claims;
        let is_for_replacement = |pod: &PodRecord| reuses && !self.is_surge(pod) || self.hands_over(pod);
        // Nor is a pod counted that has ended, or waits for its hook where such pods are left out: it has its claims until it is deleted.
        let is_left_out = |pod: &PodRecord| {
            let is_leaving = self.asked.excludes_leaving && State::of(pod) == State::PreparingDelete;
            (is_leaving || pod.is_terminal()) && self.hands_over(pod)
        };
        let pods = self.view.pods.iter();
        let is_going = |pod: &PodRecord| pod.is_terminating() && is_for_replacement(pod) || is_left_out(pod);
        pods.filter(|pod| is_going(pod) && has_claim(pod)).cloned().collect()
    }

    /// Remembers for whose ids replacements wait, for as long as no pod has them again.
    pub(super) fn remember_awaited(&mut self, handing_over: &[Arc<PodRecord>]) {
        let mut awaited = std::mem::take(&mut self.pass.hints.awaited);
        awaited.retain(|id| self.holder(id).is_none() && !self.claims_with(id).is_empty());
        let ids = handing_over
            .iter()
            .filter_map(|pod| pod.label(names::INSTANCE_ID_LABEL));
        awaited.extend(ids.map(str::to_owned));
        self.pass.hints.awaited = awaited;
    }

    /// Whether any pod mounts a claim, in whatever phase, whatever its label says and whether it is ours or nobody's: as long as it is there,
    /// no other can have it (CS-15.3).
    pub(super) fn is_mounted(&self, claim: &ClaimRecord) -> bool {
        !self.mounting(claim).all.is_empty()
    }

    /// Whether a claim that no pod has is for the replacement of one that was made again (CS-15.5).
    pub(super) fn keeps(&self, claim: &ClaimRecord) -> bool {
        let clones = &self.view.clones;
        !clones.reuses_claims && clones.switches.keep_claims_on_recreate && is_kept(claim)
    }

    /// Whether a claim is for the replacement of another pod than this one, which has the claim, too: it is a copy, under another name. The
    /// replacement itself has the name of the former, and the note that has not been taken off yet keeps nothing from it.
    fn keeps_from_another(&self, claim: &ClaimRecord, pod: &PodRecord) -> bool {
        let from = claim.annotations.get(names::KEPT_FROM);
        let is_copy = id_of(claim).is_some_and(|id| *pod.name() != *self.name_of(id));
        is_copy && self.keeps(claim) && from.is_some_and(|from| *from != *pod.meta.uid.to_string())
    }
}

/// A volume that containers of a revision mount and that neither its template nor any claim template gives them (CS-12.5).
pub(super) fn missing_volume(revision: &RevisionRecord, templates: &[ClaimTemplate]) -> Option<String> {
    let template = revision.template.as_ref()?.tree();
    let volumes = template.pointer("/spec/volumes").and_then(Value::as_array);
    let has = |name: &str| {
        let mut volumes = volumes.into_iter().flatten();
        volumes.any(|v| v.get("name").and_then(Value::as_str) == Some(name))
            || templates.iter().any(|t| *t.name == *name)
    };
    let mounted = claim::mounts(&template);
    mounted.into_iter().find(|name| !has(name)).map(str::to_owned)
}

/// The hash of claim templates as OpenKruise records it (CS-12.4); nothing if there are none.
pub(super) fn templates_hash(templates: &[ClaimTemplate]) -> String {
    if templates.is_empty() {
        return String::new();
    }
    let mut sorted: Vec<&ClaimTemplate> = templates.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let rows: Vec<String> = sorted.into_iter().map(|t| row(&t.name, &t.body.tree())).collect();
    containers_meta::hash_of(&format!("[{}]", rows.join(","))).to_string()
}

/// One template in the order of Go's fields, which is not that of letters.
fn row(name: &Arc<str>, template: &Value) -> String {
    const FIELDS: [&str; 9] = [
        "accessModes",
        "selector",
        "resources",
        "volumeName",
        "storageClassName",
        "volumeMode",
        "dataSource",
        "dataSourceRef",
        "volumeAttributesClassName",
    ];
    let spec = template.get("spec").unwrap_or(&Value::Null);
    let part = |field: &&str| {
        let text = match (*field, spec.get(*field).filter(|v| !v.is_null())) {
            ("resources", found) => resources(found.unwrap_or(&Value::Null)),
            // It is defaulted before it is hashed.
            ("volumeMode", None) => "\"Filesystem\"".to_owned(),
            (_, None) => return None,
            (_, Some(value)) => canonical(value),
        };
        Some(format!("\"{field}\":{text}"))
    };
    let parts: Vec<String> = FIELDS.iter().filter_map(part).collect();
    let name = canonical(&Value::from(&**name));
    format!(
        "{{\"metadata\":{{\"name\":{name},\"creationTimestamp\":null}},\"spec\":{{{}}},\"status\":{{}}}}",
        parts.join(",")
    )
}

/// Limits and requests, with quantities in the form in which Go writes them.
fn resources(resources: &Value) -> String {
    let list = |field: &str| {
        let quantities = resources
            .get(field)
            .and_then(Value::as_object)
            .filter(|q| !q.is_empty())?;
        let rows = quantities.iter().map(|(name, quantity)| {
            let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
            format!("\"{name}\":\"{}\"", canonical_quantity(&text).unwrap_or(text))
        });
        Some(format!("\"{field}\":{{{}}}", rows.collect::<Vec<_>>().join(",")))
    };
    let parts: Vec<String> = ["limits", "requests"].iter().filter_map(|f| list(f)).collect();
    format!("{{{}}}", parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(name: &str, mode: &str, size: &str, class: Option<&str>) -> ClaimTemplate {
        let mut body = json!({"metadata": {"name": name}, "spec": {
            "accessModes": [mode], "resources": {"requests": {"storage": size}}, "volumeMode": "Filesystem",
        }});
        if let Some(class) = class {
            body["spec"]["storageClassName"] = json!(class);
        }
        ClaimTemplate::from_json(&body).expect("it has a name")
    }

    #[test]
    fn cs_12_4_hashes_are_those_that_openkruise_recorded() {
        assert_eq!(templates_hash(&[]), "");
        assert_eq!(
            templates_hash(&[template("data", "ReadWriteOnce", "10Gi", None)]),
            "2229933274"
        );
        let two = [
            template("b", "ReadWriteOnce", "1Gi", Some("fast")),
            template("a", "ReadWriteMany", "1024Mi", Some("")),
        ];
        assert_eq!(templates_hash(&two), "3211271935");
    }
}
