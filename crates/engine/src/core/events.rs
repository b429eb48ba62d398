//! Events for users: collected here, off the path of the passes, and sent with low priority.
//!
//! The first few notes with one reason about one object are sent one by one; further ones within the same window become a single
//! event whose count rises. A repeated note raises the count of its event, at intervals. A full queue drops notes and counts them:
//! nothing waits for an event.

use flotilla_model::{EventNote, ObjectKey, Resource, Timestamp, Uid};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

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
/// Calls in flight at most.
const IN_FLIGHT_MAX: usize = 2;
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

/// Collects notes and hands out the calls that tell them.
#[derive(Debug, Default)]
pub struct Events {
    series: BTreeMap<SeriesKey, Series>,
    queue: VecDeque<EventCall>,
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
        self.forget_old(now);
        let id = self.series_of(regarding, &note);
        if let Some(series) = self.series.get_mut(&id) {
            series.count += 1;
            series.last = now;
            series.latest = note.message;
            let repeat_at = series.told_at + REPEAT_EVERY;
            self.repeat_at = Some(self.repeat_at.map_or(repeat_at, |known| known.min(repeat_at)));
            return;
        }
        if self.queue.len() >= QUEUE_MAX || self.series.len() >= SERIES_MAX {
            self.dropped += 1;
            return;
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
        self.queue.push_back(EventCall::Create(NewEvent {
            name,
            regarding: regarding.clone(),
            note,
            at: now,
        }));
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

    fn forget_old(&mut self, now: Timestamp) {
        if self.series.len() >= SERIES_MAX / 2 {
            self.series.retain(|_, series| now.since(series.last) < WINDOW);
        }
    }

    /// The next call to send, if one is due and few enough are in flight. Tell [`Events::answered`] when it is over.
    pub fn next_call(&mut self, now: Timestamp) -> Option<EventCall> {
        if self.in_flight >= IN_FLIGHT_MAX {
            return None;
        }
        if self.queue.is_empty() && self.repeat_at.is_some_and(|at| at <= now) {
            self.queue_repeats(now);
        }
        let call = self.queue.pop_front()?;
        self.in_flight += 1;
        Some(call)
    }

    fn queue_repeats(&mut self, now: Timestamp) {
        self.series
            .retain(|_, series| series.count > series.told_count || now.since(series.last) < WINDOW);
        let due = self
            .series
            .values_mut()
            .filter(|s| s.count > s.told_count && now >= s.told_at + REPEAT_EVERY);
        for series in due.take(QUEUE_MAX) {
            (series.told_at, series.told_count) = (now, series.count);
            self.queue.push_back(EventCall::Repeat {
                key: series.event.clone(),
                count: series.count,
                at: series.last,
                note: series.latest.clone(),
            });
        }
        self.repeat_at = self
            .series
            .values()
            .filter(|s| s.count > s.told_count)
            .map(|s| s.told_at + REPEAT_EVERY)
            .min();
    }

    /// A call is over. One that failed is not repeated; its series is forgotten, so that the next note makes a new event.
    pub fn answered(&mut self, call: &EventCall, succeeded: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if !succeeded {
            self.dropped += 1;
            let name = match call {
                EventCall::Create(event) => event.name.as_str(),
                EventCall::Repeat { key, .. } => key.name.as_str(),
            };
            self.series.retain(|_, series| series.event.name != name);
        }
    }

    /// When [`Events::next_call`] next has something, unless it waits for an answer.
    pub fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        if self.in_flight >= IN_FLIGHT_MAX {
            return None;
        }
        if !self.queue.is_empty() {
            return Some(now);
        }
        self.repeat_at
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
}
