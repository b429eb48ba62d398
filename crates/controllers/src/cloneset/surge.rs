//! What an update makes beyond the replicas (CS-13.8): by which note it is known, and when that is believed no more.

use super::claims::{id_of, is_active};
use super::plan::{Member, Plan};
use super::scale::{NAMED, count};
use super::update::patch;
use crate::shared::claim;
use flotilla_api::names;
use flotilla_model::decision::{Report, Scope, ScopedCommand};
use flotilla_model::{Labels, PodRecord};
use serde_json::json;
use std::collections::BTreeSet;

/// Whether what this says is that a pod of this name, or a claim of it, was made as surge: it is the pod's name. What is copied from another, or
/// stands in a template, says nothing (CS-13.8).
pub(super) fn is_made_as_surge(pod: &str, annotations: Option<&Labels>) -> bool {
    annotations.and_then(|a| a.get(names::MADE_AS_SURGE)) == Some(pod)
}

/// Whether a set of this name has made a pod as surge; one that was moved here was made by another.
pub(super) fn is_surge(set: &str, pod: &PodRecord) -> bool {
    let is_ours = pod.name().rsplit_once('-').is_some_and(|(prefix, _)| prefix == set);
    is_ours && is_made_as_surge(pod.name(), pod.detail.as_ref().map(|detail| &detail.annotations))
}

impl Plan<'_> {
    /// Takes the note of a surge off claims whose pod is a replica, and off such pods: somebody else has let what was made as surge stay, or has
    /// taken the note off the pod. From then on it is like any other.
    pub(super) fn forget_surge(&mut self) {
        let mut commands = Vec::new();
        let mut changed = BTreeSet::new();
        for claim in self
            .view
            .claims
            .iter()
            .filter(|c| c.annotations.get(names::MADE_AS_SURGE).is_some())
        {
            let holder = id_of(claim).and_then(|id| self.holder_of(claim, id));
            // Used again is also what a pod leaves that goes; otherwise it goes with the pod.
            let keeps = |pod: &PodRecord| is_active(pod) || self.view.clones.reuses_claims;
            if let Some(pod) = holder.filter(|pod| keeps(pod) && !self.is_surge(pod)) {
                if !self.is_settled {
                    changed.insert(pod.name().to_owned());
                }
                let note = [(names::MADE_AS_SURGE, None)];
                commands.push((
                    Scope::Named(pod.name().to_owned()),
                    claim::annotate(claim, &note, Report::Update),
                ));
            }
        }
        self.write_claims(commands);
        for pod in changed.into_iter().take(NAMED) {
            let message = format!(
                "{pod} was made as surge, and somebody has taken annotation {} off it: it counts as a replica from now on, so another pod goes with its claims in its place",
                names::MADE_AS_SURGE
            );
            self.pass.event_once(true, "PodChangedByOthers", message);
        }
        if !self.is_settled {
            return;
        }
        let set = self.view.set.name();
        for member in self.members.iter().filter(|m| is_surge(set, m.pod())) {
            let scope = member.scope();
            if !self.pass.is_backing_off(&scope, member.name()) {
                let body = json!({"metadata": {"annotations": {names::MADE_AS_SURGE: null}}});
                let command = patch(member.pod(), body, Report::Silent);
                self.pass.stages.repair.push(ScopedCommand { scope, command });
            }
        }
    }

    /// Whether a pod was made as surge, and is no replica.
    pub(super) fn is_surge(&self, pod: &PodRecord) -> bool {
        !self.is_settled && is_surge(self.view.set.name(), pod)
    }

    /// Whether the update is over and no data wait for a pod, although some pods were made as surge: we would have let them go before. Who was
    /// in charge meanwhile has let them stay, and they have stored something since, however they are now.
    pub(super) fn settles_with_surge(&self) -> bool {
        let set = &self.view.set;
        let has_pod = |id: &str, claim| self.holder_of(claim, id).is_some();
        set.status_text("currentRevision") == self.pass.update.name()
            && count(self.members.len()) == set.spec.replicas
            && self.members.iter().any(|m| m.is_surge)
            && self.members.iter().all(Member::is_new)
            && self.handing_over().is_empty()
            && self
                .view
                .claims
                .iter()
                .all(|claim| id_of(claim).is_none_or(|id| has_pod(id, claim)))
    }
}
