//! Defects of what sets ask for beside replicas, budget and partition.

use super::{Defect, delete, plant};
use crate::asks::is_to_be_made_again;
use crate::clones::SPECIFIED_DELETE;
use flotilla_model::decision::{Scope, ScopedCommand, Stage};
use flotilla_model::set::{IntervalSet, SetSpec};
use flotilla_model::{Command, Decision, PodRecord, Reader, SetRecord};
use std::sync::Arc;

/// What a controller with such a defect sees of the set.
pub(super) fn alter_set(defect: Defect, spec: &mut SetSpec) {
    match defect {
        Defect::ForgetReserved => spec.reserved = IntervalSet::default(),
        Defect::ScaleAtOnce => spec.scale_max_unavailable = None,
        Defect::ForgetStart => spec.start = 0,
        Defect::PartitionWraps => wrap_partition(spec),
        Defect::ScaleDownUnread => spec.problems.clear(),
        Defect::NoPriority | Defect::KeepOneLess => alter_unordered(defect, spec),
        _ => {}
    }
}

fn wrap_partition(spec: &mut SetSpec) {
    let end = spec.start + i64::from(spec.partition());
    if let Some(rolling) = spec.rolling.as_mut().filter(|_| end >= i64::from(i32::MAX)) {
        rolling.partition = 0;
    }
}

/// Makes the pod behind the last that may be made now.
pub(super) fn make_one_more(decision: &mut Decision, set: &SetRecord) {
    let creates = |stage: &&mut Stage| stage.commands.len() >= 1_000 && stage.name == "create";
    let Some(stage) = decision.stages.iter_mut().find(creates) else {
        return;
    };
    let Some(mut last) = stage.commands.last().cloned() else {
        return;
    };
    if let (Scope::Slot(ordinal), Command::Create { key, .. }) = (&mut last.scope, &mut last.command) {
        *ordinal += 1;
        *key = set.meta.key.sibling(format!("{}-{ordinal}", set.name()));
        stage.commands.push(last);
    }
}

fn alter_unordered(defect: Defect, spec: &mut SetSpec) {
    let Some(rolling) = spec.rolling.as_mut().filter(|rolling| rolling.unordered.is_some()) else {
        return;
    };
    match defect {
        Defect::NoPriority => rolling.unordered = Some(None),
        _ => rolling.partition = (rolling.partition - 1).max(0),
    }
}

/// Nobody has asked for a pod to be made again.
pub(super) fn without_wish(pod: &Arc<PodRecord>) -> Arc<PodRecord> {
    let mut altered = (**pod).clone();
    let kept = pod.meta.labels.iter().filter(|(key, _)| *key != SPECIFIED_DELETE);
    altered.meta.labels = kept.collect();
    Arc::new(altered)
}

/// A pod that is not ready does not say that it was.
pub(super) fn as_if_never_up(pod: &Arc<PodRecord>) -> Arc<PodRecord> {
    let mut altered = (**pod).clone();
    altered.has_been_ready &= pod.ready.is_true || pod.is_terminating();
    Arc::new(altered)
}

/// All that are to be made again go, whatever the budget says.
pub(super) fn make_again_at_once(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let goes = |pod: &&Arc<PodRecord>| is_to_be_made_again(pod, set) && !pod.is_terminating();
    let own = reader.pods_of(set.as_owner()).iter().filter(goes);
    let is_new = |pod: &&Arc<PodRecord>| decision.commands().all(|c| c.command.key() != &pod.meta.key);
    let commands: Vec<ScopedCommand> = own
        .filter(is_new)
        .map(|pod| ScopedCommand {
            scope: Scope::Named(pod.name().to_owned()),
            command: delete(pod),
        })
        .collect();
    if !set.is_deleted() {
        plant(decision, commands);
    }
}
