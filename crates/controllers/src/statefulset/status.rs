//! What the status says: counts over all pods, the two revisions, and conditions that explain every wait (STS-2.2, STS-3.2, STS-3.10).
//!
//! The status is a pure function of the view. It names only fields of ours; what others put there stays.

use super::plan::Plan;
use super::pod::LabelReader;
use super::view::View;
use crate::shared::claim::{self, Fit};
use crate::shared::conditions::{self, Wanted};
use crate::shared::revision::{RevisionIndex, Revisions};
use flotilla_model::{Decision, PodRecord, Report, Scope, SetKind, StatusWrite, Wait};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How many unused claims the status names at most.
const UNUSED_CLAIMS_TOLD: usize = 100;

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
    /// When the next of them becomes available by the clock alone.
    next_in: Option<Duration>,
}

/// The status after a plan was made. It is looked at again when the next pod becomes available, also one that no step waits for (STS-1.5).
pub(super) fn of(plan: &mut Plan<'_>) -> StatusWrite {
    let view = plan.view;
    let mut reader = LabelReader {
        set: &view.set,
        update: Some(&plan.pass.update),
        current: plan.pass.current.name(),
        special: &view.set.spec.special_pods,
        revisions: &plan.pass.revisions.names,
        last: None,
    };
    let in_flight = plan.in_flight();
    let counts = count(view, view.pods(), &mut reader, &in_flight);
    let mut status = Map::new();
    // A pod that fills no slot is counted, and nothing waits for it.
    let of_members = if view.unusable.is_empty() {
        counts
    } else {
        count(view, view.members.iter().map(|m| &m.pod), &mut reader, &in_flight)
    };
    if let Some(delay) = counts.next_in {
        plan.pass.wake_within(delay);
    }
    let complete = is_complete(plan, of_members);
    let is_promoted = complete && !plan.pass.is_held_at_nothing();
    let current = if is_promoted {
        plan.pass.update.name()
    } else {
        plan.pass.current.name()
    };
    let current_count = if is_promoted { counts.updated } else { counts.current };
    put_counts(
        &mut status,
        view,
        Counts {
            current: current_count,
            ..counts
        },
    );
    status.insert("currentRevision".to_owned(), json!(current));
    status.insert("updateRevision".to_owned(), json!(plan.pass.update.name()));
    conditions::put_collisions(&mut status, view.moment(), plan.pass.revisions.collision_count);
    if view.set.kind == SetKind::Advanced {
        status.insert("volumeClaims".to_owned(), claim_counts(plan));
        status.insert("unusedVolumeClaims".to_owned(), unused_claims(plan));
    }
    // Of pods at the update revision the claims may have to grow still, or they have to be made again for claims of templates that came later.
    let mut occupants = plan.slots.iter().filter_map(|s| s.occupant.as_ref());
    let is_over = complete && !occupants.any(|o| o.is_old() || plan.claims_lag(&o.pod));
    let wanted = conditions_of(view, Some(plan), &plan.pass.waits, is_over);
    conditions::put_conditions(&mut status, view.moment(), wanted);
    conditions::write(view.moment(), status)
}

/// The status where no plan was made: the set is being deleted, cannot be read, or has no update revision yet.
pub(super) fn without_plan(view: &View<'_>, revisions: Option<&Revisions>, decision: &mut Decision) {
    let current = view.set.status_text("currentRevision");
    let update = view
        .revisions
        .iter()
        .find(|r| r.name() == view.set.status_text("updateRevision"));
    let names = RevisionIndex::of(view.revisions.iter().cloned());
    let mut reader = LabelReader {
        set: &view.set,
        update: update.map(|r| &**r),
        current,
        special: &view.set.spec.special_pods,
        revisions: &names,
        last: None,
    };
    let counts = count(view, view.pods(), &mut reader, &BTreeMap::new());
    if let Some(delay) = counts.next_in {
        decision.wake_within(delay);
    }
    let mut status = Map::new();
    put_counts(&mut status, view, counts);
    if let Some(revisions) = revisions {
        conditions::put_collisions(&mut status, view.moment(), revisions.collision_count);
        // The generation counts as observed once its revision exists.
        status.remove("observedGeneration");
    }
    let wanted = conditions_of(view, None, &decision.waits, false);
    conditions::put_conditions(&mut status, view.moment(), wanted);
    decision.status = Some(conditions::write(view.moment(), status));
}

/// `in_flight` says of pods in an update in place whether they may count as available.
fn count<'v>(
    view: &View<'_>,
    pods: impl Iterator<Item = &'v Arc<PodRecord>>,
    reader: &mut LabelReader<'_>,
    in_flight: &BTreeMap<&str, bool>,
) -> Counts {
    let mut counts = Counts::default();
    let min_ready = view.set.spec.min_ready;
    for pod in pods.filter(|pod| pod.is_created()) {
        let labels = reader.read(pod);
        let known = if in_flight.is_empty() {
            None
        } else {
            in_flight.get(pod.name()).copied()
        };
        // Ready is what serves, whatever the lifecycle says (STS-2.2); available is what may be relied upon (STS-1.5).
        let is_ready = pod.is_running_and_ready();
        let may_be_available = known.unwrap_or(labels.lifecycle_allows);
        let available_in = pod.available_in(min_ready, view.now).filter(|_| may_be_available);
        let is_available = available_in == Some(Duration::ZERO);
        let next = available_in.filter(|_| !is_available);
        counts.next_in = counts.next_in.into_iter().chain(next).min();
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

/// Whether the rollout is over: every wanted pod is there, updated, ready and available, for every type of strategy (STS-3.10).
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

/// How many claims of existing pods fit their template, for each template (STS-3.9).
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
        let ready = compatible.iter().filter(|c| claim::is_expanded(c, template)).count();
        json!({"volumeClaimName": &*template.name, "compatibleReplicas": compatible.len(), "compatibleReadyReplicas": ready})
    };
    Value::Array(templates.iter().map(row).collect())
}

/// Names of claims that were made from templates the set no longer has, and that no pod uses any more: nobody but the user can know
/// whether they may go (STS-8.6).
fn unused_claims(plan: &Plan<'_>) -> Value {
    let removed = plan.former_templates();
    let mut unused = Vec::new();
    for slot in plan.slots.iter().filter(|_| !removed.is_empty()) {
        let pod = plan.name(slot.ordinal);
        let claims = removed
            .iter()
            .map(|template| (&**template, format!("{template}-{pod}")));
        let is_used = |volume: &str, claim: &str| slot.occupant.as_ref().is_some_and(|o| o.pod.mounts(volume, claim));
        unused.extend(claims.filter_map(|(volume, claim)| {
            (plan.view.claim(&claim).is_some() && !is_used(volume, &claim)).then_some(claim)
        }));
    }
    unused.truncate(UNUSED_CLAIMS_TOLD);
    if unused.is_empty() { Value::Null } else { json!(unused) }
}

/// Conditions that should change, given those that are stored.
fn conditions_of(view: &View<'_>, plan: Option<&Plan<'_>>, waits: &[Wait], complete: bool) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    wanted.extend(conditions::invalid_spec(view.moment()));
    wanted.extend(failed(view, plan, conditions::failed_creation(view.set.kind), true));
    wanted.extend(failed(view, plan, conditions::failed_update(view.set.kind), false));
    wanted.extend(plan.and_then(|plan| conditions::stuck(&plan.pass)));
    wanted.extend(progressing(view, plan, waits, complete));
    wanted
}

/// A condition of commands that the API server refused, or that it refuses no more.
fn failed(view: &View<'_>, plan: Option<&Plan<'_>>, kind: &'static str, of_creation: bool) -> Option<Wanted> {
    let current = view.hints.generation == view.set.generation;
    // With a plan, it is known which failures are over.
    let hints = plan.map_or(view.hints, |p| &p.pass.hints);
    let is_of = |scope: &Scope, attempt| is_of_creation(view, scope, attempt) == Some(of_creation);
    let failures = hints
        .failures
        .iter()
        .filter(|(scope, f)| current && is_of(scope, f.attempt));
    if let Some(refused) = conditions::refused(view.moment(), kind, failures) {
        return Some(refused);
    }
    if let Some(trouble) = plan.and_then(|p| conditions::troubles(&p.pass, kind)) {
        return Some(trouble);
    }
    // A restart forgets failures; the condition stays until it is seen that what failed has been done.
    let is_done = plan.is_some_and(|p| {
        if kind == conditions::failed_creation(view.set.kind) {
            return p.slots.iter().all(|s| s.occupant.is_some()) && p.pass.stages.trial.is_empty();
        }
        let stages = &p.pass.stages;
        let on_pods = [
            &stages.repair,
            &stages.unready,
            &stages.in_place,
            &stages.back,
            &stages.delete,
        ];
        on_pods.into_iter().all(Vec::is_empty)
    });
    if is_done {
        conditions::recovered(view.moment(), kind, "Recovered")
    } else {
        None
    }
}

/// Whether what failed was to make a pod, or something about a pod that is there. What no event tells of counts where it stands in the way
/// of a pod: conditions that take it out of service and back, adoption, release, claims that are taken.
fn is_of_creation(view: &View<'_>, scope: &Scope, attempt: Report) -> Option<bool> {
    match (attempt, scope) {
        (Report::Create | Report::Take | Report::Try, _) => Some(true),
        (Report::Silent, Scope::Slot(ordinal)) => Some(!view.has_pod(&format!("{}-{ordinal}", view.set.name()))),
        (Report::Silent, Scope::Named(name)) => view.has_pod(name).then_some(false),
        (Report::Silent, _) => None,
        _ => Some(false),
    }
}

/// Condition Progressing (STS-3.10, STS-I12): False while something has been in the way for a minute or was asked to stop, with
/// what and why. A set that never was in the way of itself does not carry it.
fn progressing(view: &View<'_>, plan: Option<&Plan<'_>>, waits: &[Wait], complete: bool) -> Option<Wanted> {
    const KIND: &str = "Progressing";
    let known = conditions::stored(view.moment(), KIND);
    let text = |field: &str| known.and_then(|c| c.get(field)).and_then(Value::as_str);
    // What was told stays told until it is over, although a restart begins to count anew; what is new has its own minute.
    let told = text("message").filter(|_| text("reason") == Some("RolloutBlocked"));
    let is_told = |wait: &Wait| told.is_some_and(|message| message.contains(&conditions::in_words(wait)));
    let hints = plan.map_or(view.hints, |p| &p.pass.hints);
    let blocking: Vec<&Wait> = waits
        .iter()
        .filter(|w| !w.cause.is_intended() && (conditions::has_lasted(view.moment(), hints, w) || is_told(w)))
        .collect();
    if !blocking.is_empty() {
        return Some(Wanted {
            kind: KIND,
            status: "False",
            reason: "RolloutBlocked",
            message: conditions::name_waits(&blocking),
            is_renewed: false,
        });
    }
    // A pass that still deletes or creates has not reached the partition yet.
    let is_at_rest = plan.is_none_or(|p| {
        p.pass.stages.delete.is_empty() && p.pass.stages.create.is_empty() && p.pass.stages.in_place.is_empty()
    });
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
            is_renewed: false,
        });
    }
    known?;
    if complete && waits.is_empty() {
        return Some(Wanted {
            kind: KIND,
            status: "True",
            reason: "RolloutComplete",
            message: String::new(),
            is_renewed: false,
        });
    }
    Some(Wanted {
        kind: KIND,
        status: "True",
        reason: "RolloutInProgress",
        message: String::new(),
        is_renewed: false,
    })
}
