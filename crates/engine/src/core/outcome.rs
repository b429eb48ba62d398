//! What an answer means: each one maps to exactly one thing that the executor does about it.

use super::limiter::{LONGEST_RETRY_AFTER, Load};
use super::request::{Answer, Refusal};
use crate::wire::status::Status;
use flotilla_model::{Command, Failure, Refusal as Word, Uid};
use std::time::Duration;

/// The one meaning of an answer to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect.
    Done,
    /// The view was stale: the world is no longer as it was when this was decided. Look again.
    Stale,
    /// The server is busy: again, not before this long.
    Throttled(Option<Duration>),
    /// The server will not have it. Tell the user, and try again after a back-off, since causes heal.
    Rejected {
        /// A word for programs.
        reason: String,
        /// What the server said.
        message: String,
        /// Not before this long, if whoever refused it said so.
        retry_after: Option<Duration>,
    },
    /// It may have taken effect or not. Read the object before deciding about it again.
    Unknown(String),
    /// It certainly did not take effect.
    NotSent(String),
    /// We may not write any more; nobody is to blame, and nobody is told.
    Fenced,
}

impl Outcome {
    /// Whether the command may count as carried out.
    pub fn is_done(&self) -> bool {
        *self == Outcome::Done
    }

    /// What failed, as a word for programs and in words for people. None if nothing did that anybody has to know of.
    pub fn failure(&self) -> Option<(&str, &str)> {
        match self {
            Outcome::Done | Outcome::Stale | Outcome::Fenced => None,
            Outcome::Throttled(_) => Some(("TooManyRequests", "the API server asks for fewer requests")),
            Outcome::Rejected { reason, message, .. } => Some((reason, message)),
            Outcome::Unknown(why) => Some((Failure::OUTCOME_UNKNOWN, why)),
            Outcome::NotSent(why) => Some(("NotSent", why)),
        }
    }

    /// How long whoever answered wants to be left alone, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Outcome::Throttled(after) | Outcome::Rejected { retry_after: after, .. } => *after,
            Outcome::Done | Outcome::Stale | Outcome::Fenced | Outcome::Unknown(_) | Outcome::NotSent(_) => None,
        }
    }

    /// A word for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Stale => "stale",
            Outcome::Throttled(_) => "throttled",
            Outcome::Rejected { .. } => "rejected",
            Outcome::Unknown(_) => "unknown",
            Outcome::NotSent(_) | Outcome::Fenced => "not_sent",
        }
    }
}

/// What the command wanted, as far as the meaning of an answer depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent {
    /// A new object; whether one that is there already will do.
    Create {
        /// If so, that it exists is success.
        exists_is_fine: bool,
    },
    /// To know whether a new object would be accepted.
    Try,
    /// To change this incarnation.
    Change(Uid),
    /// To delete this incarnation.
    Delete(Uid),
    /// To look.
    Read,
}

impl Intent {
    /// The intent of a command.
    pub fn of(command: &Command) -> Intent {
        match command {
            Command::Create { exists_is_fine, .. } => Intent::Create {
                exists_is_fine: *exists_is_fine,
            },
            Command::Try { .. } => Intent::Try,
            Command::Patch { uid, .. } => Intent::Change(uid.clone()),
            Command::Delete { uid, .. } => Intent::Delete(uid.clone()),
            Command::Read { .. } => Intent::Read,
        }
    }
}

/// The meaning of an answer.
pub fn meaning(intent: Intent, answer: &Answer) -> Outcome {
    match answer {
        Answer::Object(_) | Answer::Success | Answer::Lease(_) => Outcome::Done,
        // It took effect, but we do not know what is there now.
        Answer::Unreadable(what) => Outcome::Unknown(what.to_string()),
        Answer::Lost(why) => Outcome::Unknown(why.clone()),
        Answer::NotSent(why) => Outcome::NotSent(why.clone()),
        Answer::Fenced => Outcome::Fenced,
        Answer::Refused(refusal) => refused(&intent, refusal),
    }
}

fn refused(intent: &Intent, refusal: &Refusal) -> Outcome {
    let status = &refusal.status;
    if is_denied(status) {
        // Whatever its code: that is an admission webhook's word, not the API server's. Nothing was stored.
        let reason = match status.code {
            400 => "BadRequest",
            403 => Failure::FORBIDDEN,
            413 => "TooLarge",
            422 => Failure::INVALID,
            _ => Failure::DENIED,
        };
        return Outcome::Rejected {
            reason: reason.into(),
            message: status.message.clone(),
            retry_after: pause(refusal),
        };
    }
    if matches!(intent, Intent::Change(_)) && is_about_another(status) {
        return Outcome::Stale;
    }
    match (status.code, intent) {
        // A webhook that has side effects is not asked on trial, and fails the request instead.
        (400, Intent::Try) if status.message.contains("does not support dry run") => {
            rejected(Failure::NO_DRY_RUN, status)
        }
        // Of a trial, too: the name is looked at last, when everything else has passed.
        (409, Intent::Create { exists_is_fine: true } | Intent::Try) if status.reason == "AlreadyExists" => {
            Outcome::Done
        }
        (404, Intent::Change(_) | Intent::Delete(_) | Intent::Read) if is_not_served(status) => {
            rejected("NotServed", status)
        }
        // Other than its name says, a conflict on create that is not AlreadyExists is a quota being updated.
        (409, _) | (404 | 410, Intent::Change(_) | Intent::Delete(_) | Intent::Read) => Outcome::Stale,
        (429, _) => Outcome::Throttled(pause(refusal)),
        // Nothing is stored before admission has passed, so these are certain.
        (500, _) if status.message.contains("failed calling webhook") => rejected("AdmissionUnavailable", status),
        (401, _) => Outcome::NotSent(format!(
            "the API server does not accept our credentials: {}",
            status.message
        )),
        (403, _) => rejected(forbidden(status), status),
        (404, Intent::Create { .. } | Intent::Try) => rejected("NotFound", status),
        (413, _) => rejected("TooLarge", status),
        (422, _) => rejected(Failure::INVALID, status),
        (400..=499, _) => rejected("BadRequest", status),
        _ => Outcome::Unknown(format!("the API server answered {}: {}", status.code, status.message)),
    }
}

/// How long the answer asks us to wait, as far as it is believed.
fn pause(refusal: &Refusal) -> Option<Duration> {
    refusal.retry_after.map(|after| after.min(LONGEST_RETRY_AFTER))
}

/// Whether an admission webhook or policy refused the request. They may choose any code, also those with which the API server speaks of
/// itself (401, 409, 429, 5xx); the words around are the API server's.
fn is_denied(status: &Status) -> bool {
    matches!(Word::of(&status.message), Some(Word::Webhook(_) | Word::Policy(_)))
}

/// What an answer says of the load, and whose.
pub(super) fn load(answer: &Answer) -> Load {
    let Answer::Refused(refusal) = answer else {
        return if matches!(answer, Answer::Lost(_)) {
            Load::Lost
        } else {
            Load::Answered
        };
    };
    let status = &refusal.status;
    // The headers of priority and fairness say nothing here: whatever passes through it has them, a webhook's denial, too.
    let names_an_object = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    match status.code {
        429 if is_denied(status) || names_an_object => Load::ThrottledHere(refusal.retry_after),
        429 => Load::Throttled(refusal.retry_after),
        _ if is_denied(status) => Load::Answered,
        502.. => Load::Lost,
        _ => Load::Answered,
    }
}

/// How the API server answers a path that it does not serve, such as a subresource that it is too old for. Nothing is said of the
/// object then.
pub(super) fn is_not_served(status: &Status) -> bool {
    status.code == 404
        && (status.message == "the server could not find the requested resource"
            || status.message.starts_with("404 page not found"))
}

/// Whether a patch was refused because the object is not what the patch was made for: its UID is another, or a JSON patch does not
/// fit it. Of the latter the API server does not say which operation failed, a test or a change; in both cases the view was old.
fn is_about_another(status: &Status) -> bool {
    let is_other =
        status.message.contains("metadata.uid: Invalid value") && status.message.contains("field is immutable");
    status.code == 422
        && (is_other || status.message == "the server rejected our request due to an error in our request")
}

fn rejected(reason: &str, status: &Status) -> Outcome {
    Outcome::Rejected {
        reason: reason.into(),
        message: status.message.clone(),
        retry_after: None,
    }
}

/// What exactly is forbidden. The API server says these in the message, or in a cause, only.
fn forbidden(status: &Status) -> &'static str {
    let terminating = |cause: &crate::wire::status::Cause| cause.reason == "NamespaceTerminating";
    if status
        .details
        .as_ref()
        .is_some_and(|d| d.causes.iter().any(terminating))
    {
        Failure::NAMESPACE_TERMINATING
    } else {
        match Word::of(&status.message) {
            Some(Word::Quota) => Failure::QUOTA_EXCEEDED,
            Some(Word::NoServiceAccount(_)) => Failure::SERVICE_ACCOUNT_MISSING,
            // Of `pods/resize`, since 1.35: what kubelets used to call infeasible (STS-4.6).
            Some(Word::NodeTooSmall) => Failure::NODE_TOO_SMALL,
            _ => Failure::FORBIDDEN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(code: i32, reason: &str, message: &str) -> Answer {
        let status = Status {
            code,
            reason: reason.into(),
            message: message.into(),
            ..Status::default()
        };
        Answer::Refused(Refusal {
            status,
            retry_after: Some(Duration::from_secs(3)),
        })
    }

    fn word(intent: &Intent, answer: &Answer) -> String {
        match meaning(intent.clone(), answer) {
            Outcome::Rejected { reason, .. } => reason,
            other => other.word().into(),
        }
    }

    #[test]
    fn each_answer_has_one_meaning() {
        let pod = &Intent::Create { exists_is_fine: false };
        let trial = &Intent::Try;
        let imitated =
            "pods \"web-0\" is forbidden: error looking up service account ns/exceeded quota: serviceaccount not found";
        let no_dry_run = "admission webhook \"x\" does not support dry run";
        let claim = &Intent::Create { exists_is_fine: true };
        let existing = &Intent::Delete(Uid::new("u"));
        let change = &Intent::Change(Uid::new("u"));
        let account =
            "pods \"web-0\" is forbidden: error looking up service account ns/x: serviceaccount \"x\" not found";
        let denied = "admission webhook \"x.example.com\" denied the request: later";
        let policy = "pods \"web-0\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        let too_small = "pods \"web-0\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 1000000, \
            allocatable: 2000";
        for (intent, answer, expected) in [
            (pod, Answer::Success, "done"),
            (pod, refuse(409, "AlreadyExists", ""), "stale"),
            (trial, refuse(409, "AlreadyExists", ""), "done"),
            (trial, refuse(409, "Conflict", "quota changed"), "stale"),
            (
                trial,
                refuse(403, "Forbidden", "pods \"a\" is forbidden: exceeded quota: q"),
                "QuotaExceeded",
            ),
            (
                trial,
                refuse(
                    403,
                    "Forbidden",
                    "pods \"a\" is forbidden: failed quota: q: must specify cpu",
                ),
                "Forbidden",
            ),
            (trial, refuse(400, "BadRequest", no_dry_run), "DryRunUnsupported"),
            (
                trial,
                refuse(400, "BadRequest", "cannot be handled as a Pod"),
                "BadRequest",
            ),
            (trial, refuse(422, "Invalid", ""), "Invalid"),
            (trial, refuse(403, "Forbidden", imitated), "ServiceAccountMissing"),
            (trial, refuse(403, "Forbidden", account), "ServiceAccountMissing"),
            (trial, refuse(429, "TooManyRequests", ""), "throttled"),
            (trial, refuse(503, "ServiceUnavailable", ""), "unknown"),
            (claim, refuse(409, "AlreadyExists", ""), "done"),
            (claim, refuse(409, "Conflict", "quota changed"), "stale"),
            (pod, refuse(404, "NotFound", "namespaces \"x\" not found"), "NotFound"),
            (existing, refuse(404, "NotFound", ""), "stale"),
            (
                existing,
                refuse(409, "Conflict", "Precondition failed: UID in precondition: a"),
                "stale",
            ),
            (pod, refuse(429, "TooManyRequests", ""), "throttled"),
            (
                pod,
                refuse(403, "Forbidden", "pods \"a\" is forbidden: exceeded quota: q"),
                "QuotaExceeded",
            ),
            (pod, refuse(403, "Forbidden", account), "ServiceAccountMissing"),
            (pod, refuse(403, "Forbidden", "policy says no"), "Forbidden"),
            (change, refuse(403, "Forbidden", too_small), "NodeTooSmall"),
            (pod, refuse(422, "Invalid", ""), "Invalid"),
            (
                change,
                refuse(404, "NotFound", "the server could not find the requested resource"),
                "NotServed",
            ),
            (change, refuse(404, "NotFound", "pods \"web-0\" not found"), "stale"),
            (
                change,
                refuse(
                    422,
                    "Invalid",
                    "the server rejected our request due to an error in our request",
                ),
                "stale",
            ),
            (
                change,
                refuse(
                    422,
                    "Invalid",
                    "Pod \"web-0\" is invalid: metadata.uid: Invalid value: \"b\": field is immutable",
                ),
                "stale",
            ),
            (
                change,
                refuse(422, "Invalid", "Pod \"web-0\" is invalid: spec: Forbidden: no"),
                "Invalid",
            ),
            (pod, refuse(413, "RequestEntityTooLarge", ""), "TooLarge"),
            (pod, refuse(400, "BadRequest", ""), "BadRequest"),
            (pod, refuse(401, "Unauthorized", ""), "not_sent"),
            (
                pod,
                refuse(
                    500,
                    "InternalError",
                    "Internal error occurred: failed calling webhook \"x\"",
                ),
                "AdmissionUnavailable",
            ),
            (pod, refuse(500, "InternalError", "etcd"), "unknown"),
            (pod, refuse(503, "ServiceUnavailable", ""), "unknown"),
            (pod, refuse(504, "Timeout", ""), "unknown"),
            (pod, Answer::Lost("timed out".into()), "unknown"),
            (pod, refuse(401, "Unauthorized", denied), "AdmissionDenied"),
            (pod, refuse(403, "Forbidden", denied), "Forbidden"),
            (pod, refuse(409, "AlreadyExists", denied), "AdmissionDenied"),
            (claim, refuse(409, "AlreadyExists", denied), "AdmissionDenied"),
            (trial, refuse(409, "AlreadyExists", denied), "AdmissionDenied"),
            (change, refuse(404, "NotFound", denied), "AdmissionDenied"),
            (pod, refuse(422, "Invalid", denied), "Invalid"),
            (pod, refuse(429, "TooManyRequests", denied), "AdmissionDenied"),
            (existing, refuse(500, "InternalError", denied), "AdmissionDenied"),
            (pod, refuse(503, "ServiceUnavailable", denied), "AdmissionDenied"),
            (pod, refuse(401, "Unauthorized", policy), "AdmissionDenied"),
            (pod, Answer::NotSent("connection refused".into()), "not_sent"),
            (pod, Answer::Fenced, "not_sent"),
        ] {
            assert_eq!(word(intent, &answer), expected, "{answer:?}");
        }
    }
}
