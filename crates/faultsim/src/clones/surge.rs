//! What an update makes beyond the replicas, and what goes for it, judged by what was seen (CS-13.5, CS-13.8 and CS-13.9): nobody's data are
//! taken for those of a pod that has stored nothing yet.

use super::course::Patch;
use super::defect::CloneDefect;
use super::view::{Clones, count};
use crate::in_place::new_state;
use crate::judge::{Verdict, require};
use flotilla_model::decision::PodDraft;
use flotilla_model::set::PodUpdatePolicy;
use flotilla_model::{Body, Command, Decision, PodRecord, Reader, Resource, SetRecord};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The note on a pod that an update made it beyond the replicas, with new claims.
const MADE_AS_SURGE: &str = "flotilla.rs/made-as-surge";

const RULE_NOTE: &str = "CS-13.8 pods that are made as surge";
const RULE_DATA: &str = "CS-13.9 the surge goes, and not those that have stored something";

/// Whether an update made a pod beyond the replicas.
pub(super) fn was_made_as_surge(pod: &PodRecord) -> bool {
    let annotations = pod.detail.as_ref().map(|detail| &detail.annotations);
    annotations.is_some_and(|a| a.get(MADE_AS_SURGE).is_some())
}

fn is_noted(draft: &PodDraft) -> bool {
    draft.annotations.iter().any(|(key, _)| *key == MADE_AS_SURGE)
}

impl Clones<'_> {
    /// Whether a pod of the old revision has its claims yet when it is updated (CS-15.5).
    pub(super) fn keeps_claims(&self, pod: &PodRecord) -> bool {
        let may_be_made_again = self.sight.set.spec.pod_update_policy() != PodUpdatePolicy::InPlaceOnly;
        let is_kept = self.spec.switches.keep_claims_on_recreate && may_be_made_again;
        !self.is_given_up(pod) && (is_kept || self.can_go_in_place(pod))
    }

    /// CS-13.8: whoever is made beyond the replicas for an update, with new claims, is noted, and nobody else.
    pub(super) fn notes_its_surge(&self, decision: &Decision) -> Verdict {
        let back = self.taken_back_by(decision);
        let excludes = self.spec.excludes_preparing_delete;
        let is_there = |pod: &&Arc<PodRecord>| !(excludes && Self::is_leaving(pod)) || back.contains(pod.name());
        let there = count(self.active.iter().copied().filter(is_there).count());
        let made = decision.commands().filter_map(|scoped| match &scoped.command {
            Command::Create {
                body: Body::Pod(draft), ..
            } => Some(&**draft),
            _ => None,
        });
        let made: Vec<&PodDraft> = made.collect();
        let is_fresh = |draft: &&&PodDraft| {
            let key = |claim: &str| self.sight.set.meta.key.sibling(claim);
            let mut claims = draft.claims.iter();
            !draft.claims.is_empty() && claims.all(|(_, claim)| self.sight.reader.claim(&key(claim)).is_none())
        };
        let wrong = made.iter().find(|draft| is_noted(draft) && !is_fresh(draft));
        require(wrong.is_none(), RULE_NOTE, || {
            let name = wrong.map_or("", |draft| &draft.key.name);
            format!("{name} is noted, and takes claims that are there")
        })?;
        let awaited = self.handing_over().min((self.asked.replicas - there).max(0));
        let within = usize::try_from(self.asked.replicas - there - awaited).unwrap_or(0);
        let noted = count(made.iter().filter(|draft| is_noted(draft)).count());
        let beyond = count(made.iter().skip(within).filter(is_fresh).count());
        let is_asked_for = |pod: &&Arc<PodRecord>| self.is_asked_for(pod);
        // Made for those that were asked to be deleted, or for pods that go back, they are no surge of an update.
        let may_be_others = self.back > 0 || self.active.iter().any(is_asked_for);
        require(noted == beyond || may_be_others && noted == 0, RULE_NOTE, || {
            format!("{noted} are noted, and {beyond} are made beyond the replicas")
        })
    }

    /// CS-13.9: of plain old pods that an update leaves their claims go those alone that are too many beside what was made as surge.
    pub(super) fn surge_goes_first(&self, decision: &Decision) -> Verdict {
        let deleted = decision.commands().filter_map(|scoped| match &scoped.command {
            Command::Delete {
                resource: Resource::Pods,
                key,
                ..
            } => self
                .active
                .iter()
                .find(|pod| pod.meta.key == *key)
                .map(|pod| pod.name()),
            _ => None,
        });
        let prepared = self.patches(decision).filter(Patch::prepares_deletion);
        let going: BTreeSet<&str> = deleted.chain(prepared.map(|patch| patch.pod.name())).collect();
        let plain = || self.active.iter().filter(|pod| self.is_plain(pod));
        let surge = count(plain().filter(|pod| was_made_as_surge(pod)).count());
        let of_old = |pod: &&&Arc<PodRecord>| {
            going.contains(pod.name()) && !was_made_as_surge(pod) && !self.is_new(pod) && self.keeps_claims(pod)
        };
        let old = count(plain().filter(of_old).count());
        let too_many = (count(plain().count()) - self.asked.replicas - surge).max(0);
        require(surge == 0 || old <= too_many, RULE_DATA, || {
            format!(
                "{old} pods go with their claims beside {surge} that were made as surge, and {too_many} are too many"
            )
        })
    }

    /// How many old pods are updated in the place of what was made as surge (CS-13.5).
    pub(super) fn in_place_of_surge(&self) -> i32 {
        let plain = || self.active.iter().filter(|pod| self.is_plain(pod));
        let surge = plain().filter(|pod| self.is_new(pod) && was_made_as_surge(pod)).count();
        if surge == 0 {
            return 0;
        }
        let keeping = plain()
            .filter(|pod| !self.is_new(pod) && self.keeps_claims(pod))
            .count();
        count(surge.min(keeping))
    }
}

/// What a defect of this kind makes of a decision.
pub(super) fn spoil(defect: CloneDefect, decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    match defect {
        CloneDefect::ForgetSurge => {
            for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
                if let Command::Create {
                    body: Body::Pod(draft), ..
                } = &mut scoped.command
                {
                    draft.annotations.retain(|(key, _)| *key != MADE_AS_SURGE);
                }
            }
        }
        CloneDefect::KeepSurge => keep_surge(decision, reader, set),
        _ => {}
    }
}

/// Another pod goes in the place of one that was made as surge, or waits for its hook to let it.
fn keep_surge(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let mut others = reader.pods_of(set.as_owner()).iter();
    let is_old = |pod: &PodRecord| pod.revision() != Some(set.status_text("updateRevision"));
    let other =
        others.find(|pod| !pod.is_terminating() && !pod.is_terminal() && !was_made_as_surge(pod) && is_old(pod));
    let Some(other) = other else { return };
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        if !reader
            .pod(scoped.command.key())
            .is_some_and(|pod| was_made_as_surge(pod))
        {
            continue;
        }
        match &mut scoped.command {
            Command::Delete {
                resource: Resource::Pods,
                key,
                uid,
                resource_version,
                ..
            } => {
                (*key, *uid) = (other.meta.key.clone(), other.meta.uid.clone());
                *resource_version = Some(other.meta.resource_version);
            }
            Command::Patch {
                resource: Resource::Pods,
                key,
                uid,
                body,
                ..
            } if new_state(body) == Some("PreparingDelete") => {
                (*key, *uid) = (other.meta.key.clone(), other.meta.uid.clone());
            }
            _ => {}
        }
    }
}
