//! Containers whose images may change while their pod serves, where users name them by a switch (STS-4.4).
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use crate::asks::{self, by_users};
use crate::containers::has_all_its_resources;
use crate::environment::changes_environment;
use crate::in_place::{GATE, began, is_in_grace, note_of, noted, places_of_new_images};
use crate::judge::{Verdict, require};
use crate::schedule::{FaultKind, Item, SetPlan, UserAct, Wanted};
use crate::switches::Switch;
use fastrand::Rng;
use flotilla_model::records::PodDetail;
use flotilla_model::{PodRecord, SetKind, SetRecord};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

const RULE: &str = "STS-4.4 kept ready";

/// What of a seed sets and users ask for of this, where pods are updated in place.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x4ee9_4ead);
    let comes = wanted.faults.contains(&FaultKind::KeptReady);
    if !comes || set.kind == SetKind::Native || set.in_place.is_none() {
        return Vec::new();
    }
    let mut items = asks::with_switch(&mut rng, Switch::KeepReady, 4, set);
    for _ in 0..rng.usize(1..4) {
        let number = rng.u32(1..4);
        items.push(by_users(&mut rng, UserAct::Image(number, true)));
    }
    items
}

/// The containers that a set names.
fn named(set: &SetRecord) -> BTreeSet<&'static str> {
    let text = Switch::KeepReady.value(set);
    text.into_iter()
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .collect()
}

/// Whether a note of an update in place says that its containers change while their pod serves.
fn says_so(note: &Value) -> bool {
    note["keptReady"] == true
}

/// Whether such an update of a pod has not arrived: it serves, and counts as unavailable (STS-4.4). Another may have overtaken it that
/// restarts nothing more; then the kubelet may be about to end what runs until it has seen the spec (STS-4.6). What the same update brings
/// of resources belongs to it.
pub(crate) fn is_under_way(pod: &PodRecord, runs_what_is_asked: bool) -> bool {
    let (note, Some(detail)) = (note_of(pod), &pod.detail) else {
        return false;
    };
    let hash = |name: Option<&str>| name.and_then(|name| name.rsplit('-').next().map(str::to_owned));
    let before = note["lastContainerStatuses"].as_object();
    let mut before = before.into_iter().flatten();
    let overtook = before.any(|(_, status)| status["superseded"].as_array().is_some_and(|all| !all.is_empty()));
    // It had left service, and was put back when managers saw its containers run what they should.
    let was_put_back = detail.in_place_ready.as_ref().and_then(|gate| gate.since) >= began(pod);
    let is_kept = says_so(&note) || overtook && !was_put_back;
    if hash(note["revision"].as_str()) != hash(pod.revision()) || !is_kept {
        return false;
    }
    let has_seen = detail.observed_generation >= detail.generation;
    // What was asked for has come when it is there, by value; what the kubelet says beside is for those who do not know what they asked for.
    let says_what = note["askedResources"]
        .as_object()
        .is_some_and(|asked| !asked.is_empty());
    let is_resized = || detail.resize_pending.is_some() || detail.resize_in_progress.is_some();
    let awaits_resources = || {
        let is_told = note["updateResources"] == true;
        is_told && (!has_seen || !says_what && is_resized() || !has_all_its_resources(pod))
    };
    !runs_what_is_asked || overtook && !has_seen || awaits_resources()
}

/// Names of the containers of a pod in these places.
fn names_of(pod: &PodRecord, places: &BTreeSet<usize>) -> BTreeSet<String> {
    let containers = pod.detail.iter().flat_map(|detail| &detail.spec.containers).enumerate();
    let changed = containers.filter(|(place, _)| places.contains(place));
    changed.map(|(_, container)| container.name.to_string()).collect()
}

/// Containers whose images a note leaves for later.
fn put_off(note: &Value) -> impl Iterator<Item = &String> {
    note["nextContainerImages"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name)
}

/// Whether the images of these containers of a pod may change while it serves: the set that was seen names them, or named them when the
/// update began.
pub(crate) fn may_serve(before: &PodRecord, after: &PodRecord, set: &SetRecord) -> bool {
    let images = |pod: &PodRecord| -> Vec<_> {
        let containers = pod.detail.iter().flat_map(|d| &d.spec.containers);
        containers.map(|c| (c.name.clone(), c.image.clone())).collect()
    };
    let (was, is) = (images(before), images(after));
    let mut changed = is.iter().filter(|image| !was.contains(image)).map(|(name, _)| name);
    let named = named(set);
    says_so(&note_of(before)) && before.revision() == after.revision() || changed.all(|name| named.contains(&**name))
}

/// That containers change while their pod serves is noted only where the set names all that change, now or later.
pub(crate) fn is_noted_for_a_reason(before: &PodRecord, after: &PodRecord, set: &SetRecord) -> Verdict {
    let note = note_of(after);
    let was_noted = says_so(&note_of(before)) && before.revision() == after.revision();
    // Of a pod that is adopted nobody knew what it notes; and one without the gate serves in any case (CS-16.7).
    let is_free = |detail: &Arc<PodDetail>| !detail.spec.has_gate(GATE);
    let is_free = before.detail.as_ref().is_none_or(is_free);
    if !says_so(&note) || was_noted || is_free {
        return Ok(());
    }
    let named = named(set);
    let other = put_off(&note).find(|name| !named.contains(name.as_str()));
    require(other.is_none() && may_serve(before, after, set), RULE, || {
        format!(
            "the update of {} notes that it serves meanwhile, and the set names {named:?}",
            before.name()
        )
    })
}

/// Whether a pod that leaves service by a decision is changed by its patches in nothing but images of containers that the set names. One
/// whose grace period has begun waits it out.
pub(crate) fn should_have_stayed<'a>(
    pod: &PodRecord,
    bodies: impl Iterator<Item = &'a Value>,
    set: &SetRecord,
) -> Option<BTreeSet<String>> {
    let mut changed = BTreeSet::new();
    for body in bodies {
        if changes_environment(pod, body) {
            return None;
        }
        changed.extend(names_of(pod, &places_of_new_images(body)));
        let note = noted(body).and_then(|note| serde_json::from_str::<Value>(note).ok());
        changed.extend(put_off(&note.unwrap_or_default()).cloned());
        let grace = crate::in_place::adds(body, "/metadata/annotations/apps.kruise.io~1inplace-update-grace");
        let grace = grace
            .and_then(|note| serde_json::from_str::<Value>(note).ok())
            .unwrap_or_default();
        if grace["updateEnvFromMetadata"] == true {
            return None;
        }
        changed.extend(
            grace["containerImages"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone()),
        );
    }
    let named = named(set);
    let is_kept = !changed.is_empty() && changed.iter().all(|name| named.contains(name.as_str()));
    (is_kept && !is_in_grace(pod)).then_some(changed)
}
