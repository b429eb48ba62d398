//! What is counted: plain numbers, rendered elsewhere.

use flotilla_model::Resource;
use std::collections::BTreeMap;
use std::time::Duration;

/// Upper bounds of the buckets of a [`Histogram`], in seconds.
pub const BUCKETS_SECONDS: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// How long things took.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Observations per bucket, not cumulated; the last is for everything longer.
    pub counts: [u64; BUCKETS_SECONDS.len() + 1],
    /// Sum of all observations, in seconds.
    pub sum_seconds: f64,
}

impl Histogram {
    /// Counts one observation.
    pub fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = BUCKETS_SECONDS
            .iter()
            .position(|bound| seconds <= *bound)
            .unwrap_or(BUCKETS_SECONDS.len());
        self.counts[bucket] += 1;
        self.sum_seconds += seconds;
    }

    /// How many observations there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Counters of the whole manager. Sizes are not here: they are asked of their owners.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// How long ready keys waited.
    pub queue_latency: Histogram,
    /// How long passes took, from handout to end.
    pub pass_duration: Histogram,
    /// Passes, by controller and result.
    pub passes: BTreeMap<(&'static str, &'static str), u64>,
    /// Panics caught in controllers.
    pub panics: u64,
    /// Requests, by verb, resource and what became of them.
    pub requests: BTreeMap<(&'static str, Resource, &'static str), u64>,
    /// How long requests took.
    pub request_duration: Histogram,
    /// Lists begun, by resource: the first one, and one for each watch that had to start over.
    pub lists: BTreeMap<Resource, u64>,
    /// Objects that could not be read, by resource.
    pub unreadable: BTreeMap<Resource, u64>,
    /// Times the lease was acquired.
    pub acquisitions: u64,
    /// Times it was lost against our will.
    pub losses: u64,
    /// The longest [`Core::advance`](super::Core::advance) so far, as whoever drives the core has timed it.
    pub longest_advance: Duration,
}

impl Metrics {
    /// Counts the end of a pass.
    pub fn pass(&mut self, controller: &'static str, result: &'static str, took: Duration) {
        *self.passes.entry((controller, result)).or_default() += 1;
        self.pass_duration.observe(took);
    }

    /// Counts an answered request.
    pub fn request(&mut self, verb: &'static str, resource: Resource, result: &'static str, took: Duration) {
        *self.requests.entry((verb, resource, result)).or_default() += 1;
        self.request_duration.observe(took);
    }
}
