//! Defects of pauses and switches.

use super::Defect;
use flotilla_model::decision::Command;
use flotilla_model::set::{SetSpec, UpdateKind};
use flotilla_model::{Decision, IntOrPercent, Resource, SetRecord};
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
