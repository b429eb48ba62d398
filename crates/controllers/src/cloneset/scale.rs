//! Step *scale*: pods are taken back, made and deleted (CS-13.8 to CS-13.10, CS-14 and CS-15).

use super::claims::{SOON, is_of_creation, missing_volume};
use super::diff::Diff;
use super::marks;
use super::plan::{Member, Plan};
use super::rank;
use crate::shared::claim;
use crate::shared::conditions;
use crate::shared::course::{Held, Trouble};
use crate::shared::identity::{ID_LENGTH, instance_id};
use crate::shared::inplace::state::whole_seconds;
use crate::shared::lifecycle::{self, State};
use crate::shared::pass::QUOTA_TRIES;
use crate::shared::readiness::{self, PRE_DELETE};
use crate::shared::revision;
use crate::shared::withheld;
use flotilla_api::names;
use flotilla_model::decision::{PodDraft, Report, Scope, ScopedCommand};
use flotilla_model::set::{Area, ClaimTemplate};
use flotilla_model::{PodRecord, RevisionRecord, SetKind, WaitCause};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many ids a pass looks at for each that it needs.
const TRIES: u64 = 64;
/// How many pods a pass makes at most.
const MOST_CREATIONS: i32 = 1_000;
/// How many pods a wait names.
const NAMED: usize = 16;

impl Plan<'_> {
    /// Pods that wait for their hook and are wanted again (CS-14.2): not where a hook takes them out of service.
    pub(super) fn take_back(&mut self) {
        let marks = self.view.set.spec.lifecycle.marks_not_ready();
        if self.is_stopped(Area::Scale) || self.takes_pods() || marks {
            return;
        }
        let goes = |m: &&Member| m.is_leaving || m.is_specified && !m.is_spared;
        let going = self.members.iter().filter(goes).count();
        let staying = count(self.members.len()) - count(going);
        let mut lacking = self.asked.replicas - staying;
        for member in &mut self.members {
            if lacking <= 0 {
                return;
            }
            if !member.is_leaving || member.was_asked_for || self.pass.is_backing_off(&member.scope(), member.name()) {
                continue;
            }
            lacking -= 1;
            self.has_scaled = true;
            member.is_leaving = false;
            member.occupant.is_dealt_with = true;
            let pod = &member.occupant.pod;
            let state = match lifecycle::let_go(&self.view.set.spec.lifecycle, pod) {
                State::Updated => State::Updated,
                _ => State::PreparingNormal,
            };
            let held = Held {
                pod,
                state,
                key: PRE_DELETE,
                marks: false,
                only_as_seen: false,
                metadata: if member.is_spared { marks::unmark() } else { json!({}) },
            };
            self.pass.hold(&member.scope(), held);
        }
    }

    /// Makes what is missing (CS-13.8 and CS-14.3): old pods first, then those of the update revision.
    pub(super) fn create(&mut self, diff: &Diff) {
        if self.is_stopped(Area::Scale) || self.takes_pods() {
            return;
        }
        let handing_over = if diff.missing > 0 {
            self.handing_over()
        } else {
            Vec::new()
        };
        self.remember_awaited(&handing_over);
        // As many replacements are waited for as replicas are missing; growth and surge wait for none.
        let counts = |m: &&Member| !(self.asked.excludes_leaving && m.is_leaving);
        let there = count(self.members.iter().filter(counts).count());
        let to_replace = (self.asked.replicas - there).max(0);
        let awaited = count(handing_over.len()).min(to_replace);
        let missing = (diff.missing - awaited).max(0);
        let create = diff.create.min(missing);
        if create < missing {
            self.say_that_creation_is_limited();
        }
        for pod in &handing_over {
            let node = pod.node.as_ref().map(ToString::to_string);
            self.pass
                .wait(pod.name().to_owned(), WaitCause::PodTerminating { node }, None);
        }
        if create > 0 && self.waits_for_next_start() {
            return;
        }
        // A quota that has refused a few has no room for others either, whose claims would be made only to be deleted again.
        let is_missing = |scope: &&Scope| matches!(scope, Scope::Named(name) if !self.view.has_pod(name));
        let refused = self.pass.refused_by_quota().filter(is_missing).count();
        let most = if refused < QUOTA_TRIES {
            MOST_CREATIONS
        } else {
            count(refused).min(MOST_CREATIONS)
        };
        let create = create.min(most);
        // Those that nobody can make take no name from those that somebody can: a name keeps what is known of its last failure.
        let old = diff.create_old.min(create);
        let cannot = if old > 0 && self.says_volume_is_missing() {
            old
        } else {
            0
        };
        let has_claims = self.templates().next().is_some();
        let most_with_claims = claim::most_new(self.view.pods.len());
        for (place, name) in self.names(create - cannot).into_iter().enumerate() {
            // Names that only wait use up none of them.
            if has_claims && self.pass.stages.create.len() >= most_with_claims {
                self.pass.wake_within(SOON);
                break;
            }
            let is_old = count(place) < old - cannot;
            let revision = if is_old { &self.pass.current } else { &self.pass.update };
            let revision = revision.clone();
            // Of names that only wait none is there yet.
            let made = count(self.pass.stages.create.len());
            let is_beyond = there + awaited + made >= self.asked.replicas;
            let is_surge = is_beyond && !is_old && has_claims && diff.surge_is_for_update && diff.back == 0;
            self.create_one(name, &revision, is_surge);
        }
    }

    /// Whether pods are about to be taken (CS-11): how many are missing, and of which revision, is known when they are here. Whom we
    /// failed to take is not waited for, nor who does not stay taken.
    fn takes_pods(&self) -> bool {
        let hints = &self.pass.hints;
        let may_come = |pod: &PodRecord| {
            let scope = Scope::Named(pod.name().to_owned());
            !hints.failures.contains_key(&scope) && !hints.repeated.contains_key(&scope)
        };
        let mut coming = self.view.to_adopt.iter().filter(|pod| !pod.is_terminal());
        coming.any(|pod| may_come(pod))
    }

    fn say_that_creation_is_limited(&mut self) {
        let held_up = self
            .members
            .iter()
            .filter(|m| m.is_leaving || m.is_plain() && !m.is_available());
        let used_by = held_up.map(|m| m.name().to_owned()).take(NAMED).collect();
        let budget = self.asked.creation.unwrap_or(0);
        let message = format!("no pod is made while {budget} are unavailable (scaleStrategy.maxUnavailable)");
        self.pass.event_once(true, "ScaleUpLimited", message);
        let subject = self.view.set.name().to_owned();
        self.pass
            .wait(subject, WaitCause::ScaleBudget { budget, used_by }, None);
    }

    /// Names for new pods (CS-15.1 and CS-15.3): those whose creation was refused, those of claims that no pod has, new ones.
    fn names(&self, wanted: i32) -> Vec<String> {
        let wanted = usize::try_from(wanted).unwrap_or(0);
        let set = self.view.set.name();
        let used: BTreeSet<&str> = self.ids_in_use().collect();
        let (uid, entropy) = (&self.view.set.meta.uid, self.view.entropy);
        let most = TRIES.saturating_mul(u64::try_from(wanted).unwrap_or(u64::MAX));
        let new = (0..most).map(|n| instance_id(uid, entropy, n));
        let new = new.filter(|id| !used.contains(id.as_str()));
        let is_taken = |name: &String| {
            let has_claim = |t: &ClaimTemplate| self.view.claim(&claim::claim_name(t, name)).is_some();
            self.view.has_pod(name) || self.templates().any(has_claim)
        };
        let new = new.map(|id| format!("{set}-{id}")).filter(|name| !is_taken(name));
        // Nothing is waited for under a name that has nothing worth it.
        let keeps_claims = |name: &String| {
            let mut found = self
                .templates()
                .filter_map(|t| self.view.claim(&claim::claim_name(t, name)));
            found.all(|found| claim::about_to_go(found, name).is_none() && !self.is_mounted(found))
        };
        let refused = self.refused().filter(keeps_claims);
        // A pod of that name may have another id, and mount nothing of these.
        let free = self.free_ids().into_iter().map(|id| self.name_of(&id));
        let free = free.filter(|name| !self.view.has_pod(name));
        let mut known = BTreeSet::new();
        let all = refused.chain(free).chain(new);
        all.filter(|name| known.insert(name.clone())).take(wanted).collect()
    }

    /// Names under which a pod was to be made and was refused.
    fn refused(&self) -> impl Iterator<Item = String> {
        let prefix = format!("{}-", self.view.set.name());
        let hints = &self.pass.hints;
        let failures = hints.failures.iter().chain(&hints.repeated);
        failures.filter_map(move |(scope, failure)| match scope {
            Scope::Named(name) if is_of_creation(failure.attempt) => {
                let is_pod = name.strip_prefix(&prefix).is_some_and(|id| id.len() == ID_LENGTH);
                (is_pod && !self.view.has_pod(name)).then(|| name.clone())
            }
            _ => None,
        })
    }

    /// Ids on any pod or claim of the set, and on pods that nobody manages: copies of ours, or such as we have let go.
    fn ids_in_use(&self) -> impl Iterator<Item = &str> {
        let pods = self
            .view
            .pods_that_may_hold_claims()
            .filter_map(|pod| pod.label(names::INSTANCE_ID_LABEL));
        pods.chain(self.view.claims.iter().filter_map(|claim| super::claims::id_of(claim)))
    }

    fn templates(&self) -> impl Iterator<Item = &ClaimTemplate> {
        self.view.set.spec.claim_templates.iter()
    }

    /// Whether the old revision mounts a claim whose template nobody knows any more, which is told.
    fn says_volume_is_missing(&mut self) -> bool {
        let (update, old) = (&self.pass.update, self.pass.current.clone());
        if old.meta.uid == update.meta.uid {
            return false;
        }
        let templates = claim::templates_of(&self.view.set.spec.claim_templates, &old, update);
        let Some(volume) = missing_volume(&old, &templates) else {
            return false;
        };
        let cause = WaitCause::ClaimTemplateMissing { volume };
        self.pass.troubles.push(Trouble {
            condition: conditions::failed_creation(SetKind::Clone),
            reason: "ClaimTemplateMissing",
            message: format!("revision {}: {cause}", old.name()),
        });
        self.pass.wait(old.name().to_owned(), cause, None);
        true
    }

    /// One pod with its claims; it is noted on the pod that it is made as surge, unless it takes claims that are there.
    fn create_one(&mut self, name: String, revision: &Arc<RevisionRecord>, is_surge: bool) {
        let scope = Scope::Named(name.clone());
        let view = self.view;
        let spec = &view.set.spec;
        let templates = claim::templates_of(&spec.claim_templates, revision, &self.pass.update);
        if self.pass.is_backing_off(&scope, &name) {
            return;
        }
        let mut existing = templates
            .iter()
            .filter_map(|t| view.claim(&claim::claim_name(t, &name)));
        let going = existing.find_map(|found| Some((found, claim::about_to_go(found, &name)?)));
        if let Some((found, cause)) = going {
            let subject = found.meta.key.name.to_string();
            self.pass.wait(subject, cause, found.meta.deleted);
            return;
        }
        self.has_scaled = true;
        let id = name.rsplit_once('-').map_or("", |(_, id)| id).to_owned();
        let mut is_empty = true;
        for template in templates.iter() {
            let claim = claim::claim_name(template, &name);
            if let Some(claim) = view.claim(&claim) {
                is_empty = false;
                if claim.meta.is_controlled_by(&view.set.meta.uid) {
                    self.pass.write_claims(&scope, [claim::take(claim, Report::Take)]);
                }
            } else {
                let key = view.set.meta.key.sibling(claim);
                let label = [(names::INSTANCE_ID_LABEL, id.as_str())];
                let command = claim::create(template, key, &spec.selector, &label, Some(&view.owner));
                self.pass.write_claims(&scope, [command]);
            }
        }
        let mut draft = self.draft(name, revision);
        if is_surge && is_empty {
            draft.annotations.push((names::MADE_AS_SURGE, "true".to_owned()));
        }
        let command = draft.into_command();
        self.pass.stages.create.push(ScopedCommand { scope, command });
    }

    /// Whether pods of a revision are accepted, so that this one may go for one of them.
    pub(super) fn is_accepted(&mut self, index: usize, revision: &Arc<RevisionRecord>) -> bool {
        let (view, wanted) = (self.view, self.asked.replicas);
        let mut others = self.members.iter().enumerate().filter(|(other, _)| *other != index);
        // Whatever else is on its way out may be what went before, or may be taken back in its place.
        let is_whole = || {
            count(self.members.len()) >= wanted
                && others.all(|(_, m)| m.is_plain() && m.occupant.stays())
                && !view.pods.iter().any(|pod| pod.is_terminating())
        };
        match self.pass.may_go_for(revision, &view.pods, is_whole) {
            Some(known) => known,
            None => self.ask(index, revision),
        }
    }

    /// Whether a pod may leave service for its update in place, if it is to.
    pub(super) fn may_leave_service(&mut self, index: usize) -> bool {
        if !self.pass.takes_out_of_service(&self.members[index].occupant) {
            return true;
        }
        let target = self.pass.target.clone();
        match self.pass.may_change_to(&target, &self.view.pods) {
            Some(known) => known,
            None => self.ask(index, &target),
        }
    }

    /// Asks whether pods of a revision are accepted, unless that is being asked. No pod goes for it yet.
    fn ask(&mut self, index: usize, revision: &Arc<RevisionRecord>) -> bool {
        // Until the answer is there it stays as it is: out of service, if it has been prepared.
        self.members[index].occupant.is_dealt_with = true;
        if !self.pass.is_untried(revision) {
            return false;
        }
        for name in self.names(1) {
            let pod = self.draft(name, revision);
            self.pass.try_pod(revision, pod);
        }
        false
    }

    /// A pod of this name, as it is made from a revision.
    fn draft(&self, name: String, revision: &RevisionRecord) -> PodDraft {
        let spec = &self.view.set.spec;
        let templates = claim::templates_of(&spec.claim_templates, revision, &self.pass.update);
        let claims = templates.iter().map(|t| (t.name.clone(), claim::claim_name(t, &name)));
        let claims = claims.collect();
        let id = name.rsplit_once('-').map_or("", |(_, id)| id).to_owned();
        let set = &self.view.set;
        let template = revision.template.as_ref().unwrap_or(&set.spec.template);
        let tree = template.tree();
        let state = lifecycle::of_new(&set.spec.lifecycle, &tree);
        let (label, _) = revision::labels(SetKind::Clone, revision);
        let hash = revision::short(&label).to_owned();
        let is_short = self.view.defaults.short_hash && revision::is_named(set.name(), revision, &hash);
        let label = if is_short { hash.clone() } else { label };
        let labels = vec![
            (names::INSTANCE_ID_LABEL, id),
            (names::TEMPLATE_HASH_LABEL, hash),
            (names::REVISION_LABEL, label),
            (names::MADE_AS_LABEL, claim::made_as(revision.name(), &templates)),
            (names::LIFECYCLE_STATE_LABEL, state.name().to_owned()),
        ];
        PodDraft {
            key: set.meta.key.sibling(name),
            generate_name: format!("{}-", set.name()).into(),
            withheld: withheld::of(SetKind::Clone, template, &spec.selector),
            template: tree,
            labels,
            annotations: vec![(names::LIFECYCLE_TIMESTAMP, whole_seconds(self.view.now))],
            gates: readiness::gates_of_new(set),
            owner: Arc::new(self.view.owner.clone()),
            host: None,
            claims,
        }
    }

    /// Deletes pods (CS-13.9, CS-13.10 and CS-14.4 to CS-14.7): those that wait for their hook as soon as it lets them go, then, within the
    /// budget, those that were asked for, then those that are too many.
    pub(super) fn delete(&mut self, diff: &Diff) {
        if self.is_stopped(Area::ScaleDown) {
            return;
        }
        let leaving: Vec<usize> = self.indices(|m| m.is_leaving);
        self.to_go.extend(&leaving);
        for index in leaving {
            if !self.members[index].is_spared {
                self.take_away(index);
            }
        }
        let mut specified = self.indices(|m| m.is_specified);
        rank::sort(self.view, &self.members, &mut specified);
        specified.sort_by_key(|&index| (self.members[index].is_ready(), self.members[index].is_available()));
        let chosen: Vec<usize> = specified.into_iter().chain(self.surplus(diff)).collect();
        self.to_go.extend(&chosen);
        let keep = self.asked.keep();
        let mut available = count(self.members.iter().filter(|m| m.is_available()).count());
        let mut ready = count(self.members.iter().filter(|m| m.is_ready()).count());
        for index in chosen {
            if self.members[index].is_spared || self.goes_for_what_is_refused(index) {
                continue;
            }
            let member = &self.members[index];
            let (is_ready, is_available) = (member.is_ready(), member.is_available());
            let may_go = match (is_ready, is_available) {
                (false, _) => true,
                (true, false) => ready > keep,
                (true, true) => available > keep,
            };
            if !may_go {
                let pod = member.name().to_owned();
                let held = if is_available { available } else { ready };
                self.pass
                    .wait(pod, WaitCause::KeepsAvailable { keep, available: held }, None);
            } else if self.take_away(index) {
                available -= i32::from(is_available);
                ready -= i32::from(is_ready);
            }
        }
        self.delete_finished();
    }

    /// Whether the update has marked a pod for a revision that is not accepted, the template having changed meanwhile.
    fn goes_for_what_is_refused(&mut self, index: usize) -> bool {
        let member = &self.members[index];
        let (pod, named) = (member.pod(), &self.view.clones.pods_to_delete);
        let is_for_update =
            member.is_specified && marks::is_marked(pod) && !member.is_new() && !named.iter().any(|n| n == pod.name());
        is_for_update && !self.is_accepted(index, &self.pass.update.clone())
    }

    fn indices(&self, of: impl Fn(&Member) -> bool) -> Vec<usize> {
        (0..self.members.len())
            .filter(|index| of(&self.members[*index]))
            .collect()
    }

    /// Plain pods that are too many (CS-13.9): those that were made as surge and have stored the least, those that are not ready where an
    /// edit made so many too many, as many old ones as have to be, then whichever are worth least, ready old ones last.
    fn surplus(&self, diff: &Diff) -> Vec<usize> {
        let wanted = usize::try_from(diff.surplus).unwrap_or(0);
        if wanted == 0 {
            // Ranks of a thousand pods cost more than all the rest of a pass.
            return Vec::new();
        }
        let mut chosen = self.youngest_surge(diff.surplus_surge);
        let unready = usize::try_from(diff.surplus_unready).unwrap_or(0);
        self.choose(&mut chosen, unready, |m| !m.is_ready() && !m.keeps_claims);
        let (mut old, mut new) = (diff.surplus_old, diff.surplus_new);
        for &index in &chosen {
            *(if self.members[index].is_new() {
                &mut new
            } else {
                &mut old
            }) -= 1;
        }
        // Those first whose update would not leave them their claims.
        for keeps_claims in [false, true] {
            let most = chosen.len() + usize::try_from(old).unwrap_or(0);
            let before = chosen.len();
            self.choose(&mut chosen, most.min(wanted), |m| {
                !m.is_new() && m.keeps_claims == keeps_claims
            });
            old -= count(chosen.len() - before);
        }
        let most = chosen.len() + usize::try_from(new).unwrap_or(0);
        self.choose(&mut chosen, most.min(wanted), Member::is_new);
        self.choose(&mut chosen, wanted, |m| m.is_new() || !m.is_ready());
        self.choose(&mut chosen, wanted, |_| true);
        chosen
    }

    /// Adds the plain pods of a kind that are worth least, in their order, until so many are chosen.
    fn choose(&self, chosen: &mut Vec<usize>, most: usize, of: impl Fn(&Member) -> bool) {
        if chosen.len() >= most {
            return;
        }
        let before: BTreeSet<usize> = chosen.iter().copied().collect();
        let mut group = self.indices(|m| m.is_plain() && of(m));
        group.retain(|index| !before.contains(index));
        if chosen.len() + group.len() > most {
            rank::sort(self.view, &self.members, &mut group);
            group.truncate(most - chosen.len());
        }
        chosen.extend(group);
    }

    /// So many of the pods that were made as surge, the youngest first.
    fn youngest_surge(&self, wanted: i32) -> Vec<usize> {
        let wanted = usize::try_from(wanted).unwrap_or(0);
        if wanted == 0 {
            return Vec::new();
        }
        let mut group = self.indices(|m| m.is_plain() && m.was_made_as_surge());
        group.sort_by_key(|&index| {
            let pod = self.members[index].pod();
            (std::cmp::Reverse(pod.meta.created), pod.name())
        });
        group.truncate(wanted);
        group
    }

    /// Deletes a pod with its claims, once no hook holds it. `false` if it is backing off from a refusal, or goes after another.
    fn take_away(&mut self, index: usize) -> bool {
        let scope = self.members[index].scope();
        if self.pass.is_backing_off(&scope, self.members[index].name()) {
            return false;
        }
        if self.goes_after_another(self.members[index].pod()) {
            self.pass.wake_within(SOON);
            return false;
        }
        let member = &mut self.members[index];
        member.occupant.doomed = true;
        let pod = member.occupant.pod.clone();
        let only_as_seen = !member.occupant.health.is_available();
        let issued = self.pass.stages.len();
        let is_deleted = self.pass.take_away(&scope, &pod, only_as_seen, Report::Delete);
        self.has_scaled |= self.pass.stages.len() > issued;
        if is_deleted {
            self.condemn_claims(&scope, &pod);
            self.deleted.insert(pod.meta.uid.clone());
        }
        true
    }

    /// Pods that have ended: those that were asked for (CS-14.1), which cost no budget, and all of them where that was opted in to, as soon
    /// as there are enough others.
    fn delete_finished(&mut self) {
        let (view, wanted) = (self.view, self.asked.replicas);
        let takes_all = view.clones.switches.delete_finished && count(self.members.len()) >= wanted;
        let named: BTreeSet<&str> = view.clones.pods_to_delete.iter().map(String::as_str).collect();
        for pod in view.pods.iter().filter(|p| p.is_terminal() && !p.is_terminating()) {
            let was_asked_for = named.contains(pod.name()) || pod.label(names::SPECIFIED_DELETE_LABEL).is_some();
            let scope = Scope::Named(pod.name().to_owned());
            if !(takes_all || was_asked_for) || self.pass.is_backing_off(&scope, pod.name()) {
                continue;
            }
            if self.goes_after_another(pod) {
                // What it has been given goes with the other, should both deletions succeed.
                self.pass.wake_within(SOON);
                continue;
            }
            let is_deleted = self.pass.take_away(&scope, pod, false, Report::Delete);
            // Without reuse they belong to the pod already, and go with it (CS-15.4), unless they are for its replacement, which is noted.
            if is_deleted && was_asked_for && (view.clones.reuses_claims || self.hands_over(pod)) {
                self.condemn_claims(&scope, pod);
            }
        }
    }
}

/// A number of pods.
pub(super) fn count(pods: usize) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}
