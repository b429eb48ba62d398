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

/// So many terms by which a pod keeps away from others are looked at: nobody writes more by hand.
const TERMS: usize = 20;

/// Nodes as a real API server has them, and the room on them. Without any, nothing is asked of a node.
#[derive(Clone, Debug, Default)]
pub struct Room {
    nodes: Vec<Value>,
    /// What is taken of each, by its name.
    taken: BTreeMap<String, Taken>,
    /// From which nodes volumes can be reached: their node selectors, by their names.
    volumes: BTreeMap<String, Value>,
    /// The node that is looked at first for the next pod.
    next: usize,
    /// So often room has become free.
    freed: u64,
    /// What found no place last, when so much had become free, and why: whatever is like it finds none either before more is free.
    refused: Option<(u64, String, Nowhere)>,
    is_counted: bool,
}

/// What is taken of a node.
#[derive(Clone, Debug, Default)]
struct Taken {
    /// By others, of which nothing else is known.
    by_others: Amounts,
    /// In all.
    amounts: Amounts,
    /// By pods that are known: what each asks for, and from whom it keeps away.
    pods: BTreeMap<Uid, (Arc<PodRecord>, Amounts, Vec<Selector>)>,
}

impl Taken {
    /// Anew each time: from a sum that has reached the end of numbers nothing can be taken away.
    fn sum_up(&mut self) {
        self.amounts = self.by_others.clone();
        for (name, amount) in self.pods.values().flat_map(|(_, amounts, _)| amounts) {
            let sum = self.amounts.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }
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
    /// These nodes, of which others take so much that are not looked at, by the names of nodes; and the node selectors of volumes, by their names.
    pub fn new(
        nodes: Vec<Value>,
        taken_by_others: BTreeMap<String, Amounts>,
        volumes: BTreeMap<String, Value>,
    ) -> Self {
        let taken = taken_by_others.into_iter().map(|(node, amounts)| {
            let taken = Taken {
                by_others: amounts.clone(),
                amounts,
                pods: BTreeMap::new(),
            };
            (node, taken)
        });
        Room {
            nodes,
            volumes,
            taken: taken.collect(),
            ..Room::default()
        }
    }

    /// Whether there are nodes.
    pub(crate) fn is_known(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Takes notice of a change of a pod. Returns whether room has become free.
    pub(crate) fn note(&mut self, entry: &Entry) -> bool {
        if !self.is_known() || !self.is_counted {
            return false;
        }
        let before = entry.before.as_ref().and_then(placed_pod);
        let before = before.and_then(|pod| self.take_away(pod));
        let after = entry.after.as_ref().and_then(|stored| self.put(stored));
        let is_freed = before.is_some() && before != after;
        self.freed += u64::from(is_freed);
        is_freed
    }

    /// Counts the pods that were there before anybody looked, once.
    pub(crate) fn count(&mut self, server: &Server) {
        if !std::mem::replace(&mut self.is_counted, true) {
            server.all(Resource::Pods).for_each(|stored| drop(self.put(stored)));
        }
    }

    /// Returns what is taken.
    fn put(&mut self, stored: &Stored) -> Option<Amounts> {
        let pod = placed_pod(stored)?;
        let value = stored.value();
        let (amounts, apart) = (taken_by(&value), keeps_apart(&value["spec"]));
        let taken = self.taken.entry(node_of(pod)).or_default();
        taken
            .pods
            .insert(pod.meta.uid.clone(), (pod.clone(), amounts.clone(), apart));
        taken.sum_up();
        Some(amounts)
    }

    /// Returns what is given back.
    fn take_away(&mut self, pod: &PodRecord) -> Option<Amounts> {
        let taken = self.taken.entry(node_of(pod)).or_default();
        let (_, amounts, _) = taken.pods.remove(&pod.meta.uid)?;
        taken.sum_up();
        Some(amounts)
    }

    /// The node that takes this pod, which mounts these volumes: of some that do, the one with room for most of its like.
    pub(crate) fn place(&mut self, pod: &PodRecord, spec: &Value, volumes: &[String]) -> Result<String, Nowhere> {
        let wanted = asked_for(spec);
        let volumes: Vec<&Value> = volumes.iter().filter_map(|name| self.volumes.get(name)).collect();
        let like = likeness(pod, spec, (&wanted, &volumes));
        if let Some((freed, refused, nowhere)) = &self.refused
            && (*freed, refused) == (self.freed, &like)
        {
            return Err(nowhere.clone());
        }
        let apart = keeps_apart(spec);
        let (mut reasons, mut for_now, mut fitting) = (BTreeMap::<String, usize>::new(), false, Vec::new());
        let first = self.next;
        let nodes = self.nodes.iter().cycle().skip(first).take(self.nodes.len());
        for node in nodes {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            if let Some(why) = placement::why_not(spec, node) {
                *reasons.entry(why.to_owned()).or_default() += 1;
                continue;
            }
            if !volumes
                .iter()
                .all(|required| placement::is_reached_from(node, required))
            {
                *reasons.entry(placement::VOLUME_ELSEWHERE.to_owned()).or_default() += 1;
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
            None => {
                let nowhere = Nowhere {
                    why: placement::nodes_are_not_available(self.nodes.len(), &reasons),
                    for_now,
                };
                self.refused = Some((self.freed, like, nowhere.clone()));
                Err(nowhere)
            }
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
        let names = |apart: &[Selector], other: &PodRecord| apart.iter().any(|s| s.matches(|key| other.label(key)));
        let is_kept_away = |(there, _, theirs): &(Arc<PodRecord>, Amounts, Vec<Selector>)| {
            let is_near = there.meta.key.namespace == pod.meta.key.namespace;
            is_near && (names(apart, there) || names(theirs, pod))
        };
        if taken.is_some_and(|taken| taken.pods.values().any(is_kept_away)) {
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

/// What of a pod decides where it finds a place.
fn likeness(pod: &PodRecord, spec: &Value, (wanted, volumes): (&Amounts, &[&Value])) -> String {
    let fields = ["nodeName", "nodeSelector", "affinity", "tolerations"].map(|field| &spec[field]);
    let revision = pod.revision().unwrap_or_default();
    format!(
        "{} {revision} {fields:?} {wanted:?} {volumes:?}",
        pod.meta.key.namespace
    )
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

/// What a pod takes of its node while it is resized: what it asks for or what its node has allocated to it, whichever is more; and only the
/// latter where its node can never give it what it asks for.
/// <https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/>
pub fn taken_by(pod: &Value) -> Amounts {
    let each = |list: &'_ Value| list.as_array().cloned().unwrap_or_default();
    let statuses = each(&pod["status"]["containerStatuses"]);
    let allocated: Vec<(&Value, &Value)> = statuses
        .iter()
        .map(|status| (&status["name"], &status["allocatedResources"]))
        .filter(|(_, allocated)| allocated.is_object())
        .collect();
    let of = |container: &Value| allocated.iter().find(|(name, _)| container["name"] == **name);
    let mut containers = each(&pod["spec"]["containers"]);
    let differs =
        |container: &Value| of(container).is_some_and(|(_, given)| container["resources"]["requests"] != **given);
    if !containers.iter().any(differs) {
        return asked_for(&pod["spec"]);
    }
    let is_pending = |condition: &Value| condition["type"] == "PodResizePending" && condition["status"] == "True";
    let conditions = each(&pod["status"]["conditions"]);
    let is_in_vain = conditions.iter().any(|c| is_pending(c) && c["reason"] == "Infeasible");
    for container in &mut containers {
        let Some((_, given)) = of(container) else { continue };
        // What a file says of a pod may be of any shape.
        let may_be_set = |list: &Value| list.is_null() || list.is_object();
        if !container.is_object()
            || !may_be_set(&container["resources"])
            || !may_be_set(&container["resources"]["requests"])
        {
            continue;
        }
        for (name, given) in given.as_object().into_iter().flatten() {
            let asked = &container["resources"]["requests"][name];
            if is_in_vain || amount(asked) < amount(given) {
                container["resources"]["requests"][name] = given.clone();
            }
        }
    }
    let mut spec = pod["spec"].clone();
    spec["containers"] = containers.into();
    asked_for(&spec)
}

/// What a pod of this `spec` takes of its node, itself included.
pub fn asked_for(spec: &Value) -> Amounts {
    let mut amounts = amounts_of_pod(spec, "requests");
    amounts.insert(PODS.to_owned(), ONE);
    amounts
}

/// Whether a term of anti-affinity is about pods of the same namespace on the same node: no others are looked at.
pub fn is_plain(term: &Value) -> bool {
    let is_about_others = ["namespaces", "namespaceSelector", "matchLabelKeys", "mismatchLabelKeys"];
    term["topologyKey"] == HOSTNAME && is_about_others.iter().all(|field| term[*field].is_null())
}

/// Of which pods of its namespace a pod of this `spec` does not share a node. Terms about other namespaces or other parts of a cluster are not
/// looked at.
fn keeps_apart(spec: &Value) -> Vec<Selector> {
    let terms = &spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = terms.as_array().into_iter().flatten();
    terms
        .filter(|term| is_plain(term))
        .take(TERMS)
        .filter_map(|term| Selector::from_json(&term["labelSelector"]))
        .collect()
}
