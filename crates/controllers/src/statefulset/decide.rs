//! One pass over a set: the steps, in the order in which they matter.

use super::fill::Flow;
use super::plan::Plan;
use super::status;
use super::view::View;
use crate::shared::{adoption, revision};
use flotilla_model::decision::{Command, Scope, ScopedCommand, Stage};
use flotilla_model::set::{Area, UpdateKind};
use flotilla_model::{Decision, Resource, Wait, WaitCause};

/// Decides what to do for the set of `view`.
pub fn decide(view: &View<'_>) -> Decision {
    if view.set.is_deleted() || view.set.spec.is_stopped(Area::Everything) {
        // Deletion: the garbage collector takes the pods, or they are orphaned on purpose (rule 2.3 step 6). A set whose selector or
        // template cannot be read: nothing is done that rests on it (rule 3.4).
        return status_only(view);
    }
    let revisions = revision::resolve(revision_owner(view), view.revisions.clone(), |name| {
        view.revision_named(name)
    });
    let Some(update) = revisions.update.clone() else {
        return create_revision_first(view, &revisions);
    };
    let mut plan = Plan::new(view, revisions, update);
    plan.claim_objects();
    plan.mark_storage();
    plan.judge_courses();
    let flow = plan.fill();
    let flow = plan.scale_down(flow);
    plan.tend_claims();
    plan.recreate_specified();
    // Recreate waits for no order: the broken pod that holds everything up may be the very one to go (rule 2.6).
    if view.set.spec.is_monotonic() && flow == Flow::Blocked && !plan.is_recreating() {
        plan.resume();
        plan.unblock();
    } else {
        plan.update();
    }
    plan.tend_courses();
    plan.drop_history();
    plan.forget_failures();
    plan.remember();
    plan.note_unreadable_fields();
    plan.date_waits();
    let status = status::of(&plan);
    plan.into_decision(status)
}

/// The set as the owner of revisions.
fn revision_owner<'v>(view: &'v View<'_>) -> revision::Owner<'v> {
    let set = &view.set;
    revision::Owner {
        key: &set.meta.key,
        reference: &view.owner,
        resource: set.kind.resource(),
        template: &set.spec.template,
        digest: set.spec.template_digest,
        annotations: &set.annotations,
        claim_templates: &set.spec.claim_templates,
        current: set.status_text("currentRevision"),
        collision_count: set.status_count("collisionCount"),
        is_young: view.now.since(set.meta.created) < revision::MOVES_WITHIN,
    }
}

/// Nothing but the status, and why.
fn status_only(view: &View<'_>) -> Decision {
    let waits = unreadable_fields(view);
    Decision {
        status: Some(status::without_plan(view, None, &waits)),
        waits,
        ..Decision::default()
    }
}

/// The update revision does not exist yet. Everything else rests on its name, so it comes first; the pass that follows does the rest.
fn create_revision_first(view: &View<'_>, revisions: &revision::Revisions) -> Decision {
    let mut decision = Decision {
        waits: unreadable_fields(view),
        ..Decision::default()
    };
    if let Some(former) = &revisions.leaving {
        decision.waits.push(Wait {
            subject: former.name().to_owned(),
            cause: WaitCause::RevisionLeaving,
            since: Some(view.set.meta.created),
        });
        let age = view.now.since(view.set.meta.created);
        if age < revision::MOVES_WITHIN {
            decision.wake_within(revision::MOVES_WITHIN.saturating_sub(age));
        }
    }
    let failure = view
        .hints
        .failures
        .get(&Scope::Object)
        .filter(|f| f.retry_at > view.now);
    match failure.filter(|_| view.hints.generation == view.set.generation) {
        Some(failure) => {
            decision.wake_within(failure.retry_at.since(view.now));
            decision.waits.push(Wait {
                subject: view.set.name().to_owned(),
                cause: WaitCause::Refused {
                    reason: failure.reason.clone(),
                    message: failure.message.clone(),
                    retry_at: failure.retry_at,
                },
                since: Some(failure.since),
            });
        }
        None => {
            let scoped = |command| ScopedCommand {
                scope: Scope::Object,
                command,
            };
            let commands = revisions.commands.iter().cloned().map(scoped).collect();
            decision.stages.push(Stage {
                name: "claim",
                commands,
                all_or_stop: true,
                slow_start: false,
            });
        }
    }
    if let Some(delay) = status::next_report(view, view.hints, &decision.waits) {
        decision.wake_within(delay);
    }
    decision.status = Some(status::without_plan(view, Some(revisions), &decision.waits));
    decision
}

/// A wait for each field that cannot be read and that stops something.
pub(super) fn unreadable_fields(view: &View<'_>) -> Vec<Wait> {
    let stopping = view.set.spec.problems.iter().filter(|p| p.stops != Area::Nothing);
    let wait = |p: &flotilla_model::set::FieldProblem| Wait {
        subject: view.set.name().to_owned(),
        cause: WaitCause::FieldUnreadable {
            path: p.path.clone(),
            found: p.found.clone(),
            rule: p.rule.to_owned(),
        },
        since: None,
    };
    stopping.map(wait).collect()
}

impl Plan<'_> {
    /// Step *claim*: pods and revisions are adopted and released.
    fn claim_objects(&mut self) {
        let view = self.view;
        let commands = std::mem::take(&mut self.revisions.commands);
        // A revision that cannot be adopted does not hold up the pods; it is tried again.
        for command in commands {
            self.claim_object(command);
        }
        for pod in &view.to_release {
            self.claim_object(adoption::release(Resource::Pods, &pod.meta, &view.set.meta.uid));
        }
        for pod in &view.to_adopt {
            let resource = view.set.kind.resource();
            self.claim_object(adoption::adopt(Resource::Pods, &pod.meta, &view.owner, resource));
        }
    }

    /// Adds a claiming command, unless it failed a moment ago.
    fn claim_object(&mut self, command: Command) {
        let name = command.key().name.to_string();
        let scope = Scope::Named(name.clone());
        let failure = self
            .hints
            .failures
            .get(&scope)
            .filter(|f| f.retry_at > self.view.now)
            .cloned();
        match failure {
            None => self.stages.claim.push(ScopedCommand { scope, command }),
            Some(f) => {
                self.held_back.insert(scope);
                self.wake_within(f.retry_at.since(self.view.now));
                let cause = WaitCause::Refused {
                    reason: f.reason,
                    message: f.message,
                    retry_at: f.retry_at,
                };
                self.wait(name, cause, Some(f.since));
            }
        }
    }

    /// Whether all pods of old revisions have to be gone before the first new one is made.
    pub(super) fn is_recreating(&self) -> bool {
        self.view.set.spec.update == UpdateKind::Recreate
    }

    /// Revisions beyond the limit that nobody uses go.
    fn drop_history(&mut self) {
        let view = self.view;
        // Pods that are being adopted count: they are ours by the time the revision would go.
        let in_use = view.pods().chain(&view.to_adopt).filter_map(|pod| pod.revision());
        let limit = view.set.spec.history_limit;
        for command in revision::truncate(&self.revisions, limit, &view.set.meta.uid, in_use) {
            let scope = Scope::Named(command.key().name.to_string());
            if self.hints.failures.get(&scope).is_none_or(|f| f.retry_at <= view.now) {
                self.stages.history.push(ScopedCommand { scope, command });
            } else {
                self.held_back.insert(scope);
            }
        }
    }

    /// What the next pass should know.
    fn remember(&mut self) {
        let spec = &self.view.set.spec;
        if spec.scale_max_unavailable.is_some() {
            let wanted = |ordinal: &i64| self.hints.held.contains(*ordinal);
            let settled = self.slots.iter().filter(|s| {
                let doomed = s.occupant.as_ref().is_some_and(|o| o.doomed && o.health.is_available());
                s.is_available() || doomed || wanted(&s.ordinal)
            });
            self.hints.held = settled.map(|s| s.ordinal).collect();
        }
        if spec.switches.paused_keeps_revision {
            let wanted = &self.view.ordinals;
            self.hints.last_revision.retain(|ordinal, _| wanted.contains(*ordinal));
            for slot in &self.slots {
                if let Some(revision) = slot.occupant.as_ref().and_then(|o| o.pod.revision()) {
                    self.hints.last_revision.insert(slot.ordinal, revision.into());
                }
            }
        }
    }

    /// Fields that cannot be read are told in an event, once for each state of the set's spec.
    fn note_unreadable_fields(&mut self) {
        self.waits.splice(0..0, unreadable_fields(self.view));
        for problem in &self.view.set.spec.problems {
            let message = format!("{} holds {}, and {}", problem.path, problem.found, problem.rule);
            self.event_once(true, "UnreadableField", message);
        }
        let spec_problems = !self.view.set.spec.problems.is_empty();
        if !spec_problems && self.waits.is_empty() {
            self.hints.reported.clear();
        }
    }

    /// An event that is not repeated while nothing about it changes.
    pub(super) fn event_once(&mut self, warning: bool, reason: &'static str, message: String) {
        if self.hints.reported.insert(format!("{reason}: {message}")) {
            self.events.push(flotilla_model::EventNote {
                warning,
                reason,
                message,
            });
        }
    }
}
