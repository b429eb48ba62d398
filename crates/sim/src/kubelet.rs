//! Kubelets at work on pods that run: changed images, changed resources, gates of readiness.

use crate::cluster::Cluster;
use crate::containers as c;
use crate::nodes::{Ailment, PULL_AGAIN_MS, PodStep, TRY_AGAIN_MS};
use crate::server::{Actor, Entry};
use flotilla_model::records::Phase;
use flotilla_model::{ObjectKey, PatchKind, PodRecord, Resource, Subresource};
use serde_json::{Value, json};
use std::sync::Arc;

impl Cluster {
    /// Somebody else changed a pod: whatever concerns its kubelet is looked at.
    pub(crate) fn kubelet_notices(&mut self, entry: &Entry, pod: &PodRecord) {
        if entry.actor == Actor::System || pod.phase != Phase::Running || pod.is_terminating() {
            return;
        }
        let (Some(before), Some(after)) = (&entry.before, &entry.after) else {
            return;
        };
        let (before, after) = (before.value(), after.value());
        let differs = |path: &str| before.pointer(path) != after.pointer(path);
        let has_gates = after.pointer("/spec/readinessGates").is_some();
        let is_news = differs("/metadata/generation")
            || has_gates && differs("/status/conditions")
            || c::has_agent(&after) && (differs("/metadata/labels") || differs("/metadata/annotations"))
            || differs("/metadata/annotations/sim.flotilla.rs~1resize");
        if is_news {
            let delay_ms = self.between(self.nodes.pace.see_ms.clone());
            self.plan_pod(delay_ms, pod, PodStep::Sync);
        }
    }

    /// A kubelet compares a pod with its containers.
    pub(crate) fn sync(&mut self, pod: &PodRecord, value: &Arc<Value>) {
        if pod.is_terminating() || pod.phase != Phase::Running {
            return;
        }
        let mut status = value["status"].clone();
        let wall = json!(self.wall());
        status["observedGeneration"] = value["metadata"]["generation"].clone();
        let (mut is_stuck, mut restarts) = (None, false);
        for container in c::each(&value["spec"]["containers"]) {
            let known = c::status_of(&status, &container["name"]).clone();
            let is_due = c::needs_start(container, &known) || c::agent_restarts(value, container, &known);
            let hindrance = if is_due {
                self.hindrance(&pod.meta.key, container)
            } else {
                continue;
            };
            match hindrance {
                None => restarts = true,
                Some((reason, message, again_ms)) => {
                    is_stuck = Some(again_ms);
                    c::put_status(&mut status, c::waiting(container, &known, &reason, &message));
                }
            }
        }
        let resizes = c::begin_resize(value, &mut status, &wall);
        c::set_readiness(value, &mut status, &wall);
        self.write_status(pod, value, status);
        if restarts {
            let delay_ms = self.between(self.nodes.pace.restart_ms.clone());
            self.plan_pod(delay_ms, pod, PodStep::Restart);
        }
        if let Some(again_ms) = is_stuck {
            self.plan_pod(again_ms, pod, PodStep::Sync);
        }
        if resizes {
            let delay_ms = self.between(self.nodes.pace.restart_ms.clone());
            self.plan_pod(delay_ms, pod, PodStep::Resize);
        }
    }

    /// Why a container cannot be started: reason, message, and when to try again.
    pub(crate) fn hindrance(&self, pod: &ObjectKey, container: &Value) -> Option<(String, String, u64)> {
        let image = container["image"].as_str().unwrap_or_default();
        if let Some(failing) = self.nodes.failing(image) {
            return Some((failing.reason, failing.message, PULL_AGAIN_MS));
        }
        let maps = self.server.types.store_of_kind("", "ConfigMap");
        let has_key = |map: &str, key: &str| {
            let map = maps.and_then(|maps| self.server.get(maps, &pod.sibling(map)));
            map.map_or(self.nodes.takes_maps_for_full, |map| {
                map.value()["data"].get(key).is_some()
            })
        };
        let why = c::missing_key(container, &has_key)?;
        Some(("CreateContainerConfigError".to_owned(), why, TRY_AGAIN_MS))
    }

    /// Containers that were to be restarted have ended, and begin anew.
    pub(crate) fn restart(&mut self, pod: &PodRecord, value: &Arc<Value>) {
        if pod.is_terminating() || pod.phase != Phase::Running {
            return;
        }
        let (mut status, wall) = (value["status"].clone(), json!(self.wall()));
        let mut is_restarted = false;
        for container in c::each(&value["spec"]["containers"]) {
            let known = c::status_of(&status, &container["name"]).clone();
            let is_due = c::needs_start(container, &known) || c::agent_restarts(value, container, &known);
            if is_due && self.hindrance(&pod.meta.key, container).is_none() {
                c::put_status(&mut status, c::started(value, container, &known, &wall));
                is_restarted = true;
            }
        }
        if is_restarted {
            self.begun(pod, value, status);
        }
    }

    /// The resources of containers have been changed.
    pub(crate) fn resize(&mut self, pod: &PodRecord, value: &Arc<Value>) {
        if pod.is_terminating() || pod.phase != Phase::Running {
            return;
        }
        let (mut status, wall) = (value["status"].clone(), json!(self.wall()));
        if !c::begin_resize(value, &mut status, &wall) {
            return self.write_status(pod, value, status);
        }
        if c::finish_resize(value, &mut status, &wall) {
            self.begun(pod, value, status);
        } else {
            self.write_status(pod, value, status);
        }
    }

    /// Containers run that are not ready yet.
    pub(crate) fn begun(&mut self, pod: &PodRecord, value: &Arc<Value>, mut status: Value) {
        let wall = json!(self.wall());
        status["observedGeneration"] = value["metadata"]["generation"].clone();
        c::set_readiness(value, &mut status, &wall);
        let mut containers = c::each(&value["spec"]["containers"]);
        let is_resized = |container| c::resized(container, c::status_of(&status, &container["name"])).is_some();
        if c::has_agent(value) || containers.any(is_resized) {
            // Of one that ran before; nobody else looks at it. Its environment may be old, too.
            let delay_ms = self.between(self.nodes.pace.see_ms.clone());
            self.plan_pod(delay_ms, pod, PodStep::Sync);
        }
        self.write_status(pod, value, status);
        let delay_ms = self.between(self.nodes.pace.ready_ms.clone());
        self.plan_pod(delay_ms, pod, PodStep::Ready);
    }

    pub(crate) fn ready(&mut self, pod: &PodRecord, value: &Arc<Value>) {
        let is_ready = |status: &Value| c::each(&status["containerStatuses"]).all(|c| c["ready"] == true);
        if pod.phase != Phase::Running || pod.ready.is_true && is_ready(&value["status"]) {
            return;
        }
        let ailment = self.nodes.ails(pod, self.now());
        if ailment == Some(Ailment::NeverReady) {
            return;
        }
        if ailment == Some(Ailment::CrashLoop) {
            return self.plan_pod(TRY_AGAIN_MS, pod, PodStep::Ready);
        }
        let mut status = value["status"].clone();
        for container in status["containerStatuses"].as_array_mut().into_iter().flatten() {
            container["ready"] = json!(container["state"]["running"].is_object());
        }
        c::set_readiness(value, &mut status, &json!(self.wall()));
        self.write_status(pod, value, status);
        if ailment == Some(Ailment::Flicker) {
            let delay_ms = self.between(500..3_000);
            self.plan_pod(delay_ms, pod, PodStep::Unready);
        }
    }

    /// Writes the status of a pod, if it is another, and what the node agent has to say.
    pub(crate) fn write_status(&mut self, pod: &PodRecord, value: &Value, status: Value) {
        let key = &pod.meta.key;
        if let Some(patch) = c::agent_patch(value, &status) {
            // The pod is there, and there are no preconditions; so below.
            let _ = self
                .server
                .patch(Actor::System, Resource::Pods, key, (PatchKind::Merge, &patch));
        }
        if value["status"] == status {
            return;
        }
        let patch = json!([{"op": "add", "path": "/status", "value": status}]);
        let _ = self.server.patch_subresource(
            Actor::System,
            (Resource::Pods.into(), key),
            Subresource::Status,
            (PatchKind::Json, &patch),
        );
    }
}
