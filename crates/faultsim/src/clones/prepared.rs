//! Managers with gate `PreparingUpdateAsUpdate`, and of which revision pods are made while others are prepared for their update (CS-13.8).
//!
//! By luck of its own: everything else of a seed is the same with and without it, but for the hook, the partition and the surge, without
//! which the gate changes nothing.

use super::defect::CloneDefect;
use super::view::{Clones, count};
use crate::asks::by_users;
use crate::clones::older::full;
use crate::clones::surge::was_made_as_surge;
use crate::in_place::{Hook, state};
use crate::judge::{Verdict, require};
use crate::schedule::{FaultKind, Item, SetPlan, UserAct, Wanted};
use fastrand::Rng;
use flotilla_model::decision::{Body, Command};
use flotilla_model::set::UpdateKind;
use flotilla_model::{Decision, PodRecord, WaitCause};
use std::collections::BTreeSet;

const RULE: &str = "CS-13.8 revisions of new pods";

/// What of a seed sets and users ask for of this, where pods are updated in place.
pub(super) fn by_chance(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x0a5d_47ed);
    let comes = wanted.faults.contains(&FaultKind::Prepared);
    let (Some(in_place), Some(clones)) = (&mut set.in_place, &mut set.clones) else {
        return Vec::new();
    };
    if !comes {
        return Vec::new();
    }
    clones.prepared_as_updated = rng.u8(0..3) > 0;
    (clones.surge, clones.unavailable) = (0, rng.i64(1..4));
    let hook = in_place.hook.get_or_insert(Hook {
        is_finalizer: rng.bool(),
        before_delete: false,
        before_update: true,
        before_service: false,
        leaves_service: rng.bool(),
    });
    hook.before_update = true;
    set.partition = rng.i64(1..5);
    let act = |rng: &mut Rng| match rng.u8(0..4) {
        0 => UserAct::Scale(rng.i64(3..9)),
        1 => UserAct::Image(rng.u32(1..4), true),
        _ => UserAct::DeletePod(rng.i64(0..6), rng.bool()),
    };
    let acts: Vec<UserAct> = (0..rng.usize(2..7)).map(|_| act(&mut rng)).collect();
    acts.into_iter().map(|act| by_users(&mut rng, act)).collect()
}

/// Whether the gate is on, as far as a defect does not turn it.
pub(crate) fn is_gate_on(is_on: bool, defect: Option<CloneDefect>) -> bool {
    match defect {
        Some(CloneDefect::IgnorePrepared) => false,
        Some(CloneDefect::PreparedAnyway) => true,
        _ => is_on,
    }
}

impl Clones<'_> {
    /// As many of the pods that are made come from the current revision as the partition lacks of old ones, of which those that are prepared
    /// are none with the gate. With a surge, or where pods go back, more may be old: that is not looked at here.
    pub(super) fn makes_old_ones_for_the_partition(&self, decision: &Decision) -> Verdict {
        let set = self.sight.set;
        let made = decision.commands().filter_map(|scoped| match &scoped.command {
            Command::Create {
                body: Body::Pod(draft), ..
            } => Some(&**draft),
            _ => None,
        });
        let revisions = made.map(|draft| {
            let mut labels = draft.labels.iter();
            let found = labels.find(|(key, _)| *key == "controller-revision-hash");
            found.map(|(_, value)| full(value))
        });
        let revisions: Vec<Option<String>> = revisions.collect();
        let has_surge = self.asked.surge > 0 || self.active.iter().any(|pod| was_made_as_surge(pod));
        let current = set.status_text("currentRevision");
        let knows = self.sight.reader.revisions_of(set.as_owner()).iter();
        let is_between = self.update.as_deref() != Some(current) && knows.clone().any(|r| r.name() == current);
        if revisions.is_empty() || has_surge || self.back > 0 || !is_between || self.update.is_none() {
            return Ok(());
        }
        let back = self.taken_back_by(decision);
        let leaves = |pod: &PodRecord| Self::is_leaving(pod) && !back.contains(pod.name());
        let counts = |pod: &PodRecord| !(self.spec.excludes_preparing_delete && leaves(pod));
        let is_prepared = |pod: &PodRecord| {
            let is_plain = !leaves(pod) && !self.is_asked_for(pod);
            self.sight.prepared_as_updated && is_plain && state(pod) == "PreparingUpdate"
        };
        let is_old = |pod: &PodRecord| counts(pod) && !self.is_new(pod) && !is_prepared(pod);
        let there = count(self.active.iter().filter(|pod| is_old(pod)).count());
        let lacking = if set.spec.update == UpdateKind::OnDelete {
            0
        } else {
            (self.asked.partition - there).max(0)
        };
        let made_old = revisions
            .iter()
            .filter(|revision| revision.as_deref() != self.update.as_deref());
        let (made, made_old) = (count(revisions.len()), count(made_old.count()));
        // Those whose volumes nobody can tell any more are not made; and of those that were refused a moment ago nobody can tell which they are.
        let mut waits = decision.waits.iter();
        let is_impossible = waits.any(|wait| matches!(wait.cause, WaitCause::ClaimTemplateMissing { .. }));
        let refused = count(self.missing_that_wait(decision).len());
        let least = lacking.min(made + refused) - refused;
        let fits = made_old <= lacking && (made_old >= least || is_impossible);
        require(fits, RULE, || {
            format!(
                "{made_old} of {made} pods are made old while {there} are, and the partition keeps {}",
                self.asked.partition
            )
        })
    }

    /// Names of pods that are neither there nor made, of which the decision says that they wait.
    fn missing_that_wait<'b>(&self, decision: &'b Decision) -> BTreeSet<&'b str> {
        let key = |name: &str| self.sight.set.meta.key.sibling(name);
        let is_missing = |name: &&str| {
            let is_made = decision.commands().any(|scoped| *scoped.command.key().name == **name);
            name.starts_with("web-") && !is_made && self.sight.reader.pod(&key(name)).is_none()
        };
        decision
            .waits
            .iter()
            .map(|wait| wait.subject.as_str())
            .filter(is_missing)
            .collect()
    }
}
