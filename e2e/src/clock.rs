//! The clock of the suites: deadlines, and how long something took.

use std::time::Instant;

/// This moment.
// Tests bound their waiting by the real clock; this is the one place that reads it.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    Instant::now()
}

/// This moment by the calendar, for what others are told.
// As above.
#[allow(clippy::disallowed_methods)]
pub fn wall() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
