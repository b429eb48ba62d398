//! How often a missing runtime is told of: once per cause and hour (AGT-12).

use flotilla_model::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// The same cause is told once in this time.
const EVERY: Duration = Duration::from_secs(3600);

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    told: BTreeMap<&'static str, Timestamp>,
    lasts: bool,
}

impl Trouble {
    /// A cause has come up, or lasts. Whether it is to be told.
    pub(super) fn tell(&mut self, cause: &'static str, now: Timestamp) -> bool {
        let is_due = self.told.get(cause).is_none_or(|at| now.since(*at) >= EVERY);
        if is_due {
            self.told.insert(cause, now);
            self.lasts = true;
        }
        is_due
    }

    /// There is no trouble. Whether that is to be told, because some was told of before.
    pub(super) fn is_over(&mut self) -> bool {
        std::mem::replace(&mut self.lasts, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agt_12_a_cause_is_told_once_an_hour_and_its_end_once() {
        let at = |minutes: i64| Timestamp::from_seconds(1000 + 60 * minutes);
        let mut trouble = Trouble::default();
        assert!(!trouble.is_over(), "there was none");
        assert!(trouble.tell("NoSocket", at(0)) && !trouble.tell("NoSocket", at(59)));
        assert!(trouble.tell("Unreachable", at(59)), "another cause");
        assert!(trouble.is_over() && !trouble.is_over());
        assert!(!trouble.tell("NoSocket", at(59)) && !trouble.is_over());
        assert!(trouble.tell("NoSocket", at(60)));
    }
}
