//! Defects of containers that are kept ready, and of environments that refer to metadata (STS-4.4 and STS-4.6).

use super::Defect;
use super::in_place::leave_out_of_service;
use crate::environment::{KEYS, REPORT};
use crate::in_place::{note_of, runs_what_is_asked};
use flotilla_model::decision::{Command, Subresource};
use flotilla_model::set::SetSpec;
use flotilla_model::{Decision, IntOrPercent, PodRecord, Resource};
use flotilla_model::{containers_meta, records::ContainerSpec};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a controller with such a defect sees of the set.
pub(super) fn alter_set(defect: Defect, spec: &mut SetSpec, pods: &[Arc<PodRecord>]) {
    match defect {
        Defect::ForgetKeptReady => spec.switches.keep_ready.clear(),
        Defect::KeepAllReady => {
            let names = ["main", "side", "log"].map(str::to_owned);
            spec.switches.keep_ready = names.into_iter().collect();
        }
        Defect::FreeWhenKept => {
            let Some(rolling) = &mut spec.rolling else { return };
            let Some(IntOrPercent::Int(max)) = rolling.max_unavailable else {
                return;
            };
            let is_kept = |pod: &&Arc<PodRecord>| note_of(pod)["keptReady"] == true && !runs_what_is_asked(pod);
            let kept = pods.iter().filter(is_kept).count();
            rolling.max_unavailable = Some(IntOrPercent::Int(max + kept as i32));
        }
        _ => {}
    }
}

/// The agent seems to have restarted all containers of a pod for their environment.
pub(super) fn as_if_restarted(pod: &Arc<PodRecord>) -> Arc<PodRecord> {
    let mut altered = (**pod).clone();
    let Some(detail) = &mut altered.detail else {
        return Arc::new(altered);
    };
    let value = |is_label: bool, key: &str| {
        let value = if is_label {
            pod.label(key)
        } else {
            detail.annotations.get(key)
        };
        value.unwrap_or_default().to_owned()
    };
    let expected = |spec: &ContainerSpec| {
        let entries = spec.metadata_env.iter();
        let entries: Vec<_> = entries
            .map(|e| (e.name.to_string(), value(e.is_label, &e.key)))
            .collect();
        containers_meta::env_hash(entries.iter().map(|(name, value)| (&**name, &**value)))
    };
    let known = detail
        .annotations
        .get(REPORT)
        .and_then(|text| serde_json::from_str(text).ok());
    let mut report: Value = known.unwrap_or_default();
    for entry in report["containers"].as_array_mut().into_iter().flatten() {
        let name = entry["name"].as_str().unwrap_or_default();
        let Some((spec, Some(status))) = detail.container(name) else {
            continue;
        };
        let (hash, id) = (expected(spec), status.container_id.to_string());
        entry["hashes"]["extractedEnvFromMetadataHash"] = json!(hash);
        entry["containerID"] = json!(id);
    }
    let text = report.to_string();
    let all = detail.annotations.iter().filter(|(key, _)| *key != REPORT);
    let annotations = all.chain([(REPORT, &*text)]).collect();
    Arc::make_mut(detail).annotations = annotations;
    Arc::new(altered)
}

/// Metadata to which containers refer changes while their pod serves: nothing takes it out, and nothing is tested.
pub(super) fn change_in_service(decision: &mut Decision) {
    let touches = |body: &Value| {
        let mut operations = body.as_array().into_iter().flatten();
        operations.any(|o| {
            let path = o["path"].as_str().unwrap_or_default();
            o["op"] != "test" && KEYS.iter().any(|key| path.ends_with(&key.replace('/', "~1")))
        })
    };
    let mut changed = BTreeSet::new();
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        if let Command::Patch {
            resource: Resource::Pods,
            subresource: None,
            key,
            body,
            resource_version,
            ..
        } = &mut scoped.command
            && touches(body)
        {
            changed.insert(key.clone());
            *resource_version = None;
            if let Some(operations) = body.as_array_mut() {
                operations.retain(|operation| operation["op"] != "test");
            }
        }
    }
    for stage in &mut decision.stages {
        stage.commands.retain_mut(|scoped| match &mut scoped.command {
            Command::Patch {
                resource: Resource::Pods,
                subresource: Some(Subresource::Status),
                key,
                body,
                ..
            } if changed.contains(key) => leave_out_of_service(body),
            _ => true,
        });
    }
}
