//! What becomes of a pass that did not end well: who is told of it, and when it is tried again.

use super::Core;
use super::pass::{Trouble, TroubledRequest};
use super::refusals::Tried;
use super::running::ActivePass;
use flotilla_model::{EventNote, Timestamp};
use std::time::Duration;

/// A request that fails without being refused is told as an event once this has gone on for so long.
const TROUBLE_UNTOLD: Duration = Duration::from_secs(10);

impl Core {
    pub(super) fn panicked(&mut self, active: ActivePass, message: String, now: Timestamp) {
        self.metrics.panics += 1;
        let note = EventNote {
            warning: true,
            reason: "InternalError",
            message: format!(
                "Flotilla cannot decide what to do next with this object, which is a defect of Flotilla; please report it. It is tried again: \
                 {message}"
            ),
        };
        self.events.note(&active.regarding, note, now);
        let trouble = Trouble {
            request: None,
            message: format!("the controller panicked: {message}"),
            retry_at: None,
        };
        self.failed(&active, &trouble, now);
        self.end(&active, "panic", now);
    }

    pub(super) fn failed(&mut self, active: &ActivePass, trouble: &Trouble, now: Timestamp) {
        self.tell_trouble(active, trouble, now);
        match &trouble.request {
            Some(TroubledRequest {
                tried,
                subject,
                refused: Some(reason),
            }) => {
                let said = (reason.as_str(), trouble.message.as_str());
                self.refusals.note(&active.key, *tried, subject, said, now);
            }
            _ => self.last_trouble = Some((active.key.clone(), trouble.sentence())),
        }
        match trouble.retry_at {
            Some(at) => self
                .turns
                .of(&active.key)
                .add_at(active.key.clone(), active.priority, at, now),
            None => {
                self.turns
                    .of(&active.key)
                    .add_failed(active.key.clone(), active.priority, now);
            }
        }
    }

    /// An event says what keeps the set from being looked after, since its status cannot: at once what was refused, and the rest once it
    /// has gone on for some time, as an API server that restarts fails a request of everybody.
    fn tell_trouble(&mut self, active: &ActivePass, trouble: &Trouble, now: Timestamp) {
        let Some(request) = &trouble.request else { return };
        let memory = self.memory.get_mut(&active.key);
        let since = memory.map_or(now, |memory| *memory.trouble_since.get_or_insert(now));
        if request.refused.is_none() && now < since + TROUBLE_UNTOLD {
            return;
        }
        let note = EventNote {
            warning: true,
            reason: match request.tried {
                Tried::Status => "FailedUpdateStatus",
                Tried::Read => "FailedRead",
                Tried::Write => "FailedUpdate",
            },
            message: format!("{}; it is tried again", trouble.sentence()),
        };
        self.events.note(&active.regarding, note, now);
    }

    /// Whether something was refused in this pass that had not been before.
    pub(super) fn finds_more_refused(&self, active: &ActivePass) -> bool {
        let failures = self.memory.get(&active.key).map(|memory| &memory.hints.failures);
        let is_new = |scope| {
            failures
                .and_then(|failures| failures.get(scope))
                .is_some_and(|f| f.count == 1)
        };
        active.pass.rejected().keys().any(is_new)
    }
}

pub(super) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}
