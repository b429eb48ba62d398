//! The course of updates in place, as far as each change by a manager shows it, whatever kind the pod is of.

use crate::clones::copies::is_copy;
use crate::environment::another_environment;
use crate::in_place::{
    Change, GATE, GRACE_NOTE, InPlace, awaits_restart, began, is_in_service, is_let_serve, note_in, runs_what_is_asked,
    state,
};
use crate::judge::{Verdict, require};
use crate::kept_ready::{is_noted_for_a_reason, may_serve};
use crate::spy::Decided;
use flotilla_model::{PodRecord, Timestamp};
use flotilla_sim::server::{Entry, Stored};
use std::time::Duration;

/// A change by a manager follows the course of an update (STS-4.3, STS-4.6 and STS-4.8). `apart`: how far the clocks of managers
/// are.
pub(crate) fn in_course(
    plan: Option<InPlace>,
    entry: &Entry,
    (before, after): (&PodRecord, &PodRecord),
    decided: &Decided,
    apart: Duration,
) -> Verdict {
    let (change, name) = (Change::of(before, after), before.name());
    if change.comes_back {
        require(runs_what_is_asked(before), "STS-4.6 completion", || {
            format!("{name} is put back into service before its containers run what it asks for")
        })?;
        let stored = entry.before.as_ref().map(Stored::value);
        let other = stored.and_then(|value| another_environment(&value, false));
        require(other.is_none(), "STS-4.6 completion", || {
            format!("{name} is put back into service before container {other:?} has its new environment")
        })?;
    }
    is_noted_for_a_reason(before, after, &decided.set)?;
    let Some(plan) = plan else { return Ok(()) };
    let marks = plan.hook.is_some_and(|hook| hook.before_update && hook.leaves_service);
    // A copy has its state from its original, and nobody has prepared it.
    let begins = state(before) == "PreparingUpdate" && state(after) == "Updating" && !is_copy(name);
    require(!(marks && begins && is_let_serve(before)), "STS-4.8 hooks", || {
        format!("{name} was held by its hook, which takes it out of service, and serves")
    })?;
    if !(change.image || change.environment) {
        return Ok(());
    }
    let is_kept_ready = !change.environment && may_serve(before, after, &decided.set);
    let what = if change.image { "images" } else { "environments" };
    require(
        !is_in_service(before) || is_kept_ready,
        "STS-4.3 out of service",
        || format!("the {what} of {name} are changed while it is in service"),
    )?;
    // Who has no gate stays in service, and has nothing to wait for; its environment cannot change (CS-16.7).
    let has_gate = before.detail.as_ref().is_some_and(|d| d.spec.has_gate(GATE));
    require(has_gate || !change.environment, "CS-16.7 environment", || {
        format!("the environments of {name} are changed, which has no gate")
    })?;
    let grace = Duration::from_secs(u64::try_from(plan.grace_s).unwrap_or(0));
    let lasted = grace_began(before).map(|began| decided.now.since(began));
    let waits = has_gate && !is_kept_ready && !grace.is_zero();
    require(
        !waits || lasted.is_some_and(|lasted| lasted + apart >= grace),
        "STS-4.3 grace period",
        || format!("the {what} of {name} are changed {lasted:?} after its grace period of {grace:?} began"),
    )
}

/// When a pod's grace period began, if it has one, or had one before its new resources were asked for.
fn grace_began(pod: &PodRecord) -> Option<Timestamp> {
    let detail = pod.detail.as_ref()?;
    if !awaits_restart(pod) {
        note_in(detail, GRACE_NOTE)?;
    }
    began(pod)
}
