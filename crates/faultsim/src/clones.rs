//! CloneSets in the simulator: their schedules, and what users do to them beside what they do to every set.
//!
//! They come only where they are asked for (`--kind clone`), so that the seeds of StatefulSets stay what they were.

mod claims;
pub(crate) mod copies;
mod course;
pub mod defect;
pub(crate) mod kept;
mod labels;
pub(crate) mod older;
mod overdue;
pub(crate) mod prepared;
pub(crate) mod settled;
pub(crate) mod surge;
pub(crate) mod truth;
pub(crate) mod view;

use crate::asks::Asks;
use crate::claim_templates;
use crate::clocks;
use crate::containers;
use crate::deadline;
use crate::deferrals;
use crate::environment::{self, Environment, set_variable};
use crate::event::Life;
use crate::huge;
use crate::in_place::InPlace;
use crate::judge::{Verdict, require};
use crate::kept_ready;
use crate::managers::identity;
use crate::notes;
use crate::refusals::refusals;
use crate::resizes;
use crate::run::World;
use crate::schedule::{
    BUSY_MS, FaultKind, Item, NEED_IN_PLACE, Schedule, SetPlan, UserAct, Wanted, What, item, rollout,
};
use crate::stubborn;
use crate::takers;
use crate::tenants;
use crate::theirs;
use crate::why;
use fastrand::Rng;
use flotilla_model::{Resource, SetKind};
use flotilla_sim::server::RevisionLabel;
use serde_json::{Value, json};

/// Label of a pod that is to be deleted.
pub(crate) const SPECIFIED_DELETE: &str = "apps.kruise.io/specified-delete";
/// Label of the state of a pod's lifecycle.
pub(crate) const LIFECYCLE_STATE: &str = "lifecycle.apps.kruise.io/state";

/// An annotation of the template that means nothing.
const NOTE: &str = "example.com/note";

/// What only a CloneSet asks for.
#[derive(Clone, Debug, PartialEq)]
// Independent draws, not a state.
#[allow(clippy::struct_excessive_bools)]
pub struct ClonePlan {
    /// `maxSurge`.
    pub surge: i64,
    /// `maxUnavailable`.
    pub unavailable: i64,
    /// `scaleStrategy.maxUnavailable`.
    pub creation: Option<i64>,
    /// Claims are used again.
    pub reuses_claims: bool,
    /// Pods that wait for their preDelete hook do not count as replicas.
    pub excludes_leaving: bool,
    /// Pods are surged for also when they can be updated in place.
    pub surges_in_place: bool,
    /// A pod that is made again keeps its claims.
    pub keeps_claims: bool,
    /// A partition that is raised brings pods back.
    pub goes_back: bool,
    /// Pods are made again where claim templates changed with the template.
    pub recreates_for_claims: bool,
    /// Managers have gate `CloneSetShortHash` on: new pods are labelled with the hash of their revision alone.
    pub short_hash: bool,
    /// Managers have gate `PreparingUpdateAsUpdate` on: who is prepared for the update counts as updated when pods are made.
    pub prepared_as_updated: bool,
    /// What a webhook of others makes of the label with which new pods name their revision.
    pub label: RevisionLabel,
}

/// What users of CloneSets do.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Label the nth pod to be deleted.
    Mark(i64),
    /// Name the nth pod in the spec, and one that does not exist.
    Name(i64),
    /// Another surge and another budget.
    Budget(i64, i64),
    /// Pause the update, or go on.
    Pause(bool),
    /// Another annotation for all pods, which restarts nothing.
    Annotate(u32),
    /// Another variable of the environment, for which pods have to be made again.
    Env(u32),
    /// Updates in place where that is possible, or always by making pods again.
    Policy(bool),
    /// A copy of a pod, or another id.
    Copies(copies::Act),
    /// Everything gets the forms of an older manager.
    Older(older::Forms),
}

impl ClonePlan {
    fn by_chance(rng: &mut Rng) -> Self {
        let (surge, unavailable) = budget(rng);
        ClonePlan {
            surge,
            unavailable,
            creation: (rng.u8(0..5) == 0).then(|| rng.i64(1..4)),
            reuses_claims: rng.bool(),
            excludes_leaving: false,
            surges_in_place: false,
            keeps_claims: false,
            goes_back: false,
            recreates_for_claims: false,
            short_hash: false,
            prepared_as_updated: false,
            label: RevisionLabel::AsAsked,
        }
    }

    /// As it may be where pods are updated in place: none that may only be changed in place is surged for.
    pub(crate) fn fitting(mut self, in_place: InPlace, rng: &mut Rng) -> Self {
        if in_place.only {
            (self.surge, self.unavailable) = (0, self.unavailable.max(1));
        }
        self.excludes_leaving = rng.u8(0..4) == 0;
        self
    }

    /// What it puts into a manifest.
    pub(crate) fn complete(&self, set: &mut Value, plan: &SetPlan) {
        let spec = &mut set["spec"];
        if let Some(fields) = spec.as_object_mut() {
            for field in [
                "serviceName",
                "podManagementPolicy",
                "ordinals",
                "persistentVolumeClaimRetentionPolicy",
            ] {
                fields.remove(field);
            }
        }
        spec["minReadySeconds"] = json!(plan.min_ready_s);
        spec["scaleStrategy"] = json!({"enablePVCReuse": self.reuses_claims});
        if self.excludes_leaving {
            spec["scaleStrategy"]["excludePreparingDelete"] = json!(true);
        }
        for (key, is_set) in [
            ("flotilla.rs/surge-in-place", self.surges_in_place),
            ("flotilla.rs/keep-claims-on-recreate", self.keeps_claims),
            ("flotilla.rs/partition-rollback", self.goes_back),
            ("flotilla.rs/recreate-on-claim-change", self.recreates_for_claims),
        ] {
            if is_set {
                set["metadata"]["annotations"][key] = json!("true");
            }
        }
        let spec = &mut set["spec"];
        if let Some(creation) = self.creation {
            spec["scaleStrategy"]["maxUnavailable"] = json!(creation);
        }
        if !plan.on_delete {
            let rolling = json!({
                "partition": plan.partition, "maxSurge": self.surge, "maxUnavailable": self.unavailable, "podUpdatePolicy": "ReCreate",
            });
            spec["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        }
    }
}

/// Surge and budget, not both zero.
fn budget(rng: &mut Rng) -> (i64, i64) {
    let surge = rng.i64(0..4);
    (surge, rng.i64(i64::from(surge == 0)..4))
}

/// The schedule of a seed.
pub(crate) fn schedule(seed: u64, wanted: &Wanted) -> Schedule {
    let mut rng = Rng::with_seed(seed ^ 0xc10e);
    let mut set = SetPlan {
        kind: SetKind::Clone,
        replicas: wanted.pods.unwrap_or_else(|| rng.i64(1..8)),
        start: 0,
        ordered: false,
        on_delete: rng.u8(0..10) == 0,
        max_unavailable: None,
        partition: if rng.u8(0..4) == 0 { rng.i64(1..4) } else { 0 },
        min_ready_s: match rng.u8(0..9) {
            0..=1 => 3,
            2 => 30,
            _ => 0,
        },
        claims: rng.u8(0..2) == 0,
        retention: (false, false),
        in_place: None,
        more_containers: 0,
        storage: None,
        asks: Asks::default(),
        room: None,
        environment: Environment::default(),
        clones: Some(ClonePlan::by_chance(&mut rng)),
    };
    let mut kinds: Vec<FaultKind> = if wanted.faults.is_empty() {
        let chance = rng.f32();
        let all = FaultKind::ALL
            .into_iter()
            .filter(|kind| !kind.is_of_advanced_sets() && !kind.has_own_luck());
        all.filter(|_| rng.f32() < chance).collect()
    } else {
        wanted.faults.clone()
    };
    kinds.retain(|kind| !kind.is_of_advanced_sets() && !kind.has_own_luck());
    let two = kinds.contains(&FaultKind::Failover);
    let skew = |rng: &mut Rng| if two { rng.i64(-20_000..20_000) } else { 0 };
    let skews_ms = [skew(&mut rng), skew(&mut rng)];
    let managers = if two { 2 } else { 1 };
    let mut items = vec![rollout(&mut rng)];
    for kind in kinds {
        for _ in 0..rng.usize(1..5) {
            items.extend(item(&mut rng, kind, managers, SetKind::Clone));
            if kind == FaultKind::Users {
                let at_ms = rng.u64(0..60_000);
                let what = What::User(UserAct::Clone(act(&mut rng)));
                items.push(Item { at_ms, what, seed: 0 });
            }
        }
    }
    draw_by_luck_of_their_own(&mut set, &mut items, seed, wanted);
    items.extend(clocks::by_chance(seed, wanted, managers));
    items.sort_by_key(|item| item.at_ms);
    Schedule {
        mends_as_told: why::comes(seed, wanted),
        seed,
        set,
        managers,
        skews_ms,
        items,
        has_webhook: false,
    }
}

/// What is drawn by luck of its own, so that everything else of a seed is the same with and without it.
fn draw_by_luck_of_their_own(set: &mut SetPlan, items: &mut Vec<Item>, seed: u64, wanted: &Wanted) {
    in_place(set, items, seed, wanted);
    items.extend(containers::by_chance(seed, wanted, false, set));
    items.extend(resizes::by_chance(seed, wanted, false, set));
    switches(set, items, seed, wanted);
    items.extend(refusals(seed, wanted));
    items.extend(stubborn::by_chance(seed, wanted));
    items.extend(stubborn::of_claims(seed, wanted));
    items.extend(tenants::by_chance(seed, wanted));
    items.extend(takers::by_chance(seed, wanted));
    items.extend(claim_templates::by_chance(seed, wanted, false, set));
    items.extend(theirs::by_chance(seed, wanted, set));
    items.extend(copies::by_chance(seed, wanted, set));
    items.extend(older::by_chance(seed, wanted, set));
    items.extend(labels::by_chance(seed, wanted, set));
    items.extend(huge::by_chance(seed, wanted, false, set));
    items.extend(notes::by_chance(seed, wanted, set));
    items.extend(deadline::by_chance(seed, wanted, set));
    items.extend(kept_ready::by_chance(seed, wanted, set));
    items.extend(environment::by_chance(seed, wanted, false, set));
    items.extend(deferrals::by_chance(seed, wanted, false, set));
    items.extend(prepared::by_chance(seed, wanted, set));
}

/// Pods of every other set are updated in place, by luck of its own, so that the rest of a seed is the same with and without it.
fn in_place(set: &mut SetPlan, items: &mut Vec<Item>, seed: u64, wanted: &Wanted) {
    let mut rng = Rng::with_seed(seed ^ 0x0bed);
    let by_chance = wanted.faults.is_empty() && rng.bool();
    if !(by_chance || NEED_IN_PLACE.iter().any(|kind| wanted.faults.contains(kind))) {
        return;
    }
    let plan = InPlace::of_clones(&mut rng);
    (set.in_place, set.on_delete) = (Some(plan), false);
    set.clones = set.clones.take().map(|clones| clones.fitting(plan, &mut rng));
    for _ in 0..rng.usize(1..5) {
        items.extend(item(&mut rng, FaultKind::InPlace, 1, SetKind::Clone));
        items.push(by_user(UserAct::Clone(in_place_act(&mut rng)), rng.u64(0..BUSY_MS)));
    }
    if rng.bool() {
        items.extend(change_of_mind(&mut rng));
    }
    if plan.hook.is_some() {
        items.extend((0..6).map(|_| by_user(UserAct::MindHooks, rng.u64(0..BUSY_MS))));
    }
    // Under InPlaceOnly no user asks for what cannot be done.
    items.retain(|item| !(plan.only && matches!(item.what, What::User(UserAct::Clone(Act::Env(_))))));
}

/// What a set asks for by annotations, and a policy that changes while pods are updated; also by luck of its own.
fn switches(set: &mut SetPlan, items: &mut Vec<Item>, seed: u64, wanted: &Wanted) {
    let mut rng = Rng::with_seed(seed ^ 0x5317);
    let is_wanted = wanted.faults.is_empty() || wanted.faults.contains(&FaultKind::Users);
    let Some(clones) = set.clones.as_mut().filter(|_| is_wanted && rng.u8(0..3) == 0) else {
        return;
    };
    clones.surges_in_place = rng.bool();
    clones.keeps_claims = rng.bool();
    let changes = rng.usize(0..4);
    clones.goes_back = rng.bool();
    if clones.goes_back {
        let partition = |rng: &mut Rng| by_user(UserAct::Partition(rng.i64(0..6)), rng.u64(0..BUSY_MS));
        items.extend((0..3).map(|_| partition(&mut rng)));
    }
    if !set.in_place.is_none_or(|in_place| in_place.only) {
        items.extend((0..changes).map(|_| by_user(UserAct::Clone(Act::Policy(rng.bool())), rng.u64(0..BUSY_MS))));
    }
}

fn by_user(act: UserAct, at_ms: u64) -> Item {
    let what = What::User(act);
    Item { at_ms, what, seed: 0 }
}

/// One image after the other, while the update to the one before is on its way; then back to where it began.
fn change_of_mind(rng: &mut Rng) -> Vec<Item> {
    let mut at_ms = rng.u64(15_000..45_000);
    let images = [3, 2, 1].into_iter().take(rng.usize(1..4));
    let next = |number| {
        at_ms += rng.u64(500..6_000);
        by_user(UserAct::Image(number, true), at_ms)
    };
    images.map(next).collect()
}

fn in_place_act(rng: &mut Rng) -> Act {
    match rng.u8(0..6) {
        0 | 1 => Act::Annotate(rng.u32(1..4)),
        2 => Act::Env(rng.u32(1..3)),
        _ => act(rng),
    }
}

fn act(rng: &mut Rng) -> Act {
    match rng.u8(0..6) {
        0 | 1 => Act::Mark(rng.i64(0..8)),
        2 | 3 => Act::Name(rng.i64(0..8)),
        4 => {
            let (surge, unavailable) = budget(rng);
            Act::Budget(surge, unavailable)
        }
        _ => Act::Pause(rng.bool()),
    }
}

impl World {
    /// What only users of CloneSets do.
    pub(crate) fn act_on_clones(&mut self, act: &Act) {
        let set = Self::set_key();
        let rolling = |fields: Value| json!({"spec": {"updateStrategy": {"rollingUpdate": fields}}});
        match act {
            Act::Mark(place) => {
                let pod = self.pod_key(*place);
                let mark = json!({"metadata": {"labels": {SPECIFIED_DELETE: "true"}}});
                self.edit(Resource::Pods, &pod, &mark);
            }
            Act::Name(place) => {
                let pod = self.pod_key(*place).name;
                let named = json!({"spec": {"scaleStrategy": {"podsToDelete": [pod.as_str(), "web-never"]}}});
                self.edit(Resource::CloneSets, &set, &named);
            }
            Act::Budget(..) | Act::Pause(_) if self.schedule.set.on_delete => {}
            Act::Budget(surge, unavailable) => {
                let is_only = self.schedule.set.in_place.is_some_and(|in_place| in_place.only);
                let (surge, unavailable) = if is_only {
                    (0, (*unavailable).max(1))
                } else {
                    (*surge, *unavailable)
                };
                let budget = rolling(json!({"maxSurge": surge, "maxUnavailable": unavailable}));
                self.edit(Resource::CloneSets, &set, &budget);
            }
            Act::Annotate(number) => {
                let metadata = json!({"annotations": {NOTE: number.to_string()}});
                self.edit(
                    Resource::CloneSets,
                    &set,
                    &json!({"spec": {"template": {"metadata": metadata}}}),
                );
            }
            Act::Env(number) => {
                self.change_template(|container| set_variable(container, "NUMBER", &number.to_string()));
            }
            Act::Policy(in_place) => {
                let policy = if *in_place { "InPlaceIfPossible" } else { "ReCreate" };
                self.edit(Resource::CloneSets, &set, &rolling(json!({"podUpdatePolicy": policy})));
            }
            Act::Copies(act) => self.copy(act),
            Act::Older(forms) => self.give_older_forms(*forms),
            Act::Pause(paused) => self.edit(Resource::CloneSets, &set, &rolling(json!({"paused": paused}))),
        }
    }

    /// What is in the way of a CloneSet is told by what its manager waits for, of which `flotilla why` is made: it has no condition for that
    /// (CS-4).
    pub(crate) fn explained_by_waits(&self, what: &str) -> Verdict {
        let pod = what.split_whitespace().next().filter(|word| word.starts_with("web-"));
        let leader = self.lease_holder();
        let mut managers = self.managers.iter().enumerate().filter(|(manager, state)| {
            let us = identity(Life {
                manager: *manager,
                life: state.life,
            });
            leader.as_ref().and_then(Value::as_str) == Some(&us)
        });
        let set = self.cluster.server.get(Resource::CloneSets, &Self::set_key());
        let is_deleted = set
            .and_then(|s| s.object.as_ref())
            .is_some_and(|o| o.meta().deleted.is_some());
        // One that the update has marked goes only for a revision of which pods are accepted.
        let is_marked = |pod: &str| {
            let pod = self.cluster.server.get(Resource::Pods, &Self::set_key().sibling(pod));
            pod.is_some_and(|pod| pod.value()["metadata"]["annotations"][truth::REPLACED].is_string())
        };
        let is_by_the_update = pod.is_some_and(is_marked);
        let is_told = is_deleted
            || managers.any(|(_, state)| {
                let decisions = &state.decisions;
                decisions.say_why(pod) || is_by_the_update && decisions.say_that_none_is_accepted()
            });
        require(is_told, "STS-I12 every wait is explained", || {
            format!("{what}; nothing has changed for more than a minute, and nothing that is waited for says why")
        })
    }

    /// At the end nothing holds up the update but the partition.
    pub(crate) fn users_of_clones_calm_down(&mut self) {
        let limit = json!({"spec": {"scaleStrategy": {"maxUnavailable": null}}});
        self.edit(Resource::CloneSets, &Self::set_key(), &limit);
        self.act_on_clones(&Act::Pause(false));
    }
}
