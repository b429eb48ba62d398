//! The room on real nodes: what they have, what pods there ask for, and on which of them a pod finds its place, as the scheduler counts.
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/>

use crate::placement;
use crate::server::{Entry, Server, Stored};
use flotilla_engine::wire::Object;
use flotilla_model::records::Phase;
use flotilla_model::template::{Amounts, amount, amounts_of_pod};
use flotilla_model::{PodRecord, Resource, Selector, Uid};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The label of nodes by which pods that keep away from each other do so, as nearly everybody writes it.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The resource of which each pod takes one.
const PODS: &str = "pods";
/// One of it, in billionths.
const ONE: i128 = 1_000_000_000;

/// Of so many nodes that take a pod the best is chosen, as the scheduler does in large clusters.
const COMPARED: usize = 50;

/// Nodes as a real API server has them, and the room on them. Without any, nothing is asked of a node.
#[derive(Clone, Debug, Default)]
pub struct Room {
    nodes: Vec<Value>,
    /// What is taken of each, by its name.
    taken: BTreeMap<String, Taken>,
    /// The node that is looked at first for the next pod.
    next: usize,
    is_counted: bool,
}

/// What is taken of a node.
#[derive(Clone, Debug, Default)]
struct Taken {
    amounts: Amounts,
    /// By pods that are known: what each asks for.
    pods: BTreeMap<Uid, (Arc<PodRecord>, Amounts)>,
}

/// Why a pod has no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nowhere {
    /// As the scheduler says it.
    pub(crate) why: String,
    /// Whether it is pods that are in its way: they may go.
    pub(crate) for_now: bool,
}

impl Room {
    /// These nodes, of which others take so much that are not looked at, by the names of nodes.
    pub fn new(nodes: Vec<Value>, taken_by_others: BTreeMap<String, Amounts>) -> Self {
        let taken = taken_by_others.into_iter().map(|(node, amounts)| {
            let pods = BTreeMap::new();
            (node, Taken { amounts, pods })
        });
        Room {
            nodes,
            taken: taken.collect(),
            ..Room::default()
        }
    }

    /// Whether there are nodes.
    pub(crate) fn is_known(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Takes notice of a change of a pod.
    pub(crate) fn note(&mut self, entry: &Entry) {
        if !self.is_known() || !self.is_counted {
            return;
        }
        if let Some(before) = entry.before.as_ref().and_then(placed_pod) {
            self.take_away(before);
        }
        if let Some(stored) = &entry.after {
            self.put(stored);
        }
    }

    /// Counts the pods that were there before anybody looked, once.
    pub(crate) fn count(&mut self, server: &Server) {
        if !std::mem::replace(&mut self.is_counted, true) {
            server.all(Resource::Pods).for_each(|stored| self.put(stored));
        }
    }

    fn put(&mut self, stored: &Stored) {
        let Some(pod) = placed_pod(stored) else { return };
        let amounts = asked_for(&stored.value()["spec"]);
        let taken = self.taken.entry(node_of(pod)).or_default();
        for (name, amount) in &amounts {
            let sum = taken.amounts.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        taken.pods.insert(pod.meta.uid.clone(), (pod.clone(), amounts));
    }

    fn take_away(&mut self, pod: &PodRecord) {
        let taken = self.taken.entry(node_of(pod)).or_default();
        let Some((_, amounts)) = taken.pods.remove(&pod.meta.uid) else {
            return;
        };
        for (name, amount) in amounts {
            let sum = taken.amounts.entry(name).or_default();
            *sum = sum.saturating_sub(amount);
        }
    }

    /// The node that takes this pod: of some that do, the one with room for most of its like.
    pub(crate) fn place(&mut self, pod: &PodRecord, spec: &Value) -> Result<String, Nowhere> {
        let (wanted, apart) = (asked_for(spec), keeps_apart(spec));
        let (mut reasons, mut for_now, mut fitting) = (BTreeMap::<String, usize>::new(), false, Vec::new());
        let first = self.next;
        let nodes = self.nodes.iter().cycle().skip(first).take(self.nodes.len());
        for node in nodes {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            if let Some(why) = placement::why_not(spec, node) {
                *reasons.entry(why.to_owned()).or_default() += 1;
                continue;
            }
            match self.fits(name, node, &wanted, (pod, &apart)) {
                Ok(fits) => fitting.push((fits, name)),
                Err(why) => {
                    for_now = true;
                    *reasons.entry(why).or_default() += 1;
                }
            }
            if fitting.len() == COMPARED {
                break;
            }
        }
        // Of equals the first.
        let best = fitting.iter().rev().max_by_key(|(fits, _)| *fits);
        match best {
            Some((_, name)) => {
                let name = (*name).to_owned();
                self.next = (first + 1) % self.nodes.len();
                Ok(name)
            }
            None => Err(Nowhere {
                why: placement::nodes_are_not_available(self.nodes.len(), &reasons),
                for_now,
            }),
        }
    }

    /// For how many such pods a node has room, or why it has none.
    fn fits(
        &self,
        name: &str,
        node: &Value,
        wanted: &Amounts,
        (pod, apart): (&PodRecord, &[Selector]),
    ) -> Result<i128, String> {
        let taken = self.taken.get(name);
        let is_kept_away = |there: &PodRecord| {
            let is_near = there.meta.key.namespace == pod.meta.key.namespace;
            is_near && apart.iter().any(|selector| selector.matches(|key| there.label(key)))
        };
        if !apart.is_empty() && taken.is_some_and(|taken| taken.pods.values().any(|(there, _)| is_kept_away(there))) {
            return Err(placement::ANTI_AFFINITY.to_owned());
        }
        let allocatable = &node["status"]["allocatable"];
        // A node that says nothing of itself is too young to be judged.
        if !allocatable.is_object() {
            return Ok(1);
        }
        let mut most = i128::MAX;
        for (resource, wanted) in wanted.iter().filter(|(_, wanted)| **wanted > 0) {
            // Whether it has the resource at all was looked at; those that do not say how many pods they take have no bound.
            let Some(has) = amount(&allocatable[resource]) else {
                continue;
            };
            let taken = taken
                .and_then(|taken| taken.amounts.get(resource))
                .copied()
                .unwrap_or(0);
            let fits = has.saturating_sub(taken) / wanted;
            if fits < 1 {
                return Err(insufficient(resource));
            }
            most = most.min(fits);
        }
        Ok(most)
    }
}

/// As the scheduler says it.
fn insufficient(resource: &str) -> String {
    match resource {
        PODS => "Too many pods".to_owned(),
        _ => format!("Insufficient {resource}"),
    }
}

/// A pod that takes room of a node.
fn placed_pod(stored: &Stored) -> Option<&Arc<PodRecord>> {
    let Some(Object::Pod(pod)) = stored.object.as_ref() else {
        return None;
    };
    let has_ended = matches!(pod.phase, Phase::Succeeded | Phase::Failed);
    (pod.node.is_some() && !has_ended).then_some(pod)
}

fn node_of(pod: &PodRecord) -> String {
    pod.node.as_deref().unwrap_or_default().to_owned()
}

/// What a pod of this `spec` takes of its node, itself included.
pub fn asked_for(spec: &Value) -> Amounts {
    let mut amounts = amounts_of_pod(spec, "requests");
    amounts.insert(PODS.to_owned(), ONE);
    amounts
}

/// Of which pods of its namespace a pod of this `spec` does not share a node. Terms about other namespaces or other parts of a cluster are not
/// looked at.
fn keeps_apart(spec: &Value) -> Vec<Selector> {
    let terms = &spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = terms.as_array().into_iter().flatten();
    let is_plain = |term: &&Value| {
        term["topologyKey"] == HOSTNAME && term["namespaces"].is_null() && term["namespaceSelector"].is_null()
    };
    terms
        .filter(is_plain)
        .filter_map(|term| Selector::from_json(&term["labelSelector"]))
        .collect()
}
