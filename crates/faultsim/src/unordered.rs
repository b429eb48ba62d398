//! Sets whose partition counts pods instead of naming the lowest, and users who say which pods are to be updated first.
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use crate::asks::{Act, by_users, comes};
use crate::run::World;
use crate::schedule::{FaultKind, Item, SetPlan, UserAct, Wanted, What};
use fastrand::Rng;
use flotilla_model::{Resource, SetKind};
use serde_json::{Value, json};

/// Labels by which users tell pods apart.
const KEYS: [&str; 2] = ["shard", "tier"];

/// Which pods of an unordered update go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Nobody says.
    Any,
    /// Those with the first of two labels, with the highest number at its end; then those with the other.
    Order,
    /// Those whose labels weigh most.
    Weight,
}

/// What users put on a pod: which of the two labels, and a number at its end, or that it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    key: usize,
    number: Option<i64>,
}

impl Priority {
    fn by_chance(rng: &mut Rng) -> Self {
        [Priority::Any, Priority::Order, Priority::Weight][rng.usize(0..3)]
    }

    /// What `unorderedUpdate` says of it.
    pub(crate) fn to_json(self) -> Value {
        let weight = |weight: i64, key: usize, number: i64| {
            let labels = json!({KEYS[key]: format!("a-{number}")});
            json!({"weight": weight, "matchSelector": {"matchLabels": labels}})
        };
        match self {
            Priority::Any => json!({}),
            Priority::Order => {
                json!({"priorityStrategy": {"orderPriority": KEYS.map(|key| json!({"orderedKey": key}))}})
            }
            Priority::Weight => {
                let weights = [weight(30, 0, 1), weight(50, 1, 1), weight(40, 0, 2)];
                json!({"priorityStrategy": {"weightPriority": weights}})
            }
        }
    }

    /// The merge patch that puts it in place of any other.
    fn patch(self) -> Value {
        let mut patch = self.to_json();
        for field in ["orderPriority", "weightPriority"] {
            let others = &mut patch["priorityStrategy"][field];
            *others = std::mem::take(others);
        }
        patch
    }
}

/// What of a seed sets and users ask for of this.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x0000_0de2);
    if !comes(&mut rng, wanted, FaultKind::Unordered, 6) || set.kind != SetKind::Advanced {
        return Vec::new();
    }
    // Only Parallel knows of it, and only where pods are updated.
    (set.ordered, set.on_delete) = (false, false);
    set.asks.unordered = Some(Priority::by_chance(&mut rng));
    set.partition = rng.i64(0..4);
    let mark = |rng: &mut Rng| {
        let mark = Mark {
            key: rng.usize(0..KEYS.len()),
            number: (rng.u8(0..8) > 0).then(|| rng.i64(1..4)),
        };
        UserAct::Ask(Act::Mark(rng.i64(0..6), mark))
    };
    let mut items = Vec::new();
    // Most of them before the rollout.
    for _ in 0..rng.usize(1..6) {
        items.push(Item {
            at_ms: rng.u64(2_000..25_000),
            what: What::User(mark(&mut rng)),
            seed: 0,
        });
    }
    for _ in 0..rng.usize(0..4) {
        let act = match rng.u8(0..4) {
            0 => UserAct::Ask(Act::Unordered(
                (rng.u8(0..4) > 0).then(|| Priority::by_chance(&mut rng)),
            )),
            1 | 2 => UserAct::Partition(rng.i64(0..5)),
            _ => mark(&mut rng),
        };
        items.push(by_users(&mut rng, act));
    }
    items
}

impl World {
    /// A user marks a pod.
    pub(crate) fn mark_pod(&mut self, ordinal: i64, mark: Mark) {
        let value = mark.number.map(|number| format!("a-{number}"));
        let labels = json!({"metadata": {"labels": {KEYS[mark.key]: value}}});
        self.edit(Resource::Pods, &self.pod_key(ordinal), &labels);
    }

    /// A user says which pods are to be updated first, or that it is the highest.
    pub(crate) fn reorder(&mut self, priority: Option<Priority>) {
        let rolling = json!({"unorderedUpdate": priority.map(Priority::patch)});
        let body = json!({"spec": {"updateStrategy": {"rollingUpdate": rolling}}});
        self.edit(Resource::AdvancedSets, &Self::set_key(), &body);
    }
}
