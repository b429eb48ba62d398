//! Defects of updates in place and of hooks (STS-4 and STS-8).

use super::Defect;
use crate::in_place::{GATE, HOOK_GATE, STATE_PATH, is_in_service, new_revision, new_state, noted};
use crate::notes::is_unreadable;
use flotilla_model::decision::{Body, Command, Report, ScopedCommand, Subresource};
use flotilla_model::set::{Hook, PodUpdatePolicy, SetSpec};
use flotilla_model::{
    Decision, IntOrPercent, ObjectKey, PatchKind, PodRecord, Reader, Resource, RevisionRecord, SetRecord,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// What such a defect makes of a decision.
pub(super) fn spoil(defect: Defect, decision: &mut Decision) {
    let (kind, status, only_back) = match defect {
        Defect::ChangeInService => (GATE, "False", false),
        Defect::HookKeepsServing => (HOOK_GATE, "False", false),
        Defect::GateLeftDown => (GATE, "True", true),
        Defect::KeyLeftBehind => (HOOK_GATE, "True", true),
        Defect::ResizeLeavesService => return resize_out_of_service(decision),
        Defect::NoHookGate => return with_gates(decision, &[]),
        Defect::GatesAnyway => return with_gates(decision, &[GATE, HOOK_GATE]),
        Defect::UpdatingAnyway => return show_updates(decision),
        Defect::ImageBeforeResize => return put_nothing_off(decision),
        Defect::FirstContainerAlone => return leave_others(decision),
        Defect::PutBackUntested => return untest(decision, &|part| part == Some(Subresource::Status)),
        Defect::ChangeUntested => return untest(decision, &|part| part != Some(Subresource::Status)),
        _ => return,
    };
    if defect == Defect::ChangeInService {
        untest(decision, &|part| part.is_none());
    }
    for stage in &mut decision.stages {
        stage.commands.retain_mut(|scoped| {
            let Some(body) = conditions_of(&mut scoped.command) else {
                return true;
            };
            // A pod that never was in service is put there by a patch of another form.
            if only_back && !body.is_array() || !says(body, kind, status) {
                return true;
            }
            leave_out(body, kind, status);
            says_anything(body)
        });
    }
}

/// A hook without markers: it holds nobody, and asks for the same gate.
pub(crate) fn empty(hook: &mut Option<Hook>) {
    if let Some(hook) = hook {
        (hook.labels, hook.finalizers) = (Vec::new(), Vec::new());
    }
}

/// The body of a patch of a pod's conditions.
fn conditions_of(command: &mut Command) -> Option<&mut Value> {
    match command {
        Command::Patch {
            resource: Resource::Pods,
            subresource: Some(Subresource::Status),
            body,
            ..
        } => Some(body),
        _ => None,
    }
}

fn is_condition(value: &Value, kind: &str, status: &str) -> bool {
    value["type"] == kind && value["status"] == status
}

/// Whether a body sets a condition, as an entry of a list or as the value of an operation.
pub(crate) fn says(body: &Value, kind: &str, status: &str) -> bool {
    entries(body).any(|entry| is_condition(entry, kind, status) || is_condition(&entry["value"], kind, status))
}

fn entries(body: &Value) -> impl Iterator<Item = &Value> {
    let list = body
        .as_array()
        .or_else(|| body.pointer("/status/conditions")?.as_array());
    list.into_iter().flatten()
}

/// What takes a pod out of service for its update is left out of a patch of conditions. Whether anything is left.
pub(super) fn leave_out_of_service(body: &mut Value) -> bool {
    leave_out(body, GATE, "False");
    says_anything(body)
}

fn says_anything(body: &Value) -> bool {
    entries(body).any(|entry| entry["status"].is_string() || entry["value"]["status"].is_string())
}

fn leave_out(body: &mut Value, kind: &str, status: &str) {
    let list = if body.is_array() {
        Some(body)
    } else {
        body.pointer_mut("/status/conditions")
    };
    if let Some(list) = list.and_then(Value::as_array_mut) {
        list.retain(|entry| !is_condition(entry, kind, status) && !is_condition(&entry["value"], kind, status));
    }
}

/// New pods have these gates and those of their template.
fn with_gates(decision: &mut Decision, gates: &'static [&'static str]) {
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        if let Command::Create {
            body: Body::Pod(draft), ..
        } = &mut scoped.command
        {
            draft.gates = gates;
        }
    }
}

/// What brings a pod to another revision in place brings it to Updating, too.
fn show_updates(decision: &mut Decision) {
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        if let Command::Patch { body, .. } = &mut scoped.command
            && new_revision(body).is_some()
            && new_state(body).is_none()
            && let Some(operations) = body.as_array_mut()
        {
            operations.push(json!({"op": "add", "path": STATE_PATH, "value": "Updating"}));
        }
    }
}

/// An image that is put off until resources are there is changed at once.
fn put_nothing_off(decision: &mut Decision) {
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        let Command::Patch {
            resource: Resource::Pods,
            subresource: None,
            body,
            ..
        } = &mut scoped.command
        else {
            continue;
        };
        let note = noted(body).and_then(|note| serde_json::from_str::<Value>(note).ok());
        let image = note.and_then(|note| Some(note.get("nextContainerImages")?["main"].clone()));
        if let (Some(image), Some(operations)) = (image, body.as_array_mut()) {
            operations.push(json!({"op": "add", "path": "/spec/containers/0/image", "value": image}));
        }
    }
}

/// Patches of containers beside the first are left out.
fn leave_others(decision: &mut Decision) {
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        if let Command::Patch {
            resource: Resource::Pods,
            body,
            ..
        } = &mut scoped.command
            && let Some(operations) = body.as_array_mut()
        {
            operations.retain(|operation| {
                let path = operation["path"].as_str().unwrap_or_default();
                let container = path.strip_prefix("/spec/containers/");
                container.is_none_or(|rest| rest.starts_with("0/"))
            });
        }
    }
}

/// Patches of some parts of pods test nothing, and name no version.
fn untest(decision: &mut Decision, of: &dyn Fn(Option<Subresource>) -> bool) {
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        if let Command::Patch {
            resource: Resource::Pods,
            subresource,
            body,
            resource_version,
            ..
        } = &mut scoped.command
            && of(*subresource)
        {
            *resource_version = None;
            if let Some(operations) = body.as_array_mut() {
                operations.retain(|operation| operation["op"] != "test");
            }
        }
    }
}

/// Whoever gets other resources leaves service as for another image.
fn resize_out_of_service(decision: &mut Decision) {
    for stage in &mut decision.stages {
        let resized = stage.commands.iter().filter_map(|scoped| match &scoped.command {
            Command::Patch {
                key,
                uid,
                subresource: Some(Subresource::Resize),
                ..
            } => {
                let condition = json!({"type": GATE, "status": "False", "reason": "StartInPlaceUpdate"});
                let command = Command::Patch {
                    resource: Resource::Pods,
                    key: key.clone(),
                    uid: uid.clone(),
                    subresource: Some(Subresource::Status),
                    kind: PatchKind::Strategic,
                    body: json!({"status": {"conditions": [condition]}}),
                    resource_version: None,
                    guard: None,
                    report: Report::Silent,
                };
                Some(ScopedCommand {
                    scope: scoped.scope.clone(),
                    command,
                })
            }
            _ => None,
        });
        let planted: Vec<_> = resized.collect();
        stage.commands.splice(0..0, planted);
    }
}

/// What a controller with such a defect sees of the set.
pub(super) fn alter_set(defect: Defect, spec: &mut SetSpec, pods: &[Arc<PodRecord>]) {
    match defect {
        Defect::NoUpdateHook => empty(&mut spec.lifecycle.in_place_update),
        Defect::NoDeleteHook => spec.lifecycle.pre_delete = None,
        _ => {}
    }
    let Some(rolling) = &mut spec.rolling else { return };
    match defect {
        Defect::ForgetInFlight => {
            let Some(IntOrPercent::Int(max)) = rolling.max_unavailable else {
                return;
            };
            let in_flight = pods.iter().filter(|pod| pod.detail.is_some() && !is_in_service(pod));
            rolling.max_unavailable = Some(IntOrPercent::Int(max + in_flight.count() as i32));
        }
        Defect::NoGracePeriod => rolling.in_place_grace = Duration::ZERO,
        Defect::InPlaceOnlyDeletes if rolling.pod_update_policy == PodUpdatePolicy::InPlaceOnly => {
            rolling.pod_update_policy = PodUpdatePolicy::ReCreate;
        }
        _ => {}
    }
}

/// Under InPlaceOnly, revisions of which only the one that is asked for says what pods are made from.
pub(super) fn without_old_templates(inner: &dyn Reader, set: &SetRecord) -> Option<Vec<Arc<RevisionRecord>>> {
    let is_only = set.spec.rolling.as_ref()?.pod_update_policy == PodUpdatePolicy::InPlaceOnly;
    let all = inner.revisions_of(set.as_owner());
    let forget = |revision: &Arc<RevisionRecord>| {
        let mut altered = revision.clone();
        if revision.digest != set.spec.template_digest {
            Arc::make_mut(&mut altered).template = None;
        }
        altered
    };
    is_only.then(|| all.iter().map(forget).collect())
}

/// Pods as a controller with such a defect sees them.
#[derive(Default)]
pub(super) struct Pods {
    all: Vec<Arc<PodRecord>>,
}

impl Pods {
    pub(super) fn new(defect: Defect, inner: &dyn Reader, set: &SetRecord) -> Option<Self> {
        let alter = match defect {
            Defect::DoneByImageText => as_if_arrived,
            Defect::ResizeUsesBudget => down_while_resized,
            Defect::AwaitInfeasible => as_if_deferred,
            Defect::JudgeByVolumes => without_origin,
            Defect::ForgetMadeAgain => super::asks::without_wish,
            Defect::UpByMemoryAlone => super::asks::as_if_never_up,
            Defect::OwnersByUid => Arc::clone,
            Defect::ForgetEnvironment => super::arrival::as_if_restarted,
            Defect::ForgetUnread => without_unread_note,
            _ => return None,
        };
        let named = match defect {
            Defect::OwnersByUid => inner.pods_of(crate::tenants::as_named(set)),
            _ => &[],
        };
        let all = inner.pods_of(set.as_owner()).iter().chain(named).map(alter).collect();
        Some(Pods { all })
    }

    pub(super) fn of(all: Vec<Arc<PodRecord>>) -> Self {
        Pods { all }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<PodRecord>> {
        self.all.iter().find(|pod| pod.meta.key == *key)
    }

    pub(super) fn all(&self) -> &[Arc<PodRecord>] {
        &self.all
    }
}

/// The image in the spec is taken for the one that runs.
fn as_if_arrived(pod: &Arc<PodRecord>) -> Arc<PodRecord> {
    let mut altered = (**pod).clone();
    if let Some(detail) = &mut altered.detail {
        let detail = Arc::make_mut(detail);
        for (status, spec) in detail.statuses.iter_mut().zip(&detail.spec.containers) {
            if let Some(status) = status {
                status.image = spec.image.clone();
            }
        }
    }
    Arc::new(altered)
}

/// What a node will never give is put off.
fn as_if_deferred(pod: &Arc<PodRecord>) -> Arc<PodRecord> {
    let mut altered = (**pod).clone();
    let pending = altered
        .detail
        .as_mut()
        .and_then(|detail| Arc::make_mut(detail).resize_pending.as_mut());
    if let Some(pending) = pending {
        pending.is_infeasible = false;
    }
    Arc::new(altered)
}

/// Nothing says as what a pod was made.
fn without_origin(pod: &Arc<PodRecord>) -> Arc<PodRecord> {
    let mut altered = (**pod).clone();
    let kept = pod.meta.labels.iter().filter(|(key, _)| *key != "flotilla.rs/made-as");
    altered.meta.labels = kept.collect();
    Arc::new(altered)
}

/// A note of a grace period that cannot be read is not seen.
fn without_unread_note(pod: &Arc<PodRecord>) -> Arc<PodRecord> {
    let mut altered = (**pod).clone();
    if let Some(detail) = altered.detail.as_mut().filter(|_| is_unreadable(pod)) {
        let all = pod.detail.iter().flat_map(|detail| detail.annotations.iter());
        let read = all.filter(|(key, _)| !key.ends_with("inplace-update-grace")).collect();
        Arc::make_mut(detail).annotations = read;
    }
    Arc::new(altered)
}

/// A pod whose resources are on their way counts as not ready.
fn down_while_resized(pod: &Arc<PodRecord>) -> Arc<PodRecord> {
    let is_resized = pod.detail.as_ref().is_some_and(|d| d.resize_in_progress.is_some());
    let mut altered = (**pod).clone();
    altered.ready.is_true &= !is_resized;
    Arc::new(altered)
}
