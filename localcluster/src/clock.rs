//! The clock of the harness: bounds on waiting, and how long something took.

use std::time::{Duration, Instant};

/// This moment.
// The harness waits for real processes; this is the one place that reads the clock.
#[allow(clippy::disallowed_methods)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Asks `ready` again and again, with a short pause, until it says yes. `false` if it did not within the time. Processes that we did
/// not write have nothing to watch before they serve, so this is asking, not a sleep that hides a race.
pub(crate) fn poll(within: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let begun = now();
    loop {
        if ready() {
            return true;
        }
        if begun.elapsed() >= within {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
}
