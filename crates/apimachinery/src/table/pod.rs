//! Cells of pods: one word for what the containers say together.

use super::age::{age, of_object};
use super::cells::{list, name, text_or};
use jiff::Timestamp;
use serde_json::{Value, json};

/// What rows of pods that have ended say besides their cells.
pub(super) fn row_conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match pod["status"]["phase"].as_str()? {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let summary = Summary::of(pod);
    let mut restarts = summary.restarts.to_string();
    if let Some(last) = summary.last_restart.as_deref().filter(|_| summary.restarts != 0) {
        restarts = format!("{restarts} ({} ago)", age(Some(last), now));
    }
    vec![
        name(pod),
        json!(format!("{}/{}", summary.ready, summary.total)),
        json!(summary.reason),
        json!(restarts),
        of_object(pod, now),
        text_or(&status["podIPs"][0]["ip"], "<none>"),
        text_or(&spec["nodeName"], "<none>"),
        text_or(&status["nominatedNodeName"], "<none>"),
        json!(readiness_gates(pod)),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates: Vec<_> = list(&pod["spec"]["readinessGates"]).collect();
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let is_met = |gate: &&&Value| has_condition(pod, gate["conditionType"].as_str().unwrap_or_default());
    format!("{}/{}", gates.iter().filter(is_met).count(), gates.len())
}

fn has_condition(pod: &Value, kind: &str) -> bool {
    let found = list(&pod["status"]["conditions"]).find(|c| c["type"] == kind);
    found.is_some_and(|c| c["status"] == "True")
}

/// What the containers say together.
#[derive(Default)]
struct Summary {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<String>,
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let status = &pod["status"];
        let word = |value: &Value| value.as_str().filter(|t| !t.is_empty()).map(str::to_owned);
        let mut summary = Summary {
            reason: word(&status["reason"])
                .or_else(|| word(&status["phase"]))
                .unwrap_or_default(),
            total: list(&pod["spec"]["containers"]).count()
                + list(&pod["spec"]["initContainers"]).filter(|c| is_sidecar(c)).count(),
            ..Summary::default()
        };
        if list(&status["conditions"]).any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated") {
            "SchedulingGated".clone_into(&mut summary.reason);
        }
        let sidecars = summary.look_at_init_containers(pod);
        if sidecars.initializing && !has_condition(pod, "Initialized") {
            return summary.leaving(pod);
        }
        summary.restarts = sidecars.restarts;
        summary.last_restart = sidecars.last_restart;
        summary.look_at_containers(pod);
        summary.leaving(pod)
    }

    fn note_restarts(&mut self, container: &Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or_default();
        let finished = container["lastState"]["terminated"]["finishedAt"].as_str();
        if let Some(finished) = finished.filter(|f| self.last_restart.as_deref().is_none_or(|last| last < *f)) {
            self.last_restart = Some(finished.to_owned());
        }
    }

    /// Up to the first init container that has not done its part.
    fn look_at_init_containers(&mut self, pod: &Value) -> Sidecars {
        let count = list(&pod["spec"]["initContainers"]).count();
        let mut sidecars = Summary::default();
        for (index, container) in list(&pod["status"]["initContainerStatuses"]).enumerate() {
            self.note_restarts(container);
            let declared = list(&pod["spec"]["initContainers"]).find(|c| c["name"] == container["name"]);
            let is_sidecar = declared.is_some_and(is_sidecar);
            if is_sidecar {
                sidecars.note_restarts(container);
            }
            let state = &container["state"];
            let (ended, waiting) = (
                &state["terminated"],
                state["waiting"]["reason"].as_str().unwrap_or_default(),
            );
            if ended.is_object() && ended["exitCode"].as_i64().unwrap_or_default() == 0 {
                continue;
            }
            if is_sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            self.reason = if ended.is_object() {
                format!("Init:{}", end_reason(ended))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{count}")
            };
            return Sidecars::of(sidecars, true);
        }
        Sidecars::of(sidecars, false)
    }

    fn look_at_containers(&mut self, pod: &Value) {
        let (mut is_one_running, mut error) = (false, None);
        for container in list(&pod["status"]["containerStatuses"]).rev() {
            self.note_restarts(container);
            let state = &container["state"];
            let (ended, waiting) = (
                &state["terminated"],
                state["waiting"]["reason"].as_str().unwrap_or_default(),
            );
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if ended.is_object() {
                self.reason = end_reason(ended);
                if ended["exitCode"].as_i64().unwrap_or_default() != 0 {
                    error = Some(self.reason.clone());
                }
            } else if container["ready"] == true && state["running"].is_object() {
                is_one_running = true;
                self.ready += 1;
            }
        }
        // Some containers are done and others run on.
        if self.reason == "Completed" {
            if is_one_running && has_condition(pod, "Ready") {
                "Running".clone_into(&mut self.reason);
            } else if let Some(error) = error {
                self.reason = error;
            } else if is_one_running {
                "NotReady".clone_into(&mut self.reason);
            }
        }
    }

    fn leaving(mut self, pod: &Value) -> Self {
        if pod["metadata"]["deletionTimestamp"].is_string() {
            let phase = pod["status"]["phase"].as_str();
            if pod["status"]["reason"] == "NodeLost" {
                "Unknown".clone_into(&mut self.reason);
            } else if !matches!(phase, Some("Succeeded" | "Failed")) {
                "Terminating".clone_into(&mut self.reason);
            }
        }
        self
    }
}

/// Init containers that run on beside the others.
struct Sidecars {
    restarts: i64,
    last_restart: Option<String>,
    /// Whether init containers are still at work.
    initializing: bool,
}

impl Sidecars {
    fn of(summary: Summary, initializing: bool) -> Self {
        Sidecars {
            restarts: summary.restarts,
            last_restart: summary.last_restart,
            initializing,
        }
    }
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn end_reason(ended: &Value) -> String {
    let signal = ended["signal"].as_i64().unwrap_or_default();
    match ended["reason"].as_str() {
        Some(reason) if !reason.is_empty() => reason.to_owned(),
        _ if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", ended["exitCode"].as_i64().unwrap_or_default()),
    }
}
