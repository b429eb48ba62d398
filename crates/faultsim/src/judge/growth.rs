//! How many pods of an Advanced set may be on their way up for the first time (STS-3.5).

use super::{Places, Verdict, at_least_one, ordinal_in, require};
use flotilla_model::{PodRecord, SetRecord, Uid};
use std::collections::{BTreeMap, BTreeSet};

/// Which slots have been up, and which pods managers have made in slots that had not.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Slots that have had an available pod since they were scaled up, or one that the update took: the replacement is its business.
    been_up: BTreeSet<i64>,
    /// Pods that managers have made in others.
    first: BTreeMap<Uid, i64>,
}

impl Growth {
    /// The pod of a slot can be seen as available, or is taken away by the update.
    pub(super) fn is_up(&mut self, ordinal: i64) {
        self.been_up.insert(ordinal);
        // Its pod is no start any more, also when it leaves and the slot is scaled up anew meanwhile.
        self.first.retain(|_, slot| *slot != ordinal);
    }

    /// A manager takes the pod of a slot away because it is not wanted.
    pub(super) fn scaled_down(&mut self, ordinal: i64) {
        self.been_up.remove(&ordinal);
    }

    /// A manager makes a pod: where none has been up yet, only as many as the set allows are on their way. `there` are those that are
    /// there, without those that can seem to be up.
    pub(super) fn created(&mut self, pod: &PodRecord, set: &SetRecord, there: &BTreeSet<Uid>) -> Verdict {
        let Some(ordinal) = ordinal_in(pod.name(), set.name()).filter(|ordinal| !self.been_up.contains(ordinal)) else {
            return Ok(());
        };
        let wanted = Places::of(set);
        let counts = |ordinal: &i64| wanted.contains(*ordinal) && !self.been_up.contains(ordinal);
        self.first.retain(|uid, _| there.contains(uid));
        let on_their_way: Vec<i64> = self.first.values().copied().filter(counts).collect();
        self.first.insert(pod.meta.uid.clone(), ordinal);
        let Some(limit) = limit(set) else { return Ok(()) };
        require(on_their_way.len() < limit, "STS-3.5 scale budget", || {
            format!(
                "{} is made while {on_their_way:?} are on their way up for the first time, and {limit} may be",
                pod.name()
            )
        })
    }
}

/// How many may be, if that is limited: a percentage is of the replicas, rounded down, and at least 1. Under OrderedReady the order sees to it.
fn limit(set: &SetRecord) -> Option<usize> {
    let spec = &set.spec;
    let share = spec.scale_max_unavailable.filter(|_| !spec.is_monotonic())?;
    Some(at_least_one(share, set))
}
