//! What must be true of a CloneSet in the end (CS-13.12, CS-15, CS-20 and CS-21).

use crate::claim_templates::NAMES;
use crate::clones::copies;
use crate::clones::kept::kept_from;
use crate::clones::older::revision_of;
use crate::clones::surge::was_made_as_surge;
use crate::clones::truth::INSTANCE_ID;
use crate::clones::{LIFECYCLE_STATE, SPECIFIED_DELETE};
use crate::judge::claim_templates::recorded;
use crate::judge::is_at_nothing;
use crate::tenants;
use flotilla_engine::wire::Object;
use flotilla_model::set::UpdateKind;
use flotilla_model::{ClaimRecord, ObjectKey, PodRecord, Resource, RevisionRecord, SetRecord, Timestamp};
use flotilla_sim::server::Server;
use std::sync::Arc;

/// Says what is not as it should be, or nothing. `may_be_left` says whether a claim may be without a pod, `conditions` whether one complains.
pub(crate) fn look(
    server: &Server,
    now: Timestamp,
    may_be_left: impl Fn(&ClaimRecord, &SetRecord) -> bool,
    conditions: impl Fn(&SetRecord) -> Result<(), String>,
) -> Result<(), String> {
    let key = ObjectKey::new("ns", "web");
    let stored = server.get(Resource::CloneSets, &key).and_then(|s| s.object.as_ref());
    let Some(Object::Set(set)) = stored else {
        return Err("there is no set".to_owned());
    };
    if set.is_deleted() {
        return Err("the set is being deleted".to_owned());
    }
    let pods: Vec<&Arc<PodRecord>> = tenants::all(server, Resource::Pods)
        .filter_map(|s| match s.object.as_ref() {
            // Whom somebody has taken out of the set stays out: orphans are taken only where that is asked for (CS-11).
            Some(Object::Pod(pod)) if pod.meta.is_controlled_by(&set.meta.uid) => Some(pod),
            _ => None,
        })
        .collect();
    // What is done when it is gone is still to come: its name and its claims are looked at then (CS-10.9 and CS-15.4).
    let mut of_nobody = tenants::all(server, Resource::Pods).filter_map(|s| match s.object.as_ref() {
        Some(Object::Pod(pod)) if pod.meta.controller().is_none() => Some(pod),
        _ => None,
    });
    if let Some(leaving) = of_nobody.find(|pod| pod.is_terminating()) {
        return Err(format!("{} is nobody's, and on its way out", leaving.name()));
    }
    let updated = revision(server, set, &pods)?;
    let new = members(server, set, &pods, &updated, now)?;
    status(set, &pods, new, &updated)?;
    conditions(set)?;
    recorded(&updated, set)?;
    claims(server, set, &pods, may_be_left)
}

/// The newest revision is that of the template, there are no more unused ones than are to be kept, and none is nobody's.
fn revision(server: &Server, set: &SetRecord, pods: &[&Arc<PodRecord>]) -> Result<Arc<RevisionRecord>, String> {
    let all = tenants::all(server, Resource::Revisions).filter_map(|s| match s.object.as_ref() {
        Some(Object::Revision(revision)) => Some(revision),
        _ => None,
    });
    let (own, others): (Vec<&Arc<RevisionRecord>>, Vec<_>) = all.partition(|r| r.meta.is_controlled_by(&set.meta.uid));
    if let Some(stray) = others.iter().find(|r| r.meta.controller().is_none()) {
        return Err(format!("revision {} is nobody's", stray.name()));
    }
    // Of equal numbers, which an adopted one may have, that which was made last.
    let Some(newest) = own
        .iter()
        .max_by_key(|r| (r.number, r.meta.created, r.name().to_owned()))
    else {
        return Err("there is no revision".to_owned());
    };
    if newest.digest != set.spec.template_digest {
        return Err(format!(
            "the newest revision, {}, is not that of the template",
            newest.name()
        ));
    }
    let is_unused = |r: &&&Arc<RevisionRecord>| {
        let is_named = r.name() == newest.name() || r.name() == set.status_text("currentRevision");
        !is_named && !pods.iter().any(|pod| revision_of(pod).as_deref() == Some(r.name()))
    };
    let (unused, limit) = (own.iter().filter(is_unused).count(), set.spec.history_limit);
    match limit {
        Some(limit) if unused > limit => Err(format!("{unused} unused revisions are there; {limit} are to be kept")),
        _ => Ok((**newest).clone()),
    }
}

/// As many pods as asked for, all available, no more old ones than the partition keeps, none asked to be deleted. How many
/// are new.
fn members(
    server: &Server,
    set: &SetRecord,
    pods: &[&Arc<PodRecord>],
    updated: &RevisionRecord,
    now: Timestamp,
) -> Result<usize, String> {
    let active: Vec<_> = pods.iter().filter(|pod| !pod.is_terminal()).collect();
    let wanted = usize::try_from(set.spec.replicas).unwrap_or(0);
    if active.len() != wanted {
        return Err(format!("there are {} pods, and {wanted} are wanted", active.len()));
    }
    for pod in &active {
        if pod.label(SPECIFIED_DELETE).is_some() {
            return Err(format!("{} was asked to be deleted", pod.name()));
        }
        if was_made_as_surge(pod) {
            return Err(format!("{} was made as surge, and is there", pod.name()));
        }
        if pod.label("pod-template-hash").is_none() {
            return Err(format!("{} does not say of which template it is", pod.name()));
        }
        let state = pod.label(LIFECYCLE_STATE);
        if pod.is_terminating()
            || !pod.is_available(set.spec.min_ready, now)
            || state.is_some_and(|state| state != "Normal")
        {
            return Err(format!("{} is not available", pod.name()));
        }
    }
    let clones = set.spec.clones.as_deref().ok_or("it is no CloneSet")?;
    // One that somebody else has stays, as long as there is a pod of that name (CS-10.9).
    let is_foreign = |name: &String| {
        let pod = server.get(Resource::Pods, &set.meta.key.sibling(name.as_str()));
        let meta = pod.and_then(|s| s.object.as_ref()).map(Object::meta);
        meta.is_some_and(|meta| !meta.is_controlled_by(&set.meta.uid))
    };
    if let Some(name) = clones.pods_to_delete.iter().find(|name| !is_foreign(name)) {
        return Err(format!("{name} is still named in podsToDelete"));
    }
    let new = active
        .iter()
        .filter(|pod| revision_of(pod).as_deref() == Some(updated.name()))
        .count();
    let kept = usize::try_from(clones.partition.kept_of(set.spec.replicas)).unwrap_or(0);
    let is_updated = set.spec.update == UpdateKind::OnDelete || set.spec.is_paused() || wanted - new <= kept;
    // With the opt-in the partition brings pods back, too, as long as there is a revision to go back to (CS-13.5).
    let is_between = set.status_text("currentRevision") != updated.name();
    let goes_back = clones.switches.partition_rollback && is_between;
    if goes_back && set.spec.update != UpdateKind::OnDelete && wanted - new < kept.min(wanted) {
        return Err(format!("{} pods are old, and {kept} are to be", wanted - new));
    }
    if !is_updated {
        return Err(format!("{} pods are old, and {kept} may be", wanted - new));
    }
    Ok(new)
}

fn status(set: &SetRecord, pods: &[&Arc<PodRecord>], new: usize, updated: &RevisionRecord) -> Result<(), String> {
    let active = pods.iter().filter(|pod| !pod.is_terminal()).count();
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    for (field, expected) in [
        ("observedGeneration", set.generation),
        ("replicas", number(active)),
        ("readyReplicas", number(active)),
        ("availableReplicas", number(active)),
        ("updatedReplicas", number(new)),
        ("updatedReadyReplicas", number(new)),
        ("updatedAvailableReplicas", number(new)),
    ] {
        let found = i64::from(set.status_count(field));
        if found != expected {
            return Err(format!("status.{field} is {found}, not {expected}"));
        }
    }
    if set.status_text("updateRevision") != updated.name() {
        return Err("status.updateRevision is not the template's revision".to_owned());
    }
    // The other way round it may be: after a rollback the current revision is that of the template, and the partition keeps others. That
    // none is promoted early is judged when the status is written.
    if new == active && set.status_text("currentRevision") != updated.name() && !is_at_nothing(set) {
        return Err("status.currentRevision is old although all pods are updated".to_owned());
    }
    Ok(())
}

/// Each pod has the claims that it mounts, and no claim of the set is left without a pod unless a new one may take it.
fn claims(
    server: &Server,
    set: &SetRecord,
    pods: &[&Arc<PodRecord>],
    may_be_left: impl Fn(&ClaimRecord, &SetRecord) -> bool,
) -> Result<(), String> {
    let claims = tenants::all(server, Resource::Claims).filter_map(|s| match s.object.as_ref() {
        Some(Object::Claim(claim)) => Some(claim),
        _ => None,
    });
    let claims: Vec<&Arc<ClaimRecord>> = claims.collect();
    // Also pods that were let go: their claims stay (CS-11).
    let all = tenants::all(server, Resource::Pods).filter_map(|s| match s.object.as_ref() {
        Some(Object::Pod(pod)) => Some(pod),
        _ => None,
    });
    let all: Vec<&Arc<PodRecord>> = all.collect();
    // One on its way out stays as long as it is mounted: it went with a pod of which this one is a copy. Or it was to go, and something of the
    // users' that owns it, too, has kept it: then it is theirs alone.
    let is_kept_by_users = |claim: &ClaimRecord| claim.meta.controller().is_none() && !claim.meta.owners().is_empty();
    let is_there = |name: &str| {
        let mut named = claims.iter().filter(|claim| claim.meta.key.name.as_str() == name);
        named.any(|claim| {
            let is_ours = claim.meta.is_controlled_by(&set.meta.uid);
            is_ours || claim.meta.deleted.is_some() || is_kept_by_users(claim)
        })
    };
    for pod in pods.iter().filter(|pod| !pod.is_terminal()) {
        // With which it had to be made was judged then.
        if let Some(lacking) = pod.claims().map(|(_, claim)| claim).find(|name| !is_there(name)) {
            return Err(format!("there is no {lacking} of the set"));
        }
    }
    let is_stray = |claim: &&&Arc<ClaimRecord>| {
        let name = claim.meta.key.name.as_str();
        let is_named = |pod: &PodRecord| NAMES.iter().any(|t| *name == format!("{t}-{}", pod.name()));
        // A pod that has lost its id has the one that its name says (CS-15.1).
        let is_called = |pod: &PodRecord| {
            let id = claim.meta.labels.get(INSTANCE_ID);
            pod.label(INSTANCE_ID).is_none_or(str::is_empty) && pod.name().rsplit_once('-').map(|(_, id)| id) == id
        };
        // Without an id nobody knows whose it was; one on its way out is not held up by the set.
        claim.meta.deleted.is_none()
            && claim.meta.is_controlled_by(&set.meta.uid)
            && claim.meta.labels.get(INSTANCE_ID).is_some_and(|id| !id.is_empty())
            && !all
                .iter()
                .any(|pod| is_named(pod) || is_called(pod) || copies::has(pod, claim))
            && !may_be_left(claim, set)
    };
    if let Some(stray) = claims.iter().find(is_stray) {
        return Err(format!("claim {} has no pod", stray.meta.key.name));
    }
    // It would seem to be kept for the replacement of the pod that has it, should that be lost.
    let reuses = set.spec.clones.as_deref().is_none_or(|spec| spec.reuses_claims);
    // One that has ended, and of which a copy was made again, keeps the id from the replacement for as long as it is there.
    let is_noted = |claim: &&&Arc<ClaimRecord>| {
        let is_ours = claim.meta.deleted.is_none() && claim.meta.is_controlled_by(&set.meta.uid);
        let mut active = pods.iter().filter(|pod| !pod.is_terminal());
        is_ours && kept_from(claim).is_some() && active.any(|pod| copies::has(pod, claim))
    };
    match claims.iter().find(is_noted).filter(|_| !reuses) {
        Some(noted) => Err(format!(
            "claim {} is noted as kept, and its pod is there",
            noted.meta.key.name
        )),
        None => Ok(()),
    }
}
