//! What the manager was told when it last tried: of its own rights, and of what quotas, policies and webhooks say to it, nobody else can know.
//! Whoever asks may be answered otherwise, and changes and deletions are not tried for them at all.

use crate::set::LiveSet;
use crate::trial::condition;
use flotilla_model::{Command, Decision, Refusal, Resource, Scope, ScopedCommand, Timestamp, Wait, WaitCause};
use serde_json::Value;
use std::collections::BTreeSet;

/// So much of a condition's message is looked at, in bytes. What was refused first stands first.
const LOOKED_AT: usize = 16 * 1024;
/// So much of what was said of one object is told, in letters.
const TOLD: usize = 600;
/// No name and no reason is longer, in bytes.
const LONGEST_NAME: usize = 300;
/// The reason of the condition by which a set says that its pods end right after their start.
const START_BACK_OFF: &str = "StartBackOff";

/// Adds what the manager would do next and was refused when it did so last, or holds back for now, as the set's conditions say. What they say of
/// anything else is over, and so is what the API server would refuse to everybody but accepts by now (`creatable`).
pub(super) fn add_refused(
    live: &LiveSet,
    decision: &Decision,
    creatable: &BTreeSet<(Resource, String)>,
    waits: &mut Vec<Wait>,
) {
    let told = Told::of(live);
    if told.messages.is_empty() {
        return;
    }
    let mut known: BTreeSet<String> = waits
        .iter()
        .filter(|wait| is_refusal(wait))
        .map(|wait| wait.subject.clone())
        .collect();
    let is_observed = is_observed(live);
    // Until there is a revision the generation does not count as observed.
    let commands = decision
        .commands()
        .filter(|scoped| is_observed || scoped.scope == Scope::Object);
    for scoped in commands {
        let Some(subject) = subject(scoped, live) else {
            continue;
        };
        // What comes before pods, such as a revision, conditions know by the set's name, and trials by its own.
        let own = match &scoped.scope {
            Scope::Object => scoped.command.key().name.to_string(),
            _ => subject.clone(),
        };
        if known.contains(&subject) || known.contains(&own) {
            continue;
        }
        let cause = told.cause(&subject);
        let what = (scoped.command.resource(), own);
        let is_over = |cause: &WaitCause| creatable.contains(&what) && is_for_everyone(cause);
        if let Some((cause, since)) = cause.filter(|(cause, _)| !is_over(cause)) {
            known.insert(subject.clone());
            waits.push(Wait { subject, cause, since });
        }
    }
}

/// The slots that the manager has tried to fill, and was refused: it fills them again beside the scaling budget, as it knows which pods it has taken down
/// itself, and nobody else does.
pub(super) fn slots_tried(live: &LiveSet) -> Vec<i64> {
    let failed = condition(&live.object, flotilla_controllers::failed_creation(live.kind));
    let message = failed
        .and_then(|condition| condition["message"].as_str())
        .map_or("", beginning);
    let head = format!("{}-", live.key.name);
    let ordinal = |entry: &str| {
        let (name, _) = entry.split_once(": ")?;
        name.strip_prefix(&head)?
            .parse::<i64>()
            .ok()
            .filter(|ordinal| *ordinal >= 0)
    };
    message.split("; ").filter_map(ordinal).collect()
}

/// Whether the manager has seen the set as it is: what it said of a former one may be over.
fn is_observed(live: &LiveSet) -> bool {
    let number = |pointer: &str| live.object.pointer(pointer).and_then(Value::as_i64);
    number("/status/observedGeneration") >= number("/metadata/generation")
}

/// Whether it says already what was refused.
fn is_refusal(wait: &Wait) -> bool {
    matches!(
        wait.cause,
        WaitCause::Refused { .. } | WaitCause::HeldBack { .. } | WaitCause::ResizeInfeasible { .. }
    )
}

/// Whether the API server says this to whoever asks for the same.
fn is_for_everyone(cause: &WaitCause) -> bool {
    let WaitCause::Refused { message, .. } = cause else {
        return false;
    };
    let said = message.strip_prefix(WaitCause::LAST_TRIED).unwrap_or(message);
    Refusal::of(said).is_some_and(|refusal| refusal.is_for_everyone())
}

/// What the set's conditions say, each with when it began.
struct Told<'l> {
    messages: Vec<(Kind, &'l str, Option<Timestamp>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `NAME: REASON: MESSAGE; ...`
    Refusals,
    /// `NAME: WORDS; ...`
    Waits,
    /// Words about the set.
    OfTheSet,
}

impl<'l> Told<'l> {
    fn of(live: &'l LiveSet) -> Self {
        let failed = [
            flotilla_controllers::failed_creation(live.kind),
            flotilla_controllers::failed_update(live.kind),
        ];
        let failed = failed.iter().filter_map(|kind| condition(&live.object, kind));
        let failed = failed.map(|condition| {
            let is_of_the_set = condition["reason"] == START_BACK_OFF;
            (if is_of_the_set { Kind::OfTheSet } else { Kind::Refusals }, condition)
        });
        let conditions = live.object.pointer("/status/conditions").and_then(Value::as_array);
        let blocked = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["reason"] == "RolloutBlocked");
        let blocked = blocked
            .filter(|condition| condition["status"] == "False")
            .map(|condition| (Kind::Waits, condition));
        let entry = |(kind, condition): (Kind, &'l Value)| {
            let since = condition["lastTransitionTime"].as_str().and_then(|at| at.parse().ok());
            Some((kind, beginning(condition["message"].as_str()?), since))
        };
        Told {
            messages: failed.chain(blocked).filter_map(entry).collect(),
        }
    }

    /// What was said of a subject that is still to be seen to. Whoever refuses, and whoever names things, writes in these messages, too: nothing
    /// but the reason is read from them.
    fn cause(&self, subject: &str) -> Option<(WaitCause, Option<Timestamp>)> {
        self.messages.iter().find_map(|(kind, message, since)| {
            let cause = match kind {
                Kind::OfTheSet => WaitCause::HeldBack {
                    message: shortened(message, TOLD),
                },
                Kind::Waits => WaitCause::HeldBack {
                    message: shortened(entry(message, subject)?, TOLD),
                },
                Kind::Refusals => {
                    let (reason, said) = entry(message, subject)?.split_once(": ")?;
                    let is_word = !reason.is_empty() && reason.bytes().all(|b| b.is_ascii_alphanumeric());
                    is_word.then(|| WaitCause::Refused {
                        reason: reason.to_owned(),
                        message: format!("{}{}", WaitCause::LAST_TRIED, shortened(said, TOLD)),
                        retry_at: None,
                    })?
                }
            };
            Some((cause, *since))
        })
    }
}

/// So many letters of a text.
fn shortened(text: &str, most: usize) -> String {
    let mut letters = text.chars();
    let mut short: String = letters.by_ref().take(most).collect();
    if letters.next().is_some() {
        short.push('…');
    }
    short
}

/// What is looked at of a message.
fn beginning(message: &str) -> &str {
    let end = (0..=LOOKED_AT.min(message.len()))
        .rev()
        .find(|at| message.is_char_boundary(*at));
    &message[..end.unwrap_or(0)]
}

/// What a command is about, as conditions name it.
fn subject(scoped: &ScopedCommand, live: &LiveSet) -> Option<String> {
    if matches!(scoped.command, Command::Read { .. } | Command::Try { .. }) {
        return None;
    }
    match &scoped.scope {
        Scope::Slot(ordinal) => Some(format!("{}-{ordinal}", live.key.name)),
        Scope::Named(name) => Some(name.clone()),
        Scope::Object => Some(live.key.name.to_string()),
        Scope::Acceptance(_) => None,
    }
}

/// What is said of a subject in a condition's message: `NAME: WORDS; NAME: WORDS`.
fn entry<'m>(message: &'m str, subject: &str) -> Option<&'m str> {
    let head = format!("{subject}: ");
    let begins = |at: usize| at == 0 || message[..at].ends_with("; ");
    let (at, _) = message.match_indices(&head).find(|(at, _)| begins(*at))?;
    let rest = &message[at + head.len()..];
    let mut ends = rest.match_indices("; ").map(|(at, _)| at);
    let end = ends.find(|at| begins_entry(&rest.as_bytes()[at + 2..]));
    Some(&rest[..end.unwrap_or(rest.len())])
}

/// Whether a name and a colon stand at the beginning.
fn begins_entry(rest: &[u8]) -> bool {
    let is_name = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    let name = rest.iter().take(LONGEST_NAME).take_while(|b| is_name(b)).count();
    name > 0 && rest[name..].starts_with(b": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_model::decision::{Body, Report, Stage};
    use flotilla_model::{ObjectKey, Resource, SetKind, Uid, Whom};
    use serde_json::json;

    fn decision(commands: Vec<ScopedCommand>) -> Decision {
        let stage = Stage {
            name: "all",
            commands,
            ..Stage::default()
        };
        Decision {
            stages: vec![stage],
            ..Decision::default()
        }
    }

    fn delete(name: &str) -> ScopedCommand {
        ScopedCommand {
            scope: Scope::Named(name.to_owned()),
            command: Command::Delete {
                resource: Resource::Pods,
                key: ObjectKey::new("shop", name),
                uid: Uid::new("u"),
                resource_version: None,
                report: Report::Delete,
            },
        }
    }

    fn create(ordinal: i64) -> ScopedCommand {
        ScopedCommand {
            scope: Scope::Slot(ordinal),
            command: Command::Create {
                resource: Resource::Pods,
                key: ObjectKey::new("shop", format!("web-{ordinal}")),
                body: Body::Json(json!({}).into()),
                exists_is_fine: false,
                guard: None,
                report: Report::Create,
            },
        }
    }

    fn live(kind: SetKind, object: Value) -> LiveSet {
        LiveSet {
            kind,
            key: ObjectKey::new("shop", "web"),
            object,
        }
    }

    #[test]
    fn a_condition_tells_of_each_by_its_name() {
        let message = "web-1: QuotaExceeded: pods \"web-1\" is forbidden: exceeded quota: q; web-10: Forbidden: pods \"web-10\" is forbidden: no; Not: at all";
        let told = |subject: &str| entry(message, subject);
        assert_eq!(
            told("web-1"),
            Some("QuotaExceeded: pods \"web-1\" is forbidden: exceeded quota: q")
        );
        assert_eq!(
            told("web-10"),
            Some("Forbidden: pods \"web-10\" is forbidden: no; Not: at all")
        );
        for nobody in ["web", "eb-1", "web-2", "q"] {
            assert_eq!(told(nobody), None, "{nobody}");
        }
    }

    /// What the manager tries is not held back by its budgets, whatever it knows that nobody else does.
    #[test]
    fn slots_that_the_manager_was_refused_are_known_by_their_names() {
        let condition = |status: &str| {
            let message = "web-2: QuotaExceeded: exceeded quota: q; data-web-4: Forbidden: no; web-b: Forbidden: no; web--1: Forbidden: no; \
                 web-2147483648000000000000: Forbidden: no; web-7: OutcomeUnknown: no answer";
            let condition =
                json!({"type": "FailedCreatePod", "status": status, "reason": "QuotaExceeded", "message": message});
            live(SetKind::Advanced, json!({"status": {"conditions": [condition]}}))
        };
        assert_eq!(slots_tried(&condition("True")), [2, 7]);
        assert_eq!(slots_tried(&condition("False")), Vec::<i64>::new());
    }

    /// Only what is still to be done, and was refused when it was done last, is in the way.
    #[test]
    fn what_the_manager_was_refused_is_told_where_it_is_still_to_be_done() {
        let told = |message: &str, status: &str, names: &[&str]| {
            let condition = json!({"type": "FailedUpdatePod", "status": status, "reason": "Forbidden", "message": message,
                "lastTransitionTime": "1970-01-01T00:01:00Z"});
            let live = live(SetKind::Advanced, json!({"status": {"conditions": [condition]}}));
            let decision = decision(names.iter().map(|name| delete(name)).collect());
            let mut waits = Vec::new();
            add_refused(&live, &decision, &BTreeSet::new(), &mut waits);
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
                "web-1: the API server refused: Forbidden: when the manager last tried: admission webhook \"keep.example.com\" denied the request: not now (since Some(\"1970-01-01T00:01:00Z\"))"
            ]
        );
        for (what, message, status, names) in [
            ("nothing is to be done there any more", said, "True", &["web-2"][..]),
            ("it was done", said, "False", &["web-1"]),
        ] {
            assert_eq!(told(message, status, names), Vec::<String>::new(), "{what}");
        }
    }

    /// What anybody is refused alike is over once the API server accepts it of one who asks: the manager tries again later. What it says to some
    /// alone may still be said to the manager.
    #[test]
    fn what_is_accepted_by_now_is_over_unless_it_depends_on_who_asks() {
        let told_of = |said: &str, resource: Resource, creatable: &[&str]| {
            let message = format!("web-1: Forbidden: {said}");
            let condition =
                json!({"type": "FailedCreatePod", "status": "True", "reason": "Forbidden", "message": message});
            let live = live(SetKind::Advanced, json!({"status": {"conditions": [condition]}}));
            let creatable = creatable.iter().map(|name| (resource, (*name).to_owned())).collect();
            let mut waits = Vec::new();
            add_refused(&live, &decision(vec![create(1)]), &creatable, &mut waits);
            !waits.is_empty()
        };
        let told = |said: &str, creatable: &[&str]| told_of(said, Resource::Pods, creatable);
        let forbidden = |why: &str| format!("pods \"web-1\" is forbidden: {why}");
        for (said, is_told) in [
            (forbidden("no PriorityClass with name gold was found"), false),
            (
                forbidden("error looking up service account shop/robot: serviceaccount \"robot\" not found"),
                false,
            ),
            (
                forbidden("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"),
                false,
            ),
            (
                forbidden("violates PodSecurity \"baseline:latest\": host namespaces"),
                true,
            ),
            (
                forbidden("User \"robot\" cannot create resource \"pods\" in API group \"\""),
                true,
            ),
            (
                "admission webhook \"keep.example.com\" denied the request: no".to_owned(),
                true,
            ),
        ] {
            assert_eq!(told(&said, &["web-1"]), is_told, "{said}");
            assert!(told(&said, &["web-0"]), "the trial was of another: {said}");
            assert!(
                told_of(&said, Resource::Claims, &["web-1"]),
                "the trial was of its claim: {said}"
            );
        }
    }

    /// What the node can never give is told with what helps.
    #[test]
    fn what_is_told_already_is_not_told_twice() {
        let condition = json!({"type": "FailedUpdatePod", "status": "True", "reason": "ResizeInfeasible",
            "message": "web-1: NodeTooSmall: pods \"web-1\" is forbidden: node didn't have enough allocatable resources: cpu"});
        let live = live(SetKind::Advanced, json!({"status": {"conditions": [condition]}}));
        let cause = WaitCause::ResizeInfeasible { message: String::new() };
        let subject = "web-1".to_owned();
        let mut waits = vec![Wait {
            subject,
            cause,
            since: None,
        }];
        add_refused(&live, &decision(vec![delete("web-1")]), &BTreeSet::new(), &mut waits);
        assert_eq!(waits.len(), 1, "{waits:?}");
    }

    /// A revision that is refused to whoever asks, and was to the manager under the name of the set.
    #[test]
    fn a_revision_that_is_refused_is_told_once_and_is_over_once_it_is_accepted() {
        let said = "controllerrevisions.apps \"web-5bddff7bb7\" is forbidden: exceeded quota: q, requested: count=1, used: count=1, limited: count=1";
        let condition = json!({"type": "FailedUpdate", "status": "True", "reason": "QuotaExceeded", "message": format!("web: QuotaExceeded: {said}")});
        let live = live(SetKind::Clone, json!({"status": {"conditions": [condition]}}));
        let revision = ScopedCommand {
            scope: Scope::Object,
            command: Command::Create {
                resource: Resource::Revisions,
                key: ObjectKey::new("shop", "web-5bddff7bb7"),
                body: Body::Json(json!({}).into()),
                exists_is_fine: false,
                guard: None,
                report: Report::Silent,
            },
        };
        let decision = decision(vec![revision]);
        let told = |tried: Option<&str>, creatable: bool| {
            let refused = |subject: &str| Wait {
                subject: subject.to_owned(),
                cause: WaitCause::Refused {
                    reason: "QuotaExceeded".to_owned(),
                    message: said.to_owned(),
                    retry_at: None,
                },
                since: None,
            };
            let mut waits: Vec<Wait> = tried.map(refused).into_iter().collect();
            let creatable = creatable.then(|| (Resource::Revisions, "web-5bddff7bb7".to_owned()));
            add_refused(&live, &decision, &creatable.into_iter().collect(), &mut waits);
            waits.into_iter().map(|wait| wait.subject).collect::<Vec<_>>()
        };
        assert_eq!(told(Some("web-5bddff7bb7"), false), ["web-5bddff7bb7"]);
        // Whoever asks may not try it.
        assert_eq!(told(None, false), ["web"]);
        assert_eq!(told(None, true), Vec::<String>::new());
    }

    /// A pod whose last ones ended at once is held back for minutes; nobody else knows of it, since the manager alone counts.
    #[test]
    fn sts_8_5_what_is_held_back_after_failed_starts_is_told_as_the_set_says_it() {
        let decision = decision(vec![create(0)]);
        let told = |kind: SetKind, generation: i64, condition: Value| {
            let object = json!({"metadata": {"generation": generation}, "status": {"observedGeneration": 1, "conditions": [condition]}});
            let live = live(kind, object);
            let mut waits = Vec::new();
            add_refused(&live, &decision, &BTreeSet::new(), &mut waits);
            waits
                .iter()
                .map(|wait| format!("{}: {}", wait.subject, wait.cause))
                .collect::<Vec<_>>()
        };
        let blocked = json!({"type": "Progressing", "status": "False", "reason": "RolloutBlocked",
            "message": "web-0: its pods end right after their start"});
        assert_eq!(
            told(SetKind::Advanced, 1, blocked.clone()),
            ["web-0: is held back: its pods end right after their start"]
        );
        assert_eq!(
            told(SetKind::Advanced, 2, blocked),
            Vec::<String>::new(),
            "the set was edited since"
        );
        let starts = json!({"type": "FailedScale", "status": "True", "reason": "StartBackOff",
            "message": "pods end right after their start; the next are made ever later"});
        assert_eq!(
            told(SetKind::Clone, 1, starts),
            ["web-0: is held back: pods end right after their start; the next are made ever later"]
        );
    }

    /// Whoever refuses chooses the words, and how many.
    #[test]
    fn what_others_wrote_is_neither_read_for_a_command_nor_read_for_long() {
        let forged = "web-1: Forbidden: admission webhook \"x.example.com\" denied the request: no; web-2: Forbidden: pods \"web-2\" is forbidden: \
             User \"robot\" cannot create resource \"clusterrolebindings\" in API group \"\"";
        let (cause, _) = Told {
            messages: vec![(Kind::Refusals, forged, None)],
        }
        .cause("web-2")
        .expect("a cause");
        let advice = cause
            .advice("web-2", &Whom::of("statefulset.apps/web", "shop"))
            .expect("advice");
        assert!(!advice.contains("robot") && !advice.contains("can-i"), "{advice}");
        // It may have been a deletion that a policy denied: to edit the template would be no help, and would roll pods.
        let denied = "web-1: Invalid: pods \"web-1\" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'all' denied request: no";
        let told = Told {
            messages: vec![(Kind::Refusals, denied, None)],
        };
        let (cause, _) = told.cause("web-1").expect("a cause");
        let advice = cause.advice("web-1", &Whom::of("statefulset.apps/web", "shop"));
        assert!(advice.is_some_and(|advice| !advice.contains("template")), "{cause}");
        let endless = format!("web-1: Forbidden: {}", "; ".repeat(500_000));
        let told = Told {
            messages: vec![(Kind::Refusals, beginning(&endless), None)],
        };
        let (cause, _) = told.cause("web-1").expect("a cause");
        assert!(cause.to_string().len() < 2_000);
    }
}
