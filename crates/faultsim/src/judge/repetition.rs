//! That no request is repeated at the speed of the network, by what managers really send.
//!
//! Two requests are the same if they say the same, whatever version they expect and whatever time they note, for the same generation of
//! the set. More than two repetitions a second are too many, whatever happens; and more than a few a minute are, if the manager has heard
//! of nothing meanwhile but of what it did itself, and was not told to come again by a server that was too busy. Of objects whose names are made up those count that are refused, once a pass.

use super::{Verdict, require};
use crate::clones::truth::INSTANCE_ID;
use crate::spy::Decided;
use crate::takers;
use flotilla_engine::core::request::Call;
use flotilla_model::{Command, Resource, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The same request within a second, at most: the first, and two repetitions.
const A_SECOND_MAX: usize = 3;
/// The same request within a minute in which a manager hears of nothing that others did: the first, one at once, and then each after twice
/// the time that the one before it waited.
const A_MINUTE_MAX: usize = 8;

/// When a request was sent.
#[derive(Debug)]
struct Moment {
    at_ms: u64,
    /// It does not count within a minute. The server was too busy for it, and said when to try again (429 with Retry-After): that it comes
    /// again then is what the server asks for. Or the server has accepted another of the kind since.
    is_excused: bool,
}

/// What one manager has sent in one life, and heard.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// When each request was sent, not longer ago than a minute.
    at_ms: BTreeMap<String, Vec<Moment>>,
    /// When it last heard of anything that was not its own doing.
    heard_at_ms: u64,
    /// The versions of its own doing, of which it knows by the answers.
    own: BTreeSet<u64>,
    /// The pass in which one of many equal objects was refused last.
    refused_in: Option<Timestamp>,
    /// When it made pods, not longer ago than a minute, and for which generation of the set.
    made_at_ms: VecDeque<(u64, i64)>,
}

impl Sent {
    /// The manager's clock has moved on: whatever it sent was long ago for it, and what waited for its time need not wait any more.
    pub(crate) fn was_long_ago(&mut self) {
        self.at_ms.clear();
        self.made_at_ms.clear();
    }

    /// The manager sends a write, decided for this generation of the set as far as that is known.
    pub(crate) fn note(&mut self, call: &Call, generation: Option<i64>, now_ms: u64) -> Verdict {
        // Many are made that are equal but for their names: these count when they are refused.
        if matches!(call, Call::Write(Command::Create { .. })) && made_up(call).is_some() {
            return Ok(());
        }
        self.count(call, generation, now_ms)
    }

    /// A write is refused that was decided so.
    pub(crate) fn refused(&mut self, call: &Call, decided: &Decided, now_ms: u64) -> Verdict {
        let is_one_of_many = matches!(call, Call::Write(Command::Create { .. })) && made_up(call).is_some();
        if !is_one_of_many || self.refused_in.replace(decided.now) == Some(decided.now) {
            return Ok(());
        }
        self.count(call, Some(decided.set.generation), now_ms)
    }

    /// The server accepted one of many that are equal but for their names. Others of them were refused before, so that it has changed its
    /// mind: that is news, also where nobody else tells of it.
    pub(crate) fn accepted(&mut self, call: &Call, decided: &Decided) {
        let is_one_of_many = matches!(call, Call::Write(Command::Create { .. })) && made_up(call).is_some();
        let text = in_words(call).filter(|_| is_one_of_many);
        let moments = text.and_then(|text| self.at_ms.get_mut(&of_generation(&text, Some(decided.set.generation))));
        moments
            .into_iter()
            .flatten()
            .for_each(|moment| moment.is_excused = true);
    }

    /// A write was accepted. Pods that do not last are made again ever more slowly, whoever takes them away and under whatever names.
    pub(crate) fn made(&mut self, call: &Call, decided: &Decided, now_ms: u64) -> Verdict {
        let is_pod = |command: &Command| {
            matches!(
                command,
                Command::Create {
                    resource: Resource::Pods,
                    ..
                }
            )
        };
        if !matches!(call, Call::Write(command) if is_pod(command)) {
            return Ok(());
        }
        let generation = decided.set.generation;
        self.made_at_ms
            .retain(|(at_ms, of)| at_ms + 60_000 > now_ms && *of == generation);
        self.made_at_ms.push_back((now_ms, generation));
        takers::are_few(self.made_at_ms.len(), &decided.set)
    }

    /// The server is too busy for the write that was sent last of those that say this.
    pub(crate) fn throttled(&mut self, call: &Call, generation: Option<i64>) {
        let moments = in_words(call).and_then(|text| self.at_ms.get_mut(&of_generation(&text, generation)));
        if let Some(last) = moments.and_then(|moments| moments.last_mut()) {
            last.is_excused = true;
        }
    }

    /// What came of a request of its own, and it will hear so.
    pub(crate) fn own(&mut self, versions: impl IntoIterator<Item = u64>) {
        self.own.extend(versions);
    }

    /// The manager hears of a change.
    pub(crate) fn hears(&mut self, version: u64, now_ms: u64) {
        if !self.own.contains(&version) {
            self.heard_at_ms = now_ms;
        }
    }

    /// The manager cannot tell any more what is its own doing.
    pub(crate) fn hears_of_others(&mut self, now_ms: u64) {
        self.heard_at_ms = now_ms;
    }

    fn count(&mut self, call: &Call, generation: Option<i64>, now_ms: u64) -> Verdict {
        let Some(text) = in_words(call) else { return Ok(()) };
        let moments = self.at_ms.entry(of_generation(&text, generation)).or_default();
        moments.retain(|moment| moment.at_ms + 60_000 > now_ms);
        moments.push(Moment {
            at_ms: now_ms,
            is_excused: false,
        });
        let within = |since_ms: u64| moments.iter().filter(move |moment| moment.at_ms > since_ms);
        let in_second = within(now_ms.saturating_sub(1_000)).count();
        let alone_ms = now_ms.saturating_sub(60_000).max(self.heard_at_ms);
        let unprovoked = within(alone_ms).filter(|moment| !moment.is_excused).count();
        let is_too_often = now_ms > 1_000 && in_second > A_SECOND_MAX || unprovoked > A_MINUTE_MAX;
        require(!is_too_often, "STS-1.7 repetition", || {
            let verb = in_words(call).unwrap_or_default();
            format!("{in_second} times within a second, and {unprovoked} times since it heard of anything else: {verb}")
        })
    }
}

fn of_generation(text: &str, generation: Option<i64>) -> String {
    format!("{text} (generation {generation:?})")
}

/// What is made up in the names of a new object.
fn made_up(call: &Call) -> Option<String> {
    let object = match call {
        Call::Write(Command::Create { body, .. }) => body.render(),
        Call::Write(Command::Try { pod }) => pod.render(),
        _ => return None,
    };
    let id = &object["metadata"]["labels"][INSTANCE_ID];
    id.as_str().map(str::to_owned)
}

/// A write in words, without the version that it expects, without moments, and without what is made up in names.
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
    let words = match made_up(call) {
        Some(id) => words.replace(&id, "…"),
        None => words,
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
