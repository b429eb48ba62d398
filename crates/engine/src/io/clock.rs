//! The one place that reads a clock.

use crate::core::ClockSteps;
use flotilla_model::Timestamp;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The wall clock and the monotonic one may differ by this much more, or less, than before: they are read one after the other.
const STEP_MIN_MS: i64 = 1000;

/// Two clocks that are read within this time are read at once.
const READING_MAX_MS: i64 = 100;
/// How often they are read again where they were not.
const READINGS_MAX: u32 = 5;

/// A clock that never goes back, and that shows the time a process or its machine was stopped.
///
/// It counts from the wall clock at the start with the monotonic one, so setting the wall clock back does not prolong a lease.
/// The monotonic clock runs on while the process is stopped, but not while its machine sleeps; the wall clock is then ahead of where
/// it was, and is followed. How the wall clock was set is told beside the time, see [`ClockSteps`].
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    reckoning: Mutex<Reckoning>,
}

impl Clock {
    /// Starts counting.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    pub fn new() -> Self {
        Clock {
            started: Instant::now(),
            reckoning: Mutex::new(Reckoning::begin(wall_millis())),
        }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        self.read().0
    }

    /// What the wall clock shows, as others do: also after it was set back.
    pub fn wall(&self) -> Timestamp {
        let (now, steps) = self.read();
        now - steps.back
    }

    /// Now, and how the wall clock has been set since this one began.
    pub fn read(&self) -> (Timestamp, ClockSteps) {
        // What it holds is right after each statement that changes it.
        let mut reckoning = self.reckoning.lock().unwrap_or_else(PoisonError::into_inner);
        let steady = || i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        let (mut before, mut wall, mut after) = (steady(), wall_millis(), steady());
        for _ in 0..READINGS_MAX {
            if after.saturating_sub(before) < READING_MAX_MS {
                break;
            }
            // The process was stopped between the two: they are not of one moment.
            (before, wall, after) = (steady(), wall_millis(), steady());
        }
        reckoning.read(after, wall)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}

/// What is reckoned from a steady clock and one that may be set, both in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Reckoning {
    /// What the wall clock showed at the beginning, when the steady one showed nothing.
    began: i64,
    /// By how much the wall clock was ahead of the steady one when it was last seen to be set.
    wall_ahead: i64,
    steps: ClockSteps,
}

impl Reckoning {
    fn begin(wall: i64) -> Self {
        Reckoning {
            began: wall,
            wall_ahead: wall,
            steps: ClockSteps::default(),
        }
    }

    fn read(&mut self, steady: i64, wall: i64) -> (Timestamp, ClockSteps) {
        let step = wall.saturating_sub(steady).saturating_sub(self.wall_ahead);
        if step.abs() > STEP_MIN_MS {
            self.wall_ahead = self.wall_ahead.saturating_add(step);
            let by = Duration::from_millis(step.unsigned_abs());
            let known = if step > 0 {
                &mut self.steps.ahead
            } else {
                &mut self.steps.back
            };
            *known = known.saturating_add(by);
        }
        let counted = Timestamp::from_millis(self.began.saturating_add(steady));
        (counted + self.steps.ahead, self.steps)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
fn wall_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steady clock, the wall clock, what is shown, and how far the wall clock has been set ahead and back by then.
    #[test]
    fn it_never_goes_back_and_follows_a_machine_that_slept() {
        let mut reckoning = Reckoning::begin(1_000_000);
        let rows = [
            (0, 1_000_000, 1_000_000, (0, 0), "at the start"),
            (5_000, 1_005_000, 1_005_000, (0, 0), "both run"),
            (6_000, 1_006_900, 1_006_000, (0, 0), "less than a second is no step"),
            (
                7_000,
                1_607_000,
                1_607_000,
                (600_000, 0),
                "set ahead, or the machine slept",
            ),
            (8_000, 1_008_000, 1_608_000, (600_000, 600_000), "set back to the truth"),
            (9_000, 1_009_000, 1_609_000, (600_000, 600_000), "runs on"),
            (
                10_000,
                1_040_000,
                1_640_000,
                (630_000, 600_000),
                "slept 30 s while behind",
            ),
            (11_000, 1_039_500, 1_641_000, (630_000, 601_500), "set back a little"),
        ];
        for (steady, wall, shown, (ahead, back), what) in rows {
            let steps = ClockSteps {
                ahead: Duration::from_millis(ahead),
                back: Duration::from_millis(back),
            };
            assert_eq!(
                reckoning.read(steady, wall),
                (Timestamp::from_millis(shown), steps),
                "{what}"
            );
            let wall_again = (Timestamp::from_millis(shown) - steps.back).as_millis();
            assert!((wall_again - wall).abs() <= STEP_MIN_MS, "{what}");
        }
    }

    /// Many steps too small to be seen add up to one that is.
    #[test]
    fn a_wall_clock_that_is_set_by_less_than_a_second_again_and_again_is_followed() {
        let mut reckoning = Reckoning::begin(0);
        for step in 1..=10 {
            reckoning.read(0, -400 * step);
        }
        let back = reckoning.steps.back;
        assert_eq!(back, Duration::from_millis(3600), "the rest is less than a second");
    }
}
