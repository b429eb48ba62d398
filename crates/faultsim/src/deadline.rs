//! Sets whose updates in place have a deadline, on a budget of one, and users who ask for images that cannot be pulled.
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use crate::asks::{self, by_users, comes};
use crate::schedule::{FaultKind, Item, SetPlan, UserAct, Wanted};
use crate::switches::{Flip, Switch};
use fastrand::Rng;

/// What of a seed sets and users ask for of this.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x0000_dead);
    if !comes(&mut rng, wanted, FaultKind::Deadline, 3) || set.in_place.is_none() {
        return Vec::new();
    }
    set.max_unavailable = None;
    if let Some(clones) = &mut set.clones {
        (clones.surge, clones.unavailable) = (0, 1);
    }
    if rng.u8(0..4) > 0 {
        set.asks
            .switches
            .push((Switch::Deadline, Switch::Deadline.by_chance(&mut rng)));
    }
    if rng.u8(0..4) > 0 {
        set.asks
            .switches
            .push((Switch::DeadlineAction, Switch::DeadlineAction.by_chance(&mut rng)));
    }
    let mut items = Vec::new();
    for _ in 0..rng.usize(1..4) {
        let number = rng.u32(1..4);
        items.push(by_users(&mut rng, UserAct::Image(number, false)));
    }
    for _ in 0..rng.usize(0..4) {
        let switch = [Switch::Deadline, Switch::DeadlineAction][rng.usize(0..2)];
        let flip: Flip = switch.turned(&mut rng);
        items.push(by_users(&mut rng, UserAct::Ask(asks::Act::Flip(flip))));
    }
    if rng.bool() {
        let (number, ordinal) = (rng.u32(1..4), rng.i64(0..6));
        items.push(by_users(&mut rng, UserAct::Image(number, true)));
        items.push(by_users(&mut rng, UserAct::DeletePod(ordinal, false)));
    }
    items
}
