//! A webhook of others that changes, or strips, the label by which a new pod names its revision: whatever its set makes comes out of the API
//! server as one of no revision that there is.
//!
//! Only if it is asked for by name: what is updated in place has its label from an update, to which no such webhook is asked.

use crate::asks::by_users;
use crate::schedule::{FaultKind, Item, SetPlan, UserAct, Wanted};
use fastrand::Rng;
use flotilla_model::PodRecord;
use flotilla_sim::server::RevisionLabel;

/// What of a seed it is, with users who ask for other pods meanwhile.
pub(super) fn by_chance(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x001a_be15);
    let Some(clones) = set
        .clones
        .as_mut()
        .filter(|_| wanted.faults.contains(&FaultKind::Labels))
    else {
        return Vec::new();
    };
    clones.label = if rng.bool() {
        RevisionLabel::Swapped
    } else {
        RevisionLabel::Stripped
    };
    let scale = UserAct::Scale(rng.i64(0..8));
    let image = UserAct::Image(rng.u32(1..4), true);
    [scale, image].map(|act| by_users(&mut rng, act)).into()
}

/// The hash of the revision from which a pod was made, where the label that says of which it is has been changed on the way.
pub(super) fn made_as(pod: &PodRecord) -> Option<&str> {
    let is_changed = pod.revision().is_none_or(|label| label == "web-theirs");
    let note = pod.label("flotilla.rs/made-as").filter(|_| is_changed)?;
    note.split('_').next()
}
