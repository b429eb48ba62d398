//! The writes of an update in place (rule 4.3): resources through their subresource, and everything else in one patch of the pod, so
//! that label and annotation never claim what was not done.

use super::state::{Before, State, whole_seconds};
use super::{Changes, UpdateSpec, batch, overlay, ref_metadata_patch};
use flotilla_api::names;
use flotilla_model::decision::{PatchKind, Report, Subresource};
use flotilla_model::records::PodDetail;
use flotilla_model::{Command, PodRecord, Resource, Timestamp};
use serde_json::{Value, json};

/// What of a pod is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Writes {
    /// The patch of `pods/resize`, to go first.
    pub resize: Option<Command>,
    /// The patch of the pod.
    pub pod: Command,
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

    /// Changes the containers of one batch, and notes the rest in the state.
    pub fn next_batch(&self, mut state: State, changes: &Changes, mut metadata: Value) -> Writes {
        let (now, rest) = batch::split(changes, self.detail);
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
        let names: Vec<String> = now.containers().into_iter().map(str::to_owned).collect();
        state.required_ready = if rest.is_empty() { Vec::new() } else { names.clone() };
        if !names.is_empty() {
            state.batches.push((self.now, names));
        }
        state.next = rest;
        overlay(&mut metadata, &ref_metadata_patch(&now));
        self.note(&mut metadata, names::IN_PLACE_STATE, &state.to_text());
        self.forget_grace(&mut metadata);
        let resources_here = !self.supports_resize;
        let mut body = json!({"metadata": metadata});
        let containers = containers_patch(&now, true, resources_here);
        if !containers.is_empty() {
            body["spec"] = json!({"containers": containers});
        }
        let resized = containers_patch(&now, false, true);
        let resize = (self.supports_resize && !resized.is_empty()).then(|| {
            let body = json!({"spec": {"containers": resized}});
            self.patch(Some(Subresource::Resize), body, Report::Silent)
        });
        Writes {
            resize,
            pod: self.patch(None, body, Report::InPlace),
        }
    }

    /// Notes an update whose containers change when the grace period has ended.
    pub fn begin_later(&self, mut state: State, grace: &super::grace::Grace, mut metadata: Value) -> Writes {
        state.will_change(&grace.spec);
        self.note(&mut metadata, names::IN_PLACE_STATE, &state.to_text());
        self.note(&mut metadata, names::IN_PLACE_GRACE, &grace.to_text());
        Writes {
            resize: None,
            pod: self.patch(None, json!({"metadata": metadata}), Report::Silent),
        }
    }

    /// Patches metadata only.
    pub fn relabel(&self, metadata: Value) -> Command {
        self.patch(None, json!({"metadata": metadata}), Report::Silent)
    }

    /// A patch of `metadata` that forgets an update which was noted for another revision.
    pub fn without_grace(&self) -> Command {
        let mut metadata = json!({});
        self.forget_grace(&mut metadata);
        self.relabel(metadata)
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

    fn patch(&self, subresource: Option<Subresource>, body: Value, report: Report) -> Command {
        Command::Patch {
            resource: Resource::Pods,
            key: self.pod.meta.key.clone(),
            uid: self.pod.meta.uid.clone(),
            subresource,
            kind: PatchKind::Strategic,
            body,
            resource_version: None,
            guard: None,
            report,
        }
    }

    /// The moment of the pass as it stands in annotations.
    pub fn time(&self) -> String {
        whole_seconds(self.now)
    }
}

/// Entries of `spec.containers`, merged by name.
fn containers_patch(changes: &Changes, images: bool, resources: bool) -> Vec<Value> {
    let entry = |name: &str| {
        let mut entry = json!({"name": name});
        if let Some(image) = changes.images.get(name).filter(|_| images) {
            entry["image"] = json!(image);
        }
        if let Some(change) = changes.resources.get(name).filter(|_| resources) {
            entry["resources"] = change.clone();
        }
        entry
    };
    let entries = changes.containers().into_iter().map(entry);
    entries.filter(|e| e.as_object().is_some_and(|o| o.len() > 1)).collect()
}
