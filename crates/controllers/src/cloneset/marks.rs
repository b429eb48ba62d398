//! Marks of the update on pods that it makes again (CS-16.5), and which of them are wanted still.

use super::order;
use super::plan::{Member, Plan};
use super::scale::count;
use super::update::patch;
use crate::shared::occupant::of_what_was_seen;
use crate::shared::renewal::Way;
use flotilla_api::names;
use flotilla_model::PodRecord;
use flotilla_model::decision::{Report, ScopedCommand};
use flotilla_model::set::{Area, PodUpdatePolicy, UpdateKind};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What the update writes into the label that asks for a pod's deletion.
const MARK: &str = "true";

/// Whether the update has asked for a pod to be deleted, so that it is made again, and nobody else has: another value is of users.
pub(super) fn is_marked(pod: &PodRecord) -> bool {
    let annotations = pod.detail.as_ref().map(|d| &d.annotations);
    let is_of_update = annotations.is_some_and(|a| a.get(names::REPLACED_BY_UPDATE).is_some());
    is_of_update && pod.label(names::SPECIFIED_DELETE_LABEL) == Some(MARK)
}

/// Metadata that marks a pod.
pub(super) fn mark() -> Value {
    json!({
        "labels": {names::SPECIFIED_DELETE_LABEL: MARK},
        "annotations": {names::REPLACED_BY_UPDATE: "true"},
    })
}

/// Metadata without the mark.
pub(super) fn unmark() -> Value {
    json!({
        "labels": {names::SPECIFIED_DELETE_LABEL: null},
        "annotations": {names::REPLACED_BY_UPDATE: null},
    })
}

impl Plan<'_> {
    /// Finds pods that the update does not want to make again any more: it was taken back, or rests. Who waits for its hook meanwhile may
    /// be taken back (CS-14.2).
    pub(super) fn spare_marked_in_vain(&mut self) {
        for index in self.marked_in_vain() {
            let member = &mut self.members[index];
            member.is_spared = true;
            member.was_asked_for = false;
        }
    }

    /// Takes the marks off these pods, unless they were taken back with them. Whoever goes all the same goes in a later pass, and is not
    /// made again: with its claims, that is (CS-15.6).
    pub(super) fn take_marks_off(&mut self) {
        for index in 0..self.members.len() {
            let member = &self.members[index];
            let (scope, pod) = (member.scope(), member.occupant.pod.clone());
            let is_off = !member.is_spared || member.occupant.is_dealt_with;
            if is_off || self.pass.is_backing_off(&scope, pod.name()) {
                continue;
            }
            self.members[index].occupant.is_dealt_with = true;
            self.has_scaled = true;
            let command = patch(&pod, json!({"metadata": unmark()}), Report::Silent);
            // As it was seen: users may ask for its deletion meanwhile.
            let command = of_what_was_seen(&pod, command);
            self.pass.stages.repair.push(ScopedCommand { scope, command });
        }
    }

    /// Members whose mark nobody wants. Of old ones, and where pods go back of new ones, as many marks stay as there are pods that the
    /// partition does not keep; those first that have cost something.
    fn marked_in_vain(&mut self) -> Vec<usize> {
        if self.is_stopped(Area::Update) {
            return Vec::new();
        }
        let may_lift = |m: &Member| m.was_asked_for && is_marked(m.pod()) && !m.is_named && !self.is_lost(m);
        let mut marked: Vec<usize> = (0..self.members.len())
            .filter(|index| may_lift(&self.members[*index]))
            .collect();
        if marked.is_empty() {
            return marked;
        }
        let spec = &self.view.set.spec;
        let only_in_place = spec.pod_update_policy() == PodUpdatePolicy::InPlaceOnly;
        if spec.update == UpdateKind::OnDelete || spec.is_paused() || only_in_place {
            return marked;
        }
        let in_place = self.can_go_in_place_after_all(&marked);
        let stays = |index: &usize| {
            let member = &self.members[*index];
            !member.is_surge && (member.is_plain() || marked.contains(index))
        };
        let staying = (0..self.members.len()).filter(stays);
        let (new, old): (Vec<usize>, Vec<usize>) = staying.partition(|index| self.members[*index].is_new());
        let mut forward = (count(old.len()) - self.asked.partition).max(0);
        let mut back = if self.asked.goes_back {
            (count(new.len()) - (self.asked.replicas - self.asked.partition)).max(0)
        } else {
            0
        };
        order::sort(&self.view.clones, &self.members, &mut marked);
        marked.sort_by_key(|index| (!self.members[*index].is_leaving, self.members[*index].is_available()));
        marked.retain(|index| {
            if in_place.contains(index) {
                return true;
            }
            let member = &self.members[*index];
            // Nor is the mark of one in vain that lacks part of its revision: it may be what was refused, which the mark has let be forgotten.
            let progress = member.occupant.progress.as_ref();
            let lacks_something = progress.is_some_and(|progress| progress.left_to_do().is_some());
            if self.pass.has_to_be_made_again(&member.occupant) || member.is_new() && lacks_something {
                return false;
            }
            let left = if member.is_new() { &mut back } else { &mut forward };
            *left -= 1;
            *left < 0
        });
        marked
    }

    /// Those of marked pods that were to be made again for another template, or because they could not get what that asked for, and that can
    /// go in place to the one of today (CS-16.5). Where pods go back, nobody knows yet which are to.
    fn can_go_in_place_after_all(&mut self, marked: &[usize]) -> BTreeSet<usize> {
        let is_old = |m: &Member| !m.is_new() && !m.is_leaving;
        let mut old: Vec<usize> = marked.to_vec();
        old.retain(|index| !self.asked.goes_back && is_old(&self.members[*index]));
        old.retain(|index| matches!(self.way(*index), Way::InPlace(_)));
        old.into_iter().collect()
    }

    /// Whether a pod waits for its hook out of service, and so is never taken back (CS-14.2).
    fn is_lost(&self, member: &Member) -> bool {
        let hooks = &self.view.set.spec.lifecycle;
        let mut hooks = [&hooks.pre_delete, &hooks.in_place_update].into_iter().flatten();
        member.is_leaving && hooks.any(|hook| hook.mark_not_ready)
    }
}
