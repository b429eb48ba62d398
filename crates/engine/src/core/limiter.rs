//! How many writes may be in flight at once: additive increase, multiplicative decrease.
//!
//! Kubernetes clients usually carry a fixed number of requests per second, which is too slow on a big server and too fast on a
//! small one. Here the server's answers set the pace: every answer to a write during whose flight the window was full widens it a
//! little (at first by one each, later by one per window), and a 429 or a lost answer halves it, at most once per round trip. While
//! a `Retry-After` runs nothing is sent at all.
//!
//! What goes wrong in one namespace slows down no other:
//! - A 429 that is not the server's own, but an admission webhook's or about one object, concerns its namespace, which from then on has a
//!   window of its own under the common one until that has grown as wide, and a pause of its own.
//! - A write that is not answered for a second, which is what a webhook that hangs looks like, takes no place in the common window any
//!   more, and neither do others of its namespace, until sixteen in a row were answered quickly, or for two minutes. Slow
//!   namespaces share places of their own, as many as the common window has. So whoever hangs holds up others for a second, once; and
//!   while any does, no namespace gets more than half of the places that others leave in the common window, so that those that hang after the
//!   first hold up nobody.

use flotilla_model::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a 429 without `Retry-After` keeps us quiet: what the API server itself suggests.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
/// A longer `Retry-After` is not believed: a proxy's mistake must not stop us for hours.
pub(super) const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);
/// How long the narrower window of a namespace that nobody writes to is remembered.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// An answer that takes longer is slow. Under load an API server takes tenths of a second; webhooks may take 30 s.
pub(super) const SLOW_AFTER: Duration = Duration::from_secs(1);
/// How long a namespace counts as slow after its last slow write: longer than any webhook may take, and than a refusal backs off.
const SLOW_FOR: Duration = Duration::from_secs(120);
/// After so many commands in a row that were answered in time it counts as slow no more: then it was the server that hesitated, once.
const QUICK_ENOUGH: u32 = 16;
/// A namespace may have so many in flight, however many others are slow.
const SHARE_AT_LEAST: usize = 4;

/// So many times as many as the common window ever has may be slow at a time. Who hangs after that stays in the common window, with a small share.
const SLOW_MOST: usize = 2;

/// The window of writes in flight, and those of namespaces.
#[derive(Debug)]
pub struct Limiter {
    all: Window,
    /// Those that have writes in flight, or were asked for fewer, or are slow.
    namespaces: BTreeMap<Arc<str>, Namespace>,
    /// Writes that take a place in the common window, by when they become slow.
    in_common: BTreeMap<(Timestamp, u64), Arc<str>>,
    /// Writes that take none.
    apart: BTreeSet<u64>,
    next_id: u64,
}

/// What is known of writes to one namespace.
#[derive(Debug)]
struct Namespace {
    /// As wide as the common one may ever be, as long as nobody asked for less.
    window: Window,
    slow_until: Option<Timestamp>,
    /// Commands answered in time since the last one that was slow.
    quick: u32,
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
    id: u64,
    taken_at: Timestamp,
    namespace: Arc<str>,
    write: Write,
}

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Anything that a decision wants.
    Command,
    /// A status: small, and it says why the rest waits, so no pause or window of its namespace holds it up.
    Status,
}

/// Why a write may not be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Too much is in flight, or the server has asked for a pause.
    Server,
    /// Too much of this namespace, or of slow ones, is in flight.
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
    /// Starts with `start` writes in flight and never exceeds `max`; both at least one. Slow ones come on top, twice `max` at most.
    pub fn new(start: usize, max: usize) -> Self {
        Limiter {
            all: Window::new(start, max),
            namespaces: BTreeMap::new(),
            in_common: BTreeMap::new(),
            apart: BTreeSet::new(),
            next_id: 0,
        }
    }

    /// A permit to send one write now, to an object in this namespace.
    ///
    /// # Errors
    /// What has no room for it.
    pub fn take(&mut self, namespace: &Arc<str>, write: Write, now: Timestamp) -> Result<Permit, Hold> {
        self.notice_slow(now);
        if self.all.quiet_until(now).is_some() {
            return Err(Hold::Server);
        }
        let (max, width, apart) = (self.all.max, self.all.width, self.apart.len());
        let is_slow = self.is_slow(namespace, now);
        let share = if is_slow {
            self.share_of_slow(now)
        } else {
            self.share_beside_slow(namespace)
        };
        let known = self
            .namespaces
            .entry(namespace.clone())
            .or_insert_with(|| Namespace::new(max));
        let held = if write == Write::Status {
            None
        } else if let Some(until) = known.window.quiet_until(now) {
            Some(Hold::Pause(until))
        } else {
            let is_full = known.window.in_flight >= share || !known.window.has_room(now);
            is_full.then_some(Hold::Namespace)
        };
        let held = held.or_else(|| {
            if is_slow {
                // What the server says of itself narrows these, too.
                (apart >= width).then_some(Hold::Namespace)
            } else {
                (!self.all.has_room(now)).then_some(Hold::Server)
            }
        });
        if let Some(hold) = held {
            self.forget(namespace, now);
            return Err(hold);
        }
        known.window.take(now);
        self.next_id += 1;
        if is_slow {
            self.apart.insert(self.next_id);
        } else {
            self.all.take(now);
            self.in_common
                .insert((now + SLOW_AFTER, self.next_id), namespace.clone());
        }
        Ok(Permit {
            id: self.next_id,
            taken_at: now,
            namespace: namespace.clone(),
            write,
        })
    }

    /// How many writes a slow namespace may have in flight: half of the window, divided among all that are slow.
    fn share_of_slow(&self, now: Timestamp) -> usize {
        let slow = self.namespaces.values().filter(|known| known.is_slow(now)).count();
        (self.all.width / 2 / slow.max(1)).max(SHARE_AT_LEAST)
    }

    /// How many writes any other namespace may have in flight: while something hangs, half of what others leave, since it may hang as well, and
    /// less the more hangs already.
    fn share_beside_slow(&self, namespace: &str) -> usize {
        if self.apart.is_empty() {
            return self.all.max;
        }
        let own = self.namespaces.get(namespace).map_or(0, |known| known.window.in_flight);
        let of_others = self.all.in_flight.saturating_sub(own);
        let most = SLOW_MOST.saturating_mul(self.all.max);
        let half = self.all.width.saturating_sub(of_others) / 2;
        (half * most.saturating_sub(self.apart.len()) / most).max(SHARE_AT_LEAST)
    }

    /// Writes that were not answered in time give up their place in the common window, as long as there is room apart.
    pub fn notice_slow(&mut self, now: Timestamp) {
        while self.has_room_apart()
            && let Some(oldest) = self.in_common.first_entry().filter(|entry| entry.key().0 <= now)
        {
            let ((_, id), namespace) = oldest.remove_entry();
            self.apart.insert(id);
            self.all.give_back();
            self.mark_slow(&namespace, now);
        }
    }

    fn has_room_apart(&self) -> bool {
        self.apart.len() < SLOW_MOST.saturating_mul(self.all.max)
    }

    fn mark_slow(&mut self, namespace: &str, now: Timestamp) {
        let Some(known) = self.namespaces.get_mut(namespace) else {
            return;
        };
        let is_new = !known.is_slow(now);
        (known.slow_until, known.quick) = (Some(now + SLOW_FOR), 0);
        if is_new {
            self.forget_old(now);
        }
    }

    /// When [`Limiter::notice_slow`] next has something to do.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let oldest = self.in_common.first_key_value().filter(|_| self.has_room_apart());
        oldest.map(|((slow_at, _), _)| *slow_at)
    }

    /// Whether writes to this namespace were slow lately.
    pub fn is_slow(&self, namespace: &str, now: Timestamp) -> bool {
        self.namespaces.get(namespace).is_some_and(|known| known.is_slow(now))
    }

    /// The write is not sent after all.
    pub fn give_back(&mut self, unused: Permit) {
        if self.leaves_common(&unused) {
            self.all.give_back();
        }
        if let Some(known) = self.namespaces.get_mut(&unused.namespace) {
            known.window.give_back();
        }
        self.forget(&unused.namespace, unused.taken_at);
    }

    /// The write is over.
    pub fn finish(&mut self, permit: Permit, load: Load, now: Timestamp) {
        self.notice_slow(now);
        let Permit {
            taken_at, namespace, ..
        } = &permit;
        let was_slow = !self.leaves_common(&permit);
        match load {
            // That a slow namespace's write was lost tells nothing of others; what the server says of itself does.
            Load::Answered | Load::ThrottledHere(_) | Load::Lost if was_slow => {}
            Load::Throttled(retry_after) if was_slow => self.all.throttled(*taken_at, retry_after, now),
            // For the server it was answered like any other.
            Load::ThrottledHere(_) => self.all.finish(*taken_at, Load::Answered, now),
            other => self.all.finish(*taken_at, other, now),
        }
        let Some(known) = self.namespaces.get_mut(namespace) else {
            return;
        };
        let is_about_it = matches!(load, Load::ThrottledHere(_)) || (was_slow && load == Load::Lost);
        if is_about_it {
            known.window.width = known.window.width.min(self.all.width);
        }
        let of_namespace = if is_about_it { load } else { Load::Answered };
        known.window.finish(*taken_at, of_namespace, now);
        if now >= *taken_at + SLOW_AFTER {
            self.mark_slow(namespace, now);
        } else if was_slow && permit.write == Write::Command {
            known.quick += 1;
            if known.quick >= QUICK_ENOUGH {
                known.slow_until = None;
            }
        }
        if is_about_it {
            self.forget_old(now);
        }
        self.forget(namespace, now);
    }

    /// Whether the write took a place in the common window, which it gives up; if not, it took one apart.
    fn leaves_common(&mut self, permit: &Permit) -> bool {
        self.apart.remove(&permit.id);
        self.in_common
            .remove(&(permit.taken_at + SLOW_AFTER, permit.id))
            .is_some()
    }

    /// Forgets a namespace of which there is nothing to know.
    fn forget(&mut self, namespace: &Arc<str>, now: Timestamp) {
        let width = self.all.width;
        let is_ordinary = |known: &Namespace| {
            let has_recovered = known.window.width >= width || known.window.is_at_rest(now);
            known.window.in_flight == 0
                && has_recovered
                && known.window.quiet_until(now).is_none()
                && !known.is_slow(now)
        };
        if self.namespaces.get(namespace).is_some_and(is_ordinary) {
            self.namespaces.remove(namespace);
        }
    }

    /// Forgets all namespaces of which there is nothing to know any more.
    fn forget_old(&mut self, now: Timestamp) {
        let names: Vec<Arc<str>> = self.namespaces.keys().cloned().collect();
        for name in names {
            self.forget(&name, now);
        }
    }

    /// When sending may go on, if a `Retry-After` of the server runs at `now`.
    pub fn quiet_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.all.quiet_until(now)
    }

    /// Writes that may be in flight now, slow ones not counted.
    pub fn window(&self) -> usize {
        self.all.width
    }

    /// Writes that are in flight now, slow ones included.
    pub fn in_flight(&self) -> usize {
        self.all.in_flight + self.apart.len()
    }
}

impl Namespace {
    fn new(max: usize) -> Self {
        Namespace {
            window: Window::new(max, max),
            slow_until: None,
            quick: 0,
        }
    }

    fn is_slow(&self, now: Timestamp) -> bool {
        self.slow_until.is_some_and(|until| now < until)
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

    /// Whether it was halved so long ago that it means nothing any more.
    fn is_at_rest(&self, now: Timestamp) -> bool {
        self.halved_at.is_none_or(|at| now >= at + FORGOTTEN_AFTER)
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
                self.throttled(taken_at, retry_after, now);
            }
            Load::Lost => self.halve(taken_at, now),
        }
    }

    fn throttled(&mut self, taken_at: Timestamp, retry_after: Option<Duration>, now: Timestamp) {
        let pause = retry_after.unwrap_or(DEFAULT_RETRY_AFTER).min(LONGEST_RETRY_AFTER);
        self.quiet_until = self.quiet_until.max(Some(now + pause));
        self.halve(taken_at, now);
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
        std::iter::from_fn(|| limiter.take(&ns("a"), Write::Command, at(now)).ok()).collect()
    }

    /// One after the other, in namespaces of their own, they send what they get, and are never answered.
    #[test]
    fn whoever_hangs_after_others_stops_nobody() {
        let mut limiter = Limiter::new(256, 256);
        let mut sent = Vec::new();
        for now in (0..30_000).step_by(500) {
            limiter.notice_slow(at(now));
            let hangs = ns(&format!("hangs-{}", now / 1_000));
            sent.extend(std::iter::from_fn(|| {
                limiter.take(&hangs, Write::Command, at(now)).ok()
            }));
            if now < 1_000 {
                continue;
            }
            for write in [Write::Command, Write::Status] {
                let innocent = limiter.take(&ns("innocent"), write, at(now));
                let permit = innocent.unwrap_or_else(|hold| panic!("{write:?} after {now} ms: {hold:?}"));
                limiter.finish(permit, Load::Answered, at(now + 10));
            }
        }
        assert!(sent.len() <= (SLOW_MOST + 1) * 256, "{}", sent.len());
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
        let permit = limiter.take(&ns("a"), Write::Command, at(9)).unwrap();
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
            .filter_map(|_| limiter.take(&ns("a"), Write::Command, at(0)).ok())
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
        assert!(limiter.take(&ns("a"), Write::Command, at(2004)).is_err());
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
        assert!(limiter.take(&ns("a"), Write::Command, at(100)).is_ok());
    }

    #[test]
    fn after_trouble_it_grows_by_one_per_window() {
        let mut limiter = Limiter::new(8, 64);
        let permit = limiter.take(&ns("a"), Write::Command, at(0)).unwrap();
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
        let permit = limiter.take(&ns("a"), Write::Command, at(0)).unwrap();
        limiter.finish(permit, Load::Throttled(Some(Duration::from_secs(86_400))), at(0));
        assert!(limiter.take(&ns("a"), Write::Command, at(60_000)).is_ok());
    }

    #[test]
    fn what_one_namespace_is_told_concerns_no_other() {
        let mut limiter = Limiter::new(8, 64);
        let permits = fill(&mut limiter, 0);
        for permit in permits {
            limiter.finish(permit, Load::ThrottledHere(Some(Duration::from_secs(2))), at(5));
        }
        assert!(limiter.window() >= 8 && limiter.quiet_until(at(6)).is_none());
        assert_eq!(
            limiter.take(&ns("a"), Write::Command, at(6)).unwrap_err(),
            Hold::Pause(at(2005))
        );
        let other = limiter.take(&ns("b"), Write::Command, at(6)).unwrap();
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
    fn take(limiter: &mut Limiter, namespace: &str, now: i64) -> Result<Permit, Hold> {
        limiter.take(&ns(namespace), Write::Command, at(now))
    }

    #[test]
    fn what_is_not_answered_for_a_second_leaves_the_common_window() {
        let mut limiter = Limiter::new(8, 16);
        let hanging = fill(&mut limiter, 0);
        assert_eq!(hanging.len(), 8);
        assert_eq!(take(&mut limiter, "b", 999).unwrap_err(), Hold::Server);
        assert_eq!(limiter.next_wake(), Some(at(1_000)));
        let other = take(&mut limiter, "b", 1_000).expect("room for others");
        limiter.finish(other, Load::Answered, at(1_001));
        assert!(limiter.is_slow("a", at(1_001)) && !limiter.is_slow("b", at(1_001)));
        // Half of 16 is for slow ones: they are used up.
        assert_eq!(take(&mut limiter, "a", 1_001).unwrap_err(), Hold::Namespace);
        let window = limiter.window();
        for permit in hanging {
            limiter.finish(permit, Load::Lost, at(30_000));
        }
        assert_eq!(
            limiter.window(),
            window,
            "what hangs elsewhere says nothing of the server"
        );
        let again = take(&mut limiter, "a", 30_001).expect("one place, since it was lost again and again");
        assert_eq!(limiter.in_common.len(), 0, "and not in the common window");
        limiter.finish(again, Load::Answered, at(30_002));
        assert!(
            !limiter.is_slow("a", at(150_001)),
            "after two minutes without trouble it is like any other"
        );
    }

    #[test]
    fn slow_namespaces_share_what_there_is_for_them() {
        let mut limiter = Limiter::new(64, 64);
        let names: Vec<String> = (0..4).map(|n| format!("slow-{n}")).collect();
        let mut permits: Vec<Permit> = names
            .iter()
            .filter_map(|name| take(&mut limiter, name, 0).ok())
            .collect();
        limiter.notice_slow(at(1_000));
        for name in &names {
            permits.extend(std::iter::from_fn(|| take(&mut limiter, name, 1_000).ok()));
        }
        assert_eq!(permits.len(), 32);
        let status = limiter.take(&ns("slow-0"), Write::Status, at(1_000));
        permits.push(status.expect("a status says why the rest waits"));
        // Thirty-three of a hundred and twenty-eight are unanswered.
        assert_eq!(
            fill(&mut limiter, 1_000).len(),
            23,
            "half of the common window, less what hangs"
        );
    }

    #[test]
    fn when_the_server_itself_is_slow_the_number_of_writes_stays_bounded() {
        let mut limiter = Limiter::new(64, 64);
        let mut permits = Vec::new();
        for now in 0..100 {
            for n in 0..1_000 {
                permits.extend(take(&mut limiter, &format!("n{n}"), now * 1_000).ok());
            }
        }
        assert_eq!((permits.len(), limiter.in_flight()), (192, 192));
        for permit in permits {
            limiter.finish(permit, Load::Throttled(None), at(200_000));
        }
        assert_eq!(limiter.in_flight(), 0);
        assert_eq!(limiter.quiet_until(at(200_000)), Some(at(201_000)));
        assert_eq!(limiter.window(), 32);
    }

    #[test]
    fn nothing_is_remembered_of_namespaces_that_are_like_any_other() {
        let mut limiter = Limiter::new(64, 64);
        for n in 0..1_000 {
            let permit = take(&mut limiter, &format!("n{n}"), n).unwrap();
            limiter.finish(permit, Load::Answered, at(n));
        }
        assert_eq!((limiter.namespaces.len(), limiter.in_common.len()), (0, 0));
        let slow = take(&mut limiter, "slow", 2_000).unwrap();
        limiter.finish(slow, Load::Answered, at(5_000));
        assert_eq!(limiter.namespaces.len(), 1);
        let later = take(&mut limiter, "slow too", 200_000).unwrap();
        limiter.finish(later, Load::Answered, at(203_000));
        let names: Vec<&str> = limiter.namespaces.keys().map(|name| &**name).collect();
        assert_eq!(names, ["slow too"]);
    }

    #[test]
    fn what_the_server_says_of_itself_narrows_what_slow_namespaces_send() {
        let mut limiter = Limiter::new(64, 64);
        let names: Vec<String> = (0..200).map(|n| format!("n{n}")).collect();
        let mut now = 0;
        for round in 0..8 {
            let permits: Vec<Permit> = names.iter().filter_map(|n| take(&mut limiter, n, now).ok()).collect();
            // As many that are slow as others.
            assert!(
                permits.len() <= 2 * limiter.window(),
                "round {round}: {}",
                permits.len()
            );
            now += 1_500;
            limiter.notice_slow(at(now));
            for permit in permits {
                limiter.finish(permit, Load::Throttled(Some(Duration::from_secs(1))), at(now));
            }
            now += 1_001;
        }
    }

    #[test]
    fn one_hiccup_of_the_server_does_not_serialise_a_namespace() {
        let mut limiter = Limiter::new(128, 256);
        let names: Vec<String> = (0..128).map(|n| format!("n{n}")).collect();
        let permits: Vec<Permit> = names.iter().filter_map(|n| take(&mut limiter, n, 0).ok()).collect();
        assert_eq!(permits.len(), 128);
        limiter.notice_slow(at(1_000));
        for permit in permits {
            limiter.finish(permit, Load::Answered, at(1_100));
        }
        let mut widest = 0;
        for now in (2_000..120_000).step_by(50) {
            let permits: Vec<Permit> = std::iter::from_fn(|| take(&mut limiter, "n0", now).ok()).collect();
            widest = widest.max(permits.len());
            for permit in permits {
                limiter.finish(permit, Load::Answered, at(now + 10));
            }
        }
        assert!(
            widest > 1,
            "at most {widest} in flight for two minutes, window {}",
            limiter.window()
        );
    }
}
