//! The scheduler and the kubelets: pods are bound, start, become ready or fail to, and end; nodes are lost and return.

use crate::cluster::{Cluster, Event};
use crate::containers as c;
use crate::image;
use crate::placement;
use crate::room::{Nowhere, Room};
use crate::server::{Actor, DeleteOptions, Entry, Stored};
use flotilla_engine::wire::Object;
use flotilla_model::records::Phase;
use flotilla_model::{ObjectKey, PodRecord, Resource, Timestamp, Uid};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// A node that is silent for so long is given up, and its pods are no longer ready.
const NODE_GRACE_MS: u64 = 5_000;
/// Between two tries of what does not work.
pub(crate) const TRY_AGAIN_MS: u64 = 1_000;
/// Between two pulls of an image that is not there.
pub(crate) const PULL_AGAIN_MS: u64 = 3_000;

/// What ails a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ailment {
    /// Its containers end again and again.
    CrashLoop,
    /// It is ready, and not, and ready.
    Flicker,
    /// It takes long to end.
    SlowEnd,
    /// It is evicted: phase Failed.
    Evicted,
    /// It takes long to start.
    SlowStart,
    /// Its containers run, and it is never ready.
    NeverReady,
}

/// A step of a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodStep {
    Bind,
    Start,
    Ready,
    Unready,
    Sync,
    Restart,
    Resize,
    Fail,
    End,
}

/// One node.
#[derive(Clone, Debug)]
struct Node {
    lost_until: Timestamp,
    pods: usize,
    pods_max: usize,
}

/// How long things take, in milliseconds.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Until a pod is bound.
    pub bind_ms: Range<u64>,
    /// Until its containers run.
    pub start_ms: Range<u64>,
    /// Until it is ready then.
    pub ready_ms: Range<u64>,
    /// Until a kubelet sees what was changed of a pod that runs.
    pub see_ms: Range<u64>,
    /// Until a changed container has ended and runs anew, or has its new resources.
    pub restart_ms: Range<u64>,
    /// Until it has ended once it is asked to.
    pub end_ms: Range<u64>,
    /// Until the containers of a pod with a slow start run.
    pub slow_start_ms: u64,
    /// Until a pod with a slow end has ended.
    pub slow_end_ms: u64,
    /// Until the volume binder has seen a claim.
    pub claim_ms: Range<u64>,
    /// Until the garbage collector has seen litter.
    pub collect_ms: Range<u64>,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            bind_ms: 10..200,
            start_ms: 100..2_000,
            ready_ms: 50..1_500,
            see_ms: 5..300,
            restart_ms: 100..2_000,
            end_ms: 100..1_500,
            slow_start_ms: 20_000,
            slow_end_ms: 10_000,
            claim_ms: 20..300,
            collect_ms: 20..1_500,
        }
    }
}

/// What the kubelet says of a container that cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// A word, such as ImagePullBackOff.
    pub reason: String,
    /// The sentence beside it.
    pub message: String,
}

/// What the nodes are like.
#[derive(Clone, Debug)]
pub struct Nodes {
    list: Vec<Node>,
    /// How long things take.
    pub pace: Pace,
    /// Images that begin like this cannot be pulled.
    pub broken_images: Vec<String>,
    /// Images whose containers wait for ever, and what the kubelet says of them.
    pub failing_images: BTreeMap<String, Failing>,
    /// Pods whose node does nothing for them any more, by UID: nobody ends, starts or changes them.
    pub cut_off: BTreeSet<Uid>,
    /// Nodes as a real API server has them: a pod that finds no room there waits. Without any, nothing is asked of a node.
    pub real: Room,
    /// Config maps that are not there are taken to have whatever is asked of them: nobody has read what is in them.
    pub takes_maps_for_full: bool,
    /// Pods that wait for room there.
    without_room: BTreeSet<ObjectKey>,
    /// What ails pods of a name, and until when.
    ailments: BTreeMap<ObjectKey, (Ailment, Timestamp)>,
}

impl Default for Nodes {
    /// Three nodes that have room for any number of pods.
    fn default() -> Self {
        Nodes::new(3, usize::MAX)
    }
}

impl Nodes {
    /// So many nodes, `node-0` and on, each with room for so many pods.
    pub fn new(count: usize, pods_max: usize) -> Self {
        let node = Node {
            lost_until: Timestamp::from_millis(0),
            pods: 0,
            pods_max,
        };
        Nodes {
            list: vec![node; count],
            pace: Pace::default(),
            broken_images: Vec::new(),
            failing_images: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            real: Room::default(),
            takes_maps_for_full: false,
            without_room: BTreeSet::new(),
            ailments: BTreeMap::new(),
        }
    }

    /// All is well from now on: lost nodes return, ailments end. Images that cannot be pulled stay so.
    pub fn heal(&mut self) {
        self.ailments.clear();
        for node in &mut self.list {
            node.lost_until = Timestamp::from_millis(0);
        }
    }

    pub(crate) fn ails(&self, pod: &PodRecord, now: Timestamp) -> Option<Ailment> {
        let (ailment, until) = self.ailments.get(&pod.meta.key)?;
        (*until > now).then_some(*ailment)
    }

    fn of_name(&mut self, name: &str) -> Option<&mut Node> {
        let index: usize = name.strip_prefix("node-")?.parse().ok()?;
        self.list.get_mut(index)
    }

    /// What node objects would say of them, as far as anybody asks: whether they are ready. A lost one says nothing any more.
    pub fn as_objects(&self, now: Timestamp) -> Vec<Value> {
        let object = |(index, node): (usize, &Node)| {
            let status = if node.lost_until > now { "Unknown" } else { "True" };
            let ready = json!({"type": "Ready", "status": status, "reason": "", "message": ""});
            json!({"metadata": {"name": format!("node-{index}")}, "status": {"conditions": [ready]}})
        };
        self.list.iter().enumerate().map(object).collect()
    }

    fn is_lost(&self, name: &str, now: Timestamp) -> bool {
        let index = name.strip_prefix("node-").and_then(|n| n.parse::<usize>().ok());
        index
            .and_then(|index| self.list.get(index))
            .is_some_and(|n| n.lost_until > now)
    }

    pub(crate) fn failing(&self, image: &str) -> Option<Failing> {
        if let Some(known) = self.failing_images.get(image) {
            return Some(known.clone());
        }
        // A container without one gets no further than admission.
        if let Some(why) = image::why_invalid(image).filter(|_| !image.is_empty()) {
            return Some(Failing {
                reason: "InvalidImageName".to_owned(),
                message: format!(
                    "Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {why}"
                ),
            });
        }
        let is_broken = self.broken_images.iter().any(|head| image.starts_with(head.as_str()));
        is_broken.then(|| Failing {
            reason: "ImagePullBackOff".to_owned(),
            message: format!("Back-off pulling image \"{image}\""),
        })
    }

    /// Pods come to nodes and leave them.
    fn count(&mut self, before: Option<&PodRecord>, after: Option<&PodRecord>) {
        let node = |pod: Option<&PodRecord>| pod.and_then(|p| p.node.clone());
        let (before, after) = (node(before), node(after));
        if before == after {
            return;
        }
        if let Some(node) = before.and_then(|name| self.of_name(&name)) {
            node.pods = node.pods.saturating_sub(1);
        }
        if let Some(node) = after.and_then(|name| self.of_name(&name)) {
            node.pods += 1;
        }
    }
}

fn pod_of(stored: Option<&Stored>) -> Option<&Arc<PodRecord>> {
    match stored.and_then(|s| s.object.as_ref()) {
        Some(Object::Pod(pod)) => Some(pod),
        _ => None,
    }
}

impl Cluster {
    pub(crate) fn plan_pod(&mut self, delay_ms: u64, pod: &PodRecord, step: PodStep) {
        let event = Event::Pod(pod.meta.key.clone(), pod.meta.uid.to_string(), step);
        self.plan(delay_ms, event);
    }

    /// Something changed: new pods are to be bound, and those under deletion to be ended.
    pub(crate) fn nodes_react(&mut self, entry: &Entry) {
        if entry.resource != Resource::Pods {
            return;
        }
        let (before, after) = (pod_of(entry.before.as_ref()), pod_of(entry.after.as_ref()));
        self.nodes.count(before.map(|p| &**p), after.map(|p| &**p));
        if self.nodes.real.note(entry) {
            for key in std::mem::take(&mut self.nodes.without_room) {
                if let Some(pod) = pod_of(self.server.get(Resource::Pods, &key)).cloned() {
                    self.plan_pod(TRY_AGAIN_MS, &pod, PodStep::Bind);
                }
            }
        }
        let Some(pod) = after else { return };
        match before {
            None => {
                let delay_ms = self.between(self.nodes.pace.bind_ms.clone());
                self.plan_pod(delay_ms, pod, PodStep::Bind);
            }
            Some(before) if before.meta.deleted.is_none() && pod.meta.deleted.is_some() => {
                let is_slow = self.nodes.ails(pod, self.now()) == Some(Ailment::SlowEnd);
                let delay_ms = if is_slow {
                    self.nodes.pace.slow_end_ms
                } else {
                    self.between(self.nodes.pace.end_ms.clone())
                };
                self.plan_pod(delay_ms, pod, PodStep::End);
            }
            Some(_) => self.kubelet_notices(entry, &pod.clone()),
        }
    }

    /// A pod that was there before anybody looked goes on: it ends if it was asked to, and otherwise comes a step closer to being ready.
    pub fn go_on(&mut self, key: &ObjectKey) {
        let Some(pod) = pod_of(self.server.get(Resource::Pods, key)).cloned() else {
            return;
        };
        let pace = &self.nodes.pace;
        let (delay_ms, step) = match pod.phase {
            _ if pod.is_terminating() => (pace.end_ms.clone(), PodStep::End),
            _ if pod.node.is_none() => (pace.bind_ms.clone(), PodStep::Bind),
            Phase::Running => (pace.ready_ms.clone(), PodStep::Ready),
            _ => (pace.start_ms.clone(), PodStep::Start),
        };
        let delay_ms = self.between(delay_ms);
        self.plan_pod(delay_ms, &pod, step);
    }

    /// The next step of a pod, if it is still there.
    pub(crate) fn pod_step(&mut self, key: &ObjectKey, uid: &str, step: PodStep) {
        let Some(stored) = self.server.get(Resource::Pods, key) else {
            return;
        };
        let Some(pod) = pod_of(Some(stored)).cloned() else {
            return;
        };
        if pod.meta.uid.to_string() != uid || pod.is_terminal() && step != PodStep::End {
            return;
        }
        let value = stored.value();
        let is_lost = self.nodes.cut_off.contains(&pod.meta.uid)
            || pod
                .node
                .as_ref()
                .is_some_and(|node| self.nodes.is_lost(node, self.now()));
        if is_lost && step != PodStep::Unready {
            return self.plan_pod(TRY_AGAIN_MS, &pod, step);
        }
        match step {
            PodStep::Bind => self.bind(&pod, &value),
            PodStep::Start => self.start(&pod, &value),
            PodStep::Ready => self.ready(&pod, &value),
            PodStep::Unready => self.unready(&pod, &value, is_lost),
            PodStep::Sync => self.sync(&pod, &value),
            PodStep::Restart => self.restart(&pod, &value),
            PodStep::Resize => self.resize(&pod, &value),
            PodStep::Fail => self.pod_status(key, &json!({"phase": "Failed", "reason": "Evicted", "message": "disk"})),
            PodStep::End => {
                let options = DeleteOptions {
                    uid: Some(uid.to_owned()),
                    grace_seconds: Some(0),
                    ..DeleteOptions::default()
                };
                // It was there a moment ago, and this is the only precondition.
                let _ = self.server.delete(Actor::System, Resource::Pods, key, &options);
            }
        }
    }

    fn bind(&mut self, pod: &PodRecord, value: &Arc<Value>) {
        if pod.is_terminating() {
            return;
        }
        let place = match self.place(pod, &value["spec"]) {
            Ok(place) => place,
            Err(Nowhere { why, for_now }) => {
                let mut status = value["status"].clone();
                c::put_condition(
                    &mut status,
                    json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}),
                );
                self.write_status(pod, value, status);
                // Nodes stay as they are; pods go.
                if for_now {
                    self.nodes.without_room.insert(pod.meta.key.clone());
                }
                return;
            }
        };
        let claims_are_there = pod.claims().all(|(_, claim)| {
            let claim = self.server.get(Resource::Claims, &pod.meta.key.sibling(claim));
            matches!(claim.and_then(|s| s.object.as_ref()), Some(Object::Claim(c)) if c.is_bound && c.meta.deleted.is_none())
        });
        match place {
            Some(node) if claims_are_there => {
                // Only its own scheduler binds a pod, once.
                let _ = self.server.bind(&pod.meta.key, &node);
                self.volumes_mounted(pod);
                let is_slow = self.nodes.ails(pod, self.now()) == Some(Ailment::SlowStart);
                let delay_ms = if is_slow {
                    self.nodes.pace.slow_start_ms
                } else {
                    self.between(self.nodes.pace.start_ms.clone())
                };
                self.plan_pod(delay_ms, pod, PodStep::Start);
            }
            Some(_) | None => self.plan_pod(TRY_AGAIN_MS, pod, PodStep::Bind),
        }
    }

    /// The node for a pod, if one has room by now.
    fn place(&mut self, pod: &PodRecord, spec: &Value) -> Result<Option<String>, Nowhere> {
        if !self.nodes.real.is_known() || !placement::is_placed_by_default(spec) {
            return Ok(self.node_with_room().map(|node| format!("node-{node}")));
        }
        self.nodes.real.count(&self.server);
        let volumes = self.volumes_of(pod);
        self.nodes.real.place(pod, spec, &volumes).map(Some)
    }

    /// The volumes that the claims of a pod have by now, by their names.
    fn volumes_of(&self, pod: &PodRecord) -> Vec<String> {
        let claims = pod
            .claims()
            .filter_map(|(_, claim)| self.server.get(Resource::Claims, &pod.meta.key.sibling(claim)));
        claims
            .filter_map(|claim| claim.value()["spec"]["volumeName"].as_str().map(str::to_owned))
            .collect()
    }

    /// A node that is there and has room, any of them.
    fn node_with_room(&mut self) -> Option<usize> {
        let now = self.now();
        let fits = |node: &Node| node.lost_until <= now && node.pods < node.pods_max;
        let count = self.nodes.list.iter().filter(|n| fits(n)).count();
        if count == 0 {
            return None;
        }
        let chosen = self.between(0..count as u64) as usize;
        let nodes = self.nodes.list.iter().enumerate();
        nodes.filter(|(_, n)| fits(n)).nth(chosen).map(|(index, _)| index)
    }

    fn start(&mut self, pod: &PodRecord, value: &Arc<Value>) {
        if pod.is_terminating() {
            return;
        }
        let (mut status, wall) = (value["status"].clone(), json!(self.wall()));
        let (mut again_ms, mut runs) = (None, false);
        for container in c::each(&value["spec"]["containers"]) {
            let known = c::status_of(&status, &container["name"]).clone();
            if !c::needs_start(container, &known) {
                runs = true;
                continue;
            }
            let now = match self.hindrance(&pod.meta.key, container) {
                None => {
                    runs = true;
                    c::started(value, container, &known, &wall)
                }
                Some((reason, message, delay_ms)) => {
                    again_ms = Some(again_ms.map_or(delay_ms, |known: u64| known.min(delay_ms)));
                    c::waiting(container, &known, &reason, &message)
                }
            };
            c::put_status(&mut status, now);
        }
        if runs && status["startTime"].is_null() {
            status["startTime"] = wall;
        }
        let Some(again_ms) = again_ms else {
            status["phase"] = json!("Running");
            return self.begun(pod, value, status);
        };
        // What runs becomes ready meanwhile: what waits may wait for that.
        for container in status["containerStatuses"].as_array_mut().into_iter().flatten() {
            container["ready"] = json!(container["state"]["running"].is_object());
        }
        status["observedGeneration"] = value["metadata"]["generation"].clone();
        let wall = json!(self.wall());
        // What runs gets its resources meanwhile, too.
        if c::begin_resize(value, &mut status, &wall) {
            c::finish_resize(value, &mut status, &wall);
        }
        c::set_readiness(value, &mut status, &wall);
        self.write_status(pod, value, status);
        self.plan_pod(again_ms, pod, PodStep::Start);
    }

    fn unready(&mut self, pod: &PodRecord, value: &Arc<Value>, is_lost: bool) {
        let ails = matches!(
            self.nodes.ails(pod, self.now()),
            Some(Ailment::CrashLoop | Ailment::Flicker)
        );
        if !pod.ready.is_true || !(ails || is_lost) {
            return;
        }
        let (mut status, wall) = (value["status"].clone(), json!(self.wall()));
        if is_lost {
            // That is what the control plane says of it; the node says nothing.
            c::put_condition(
                &mut status,
                json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": wall}),
            );
        } else {
            for container in status["containerStatuses"].as_array_mut().into_iter().flatten() {
                container["ready"] = json!(false);
            }
            c::set_readiness(value, &mut status, &wall);
        }
        self.write_status(pod, value, status);
        let delay_ms = self.between(500..3_000);
        self.plan_pod(delay_ms, pod, PodStep::Ready);
    }

    /// The moment as the kubelet writes it, cut to seconds.
    pub(crate) fn wall(&self) -> String {
        Timestamp::from_seconds(self.now().as_millis().div_euclid(1000)).to_string()
    }

    fn pod_status(&mut self, key: &ObjectKey, status: &Value) {
        // The pod is there, and there are no preconditions.
        let _ = self
            .server
            .patch_status(Actor::System, Resource::Pods, key, &json!({"status": status}));
    }

    /// Something befalls the pods of a name.
    pub fn ail(&mut self, pod: &ObjectKey, ailment: Ailment, until: Timestamp) {
        self.nodes.ailments.insert(pod.clone(), (ailment, until));
        let Some(pod) = pod_of(self.server.get(Resource::Pods, pod)).cloned() else {
            return;
        };
        let delay_ms = self.between(1..500);
        match ailment {
            Ailment::CrashLoop | Ailment::Flicker => self.plan_pod(delay_ms, &pod, PodStep::Unready),
            Ailment::Evicted => self.plan_pod(delay_ms, &pod, PodStep::Fail),
            Ailment::SlowEnd | Ailment::SlowStart | Ailment::NeverReady => {}
        }
    }

    /// A node is lost, and comes back.
    pub fn lose_node(&mut self, node: usize, until: Timestamp) {
        if let Some(lost) = self.nodes.list.get_mut(node) {
            lost.lost_until = until;
            self.plan(NODE_GRACE_MS, Event::NodeDown(node));
        }
    }

    /// A node has been silent for too long: the control plane says of its pods that they are not ready.
    pub fn node_down(&mut self, node: usize) {
        let name = format!("node-{node}");
        if !self.nodes.is_lost(&name, self.now()) {
            return;
        }
        let pods = self.server.all(Resource::Pods).filter_map(|s| pod_of(Some(s)));
        let here: Vec<_> = pods.filter(|pod| pod.node.as_deref() == Some(&name)).cloned().collect();
        for pod in here {
            self.plan_pod(0, &pod, PodStep::Unready);
        }
    }
}
