//! Clocks of managers that are ahead for a moment, and are set back.
//!
//! What drives a manager never goes back, so from then on it is ahead of what its wall clock shows. The moment is too short for the
//! manager to look, which could only believe its clock: what it does in it is no fault of its own.

use crate::asks::comes;
use crate::schedule::{BUSY_MS, Fault, FaultKind, Item, Wanted, What};
use fastrand::Rng;

/// One schedule in so many has such clocks.
const ONE_OF: u8 = 16;

/// When that is so; by luck of its own.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, managers: usize) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0xc10c_5e7b);
    if !comes(&mut rng, wanted, FaultKind::Clocks, ONE_OF) {
        return Vec::new();
    }
    let mut one = || Item {
        // Every second time before the manager has done anything.
        at_ms: if rng.bool() { 0 } else { rng.u64(0..BUSY_MS) },
        what: What::Fault(Fault::SetBack(
            rng.usize(0..managers),
            [60_000, 3_600_000, 86_400_000][rng.usize(0..3)],
        )),
        seed: 0,
    };
    (0..2).map(|_| one()).collect()
}
