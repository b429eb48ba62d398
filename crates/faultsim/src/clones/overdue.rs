//! Pods whose update in place does not end in time are made again where users ask for that (STS-8.12), one by one (CS-13.11).

use super::view::Clones;
use crate::in_place::state;
use crate::judge::{Verdict, require};
use crate::switches::{Switch, in_place_deadline};
use flotilla_model::set::{PodUpdatePolicy, UpdateKind};
use flotilla_model::{Decision, PodRecord, Report, Resource, WaitCause};
use std::sync::Arc;

impl Clones<'_> {
    /// Where nothing else is in the way, one of those that are overdue is made again with this very decision.
    pub(super) fn makes_overdue_pods_again(&self, decision: &Decision) -> Verdict {
        let set = self.sight.set;
        let is_asked_for = Switch::DeadlineAction.value(set) == Some("recreate");
        let Some(deadline) = in_place_deadline(set).filter(|_| is_asked_for) else {
            return Ok(());
        };
        // What the partition keeps is left alone, as in StatefulSets.
        let is_overdue = |pod: &&&Arc<PodRecord>| {
            self.is_new(pod) && self.sight.is_overdue(pod, deadline) && !self.seems_available(pod)
        };
        let Some(first) = self.active.iter().find(is_overdue) else {
            return Ok(());
        };
        let begins = decision
            .commands()
            .any(|scoped| scoped.command.report() == Report::ReCreate);
        require(
            begins || self.is_held_up(decision) || self.active.iter().any(|pod| self.is_in_the_way(pod, deadline)),
            "STS-8.12 deadline",
            || {
                format!(
                    "the update in place of {} takes longer than {deadline:?}, and no such pod is made again",
                    first.name()
                )
            },
        )
    }

    /// Whether the update rests, goes back, or waits for what is made, deleted, refused or tried.
    fn is_held_up(&self, decision: &Decision) -> bool {
        let spec = &self.sight.set.spec;
        let rests = spec.is_paused()
            || spec.update == UpdateKind::OnDelete
            || spec.pod_update_policy() == PodUpdatePolicy::InPlaceOnly
            || self.update.is_none()
            || self.back > 0;
        let number = super::view::count(self.active.len());
        let is_whole = number == self.asked.replicas;
        let hints = self.sight.hints;
        let has_failed = !hints.failures.is_empty() || !hints.repeated.is_empty();
        let mut waits = decision.waits.iter();
        let is_tried = waits.any(|wait| {
            matches!(
                wait.cause,
                WaitCause::RevisionUntried | WaitCause::RevisionUnproven { .. } | WaitCause::RevisionRefused { .. }
            )
        });
        // A pass that makes or deletes pods, takes some back or takes marks off, updates none (CS-14.8).
        let acts = decision
            .commands()
            .any(|scoped| matches!(scoped.command.resource(), Resource::Pods | Resource::Claims));
        rests || !is_whole || has_failed || is_tried || acts
    }

    /// Whether a pod leaves, was asked to be deleted, or holds others up as it is down and not overdue.
    fn is_in_the_way(&self, pod: &PodRecord, deadline: std::time::Duration) -> bool {
        let is_down = !self.is_surely_available(pod) && !self.sight.is_overdue(pod, deadline);
        Self::is_leaving(pod) || self.is_asked_for(pod) || is_down || state(pod) == "PreparingUpdate"
    }
}
