//! Updates in another order than that of the ordinals, whose partition is a number of pods to keep (STS-3.2, STS-3.6 and STS-3.7).

use super::truth::{Judge, Scene, Writing, pod_of};
use super::view::Sight;
use super::{Places, Verdict, is_available, ordinal_in, partition_of, place_of, require};
use crate::asks::is_to_be_made_again;
use crate::claim_templates::makes_claims_of;
use crate::defect::says;
use crate::in_place::{GATE, HOOK_GATE, awaits_restart, new_image, new_revision, new_state, state};
use crate::switches::Switch;
use crate::tenants;
use flotilla_model::set::{PriorityStrategy, PriorityTerm, UpdateKind};
use flotilla_model::{Command, Decision, ObjectKey, PodRecord, Resource, RevisionRecord, SetRecord, WaitCause};
use flotilla_sim::server::Server;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

const RULE_COUNT: &str = "STS-3.6 pods to keep";
const RULE_ORDER: &str = "STS-3.7 priorities";

/// Whether the partition of a set counts pods: only under Parallel.
pub(super) fn is_unordered(set: &SetRecord) -> bool {
    let spec = &set.spec;
    let is_said = spec.rolling.as_ref().is_some_and(|rolling| rolling.unordered.is_some());
    is_said && !spec.is_monotonic() && spec.update == UpdateKind::RollingUpdate
}

/// The number at the end of a text.
fn number_at_end(text: &str) -> i64 {
    let digits = text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    text[text.len() - digits..].parse().unwrap_or(0)
}

/// Which pods go first: the lower, the sooner (STS-3.2).
fn priority(set: &SetRecord, pod: &PodRecord) -> (usize, Reverse<i64>) {
    let strategy = set.spec.rolling.as_ref().and_then(|rolling| rolling.unordered.as_ref());
    match strategy.and_then(Option::as_ref) {
        None => (0, Reverse(0)),
        Some(PriorityStrategy::Order(terms)) => {
            let value = |term: &PriorityTerm| match term {
                PriorityTerm::Key(key) => pod.label(key).map(number_at_end),
                PriorityTerm::Match(..) => None,
            };
            let mut found = terms.iter().enumerate().filter_map(|(i, term)| Some((i, value(term)?)));
            found
                .next()
                .map_or((terms.len(), Reverse(0)), |(i, number)| (i, Reverse(number)))
        }
        Some(PriorityStrategy::Weight(terms)) => {
            let weights = terms.iter().filter_map(|term| match term {
                PriorityTerm::Match(weight, selector) => selector.matches(|key| pod.label(key)).then_some(*weight),
                PriorityTerm::Key(_) => None,
            });
            (0, Reverse(weights.sum()))
        }
    }
}

impl Sight<'_> {
    /// The pod that has a wanted ordinal, also one that is about to be adopted.
    fn holder(&self, ordinal: i64) -> Option<&Arc<PodRecord>> {
        let key = self.set.meta.key.sibling(format!("{}-{ordinal}", self.set.name()));
        let orphan = self.reader.pod(&key).filter(|pod| {
            let fits = self.set.spec.selector.matches(|label| pod.label(label));
            fits && pod.meta.controller().is_none() && !pod.is_terminating()
        });
        self.pod(ordinal).or(orphan)
    }

    /// Of new pods as many come at the current revision as are missing among those that the partition keeps: pods that are there and are
    /// not updated, nor prepared for that, are kept already (STS-3.6). What cannot come yet keeps no place.
    pub(super) fn keeps_as_many_as_it_should(&self, made: &[&str]) -> Verdict {
        let set = self.set;
        let (current, update) = (set.status_text("currentRevision"), set.spec.template_digest);
        let comes_as_it_was = set.spec.is_paused() && Switch::KeepRevision.is_on(set);
        if made.is_empty() || !is_unordered(set) || comes_as_it_was || self.digest_of(current).is_none() {
            return Ok(());
        }
        let is_kept = |pod: &&Arc<PodRecord>| self.is_of_old_revision(pod) && state(pod) != "PreparingUpdate";
        let adopted = self.reader.orphan_pods(&set.meta.key.namespace).iter();
        let there = self.reader.pods_of(set.as_owner()).iter().chain(adopted);
        let there = Places::of(set).among(there.filter_map(|pod| ordinal_in(pod.name(), set.name())));
        let kept = there.into_iter().filter_map(|o| self.holder(o)).filter(is_kept).count();
        let is_updated = |revision: &&&str| self.digest_of(revision) == Some(update);
        let old: Vec<&&str> = made.iter().filter(|revision| !is_updated(revision)).collect();
        let stray = old.iter().find(|revision| ***revision != current);
        require(stray.is_none(), RULE_COUNT, || {
            format!("a pod is made at {stray:?}, which is old")
        })?;
        let missing = partition_of(set).saturating_sub(kept).min(made.len());
        let missing = if self.digest_of(current) == Some(update) {
            0
        } else {
            missing
        };
        require(old.len() == missing, RULE_COUNT, || {
            format!(
                "{kept} pods are not updated, of {} new ones {} come at the current revision, and {} are to be kept",
                made.len(),
                old.len(),
                partition_of(set)
            )
        })
    }

    /// Of the pods that wait for the update those go first that the strategy names, and of them those that are not available; and as many stay
    /// as the partition says.
    pub(super) fn takes_those_that_go_first(
        &self,
        decision: &Decision,
        deleted: &[&Arc<PodRecord>],
        begun: &BTreeSet<&ObjectKey>,
    ) -> Verdict {
        let set = self.set;
        if !is_unordered(set) {
            return Ok(());
        }
        let waits = |pod: &&Arc<PodRecord>| {
            self.is_of_old_revision(pod)
                && !pod.is_terminating()
                && !pod.is_terminal()
                && state(pod) != "PreparingUpdate"
        };
        let rank = |pod: &PodRecord| (priority(set, pod), is_available(pod, set, self.now));
        // From the highest down, and stably.
        let wanted = self.wanted_pods().into_iter().rev();
        let mut waiting: Vec<(i64, &Arc<PodRecord>)> = wanted.filter(|(_, pod)| waits(pod)).collect();
        waiting.sort_by_key(|(_, pod)| rank(pod));
        let is_taken = |pod: &PodRecord| {
            let goes = deleted.iter().any(|other| other.meta.uid == pod.meta.uid) || begun.contains(&pod.meta.key);
            goes && !is_to_be_made_again(pod, set) && !goes_on(decision, pod)
        };
        let Some(last) = waiting.iter().rposition(|(_, pod)| is_taken(pod)) else {
            return Ok(());
        };
        let keeps = partition_of(set);
        require(last + keeps < waiting.len(), RULE_COUNT, || {
            let (all, name) = (waiting.len(), waiting[last].1.name());
            format!(
                "{name} is updated, which is number {} of {all} that wait, and {keeps} are to be kept",
                last + 1
            )
        })?;
        // What serves nobody costs nothing, and waits for nobody; what is ready, and not available yet, waits for such only.
        let cost = |pod: &PodRecord| i32::from(self.serves(pod)) + i32::from(is_available(pod, set, self.now));
        // While the API server is asked whether it accepts pods of the revision, or has refused them, none goes for one that is made anew;
        // changes in place go on.
        let is_untried = decision.waits.iter().any(|wait| is_of_trial(&wait.cause));
        let is_gentle = |pod: &PodRecord| is_undisturbed(decision, &pod.meta.key);
        let last_of = |least: i32| {
            let counts = |pod: &PodRecord| cost(pod) >= least && (least == 0 || !is_gentle(pod));
            waiting.iter().rposition(|(_, pod)| is_taken(pod) && counts(pod))
        };
        let last_of = [last_of(0), last_of(1), last_of(2)].map(Option::unwrap_or_default);
        let passed = waiting.iter().enumerate().find(|(index, (ordinal, pod))| {
            let is_before = last_of[usize::try_from(cost(pod)).unwrap_or(0)] > *index;
            let is_held = is_untried || self.is_held_back(decision, *ordinal, pod);
            is_before && !is_taken(pod) && !is_held && !is_to_be_made_again(pod, set)
        });
        require(passed.is_none(), RULE_ORDER, || {
            let name = passed.map_or("", |(_, (_, pod))| pod.name());
            format!(
                "{} is updated, and {name}, which comes before it, is not",
                waiting[last].1.name()
            )
        })
    }

    /// Whether others may be updated before a pod that comes before them: it is going, its update goes on, or something else keeps it.
    fn is_held_back(&self, decision: &Decision, ordinal: i64, pod: &PodRecord) -> bool {
        state(pod) == "PreparingDelete"
            || leaves_first(decision, &pod.meta.key)
            || goes_on(decision, pod)
            || makes_claims_of(decision, pod.name())
            || is_barred(decision, pod)
            || self.waits_alone(ordinal)
            || self.has_to_grow(pod.name())
    }
}

/// Whether a decision goes on with an update that was begun, whatever the set asks for by now: that takes no place of another.
fn goes_on(decision: &Decision, pod: &PodRecord) -> bool {
    let is_new = |command: &Command| match command {
        Command::Patch { body, .. } => new_revision(body).is_some_and(|new| Some(new) != pod.revision()),
        _ => true,
    };
    let mut on_it = decision.commands().filter(|c| *c.command.key() == pod.meta.key);
    awaits_restart(pod) && !on_it.any(|c| is_new(&c.command))
}

/// Whether it is not known, or not so, that the API server accepts pods of the revision.
fn is_of_trial(cause: &WaitCause) -> bool {
    matches!(
        cause,
        WaitCause::RevisionUntried | WaitCause::RevisionUnproven { .. } | WaitCause::RevisionRefused { .. }
    )
}

/// Whether a pod could only be made anew, and that is not allowed: it starves no other (STS-4.2).
fn is_barred(decision: &Decision, pod: &PodRecord) -> bool {
    let barred = |cause: &WaitCause| matches!(cause, WaitCause::InPlaceNotPossible { .. });
    let mut waits = decision.waits.iter();
    waits.any(|wait| *wait.subject == *pod.name() && barred(&wait.cause))
}

/// Whether a decision leaves a pod in service: it changes what needs no restart, and uses no budget (STS-8.18).
fn is_undisturbed(decision: &Decision, key: &ObjectKey) -> bool {
    decision
        .commands()
        .filter(|c| c.command.key() == key)
        .all(|c| match &c.command {
            Command::Patch { body, .. } => {
                let prepares = matches!(new_state(body), Some("PreparingUpdate" | "PreparingDelete"));
                !says(body, GATE, "False") && new_image(body).is_none() && !prepares
            }
            _ => false,
        })
}

/// Whether a decision takes a pod out of service for its hook: its state follows once that has been seen.
fn leaves_first(decision: &Decision, key: &ObjectKey) -> bool {
    decision.commands().any(|c| match &c.command {
        Command::Patch { key: patched, body, .. } => patched == key && says(body, HOOK_GATE, "False"),
        _ => false,
    })
}

impl Judge {
    /// Whoever takes a pod for an update knows which others managers have taken or updated, and leaves as many as are to be kept.
    pub(super) fn leaves_as_many_as_it_should(
        &self,
        taken: &PodRecord,
        writing: &Writing,
        scene: &Scene<'_>,
    ) -> Verdict {
        let set = &writing.decided.set;
        let is_updated = |pod: &PodRecord| {
            let revision = set.meta.key.sibling(pod.revision().unwrap_or_default());
            scene.digest_of(&revision) == Some(set.spec.template_digest) || state(pod) == "PreparingUpdate"
        };
        let own_pod = |ordinal: i64| {
            let key = set.meta.key.sibling(format!("{}-{ordinal}", set.name()));
            scene.pod(&key).filter(|pod| pod.meta.is_controlled_by(&set.meta.uid))
        };
        // One that is up to date is made again for its claims, and one that was prepared before counts as updated.
        if is_updated(taken) {
            return Ok(());
        }
        let name = taken.name();
        let own = ordinal_in(name, set.name());
        let there = scene
            .pods_of(&set.meta.uid)
            .filter_map(|pod| ordinal_in(pod.name(), set.name()));
        let others = there
            .chain(self.emptied.iter().copied())
            .filter(|ordinal| Some(*ordinal) != own);
        let others = Places::of(set).among(others);
        let is_gone =
            |ordinal: &i64| self.emptied.contains(ordinal) || own_pod(*ordinal).is_some_and(|pod| is_updated(pod));
        let taken: Vec<i64> = others.into_iter().filter(is_gone).collect();
        let keeps = partition_of(set);
        let replicas = Places::of(set).len();
        require(taken.len() + keeps < replicas, RULE_COUNT, || {
            format!(
                "{name} is taken down while {taken:?} of {replicas} are updated or gone, and {keeps} are to be kept"
            )
        })
    }
}

/// In the end no more pods are old than are to be kept.
pub(super) fn settled(set: &SetRecord, pods: &[&Arc<PodRecord>], updated: &RevisionRecord) -> Result<(), String> {
    let is_wanted = |pod: &PodRecord| ordinal_in(pod.name(), set.name()).is_some_and(|o| place_of(o, set).is_some());
    let old = pods
        .iter()
        .filter(|pod| is_wanted(pod) && pod.revision() != Some(updated.name()));
    let (old, keeps) = (old.count(), partition_of(set));
    if old > keeps {
        return Err(format!("{old} pods are at an old revision, and {keeps} are to be kept"));
    }
    Ok(())
}

/// Where all that have to be updated are, those whose claims follow as well: the highest first, without those that are to be kept (STS-3.9).
pub(super) fn targets(server: &Server, set: &SetRecord) -> Vec<i64> {
    let is_updated = |ordinal: &i64| {
        let key = set.meta.key.sibling(format!("{}-{ordinal}", set.name()));
        pod_of(server.get(Resource::Pods, &key))
            .is_some_and(|pod| pod.revision() == Some(set.status_text("updateRevision")))
    };
    let wanted = Places::of(set);
    let pods = tenants::all(server, Resource::Pods).filter_map(|s| pod_of(Some(s)));
    let there = wanted.among(pods.filter_map(|pod| ordinal_in(pod.name(), set.name())));
    let count = wanted.len().saturating_sub(partition_of(set));
    there.into_iter().rev().filter(is_updated).take(count).collect()
}
