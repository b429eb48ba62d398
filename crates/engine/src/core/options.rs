//! How the core behaves.

use super::lease::LeaseTimes;
use std::time::Duration;

/// Taking part in an election.
#[derive(Clone, Debug)]
pub struct Election {
    /// Who we are; must differ between processes.
    pub identity: String,
    /// The election's times.
    pub times: LeaseTimes,
}

/// How the core behaves. The defaults suit a production cluster.
#[derive(Clone, Debug)]
pub struct CoreOptions {
    /// The election to win before anything is written; without one we write at once.
    pub election: Option<Election>,
    /// Passes in progress at the same time.
    pub workers: usize,
    /// Writes in flight at first.
    pub writes_start: usize,
    /// Writes in flight at most.
    pub writes_max: usize,
    /// Between two writes of one object's status that change nothing but counts.
    pub status_interval: Duration,
    /// Between the starts of two passes over one key that changes ask for.
    pub pass_interval: Duration,
    /// For how long a pass starts commands before it looks again.
    pub pass_slice: Duration,
    /// How long foreign writers may show themselves before the first write to a native set.
    pub observation: Duration,
    /// How long a set with a foreign writer is left alone.
    pub foreign_pause: Duration,
    /// Between two looks at everything without cause.
    pub resync: Duration,
    /// Where the numbers that controllers may use as chance begin.
    pub seed: u64,
}

impl Default for CoreOptions {
    fn default() -> Self {
        CoreOptions {
            election: None,
            workers: 16,
            writes_start: 16,
            writes_max: 64,
            status_interval: Duration::from_millis(250),
            pass_interval: Duration::from_millis(20),
            pass_slice: Duration::from_secs(1),
            observation: Duration::from_secs(15),
            foreign_pause: Duration::from_secs(600),
            resync: Duration::from_secs(10 * 3600),
            seed: 0,
        }
    }
}
