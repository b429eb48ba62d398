//! One pass over one pod: which keys its barrier should have by now.

use super::barrier_of;
use flotilla_api::names;
use flotilla_model::decision::{Body, Command, PatchKind, Report, Scope, ScopedCommand, Stage};
use flotilla_model::records::{ContainerSpec, ContainerStatus, PodDetail};
use flotilla_model::{
    ConfigMapRecord, Decision, EventNote, Failure, Hints, ObjectKey, OwnerRef, PassContext, PodRecord, Resource,
};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a key of a barrier holds. Only its being there matters.
const VALUE: &str = "true";

/// Decides what to do about the barrier of a pod. The pod's containers wait for it.
pub(super) fn decide(pod: &PodRecord, map: Option<&ConfigMapRecord>, context: PassContext<'_>) -> Decision {
    let mut decision = Decision::default();
    let Some(detail) = pod
        .detail
        .as_ref()
        .filter(|_| !pod.is_terminating() && !pod.is_terminal())
    else {
        return decision;
    };
    let scope = Scope::Object;
    let key = barrier_of(&pod.meta.key);
    if let Some(failure) = context.hints.failures.get(&scope) {
        tell_of_refusal(&mut decision, &key, failure, context.hints);
        if failure.retry_at > context.now {
            decision.wake_within(failure.retry_at.since(context.now));
            return decision;
        }
    }
    let keys = warranted(detail);
    let stages = match map.map(|map| (map, owner_of(map, pod))) {
        None => create(pod, &key, &keys),
        Some((map, Owner::This)) => complete(map, &keys),
        Some((map, Owner::Former)) => vec![remove(map)],
        Some((_, Owner::Stranger)) => {
            let message = format!(
                "config map {} is not the barrier of this pod, whose containers wait for keys of it; delete it, or give the pod \
                 another name",
                key.name
            );
            tell_once(&mut decision, context.hints, message.clone(), "BarrierTaken", message);
            Vec::new()
        }
    };
    decision.stages = stages
        .into_iter()
        .map(|command| Stage {
            name: "barrier",
            commands: vec![ScopedCommand {
                scope: scope.clone(),
                command,
            }],
            all_or_stop: true,
            slow_start: false,
        })
        .collect();
    decision
}

/// Says why containers wait for keys that are not there: nothing but an event can, as the pod's status is others'. Once for each reason, as the
/// server's words may have numbers in them that change.
fn tell_of_refusal(decision: &mut Decision, key: &ObjectKey, failure: &Failure, hints: &Hints) {
    let Failure { reason, message, .. } = failure;
    let about = format!("FailedBarrier {reason}");
    let message = format!(
        "config map {}, for whose keys containers of this pod wait, cannot be written: {reason}: {message}; it is tried again at growing \
         intervals",
        key.name
    );
    tell_once(decision, hints, about, "FailedBarrier", message);
}

/// Tells something, unless that was told before.
fn tell_once(decision: &mut Decision, hints: &Hints, about: String, reason: &'static str, message: String) {
    let kept = decision.hints.as_ref().unwrap_or(hints);
    if kept.reported.contains(&about) {
        return;
    }
    let mut kept = kept.clone();
    kept.reported.insert(about);
    decision.hints = Some(kept);
    decision.events.push(EventNote {
        warning: true,
        reason,
        message,
    });
}

/// Whose barrier a config map is.
enum Owner {
    /// This pod's.
    This,
    /// That of a pod that had the name before; all of its keys would let all containers start at once.
    Former,
    /// No pod's.
    Stranger,
}

fn owner_of(map: &ConfigMapRecord, pod: &PodRecord) -> Owner {
    let mut owners = map.meta.owners().iter();
    match owners.find(|owner| &*owner.kind == "Pod" && *owner.name == *pod.name()) {
        Some(owner) if owner.uid == pod.meta.uid => Owner::This,
        Some(_) => Owner::Former,
        None => Owner::Stranger,
    }
}

/// The keys that the pod's present state warrants: of the highest priority, of each lower one whose betters are all up, and of those
/// that have been let go before, whatever has become of the others since.
fn warranted(detail: &PodDetail) -> BTreeSet<String> {
    let mut groups: BTreeMap<Reverse<i64>, Vec<_>> = BTreeMap::new();
    for (spec, status) in detail.containers() {
        if let Some(priority) = spec.priority {
            groups.entry(Reverse(priority)).or_default().push((spec, status));
        }
    }
    let start_is_enough = start_is_enough(detail);
    let mut betters_are_up = true;
    let mut keys = BTreeSet::new();
    for (Reverse(priority), group) in groups {
        let was_let_go = group.iter().any(|(_, status)| status.is_some_and(has_run));
        if betters_are_up || was_let_go {
            keys.insert(names::launch_barrier_key(priority));
        }
        betters_are_up &= group.iter().all(|(spec, status)| is_up(spec, *status, start_is_enough));
    }
    keys
}

fn has_run(status: &ContainerStatus) -> bool {
    !status.container_id.is_empty()
}

/// Whether a container no longer keeps those of lower priority back.
fn is_up(spec: &ContainerSpec, status: Option<&ContainerStatus>, start_is_enough: bool) -> bool {
    let started = |s: &ContainerStatus| start_is_enough && !spec.has_readiness_probe && s.is_started;
    status.is_some_and(|s| s.is_ready || started(s))
}

/// Containers of higher priority that still keep those of this one back.
pub(super) fn not_up_above(detail: &PodDetail, priority: i64) -> Vec<String> {
    let start_is_enough = start_is_enough(detail);
    let above = detail.containers().filter(|(spec, _)| spec.priority > Some(priority));
    let down = above.filter(|(spec, status)| !is_up(spec, *status, start_is_enough));
    down.map(|(spec, _)| spec.name.to_string()).collect()
}

fn start_is_enough(detail: &PodDetail) -> bool {
    detail.annotations.get(names::LAUNCH_ON) == Some("started")
}

fn data(keys: impl Iterator<Item = String>) -> Map<String, Value> {
    keys.map(|key| (key, Value::from(VALUE))).collect()
}

/// A new barrier. If there is one that is not watched, it is read, and the next pass sees it.
fn create(pod: &PodRecord, key: &ObjectKey, keys: &BTreeSet<String>) -> Vec<Command> {
    // No `blockOwnerDeletion`: nobody has to wait for a config map, and it would take a permission on pods' finalizers.
    let owner = OwnerRef {
        api_version: Resource::Pods.api_version().into(),
        kind: Resource::Pods.kind().into(),
        name: pod.name().into(),
        uid: pod.meta.uid.clone(),
        controller: true,
        block_owner_deletion: false,
    };
    let body = json!({
        "apiVersion": Resource::ConfigMaps.api_version(),
        "kind": Resource::ConfigMaps.kind(),
        "metadata": {
            "name": key.name.as_str(),
            "namespace": &*key.namespace,
            "labels": {names::LAUNCH_BARRIER_LABEL: VALUE},
            "ownerReferences": [owner.to_json()],
        },
        "data": data(keys.iter().cloned()),
    });
    let create = Command::Create {
        resource: Resource::ConfigMaps,
        key: key.clone(),
        body: Body::Json(Arc::new(body)),
        exists_is_fine: true,
        guard: None,
        report: Report::Silent,
    };
    let read = Command::Read {
        resource: Resource::ConfigMaps,
        key: key.clone(),
    };
    vec![create, read]
}

/// The keys that are missing, and the label by which the barrier is watched.
fn complete(map: &ConfigMapRecord, keys: &BTreeSet<String>) -> Vec<Command> {
    let missing = data(keys.iter().filter(|key| !map.has_key(key)).cloned());
    let is_watched = map.meta.labels.get(names::LAUNCH_BARRIER_LABEL).is_some();
    if missing.is_empty() && is_watched {
        return Vec::new();
    }
    vec![Command::Patch {
        resource: Resource::ConfigMaps,
        key: map.meta.key.clone(),
        uid: map.meta.uid.clone(),
        subresource: None,
        kind: PatchKind::Merge,
        body: json!({"metadata": {"labels": {names::LAUNCH_BARRIER_LABEL: VALUE}}, "data": missing}),
        resource_version: None,
        guard: None,
        report: Report::Silent,
    }]
}

fn remove(map: &ConfigMapRecord) -> Command {
    Command::Delete {
        resource: Resource::ConfigMaps,
        key: map.meta.key.clone(),
        uid: map.meta.uid.clone(),
        resource_version: None,
        report: Report::Silent,
    }
}
