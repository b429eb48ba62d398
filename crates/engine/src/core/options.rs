//! How the core behaves.

use super::lease::LeaseOptions;
use flotilla_model::Resource;
use std::time::Duration;

/// How the core behaves. The defaults suit a production cluster.
#[derive(Clone, Debug)]
pub struct CoreOptions {
    /// Who we are in the election; must differ between processes.
    pub identity: String,
    /// The lease to hold before anything is written; without one, nothing keeps two managers apart.
    pub lease: Option<LeaseOptions>,
    /// The kinds to watch.
    pub resources: Vec<Resource>,
    /// Passes in progress at the same time.
    pub workers: usize,
    /// Writes in flight at first.
    pub writes_in_flight_start: usize,
    /// Writes in flight at most.
    pub writes_in_flight_max: usize,
    /// Between two writes of one object's status that change nothing but counts, at least; longer by `pass_interval_per_pod` for each pod.
    pub status_interval: Duration,
    /// Between the starts of two passes over one key that changes ask for, at least.
    pub pass_interval: Duration,
    /// How much longer for each pod of the key, on average, and between two such writes of status. A pass costs some tenths of a microsecond for
    /// each, so this bounds the share of a core that one set can take, however large it is and however busy its pods are. A key that has been at
    /// rest may be passed over a few times without that.
    pub pass_interval_per_pod: Duration,
    /// For how long a pass starts commands before it looks again.
    pub pass_slice: Duration,
    /// How long foreign writers may show themselves before the first write to a native set.
    pub observation_period: Duration,
    /// How long a set with a foreign writer is left alone.
    pub foreign_pause: Duration,
    /// Between two looks at everything without cause.
    pub resync_period: Duration,
    /// Whether a write that is repeated again and again is held back. Off only where it is tried out what controllers do by themselves.
    pub holds_repetitions: bool,
    /// Where the numbers that controllers may use as chance begin.
    pub seed: u64,
}

impl CoreOptions {
    /// The defaults, for a process of this identity.
    pub fn new(identity: &str) -> Self {
        CoreOptions {
            identity: identity.to_owned(),
            lease: None,
            resources: vec![
                Resource::AdvancedSets,
                Resource::Pods,
                Resource::Claims,
                Resource::Revisions,
                Resource::StorageClasses,
            ],
            workers: 16,
            writes_in_flight_start: 128,
            writes_in_flight_max: 256,
            status_interval: Duration::from_millis(250),
            pass_interval: Duration::from_millis(20),
            pass_interval_per_pod: Duration::from_micros(150),
            pass_slice: Duration::from_secs(5),
            observation_period: Duration::from_secs(15),
            foreign_pause: Duration::from_secs(600),
            resync_period: Duration::from_secs(10 * 3600),
            holds_repetitions: true,
            seed: 0,
        }
    }
}
