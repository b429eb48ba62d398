//! Which manager leads, as far as the lease tells: a name on it says who had it last, and the time of its renewal whether that one still runs.

use crate::causes::Cause;
use crate::report::ago;
use flotilla_api::names;
use flotilla_model::{SetKind, Timestamp};
use serde_json::Value;
use std::collections::BTreeSet;
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
    /// The kinds of sets that it looks after, such as `statefulsets.apps.kruise.io`; none if it does not say.
    pub looks_after: BTreeSet<String>,
    /// That nothing of all this is known, in a sentence, if so.
    pub unread: Option<String>,
}

impl Leader {
    /// What this lease says now. One that does not say when it was renewed, or for how long it holds, counts as held.
    pub fn of(lease: &Value, now: Timestamp) -> Leader {
        let spec = &lease["spec"];
        let holder = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
        let renewed = spec["renewTime"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        let seconds = spec["leaseDurationSeconds"].as_u64();
        let holds_for = seconds.map(|seconds| Duration::from_secs(seconds).saturating_add(CLOCKS_DIFFER));
        let said = lease["metadata"]["annotations"][names::LOOKS_AFTER].as_str();
        let said = said.and_then(|said| said.split_once(';'));
        let said = said.filter(|(transitions, _)| {
            transitions.parse().ok() == Some(spec["leaseTransitions"].as_i64().unwrap_or(0))
        });
        let kinds = said.into_iter().flat_map(|(_, kinds)| kinds.split(','));
        let is_over = |renewed: &Timestamp| holds_for.is_some_and(|long| now.since(*renewed) > long);
        Leader {
            silent_since: renewed.filter(|at| holder.is_some() && is_over(at)),
            holder: holder.map(str::to_owned),
            looks_after: kinds.filter(|kind| !kind.is_empty()).map(str::to_owned).collect(),
            unread: None,
        }
    }

    /// Nothing is known, for this reason.
    pub fn unread(why: &str) -> Leader {
        let note = format!("whether a manager leads is not told: the lease could not be read: {why}");
        Leader {
            unread: Some(note),
            ..Leader::default()
        }
    }

    /// What makes it doubtful that a manager does what is told of sets of a kind, in a sentence, if anything does.
    pub fn doubt(&self, kind: SetKind, now: Timestamp) -> Option<String> {
        if let Some(cause) = self.silence(now, kind) {
            return Some(format!(
                "{} {}: nothing of this happens before one runs",
                cause.subject, cause.message
            ));
        }
        let left = self.leaves(kind).or_else(|| self.nobody(kind).map(str::to_owned));
        left.or_else(|| self.unread.clone())
    }

    /// That the manager that leads does not look after sets of a kind, if it says so, and what that means for what is told of them.
    pub(super) fn leaves(&self, kind: SetKind) -> Option<String> {
        let is_left = self.holder.is_some()
            && !self.looks_after.is_empty()
            && !self.looks_after.contains(&kind.resource().to_string());
        let what = match kind {
            SetKind::Native => {
                "which kube-controller-manager does then: what is told here is what Flotilla would do (flotilla manager --native-statefulset)"
            }
            SetKind::Advanced | SetKind::Clone => "and nobody does what is told here",
        };
        is_left.then(|| format!("the manager that leads does not look after {}, {what}", kind.resource()))
    }

    /// That nobody is known to do what is to be done, if so. It is no cause: a manager may run under another lease, or with none.
    pub(super) fn nobody(&self, kind: SetKind) -> Option<&'static str> {
        let words = match kind {
            SetKind::Native => {
                "no manager of Flotilla holds the lease, and kube-controller-manager may be what looks after native StatefulSets here: see which \
                 managers run, and with which --lease-namespace and --lease-name; if none does, start one: flotilla manager --native-statefulset"
            }
            SetKind::Advanced | SetKind::Clone => {
                "no manager holds the lease: see which managers run, and with which --lease-namespace and --lease-name; if none does, start one: \
                 flotilla manager"
            }
        };
        (self.holder.is_none() && self.unread.is_none()).then_some(words)
    }

    /// That whoever leads does not show that it still runs, if so. A manager that leaves such sets to others is not missed.
    pub(super) fn silence(&self, now: Timestamp, kind: SetKind) -> Option<Cause> {
        if self.leaves(kind).is_some() {
            return None;
        }
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
            (
                "of nobody",
                json!({"spec": {"holderIdentity": "", "renewTime": "1970-01-01T00:00:00Z"}}),
                None,
                false,
            ),
        ] {
            let leader = Leader::of(&lease, now);
            assert_eq!(
                (leader.holder.as_deref(), leader.silent_since.is_some()),
                (holder, is_silent),
                "{what}"
            );
        }
    }

    #[test]
    fn native_sets_that_the_manager_leaves_to_others_are_said_to_be_left() {
        let now = Timestamp::from_seconds(10_000);
        let with = |mut lease: Value, kinds: &str| {
            lease["metadata"]["annotations"][names::LOOKS_AFTER] = json!(kinds);
            Leader::of(&lease, now)
        };
        let advanced = "0;clonesets.apps.kruise.io,statefulsets.apps.kruise.io";
        let both = "0;clonesets.apps.kruise.io,statefulsets.apps,statefulsets.apps.kruise.io";
        let former = "4;clonesets.apps.kruise.io";
        let left =
            "the manager that leads does not look after statefulsets.apps, which kube-controller-manager does then";
        let silent = "manager a has not renewed the lease for ";
        let nobody = "no manager of Flotilla holds the lease, and kube-controller-manager may be";
        for (leader, kind, begins) in [
            (with(lease(3), advanced), SetKind::Native, Some(left)),
            (with(lease(3), advanced), SetKind::Advanced, None),
            (with(lease(3), advanced), SetKind::Clone, None),
            (with(lease(3), both), SetKind::Native, None),
            (with(lease(3), ""), SetKind::Native, None),
            (with(lease(3), former), SetKind::Native, None),
            (with(lease(80), advanced), SetKind::Native, Some(left)),
            (with(lease(80), both), SetKind::Native, Some(silent)),
            (with(lease(80), advanced), SetKind::Advanced, Some(silent)),
            (with(json!({}), ""), SetKind::Native, Some(nobody)),
            (
                Leader::unread("no permission"),
                SetKind::Clone,
                Some("whether a manager leads is not told: the lease could not be read: no permission"),
            ),
            (
                with(json!({}), both),
                SetKind::Advanced,
                Some("no manager holds the lease: "),
            ),
        ] {
            let told = leader.doubt(kind, now);
            assert_eq!(told.is_some(), begins.is_some(), "{leader:?} {kind:?}: {told:?}");
            assert!(
                told.is_none_or(|told| told.starts_with(begins.unwrap_or_default())),
                "{leader:?} {kind:?}"
            );
        }
    }
}
