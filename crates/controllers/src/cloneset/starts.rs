//! Pods that end right after their start are not made again at the speed at which they end (STS-8.5).
//!
//! A StatefulSet keeps count by ordinal. Here names are made up, so that the count is the set's, and it counts rounds: pods that were made
//! since the last wait, of which more have ended than are there. A few that a node refuses among many that live slow nothing down.

use super::plan::Plan;
use crate::shared::conditions;
use crate::shared::course::Trouble;
use flotilla_model::hints::Starts;
use flotilla_model::{PodRecord, SetKind, WaitCause};
use std::time::Duration;

/// Where the one count of a set stands among those by ordinal.
const OF_THE_SET: i64 = 0;
/// Creation times are whole seconds.
const A_SECOND: Duration = Duration::from_secs(1);
/// How many rounds are worth a condition and an event.
const TOLD_FROM: u32 = 2;

impl Plan<'_> {
    /// Keeps the count of failed starts, and says so where there are many.
    pub(super) fn note_starts(&mut self) {
        let (view, now) = (self.view, self.view.now);
        if view.hints.generation != view.set.generation {
            // An edit may have removed the cause.
            self.pass.hints.starts.clear();
        }
        let known = self.pass.hints.starts.get(&OF_THE_SET).copied();
        let since = known.map_or(now - Starts::WITHIN, |known| known.retry_at);
        let is_recent = |pod: &&PodRecord| pod.meta.created + A_SECOND > since;
        let recent = || {
            view.pods
                .iter()
                .map(|pod| &**pod)
                .filter(is_recent)
                .filter(|pod| !pod.is_terminating())
        };
        let newest = |pods: &mut dyn Iterator<Item = &PodRecord>| pods.map(|pod| pod.meta.created).max();
        let is_young = |pod: &&PodRecord| now.since(pod.meta.created) < Starts::WITHIN;
        let ended = || recent().filter(|pod| pod.is_terminal()).filter(is_young);
        let there = || recent().filter(|pod| !pod.is_terminal());
        if let Some(created) = newest(&mut ended()).filter(|_| ended().count() > there().count())
            && let Some(starts) = Starts::follow(known.as_ref(), created, now)
        {
            self.pass.hints.starts.insert(OF_THE_SET, starts);
        } else if let Some(known) = known {
            let lives = there().map(|pod| now.since(pod.meta.created)).max();
            if lives.is_some_and(|age| age >= Starts::WITHIN) || Starts::is_forgiven(now.since(known.retry_at)) {
                self.pass.hints.starts.remove(&OF_THE_SET);
            } else if let Some(age) = lives {
                self.pass.wake_within(Starts::WITHIN.saturating_sub(age));
            }
        }
        let failed = self
            .pass
            .hints
            .starts
            .get(&OF_THE_SET)
            .map_or(0, |starts| starts.failed);
        if failed >= TOLD_FROM {
            let message = "pods end right after their start; the next are made ever later".to_owned();
            self.pass.event_once(true, "StartBackOff", message.clone());
            self.pass.troubles.push(Trouble {
                condition: conditions::failed_creation(SetKind::Clone),
                reason: "StartBackOff",
                message,
            });
        }
    }

    /// Whether no pod is made for now, since the last ones ended right after their start.
    pub(super) fn waits_for_next_start(&mut self) -> bool {
        let now = self.view.now;
        let starts = self.pass.hints.starts.get(&OF_THE_SET).copied();
        let Some(starts) = starts.filter(|starts| starts.retry_at > now) else {
            return false;
        };
        self.pass.wake_within(starts.retry_at.since(now));
        let cause = WaitCause::StartBackOff {
            failed: starts.failed,
            retry_at: starts.retry_at,
        };
        let subject = self.view.set.name().to_owned();
        self.pass.wait(subject, cause, Some(starts.last_created));
        true
    }
}
