//! What the status says: counts over all pods, the two revisions, and conditions that explain every wait (rules 2.2, 3.2, 3.10).
//!
//! The status is a pure function of the view. It names only fields of ours; what others put there stays.

use super::plan::Plan;
use super::pod::LabelReader;
use super::view::View;
use crate::shared::claim::{self, Fit};
use crate::shared::revision::Revisions;
use flotilla_model::{Hints, Report, SetKind, StatusWrite, Timestamp, Wait};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many unused claims the status names at most.
const UNUSED_CLAIMS_TOLD: usize = 100;

/// How long a wait may last before the status calls the rollout blocked.
const BLOCKED_AFTER: Duration = Duration::from_secs(60);
/// How many waits a condition's message names.
const WAITS_NAMED: usize = 3;

/// Counts over all pods that the set manages, wanted or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    total: i32,
    ready: i32,
    available: i32,
    current: i32,
    updated: i32,
    updated_ready: i32,
    updated_available: i32,
}

/// The status after a plan was made.
pub(super) fn of(plan: &Plan<'_>) -> StatusWrite {
    let view = plan.view;
    let mut reader = LabelReader {
        kind: view.set.kind,
        update: Some(&plan.update),
        current: plan.current.name(),
        special: &view.set.spec.special_pods,
        revisions: &plan.revisions.history,
        last: None,
    };
    let counts = count(view, &mut reader, &plan.in_flight());
    let mut status = Map::new();
    let complete = is_complete(plan, counts);
    let current = if complete {
        plan.update.name()
    } else {
        plan.current.name()
    };
    let current_count = if complete { counts.updated } else { counts.current };
    put_counts(
        &mut status,
        view,
        Counts {
            current: current_count,
            ..counts
        },
    );
    status.insert("currentRevision".to_owned(), json!(current));
    status.insert("updateRevision".to_owned(), json!(plan.update.name()));
    put_collisions(&mut status, view, plan.revisions.collision_count);
    if view.set.kind == SetKind::Advanced {
        status.insert("volumeClaims".to_owned(), claim_counts(plan));
        status.insert("unusedVolumeClaims".to_owned(), unused_claims(plan));
    }
    let conditions = conditions(view, Some(plan), &plan.waits, complete);
    put_conditions(&mut status, view, conditions);
    write(view, status)
}

/// The status where no plan was made: the set is being deleted, cannot be read, or has no update revision yet.
pub(super) fn without_plan(view: &View<'_>, revisions: Option<&Revisions>, waits: &[Wait]) -> StatusWrite {
    let current = view.set.status_text("currentRevision");
    let update = view
        .revisions
        .iter()
        .find(|r| r.name() == view.set.status_text("updateRevision"));
    let mut reader = LabelReader {
        kind: view.set.kind,
        update: update.map(|r| &**r),
        current,
        special: &view.set.spec.special_pods,
        revisions: &view.revisions,
        last: None,
    };
    let counts = count(view, &mut reader, &BTreeMap::new());
    let mut status = Map::new();
    put_counts(&mut status, view, counts);
    if let Some(revisions) = revisions {
        put_collisions(&mut status, view, revisions.collision_count);
        // The generation counts as observed once its revision exists.
        status.remove("observedGeneration");
    }
    let conditions = conditions(view, None, waits, false);
    put_conditions(&mut status, view, conditions);
    write(view, status)
}

fn write(view: &View<'_>, status: Map<String, Value>) -> StatusWrite {
    StatusWrite {
        resource: view.set.kind.resource(),
        key: view.set.meta.key.clone(),
        uid: view.set.meta.uid.clone(),
        resource_version: view.set.meta.resource_version,
        observed: view.set.status.clone(),
        desired: Value::Object(status),
    }
}

/// `in_flight` says of pods in an update in place whether they may count as available.
fn count(view: &View<'_>, reader: &mut LabelReader<'_>, in_flight: &BTreeMap<&str, bool>) -> Counts {
    let mut counts = Counts::default();
    let min_ready = view.set.spec.min_ready;
    for pod in view.pods().filter(|pod| pod.is_created()) {
        let labels = reader.read(pod);
        let known = if in_flight.is_empty() {
            None
        } else {
            in_flight.get(pod.name()).copied()
        };
        let is_ready = pod.is_running_and_ready() && (labels.lifecycle_allows || known == Some(true));
        let is_available = is_ready && known != Some(false) && pod.is_available(min_ready, view.now);
        counts.total += 1;
        counts.ready += i32::from(is_ready);
        counts.available += i32::from(is_available);
        if !pod.is_terminating() {
            counts.current += i32::from(labels.is_current);
            counts.updated += i32::from(labels.is_updated);
        }
        if labels.is_updated {
            counts.updated_ready += i32::from(is_ready);
            counts.updated_available += i32::from(is_available);
        }
    }
    counts
}

fn put_counts(status: &mut Map<String, Value>, view: &View<'_>, counts: Counts) {
    let mut put = |field: &str, value: Value| status.insert(field.to_owned(), value);
    put("observedGeneration", json!(view.set.generation));
    put("replicas", json!(counts.total));
    for (field, number) in [
        ("readyReplicas", counts.ready),
        ("availableReplicas", counts.available),
        ("currentReplicas", counts.current),
        ("updatedReplicas", counts.updated),
    ] {
        put(field, number_or_absent(view, field, number));
    }
    if view.set.kind == SetKind::Advanced {
        put("updatedReadyReplicas", json!(counts.updated_ready));
        put("updatedAvailableReplicas", json!(counts.updated_available));
        put("labelSelector", json!(view.set.spec.selector.to_string()));
    }
}

/// The native API drops most zeros when it stores them (`omitempty`), so there a zero and nothing are the same; writing it would
/// never end. The Advanced kind shows them in its columns.
fn number_or_absent(view: &View<'_>, field: &str, number: i32) -> Value {
    let is_stored = view.set.status.get(field).is_some_and(|n| !n.is_null());
    if number == 0 && view.set.kind == SetKind::Native && !is_stored {
        Value::Null
    } else {
        json!(number)
    }
}

fn put_collisions(status: &mut Map<String, Value>, view: &View<'_>, count: i32) {
    if count > view.set.status_count("collisionCount")
        || view.set.status.get("collisionCount").is_some_and(|c| !c.is_null())
    {
        status.insert(
            "collisionCount".to_owned(),
            json!(count.max(view.set.status_count("collisionCount"))),
        );
    }
}

/// Whether the rollout is over: every wanted pod is there, updated, ready and available, for every type of strategy (rule 3.10).
fn is_complete(plan: &Plan<'_>, counts: Counts) -> bool {
    let wanted = plan.view.set.spec.replicas;
    let all = [counts.total, counts.ready, counts.available, counts.updated]
        .iter()
        .all(|n| *n == wanted);
    all && plan.slots.iter().all(|s| {
        s.occupant
            .as_ref()
            .is_some_and(|o| !o.doomed && o.health.is_available() && !o.is_in_flight())
    })
}

/// How many claims of existing pods fit their template, for each template (rule 3.9).
fn claim_counts(plan: &Plan<'_>) -> Value {
    let view = plan.view;
    let templates = &view.set.spec.claim_templates;
    if templates.is_empty() || !view.set.spec.expand_claims {
        return Value::Null;
    }
    let pods: Vec<_> = plan
        .slots
        .iter()
        .filter_map(|s| s.occupant.as_ref())
        .map(|o| o.pod.clone())
        .collect();
    let row = |template: &flotilla_model::set::ClaimTemplate| {
        let claims = pods
            .iter()
            .filter_map(|pod| view.claim(&claim::claim_name(template, pod.name())));
        let compatible: Vec<_> = claims.filter(|c| claim::fit(c, template) == Fit::Compatible).collect();
        let ready = compatible.iter().filter(|c| claim::is_expanded(c)).count();
        json!({"volumeClaimName": &*template.name, "compatibleReplicas": compatible.len(), "compatibleReadyReplicas": ready})
    };
    Value::Array(templates.iter().map(row).collect())
}

/// Names of claims that were made from templates the set no longer has, and that no pod uses any more: nobody but the user can know
/// whether they may go (8.6).
fn unused_claims(plan: &Plan<'_>) -> Value {
    let has = |name: &str| plan.view.set.spec.claim_templates.iter().any(|t| &*t.name == name);
    let recorded = plan
        .revisions
        .history
        .iter()
        .filter_map(|r| r.claim_templates.as_deref()?.as_array());
    let removed: BTreeSet<&str> = recorded
        .flatten()
        .filter_map(|t| t.pointer("/metadata/name")?.as_str())
        .filter(|name| !has(name))
        .collect();
    let mut unused = Vec::new();
    for slot in plan.slots.iter().filter(|_| !removed.is_empty()) {
        let pod = plan.name(slot.ordinal);
        let claims = removed.iter().map(|template| (*template, format!("{template}-{pod}")));
        let is_used = |volume: &str, claim: &str| slot.occupant.as_ref().is_some_and(|o| o.pod.mounts(volume, claim));
        unused.extend(claims.filter_map(|(volume, claim)| {
            (plan.view.claim(&claim).is_some() && !is_used(volume, &claim)).then_some(claim)
        }));
    }
    unused.truncate(UNUSED_CLAIMS_TOLD);
    if unused.is_empty() { Value::Null } else { json!(unused) }
}

/// What a condition should say. Its transition time moves only when its status changes.
struct Wanted {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// Conditions that should change, given those that are stored.
fn conditions(view: &View<'_>, plan: Option<&Plan<'_>>, waits: &[Wait], complete: bool) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    let unreadable = &view.set.spec.problems;
    if unreadable.is_empty() {
        wanted.extend(recovered(view, "InvalidSpec", "Recovered"));
    } else {
        let text = |p: &flotilla_model::set::FieldProblem| format!("{} holds {}, and {}", p.path, p.found, p.rule);
        let message = unreadable.iter().map(text).collect::<Vec<_>>().join("; ");
        wanted.push(Wanted {
            kind: "InvalidSpec",
            status: "True",
            reason: "UnreadableField",
            message,
        });
    }
    wanted.extend(failed(view, plan, "FailedCreatePod", |attempt| {
        attempt == Report::Create
    }));
    wanted.extend(failed(view, plan, "FailedUpdatePod", |attempt| {
        !matches!(attempt, Report::Create | Report::Silent)
    }));
    if let Some(plan) = plan {
        let stuck = troubles(plan, "InPlaceUpdateStuck");
        wanted.extend(stuck.or_else(|| recovered(view, "InPlaceUpdateStuck", "Recovered")));
    }
    wanted.extend(progressing(view, plan, waits, complete));
    wanted
}

/// A condition of commands that the API server refused, or that it refuses no more.
fn failed(
    view: &View<'_>,
    plan: Option<&Plan<'_>>,
    kind: &'static str,
    is_of: impl Fn(Report) -> bool,
) -> Option<Wanted> {
    let current = view.hints.generation == view.set.generation;
    // With a plan, it is known which failures are over.
    let hints = plan.map_or(view.hints, |p| &p.hints);
    let failures = hints.failures.iter().filter(|(_, f)| current && is_of(f.attempt));
    if let Some((scope, failure)) = failures.min_by_key(|(_, f)| f.since) {
        let subject = match scope {
            flotilla_model::Scope::Slot(ordinal) => format!("{}-{ordinal}", view.set.name()),
            flotilla_model::Scope::Named(name) => name.clone(),
            flotilla_model::Scope::Object => view.set.name().to_owned(),
        };
        let message = format!("{subject}: {}: {}", failure.reason, failure.message);
        return Some(Wanted {
            kind,
            status: "True",
            reason: "APIServerRefused",
            message,
        });
    }
    if let Some(trouble) = plan.and_then(|p| troubles(p, kind)) {
        return Some(trouble);
    }
    // A restart forgets failures; the condition stays until it is seen that what failed has been done.
    let is_done = plan.is_some_and(|p| match kind {
        "FailedCreatePod" => p.slots.iter().all(|s| s.occupant.is_some()),
        _ => p.stages.repair.is_empty() && p.stages.delete.is_empty() && p.stages.in_place.is_empty(),
    });
    if is_done {
        recovered(view, kind, "Recovered")
    } else {
        None
    }
}

/// A condition about updates in place, with the first few pods that it concerns.
fn troubles(plan: &Plan<'_>, kind: &'static str) -> Option<Wanted> {
    let mut concerned = plan.troubles.iter().filter(|t| t.condition == kind);
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
    })
}

/// False, if the condition is stored as True.
fn recovered(view: &View<'_>, kind: &'static str, reason: &'static str) -> Option<Wanted> {
    let is_true = stored(view, kind).is_some_and(|c| c.get("status").and_then(Value::as_str) == Some("True"));
    is_true.then(|| Wanted {
        kind,
        status: "False",
        reason,
        message: String::new(),
    })
}

/// Condition Progressing (rule 3.10, invariant 12): False while something has been in the way for a minute or was asked to stop, with
/// what and why. A set that never was in the way of itself does not carry it.
fn progressing(view: &View<'_>, plan: Option<&Plan<'_>>, waits: &[Wait], complete: bool) -> Option<Wanted> {
    const KIND: &str = "Progressing";
    let known = stored(view, KIND);
    let text = |field: &str| known.and_then(|c| c.get(field)).and_then(Value::as_str);
    // What was told stays told until it is over, although a restart begins to count anew; what is new has its own minute.
    let told = text("message").filter(|_| text("reason") == Some("RolloutBlocked"));
    let is_told = |wait: &Wait| told.is_some_and(|message| message.contains(&in_words(wait)));
    let hints = plan.map_or(view.hints, |p| &p.hints);
    let blocking: Vec<&Wait> = waits
        .iter()
        .filter(|w| !w.cause.is_intended() && (has_lasted(view, hints, w) || is_told(w)))
        .collect();
    if !blocking.is_empty() {
        return Some(Wanted {
            kind: KIND,
            status: "False",
            reason: "RolloutBlocked",
            message: name_waits(&blocking),
        });
    }
    // A pass that still deletes or creates has not reached the partition yet.
    let is_at_rest =
        plan.is_none_or(|p| p.stages.delete.is_empty() && p.stages.create.is_empty() && p.stages.in_place.is_empty());
    let intended = waits.iter().find(|w| w.cause.is_intended()).filter(|_| is_at_rest);
    if let Some(wait) = intended.filter(|_| waits.iter().all(|w| w.cause.is_intended())) {
        let reason = match wait.cause {
            flotilla_model::WaitCause::Paused => "RolloutPaused",
            flotilla_model::WaitCause::Partition { .. } => "PartitionReached",
            _ => "WaitingForUser",
        };
        return Some(Wanted {
            kind: KIND,
            status: "True",
            reason,
            message: wait.cause.to_string(),
        });
    }
    known?;
    if complete && waits.is_empty() {
        return Some(Wanted {
            kind: KIND,
            status: "True",
            reason: "RolloutComplete",
            message: String::new(),
        });
    }
    Some(Wanted {
        kind: KIND,
        status: "True",
        reason: "RolloutInProgress",
        message: String::new(),
    })
}

/// Whether a wait has lasted long enough to be told, counted from when we began to watch at the earliest.
fn has_lasted(view: &View<'_>, hints: &Hints, wait: &Wait) -> bool {
    let since = wait.since.or_else(|| hints.waiting.get(&wait.key()).copied());
    match since {
        _ if matches!(wait.cause, flotilla_model::WaitCause::FieldUnreadable { .. }) => true,
        Some(since) => view.now.since(since.max(view.observing_since)) >= BLOCKED_AFTER,
        None => false,
    }
}

/// When the earliest wait that has not lasted long enough yet will have.
pub(super) fn next_report(view: &View<'_>, hints: &Hints, waits: &[Wait]) -> Option<Duration> {
    let due = |wait: &Wait| -> Option<Duration> {
        let since = wait.since.or_else(|| hints.waiting.get(&wait.key()).copied());
        let since = since.filter(|_| !wait.cause.is_intended())?.max(view.observing_since);
        let lasted = view.now.since(since);
        (lasted < BLOCKED_AFTER).then(|| BLOCKED_AFTER.saturating_sub(lasted))
    };
    waits.iter().filter_map(due).min()
}

/// A wait in words that do not change from pass to pass.
fn in_words(wait: &Wait) -> String {
    let since = wait
        .since
        .map_or_else(String::new, |t: Timestamp| format!(" (since {t})"));
    match &wait.cause {
        // Times of retries move; the reason is what stays.
        flotilla_model::WaitCause::Refused { reason, message, .. } => {
            format!("{}: {reason}: {message}", wait.subject)
        }
        flotilla_model::WaitCause::StartBackOff { .. } => {
            format!("{}: its pods end right after their start", wait.subject)
        }
        flotilla_model::WaitCause::PodNotAvailable { .. } => format!("{}: not available yet{since}", wait.subject),
        cause => format!("{}: {cause}{since}", wait.subject),
    }
}

/// The first few waits in words.
fn name_waits(waits: &[&Wait]) -> String {
    let named = waits.iter().take(WAITS_NAMED).map(|w| in_words(w));
    let mut message = named.collect::<Vec<_>>().join("; ");
    if waits.len() > WAITS_NAMED {
        message.push_str("; and others");
    }
    message
}

fn stored<'v>(view: &'v View<'_>, kind: &str) -> Option<&'v Value> {
    let conditions = view.set.status.get("conditions").and_then(Value::as_array)?;
    conditions
        .iter()
        .find(|c| c.get("type").and_then(Value::as_str) == Some(kind))
}

/// Puts changed conditions among the stored ones; conditions of others stay as they are.
fn put_conditions(status: &mut Map<String, Value>, view: &View<'_>, wanted: Vec<Wanted>) {
    let mut conditions = view
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
        if same {
            continue;
        }
        changed = true;
        let since = found
            .as_deref()
            .filter(|_| same_status)
            .and_then(|c| c.get("lastTransitionTime"))
            .cloned();
        let seconds = Timestamp::from_seconds(view.now.as_millis().div_euclid(1000));
        let mut condition = json!({
            "type": want.kind, "status": want.status, "reason": want.reason,
            "lastTransitionTime": since.unwrap_or_else(|| json!(seconds.to_string())),
        });
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
