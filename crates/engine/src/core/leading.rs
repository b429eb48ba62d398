//! Being the leader: when passes may begin, and what happens when they may no longer.
//!
//! A new leader may have watched for hours, but its caches can lag behind the last writes of its predecessor. One that left in order has
//! noted on the lease how far its writes went (`last_write`): passes begin when the watches have come so far, as a rule at once. What they
//! have not shown within a second, and every kind where nothing is noted, is listed again after the lease was acquired, and passes begin when
//! all those lists are in. A list costs less than waiting for the watches to prove that they have caught up: bookmarks come once a minute.
//!
//! Whoever leaves keeps the lease, and renews it, until none of its writes can take effect any more: a successor would begin meanwhile.

use super::Core;
use super::last_write::Note;
use super::lease::Role;
use super::queue::Priority;
use super::request::Call;
use super::watching::Freshness;
use super::{Effect, Purpose};
use flotilla_model::{Resource, Timestamp};
use std::time::Duration;

/// Watches begin without a verdict of the election after this long.
const VERDICT_WITHIN: Duration = Duration::from_secs(2);

/// So long watches have to show what a predecessor has noted.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

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
            self.send(Call::Lease(call.set_back(self.clock_steps.back)), Purpose::Lease, now);
        }
        self.start_watches(now);
        match (self.holds_lease(now), self.leading_since) {
            (true, None) => self.begin_to_lead(now),
            (false, Some(_)) => self.cease_to_lead(now),
            (true, Some(_)) | (false, None) => {}
        }
        self.list_what_lags(now);
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
        (self.leading_since, self.acting_since) = (Some(now), now);
        self.metrics.acquisitions += 1;
        self.inherited = self.elector.as_mut().and_then(super::lease::Elector::take_note);
        self.last_writes.begin(self.inherited.as_ref());
        for (resource, kind) in &self.kinds {
            if let Some(seen) = kind.seen_since(now) {
                self.last_writes.found(*resource, seen);
            }
        }
        self.list_at = self.inherited.as_ref().map(|_| now + SHOWN_WITHIN);
        self.list_unless(|core, resource, kind| kind.will_cover(now) || core.noted(resource).is_some());
    }

    /// Lists the kinds of which this does not hold.
    fn list_unless(&mut self, holds: impl Fn(&Core, Resource, Freshness) -> bool) {
        // Right after the start every kind is about to be listed anyway.
        if self.effects.iter().any(|effect| matches!(effect, Effect::List(_))) {
            return;
        }
        let kinds = self.kinds.iter().map(|(resource, kind)| (*resource, *kind));
        let stale = kinds.filter(|(resource, kind)| !holds(self, *resource, *kind));
        let stale: Vec<Resource> = stale.map(|(resource, _)| resource).collect();
        self.effects.extend(stale.into_iter().map(Effect::List));
    }

    /// Up to which version our predecessor has noted that a kind must have been seen.
    fn noted(&self, resource: Resource) -> Option<u64> {
        self.inherited.as_ref()?.version(resource)
    }

    /// Whether everything of a kind is known that was written before we began to lead.
    fn is_fresh(&self, resource: Resource, kind: Freshness) -> bool {
        let is_shown = || self.noted(resource).is_some_and(|version| kind.shows(version));
        self.leading_since.is_some_and(|since| kind.covers(since) || is_shown())
    }

    /// Watches that have not come as far as our predecessor noted have had their time.
    fn list_what_lags(&mut self, now: Timestamp) {
        let Some(since) = self.leading_since.filter(|_| self.list_at.is_some_and(|at| now >= at)) else {
            return;
        };
        self.list_at = None;
        self.list_unless(|core, resource, kind| kind.will_cover(since) || core.is_fresh(resource, kind));
    }

    /// Since when this process sees what happens, and may do something about it: a standby that takes over gives whatever waited for a
    /// leader its time.
    pub(super) fn acting_since(&self) -> Timestamp {
        self.acting_since.max(self.observing_since)
    }

    fn cease_to_lead(&mut self, now: Timestamp) {
        self.leading_since = None;
        (self.inherited, self.list_at) = (None, None);
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
        if self.leading_since.is_none() || self.caught_up || !self.watching {
            return;
        }
        let mut needed = self.kinds.iter().filter(|(resource, _)| !resource.is_optional());
        if needed.all(|(resource, kind)| self.is_fresh(*resource, *kind)) {
            self.caught_up = true;
            self.look_at_everything(now);
        }
    }

    /// Nothing waits for optional kinds: what rests on one is done once it is known, and while it is.
    fn note_optional_kinds(&mut self, now: Timestamp) {
        let Some(kind) = self.kinds.get(&Resource::ImagePullJobs) else {
            return;
        };
        let is_fresh = self.is_fresh(Resource::ImagePullJobs, *kind);
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

    /// Stops beginning anything: passes end with what is on its way, and when nothing of it can take effect any more the lease is released.
    /// See [`Core::is_stopped`].
    pub fn begin_shutdown(&mut self) {
        self.draining = true;
        self.turns.close();
        for active in self.passes.values_mut() {
            active.pass.stop();
        }
    }

    /// Whether a shutdown has come to its end.
    pub fn is_stopped(&self) -> bool {
        self.draining && self.released && self.elector.as_ref().is_none_or(super::lease::Elector::is_released)
    }

    /// Gives the lease up once none of our writes may take effect any more. Whoever takes it then begins at once.
    pub(super) fn release_once_drained(&mut self, now: Timestamp) {
        let is_drained = self.passes.is_empty() && self.in_flight.is_empty();
        let is_quiet = self.elector.is_none() || self.last_writes.lost_until(now).is_none();
        if !self.draining || self.released || !is_drained || !is_quiet {
            return;
        }
        self.released = true;
        let note = self.parting_note();
        if let Some(elector) = &mut self.elector {
            elector.release(note, now);
        }
    }

    /// What our successor is to know of how far our writes went, if we know it ourselves.
    fn parting_note(&self) -> Option<Note> {
        self.leading_since?;
        // The watch has not told yet of what we deleted, and at which version.
        let is_awaited = |resource: &Resource| self.cache.sizes(*resource).2 > 0;
        if self.kinds.keys().any(is_awaited) {
            return None;
        }
        let needed = self
            .kinds
            .iter()
            .filter(|(resource, kind)| !resource.is_optional() && !kind.is_missing());
        self.last_writes.note(needed.map(|(resource, _)| *resource))
    }
}
