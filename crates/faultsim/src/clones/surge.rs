//! What an update makes beyond the replicas, judged by what was seen (CS-13.8): it is no replica, takes nobody's claims, and goes in the end. All
//! other checks count replicas without it, so that no replica's data go for it.

use super::defect::CloneDefect;
use super::view::{Clones, RULE_CLAIMS, count};
use crate::in_place::new_state;
use crate::judge::{Verdict, require};
use flotilla_model::decision::PodDraft;
use flotilla_model::{Body, ClaimRecord, Command, Decision, PodRecord, Reader, Resource, SetRecord};
use std::sync::Arc;

/// The note on a pod that an update made it beyond the replicas, with new claims.
const MADE_AS_SURGE: &str = "flotilla.rs/made-as-surge";

const RULE_NOTE: &str = "CS-13.8 pods that are made as surge";

/// Whether an update made a pod beyond the replicas.
pub(crate) fn was_made_as_surge(pod: &PodRecord) -> bool {
    let annotations = pod.detail.as_ref().map(|detail| &detail.annotations);
    annotations.is_some_and(|a| a.get(MADE_AS_SURGE) == Some(pod.name()))
}

/// Whether a claim was made for a pod of this name, beyond the replicas, and no replica has taken it since.
pub(super) fn is_of_surge(claim: &ClaimRecord, pod: &str) -> bool {
    claim.annotations.get(MADE_AS_SURGE) == Some(pod)
}

fn is_noted(draft: &PodDraft) -> bool {
    draft.annotations.iter().any(|(key, _)| *key == MADE_AS_SURGE)
}

impl Clones<'_> {
    /// Whether a pod is one of the replicas, and nobody has asked for its deletion.
    pub(super) fn is_plain_replica(&self, pod: &PodRecord) -> bool {
        self.is_plain(pod) && !was_made_as_surge(pod)
    }

    /// CS-13.8: who is made with claims beyond the replicas is noted, with its claims, and takes nobody's.
    pub(super) fn notes_its_surge(&self, decision: &Decision) -> Verdict {
        let made = decision.commands().filter_map(|scoped| match &scoped.command {
            Command::Create {
                body: Body::Pod(draft), ..
            } => Some(&**draft),
            _ => None,
        });
        let made: Vec<&PodDraft> = made.collect();
        let noted: Vec<&PodDraft> = made.iter().copied().filter(|draft| is_noted(draft)).collect();
        for draft in &noted {
            self.has_claims_of_its_own(draft, decision)?;
        }
        let (noted, others) = (count(noted.len()), count(made.len() - noted.len()));
        require(noted <= self.asked.surge, RULE_NOTE, || {
            format!("{noted} are made as surge, and {} may be", self.asked.surge)
        })?;
        let back = self.taken_back_by(decision);
        let excludes = self.spec.excludes_preparing_delete;
        let counts = |pod: &PodRecord| !(excludes && Self::is_leaving(pod)) || back.contains(pod.name());
        let is_there = |pod: &&&Arc<PodRecord>| counts(pod) && !was_made_as_surge(pod);
        let lacking = (self.asked.replicas - count(self.active.iter().filter(is_there).count())).max(0);
        if self.sight.set.spec.claim_templates.is_empty() {
            return Ok(());
        }
        require(others <= lacking, RULE_NOTE, || {
            format!("{others} are made that are not noted, and {lacking} replicas are missing")
        })?;
        let awaited = self.handing_over().min(lacking);
        require(others <= lacking - awaited, RULE_CLAIMS, || {
            format!(
                "{others} are made that are not noted, {lacking} replicas are missing, and {awaited} of these come back"
            )
        })
    }

    /// What is there under a name that is given to a pod of the surge was made for one; what is made for it says so.
    fn has_claims_of_its_own(&self, draft: &PodDraft, decision: &Decision) -> Verdict {
        let name = draft.key.name.as_str();
        for (_, claim) in &draft.claims {
            let key = self.sight.set.meta.key.sibling(claim.as_str());
            let is_noted = match self.sight.reader.claim(&key) {
                Some(there) => is_of_surge(there, name),
                None => decision.commands().any(|scoped| match &scoped.command {
                    Command::Create { key: made, body, .. } if *made == key => {
                        body.render()["metadata"]["annotations"][MADE_AS_SURGE] == name
                    }
                    _ => false,
                }),
            };
            require(is_noted, RULE_NOTE, || {
                format!("{name} is made as surge, and {claim}, which it mounts, is not noted so")
            })?;
        }
        Ok(())
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
