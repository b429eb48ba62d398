//! How often a key may be passed over: a few times at once after a rest, and from then on in its share.

use flotilla_model::Timestamp;
use std::time::Duration;

/// How many passes more than its share a key that was at rest gets.
const PASSES_AHEAD: u32 = 3;

/// What the passes over one key have used up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// When they will have cost no more than their share.
    paid_at: Option<Timestamp>,
}

impl Pace {
    /// A pass begins, of which there may be one in each `interval` on average. Passes that nobody asks [`Pace::affordable_at`] for, such as
    /// those at a time that the last one has named, never put off the next one by more than that.
    pub(super) fn note(&mut self, interval: Duration, now: Timestamp) {
        let paid_at = self.paid_at.map_or(now, |paid_at| paid_at.max(now)) + interval;
        let latest = now + interval.saturating_mul(PASSES_AHEAD + 1);
        self.paid_at = Some(paid_at.min(latest));
    }

    /// From when on another pass keeps to the share.
    pub(super) fn affordable_at(self, interval: Duration, now: Timestamp) -> Timestamp {
        let ahead = interval.saturating_mul(PASSES_AHEAD);
        self.paid_at.map_or(now, |paid_at| now.max(paid_at - ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(3);

    #[test]
    fn after_a_rest_a_few_passes_come_at_once() {
        let (mut pace, now) = (Pace::default(), Timestamp::from_seconds(100));
        for _ in 0..=PASSES_AHEAD {
            assert_eq!(pace.affordable_at(INTERVAL, now), now);
            pace.note(INTERVAL, now);
        }
        assert_eq!(pace.affordable_at(INTERVAL, now), now + INTERVAL);
    }

    #[test]
    fn however_many_passes_there_were_the_next_one_waits_for_one_interval_at_most() {
        let (mut pace, now) = (Pace::default(), Timestamp::from_seconds(100));
        for _ in 0..1_000 {
            pace.note(INTERVAL, now);
        }
        assert_eq!(pace.affordable_at(INTERVAL, now), now + INTERVAL);
    }
}
