//! Whether a change has arrived in the containers (STS-4.6).

use super::state::{Before, State};
use super::{annotation, has_amounts, image};
use crate::shared::revision;
use flotilla_api::names;
use flotilla_model::containers_meta::{self, ContainerMeta};
use flotilla_model::records::{ContainerSpec, ContainerStatus, PodDetail, Resources};
use flotilla_model::{PodRecord, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;

/// What is still missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The pod's revision label is not the one that the state is about: nothing can be concluded.
    OtherRevision,
    /// The kubelet has not said anything of a container, or has not restarted it.
    Restart(String),
    /// A container is not known to have its new environment.
    Environment(String),
    /// Resources have not changed yet; with what the kubelet says, and since when it has put it off.
    Resize(String, Option<Timestamp>),
    /// The node will never give these resources.
    Infeasible(String),
}

/// Whether the last batch has arrived: all that the annotation says was begun, grace period and later batches aside.
pub fn batch(pod: &PodRecord, detail: &PodDetail, state: &State) -> Result<(), Missing> {
    if !revision::label_names(pod, &state.revision) {
        return Err(Missing::OtherRevision);
    }
    if state.env_from_metadata {
        environments(pod, detail, RuntimeMeta::of_pod(detail).as_ref())?;
    }
    if state.resources {
        resources(detail, &state.asked)?;
    }
    // A container whose image is to change once more is not waited for: what it was asked for before may never start.
    let is_superseded = |name: &String| state.next.images.contains_key(name);
    let first = restarting(detail, state).find(|name| !is_superseded(name));
    first.map_or(Ok(()), |name| Err(Missing::Restart(name.clone())))
}

/// Containers that have yet to restart with another image: those whose change has not arrived, unless the node's agent knows all to have
/// been started from the spec as it is. Where an update was overtaken, such a container may still be about to go for it, until the kubelet has seen
/// the spec.
pub fn restarting<'s>(detail: &'s PodDetail, state: &'s State) -> impl Iterator<Item = &'s String> {
    let all_started = RuntimeMeta::of_pod(detail).is_some_and(|meta| {
        detail
            .containers()
            .all(|(spec, status)| meta.started_from(spec, status))
    });
    let was_overtaken = state.before.values().any(|before| !before.superseded.is_empty());
    let has_heard = detail.observed_generation == 0 || detail.observed_generation >= detail.generation;
    let all_started = all_started && (has_heard || !was_overtaken);
    not_arrived(detail, state).filter(move |_| !all_started)
}

/// Containers whose change of image has not arrived yet.
pub fn not_arrived<'s>(detail: &'s PodDetail, state: &'s State) -> impl Iterator<Item = &'s String> {
    let runs_it = |name: &String, before: &Before| match detail.container(name) {
        Some((spec, status)) => status.is_some_and(|status| runs(spec, status, before, state, detail)),
        None => true,
    };
    let missing = state.before.iter().filter(move |(name, before)| !runs_it(name, before));
    missing.map(|(name, _)| name)
}

/// Whether a container runs the image of its spec.
fn runs(spec: &ContainerSpec, now: &ContainerStatus, before: &Before, state: &State, pod: &PodDetail) -> bool {
    if now.image_id.is_empty() {
        return false;
    }
    let has_seen = pod.observed_generation > 0 && pod.observed_generation >= pod.generation;
    if image::same(&now.image, &spec.image) {
        // Where an update was overtaken by one that goes back, the container that ran before may still be about to go for the former, or
        // have gone and be about to start.
        let has_heard = has_seen || pod.observed_generation == 0;
        let is_former = before.container_id.as_deref() == Some(&*now.container_id)
            && before.restart_count == Some(now.restart_count);
        return before.superseded.is_empty() || has_heard && (now.started_at.is_some() || !is_former);
    }
    if before.superseded.iter().any(|image| image::same(&now.image, image)) {
        // An update that was overtaken: the container that it asked for came up, and is still to go. Unless there was a restart for each
        // image: then it is the same content under another name.
        let restarts = i32::try_from(before.superseded.len()).unwrap_or(i32::MAX);
        let since = before
            .restart_count
            .map(|count| now.restart_count.saturating_sub(count));
        return has_seen && since.is_some_and(|since| since > restarts);
    }
    if !before.image_id.is_empty() {
        let differs = image::digest(&now.image_id).unwrap_or(&now.image_id)
            != image::digest(&before.image_id).unwrap_or(&before.image_id);
        if differs {
            return true;
        }
    }
    // The same content under another name: the image's id does not change, and the node may show it under yet another name. What tells
    // is a restart since then, of a kubelet that has seen the new spec, or content that the new name asks for.
    let is_other = before
        .container_id
        .as_deref()
        .is_some_and(|id| *id != *now.container_id);
    let counted = before.restart_count.is_some_and(|count| now.restart_count > count);
    // A Go manager notes neither: a container that has restarted, and not before the update, has done so for it.
    let unknown = before.container_id.is_none() && before.restart_count.is_none() && now.restart_count > 0;
    // That it started before may be the clocks: how often it has, and which one it is, tell as well, once a kubelet that has seen the spec
    // has had the time to end what was noted, or what had restarted unseen when that was.
    let is_later = |at: Timestamp| at >= whole(state.updated_at) || state.is_long_ago && (is_other || counted);
    let restarted = (is_other || counted || unknown) && now.started_at.is_some_and(is_later);
    let by_digest = image::digest(&spec.image).is_some_and(|digest| image::digest(&now.image_id) == Some(digest));
    // An agent that has restarted it for its environment knows from which image.
    let restarts_anyway = state.env_from_metadata && !spec.metadata_env.is_empty();
    by_digest || restarted && has_seen && !restarts_anyway
}

/// The kubelet writes its times in whole seconds.
fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_seconds(at.as_millis().div_euclid(1000))
}

fn environments(pod: &PodRecord, detail: &PodDetail, meta: Option<&RuntimeMeta>) -> Result<(), Missing> {
    for (spec, status) in detail.containers() {
        let values = spec.metadata_env.iter().map(|entry| {
            let value = if entry.is_label {
                pod.label(&entry.key)
            } else {
                detail.annotations.get(&entry.key)
            };
            (&*entry.name, value.unwrap_or_default())
        });
        let expected = containers_meta::env_hash(values);
        let has_it = status
            .zip(meta.and_then(|m| m.of(&spec.name)))
            .is_some_and(|(status, entry)| {
                entry.container_id == *status.container_id && entry.env_hash == Some(expected)
            });
        if !has_it {
            return Err(Missing::Environment(spec.name.to_string()));
        }
    }
    Ok(())
}

/// Whether the kubelet has carried out the last change of resources, by value; what it does not report does not count, nor what it says of a
/// container that does not run: that gets its resources when it starts, for which it may need another image first. Where it is known what
/// was `asked` for, that alone is waited for, and only while the pod's spec has it still: the rest is of others.
pub fn resources(detail: &PodDetail, asked: &BTreeMap<String, Value>) -> Result<(), Missing> {
    if !asked.is_empty() && is_over(detail, asked) {
        return Ok(());
    }
    if let Some(pending) = &detail.resize_pending {
        let message = pending.message.to_string();
        return Err(if pending.is_infeasible {
            Missing::Infeasible(message)
        } else {
            Missing::Resize(message, pending.since)
        });
    }
    let unseen = detail.observed_generation > 0 && detail.observed_generation < detail.generation;
    let differs = detail
        .containers()
        .filter_map(|(spec, status)| Some((spec, status.filter(|status| status.started_at.is_some())?)))
        .any(|(spec, status)| match status.resources.as_ref() {
            Some(actual) => !agrees(&spec.resources, actual),
            None => false,
        });
    if unseen || detail.resize_in_progress.is_some() || differs {
        let message = detail.resize_in_progress.as_deref().unwrap_or_default();
        return Err(Missing::Resize(message.to_owned(), None));
    }
    Ok(())
}

/// Whether of what was asked for all has come that others have not changed again.
fn is_over(detail: &PodDetail, asked: &BTreeMap<String, Value>) -> bool {
    let has_seen = detail.observed_generation == 0 || detail.observed_generation >= detail.generation;
    asked.iter().all(|(name, amounts)| {
        let Some((spec, status)) = detail.container(name) else {
            return true;
        };
        let actual = status.and_then(|status| status.resources.as_ref());
        !has_amounts(&spec.resources, amounts) || has_seen && actual.is_some_and(|actual| has_amounts(actual, amounts))
    })
}

fn agrees(wanted: &Resources, actual: &Resources) -> bool {
    let one = |wanted: Option<i64>, actual: Option<i64>| actual.is_none() || wanted.is_none() || wanted == actual;
    one(wanted.cpu_request_millis, actual.cpu_request_millis)
        && one(wanted.cpu_limit_millis, actual.cpu_limit_millis)
        && one(wanted.memory_request_bytes, actual.memory_request_bytes)
        && one(wanted.memory_limit_bytes, actual.memory_limit_bytes)
}

/// Whether a pod's annotation says, without being read, that nothing is left to do: asked of every settled pod in every pass.
pub fn is_plainly_done(detail: &PodDetail) -> bool {
    *detail.plainly_done.get(|| says_done(detail))
}

/// Whether what is noted changed resources and nothing else; asked of pods that are plainly done, whose note is not read.
pub fn changed_resources_only(detail: &PodDetail) -> bool {
    let note = annotation(detail, names::IN_PLACE_STATE, names::IN_PLACE_STATE_LEGACY);
    note.is_some_and(|(_, text)| {
        let says = |flag: &str| text.contains(flag);
        says("\"updateResources\"") && !says("\"updateImages\"") && !says("\"updateEnvFromMetadata\"")
    })
}

fn says_done(detail: &PodDetail) -> bool {
    let has = |key: &str| detail.annotations.get(key).is_some();
    if has(names::IN_PLACE_GRACE) || has(names::IN_PLACE_GRACE_LEGACY) {
        return false;
    }
    let gate = names::IN_PLACE_UPDATE_READY;
    let is_gated = detail.spec.has_gate(gate);
    let in_service = detail.in_place_ready.as_ref().is_some_and(|c| c.is_true);
    if is_gated && !in_service {
        return false;
    }
    let Some((_, text)) = annotation(detail, names::IN_PLACE_STATE, names::IN_PLACE_STATE_LEGACY) else {
        return true;
    };
    if text.contains("\"next") {
        return false;
    }
    if is_gated && !text.contains("\"updateResources\"") && !text.contains("\"keptReady\"") {
        return true;
    }
    let as_asked = |(spec, status): (&ContainerSpec, Option<&ContainerStatus>)| {
        status.is_some_and(|status| *status.image == *spec.image && !status.image_id.is_empty())
    };
    // What runs may still be about to go for what was overtaken.
    !text.contains("\"updateEnvFromMetadata\"")
        && !text.contains("\"superseded\"")
        && resources(detail, &BTreeMap::new()).is_ok()
        && detail.containers().all(as_asked)
}

/// What the node agent noted of the containers.
struct RuntimeMeta(Vec<ContainerMeta>);

impl RuntimeMeta {
    fn of_pod(detail: &PodDetail) -> Option<Self> {
        let text = detail.annotations.get(names::RUNTIME_CONTAINERS_META)?;
        Some(RuntimeMeta(containers_meta::parse(text)))
    }

    fn of(&self, name: &str) -> Option<&ContainerMeta> {
        self.0.iter().find(|c| c.name == *name)
    }

    /// Whether the container that runs was started from the spec as it is now, in any spelling of the image.
    fn started_from(&self, spec: &ContainerSpec, status: Option<&ContainerStatus>) -> bool {
        let Some((entry, status)) = self.of(&spec.name).zip(status) else {
            return false;
        };
        let plain = entry.plain_hash;
        let is_hash_of = |image: &String| plain == Some(containers_meta::plain_hash(&spec.name, image));
        entry.container_id == *status.container_id && image::spellings(&spec.image).iter().any(is_hash_of)
    }
}
