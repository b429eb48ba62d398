//! What will happen, in order of virtual time, and among equal times in order of planning.

use flotilla_model::Timestamp;
use std::collections::BTreeMap;

/// Events to come.
#[derive(Clone, Debug)]
pub struct Agenda<E> {
    events: BTreeMap<(Timestamp, u64), E>,
    planned: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Agenda {
            events: BTreeMap::new(),
            planned: 0,
        }
    }
}

impl<E> Agenda<E> {
    /// Plans an event.
    pub fn plan(&mut self, at: Timestamp, event: E) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    /// When the next event is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes out the next event that is due at `now`, with its moment.
    pub fn pop(&mut self, now: Timestamp) -> Option<(Timestamp, E)> {
        let first = self.events.first_entry().filter(|e| e.key().0 <= now)?;
        let ((at, _), event) = first.remove_entry();
        Some((at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_come_in_order_of_planning() {
        let at = Timestamp::from_seconds;
        let mut agenda = Agenda::default();
        for (seconds, name) in [(2, "c"), (1, "a"), (1, "b"), (3, "d")] {
            agenda.plan(at(seconds), name);
        }
        assert_eq!(agenda.next_due(), Some(at(1)));
        let mut come = Vec::new();
        while let Some((_, name)) = agenda.pop(at(2)) {
            come.push(name);
        }
        assert_eq!(come, ["a", "b", "c"]);
        assert_eq!(agenda.next_due(), Some(at(3)));
    }
}
