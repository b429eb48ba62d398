//! Whether the API server accepts pods of a revision, asked before others go for it.
//!
//! What a template lacks, or a policy forbids, shows when a pod is made; by then the pod that it was to replace has gone. So the first
//! that is to go for a revision waits until a pod of it was accepted, if only on trial: the very pod that would be made, under its own
//! name. A pod that was made from the revision, and exists, proves the same; one that was updated in place to it does not: what is judged
//! then is a patch. What was accepted is a hint, and asked again when it is lost. So is one that an update in place takes out
//! of service: the API server judges its patch, but only once it is out. What changes in service needs no trial.
//!
//! Pods have volumes of their set's claim templates, which change without a new revision. So what is accepted is a revision with the claim
//! templates that its pods get, and a pod with others proves nothing. One that does not say with which it was made, as those of Go managers,
//! is told by its volumes.
//!
//! Some answers leave it open. A quota that is full says nothing of a pod that takes the room of the one it replaces, and a webhook that is
//! not asked on trial says nothing at all. Then one pod goes, out of a set that lacks none, and no other before its successor is there.
//! Where all go at once, no successor could prove anything: for a full quota they go, out of a set that lacks none, and otherwise they stay.

use crate::shared::claim;
use crate::shared::pass::Pass;
use crate::shared::revision;
use flotilla_model::decision::{Command, PodDraft, Scope, ScopedCommand};
use flotilla_model::set::ClaimTemplate;
use flotilla_model::{Failure, PodRecord, RevisionRecord, Timestamp, WaitCause};
use std::sync::Arc;

/// What is known of the pods of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// The API server accepts them.
    Accepted,
    /// There is no room for another now; in all else it accepts them.
    LacksRoom,
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
        let goes_first = matches!(known, Acceptance::LacksRoom | Acceptance::Unproven) && is_whole();
        if goes_first {
            self.acceptances.insert(self.made_of(revision), Acceptance::GoesFirst);
        }
        Some(goes_first || known == Acceptance::Accepted)
    }

    /// Whether all old pods may go at once for a revision; `None` if the API server has to be asked or is being asked. Those of a set that
    /// lacks none leave as much room as their successors need. Where nothing at all is known, there would be no pod left when it showed.
    pub(crate) fn may_all_go_for<'p>(
        &mut self,
        revision: &RevisionRecord,
        pods: impl IntoIterator<Item = &'p Arc<PodRecord>>,
        is_whole: impl FnOnce() -> bool,
    ) -> Option<bool> {
        let known = self.acceptance(revision, pods)?;
        Some(known == Acceptance::Accepted || known == Acceptance::LacksRoom && is_whole())
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

    /// Whether one pod has to go before it is known whether others may.
    pub(crate) fn is_open<'p>(
        &mut self,
        revision: &RevisionRecord,
        pods: impl IntoIterator<Item = &'p Arc<PodRecord>>,
    ) -> bool {
        let known = self.acceptance(revision, pods);
        matches!(known, Some(Acceptance::LacksRoom | Acceptance::Unproven))
    }

    fn acceptance<'p>(
        &mut self,
        revision: &RevisionRecord,
        pods: impl IntoIterator<Item = &'p Arc<PodRecord>>,
    ) -> Option<Acceptance> {
        let set = self.moment.set;
        let templates = self.claim_templates_of(revision);
        let made_of = made_of(revision, &templates);
        let is_of = |pod: &Arc<PodRecord>| {
            let label = pod.revision();
            label.is_some_and(|label| revision::is_named(set.name(), revision, label))
                && claim::may_be_made_from(pod, revision.name())
                && claim::was_made_with(pod, &templates).unwrap_or_else(|| has_claims_of(pod, &templates))
        };
        let known = if let Some(known) = self.acceptances.get(&made_of) {
            *known
        } else if self.hints.accepted.contains(&made_of) || pods.into_iter().any(is_of) {
            Acceptance::Accepted
        } else {
            self.refusal(revision.name(), &made_of)?
        };
        self.acceptances.insert(made_of, known);
        (known != Acceptance::Asked).then_some(known)
    }

    /// What a pod of a revision would be made of today.
    fn made_of(&self, revision: &RevisionRecord) -> String {
        made_of(revision, &self.claim_templates_of(revision))
    }

    /// Whether the API server has to be asked about a revision, and is not yet.
    pub(crate) fn is_untried(&self, revision: &RevisionRecord) -> bool {
        !self.acceptances.contains_key(&self.made_of(revision))
    }

    /// Asks the API server whether it would accept this pod of a revision.
    pub(crate) fn try_pod(&mut self, revision: &RevisionRecord, pod: PodDraft) {
        let made_of = self.made_of(revision);
        self.acceptances.insert(made_of.clone(), Acceptance::Asked);
        self.wait(revision.name().to_owned(), WaitCause::RevisionUntried, None);
        let command = Command::Try { pod: Box::new(pod) };
        let scope = Scope::Acceptance(made_of);
        self.stages.trial.push(ScopedCommand { scope, command });
    }

    /// What was said a moment ago to a trial that failed. Then it is told, and not asked again yet.
    fn refusal(&mut self, revision: &str, made_of: &str) -> Option<Acceptance> {
        let scope = Scope::Acceptance(made_of.to_owned());
        let failure = self.hints.failures.get(&scope).filter(|f| f.retry_at > self.moment.now);
        let failure = failure.cloned()?;
        self.held_back.insert(scope);
        self.wake_within(failure.retry_at.since(self.moment.now));
        let cause = WaitCause::of_refused_trial(failure.reason, failure.message, Some(failure.retry_at));
        let known = match &cause {
            WaitCause::RevisionUnproven { reason, .. } if reason == Failure::QUOTA_EXCEEDED => Acceptance::LacksRoom,
            WaitCause::RevisionUnproven { .. } => Acceptance::Unproven,
            _ => Acceptance::Refused,
        };
        let cause = cause.for_set(self.moment.set);
        self.wait(revision.to_owned(), cause, Some(failure.since));
        Some(known)
    }

    /// Whether this is the refusal of a trial that is to be asked again only later. Unlike a write's, it is not over because a pass does
    /// not want it: one that has no pod to spare does not ask, and the next that does is to wait as long as if it had.
    pub(crate) fn is_still_refused(&self, scope: &Scope, retry_at: Timestamp) -> bool {
        let Scope::Acceptance(of) = scope else { return false };
        let is_ours = *of == self.made_of(&self.update) || *of == self.made_of(&self.current);
        is_ours && self.acceptances.get(of) != Some(&Acceptance::Accepted) && retry_at > self.moment.now
    }

    /// What was accepted of other revisions, or with other claim templates, is forgotten: it comes back seldom, and is tried again then.
    pub(crate) fn forget_acceptances(&mut self) {
        if self.hints.accepted.is_empty() {
            return;
        }
        let known = [self.made_of(&self.update), self.made_of(&self.current)];
        self.hints.accepted.retain(|made_of| known.contains(made_of));
    }
}

/// What pods of a revision with these claim templates are made of. Such a name has no underscore, nor has that of a revision.
fn made_of(revision: &RevisionRecord, templates: &[ClaimTemplate]) -> String {
    format!("{}{}", revision.name(), claim::in_words(templates))
}

/// Whether a pod that does not say how it was made has the claims of these templates, and no others that are named as such claims are.
fn has_claims_of(pod: &PodRecord, templates: &[ClaimTemplate]) -> bool {
    let volumes = pod.volumes.iter().flat_map(|list| &**list);
    let named_after_it = volumes.filter(|v| v.claim.is_none());
    let mut others = named_after_it.filter(|v| templates.iter().all(|t| *t.name != *v.volume));
    claim::not_mounted(pod, templates).is_none() && others.next().is_none()
}
