//! What conditions of a set say, and the status in which they stand.

use crate::shared::moment::Moment;
use crate::shared::pass::Pass;
use flotilla_model::{Failure, Hints, Scope, SetKind, StatusWrite, Timestamp, Wait, WaitCause};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// How long a wait may last before the status calls the rollout blocked.
pub(crate) const BLOCKED_AFTER: Duration = Duration::from_secs(60);
/// How many waits a condition's message names.
pub(crate) const WAITS_NAMED: usize = 3;
/// How many refused commands a condition's message names.
const FAILURES_NAMED: usize = 3;

/// The condition that tells of updates which the API server refused or which cannot be made.
pub const fn failed_update(kind: SetKind) -> &'static str {
    match kind {
        SetKind::Native | SetKind::Advanced => "FailedUpdatePod",
        SetKind::Clone => "FailedUpdate",
    }
}

/// The condition that tells of pods which the API server refused to make.
pub const fn failed_creation(kind: SetKind) -> &'static str {
    match kind {
        SetKind::Native | SetKind::Advanced => "FailedCreatePod",
        SetKind::Clone => "FailedScale",
    }
}

/// What a condition should say. Its transition time moves only when its status changes.
pub(crate) struct Wanted {
    pub(crate) kind: &'static str,
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// It says the same as before, and says it anew: only its time of update moves.
    pub(crate) is_renewed: bool,
}

/// Whether every field of the set can be read.
pub(crate) fn invalid_spec(moment: Moment<'_>) -> Option<Wanted> {
    const KIND: &str = "InvalidSpec";
    let unreadable = &moment.set.spec.problems;
    if unreadable.is_empty() {
        return recovered(moment, KIND, "Recovered");
    }
    let text = |p: &flotilla_model::set::FieldProblem| format!("{} holds {}, and {}", p.path, p.found, p.rule);
    Some(Wanted {
        kind: KIND,
        status: "True",
        reason: "UnreadableField",
        message: unreadable.iter().map(text).collect::<Vec<_>>().join("; "),
        is_renewed: false,
    })
}

/// A condition about updates in place, with the first few pods that it concerns.
pub(crate) fn troubles(pass: &Pass<'_>, kind: &'static str) -> Option<Wanted> {
    let mut concerned = pass.troubles.iter().filter(|t| t.condition == kind);
    let first = concerned.next()?;
    let others: Vec<&str> = concerned.map(|t| t.message.as_str()).collect();
    let mut message = first.message.clone();
    for other in others.iter().take(WAITS_NAMED - 1) {
        message.push_str("; ");
        message.push_str(other);
    }
    if others.len() >= WAITS_NAMED {
        message.push_str("; and others");
    }
    Some(Wanted {
        kind,
        status: "True",
        reason: first.reason,
        message,
        is_renewed: false,
    })
}

/// The condition that tells of updates in place that do not get on.
pub(crate) const STUCK: &str = "InPlaceUpdateStuck";

/// What [`STUCK`] should say. Another manager told it for as long as it had watched; this one says that it is over when it has seen that, and
/// not because its own watch has just begun.
pub(crate) fn stuck(pass: &Pass<'_>) -> Option<Wanted> {
    let is_over = || (!pass.may_be_stuck).then(|| recovered(pass.moment, STUCK, "Recovered"));
    troubles(pass, STUCK).or_else(|| is_over().flatten())
}

/// A condition of commands that the API server refused: why the first was, and what was said of the first few.
pub(crate) fn refused<'f>(
    moment: Moment<'_>,
    kind: &'static str,
    failures: impl Iterator<Item = (&'f Scope, &'f Failure)>,
) -> Option<Wanted> {
    let name = |scope: &Scope| match scope {
        Scope::Slot(ordinal) => format!("{}-{ordinal}", moment.set.name()),
        Scope::Named(name) => name.clone(),
        Scope::Acceptance(made_of) => Scope::revision_tried(made_of).to_owned(),
        Scope::Object => moment.set.name().to_owned(),
    };
    // What leaves a revision unproven holds up nothing by itself.
    let is_refused = |scope: &Scope, f: &Failure| {
        let proves = |f: &Failure| WaitCause::of_refused_trial(f.reason.clone(), f.message.clone(), Some(f.retry_at));
        !matches!(scope, Scope::Acceptance(_)) || matches!(proves(f), WaitCause::RevisionRefused { .. })
    };
    let mut failures: Vec<(Timestamp, String, &Failure)> = failures
        .filter(|(scope, failure)| is_refused(scope, failure))
        .map(|(scope, failure)| (failure.since, name(scope), failure))
        .collect();
    failures.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let (_, _, first) = failures.first()?;
    let named = failures.iter().take(FAILURES_NAMED);
    let message: Vec<String> = named
        .map(|(_, name, f)| format!("{name}: {}: {}", f.reason, f.message))
        .collect();
    Some(Wanted {
        kind,
        status: "True",
        reason: reason(&first.reason),
        message: message.join("; "),
        is_renewed: false,
    })
}

/// The kind of a failure as one of the words that conditions have.
fn reason(word: &str) -> &'static str {
    const WORDS: [&str; 13] = [
        Failure::QUOTA_EXCEEDED,
        Failure::FORBIDDEN,
        Failure::INVALID,
        Failure::SERVICE_ACCOUNT_MISSING,
        Failure::NAMESPACE_TERMINATING,
        "AdmissionUnavailable",
        Failure::DENIED,
        "TooManyRequests",
        Failure::OUTCOME_UNKNOWN,
        "NotSent",
        "NotFound",
        "TooLarge",
        "BadRequest",
    ];
    if word == Failure::NODE_TOO_SMALL {
        return "ResizeInfeasible";
    }
    let known = WORDS.into_iter().find(|known| *known == word);
    known.unwrap_or("APIServerRefused")
}

/// False, if the condition is stored as True.
pub(crate) fn recovered(moment: Moment<'_>, kind: &'static str, reason: &'static str) -> Option<Wanted> {
    let is_true = stored(moment, kind).is_some_and(|c| c.get("status").and_then(Value::as_str) == Some("True"));
    is_true.then(|| Wanted {
        kind,
        status: "False",
        reason,
        message: String::new(),
        is_renewed: false,
    })
}

/// Whether a wait has lasted long enough to be told, counted from when we began to watch at the earliest.
pub(crate) fn has_lasted(moment: Moment<'_>, hints: &Hints, wait: &Wait) -> bool {
    let since = wait.since.or_else(|| hints.waiting.get(&wait.key()).copied());
    match since {
        _ if matches!(wait.cause, WaitCause::FieldUnreadable { .. }) => true,
        Some(since) => moment.now.since(since.max(moment.observing_since)) >= BLOCKED_AFTER,
        None => false,
    }
}

/// When the earliest wait that has not lasted long enough yet will have.
pub(crate) fn next_report(moment: Moment<'_>, hints: &Hints, waits: &[Wait]) -> Option<Duration> {
    let due = |wait: &Wait| -> Option<Duration> {
        let since = wait.since.or_else(|| hints.waiting.get(&wait.key()).copied());
        let since = since.filter(|_| !wait.cause.is_intended())?.max(moment.observing_since);
        let lasted = moment.now.since(since);
        (lasted < BLOCKED_AFTER).then(|| BLOCKED_AFTER.saturating_sub(lasted))
    };
    waits.iter().filter_map(due).min()
}

/// A wait in words that do not change from pass to pass.
pub(crate) fn in_words(wait: &Wait) -> String {
    let since = wait
        .since
        .map_or_else(String::new, |t: Timestamp| format!(" (since {t})"));
    match &wait.cause {
        // Times of retries move; the reason is what stays.
        WaitCause::Refused { reason, message, .. }
        | WaitCause::RevisionUnproven { reason, message, .. }
        | WaitCause::RevisionRefused { reason, message, .. } => {
            format!("{}: {reason}: {message}", wait.subject)
        }
        WaitCause::Repeated { message, .. } => format!("{}: {message}", wait.subject),
        WaitCause::StartBackOff { .. } => {
            format!("{}: its pods end right after their start", wait.subject)
        }
        WaitCause::PodNotAvailable { .. } => format!("{}: not available yet{since}", wait.subject),
        cause => format!("{}: {cause}{since}", wait.subject),
    }
}

/// The first few waits in words.
pub(crate) fn name_waits(waits: &[&Wait]) -> String {
    let named = waits.iter().take(WAITS_NAMED).map(|w| in_words(w));
    let mut message = named.collect::<Vec<_>>().join("; ");
    if waits.len() > WAITS_NAMED {
        message.push_str("; and others");
    }
    message
}

/// A condition as it is stored.
pub(crate) fn stored<'v>(moment: Moment<'v>, kind: &str) -> Option<&'v Value> {
    let conditions = moment.set.status.get("conditions").and_then(Value::as_array)?;
    conditions
        .iter()
        .find(|c| c.get("type").and_then(Value::as_str) == Some(kind))
}

/// Puts changed conditions among the stored ones; conditions of others stay as they are.
pub(crate) fn put_conditions(status: &mut Map<String, Value>, moment: Moment<'_>, wanted: Vec<Wanted>) {
    let mut conditions = moment
        .set
        .status
        .get("conditions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let mut changed = false;
    for want in wanted {
        let found = conditions
            .iter_mut()
            .find(|c| c.get("type").and_then(Value::as_str) == Some(want.kind));
        let text = |c: &Value, field: &str| c.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let same_status = found.as_deref().is_some_and(|c| text(c, "status") == want.status);
        let same = same_status
            && found
                .as_deref()
                .is_some_and(|c| text(c, "reason") == want.reason && text(c, "message") == want.message);
        if same && !want.is_renewed {
            continue;
        }
        changed = true;
        let since = found
            .as_deref()
            .filter(|_| same_status)
            .and_then(|c| c.get("lastTransitionTime"))
            .cloned();
        let seconds = Timestamp::from_seconds(moment.now.as_millis().div_euclid(1000));
        let mut condition = json!({
            "type": want.kind, "status": want.status, "reason": want.reason,
            "lastTransitionTime": since.unwrap_or_else(|| json!(seconds.to_string())),
        });
        if moment.set.kind == SetKind::Clone {
            condition["lastUpdateTime"] = json!(seconds.to_string());
        }
        if !want.message.is_empty() {
            condition["message"] = json!(want.message);
        }
        match found {
            Some(place) => *place = condition,
            None => conditions.push(condition),
        }
    }
    if changed {
        status.insert("conditions".to_owned(), Value::Array(conditions));
    }
}

/// Takes a condition away that the set no longer has.
pub(crate) fn drop_condition(status: &mut Map<String, Value>, moment: Moment<'_>, kind: &str) {
    let is_other = |c: &Value| c.get("type").and_then(Value::as_str) != Some(kind);
    if stored(moment, kind).is_none() {
        return;
    }
    let known = status.get("conditions").or_else(|| moment.set.status.get("conditions"));
    let list = known.and_then(Value::as_array).into_iter().flatten();
    let left: Vec<Value> = list.filter(|c| is_other(c)).cloned().collect();
    status.insert("conditions".to_owned(), Value::Array(left));
}

/// The number of collisions, which never falls; 0 is said, as others say it, since clients tell it from a status that nobody wrote.
pub(crate) fn put_collisions(status: &mut Map<String, Value>, moment: Moment<'_>, count: i32) {
    let count = count.max(moment.set.status_count("collisionCount"));
    status.insert("collisionCount".to_owned(), json!(count));
}

/// The status to write, given the fields that we say something about.
pub(crate) fn write(moment: Moment<'_>, status: Map<String, Value>) -> StatusWrite {
    StatusWrite {
        resource: moment.set.kind.resource(),
        key: moment.set.meta.key.clone(),
        uid: moment.set.meta.uid.clone(),
        resource_version: moment.set.meta.resource_version,
        observed: moment.set.status.clone(),
        desired: Value::Object(status),
    }
}
