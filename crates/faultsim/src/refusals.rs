//! Templates of which the API server refuses every pod, and when users ask for them.

use crate::schedule::{BUSY_MS, FaultKind, Item, Schedule, UserAct, Wanted, What};
use fastrand::Rng;

/// What is wrong with a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A mount without its volume: no API server accepts it.
    Mount,
    /// A variable that a policy of this cluster forbids.
    Policy,
    /// Nothing any more.
    Mended,
}

/// Templates that are refused, some of which users mend soon; by luck of its own.
pub(crate) fn refusals(seed: u64, wanted: &Wanted) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x7e31);
    let by_chance = wanted.faults.is_empty() && rng.u8(0..4) == 0;
    if !(by_chance || wanted.faults.contains(&FaultKind::Template)) {
        return Vec::new();
    }
    let mut items = Vec::new();
    let by_user = |at_ms, refusal| Item {
        at_ms,
        what: What::User(UserAct::Template(refusal)),
        seed: 0,
    };
    for _ in 0..rng.usize(1..3) {
        let at_ms = rng.u64(2_000..BUSY_MS);
        let refusal = if rng.bool() { Refusal::Mount } else { Refusal::Policy };
        items.push(by_user(at_ms, refusal));
        if rng.bool() {
            items.push(by_user(at_ms + rng.u64(500..20_000), Refusal::Mended));
        }
    }
    items
}

impl Schedule {
    /// Whether it ever asks for pods that are refused.
    pub fn has_refused_templates(&self) -> bool {
        let is_refused = |item: &Item| matches!(item.what, What::User(UserAct::Template(_)));
        self.items.iter().any(is_refused)
    }
}
