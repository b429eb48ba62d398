//! States that pods come to when an update in place has ended, or when they were prepared for it, or for their deletion, and are let go again
//! (CS-19.2 and CS-19.3, STS-3.5 and STS-4.8, R-28), in decisions about any kind.

use super::view::Sight;
use super::{Verdict, ordinal_in, place_of, require};
use crate::in_place::{has_note, lacks, new_state, runs_what_is_asked, state};
use flotilla_model::decision::Scope;
use flotilla_model::{Decision, PodRecord, SetKind, SetRecord, WaitCause};
use serde_json::Value;

const RULE: &str = "R-28 released is not back";
const RULE_PAUSED: &str = "R-28 let go while paused";

/// Into service only with all markers of the hooks that follow, by way of `Updated` where they are not there yet, and once its containers run
/// what is asked for.
pub(crate) fn comes_back_with_its_markers(set: &SetRecord, pod: &PodRecord, body: &Value) -> Verdict {
    let (name, from) = (pod.name(), state(pod));
    let Some(to) = new_state(body).filter(|to| *to != from) else {
        return Ok(());
    };
    let hooks = &set.spec.lifecycle;
    let lacks_update = lacks(hooks.in_place_update.as_ref(), pod);
    let lacks_normal = lacks(hooks.pre_normal.as_ref(), pod);
    let was_prepared = matches!(from, "PreparingUpdate" | "PreparingDelete");
    let serves_too_early = match (from, to) {
        ("PreparingNormal", "Normal") => lacks_normal,
        ("PreparingDelete", "Normal") => lacks_update || lacks_normal,
        // In PreparingNormal nobody waits for the markers of the hook for updates.
        ("PreparingUpdate" | "Updating" | "Updated", "Normal")
        | ("PreparingUpdate" | "PreparingDelete", "PreparingNormal") => lacks_update,
        _ => false,
    };
    let rule = match from {
        "PreparingNormal" => "CS-19.2 preNormal",
        _ if was_prepared => RULE,
        _ => "CS-19.3 inPlaceUpdate",
    };
    require(!serves_too_early, rule, || {
        format!("{name} comes from {from} to {to} before its users hold it")
    })?;
    let waits_for_nothing = to == "Updated" && !lacks_update;
    require(!waits_for_nothing, rule, || {
        format!("{name} comes from {from} to {to}, and lacks no marker of its hook")
    })?;
    let is_over = from == "Updating" && matches!(to, "Normal" | "Updated");
    require(!is_over || runs_what_is_asked(pod), "STS-4.6 completion", || {
        format!("{name} comes to {to} before its containers run what it asks for")
    })
}

impl Sight<'_> {
    /// While its update is paused, no pod of a set stays prepared for it, out of service for as long as the pause lasts.
    pub(crate) fn lets_go_while_paused(&self, decision: &Decision) -> Verdict {
        let set = self.set;
        // Before the revision is there a pass looks at no pod, and while one is on trial those that wait for it are left as they are.
        let mut own = self.reader.revisions_of(set.as_owner()).iter();
        let knows_template = own.any(|revision| revision.digest == set.spec.template_digest);
        let is_trial = |cause: &WaitCause| {
            matches!(
                cause,
                WaitCause::RevisionUntried | WaitCause::RevisionUnproven { .. } | WaitCause::RevisionRefused { .. }
            )
        };
        let tries = decision.waits.iter().any(|wait| is_trial(&wait.cause));
        if !set.spec.is_paused() || set.is_deleted() || !knows_template || tries || !set.spec.problems.is_empty() {
            return Ok(());
        }
        for pod in self.reader.pods_of(set.as_owner()) {
            let is_touched = decision.commands().any(|c| *c.command.key() == pod.meta.key);
            let has_to_be = state(pod) == "PreparingUpdate" && self.is_there_to_stay(pod) && !self.was_refused(pod);
            // What goes on with an update from before, if it has noted one.
            require(is_touched || !has_to_be || has_note(pod), RULE_PAUSED, || {
                format!("{} is prepared for an update that is paused, and stays so", pod.name())
            })?;
        }
        Ok(())
    }

    /// Whether it is a pod of the set that is wanted, and neither has ended nor goes.
    pub(crate) fn is_there_to_stay(&self, pod: &PodRecord) -> bool {
        let is_wanted = self.set.kind == SetKind::Clone
            || ordinal_in(pod.name(), self.set.name()).is_some_and(|ordinal| place_of(ordinal, self.set).is_some());
        let fits = self.set.spec.selector.matches(|label| pod.label(label));
        is_wanted && fits && !pod.is_terminal() && !pod.is_terminating()
    }

    /// Whether something was refused of a pod, or is held back, so that its next attempt is later.
    pub(crate) fn was_refused(&self, pod: &PodRecord) -> bool {
        let scope = match self.set.kind {
            SetKind::Clone => Some(Scope::Named(pod.name().to_owned())),
            SetKind::Native | SetKind::Advanced => ordinal_in(pod.name(), self.set.name()).map(Scope::Slot),
        };
        let hints = self.hints;
        scope.is_some_and(|scope| hints.failures.contains_key(&scope) || hints.repeated.contains_key(&scope))
    }
}
