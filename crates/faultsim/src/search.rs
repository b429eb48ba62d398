//! Many seeds, on all cores: the first that shows a violation, and what of its schedule is needed to show it.

use crate::judge::Violation;
use crate::run::{Options, run};
use crate::schedule::{Schedule, Wanted};
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many seeds a thread takes at a time.
const CHUNK: u64 = 16;

/// What is to be looked for.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Which schedules.
    pub wanted: Wanted,
    /// How each is run.
    pub options: Options,
    /// On how many threads.
    pub threads: usize,
    /// Go on after a violation, and find one seed for each rule.
    pub all: bool,
}

/// What a search has found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The lowest seed with a violation.
    pub seed: u64,
    /// What it violates.
    pub violation: Violation,
}

/// What of a schedule is needed.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// Items that are needed, by their place in the schedule of the seed.
    pub items: Vec<usize>,
    /// How many runs it took.
    pub runs: u32,
}

/// How far a search is, for whoever watches it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Schedules that have been run.
    pub done: AtomicU64,
    /// Writes of managers in them.
    pub writes: AtomicU64,
    /// Asked for, and the search ends soon.
    pub is_over: std::sync::atomic::AtomicBool,
}

/// Runs a schedule; a panic of the manager's code is a violation like any other.
pub fn verdict(schedule: &Schedule, options: Options) -> (Option<Violation>, u32) {
    match catch_unwind(AssertUnwindSafe(|| run(schedule, options))) {
        Ok(outcome) => (outcome.violation, outcome.writes),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let what = text
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic");
            (Some(Violation::new("no panic", what)), 0)
        }
    }
}

impl Search {
    /// Runs the schedules of `seeds` until the lowest one with a violation is known, or all of them.
    pub fn run(&self, seeds: Range<u64>, progress: &Progress) -> Vec<Found> {
        let next = AtomicU64::new(seeds.start);
        // Seeds from here on need not be looked at.
        let end = AtomicU64::new(seeds.end);
        let found = Mutex::new(BTreeMap::new());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| self.work(&next, &end, &found, progress));
            }
        });
        let mut found: Vec<Found> = found.into_inner().unwrap_or_default().into_values().collect();
        found.sort_by_key(|f| f.seed);
        found.truncate(if self.all { found.len() } else { 1 });
        found
    }

    fn work(&self, next: &AtomicU64, end: &AtomicU64, found: &Mutex<BTreeMap<&str, Found>>, progress: &Progress) {
        loop {
            let first = next.fetch_add(CHUNK, Ordering::Relaxed);
            if first >= end.load(Ordering::Relaxed) || progress.is_over.load(Ordering::Relaxed) {
                return;
            }
            for seed in first..first + CHUNK {
                if seed >= end.load(Ordering::Relaxed) {
                    return;
                }
                let (violation, writes) = verdict(&Schedule::of_seed(seed, &self.wanted), self.options);
                progress.done.fetch_add(1, Ordering::Relaxed);
                progress.writes.fetch_add(u64::from(writes), Ordering::Relaxed);
                let Some(violation) = violation else { continue };
                if !self.all {
                    end.fetch_min(seed, Ordering::Relaxed);
                }
                if let Ok(mut found) = found.lock()
                    && found.get(violation.rule).is_none_or(|known| known.seed > seed)
                {
                    found.insert(violation.rule, Found { seed, violation });
                }
            }
        }
    }

    /// Leaves out one item after the other, as long as the same rule is violated without it.
    pub fn shrink(&self, found: &Found) -> Shrunk {
        let whole = Schedule::of_seed(found.seed, &self.wanted);
        let mut items: Vec<usize> = (0..whole.items.len()).collect();
        let mut runs = 0;
        let mut shows = |items: &[usize]| {
            runs += 1;
            let (violation, _) = verdict(&whole.with_items(items), self.options);
            violation.is_some_and(|v| v.rule == found.violation.rule)
        };
        loop {
            let before = items.len();
            for place in (0..before).rev() {
                let mut fewer = items.clone();
                fewer.remove(place);
                if shows(&fewer) {
                    items = fewer;
                }
            }
            if items.len() == before {
                return Shrunk { items, runs };
            }
        }
    }
}
