//! What is read of the cluster to get from a pod that waits to the cause: its node, its claims, their classes, and what was said of them.

use flotilla_model::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// By how much the clock of whoever tells of events may be ahead.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);

/// What was found. A list that may not be read is `None`.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Pods of the namespace.
    pub pods: Option<Vec<Value>>,
    /// Nodes.
    pub nodes: Option<Vec<Value>>,
    /// Claims of the namespace.
    pub claims: Option<Vec<Value>>,
    /// Storage classes.
    pub classes: Option<Vec<Value>>,
    /// Events about claims of the namespace.
    pub events: Option<Vec<Value>>,
    /// Warnings about pods of the namespace.
    pub pod_events: Option<Vec<Value>>,
    /// What could not be looked at, in sentences.
    pub unread: Vec<String>,
}

/// What came of looking for an object.
#[derive(Clone, Copy)]
pub(super) enum Looked<'f> {
    /// Nobody could look.
    Unread,
    /// It is not there.
    Missing,
    /// Here it is.
    There(&'f Value),
}

fn looked<'f>(all: Option<&BTreeMap<&'f str, &'f Value>>, name: &str) -> Looked<'f> {
    match all.map(|all| all.get(name)) {
        None => Looked::Unread,
        Some(None) => Looked::Missing,
        Some(Some(object)) => Looked::There(object),
    }
}

/// The time, and the facts by name: a set of many pods asks for each of them.
pub(super) struct Index<'f> {
    /// The time.
    pub(super) now: Timestamp,
    pods: BTreeMap<&'f str, &'f Value>,
    /// Whether pods were read.
    pub(super) knows_pods: bool,
    nodes: Option<BTreeMap<&'f str, &'f Value>>,
    claims: Option<BTreeMap<&'f str, &'f Value>>,
    /// Storage classes.
    pub(super) classes: Option<&'f [Value]>,
    /// Events of claims, by the claim's name.
    events: BTreeMap<&'f str, Vec<&'f Value>>,
    /// Warnings about pods, by the pod's name.
    pod_events: BTreeMap<&'f str, Vec<&'f Value>>,
    /// Pods that have a node, and stay there, by the claims that they mount.
    users: BTreeMap<String, Vec<&'f str>>,
    /// Pods that have a node, and are to go, by the claims that they mount.
    leaving_users: BTreeMap<String, Vec<&'f str>>,
}

impl<'f> Index<'f> {
    /// The index of these.
    pub(super) fn of(facts: &'f Facts, now: Timestamp) -> Index<'f> {
        let index = |objects: &'f Option<Vec<Value>>| objects.as_deref().map(by_name);
        Index {
            now,
            pods: index(&facts.pods).unwrap_or_default(),
            knows_pods: facts.pods.is_some(),
            nodes: index(&facts.nodes),
            claims: index(&facts.claims),
            classes: facts.classes.as_deref(),
            events: by_object(facts.events.iter().flatten()),
            pod_events: by_object(facts.pod_events.iter().flatten()),
            users: users(facts.pods.iter().flatten().filter(|pod| !is_leaving(pod))),
            leaving_users: users(facts.pods.iter().flatten().filter(|pod| is_leaving(pod))),
        }
    }

    /// A pod.
    pub(super) fn pod(&self, name: &str) -> Option<&'f Value> {
        self.pods.get(name).copied()
    }

    /// A claim.
    pub(super) fn claim(&self, name: &str) -> Looked<'f> {
        looked(self.claims.as_ref(), name)
    }

    /// A node.
    pub(super) fn node(&self, name: &str) -> Looked<'f> {
        looked(self.nodes.as_ref(), name)
    }

    /// What was said of the claim of this name, and of former ones.
    pub(super) fn events_of_claim(&self, name: &str) -> impl Iterator<Item = &'f Value> {
        self.events.get(name).into_iter().flatten().copied()
    }

    /// What was said against the pod of this name, and former ones.
    pub(super) fn warnings_of_pod(&self, name: &str) -> impl Iterator<Item = &'f Value> {
        self.pod_events.get(name).into_iter().flatten().copied()
    }

    /// Pods that hold a claim, but for those on their way out: pods that have a node and mount it, in whatever phase.
    /// <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection>
    pub(super) fn users_of(&self, claim: &str) -> &[&'f str] {
        self.users.get(claim).map_or(&[], Vec::as_slice)
    }

    /// Pods on their way out that still hold a claim.
    pub(super) fn leaving_users_of(&self, claim: &str) -> &[&'f str] {
        self.leaving_users.get(claim).map_or(&[], Vec::as_slice)
    }
}

fn is_leaving(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

fn by_name(objects: &[Value]) -> BTreeMap<&str, &Value> {
    objects
        .iter()
        .filter_map(|object| Some((object["metadata"]["name"].as_str()?, object)))
        .collect()
}

fn by_object<'f>(events: impl Iterator<Item = &'f Value>) -> BTreeMap<&'f str, Vec<&'f Value>> {
    let mut all: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for event in events {
        if let Some(name) = event["involvedObject"]["name"].as_str() {
            all.entry(name).or_default().push(event);
        }
    }
    all
}

fn users<'f>(pods: impl Iterator<Item = &'f Value>) -> BTreeMap<String, Vec<&'f str>> {
    let mut all: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in pods.filter(|pod| pod["spec"]["nodeName"].is_string()) {
        let Some(name) = pod["metadata"]["name"].as_str() else {
            continue;
        };
        for (_, claim) in claims_of(pod) {
            let users = all.entry(claim).or_default();
            if users.last() != Some(&name) {
                users.push(name);
            }
        }
    }
    all
}

/// The volumes of a pod that are claims, each with the claim's name. That of a generic ephemeral volume is named after pod and volume.
/// <https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#persistentvolumeclaim-naming>
pub(super) fn claims_of(pod: &Value) -> impl Iterator<Item = (&Value, String)> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(move |volume| {
        if volume["ephemeral"].is_object() {
            return Some((volume, format!("{name}-{}", volume["name"].as_str()?)));
        }
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str()?;
        Some((volume, claim.to_owned()))
    })
}

/// The object of this name.
pub(super) fn named<'v>(objects: &'v [Value], name: &str) -> Option<&'v Value> {
    objects.iter().find(|object| object["metadata"]["name"] == name)
}

/// What was said last against an object, of these events, as far as it was said by now. Whoever may write events says what they like, and when: one
/// of a year to come would be the last word for ever.
pub(super) fn last_warning<'f>(
    events: impl Iterator<Item = &'f Value>,
    object: &Value,
    now: Timestamp,
) -> Option<&'f Value> {
    let metadata = &object["metadata"];
    let is_of_it = |event: &&Value| {
        let involved = &event["involvedObject"];
        // One of that name that was there before may have been told of, too.
        let is_of_another = !metadata["uid"].is_null() && involved["uid"] != metadata["uid"];
        involved["name"] == metadata["name"] && !is_of_another
    };
    let is_to_come = |event: &&Value| happened(event).is_some_and(|at| at.since(now) > CLOCKS_DIFFER);
    let warnings = events.filter(is_of_it).filter(|event| !is_to_come(event));
    let warnings = warnings.filter(|event| event["type"] == "Warning" && event["message"].is_string());
    warnings.max_by_key(|event| (happened(event), event["message"].as_str()))
}

/// When an event happened last. Lists are in the order of names, which tells nothing.
pub(super) fn happened(event: &Value) -> Option<Timestamp> {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    times.into_iter().filter_map(time).max()
}

/// A time as objects have it.
pub(super) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
