//! Sets whose old pods all go before the first new one comes (STS-2.6): the judge's own reading of the annotation beside the declared type,
//! as the controllers' might be wrong, and what the partition and a pause leave of it.

use super::places::Places;
use super::truth::Judge;
use super::view::Sight;
use super::{Verdict, ordinal_in, partition_of, require};
use crate::switches::Switch;
use flotilla_model::{Command, Decision, PodRecord, Resource, SetRecord, WaitCause};
use serde_json::Value;
use std::sync::Arc;

const RULE: &str = "STS-2.6 Recreate";

/// Whether a set, as the API server has it, leaves it to others when its pods are updated.
pub(crate) fn is_on_delete(set: &Value) -> bool {
    set.pointer("/spec/updateStrategy/type").and_then(Value::as_str) == Some("OnDelete")
}

impl Judge {
    /// Whether all old pods of a set go before the first new one comes.
    pub(super) fn recreates(&self, set: &SetRecord) -> bool {
        !self.is_on_delete && Switch::Recreate.is_on(set)
    }
}

impl Sight<'_> {
    /// Whether all old pods go before the first new one comes.
    pub(super) fn recreates(&self) -> bool {
        !self.is_on_delete && Switch::Recreate.is_on(self.set)
    }

    /// Whether the partition keeps the pod of this name.
    fn is_kept(&self, pod: &str) -> bool {
        let place = ordinal_in(pod, self.set.name()).and_then(|ordinal| super::place_of(ordinal, self.set));
        place.is_some_and(|place| place < partition_of(self.set))
    }

    /// Old and new pods never overlap, but for those that the partition keeps.
    pub(super) fn recreates_all_at_once(&self, decision: &Decision, deleted: &[&Arc<PodRecord>]) -> Verdict {
        self.keeps_nobody_waiting(decision)?;
        let set = self.set;
        if !self.recreates() || set.spec.is_paused() {
            return Ok(());
        }
        let all = self.reader.pods_of(set.as_owner()).iter();
        let own = all.filter(|pod| set.spec.selector.matches(|label| pod.label(label)));
        let has_to_go = |pod: &PodRecord| self.is_of_old_revision(pod) && !self.is_kept(pod.name());
        let old: Vec<&Arc<PodRecord>> = own
            .filter(|pod| ordinal_in(pod.name(), set.name()).is_some() && has_to_go(pod))
            .collect();
        let made = decision.commands().find(|c| {
            let makes = matches!(c.command, Command::Create { .. });
            makes && c.command.resource() == Resource::Pods && !self.is_kept(&c.command.key().name)
        });
        require(made.is_none() || old.is_empty(), RULE, || {
            format!(
                "{} is made while {} is still there",
                made.map_or("", |c| &c.command.key().name),
                old[0].name()
            )
        })?;
        let goes = |pod: &Arc<PodRecord>| deleted.iter().any(|other| other.meta.uid == pod.meta.uid);
        let goes_for_it = |pod: &&&Arc<PodRecord>| goes(pod) && self.is_for_update(pod);
        if old.iter().filter(goes_for_it).count() == 0 {
            return Ok(());
        }
        self.can_make_them_again()?;
        let stays = old.iter().find(|pod| {
            let waits = ordinal_in(pod.name(), set.name()).is_some_and(|ordinal| self.has_failed(ordinal));
            !goes(pod) && !pod.is_terminating() && !waits && self.place_of_pod(pod).is_some()
        });
        require(stays.is_none(), RULE, || {
            format!("old pods go, and {} stays", stays.map_or("", |pod| pod.name()))
        })
    }

    /// Old pods go: under OrderedReady all that the partition keeps are up, since no new one is made before.
    fn can_make_them_again(&self) -> Verdict {
        let kept = Places::of(self.set).iter().take(partition_of(self.set));
        let first_down = kept.into_iter().find(|ordinal| !self.is_up(*ordinal));
        let holds = first_down.filter(|_| self.set.spec.is_monotonic());
        require(holds.is_none(), RULE, || {
            format!("old pods go while ordinal {holds:?}, which the partition keeps, is down and lets none come")
        })
    }

    /// Where no old pod is to go, as the set is paused, or its partition keeps this one, or the type is another, no pod waits for that.
    fn keeps_nobody_waiting(&self, decision: &Decision) -> Verdict {
        let is_idle = !self.recreates() || self.set.spec.is_paused();
        let waits = |cause: &WaitCause| matches!(cause, WaitCause::OldPodsRemain { .. });
        let waiting = decision
            .waits
            .iter()
            .find(|wait| waits(&wait.cause) && (is_idle || self.is_kept(&wait.subject)));
        require(waiting.is_none(), RULE, || {
            let subject = waiting.map_or("", |wait| &wait.subject);
            format!("{subject} waits for old pods to go, of which none is to go for it")
        })
    }
}
