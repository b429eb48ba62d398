//! What the manager was told when it last tried: of its own rights, and of what quotas and webhooks say of changes and deletions, nobody else can
//! know, as only creations are tried for whoever asks.

use crate::set::LiveSet;
use crate::trial::condition;
use flotilla_model::{Command, Decision, Failure, Refusal, Scope, ScopedCommand, Timestamp, Wait, WaitCause};
use std::collections::BTreeSet;

/// Reasons of failures that were no refusals: what was asked for may be done by now, or is asked for anew at once.
const PASSES: [&str; 3] = [Failure::OUTCOME_UNKNOWN, "NotSent", "TooManyRequests"];

/// Adds what the manager would do next and was refused when it did so last.
pub(super) fn add_refused(live: &LiveSet, decision: &Decision, now: Timestamp, waits: &mut Vec<Wait>) {
    let is_refused = |wait: &Wait| matches!(wait.cause, WaitCause::Refused { .. });
    let known = waits.iter().filter(|wait| is_refused(wait));
    let known: BTreeSet<String> = known.map(|wait| wait.subject.clone()).collect();
    let told = refused(live, decision, now).into_iter();
    waits.extend(told.filter(|wait| !known.contains(&wait.subject)));
}

/// What the set's conditions say of what comes next. What they say of anything else is over.
fn refused(live: &LiveSet, decision: &Decision, now: Timestamp) -> Vec<Wait> {
    let conditions = [
        flotilla_controllers::failed_creation(live.kind),
        flotilla_controllers::failed_update(live.kind),
    ];
    let conditions = conditions.iter().filter_map(|kind| condition(&live.object, kind));
    let told: Vec<(&str, Option<Timestamp>)> = conditions
        .filter_map(|condition| {
            let since = condition["lastTransitionTime"].as_str().and_then(|at| at.parse().ok());
            Some((condition["message"].as_str()?, since))
        })
        .collect();
    if told.is_empty() {
        return Vec::new();
    }
    let mut known = BTreeSet::new();
    let mut waits = Vec::new();
    for scoped in decision.commands() {
        let Some(subject) = subject(scoped, live).filter(|subject| !known.contains(subject)) else {
            continue;
        };
        let said = told
            .iter()
            .find_map(|(message, since)| Some((entry(message, &subject)?, *since)));
        let Some(((reason, message), since)) = said.filter(|((reason, message), _)| is_told(scoped, reason, message))
        else {
            continue;
        };
        let cause = WaitCause::Refused {
            reason: reason.to_owned(),
            message: message.to_owned(),
            retry_at: now,
        };
        known.insert(subject.clone());
        waits.push(Wait { subject, cause, since });
    }
    waits
}

/// What a command is about, as conditions name it.
fn subject(scoped: &ScopedCommand, live: &LiveSet) -> Option<String> {
    match &scoped.scope {
        Scope::Slot(ordinal) => Some(format!("{}-{ordinal}", live.key.name)),
        Scope::Named(name) => Some(name.clone()),
        Scope::Object => Some(live.key.name.to_string()),
        Scope::Acceptance(_) => None,
    }
}

/// Reason and message of a subject in a condition's message: `NAME: REASON: MESSAGE; NAME: REASON: MESSAGE`.
fn entry<'m>(message: &'m str, subject: &str) -> Option<(&'m str, &'m str)> {
    let head = format!("{subject}: ");
    let begins = |at: usize| at == 0 || message[..at].ends_with("; ");
    let (at, _) = message.match_indices(&head).find(|(at, _)| begins(*at))?;
    let (reason, rest) = message[at + head.len()..].split_once(": ")?;
    let is_word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
    is_word(reason).then(|| (reason, first_of(rest)))
}

/// The message up to the next entry, which begins with a name and a word.
fn first_of(rest: &str) -> &str {
    let is_entry = |text: &str| {
        let mut parts = text.splitn(3, ": ");
        let name = parts.next().unwrap_or_default();
        let word = parts.next().unwrap_or_default();
        let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        let is_word = word.bytes().next().is_some_and(|b| b.is_ascii_uppercase())
            && word.bytes().all(|b| b.is_ascii_alphanumeric());
        parts.next().is_some() && !name.is_empty() && name.bytes().all(is_name) && is_word
    };
    let ends = rest.match_indices("; ").map(|(at, _)| at);
    let end = ends.into_iter().find(|at| is_entry(&rest[at + 2..]));
    &rest[..end.unwrap_or(rest.len())]
}

/// Whether this is worth telling: what is created was tried by whoever asks, who has other rights than the manager, and else the same answer.
fn is_told(scoped: &ScopedCommand, reason: &str, message: &str) -> bool {
    match &scoped.command {
        _ if PASSES.contains(&reason) => false,
        Command::Patch { .. } | Command::Delete { .. } => true,
        Command::Create { .. } => matches!(Refusal::of(message), Some(Refusal::NoRight(_))),
        Command::Read { .. } | Command::Try { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_model::decision::{Report, Stage};
    use flotilla_model::{ObjectKey, Resource, SetKind, Uid};
    use serde_json::json;

    #[test]
    fn a_condition_tells_of_each_by_its_name() {
        let message = "web-1: QuotaExceeded: pods \"web-1\" is forbidden: exceeded quota: q; web-10: Forbidden: pods \"web-10\" is forbidden: no; not: at all";
        let told = |subject: &str| entry(message, subject);
        assert_eq!(
            told("web-1"),
            Some(("QuotaExceeded", "pods \"web-1\" is forbidden: exceeded quota: q"))
        );
        assert_eq!(
            told("web-10"),
            Some(("Forbidden", "pods \"web-10\" is forbidden: no; not: at all"))
        );
        for nobody in ["web", "eb-1", "web-2", "q", "not"] {
            assert_eq!(told(nobody), None, "{nobody}");
        }
    }

    /// Only what is still to be done, and was refused when it was done last, is in the way.
    #[test]
    fn what_the_manager_was_refused_is_told_where_it_is_still_to_be_done() {
        let delete = |name: &str| ScopedCommand {
            scope: Scope::Named(name.to_owned()),
            command: Command::Delete {
                resource: Resource::Pods,
                key: ObjectKey::new("shop", name),
                uid: Uid::new("u"),
                resource_version: None,
                report: Report::Delete,
            },
        };
        let decision = |names: &[&str]| Decision {
            stages: vec![Stage {
                name: "delete",
                commands: names.iter().map(|name| delete(name)).collect(),
                ..Stage::default()
            }],
            ..Decision::default()
        };
        let told = |message: &str, status: &str, names: &[&str]| {
            let condition = json!({"type": "FailedUpdatePod", "status": status, "reason": "Forbidden", "message": message,
                "lastTransitionTime": "1970-01-01T00:01:00Z"});
            let live = LiveSet {
                kind: SetKind::Advanced,
                key: ObjectKey::new("shop", "web"),
                object: json!({"status": {"conditions": [condition]}}),
            };
            let mut waits = Vec::new();
            add_refused(&live, &decision(names), Timestamp::from_seconds(90), &mut waits);
            let line = |wait: &Wait| {
                format!(
                    "{}: {} (since {:?})",
                    wait.subject,
                    wait.cause,
                    wait.since.map(|at| at.to_string())
                )
            };
            waits.iter().map(line).collect::<Vec<_>>()
        };
        let said = "web-1: Forbidden: admission webhook \"keep.example.com\" denied the request: not now";
        assert_eq!(
            told(said, "True", &["web-1", "web-2"]),
            [
                "web-1: the API server refused: Forbidden: admission webhook \"keep.example.com\" denied the request: not now; next try \
                 1970-01-01T00:01:30Z (since Some(\"1970-01-01T00:01:00Z\"))"
            ]
        );
        for (what, message, status, names) in [
            ("nothing is to be done there any more", said, "True", &["web-2"][..]),
            ("it was done", said, "False", &["web-1"]),
            (
                "nobody knows whether it was done",
                "web-1: OutcomeUnknown: timeout",
                "True",
                &["web-1"],
            ),
        ] {
            assert_eq!(told(message, status, names), Vec::<String>::new(), "{what}");
        }
    }
}
