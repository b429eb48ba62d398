//! What is remembered between passes, and may be forgotten at any time without harm.
//!
//! Restarting the manager forgets all hints: back-offs start anew, a slot is filled as if for the first time. What must not be
//! lost lives in an object instead.

use crate::decision::{Report, Scope};
use crate::set::IntervalSet;
use crate::time::Timestamp;
use crate::wait::WaitCause;
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// First wait after a failed command.
const RETRY_BASE: Duration = Duration::from_secs(1);
/// Longest wait after a failed command: what fails can heal (quota, a terminating claim, admission), and then somebody waits.
const RETRY_CAP: Duration = Duration::from_secs(60);
/// First wait before a pod is made again whose predecessor ended right after its start (STS-8.5).
const RECREATE_BASE: Duration = Duration::from_secs(1);
/// Longest such wait.
const RECREATE_CAP: Duration = Duration::from_secs(300);
/// How long a pod must have been there for its end not to count as a failed start.
const FAILED_START_WITHIN: Duration = Duration::from_secs(60);
/// How long a pod must be available for its failed starts to be forgotten.
const FORGET_STARTS_AFTER: Duration = Duration::from_secs(600);

/// Memory of one key. The engine keeps it, bounded, and passes it into each pass.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Hints {
    /// Generation of the object to which `failures` belong: an edit clears them, as it may have removed the cause.
    pub generation: i64,
    /// Commands that failed and were not yet repeated with success, by scope.
    pub failures: BTreeMap<Scope, Failure>,
    /// Commands that the engine holds back for a while, since the same were sent again and again, by scope. They stay wanted: nothing
    /// else is decided because of it, it is only said.
    pub repeated: BTreeMap<Scope, Failure>,
    /// Until when a creation may still be carried out, and be seen, of which nobody knows what became of it. It outlasts the failure: that
    /// is over as soon as nobody wants the object any more, and the request is on its way all the same.
    pub arrivals_until: Option<Timestamp>,
    /// Slots whose pod has been available, or was taken away by our own update: filling them again is replacement, not scale-out.
    pub held: IntervalSet,
    /// Failed starts, by ordinal; where names are made up, of all pods together.
    pub starts: BTreeMap<i64, Starts>,
    /// The revision each slot's pod had when last seen, where it may be wanted again.
    pub last_revision: BTreeMap<i64, SmolStr>,
    /// What pods are made of that the API server has accepted, if only on trial; as in [`Scope::Acceptance`].
    pub accepted: BTreeSet<String>,
    /// Ids of pods that were on their way out with claims for their replacements, and that no pod has yet.
    pub awaited: BTreeSet<String>,
    /// Since when waits that have no time of their own have been there, by [`crate::Wait::key`].
    pub waiting: BTreeMap<String, Timestamp>,
    /// Notes already given, so that each is given once.
    pub reported: BTreeSet<String>,
}

impl Hints {
    /// A command failed at `now`.
    pub fn note_failure(&mut self, scope: Scope, failure: Failure, now: Timestamp) {
        if failure.may_be_made_yet() {
            self.arrivals_until = Some(now + Failure::ARRIVES_WITHIN);
        }
        self.failures.insert(scope, failure);
    }

    /// Another manager has led meanwhile, or may have: which slots are held, and how often pods failed to start, is not known any more. What is
    /// kept says no more than what was seen then.
    pub fn others_led(&mut self) {
        self.held = IntervalSet::default();
        self.starts.clear();
    }

    /// The clock by which these times were taken has been set. What waits for a moment waits as long as it would have; when a pod was created
    /// is a time of the API server's clock, and stays.
    pub fn clock_was_set(&mut self, ahead: Duration, back: Duration) {
        let failures = self.failures.values_mut().chain(self.repeated.values_mut());
        let times = failures.flat_map(|failure| [&mut failure.since, &mut failure.retry_at]);
        let starts = self.starts.values_mut().map(|starts| &mut starts.retry_at);
        let of_all = self.arrivals_until.iter_mut().chain(self.waiting.values_mut());
        for time in times.chain(starts).chain(of_all) {
            *time = *time + ahead - back;
        }
    }
}

/// A command that failed: the API server refused it, was too busy, or nobody knows what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was tried.
    pub attempt: Report,
    /// A word for programs: QuotaExceeded, Forbidden, Invalid, ServiceAccountMissing, ...
    pub reason: String,
    /// What the API server said, or why it said nothing.
    pub message: String,
    /// How often in a row.
    pub count: u32,
    /// The first of these failures.
    pub since: Timestamp,
    /// Not to be tried again before.
    pub retry_at: Timestamp,
}

impl Failure {
    /// `reason` of a change of resources that the pod's node could never give.
    pub const NODE_TOO_SMALL: &str = "NodeTooSmall";
    /// `reason` of a command that was not refused and still has to be sent again and again.
    pub const REPEATED: &str = "Repeated";
    /// `message` of it; the same each time.
    pub const REPEATED_MESSAGE: &str = "the same request was sent again and again, and what it asked for did not last";

    /// Whether this is no refusal: the command was repeated, and waits longer each time.
    pub fn is_repetition(&self) -> bool {
        self.reason == Failure::REPEATED
    }

    /// What whoever wants to repeat the command waits for.
    pub fn wait_cause(&self) -> WaitCause {
        if self.is_repetition() {
            return WaitCause::Repeated {
                message: self.message.clone(),
                retry_at: self.retry_at,
            };
        }
        WaitCause::Refused {
            reason: self.reason.clone(),
            message: self.message.clone(),
            retry_at: Some(self.retry_at),
        }
    }

    /// `reason` of what does not hold to the rules of the API server.
    pub const INVALID: &str = "Invalid";

    /// `reason` of what may have been done or not: no answer came, or one that does not say.
    pub const OUTCOME_UNKNOWN: &str = "OutcomeUnknown";

    /// `reason` of what a quota of the namespace has no room for.
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";

    /// `reason` of what would be made in a namespace that is being deleted.
    pub const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

    /// `reason` of a pod whose service account does not exist.
    pub const SERVICE_ACCOUNT_MISSING: &str = "ServiceAccountMissing";

    /// `reason` of a trial that no webhook with side effects can be asked for.
    pub const NO_DRY_RUN: &str = "DryRunUnsupported";

    /// `reason` of what rights, or a policy of the cluster, do not allow.
    pub const FORBIDDEN: &str = "Forbidden";

    /// `reason` of what an admission webhook or policy denies with a code that says nothing of the object.
    pub const DENIED: &str = "AdmissionDenied";

    /// For how long after a creation without an answer it may still be carried out: then API servers give requests up. A watch that lags
    /// behind even then is not waited for.
    pub const ARRIVES_WITHIN: Duration = Duration::from_secs(60);

    /// Whether something was to be made, and nobody knows whether it was: it may still come.
    fn may_be_made_yet(&self) -> bool {
        self.attempt == Report::Create && self.reason == Failure::OUTCOME_UNKNOWN
    }

    /// This failure happened (again) at `now`; `previous` is the one before it, if nothing has succeeded since.
    pub fn follow(
        previous: Option<&Failure>,
        attempt: Report,
        reason: String,
        message: String,
        now: Timestamp,
    ) -> Failure {
        let count = previous.map_or(0, |f| f.count).saturating_add(1);
        let since = previous.map_or(now, |f| f.since);
        Failure {
            attempt,
            reason,
            message,
            count,
            since,
            retry_at: now + doubled(RETRY_BASE, RETRY_CAP, count),
        }
    }
}

/// How the pods of one slot, or of a set without slots, have ended lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starts {
    /// Pods in a row that ended within their first minute.
    pub failed: u32,
    /// When the last pod counted was created: it counts once.
    pub last_created: Timestamp,
    /// Not to be filled again before.
    pub retry_at: Timestamp,
}

impl Starts {
    /// How long a pod must have been there for its end not to count.
    pub const WITHIN: Duration = FAILED_START_WITHIN;

    /// A pod created at `created` was found ended at `now`. `None` if it ran long enough for this not to be a failed start.
    pub fn follow(previous: Option<&Starts>, created: Timestamp, now: Timestamp) -> Option<Starts> {
        if let Some(same) = previous.filter(|s| s.last_created == created) {
            return Some(*same);
        }
        if now.since(created) >= FAILED_START_WITHIN {
            return None;
        }
        let failed = previous.map_or(0, |s| s.failed).saturating_add(1);
        Some(Starts {
            failed,
            last_created: created,
            retry_at: now + doubled(RECREATE_BASE, RECREATE_CAP, failed),
        })
    }

    /// Whether a pod that has been ready for `ready_for` clears the slate.
    pub fn is_forgiven(ready_for: Duration) -> bool {
        ready_for >= FORGET_STARTS_AFTER
    }
}

/// `base` doubled `count - 1` times, at most `cap`.
fn doubled(base: Duration, cap: Duration, count: u32) -> Duration {
    base.saturating_mul(1_u32.checked_shl(count.saturating_sub(1)).unwrap_or(u32::MAX))
        .min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot that was scaled away by another manager, and is wanted again, starts for the first time (STS-3.5).
    #[test]
    fn what_was_held_is_forgotten_when_others_led() {
        let mut hints = Hints {
            held: [0, 1].into_iter().collect(),
            accepted: BTreeSet::from(["web-a".to_owned()]),
            ..Hints::default()
        };
        hints.others_led();
        assert!(!hints.held.contains(0));
        assert_eq!(
            hints.accepted.len(),
            1,
            "what the API server has accepted it has accepted"
        );
    }

    /// What waits for a moment waits as long as it would have, whatever the clock was set to meanwhile.
    #[test]
    fn all_times_but_those_of_objects_go_with_the_clock() {
        let at = Timestamp::from_seconds;
        let failure = Failure::follow(None, Report::Create, "Forbidden".into(), "no".into(), at(5000));
        let starts = Starts::follow(None, at(4990), at(5000)).unwrap();
        let mut hints = Hints {
            failures: BTreeMap::from([(Scope::Object, failure.clone())]),
            repeated: BTreeMap::from([(Scope::Slot(1), failure.clone())]),
            starts: BTreeMap::from([(0, starts)]),
            waiting: BTreeMap::from([("web-0".to_owned(), at(4000))]),
            arrivals_until: Some(at(5120)),
            ..Hints::default()
        };
        hints.clock_was_set(Duration::from_secs(600), Duration::from_secs(4200));
        let earlier = Failure {
            since: at(1400),
            retry_at: failure.retry_at - Duration::from_secs(3600),
            ..failure
        };
        assert_eq!(hints.failures[&Scope::Object], earlier);
        assert_eq!(hints.repeated[&Scope::Slot(1)], earlier);
        assert_eq!(hints.starts[&0].retry_at, starts.retry_at - Duration::from_secs(3600));
        assert_eq!(hints.starts[&0].last_created, at(4990), "of the pod, not of the clock");
        assert_eq!(hints.waiting["web-0"], at(400));
        assert_eq!(hints.arrivals_until, Some(at(1520)));
    }

    /// However often the set is edited meanwhile, and whether or not anybody still wants what was to be made (STS-1.1.8).
    #[test]
    fn what_may_have_been_made_outlasts_the_failure() {
        let at = Timestamp::from_seconds;
        for (attempt, reason, until) in [
            (Report::Create, Failure::OUTCOME_UNKNOWN, Some(at(560))),
            (Report::Create, Failure::QUOTA_EXCEEDED, None),
            (Report::Delete, Failure::OUTCOME_UNKNOWN, None),
        ] {
            let mut hints = Hints::default();
            let failure = Failure::follow(None, attempt, reason.into(), "no answer".into(), at(500));
            hints.note_failure(Scope::Slot(0), failure, at(500));
            assert_eq!(hints.failures.len(), 1);
            hints.failures.clear();
            hints.others_led();
            assert_eq!(hints.arrivals_until, until, "{attempt:?} {reason}");
        }
    }

    #[test]
    fn sts_1_7_failures_back_off_to_a_minute() {
        let at = Timestamp::from_seconds;
        let mut failure = Failure::follow(None, Report::Create, "Forbidden".into(), "no".into(), at(0));
        assert_eq!(failure.retry_at, at(1));
        for _ in 0..40 {
            failure = Failure::follow(Some(&failure), Report::Create, "Forbidden".into(), "no".into(), at(100));
        }
        assert_eq!((failure.retry_at, failure.since, failure.count), (at(160), at(0), 41));
    }

    #[test]
    fn sts_8_5_failed_starts_back_off_to_five_minutes() {
        let at = Timestamp::from_seconds;
        let first = Starts::follow(None, at(0), at(10)).unwrap();
        assert_eq!(first.retry_at, at(11));
        assert_eq!(
            Starts::follow(Some(&first), at(0), at(20)),
            Some(first),
            "the same pod counts once"
        );
        let second = Starts::follow(Some(&first), at(30), at(40)).unwrap();
        assert_eq!((second.failed, second.retry_at), (2, at(42)));
        assert_eq!(Starts::follow(None, at(0), at(60)), None, "ran for a minute");
        let many = Starts { failed: 60, ..first };
        assert_eq!(Starts::follow(Some(&many), at(100), at(100)).unwrap().retry_at, at(400));
    }
}
