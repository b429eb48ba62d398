//! Step *scale*: pods are taken back, made and deleted (CS-13.8 to CS-13.10, CS-14 and CS-15).

use super::claims::{SOON, missing_volume};
use super::diff::Diff;
use super::marks;
use super::plan::{Member, Plan};
use super::rank;
use crate::shared::claim::{self, Additions};
use crate::shared::conditions;
use crate::shared::course::{Held, Trouble};
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

/// How many pods a pass makes at most.
const MOST_CREATIONS: i32 = 1_000;
/// How many pods a wait, or the events of a pass, name.
pub(super) const NAMED: usize = 16;

impl Plan<'_> {
    /// Pods that wait for their hook and are wanted again (CS-14.2): not where a hook takes them out of service.
    pub(super) fn take_back(&mut self) {
        let marks = self.view.set.spec.lifecycle.marks_not_ready();
        if self.is_stopped(Area::Scale) || self.takes_pods() || marks {
            return;
        }
        let goes = |m: &Member| m.is_leaving || m.is_specified && !m.is_spared;
        let stays = |m: &&Member| !m.is_surge && !goes(m);
        let mut lacking = self.asked.replicas - count(self.members.iter().filter(stays).count());
        for member in &mut self.members {
            if lacking <= 0 {
                return;
            }
            if !member.is_leaving || member.was_asked_for || member.is_surge {
                continue;
            }
            if self.pass.is_backing_off(&member.scope(), member.name()) {
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
        let awaited = count(handing_over.len()).min(diff.missing_replicas);
        let missing = (diff.missing - awaited).max(0);
        let create = diff.create.min(missing);
        if create < missing {
            self.say_that_creation_is_limited();
        }
        // Of others it is said for what hook they wait.
        for pod in handing_over.iter().filter(|pod| pod.is_terminating()) {
            let cause = WaitCause::PodTerminating {
                node: pod.node.as_ref().map(ToString::to_string),
                finalizers: Vec::new(),
            };
            self.pass.wait(pod.name().to_owned(), cause, None);
        }
        if create > 0 && self.waits_for_next_start() {
            return;
        }
        let create = create.min(self.most_creations());
        // Those that nobody can make take no name from those that somebody can: a name keeps what is known of its last failure.
        let replicas = (diff.missing_replicas - awaited).min(create);
        let has_templates = !self.view.set.spec.claim_templates.is_empty();
        let surge = if has_templates { create - replicas } else { 0 };
        // Only where pods go back, or users want some deleted, is the surge old.
        let may_be_old = diff.back > 0 || !diff.surge_is_for_update;
        let old = diff.create_old.min(if may_be_old { create } else { create - surge });
        let cannot = if old > 0 && self.says_volume_is_missing() {
            old
        } else {
            0
        };
        let surge = surge.min(create - cannot);
        let mut names = self.names(create - cannot - surge);
        let first_of_surge = names.len();
        names.extend(self.names_of_surge(surge, &names));
        let has_claims = self.templates().next().is_some();
        let most_with_claims = claim::most_new(self.view.pods.len());
        for (place, name) in names.into_iter().enumerate() {
            // Names that only wait use up none of them.
            if has_claims && self.pass.stages.create.len() >= most_with_claims {
                self.pass.wake_within(SOON);
                break;
            }
            let is_old = count(place) < old - cannot;
            let revision = if is_old { &self.pass.current } else { &self.pass.update };
            let revision = revision.clone();
            self.create_one(name, &revision, place >= first_of_surge);
        }
    }

    /// How many pods a pass may make. A quota that has refused a few has no room for others either, whose claims would be made only to be deleted
    /// again.
    fn most_creations(&self) -> i32 {
        let is_missing = |scope: &&Scope| matches!(scope, Scope::Named(name) if !self.view.has_pod(name));
        let refused = self.pass.refused_by_quota().filter(is_missing).count();
        if refused < QUOTA_TRIES {
            MOST_CREATIONS
        } else {
            count(refused).min(MOST_CREATIONS)
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

    pub(super) fn templates(&self) -> impl Iterator<Item = &ClaimTemplate> {
        self.view.set.spec.claim_templates.iter()
    }

    /// Whether the old revision mounts a claim whose template nobody knows any more, which is told.
    fn says_volume_is_missing(&mut self) -> bool {
        let (update, old) = (&self.pass.update, self.pass.current.clone());
        if old.meta.uid == update.meta.uid {
            return false;
        }
        let templates = self.pass.claim_templates_of(&old);
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

    /// One pod with its claims. That it is made as surge is noted on each of them: should the pod be refused, the claims are there by then.
    fn create_one(&mut self, name: String, revision: &Arc<RevisionRecord>, is_surge: bool) {
        let scope = Scope::Named(name.clone());
        let view = self.view;
        let spec = &view.set.spec;
        let templates = self.pass.claim_templates_of(revision);
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
        for template in templates.iter() {
            let claim = claim::claim_name(template, &name);
            if let Some(claim) = view.claim(&claim) {
                if claim.meta.is_controlled_by(&view.set.meta.uid) {
                    self.pass.write_claims(&scope, [claim::take(claim, Report::Take)]);
                }
            } else {
                let key = view.set.meta.key.sibling(claim);
                let note = [(names::MADE_AS_SURGE, name.as_str())];
                let additions = Additions {
                    labels: &[(names::INSTANCE_ID_LABEL, &id)],
                    annotations: if is_surge { &note } else { &[] },
                };
                let command = claim::create(template, key, &spec.selector, additions, Some(&view.owner));
                self.pass.write_claims(&scope, [command]);
            }
        }
        let mut draft = self.draft(name.clone(), revision);
        if is_surge {
            draft.annotations.push((names::MADE_AS_SURGE, name));
        }
        let command = draft.into_command();
        self.pass.stages.create.push(ScopedCommand { scope, command });
    }

    /// Whether pods of a revision are accepted, so that this one may go for one of them.
    pub(super) fn is_accepted(&mut self, index: usize, revision: &Arc<RevisionRecord>) -> bool {
        let (view, wanted) = (self.view, self.asked.replicas);
        let mut others = self.members.iter().enumerate().filter(|(other, _)| *other != index);
        // One that is down takes nothing down, and one that was marked has its mark: they need not wait for others that were, and stay.
        let member = &self.members[index];
        let waits_for_none = !member.is_available() || member.is_specified;
        let is_there = |m: &Member| m.is_plain() || waits_for_none && !m.is_leaving;
        // Whatever else is on its way out may be what went before, or may be taken back in its place.
        let is_whole = || {
            count(self.members.len()) >= wanted
                && others.all(|(_, m)| is_there(m) && m.occupant.stays())
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
        let templates = self.pass.claim_templates_of(revision);
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
        let mut yields = None;
        for index in chosen {
            if self.members[index].is_spared || self.cannot_go_now(index) {
                continue;
            }
            if self.goes_for_what_is_refused(index, diff, &mut yields) {
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

    /// Whether the update has marked a pod for a revision that is not accepted, the template having changed meanwhile; or that one which is
    /// down proves before it.
    /// `yields` says of the whole pass whether there is such a pod, once somebody has asked.
    fn goes_for_what_is_refused(&mut self, index: usize, diff: &Diff, yields: &mut Option<bool>) -> bool {
        let member = &self.members[index];
        let is_for_update =
            member.is_specified && marks::is_marked(member.pod()) && !member.is_new() && !member.is_named;
        if !is_for_update {
            return false;
        }
        let update = self.pass.update.clone();
        if self.members[index].is_available()
            && self.pass.is_open(&update, &self.view.pods)
            && *yields.get_or_insert_with(|| self.one_that_is_down_goes_first(diff))
        {
            return true;
        }
        !self.is_accepted(index, &update)
    }

    /// Whether the deletion of a pod was refused a moment ago, or waits for that of another. Then it is not the one that goes first for a
    /// revision, of which nobody knows yet whether it is accepted: no other could.
    fn cannot_go_now(&mut self, index: usize) -> bool {
        let scope = self.members[index].scope();
        if self.pass.is_backing_off(&scope, self.members[index].name()) {
            return true;
        }
        let waits = self.goes_after_another(self.members[index].pod());
        if waits {
            self.pass.wake_within(SOON);
        }
        waits
    }

    fn indices(&self, of: impl Fn(&Member) -> bool) -> Vec<usize> {
        (0..self.members.len())
            .filter(|index| of(&self.members[*index]))
            .collect()
    }

    /// Plain pods that are too many (CS-13.9): of those that were made as surge whatever is beyond what is needed, then replicas: those that are not
    /// ready where an edit made so many too many, as many old ones as have to be, then whichever are worth least, ready old ones last.
    fn surplus(&self, diff: &Diff) -> Vec<usize> {
        if diff.surplus == 0 {
            // Ranks of a thousand pods cost more than all the rest of a pass.
            return Vec::new();
        }
        let number = |n: i32| usize::try_from(n).unwrap_or(0);
        // Of another revision than any that is asked for, then of the one that is not; then whatever fits, and is beyond what is needed.
        let is_other = |m: &Member| !m.is_new() && !self.is_current(m);
        let is_stale = |m: &Member| !is_other(m) && m.is_new() != (diff.back == 0);
        let mut chosen = self.least(number(diff.surplus_stale), |m| m.is_surge && is_other(m));
        let left = number(diff.surplus_stale) - chosen.len();
        chosen.extend(self.least(left, |m| m.is_surge && is_stale(m)));
        let rest = number(diff.surplus_stale + diff.surplus_surge) - chosen.len();
        let before: BTreeSet<usize> = chosen.iter().copied().collect();
        let fits = self.indices(|m| m.is_plain() && m.is_surge);
        let fits = fits.into_iter().filter(|index| !before.contains(index));
        chosen.extend(self.first(fits.collect(), rest));
        let mut replicas = Vec::new();
        self.choose(&mut replicas, number(diff.surplus_unready), |m| !m.is_ready());
        let is_old = |&&index: &&usize| !self.members[index].is_new();
        let old = count(replicas.iter().filter(is_old).count());
        let new = count(replicas.len()) - old;
        let wanted = number(diff.surplus - diff.surplus_stale - diff.surplus_surge);
        let most = replicas.len() + number(diff.surplus_old - old);
        self.choose(&mut replicas, most.min(wanted), |m| !m.is_new());
        let most = replicas.len() + number(diff.surplus_new - new);
        self.choose(&mut replicas, most.min(wanted), Member::is_new);
        self.choose(&mut replicas, wanted, |m| m.is_new() || !m.is_ready());
        self.choose(&mut replicas, wanted, |_| true);
        chosen.extend(replicas);
        chosen
    }

    /// Adds the replicas of a kind that are worth least, in their order, until so many are chosen.
    fn choose(&self, chosen: &mut Vec<usize>, most: usize, of: impl Fn(&Member) -> bool) {
        if chosen.len() >= most {
            return;
        }
        let before: BTreeSet<usize> = chosen.iter().copied().collect();
        let group = self.indices(|m| m.is_plain() && !m.is_surge && of(m));
        let group = group.into_iter().filter(|index| !before.contains(index));
        chosen.extend(self.first(group.collect(), most - chosen.len()));
    }

    /// So many plain pods of a kind, those that are worth least first.
    fn least(&self, most: usize, of: impl Fn(&Member) -> bool) -> Vec<usize> {
        if most == 0 {
            return Vec::new();
        }
        self.first(self.indices(|m| m.is_plain() && of(m)), most)
    }

    /// The first of a group in the order in which they are deleted (CS-18).
    fn first(&self, mut group: Vec<usize>, most: usize) -> Vec<usize> {
        if group.len() > most {
            rank::sort(self.view, &self.members, &mut group);
            group.truncate(most);
        }
        group
    }

    /// Deletes a pod with its claims, once no hook holds it. `false` if it is backing off from a refusal, or goes after another.
    fn take_away(&mut self, index: usize) -> bool {
        if self.cannot_go_now(index) {
            return false;
        }
        let scope = self.members[index].scope();
        let member = &mut self.members[index];
        member.occupant.doomed = true;
        let pod = member.occupant.pod.clone();
        let only_as_seen = !member.occupant.health.is_available();
        let issued = self.pass.stages.len();
        let is_deleted = self.pass.take_away(&scope, &pod, only_as_seen, Report::Delete);
        self.has_scaled |= self.pass.stages.len() > issued;
        if is_deleted {
            self.condemn_claims(&scope, &pod);
            self.note_deletion(&pod);
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
