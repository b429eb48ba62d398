//! The plan that the steps of a pass fill in: slots, beside what every kind writes down.

use super::pod::LabelReader;
use super::view::View;
use crate::shared::health::allows_health;
use crate::shared::identity::pod_name;
use crate::shared::occupant::Occupant;
use crate::shared::pass::Pass;
use crate::shared::revision::Revisions;
use flotilla_model::decision::{Scope, ScopedCommand};
use flotilla_model::{ObjectKey, PodRecord, Report, RevisionRecord};
use smol_str::SmolStr;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many empty slots a pass looks at beyond those whose creation has failed, and so how many pods it makes at most.
pub(super) const MOST_EMPTY: usize = 1_000;

/// A wanted ordinal and who has it.
pub(super) struct Slot {
    pub(super) ordinal: i64,
    /// How many wanted ordinals are below it.
    pub(super) rank: i64,
    pub(super) occupant: Option<Occupant>,
}

impl Slot {
    pub(super) fn is_available(&self) -> bool {
        self.occupant
            .as_ref()
            .is_some_and(|o| o.health.is_available() && !o.doomed)
    }
}

/// Names of objects that commands of one stage write to, by their slots. A stage only grows, and is looked through once.
#[derive(Default)]
pub(super) struct Staged {
    seen: usize,
    names: BTreeSet<(i64, SmolStr)>,
}

impl Staged {
    /// Whether a command of the stage writes to the object of this name for a slot.
    pub(super) fn contains(&mut self, stage: &[ScopedCommand], ordinal: i64, name: &SmolStr) -> bool {
        for ScopedCommand { scope, command } in stage.iter().skip(self.seen) {
            if let Scope::Slot(ordinal) = scope {
                self.names.insert((*ordinal, command.key().name.clone()));
            }
        }
        self.seen = stage.len();
        self.names.contains(&(ordinal, name.clone()))
    }
}

/// Everything that the steps of one pass read and write.
pub(super) struct Plan<'v> {
    pub(super) view: &'v View<'v>,
    pub(super) pass: Pass<'v>,
    /// Wanted ordinals, ascending: all that have a pod, and the lowest of those that have none.
    pub(super) slots: Vec<Slot>,
    /// How many wanted ordinals without a pod are left out.
    pub(super) left_out: usize,
    /// Pods that are not wanted, by ordinal, ascending.
    pub(super) condemned: Vec<(i64, Occupant)>,
    /// Ordinals of condemned pods that this pass deletes.
    pub(super) deleted: BTreeSet<i64>,
    /// Ordinals of condemned pods whose turn has come: nothing but their own hook keeps them.
    pub(super) in_turn: BTreeSet<i64>,
    /// Ordinals of empty slots whose pods nothing but the API server, or a claim, keeps from being made.
    pub(super) tried: BTreeSet<i64>,
    /// Pods that have to be gone before new ones come (STS-2.6); counted once, where somebody asks.
    pub(super) old_pods: OnceCell<usize>,
    /// First index above all pods that stay at the current revision; looked for once, where somebody asks.
    pub(super) frontier: OnceCell<usize>,
    /// Names of claim templates that the set has no more; looked for once, where somebody asks.
    pub(super) former_templates: OnceCell<Arc<BTreeSet<Arc<str>>>>,
    /// Claims that this pass writes to, by their slots, as far as it was looked through for them.
    pub(super) staged_claims: Staged,
    /// What claims ask for is not on record yet, so none grows in this pass.
    pub(super) sizes_are_unrecorded: bool,
}

impl<'v> Plan<'v> {
    pub(super) fn new(view: &'v View<'v>, revisions: Revisions, update: Arc<RevisionRecord>) -> Self {
        let mut plan = Plan {
            view,
            pass: Pass::new(view.moment(), revisions, update),
            slots: Vec::new(),
            left_out: 0,
            condemned: Vec::new(),
            deleted: BTreeSet::new(),
            in_turn: BTreeSet::new(),
            tried: BTreeSet::new(),
            old_pods: OnceCell::new(),
            frontier: OnceCell::new(),
            former_templates: OnceCell::new(),
            staged_claims: Staged::default(),
            sizes_are_unrecorded: false,
        };
        plan.seat();
        plan
    }

    /// Puts each member into its slot, or among the condemned. What that costs grows with the pods that there are and with what may be made
    /// now, not with a number in the spec.
    fn seat(&mut self) {
        let view = self.view;
        let (update, names) = (self.pass.update.clone(), self.pass.revisions.names.clone());
        let current = self.pass.current.clone();
        let mut reader = LabelReader {
            set: &view.set,
            update: Some(&update),
            current: current.name(),
            special: &view.set.spec.special_pods,
            revisions: &names,
            last: None,
        };
        let is_advanced = self.is_advanced();
        let moment = view.moment();
        let mut members = view.members.iter().peekable();
        let mut occupant = |pod: &Arc<PodRecord>| Occupant::of(pod, reader.read(pod), is_advanced, moment);
        let hints = view.hints;
        let mut empty = MOST_EMPTY + hints.starts.len().min(MOST_EMPTY) + hints.failures.len().min(MOST_EMPTY);
        for (rank, ordinal) in (0..).zip(view.ordinals.iter()) {
            while let Some(member) = members.next_if(|m| m.ordinal < ordinal) {
                self.condemned.push((member.ordinal, occupant(&member.pod)));
            }
            let found = members.next_if(|m| m.ordinal == ordinal).map(|m| occupant(&m.pod));
            let is_empty = found.is_none();
            self.slots.push(Slot {
                ordinal,
                rank,
                occupant: found,
            });
            empty -= usize::from(is_empty);
            if empty == 0 {
                break;
            }
        }
        for member in members {
            let ordinal = member.ordinal;
            if view.ordinals.contains(ordinal) {
                self.slots.push(Slot {
                    ordinal,
                    rank: view.ordinals.rank(ordinal),
                    occupant: Some(occupant(&member.pod)),
                });
            } else {
                self.condemned.push((ordinal, occupant(&member.pod)));
            }
        }
        let wanted = usize::try_from(view.ordinals.count()).unwrap_or(0);
        self.left_out = wanted.saturating_sub(self.slots.len());
    }

    /// Pods that may be in an update in place, with whether they may count as available.
    pub(super) fn in_flight(&self) -> BTreeMap<&str, bool> {
        let wanted = self.slots.iter().filter_map(|s| s.occupant.as_ref());
        let all = wanted
            .chain(self.condemned.iter().map(|(_, o)| o))
            .filter(|o| o.is_restless);
        let hooks = &self.view.set.spec.lifecycle;
        let allows = |o: &Occupant| match &o.pod.detail {
            Some(detail) => allows_health(hooks, o.progress.as_deref(), detail, &o.pod, o.labels),
            None => false,
        };
        all.map(|o| (o.pod.name(), allows(o))).collect()
    }

    pub(super) fn name(&self, ordinal: i64) -> String {
        pod_name(self.view.set.name(), ordinal)
    }

    pub(super) fn key(&self, name: &str) -> ObjectKey {
        self.view.set.meta.key.sibling(name)
    }

    /// Deletes the pod of a slot. `false` if the slot is backing off from a refusal.
    pub(super) fn delete_slot(&mut self, index: usize, report: Report) -> bool {
        let ordinal = self.slots[index].ordinal;
        let name = self.name(ordinal);
        if self.pass.is_backing_off(&Scope::Slot(ordinal), &name) {
            return false;
        }
        let Some((pod, only_as_seen)) = self.slots[index].occupant.as_mut().map(|occupant| {
            occupant.doomed = true;
            (occupant.pod.clone(), !occupant.health.is_available())
        }) else {
            return false;
        };
        self.pass.take_away(&Scope::Slot(ordinal), &pod, only_as_seen, report);
        true
    }
}
