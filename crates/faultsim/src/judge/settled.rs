//! What must be true in the end, once all faults are over: the set is as it asks to be, and its status says so.

use super::claim_templates;
use super::recreate::is_on_delete;
use super::settled_claims::{claims, counted, targets};
use super::truth::{pod_of, revision_of, set_of};
use super::{Places, Verdict, is_at_nothing, is_available, ordinal_in, partition_of, place_of, require, unordered};
use crate::asks::is_to_be_made_again;
use crate::claim_labels;
use crate::tenants;
use flotilla_model::{ObjectKey, PodRecord, Resource, RevisionRecord, SetKind, SetRecord, Timestamp};
use flotilla_sim::server::Server;
use serde_json::Value;
use std::sync::Arc;

/// Says what is not as it should be, or nothing.
pub(crate) fn look(server: &Server, kind: SetKind, now: Timestamp) -> Result<(), String> {
    let key = ObjectKey::new("ns", "web");
    let Some(set) = set_of(server.get(kind.resource(), &key)) else {
        return Err("there is no set".to_owned());
    };
    if set.is_deleted() {
        return Err("the set is being deleted".to_owned());
    }
    let pods: Vec<&Arc<PodRecord>> = tenants::all(server, Resource::Pods)
        .filter_map(|s| pod_of(Some(s)))
        .collect();
    let revisions: Vec<&Arc<RevisionRecord>> = tenants::all(server, Resource::Revisions)
        .filter_map(|s| revision_of(Some(s)))
        .collect();
    slots(set, &pods, now)?;
    let updated = revision(set, &revisions)?;
    let is_on_delete = server
        .get(kind.resource(), &key)
        .is_some_and(|set| is_on_delete(&set.value()));
    let is_complete = updates(set, &pods, updated, is_on_delete)?;
    status(set, &pods, updated, is_complete)?;
    conditions(set)?;
    is_said_to_rest(set)?;
    history(set, &pods, &revisions, updated)?;
    claims(server, set)?;
    claim_labels::have_arrived(server, set)?;
    claim_templates::followed(set, &pods, targets(server, set))?;
    claim_templates::recorded(updated, set)?;
    claim_templates::left_over(server, set, &revisions)?;
    counted(server, kind, set)
}

/// What has been in the way for more than a minute is told by a condition (STS-I12).
pub(crate) fn explained(server: &Server, kind: SetKind, what: &str) -> Verdict {
    let set = set_of(server.get(kind.resource(), &ObjectKey::new("ns", "web")));
    let is_told = set.is_some_and(|set| set.is_deleted() || conditions(set).is_err());
    require(is_told, "STS-I12 every wait is explained", || {
        format!("{what}; nothing has changed for more than a minute, and no condition says why")
    })
}

/// Every wanted ordinal has a pod that is available, and there are no others.
fn slots(set: &SetRecord, pods: &[&Arc<PodRecord>], now: Timestamp) -> Result<(), String> {
    for ordinal in Places::of(set).iter() {
        let name = format!("{}-{ordinal}", set.name());
        let Some(pod) = pods.iter().find(|pod| pod.name() == name) else {
            return Err(format!("there is no {name}"));
        };
        if !pod.meta.is_controlled_by(&set.meta.uid) {
            return Err(format!("{name} is not the set's"));
        }
        if !is_available(pod, set, now) {
            return Err(format!("{name} is not available"));
        }
    }
    if let Some(pod) = pods.iter().find(|pod| is_to_be_made_again(pod, set)) {
        return Err(format!("{} is to be made again, and is still there", pod.name()));
    }
    let is_wanted = |pod: &PodRecord| ordinal_in(pod.name(), set.name()).is_some_and(|o| place_of(o, set).is_some());
    match pods.iter().find(|pod| !is_wanted(pod)) {
        Some(pod) => Err(format!("{} is not wanted, and is there", pod.name())),
        None => Ok(()),
    }
}

/// The set's template has a revision, and it is the newest.
fn revision<'r>(set: &SetRecord, revisions: &[&'r Arc<RevisionRecord>]) -> Result<&'r RevisionRecord, String> {
    let mut own = revisions.iter().filter(|r| r.meta.is_controlled_by(&set.meta.uid));
    let Some(updated) = own
        .clone()
        .filter(|r| r.digest == set.spec.template_digest)
        .max_by_key(|r| r.number)
    else {
        return Err("the set's template has no revision".to_owned());
    };
    match own.find(|r| r.number > updated.number) {
        Some(newer) => Err(format!("{} is newer than the template's revision", newer.name())),
        None => Ok(updated),
    }
}

/// Pods that are to be updated are. Whether all are.
fn updates(
    set: &SetRecord,
    pods: &[&Arc<PodRecord>],
    updated: &RevisionRecord,
    is_on_delete: bool,
) -> Result<bool, String> {
    let partition = partition_of(set);
    let mut is_complete = true;
    let is_unordered = unordered::is_unordered(set);
    if is_unordered {
        unordered::settled(set, pods, updated)?;
    }
    for pod in pods {
        let is_old = pod.revision() != Some(updated.name());
        let place = ordinal_in(pod.name(), set.name())
            .and_then(|o| place_of(o, set))
            .unwrap_or(0);
        let has_to_be_new = !is_on_delete && !is_unordered && place >= partition;
        if is_old && has_to_be_new {
            return Err(format!("{} is at an old revision", pod.name()));
        }
        is_complete &= !is_old;
    }
    Ok(is_complete)
}

fn status(set: &SetRecord, pods: &[&Arc<PodRecord>], updated: &RevisionRecord, complete: bool) -> Result<(), String> {
    let count = |text: &str| i64::from(set.status_count(text));
    let all = pods.len() as i64;
    let current = set.status_text("currentRevision");
    let of = |revision: &str| pods.iter().filter(|p| p.revision() == Some(revision)).count() as i64;
    let mut expected = vec![
        ("observedGeneration", set.generation),
        ("replicas", all),
        ("readyReplicas", all),
        ("availableReplicas", all),
        ("currentReplicas", of(current)),
        ("updatedReplicas", of(updated.name())),
    ];
    if set.kind == SetKind::Advanced {
        expected.push(("updatedReadyReplicas", of(updated.name())));
        expected.push(("updatedAvailableReplicas", of(updated.name())));
    }
    for (field, number) in expected {
        if count(field) != number {
            return Err(format!("status.{field} is {}, not {number}", count(field)));
        }
    }
    if set.status_text("updateRevision") != updated.name() {
        return Err("status.updateRevision is not the template's revision".to_owned());
    }
    if complete && current != updated.name() && !is_at_nothing(set) {
        return Err("status.currentRevision is old although all pods are updated".to_owned());
    }
    Ok(())
}

/// No condition complains.
pub(crate) fn conditions(set: &SetRecord) -> Result<(), String> {
    let all = set.status.get("conditions").and_then(Value::as_array);
    for condition in all.into_iter().flatten() {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        let complains = match text("type") {
            // Of a CloneSet with a deadline, it is True while all is well.
            "Progressing" => text("reason") == "RolloutBlocked" && text("status") == "False",
            _ => text("status") == "True",
        };
        if complains {
            return Err(format!(
                "condition {} says {}: {}",
                text("type"),
                text("reason"),
                text("message")
            ));
        }
    }
    Ok(())
}

/// Progressing, where a set carries it, does not speak of work that is done (STS-3.10 and CS-21.4): a write that would say so may still
/// wait for its next attempt.
pub(crate) fn is_said_to_rest(set: &SetRecord) -> Result<(), String> {
    let all = set.status.get("conditions").and_then(Value::as_array);
    let progressing = all.into_iter().flatten().find(|c| c["type"] == "Progressing");
    match progressing.and_then(|c| c["reason"].as_str()) {
        Some(reason @ ("RolloutInProgress" | "CloneSetUpdated")) => {
            Err(format!("condition Progressing still says {reason}"))
        }
        _ => Ok(()),
    }
}

/// No more unused revisions than are to be kept, and none that belongs to nobody.
fn history(
    set: &SetRecord,
    pods: &[&Arc<PodRecord>],
    revisions: &[&Arc<RevisionRecord>],
    updated: &RevisionRecord,
) -> Result<(), String> {
    if let Some(stray) = revisions.iter().find(|r| !r.meta.is_controlled_by(&set.meta.uid)) {
        return Err(format!("revision {} is not the set's", stray.name()));
    }
    let is_live = |name: &str| {
        name == updated.name()
            || name == set.status_text("currentRevision")
            || pods.iter().any(|pod| pod.revision() == Some(name))
    };
    let unused = revisions.iter().filter(|r| !is_live(r.name())).count();
    match set.spec.history_limit {
        Some(limit) if unused > limit => Err(format!("{unused} unused revisions are there; {limit} are to be kept")),
        _ => Ok(()),
    }
}
