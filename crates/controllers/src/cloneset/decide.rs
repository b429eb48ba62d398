//! One pass over a set: the steps, in the order in which they matter.

use super::claims::templates_hash;
use super::diff::Diff;
use super::plan::Plan;
use super::status;
use super::view::View;
use crate::shared::{origin, revision};
use flotilla_model::set::Area;
use flotilla_model::{Decision, PodRecord};
use std::sync::Arc;

/// Decides what to do for the set of `view`.
pub fn decide(view: &View<'_>) -> Decision {
    if view.set.is_deleted() || view.set.spec.is_stopped(Area::Everything) {
        // Pods and claims of a deleted set go by garbage collection (CS-10). Of one that cannot be read nothing is done.
        let waits = view.moment().unreadable_fields();
        return Decision {
            status: Some(status::without_plan(view)),
            waits,
            ..Decision::default()
        };
    }
    let hash = templates_hash(&view.set.spec.claim_templates);
    let owner = revision::Owner {
        claim_hash: Some(&hash),
        ..view.moment().revision_owner()
    };
    let pods = view.pods.iter().chain(&view.to_adopt);
    let labels = pods.filter_map(|pod| pod.revision());
    let revisions = revision::resolve(owner, view.revisions.clone(), labels, |name| view.revision_named(name));
    let Some(update) = revisions.update.clone() else {
        let mut decision = view.moment().create_revision_first(&revisions);
        status::without_revision(view, &revisions, &mut decision);
        return decision;
    };
    let mut plan = Plan::new(view, revisions, update);
    plan.pass.claim_objects(&view.to_release, &view.to_adopt);
    plan.pass.refresh_revision(&owner);
    plan.pass
        .tell_of_changed_labels(plan.members.iter().map(|m| &m.occupant.pod));
    plan.judge_courses();
    plan.tend_claims();
    plan.spare_marked_in_vain();
    plan.take_back();
    plan.take_marks_off();
    let counts = plan.counts();
    let diff = Diff::of(&plan.asked, &counts);
    plan.note_starts();
    plan.create(&diff);
    plan.delete(&diff);
    plan.spare_claims(&diff);
    plan.forget_keeping();
    plan.forget_surge();
    plan.restore_claims();
    plan.backfill();
    plan.update(&diff);
    plan.tend_courses();
    plan.forget_deleted_names();
    plan.drop_history();
    plan.wait_for_availability();
    plan.pass.forget_failures();
    plan.pass.say_held_back();
    plan.pass.note_unreadable_fields();
    plan.pass.merge_waits();
    plan.pass.date_waits();
    let status = status::of(&mut plan);
    plan.pass.into_decision(status)
}

impl Plan<'_> {
    /// Revisions beyond the limit that nobody uses go (CS-12.7).
    fn drop_history(&mut self) {
        let names = self.pass.revisions.names.clone();
        // Labels may hold the hash alone, or what somebody else wrote.
        let set = &self.view.set;
        let named = |pod: &Arc<PodRecord>| {
            let of = origin::of(pod, set, &names, &[]).revision;
            names.named(set.name(), of).map(|r| r.name())
        };
        let coming = self.view.to_adopt.iter();
        let pods = self.view.pods.iter().chain(coming).chain(&self.view.to_release);
        self.pass.drop_history(pods.filter_map(named));
    }

    /// Says which pods are not available, and looks again when the next becomes so by the clock (CS-10.11).
    fn wait_for_availability(&mut self) {
        for member in &self.members {
            if !member.is_available() && !member.is_leaving {
                self.pass.wait_for(&member.occupant.pod, member.occupant.health);
            }
        }
    }
}
