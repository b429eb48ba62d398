//! Defects of pauses and switches.

use super::{Defect, delete, plant};
use crate::judge::{ordinal_in, partition_of, place_of};
use flotilla_model::decision::{Command, Scope, ScopedCommand};
use flotilla_model::set::{SetSpec, UpdateKind};
use flotilla_model::{Decision, IntOrPercent, PodRecord, Reader, Resource, SetRecord, WaitCause};
use std::sync::Arc;
use std::time::Duration;

/// What a controller with such a defect sees of the set.
pub(super) fn alter_set(defect: Defect, spec: &mut SetSpec) {
    let switches = &mut spec.switches;
    match defect {
        Defect::ForgetPause => {
            if let Some(rolling) = &mut spec.rolling {
                rolling.paused = false;
            }
        }
        Defect::ForgetKeptRevision => switches.paused_keeps_revision = false,
        Defect::UnblockAnyway => switches.unblock_after = Some(Duration::ZERO),
        Defect::NeverUnblock => switches.unblock_after = None,
        Defect::BatchAnyway => switches.ordered_max_unavailable = Some(IntOrPercent::Int(3)),
        Defect::IgnoreUnhealthy => switches.scale_down_ignores_unhealthy = true,
        Defect::HeedUnhealthy => switches.scale_down_ignores_unhealthy = false,
        Defect::RollRecreate if spec.update == UpdateKind::Recreate => spec.update = UpdateKind::RollingUpdate,
        Defect::SilentNonsense => spec.problems.retain(|p| !p.path.starts_with("metadata.annotations")),
        Defect::RecreateEarly if switches.in_place_deadline.is_some() => {
            switches.in_place_deadline = Some(Duration::ZERO);
        }
        Defect::NeverRecreate => switches.deadline_recreates = false,
        Defect::NeverPropagate => switches.propagate_claim_labels = false,
        Defect::PropagateAnyway => switches.propagate_claim_labels = true,
        Defect::SilentDeferral => switches.resize_wait = Duration::MAX,
        Defect::HastyDeferral => switches.resize_wait = Duration::ZERO,
        Defect::SilentDeadline => switches.in_place_deadline = None,
        _ => {}
    }
}

/// While it is paused, a set makes no pods either.
pub(super) fn pause_all(decision: &mut Decision, set: &SetRecord) {
    let makes = |command: &Command| command.resource() == Resource::Pods && matches!(command, Command::Create { .. });
    for stage in &mut decision.stages {
        stage.commands.retain(|c| !(set.spec.is_paused() && makes(&c.command)));
    }
}

/// Old pods of the window that wait for one that the partition keeps go all the same.
pub(super) fn take_unmakeable(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let own = || reader.pods_of(set.as_owner()).iter();
    let waits = |pod: &&Arc<PodRecord>| {
        let waits_for_another = |cause: &WaitCause| matches!(cause, WaitCause::Order { .. });
        let mut waits = decision.waits.iter();
        waits.any(|wait| wait.subject == pod.name() && waits_for_another(&wait.cause))
    };
    let Some(held) = own().find(waits) else { return };
    let place = |pod: &PodRecord| ordinal_in(pod.name(), set.name()).and_then(|ordinal| place_of(ordinal, set));
    let is_like_it = |pod: &&Arc<PodRecord>| !pod.is_terminating() && pod.revision() == held.revision();
    let window = own().filter(|pod| place(pod).is_some_and(|place| place >= partition_of(set)));
    let commands = window.filter(is_like_it).map(|pod| ScopedCommand {
        scope: Scope::Named(pod.name().to_owned()),
        command: delete(pod),
    });
    plant(decision, commands);
}
