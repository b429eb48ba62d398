//! How many writes may be in flight at once: additive increase, multiplicative decrease.
//!
//! Kubernetes clients usually carry a fixed number of requests per second, which is too slow on a big server and too fast on a
//! small one. Here the server's answers set the pace: every answer to a write during whose flight the window was full widens it a
//! little (at first by one each, later by one per window), and a 429 or a lost answer halves it, at most once per round trip. While
//! a `Retry-After` runs nothing is sent at all.
//!
//! A 429 that is not the server's own, but an admission webhook's or about one object, says nothing of other namespaces: one that had such
//! an answer has a window of its own under the common one until that has grown as wide, and a pause of its own.

use flotilla_model::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a 429 without `Retry-After` keeps us quiet: what the API server itself suggests.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
/// A longer `Retry-After` is not believed: a proxy's mistake must not stop us for hours.
pub(super) const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How long the narrower window of a namespace that nobody writes to is remembered.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// The window of writes in flight, and those of namespaces.
#[derive(Debug)]
pub struct Limiter {
    all: Window,
    /// Of namespaces that were asked for fewer requests, until they have recovered.
    namespaces: BTreeMap<Arc<str>, Window>,
}

#[derive(Clone, Debug)]
struct Window {
    width: usize,
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
#[derive(Debug)]
pub struct Permit {
    taken_at: Timestamp,
    namespace: Option<Arc<str>>,
    /// Whether the window of the namespace counts it.
    counts_there: bool,
}

/// Why a write may not be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Too much is in flight, or the server has asked for a pause.
    Server,
    /// Too much of this namespace is in flight.
    Namespace,
    /// Writes to this namespace pause until then.
    Pause(Timestamp),
}

/// How a write ended, as far as the server's load is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// It was answered; also when the answer was a refusal.
    Answered,
    /// The server asked for fewer requests, perhaps for a time to wait.
    Throttled(Option<Duration>),
    /// Fewer requests of this namespace were asked for.
    ThrottledHere(Option<Duration>),
    /// No answer came.
    Lost,
}

impl Limiter {
    /// Starts with `start` writes in flight and never exceeds `max`; both at least one.
    pub fn new(start: usize, max: usize) -> Self {
        Limiter {
            all: Window::new(start, max),
            namespaces: BTreeMap::new(),
        }
    }

    /// A permit to send one write now, to an object in this namespace; without one, only the common window counts.
    ///
    /// # Errors
    /// What has no room for it.
    pub fn take(&mut self, namespace: Option<&Arc<str>>, now: Timestamp) -> Result<Permit, Hold> {
        if !self.all.has_room(now) {
            return Err(Hold::Server);
        }
        let own = namespace.and_then(|namespace| self.namespaces.get_mut(namespace));
        let counts_there = own.is_some();
        if let Some(window) = own {
            if let Some(until) = window.quiet_until(now) {
                return Err(Hold::Pause(until));
            }
            if !window.has_room(now) {
                return Err(Hold::Namespace);
            }
            window.take(now);
        }
        self.all.take(now);
        Ok(Permit {
            taken_at: now,
            namespace: namespace.cloned(),
            counts_there,
        })
    }

    /// The write is not sent after all.
    pub fn give_back(&mut self, unused: Permit) {
        self.all.give_back();
        let own = unused.namespace.filter(|_| unused.counts_there);
        if let Some(window) = own.and_then(|namespace| self.namespaces.get_mut(&namespace)) {
            window.give_back();
        }
    }

    /// The write is over.
    pub fn finish(&mut self, permit: Permit, load: Load, now: Timestamp) {
        let Permit {
            taken_at,
            namespace,
            counts_there,
        } = permit;
        // For the server it was answered like any other.
        let of_all = match load {
            Load::ThrottledHere(_) => Load::Answered,
            other => other,
        };
        self.all.finish(taken_at, of_all, now);
        let Some(namespace) = namespace else { return };
        if matches!(load, Load::ThrottledHere(_)) && !self.namespaces.contains_key(&namespace) {
            self.namespaces.retain(|_, window| !window.is_at_rest(now));
            let window = Window::new(self.all.width, self.all.max);
            self.namespaces.insert(namespace.clone(), window);
        }
        let Some(window) = self.namespaces.get_mut(&namespace) else {
            return;
        };
        if !counts_there {
            // Sent before it had a window of its own; `finish` takes it out again.
            window.in_flight += 1;
        }
        window.finish(taken_at, load, now);
        if window.width >= self.all.width && window.in_flight == 0 && window.quiet_until(now).is_none() {
            self.namespaces.remove(&namespace);
        }
    }

    /// When sending may go on, if a `Retry-After` of the server runs at `now`.
    pub fn quiet_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.all.quiet_until(now)
    }

    /// Writes that may be in flight now.
    pub fn window(&self) -> usize {
        self.all.width
    }

    /// Writes that are in flight now.
    pub fn in_flight(&self) -> usize {
        self.all.in_flight
    }
}

impl Window {
    fn new(start: usize, max: usize) -> Self {
        let max = max.max(1);
        Window {
            width: start.clamp(1, max),
            max,
            in_flight: 0,
            probing: true,
            credit: 0,
            full_at: None,
            quiet_until: None,
            halved_at: None,
        }
    }

    fn has_room(&self, now: Timestamp) -> bool {
        self.in_flight < self.width && self.quiet_until(now).is_none()
    }

    /// The write that was to take its place is not sent after all.
    fn give_back(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Whether it can be forgotten.
    fn is_at_rest(&self, now: Timestamp) -> bool {
        let is_old = self.halved_at.is_none_or(|at| now >= at + FORGOTTEN_AFTER);
        is_old && self.in_flight == 0 && self.quiet_until(now).is_none()
    }

    fn take(&mut self, now: Timestamp) {
        self.in_flight += 1;
        if self.in_flight >= self.width {
            self.full_at = Some(now);
        }
    }

    fn finish(&mut self, taken_at: Timestamp, load: Load, now: Timestamp) {
        let was_full = self.full_at.is_some_and(|at| taken_at <= at);
        self.in_flight = self.in_flight.saturating_sub(1);
        match load {
            Load::Answered if was_full => self.widen(),
            Load::Answered => {}
            Load::Throttled(retry_after) | Load::ThrottledHere(retry_after) => {
                let pause = retry_after.unwrap_or(DEFAULT_RETRY_AFTER).min(LONGEST_RETRY_AFTER);
                self.quiet_until = self.quiet_until.max(Some(now + pause));
                self.halve(taken_at, now);
            }
            Load::Lost => self.halve(taken_at, now),
        }
    }

    fn widen(&mut self) {
        self.credit += 1;
        if self.probing || self.credit >= self.width {
            self.width = (self.width + 1).min(self.max);
            self.credit = 0;
        }
    }

    fn halve(&mut self, taken_at: Timestamp, now: Timestamp) {
        self.probing = false;
        // Whatever was in flight when the window was halved will report the same trouble; once is enough.
        if self.halved_at.is_some_and(|at| taken_at <= at) {
            return;
        }
        self.halved_at = Some(now);
        self.width = (self.width / 2).max(1);
        self.credit = 0;
    }

    fn quiet_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.quiet_until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn ns(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    fn fill(limiter: &mut Limiter, now: i64) -> Vec<Permit> {
        std::iter::from_fn(|| limiter.take(Some(&ns("a")), at(now)).ok()).collect()
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
        let permit = limiter.take(Some(&ns("a")), at(9)).unwrap();
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
        let permits: Vec<_> = (0..3)
            .filter_map(|_| limiter.take(Some(&ns("a")), at(0)).ok())
            .collect();
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
        assert!(limiter.take(Some(&ns("a")), at(2004)).is_err());
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
        assert!(limiter.take(Some(&ns("a")), at(100)).is_ok());
    }

    #[test]
    fn after_trouble_it_grows_by_one_per_window() {
        let mut limiter = Limiter::new(8, 64);
        let permit = limiter.take(Some(&ns("a")), at(0)).unwrap();
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
        let permit = limiter.take(Some(&ns("a")), at(0)).unwrap();
        limiter.finish(permit, Load::Throttled(Some(Duration::from_secs(86_400))), at(0));
        assert!(limiter.take(Some(&ns("a")), at(60_000)).is_ok());
    }

    #[test]
    fn what_one_namespace_is_told_concerns_no_other() {
        let mut limiter = Limiter::new(8, 64);
        let permits = fill(&mut limiter, 0);
        for permit in permits {
            limiter.finish(permit, Load::ThrottledHere(Some(Duration::from_secs(2))), at(5));
        }
        assert!(limiter.window() >= 8 && limiter.quiet_until(at(6)).is_none());
        assert_eq!(limiter.take(Some(&ns("a")), at(6)).unwrap_err(), Hold::Pause(at(2005)));
        let other = limiter.take(Some(&ns("b")), at(6)).unwrap();
        limiter.finish(other, Load::Answered, at(7));
        // Afterwards fewer at once, and more and more while they are answered.
        let mut widths = Vec::new();
        for round in 0..200 {
            let permits = fill(&mut limiter, 2005 + 2 * round);
            widths.push(permits.len());
            for permit in permits {
                limiter.finish(permit, Load::Answered, at(2006 + 2 * round));
            }
        }
        assert!(widths[0] <= 8, "{widths:?}");
        assert!(limiter.namespaces.is_empty(), "it has recovered: {widths:?}");
    }
}
