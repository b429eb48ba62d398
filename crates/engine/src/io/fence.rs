//! Until when this process may write: asked right before bytes go, by everybody in it who writes.

use super::clock::Clock;
use flotilla_model::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A fence in time. A clone is the same fence.
#[derive(Clone, Debug)]
pub struct Fence {
    clock: Arc<Clock>,
    /// In milliseconds since the epoch.
    until: Arc<AtomicI64>,
}

impl Default for Fence {
    fn default() -> Self {
        Fence {
            clock: Arc::new(Clock::new()),
            until: Arc::new(AtomicI64::new(i64::MIN)),
        }
    }
}

impl Fence {
    /// The clock by which it goes.
    pub fn clock(&self) -> Arc<Clock> {
        self.clock.clone()
    }

    /// Whether a write may be sent now.
    pub fn may_write(&self) -> bool {
        self.clock.now().as_millis() < self.until.load(Ordering::Acquire)
    }

    /// Writes may be sent until then; `None` if they may not.
    pub fn set(&self, until: Option<Timestamp>) {
        self.until
            .store(until.map_or(i64::MIN, Timestamp::as_millis), Ordering::Release);
    }

    /// No write may be sent any more.
    pub fn close(&self) {
        self.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn writes_need_time_before_the_fence() {
        let fence = Fence::default();
        assert!(!fence.may_write());
        let now = fence.clock().now();
        fence.set(Some(now + Duration::from_secs(60)));
        assert!(fence.clone().may_write());
        fence.set(Some(now - Duration::from_secs(1)));
        assert!(!fence.may_write());
        fence.set(Some(Timestamp::MAX));
        fence.clone().close();
        assert!(!fence.may_write());
    }
}
