//! What is remembered of a key between its passes.

use super::pace::Pace;
use super::refusals::Tried;
use super::running::ActivePass;
use super::{Core, QueueKey};
use flotilla_model::{Failure, Hints, Scope, Stage, Timestamp, Uid};
use std::collections::BTreeMap;

/// What is remembered of a key between passes. All of it may be lost without harm.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) uid: Option<Uid>,
    pub(super) hints: Hints,
    pub(super) last_pass: Option<Timestamp>,
    pub(super) pace: Pace,
    pub(super) last_status: Option<Timestamp>,
    /// Since when passes have not ended well, for a read or a status that failed.
    pub(super) trouble_since: Option<Timestamp>,
}

impl Core {
    /// Memory belongs to one incarnation, and failures to one generation: an edit may have removed their cause.
    pub(super) fn remember(&mut self, key: &QueueKey, uid: Option<Uid>, now: Timestamp) {
        let generation = self.generation_of(key);
        let memory = self.memory.entry(key.clone()).or_default();
        if memory.uid != uid {
            *memory = Memory {
                uid,
                ..Memory::default()
            };
        }
        if memory.hints.generation != generation {
            memory.hints.failures.clear();
            memory.hints.repeated.clear();
            memory.hints.generation = generation;
        }
        self.note_pass(key, now);
    }

    pub(super) fn keep_hints(&mut self, key: &QueueKey, hints: Option<Hints>) {
        if let (Some(hints), Some(memory)) = (hints, self.memory.get_mut(key)) {
            memory.hints = hints;
        }
    }

    pub(super) fn keep_failures(&mut self, active: &ActivePass, now: Timestamp) {
        let set_back = self.clock_steps.back;
        let shown = self.wall(now);
        let Some(memory) = self.memory.get_mut(&active.key) else {
            return;
        };
        for scope in active.pass.went_well() {
            memory.hints.failures.remove(scope);
            if let Scope::Acceptance(made_of) = scope {
                memory.hints.accepted.insert(made_of.clone());
            }
        }
        for (scope, rejection) in active.pass.rejected() {
            let (reason, message) = (rejection.reason.clone(), rejection.message.clone());
            let subject = match scope {
                Scope::Slot(ordinal) => format!("{}-{ordinal}", active.key.key.name),
                Scope::Named(name) => name.clone(),
                Scope::Acceptance(made_of) => Scope::revision_tried(made_of).to_owned(),
                Scope::Object => active.key.key.name.to_string(),
            };
            self.refusals
                .note(&active.key, Tried::Write, &subject, (&reason, &message), now);
            let mut failure = Failure::follow(
                memory.hints.failures.get(scope),
                rejection.attempt,
                reason,
                message,
                shown,
            );
            // What holds nothing back is tried again by the next pass, which the queue and the limiter put off.
            failure.retry_at = match rejection.not_before {
                _ if !rejection.holds_back => shown,
                Some(at) => failure.retry_at.max(at - set_back),
                None => failure.retry_at,
            };
            memory.hints.note_failure(scope.clone(), failure, shown);
        }
        memory.hints.repeated.retain(|_, held| held.retry_at > shown);
        let held = active.held.iter().map(|(scope, held)| {
            let shown = Failure {
                since: held.since - set_back,
                retry_at: held.retry_at - set_back,
                ..held.clone()
            };
            (scope.clone(), shown)
        });
        memory.hints.repeated.extend(held);
    }
}

/// With slow start, what failed the last time comes last: what fails ever again keeps nothing else from being tried. Where one
/// failure stops all the others, their order is the user's.
pub(super) fn put_failed_last(stages: &mut [Stage], failures: &BTreeMap<Scope, Failure>) {
    for stage in stages.iter_mut().filter(|stage| stage.slow_start && !stage.all_or_stop) {
        stage
            .commands
            .sort_by_key(|command| failures.get(&command.scope).map(|failure| failure.retry_at));
    }
}
