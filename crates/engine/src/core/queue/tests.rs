use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn queue() -> Queue<&'static str> {
    Queue::new(Backoff::default())
}

fn pop(queue: &mut Queue<&'static str>, now: i64) -> Option<&'static str> {
    queue.pop(at(now)).map(|h| h.key)
}

#[test]
fn adds_of_a_waiting_key_are_one_run() {
    let mut q = queue();
    q.add("a", Priority::Live, at(0));
    q.add("a", Priority::Live, at(1));
    assert_eq!(pop(&mut q, 2), Some("a"));
    q.done(&"a", at(3));
    assert_eq!(pop(&mut q, 4), None);
}

#[test]
fn adds_while_processed_are_exactly_one_further_run_after_done() {
    let mut q = queue();
    q.add("a", Priority::Live, at(0));
    assert_eq!(pop(&mut q, 0), Some("a"));
    q.add("a", Priority::Live, at(1));
    q.add("a", Priority::Live, at(2));
    assert_eq!(pop(&mut q, 3), None, "never two workers on one key");
    q.done(&"a", at(4));
    assert_eq!(pop(&mut q, 4), Some("a"));
    q.done(&"a", at(5));
    assert_eq!(pop(&mut q, 6), None);
}

#[test]
fn a_key_re_added_while_processed_keeps_its_seniority() {
    let mut q = queue();
    q.add("slow", Priority::Live, at(0));
    assert_eq!(pop(&mut q, 0), Some("slow"));
    q.add("slow", Priority::Live, at(1));
    q.add("other", Priority::Live, at(2));
    q.done(&"slow", at(3));
    assert_eq!(pop(&mut q, 3), Some("slow"));
    assert_eq!(pop(&mut q, 3), Some("other"));
}

#[test]
fn live_changes_overtake_replays_and_equals_are_first_in_first_out() {
    let mut q = queue();
    q.add("old-1", Priority::Replay, at(0));
    q.add("old-2", Priority::Replay, at(0));
    q.add("live-1", Priority::Live, at(1));
    q.add("live-2", Priority::Live, at(1));
    q.add("old-2", Priority::Live, at(2));
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut q, 3)).collect();
    assert_eq!(
        order,
        ["old-2", "live-1", "live-2", "old-1"],
        "an add with higher priority lifts the key, its time stays"
    );
}

#[test]
fn merging_keeps_the_earlier_time() {
    let mut q = queue();
    q.add_at("a", Priority::Live, at(100), at(0));
    q.add_at("a", Priority::Live, at(500), at(0));
    assert_eq!(q.next_ready(), Some(at(100)));
    q.add_at("a", Priority::Live, at(50), at(0));
    assert_eq!(pop(&mut q, 49), None);
    assert_eq!(pop(&mut q, 50), Some("a"));
    q.done(&"a", at(51));
    assert_eq!(q.next_ready(), None, "an immediate add cancels the delayed one");
}

#[test]
fn delays_beyond_reason_are_clamped() {
    let mut q = queue();
    q.add_at("a", Priority::Live, Timestamp::MAX, at(0));
    assert_eq!(q.next_ready(), Some(at(0) + LONGEST_DELAY));
}

#[test]
fn failures_count_once_per_window() {
    let mut q = queue();
    assert_eq!(q.add_failed("a", Priority::Live, at(0)), at(5));
    assert_eq!(
        q.add_failed("a", Priority::Live, at(1)),
        at(5),
        "an event woke it early; the cause is the same"
    );
    assert_eq!(q.failure_count(&"a"), 1);
    assert_eq!(q.add_failed("a", Priority::Live, at(5)), at(15));
    assert_eq!(q.failure_count(&"a"), 2);
    q.forget(&"a");
    assert_eq!(q.failure_count(&"a"), 0);
    assert_eq!(Backoff::default().delay(40), Duration::from_secs(60));
}

#[test]
fn a_closed_queue_refuses_adds_and_drains() {
    let mut q = queue();
    q.add("a", Priority::Live, at(0));
    q.close();
    q.add("b", Priority::Live, at(0));
    assert_eq!(pop(&mut q, 1), Some("a"));
    assert!(!q.is_drained());
    assert_eq!(q.done(&"a", at(9)), Some(Duration::from_millis(8)));
    assert!(q.is_drained());
    assert_eq!(q.done(&"a", at(9)), None);
}

/// The obvious implementation: a list scanned for the best entry.
#[derive(Default)]
struct Model {
    waiting: Vec<(u8, Timestamp, Priority, u64)>,
    locked: BTreeSet<u8>,
    sequence: u64,
}

impl Model {
    fn add(&mut self, key: u8, due: Timestamp, priority: Priority) {
        self.sequence += 1;
        let sequence = self.sequence;
        match self.waiting.iter_mut().find(|w| w.0 == key) {
            None => self.waiting.push((key, due, priority, sequence)),
            Some(w) => {
                if due < w.1 {
                    (w.1, w.3) = (due, sequence);
                }
                w.2 = w.2.max(priority);
            }
        }
    }

    fn pop(&mut self, now: Timestamp) -> Option<u8> {
        let best = self
            .waiting
            .iter()
            .filter(|w| w.1 <= now && !self.locked.contains(&w.0))
            .min_by_key(|w| (Reverse(w.2), w.1, w.3))
            .map(|w| w.0)?;
        self.waiting.retain(|w| w.0 != best);
        self.locked.insert(best);
        Some(best)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add { key: u8, delay: i64, live: bool },
    Pop,
    Done(u8),
    Wait(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..6_u8, 0..20_i64, any::<bool>()).prop_map(|(key, delay, live)| Step::Add { key, delay, live }),
        3 => Just(Step::Pop),
        2 => (0..6_u8).prop_map(Step::Done),
        2 => (0..10_i64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn behaves_like_the_obvious_implementation(steps in steps()) {
        let (mut queue, mut model, mut now) = (Queue::new(Backoff::default()), Model::default(), at(0));
        for step in steps {
            match step {
                Step::Add { key, delay, live } => {
                    let (due, priority) = (at(now.as_millis() + delay), if live { Priority::Live } else { Priority::Replay });
                    queue.add_at(key, priority, due, now);
                    model.add(key, due, priority);
                }
                Step::Pop => prop_assert_eq!(queue.pop(now).map(|h| h.key), model.pop(now)),
                Step::Done(key) => prop_assert_eq!(queue.done(&key, now).is_some(), model.locked.remove(&key)),
                Step::Wait(millis) => now = at(now.as_millis() + millis),
            }
            let waiting = model.waiting.iter().filter(|w| !model.locked.contains(&w.0)).count();
            prop_assert_eq!(queue.depth() + queue.delayed(), waiting);
        }
    }
}
