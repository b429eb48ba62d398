//! Whether what happens is right, by the rule book: the rules of StatefulSets and their invariants (STS-9).
//!
//! Three kinds of checks. `view` looks at each decision with what its controller saw: nobody can know more. `truth` looks at
//! each write when it takes effect, with what really is; there a manager answers for what it must know, which is everything that
//! managers have done, and for what the preconditions of its writes make certain. `settled` looks at the end.
//!
//! Nothing here uses the code that it judges, save the records in which both see the cluster.

pub(crate) mod asked;
pub(crate) mod bounds;
pub(crate) mod claim_templates;
mod growth;
pub(crate) mod history;
pub(crate) mod let_go;
pub(crate) mod needs;
pub(crate) mod overdue;
mod places;
pub(crate) mod recreate;
mod refused;
pub(crate) mod repetition;
pub(crate) mod settled;
mod settled_claims;
pub(crate) mod switched;
mod truth;
mod truth_others;
mod unordered;
pub(crate) mod view;
pub(crate) mod view_claims;
mod ways;

pub(crate) use places::Places;
pub(crate) use truth::{Judge, Scene, Writing};

use crate::in_place::{
    GATE, awaits_restart, changes_resources_alone, has_note, is_in_service, lacks, runs_what_is_asked, state,
};
use crate::kept_ready;
use crate::switches::ordered_budget;
use flotilla_model::{IntOrPercent, PodRecord, SetRecord, Share, Timestamp};
use std::fmt;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that is broken.
    pub rule: &'static str,
    /// How.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(rule: &'static str, what: impl Into<String>) -> Self {
        Violation {
            rule,
            what: what.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.rule, self.what)
    }
}

/// What a check says.
pub(crate) type Verdict = Result<(), Violation>;

/// A violation of `rule`, unless `holds`.
pub(crate) fn require(holds: bool, rule: &'static str, what: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(Violation::new(rule, what()))
    }
}

/// The ordinal in the name of a pod of a set, if it is one that a controller would write, and read again (STS-1.3.4): an int32.
pub(crate) fn ordinal_in(name: &str, set: &str) -> Option<i64> {
    let digits = name.strip_prefix(set)?.strip_prefix('-')?;
    let ordinal: i32 = digits.parse().ok()?;
    (ordinal.to_string() == digits).then_some(i64::from(ordinal))
}

/// Which place among the wanted ordinals an ordinal has.
pub(crate) fn place_of(ordinal: i64, set: &SetRecord) -> Option<usize> {
    Places::of(set).place_of(ordinal)
}

/// Whether a pod is available to a set at a moment (STS-1.5).
pub(crate) fn is_available(pod: &PodRecord, set: &SetRecord, now: Timestamp) -> bool {
    available_from(pod, set).is_some_and(|from| now >= from)
}

/// From when on a pod is available to a set, if nothing happens to it (STS-1.5 and STS-4.8).
pub(crate) fn available_from(pod: &PodRecord, set: &SetRecord) -> Option<Timestamp> {
    // Its update has begun, and goes on when it has its new resources.
    if awaits_restart(pod) || kept_ready::is_under_way(pod, runs_what_is_asked(pod)) {
        return None;
    }
    // One that gets other resources without a restart stays in service, and is available (STS-8.18). One without the gate never leaves
    // service (CS-16.7): whether it is disturbed is told by its note, and it is available again once its containers are what it asks
    // for, unless a hook follows.
    let has_gate = pod.detail.as_ref().is_some_and(|detail| detail.spec.has_gate(GATE));
    let is_over = || runs_what_is_asked(pod) && !lacks(set.spec.lifecycle.in_place_update.as_ref(), pod);
    let is_undisturbed = || changes_resources_alone(pod) || is_over();
    let is_available = match state(pod) {
        // Without a hook it stays in this state.
        "Normal" => has_gate || !has_note(pod) || changes_resources_alone(pod) || runs_what_is_asked(pod),
        "Updating" => is_in_service(pod) || !has_gate && is_undisturbed(),
        _ => false,
    };
    if !is_available {
        return None;
    }
    let min_ready = set.spec.min_ready;
    match pod.ready.since.filter(|_| pod.is_healthy()) {
        Some(since) if !min_ready.is_zero() => Some(since + min_ready),
        since => (pod.is_healthy() && (since.is_some() || min_ready.is_zero())).then(|| Timestamp::from_millis(0)),
    }
}

/// How many pods an update may have unavailable (STS-2.5 and STS-3.7).
pub(crate) fn budget_of(set: &SetRecord) -> usize {
    if let Some(opted_in) = ordered_budget(set) {
        return opted_in;
    }
    let named = set.spec.rolling.as_ref().and_then(|r| r.max_unavailable);
    // An Advanced set under OrderedReady may not name more than one (STS-3.2).
    let named = named.filter(|_| set.kind != flotilla_model::SetKind::Advanced || !set.spec.is_monotonic());
    named.map_or(1, |max| at_least_one(max, set))
}

/// So many pods, or so many of a hundred of those that a set wants, rounded down; at least 1 (STS-3.5 and STS-3.7).
pub(crate) fn at_least_one(share: IntOrPercent, set: &SetRecord) -> usize {
    let count = match share {
        IntOrPercent::Int(count) => i64::from(count),
        IntOrPercent::Percent(percent) => i64::from(percent) * i64::from(set.spec.replicas) / 100,
    };
    usize::try_from(count.max(1)).unwrap_or(1)
}

/// How many pods the partition names, or keeps.
pub(crate) fn partition_of(set: &SetRecord) -> usize {
    usize::try_from(set.spec.partition()).unwrap_or(0)
}

/// Whether a set asks for no pods, and has a partition for those to come, also one in percent, of which nothing is nothing: then no
/// revision is promoted (STS-3.10 and CS-21.2).
pub(crate) fn is_at_nothing(set: &SetRecord) -> bool {
    let is_named = match &set.spec.clones {
        Some(clones) => !matches!(clones.partition, Share::Int(0) | Share::Percent(0)),
        None => set.spec.partition() > 0,
    };
    set.spec.replicas == 0 && is_named
}

/// Whether the update of a set walks from the top and stops at the first pod that is unavailable (STS-2.5, classic).
pub(crate) fn is_classic(set: &SetRecord) -> bool {
    let named = set.spec.rolling.as_ref().and_then(|r| r.max_unavailable);
    set.kind == flotilla_model::SetKind::Native && named.is_none() && ordered_budget(set).is_none()
}
