//! Being the leader: when passes may begin, and what happens when they may no longer.
//!
//! A new leader may have watched for hours, but its caches can lag behind the last writes of its predecessor. So every kind is
//! listed again after the lease was acquired, and passes begin when all those lists are in. A list costs less than waiting for
//! the watches to prove that they have caught up: bookmarks come once a minute.

use super::Core;
use super::lease::Role;
use super::queue::Priority;
use super::request::Call;
use super::{Effect, Purpose};
use flotilla_model::{Resource, Timestamp};
use std::time::Duration;

/// Watches begin without a verdict of the election after this long.
const VERDICT_WITHIN: Duration = Duration::from_secs(2);

impl Core {
    /// Whether `call` may be sent at this moment. Asked again by whoever sends it, right before.
    pub fn may_send(&self, call: &Call, now: Timestamp) -> bool {
        !call.needs_lease() || self.holds_lease(now)
    }

    /// Until when writes may be sent; `None` if they may not, or if there is no end.
    pub fn fence(&self) -> Option<Timestamp> {
        self.elector
            .as_ref()
            .map_or(Some(Timestamp::MAX), super::lease::Elector::fence)
    }

    /// Whether we hold the lease, or need none.
    pub fn holds_lease(&self, now: Timestamp) -> bool {
        self.elector
            .as_ref()
            .is_none_or(|elector| elector.role(now) == Role::Leader)
    }

    /// Whether passes may begin.
    pub(super) fn leads(&self) -> bool {
        self.caught_up
    }

    /// What is missing before passes may begin, in words; empty if nothing is.
    pub fn not_ready(&self) -> Vec<String> {
        let needed = self.kinds.iter().filter(|(resource, _)| !resource.is_optional());
        let kinds = needed.filter(|(_, kind)| !kind.is_known());
        let mut missing: Vec<String> = kinds
            .map(|(resource, kind)| {
                if kind.is_missing() {
                    format!("{resource}: the server does not know this kind")
                } else {
                    format!("{resource}: not listed yet")
                }
            })
            .collect();
        missing.sort();
        missing
    }

    pub(super) fn tick_election(&mut self, now: Timestamp) {
        if let Some(call) = self.elector.as_mut().and_then(|elector| elector.poll(now)) {
            self.send(Call::Lease(call), Purpose::Lease, now);
        }
        self.start_watches(now);
        match (self.holds_lease(now), self.leading_since) {
            (true, None) => self.begin_to_lead(now),
            (false, Some(_)) => self.cease_to_lead(now),
            (true, Some(_)) | (false, None) => {}
        }
        self.begin_passes_once_fresh(now);
        self.note_optional_kinds(now);
    }

    /// Watches begin with the election's first verdict: a leader then lists once, after it has become one.
    fn start_watches(&mut self, now: Timestamp) {
        if self.watching {
            return;
        }
        let undecided = self
            .elector
            .as_ref()
            .is_some_and(|elector| elector.role(now) == Role::Unknown);
        // Taking a free lease is a second request, which the first verdict calls for at once.
        let taking = self.pending.values().any(|p| matches!(p.purpose, Purpose::Lease));
        if (undecided || taking) && now < self.started + VERDICT_WITHIN {
            return;
        }
        self.watching = true;
        let kinds: Vec<Resource> = self.kinds.keys().copied().collect();
        self.effects.extend(kinds.into_iter().map(Effect::List));
        self.observing_since = now;
    }

    fn begin_to_lead(&mut self, now: Timestamp) {
        self.leading_since = Some(now);
        self.metrics.acquisitions += 1;
        let stale = self
            .kinds
            .iter()
            .filter(|(_, kind)| !kind.will_cover(now))
            .map(|(resource, _)| *resource);
        let stale: Vec<Resource> = stale.collect();
        // Right after the start every kind is about to be listed anyway.
        if !self.effects.iter().any(|effect| matches!(effect, Effect::List(_))) {
            self.effects.extend(stale.into_iter().map(Effect::List));
        }
    }

    /// Since when this process sees what happens, and may do something about it: a standby that takes over gives whatever waited for a
    /// leader its time.
    pub(super) fn acting_since(&self) -> Timestamp {
        let leading = self.leading_since.unwrap_or(self.observing_since);
        leading.max(self.observing_since)
    }

    fn cease_to_lead(&mut self, now: Timestamp) {
        self.leading_since = None;
        self.caught_up = false;
        for memory in self.memory.values_mut() {
            memory.hints.others_led();
        }
        if !self.draining {
            self.metrics.losses += 1;
        }
        self.abandon_passes(now);
    }

    fn begin_passes_once_fresh(&mut self, now: Timestamp) {
        let Some(since) = self.leading_since.filter(|_| !self.caught_up && self.watching) else {
            return;
        };
        let mut needed = self.kinds.iter().filter(|(resource, _)| !resource.is_optional());
        if needed.all(|(_, kind)| kind.covers(since)) {
            self.caught_up = true;
            self.look_at_everything(now);
        }
    }

    /// Nothing waits for optional kinds: what rests on one is done once it is known, and while it is.
    fn note_optional_kinds(&mut self, now: Timestamp) {
        let Some(kind) = self.kinds.get(&Resource::ImagePullJobs) else {
            return;
        };
        let is_fresh = self.leading_since.is_some_and(|since| kind.covers(since));
        let is_known = self.caught_up && is_fresh && kind.is_known();
        if is_known && !self.cache.knows_image_pull_jobs {
            self.cache.knows_image_pull_jobs = true;
            self.look_at_everything(now);
        }
        self.cache.knows_image_pull_jobs = is_known;
    }

    /// Whether the server does not know a kind, as far as it was asked.
    pub fn is_missing(&self, resource: Resource) -> bool {
        self.kinds.get(&resource).is_some_and(|kind| kind.is_missing())
    }

    /// Queues every object of every controller, behind whatever happens meanwhile.
    pub(super) fn look_at_everything(&mut self, now: Timestamp) {
        self.resync_at = now + self.options.resync_period;
        for index in 0..self.controllers.len() {
            let resource = self.controllers[index].resource();
            for set in crate::wire::set_kind(resource)
                .map(|kind| self.cache.all_sets(kind))
                .unwrap_or_default()
            {
                self.enqueue(index, set.meta.key.clone(), Priority::Replay, now);
            }
        }
    }

    /// Stops beginning anything: passes end with what is on its way, then the lease is released. See [`Core::is_stopped`].
    pub fn begin_shutdown(&mut self) {
        self.draining = true;
        self.turns.close();
        for active in self.passes.values_mut() {
            active.pass.stop();
        }
    }

    /// Whether the lease is being given up, or was.
    pub fn is_releasing(&self) -> bool {
        self.released
    }

    /// Gives the lease up even if requests are still on their way, whose answers are no longer waited for.
    pub fn release_lease(&mut self, now: Timestamp) {
        self.released = true;
        if let Some(elector) = &mut self.elector {
            elector.release(now);
        }
    }

    /// Whether a shutdown has come to its end.
    pub fn is_stopped(&self) -> bool {
        self.draining && self.released && self.elector.as_ref().is_none_or(super::lease::Elector::is_released)
    }

    pub(super) fn release_once_drained(&mut self, now: Timestamp) {
        if self.draining && !self.released && self.passes.is_empty() && self.in_flight.is_empty() {
            self.release_lease(now);
        }
    }
}
