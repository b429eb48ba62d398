//! What the status says: counts over active pods, the two revisions, and conditions (CS-21).

use super::diff::Asked;
use super::plan::Plan;
use super::view::View;
use crate::shared::conditions::{self, Wanted};
use crate::shared::lifecycle::State;
use crate::shared::origin;
use crate::shared::revision::{self, RevisionIndex, Revisions};
use flotilla_model::records::Phase;
use flotilla_model::{Command, Decision, PodRecord, Report, Scope, StatusWrite, Timestamp, Wait, WaitCause};
use serde_json::{Map, Value, json};
use std::time::Duration;

const PROGRESSING: &str = "Progressing";
/// How long after its deadline a rollout is looked at.
const AFTER_DEADLINE: Duration = Duration::from_secs(1);

/// Counts over active pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    total: i32,
    ready: i32,
    available: i32,
    updated: i32,
    updated_ready: i32,
    updated_available: i32,
}

/// The status after a plan was made.
pub(super) fn of(plan: &mut Plan<'_>) -> StatusWrite {
    let view = plan.view;
    // Status and budgets agree on who is available.
    let members = plan.members.iter();
    let counts = count(members.map(|m| (m.pod(), m.is_new(), m.is_available())));
    let wanted = plan.asked.replicas;
    // A surge is no replica: where one is missing beside it, the partition may keep that one old.
    let has_surge = plan.members.iter().any(|m| m.is_surge);
    let is_whole = counts.updated == counts.total && counts.total == wanted && !has_surge;
    let current = if is_whole && !plan.pass.is_held_at_nothing() {
        &plan.pass.update
    } else {
        &plan.pass.current
    };
    let mut status = Map::new();
    put_counts(&mut status, view, counts, &plan.asked);
    status.insert("currentRevision".to_owned(), json!(current.name()));
    status.insert("updateRevision".to_owned(), json!(plan.pass.update.name()));
    conditions::put_collisions(&mut status, view.moment(), plan.pass.revisions.collision_count);
    let is_current = current.meta.uid == plan.pass.update.meta.uid;
    let is_complete = is_current && counts.total == wanted && is_whole && counts.updated_available == wanted;
    let mut wanted: Vec<Wanted> = conditions::invalid_spec(view.moment()).into_iter().collect();
    wanted.extend(failed(plan, conditions::failed_creation(view.set.kind), true));
    wanted.extend(failed(plan, conditions::failed_update(view.set.kind), false));
    wanted.extend(conditions::stuck(&plan.pass));
    let (progressing, wake) = progressing(plan, counts, is_complete);
    wanted.extend(progressing.filter(|want| is_news(view, want)));
    if let Some(delay) = wake {
        plan.pass.wake_within(delay);
    }
    conditions::put_conditions(&mut status, view.moment(), wanted);
    if view.clones.progress_deadline.is_none() {
        conditions::drop_condition(&mut status, view.moment(), PROGRESSING);
    }
    conditions::write(view.moment(), status)
}

/// The status where no plan was made: the set is being deleted, or cannot be read.
pub(super) fn without_plan(view: &View<'_>) -> StatusWrite {
    conditions_only(view, counted(view), Vec::new())
}

/// The status where there is no update revision yet, with what is in the way of it: everything else rests on it. CS-4 and STS-I12.
pub(super) fn without_revision(view: &View<'_>, revisions: &Revisions, decision: &mut Decision) {
    let mut status = counted(view);
    conditions::put_collisions(&mut status, view.moment(), revisions.collision_count);
    // The generation counts as observed once its revision exists.
    status.remove("observedGeneration");
    let mut wanted = Vec::new();
    if let Some(failed) = in_the_way_of_revision(view, &decision.waits) {
        wanted.push(failed);
        let (progressing, wake) = progressing_without_revision(view, revisions);
        wanted.extend(progressing);
        if let Some(delay) = wake {
            decision.wake_within(delay);
        }
    }
    decision.status = Some(conditions_only(view, status, wanted));
}

fn conditions_only(view: &View<'_>, mut status: Map<String, Value>, mut wanted: Vec<Wanted>) -> StatusWrite {
    wanted.extend(conditions::invalid_spec(view.moment()));
    conditions::put_conditions(&mut status, view.moment(), wanted);
    conditions::write(view.moment(), status)
}

/// That the update revision was refused, or has been waited for long enough to be told.
fn in_the_way_of_revision(view: &View<'_>, waits: &[Wait]) -> Option<Wanted> {
    let moment = view.moment();
    let kind = conditions::failed_update(view.set.kind);
    let is_of_today = view.hints.generation == view.set.generation;
    let failures = view.hints.failures.iter();
    let failures = failures.filter(|(scope, _)| is_of_today && matches!(scope, Scope::Object));
    let is_told = |w: &&Wait| w.cause == WaitCause::RevisionLeaving && conditions::has_lasted(moment, view.hints, w);
    conditions::refused(moment, kind, failures).or_else(|| {
        let wait = waits.iter().find(is_told)?;
        Some(Wanted {
            kind,
            status: "True",
            reason: "RevisionLeaving",
            message: conditions::in_words(wait),
            is_renewed: false,
        })
    })
}

/// Condition Progressing while the update revision cannot be made: a rollout has begun, and its deadline counts (CS-21.3 and CS-21.4).
fn progressing_without_revision(view: &View<'_>, revisions: &Revisions) -> (Option<Wanted>, Option<Duration>) {
    let Some(deadline) = view.clones.progress_deadline else {
        return (None, None);
    };
    let (wanted, wake) = if view.set.spec.is_paused() {
        (progress("True", "CloneSetPaused", "CloneSet is paused"), None)
    } else {
        let made = revisions.commands.iter().find(|c| matches!(c, Command::Create { .. }));
        let name = made.map(|c| c.key().name.as_str());
        let name = name.or_else(|| revisions.leaving.as_ref().map(|former| former.name()));
        against_the_clock(
            view,
            deadline,
            was_at_rest(view),
            name.unwrap_or_else(|| view.set.name()),
        )
    };
    (is_news(view, &wanted).then_some(wanted), wake)
}

fn counted(view: &View<'_>) -> Map<String, Value> {
    let update = view.set.status_text("updateRevision");
    let names = RevisionIndex::of(view.revisions.iter().cloned());
    let known = |pod| {
        let of = origin::of(pod, &view.set, &names, &[]).revision;
        let is_new = revision::names_it(view.set.name(), update, of);
        let is_available = is_ready(pod) && State::of(pod).is_normal();
        (
            pod,
            is_new,
            is_available && pod.is_available(view.set.spec.min_ready, view.now),
        )
    };
    let active = view.pods.iter().filter(|p| !p.is_terminal() && !p.is_terminating());
    let counts = count(active.map(|pod| known(&**pod)));
    let mut status = Map::new();
    let asked = Asked::of(&view.set.spec, &view.clones, false);
    put_counts(&mut status, view, counts, &asked);
    status
}

/// CS-21.1: ready whatever the lifecycle says.
fn is_ready(pod: &PodRecord) -> bool {
    let in_place = pod.detail.as_ref().and_then(|d| d.in_place_ready.as_ref());
    pod.phase == Phase::Running && pod.ready.is_true && in_place.is_none_or(|c| c.is_true)
}

/// Counts active pods: each with whether it is at the update revision, and whether it is available.
fn count<'p>(pods: impl Iterator<Item = (&'p PodRecord, bool, bool)>) -> Counts {
    let mut counts = Counts::default();
    for (pod, is_new, is_available) in pods {
        let is_ready = is_ready(pod);
        counts.total += 1;
        counts.ready += i32::from(is_ready);
        counts.available += i32::from(is_available);
        if is_new {
            counts.updated += 1;
            counts.updated_ready += i32::from(is_ready);
            counts.updated_available += i32::from(is_available);
        }
    }
    counts
}

fn put_counts(status: &mut Map<String, Value>, view: &View<'_>, counts: Counts, asked: &Asked) {
    for (field, value) in [
        ("observedGeneration", json!(view.set.generation)),
        ("replicas", json!(counts.total)),
        ("readyReplicas", json!(counts.ready)),
        ("availableReplicas", json!(counts.available)),
        ("updatedReplicas", json!(counts.updated)),
        ("updatedReadyReplicas", json!(counts.updated_ready)),
        ("updatedAvailableReplicas", json!(counts.updated_available)),
        ("expectedUpdatedReplicas", json!(asked.replicas - asked.partition)),
        ("labelSelector", json!(view.set.spec.selector.to_string())),
    ] {
        status.insert(field.to_owned(), value);
    }
}

/// A condition of commands that the API server refused and of what else cannot be done: True with the first few, False after a pass
/// without any (CS-4).
fn failed(plan: &Plan<'_>, kind: &'static str, of_scaling: bool) -> Option<Wanted> {
    let moment = plan.view.moment();
    let failures = plan.pass.hints.failures.iter();
    let failures = failures.filter(|(scope, f)| is_of_scaling(plan, scope, f.attempt) == Some(of_scaling));
    conditions::refused(moment, kind, failures)
        .or_else(|| conditions::troubles(&plan.pass, kind))
        .or_else(|| conditions::recovered(moment, kind, "Recovered"))
}

/// Whether what failed was to scale the set, or to update a pod. What no event tells of counts where it stands in the way of a pod: of one
/// that is there or, as claims that are taken, of one that is to come.
fn is_of_scaling(plan: &Plan<'_>, scope: &Scope, attempt: Report) -> Option<bool> {
    match (attempt, scope) {
        (Report::Create | Report::Take | Report::Delete, _) => Some(true),
        (Report::Silent, Scope::Named(name)) => {
            let is_revision = plan.view.revision_named(name).is_some();
            (!is_revision).then(|| !plan.view.has_pod(name))
        }
        (Report::Silent, _) => None,
        _ => Some(false),
    }
}

/// Condition Progressing (CS-21.3 and CS-21.4), and when to look again.
fn progressing(plan: &Plan<'_>, counts: Counts, is_complete: bool) -> (Option<Wanted>, Option<Duration>) {
    let view = plan.view;
    let Some(deadline) = view.clones.progress_deadline else {
        return (None, None);
    };
    let expected = plan.asked.replicas - plan.asked.partition;
    let is_reached = expected < plan.asked.replicas && expected <= counts.updated_available;
    let at_rest = if is_complete {
        progress("True", "CloneSetAvailable", "CloneSet is available")
    } else if view.set.spec.is_paused() {
        progress("True", "CloneSetPaused", "CloneSet is paused")
    } else if is_reached || plan.pass.is_held_at_nothing() {
        let text = "CloneSet has been paused due to partition ready";
        progress("True", "ProgressPartitionAvailable", text)
    } else {
        let (wanted, wake) = against_the_clock(view, deadline, has_progressed(plan, counts), plan.pass.update.name());
        return (Some(wanted), wake);
    };
    (Some(at_rest), None)
}

/// What Progressing says. Programs compare its messages.
fn progress(status: &'static str, reason: &'static str, message: &str) -> Wanted {
    Wanted {
        kind: PROGRESSING,
        status,
        reason,
        message: message.to_owned(),
        is_renewed: false,
    }
}

/// Whether Progressing is to be written: equal status and reason leave it alone, whatever words somebody else put beside them.
fn is_news(view: &View<'_>, wanted: &Wanted) -> bool {
    let text = |field: &str| conditions::stored(view.moment(), PROGRESSING)?.get(field)?.as_str();
    wanted.is_renewed || text("status") != Some(wanted.status) || text("reason") != Some(wanted.reason)
}

/// A rollout to a revision that is on its way: whether it has run out of time, and when to look again.
fn against_the_clock(
    view: &View<'_>,
    deadline: Duration,
    has_progressed: bool,
    revision: &str,
) -> (Wanted, Option<Duration>) {
    let on_its_way = |is_renewed| Wanted {
        is_renewed,
        ..progress("True", "CloneSetUpdated", "CloneSet is progressing")
    };
    let Some(since) = last_progress(view).filter(|_| !has_progressed) else {
        return (on_its_way(true), Some(deadline + AFTER_DEADLINE));
    };
    let lasted = view.now.since(since.max(view.observing_since));
    let stored = conditions::stored(view.moment(), PROGRESSING);
    let is_told = stored.and_then(|c| c.get("status")).and_then(Value::as_str) == Some("False");
    if lasted > deadline || is_told {
        let text = format!("CloneSet revision {revision} has timed out progressing");
        return (progress("False", "ProgressDeadlineExceeded", &text), None);
    }
    let wake = deadline.saturating_sub(lasted) + AFTER_DEADLINE;
    (on_its_way(false), Some(wake))
}

/// When there last was progress, as the stored condition says.
fn last_progress(view: &View<'_>) -> Option<Timestamp> {
    let condition = conditions::stored(view.moment(), PROGRESSING)?;
    condition.get("lastUpdateTime")?.as_str()?.parse().ok()
}

/// Whether Progressing says that nothing was to be done (CS-21.4).
fn was_at_rest(view: &View<'_>) -> bool {
    let stored = conditions::stored(view.moment(), PROGRESSING);
    let reason = stored.and_then(|c| c.get("reason")).and_then(Value::as_str);
    matches!(
        reason,
        Some("CloneSetAvailable" | "CloneSetPaused" | "ProgressPartitionAvailable")
    )
}

/// Whether anything has moved since the stored status, or a rollout begins (CS-21.4).
fn has_progressed(plan: &Plan<'_>, counts: Counts) -> bool {
    let set = &plan.view.set;
    let rises = [
        ("updatedReplicas", counts.updated),
        ("updatedReadyReplicas", counts.updated_ready),
        ("updatedAvailableReplicas", counts.updated_available),
    ];
    let old_before = set.status_count("replicas") - set.status_count("updatedReplicas");
    was_at_rest(plan.view)
        || set.status_text("updateRevision") != plan.pass.update.name()
        || rises.iter().any(|(field, now)| *now > set.status_count(field))
        || counts.total - counts.updated < old_before
}
