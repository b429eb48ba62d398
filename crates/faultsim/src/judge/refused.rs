//! What the API server has accepted and refused of what managers asked for.

use super::truth::{Judge, Scene, Writing, set_of};
use super::{Verdict, is_available, require};
use crate::claim_templates;
use crate::in_place::lacks_resources;
use flotilla_engine::core::request::Call;
use flotilla_model::decision::Subresource;
use flotilla_model::{Command, PodRecord, Resource};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Judge {
    /// The API server has accepted a pod of a revision with these claim templates, if only on trial.
    pub(crate) fn accepted(&mut self, revision: &str, claims: &BTreeSet<String>) {
        self.accepted.insert(made_of(revision, claims));
    }

    /// A pod is there. It proves what it says it was made of, and what its volumes are made of.
    pub(super) fn proves(&mut self, pod: &PodRecord) {
        let Some(revision) = pod.revision() else { return };
        self.accepted(revision, &claim_templates::of_pod(pod));
        let said = pod.label("flotilla.rs/made-as");
        self.accepted.extend(said.map(str::to_owned));
    }

    /// The API server has refused a pod of a revision on trial, and another that takes the place of one may be accepted all the same.
    pub(crate) fn left_unproven(&mut self, revision: &str, claims: &BTreeSet<String>) {
        self.unproven.insert(made_of(revision, claims));
    }

    /// Whatever pod comes, or does not go after all, the set may be whole again.
    pub(super) fn comes_or_stays(&mut self, before: Option<&Arc<PodRecord>>, after: Option<&Arc<PodRecord>>) {
        let owner = |pod: Option<&Arc<PodRecord>>| pod.and_then(|pod| pod.meta.controller().map(|c| c.uid.clone()));
        let comes = after.is_some() && owner(before) != owner(after);
        let stays = after.is_some() && is_asked_for(before) && !is_asked_for(after);
        if comes || stays {
            self.went_first = None;
        }
    }

    /// The API server has refused a manager's request for a pod, for good.
    pub(crate) fn refused(&mut self, call: &Call) {
        if let Call::Write(Command::Patch {
            resource: Resource::Pods,
            key,
            subresource: Some(Subresource::Resize),
            ..
        }) = call
        {
            self.resize_refused.insert(key.clone());
            if let Some(clones) = &mut self.clones {
                clones.resize_refused.insert(key.clone());
            }
        }
    }

    /// No available pod goes for a template of which the API server never accepted a pod. Where that is unproven one goes, and
    /// no other before a pod has come; what is changed in place keeps its room.
    pub(super) fn goes_for_what_is_accepted(
        &mut self,
        pod: &PodRecord,
        writing: &Writing,
        scene: &Scene<'_>,
        stays: bool,
    ) -> Verdict {
        let set = &writing.decided.set;
        if !is_available(pod, set, writing.decided.now) {
            return Ok(());
        }
        let targets = scene.revisions_of(&set.meta.uid);
        let targets = targets.filter(|r| r.digest == set.spec.template_digest);
        let claims = claim_templates::of_set(set);
        let made_of: Vec<String> = targets.map(|r| made_of(r.name(), &claims)).collect();
        // A revision that went with its set is not known any more.
        let is_accepted = made_of.is_empty() || made_of.iter().any(|of| self.accepted.contains(of));
        let is_unproven = made_of.iter().any(|of| self.unproven.contains(of));
        let is_first = self.went_first.as_ref().is_none_or(|first| *first == pod.meta.uid);
        // All that Recreate takes leave their room together, and what surge made beyond the replicas may go.
        let is_there = |other: &&Arc<PodRecord>| {
            other.meta.uid != pod.meta.uid && !other.is_terminating() && !is_asked_for(Some(*other))
        };
        let others = scene.pods_of(&set.meta.uid).filter(is_there).count();
        // Also when fewer are wanted since that was decided: no successor comes for it.
        let there = set_of(scene.server.get(set.kind.resource(), &set.meta.key));
        let wanted = there.map_or(set.spec.replicas, |there| there.spec.replicas.min(set.spec.replicas));
        let is_surplus = i32::try_from(others).is_ok_and(|others| others >= wanted);
        let is_free = stays || self.recreates(set) || is_surplus;
        let holds = is_accepted || is_unproven && (is_first || is_free);
        if !(is_accepted || is_free) {
            self.went_first = Some(pod.meta.uid.clone());
        }
        require(holds, "R-31", || {
            let what = "a template of which no pod was ever accepted";
            if claims.is_empty() {
                return format!("{} goes for {what}", pod.name());
            }
            format!("{} goes for {what} with the claim templates {claims:?}", pod.name())
        })
    }

    /// Whether a pod's label says already what its resources will never be.
    pub(super) fn is_given_up(&self, pod: &PodRecord) -> bool {
        let is_told = crate::resizes::is_infeasible(pod) || crate::notes::is_unreadable(pod);
        is_told || lacks_resources(pod) && self.resize_refused.contains(&pod.meta.key)
    }
}

/// Whether it was asked, by label, that a pod be deleted.
fn is_asked_for(pod: Option<&Arc<PodRecord>>) -> bool {
    pod.is_some_and(|pod| pod.label("apps.kruise.io/specified-delete").is_some())
}

/// What a pod is made of: its revision, and the names of its claim templates, each behind an underscore, as the pod's label says it.
fn made_of(revision: &str, claims: &BTreeSet<String>) -> String {
    let names = claims.iter().flat_map(|name| ["_", name]);
    [short(revision)].into_iter().chain(names).collect()
}

/// What tells a revision from others of its set.
fn short(revision: &str) -> &str {
    revision.rsplit_once('-').map_or(revision, |(_, hash)| hash)
}
