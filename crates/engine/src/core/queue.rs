//! The work queue: which key is worked on next, and when.
//!
//! One entry a key, so any number of adds while a key waits are one run, and any number while it is processed are exactly one
//! further run. A key is handed out to one worker at a time. Ready keys come in order of priority, then of the time at which they
//! became ready; delayed keys wait for theirs. Merging two adds keeps the earlier time and the higher priority. A key re-added
//! while it is processed keeps the seniority of that add, so a slow run does not send it behind all the others.
//!
//! Back-off counts at most one failure per elapsed window: a key that watch events wake again and again while its cause persists
//! does not drift towards the longest back-off.

use flotilla_model::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// How urgent an add is. Replays (the initial list, a relist) yield to whatever just happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// A replay of what exists.
    Replay,
    /// Something changed just now.
    #[default]
    Live,
}

/// Back-off after failed runs: `base`, doubled with each failure, never above `cap`.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// Delay after the first failure.
    pub base: Duration,
    /// Longest delay.
    pub cap: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            base: Duration::from_millis(5),
            cap: Duration::from_secs(60),
        }
    }
}

impl Backoff {
    /// The delay after the given number of earlier failures.
    pub fn delay(&self, earlier_failures: u32) -> Duration {
        self.base
            .saturating_mul(1_u32.checked_shl(earlier_failures).unwrap_or(u32::MAX))
            .min(self.cap)
    }
}

/// No delayed add lies further in the future than this.
const LONGEST_DELAY: Duration = Duration::from_secs(10 * 3600);

/// A key handed out by [`Queue::pop`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handout<K> {
    /// The key.
    pub key: K,
    /// The priority under which it waited.
    pub priority: Priority,
    /// How long it had been ready.
    pub waited: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// When it becomes, or became, ready.
    ready_at: Timestamp,
    priority: Priority,
    /// Place among entries that became ready at the same moment, in the order of the adds.
    sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    window_ends: Timestamp,
}

type Place = (Reverse<Priority>, Timestamp, u64);

/// A work queue over virtual time; see the module's description for its promises.
#[derive(Debug)]
pub struct Queue<K> {
    /// Every key that waits to be handed out, locked ones included.
    entries: BTreeMap<K, Entry>,
    /// Entries whose time has come and whose key is not locked.
    ready: BTreeMap<Place, K>,
    /// Entries whose time has not come and whose key is not locked.
    delayed: BTreeMap<(Timestamp, u64), K>,
    /// Keys handed out and not done, with the moment of the handout.
    locked: BTreeMap<K, Timestamp>,
    failures: BTreeMap<K, Failures>,
    backoff: Backoff,
    next_sequence: u64,
    adds: u64,
    retries: u64,
    closed: bool,
}

impl<K: Clone + Ord> Queue<K> {
    /// An empty queue.
    pub fn new(backoff: Backoff) -> Self {
        Queue {
            entries: BTreeMap::new(),
            ready: BTreeMap::new(),
            delayed: BTreeMap::new(),
            locked: BTreeMap::new(),
            failures: BTreeMap::new(),
            backoff,
            next_sequence: 0,
            adds: 0,
            retries: 0,
            closed: false,
        }
    }

    /// Wants `key` processed as soon as possible.
    pub fn add(&mut self, key: K, priority: Priority, now: Timestamp) {
        self.add_at(key, priority, now, now);
    }

    /// Wants `key` processed at `at`, or earlier if it is already wanted earlier. Dropped after [`Queue::close`].
    pub fn add_at(&mut self, key: K, priority: Priority, at: Timestamp, now: Timestamp) {
        if self.closed {
            return;
        }
        self.adds += 1;
        let at = at.clamp(now, now + LONGEST_DELAY);
        let merged = match self.entries.get(&key).copied() {
            None => self.new_entry(at, priority),
            Some(old) if at < old.ready_at => {
                self.unplace(&old);
                self.new_entry(at, priority.max(old.priority))
            }
            Some(old) if priority > old.priority => {
                self.unplace(&old);
                Entry { priority, ..old }
            }
            Some(_) => return,
        };
        self.place(&key, merged, now);
        self.entries.insert(key, merged);
    }

    fn new_entry(&mut self, ready_at: Timestamp, priority: Priority) -> Entry {
        self.next_sequence += 1;
        Entry {
            ready_at,
            priority,
            sequence: self.next_sequence,
        }
    }

    fn place(&mut self, key: &K, entry: Entry, now: Timestamp) {
        if self.locked.contains_key(key) {
            return;
        }
        if entry.ready_at <= now {
            self.ready
                .insert((Reverse(entry.priority), entry.ready_at, entry.sequence), key.clone());
        } else {
            self.delayed.insert((entry.ready_at, entry.sequence), key.clone());
        }
    }

    fn unplace(&mut self, entry: &Entry) {
        self.delayed.remove(&(entry.ready_at, entry.sequence));
        self.ready
            .remove(&(Reverse(entry.priority), entry.ready_at, entry.sequence));
    }

    /// Forgets that `key` waits, if it does.
    pub fn withdraw(&mut self, key: &K) {
        self.failures.remove(key);
        if let Some(entry) = self.entries.remove(key) {
            self.unplace(&entry);
        }
    }

    /// Hands out the next ready key and locks it until [`Queue::done`]. Works after [`Queue::close`] too: what is left drains.
    pub fn pop(&mut self, now: Timestamp) -> Option<Handout<K>> {
        self.promote(now);
        let (_, key) = self.ready.pop_first()?;
        let entry = self.entries.remove(&key).expect("every placed key has an entry");
        self.locked.insert(key.clone(), now);
        Some(Handout {
            key,
            priority: entry.priority,
            waited: now.since(entry.ready_at),
        })
    }

    fn promote(&mut self, now: Timestamp) {
        while let Some(due) = self.delayed.first_entry().filter(|e| e.key().0 <= now) {
            let key = due.remove();
            let entry = self.entries[&key];
            self.ready
                .insert((Reverse(entry.priority), entry.ready_at, entry.sequence), key);
        }
    }

    /// The run of `key` has ended, well or not. If it was added meanwhile it waits again from now on. Returns how long the run
    /// took; `None` if the key was not handed out.
    pub fn done(&mut self, key: &K, now: Timestamp) -> Option<Duration> {
        let since = self.locked.remove(key)?;
        if let Some(entry) = self.entries.get(key).copied() {
            self.place(key, entry, now);
        }
        Some(now.since(since))
    }

    /// Counts a failed run of `key` and adds it again after its back-off. Returns when that is. A second failure within the same
    /// window does not make the window longer.
    pub fn add_failed(&mut self, key: K, priority: Priority, now: Timestamp) -> Timestamp {
        self.retries += 1;
        let known = self.failures.get(&key).copied();
        let at = match known {
            Some(known) if now < known.window_ends => known.window_ends,
            _ => {
                let count = known.map_or(0, |k| k.count);
                let window_ends = now + self.backoff.delay(count);
                self.failures.insert(
                    key.clone(),
                    Failures {
                        count: count.saturating_add(1),
                        window_ends,
                    },
                );
                window_ends
            }
        };
        self.add_at(key, priority, at, now);
        at
    }

    /// Forgets the failures of `key`: its last run went well.
    pub fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// How many failures of `key` count towards its back-off.
    pub fn failure_count(&self, key: &K) -> u32 {
        self.failures.get(key).map_or(0, |f| f.count)
    }

    /// When [`Queue::pop`] will next have something, if nothing is added before: now (a time not after `now`) if a key is ready.
    pub fn next_ready(&self) -> Option<Timestamp> {
        let ready = self.ready.first_key_value().map(|((_, at, _), _)| *at);
        ready.or_else(|| self.delayed.first_key_value().map(|((at, _), _)| *at))
    }

    /// Refuses adds from now on.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether nobody works on anything.
    pub fn is_drained(&self) -> bool {
        self.locked.is_empty()
    }

    /// How many keys wait to be handed out, whenever that may be.
    pub fn waiting(&self) -> usize {
        self.entries.len()
    }

    /// How many keys wait for their turn now, delayed ones not counted.
    pub fn depth(&self) -> usize {
        self.ready.len()
    }

    /// How many keys wait for their time.
    pub fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// How many keys are being processed.
    pub fn active(&self) -> usize {
        self.locked.len()
    }

    /// Adds accepted so far, merged ones included.
    pub fn adds(&self) -> u64 {
        self.adds
    }

    /// Adds after failures so far.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Keys being processed, each with the moment of its handout.
    pub fn locked(&self) -> impl Iterator<Item = (&K, Timestamp)> {
        self.locked.iter().map(|(k, t)| (k, *t))
    }
}

#[cfg(test)]
mod tests;
