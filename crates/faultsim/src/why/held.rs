//! What is held back, pod by pod, and whether an answer of `why` tells of it.

use crate::asks::is_to_be_made_again;
use crate::clones::SPECIFIED_DELETE;
use crate::judge::{Places, is_available, ordinal_in};
use crate::tenants;
use flotilla_engine::wire::Object;
use flotilla_model::{ObjectKey, PodRecord, Resource, SetKind, SetRecord, Timestamp, Wait};
use flotilla_sim::server::Server;
use flotilla_why::Cause;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whoever is held back, by its name: at which version it is, if it is there. Under no name stand pods that have none yet.
pub(super) type HeldBack = BTreeMap<String, Option<u64>>;

/// What is not there, or not available, and should be, or is there and should not (STS-1.5, STS-2 and CS-20).
pub(super) fn held_back(server: &Server, kind: SetKind, now: Timestamp) -> HeldBack {
    let key = ObjectKey::new("ns", "web");
    let stored = server.get(kind.resource(), &key).and_then(|s| s.object.as_ref());
    let Some(Object::Set(set)) = stored.filter(|set| set.meta().deleted.is_none()) else {
        return HeldBack::new();
    };
    let pods: Vec<&Arc<PodRecord>> = tenants::all(server, Resource::Pods)
        .filter_map(|s| match s.object.as_ref() {
            Some(Object::Pod(pod)) => Some(pod),
            _ => None,
        })
        .collect();
    match kind {
        SetKind::Clone => of_clones(set, &pods, now),
        SetKind::Native | SetKind::Advanced => of_slots(set, &pods, now),
    }
}

fn told(pod: &PodRecord) -> (String, Option<u64>) {
    (pod.name().to_owned(), Some(pod.meta.resource_version))
}

fn of_slots(set: &SetRecord, pods: &[&Arc<PodRecord>], now: Timestamp) -> HeldBack {
    let named: BTreeMap<&str, &Arc<PodRecord>> = pods.iter().map(|pod| (pod.name(), *pod)).collect();
    let wanted = Places::of(set);
    // In order, whoever is still to be made comes after the first of them, also where a pod that is nobody's has the name.
    let mut is_one_missing = false;
    let mut is_after_another =
        |is_missing: bool| set.spec.is_monotonic() && is_missing && std::mem::replace(&mut is_one_missing, true);
    let down = wanted.iter().filter_map(|ordinal| {
        let name = format!("{}-{ordinal}", set.name());
        let pod = named.get(name.as_str());
        let is_own = pod.is_some_and(|pod| pod.meta.is_controlled_by(&set.meta.uid));
        if pod.is_some_and(|pod| is_own && is_available(pod, set, now)) || is_after_another(!is_own) {
            return None;
        }
        Some(pod.map_or((name, None), |pod| told(pod)))
    });
    let own = pods.iter().filter(|pod| pod.meta.is_controlled_by(&set.meta.uid));
    let with_ordinal = own.filter_map(|pod| Some((ordinal_in(pod.name(), set.name())?, pod)));
    let (in_place, mut leftover): (Vec<_>, Vec<_>) = with_ordinal.partition(|(ordinal, _)| wanted.contains(*ordinal));
    // In order, whoever is still to go does so after the highest of them.
    leftover.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
    let goes_now = if set.spec.is_monotonic() { 1 } else { leftover.len() };
    let leftover = leftover.into_iter().take(goes_now).map(|(_, pod)| told(pod));
    let made_again = in_place.into_iter().map(|(_, pod)| pod);
    let made_again = made_again.filter(|pod| is_to_be_made_again(pod, set));
    down.chain(leftover).chain(made_again.map(|pod| told(pod))).collect()
}

fn of_clones(set: &SetRecord, pods: &[&Arc<PodRecord>], now: Timestamp) -> HeldBack {
    let own = pods.iter().filter(|pod| pod.meta.is_controlled_by(&set.meta.uid));
    let active: Vec<_> = own.filter(|pod| !pod.is_terminal()).collect();
    let stays = active.iter().filter(|pod| !pod.is_terminating()).count();
    let is_missing = stays < usize::try_from(set.spec.replicas).unwrap_or(0);
    let is_down = |pod: &PodRecord| {
        let is_asked_to_go = pod.label(SPECIFIED_DELETE).is_some();
        !pod.is_terminating() && (is_asked_to_go || !pod.is_available(set.spec.min_ready, now))
    };
    let down = active.iter().filter(|pod| is_down(pod)).map(|pod| told(pod));
    down.chain(is_missing.then(|| (String::new(), None))).collect()
}

/// Whether an answer tells of a pod: what is in its way, or what is done about it next.
pub(super) fn tells_of(
    name: &str,
    (causes, next, waits): (&[Cause], &[String], &[Wait]),
    is_revision: impl Fn(&str) -> bool,
) -> bool {
    // What is in the way of the set is in the way of each pod.
    let of_the_set = waits.iter().filter(|wait| !wait.cause.is_intended());
    let mut of_the_set = of_the_set.filter(|wait| wait.subject == "web" || is_revision(&wait.subject));
    // Whatever is made is made of the revision.
    let is_revision_next = next.iter().any(|step| step.starts_with("create revision "));
    if of_the_set.next().is_some() || is_revision_next {
        return true;
    }
    if name.is_empty() {
        // Some pod, or the claim of one, that is still to be made, or has to go first.
        return !next.is_empty() || !causes.is_empty();
    }
    let claim_of = format!("-{name}");
    let is_it = |subject: &str| subject == name || subject.ends_with(&claim_of);
    let is_cause = |cause: &Cause| {
        let held_up = cause.holds_up.iter().map(String::as_str);
        cause.subject.split(", ").chain(held_up).any(is_it)
    };
    let is_next = |step: &String| step.split([' ', ',']).any(is_it);
    causes.iter().any(is_cause) || next.iter().any(is_next)
}
