//! Step *update*: pods come to the update revision, or back to the current one (CS-13.11 and CS-16).

use super::diff::Diff;
use super::marks;
use super::order;
use super::plan::{Member, Plan};
use super::scale::count;
use crate::shared::course::Course;
use crate::shared::lifecycle::{self, State};
use crate::shared::occupant::of_what_was_seen;
use crate::shared::renewal::Way;
use crate::shared::revision;
use flotilla_api::names;
use flotilla_model::decision::{Command, PatchKind, Report, Scope, ScopedCommand};
use flotilla_model::set::{Area, PodUpdatePolicy, UpdateKind};
use flotilla_model::{PodRecord, Resource, WaitCause};
use serde_json::{Value, json};

impl Plan<'_> {
    /// Before anything else: pods whose update in place leads nowhere have to be made again, where that is allowed.
    pub(super) fn judge_courses(&mut self) {
        let has_failures = !self.pass.hints.failures.is_empty();
        for member in &mut self.members {
            if member.occupant.is_restless || has_failures {
                let scope = member.scope();
                self.pass.judge(&scope, &mut member.occupant);
            }
        }
    }

    /// Labels that old pods lack (CS-16.1): the hash alone, by which others select pods of one revision.
    pub(super) fn backfill(&mut self) {
        for member in &mut self.members {
            let pod = member.occupant.pod.clone();
            let Some(label) = pod
                .revision()
                .filter(|_| pod.label(names::TEMPLATE_HASH_LABEL).is_none())
            else {
                continue;
            };
            if member.occupant.doomed || self.pass.is_backing_off(&member.scope(), pod.name()) {
                continue;
            }
            let labels = json!({names::TEMPLATE_HASH_LABEL: revision::short(label)});
            let command = patch(&pod, json!({"metadata": {"labels": labels}}), Report::Silent);
            let scope = member.scope();
            self.pass.stages.repair.push(ScopedCommand { scope, command });
            member.occupant.is_dealt_with = true;
        }
    }

    /// The update, unless this pass has made or deleted pods (CS-14.8).
    pub(super) fn update(&mut self, diff: &Diff) {
        let spec = &self.view.set.spec;
        let left = usize::try_from(diff.forward.max(diff.back)).unwrap_or(0);
        let name = self.view.set.name().to_owned();
        if self.is_stopped(Area::Update) {
            self.pass.update_rests = true;
        } else if spec.update == UpdateKind::OnDelete {
            if left > 0 {
                self.pass.wait(name, WaitCause::OnDelete { old: left }, None);
            }
        } else if spec.is_paused() {
            if left > 0 {
                self.pass.wait(name, WaitCause::Paused, None);
            }
        } else if self.has_scaled {
            self.pass.update_rests = true;
        } else {
            self.move_pods(diff);
        }
        self.say_what_the_partition_keeps(diff);
    }

    fn move_pods(&mut self, diff: &Diff) {
        let goes_back = diff.back > 0;
        if goes_back {
            self.pass.target = self.pass.current.clone();
        }
        let limit = if goes_back { diff.back } else { diff.forward };
        let candidates = self.candidates(goes_back);
        let mut left = limit;
        let mut brake = diff.brake.max(0);
        let (mut spare, mut spare_ready) = (diff.spare, diff.spare_ready);
        let mut renewals = self.renewals(goes_back);
        let mut is_held_up = false;
        // Pods that this pass begins with, and that are not down yet.
        let mut begun = 0;
        for index in candidates {
            // One that counts as updated already takes no other's place, whether it goes now or has to wait.
            let counts = !self.is_only_abandoned(index, goes_back);
            let is_renewal = !counts && self.members[index].awaits_renewal();
            if counts && left <= 0 {
                continue;
            }
            if is_held_up && !is_renewal {
                left -= i32::from(counts);
                self.members[index].occupant.awaits_budget = true;
                continue;
            }
            let way = self.way(index);
            self.say_if_claims_stay(index, &way);
            match way {
                Way::Barred(reason) => {
                    let pod = self.members[index].occupant.pod.clone();
                    self.pass.bar(&pod, reason);
                    continue;
                }
                Way::Stays => continue,
                Way::Recreate | Way::InPlace(_) => {}
            }
            let member = &self.members[index];
            let leaves_service = member.is_ready() && !self.pass.is_gentle(&member.occupant);
            let is_costly = member.is_available() && leaves_service;
            let name = member.name().to_owned();
            let brake_left = if is_renewal { brake } else { brake - renewals };
            if brake_left <= 0 || is_costly && spare <= 0 || leaves_service && spare_ready <= 0 {
                if !is_held_up {
                    self.hold_up(index, name, brake_left, begun, diff);
                }
                is_held_up = true;
                left -= i32::from(counts);
                self.members[index].occupant.awaits_budget = true;
                continue;
            }
            if self.begin(index, &way) {
                left -= i32::from(counts);
                brake -= 1;
                renewals -= i32::from(is_renewal);
                begun += usize::from(!is_renewal);
                spare -= i32::from(is_costly);
                spare_ready -= i32::from(leaves_service);
            }
        }
    }

    /// How many pods at the target wait to be made again: down already, they hold up all others, and are made again one by one like these.
    fn renewals(&self, goes_back: bool) -> i32 {
        let awaits_renewal = |m: &&Member| m.awaits_renewal() && m.is_new() != goes_back;
        count(self.members.iter().filter(awaits_renewal).count())
    }

    /// Whether the update, if this pass comes to it, begins with a pod that is down. Where nobody knows yet whether pods of the update
    /// revision are accepted, that one proves it, and takes nothing down.
    pub(super) fn one_that_is_down_goes_first(&mut self, diff: &Diff) -> bool {
        if self.is_stopped(Area::Update) || diff.forward <= 0 || diff.brake - self.renewals(false) <= 0 {
            return false;
        }
        let Some(first) = self.candidates(false).into_iter().next() else {
            return false;
        };
        let member = &self.members[first];
        let is_down = !member.is_available() && !member.is_ready() && !member.is_new();
        let may_go = is_down && !self.pass.is_backing_off(&member.scope(), member.name());
        may_go && matches!(self.way(first), Way::Recreate)
    }

    /// Pods that may move to the target, or be made again at it, in their order (CS-16.3 and CS-17).
    fn candidates(&self, goes_back: bool) -> Vec<usize> {
        let mut candidates: Vec<usize> = (0..self.members.len())
            .filter(|&index| {
                let member = &self.members[index];
                let is_on_target = member.is_new() != goes_back;
                let has_to_go = !is_on_target || member.occupant.abandoned.is_some();
                // What was made as surge goes, instead.
                let may_go = member.is_plain()
                    && !member.is_surge
                    && !member.occupant.is_dealt_with
                    && !self.is_coming_back(member);
                has_to_go && may_go && !member.is_in_grace()
            })
            .collect();
        order::sort(&self.view.clones, &self.members, &mut candidates);
        candidates
    }

    /// Whether a pod serves that was taken back from its deletion, and this pass says so: with the next one it costs what any other does.
    fn is_coming_back(&self, member: &Member) -> bool {
        let pod = member.pod();
        let hooks = &self.view.set.spec.lifecycle;
        State::of(pod) == State::PreparingNormal
            && pod.is_running_and_ready()
            && lifecycle::back_to_normal(hooks, pod) == State::Normal
    }

    /// Whether a pod is at the target already, and has to be made again for another reason.
    fn is_only_abandoned(&self, index: usize, goes_back: bool) -> bool {
        let member = &self.members[index];
        member.occupant.abandoned.is_some() && member.is_new() != goes_back
    }

    /// Says why the next pod is not updated, where so many have been begun in this pass.
    fn hold_up(&mut self, index: usize, pod: String, brake: i32, begun: usize, diff: &Diff) {
        let cause = if brake <= 0 {
            let target_is_new = diff.back == 0;
            let held_up = |m: &&Member| (m.brakes() || m.awaits_renewal()) && m.is_new() == target_is_new;
            WaitCause::Brake {
                unavailable: count(self.members.iter().filter(held_up).count() + begun),
            }
        } else {
            // Of one that serves and is not available yet, those count that serve.
            let is_available = self.members[index].is_available();
            let counts = |m: &&Member| if is_available { m.is_available() } else { m.is_ready() };
            WaitCause::KeepsAvailable {
                keep: self.asked.keep(),
                available: count(self.members.iter().filter(counts).count()),
            }
        };
        self.pass.wait(pod, cause, None);
    }

    /// How a pod comes to the target; claim templates that changed with the template may ask for it to be made again (CS-15.6).
    pub(super) fn way(&mut self, index: usize) -> Way {
        let way = self.pass.way(&self.members[index].occupant);
        let may_recreate = self.view.clones.switches.recreate_on_claim_change
            && self.view.set.spec.pod_update_policy() != PodUpdatePolicy::InPlaceOnly;
        if may_recreate && matches!(way, Way::InPlace(_)) && self.has_other_claims(index) {
            return Way::Recreate;
        }
        way
    }

    /// Says that a pod which goes in place keeps claims of other templates.
    fn say_if_claims_stay(&mut self, index: usize, way: &Way) {
        if matches!(way, Way::InPlace(_)) && self.has_other_claims(index) {
            let message = "claim templates have changed with the template: pods that are updated in place keep the claims they have";
            self.pass
                .event_once(true, "ClaimTemplatesNotApplied", message.to_owned());
        }
    }

    /// Whether the claim templates at the target are others than those of the pod's revision; nobody knows where there is no record.
    fn has_other_claims(&self, index: usize) -> bool {
        let label = self.members[index].pod().revision().unwrap_or_default();
        let own = self.pass.revisions.names.named(self.view.set.name(), label);
        let own = own.and_then(|r| r.claim_hash.as_deref());
        own.zip(self.pass.target.claim_hash.as_deref())
            .is_some_and(|(own, target)| own != target)
    }

    /// Begins the update of a pod, or goes on with it. Whether it counts as begun.
    fn begin(&mut self, index: usize, way: &Way) -> bool {
        if matches!(way, Way::InPlace(_)) && !self.may_leave_service(index) {
            return false;
        }
        let member = &mut self.members[index];
        let scope = member.scope();
        match way {
            Way::InPlace(spec) => self.pass.update_in_place(&scope, &mut member.occupant, spec),
            Way::Recreate | Way::Barred(_) | Way::Stays => {
                // One that cannot go now is not the one by which a revision is proved.
                if self.pass.is_backing_off(&scope, member.occupant.pod.name())
                    || !self.is_accepted(index, &self.pass.target.clone())
                {
                    return false;
                }
                let member = &mut self.members[index];
                member.occupant.is_dealt_with = true;
                // The next pass deletes it, within the budget (CS-16.5). As it was seen: on a pod that goes by then for another reason, a
                // mark that comes late would keep its claims for a replacement that nobody makes.
                let body = json!({"metadata": marks::mark()});
                let command = patch(&member.occupant.pod, body, Report::ReCreate);
                let command = of_what_was_seen(&member.occupant.pod, command);
                self.pass.stages.in_place.push(ScopedCommand { scope, command });
                true
            }
        }
    }

    /// Old pods that the partition keeps are waited for by nobody, and that is said.
    fn say_what_the_partition_keeps(&mut self, diff: &Diff) {
        let is_held_at_nothing = self.pass.is_held_at_nothing();
        let has_partition = self.asked.partition > 0 || is_held_at_nothing;
        let updates = self.asked.updates && has_partition && diff.forward == 0;
        let is_kept = |m: &&Member| m.is_plain() && !m.is_new() && !m.is_surge;
        let old = self.members.iter().filter(is_kept).count();
        if updates && (old > 0 || is_held_at_nothing) {
            let subject = self.view.set.name().to_owned();
            self.pass.wait(subject, WaitCause::Partition { kept: old }, None);
        }
    }

    /// How many pods are up, and are left alone by this pass.
    fn up(&self) -> i32 {
        let taken_down = self.pass.taken_down();
        let is_up = |m: &&Member| m.occupant.is_up() && !taken_down.contains(m.name());
        count(self.members.iter().filter(is_up).count())
    }

    /// After the update: whatever pod is not quiet and was not dealt with goes on.
    pub(super) fn tend_courses(&mut self) {
        // What its node cannot give is not asked for again.
        let mut spare = None;
        for member in self.members.iter().filter(|m| !m.occupant.is_stuck) {
            let Some(course) = Course::of(&member.occupant, !member.is_leaving) else {
                continue;
            };
            if course.leaves_service(&self.pass) {
                let spare = spare.get_or_insert_with(|| self.up() - self.asked.keep());
                if *spare <= 0 {
                    let keep = self.asked.keep();
                    let available = keep + *spare;
                    let cause = WaitCause::KeepsAvailable { keep, available };
                    self.pass.wait(member.name().to_owned(), cause, None);
                    continue;
                }
                *spare -= 1;
            }
            self.pass.go_on(&member.scope(), course);
        }
    }

    /// Takes names out of `podsToDelete` under which there is no pod (CS-10.9): that field alone, and only as it was seen.
    pub(super) fn forget_deleted_names(&mut self) {
        let names = &self.view.clones.pods_to_delete;
        let left: Vec<&String> = names.iter().filter(|name| self.view.has_pod(name)).collect();
        if left.len() == names.len() || self.pass.is_backing_off(&Scope::Object, self.view.set.name()) {
            return;
        }
        let path = "/spec/scaleStrategy/podsToDelete";
        let meta = &self.view.set.meta;
        let command = Command::Patch {
            resource: self.view.set.kind.resource(),
            key: meta.key.clone(),
            uid: meta.uid.clone(),
            subresource: None,
            kind: PatchKind::Json,
            body: json!([
                {"op": "test", "path": path, "value": names},
                {"op": "replace", "path": path, "value": left},
            ]),
            resource_version: None,
            guard: None,
            report: Report::Silent,
        };
        let scope = Scope::Object;
        self.pass.stages.history.push(ScopedCommand { scope, command });
    }
}

pub(super) fn patch(pod: &PodRecord, body: Value, report: Report) -> Command {
    Command::Patch {
        resource: Resource::Pods,
        key: pod.meta.key.clone(),
        uid: pod.meta.uid.clone(),
        subresource: None,
        kind: PatchKind::Merge,
        body,
        resource_version: None,
        guard: None,
        report,
    }
}
