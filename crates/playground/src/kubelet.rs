//! Scheduler and kubelets: pods are bound, start, become ready or fail to, and end, as their annotations say.

use crate::world::{Event, World};
use flotilla_apiserver::{Actor, DeleteOptions, Entry, Stored};
use flotilla_engine::wire::Object;
use flotilla_model::{ObjectKey, PodRecord, Resource, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Between two tries of what does not work.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Until the scheduler has seen a pod.
const SCHEDULED_AFTER: Duration = Duration::from_millis(50);
/// Until a kubelet has seen what was changed.
const SEEN_AFTER: Duration = Duration::from_millis(150);
/// Until an image that is not there is known not to be.
const PULL_FAILS_AFTER: Duration = Duration::from_millis(500);
/// Until a pod that was asked to end has ended, unless it says otherwise.
const ENDED_AFTER: Duration = Duration::from_millis(300);

/// What an annotation asks for.
fn wish<'v>(pod: &'v Value, name: &str) -> Option<&'v str> {
    pod["metadata"]["annotations"][format!("sim.flotilla.rs/{name}")].as_str()
}

fn is_wished(pod: &Value, name: &str) -> bool {
    wish(pod, name) == Some("true")
}

/// A length of time such as `3s`, `500ms` or `2m`.
fn time(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = text[..digits].parse().ok()?;
    let seconds = match &text[digits..] {
        "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

pub(crate) fn record(stored: Option<&Stored>) -> Option<&Arc<PodRecord>> {
    match stored?.object.as_ref()? {
        Object::Pod(pod) => Some(pod),
        _ => None,
    }
}

/// The index of a node.
fn index(node: &str) -> Option<usize> {
    node.strip_prefix("node-")?.parse().ok()
}

impl World {
    /// Something happened to a pod.
    pub(crate) fn pod_changed(&mut self, entry: &Entry) {
        let (before, after) = (record(entry.before.as_ref()), record(entry.after.as_ref()));
        self.count(before, after);
        let Some(after) = after else { return };
        let key = entry.key.clone();
        if after.node.is_none() {
            if before.is_none() {
                self.plan(SCHEDULED_AFTER, Event::Schedule(key));
            }
            return;
        }
        if after.is_terminating() && before.is_some_and(|b| !b.is_terminating()) {
            let stop = entry
                .after
                .as_ref()
                .and_then(|s| wish(&s.value(), "stop").and_then(time));
            let end = Event::End(key, after.meta.uid.to_string());
            return self.plan(stop.unwrap_or(ENDED_AFTER), end);
        }
        // What kubelets write themselves is not news to them.
        let is_own = entry.actor == Actor::System && entry.verb != "bind";
        if !is_own {
            self.plan(SEEN_AFTER, Event::Look(key));
        }
    }

    /// Takes up what was under way when the world was saved.
    pub(crate) fn resume_pods(&mut self) {
        let pods: Vec<Arc<PodRecord>> = self
            .server
            .all(Resource::Pods)
            .filter_map(|stored| record(Some(stored)).cloned())
            .collect();
        for pod in pods.into_iter().filter(|pod| pod.node.is_some()) {
            let key = pod.meta.key.clone();
            if pod.is_terminating() {
                self.plan(ENDED_AFTER, Event::End(key, pod.meta.uid.to_string()));
            } else {
                self.plan(SEEN_AFTER, Event::Look(key));
            }
        }
    }

    /// Counts pods on nodes.
    fn count(&mut self, before: Option<&Arc<PodRecord>>, after: Option<&Arc<PodRecord>>) {
        let node = |pod: Option<&Arc<PodRecord>>| pod.and_then(|p| p.node.as_deref().and_then(index));
        let (before, after) = (node(before), node(after));
        if before == after {
            return;
        }
        if let Some(node) = before.and_then(|index| self.nodes.get_mut(index)) {
            node.pods = node.pods.saturating_sub(1);
        }
        if let Some(node) = after.and_then(|index| self.nodes.get_mut(index)) {
            node.pods += 1;
        }
    }

    /// Binds a pod to the node with the fewest pods, once its claims are bound.
    pub(crate) fn schedule(&mut self, key: &ObjectKey) {
        let Some(pod) = record(self.server.get(Resource::Pods, key)).cloned() else {
            return;
        };
        if pod.node.is_some() || pod.is_terminating() {
            return;
        }
        let is_bound = |claim: &str| {
            let claim = self.server.get(Resource::Claims, &key.sibling(claim));
            matches!(claim.and_then(|s| s.object.as_ref()), Some(Object::Claim(claim)) if claim.is_bound)
        };
        let has_claims = pod.claims().all(|(_, claim)| is_bound(&claim));
        let nodes = self.nodes.iter().enumerate().filter(|(_, node)| !node.is_lost);
        match nodes.min_by_key(|(_, node)| node.pods).map(|(index, _)| index) {
            Some(node) if has_claims => {
                let node = format!("node-{node}");
                if self.server.bind(key, &node).is_ok() {
                    let message = format!("Successfully assigned {}/{} to {node}", key.namespace, key.name);
                    self.tell(&pod, ("Normal", "Scheduled"), &message, "default-scheduler");
                }
            }
            _ => self.plan(TRY_AGAIN, Event::Schedule(key.clone())),
        }
    }

    /// A kubelet looks at a pod, and writes what it finds.
    pub(crate) fn look(&mut self, key: &ObjectKey) {
        let Some(stored) = self.server.get(Resource::Pods, key) else {
            return;
        };
        let Some(pod) = record(Some(stored)).cloned() else {
            return;
        };
        let value = stored.value();
        let node = pod.node.as_deref().and_then(index);
        if pod.is_terminal() || pod.is_terminating() || node.is_none() {
            return;
        }
        if node
            .and_then(|index| self.nodes.get(index))
            .is_some_and(|node| node.is_lost)
        {
            return self.plan(TRY_AGAIN, Event::Look(key.clone()));
        }
        let seen = Seen::of(&value, self.server.now, &format!("10.244.0.{}", 2 + node.unwrap_or(0)));
        if let Some(again) = seen.again {
            self.plan(again, Event::Look(key.clone()));
        }
        if let Some((kind, reason, message)) = seen.news {
            self.tell(&pod, (kind, reason), &message, "kubelet");
        }
        if value["status"] != seen.status {
            self.write_status(key, seen.status);
        }
    }

    /// Writes the status of a pod.
    pub(crate) fn write_status(&mut self, key: &ObjectKey, status: Value) {
        // The pod is there, and there are no preconditions.
        let _ = self.server.replace_status(Resource::Pods, key, status);
    }

    /// A pod has ended.
    pub(crate) fn end(&mut self, key: &ObjectKey, uid: &str) {
        let Some(pod) = record(self.server.get(Resource::Pods, key)).cloned() else {
            return;
        };
        let node = pod.node.as_deref().and_then(index);
        if node
            .and_then(|index| self.nodes.get(index))
            .is_some_and(|node| node.is_lost)
        {
            return self.plan(TRY_AGAIN, Event::End(key.clone(), uid.to_owned()));
        }
        let options = DeleteOptions {
            uid: Some(uid.to_owned()),
            grace_seconds: Some(0),
            ..DeleteOptions::default()
        };
        self.tell(&pod, ("Normal", "Killing"), "Stopping container", "kubelet");
        // It may have been replaced by another of its name, which is not to be ended.
        let _ = self.server.delete(Actor::System, Resource::Pods, key, &options);
    }
}

/// What a kubelet finds.
struct Seen {
    status: Value,
    /// When to look again.
    again: Option<Duration>,
    /// Something to tell: type, reason, message.
    news: Option<(&'static str, &'static str, String)>,
}

/// What its containers do.
enum State {
    Running,
    Starting,
    Waiting(&'static str, String),
}

impl Seen {
    fn of(pod: &Value, now: Timestamp, address: &str) -> Self {
        let old = &pod["status"];
        let wall = json!(Timestamp::from_seconds(now.as_millis().div_euclid(1000)).to_string());
        for (wished, phase) in [("fail", "Failed"), ("succeed", "Succeeded")] {
            if let Some(reason) = wish(pod, wished) {
                return Seen::terminal(pod, phase, reason, &wall);
            }
        }
        let started = old["startTime"].as_str().is_some();
        let image = |container: &Value| container["image"].as_str().unwrap_or_default().ends_with(":broken");
        let broken = pod["spec"]["containers"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|c| image(c));
        let was_running = old["phase"] == "Running";
        let (state, again) = match (broken, is_wished(pod, "crash")) {
            (Some(container), _) => {
                let image = container["image"].as_str().unwrap_or_default();
                (
                    State::Waiting("ImagePullBackOff", format!("Back-off pulling image \"{image}\"")),
                    None,
                )
            }
            (None, true) => {
                let message = "back-off 10s restarting failed container";
                (State::Waiting("CrashLoopBackOff", message.to_owned()), None)
            }
            (None, false) if !started => {
                let delay = wish(pod, "start").and_then(time).unwrap_or(SEEN_AFTER);
                (State::Starting, Some(delay))
            }
            (None, false) => (State::Running, None),
        };
        let again = match (&state, started) {
            (State::Waiting(..), false) => Some(PULL_FAILS_AFTER),
            _ => again,
        };
        // The first look only notes that the kubelet has it.
        let state = if started { state } else { State::Starting };
        let is_ready = matches!(state, State::Running) && !is_wished(pod, "never-ready") && !is_wished(pod, "unready");
        let news = match &state {
            State::Running if !was_running => Some(("Normal", "Started", "Started container".to_owned())),
            State::Waiting("ImagePullBackOff", message) if !old.to_string().contains("ImagePullBackOff") => {
                Some(("Warning", "Failed", message.clone()))
            }
            State::Waiting("CrashLoopBackOff", message) if !old.to_string().contains("CrashLoopBackOff") => {
                Some(("Warning", "BackOff", message.clone()))
            }
            _ => None,
        };
        let status = status(pod, &state, is_ready, &wall, address);
        Seen { status, again, news }
    }

    fn terminal(pod: &Value, phase: &str, reason: &str, wall: &Value) -> Self {
        let mut status = pod["status"].clone();
        status["phase"] = json!(phase);
        if phase == "Failed" {
            status["reason"] = json!(reason);
        }
        set_ready(&mut status, false, wall);
        Seen {
            status,
            again: None,
            news: None,
        }
    }
}

/// The whole status of a pod on a node.
fn status(pod: &Value, state: &State, is_ready: bool, wall: &Value, address: &str) -> Value {
    let old = &pod["status"];
    let containers: Vec<Value> = pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let known = |name: &Value| {
        let all = old["containerStatuses"].as_array().into_iter().flatten();
        all.into_iter()
            .find(|c| c["name"] == *name)
            .cloned()
            .unwrap_or_default()
    };
    let states: Vec<Value> = containers
        .iter()
        .map(|container| container_status(container, &known(&container["name"]), state, is_ready, wall))
        .collect();
    let mut status = json!({
        "phase": match state { State::Running => "Running", _ if old["phase"] == "Running" => "Running", _ => "Pending" },
        "qosClass": old["qosClass"],
        "startTime": if old["startTime"].is_null() { wall.clone() } else { old["startTime"].clone() },
        "hostIP": address, "hostIPs": [{"ip": address}],
        "containerStatuses": states,
        "observedGeneration": pod["metadata"]["generation"],
        "conditions": old["conditions"],
    });
    if matches!(state, State::Running) || old["podIP"].is_string() {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let tail = u32::from_str_radix(uid.get(uid.len().saturating_sub(4)..).unwrap_or("1"), 16).unwrap_or(1);
        let own = format!("10.200.{}.{}", tail / 250 % 250, tail % 250 + 1);
        status["podIP"] = json!(own);
        status["podIPs"] = json!([{"ip": own}]);
    }
    let runs = matches!(state, State::Running);
    for (kind, is_true) in [
        ("PodReadyToStartContainers", true),
        ("Initialized", true),
        ("ContainersReady", is_ready),
    ] {
        set_condition(
            &mut status,
            kind,
            is_true,
            wall,
            (!is_true).then_some("ContainersNotReady"),
        );
    }
    let gates_open = open_gates(pod);
    let reason = if is_ready {
        (!gates_open).then_some("ReadinessGatesNotReady")
    } else {
        Some("ContainersNotReady")
    };
    set_condition(&mut status, "Ready", is_ready && gates_open && runs, wall, reason);
    status
}

/// Whether all readiness gates of a pod are True.
fn open_gates(pod: &Value) -> bool {
    let gates = pod["spec"]["readinessGates"].as_array().into_iter().flatten();
    gates.into_iter().all(|gate| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions
            .into_iter()
            .any(|c| c["type"] == gate["conditionType"] && c["status"] == "True")
    })
}

fn container_status(container: &Value, old: &Value, state: &State, is_ready: bool, wall: &Value) -> Value {
    let image = container["image"].as_str().unwrap_or_default();
    let is_restarted = old["state"]["running"].is_object() && old["image"].as_str().is_some_and(|known| known != image);
    let restarts = old["restartCount"].as_i64().unwrap_or(0) + i64::from(is_restarted);
    let now = match state {
        State::Running if old["state"]["running"].is_object() && !is_restarted => old["state"].clone(),
        State::Running => json!({"running": {"startedAt": wall}}),
        State::Starting => json!({"waiting": {"reason": "ContainerCreating"}}),
        State::Waiting(reason, message) => json!({"waiting": {"reason": reason, "message": message}}),
    };
    let runs = matches!(state, State::Running);
    let mut status = json!({
        "name": container["name"], "image": image, "state": now, "ready": is_ready, "started": runs, "restartCount": restarts,
        "lastState": {}, "imageID": "",
    });
    if runs {
        status["imageID"] = json!(format!("sim.local/{image}"));
        status["containerID"] = json!(format!(
            "sim://{}-{restarts}",
            container["name"].as_str().unwrap_or_default()
        ));
    }
    status
}

/// Sets a condition; its time changes only with its status.
fn set_condition(status: &mut Value, kind: &str, is_true: bool, wall: &Value, reason: Option<&str>) {
    let text = if is_true { "True" } else { "False" };
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let known = conditions.iter().find(|c| c["type"] == kind);
    let since = known
        .filter(|c| c["status"] == text)
        .map_or(wall.clone(), |c| c["lastTransitionTime"].clone());
    let mut condition = json!({"type": kind, "status": text, "lastProbeTime": null, "lastTransitionTime": since});
    if let Some(reason) = reason {
        condition["reason"] = json!(reason);
    }
    match conditions.iter_mut().find(|c| c["type"] == kind) {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
    status["conditions"] = json!(conditions);
}

/// A pod is ready no more.
pub(crate) fn set_ready(status: &mut Value, is_ready: bool, wall: &Value) {
    for kind in ["Ready", "ContainersReady"] {
        set_condition(status, kind, is_ready, wall, (!is_ready).then_some("PodFailed"));
    }
    for container in status["containerStatuses"].as_array_mut().into_iter().flatten() {
        container["ready"] = json!(is_ready);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read() {
        for (text, millis) in [
            ("3s", Some(3000)),
            ("500ms", Some(500)),
            ("2m", Some(120_000)),
            ("x", None),
            ("3", None),
        ] {
            assert_eq!(time(text).map(|t| t.as_millis()), millis, "{text}");
        }
    }

    fn pod(annotations: &Value, status: &Value, image: &str) -> Value {
        json!({"metadata": {"annotations": annotations, "uid": "5eed0000-0000-4000-8000-00000000000a"},
            "spec": {"containers": [{"name": "web", "image": image}]}, "status": status})
    }

    fn ready(seen: &Seen) -> bool {
        let conditions = seen.status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
    }

    #[test]
    fn a_pod_starts_when_it_says_and_waits_for_an_image_that_is_not_there() {
        let now = Timestamp::from_seconds(1000);
        let first = Seen::of(
            &pod(
                &json!({"sim.flotilla.rs/start": "2s"}),
                &json!({"phase": "Pending"}),
                "a:1",
            ),
            now,
            "n",
        );
        assert_eq!(first.again, Some(Duration::from_secs(2)));
        assert!(!ready(&first));
        let second = Seen::of(&pod(&json!({}), &first.status, "a:1"), now, "n");
        assert!(ready(&second) && second.again.is_none());
        assert_eq!(second.status["phase"], "Running");
        let broken = Seen::of(&pod(&json!({}), &first.status, "a:broken"), now, "n");
        assert_eq!(
            broken.status["containerStatuses"][0]["state"]["waiting"]["reason"],
            "ImagePullBackOff"
        );
        let again = Seen::of(&pod(&json!({}), &second.status, "a:2"), now, "n");
        assert_eq!(again.status["containerStatuses"][0]["restartCount"], 1);
    }
}
