//! One item of a schedule, by chance.

use super::{BUSY_MS, Fault, FaultKind, Item, Loss, Orphaning, UserAct, What};
use fastrand::Rng;
use flotilla_model::{Resource, SetKind};
use flotilla_sim::nodes::Ailment;

pub(crate) fn item(rng: &mut Rng, kind: FaultKind, managers: usize, set: SetKind) -> Option<Item> {
    let at_ms = rng.u64(0..BUSY_MS);
    let seed = rng.u64(..);
    let duration_ms = [500, 3_000, 15_000, 40_000][rng.usize(0..4)];
    let what = match kind {
        FaultKind::Lag => What::Fault(Fault::Lag(watched(rng, set), duration_ms)),
        FaultKind::Watch => What::Fault(match rng.u8(0..4) {
            0 => Fault::Break(watched(rng, set), false),
            1 => Fault::Break(watched(rng, set), true),
            2 => Fault::Repeat(watched(rng, set), rng.usize(1..10)),
            _ => Fault::Coalesce(watched(rng, set), duration_ms),
        }),
        FaultKind::Lost => {
            let loss = [Loss::Request, Loss::Answer, Loss::Late, Loss::Unsent][rng.usize(0..4)];
            What::Fault(Fault::Requests(loss, duration_ms, rng.u32(10..70)))
        }
        FaultKind::Busy => {
            let loss = [Loss::Throttle, Loss::Error, Loss::Timeout][rng.usize(0..3)];
            What::Fault(Fault::Requests(loss, duration_ms, rng.u32(10..70)))
        }
        FaultKind::Conflict => {
            let resource = [Resource::Pods, Resource::Claims, Resource::Revisions, set.resource()][rng.usize(0..4)];
            What::User(UserAct::Touch(resource, rng.i64(0..6)))
        }
        FaultKind::Crash => What::Fault(Fault::Crash(rng.usize(0..managers), rng.u32(0..4), rng.u64(100..5_000))),
        FaultKind::Failover if rng.bool() => What::Fault(Fault::Stop(
            rng.usize(0..managers),
            rng.u32(0..3),
            rng.u64(5_000..40_000),
        )),
        FaultKind::Failover => What::Fault(leave(rng.usize(0..managers), rng.u64(1_000..40_000))),
        FaultKind::Users => What::User(user_act(rng)),
        FaultKind::Nodes => What::Fault(node_fault(rng, duration_ms)),
        FaultKind::InPlace => What::User(in_place_act(rng)),
        FaultKind::Admission => What::Fault(match rng.u8(0..3) {
            0 => Fault::Quota(rng.usize(0..5), duration_ms),
            1 => Fault::Webhook(true, duration_ms),
            _ => Fault::Webhook(false, duration_ms),
        }),
        // Drawn by luck of their own.
        _ => return None,
    };
    Some(Item { at_ms, what, seed })
}

/// A manager goes, and comes back so long after. Every second one goes in order.
fn leave(manager: usize, back_after_ms: u64) -> Fault {
    if back_after_ms.is_multiple_of(2) {
        Fault::Leave(manager, back_after_ms)
    } else {
        Fault::Crash(manager, 0, back_after_ms)
    }
}

fn watched(rng: &mut Rng, set: SetKind) -> Resource {
    [
        Resource::Pods,
        Resource::Pods,
        set.resource(),
        Resource::Revisions,
        Resource::Claims,
    ][rng.usize(0..5)]
}

fn user_act(rng: &mut Rng) -> UserAct {
    let ordinal = rng.i64(0..6);
    match rng.u8(0..12) {
        0..=2 => UserAct::Image(rng.u32(1..4), rng.u8(0..4) > 0),
        3 | 4 => UserAct::Scale(rng.i64(0..8)),
        5 => UserAct::Partition(rng.i64(0..4)),
        6 | 7 => UserAct::DeletePod(ordinal, rng.bool()),
        8 => UserAct::Relabel(ordinal, rng.bool()),
        9 => UserAct::Disown(ordinal),
        10 => UserAct::DeleteSet([Orphaning::Background, Orphaning::Foreground, Orphaning::Orphan][rng.usize(0..3)]),
        _ => UserAct::Touch(Resource::Pods, ordinal),
    }
}

/// What users of updates in place do most.
fn in_place_act(rng: &mut Rng) -> UserAct {
    match rng.u8(0..8) {
        0..=3 => UserAct::Image(rng.u32(1..5), rng.u8(0..5) > 0),
        4 => UserAct::Cpu(100 * rng.u32(1..4)),
        5 => UserAct::Scale(rng.i64(1..8)),
        _ => UserAct::MindHooks,
    }
}

fn node_fault(rng: &mut Rng, duration_ms: u64) -> Fault {
    let ailment = [
        Ailment::CrashLoop,
        Ailment::Flicker,
        Ailment::SlowEnd,
        Ailment::Evicted,
        Ailment::SlowStart,
    ][rng.usize(0..5)];
    match rng.u8(0..4) {
        0 => Fault::Node(rng.usize(0..3), duration_ms),
        _ => Fault::Pod(rng.i64(0..6), ailment, duration_ms),
    }
}

/// Every schedule has one rollout to disturb.
pub(crate) fn rollout(rng: &mut Rng) -> Item {
    Item {
        at_ms: rng.u64(5_000..30_000),
        what: What::User(UserAct::Image(2, true)),
        seed: 0,
    }
}
