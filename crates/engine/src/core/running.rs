//! The passes: asking the controller between their steps, sending what they want, and concluding. Whose turn is next stands in `turns`.

use super::events::Regarding;
use super::limiter::{self, Permit};
use super::memory::put_failed_last;
use super::pass::{Pass, Step, Task, Ticket};
use super::queue::{Handout, Priority};
use super::repeats::{Author, Fingerprint, Hold};
use super::request::Call;
use super::task::{call_of, written_to};
use super::trouble::panic_message;
use super::{Core, Purpose, QueueKey, written_object};
use flotilla_model::{
    Decision, EventNote, Failure, Hints, PassContext, Reader, Resource, Scope, StatusWrite, Timestamp, Uid,
};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Equal requests in a row that no event tells of: an answer may be lost, and a conflict take a few turns.
const REPETITIONS_UNTOLD: u32 = 3;

/// How long after a pass that found nothing but refusals those are tried that it did not come to.
const TRY_FURTHER_ONES_AFTER: Duration = Duration::from_secs(1);

/// A version that can be read is seen at once; this is for nothing but to keep the key in its queue.
const LOOK_AGAIN_AT_UNREADABLE: Duration = Duration::from_secs(60);

/// A pass in progress.
// Facts about a life that are independent of each other.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug)]
pub(super) struct ActivePass {
    pub(super) pass: Pass,
    pub(super) key: QueueKey,
    pub(super) regarding: Regarding,
    pub(super) priority: Priority,
    started: Timestamp,
    /// When something was last sent or answered.
    last_progress: Timestamp,
    /// It has waited for an answer to a write for so long that it takes no turn of others any more.
    pub(super) only_waits: bool,
    /// Of the object when it was looked at.
    generation: i64,
    /// When it stops starting commands.
    cut_at: Timestamp,
    acting: bool,
    /// That moment has come; only what is on its way is still awaited.
    is_cut: bool,
    /// From the latest look.
    status: Option<StatusWrite>,
    wake_after: Option<Duration>,
    /// When a status that was put off may be written.
    status_due: Option<Timestamp>,
    /// Where the first look found something to do.
    wanted: BTreeSet<Scope>,
    /// The last look found something to do elsewhere, which nothing else may bring up again.
    finds_more: bool,
    /// Commands that were not sent, since they would have been repetitions that come too soon; by our time, not the wall clock's.
    pub(super) held: BTreeMap<Scope, Failure>,
    /// Until when its namespace may not be written to, which has ended its commands.
    held_until: Option<Timestamp>,
}

impl ActivePass {
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        let cut = (self.acting && !self.is_cut).then_some(self.cut_at);
        let waits = (self.pass.awaits_write() && !self.only_waits).then(|| self.last_progress + limiter::SLOW_AFTER);
        cut.into_iter().chain(waits).min()
    }

    /// Whether it may yet send something: else it only waits for what is on its way.
    pub(super) fn may_send(&self) -> bool {
        !self.only_waits || self.acting && !self.is_cut
    }

    pub(super) fn started(&self) -> Timestamp {
        self.started
    }

    /// Something was sent for it, or answered.
    pub(super) fn progresses(&mut self, now: Timestamp) {
        self.last_progress = now;
        self.only_waits = false;
    }
}

/// What a controller said.
enum Look {
    Decided(Box<Decision>),
    Gone,
    Panicked(String),
}

impl Core {
    /// Starts, feeds and ends passes until nothing more can be done at `now`.
    pub(super) fn run_passes(&mut self, now: Timestamp) {
        self.limiter.notice_slow(now);
        loop {
            self.cut_passes(now);
            self.start_passes(now);
            self.send_tasks(now);
            let ended: Vec<(u64, Step)> = self
                .passes
                .iter()
                .filter_map(|(id, active)| Some((*id, active.pass.ended()?)))
                .collect();
            if ended.is_empty() {
                return;
            }
            for (id, step) in ended {
                self.step_ended(id, step, now);
            }
        }
    }

    /// Until when a set is not acted on: while its latest version cannot be read; a native one also at the start, and while somebody else
    /// acts on it.
    pub(super) fn held_back(&mut self, key: &QueueKey, now: Timestamp) -> Option<Timestamp> {
        let resource = self.controllers[key.controller].resource();
        if let Some(why) = self.unreadable(key) {
            let note = EventNote {
                warning: true,
                reason: "Unreadable",
                message: format!("this version cannot be read, and nothing is done until one can: {why}"),
            };
            let regarding = self.regarding(key);
            self.events.note(&regarding, note, now);
            return Some(now + LOOK_AGAIN_AT_UNREADABLE);
        }
        if resource != Resource::NativeSets {
            return None;
        }
        let observed = self.observing_since + self.options.observation_period;
        let uid = self.cache.uid_of(Resource::NativeSets, &key.key)?;
        let paused = self.foreign.paused_until(&uid, now);
        paused.max((now < observed).then_some(observed))
    }

    /// A pass that is under way starts nothing more.
    pub(super) fn stop_pass(&mut self, key: &QueueKey) {
        for active in self.passes.values_mut().filter(|active| active.key == *key) {
            active.pass.cut();
            active.is_cut = true;
        }
    }

    /// Whom events about a key are about.
    fn regarding(&self, key: &QueueKey) -> Regarding {
        let resource = self.controllers[key.controller].resource();
        let uid = self.cache.uid_of(resource, &key.key);
        Regarding {
            resource,
            key: key.key.clone(),
            uid: uid.unwrap_or_else(|| Uid::new("")),
        }
    }

    pub(super) fn start_pass(&mut self, handout: Handout<QueueKey>, now: Timestamp) {
        let Handout { key, priority, .. } = handout;
        let regarding = self.regarding(&key);
        let uid = self.cache.uid_of(regarding.resource, &key.key);
        self.remember(&key, uid, now);
        let unsettled = self.unsettled.get(&key).into_iter().flatten().cloned();
        let active = ActivePass {
            pass: Pass::new(unsettled),
            regarding,
            key,
            priority,
            started: now,
            last_progress: now,
            only_waits: false,
            cut_at: now + self.options.pass_slice,
            generation: 0,
            acting: false,
            is_cut: false,
            status: None,
            wake_after: None,
            status_due: None,
            wanted: BTreeSet::new(),
            finds_more: false,
            held: BTreeMap::new(),
            held_until: None,
        };
        self.next_pass += 1;
        self.passes.insert(self.next_pass, active);
        self.rotation.push_back(self.next_pass);
    }

    pub(super) fn generation_of(&self, key: &QueueKey) -> i64 {
        crate::wire::set_kind(self.controllers[key.controller].resource())
            .and_then(|kind| self.cache.set(kind, &key.key))
            .map_or(0, |set| set.generation)
    }

    fn cut_passes(&mut self, now: Timestamp) {
        for active in self
            .passes
            .values_mut()
            .filter(|a| a.acting && !a.is_cut && now >= a.cut_at)
        {
            active.pass.cut();
            active.is_cut = true;
        }
        for active in self.passes.values_mut().filter(|active| !active.only_waits) {
            active.only_waits = active.pass.awaits_write() && now >= active.last_progress + limiter::SLOW_AFTER;
        }
    }

    /// Sends what passes want, one request of each in turn, so that a big one does not hold up the small ones.
    fn send_tasks(&mut self, now: Timestamp) {
        let mut idle = 0;
        while idle < self.rotation.len() {
            let Some(id) = self.rotation.pop_front() else { return };
            let Some(active) = self.passes.get_mut(&id) else {
                continue;
            };
            let task = active.pass.next_task();
            self.rotation.push_back(id);
            let sent = task.is_some_and(|task| self.send_task(id, task, now));
            idle = if sent { 0 } else { idle + 1 };
        }
    }

    /// Whether the task was sent; if it had to wait it is with its pass again.
    fn send_task(&mut self, id: u64, task: Task, now: Timestamp) -> bool {
        let mut permit: Option<Permit> = None;
        if let Some((namespace, write)) = written_to(&task) {
            match self.limiter.take(namespace, write, now) {
                Ok(taken) => permit = Some(taken),
                Err(hold) => {
                    self.put_back(id, task, hold);
                    return false;
                }
            }
        }
        let Some(active) = self.passes.get(&id) else {
            return false;
        };
        let (key, ticket) = (active.key.clone(), task.ticket());
        let Some(call) = call_of(task) else { return true };
        let author = Author {
            resource: self.controllers[key.controller].resource(),
            key: &key.key,
            generation: active.generation,
        };
        let fingerprint = Fingerprint::of(&call, author);
        if let Some(fingerprint) = fingerprint.filter(|_| self.options.holds_repetitions) {
            if let Err(hold) = self.repeats.send(fingerprint, now) {
                if let Some(permit) = permit {
                    self.limiter.give_back(permit);
                }
                self.hold_back(id, &ticket, &call, hold, now);
                return true;
            }
            self.repeats.makes(fingerprint, author, now);
        }
        if let Some(active) = self.passes.get_mut(&id) {
            active.progresses(now);
        }
        let purpose = Purpose::Pass {
            id,
            key,
            ticket,
            permit,
            fingerprint,
        };
        self.send(call, purpose, now);
        true
    }

    /// A write would be a repetition that comes too soon. It is not sent, and its scope ends here; controllers say so.
    fn hold_back(&mut self, id: u64, ticket: &Ticket, call: &Call, hold: Hold, now: Timestamp) {
        let Some(active) = self.passes.get_mut(&id) else {
            return;
        };
        active.pass.hold_back(ticket);
        let Ticket::Command { scope, report, .. } = ticket else {
            active.status_due = Some(hold.until);
            return;
        };
        let is_refused = hold.refusal.is_some();
        let (reason, message) = hold
            .refusal
            .unwrap_or_else(|| (Failure::REPEATED.into(), Failure::REPEATED_MESSAGE.into()));
        if !is_refused && hold.times > REPETITIONS_UNTOLD {
            let (verb, kind, name) = (call.verb(), call.resource().kind(), written_object(call).1.name);
            let note = EventNote {
                warning: true,
                reason: Failure::REPEATED,
                message: format!("{verb} {kind} {name}: {message}"),
            };
            self.events.note(&active.regarding, note, now);
        }
        let failure = Failure {
            attempt: *report,
            reason,
            message,
            count: hold.times,
            since: hold.since,
            retry_at: hold.until,
        };
        active.held.insert(scope.clone(), failure);
    }

    fn put_back(&mut self, id: u64, task: Task, hold: limiter::Hold) {
        let Some(active) = self.passes.get_mut(&id) else {
            return;
        };
        active.pass.put_back(task);
        if let limiter::Hold::Pause(until) = hold {
            // Whoever waited for it would take the place of a pass for another namespace.
            active.pass.give_up();
            active.held_until = Some(until);
        }
    }

    fn step_ended(&mut self, id: u64, step: Step, now: Timestamp) {
        let Some(mut active) = self.passes.remove(&id) else {
            return;
        };
        match step {
            Step::Settling
                if active.pass.trouble().is_none() && !self.draining && self.unreadable(&active.key).is_none() =>
            {
                self.first_look(id, active, now);
            }
            // Whatever went wrong: who has looked says what was seen, and what came of it.
            Step::Acting => {
                active.acting = false;
                self.last_look(id, active, now);
            }
            Step::Settling | Step::Reporting => self.conclude(active, now),
        }
    }

    fn first_look(&mut self, id: u64, mut active: ActivePass, now: Timestamp) {
        match self.look(&active.key, now) {
            Look::Decided(decision) => {
                for note in decision.events {
                    self.events.note(&active.regarding, note, now);
                }
                self.keep_hints(&active.key, decision.hints);
                (active.status, active.wake_after) = (decision.status, decision.wake_after);
                active.generation = self.generation_of(&active.key);
                active.acting = true;
                let mut stages = decision.stages;
                let commands = stages.iter().flat_map(|stage| &stage.commands);
                active.wanted = commands.map(|command| command.scope.clone()).collect();
                if let Some(memory) = self.memory.get(&active.key) {
                    put_failed_last(&mut stages, &memory.hints.failures);
                }
                active.pass.act(stages);
                self.passes.insert(id, active);
            }
            Look::Gone => self.forget(active, now),
            Look::Panicked(message) => self.panicked(active, message, now),
        }
    }

    /// Looks again after something was tried, and takes from it the status only: what there is to do waits for the next pass.
    fn last_look(&mut self, id: u64, mut active: ActivePass, now: Timestamp) {
        self.keep_failures(&active, now);
        let failed = !active.pass.rejected().is_empty() || !active.held.is_empty();
        let tried = active.pass.wrote() || active.pass.is_stale() || failed;
        if self.is_followed(&active, now) {
            active.status = None;
        } else if tried {
            match self.look(&active.key, now) {
                Look::Decided(decision) => {
                    let is_new = |scope| !active.wanted.contains(scope);
                    active.finds_more = decision.commands().any(|command| is_new(&command.scope));
                    self.keep_hints(&active.key, decision.hints);
                    (active.status, active.wake_after) = (decision.status, decision.wake_after);
                }
                Look::Gone => return self.forget(active, now),
                Look::Panicked(message) => return self.panicked(active, message, now),
            }
        }
        let status = active.status.take().filter(|status| status.diff().is_some());
        let status = status.filter(|status| {
            active.status_due = self.put_off(&active.key, status, now);
            active.status_due.is_none()
        });
        if status.is_some()
            && let Some(memory) = self.memory.get_mut(&active.key)
        {
            memory.last_status = Some(now);
        }
        active.pass.report(status);
        self.passes.insert(id, active);
    }

    /// Whether the next pass, which comes soon, will say better what came of this one: it wrote, nothing went wrong, and a status has
    /// just been written. In a rollout whose every pass writes, each second look would be for nothing.
    fn is_followed(&self, active: &ActivePass, now: Timestamp) -> bool {
        let pass = &active.pass;
        let failed = !pass.rejected().is_empty() || pass.trouble().is_some() || !active.held.is_empty();
        let went_well = pass.wrote() && !pass.is_stale() && !failed;
        let has_told = self.status_due(&active.key).is_some_and(|due| now < due);
        went_well && has_told && !self.draining
    }

    /// When the next status may be written that changes nothing but counts; `None` where none was written yet. Later for a large set, as its
    /// passes are: a pass that may tell something looks a second time for it.
    fn status_due(&self, key: &QueueKey) -> Option<Timestamp> {
        let last = self.memory.get(key)?.last_status?;
        Some(last + self.options.status_interval + self.interval_for_pods(key))
    }

    /// Until when a status that changes nothing but counts is put off.
    fn put_off(&self, key: &QueueKey, status: &StatusWrite, now: Timestamp) -> Option<Timestamp> {
        let due = self.status_due(key)?;
        (now < due && status.only_counts_differ() && !self.draining).then_some(due)
    }

    fn look(&mut self, key: &QueueKey, now: Timestamp) -> Look {
        let nothing = Hints::default();
        let hints = self.memory.get(key).map_or(&nothing, |memory| &memory.hints);
        let context = PassContext {
            now: self.wall(now),
            observing_since: self.wall(self.acting_since()),
            entropy: mix(self.options.seed.wrapping_add(self.next_request)),
            hints,
        };
        let controller = &self.controllers[key.controller];
        // Controllers are pure: a panic leaves nothing half done behind.
        match catch_unwind(AssertUnwindSafe(|| {
            controller.reconcile(&self.cache, &key.key, context)
        })) {
            Ok(Some(decision)) => Look::Decided(Box::new(decision)),
            Ok(None) => Look::Gone,
            Err(panic) => Look::Panicked(panic_message(panic.as_ref())),
        }
    }

    fn forget(&mut self, active: ActivePass, now: Timestamp) {
        self.turns.of(&active.key).forget(&active.key);
        self.unsettled.remove(&active.key);
        self.refusals.forget(&active.key);
        if let Some(uid) = self.memory.remove(&active.key).and_then(|memory| memory.uid) {
            self.foreign.forget(&uid);
        }
        self.end(&active, "gone", now);
    }

    fn conclude(&mut self, active: ActivePass, now: Timestamp) {
        // Whatever the controller makes of it, it is asked again when what was held back may be sent.
        for held in active.held.values() {
            self.turns
                .of(&active.key)
                .add_at(active.key.clone(), Priority::Live, held.retry_at, now);
        }
        let result = match active.pass.trouble().cloned() {
            Some(trouble) => {
                self.failed(&active, &trouble, now);
                "error"
            }
            None => self.succeeded(&active, now),
        };
        self.end(&active, result, now);
    }

    fn succeeded(&mut self, active: &ActivePass, now: Timestamp) -> &'static str {
        let key = &active.key;
        // A status that was put off may be one that failed.
        if let Some(memory) = self.memory.get_mut(key).filter(|_| active.status_due.is_none()) {
            memory.trouble_since = None;
        }
        let retries = self
            .memory
            .get(key)
            .into_iter()
            .flat_map(|m| m.hints.failures.values().map(|f| f.retry_at + self.clock_steps.back));
        let retry = retries.filter(|at| *at > now).min();
        // A controller that is asked again at once, and asks again for what is held back, must not take the core for itself.
        let gave_up = active.pass.gave_up_after_refusals();
        let pause = match (gave_up, active.held.is_empty()) {
            (true, _) => TRY_FURTHER_ONES_AFTER,
            (false, false) => self.options.pass_interval,
            (false, true) => Duration::ZERO,
        };
        let soonest = now + pause;
        // Nor may each of many refusals bring up a pass of its own, which would try some more: the queue says when.
        let retry = retry.filter(|_| !gave_up);
        let wake = active.wake_after.map(|after| soonest.max(now + after));
        for at in [retry, wake, active.status_due].into_iter().flatten() {
            self.turns.of(key).add_at(key.clone(), Priority::Live, at, now);
        }
        if active.pass.is_stale() {
            self.turns.of(key).add_failed(key.clone(), Priority::Live, now);
            return "stale";
        }
        if active.pass.is_unfinished() {
            // While each pass finds further ones that are refused, it does not begin again ever later with those that were never tried.
            if gave_up && self.finds_more_refused(active) {
                self.turns.of(key).add_at(key.clone(), Priority::Live, soonest, now);
            } else {
                self.turns.of(key).add_failed(key.clone(), Priority::Live, now);
            }
            return "unfinished";
        }
        self.turns.of(key).forget(key);
        if active.pass.wrote() || active.pass.was_cut() || active.finds_more {
            // At once for a small set; what pods do meanwhile is then one pass for a large one.
            let at = now
                .max(self.affordable_at(key, now))
                .max(active.held_until.unwrap_or(now));
            self.turns.of(key).add_at(key.clone(), Priority::Live, at, now);
        }
        if active.pass.rejected().is_empty() {
            "success"
        } else {
            "rejected"
        }
    }

    pub(super) fn end(&mut self, active: &ActivePass, result: &'static str, now: Timestamp) {
        let controller = self.controllers[active.key.controller].name();
        self.metrics.pass(controller, result, now.since(active.started));
        self.turns.of(&active.key).done(&active.key, now);
    }

    /// We no longer lead: passes end where they are. Their keys wait until we lead again; late answers still reach the cache.
    pub(super) fn abandon_passes(&mut self, now: Timestamp) {
        self.rotation.clear();
        self.turns.take_back(now);
        for (_, active) in std::mem::take(&mut self.passes) {
            self.turns.of(&active.key).add(active.key.clone(), active.priority, now);
            self.end(&active, "abandoned", now);
        }
    }
}

/// `SplitMix64`: spreads a counter over all bits.
fn mix(counter: u64) -> u64 {
    let mut z = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
