//! Whose turn it is: which key of which controller is worked on next.
//!
//! Each controller has a queue and workers of its own, and controllers take turns. A pass takes a worker while it has something to do or to
//! send; one that has waited for a second for the answer to a write takes none. What is slow in one namespace, such as a webhook that
//! hangs, would yet take all workers for that long again and again: so slow namespaces together have half of them at most.

use super::Core;
use super::QueueKey;
use super::queue::{Backoff, Handout, Queue};
use super::running::ActivePass;
use flotilla_model::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// The queues of all controllers.
#[derive(Debug)]
pub struct Turns {
    lanes: Vec<Lane>,
    /// The controller that began a pass last.
    latest: usize,
}

/// What waits for one controller.
#[derive(Debug)]
struct Lane {
    queue: Queue<QueueKey>,
    /// Keys of slow namespaces whose turn has come while others of such use what is there for them, by namespace: these take turns.
    put_off: BTreeMap<Arc<str>, VecDeque<Handout<QueueKey>>>,
    /// The namespace of the last of them that began.
    latest: Option<Arc<str>>,
}

impl Lane {
    fn put_off(&mut self, handout: Handout<QueueKey>) {
        let namespace = handout.key.key.namespace.clone();
        self.put_off.entry(namespace).or_default().push_back(handout);
    }

    /// The first of those that were put off whose namespace is wanted, of the namespaces after the one whose turn was last.
    fn take_put_off(&mut self, is_wanted: impl Fn(&str) -> bool) -> Option<Handout<QueueKey>> {
        let after = self.latest.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let in_turn = self.put_off.range((after, Bound::Unbounded)).chain(&self.put_off);
        let (namespace, _) = in_turn.into_iter().find(|(namespace, _)| is_wanted(namespace))?;
        let namespace = namespace.clone();
        let waiting = self.put_off.get_mut(&namespace)?;
        let handout = waiting.pop_front();
        if waiting.is_empty() {
            self.put_off.remove(&namespace);
        }
        self.latest = Some(namespace);
        handout
    }
}

impl Turns {
    /// For so many controllers.
    pub(super) fn new(controllers: usize) -> Self {
        let lane = || Lane {
            queue: Queue::new(Backoff::default()),
            put_off: BTreeMap::new(),
            latest: None,
        };
        Turns {
            lanes: std::iter::repeat_with(lane).take(controllers).collect(),
            latest: 0,
        }
    }

    /// The queue in which a key waits.
    pub(super) fn of(&mut self, key: &QueueKey) -> &mut Queue<QueueKey> {
        &mut self.lanes[key.controller].queue
    }

    /// The queues, by controller, for their numbers.
    pub fn queues(&self) -> impl Iterator<Item = &Queue<QueueKey>> {
        self.lanes.iter().map(|lane| &lane.queue)
    }

    /// Keys that wait for their turn now, delayed ones not counted.
    pub fn depth(&self) -> usize {
        let depth = |lane: &Lane| lane.queue.depth() + lane.put_off.values().map(VecDeque::len).sum::<usize>();
        self.lanes.iter().map(depth).sum()
    }

    /// Refuses adds from now on.
    pub(super) fn close(&mut self) {
        for lane in &mut self.lanes {
            lane.queue.close();
        }
    }

    /// Keys whose turn had come, but whose passes did not begin, wait in their queues again.
    pub(super) fn take_back(&mut self, now: Timestamp) {
        for lane in &mut self.lanes {
            for Handout { key, priority, .. } in std::mem::take(&mut lane.put_off).into_values().flatten() {
                lane.queue.add(key.clone(), priority, now);
                lane.queue.done(&key, now);
            }
        }
    }
}

/// Workers of one controller that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Busy {
    /// By passes that do not only wait.
    workers: usize,
    /// By passes for slow namespaces that may still send something, whether or not they only wait: what they hold is what they are
    /// about to send.
    slow: usize,
}

impl Core {
    pub(super) fn start_passes(&mut self, now: Timestamp) {
        let mut without = 0;
        while self.leads() && !self.draining && without < self.turns.lanes.len() {
            let controller = (self.turns.latest + 1) % self.turns.lanes.len();
            self.turns.latest = controller;
            let Some(handout) = self.next_handout(controller, now) else {
                without += 1;
                continue;
            };
            without = 0;
            self.metrics.queue_latency.observe(handout.waited);
            match self.held_back(&handout.key, now) {
                Some(until) => {
                    let queue = self.turns.of(&handout.key);
                    queue.done(&handout.key, now);
                    queue.add_at(handout.key, handout.priority, until, now);
                }
                None => self.start_pass(handout, now),
            }
        }
    }

    fn next_handout(&mut self, controller: usize, now: Timestamp) -> Option<Handout<QueueKey>> {
        let busy = self.busy(controller, now);
        if busy.workers >= self.options.workers {
            return None;
        }
        let has_room_for_slow = busy.slow < (self.options.workers / 2).max(1);
        let lane = &mut self.turns.lanes[controller];
        // Whoever is not slow any more waits for no other.
        let may_begin = |namespace: &str| has_room_for_slow || !self.limiter.is_slow(namespace, now);
        if let Some(handout) = lane.take_put_off(may_begin) {
            return Some(handout);
        }
        loop {
            let handout = lane.queue.pop(now)?;
            if may_begin(&handout.key.key.namespace) {
                return Some(handout);
            }
            lane.put_off(handout);
        }
    }

    fn busy(&self, controller: usize, now: Timestamp) -> Busy {
        let mut busy = Busy::default();
        for active in self
            .passes
            .values()
            .filter(|active| active.key.controller == controller)
        {
            busy.workers += usize::from(!active.only_waits);
            let is_slow = active.may_send() && self.limiter.is_slow(&active.key.key.namespace, now);
            busy.slow += usize::from(is_slow);
        }
        busy
    }

    /// When the next key is ready for which there is a worker.
    pub(super) fn next_turn(&self, now: Timestamp) -> Option<Timestamp> {
        let lanes = self.turns.lanes.iter().enumerate();
        let with_worker = lanes.filter(|(controller, _)| self.busy(*controller, now).workers < self.options.workers);
        with_worker.filter_map(|(_, lane)| lane.queue.next_ready()).min()
    }

    /// The keys that wait for passes, for their numbers.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Passes in progress.
    pub fn passes_in_progress(&self) -> usize {
        self.passes.len()
    }

    /// When the oldest pass in progress began.
    pub fn oldest_pass(&self) -> Option<Timestamp> {
        self.passes.values().map(ActivePass::started).min()
    }
}
