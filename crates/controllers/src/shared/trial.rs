//! Whether the API server accepts pods of a revision, asked before others go for it (ruling 31).
//!
//! What a template lacks, or a policy forbids, shows when a pod is made; by then the pod that it was to replace has gone. So the first
//! that is to go for a revision waits until a pod of it was accepted, if only on trial: the very pod that would be made, under its own
//! name. A pod that was made from the revision, and exists, proves the same; one that was updated in place to it does not: what is judged
//! then is a patch. What was accepted is a hint, and asked again when it is lost. In-place changes need no trial, since the API server
//! judges each of them while its pod is there.

use crate::shared::claim;
use crate::shared::pass::Pass;
use crate::shared::revision;
use flotilla_model::decision::{Command, PodDraft, Scope, ScopedCommand};
use flotilla_model::{PodRecord, RevisionRecord, WaitCause};
use std::sync::Arc;

impl Pass<'_> {
    /// Whether pods of a revision are accepted, as far as that is known or is being asked for; `None` if it has to be asked. `pods` are
    /// those that the set has.
    pub(crate) fn acceptance<'p>(
        &mut self,
        revision: &RevisionRecord,
        pods: impl IntoIterator<Item = &'p Arc<PodRecord>>,
    ) -> Option<bool> {
        let name = revision.name();
        if let Some(known) = self.acceptances.get(name) {
            return Some(*known);
        }
        let set = self.moment.set.name();
        let is_of = |pod: &Arc<PodRecord>| {
            let label = pod.revision();
            label.is_some_and(|label| revision::is_named(set, revision, label)) && claim::may_be_made_from(pod, name)
        };
        let known = if self.hints.accepted.contains(name) || pods.into_iter().any(is_of) {
            true
        } else if self.is_refused(name) {
            false
        } else {
            return None;
        };
        self.acceptances.insert(name.to_owned(), known);
        Some(known)
    }

    /// Asks the API server whether it would accept this pod of a revision.
    pub(crate) fn try_pod(&mut self, revision: &RevisionRecord, pod: PodDraft) {
        let name = revision.name();
        self.acceptances.insert(name.to_owned(), false);
        self.wait(name.to_owned(), WaitCause::RevisionUntried, None);
        let command = Command::Try { pod: Box::new(pod) };
        let scope = Scope::Acceptance(name.to_owned());
        self.stages.trial.push(ScopedCommand { scope, command });
    }

    /// Whether pods of a revision were refused a moment ago. Then it is said, and not asked again yet.
    fn is_refused(&mut self, revision: &str) -> bool {
        let scope = Scope::Acceptance(revision.to_owned());
        let failure = self.hints.failures.get(&scope).filter(|f| f.retry_at > self.moment.now);
        let Some(failure) = failure.cloned() else { return false };
        self.held_back.insert(scope);
        self.wake_within(failure.retry_at.since(self.moment.now));
        let cause = WaitCause::RevisionRefused {
            reason: failure.reason,
            message: failure.message,
            retry_at: failure.retry_at,
        };
        self.wait(revision.to_owned(), cause, Some(failure.since));
        true
    }

    /// What was accepted of other revisions is forgotten: they come back seldom, and are tried again then.
    pub(crate) fn forget_acceptances(&mut self) {
        let (update, current) = (self.update.clone(), self.current.clone());
        let is_known = |name: &String| name == update.name() || name == current.name();
        self.hints.accepted.retain(is_known);
    }
}
