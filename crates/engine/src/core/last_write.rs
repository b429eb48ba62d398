//! Up to which version of each kind the writes of a leader went, which it notes on the lease when it leaves.
//!
//! A successor that has watched all along need not list anything again: it knows all that its predecessor knew once its watches have
//! come so far. The predecessor may have found the writes of others when it began to lead, and the successor's watches may be behind those,
//! too. Nor may a successor decide by less than its predecessor did, which saw an edit and acted on it. So for each kind that a leader watches,
//! its note names the latest of three versions: the one at which it knew everything when it began, from a list or from the note that it found
//! itself; that of its own last write; and that of the last change of which its watch told. Bookmarks do not count: they come to each watch at
//! other times, and changes to all of them at once.
//!
//! Where it is not known how far writes went, nothing is noted, and the successor lists everything. That is so after a write whose outcome
//! is unknown, until something that was begun when it could have no effect any more has told a version; and after a deletion, whose answer
//! tells none, until the watch has told of it.

use super::outcome::{Intent, Outcome, meaning};
use super::request::Answer;
use flotilla_model::{Resource, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a leader notes when it leaves: for each kind, the version up to which it must have been seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note(BTreeMap<Resource, u64>);

impl Note {
    /// Up to which version a kind must have been seen; `None` if nobody knows.
    pub fn version(&self, resource: Resource) -> Option<u64> {
        self.0.get(&resource).copied()
    }

    /// The note as it stands on a lease that has changed hands so often. Whoever takes the lease and does not know of notes leaves
    /// them there, but counts on: such a note is not believed any more.
    pub fn text(&self, transitions: i32) -> String {
        let kinds = self.0.iter().map(|(resource, version)| format!("{resource}={version}"));
        format!("{transitions};{}", kinds.collect::<Vec<_>>().join(","))
    }

    /// Reads what [`Note::text`] has written on a lease that has changed hands so often. Anything else is no note.
    pub fn read(text: &str, transitions: i32) -> Option<Note> {
        let (_, kinds) = text.split_once(';')?;
        let kinds = kinds.split(',').map(|kind| {
            let (name, version) = kind.split_once('=')?;
            let resource = Resource::ALL
                .into_iter()
                .find(|resource| resource.to_string() == name)?;
            Some((resource, version.parse().ok()?))
        });
        let note = Note(kinds.collect::<Option<_>>()?);
        (note.text(transitions) == text).then_some(note)
    }
}

/// What is known of how far writes went, since this process began.
#[derive(Debug, Default)]
pub struct LastWrites {
    /// Of each kind, a version at which everything was known that was written before we began to lead.
    found: BTreeMap<Resource, u64>,
    /// Of each kind, the highest version among our own writes, and among the changes of which the watch told.
    own: BTreeMap<Resource, u64>,
    /// Kinds with a write of which nobody knows whether it took effect, or at which version; and from when on what is begun shows it.
    unknown: BTreeMap<Resource, Timestamp>,
    /// Until when a write that was lost may take effect, or a write on trial (`dryRun`) arrive.
    lost_until: Option<Timestamp>,
}

impl LastWrites {
    /// We have begun to lead, and found this note of our predecessor's, or none.
    pub fn begin(&mut self, note: Option<&Note>) {
        self.found = note.map(|note| note.0.clone()).unwrap_or_default();
    }

    /// Everything of a kind that was written before we began to lead is known at this version.
    pub fn found(&mut self, resource: Resource, version: u64) {
        raise(&mut self.found, resource, version);
    }

    /// The watch has told of a change at this version, perhaps of a deletion by us: the answer to one does not tell it.
    pub fn told(&mut self, resource: Resource, version: u64) {
        raise(&mut self.own, resource, version);
    }

    /// A list that was begun then shows the kind at this version.
    pub fn listed(&mut self, resource: Resource, began: Timestamp, version: u64) {
        if self.unknown.get(&resource).is_some_and(|until| began >= *until) {
            self.unknown.remove(&resource);
            raise(&mut self.own, resource, version);
        }
    }

    /// A write that was sent at `sent` has been answered. One that was lost may yet take effect within the time `on_its_way`.
    pub fn answered(
        &mut self,
        resource: Resource,
        (intent, answer): (&Intent, &Answer),
        (sent, now): (Timestamp, Timestamp),
        on_its_way: Duration,
    ) {
        if matches!(intent, Intent::Read) {
            return;
        }
        // What is unreadable has been answered: it is not on its way any more.
        let is_lost =
            !matches!(answer, Answer::Unreadable(_)) && matches!(meaning(intent.clone(), answer), Outcome::Unknown(_));
        let lost_until = is_lost.then(|| now + on_its_way);
        self.lost_until = self.lost_until.max(lost_until);
        if matches!(intent, Intent::Try) {
            // Nobody must have seen it. But where it was lost, it may yet come to the API server, and to webhooks.
            return;
        }
        match answer {
            Answer::Object(object) => {
                if self.unknown.get(&resource).is_some_and(|until| sent >= *until) {
                    self.unknown.remove(&resource);
                }
                raise(&mut self.own, resource, object.meta().resource_version);
            }
            // The watch tells at which version, see `told`.
            Answer::Success if matches!(intent, Intent::Delete(_)) => {}
            // It has taken effect already.
            Answer::Success | Answer::Unreadable(_) => self.is_unknown(resource, now),
            _ => {
                if let Some(until) = lost_until {
                    self.is_unknown(resource, until);
                }
            }
        }
    }

    /// What is on its way takes as long as it takes.
    pub fn clock_was_set_ahead(&mut self, by: Duration) {
        for until in self.unknown.values_mut().chain(&mut self.lost_until) {
            *until = *until + by;
        }
    }

    fn is_unknown(&mut self, resource: Resource, until: Timestamp) {
        let known = self.unknown.entry(resource).or_insert(until);
        *known = until.max(*known);
    }

    /// Until when a write that was lost, if only on trial, may come to the API server; `None` if none may at `now`.
    pub fn lost_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.lost_until.filter(|until| now < *until)
    }

    /// What to note if we leave now, having watched these kinds. `None` if it is not known how far writes went.
    pub fn note(&self, mut watched: impl Iterator<Item = Resource>) -> Option<Note> {
        if !self.unknown.is_empty() || !watched.all(|resource| self.found.contains_key(&resource)) {
            return None;
        }
        let own = |resource| self.own.get(resource).copied().unwrap_or(0);
        let versions = self.found.iter();
        let versions = versions.map(|(resource, version)| (*resource, own(resource).max(*version)));
        Some(Note(versions.collect()))
    }
}

fn raise(versions: &mut BTreeMap<Resource, u64>, resource: Resource, version: u64) {
    let known = versions.entry(resource).or_default();
    *known = version.max(*known);
}

#[cfg(test)]
mod tests;
