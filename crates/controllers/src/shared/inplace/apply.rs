//! The writes of an update in place (STS-4.3): everything but resources in one patch of the pod, so that label and annotation never
//! claim what was not done, and then resources through their subresource. Until they are there they are noted as still to come: a
//! resize before its note would stay for ever where the note is never written, and the update is taken back. Each holds only while the pod is as it was examined (`tested`).

use super::state::{Before, State};
use super::tested::Tested;
use super::{Changes, Step, UpdateSpec, batch, overlay, ref_metadata_patch};
use flotilla_api::names;
use flotilla_model::decision::{PatchKind, Report, Subresource};
use flotilla_model::records::PodDetail;
use flotilla_model::{Command, PodRecord, Resource, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What of a pod is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Writes {
    /// The patch of the pod, if anything of it changes.
    pub pod: Option<Command>,
    /// The patch of `pods/resize`, to go afterwards.
    pub resize: Option<Command>,
}

/// The pod and what surrounds it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The pod.
    pub pod: &'a PodRecord,
    /// What of it can be seen.
    pub detail: &'a PodDetail,
    /// The moment of the pass.
    pub now: Timestamp,
    /// Whether the server has `pods/resize`.
    pub supports_resize: bool,
    /// It is out of service, or was taken out in this pass: its containers change only while it is.
    pub is_out_of_service: bool,
}

impl Target<'_> {
    /// Begins an update: its first batch at once, the rest noted in `state`. `metadata` is patched with it (revision, lifecycle).
    pub fn begin(&self, mut state: State, spec: &UpdateSpec, metadata: Value) -> Writes {
        state.will_change(spec);
        let mut all = metadata;
        if spec.metadata.is_object() {
            let mut under = spec.metadata.clone();
            overlay(&mut under, &all);
            all = under;
        }
        self.next_batch(state, &spec.changes, all)
    }

    /// Changes the containers of one batch, and notes the rest in the state. Of one that changes resources and more, the resources come
    /// first, and so do those that an update before it has asked for: a kubelet refuses to lower the memory of a container that is just
    /// restarting.
    pub fn next_batch(&self, mut state: State, changes: &Changes, mut metadata: Value) -> Writes {
        let Step { now, rest, is_split } = if self.supports_resize {
            changes.step(self.detail, &state)
        } else {
            let (now, rest) = batch::split(changes, self.detail);
            let is_split = false;
            Step { now, rest, is_split }
        };
        let by_resize = self.supports_resize && !now.resources.is_empty();
        self.note_what_runs(&mut state, &now);
        let names: Vec<String> = now.containers().into_iter().map(str::to_owned).collect();
        // Who changed in an earlier step of the same batch.
        let earlier = state.batches.last().filter(|_| state.required_ready.is_empty());
        let earlier = earlier.map_or(Vec::new(), |(_, earlier)| earlier.clone());
        state.required_ready = if rest.is_empty() || is_split {
            Vec::new()
        } else {
            let all: BTreeSet<String> = earlier.into_iter().chain(names.clone()).collect();
            all.into_iter().collect()
        };
        // A resize that has to be asked for again is the same batch; the note would grow with each time.
        let is_further = state.batches.last().is_none_or(|(_, last)| *last != names);
        if is_further && !names.is_empty() {
            state.batches.push((self.now, names));
        }
        for (name, change) in &now.resources {
            overlay(state.asked.entry(name.clone()).or_insert_with(|| json!({})), change);
        }
        state.next = rest;
        if by_resize {
            state.next.resources.extend(now.resources.clone());
        }
        overlay(&mut metadata, &ref_metadata_patch(&now));
        // The label may hold the hash alone, and the note the name.
        let label = metadata["labels"][names::REVISION_LABEL].as_str();
        let label = label.or_else(|| self.pod.revision()).unwrap_or_default().to_owned();
        let text = state.to_text();
        self.forget_grace(&mut metadata);
        let is_as_noted = is_empty(&metadata) && self.detail.annotations.get(names::IN_PLACE_STATE) == Some(&*text);
        let is_as_it_is = is_as_noted && now.images.is_empty() && (by_resize || now.resources.is_empty());
        let resize = by_resize.then(|| {
            let patch = Tested::noted(self.detail, &label, &text);
            self.patch(Some(Subresource::Resize), with_resources(patch, &now), Report::InPlace)
        });
        let pod = (!is_as_it_is).then(|| {
            self.note(&mut metadata, names::IN_PLACE_STATE, &text);
            let mut patch = self.tested_out_of_service().metadata(&metadata);
            for (name, image) in &now.images {
                patch = patch.container(name, &["image"], &json!(image));
            }
            if !self.supports_resize {
                patch = with_resources(patch, &now);
            }
            // It is told of what changes, when that has been taken.
            let is_note = (by_resize || is_split) && !now.restarts_anyway();
            let report = if is_note { Report::Silent } else { Report::InPlace };
            self.patch(None, patch, report)
        });
        Writes { pod, resize }
    }

    /// Notes what runs in the containers whose images change, so that it is seen when they have restarted.
    fn note_what_runs(&self, state: &mut State, now: &Changes) {
        for name in now.images.keys() {
            let status = self.detail.container(name).and_then(|(_, status)| status);
            let superseded = state
                .before
                .remove(name)
                .map_or_else(Vec::new, |before| before.superseded);
            state.before.insert(
                name.clone(),
                Before {
                    superseded,
                    ..Before::of(status)
                },
            );
        }
    }

    /// Notes an update whose containers change when the grace period has ended.
    pub fn begin_later(&self, mut state: State, grace: &super::grace::Grace, mut metadata: Value) -> Writes {
        state.will_change(&grace.spec);
        self.note(&mut metadata, names::IN_PLACE_STATE, &state.to_text());
        self.note(&mut metadata, names::IN_PLACE_GRACE, &grace.to_text());
        let patch = self.tested_out_of_service().metadata(&metadata);
        Writes {
            pod: Some(self.patch(None, patch, Report::Silent)),
            resize: None,
        }
    }

    /// Patches metadata only.
    pub fn relabel(&self, metadata: &Value) -> Command {
        self.patch(None, self.tested().metadata(metadata), Report::Silent)
    }

    /// Patches metadata only, while the gate of hooks is closed: what a hook's state claims rests on that.
    pub fn relabel_held(&self, metadata: &Value) -> Command {
        self.patch(None, self.tested().held().metadata(metadata), Report::Silent)
    }

    /// A patch of `metadata` that writes a note anew, with what else changes there.
    pub fn noted_anew(&self, text: &str, mut metadata: Value) -> Command {
        self.note(&mut metadata, names::IN_PLACE_STATE, text);
        self.relabel(&metadata)
    }

    /// A patch of `metadata` that forgets an update which was noted for another revision.
    pub fn without_grace(&self) -> Command {
        let mut metadata = json!({});
        self.forget_grace(&mut metadata);
        self.relabel(&metadata)
    }

    fn forget_grace(&self, metadata: &mut Value) {
        for key in [names::IN_PLACE_GRACE, names::IN_PLACE_GRACE_LEGACY] {
            if self.detail.annotations.get(key).is_some() {
                metadata["annotations"][key] = Value::Null;
            }
        }
    }

    /// Writes an annotation under its present key and removes what stands under the former one.
    fn note(&self, metadata: &mut Value, key: &str, text: &str) {
        metadata["annotations"][key] = json!(text);
        let legacy = match key {
            names::IN_PLACE_STATE => names::IN_PLACE_STATE_LEGACY,
            _ => names::IN_PLACE_GRACE_LEGACY,
        };
        if self.detail.annotations.get(legacy).is_some() {
            metadata["annotations"][legacy] = Value::Null;
        }
    }

    fn tested(&self) -> Tested<'_> {
        Tested::new(self.pod, self.detail)
    }

    fn tested_out_of_service(&self) -> Tested<'_> {
        let patch = self.tested();
        if self.is_out_of_service {
            patch.out_of_service()
        } else {
            patch
        }
    }

    fn patch(&self, subresource: Option<Subresource>, patch: Tested<'_>, report: Report) -> Command {
        Command::Patch {
            resource: Resource::Pods,
            key: self.pod.meta.key.clone(),
            uid: self.pod.meta.uid.clone(),
            subresource,
            kind: PatchKind::Json,
            body: patch.into_body(),
            resource_version: None,
            guard: None,
            report,
        }
    }
}

/// Whether a patch of `metadata` changes nothing.
fn is_empty(metadata: &Value) -> bool {
    let mut parts = metadata.as_object().into_iter().flat_map(serde_json::Map::values);
    parts.all(|part| match part {
        Value::Object(entries) => entries.is_empty(),
        Value::Array(list) => list.is_empty(),
        other => other.is_null(),
    })
}

/// Sets what changes of cpu and memory.
fn with_resources<'d>(mut patch: Tested<'d>, changes: &Changes) -> Tested<'d> {
    for (name, change) in &changes.resources {
        for (list, amounts) in change.as_object().into_iter().flatten() {
            for (resource, amount) in amounts.as_object().into_iter().flatten() {
                patch = patch.container(name, &["resources", list, resource], amount);
            }
        }
    }
    patch
}
