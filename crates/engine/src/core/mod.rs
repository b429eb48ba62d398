//! The logic of the manager: plain data structures with time as an argument.
//!
//! [`Core`] owns them all. Whoever drives it feeds it what the watches tell ([`Core::watch`]) and what the API server answers
//! ([`Core::answer`]), then calls [`Core::advance`] and carries out [`Core::take_effects`]; nothing else ever happens. There is no
//! I/O, no clock, no randomness and no logging here, so a simulator can run the same code with virtual time. Given the same inputs,
//! the same effects come out in the same order.

mod answers;
pub mod cache;
pub mod census;
pub mod events;
pub mod foreign;
pub mod last_write;
mod leading;
pub mod lease;
pub mod limiter;
mod memory;
pub mod metrics;
pub mod options;
pub mod outcome;
mod pace;
pub mod pass;
pub mod queue;
pub mod refusals;
pub mod repeats;
pub mod request;
mod running;
pub mod store;
mod task;
#[cfg(test)]
pub(crate) mod testing;
mod trouble;
pub mod turns;
mod watching;

pub use options::CoreOptions;
pub use watching::{FIELD_MANAGER, WatchEvent};

use cache::Cache;
use events::{EventCall, Events};
use flotilla_model::{Change, Controller, ObjectKey, Owner, Reader, Resource, Timestamp, Uid};
use foreign::ForeignWriters;
use last_write::{LastWrites, Note};
use lease::Elector;
use limiter::{Limiter, Permit};
use memory::Memory;
use metrics::Metrics;
use pass::Ticket;
use queue::Priority;
use refusals::Refusals;
use repeats::{Fingerprint, ObjectDigest, Repeats};
use request::{Call, Request, RequestId};
use running::ActivePass;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use turns::Turns;
use watching::Freshness;

/// When everything is looked at after a controller panicked over whom a change concerns.
const LOOK_AFTER_PANIC: Duration = Duration::from_secs(10);

/// What is worked on: a controller, by its place in the list of controllers, and the object's key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey {
    /// Place in the list of controllers.
    pub controller: usize,
    /// The object.
    pub key: ObjectKey,
}

impl QueueKey {
    fn new(controller: usize, key: &ObjectKey) -> Self {
        QueueKey {
            controller,
            key: key.clone(),
        }
    }
}

/// What the core wants done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Send a request, and bring the answer.
    Send(Request),
    /// List this kind and watch it from there; drop the watch that may be running.
    List(Resource),
}

/// By how much the wall clock has been set, all times in either direction together. A machine that slept has its clock set ahead.
///
/// The time that drives a core never goes back, as its own lease, queues and limits want it: it follows the wall clock ahead, and not
/// back. Whoever decides about objects, whose times are true, is told what the wall clock shows; and how long another has not renewed a
/// lease is counted without the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockSteps {
    /// Ahead: so much is the time that drives the core ahead of a clock that merely runs.
    pub ahead: Duration,
    /// Back: so much is it ahead of the wall clock.
    pub back: Duration,
}

/// Where a change comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A list: it may have happened long ago.
    List,
    /// An answer, or what may be the effect of a write of ours.
    Ours,
    /// Somebody else, just now.
    Others,
}

/// Why a request was sent.
#[derive(Debug)]
enum Purpose {
    Lease,
    Event(EventCall),
    Pass {
        id: u64,
        key: QueueKey,
        ticket: Ticket,
        permit: Option<Permit>,
        /// By which repetitions of a write are known.
        fingerprint: Option<Fingerprint>,
    },
}

#[derive(Debug)]
struct Pending {
    purpose: Purpose,
    verb: &'static str,
    resource: Resource,
    /// The incarnation that a read was about: when it is answered "not found", that one is gone, and no other.
    known: Option<Uid>,
    sent_at: Timestamp,
}

/// The manager, without its I/O; see the module's description.
// Four facts about a life that are independent of each other.
#[allow(clippy::struct_excessive_bools)]
pub struct Core {
    options: CoreOptions,
    controllers: Vec<Box<dyn Controller>>,
    /// What is known of the cluster.
    pub cache: Cache,
    /// Which key is next.
    turns: Turns,
    memory: BTreeMap<QueueKey, Memory>,
    passes: BTreeMap<u64, ActivePass>,
    /// Passes in the order in which they may send next.
    rotation: VecDeque<u64>,
    next_pass: u64,
    pending: BTreeMap<RequestId, Pending>,
    next_request: u64,
    /// Objects with writes on their way, and how many.
    in_flight: BTreeMap<(Resource, ObjectKey), u32>,
    /// Sets whose latest version cannot be read, and why: nobody knows what it asks for.
    unreadable: BTreeMap<(Resource, ObjectKey), String>,
    /// Objects that must be read before the next pass of a key.
    unsettled: BTreeMap<QueueKey, BTreeSet<(Resource, ObjectKey)>>,
    limiter: Limiter,
    repeats: Repeats,
    elector: Option<Elector>,
    kinds: BTreeMap<Resource, Freshness>,
    foreign: ForeignWriters,
    events: Events,
    metrics: Metrics,
    /// The last pass that failed, and why; for whoever writes logs.
    last_trouble: Option<(QueueKey, String)>,
    refusals: Refusals,
    effects: Vec<Effect>,
    started: Timestamp,
    /// Steps ahead of the clock do not count: nothing was seen in them.
    observing_since: Timestamp,
    /// When we began to lead, in the same way.
    acting_since: Timestamp,
    resync_at: Timestamp,
    leading_since: Option<Timestamp>,
    /// What our predecessor noted, while we lead.
    inherited: Option<Note>,
    /// When kinds are listed whose watches have not shown by then what it noted.
    list_at: Option<Timestamp>,
    /// Whether everything is known that our predecessor wrote.
    caught_up: bool,
    /// What we would note.
    last_writes: LastWrites,
    watching: bool,
    draining: bool,
    released: bool,
    clock_steps: ClockSteps,
}

impl Core {
    /// A manager with these controllers that begins at `now`.
    pub fn new(options: CoreOptions, controllers: Vec<Box<dyn Controller>>, now: Timestamp) -> Self {
        let leaves_native_sets = controllers.iter().all(|c| c.resource() != Resource::NativeSets);
        let kinds = controllers.iter().map(|c| c.resource());
        let kinds = kinds.filter(|kind| {
            matches!(
                kind,
                Resource::NativeSets | Resource::AdvancedSets | Resource::CloneSets
            )
        });
        let kinds: BTreeSet<String> = kinds.map(|kind| kind.to_string()).collect();
        let looks_after = Vec::from_iter(kinds).join(",");
        let identity = options.identity.clone();
        let elector = options
            .lease
            .as_ref()
            .map(|lease| Elector::new(identity, lease.times, now).looking_after(looks_after));
        Core {
            kinds: options
                .resources
                .iter()
                .map(|resource| (*resource, Freshness::default()))
                .collect(),
            limiter: Limiter::new(options.writes_in_flight_start, options.writes_in_flight_max),
            repeats: Repeats::default(),
            foreign: ForeignWriters::new(options.foreign_pause),
            resync_at: now + options.resync_period,
            elector,
            options,
            turns: Turns::new(controllers.len()),
            controllers,
            cache: Cache::new(leaves_native_sets),
            memory: BTreeMap::new(),
            passes: BTreeMap::new(),
            rotation: VecDeque::new(),
            next_pass: 0,
            pending: BTreeMap::new(),
            next_request: 0,
            in_flight: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            events: Events::default(),
            metrics: Metrics::default(),
            last_trouble: None,
            refusals: Refusals::default(),
            effects: Vec::new(),
            started: now,
            observing_since: now,
            acting_since: now,
            leading_since: None,
            inherited: None,
            list_at: None,
            caught_up: false,
            last_writes: LastWrites::default(),
            watching: false,
            draining: false,
            released: false,
            clock_steps: ClockSteps::default(),
        }
    }

    /// The kinds to watch.
    pub fn resources(&self) -> impl Iterator<Item = Resource> {
        self.kinds.keys().copied()
    }

    /// Does everything that is due at `now`. Call it after feeding, and at [`Core::next_wake`].
    pub fn advance(&mut self, now: Timestamp) {
        self.tick_election(now);
        if self.caught_up && now >= self.resync_at {
            self.look_at_everything(now);
        }
        self.run_passes(now);
        while let Some(call) = self.events.next_call(now) {
            let shown = call.clone().set_back(self.clock_steps.back);
            self.send(Call::Event(shown), Purpose::Event(call), now);
        }
        self.release_once_drained(now);
        if self.released {
            self.tick_election(now);
        }
    }

    /// Tells how the wall clock has been set by now. Before anything else is told that was seen after it.
    pub fn note_clock_steps(&mut self, steps: ClockSteps, now: Timestamp) {
        let ahead = steps.ahead.saturating_sub(self.clock_steps.ahead);
        let back = steps.back.saturating_sub(self.clock_steps.back);
        self.clock_steps = steps;
        if let Some(elector) = &mut self.elector {
            elector.clock_was_set_ahead(ahead);
        }
        self.foreign.clock_was_set_ahead(ahead);
        self.last_writes.clock_was_set_ahead(ahead);
        self.observing_since = self.observing_since + ahead;
        self.acting_since = self.acting_since + ahead;
        for memory in self.memory.values_mut() {
            memory.hints.clock_was_set(ahead, back);
        }
        // What was taken for old enough may not be, and what is may be long since.
        self.resync_at = now;
    }

    /// What the wall clock shows at this moment of ours.
    fn wall(&self, at: Timestamp) -> Timestamp {
        at - self.clock_steps.back
    }

    /// Notes how long a [`Core::advance`] took; there is no clock in here.
    pub fn note_advance(&mut self, took: Duration) {
        self.metrics.longest_advance = self.metrics.longest_advance.max(took);
    }

    /// Takes out what is to be done, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// When [`Core::advance`] next has something to do, if nothing is fed before.
    pub fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        let election = self.elector.as_ref().and_then(Elector::next_wake);
        let fence = self.leading_since.and(self.elector.as_ref()).and_then(Elector::fence);
        let turn = self.next_turn(now).filter(|_| self.caught_up && !self.draining);
        let passes = self.passes.values().filter_map(ActivePass::next_wake).min();
        let limiter = self.limiter.quiet_until(now).or(self.limiter.next_wake());
        let limiter = limiter.filter(|_| !self.passes.is_empty());
        let resync = self.caught_up.then_some(self.resync_at);
        let start = (!self.watching).then(|| self.started + Duration::from_secs(2));
        // A write of ours may yet take effect, and the lease is kept so long.
        let quiet = self.last_writes.lost_until(now).filter(|_| self.draining);
        let wakes = [
            election,
            fence,
            quiet,
            self.list_at,
            turn,
            passes,
            limiter,
            resync,
            start,
            self.events.next_wake(now),
        ];
        wakes.into_iter().flatten().min()
    }

    /// Adds the keys that a change concerns to the queue.
    fn route(&mut self, change: Option<Change>, origin: Origin, now: Timestamp) {
        let Some(change) = change else { return };
        let priority = match origin {
            Origin::List => Priority::Replay,
            Origin::Ours | Origin::Others => Priority::Live,
        };
        if let Change::Pod(old, new) = &change {
            self.repeats
                .pod_changed(old.as_deref(), new.as_deref(), &self.cache, now);
        }
        let by_others = origin == Origin::Others;
        if by_others && let Some((resource, key)) = change.object() {
            self.repeats.changed_by_others(ObjectDigest::of(resource, key), now);
        }
        let mut keys = Vec::new();
        for index in 0..self.controllers.len() {
            let controller = &self.controllers[index];
            // Controllers are pure: a panic leaves nothing half done behind but some of the keys.
            let routed = catch_unwind(AssertUnwindSafe(|| controller.route(&change, &self.cache, &mut keys)));
            if routed.is_err() {
                // Whom the change concerns nobody knows: before long everything is looked at.
                self.metrics.panics += 1;
                self.resync_at = self.resync_at.min(now + LOOK_AFTER_PANIC);
            }
            let resource = self.controllers[index].resource();
            for key in keys.drain(..) {
                if by_others {
                    // What is written to it, such as its status, depends on all that concerns it.
                    self.repeats.changed_by_others(ObjectDigest::of(resource, &key), now);
                }
                self.enqueue(index, key, priority, now);
            }
        }
    }

    /// Adds a key, but leaves some time between two passes, so that a thousand changes in a row are a few passes.
    fn enqueue(&mut self, controller: usize, key: ObjectKey, priority: Priority, now: Timestamp) {
        let key = QueueKey { controller, key };
        // Nobody takes keys from the queues of a standby: of what has come and gone, none is to be left.
        if !self.leads() && !self.is_known(&key) {
            self.turns.of(&key).withdraw(&key);
            return;
        }
        let last = self.memory.get(&key).and_then(|memory| memory.last_pass);
        let at = last.map_or(now, |last| now.max(last + self.options.pass_interval));
        let at = at.max(self.affordable_at(&key, now));
        self.turns.of(&key).add_at(key, priority, at, now);
    }

    /// Whether the object of a key is there, or something is remembered of it.
    fn is_known(&self, key: &QueueKey) -> bool {
        let resource = self.controllers[key.controller].resource();
        self.memory.contains_key(key) || self.cache.has(resource, &key.key)
    }

    /// From when on another pass over a key keeps it within its share. A key that has been at rest gets a few passes at once: what happens to
    /// one pod of twenty thousand is not to wait for the three seconds that bound what they cost when all of them are busy.
    fn affordable_at(&self, key: &QueueKey, now: Timestamp) -> Timestamp {
        let pace = self.memory.get(key).map(|memory| memory.pace).unwrap_or_default();
        pace.affordable_at(self.interval_for_pods(key), now)
    }

    /// Notes that a pass over a key begins.
    fn note_pass(&mut self, key: &QueueKey, now: Timestamp) {
        let interval = self.interval_for_pods(key);
        if let Some(memory) = self.memory.get_mut(key) {
            memory.last_pass = Some(now);
            memory.pace.note(interval, now);
        }
    }

    /// What the pods of a key add to the time between two passes over it.
    fn interval_for_pods(&self, key: &QueueKey) -> Duration {
        let owner = |uid| Owner {
            namespace: &key.key.namespace,
            kind: self.controllers[key.controller].resource().kind(),
            name: &key.key.name,
            uid,
        };
        let uid = self.memory.get(key).and_then(|memory| memory.uid.as_ref());
        let pods = uid.map_or(0, |uid| self.cache.pods_of(owner(uid)).len());
        let pods = u32::try_from(pods).unwrap_or(u32::MAX);
        self.options.pass_interval_per_pod.saturating_mul(pods)
    }

    fn send(&mut self, call: Call, purpose: Purpose, now: Timestamp) {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        if call.needs_lease() {
            *self.in_flight.entry(written_object(&call)).or_default() += 1;
        }
        let known = match &call {
            Call::Get { resource, key } => self.cache.uid_of(*resource, key),
            Call::Write(_) | Call::Status(_) | Call::Lease(_) | Call::Event(_) => None,
        };
        self.pending.insert(
            id,
            Pending {
                purpose,
                verb: call.verb(),
                resource: call.resource(),
                known,
                sent_at: now,
            },
        );
        self.effects.push(Effect::Send(Request { id, call }));
    }

    /// The last pass that failed since this was asked, and why.
    pub fn take_trouble(&mut self) -> Option<(QueueKey, String)> {
        self.last_trouble.take()
    }

    /// The controller that a key belongs to.
    pub fn controller_name(&self, key: &QueueKey) -> &'static str {
        self.controllers[key.controller].name()
    }

    /// What was refused since this was asked, as far as it is to be logged.
    pub fn take_refusals(&mut self) -> Vec<refusals::Refusal> {
        self.refusals.take()
    }

    /// Counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The window of writes, for its numbers.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// What was sent lately, for its numbers.
    pub fn repeats(&self) -> &Repeats {
        &self.repeats
    }

    /// Sets with foreign writers, for their numbers.
    pub fn foreign(&self) -> &ForeignWriters {
        &self.foreign
    }

    /// Notes that no event tells of.
    pub fn events_dropped(&self) -> u64 {
        self.events.dropped()
    }

    /// How many objects must be read before they are decided about again.
    pub fn unsettled_len(&self) -> usize {
        self.unsettled.values().map(BTreeSet::len).sum()
    }

    /// Who held the lease when we last looked.
    pub fn lease_holder(&self) -> Option<&str> {
        self.elector.as_ref().and_then(Elector::holder)
    }
}

/// The object that a write is about.
fn written_object(call: &Call) -> (Resource, ObjectKey) {
    match call {
        Call::Write(command) => (command.resource(), command.key().clone()),
        Call::Status(patch) => (patch.resource, patch.key.clone()),
        Call::Get { resource, key } => (*resource, key.clone()),
        Call::Lease(_) | Call::Event(_) => (call.resource(), ObjectKey::new("", "")),
    }
}
