//! The time of a command that looks once.

use flotilla_model::Timestamp;

/// Now, by this machine's clock.
// A command line tool reads the clock once, here; the manager's clock is the engine's.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Timestamp {
    let since_epoch = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
