//! That no request is repeated at the speed of the network, by what managers really send.
//!
//! Two requests are the same if they say the same, whatever version they expect and whatever time they note, for the same generation of
//! the set. More than two repetitions a second are too many, whatever happens; and more than a few a minute are, if nobody but managers
//! has changed anything meanwhile.

use super::{Verdict, require};
use flotilla_engine::core::request::Call;
use flotilla_model::Command;
use std::collections::BTreeMap;

/// The same request within a second, at most: the first, and two repetitions.
const A_SECOND_MAX: usize = 3;
/// The same request within a minute in which only managers changed anything: eight if each wait is twice the one before, and three times
/// as many, since a manager may hear late, and of one kind after the other, of what happened before.
const A_MINUTE_MAX: usize = 24;

/// What one manager has sent in one life.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// When each request was sent, not longer ago than a minute.
    at_ms: BTreeMap<String, Vec<u64>>,
}

impl Sent {
    /// The manager sends a write, decided for this generation of the set as far as that is known.
    pub(crate) fn note(&mut self, call: &Call, generation: Option<i64>, now_ms: u64, changed_at_ms: u64) -> Verdict {
        let Some(text) = in_words(call) else { return Ok(()) };
        let text = format!("{text} (generation {generation:?})");
        let moments = self.at_ms.entry(text).or_default();
        moments.retain(|at_ms| at_ms + 60_000 > now_ms);
        moments.push(now_ms);
        let within = |since_ms: u64| moments.iter().filter(|at_ms| **at_ms > since_ms).count();
        let in_second = within(now_ms.saturating_sub(1_000));
        let unprovoked = within(now_ms.saturating_sub(60_000).max(changed_at_ms));
        let is_too_often = now_ms > 1_000 && in_second > A_SECOND_MAX || unprovoked > A_MINUTE_MAX;
        require(!is_too_often, "9 repetition", || {
            let verb = in_words(call).unwrap_or_default();
            format!("{in_second} times within a second, and {unprovoked} times since anybody else did anything: {verb}")
        })
    }
}

/// A write in words, without the version that it expects and without moments.
fn in_words(call: &Call) -> Option<String> {
    let words = match call {
        Call::Write(Command::Create {
            resource, key, body, ..
        }) => format!("create {resource} {key} {}", body.render()),
        Call::Write(Command::Patch {
            resource,
            key,
            uid,
            subresource,
            body,
            ..
        }) => format!("patch {resource} {key} {uid} {subresource:?} {body}"),
        Call::Write(Command::Try { pod }) => format!("try {} {}", pod.key, pod.render()),
        Call::Write(Command::Delete { resource, key, uid, .. }) => format!("delete {resource} {key} {uid}"),
        Call::Status(patch) => format!("status {} {} {} {}", patch.resource, patch.key, patch.uid, patch.status),
        Call::Write(Command::Read { .. }) | Call::Get { .. } | Call::Lease(_) | Call::Event(_) => return None,
    };
    Some(without_moments(&words))
}

/// A claim is taken at the version that was seen. The simulated world lives in one year, so that moments are found by it.
fn without_moments(text: &str) -> String {
    without_numbers_after("taken-at-version\":\"", &without_numbers_after("2026-", text))
}

fn without_numbers_after(mark: &str, text: &str) -> String {
    let mut parts = text.split(mark);
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        rest.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit() || "-:.TZ".contains(c)));
    }
    rest
}
