//! How many writes may be in flight at once: additive increase, multiplicative decrease.
//!
//! Kubernetes clients usually carry a fixed number of requests per second, which is too slow on a big server and too fast on a
//! small one. Here the server's answers set the pace: every answer to a write during whose flight the window was full widens it a
//! little (at first by one each, later by one per window), and a 429 or a lost answer halves it, at most once per round trip. While
//! a `Retry-After` runs nothing is sent at all.

use flotilla_model::Timestamp;
use std::time::Duration;

/// How long a 429 without `Retry-After` keeps us quiet: what the API server itself suggests.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
/// A longer `Retry-After` is not believed: a proxy's mistake must not stop us for hours.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The window of writes in flight.
#[derive(Debug)]
pub struct Limiter {
    window: usize,
    max: usize,
    in_flight: usize,
    /// Widening by one per answer ends with the first sign of trouble.
    probing: bool,
    /// Answers since the window last grew, once no longer probing.
    credit: usize,
    /// When the window was last full. Answers come in bunches: after the first of a bunch it is no longer full, and yet all of
    /// them tell that the server bears what was in flight.
    full_at: Option<Timestamp>,
    /// Requests sent before the last halving belong to the trouble that caused it.
    quiet_until: Option<Timestamp>,
    halved_at: Option<Timestamp>,
}

/// A write in flight. Give it back to [`Limiter::finish`].
#[derive(Debug, Clone, Copy)]
pub struct Permit {
    taken_at: Timestamp,
}

/// How a write ended, as far as the server's load is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// It was answered; also when the answer was a refusal.
    Answered,
    /// The server asked for fewer requests, perhaps for a time to wait.
    Throttled(Option<Duration>),
    /// No answer came.
    Lost,
}

impl Limiter {
    /// Starts with `start` writes in flight and never exceeds `max`; both at least one.
    pub fn new(start: usize, max: usize) -> Self {
        let max = max.max(1);
        Limiter {
            window: start.clamp(1, max),
            max,
            in_flight: 0,
            probing: true,
            credit: 0,
            full_at: None,
            quiet_until: None,
            halved_at: None,
        }
    }

    /// A permit to send one write now, if the window has room.
    pub fn take(&mut self, now: Timestamp) -> Option<Permit> {
        if self.in_flight >= self.window || self.quiet_until.is_some_and(|until| now < until) {
            return None;
        }
        self.in_flight += 1;
        if self.in_flight >= self.window {
            self.full_at = Some(now);
        }
        Some(Permit { taken_at: now })
    }

    /// The write is not sent after all.
    pub fn give_back(&mut self, _unused: Permit) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The write is over.
    pub fn finish(&mut self, permit: Permit, load: Load, now: Timestamp) {
        let was_full = self.full_at.is_some_and(|at| permit.taken_at <= at);
        self.in_flight = self.in_flight.saturating_sub(1);
        match load {
            Load::Answered if was_full => self.widen(),
            Load::Answered => {}
            Load::Throttled(retry_after) => {
                let pause = retry_after.unwrap_or(DEFAULT_RETRY_AFTER).min(LONGEST_RETRY_AFTER);
                self.quiet_until = self.quiet_until.max(Some(now + pause));
                self.halve(permit, now);
            }
            Load::Lost => self.halve(permit, now),
        }
    }

    fn widen(&mut self) {
        self.credit += 1;
        if self.probing || self.credit >= self.window {
            self.window = (self.window + 1).min(self.max);
            self.credit = 0;
        }
    }

    fn halve(&mut self, permit: Permit, now: Timestamp) {
        self.probing = false;
        // Whatever was in flight when the window was halved will report the same trouble; once is enough.
        if self.halved_at.is_some_and(|at| permit.taken_at <= at) {
            return;
        }
        self.halved_at = Some(now);
        self.window = (self.window / 2).max(1);
        self.credit = 0;
    }

    /// When sending may go on, if a `Retry-After` runs at `now`.
    pub fn quiet_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.quiet_until.filter(|until| now < *until)
    }

    /// Writes that may be in flight now.
    pub fn window(&self) -> usize {
        self.window
    }

    /// Writes that are in flight now.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn fill(limiter: &mut Limiter, now: i64) -> Vec<Permit> {
        std::iter::from_fn(|| limiter.take(at(now))).collect()
    }

    #[test]
    fn grows_to_its_maximum_while_full_and_answered() {
        let mut limiter = Limiter::new(4, 10);
        for round in 0..8 {
            for permit in fill(&mut limiter, round) {
                limiter.finish(permit, Load::Answered, at(round));
            }
        }
        assert!(limiter.window() <= 10, "{}", limiter.window());
        let before = limiter.window();
        let permit = limiter.take(at(9)).unwrap();
        limiter.finish(permit, Load::Answered, at(9));
        assert_eq!(limiter.window(), before, "an idle window says nothing about the server");
    }

    #[test]
    fn a_bunch_of_answers_widens_as_each_of_them_would() {
        let mut limiter = Limiter::new(4, 64);
        let permits = fill(&mut limiter, 0);
        for permit in permits {
            limiter.finish(permit, Load::Answered, at(5));
        }
        assert_eq!(limiter.window(), 8, "one for each of the four");
        for permit in fill(&mut limiter, 6) {
            limiter.finish(permit, Load::Answered, at(9));
        }
        assert_eq!(limiter.window(), 16);
    }

    #[test]
    fn answers_that_never_met_a_full_window_do_not_widen_it() {
        let mut limiter = Limiter::new(4, 64);
        let permits: Vec<_> = (0..3).filter_map(|_| limiter.take(at(0))).collect();
        for permit in permits {
            limiter.finish(permit, Load::Answered, at(5));
        }
        assert_eq!(limiter.window(), 4);
    }

    #[test]
    fn a_round_of_refusals_halves_once_and_keeps_quiet() {
        let mut limiter = Limiter::new(16, 64);
        let permits = fill(&mut limiter, 0);
        assert_eq!(permits.len(), 16);
        for permit in permits {
            limiter.finish(permit, Load::Throttled(Some(Duration::from_secs(2))), at(5));
        }
        assert_eq!(limiter.window(), 8);
        assert!(limiter.take(at(2004)).is_none());
        assert_eq!(limiter.quiet_until(at(2004)), Some(at(2005)));
        assert_eq!(fill(&mut limiter, 2005).len(), 8);
    }

    #[test]
    fn lost_answers_halve_down_to_one_but_do_not_pause() {
        let mut limiter = Limiter::new(4, 64);
        for now in 0..5 {
            for permit in fill(&mut limiter, now * 10) {
                limiter.finish(permit, Load::Lost, at(now * 10 + 5));
            }
        }
        assert_eq!(limiter.window(), 1);
        assert!(limiter.take(at(100)).is_some());
    }

    #[test]
    fn after_trouble_it_grows_by_one_per_window() {
        let mut limiter = Limiter::new(8, 64);
        let permit = limiter.take(at(0)).unwrap();
        limiter.finish(permit, Load::Lost, at(1));
        assert_eq!(limiter.window(), 4);
        for round in 1..=4 {
            for permit in fill(&mut limiter, 2 * round) {
                limiter.finish(permit, Load::Answered, at(2 * round + 1));
            }
            assert_eq!(limiter.window(), 4 + usize::try_from(round).unwrap());
        }
    }

    #[test]
    fn an_absurd_retry_after_is_not_believed() {
        let mut limiter = Limiter::new(1, 1);
        let permit = limiter.take(at(0)).unwrap();
        limiter.finish(permit, Load::Throttled(Some(Duration::from_secs(86_400))), at(0));
        assert!(limiter.take(at(60_000)).is_some());
    }
}
