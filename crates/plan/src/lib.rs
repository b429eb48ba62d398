//! What a change would do, before it is made.
//!
//! [`plan`] loads the live state of a cluster into the simulated one ([`flotilla_sim`]) with UIDs, versions, times and statuses as they
//! are, lets the engine's own core and the real controllers look at it, makes the change by the rules of the API server, and lets
//! virtual time pass until nothing happens any more. What was done to pods, in which order and what waited for what is the [`Plan`].
//!
//! Nothing here reads a clock, draws a number or talks to anybody: the same state and change give the same plan. What cannot be known
//! beforehand is assumed, always alike:
//! - Pods take a fixed time to start and to end. Waves say what waits for what, and not how long.
//! - Pods that are not ready stay so unless they are replaced, except for those that were created within the last minute and of which
//!   the kubelet says nothing bad; pods that are being deleted end, except for those that should have ended a minute ago.
//! - Claims find their volumes: new ones, and those that wait for the first pod that mounts them, unless one waits in vain already.
//! - Images that fail in the live state, and run nowhere, fail, and so do those whose names no runtime can read. All others start; a second
//!   run tells what happens if the pods that the change makes do not become ready: those of a revision of which no pod is ready now or, where
//!   all are of one that is proven, all.
//! - Owners of kinds that are not looked at are there, and so is what they own.
//! - Where nodes could be read, pods that fit none of them by labels, affinity, taints and size wait, and pods on silent nodes never end;
//!   room that other pods take is not counted. Where they could not, there is a node for every pod. Quotas count, and limit ranges fill in
//!   and bound, for what is made and for what grows; other admission does not. What new pods refer to by name (service account, priority and runtime class, claims, storage classes, config
//!   maps and secrets) is looked up, and told if it is missing; the waves are those that would be if it were there, and the second run tells what happens as long as it is not.

mod apply;
mod change;
mod manager;
mod manifest;
mod refers;
mod report;
mod run;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod trace;
mod waves;

pub use change::{Change, Edit};
pub use flotilla_sim::room::taken_by;
pub use flotilla_sim::server::Foreign;
pub use refers::{pulls_with, read_by};
pub use report::{
    Action, Blocked, Claim, ClaimAction, Doubt, Field, Lowest, Plan, Refusal, SetPlan, Stays, Step, UnknownField, Verb,
    Wave,
};
pub use run::Reach;
pub use state::{Brought, State, Unread, ZONES};

/// Adds sentences that are not told yet.
fn extend(told: &mut Vec<String>, more: Vec<String>) {
    for sentence in more {
        if !told.contains(&sentence) {
            told.push(sentence);
        }
    }
}

/// What these changes would do, one after the other, to the cluster in this state.
///
/// Fails with a sentence if the state cannot be loaded. A change that the API server would refuse is part of the plan.
pub fn plan(state: &State, changes: &[Change], reach: Reach) -> Result<Plan, String> {
    let outcome = run::simulate(state, changes, run::NewPods::BecomeReady, reach)?;
    let mut plan = report::Plan::of(&outcome);
    let mut absent = Vec::new();
    for (set, traced) in plan.sets.iter().zip(&outcome.sets) {
        plan.unknowns.extend(refers::refused_now(state, set, traced));
        for (part, spec) in traced.by_templates(set) {
            let found = refers::look(state, &part, &spec);
            extend(&mut plan.missing, found.missing);
            extend(&mut plan.warnings, found.unread);
            absent.extend(found.absent);
        }
        plan.missing.extend(refers::not_created_now(state, set, traced));
        plan.missing.extend(refers::without_room(state, set, traced));
        plan.warnings.extend(traced.claims_go_from_now_on());
    }
    if outcome.sets.iter().any(trace::Traced::makes_pods) || !absent.is_empty() {
        let with_new_revisions = outcome.sets.iter().filter(|set| set.makes_pods_of_new_revisions());
        let doubts = run::Doubts {
            with_new_revisions: with_new_revisions.map(|set| (set.kind, set.key.clone())).collect(),
            absent,
        };
        let doubtful = run::simulate(state, changes, run::NewPods::StayUnready(doubts), reach)?;
        plan.doubt(&outcome, &doubtful);
    }
    plan.leave_out(Vec::new(), outcome.unknowns);
    plan.leave_out(Vec::new(), manifest::doubts(state, changes));
    if !outcome.others.is_empty() {
        // Those that are under way without the change go on with that.
        let without = run::simulate(&state.before(), &[], run::NewPods::BecomeReady, reach)?;
        let by_it = outcome
            .others
            .iter()
            .filter(|(set, _)| !without.others.contains_key(*set));
        plan.leave_out(Vec::new(), by_it.map(|(set, pods)| text::goes_on(set, pods)).collect());
    }
    let is_made = |field: &UnknownField| {
        let mut refused = outcome.refused.iter();
        !refused.any(|refusal| (&refusal.object, &refusal.namespace) == (&field.object, &field.namespace))
    };
    let misspelt = changes.iter().flat_map(change::misspelt).filter(is_made);
    let unreadable = outcome.sets.iter().flat_map(trace::Traced::unreadable_fields);
    plan.leave_out_fields(misspelt.chain(unreadable).collect());
    Ok(plan)
}
