//! What the API server has accepted and refused of what managers asked for.

use super::truth::{Judge, Scene, Writing};
use super::{Verdict, is_available, require};
use crate::in_place::lacks_resources;
use flotilla_engine::core::request::Call;
use flotilla_model::decision::Subresource;
use flotilla_model::{Command, PodRecord, Resource};

impl Judge {
    /// The API server has accepted a pod of a revision, if only on trial.
    pub(crate) fn accepted(&mut self, revision: &str) {
        self.accepted.insert(short(revision).to_owned());
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

    /// No available pod goes for a template of which the API server never accepted a pod (ruling 31).
    pub(super) fn goes_for_what_is_accepted(&self, pod: &PodRecord, writing: &Writing, scene: &Scene<'_>) -> Verdict {
        let set = &writing.decided.set;
        if !is_available(pod, set, writing.decided.now) {
            return Ok(());
        }
        let targets = scene.revisions_of(&set.meta.uid);
        let mut targets = targets.filter(|r| r.digest == set.spec.template_digest).peekable();
        // A revision that went with its set is not known any more.
        let holds = targets.peek().is_none() || targets.any(|r| self.accepted.contains(short(r.name())));
        require(holds, "ruling 31", || {
            format!("{} goes for a template of which no pod was ever accepted", pod.name())
        })
    }

    /// Whether a pod's label says already what its resources will never be (ruling 37).
    pub(super) fn is_given_up(&self, pod: &PodRecord) -> bool {
        lacks_resources(pod) && self.resize_refused.contains(&pod.meta.key)
    }
}

/// What tells a revision from others of its set.
fn short(revision: &str) -> &str {
    revision.rsplit_once('-').map_or(revision, |(_, hash)| hash)
}
