//! What would be refused of what comes next: tried as dry runs, because only the API server knows quotas, policies and missing accounts.

use crate::set::LiveSet;
use flotilla_api::names;
use flotilla_engine::core::outcome::{Intent, Outcome, meaning};
use flotilla_engine::core::request::{Answer, Refusal as Refused};
use flotilla_engine::wire::status::Status;
use flotilla_model::{Command, Decision, Refusal, Resource, Scope, ScopedCommand, Timestamp, Wait, WaitCause};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Requests tried as dry runs, at most of each kind: pods of one set are refused alike.
const DRY_RUNS: usize = 4;

/// So often it is tried what comes next: what is accepted may show what comes after, such as the claims of pods at a new revision.
pub const ROUNDS: usize = 2;

/// What came of it.
#[derive(Default)]
pub struct Tried {
    /// What was tried: pods on trial (`true`), and creations.
    asked: BTreeSet<(bool, Resource, String)>,
    /// What the API server would refuse.
    pub refused: Vec<Wait>,
    /// The revisions of which it accepts pods.
    pub accepted: BTreeSet<String>,
    /// What it would create by now for whoever asks, each as waits name it.
    pub creatable: BTreeSet<(Resource, String)>,
    /// What a trial did not tell, in a sentence: whoever asks may not try it, or nobody answered.
    pub untold: Option<String>,
}

/// A creation that comes next, to be sent as a dry run.
#[derive(Clone, Debug)]
pub struct Trial<'d> {
    scoped: &'d ScopedCommand,
    /// The object.
    pub body: Value,
}

impl Trial<'_> {
    /// What is created.
    pub fn resource(&self) -> Resource {
        self.scoped.command.resource()
    }

    /// In which namespace.
    pub fn namespace(&self) -> &str {
        &self.scoped.command.key().namespace
    }

    /// Under which name.
    pub fn name(&self) -> &str {
        &self.scoped.command.key().name
    }
}

/// The first creations and trials that a decision asks for.
pub fn trials(decision: &Decision) -> Vec<Trial<'_>> {
    let commands = next_of_each_kind(decision).into_iter();
    let trial = |scoped| {
        Some(Trial {
            scoped,
            body: body(scoped)?,
        })
    };
    commands.filter_map(trial).collect()
}

fn body(scoped: &ScopedCommand) -> Option<Value> {
    match &scoped.command {
        Command::Create { body, .. } => Some(body.render()),
        Command::Try { pod } => Some(pod.render()),
        Command::Patch { .. } | Command::Delete { .. } | Command::Read { .. } => None,
    }
}

impl Tried {
    /// Whether it has yet to be tried; once.
    pub fn begin(&mut self, trial: &Trial<'_>) -> bool {
        let is_on_trial = matches!(trial.scoped.command, Command::Try { .. });
        self.asked
            .insert((is_on_trial, trial.resource(), trial.name().to_owned()))
    }

    /// The API server accepts it.
    pub fn accept(&mut self, trial: &Trial<'_>, set: &LiveSet) {
        self.is_not_refused(trial);
        self.creatable.insert((trial.resource(), subject_of(trial.scoped, set)));
    }

    /// Nothing is known against it.
    fn is_not_refused(&mut self, trial: &Trial<'_>) {
        if let Scope::Acceptance(made_of) = &trial.scoped.scope {
            self.accepted.insert(made_of.clone());
        }
    }

    /// The API server refuses it in these words.
    pub fn refuse(&mut self, trial: &Trial<'_>, set: &LiveSet, status: Status) {
        let failed = flotilla_controllers::failed_creation(set.kind);
        if is_about_who_asks(&status) {
            self.is_not_refused(trial);
            self.untold = Some(untried(set, "could not be tried", &status.message));
            return;
        }
        let is_a_trial_anyway = matches!(trial.scoped.command, Command::Try { .. });
        if is_of_the_trial_alone(&status) && !is_a_trial_anyway {
            self.untold = Some(untried(set, "could not be tried", &status.message));
            return;
        }
        let said = status.message.clone();
        let answer = Answer::Refused(Refused {
            status,
            retry_after: None,
        });
        match meaning(Intent::of(&trial.scoped.command), &answer) {
            Outcome::Done => self.accept(trial, set),
            Outcome::Rejected { reason, message, .. } => {
                let wait = Wait {
                    subject: subject_of(trial.scoped, set),
                    cause: refusal_of(&trial.scoped.command, reason, message),
                    since: condition_since(&set.object, failed),
                };
                let wait = without_made_up(wait, &trial.body);
                if !self.refused.contains(&wait) {
                    self.refused.push(wait);
                }
            }
            Outcome::Unknown(message) => {
                self.untold = Some(untried(set, "was tried, and nobody knows what came of it", &message));
            }
            Outcome::Throttled(_) => {
                self.untold = Some(untried(set, "could not be tried", "it asks for fewer requests"));
            }
            // Somebody else wrote at the same moment, such as the quota's controller.
            Outcome::Stale => {
                self.untold = Some(untried(set, "could not be tried", &said));
            }
            Outcome::NotSent(_) | Outcome::Fenced => {}
        }
    }
}

/// That a trial told nothing, and why; then what the manager was told is all that is known.
fn untried(set: &LiveSet, what: &str, why: &str) -> String {
    format!(
        "whether the API server accepts what comes next {what}{}: {why}",
        condition_says(&set.object, flotilla_controllers::failed_creation(set.kind))
    )
}

/// The first creations and trials, of each kind some: claims come before the pods that mount them, and would be all.
fn next_of_each_kind(decision: &Decision) -> Vec<&ScopedCommand> {
    let mut taken: BTreeMap<Resource, usize> = BTreeMap::new();
    let is_tried = |c: &&ScopedCommand| matches!(c.command, Command::Create { .. } | Command::Try { .. });
    let is_one_of_few = |c: &&ScopedCommand| {
        let count = taken.entry(c.command.resource()).or_default();
        *count += 1;
        *count <= DRY_RUNS
    };
    decision.commands().filter(is_tried).filter(is_one_of_few).collect()
}

/// Whether it refuses whoever asks: others may do it.
fn is_about_who_asks(refusal: &Status) -> bool {
    refusal.code == 403
        && matches!(Refusal::of(&refusal.message), Some(Refusal::NoRight(right)) if right.verb == "create")
}

/// Whether it refuses nothing but the dry run, or the right of whoever asks to name the set as an owner.
fn is_of_the_trial_alone(refusal: &Status) -> bool {
    let is_dry_run = refusal.code == 400 && refusal.message.contains("does not support dry run");
    is_dry_run
        || refusal.code == 403
            && refusal
                .message
                .contains(" is forbidden: cannot set blockOwnerDeletion ")
}

/// What waits for a command.
fn subject_of(scoped: &ScopedCommand, set: &LiveSet) -> String {
    match &scoped.scope {
        Scope::Slot(ordinal) => format!("{}-{ordinal}", set.key.name),
        Scope::Object | Scope::Named(_) => scoped.command.key().name.to_string(),
        Scope::Acceptance(made_of) => Scope::revision_tried(made_of).to_owned(),
    }
}

/// What is waited for once the API server has refused a command. When the manager tries next, it alone knows.
fn refusal_of(command: &Command, reason: String, message: String) -> WaitCause {
    match command {
        Command::Try { .. } => WaitCause::of_refused_trial(reason, message, None),
        _ => WaitCause::Refused {
            reason,
            message,
            retry_at: None,
        },
    }
}

/// The instance id of a CloneSet's pod or claim.
pub(super) fn instance_id(body: &Value) -> Option<&str> {
    let id = body["metadata"]["labels"][names::INSTANCE_ID_LABEL].as_str();
    id.filter(|id| !id.is_empty())
}

/// A text in which what is named by this id may be any other of its kind: ids are made up for each try, and the next will have another.
pub(super) fn of_any(id: &str, text: &str) -> String {
    text.replace(&format!("-{id}"), "-…")
}

/// A wait of any pod or claim like this one.
pub(super) fn without_made_up(wait: Wait, body: &Value) -> Wait {
    let Some(id) = instance_id(body) else {
        return wait;
    };
    let of_any = |text: &str| of_any(id, text);
    let mut cause = wait.cause;
    if let WaitCause::Refused { message, .. }
    | WaitCause::RevisionRefused { message, .. }
    | WaitCause::RevisionUnproven { message, .. } = &mut cause
    {
        *message = of_any(message);
    }
    Wait {
        subject: of_any(&wait.subject),
        cause,
        since: wait.since,
    }
}

/// When a condition of the set became True.
fn condition_since(object: &Value, kind: &str) -> Option<Timestamp> {
    condition(object, kind)?["lastTransitionTime"].as_str()?.parse().ok()
}

/// What a condition of the set says, which is what its manager was told.
fn condition_says(object: &Value, kind: &str) -> String {
    let message = condition(object, kind).and_then(|condition| condition["message"].as_str());
    message.map_or_else(String::new, |message| {
        format!(", and its condition {kind} says {message:?}")
    })
}

/// A condition of the set that is True.
pub(super) fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == kind && c["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_model::decision::{Body, Report};
    use flotilla_model::{ObjectKey, SetKind};
    use serde_json::json;

    /// What says nothing of the manager's request is no cause, and is not kept back either.
    #[test]
    fn what_refuses_the_trial_alone_is_told_as_such() {
        let scoped = ScopedCommand {
            scope: Scope::Slot(0),
            command: Command::Create {
                resource: Resource::Pods,
                key: ObjectKey::new("shop", "web-0"),
                body: Body::Json(json!({}).into()),
                exists_is_fine: false,
                guard: None,
                report: Report::Create,
            },
        };
        let set = LiveSet {
            kind: SetKind::Advanced,
            key: ObjectKey::new("shop", "web"),
            object: json!({}),
        };
        for (code, message, is_cause) in [
            (403, "pods \"web-0\" is forbidden: exceeded quota: q", true),
            (403, "admission webhook \"a.example.com\" denied the request: no", true),
            (
                400,
                "admission webhook \"a.example.com\" does not support dry run",
                false,
            ),
            (
                403,
                "pods \"web-0\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>",
                false,
            ),
            (
                500,
                "Internal error occurred: insufficient quota to match these scopes",
                false,
            ),
            (429, "slow down", false),
            (
                409,
                "Operation cannot be fulfilled on resourcequotas \"q\": the object has been modified",
                false,
            ),
        ] {
            let trial = Trial {
                scoped: &scoped,
                body: json!({}),
            };
            let status = Status {
                code,
                message: message.to_owned(),
                ..Status::default()
            };
            let mut tried = Tried::default();
            tried.refuse(&trial, &set, status);
            assert_eq!(
                (tried.refused.len() == 1, tried.untold.is_some()),
                (is_cause, !is_cause),
                "{message}"
            );
        }
    }

    #[test]
    fn only_the_authorizer_says_who_may_not_ask() {
        let is_about = |message: &str| {
            let status = Status {
                code: 403,
                message: message.to_owned(),
                ..Status::default()
            };
            is_about_who_asks(&status)
        };
        assert!(is_about(
            "pods is forbidden: User \"dev\" cannot create resource \"pods\" in API group \"\" in the namespace \"shop\""
        ));
        // A service account of this name.
        assert!(!is_about(
            "pods \"web-0\" is forbidden: error looking up service account shop/ghost: User \"a\" cannot create resource : not found"
        ));
    }
}
