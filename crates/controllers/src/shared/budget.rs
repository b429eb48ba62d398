//! How many pods may be unavailable, and who already is.
//!
//! A [`Budget`] is asked for a permit before anything that makes an available pod unavailable. The sum of disruptions therefore
//! never exceeds it, whatever order commands complete in. Pods that are unavailable already cost nothing: replacing them cannot
//! make matters worse.

use flotilla_model::IntOrPercent;

/// A bound on unavailable pods and its present use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    limit: i32,
    used_by: Vec<String>,
    used: i32,
}

/// Longest list of users that a budget remembers by name.
const NAMES_KEPT: usize = 16;

impl Budget {
    /// `limit` of `total`: a percentage rounds down, and less than 1 counts as 1, or nothing would ever move (STS-3.7).
    pub fn new(limit: IntOrPercent, total: i32) -> Self {
        Budget {
            limit: limit.floor_of(total).max(1),
            used_by: Vec::new(),
            used: 0,
        }
    }

    /// How many pods may be unavailable.
    pub fn limit(&self) -> i32 {
        self.limit
    }

    /// How many more may become unavailable.
    pub fn left(&self) -> i32 {
        self.limit.saturating_sub(self.used).max(0)
    }

    /// Notes a pod that is unavailable anyway. The budget may thereby be overdrawn.
    pub fn charge(&mut self, pod: impl FnOnce() -> String) {
        self.used = self.used.saturating_add(1);
        if self.used_by.len() < NAMES_KEPT {
            self.used_by.push(pod());
        }
    }

    /// Notes so many more that are unavailable, and that nobody needs to be told of by name.
    pub fn charge_others(&mut self, pods: usize) {
        self.used = self.used.saturating_add(i32::try_from(pods).unwrap_or(i32::MAX));
    }

    /// A permit to make one more pod unavailable; `false` if the budget is used up.
    #[must_use]
    pub fn take(&mut self, pod: impl FnOnce() -> String) -> bool {
        let granted = self.left() > 0;
        if granted {
            self.charge(pod);
        }
        granted
    }

    /// Pods that use it, the first few by name.
    pub fn used_by(&self) -> Vec<String> {
        self.used_by.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sts_3_7_rounds_down_and_is_at_least_one() {
        for (limit, total, expected) in [
            (IntOrPercent::Percent(25), 10, 2),
            (IntOrPercent::Percent(5), 10, 1),
            (IntOrPercent::Int(3), 10, 3),
            (IntOrPercent::Int(0), 10, 1),
            (IntOrPercent::Percent(100), 0, 1),
        ] {
            assert_eq!(Budget::new(limit, total).limit(), expected, "{limit} of {total}");
        }
    }

    #[test]
    fn permits_stop_at_the_limit_and_charges_do_not() {
        let mut budget = Budget::new(IntOrPercent::Int(2), 10);
        budget.charge(|| "a".into());
        assert!(budget.take(|| "b".into()));
        assert!(!budget.take(|| "c".into()));
        budget.charge(|| "d".into());
        assert_eq!(
            (budget.left(), budget.used_by()),
            (0, vec!["a".into(), "b".into(), "d".into()])
        );
    }
}
