//! What sets ask for beside replicas, budget and partition: which ordinals are theirs, how many pods may start at
//! once, which are to be made again, and whether claims go with their set.
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use crate::clones::SPECIFIED_DELETE;
use crate::deadline;
use crate::notes;
use crate::run::World;
use crate::schedule::{BUSY_MS, FaultKind, Item, Orphaning, SetPlan, UserAct, Wanted, What};
use crate::switches::{self, Flip, Switch};
use crate::unordered::{self, Mark, Priority};
use fastrand::Rng;
use flotilla_model::{PodRecord, Resource, SetKind, SetRecord};
use serde_json::{Value, json};

/// What a set asks for at the beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asks {
    /// Ordinals that it does not use.
    pub reserved: Vec<Entry>,
    /// How many pods may be on their way up at once.
    pub scale_budget: Option<Share>,
    /// Its update takes pods in another order than that of their ordinals.
    pub unordered: Option<Priority>,
    /// Switches that are on.
    pub switches: Vec<(Switch, &'static str)>,
}

/// An entry of `reserveOrdinals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A number.
    One(i64),
    /// A range, both ends included.
    Range(i64, i64),
    /// A range whose ends somebody has swapped: nobody can read it.
    Swapped(i64),
}

/// A number, or a percentage of the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So many.
    Number(i64),
    /// So many of a hundred.
    Percent(i64),
}

/// What users ask for later.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Other ordinals are reserved.
    Reserve(Vec<Entry>),
    /// Another first ordinal.
    Start(i64),
    /// The pod of a slot is to be made again.
    MakeAgain(i64),
    /// Another number of pods that may start at once, or any.
    ScaleBudget(Option<Share>),
    /// Other pods go first, or the highest.
    Unordered(Option<Priority>),
    /// A label that decides which pods go first.
    Mark(i64, Mark),
    /// Claims go with the set, or outlive it.
    TakeClaims(bool),
    /// Another policy for claims, with the set and with the pod, and so many replicas in the same edit.
    Policy(bool, bool, i64),
    /// A pause, or a switch.
    Flip(Flip),
    /// Somebody writes notes of grace periods.
    WriteNotes(notes::Act),
}

impl Entry {
    fn by_chance(rng: &mut Rng, may_be_swapped: bool) -> Self {
        let low = rng.i64(0..8);
        match rng.u8(0..9) {
            0 if may_be_swapped => Entry::Swapped(low),
            0..=4 => Entry::One(low),
            _ => Entry::Range(low, low + rng.i64(0..3)),
        }
    }

    fn to_json(self) -> Value {
        match self {
            Entry::One(ordinal) => json!(ordinal),
            Entry::Range(low, high) => json!(format!("{low}-{high}")),
            Entry::Swapped(low) => json!(format!("{}-{low}", low + 2)),
        }
    }
}

impl Share {
    fn by_chance(rng: &mut Rng) -> Self {
        match rng.u8(0..4) {
            0 => Share::Percent(rng.i64(1..90)),
            _ => Share::Number(rng.i64(1..4)),
        }
    }

    pub(crate) fn to_json(self) -> Value {
        match self {
            Share::Number(count) => json!(count),
            Share::Percent(percent) => json!(format!("{percent}%")),
        }
    }
}

fn word_of(goes: bool) -> &'static str {
    if goes { "Delete" } else { "Retain" }
}

fn list(entries: &[Entry]) -> Value {
    entries.iter().map(|entry| entry.to_json()).collect()
}

impl Asks {
    /// What it puts into a manifest.
    pub(crate) fn complete(&self, set: &mut Value) {
        if !self.reserved.is_empty() {
            set["spec"]["reserveOrdinals"] = list(&self.reserved);
        }
        if let Some(share) = self.scale_budget {
            set["spec"]["scaleStrategy"] = json!({"maxUnavailable": share.to_json()});
        }
        if let Some(priority) = self.unordered {
            set["spec"]["updateStrategy"]["rollingUpdate"]["unorderedUpdate"] = priority.to_json();
        }
        for (switch, value) in &self.switches {
            set["metadata"]["annotations"][switch.key()] = json!(value);
        }
    }
}

/// What of a seed sets and users ask for of all this.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, has_webhook: bool, set: &mut SetPlan) -> Vec<Item> {
    let mut items = ordinals(seed, wanted, has_webhook, set);
    items.extend(scaling(seed, wanted, set));
    items.extend(made_again(seed, wanted, set.kind));
    items.extend(unordered::by_chance(seed, wanted, set));
    items.extend(retention(seed, wanted, set));
    items.extend(policies(seed, wanted, set));
    items.extend(switches::by_chance(seed, wanted, set));
    items.extend(deadline::by_chance(seed, wanted, set));
    items.extend(notes::by_chance(seed, wanted, set));
    items
}

/// Whether a kind comes: as one of so many seeds, or because it is asked for.
pub(crate) fn comes(rng: &mut Rng, wanted: &Wanted, kind: FaultKind, one_of: u8) -> bool {
    let by_chance = rng.u8(0..one_of) == 0;
    by_chance && wanted.faults.is_empty() || wanted.faults.contains(&kind)
}

/// An act of users at any moment.
pub(crate) fn by_users(rng: &mut Rng, act: UserAct) -> Item {
    Item {
        at_ms: rng.u64(0..BUSY_MS),
        what: What::User(act),
        seed: 0,
    }
}

/// A switch is on from the beginning but for one of so many schedules, and users turn it meanwhile.
pub(crate) fn with_switch(rng: &mut Rng, switch: Switch, but_for_one_of: u8, set: &mut SetPlan) -> Vec<Item> {
    if rng.u8(0..but_for_one_of) > 0 {
        let value = switch.by_chance(rng);
        set.asks.switches.push((switch, value));
    }
    let count = rng.usize(0..3);
    let mut items = Vec::new();
    for _ in 0..count {
        let flip = switch.turned(rng);
        items.push(by_users(rng, UserAct::Ask(Act::Flip(flip))));
    }
    items
}

fn ordinals(seed: u64, wanted: &Wanted, has_webhook: bool, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x0000_4e5e);
    if !comes(&mut rng, wanted, FaultKind::Ordinals, 8) {
        return Vec::new();
    }
    let is_advanced = set.kind == SetKind::Advanced;
    let entries = |rng: &mut Rng, may_be_swapped: bool| {
        let count = rng.usize(0..4);
        (0..count).map(|_| Entry::by_chance(rng, may_be_swapped)).collect()
    };
    if is_advanced && rng.bool() {
        set.asks.reserved = entries(&mut rng, false);
    }
    let act = |rng: &mut Rng| match rng.u8(0..3) {
        // Webhooks refuse what cannot be read.
        0 | 1 if is_advanced => Act::Reserve(entries(rng, !has_webhook)),
        _ => Act::Start(rng.i64(0..5)),
    };
    let count = rng.usize(1..4);
    let acts: Vec<Act> = (0..count).map(|_| act(&mut rng)).collect();
    acts.into_iter()
        .map(|act| by_users(&mut rng, UserAct::Ask(act)))
        .collect()
}

/// Pods that start a few at a time, which only Parallel knows, and users who scale.
fn scaling(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x005c_a1e0);
    if !comes(&mut rng, wanted, FaultKind::Scaling, 5) || set.kind != SetKind::Advanced {
        return Vec::new();
    }
    if wanted.faults.contains(&FaultKind::Scaling) {
        set.ordered = false;
    }
    // Under OrderedReady pods come one by one anyway, and only 1 may be said.
    let is_ordered = set.ordered;
    let share = |rng: &mut Rng| {
        if is_ordered {
            Share::Number(1)
        } else {
            Share::by_chance(rng)
        }
    };
    set.asks.scale_budget = Some(share(&mut rng));
    let mut items = Vec::new();
    for _ in 0..rng.usize(1..4) {
        let what = match rng.u8(0..3) {
            0 => UserAct::Ask(Act::ScaleBudget(rng.bool().then(|| share(&mut rng)))),
            _ => UserAct::Scale(rng.i64(0..8)),
        };
        items.push(by_users(&mut rng, what));
    }
    items
}

/// Pods of an Advanced set that users ask to have made again.
fn made_again(seed: u64, wanted: &Wanted, kind: SetKind) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x005b_ec1f);
    if !comes(&mut rng, wanted, FaultKind::MadeAgain, 8) || kind != SetKind::Advanced {
        return Vec::new();
    }
    let acts: Vec<Act> = (0..rng.usize(1..5)).map(|_| Act::MakeAgain(rng.i64(0..6))).collect();
    acts.into_iter()
        .map(|act| by_users(&mut rng, UserAct::Ask(act)))
        .collect()
}

/// Users who change their minds about what becomes of the claims when the set is deleted, and scale meanwhile: some claims have no pod then.
fn retention(seed: u64, wanted: &Wanted, set: &SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x0e7a_1e55);
    if !comes(&mut rng, wanted, FaultKind::Users, 4) || !set.claims {
        return Vec::new();
    }
    let replicas = rng.i64(0..6);
    let mut items = vec![by_users(&mut rng, UserAct::Scale(replicas))];
    for _ in 0..rng.usize(1..3) {
        let act = Act::TakeClaims(rng.bool());
        items.push(by_users(&mut rng, UserAct::Ask(act)));
    }
    items
}

/// Users who change the policy for claims while pods that it concerns go: they scale, or delete the set, and ask for something else before the
/// garbage collector has looked. Only if they are asked for.
fn policies(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x00c1_a1a5);
    if !wanted.faults.contains(&FaultKind::Retention) || set.kind == SetKind::Clone {
        return Vec::new();
    }
    set.claims = true;
    let mut items = Vec::new();
    for _ in 0..rng.usize(1..4) {
        let goes = match rng.u8(0..4) {
            0 => UserAct::DeleteSet(Orphaning::Background),
            _ => UserAct::Ask(Act::Policy(rng.bool(), rng.u8(0..4) > 0, rng.i64(0..3))),
        };
        let comes = UserAct::Ask(Act::Policy(rng.bool(), rng.u8(0..4) == 0, rng.i64(2..6)));
        let gone = by_users(&mut rng, goes);
        // As long as pods take to go, more or less. A set that is deleted is made anew some seconds later.
        let at_ms = gone.at_ms + rng.u64(200..14_000);
        items.extend([
            gone,
            Item {
                at_ms,
                what: What::User(comes),
                seed: 0,
            },
        ]);
    }
    items
}

/// Whether users have asked for a pod to be made again (STS-3.8).
pub(crate) fn is_to_be_made_again(pod: &PodRecord, set: &SetRecord) -> bool {
    set.kind == SetKind::Advanced && pod.label(SPECIFIED_DELETE).is_some()
}

impl World {
    /// Users ask for something else.
    pub(crate) fn ask(&mut self, act: &Act) {
        let body = match act {
            Act::MakeAgain(ordinal) => {
                let labels = json!({"metadata": {"labels": {SPECIFIED_DELETE: "true"}}});
                return self.edit(Resource::Pods, &self.pod_key(*ordinal), &labels);
            }
            Act::Flip(flip) => return self.flip(*flip),
            Act::WriteNotes(act) => return self.write_notes(*act),
            Act::Unordered(priority) => return self.reorder(*priority),
            Act::Mark(ordinal, mark) => return self.mark_pod(*ordinal, *mark),
            Act::Reserve(entries) => json!({"reserveOrdinals": list(entries)}),
            Act::ScaleBudget(share) => {
                json!({"scaleStrategy": share.map(|share| json!({"maxUnavailable": share.to_json()}))})
            }
            Act::Start(ordinal) => json!({"ordinals": {"start": ordinal}}),
            Act::TakeClaims(with_set) => {
                json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": word_of(*with_set)}})
            }
            Act::Policy(with_set, with_pod, replicas) => json!({
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": word_of(*with_set), "whenScaled": word_of(*with_pod)},
                "replicas": replicas,
            }),
        };
        let set = self.schedule.set.kind.resource();
        self.edit(set, &Self::set_key(), &json!({"spec": body}));
    }

    /// At the end users mend what nobody can read: they are told of it.
    pub(crate) fn users_mend_what_they_ask(&mut self) {
        self.users_mend_switches();
        let Some(set) = self.cluster.server.get(Resource::AdvancedSets, &Self::set_key()) else {
            return;
        };
        let value = set.value();
        let Some(entries) = value.pointer("/spec/reserveOrdinals").and_then(Value::as_array) else {
            return;
        };
        let swapped: Vec<Value> = (0..8).map(|low| Entry::Swapped(low).to_json()).collect();
        let kept: Vec<&Value> = entries.iter().filter(|entry| !swapped.contains(entry)).collect();
        if kept.len() < entries.len() {
            let body = json!({"spec": {"reserveOrdinals": kept}});
            self.edit(Resource::AdvancedSets, &Self::set_key(), &body);
        }
    }
}
