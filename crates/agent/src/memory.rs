//! What the agent remembers of a pod between two looks at it. All of it may be lost: then an environment is read once more, and a delay
//! begins anew (AGT-16).

use crate::decide::{Asked, Decision};
use flotilla_model::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// So often is a container restarted for one revision (AGT-8.5): a hash that can never match must not end in a loop.
pub const RESTARTS_MAX: u32 = 3;
/// The kubelet has this long to restart a container by itself, as it does for a new image, before it is restarted for its environment.
pub(crate) const INITIAL_DELAY: Duration = Duration::from_secs(3);
/// The longest time between two attempts at one container.
const DELAY_MAX: Duration = Duration::from_secs(600);
/// The first delay after an environment could not be read.
const READ_DELAY: Duration = Duration::from_secs(3);
/// The longest.
const READ_DELAY_MAX: Duration = Duration::from_secs(60);

/// What is known of a container's environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Its hash.
    Known(u64),
    /// It could not be read.
    Failed { tries: u32, again_at: Timestamp },
}

/// A container whose environment is not what the pod says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// What it ought to be.
    asked: Asked,
    /// Since when that is known.
    pub(crate) since: Timestamp,
    /// How often it was to be stopped.
    tries: u32,
    /// Not before this is it tried again.
    pub(crate) not_before: Timestamp,
}

impl Mismatch {
    pub(crate) fn new(asked: Asked, now: Timestamp) -> Self {
        Mismatch {
            asked,
            since: now,
            tries: 0,
            not_before: now + INITIAL_DELAY,
        }
    }

    /// The same if it still ought to be this. If it ought to be something else, the kubelet may have something to do first.
    pub(crate) fn asked_for(self, asked: Asked, now: Timestamp) -> Self {
        if self.asked == asked {
            return self;
        }
        Mismatch {
            not_before: self.not_before.max(now + INITIAL_DELAY),
            tries: self.tries,
            ..Mismatch::new(asked, now)
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Restarts {
    revision: String,
    count: u32,
    was_told: bool,
}

/// What is remembered of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    readings: BTreeMap<String, Reading>,
    mismatches: BTreeMap<String, Mismatch>,
    restarts: BTreeMap<String, Restarts>,
}

impl Memory {
    pub(crate) fn reading(&self, id: &str) -> Option<Reading> {
        self.readings.get(id).copied()
    }

    pub(crate) fn mismatch(&self, id: &str) -> Option<Mismatch> {
        self.mismatches.get(id).copied()
    }

    /// How often a container was restarted for a revision.
    pub(crate) fn restarts(&self, container: &str, revision: &str) -> u32 {
        let restarts = self.restarts.get(container).filter(|r| r.revision == *revision);
        restarts.map_or(0, |r| r.count)
    }

    /// A container was found to have an environment with this hash.
    pub fn has_read(&mut self, id: &str, hash: u64) {
        self.readings.insert(id.to_owned(), Reading::Known(hash));
    }

    /// The environment of a container could not be read.
    pub fn could_not_read(&mut self, id: &str, now: Timestamp) {
        let tries = match self.reading(id) {
            Some(Reading::Failed { tries, .. }) => tries,
            _ => 0,
        };
        let failed = Reading::Failed {
            tries: tries.saturating_add(1),
            again_at: now + doubled(READ_DELAY, tries, READ_DELAY_MAX),
        };
        self.readings.insert(id.to_owned(), failed);
    }

    /// A container is about to be stopped for a revision: it counts whatever becomes of it.
    pub fn is_stopping(&mut self, container: &str, id: &str, revision: &str, now: Timestamp) {
        let restarts = self.restarts.entry(container.to_owned()).or_default();
        if restarts.revision != *revision {
            *restarts = Restarts {
                revision: revision.to_owned(),
                ..Restarts::default()
            };
        }
        restarts.count += 1;
        if let Some(mismatch) = self.mismatches.get_mut(id) {
            mismatch.tries = mismatch.tries.saturating_add(1);
            mismatch.not_before = now + doubled(INITIAL_DELAY, mismatch.tries, DELAY_MAX);
        }
    }

    /// Takes in what a decision found: new mismatches begin to count, what is gone is forgotten. Says which containers have just been
    /// given up, which is told once.
    pub fn take(&mut self, decision: &Decision, now: Timestamp) -> Vec<String> {
        self.readings.retain(|id, _| decision.seen.contains(id));
        let mismatches = decision.mismatched.iter().map(|(id, asked)| {
            let known = self.mismatch(id);
            let mismatch = known.map_or(Mismatch::new(*asked, now), |known| known.asked_for(*asked, now));
            (id.clone(), mismatch)
        });
        self.mismatches = mismatches.collect();
        let mut given_up = Vec::new();
        for name in decision.given_up() {
            if let Some(restarts) = self.restarts.get_mut(name).filter(|r| !r.was_told) {
                restarts.was_told = true;
                given_up.push(name.to_owned());
            }
        }
        given_up
    }
}

/// A delay that doubles with each try, up to a cap.
fn doubled(base: Duration, tries: u32, cap: Duration) -> Duration {
    let factor = 1_u32.checked_shl(tries).unwrap_or(u32::MAX);
    base.saturating_mul(factor).min(cap)
}
