//! The one place that reads a clock.

use flotilla_model::Timestamp;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The wall clock may be this far ahead of the monotonic one before it is followed.
const FOLLOW_AFTER: Duration = Duration::from_secs(1);

/// A clock that never goes back, and that shows the time a process or its machine was stopped.
///
/// It counts from the wall clock at the start with the monotonic one, so setting the wall clock back does not prolong a lease.
/// The monotonic clock runs on while the process is stopped, but not while its machine sleeps; the wall clock then is far ahead,
/// and is followed.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    /// Milliseconds since the epoch when `started` was read; grows when the wall clock is followed.
    anchor: AtomicI64,
}

impl Clock {
    /// Starts counting.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    pub fn new() -> Self {
        Clock {
            started: Instant::now(),
            anchor: AtomicI64::new(wall_millis()),
        }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        let (counted, wall) = (
            self.anchor.load(Ordering::Relaxed).saturating_add(elapsed),
            wall_millis(),
        );
        let ahead = wall.saturating_sub(counted);
        if ahead <= FOLLOW_AFTER.as_millis() as i64 {
            return Timestamp::from_millis(counted);
        }
        self.anchor.fetch_max(wall.saturating_sub(elapsed), Ordering::Relaxed);
        Timestamp::from_millis(wall)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
fn wall_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
