//! What a pass looks at, and what it does before it can make a plan: the revision is made.

use crate::shared::conditions;
use crate::shared::revision::{self, Revisions};
use flotilla_model::decision::{Scope, ScopedCommand, Stage};
use flotilla_model::set::Area;
use flotilla_model::{Decision, Hints, OwnerRef, SetRecord, Timestamp, Wait, WaitCause};

/// The set, and the moment at which it is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Moment<'v> {
    pub(crate) set: &'v SetRecord,
    /// The reference to the set that what it owns carries.
    pub(crate) owner: &'v OwnerRef,
    /// The one clock value of the pass.
    pub(crate) now: Timestamp,
    /// Since when this process has been watching.
    pub(crate) observing_since: Timestamp,
    /// What earlier passes remembered.
    pub(crate) hints: &'v Hints,
    /// Whether resources of running pods can be changed.
    pub(crate) supports_resize: bool,
}

impl<'v> Moment<'v> {
    /// The set as the owner of revisions.
    pub(crate) fn revision_owner(self) -> revision::Owner<'v> {
        let set = self.set;
        revision::Owner {
            key: &set.meta.key,
            reference: self.owner,
            resource: set.kind.resource(),
            selector: &set.spec.selector,
            template: &set.spec.template,
            digest: set.spec.template_digest,
            annotations: &set.annotations,
            claim_templates: &set.spec.claim_templates,
            claim_hash: None,
            current: set.status_text("currentRevision"),
            updated: set.status_text("updateRevision"),
            collision_count: set.status_count("collisionCount"),
            is_young: self.now.since(set.meta.created) < revision::MOVES_WITHIN,
        }
    }

    /// A wait for each field that cannot be read and that stops something.
    pub(crate) fn unreadable_fields(self) -> Vec<Wait> {
        let stopping = self.set.spec.problems.iter().filter(|p| p.stops != Area::Nothing);
        let wait = |p: &flotilla_model::set::FieldProblem| Wait {
            subject: self.set.name().to_owned(),
            cause: WaitCause::FieldUnreadable {
                path: p.path.clone(),
                found: p.found.clone(),
                rule: p.rule.to_owned(),
            },
            since: None,
        };
        stopping.map(wait).collect()
    }

    /// The update revision does not exist yet. Everything else rests on its name, so it comes first; the pass that follows does the rest.
    /// The status is left to the kind.
    pub(crate) fn create_revision_first(self, revisions: &Revisions) -> Decision {
        let mut decision = Decision {
            waits: self.unreadable_fields(),
            ..Decision::default()
        };
        if let Some(former) = &revisions.leaving {
            decision.waits.push(Wait {
                subject: former.name().to_owned(),
                cause: WaitCause::RevisionLeaving,
                since: Some(self.set.meta.created),
            });
            let age = self.now.since(self.set.meta.created);
            if age < revision::MOVES_WITHIN {
                decision.wake_within(revision::MOVES_WITHIN.saturating_sub(age));
            }
        }
        let failure = self
            .hints
            .failures
            .get(&Scope::Object)
            .filter(|f| f.retry_at > self.now);
        match failure.filter(|_| self.hints.generation == self.set.generation) {
            Some(failure) => {
                decision.wake_within(failure.retry_at.since(self.now));
                decision.waits.push(Wait {
                    subject: self.set.name().to_owned(),
                    cause: failure.wait_cause(),
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
        if let Some(delay) = conditions::next_report(self, self.hints, &decision.waits) {
            decision.wake_within(delay);
        }
        decision
    }
}
