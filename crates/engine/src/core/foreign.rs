//! Noticing that another controller works on the same native sets.
//!
//! Two controllers on one set make it oscillate. The built-in one betrays itself in two ways: the set's status changes and we did
//! not write it, or a pod of the set appears and we did not create it. Conditions do not count, because users and tools set their
//! own. A set with a foreign writer is left alone for a while, and then tried again.

use flotilla_model::{SetRecord, Timestamp, Uid};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Sets that are left alone because of another writer.
#[derive(Debug)]
pub struct ForeignWriters {
    pause: Duration,
    paused: BTreeMap<Uid, Timestamp>,
    noticed: u64,
}

impl ForeignWriters {
    /// Sets are left alone for `pause`.
    pub fn new(pause: Duration) -> Self {
        ForeignWriters {
            pause,
            paused: BTreeMap::new(),
            noticed: 0,
        }
    }

    /// Somebody else wrote to this set. Returns until when it is left alone, if it was not already.
    pub fn notice(&mut self, set: &Uid, now: Timestamp) -> Option<Timestamp> {
        let until = now + self.pause;
        self.noticed += 1;
        let known = self.paused.insert(set.clone(), until);
        known.is_none_or(|known| known <= now).then_some(until)
    }

    /// Until when the set is left alone, if it is.
    pub fn paused_until(&mut self, set: &Uid, now: Timestamp) -> Option<Timestamp> {
        let until = *self.paused.get(set)?;
        if until <= now {
            self.paused.remove(set);
            return None;
        }
        Some(until)
    }

    /// What others do takes as long as it takes.
    pub fn clock_was_set_ahead(&mut self, by: Duration) {
        for until in self.paused.values_mut() {
            *until = *until + by;
        }
    }

    /// The set is gone.
    pub fn forget(&mut self, set: &Uid) {
        self.paused.remove(set);
    }

    /// How many sets are left alone.
    pub fn paused(&self) -> usize {
        self.paused.len()
    }

    /// Foreign writes noticed so far.
    pub fn noticed(&self) -> u64 {
        self.noticed
    }
}

/// Whether the part of the status that belongs to a set's controller differs.
pub fn controller_status_differs(old: &SetRecord, new: &SetRecord) -> bool {
    let ours = |status: &'_ Value| -> Vec<(String, Value)> {
        let fields = status
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(field, _)| *field != "conditions");
        fields.map(|(field, value)| (field.clone(), value.clone())).collect()
    };
    old.status != new.status && ours(&old.status) != ours(&new.status)
}

/// Who wrote it, as far as the set tells: the first manager of its status that is not us.
pub fn foreign_manager<'a>(set: &'a SetRecord, us: &str) -> Option<&'a str> {
    set.status_writers
        .iter()
        .map(|manager| &**manager)
        .find(|manager| *manager != us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::at;

    #[test]
    fn a_set_is_left_alone_for_a_while_after_the_last_foreign_write() {
        let mut foreign = ForeignWriters::new(Duration::from_secs(600));
        let set = Uid::new("u");
        assert_eq!(foreign.notice(&set, at(0)), Some(at(600_000)));
        assert_eq!(foreign.notice(&set, at(1000)), None, "told once");
        assert_eq!(foreign.paused_until(&set, at(600_000)), Some(at(601_000)));
        assert_eq!(foreign.paused_until(&set, at(601_000)), None);
        assert_eq!((foreign.paused(), foreign.noticed()), (0, 2));
    }

    #[test]
    fn a_pause_lasts_as_long_as_it_would_have_when_the_clock_is_set_ahead() {
        let mut foreign = ForeignWriters::new(Duration::from_secs(600));
        let set = Uid::new("u");
        foreign.notice(&set, at(0));
        foreign.clock_was_set_ahead(Duration::from_secs(3600));
        assert_eq!(foreign.paused_until(&set, at(3_600_000)), Some(at(4_200_000)));
    }
}
