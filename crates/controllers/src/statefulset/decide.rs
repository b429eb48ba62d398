//! One pass over a set: the steps, in the order in which they matter.

use super::fill::Flow;
use super::plan::Plan;
use super::status;
use super::view::View;
use crate::shared::occupant::Occupant;
use crate::shared::revision;
use flotilla_model::set::Area;
use flotilla_model::{Decision, Hints, WaitCause};
use std::collections::BTreeMap;

/// Decides what to do for the set of `view`.
pub fn decide(view: &View<'_>) -> Decision {
    if view.set.is_deleted() || view.set.spec.is_stopped(Area::Everything) {
        // Deletion: the garbage collector takes the pods, or they are orphaned on purpose (STS-2.3 step 6). A set whose selector or
        // template cannot be read: nothing is done that rests on it (STS-3.4).
        return status_only(view);
    }
    let labels = view.pods().chain(&view.to_adopt).filter_map(|pod| pod.revision());
    let revisions = revision::resolve(view.moment().revision_owner(), view.revisions.clone(), labels, |name| {
        view.revision_named(name)
    });
    let Some(update) = revisions.update.clone() else {
        return create_revision_first(view, &revisions);
    };
    let mut plan = Plan::new(view, revisions, update);
    note_last_revisions(&mut plan.pass.hints, view);
    plan.pass.claim_objects(&view.to_release, &view.to_adopt);
    plan.pass.refresh_revision(&view.moment().revision_owner());
    plan.mark_storage();
    plan.record_sizes();
    let seated = plan.slots.iter().filter_map(|s| s.occupant.as_ref());
    plan.pass.tell_of_changed_labels(seated.map(|o| &o.pod));
    plan.judge_courses();
    let flow = plan.fill();
    let flow = plan.scale_down(flow);
    plan.tend_claims();
    plan.recreate_specified();
    // Recreate waits for no pod that is to go itself: the broken one that holds everything up may be among them (STS-2.6).
    if view.set.spec.is_monotonic() && flow == Flow::Blocked && !plan.is_recreating() {
        if !plan.resume() {
            plan.unblock();
        }
        plan.say_what_is_up_to_users();
    } else {
        plan.update();
    }
    plan.tend_condemned_claims();
    plan.let_claims_go();
    plan.tend_courses();
    // Pods that are being adopted count: they are ours by the time the revision would go. So do those that are being released, until they
    // are: they may come back.
    let in_use = view
        .pods()
        .chain(&view.to_adopt)
        .chain(&view.to_release)
        .filter_map(|pod| pod.revision());
    // While the update is paused, pods may come back at these, this very pass (STS-3.6).
    let is_asked_for = view.set.spec.switches.paused_keeps_revision;
    let wanted_again = is_asked_for.then(|| plan.pass.hints.last_revision.clone());
    let wanted_again = wanted_again.iter().flat_map(BTreeMap::values).map(AsRef::<str>::as_ref);
    plan.pass.drop_history(in_use.chain(wanted_again));
    plan.pass.forget_failures();
    plan.pass.say_held_back();
    plan.tell_of_unusable_pods();
    plan.remember();
    plan.pass.note_unreadable_fields();
    plan.pass.merge_waits();
    plan.pass.date_waits();
    let status = status::of(&mut plan);
    plan.pass.into_decision(status)
}

/// Nothing but the status, and why.
fn status_only(view: &View<'_>) -> Decision {
    let mut decision = Decision {
        hints: with_what_pods_have(view),
        waits: view.moment().unreadable_fields(),
        ..Decision::default()
    };
    status::without_plan(view, None, &mut decision);
    decision
}

/// The update revision does not exist yet.
fn create_revision_first(view: &View<'_>, revisions: &revision::Revisions) -> Decision {
    let mut decision = view.moment().create_revision_first(revisions);
    status::without_plan(view, Some(revisions), &mut decision);
    decision.hints = with_what_pods_have(view);
    decision
}

/// What a pass remembers that comes to no plan: whoever pauses the update next wants the pods as this pass has seen them.
fn with_what_pods_have(view: &View<'_>) -> Option<Hints> {
    let mut hints = view.hints.clone();
    note_last_revisions(&mut hints, view);
    (hints != *view.hints).then_some(hints)
}

/// Notes which revision the pod of each slot has, where users want it back at that (STS-3.6). What was noted before they turned that off
/// is forgotten: pods change their revision meanwhile, and nobody notes it.
fn note_last_revisions(hints: &mut Hints, view: &View<'_>) {
    if !view.set.spec.switches.paused_keeps_revision {
        hints.last_revision.clear();
        return;
    }
    let known = &mut hints.last_revision;
    known.retain(|ordinal, _| view.ordinals.contains(*ordinal));
    for member in view.members.iter().filter(|m| view.ordinals.contains(m.ordinal)) {
        if let Some(revision) = member.pod.revision() {
            known.insert(member.ordinal, revision.into());
        }
    }
}

impl Plan<'_> {
    /// Pods that fill no slot are left alone for ever, and whoever made them has to know (STS-I12). Said last: of what nobody asked the
    /// set to mend, the status tells the first.
    fn tell_of_unusable_pods(&mut self) {
        let pods: Vec<_> = self.view.unusable.iter().filter(|pod| !pod.is_terminating()).collect();
        if let Some(first) = pods.first() {
            let (subject, since) = (first.name().to_owned(), first.meta.created);
            let pods = pods.iter().map(|pod| pod.name().to_owned()).collect();
            self.pass
                .wait(subject, WaitCause::OrdinalTooLarge { pods }, Some(since));
        }
    }

    /// What the next pass should know.
    fn remember(&mut self) {
        let spec = &self.view.set.spec;
        if spec.scale_max_unavailable.is_some() {
            // A pod that is leaving may be one that was not wanted for a while: then its slot starts anew.
            let holds = |o: &Occupant| o.health.is_available() || !o.pod.is_terminating() && self.was_up(&o.pod);
            let settled = self
                .slots
                .iter()
                .filter(|s| s.occupant.as_ref().is_some_and(holds) || self.pass.hints.held.contains(s.ordinal));
            self.pass.hints.held = settled.map(|s| s.ordinal).collect();
        }
    }
}
