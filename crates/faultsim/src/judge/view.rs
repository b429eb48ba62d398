//! Decisions, judged by what their controller saw.

use super::switched::Seen;
use super::{
    Places, Verdict, Violation, budget_of, is_available, is_classic, let_go, needs, ordinal_in, overdue, partition_of,
    place_of, require, unordered,
};
use crate::asks::is_to_be_made_again;
use crate::claim_templates::{has_others, makes_claims_of};
use crate::containers::comes_after_resources;
use crate::defect::says;
use crate::environment::changes_environment;
use crate::in_place::{
    GATE, HOOK_GATE, adds, begins_update, changes_resources_alone, is_in_service, lacks_resources, new_image,
    new_revision, notes_restart, state,
};
use crate::kept_ready::should_have_stayed;
use crate::notes::is_unreadable;
use crate::resizes::is_infeasible;
use crate::storage::{is_grown, may_restart};
use crate::switches::Switch;
use flotilla_model::decision::{Scope, Subresource};
use flotilla_model::template::Digest;
use flotilla_model::{
    Body, Command, Decision, Hints, ObjectKey, PodRecord, Reader, Resource, SetRecord, Timestamp, Uid, WaitCause,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How many ordinals a violation names.
const NAMED: usize = 10;

/// A decision with what it was made from.
pub(crate) struct Sight<'a> {
    pub(crate) set: &'a SetRecord,
    pub(crate) reader: &'a dyn Reader,
    /// The manager's clock.
    pub(crate) now: Timestamp,
    /// What earlier passes remembered.
    pub(crate) hints: &'a Hints,
    /// Since when the manager has been watching.
    pub(crate) observing_since: Timestamp,
    /// Which revisions pods had when earlier passes saw them.
    pub(crate) seen: &'a Seen,
    /// Whether the set declares the type OnDelete.
    pub(crate) is_on_delete: bool,
    /// Whether gate `PreparingUpdateAsUpdate` is on.
    pub(crate) prepared_as_updated: bool,
}

impl Sight<'_> {
    /// Judges a decision.
    pub(crate) fn judge(&self, decision: &Decision) -> Verdict {
        let set = self.set;
        let acts = decision.commands().any(|c| !matches!(c.command, Command::Read { .. }));
        require(
            !(acts && set.is_deleted()),
            "STS-2.3 step 6, set under deletion",
            || format!("commands for set {} which is being deleted", set.name()),
        )?;
        let mut created = BTreeSet::new();
        let mut claims = BTreeSet::new();
        let mut deleted: Vec<&Arc<PodRecord>> = Vec::new();
        let mut begun = BTreeSet::new();
        let mut made = Vec::new();
        for scoped in decision.commands() {
            match &scoped.command {
                Command::Create {
                    resource: Resource::Claims,
                    key,
                    ..
                } => drop(claims.insert(key.clone())),
                Command::Create {
                    resource: Resource::Pods,
                    key,
                    body,
                    ..
                } => {
                    require(created.insert(key.clone()), "STS-I1 one pod per ordinal", || {
                        format!("{} is created twice in one decision", key.name)
                    })?;
                    made.extend(self.creation(key, body, &claims)?);
                }
                Command::Delete {
                    resource: Resource::Pods,
                    key,
                    uid,
                    resource_version,
                    ..
                } => deleted.push(self.as_seen(key, uid, *resource_version)?),
                Command::Patch {
                    resource: Resource::Pods,
                    key,
                    body,
                    ..
                } => {
                    self.pod_patch(key, body)?;
                    // One whose gate nobody has seen yet leaves service, or one whose hook takes it out first, and is changed by the next
                    // decision.
                    if begins_update(body) || says(body, GATE, "False") || says(body, HOOK_GATE, "False") {
                        begun.insert(key);
                    }
                }
                _ => {}
            }
        }
        leaves_for_a_reason(self, decision)?;
        self.records_what_there_is(decision)?;
        self.claims_are_of_their_time(decision)?;
        self.heeds_refused_resizes(decision)?;
        self.heeds_unreadable_notes(decision)?;
        self.claims_go_with_pods(decision)?;
        self.labels_claims_where_asked(decision)?;
        self.budgets_are_used(decision)?;
        self.restarts_for_a_reason(&deleted)?;
        self.goes_in_place_where_it_can(&deleted)?;
        self.scale_down(&deleted)?;
        self.keeps_as_many_as_it_should(&made)?;
        self.takes_those_that_go_first(decision, &deleted, &begun)?;
        self.heeds_switches(decision, &deleted, &begun)?;
        self.update(decision, &deleted, &begun)
    }

    /// The pod that is deleted, if it was seen as the deletion names it.
    fn as_seen(&self, key: &ObjectKey, uid: &Uid, version: Option<u64>) -> Result<&Arc<PodRecord>, Violation> {
        let seen = self.reader.pod(key);
        let seen = seen.filter(|pod| pod.meta.uid == *uid && Some(pod.meta.resource_version) == version);
        seen.ok_or_else(|| {
            Violation::new(
                "STS-1.6 preconditions",
                format!("{} is deleted as it was not seen", key.name),
            )
        })
    }

    fn budgets_are_used(&self, decision: &Decision) -> Verdict {
        self.budget_is_used(decision)?;
        self.scale_budget_is_used(decision)
    }

    /// What is said to use the update's budget is not available, or goes down by this very decision: not a pod whose resources change
    /// without a restart (R-2 and STS-8.18).
    fn budget_is_used(&self, decision: &Decision) -> Verdict {
        let users = decision.waits.iter().filter_map(|wait| match &wait.cause {
            WaitCause::UpdateBudget { used_by, .. } => Some(used_by),
            _ => None,
        });
        for name in users.flatten() {
            let is_touched =
                decision.commands().any(|c| c.command.key().name == *name) || makes_claims_of(decision, name);
            let ordinal = ordinal_in(name, self.set.name());
            let pod = ordinal.and_then(|ordinal| self.pod(ordinal));
            // One whose gate is closed is not, though the kubelet may not have said so yet.
            let is_up = pod.is_some_and(|pod| is_in_service(pod) && is_available(pod, self.set, self.now));
            require(
                is_touched || !is_up || self.has_to_grow(name),
                "STS-8.18 budget",
                || format!("the budget is said to be used up by {name}, which is available"),
            )?;
        }
        Ok(())
    }

    /// What is said to use the budget of scaling is on its way up for the first time: not a pod that was up and is broken, whatever is
    /// remembered of it (STS-3.5, R-5).
    fn scale_budget_is_used(&self, decision: &Decision) -> Verdict {
        let users = decision.waits.iter().filter_map(|wait| match &wait.cause {
            WaitCause::ScaleBudget { used_by, .. } => Some(used_by),
            _ => None,
        });
        for name in users.flatten() {
            let pod = self.reader.pod(&self.set.meta.key.sibling(name.as_str()));
            // With hooks, a pod may have been ready without being let in.
            let tells = self.set.spec.min_ready.is_zero() && self.set.spec.lifecycle.is_empty();
            let was_up = tells && pod.is_some_and(|pod| pod.has_been_ready);
            require(!was_up, "STS-3.5 scale budget", || {
                format!("the budget of scaling is said to be used up by {name}, which was up")
            })?;
        }
        Ok(())
    }

    pub(super) fn pod(&self, ordinal: i64) -> Option<&Arc<PodRecord>> {
        let key = self.set.meta.key.sibling(format!("{}-{ordinal}", self.set.name()));
        let pod = self.reader.pod(&key)?;
        let fits = self.set.spec.selector.matches(|label| pod.label(label));
        Some(pod).filter(|pod| fits && pod.meta.is_controlled_by(&self.set.meta.uid))
    }

    /// Wanted ordinals that have a pod, ascending.
    pub(super) fn wanted_pods(&self) -> Vec<(i64, &Arc<PodRecord>)> {
        let own = self.reader.pods_of(self.set.as_owner()).iter();
        let ordinals = own.filter_map(|pod| ordinal_in(pod.name(), self.set.name()));
        let wanted = Places::of(self.set).among(ordinals).into_iter();
        wanted
            .filter_map(|ordinal| Some((ordinal, self.pod(ordinal)?)))
            .collect()
    }

    /// Whether a pod is ready, and nothing keeps it out of service, for however long.
    pub(super) fn serves(&self, pod: &PodRecord) -> bool {
        let is_ready = !pod.is_terminating() && pod.available_in(Duration::ZERO, self.now).is_some();
        let gate = pod.detail.as_ref().and_then(|d| d.in_place_ready.as_ref());
        // Where a hook follows an update, other resources show in its state, too, and take nobody out of service (STS-8.18).
        let is_resized = || state(pod) == "Updating" && changes_resources_alone(pod);
        let is_in_state = matches!(state(pod), "Normal" | "") || is_resized();
        is_ready && gate.is_none_or(|gate| gate.is_true) && is_in_state
    }

    /// Pods that are ready, and not available yet, serve: of these, too, no more go than the budget allows (no pod is taken down for
    /// nothing).
    fn takes_few_that_serve(&self, deleted: &[&Arc<PodRecord>]) -> Verdict {
        let set = self.set;
        let wanted = Places::of(set);
        let is_wanted = |pod: &PodRecord| ordinal_in(pod.name(), set.name()).is_some_and(|o| wanted.contains(o));
        let go: Vec<_> = deleted
            .iter()
            .filter(|pod| is_wanted(pod) && self.serves(pod))
            .collect();
        let lowest = go.iter().filter_map(|pod| ordinal_in(pod.name(), set.name())).min();
        let go = go.len();
        if go == 0 || self.recreates() || is_classic(set) {
            return Ok(());
        }
        let there = self.wanted_pods();
        let idle = there.iter().filter(|(_, pod)| !self.serves(pod)).count();
        // In order, those that are to be made after a pod wait for that pod: they cannot be what it waits for.
        let below = lowest.filter(|_| set.spec.is_monotonic());
        let missing = match below.and_then(|lowest| wanted.place_of(lowest)) {
            Some(place) => place - there.iter().filter(|(ordinal, _)| Some(*ordinal) < below).count(),
            None => wanted.len() - there.len(),
        };
        let down = idle + missing;
        let budget = budget_of(set);
        require(go + down <= budget, "STS-I2 budget, of pods that are ready", || {
            format!("{go} pods that serve go while {down} do not; the budget is {budget}")
        })
    }

    pub(super) fn is_up(&self, ordinal: i64) -> bool {
        self.pod(ordinal)
            .is_some_and(|pod| is_available(pod, self.set, self.now))
    }

    /// Whether a claim of a pod has yet to grow: that is waited for, and counts as if the pod were not available (STS-3.9).
    pub(super) fn has_to_grow(&self, pod: &str) -> bool {
        let spec = &self.set.spec;
        spec.expand_claims
            && spec.claim_templates.iter().any(|template| {
                let claim = self
                    .reader
                    .claim(&self.set.meta.key.sibling(format!("{}-{pod}", template.name)));
                claim.is_some_and(|claim| !is_grown(claim, template))
            })
    }

    /// Whether a pod's label says already what its resources will never be: the API server has refused them. Or nobody knows what it
    /// lacks.
    pub(super) fn is_given_up(&self, pod: &PodRecord) -> bool {
        let slot = ordinal_in(pod.name(), self.set.name()).map(Scope::Slot);
        let is_refused = slot.is_some_and(|slot| self.hints.failures.contains_key(&slot));
        is_infeasible(pod) || is_unreadable(pod) || lacks_resources(pod) && is_refused
    }

    /// A pod that is wanted and up to date goes only for its file system (STS-3.9, R-16), or for resources that it was refused.
    fn restarts_for_a_reason(&self, deleted: &[&Arc<PodRecord>]) -> Verdict {
        let is_wanted = |pod: &PodRecord| {
            ordinal_in(pod.name(), self.set.name())
                .and_then(|o| place_of(o, self.set))
                .is_some()
        };
        for pod in deleted {
            let is_asked_for = is_to_be_made_again(pod, self.set)
                || self.is_given_up(pod)
                || overdue::may_be_made_again(pod, self.set, self.now);
            if pod.is_terminal() || !is_wanted(pod) || self.is_old(pod) || is_asked_for || !self.set.spec.expand_claims
            {
                continue;
            }
            let is_due = pod.claims().any(|(_, claim)| {
                let claim = self.reader.claim(&pod.meta.key.sibling(claim));
                let since = claim.and_then(|claim| claim.resize_pending_since);
                since.is_some_and(|since| may_restart(self.set, pod, since, self.now))
            });
            require(is_due, "STS-3.9 file systems", || {
                format!(
                    "{} is deleted, is up to date, and no file system needs that yet",
                    pod.name()
                )
            })?;
        }
        Ok(())
    }

    pub(super) fn digest_of(&self, revision: &str) -> Option<Digest> {
        let key = self.set.meta.key.sibling(revision);
        self.reader.revision(&key).map(|r| r.digest)
    }

    /// Whether a pod has to be made again: it is not at the update revision, or has other claims than its set asks for today (STS-8.6).
    pub(super) fn is_old(&self, pod: &PodRecord) -> bool {
        self.is_of_old_revision(pod) || has_others(pod, self.set)
    }

    pub(super) fn is_of_old_revision(&self, pod: &PodRecord) -> bool {
        pod.revision().and_then(|name| self.digest_of(name)) != Some(self.set.spec.template_digest)
    }

    /// A new pod, and its revision.
    fn creation<'b>(
        &self,
        key: &ObjectKey,
        body: &'b Body,
        new_claims: &BTreeSet<ObjectKey>,
    ) -> Result<Option<&'b str>, Violation> {
        let set = self.set;
        let name = &key.name;
        let place = ordinal_in(name, set.name()).and_then(|ordinal| place_of(ordinal, set));
        let Some(place) = place else {
            return Err(Violation::new(
                "STS-I5 wanted ordinals",
                format!("{name} is created and not wanted"),
            ));
        };
        require(self.reader.pod(key).is_none(), "STS-I1 one pod per ordinal", || {
            format!("{name} is created while a pod of that name is seen")
        })?;
        if set.spec.is_monotonic() {
            for lower in Places::of(set).iter().take(place) {
                require(self.is_up(lower), "STS-I3 ordered creation", || {
                    format!("{name} is created while {}-{lower} is not available", set.name())
                })?;
            }
        }
        let Body::Pod(draft) = body else { return Ok(None) };
        needs::new_pod(set, draft)?;
        self.mounts_its_claims(draft)?;
        for (_, claim) in &draft.claims {
            let claim_key = key.sibling(claim.as_str());
            let found = self.reader.claim(&claim_key);
            require(
                found.is_some() || new_claims.contains(&claim_key),
                "STS-1.4.3 claims first",
                || format!("{name} is created, and {claim} neither is seen nor comes before"),
            )?;
            require(
                found.is_none_or(|c| c.meta.deleted.is_none()),
                "STS-1.4.3 claim under deletion",
                || format!("{name} is created although {claim} is on its way out"),
            )?;
            found.map_or(Ok(()), |claim| self.mounts_what_stays(name, claim))?;
        }
        let revision = draft.labels.iter().find(|(key, _)| *key == "controller-revision-hash");
        let revision = revision.map_or("", |(_, value)| value);
        self.revision_of_new_pod(name, place, revision)?;
        Ok(Some(revision))
    }

    /// Below the partition the current revision, elsewhere the update revision (STS-2.4 and STS-3.6).
    fn revision_of_new_pod(&self, pod: &str, place: usize, revision: &str) -> Verdict {
        let spec = &self.set.spec;
        if self.comes_as_it_was(pod, revision)? || unordered::is_unordered(self.set) {
            return Ok(());
        }
        let is_updated = self.digest_of(revision) == Some(spec.template_digest);
        let current = self.set.status_text("currentRevision");
        let keeps = !self.is_on_delete && place < partition_of(self.set);
        if keeps && self.digest_of(current).is_some() {
            return require(revision == current, "STS-I4 partition", || {
                format!("{pod} is below the partition, and is created at {revision} instead of {current}")
            });
        }
        require(is_updated || keeps, "STS-I4 partition", || {
            format!("{pod} is not below the partition, and is created at {revision}, which is old")
        })
    }

    /// A pod is released only if it does not match, and adopted only if it does.
    fn pod_patch(&self, key: &ObjectKey, body: &serde_json::Value) -> Verdict {
        if body.pointer("/metadata/ownerReferences").is_none() {
            let pod = self.reader.pod(key);
            let Some(pod) = pod else { return Ok(()) };
            needs::stays_in_its_state(self.set, pod, body)?;
            return let_go::comes_back_with_its_markers(self.set, pod, body);
        }
        let Some(pod) = self.reader.pod(key) else {
            return require(false, "STS-1.2 claiming", || {
                format!("{} is claimed or released unseen", key.name)
            });
        };
        let fits = self.set.spec.selector.matches(|label| pod.label(label))
            && ordinal_in(&key.name, self.set.name()).is_some();
        let is_ours = pod.meta.is_controlled_by(&self.set.meta.uid);
        require(
            fits != is_ours && (is_ours || pod.meta.controller().is_none()),
            "STS-1.2 claiming",
            || {
                format!(
                    "{}: fits the set: {fits}, is the set's: {is_ours}, and its owner is changed",
                    key.name
                )
            },
        )
    }

    /// Under OrderedReady the highest pod goes first, one at a time, when those that stay are well (STS-2.3 step 9).
    fn scale_down(&self, deleted: &[&Arc<PodRecord>]) -> Verdict {
        let set = self.set;
        let unwanted = |pod: &PodRecord| {
            let ordinal = ordinal_in(pod.name(), set.name());
            ordinal.filter(|ordinal| place_of(*ordinal, set).is_none())
        };
        // Recreate lets all old ones go at once, also those that are not wanted (STS-2.6).
        let goes_in_order = |pod: &PodRecord| !self.recreates() || !self.is_old(pod);
        let going: Vec<i64> = deleted
            .iter()
            .filter(|pod| goes_in_order(pod))
            .filter_map(|pod| unwanted(pod))
            .collect();
        let is_read = |path: &str| !set.spec.problems.iter().any(|problem| problem.path.starts_with(path));
        require(
            going.is_empty() || is_read("spec.reserveOrdinals"),
            "STS-3.4 unreadable reservations",
            || format!("ordinals {going:?} go while nobody can read which are reserved"),
        )?;
        if going.is_empty() || !set.spec.is_monotonic() {
            return Ok(());
        }
        let all = self.reader.pods_of(set.as_owner()).iter();
        let matching = all.filter(|pod| set.spec.selector.matches(|label| pod.label(label)));
        let highest = matching.filter_map(|pod| unwanted(pod)).max();
        require(
            going.len() == 1 && going.first() == highest.as_ref(),
            "STS-I3 ordered scale-down",
            || format!("ordinals {going:?} go while the highest that is not wanted is {highest:?}"),
        )?;
        let unwell = Places::of(set).iter().find(|ordinal| !self.is_up(*ordinal));
        let unwell = unwell.filter(|_| !Switch::IgnoreUnhealthy.is_on(set));
        require(unwell.is_none(), "STS-2.3 step 9, ordered scale-down", || {
            format!(
                "ordinal {} goes while {unwell:?}, which is wanted, is not available",
                going[0]
            )
        })
    }

    /// Whether something was refused of this slot a moment ago. It waits by itself then; only where pods go in order do others wait for it
    ///
    pub(super) fn waits_alone(&self, ordinal: i64) -> bool {
        let failure = self.hints.failures.get(&Scope::Slot(ordinal));
        let is_in_order = self.set.spec.is_monotonic() || is_classic(self.set);
        !is_in_order && failure.is_some_and(|failure| failure.retry_at > self.now)
    }

    /// Old pods go within the budget, from the highest down (STS-2.5, STS-3.7). Those above may be changed in place, or be held by a hook.
    fn update(&self, decision: &Decision, deleted: &[&Arc<PodRecord>], begun: &BTreeSet<&ObjectKey>) -> Verdict {
        let set = self.set;
        let place = |pod: &PodRecord| ordinal_in(pod.name(), set.name()).and_then(|ordinal| place_of(ordinal, set));
        // Recreate knows no budget: old and new never overlap.
        let is_rolled = |pod: &PodRecord| !self.recreates() || !self.is_old(pod);
        let updated = deleted.iter().filter(|pod| !pod.is_terminal() && is_rolled(pod));
        let mut places: Vec<(usize, bool)> = updated
            .clone()
            .filter_map(|pod| Some((place(pod)?, is_available(pod, set, self.now))))
            .collect();
        places.sort_unstable();
        self.takes_few_that_serve(deleted)?;
        let costly = places.iter().filter(|(_, available)| *available).count();
        let Some(first) = places.iter().find(|(_, available)| *available).map(|(place, _)| *place) else {
            return Ok(());
        };
        let from = if is_classic(set) { first } else { 0 };
        let wanted = Places::of(set);
        let there = self.wanted_pods();
        let is_above = |ordinal: i64, above: usize| wanted.place_of(ordinal) >= Some(above);
        let is_up = |pod: &PodRecord| is_available(pod, set, self.now);
        let up = there
            .iter()
            .filter(|(ordinal, pod)| is_above(*ordinal, from) && is_up(pod));
        let (down, budget) = (wanted.len() - from - up.count(), budget_of(set));
        require(costly + down <= budget, "STS-I2 budget", || {
            let named = wanted.from(from).filter(|ordinal| !self.is_up(*ordinal));
            let named: Vec<i64> = named.take(NAMED).collect();
            format!("{costly} available pods go while {down}, as {named:?}, are not available; the budget is {budget}")
        })?;
        // What users ask to have made again goes in no order, nor does what leads nowhere (STS-3.7).
        let has_a_turn = |pod: &PodRecord| !is_to_be_made_again(pod, set) && !self.is_given_up(pod);
        let in_order = updated.filter(|pod| has_a_turn(pod) && is_available(pod, set, self.now));
        let lowest = in_order.filter_map(|pod| place(pod)).min();
        let Some(lowest) = lowest.filter(|_| !unordered::is_unordered(set)) else {
            return Ok(());
        };
        for (ordinal, pod) in there.into_iter().filter(|(ordinal, _)| is_above(*ordinal, lowest + 1)) {
            let above = wanted.place_of(ordinal);
            let stays = Some(pod).filter(|pod| {
                let is_prepared = ["PreparingUpdate", "PreparingDelete"].contains(&state(pod));
                let goes = is_prepared
                    || begun.contains(&pod.meta.key)
                    || places.iter().any(|(place, _)| Some(*place) == above)
                    || makes_claims_of(decision, pod.name());
                !goes
                    && !self.waits_alone(ordinal)
                    && !self.has_to_grow(pod.name())
                    && !pod.is_terminating()
                    && !pod.is_terminal()
                    && self.is_old(pod)
            });
            require(stays.is_none(), "STS-2.5 order of the update", || {
                format!("place {lowest} is updated while ordinal {ordinal} above it is old")
            })?;
        }
        Ok(())
    }
}

fn changes_seen_environment(sight: &Sight<'_>, key: &ObjectKey, body: &serde_json::Value) -> bool {
    sight.reader.pod(key).is_some_and(|pod| changes_environment(pod, body))
}

/// What updates in place do to pods, whatever kind they are of. Images come after resources, and
/// a pod leaves service only for what restarts its containers, or changes no container: not for other resources, which need no restart
/// here (STS-4.4). One whose gate nobody has seen yet leaves first, and is changed by the next decision.
pub(crate) fn leaves_for_a_reason(sight: &Sight<'_>, decision: &Decision) -> Verdict {
    let patches = || {
        decision.commands().filter_map(|c| match &c.command {
            Command::Patch {
                resource: Resource::Pods,
                key,
                body,
                subresource,
                ..
            } => Some((key, body, *subresource)),
            _ => None,
        })
    };
    for (key, body, _) in patches() {
        let seen = sight.reader.pod(key);
        seen.map_or(Ok(()), |pod| comes_after_resources(pod, body))?;
    }
    for (key, ..) in patches().filter(|(_, body, _)| says(body, GATE, "False")) {
        let own = || patches().filter(|(other, ..)| *other == key);
        let resizes = own().any(|(_, _, part)| part == Some(Subresource::Resize));
        let restarts = own().any(|(_, body, _)| {
            let grace = adds(body, "/metadata/annotations/apps.kruise.io~1inplace-update-grace");
            new_image(body).is_some()
                || notes_restart(body)
                || grace.is_some()
                || new_revision(body).is_some() && !resizes
        });
        let seen = sight.reader.pod(key).and_then(|pod| pod.detail.clone());
        let is_first = own().count() == 1 && seen.is_some_and(|detail| detail.in_place_ready.is_none());
        let restarts = restarts || own().any(|(_, body, _)| changes_seen_environment(sight, key, body));
        require(restarts || is_first, "STS-4.4 resources", || {
            format!("{} leaves service although none of its containers restarts", key.name)
        })?;
        let bodies = own().map(|(_, body, _)| body);
        let kept = sight
            .reader
            .pod(key)
            .and_then(|pod| should_have_stayed(pod, bodies, sight.set));
        require(kept.is_none(), "STS-4.4 kept ready", || {
            format!(
                "{} leaves service for the images of {kept:?} alone, which are to keep it ready",
                key.name
            )
        })?;
    }
    Ok(())
}
