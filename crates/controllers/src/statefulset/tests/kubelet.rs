//! The part of the world that updates in place need: the API server's patches of pods, a kubelet that restarts containers, and a user
//! who takes markers of hooks away and puts them back.

use super::world::World;
use crate::shared::inplace::state::whole_seconds;
use crate::shared::lifecycle::State;
use crate::testing::{container_status, detail, folded};
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

/// Carries out a patch of a pod as the API server does. An error means that what was examined is not so any more, or that the engine
/// sent something that cannot be right.
pub(super) fn patch(pod: &mut PodRecord, kind: PatchKind, body: &Value, now: Timestamp) -> Result<(), String> {
    let mut known = pod.detail.as_deref().cloned().ok_or("a pod without detail")?;
    match kind {
        PatchKind::Json => {
            for operation in body.as_array().into_iter().flatten() {
                let (path, value) = (operation["path"].as_str().unwrap_or_default(), &operation["value"]);
                let found = examined(pod, &known, path);
                if operation["op"] == "test" && found != *value {
                    return Err(format!("{path} is {found}, and {value} was examined"));
                }
                if operation["op"] != "test" && path.starts_with("/status/conditions/") {
                    put_condition(&mut known, value, now)?;
                }
            }
            let folded = folded(body);
            if let Some(all) = folded.pointer("/metadata/finalizers").and_then(Value::as_array) {
                known.finalizers = all.iter().filter_map(Value::as_str).map(Arc::from).collect();
            }
            merge(pod, &mut known, &folded, now)?;
        }
        PatchKind::Merge => return Err(format!("a merge patch would wipe lists: {body}")),
        PatchKind::Strategic => merge(pod, &mut known, body, now)?,
    }
    known.is_annotated |= known.annotations.iter().next().is_some();
    pod.detail = Some(Arc::new(known));
    Ok(())
}

/// What stands at a path of a pod, as far as patches test it; null if nothing does.
fn examined(pod: &PodRecord, known: &PodDetail, path: &str) -> Value {
    let (at, field) = path.rsplit_once('/').unwrap_or_default();
    let key = field.replace("~1", "/");
    let condition = |c: &Option<GateCondition>, kind: &str| match (c, field) {
        (None, _) => Value::Null,
        (Some(_), "type") => Value::from(kind),
        (Some(c), "status") => Value::from(if c.is_true { "True" } else { "False" }),
        (Some(c), "lastTransitionTime") => c.since.map(whole_seconds).into(),
        (Some(c), _) => Value::from(&*c.message),
    };
    match at {
        "/metadata/labels" => pod.label(&key).into(),
        "/metadata/annotations" => known.annotations.get(&key).into(),
        "/metadata" if field == "finalizers" && !known.finalizers.is_empty() => {
            known.finalizers.iter().map(|f| Value::from(&**f)).collect()
        }
        "/metadata" if field == "annotations" && known.is_annotated => Value::from("something"),
        "/status/conditions/0" => condition(&known.in_place_ready, names::IN_PLACE_UPDATE_READY),
        "/status/conditions/1" => condition(&known.kruise_ready, names::KRUISE_POD_READY),
        "/spec/containers/0" if field == "name" => Value::from(&*known.spec.containers[0].name),
        _ => Value::Null,
    }
}

fn merge(pod: &mut PodRecord, known: &mut PodDetail, body: &Value, now: Timestamp) -> Result<(), String> {
    pod.meta.labels = merged(&pod.meta.labels, body.pointer("/metadata/labels"));
    known.annotations = merged(&known.annotations, body.pointer("/metadata/annotations"));
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
            put_condition(known, condition, now)?;
        }
    }
    Ok(())
}

/// Labels with a patch of them.
pub(super) fn merged(known: &Labels, patch: Option<&Value>) -> Labels {
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
