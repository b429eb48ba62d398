//! Recreate (STS-2.6): all old pods go, also those that are not wanted, and then all new ones come. What the partition keeps takes no part
//! in that: it stays at its revision, and comes back at it as in a rolling update. While the update is paused nothing goes, and so nothing
//! waits for what is to go. While a pod that is not wanted may not go, none of the others does. Nor does anything go under OrderedReady while a
//! pod that the partition keeps is not available: no new one could be made before it is.

use super::plan::{Plan, Slot};
use crate::shared::occupant::Occupant;
use flotilla_model::decision::Report;
use flotilla_model::set::{Area, UpdateKind};
use flotilla_model::{RevisionRecord, WaitCause};

impl Plan<'_> {
    /// Whether all pods of old revisions have to be gone before the first new one is made.
    pub(super) fn is_recreating(&self) -> bool {
        self.view.set.spec.update == UpdateKind::Recreate
    }

    /// How many pods the partition keeps, if it keeps any.
    fn kept(&self) -> usize {
        usize::try_from(self.view.set.spec.partition()).unwrap_or(0)
    }

    /// Whether the partition keeps all pods that are wanted: then the update has nothing to do.
    fn keeps_all(&self) -> bool {
        let takes_none = if self.is_unordered() {
            self.kept() >= self.slots.len()
        } else {
            self.window_start() == self.slots.len()
        };
        self.kept() > 0 && takes_none
    }

    /// Whether a pod of this revision in this slot comes only after all old pods that are to go have gone: neither while none goes, nor
    /// where the partition keeps what is in the slot.
    pub(super) fn comes_after_all_old(&self, index: usize, revision: &RevisionRecord) -> bool {
        let is_new = revision.meta.uid == self.pass.update.meta.uid;
        let is_kept = if self.is_unordered() {
            self.keeps_all()
        } else {
            index < self.window_start()
        };
        self.is_recreating() && !self.view.set.spec.is_paused() && is_new && !is_kept
    }

    /// How many old pods are not wanted and stay all the same, since a field that cannot be read stops scaling away (STS-3.4). While there are
    /// any the others do not go: none could be made in their place.
    fn that_stay(&self) -> usize {
        if !self.view.set.spec.is_stopped(Area::ScaleDown) {
            return 0;
        }
        let condemned = self.condemned.iter().map(|(_, occupant)| occupant);
        condemned
            .filter(|o| !o.labels.is_updated && !o.pod.is_terminating())
            .count()
    }

    /// How many old pods there are, wanted or not, beyond those that the partition keeps. Where it keeps a number of pods, one that is on
    /// its way out is none of them.
    pub(super) fn old_pods(&self) -> usize {
        *self.old_pods.get_or_init(|| {
            let is_old = |occupant: &&Occupant| !occupant.labels.is_updated;
            let old = |slots: &[Slot], stays: bool| {
                let occupants = slots.iter().filter_map(|slot| slot.occupant.as_ref()).filter(is_old);
                occupants.filter(|o| o.is_replaceable() == stays).count()
            };
            let wanted = if self.is_unordered() {
                old(&self.slots, false) + old(&self.slots, true).saturating_sub(self.kept())
            } else {
                let window = &self.slots[self.window_start()..];
                old(window, false) + old(window, true)
            };
            wanted + self.condemned.iter().map(|(_, o)| o).filter(is_old).count()
        })
    }

    /// Whether old pods stay for now since none that is made after them could come: under OrderedReady the step *fill* ends at the first slot
    /// that is not in order, and one that the partition keeps does not go with the others. If so, that is said of the pod that would go first.
    fn is_held_by_order(&mut self) -> bool {
        if !self.view.set.spec.is_monotonic() {
            return false;
        }
        let start = self.window_start();
        let Some(behind) = self.slots[..start].iter().find(|slot| !slot.is_available()) else {
            return false;
        };
        let behind = self.name(behind.ordinal);
        let goes = |occupant: &&Occupant| occupant.is_old() && !occupant.doomed && !occupant.pod.is_terminating();
        let mut window = self.slots[start..].iter().filter_map(|slot| slot.occupant.as_ref());
        // What is not wanted waits as it does for any scale-down.
        let first = window.rfind(goes).map(|occupant| occupant.pod.name().to_owned());
        if let Some(first) = first {
            self.pass.wait(first, WaitCause::Order { behind }, None);
        }
        true
    }

    /// Where no pod is old, none goes with others: claims grow as in a rolling update. Under OrderedReady, as there, what blocks the order comes
    /// first.
    fn grow_in_turn(&mut self) {
        let is_in_order = self.condemned.is_empty() && self.slots.iter().all(Slot::is_available);
        if self.is_advanced() && (is_in_order || !self.view.set.spec.is_monotonic()) {
            self.roll();
        }
    }

    /// All old pods go at once but for those that the partition keeps.
    pub(super) fn recreate_all(&mut self) {
        if self.keeps_all() || self.is_held_by_order() {
            return;
        }
        let mut targets = self.targets();
        targets.sort_unstable_by(|one, other| other.cmp(one));
        let old: Vec<usize> = targets
            .iter()
            .copied()
            .filter(|index| self.is_old_and(*index, |_| true))
            .collect();
        let left = self.that_stay();
        if let Some(&first) = old.first().filter(|_| left > 0) {
            let name = self.name(self.slots[first].ordinal);
            self.pass.wait(name, WaitCause::OldPodsRemain { left }, None);
            return;
        }
        let update = self.pass.update.clone();
        if let Some((&first, others)) = old.split_first()
            && !self.is_accepted(first, &update)
        {
            // The others wait for the same answer.
            for &index in others {
                self.is_accepted(index, &update);
            }
            return;
        }
        // None goes while another has to stay, for whatever claim: no new one comes before the last of them has gone.
        let is_none_old = old.is_empty();
        let staying = old.into_iter().rev().filter(|index| {
            let lacks_claims = !self.has_claims(*index, &update);
            self.grows_first(*index) || lacks_claims
        });
        if staying.count() > 0 {
            return;
        }
        if is_none_old {
            self.grow_in_turn();
        }
        if !self.view.set.spec.is_stopped(Area::ScaleDown) {
            for index in (0..self.condemned.len()).rev() {
                let occupant = &self.condemned[index].1;
                if !occupant.labels.is_updated && !occupant.doomed && !occupant.pod.is_terminating() {
                    self.condemn(index);
                }
            }
        }
        for index in targets {
            // Also those that have ended: under OrderedReady the step *fill* does not come to them while lower ones are missing.
            let has_to_go = self.slots[index]
                .occupant
                .as_ref()
                .is_some_and(|o| o.is_old() && !o.doomed && !o.pod.is_terminating());
            if has_to_go {
                self.delete_slot(index, Report::Delete);
            }
        }
    }
}
