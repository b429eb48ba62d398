//! Which manager leads, as far as the lease tells: a name on it says who had it last, and the time of its renewal whether that one still runs.

use crate::causes::Cause;
use crate::report::ago;
use flotilla_model::Timestamp;
use serde_json::Value;
use std::time::Duration;

/// By how much clocks of the manager and of this machine may differ before a lease that was not renewed counts as let be.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);

/// What the lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leader {
    /// Who holds it, or had it last.
    pub holder: Option<String>,
    /// When it was last renewed, if that is longer ago than it holds.
    pub silent_since: Option<Timestamp>,
}

impl Leader {
    /// What this lease says now. One that does not say when it was renewed, or for how long it holds, counts as held.
    pub fn of(lease: &Value, now: Timestamp) -> Leader {
        let spec = &lease["spec"];
        let holder = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
        let renewed = spec["renewTime"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        let seconds = spec["leaseDurationSeconds"].as_u64();
        let holds_for = seconds.map(|seconds| Duration::from_secs(seconds).saturating_add(CLOCKS_DIFFER));
        let is_over = |renewed: &Timestamp| holds_for.is_some_and(|long| now.since(*renewed) > long);
        Leader {
            silent_since: renewed.filter(|at| holder.is_some() && is_over(at)),
            holder: holder.map(str::to_owned),
        }
    }

    /// That nobody is known to do what is to be done, if so. It is no cause: a manager may run under another lease, or with none.
    pub(super) fn nobody(&self) -> Option<&'static str> {
        self.holder.is_none().then_some(
            "no manager holds the lease: see which managers run, and with which --lease-namespace and --lease-name; if none does, start one: \
             flotilla manager",
        )
    }

    /// That whoever leads does not show that it still runs, if so.
    pub(super) fn silence(&self, now: Timestamp) -> Option<Cause> {
        let (holder, since) = (self.holder.as_deref()?, self.silent_since?);
        let message = format!("has not renewed the lease for {}, since {since}", ago(now, since));
        Some(Cause {
            subject: format!("manager {holder}"),
            message,
            rule: "one manager leads",
            advice: Some(
                "start one, unless another program manages this cluster's sets now, or the clocks of this machine and of that manager differ by \
                 more than a minute: flotilla manager"
                    .to_owned(),
            ),
            since: Some(since),
            holds_up: Vec::new(),
            rank: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lease(seconds_ago: i64) -> Value {
        let renewed = format!(
            "{}.250000Z",
            Timestamp::from_seconds(10_000 - seconds_ago)
                .to_string()
                .trim_end_matches('Z')
        );
        json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": renewed}})
    }

    #[test]
    fn a_manager_that_does_not_renew_the_lease_is_not_taken_for_one_that_runs() {
        let now = Timestamp::from_seconds(10_000);
        for (what, lease, holder, is_silent) in [
            ("renewed", lease(3), Some("a"), false),
            ("by a clock that is ahead", lease(-300), Some("a"), false),
            ("a little late, as clocks may differ", lease(70), Some("a"), false),
            ("late", lease(80), Some("a"), true),
            (
                "given up",
                json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": "1970-01-01T00:00:00Z"}}),
                None,
                false,
            ),
            (
                "without times",
                json!({"spec": {"holderIdentity": "a"}}),
                Some("a"),
                false,
            ),
            ("empty", json!({}), None, false),
        ] {
            let leader = Leader::of(&lease, now);
            assert_eq!(
                (leader.holder.as_deref(), leader.silent_since.is_some()),
                (holder, is_silent),
                "{what}"
            );
        }
    }
}
