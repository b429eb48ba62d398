//! The clock of a simulation that people watch: real time, at some speed.

use flotilla_model::Timestamp;
use std::time::{Duration, Instant, SystemTime};

/// Simulated time: it begins at the real time, or where it was saved, and runs at its own speed.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    begun: Instant,
    at: Timestamp,
    speed: f64,
}

impl Clock {
    /// A clock that shows the real time, and runs so many times as fast.
    pub fn new(speed: f64) -> Self {
        Clock::from(real(), speed)
    }

    /// A clock that shows this moment now.
    // The simulation is what people watch: its time is theirs, and this is the one place that reads it.
    #[allow(clippy::disallowed_methods)]
    pub fn from(at: Timestamp, speed: f64) -> Self {
        Clock {
            begun: Instant::now(),
            at,
            speed,
        }
    }

    /// The moment.
    pub fn now(&self) -> Timestamp {
        let elapsed = self.begun.elapsed().mul_f64(self.speed);
        self.at + elapsed
    }

    /// How long it takes in real time until this simulated moment.
    pub fn until(&self, moment: Timestamp) -> Duration {
        moment.since(self.now()).div_f64(self.speed)
    }
}

#[allow(clippy::disallowed_methods)]
fn real() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(0))
}
