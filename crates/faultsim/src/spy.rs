//! The controllers as the simulator runs them: the real ones, each decision remembered with the set that it was made from.
//!
//! A request that is checked against the true state of the cluster is checked against the specification that its decision has seen:
//! nobody can know of an edit before being told. Planted defects alter what the controller sees or says here.

use crate::clones::defect::older;
use crate::clones::defect::{CloneDefect, claims_seen, revisions_seen};
use crate::clones::view;
use crate::defect::{Altered, Defect};
use crate::judge::switched::Seen;
use crate::judge::view::Sight;
use crate::judge::{Verdict, bounds, history};
use crate::theirs;
use crate::words;
use flotilla_model::decision::Scope;
use flotilla_model::{
    Change, Command, Controller, Decision, Failure, Hints, ObjectKey, PassContext, Reader, Resource, SetKind,
    SetRecord, Timestamp, Wait, WaitCause,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Decisions remembered. Commands of a pass are sent within a second of the decision, in which there are at most a few.
const DECISIONS_MAX: usize = 32;

/// A decision, and the set as it was seen.
#[derive(Debug)]
pub(crate) struct Decided {
    /// The set that was seen.
    pub(crate) set: Arc<SetRecord>,
    /// What was decided.
    pub(crate) decision: Decision,
    /// When, by the manager's clock.
    pub(crate) now: Timestamp,
}

/// What is known of one manager's decisions.
#[derive(Debug, Default)]
struct Known {
    recent: VecDeque<Arc<Decided>>,
    /// Lines for the trace, each with what the judge says.
    news: Vec<(String, Verdict)>,
    /// What the last decision waits for.
    waits: Vec<Wait>,
    /// Which revisions pods had when they were seen last.
    seen: Seen,
}

/// The last decisions of one manager.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decisions {
    // Controllers are shared between threads, and so is what they hold, though a run has but one.
    known: Arc<Mutex<Known>>,
}

impl Decisions {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest decision that asks for this command.
    pub(crate) fn that_asked_for(&self, command: &Command) -> Option<Arc<Decided>> {
        let known = self.lock();
        let asks = |decided: &&Arc<Decided>| decided.decision.commands().any(|c| c.command == *command);
        known.recent.iter().rev().find(asks).cloned()
    }

    /// Whether the last decision says of a pod, or of anything if none is named, what is in its way.
    pub(crate) fn say_why(&self, pod: Option<&str>) -> bool {
        let concerns = |wait: &Wait| !wait.cause.is_intended() && pod.is_none_or(|pod| wait.subject == pod);
        self.lock().waits.iter().any(concerns)
    }

    /// Whether the last decision says that pods of the new revision are not accepted: then the update takes none away.
    pub(crate) fn say_that_none_is_accepted(&self) -> bool {
        let of_revision = |wait: &Wait| {
            matches!(
                wait.cause,
                WaitCause::RevisionUnproven { .. } | WaitCause::RevisionRefused { .. }
            )
        };
        self.lock().waits.iter().any(of_revision)
    }

    /// Which revisions pods had when earlier passes saw them, unless that is forgotten now.
    fn seen(&self, forgets: bool) -> Seen {
        let mut known = self.lock();
        if forgets {
            known.seen.forget();
        }
        known.seen.clone()
    }

    /// What was decided since this was asked last.
    pub(crate) fn take_news(&self) -> Vec<(String, Verdict)> {
        std::mem::take(&mut self.lock().news)
    }
}

/// A controller that remembers; see the module's description.
pub(crate) struct Spy {
    pub(crate) inner: Box<dyn Controller>,
    pub(crate) kind: SetKind,
    /// Whether the set is declared with the type OnDelete.
    pub(crate) is_on_delete: bool,
    /// Whether gate `PreparingUpdateAsUpdate` should be on.
    pub(crate) prepared_as_updated: bool,
    pub(crate) decisions: Decisions,
    pub(crate) defect: Option<Defect>,
    pub(crate) clone_defect: Option<CloneDefect>,
    /// Whether decisions are put into words.
    pub(crate) is_told: bool,
    /// Until then, by its manager's clock, it forgets everything now and then.
    pub(crate) forgets_until: Timestamp,
}

impl Spy {
    /// What the controller remembers, if it is not what it should: hints may be lost at any moment without harm.
    fn altered_hints(&self, reader: &dyn Reader, set: &SetRecord, context: PassContext<'_>) -> Option<Hints> {
        if self.defect == Some(Defect::RepeatAtOnce) {
            return Some(Hints {
                failures: BTreeMap::new(),
                ..context.hints.clone()
            });
        }
        let mut accepted = BTreeSet::new();
        if self.defect == Some(Defect::NoTrial) {
            let revisions = reader.revisions_of(set.as_owner());
            accepted.extend(revisions.iter().map(|r| r.name().to_owned()));
        } else if self.defect == Some(Defect::QuotaProves) {
            let refused = context
                .hints
                .failures
                .iter()
                .filter(|(_, f)| f.reason == Failure::QUOTA_EXCEEDED);
            accepted.extend(refused.filter_map(|(scope, _)| match scope {
                Scope::Acceptance(made_of) => Some(made_of.clone()),
                _ => None,
            }));
            accepted.extend(context.hints.accepted.iter().cloned());
        } else {
            // What was refused, is held back, or may still arrive, the core goes by as well: that goes with its manager.
            let forgets = context.now < self.forgets_until && context.entropy.is_multiple_of(8);
            return forgets.then(|| Hints {
                generation: context.hints.generation,
                failures: context.hints.failures.clone(),
                repeated: context.hints.repeated.clone(),
                arrivals_until: context.hints.arrivals_until,
                ..Hints::default()
            });
        }
        Some(Hints {
            accepted,
            ..context.hints.clone()
        })
    }

    fn remember(&self, set: &Arc<SetRecord>, decision: &Decision, now: Timestamp, verdict: Verdict) {
        let mut known = self.decisions.lock();
        if self.is_told || verdict.is_err() {
            let line = if self.is_told {
                words::decision(set, decision)
            } else {
                String::new()
            };
            known.news.push((line, verdict));
        }
        known.waits.clone_from(&decision.waits);
        if decision.stages.is_empty() {
            return;
        }
        if known.recent.len() >= DECISIONS_MAX {
            known.recent.pop_front();
        }
        known.recent.push_back(Arc::new(Decided {
            set: set.clone(),
            decision: decision.clone(),
            now,
        }));
    }
}

impl Controller for Spy {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn resource(&self) -> Resource {
        self.inner.resource()
    }

    fn route(&self, change: &Change, reader: &dyn Reader, keys: &mut Vec<ObjectKey>) {
        self.inner.route(change, reader, keys);
    }

    fn reconcile(&self, reader: &dyn Reader, key: &ObjectKey, context: PassContext<'_>) -> Option<Decision> {
        let set = reader.set(self.kind, key)?.clone();
        let hints = self.altered_hints(reader, &set, context);
        let context = PassContext {
            hints: hints.as_ref().unwrap_or(context.hints),
            ..context
        };
        let decision = match (self.defect, self.clone_defect) {
            (None, None) => self.inner.reconcile(reader, key, context)?,
            (None, Some(defect)) => {
                let seen = defect.altered(&set, reader.pods_of(set.as_owner()));
                let altered = Altered::of(reader, seen, claims_seen(defect, reader, &set));
                let altered = altered.with_pods(older::pods_seen(defect, reader, &set));
                let altered = altered.with_revisions(revisions_seen(defect, reader, &set));
                let mut decision = self.inner.reconcile(&altered, key, context)?;
                defect.spoil(&mut decision, reader, &set);
                defect.forget(&mut decision, context.hints);
                decision
            }
            (Some(defect), _) => {
                let altered = Altered::new(defect, reader, &set);
                let mut decision = self.inner.reconcile(&altered, key, context)?;
                defect.spoil(&mut decision, reader, &set, context.now);
                decision
            }
        };
        let forgets = hints.as_ref().is_some_and(|hints| hints.last_revision.is_empty());
        let seen = self.decisions.seen(forgets);
        let sight = Sight {
            set: &set,
            reader,
            now: context.now,
            hints: context.hints,
            observing_since: context.observing_since,
            seen: &seen,
            is_on_delete: self.is_on_delete,
            prepared_as_updated: self.prepared_as_updated,
        };
        let verdict = match self.kind {
            SetKind::Clone => view::judge(&sight, &decision),
            SetKind::Native | SetKind::Advanced => sight.judge(&decision),
        };
        let verdict = verdict.and_then(|()| history::in_order(&sight, &decision));
        let verdict = verdict.and_then(|()| bounds::are_kept(&decision, &sight));
        self.decisions.lock().seen.note(&set, reader);
        let verdict = verdict.and_then(|()| theirs::nothing_shrinks(reader, &decision));
        self.remember(&set, &decision, context.now, verdict);
        Some(decision)
    }
}
