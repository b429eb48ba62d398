//! Huge numbers in a set: as many replicas as a number can say, a first ordinal at the end of all, ranges of a million ordinals that are
//! reserved, partitions, budgets and percentages beyond everything that there is. Users write them, and take them back.
//!
//! Numbers in a spec are claims, not sizes: a quota sees to it that few pods come, and neither managers nor judges may work in
//! proportion to the others. By luck of its own: everything else of a seed is the same with and without it.

use crate::asks::{Share, comes};
use crate::run::World;
use crate::schedule::{BUSY_MS, FaultKind, Item, SetPlan, UserAct, Wanted, What};
use crate::users::FORBIDDEN_VARIABLE;
use fastrand::Rng;
use flotilla_model::SetKind;
use flotilla_sim::server::{Admission, RevisionLabel};
use serde_json::{Value, json};

/// For so long after all faults there is no more room: managers still hear that nobody asks for so many pods any more.
const ROOM_MS: u64 = 5_000;
/// No set of these schedules has as many pods, or begins so high, but for a while.
const ORDINARY: i64 = 1_000;
/// The most that an int32 says.
const MOST: i64 = i32::MAX as i64;

/// A field that holds a huge number for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// How many pods there are to be.
    Replicas,
    /// The first ordinal.
    Start,
    /// Ordinals that are not to be used: the number, and a million in a row.
    Reserved,
    /// What the update keeps.
    Partition,
    /// Budget of the update.
    MaxUnavailable,
    /// How many more pods there may be.
    MaxSurge,
    /// How many may start at once.
    ScaleBudget,
}

/// What users write into a field; as it was at first, if nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// Where.
    pub field: Field,
    /// What.
    pub value: Option<Share>,
}

impl Field {
    fn path(self) -> &'static str {
        match self {
            Field::Replicas => "replicas",
            Field::Start => "ordinals/start",
            Field::Reserved => "reserveOrdinals",
            Field::Partition => "updateStrategy/rollingUpdate/partition",
            Field::MaxUnavailable => "updateStrategy/rollingUpdate/maxUnavailable",
            Field::MaxSurge => "updateStrategy/rollingUpdate/maxSurge",
            Field::ScaleBudget => "scaleStrategy/maxUnavailable",
        }
    }

    /// Those of a set.
    fn of(set: &SetPlan) -> Vec<Field> {
        let is_only = set.in_place.is_some_and(|in_place| in_place.only);
        let mut all = vec![Field::Replicas];
        // Under OrderedReady an Advanced set may say 1 only.
        let has_budgets = set.kind != SetKind::Advanced || !set.ordered;
        match set.kind {
            SetKind::Native => all.push(Field::Start),
            SetKind::Advanced => all.extend([Field::Start, Field::Reserved]),
            SetKind::Clone => all.push(Field::ScaleBudget),
        }
        if !set.on_delete {
            all.push(Field::Partition);
        }
        if !set.on_delete && has_budgets {
            all.push(Field::MaxUnavailable);
        }
        if set.kind == SetKind::Clone && !set.on_delete && !is_only {
            all.push(Field::MaxSurge);
        }
        if set.kind == SetKind::Advanced && has_budgets {
            all.push(Field::ScaleBudget);
        }
        all
    }

    /// A huge number for it. Webhooks refuse percentages beyond a hundred.
    fn huge(self, rng: &mut Rng, kind: SetKind, has_webhook: bool) -> Share {
        let may_be_percent = match self {
            Field::Replicas | Field::Start | Field::Reserved => false,
            Field::Partition => kind == SetKind::Clone,
            Field::MaxUnavailable | Field::MaxSurge | Field::ScaleBudget => true,
        };
        if may_be_percent && rng.bool() {
            // Of a CloneSet, none beyond 10,000 can be read.
            let beyond = [100, 10_000, if kind == SetKind::Clone { 10_000 } else { MOST }][rng.usize(0..3)];
            return Share::Percent(if has_webhook { 100 } else { beyond });
        }
        let number = match self {
            Field::Start => [MOST, MOST - 1, MOST - 7, 2_000_000_000][rng.usize(0..4)],
            _ => [MOST, MOST - 1, 2_000_000_000, 1_000_001, 1_000_000][rng.usize(0..5)],
        };
        Share::Number(number)
    }
}

impl Act {
    /// What it makes of a specification.
    fn body(self, manifest: &Value) -> Value {
        let path = self.field.path();
        let value = match (self.field, self.value) {
            // With neither, which other users may have left of them, no update goes on: admission refuses that.
            (Field::MaxUnavailable | Field::MaxSurge, None) => {
                let budgets = json!({
                    "maxUnavailable": as_it_was(Field::MaxUnavailable, manifest),
                    "maxSurge": as_it_was(Field::MaxSurge, manifest),
                });
                return nested("updateStrategy/rollingUpdate", budgets);
            }
            (field, None) => as_it_was(field, manifest),
            (Field::Reserved, Some(Share::Number(number))) => {
                let low = number % 4;
                json!([number, format!("{low}-{}", low + 999_999)])
            }
            (_, Some(share)) => share.to_json(),
        };
        nested(path, value)
    }
}

/// What a field was at first.
fn as_it_was(field: Field, manifest: &Value) -> Value {
    let value = manifest.pointer(&format!("/spec/{}", field.path()));
    value.cloned().unwrap_or(Value::Null)
}

/// A value at a path of names.
fn nested(path: &str, value: Value) -> Value {
    path.rsplit('/').fold(value, |inner, name| json!({name: inner}))
}

/// What of a seed users write, and take back.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, has_webhook: bool, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x0b16_0b16);
    // Those of CloneSets take longer.
    let one_of = if set.kind == SetKind::Clone { 128 } else { 64 };
    if !comes(&mut rng, wanted, FaultKind::Huge, one_of) {
        return Vec::new();
    }
    set.room = Some(rng.usize(8..13));
    let fields = Field::of(set);
    let mut items = Vec::new();
    for index in 0..rng.usize(1..4) {
        let field = if index == 0 {
            Field::Replicas
        } else {
            fields[rng.usize(0..fields.len())]
        };
        let value = Some(field.huge(&mut rng, set.kind, has_webhook));
        let at_ms = rng.u64(0..BUSY_MS);
        let back_ms = at_ms + [300, 2_000, 10_000][rng.usize(0..3)];
        for (at_ms, value) in [(at_ms, value), (back_ms, None)] {
            let what = What::User(UserAct::Huge(Act { field, value }));
            items.push(Item { at_ms, what, seed: 0 });
        }
    }
    items
}

/// Admission with what is always forbidden in the cluster, and with room for so many pods.
pub(crate) fn with_policy(admission: Admission, room: Option<usize>, set: &SetPlan) -> Admission {
    Admission {
        revision_label: set
            .clones
            .as_ref()
            .map_or_else(RevisionLabel::default, |clones| clones.label),
        forbidden_variable: Some(FORBIDDEN_VARIABLE),
        pods_max: [admission.pods_max, room].into_iter().flatten().min(),
        ..admission
    }
}

impl World {
    /// Users write a huge number, or take it back.
    pub(crate) fn write_huge(&mut self, act: Act) {
        let body = act.body(&self.schedule.set.manifest());
        let set = self.schedule.set.kind.resource();
        self.edit(set, &Self::set_key(), &json!({"spec": body}));
    }

    /// For how many pods there is room, if a quota never ends.
    pub(crate) fn room(&self) -> Option<usize> {
        let ends_ms = self.schedule.calm_at_ms() + ROOM_MS;
        self.schedule.set.room.filter(|_| self.now_ms < ends_ms)
    }

    /// At the end nobody asks for more than there is, and the quota is raised to what is left.
    pub(crate) fn users_take_huge_numbers_back(&mut self) {
        if self.schedule.set.room.is_none() {
            return;
        }
        let set = self.schedule.set.kind.resource();
        let Some(stored) = self.cluster.server.get(set, &Self::set_key()) else {
            return;
        };
        let value = stored.value();
        for field in [Field::Replicas, Field::Start] {
            let found = value.pointer(&format!("/spec/{}", field.path()));
            if found.and_then(Value::as_i64).is_some_and(|number| number > ORDINARY) {
                self.write_huge(Act { field, value: None });
            }
        }
        self.plan(ROOM_MS, crate::event::Event::AdmissionEnds);
    }
}
