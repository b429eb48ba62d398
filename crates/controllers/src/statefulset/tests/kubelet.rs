//! The part of the world that updates in place need: the API server's patches of pods, a kubelet that restarts containers, and a user
//! who takes markers of hooks away and puts them back.

use super::world::World;
use crate::shared::lifecycle::State;
use crate::testing::{container_status, detail};
use flotilla_api::names;
use flotilla_model::decision::{PatchKind, PodDraft};
use flotilla_model::records::{GateCondition, Phase, PodDetail};
use flotilla_model::{Labels, PodRecord, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The detail of a pod that was just made from a draft.
pub(super) fn detail_of(draft: &PodDraft) -> PodDetail {
    let mut new = detail(&[("main", None)]);
    let image = draft
        .template
        .pointer("/spec/containers/0/image")
        .and_then(Value::as_str);
    Arc::make_mut(&mut new.spec).containers[0].image = image.unwrap_or_default().into();
    new.statuses = Box::new([None]);
    new.containers_ready = false;
    (new.in_place_ready, new.kruise_ready) = (None, None);
    new
}

/// Carries out a patch of a pod as the API server does. An error means that the engine sent something that cannot be right.
pub(super) fn patch(pod: &mut PodRecord, kind: PatchKind, body: &Value, now: Timestamp) -> Result<(), String> {
    let mut known = pod.detail.as_deref().cloned().ok_or("a pod without detail")?;
    match kind {
        PatchKind::Json => json_patch(&mut known, body, now)?,
        PatchKind::Merge => return Err(format!("a merge patch would wipe lists: {body}")),
        PatchKind::Strategic => {
            pod.meta.labels = merged(&pod.meta.labels, body.pointer("/metadata/labels"));
            known.annotations = merged(&known.annotations, body.pointer("/metadata/annotations"));
            let finalizers = body.pointer("/metadata/finalizers").and_then(Value::as_array);
            let mut all: Vec<Arc<str>> = known.finalizers.to_vec();
            for added in finalizers.into_iter().flatten().filter_map(Value::as_str) {
                if all.iter().all(|f| **f != *added) {
                    all.push(added.into());
                }
            }
            known.finalizers = all.into();
            if let Some(image) = body.pointer("/spec/containers/0/image").and_then(Value::as_str) {
                Arc::make_mut(&mut known.spec).containers[0].image = image.into();
            }
            let conditions = body.pointer("/status/conditions").and_then(Value::as_array);
            for condition in conditions.into_iter().flatten() {
                if condition["type"] == "Ready" {
                    if condition["status"] != "False" {
                        return Err("only the kubelet sets Ready True".to_owned());
                    }
                    pod.ready.is_true = false;
                    pod.ready.since = Some(now);
                } else {
                    put_condition(&mut known, condition, now)?;
                }
            }
        }
    }
    pod.detail = Some(Arc::new(known));
    Ok(())
}

fn merged(known: &Labels, patch: Option<&Value>) -> Labels {
    let mut all: BTreeMap<String, String> = known.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    for (key, value) in patch.and_then(Value::as_object).into_iter().flatten() {
        match value.as_str() {
            Some(text) => drop(all.insert(key.clone(), text.to_owned())),
            None => drop(all.remove(key)),
        }
    }
    all.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
}

fn put_condition(known: &mut PodDetail, condition: &Value, now: Timestamp) -> Result<(), String> {
    let kind = condition["type"].as_str().unwrap_or_default();
    let index = match kind {
        names::IN_PLACE_UPDATE_READY => 0,
        names::KRUISE_POD_READY => 1,
        other => return Err(format!("condition {other} is not ours")),
    };
    if condition["status"] != "True" && condition["status"] != "False" {
        return Err(format!("a condition without a status: {condition}"));
    }
    let new = Some(GateCondition {
        index,
        is_true: condition["status"] == "True",
        message: condition["message"].as_str().unwrap_or_default().into(),
        since: Some(now),
    });
    match index {
        0 => known.in_place_ready = new,
        _ => known.kruise_ready = new,
    }
    Ok(())
}

fn json_patch(known: &mut PodDetail, body: &Value, now: Timestamp) -> Result<(), String> {
    for operation in body.as_array().into_iter().flatten() {
        let (path, value) = (operation["path"].as_str().unwrap_or_default(), &operation["value"]);
        if operation["op"] != "test" {
            put_condition(known, value, now)?;
            continue;
        }
        let found = if let Some(key) = path.strip_prefix("/metadata/annotations/") {
            known.annotations.get(&key.replace("~1", "/")).map(str::to_owned)
        } else {
            let (at, field) = path.rsplit_once('/').unwrap_or_default();
            let condition = match at {
                "/status/conditions/0" => known.in_place_ready.as_ref(),
                _ => known.kruise_ready.as_ref(),
            };
            let kind = if at.ends_with('0') {
                names::IN_PLACE_UPDATE_READY
            } else {
                names::KRUISE_POD_READY
            };
            condition.map(|c| {
                if field == "type" {
                    kind.to_owned()
                } else {
                    c.message.to_string()
                }
            })
        };
        if found.as_deref() != value.as_str() {
            return Err(format!("{path} is {found:?}, and {value} was examined"));
        }
    }
    Ok(())
}

impl World {
    /// The kubelet and the user go on with a pod.
    pub(super) fn go_on_in_place(&mut self, pod: &PodRecord) {
        let mut pod = pod.clone();
        let Some(mut known) = pod.detail.as_deref().cloned() else {
            return;
        };
        let now = self.cluster.now;
        let wanted = known.spec.containers[0].image.clone();
        let runs = known.statuses[0].as_ref().is_some_and(|s| s.image == wanted);
        if !runs && self.chance(2) {
            let count = known.statuses[0].as_ref().map_or(0, |s| s.restart_count + 1);
            let mut status = container_status(&wanted);
            status.restart_count = count;
            status.container_id = format!("containerd://{count}").into();
            status.started_at = Some(now);
            known.statuses = Box::new([Some(status)]);
            *self.restarts.entry(pod.meta.uid.to_string()).or_default() += u32::from(count > 0);
            (pod.phase, pod.node) = (Phase::Running, Some("node-0".into()));
        }
        known.containers_ready = known.statuses[0].is_some();
        let is_true = |c: &Option<GateCondition>| c.as_ref().is_some_and(|c| c.is_true);
        let ready = known.containers_ready && is_true(&known.in_place_ready) && is_true(&known.kruise_ready);
        if ready != pod.ready.is_true && (!ready || self.chance(2)) {
            pod.ready.is_true = ready;
            pod.ready.since = Some(now);
            pod.has_been_ready |= ready;
        }
        self.use_hooks(&mut pod, &mut known);
        pod.detail = Some(Arc::new(known));
        self.put_pod(pod);
    }

    /// The user takes the marker away when the pod waits for that, and puts it back when it is over.
    fn use_hooks(&mut self, pod: &mut PodRecord, known: &mut PodDetail) {
        let hooks = self.set().spec.lifecycle.clone();
        let hook = [&hooks.in_place_update, &hooks.pre_delete, &hooks.pre_normal]
            .into_iter()
            .flatten()
            .next()
            .cloned();
        if hook.is_none() || !self.chance(2) {
            return;
        }
        let mark = |on: bool| serde_json::json!({"hold": if on { Value::from("yes") } else { Value::Null }});
        match State::of(pod) {
            State::PreparingUpdate | State::PreparingDelete => {
                pod.meta.labels = merged(&pod.meta.labels, Some(&mark(false)));
                known.finalizers = known.finalizers.iter().filter(|f| ***f != *"f/hold").cloned().collect();
            }
            State::Updated | State::PreparingNormal => {
                pod.meta.labels = merged(&pod.meta.labels, Some(&mark(true)));
                if known.finalizers.iter().all(|f| **f != *"f/hold") {
                    known.finalizers = known.finalizers.iter().cloned().chain(["f/hold".into()]).collect();
                }
            }
            _ => {}
        }
    }
}
