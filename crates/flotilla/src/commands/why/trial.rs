//! What would be refused of what comes next: tried as dry runs, because only the API server knows quotas, policies and missing accounts.

use crate::cluster::Cluster;
use crate::error::Error;
use crate::target::Found;
use flotilla_api::names;
use flotilla_engine::core::outcome::{Intent, Outcome, meaning};
use flotilla_engine::core::request::{Answer, Refusal};
use flotilla_engine::wire::status::Status;
use flotilla_model::{Command, Decision, Resource, Scope, ScopedCommand, Timestamp, Wait, WaitCause};
use http::Method;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Requests tried as dry runs, at most of each kind: pods of one set are refused alike.
const DRY_RUNS: usize = 4;

/// What came of it.
#[derive(Default)]
pub(super) struct Tried {
    /// What the API server would refuse.
    pub(super) refused: Vec<Wait>,
    /// The revisions of which it accepts pods.
    pub(super) accepted: BTreeSet<String>,
    /// That whoever asks may not try it, in a sentence: that says nothing of the manager.
    pub(super) not_allowed: Option<String>,
}

impl Tried {
    fn accept(&mut self, scope: &Scope) {
        if let Scope::Acceptance(made_of) = scope {
            self.accepted.insert(made_of.clone());
        }
    }
}

/// Sends the first creations and trials as dry runs.
pub(super) async fn try_next(
    cluster: &Cluster,
    found: &Found,
    decision: &Decision,
    now: Timestamp,
) -> Result<Tried, Error> {
    let failed = flotilla_controllers::failed_creation(found.kind);
    let since = condition_since(&found.object, failed);
    let mut tried = Tried::default();
    for scoped in next_of_each_kind(decision) {
        let (resource, key) = (scoped.command.resource(), scoped.command.key());
        let body = match &scoped.command {
            Command::Create { body, .. } => body.render(),
            Command::Try { pod } => pod.render(),
            Command::Patch { .. } | Command::Delete { .. } | Command::Read { .. } => continue,
        };
        let path = format!(
            "{}?dryRun=All&fieldManager=flotilla-why",
            resource.collection_path(Some(&key.namespace))
        );
        let sent = cluster
            .send(Method::POST, &path, Some(("application/json", &body)))
            .await;
        let refusal = match sent {
            Ok(_) => {
                tried.accept(&scoped.scope);
                continue;
            }
            Err(kube::Error::Api(status)) if is_about_who_asks(&status) => {
                tried.accept(&scoped.scope);
                tried.not_allowed = Some(format!(
                    "whether the API server accepts what comes next could not be tried{}: {}",
                    condition_says(&found.object, failed),
                    status.message
                ));
                continue;
            }
            Err(kube::Error::Api(status)) => *status,
            Err(error) => {
                return Err(crate::cluster::describe(
                    format!("try to create {resource} {key}"),
                    &error,
                ));
            }
        };
        let status = Status {
            code: i32::from(refusal.code),
            reason: refusal.reason,
            message: refusal.message,
            ..Status::default()
        };
        let answer = Answer::Refused(Refusal {
            status,
            retry_after: None,
        });
        let outcome = meaning(Intent::of(&scoped.command), &answer);
        if outcome.is_done() {
            tried.accept(&scoped.scope);
        }
        if let Outcome::Rejected { reason, message, .. } = outcome {
            let (subject, cause) = refusal_of(scoped, found, (reason, message), now);
            let wait = without_made_up(Wait { subject, cause, since }, &body);
            if !tried.refused.contains(&wait) {
                tried.refused.push(wait);
            }
        }
    }
    Ok(tried)
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

/// Whether it refuses whoever asks, by the words of the API server's authorization: others may do it.
fn is_about_who_asks(refusal: &kube::core::Status) -> bool {
    refusal.code == 403 && refusal.message.contains(": User \"") && refusal.message.contains(" cannot create resource ")
}

/// What waits for a command that the API server would refuse, and why.
fn refusal_of(
    scoped: &ScopedCommand,
    found: &Found,
    (reason, message): (String, String),
    retry_at: Timestamp,
) -> (String, WaitCause) {
    let subject = match &scoped.scope {
        Scope::Slot(ordinal) => format!("{}-{ordinal}", found.key.name),
        Scope::Object | Scope::Named(_) => scoped.command.key().name.to_string(),
        Scope::Acceptance(made_of) => Scope::revision_tried(made_of).to_owned(),
    };
    let cause = match &scoped.command {
        Command::Try { .. } => WaitCause::of_refused_trial(reason, message, retry_at),
        _ => WaitCause::Refused {
            reason,
            message,
            retry_at,
        },
    };
    (subject, cause)
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
fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == kind && c["status"] == "True")
}
