//! Changes of one pod, or of claims, that are refused for a while, each time, by someone's policy or by the server itself.

use crate::run::World;
use crate::schedule::{BUSY_MS, Fault, FaultKind, Item, Wanted, What};
use fastrand::Rng;
use flotilla_engine::core::request::{Answer, Call};
use flotilla_model::decision::Subresource;
use flotilla_model::{Command, ObjectKey, Resource};
use flotilla_sim::server::refusal;
use flotilla_sim::service::refused;

/// What is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Other resources of one pod.
    Resize,
    /// Any change of one pod.
    Change,
    /// Any change and any deletion of claims.
    Claims,
}

/// For some time, requests are refused.
#[derive(Debug)]
pub(crate) struct Stubborn {
    /// The pod, if it is about one.
    pub(crate) key: ObjectKey,
    pub(crate) refused: Refused,
    pub(crate) code: u16,
    pub(crate) until_ms: u64,
}

/// When that is so; by luck of its own.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x0403_0422);
    let by_chance = wanted.faults.is_empty() && rng.u8(0..8) == 0;
    if !by_chance && !wanted.faults.contains(&FaultKind::Refusal) {
        return Vec::new();
    }
    let mut one = || {
        let what = if rng.bool() { Refused::Resize } else { Refused::Change };
        let code = [403, 422, 500][rng.usize(0..3)];
        let at_ms = rng.u64(0..BUSY_MS / 2);
        let fault = Fault::Refuse(rng.i64(0..6), what, code, [15_000, 60_000][rng.usize(0..2)]);
        Item {
            at_ms,
            what: What::Fault(fault),
            seed: 0,
        }
    };
    (0..3).map(|_| one()).collect()
}

/// When claims can neither be changed nor deleted; by luck of its own.
pub(crate) fn of_claims(seed: u64, wanted: &Wanted) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x0c1a_1705);
    let by_chance = wanted.faults.is_empty() && rng.u8(0..8) == 0;
    if !by_chance && !wanted.faults.contains(&FaultKind::Refusal) {
        return Vec::new();
    }
    let mut one = || {
        let code = [403, 422, 500][rng.usize(0..3)];
        let at_ms = rng.u64(0..BUSY_MS);
        let fault = Fault::Refuse(0, Refused::Claims, code, [5_000, 20_000, 60_000][rng.usize(0..3)]);
        Item {
            at_ms,
            what: What::Fault(fault),
            seed: 0,
        }
    };
    (0..2).map(|_| one()).collect()
}

impl Stubborn {
    fn concerns(&self, command: &Command) -> bool {
        match command {
            Command::Patch {
                resource: Resource::Pods,
                key,
                subresource,
                ..
            } => match self.refused {
                Refused::Resize => self.key == *key && *subresource == Some(Subresource::Resize),
                Refused::Change => self.key == *key,
                Refused::Claims => false,
            },
            Command::Patch {
                resource: Resource::Claims,
                ..
            }
            | Command::Delete {
                resource: Resource::Claims,
                ..
            } => self.refused == Refused::Claims,
            _ => false,
        }
    }
}

impl World {
    /// The refusal of a request that somebody does not allow.
    pub(crate) fn stubbornly_refused(&self, call: &Call) -> Option<Answer> {
        let Call::Write(command) = call else { return None };
        let in_force = self.stubborn.iter().filter(|s| s.until_ms > self.now_ms);
        let found = in_force.into_iter().find(|s| s.concerns(command))?;
        let (reason, message) = match found.code {
            403 => (
                "Forbidden",
                "admission webhook \"stubborn\" denied the request: not this one",
            ),
            422 => ("Invalid", "it is invalid: spec: Forbidden: not this one"),
            _ => ("InternalError", "an error on the server: not this one"),
        };
        Some(refused(&refusal(found.code, reason, message)))
    }
}
