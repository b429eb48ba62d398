//! Whether the API server accepts pods of a revision, asked before others go for it.
//!
//! What a template lacks, or a policy forbids, shows when a pod is made; by then the pod that it was to replace has gone. So the first
//! that is to go for a revision waits until a pod of it was accepted, if only on trial: the very pod that would be made, under its own
//! name. A pod that was made from the revision, and exists, proves the same; one that was updated in place to it does not: what is judged
//! then is a patch. What was accepted is a hint, and asked again when it is lost. So is one that an update in place takes out
//! of service: the API server judges its patch, but only once it is out. What changes in service needs no trial.
//!
//! Some answers leave it open. A quota that is full says nothing of a pod that takes the room of the one it replaces, and a webhook that is
//! not asked on trial says nothing at all. Then one pod goes, out of a set that lacks none, and no other before its successor is there.

use crate::shared::claim;
use crate::shared::pass::Pass;
use crate::shared::revision;
use flotilla_model::decision::{Command, PodDraft, Scope, ScopedCommand};
use flotilla_model::{PodRecord, RevisionRecord, Timestamp, WaitCause};
use std::sync::Arc;

/// What is known of the pods of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// The API server accepts them.
    Accepted,
    /// It cannot be known before one goes.
    Unproven,
    /// It is being asked.
    Asked,
    /// One goes in this pass, to find out.
    GoesFirst,
    /// It does not accept them.
    Refused,
}

impl Pass<'_> {
    /// Whether pods may go for a revision; `None` if the API server has to be asked or is being asked. `pods` are those that the set has;
    /// where it is unproven, `is_whole` says whether it lacks none of them, but for the one that would go.
    pub(crate) fn may_go_for<'p>(
        &mut self,
        revision: &RevisionRecord,
        pods: impl IntoIterator<Item = &'p Arc<PodRecord>>,
        is_whole: impl FnOnce() -> bool,
    ) -> Option<bool> {
        let known = self.acceptance(revision, pods)?;
        let goes_first = known == Acceptance::Unproven && is_whole();
        if goes_first {
            self.acceptances
                .insert(revision.name().to_owned(), Acceptance::GoesFirst);
        }
        Some(goes_first || known == Acceptance::Accepted)
    }

    /// Whether pods may leave service in order to be changed in place to a revision. They keep their room in quotas.
    pub(crate) fn may_change_to<'p>(
        &mut self,
        revision: &RevisionRecord,
        pods: impl IntoIterator<Item = &'p Arc<PodRecord>>,
    ) -> Option<bool> {
        self.acceptance(revision, pods)
            .map(|known| known != Acceptance::Refused)
    }

    fn acceptance<'p>(
        &mut self,
        revision: &RevisionRecord,
        pods: impl IntoIterator<Item = &'p Arc<PodRecord>>,
    ) -> Option<Acceptance> {
        let name = revision.name();
        let set = self.moment.set.name();
        let is_of = |pod: &Arc<PodRecord>| {
            let label = pod.revision();
            label.is_some_and(|label| revision::is_named(set, revision, label)) && claim::may_be_made_from(pod, name)
        };
        let known = if let Some(known) = self.acceptances.get(name) {
            *known
        } else if self.hints.accepted.contains(name) || pods.into_iter().any(is_of) {
            Acceptance::Accepted
        } else {
            self.refusal(name)?
        };
        self.acceptances.insert(name.to_owned(), known);
        (known != Acceptance::Asked).then_some(known)
    }

    /// Whether the API server has to be asked about a revision, and is not yet.
    pub(crate) fn is_untried(&self, revision: &RevisionRecord) -> bool {
        !self.acceptances.contains_key(revision.name())
    }

    /// Asks the API server whether it would accept this pod of a revision.
    pub(crate) fn try_pod(&mut self, revision: &RevisionRecord, pod: PodDraft) {
        let name = revision.name();
        self.acceptances.insert(name.to_owned(), Acceptance::Asked);
        self.wait(name.to_owned(), WaitCause::RevisionUntried, None);
        let command = Command::Try { pod: Box::new(pod) };
        let scope = Scope::Acceptance(name.to_owned());
        self.stages.trial.push(ScopedCommand { scope, command });
    }

    /// What was said a moment ago to a trial that failed. Then it is told, and not asked again yet.
    fn refusal(&mut self, revision: &str) -> Option<Acceptance> {
        let scope = Scope::Acceptance(revision.to_owned());
        let failure = self.hints.failures.get(&scope).filter(|f| f.retry_at > self.moment.now);
        let failure = failure.cloned()?;
        self.held_back.insert(scope);
        self.wake_within(failure.retry_at.since(self.moment.now));
        let cause = WaitCause::of_refused_trial(failure.reason, failure.message, failure.retry_at);
        let known = match cause {
            WaitCause::RevisionUnproven { .. } => Acceptance::Unproven,
            _ => Acceptance::Refused,
        };
        self.wait(revision.to_owned(), cause, Some(failure.since));
        Some(known)
    }

    /// Whether this is the refusal of a trial that is to be asked again only later. Unlike a write's, it is not over because a pass does
    /// not want it: one that has no pod to spare does not ask, and the next that does is to wait as long as if it had.
    pub(crate) fn is_still_refused(&self, scope: &Scope, retry_at: Timestamp) -> bool {
        let Scope::Acceptance(name) = scope else { return false };
        let is_ours = name == self.update.name() || name == self.current.name();
        is_ours && self.acceptances.get(name) != Some(&Acceptance::Accepted) && retry_at > self.moment.now
    }

    /// What was accepted of other revisions is forgotten: they come back seldom, and are tried again then.
    pub(crate) fn forget_acceptances(&mut self) {
        let (update, current) = (self.update.clone(), self.current.clone());
        let is_known = |name: &String| name == update.name() || name == current.name();
        self.hints.accepted.retain(is_known);
    }
}
