//! Scheduler and kubelets: pods are bound, start, become ready or fail to, and end, as their annotations say.

use crate::world::{Event, World, shortened};
use flotilla_apiserver::{Actor, DeleteOptions, Entry, Stored};
use flotilla_engine::wire::Object;
use flotilla_model::{ObjectKey, PatchKind, PodRecord, Resource, Timestamp};
use flotilla_sim::containers::{self as c, wish};
use serde_json::{Value, json};
use std::collections::BTreeMap;
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
/// Until a container that was restarted in place is ready again, unless its pod says otherwise.
const READY_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Until the resources of containers are changed.
const RESIZED_AFTER: Duration = Duration::from_millis(300);
/// Until a pod that was asked to end has ended, unless it says otherwise.
const ENDED_AFTER: Duration = Duration::from_millis(300);

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
        let mut value = stored.to_value();
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
        if pod.node.as_deref().is_some_and(|node| self.has_agent(node)) {
            value["metadata"]["annotations"]["sim.flotilla.rs/agent"] = json!("true");
        }
        let maps = self.server.types.store_of_kind("", "ConfigMap");
        let has_key = |map: &str, name: &str| {
            let map = maps.and_then(|maps| self.server.get(maps, &key.sibling(map)));
            map.is_some_and(|map| map.value()["data"].get(name).is_some())
        };
        let address = format!("10.244.0.{}", 2 + node.unwrap_or(0));
        let around = Around {
            now: self.server.now,
            speed: self.speed,
            address: &address,
            has_key: &has_key,
        };
        let seen = Seen::of(&value, &around, &mut self.ready_at);
        if let Some(report) = c::agent_patch(&value, &seen.status) {
            // The pod is there, and there are no preconditions.
            let _ = self
                .server
                .patch(Actor::System, Resource::Pods, key, (PatchKind::Merge, &report));
        }
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

    /// Whether the node agent's part is done on a node.
    fn has_agent(&self, node: &str) -> bool {
        let nodes = self.server.types.store_of_kind("", "Node");
        let node = nodes.and_then(|nodes| self.server.get(nodes, &ObjectKey::new("", node)));
        node.is_some_and(|node| c::has_agent(&node.value()))
    }

    /// Writes the status of a pod.
    pub(crate) fn write_status(&mut self, key: &ObjectKey, status: Value) {
        let written = self.server.replace_status(Resource::Pods, key, status);
        if let (Err(refused), Some(pod)) = (written, record(self.server.get(Resource::Pods, key)).cloned()) {
            let message = format!("the status of pod {key} cannot be written: {}", refused.message);
            self.tell(&pod, ("Warning", "FailedStatusUpdate"), &message, "kubelet");
        }
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

/// What a kubelet knows beside a pod.
struct Around<'a> {
    now: Timestamp,
    /// How many times less time everything takes.
    speed: f64,
    address: &'a str,
    /// Whether a config map beside the pod has a key.
    has_key: &'a dyn Fn(&str, &str) -> bool,
}

impl Around<'_> {
    fn wall(&self) -> Value {
        json!(Timestamp::from_seconds(self.now.as_millis().div_euclid(1000)).to_string())
    }
}

/// What holds a container back: reason, sentence, and when to try again by itself.
type Hindrance = (&'static str, String, Option<Duration>);

fn hindrance(pod: &Value, container: &Value, around: &Around<'_>) -> Option<Hindrance> {
    let image = container["image"].as_str().unwrap_or_default();
    if image.ends_with(":broken") {
        return Some(("ImagePullBackOff", format!("Back-off pulling image \"{image}\""), None));
    }
    if is_wished(pod, "crash") {
        let message = "back-off 10s restarting failed container";
        return Some(("CrashLoopBackOff", message.to_owned(), None));
    }
    let why = c::missing_key(container, around.has_key)?;
    Some(("CreateContainerConfigError", why, Some(TRY_AGAIN)))
}

/// The sooner of two moments to look again.
fn sooner(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).min()
}

impl Seen {
    fn of(pod: &Value, around: &Around<'_>, ready_at: &mut BTreeMap<String, Timestamp>) -> Self {
        let wall = around.wall();
        for (wished, phase) in [("fail", "Failed"), ("succeed", "Succeeded")] {
            if let Some(reason) = wish(pod, wished) {
                return Seen::terminal(pod, phase, reason, &wall);
            }
        }
        if pod["status"]["startTime"].is_null() {
            return Seen::first(pod, around);
        }
        let mut status = body(pod, around);
        let mut again = None;
        for container in c::each(&pod["spec"]["containers"]) {
            let known = c::status_of(&status, &container["name"]).clone();
            let now = match hindrance(pod, container, around) {
                Some((reason, message, try_again)) => {
                    again = sooner(again, try_again);
                    c::waiting(container, &known, reason, &message)
                }
                None if c::needs_start(container, &known) || c::agent_restarts(pod, container, &known) => {
                    let new = c::started(pod, container, &known, &wall);
                    hold_back(pod, &known, &new, around, ready_at);
                    new
                }
                None => known,
            };
            c::put_status(&mut status, now);
        }
        again = sooner(again, resize(pod, &mut status, around, ready_at));
        again = sooner(again, let_be_ready(pod, &mut status, around, ready_at));
        if runs(&status) {
            status["phase"] = json!("Running");
            give_address(pod, &mut status);
        }
        c::set_readiness(pod, &mut status, &wall);
        let news = news(&pod["status"], &status);
        Seen { status, again, news }
    }

    /// The first look only notes that the kubelet has it.
    fn first(pod: &Value, around: &Around<'_>) -> Self {
        let mut status = body(pod, around);
        let mut again = wish(pod, "start").and_then(time).unwrap_or(SEEN_AFTER);
        for container in c::each(&pod["spec"]["containers"]) {
            let known = c::status_of(&status, &container["name"]).clone();
            if hindrance(pod, container, around).is_some() {
                again = PULL_FAILS_AFTER;
            }
            c::put_status(&mut status, c::waiting(container, &known, "ContainerCreating", ""));
        }
        c::set_readiness(pod, &mut status, &around.wall());
        Seen {
            status,
            again: Some(again),
            news: None,
        }
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

/// A container that was restarted in place is not ready for a while.
fn hold_back(pod: &Value, known: &Value, new: &Value, around: &Around<'_>, ready_at: &mut BTreeMap<String, Timestamp>) {
    if let (Some(_), Some(id)) = (known["containerID"].as_str(), new["containerID"].as_str()) {
        let delay = wish(pod, "restart").and_then(time).unwrap_or(READY_AGAIN_AFTER);
        ready_at.insert(id.to_owned(), around.now + shortened(delay, around.speed));
    }
}

/// Changes resources, in two looks. Says when to look again.
fn resize(
    pod: &Value,
    status: &mut Value,
    around: &Around<'_>,
    ready_at: &mut BTreeMap<String, Timestamp>,
) -> Option<Duration> {
    let (before, wall) = (status.clone(), around.wall());
    let was_begun = c::each(&before["conditions"]).any(|c| c["type"] == "PodResizeInProgress");
    if !c::begin_resize(pod, status, &wall) {
        return None;
    }
    if !was_begun {
        return Some(RESIZED_AFTER);
    }
    if c::finish_resize(pod, status, &wall) {
        for new in c::each(&status["containerStatuses"]) {
            let known = c::status_of(&before, &new["name"]);
            if known["containerID"] != new["containerID"] {
                hold_back(pod, known, new, around, ready_at);
            }
        }
    }
    None
}

/// Containers that run are ready, once their time has come. Says when that is for the next one.
fn let_be_ready(
    pod: &Value,
    status: &mut Value,
    around: &Around<'_>,
    ready_at: &mut BTreeMap<String, Timestamp>,
) -> Option<Duration> {
    ready_at.retain(|_, at| *at > around.now);
    let may = !is_wished(pod, "never-ready") && !is_wished(pod, "unready");
    let mut again = None;
    for container in status["containerStatuses"].as_array_mut().into_iter().flatten() {
        let held = container["containerID"].as_str().and_then(|id| ready_at.get(id));
        // The moment is the world's, and the time until it is to be that of nodes, as every other is.
        again = sooner(again, held.map(|at| at.since(around.now).mul_f64(around.speed)));
        container["ready"] = json!(may && held.is_none() && container["state"]["running"].is_object());
    }
    again
}

/// Whether all containers of a pod run.
fn runs(status: &Value) -> bool {
    c::each(&status["containerStatuses"]).all(|c| c["state"]["running"].is_object())
}

/// What is to be told of a change.
fn news(old: &Value, new: &Value) -> Option<(&'static str, &'static str, String)> {
    let waits = |status: &Value, reason: &str| {
        let mut waiting = c::each(&status["containerStatuses"]).map(|c| c["state"]["waiting"].clone());
        waiting.find(|waiting| waiting["reason"] == reason)
    };
    let complaints = [
        ("ImagePullBackOff", "Failed"),
        ("CrashLoopBackOff", "BackOff"),
        ("CreateContainerConfigError", "Failed"),
    ];
    for (reason, event) in complaints {
        if let Some(waiting) = waits(new, reason).filter(|_| waits(old, reason).is_none()) {
            return Some((
                "Warning",
                event,
                waiting["message"].as_str().unwrap_or_default().to_owned(),
            ));
        }
    }
    let ids = |status: &Value| -> Vec<Value> {
        let containers = c::each(&status["containerStatuses"]);
        containers.map(|c| c["containerID"].clone()).collect()
    };
    if runs(old) && ids(old) != ids(new) {
        let message = "Container definition changed, will be restarted";
        return Some(("Normal", "Killing", message.to_owned()));
    }
    (runs(new) && !runs(old)).then(|| ("Normal", "Started", "Started container".to_owned()))
}

/// The status of a pod on a node, without what its containers do now.
fn body(pod: &Value, around: &Around<'_>) -> Value {
    let (old, wall, address) = (&pod["status"], around.wall(), around.address);
    let mut status = json!({
        "phase": if old["phase"] == "Running" { "Running" } else { "Pending" },
        "qosClass": old["qosClass"],
        "startTime": if old["startTime"].is_null() { wall.clone() } else { old["startTime"].clone() },
        "hostIP": address, "hostIPs": [{"ip": address}],
        "containerStatuses": old["containerStatuses"],
        "observedGeneration": pod["metadata"]["generation"],
        "conditions": old["conditions"],
    });
    if !status["containerStatuses"].is_array() {
        status["containerStatuses"] = json!([]);
    }
    if old["podIP"].is_string() {
        give_address(pod, &mut status);
    }
    for kind in ["PodReadyToStartContainers", "Initialized"] {
        c::set_condition(&mut status, kind, true, &wall, None);
    }
    status
}

fn give_address(pod: &Value, status: &mut Value) {
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let tail = u32::from_str_radix(uid.get(uid.len().saturating_sub(4)..).unwrap_or("1"), 16).unwrap_or(1);
    let own = format!("10.200.{}.{}", tail / 250 % 250, tail % 250 + 1);
    status["podIP"] = json!(own);
    status["podIPs"] = json!([{"ip": own}]);
}

/// A pod is ready no more.
pub(crate) fn set_ready(status: &mut Value, is_ready: bool, wall: &Value) {
    for kind in ["Ready", "ContainersReady"] {
        c::set_condition(status, kind, is_ready, wall, (!is_ready).then_some(("PodFailed", "")));
    }
    // A pod that ends before its containers began has no such list.
    let containers = status.get_mut("containerStatuses").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
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

    fn look(pod: &Value, millis: i64, ready_at: &mut BTreeMap<String, Timestamp>) -> Seen {
        let around = Around {
            now: Timestamp::from_millis(1_000_000 + millis),
            speed: 1.0,
            address: "n",
            has_key: &|_, key| key == "p_1",
        };
        Seen::of(pod, &around, ready_at)
    }

    #[test]
    fn a_pod_starts_when_it_says_and_waits_for_an_image_that_is_not_there() {
        let held = &mut BTreeMap::new();
        let slow = json!({"sim.flotilla.rs/start": "2s"});
        let first = look(&pod(&slow, &json!({"phase": "Pending"}), "a:1"), 0, held);
        assert_eq!(first.again, Some(Duration::from_secs(2)));
        assert!(!ready(&first));
        let second = look(&pod(&json!({}), &first.status, "a:1"), 0, held);
        assert!(ready(&second) && second.again.is_none());
        assert_eq!(second.status["phase"], "Running");
        let broken = look(&pod(&json!({}), &first.status, "a:broken"), 0, held);
        assert_eq!(
            broken.status["containerStatuses"][0]["state"]["waiting"]["reason"],
            "ImagePullBackOff"
        );
    }

    /// As one that its kubelet does not admit: nothing is known of its containers.
    #[test]
    fn a_pod_that_ends_at_once_says_nothing_of_its_containers() {
        let held = &mut BTreeMap::new();
        let ends = json!({"sim.flotilla.rs/fail": "OutOfcpu"});
        let seen = look(&pod(&ends, &json!({"phase": "Pending"}), "a:1"), 0, held);
        assert_eq!(
            (&seen.status["phase"], &seen.status["reason"]),
            (&json!("Failed"), &json!("OutOfcpu"))
        );
        assert!(seen.status.get("containerStatuses").is_none(), "{}", seen.status);
    }

    #[test]
    fn a_changed_image_restarts_the_container_which_is_ready_again_after_a_while() {
        let held = &mut BTreeMap::new();
        let first = look(&pod(&json!({}), &json!({}), "a:1"), 0, held);
        let runs = look(&pod(&json!({}), &first.status, "a:1"), 0, held);
        let changed = look(&pod(&json!({}), &runs.status, "a:2"), 0, held);
        let (old, new) = (
            &runs.status["containerStatuses"][0],
            &changed.status["containerStatuses"][0],
        );
        assert_eq!((&new["restartCount"], &new["image"]), (&json!(1), &json!("a:2")));
        assert!(new["imageID"] != old["imageID"] && new["containerID"] != old["containerID"]);
        assert!(!ready(&changed) && changed.again == Some(READY_AGAIN_AFTER));
        let soon = look(&pod(&json!({}), &changed.status, "a:2"), 200, held);
        assert!(!ready(&soon) && soon.again == Some(Duration::from_millis(300)));
        let again = look(&pod(&json!({}), &soon.status, "a:2"), 500, held);
        assert!(ready(&again) && again.again.is_none());
        // What cannot be pulled leaves the old container's image in the status.
        let broken = look(&pod(&json!({}), &again.status, "a:broken"), 600, held);
        assert_eq!(broken.status["containerStatuses"][0]["image"], "a:2");
        assert!(!ready(&broken));
    }

    #[test]
    fn a_pod_with_a_gate_waits_for_it_and_a_barrier_for_its_key() {
        let held = &mut BTreeMap::new();
        let mut gated = pod(&json!({}), &json!({}), "a:1");
        gated["spec"]["readinessGates"] = json!([{"conditionType": "InPlaceUpdateReady"}]);
        gated["status"] = look(&gated, 0, held).status;
        gated["status"] = look(&gated, 0, held).status;
        assert_eq!(gated["status"]["conditions"][3]["reason"], "ReadinessGatesNotReady");
        c::put_condition(
            &mut gated["status"],
            json!({"type": "InPlaceUpdateReady", "status": "True"}),
        );
        assert!(ready(&look(&gated, 0, held)));

        for (key, is_ready) in [("p_1", true), ("p_2", false)] {
            let mut barred = pod(&json!({}), &json!({}), "a:1");
            let reference = json!({"configMapKeyRef": {"name": "m", "key": key}});
            barred["spec"]["containers"][0]["env"] =
                json!([{"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": reference}]);
            barred["status"] = look(&barred, 0, held).status;
            let seen = look(&barred, 0, held);
            assert_eq!(ready(&seen), is_ready, "{key}");
            assert_eq!(seen.again, (!is_ready).then_some(TRY_AGAIN), "{key}");
        }
    }

    #[test]
    fn resources_follow_the_spec_in_two_looks() {
        let held = &mut BTreeMap::new();
        let mut small = pod(&json!({}), &json!({}), "a:1");
        small["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
        for _ in 0..2 {
            small["status"] = look(&small, 0, held).status;
        }
        small["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "200m"}});
        let begun = look(&small, 0, held);
        assert_eq!(begun.again, Some(RESIZED_AFTER));
        small["status"] = begun.status;
        let done = look(&small, 300, held);
        let container = &done.status["containerStatuses"][0];
        assert_eq!(container["resources"]["requests"]["cpu"], "200m");
        assert!(container["restartCount"] == 0 && ready(&done));
    }
}
