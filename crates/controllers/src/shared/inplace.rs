//! Updates in place: changing a running pod instead of making it again (STS-4.1 to STS-4.7).
//!
//! Pure pieces that know no kind: whether a change can be made in place ([`eligible`]), which containers change together
//! ([`batch`]), whether the change has arrived ([`complete`]), what is noted on the pod meanwhile ([`state`], [`grace`]), where a pod
//! stands ([`progress`]), and the writes ([`apply`]).

pub mod apply;
pub mod batch;
pub mod complete;
pub mod eligible;
pub mod grace;
pub mod image;
pub mod progress;
pub mod state;
mod tested;

use flotilla_model::records::{ContainerSpec, ContainerStatus, PodDetail, Resources};
use flotilla_model::template::{parse_bytes, parse_millis};
use serde_json::{Map, Value, json};
use state::State;
use std::collections::{BTreeMap, BTreeSet};

/// Labels and annotations that a container's environment refers to, with their new values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefMetadata {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// What changes in which container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// New images.
    pub images: BTreeMap<String, String>,
    /// Metadata that the environment refers to.
    pub ref_metadata: BTreeMap<String, RefMetadata>,
    /// New values of cpu and memory: `{limits: {cpu, memory}, requests: {...}}`, only those that change.
    pub resources: BTreeMap<String, Value>,
}

impl Changes {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty() && self.ref_metadata.is_empty() && self.resources.is_empty()
    }

    /// Names of all containers that change.
    pub fn containers(&self) -> BTreeSet<&str> {
        let names = self
            .images
            .keys()
            .chain(self.ref_metadata.keys())
            .chain(self.resources.keys());
        names.map(String::as_str).collect()
    }

    /// Whether containers restart for more than their resources.
    fn restarts_anyway(&self) -> bool {
        !self.images.is_empty() || !self.ref_metadata.is_empty()
    }

    /// The next step: the next batch, in which no restart and no change of resources of one container meet. `under_way` is what
    /// has been begun.
    pub(super) fn step(&self, detail: &PodDetail, under_way: &State) -> Step {
        let (mut now, mut rest) = batch::split(self, detail);
        let is_held = now.put_off_lowered_memory(&mut rest, detail, under_way);
        let resizes = is_held || !now.resources.is_empty() || under_way.is_resizing(detail);
        let is_put_off = resizes && now.put_off_restarts(&mut rest, detail);
        Step {
            now,
            rest,
            is_split: is_held || is_put_off,
        }
    }

    /// Hands over to `later` the resources of containers that are just restarting, where they lower memory: a kubelet refuses that, and
    /// does not try again. Whether there were any.
    fn put_off_lowered_memory(&mut self, later: &mut Changes, detail: &PodDetail, under_way: &State) -> bool {
        let meets_restart = |name: &String, change: &mut Value| {
            let (spec, status) = detail.container(name)?;
            (under_way.is_restarting(name, detail) && lowers_memory(spec, status, change)).then_some(())
        };
        let held: Vec<_> = self
            .resources
            .extract_if(.., |name, change| meets_restart(name, change).is_some())
            .collect();
        let is_held = !held.is_empty();
        later.resources.extend(held);
        is_held
    }

    /// Hands what restarts running containers over to `later`, so that of these only resources are left. Whether there was any. A
    /// container that does not run has nothing to wait for: it gets its resources when it starts, for which it may need the new image.
    fn put_off_restarts(&mut self, later: &mut Changes, detail: &PodDetail) -> bool {
        let runs = |name: &String| {
            let status = detail.container(name).and_then(|(_, status)| status);
            status.is_some_and(|status| status.started_at.is_some())
        };
        let images: Vec<_> = self.images.extract_if(.., |name, _| runs(name)).collect();
        let refs: Vec<_> = self.ref_metadata.extract_if(.., |name, _| runs(name)).collect();
        let is_put_off = !images.is_empty() || !refs.is_empty();
        later.images.extend(images);
        later.ref_metadata.extend(refs);
        is_put_off
    }

    /// Leaves out resources that the pod's spec has already.
    pub(crate) fn leave_out_resources_that_are_there(&mut self, detail: &PodDetail) {
        self.resources.retain(|name, change| {
            let container = detail.container(name);
            container.is_some_and(|(spec, _)| !has_amounts(&spec.resources, change))
        });
    }

    /// Takes in changes that were meant before and not made; where both name something, ours wins.
    fn take_over(&mut self, earlier: &Changes) {
        fn fill<T: Clone>(ours: &mut BTreeMap<String, T>, earlier: &BTreeMap<String, T>) {
            for (name, value) in earlier {
                ours.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        fill(&mut self.images, &earlier.images);
        for (name, earlier) in &earlier.ref_metadata {
            let ours = self.ref_metadata.entry(name.clone()).or_default();
            fill(&mut ours.labels, &earlier.labels);
            fill(&mut ours.annotations, &earlier.annotations);
        }
        for (name, earlier) in &earlier.resources {
            let mut merged = earlier.clone();
            if let Some(ours) = self.resources.get(name) {
                overlay(&mut merged, ours);
            }
            self.resources.insert(name.clone(), merged);
        }
    }
}

/// Puts the fields of `over` over those of `base`.
pub(crate) fn overlay(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (field, value) in over {
                match base.get_mut(field) {
                    Some(known) if known.is_object() && value.is_object() => overlay(known, value),
                    _ => drop(base.insert(field.clone(), value.clone())),
                }
            }
        }
        (base, over) => *base = over.clone(),
    }
}

/// One step of changes.
pub(super) struct Step {
    /// What comes now; may be nothing.
    now: Changes,
    /// What comes later.
    rest: Changes,
    /// Something of the same batch has to wait for what comes now, or for what is under way.
    is_split: bool,
}

/// What an update in place does to a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpdateSpec {
    /// What changes in which container.
    pub changes: Changes,
    /// A strategic-merge patch of `metadata` for the rest of it, applied at once; null if there is none.
    pub metadata: Value,
    /// Some container's environment refers to metadata that changes.
    pub env_from_metadata: bool,
}

impl UpdateSpec {
    /// Whether the pod stays as it is but for its revision.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.metadata.is_null()
    }

    /// Takes in what an earlier update meant to do and has not done yet: its revision is on the pod's label, so the difference to that
    /// revision does not contain it.
    pub fn take_over(&mut self, earlier: &UpdateSpec) {
        self.changes.take_over(&earlier.changes);
        self.env_from_metadata |= earlier.env_from_metadata;
        if earlier.metadata.is_object() {
            let mut merged = earlier.metadata.clone();
            if self.metadata.is_object() {
                overlay(&mut merged, &self.metadata);
            }
            self.metadata = merged;
        }
    }

    /// Its first step, if that restarts nothing: resources alone, or nothing while what was begun is `under_way`. Else all of it.
    pub fn first_step(&self, detail: &PodDetail, under_way: &State) -> UpdateSpec {
        let Step { now, is_split, .. } = self.changes.step(detail, under_way);
        if now.restarts_anyway() || now.resources.is_empty() && !is_split {
            return self.clone();
        }
        UpdateSpec {
            changes: now,
            ..UpdateSpec::default()
        }
    }

    /// Leaves out images that the pod has already: a change that was never made and is taken back restarts nothing.
    pub fn leave_out_what_is_there(&mut self, detail: &PodDetail) {
        self.changes
            .images
            .retain(|name, image| detail.container(name).is_none_or(|(spec, _)| *spec.image != **image));
    }

    /// Whether containers restart.
    pub fn restarts(&self, detail: &PodDetail) -> bool {
        !self.changes.images.is_empty() || self.changes_environment() || self.restarts_by_resize(detail)
    }

    /// Whether environments that refer to metadata change.
    pub fn changes_environment(&self) -> bool {
        self.env_from_metadata || !self.changes.ref_metadata.is_empty()
    }

    fn restarts_by_resize(&self, detail: &PodDetail) -> bool {
        let mut resized = self.changes.resources.iter();
        resized.any(|(name, change)| {
            detail
                .container(name)
                .is_some_and(|(spec, _)| restarts_for(spec, change))
        })
    }

    /// Whether the pod has to leave service for it (STS-4.4): it has the gate, and more changes than resources that need no restart.
    /// Containers named in `keep_ready` may change their image without.
    pub fn leaves_service(&self, detail: &PodDetail, keep_ready: &BTreeSet<String>) -> bool {
        if !detail.spec.has_gate(flotilla_api::names::IN_PLACE_UPDATE_READY) || self.is_empty() {
            return false;
        }
        let changes = &self.changes;
        if self.changes_environment() || self.restarts_by_resize(detail) {
            return true;
        }
        if changes.images.is_empty() {
            return changes.resources.is_empty();
        }
        !changes.images.keys().all(|name| keep_ready.contains(name))
    }
}

/// Whether a container's `resizePolicy` asks for a restart for this change.
fn restarts_for(spec: &ContainerSpec, change: &Value) -> bool {
    let touches = |resource: &str| {
        ["limits", "requests"]
            .iter()
            .any(|list| change.get(list).is_some_and(|l| l.get(resource).is_some()))
    };
    spec.restarts_for_cpu && touches("cpu") || spec.restarts_for_memory && touches("memory")
}

/// Whether a container gets less memory than it has, or is about to have.
fn lowers_memory(spec: &ContainerSpec, status: Option<&ContainerStatus>, change: &Value) -> bool {
    let known = || {
        let given = status.and_then(|status| status.resources.as_ref());
        given.into_iter().chain([&spec.resources])
    };
    let lowers = |list: &str, of: fn(&Resources) -> Option<i64>| {
        let wanted = change.pointer(&format!("/{list}/memory")).and_then(Value::as_str);
        let wanted = wanted.and_then(parse_bytes).and_then(|n| i64::try_from(n).ok());
        wanted.is_some_and(|wanted| known().filter_map(of).any(|known| wanted < known))
    };
    lowers("limits", |r| r.memory_limit_bytes) || lowers("requests", |r| r.memory_request_bytes)
}

/// Whether resources have these amounts of cpu and memory.
fn has_amounts(resources: &Resources, change: &Value) -> bool {
    let signed = |amount: Option<u64>| amount.and_then(|n| i64::try_from(n).ok());
    let has = |path: &str, parse: fn(&str) -> Option<u64>, found: Option<i64>| {
        let wanted = change.pointer(path).and_then(Value::as_str);
        wanted.is_none_or(|text| signed(parse(text)) == found)
    };
    let Resources {
        cpu_request_millis,
        cpu_limit_millis,
        memory_request_bytes,
        memory_limit_bytes,
    } = *resources;
    has("/requests/cpu", parse_millis, cpu_request_millis)
        && has("/limits/cpu", parse_millis, cpu_limit_millis)
        && has("/requests/memory", parse_bytes, memory_request_bytes)
        && has("/limits/memory", parse_bytes, memory_limit_bytes)
}

/// Metadata of several containers as one patch of `metadata`.
pub(crate) fn ref_metadata_patch(changes: &Changes) -> Value {
    let mut patch = json!({});
    for change in changes.ref_metadata.values() {
        for (field, values) in [("labels", &change.labels), ("annotations", &change.annotations)] {
            for (key, value) in values {
                patch[field][key] = json!(value);
            }
        }
    }
    patch
}

/// A map of texts from JSON; entries that are not texts are left out.
pub(crate) fn texts(value: Option<&Value>) -> BTreeMap<String, String> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries
        .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
        .collect()
}

/// Reads `{name: {labels, annotations}}`.
pub(crate) fn ref_metadata_of(value: Option<&Value>) -> BTreeMap<String, RefMetadata> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    let read = |(name, meta): (&String, &Value)| {
        let change = RefMetadata {
            labels: texts(meta.get("labels")),
            annotations: texts(meta.get("annotations")),
        };
        (name.clone(), change)
    };
    entries.map(read).collect()
}

/// Writes `{name: {labels, annotations}}`, empty parts left out.
pub(crate) fn ref_metadata_json(changes: &BTreeMap<String, RefMetadata>) -> Value {
    let part = |change: &RefMetadata| {
        let mut object = Map::new();
        for (field, values) in [("labels", &change.labels), ("annotations", &change.annotations)] {
            if !values.is_empty() {
                object.insert(field.to_owned(), json!(values));
            }
        }
        Value::Object(object)
    };
    Value::Object(changes.iter().map(|(name, c)| (name.clone(), part(c))).collect())
}

/// A map of JSON values.
pub(crate) fn values(value: Option<&Value>) -> BTreeMap<String, Value> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries.map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// The fields of an object that are none of these.
pub(crate) fn other_fields(json: &Value, known: &[&str]) -> BTreeMap<String, Value> {
    let mut fields = values(Some(json));
    fields.retain(|name, _| !known.contains(&name.as_str()));
    fields
}

/// An annotation of a pod under its present or its former key.
pub fn annotation<'a>(
    detail: &'a PodDetail,
    key: &'static str,
    legacy: &'static str,
) -> Option<(&'static str, &'a str)> {
    let at = |key: &'static str| detail.annotations.get(key).map(|text| (key, text));
    at(key).or_else(|| at(legacy))
}
