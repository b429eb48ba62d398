//! Sets that are paused, and whose users turn switches on and off, which are annotations: also to values that nobody can read, which
//! they mend in the end.
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use crate::asks::{self, by_users, comes};
use crate::run::World;
use crate::schedule::{Fault, FaultKind, Item, SetPlan, UserAct, Wanted, What};
use fastrand::Rng;
use flotilla_engine::wire::Object;
use flotilla_model::{SetKind, SetRecord};
use flotilla_sim::nodes::Ailment;
use serde_json::{Value, json};
use std::time::Duration;

/// A switch of a StatefulSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Old pods that are broken are replaced although the order would wait for them (STS-8.1).
    Unblock,
    /// How many seconds they must have been bad.
    UnblockAfter,
    /// The budget of an update under OrderedReady (STS-3.7).
    OrderedBudget,
    /// While the update is paused, pods come back at the revision that they had (STS-3.6).
    KeepRevision,
    /// All old pods go before the first new one comes (STS-2.6).
    Recreate,
    /// Scaling down waits for no pod that stays (STS-8.4).
    IgnoreUnhealthy,
    /// How many seconds an update in place may take before that is told (STS-8.12).
    Deadline,
    /// What is done then.
    DeadlineAction,
    /// Which containers change their images while their pod serves (STS-4.4).
    KeepReady,
    /// How many seconds resources may be put off before that is told (STS-4.6).
    ResizeWait,
    /// Labels and annotations of claim templates reach claims that are there (STS-3.9).
    ClaimLabels,
}

/// What users do to the switches of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flip {
    /// Its update is paused, or goes on.
    Pause(bool),
    /// A switch holds another value, or is not there any more.
    Turn(Switch, Option<&'static str>),
}

impl Switch {
    const ALL: [Switch; 11] = [
        Switch::Unblock,
        Switch::UnblockAfter,
        Switch::OrderedBudget,
        Switch::KeepRevision,
        Switch::Recreate,
        Switch::IgnoreUnhealthy,
        Switch::Deadline,
        Switch::DeadlineAction,
        Switch::KeepReady,
        Switch::ResizeWait,
        Switch::ClaimLabels,
    ];

    /// The key of its annotation.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Switch::Unblock => "flotilla.rs/unblock",
            Switch::UnblockAfter => "flotilla.rs/unblock-after-seconds",
            Switch::OrderedBudget => "flotilla.rs/ordered-max-unavailable",
            Switch::KeepRevision => "flotilla.rs/paused-keeps-revision",
            Switch::Recreate => "flotilla.rs/update-type",
            Switch::IgnoreUnhealthy => "flotilla.rs/scale-down",
            Switch::Deadline => "flotilla.rs/in-place-deadline-seconds",
            Switch::DeadlineAction => "flotilla.rs/in-place-deadline-action",
            Switch::KeepReady => "flotilla.rs/keep-ready-containers",
            Switch::ResizeWait => "flotilla.rs/resize-wait-seconds",
            Switch::ClaimLabels => "flotilla.rs/claim-labels",
        }
    }

    /// What users turn it to.
    fn values(self) -> &'static [&'static str] {
        match self {
            Switch::Unblock => &["broken-first"],
            Switch::UnblockAfter => &["0", "20", "45"],
            Switch::OrderedBudget => &["2", "3", "50%", "10%"],
            Switch::KeepRevision => &["true"],
            Switch::Recreate => &["Recreate"],
            Switch::IgnoreUnhealthy => &["ignore-unhealthy"],
            Switch::Deadline => &["10", "3", "30"],
            Switch::DeadlineAction => &["recreate", "report"],
            Switch::ClaimLabels => &["propagate"],
            Switch::ResizeWait => &["0", "5", "20"],
            Switch::KeepReady => &["main", "main, side", "side,log", "log,side,main"],
        }
    }

    /// What nobody can read.
    fn nonsense(self) -> &'static str {
        match self {
            Switch::Unblock => "Broken-First",
            Switch::UnblockAfter | Switch::ResizeWait => "soon",
            Switch::OrderedBudget | Switch::Deadline => "0",
            Switch::KeepRevision => "yes",
            Switch::Recreate => "recreate",
            Switch::IgnoreUnhealthy | Switch::ClaimLabels => "true",
            Switch::DeadlineAction => "Recreate",
            Switch::KeepReady => "Main",
        }
    }

    /// Where what it is about is drawn.
    fn is_drawn_elsewhere(self) -> bool {
        matches!(
            self,
            Switch::Deadline | Switch::DeadlineAction | Switch::KeepReady | Switch::ResizeWait | Switch::ClaimLabels
        )
    }

    /// What it holds, if it is there and can be read: what cannot be read counts as absent.
    pub(crate) fn value(self, set: &SetRecord) -> Option<&'static str> {
        let annotations = set.annotations.tree();
        let text = annotations.get(self.key())?.as_str()?;
        self.values().iter().copied().find(|value| *value == text)
    }

    /// Whether it is on.
    pub(crate) fn is_on(self, set: &SetRecord) -> bool {
        self.value(set).is_some()
    }

    /// The switches of a set that hold what nobody can read.
    pub(crate) fn unreadable(set: &SetRecord) -> impl Iterator<Item = Switch> {
        Switch::ALL
            .into_iter()
            .filter(|switch| set.annotations.tree().get(switch.key()).is_some() && !switch.is_on(set))
    }

    /// One of the values that it may hold.
    pub(crate) fn by_chance(self, rng: &mut Rng) -> &'static str {
        let values = self.values();
        values[rng.usize(0..values.len())]
    }

    /// By chance: on, off, or what cannot be read.
    pub(crate) fn turned(self, rng: &mut Rng) -> Flip {
        let values = self.values();
        let value = match rng.u8(0..7) {
            0..=3 => Some(values[rng.usize(0..values.len())]),
            4 => Some(self.nonsense()),
            _ => None,
        };
        Flip::Turn(self, value)
    }
}

/// How long a pod must have been bad before it is replaced although the order would wait, if it was ready before.
pub(crate) fn unblock_after(set: &SetRecord) -> Duration {
    let seconds = Switch::UnblockAfter.value(set).and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

/// The budget that a set under OrderedReady has asked for by its switch: of a percentage, rounded down, and at least 1.
pub(crate) fn ordered_budget(set: &SetRecord) -> Option<usize> {
    let text = Switch::OrderedBudget.value(set).filter(|_| set.spec.is_monotonic())?;
    let count = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<i64>().ok()? * i64::from(set.spec.replicas) / 100,
        None => text.parse().ok()?,
    };
    usize::try_from(count.max(1)).ok()
}

/// How long an update in place may take before that is told, if that is limited.
pub(crate) fn in_place_deadline(set: &SetRecord) -> Option<Duration> {
    Some(Duration::from_secs(Switch::Deadline.value(set)?.parse().ok()?))
}

/// Whether somebody turns a switch to what nobody can read, which webhooks have to refuse.
pub(crate) fn are_spoiled(old: Option<&Value>, new: &Value) -> bool {
    let held = |set: &Value, switch: Switch| set["metadata"]["annotations"][switch.key()].clone();
    Switch::ALL.into_iter().any(|switch| {
        let now = held(new, switch);
        now == switch.nonsense() && old.is_none_or(|old| held(old, switch) != now)
    })
}

/// What of a seed sets and users ask for by switches, and what makes them matter.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x0005_171c);
    if !comes(&mut rng, wanted, FaultKind::Switches, 5) {
        return Vec::new();
    }
    // Where pods are changed in place, or their volumes grow, is no place for a strategy that makes them all again.
    let is_plain = set.in_place.is_none() && set.storage.is_none() && set.asks.unordered.is_none() && !set.on_delete;
    let switches: Vec<Switch> = Switch::ALL
        .into_iter()
        .filter(|switch| !switch.is_drawn_elsewhere())
        .filter(|switch| is_plain || *switch != Switch::Recreate)
        .collect();
    for switch in &switches {
        if rng.u8(0..3) == 0 {
            let values = switch.values();
            set.asks.switches.push((*switch, values[rng.usize(0..values.len())]));
        }
    }
    let mut items = Vec::new();
    for _ in 0..rng.usize(1..5) {
        let flip = switches[rng.usize(0..switches.len())].turned(&mut rng);
        items.push(by_users(&mut rng, UserAct::Ask(asks::Act::Flip(flip))));
    }
    // Native sets cannot be paused, and OnDelete has no place for it.
    if set.kind == SetKind::Advanced && !set.on_delete && rng.u8(0..3) > 0 {
        items.extend(pauses(&mut rng));
    }
    for _ in 0..rng.usize(1..5) {
        items.push(disturbance(&mut rng));
    }
    items.extend(recreation(seed, set));
    items
}

/// Where all old pods go before the first new one comes: the same asked for in vain with OnDelete, and updates that rest, also of native
/// sets, for which that is a partition above all ordinals. Meanwhile the template changes, and pods go.
fn recreation(seed: u64, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x002e_c4ea);
    let may_recreate = set.in_place.is_none() && set.storage.is_none() && set.asks.unordered.is_none();
    if set.on_delete && may_recreate && rng.bool() {
        set.asks.switches.push((Switch::Recreate, "Recreate"));
        return Vec::new();
    }
    let is_asked_for = set.asks.switches.iter().any(|(switch, _)| *switch == Switch::Recreate);
    if !is_asked_for || rng.bool() {
        return Vec::new();
    }
    let begins_at_ms = rng.u64(2_000..30_000);
    let ends_at_ms = begins_at_ms + rng.u64(5_000..40_000);
    let at = |at_ms, act| Item {
        at_ms,
        what: What::User(act),
        seed: 0,
    };
    let mut items = Vec::new();
    if set.kind == SetKind::Native {
        items.push(at(begins_at_ms, UserAct::Partition(i64::from(i32::MAX))));
        items.push(at(ends_at_ms, UserAct::Partition(rng.i64(0..3))));
    } else {
        items.push(at(begins_at_ms, UserAct::Ask(asks::Act::Flip(Flip::Pause(true)))));
        items.push(at(ends_at_ms, UserAct::Ask(asks::Act::Flip(Flip::Pause(false)))));
    }
    items.push(at(rng.u64(begins_at_ms..ends_at_ms), UserAct::Image(3, true)));
    for _ in 0..rng.usize(1..4) {
        let act = UserAct::DeletePod(rng.i64(0..6), rng.bool());
        items.push(at(rng.u64(begins_at_ms..ends_at_ms), act));
    }
    items
}

/// A pause, most often one that ends while there are still faults.
fn pauses(rng: &mut Rng) -> Vec<Item> {
    let begins_at_ms = rng.u64(3_000..40_000);
    let ends_at_ms = begins_at_ms + rng.u64(2_000..30_000);
    let pause = |at_ms, is_paused| Item {
        at_ms,
        what: What::User(UserAct::Ask(asks::Act::Flip(Flip::Pause(is_paused)))),
        seed: 0,
    };
    let mut items = vec![pause(begins_at_ms, true)];
    if rng.u8(0..4) > 0 {
        items.push(pause(ends_at_ms, false));
    }
    items
}

/// What shows whether a switch is heeded: broken pods, pods that go, and other numbers of them.
fn disturbance(rng: &mut Rng) -> Item {
    let ordinal = rng.i64(0..6);
    match rng.u8(0..7) {
        0 | 1 => by_users(rng, UserAct::Scale(ordinal + 1)),
        2 => by_users(rng, UserAct::DeletePod(ordinal, true)),
        3 | 4 => {
            let act = UserAct::Image(rng.u32(1..4), rng.bool());
            by_users(rng, act)
        }
        _ => {
            let ailment = [Ailment::CrashLoop, Ailment::SlowStart][rng.usize(0..2)];
            let lasts_ms = [15_000, 40_000][rng.usize(0..2)];
            Item {
                what: What::Fault(Fault::Pod(ordinal, ailment, lasts_ms)),
                ..by_users(rng, UserAct::MindHooks)
            }
        }
    }
}

impl World {
    /// A user pauses the update, or turns a switch.
    pub(crate) fn flip(&mut self, flip: Flip) {
        let body = match flip {
            Flip::Pause(is_paused) => {
                json!({"spec": {"updateStrategy": {"rollingUpdate": {"paused": is_paused}}}})
            }
            Flip::Turn(switch, value) => json!({"metadata": {"annotations": {switch.key(): value}}}),
        };
        self.edit(self.schedule.set.kind.resource(), &Self::set_key(), &body);
    }

    fn set_as_stored(&self) -> Option<&SetRecord> {
        let resource = self.schedule.set.kind.resource();
        match self.cluster.server.get(resource, &Self::set_key())?.object.as_ref()? {
            Object::Set(set) => Some(set),
            _ => None,
        }
    }

    /// At the end nothing is paused, and switches hold what can be read, or are not there.
    pub(crate) fn users_mend_switches(&mut self) {
        let Some(set) = self.set_as_stored() else { return };
        let is_paused = set.spec.is_paused();
        let spoiled: Vec<Switch> = Switch::unreadable(set).collect();
        if is_paused {
            self.flip(Flip::Pause(false));
        }
        for switch in spoiled {
            let value = self.rng.bool().then_some(switch.values()[0]);
            self.flip(Flip::Turn(switch, value));
        }
    }

    /// Whether a pod that cannot start is none of the users' business: a switch says that the manager replaces it, or takes it away.
    pub(crate) fn is_left_to_the_manager(&self, pod: &str) -> bool {
        let Some(set) = self.set_as_stored().filter(|set| set.spec.is_monotonic()) else {
            return false;
        };
        let ordinal = crate::judge::ordinal_in(pod, set.name());
        let is_wanted = ordinal.is_some_and(|ordinal| crate::judge::place_of(ordinal, set).is_some());
        let switch = if is_wanted {
            Switch::Unblock
        } else {
            Switch::IgnoreUnhealthy
        };
        // Under OnDelete nobody is updated.
        switch.is_on(set) && !(is_wanted && self.schedule.set.on_delete)
    }
}
