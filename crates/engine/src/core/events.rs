//! Events for users: collected here, off the path of the passes, and sent with low priority.
//!
//! The first few notes with one reason about one object are sent one by one; further ones within the same window become a single
//! event whose count rises. A repeated note raises the count of its event, at intervals. Nothing waits for an event: where too many wait
//! to be sent, some are dropped and counted. Namespaces take turns, and those drop first that want to tell most, and ordinary notes before
//! warnings; so neither a flood of notes nor a webhook that hangs keeps another namespace from being told what is wrong with it.

use flotilla_model::{EventNote, ObjectKey, Resource, Timestamp, Uid};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// How soon those counts are looked at again that wait for other calls of their namespace.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Different notes with one reason about one object that are sent one by one within a [`WINDOW`].
const INDIVIDUAL_MAX: usize = 10;
/// A note that comes again within this time belongs to the same event.
const WINDOW: Duration = Duration::from_secs(600);
/// How often the count of an event is brought up to date.
const REPEAT_EVERY: Duration = Duration::from_secs(30);
/// Series remembered at most.
const SERIES_MAX: usize = 4096;
/// Calls waiting to be sent at most.
const QUEUE_MAX: usize = 512;
/// Calls in flight at most, and those of one namespace.
const IN_FLIGHT_MAX: usize = 256;
const IN_FLIGHT_OF_NAMESPACE_MAX: usize = 2;
/// The API server refuses longer notes.
const NOTE_BYTES_MAX: usize = 1024;

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Regarding {
    /// Its resource.
    pub resource: Resource,
    /// Where it is.
    pub key: ObjectKey,
    /// Which incarnation.
    pub uid: Uid,
}

/// An event to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The event's own name, in the namespace of the object.
    pub name: String,
    /// What it is about.
    pub regarding: Regarding,
    /// Type, reason and text.
    pub note: EventNote,
    /// When it happened.
    pub at: Timestamp,
}

/// A request that tells users something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventCall {
    /// For the first time.
    Create(NewEvent),
    /// Again.
    Repeat {
        /// The event, by its own name.
        key: ObjectKey,
        /// How often by now.
        count: u32,
        /// When last.
        at: Timestamp,
        /// The latest text.
        note: String,
    },
}

impl EventCall {
    /// The event, by its own name.
    pub fn key(&self) -> ObjectKey {
        match self {
            EventCall::Create(event) => event.regarding.key.sibling(event.name.as_str()),
            EventCall::Repeat { key, .. } => key.clone(),
        }
    }

    /// As told by a clock that has been set back by this much.
    #[must_use]
    pub fn set_back(mut self, by: Duration) -> Self {
        match &mut self {
            EventCall::Create(NewEvent { at, .. }) | EventCall::Repeat { at, .. } => *at = *at - by,
        }
        self
    }

    fn namespace(&self) -> &Arc<str> {
        match self {
            EventCall::Create(event) => &event.regarding.key.namespace,
            EventCall::Repeat { key, .. } => &key.namespace,
        }
    }

    fn is_warning(&self) -> bool {
        matches!(self, EventCall::Create(event) if event.note.warning)
    }
}

/// One event and its repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Text {
    /// Exactly this text, by its hash.
    Exact(u64),
    /// One of many similar ones.
    Combined,
}

type SeriesKey = (Uid, &'static str, Text);

#[derive(Debug)]
struct Series {
    event: ObjectKey,
    count: u32,
    last: Timestamp,
    latest: String,
    /// When its count was last sent.
    told_at: Timestamp,
    told_count: u32,
}

/// The calls of one namespace.
#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<EventCall>,
    in_flight: usize,
}

impl Lane {
    fn may_send(&self) -> bool {
        !self.queue.is_empty() && self.in_flight < IN_FLIGHT_OF_NAMESPACE_MAX
    }
}

/// Collects notes and hands out the calls that tell them.
#[derive(Debug, Default)]
pub struct Events {
    series: BTreeMap<SeriesKey, Series>,
    /// What waits to be sent, and what is on its way, by namespace.
    lanes: BTreeMap<Arc<str>, Lane>,
    /// The namespace whose call was sent last.
    latest: Option<Arc<str>>,
    queued: usize,
    in_flight: usize,
    /// When the next count is to be brought up to date.
    repeat_at: Option<Timestamp>,
    made: u64,
    dropped: u64,
}

impl Events {
    /// Takes a note about an object.
    pub fn note(&mut self, regarding: &Regarding, mut note: EventNote, now: Timestamp) {
        truncate(&mut note.message);
        let id = self.series_of(regarding, &note);
        if let Some(series) = self.series.get_mut(&id) {
            series.count += 1;
            series.last = now;
            series.latest = note.message;
            let repeat_at = series.told_at + REPEAT_EVERY;
            self.repeat_at = Some(self.repeat_at.map_or(repeat_at, |known| known.min(repeat_at)));
            return;
        }
        if self.series.len() >= SERIES_MAX {
            self.forget_oldest();
        }
        self.made += 1;
        let name = self.name_of(regarding, now);
        let event = regarding.key.sibling(name.as_str());
        let series = Series {
            event,
            count: 1,
            last: now,
            latest: note.message.clone(),
            told_at: now,
            told_count: 1,
        };
        self.series.insert(id, series);
        self.push(EventCall::Create(NewEvent {
            name,
            regarding: regarding.clone(),
            note,
            at: now,
        }));
        if self.queued > QUEUE_MAX {
            self.drop_one();
        }
    }

    fn push(&mut self, call: EventCall) {
        self.queued += 1;
        let lane = self.lanes.entry(call.namespace().clone()).or_default();
        lane.queue.push_back(call);
    }

    /// Drops the latest call of the namespace with the most calls that wait: one that is no warning, if any namespace has such a call.
    fn drop_one(&mut self) {
        let is_ordinary = |call: &EventCall| !call.is_warning();
        let size = |lane: &Lane| (lane.queue.iter().any(is_ordinary), lane.queue.len());
        let Some((namespace, lane)) = self.lanes.iter_mut().max_by_key(|(_, lane)| size(lane)) else {
            return;
        };
        let namespace = namespace.clone();
        let ordinary = lane.queue.iter().rposition(is_ordinary);
        let Some(call) = lane
            .queue
            .remove(ordinary.unwrap_or(lane.queue.len().saturating_sub(1)))
        else {
            return;
        };
        self.queued -= 1;
        self.dropped += 1;
        self.leave(&namespace);
        self.forget(&call);
    }

    /// Forgets a namespace of which nothing waits or is on its way.
    fn leave(&mut self, namespace: &str) {
        let is_empty = |lane: &Lane| lane.in_flight == 0 && lane.queue.is_empty();
        if self.lanes.get(namespace).is_some_and(is_empty) {
            self.lanes.remove(namespace);
        }
    }

    /// Forgets the series of a call that nobody was told of, so that its next note makes a new event.
    fn forget(&mut self, call: &EventCall) {
        let key = call.key();
        self.series.retain(|_, series| series.event != key);
    }

    /// The series that a note belongs to: its own text's while there are few, else the combined one of its reason.
    fn series_of(&self, regarding: &Regarding, note: &EventNote) -> SeriesKey {
        let exact = (regarding.uid.clone(), note.reason, Text::Exact(hash(&note.message)));
        if self.series.contains_key(&exact) {
            return exact;
        }
        let first = (regarding.uid.clone(), note.reason, Text::Exact(0));
        let last = (regarding.uid.clone(), note.reason, Text::Exact(u64::MAX));
        let individual = self.series.range(first..=last).count();
        if individual < INDIVIDUAL_MAX {
            exact
        } else {
            (regarding.uid.clone(), note.reason, Text::Combined)
        }
    }

    fn name_of(&self, regarding: &Regarding, now: Timestamp) -> String {
        // Unique because two of our processes do not write about one object in one millisecond.
        format!("{}.{:x}{:04x}", regarding.key.name, now.as_millis(), self.made & 0xffff)
    }

    /// Forgets the half of all series that was noted least lately: should their notes come again, they are new events.
    fn forget_oldest(&mut self) {
        let mut times: Vec<Timestamp> = self.series.values().map(|series| series.last).collect();
        times.sort_unstable();
        let Some(median) = times.get(times.len() / 2).copied() else {
            return;
        };
        let mut same = times.len() / 2 - times.partition_point(|time| *time < median);
        self.series.retain(|_, series| {
            let is_older = series.last < median || (series.last == median && same > 0);
            same -= usize::from(is_older && series.last == median);
            !is_older
        });
    }

    /// The next call to send, if one is due and few enough are in flight. Tell [`Events::answered`] when it is over.
    pub fn next_call(&mut self, now: Timestamp) -> Option<EventCall> {
        if self.in_flight >= IN_FLIGHT_MAX {
            return None;
        }
        if self.repeat_at.is_some_and(|at| at <= now) {
            self.queue_repeats(now);
        }
        let namespace = self.next_namespace()?;
        let lane = self.lanes.get_mut(&namespace)?;
        let call = lane.queue.pop_front()?;
        lane.in_flight += 1;
        (self.queued, self.in_flight) = (self.queued - 1, self.in_flight + 1);
        self.latest = Some(namespace);
        Some(call)
    }

    /// The one after that whose call was sent last, of those that may send one.
    fn next_namespace(&self) -> Option<Arc<str>> {
        let after = self.latest.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.lanes.range((after, Bound::Unbounded));
        let mut in_turn = later.chain(&self.lanes).filter(|(_, lane)| lane.may_send());
        in_turn.next().map(|(namespace, _)| namespace.clone())
    }

    fn queue_repeats(&mut self, now: Timestamp) {
        self.series
            .retain(|_, series| series.count > series.told_count || now.since(series.last) < WINDOW);
        // Where calls wait already, one more would wait behind them, and be out of date by then.
        let lanes = &self.lanes;
        let has_room = |series: &Series| {
            lanes
                .get(&series.event.namespace)
                .is_none_or(|lane| lane.queue.is_empty())
        };
        let due = self
            .series
            .values_mut()
            .filter(|s| s.count > s.told_count && now >= s.told_at + REPEAT_EVERY && has_room(s));
        let mut calls = Vec::new();
        for series in due.take(QUEUE_MAX.saturating_sub(self.queued)) {
            (series.told_at, series.told_count) = (now, series.count);
            calls.push(EventCall::Repeat {
                key: series.event.clone(),
                count: series.count,
                at: series.last,
                note: series.latest.clone(),
            });
        }
        for call in calls {
            self.push(call);
        }
        self.repeat_at = self
            .series
            .values()
            .filter(|s| s.count > s.told_count)
            .map(|s| (s.told_at + REPEAT_EVERY).max(now + LOOK_AGAIN))
            .min();
    }

    /// A call is over. One that failed is not repeated; its series is forgotten, so that the next note makes a new event.
    pub fn answered(&mut self, call: &EventCall, succeeded: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(lane) = self.lanes.get_mut(call.namespace()) {
            lane.in_flight = lane.in_flight.saturating_sub(1);
        }
        self.leave(call.namespace());
        if !succeeded {
            self.dropped += 1;
            self.forget(call);
        }
    }

    /// When [`Events::next_call`] next has something, unless it waits for an answer.
    pub fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        if self.in_flight >= IN_FLIGHT_MAX {
            return None;
        }
        self.next_namespace().map(|_| now).or(self.repeat_at)
    }

    /// Notes that no event tells of: too many at once, or refused.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn truncate(text: &mut String) {
    if text.len() > NOTE_BYTES_MAX {
        let mut end = NOTE_BYTES_MAX - '…'.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::{at, key};

    fn regarding() -> Regarding {
        Regarding {
            resource: Resource::NativeSets,
            key: key("web"),
            uid: Uid::new("u"),
        }
    }

    fn note(message: &str) -> EventNote {
        EventNote {
            warning: false,
            reason: "SuccessfulCreate",
            message: message.into(),
        }
    }

    fn drain(events: &mut Events, now: Timestamp) -> Vec<EventCall> {
        let mut calls = Vec::new();
        while let Some(call) = events.next_call(now) {
            events.answered(&call, true);
            calls.push(call);
        }
        calls
    }

    #[test]
    fn a_thousand_similar_notes_are_a_few_events() {
        let mut events = Events::default();
        for i in 0..1000 {
            events.note(&regarding(), note(&format!("create Pod web-{i}")), at(i));
        }
        assert_eq!(drain(&mut events, at(1000)).len(), INDIVIDUAL_MAX + 1);
        let repeats = drain(&mut events, at(60_000));
        assert!(matches!(&repeats[..], [EventCall::Repeat { count: 990, note, .. }] if note == "create Pod web-999"));
        assert_eq!(events.next_wake(at(60_000)), None);
    }

    #[test]
    fn a_repeated_note_raises_the_count_at_intervals() {
        let mut events = Events::default();
        for _ in 0..3 {
            events.note(&regarding(), note("again"), at(0));
        }
        assert_eq!(drain(&mut events, at(0)).len(), 1);
        assert_eq!(events.next_wake(at(0)), Some(at(30_000)));
        assert!(matches!(
            drain(&mut events, at(30_000))[..],
            [EventCall::Repeat { count: 3, .. }]
        ));
    }

    fn of(namespace: &str) -> Regarding {
        Regarding {
            key: ObjectKey::new(namespace, "web"),
            uid: Uid::new(namespace),
            ..regarding()
        }
    }

    #[test]
    fn a_namespace_whose_events_hang_keeps_no_other_from_being_told() {
        let mut events = Events::default();
        for i in 0..5 {
            events.note(&of("hangs"), note(&format!("{i}")), at(0));
        }
        let hanging: Vec<_> = std::iter::from_fn(|| events.next_call(at(0))).collect();
        assert_eq!(hanging.len(), IN_FLIGHT_OF_NAMESPACE_MAX);
        assert_eq!(events.next_wake(at(0)), None, "nothing may be sent before an answer");
        events.note(&of("other"), note("x"), at(1));
        assert_eq!(events.next_wake(at(1)), Some(at(1)));
        let told = events.next_call(at(1)).expect("the other's");
        assert_eq!(&**told.namespace(), "other");
        for call in hanging {
            events.answered(&call, false);
        }
        assert_eq!(drain(&mut events, at(2)).len(), 3);
        events.answered(&told, true);
        assert!(events.lanes.is_empty());
    }

    #[test]
    fn namespaces_take_turns() {
        let mut events = Events::default();
        for i in 0..4 {
            for namespace in ["a", "b", "c"] {
                events.note(&of(namespace), note(&format!("{i}")), at(0));
            }
        }
        let calls = drain(&mut events, at(0));
        let namespaces: Vec<&str> = calls.iter().map(|call| &**call.namespace()).collect();
        assert_eq!(namespaces, ["a", "b", "c"].repeat(4));
    }

    #[test]
    fn a_flood_drops_its_own_notes_and_warnings_last() {
        let mut events = Events::default();
        let warning = |message: &str| EventNote {
            warning: true,
            reason: "FailedCreate",
            ..note(message)
        };
        events.note(&of("quiet"), note("tells"), at(0));
        for n in 0..2 * QUEUE_MAX {
            let pod = Regarding {
                uid: Uid::new(&format!("u{n}")),
                ..of("floods")
            };
            let told = if n % 8 == 7 { warning("refused") } else { note("made") };
            events.note(&pod, told, at(1));
        }
        events.note(&of("late"), warning("refused"), at(2));
        let calls = drain(&mut events, at(3));
        assert_eq!(calls.len(), QUEUE_MAX);
        let count = |namespace: &str| calls.iter().filter(|call| &**call.namespace() == namespace).count();
        assert_eq!((count("quiet"), count("late")), (1, 1));
        assert_eq!(
            calls.iter().filter(|call| call.is_warning()).count(),
            2 * QUEUE_MAX / 8 + 1
        );
        assert_eq!(events.dropped(), u64::try_from(QUEUE_MAX).expect("small") + 2);
    }

    #[test]
    fn a_flood_of_objects_is_forgotten_so_that_the_latest_note_is_told() {
        let mut events = Events::default();
        for n in 0..2 * SERIES_MAX {
            let pod = Regarding {
                uid: Uid::new(&format!("u{n}")),
                ..of("floods")
            };
            events.note(&pod, note("made"), at(1));
            drain(&mut events, at(1));
        }
        assert!(events.series.len() <= SERIES_MAX);
        events.note(&of("late"), note("refused"), at(2));
        assert_eq!(drain(&mut events, at(2)).len(), 1);
        assert_eq!(events.dropped(), 0);
    }

    #[test]
    fn after_a_failure_the_next_note_is_a_new_event() {
        let mut events = Events::default();
        events.note(&regarding(), note("x"), at(0));
        let call = events.next_call(at(0)).unwrap();
        events.answered(&call, false);
        events.note(&regarding(), note("x"), at(1));
        assert!(matches!(events.next_call(at(1)), Some(EventCall::Create(_))));
        assert_eq!(events.dropped(), 1);
    }

    #[test]
    fn few_calls_are_in_flight_and_a_flood_is_dropped() {
        let mut events = Events::default();
        for i in 0..QUEUE_MAX + 50 {
            let regarding = Regarding {
                uid: Uid::new(&format!("u{i}")),
                ..regarding()
            };
            events.note(&regarding, note("x"), at(0));
        }
        assert_eq!(events.dropped(), 50);
        assert!(events.next_call(at(0)).is_some() && events.next_call(at(0)).is_some());
        assert!(events.next_call(at(0)).is_none());
    }

    #[test]
    fn long_notes_are_cut() {
        let mut text = "ä".repeat(2000);
        truncate(&mut text);
        assert!(text.len() <= NOTE_BYTES_MAX && text.ends_with('…'));
    }

    #[test]
    fn what_hangs_in_one_namespace_holds_up_no_count_of_another() {
        let mut events = Events::default();
        for _ in 0..3 {
            events.note(&of("b"), note("again"), at(0));
        }
        assert_eq!(drain(&mut events, at(0)).len(), 1);
        // Four notes of a: two are on their way and hang, two wait.
        for n in 0..4 {
            events.note(&of("a"), note(&format!("{n}")), at(1));
        }
        while events.next_call(at(1)).is_some() {}
        assert_eq!(events.next_wake(at(2)), Some(at(30_000)), "b has a count to tell");
        assert!(matches!(events.next_call(at(30_000)), Some(EventCall::Repeat { .. })));
    }

    #[test]
    fn a_namespace_whose_events_hang_keeps_no_other_from_being_told_again() {
        let mut events = Events::default();
        events.note(&of("quiet"), note("pod is refused"), at(0));
        let first = events.next_call(at(0)).expect("told");
        events.answered(&first, true);
        // A neighbour's webhook hangs for events; he has more than two to tell all the time.
        for i in 0..5 {
            events.note(&of("hangs"), note(&format!("{i}")), at(0));
        }
        let mut hanging: VecDeque<_> = std::iter::from_fn(|| events.next_call(at(0))).collect();
        let mut told = 0;
        for minute in 1..60 {
            let now = at(minute * 60_000);
            // The quiet one goes on failing, and so does he.
            events.note(&of("quiet"), note("pod is refused"), now);
            while let Some(call) = hanging.pop_front() {
                events.answered(&call, false);
                events.note(&of("hangs"), note(&format!("{minute} {}", hanging.len())), now);
            }
            while let Some(call) = events.next_call(now) {
                if &**call.namespace() == "quiet" {
                    told += 1;
                    events.answered(&call, true);
                } else {
                    hanging.push_back(call);
                }
            }
        }
        assert!(told > 0, "an hour long nobody is told that it goes on");
    }

    #[test]
    fn many_namespaces_that_hang_keep_no_other_from_being_told() {
        let mut events = Events::default();
        for i in 0..40 {
            for n in 0..3 {
                events.note(&of(&format!("hangs-{i}")), note(&format!("{n}")), at(0));
            }
        }
        while events.next_call(at(0)).is_some() {}
        events.note(
            &of("quiet"),
            EventNote {
                warning: true,
                ..note("pod is refused")
            },
            at(1),
        );
        assert!(events.next_call(at(25_000)).is_some(), "for half a minute");
    }

    #[test]
    fn the_warning_of_the_quiet_one_is_not_what_is_dropped() {
        let mut events = Events::default();
        for i in 0..QUEUE_MAX {
            events.note(&of(&format!("flood-{i}")), note("ordinary"), at(0));
        }
        events.note(
            &of("quiet"),
            EventNote {
                warning: true,
                ..note("pod is refused")
            },
            at(1),
        );
        let waits = events.lanes.get("quiet").is_some_and(|lane| !lane.queue.is_empty());
        assert!(
            waits,
            "512 ordinary notes of others wait, and the one warning was dropped"
        );
    }
}
