//! What happens to one set, from the moment of the change on.

mod specification;

use crate::report::{Action, ClaimAction, Verb};
use crate::state;
use crate::waves::{Mark, waves};
use flotilla_engine::wire::Object;
use flotilla_model::{
    ClaimRecord, ObjectKey, OwnerRef, PodRecord, Resource, SetKind, SetRecord, Timestamp, Uid, Wait, WaitCause,
};
use flotilla_sim::Cluster;
use flotilla_sim::server::{Actor, Entry, Stored};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// One pod that something happens to; a pod to which it happens twice is two items.
// What happened to it so far: each may have happened without the others.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    pub(crate) pod: String,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    is_taken_down: bool,
    is_gone: bool,
    is_made: bool,
    is_updated: bool,
    /// It was ready, and is not any more.
    is_unready: bool,
    pub(crate) is_available: bool,
}

impl Item {
    fn is_only_unready(&self) -> bool {
        self.is_unready && !self.is_taken_down && !self.is_made && !self.is_updated
    }
}

/// What was seen, in order.
#[derive(Clone, Copy, Debug)]
enum Seen {
    Began(usize),
    Gone(usize),
    Available(usize),
}

/// The set, and everything that happened to what it owns.
#[derive(Debug)]
pub(crate) struct Traced {
    pub(crate) kind: SetKind,
    pub(crate) key: ObjectKey,
    pub(crate) verb: Verb,
    /// The set before the change, and at the end.
    pub(crate) before: Option<Arc<SetRecord>>,
    pub(crate) after: Option<Arc<SetRecord>>,
    pub(crate) claims: Vec<(String, ClaimAction)>,
    /// Its specification at the end; null if it is gone.
    pub(crate) spec: Value,
    /// Claims that are still there when the set is not.
    pub(crate) claims_left: Vec<String>,
    pub(crate) revisions: Vec<String>,
    /// The templates of its revisions at the end, by their names.
    templates: BTreeMap<String, Value>,
    /// Whether at the end there is another revision to go back to.
    pub(crate) can_go_back: bool,
    /// Whether nothing happens any more.
    is_over: bool,
    /// What its controller waits for at the end.
    pub(crate) waits: Vec<Wait>,
    /// Its pods at the end.
    pub(crate) pods: Vec<Arc<PodRecord>>,
    /// The nodes of those whose node is silent, by the names of pods.
    pub(crate) on_silent_nodes: BTreeMap<String, String>,
    pub(crate) items: Vec<Item>,
    uid: Option<Uid>,
    /// Claims that were its own before, also of claim templates that it has no more.
    former_claims: BTreeSet<String>,
    /// Its pods when the change was made.
    pub(crate) began_with: Vec<Uid>,
    /// Revisions that ready pods had before.
    proven: BTreeSet<String>,
    /// The item of each pod that is under way.
    open: BTreeMap<String, usize>,
    /// Its pods now, by name, and which of them have changed since somebody looked.
    own: BTreeMap<String, Arc<PodRecord>>,
    touched: BTreeSet<String>,
    available: BTreeSet<String>,
    seen: Vec<Seen>,
    /// How many pods were available after so many things were seen.
    levels: Vec<(usize, usize)>,
}

impl Traced {
    /// A set before the change.
    pub(crate) fn new(cluster: &Cluster, kind: SetKind, key: ObjectKey) -> Self {
        let before = set_of(cluster, kind, &key);
        Traced {
            kind,
            key,
            verb: Verb::Unchanged,
            uid: before.as_ref().map(|set| set.meta.uid.clone()),
            after: before.clone(),
            before,
            claims: Vec::new(),
            spec: Value::Null,
            claims_left: Vec::new(),
            revisions: Vec::new(),
            templates: BTreeMap::new(),
            can_go_back: false,
            is_over: false,
            waits: Vec::new(),
            pods: Vec::new(),
            on_silent_nodes: BTreeMap::new(),
            items: Vec::new(),
            former_claims: BTreeSet::new(),
            began_with: Vec::new(),
            proven: BTreeSet::new(),
            open: BTreeMap::new(),
            own: BTreeMap::new(),
            touched: BTreeSet::new(),
            available: BTreeSet::new(),
            seen: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// Begins to count; the changes have been made.
    pub(crate) fn begin(&mut self, cluster: &Cluster) {
        if let Some(set) = set_of(cluster, self.kind, &self.key) {
            self.uid = Some(set.meta.uid.clone());
            self.after = Some(set);
        }
        let own = state::pods(cluster).filter(|pod| self.owns(pod));
        self.own = own.map(|pod| (pod.name().to_owned(), pod.clone())).collect();
        self.former_claims = self.claims_of_its_pods(cluster);
        self.began_with = self.own.values().map(|pod| pod.meta.uid.clone()).collect();
        let ready = self.own.values().filter(|pod| pod.is_healthy());
        self.proven = ready.filter_map(|pod| pod.revision().map(str::to_owned)).collect();
        self.available = self.available_pods(cluster.now());
        self.levels.push((0, self.available.len()));
    }

    /// Claims that belong to the set or to one of its pods, and those that a pod mounts by its own name, whatever template they were made of.
    fn claims_of_its_pods(&self, cluster: &Cluster) -> BTreeSet<String> {
        let pods = self.own.values();
        let mounted = pods.flat_map(|pod| pod.claims().map(move |(_, claim)| (pod.name(), claim)));
        let by_name = mounted.filter(|(pod, claim)| claim.strip_suffix(pod).is_some_and(|head| head.ends_with('-')));
        let is_own = |owner: &OwnerRef| {
            let is_own_pod = |pod: &Arc<PodRecord>| pod.meta.uid == owner.uid;
            Some(&owner.uid) == self.uid.as_ref() || self.own.get(&*owner.name).is_some_and(is_own_pod)
        };
        let claims = claims(cluster).filter(|claim| claim.meta.key.namespace == self.key.namespace);
        let owned = claims.filter(|claim| claim.meta.owners().iter().any(is_own));
        let owned = owned.map(|claim| claim.meta.key.name.to_string());
        owned.chain(by_name.map(|(_, claim)| claim)).collect()
    }

    /// Ends; what is left is what it comes to. Without waits it is cut short, and what is not there may still come.
    pub(crate) fn end(&mut self, cluster: &Cluster, waits: Option<Vec<Wait>>) {
        self.is_over = waits.is_some();
        let waits = waits.unwrap_or_default();
        self.after = set_of(cluster, self.kind, &self.key);
        let stored = cluster.server.get(self.kind.resource(), &self.key);
        self.spec = stored.map_or(Value::Null, |stored| stored.value()["spec"].clone());
        self.waits = if self.after.is_some() { waits } else { Vec::new() };
        self.pods = self.own.values().cloned().collect();
        for wait in &mut self.waits {
            complete(wait, cluster, &self.key);
        }
        let silent = self
            .pods
            .iter()
            .filter(|pod| cluster.nodes.cut_off.contains(&pod.meta.uid));
        let silent = silent.filter_map(|pod| Some((pod.name().to_owned(), pod.node.as_deref()?.to_owned())));
        self.on_silent_nodes = silent.collect();
        let uid = self.after.as_ref().map(|set| &set.meta.uid);
        let own = cluster
            .server
            .all(Resource::Revisions)
            .filter_map(|stored| match &stored.object {
                Some(Object::Revision(revision)) if uid.is_some_and(|uid| revision.meta.is_controlled_by(uid)) => {
                    let template = stored.value()["data"]["spec"]["template"].clone();
                    Some((revision.meta.key.name.to_string(), template))
                }
                _ => None,
            });
        self.templates = own.collect();
        self.can_go_back = self.templates.len() > 1;
        if self.after.is_none() && self.before.is_some() {
            let here = |key: &ObjectKey| key.namespace == self.key.namespace;
            // Nobody is told to delete what a pod of somebody else mounts, or what has the name of a claim of another set.
            let others = state::pods(cluster).filter(|pod| here(&pod.meta.key) && !self.own.contains_key(pod.name()));
            let mounted: BTreeSet<String> = others.flat_map(|pod| pod.claims().map(|(_, claim)| claim)).collect();
            let sets = sets(cluster).filter(|set| here(&set.meta.key));
            let is_of_others = |name: &str| mounted.contains(name) || sets.clone().any(|set| is_named_for(set, name));
            // A name alone is nobody's: claims of a set carry what its selector asks for.
            let is_labelled = |claim: &ClaimRecord| {
                let set = self.before.as_ref();
                set.is_some_and(|set| set.spec.selector.matches(|key| claim.meta.labels.get(key)))
            };
            let own = claims(cluster).filter(|claim| {
                let key = &claim.meta.key;
                let is_own = self.former_claims.contains(key.name.as_str())
                    || self.is_own_claim(&key.name) && is_labelled(claim);
                let is_left = here(key) && is_own && claim.meta.deleted.is_none();
                is_left && !is_of_others(&key.name)
            });
            self.claims_left = own.map(|claim| claim.meta.key.name.to_string()).collect();
        }
    }

    fn min_ready(&self) -> Duration {
        let set = self.after.as_ref().or(self.before.as_ref());
        set.map(|s| s.spec.min_ready).unwrap_or_default()
    }

    /// Pods that count as available: ready for as long as is asked, and not on their way out.
    fn available_pods(&self, now: Timestamp) -> BTreeSet<String> {
        let min_ready = self.min_ready();
        let available = self.own.values().filter(|pod| is_available(pod, min_ready, now));
        available.map(|pod| pod.name().to_owned()).collect()
    }

    /// The pod of the set that the entry made, or to which it gave another revision where it is.
    pub(crate) fn renewed_pod(&self, entry: &Entry) -> Option<Arc<PodRecord>> {
        let (before, after) = (pod_of(entry.before.as_ref()), pod_of(entry.after.as_ref()));
        let pod = after.filter(|pod| self.owns(pod))?;
        let is_renewed = before.is_none_or(|before| before.revision() != pod.revision());
        is_renewed.then_some(pod)
    }

    fn owns(&self, pod: &PodRecord) -> bool {
        self.uid.as_ref().is_some_and(|uid| pod.meta.is_controlled_by(uid))
    }

    /// Something changed.
    pub(crate) fn note(&mut self, entry: &Entry) {
        match entry.resource.watched() {
            Some(Resource::Pods) => self.note_pod(entry),
            Some(Resource::Claims) => self.note_claim(entry),
            Some(Resource::Revisions) if entry.before.is_none() => self.note_revision(entry),
            _ => {}
        }
    }

    fn note_pod(&mut self, entry: &Entry) {
        let (before, after) = (pod_of(entry.before.as_ref()), pod_of(entry.after.as_ref()));
        self.keep(before.as_ref(), after.as_ref());
        let Some(pod) = after.as_ref().or(before.as_ref()).filter(|pod| self.owns(pod)) else {
            return;
        };
        let name = pod.name().to_owned();
        let was_going = before.as_ref().is_some_and(|pod| pod.is_terminating());
        match (&before, &after) {
            (None, Some(pod)) => self.made(&name, pod),
            (Some(_), None) => {
                if !was_going {
                    self.taken_down(&name, pod);
                }
                self.gone(&name);
            }
            (Some(_), Some(pod)) if !was_going && (pod.is_terminating() || entry.verb == "delete") => {
                self.taken_down(&name, pod);
            }
            (Some(old), Some(pod)) if matches!(entry.actor, Actor::Manager(_)) && is_updated(entry, (old, pod)) => {
                let item = self.updated(&name);
                if !self.items[item].is_updated {
                    self.items[item].from = old.revision().map(str::to_owned);
                }
                self.items[item].to = pod.revision().map(str::to_owned);
                self.items[item].is_updated = true;
            }
            // Nothing fails by itself here: what is ready stays so unless the manager takes it out of service.
            (Some(old), Some(pod)) if old.is_healthy() && !pod.ready.is_true && !self.open.contains_key(&name) => {
                let item = self.open_item(&name);
                self.items[item].from = old.revision().map(str::to_owned);
                self.items[item].is_unready = true;
            }
            _ => {}
        }
    }

    /// Keeps its pods as they are now.
    fn keep(&mut self, before: Option<&Arc<PodRecord>>, after: Option<&Arc<PodRecord>>) {
        let owned = |pod: &&Arc<PodRecord>| self.owns(pod);
        let (was, is) = (before.filter(owned), after.filter(owned));
        let Some(name) = was.or(is).map(|pod| pod.name().to_owned()) else {
            return;
        };
        match is.cloned() {
            Some(pod) => self.own.insert(name.clone(), pod),
            None => self.own.remove(&name),
        };
        self.touched.insert(name);
    }

    /// A new item for a pod.
    fn open_item(&mut self, name: &str) -> usize {
        let place = self.items.len();
        self.items.push(Item {
            pod: name.to_owned(),
            ..Item::default()
        });
        self.open.insert(name.to_owned(), place);
        self.seen.push(Seen::Began(place));
        place
    }

    /// The item that goes on for a pod that was taken out of service first, or a new one.
    fn item(&mut self, name: &str) -> usize {
        let goes_on = |place: &usize| self.items[*place].is_only_unready();
        let known = self.open.get(name).copied().filter(goes_on);
        known.unwrap_or_else(|| self.open_item(name))
    }

    /// The item of a pod that gets a new spec. Resources and images are two steps of one update.
    fn updated(&mut self, name: &str) -> usize {
        let goes_on = |place: &usize| self.items[*place].is_updated;
        let known = self.open.get(name).copied().filter(goes_on);
        known.unwrap_or_else(|| self.item(name))
    }

    fn taken_down(&mut self, name: &str, pod: &PodRecord) {
        let is_down = |place: &usize| self.items[*place].is_taken_down && !self.items[*place].is_made;
        if self.open.get(name).is_some_and(is_down) {
            return;
        }
        let item = self.item(name);
        self.items[item].is_taken_down = true;
        self.items[item].from = pod.revision().map(str::to_owned);
    }

    fn gone(&mut self, name: &str) {
        if let Some(item) = self.open.get(name).copied().filter(|i| self.items[*i].is_taken_down) {
            self.items[item].is_gone = true;
            self.seen.push(Seen::Gone(item));
        }
    }

    fn made(&mut self, name: &str, pod: &PodRecord) {
        let replaced = self
            .open
            .get(name)
            .copied()
            .filter(|i| self.items[*i].is_gone && !self.items[*i].is_made);
        let item = replaced.unwrap_or_else(|| self.open_item(name));
        self.items[item].is_made = true;
        self.items[item].to = pod.revision().map(str::to_owned);
    }

    fn note_claim(&mut self, entry: &Entry) {
        let name = entry.key.name.to_string();
        if entry.key.namespace != self.key.namespace || !self.is_own_claim(&name) {
            return;
        }
        let size = |stored: &Option<Stored>| {
            let value = stored.as_ref().map(Stored::value).unwrap_or_default();
            value["spec"]["resources"]["requests"]["storage"].clone()
        };
        let action = match (&entry.before, &entry.after) {
            (None, Some(_)) => ClaimAction::Create,
            (Some(_), None) => ClaimAction::Delete,
            _ if size(&entry.before) != size(&entry.after) => ClaimAction::Expand,
            _ => return,
        };
        // What comes and goes, as that of a surge does, held nothing before, and leaves nothing.
        let is_made_here = |(claim, action): &(String, ClaimAction)| *claim == name && *action == ClaimAction::Create;
        if action == ClaimAction::Delete
            && let Some(place) = self.claims.iter().rposition(is_made_here)
        {
            self.claims.remove(place);
            return;
        }
        self.claims.push((name, action));
    }

    /// Whether a claim was the set's own before, or has the name `<template>-<set>-<ordinal>`, or of a CloneSet `<template>-<set>-<id>`.
    fn is_own_claim(&self, name: &str) -> bool {
        if self.former_claims.contains(name) {
            return true;
        }
        let sets = [self.before.as_ref(), self.after.as_ref()];
        sets.into_iter().flatten().any(|set| is_named_for(set, name))
    }

    fn note_revision(&mut self, entry: &Entry) {
        let Some(Object::Revision(revision)) = entry.after.as_ref().and_then(|s| s.object.as_ref()) else {
            return;
        };
        if self.uid.as_ref().is_some_and(|uid| revision.meta.is_controlled_by(uid)) {
            self.revisions.push(revision.meta.key.name.to_string());
        }
    }

    /// Looks at how many pods are available now.
    pub(crate) fn look(&mut self, cluster: &Cluster) {
        let (min_ready, now) = (self.min_ready(), cluster.now());
        let touched = std::mem::take(&mut self.touched);
        // With a time to wait, pods become available without a change.
        let looked_at = if min_ready.is_zero() {
            touched
        } else {
            self.own.keys().cloned().chain(touched).collect()
        };
        for name in looked_at {
            let pod = self.own.get(&name);
            if !pod.is_some_and(|pod| is_available(pod, min_ready, now)) {
                self.available.remove(&name);
            } else if self.available.insert(name.clone())
                && let Some(item) = self.open.remove(&name)
            {
                self.items[item].is_available = true;
                self.seen.push(Seen::Available(item));
            }
        }
        let level = (self.seen.len(), self.available.len());
        if self.levels.last() != Some(&level) {
            self.levels.push(level);
        }
    }

    /// How many pods it has now.
    pub(crate) fn size(&self) -> usize {
        self.own.len()
    }

    /// How many pods are available now.
    pub(crate) fn available_now(&self) -> usize {
        self.available.len()
    }

    /// Whether all pods that were made or changed, and are there at the end, are available then.
    pub(crate) fn serves_with_what_was_made(&self) -> bool {
        let mut made = self.items.iter().filter(|item| item.is_made || item.is_updated);
        made.all(|item| !self.own.contains_key(&item.pod) || self.available.contains(&item.pod))
    }

    /// Whether any pod is made.
    pub(crate) fn makes_pods(&self) -> bool {
        self.items.iter().any(|item| item.is_made || item.is_updated)
    }

    /// Whether a ready pod had this revision before.
    pub(crate) fn is_proven(&self, revision: Option<&str>) -> bool {
        revision.is_some_and(|revision| self.proven.contains(revision))
    }

    /// Whether pods are made or updated to a revision that no ready pod had before.
    pub(crate) fn makes_pods_of_new_revisions(&self) -> bool {
        let mut made = self.items.iter().filter(|item| item.is_made || item.is_updated);
        made.any(|item| !self.is_proven(item.to.as_deref()))
    }

    /// What happens to an item.
    pub(crate) fn action(&self, item: &Item) -> Action {
        if item.is_updated {
            return Action::Update;
        }
        if item.is_only_unready() {
            return Action::MakeUnready;
        }
        match (item.is_taken_down, item.is_made || self.is_wanted(&item.pod)) {
            (false, _) => Action::Create,
            (true, true) => Action::Replace,
            (true, false) => Action::Delete,
        }
    }

    /// Whether a pod that was taken down is to be there again. One that has gone, and at the end is not there, has not come back.
    fn is_wanted(&self, pod: &str) -> bool {
        if self.is_over && !self.own.contains_key(pod) {
            return false;
        }
        let ordinal = pod.rsplit_once('-').and_then(|(_, digits)| digits.parse().ok());
        let set = self.after.as_ref().filter(|set| !set.is_deleted());
        set.zip(ordinal)
            .is_some_and(|(set, ordinal)| set.spec.ordinals().contains(ordinal))
    }

    /// The wave of each item, and the fewest available pods of each moment: the wave under way (0 before the first) and how many.
    pub(crate) fn waves(&self) -> (Vec<usize>, Vec<(usize, usize)>) {
        let is_last = |item: usize| self.action(&self.items[item]) == Action::Delete;
        let mark = |seen: &Seen| match *seen {
            Seen::Began(item) => Some(Mark::Began(item)),
            Seen::Gone(item) => is_last(item).then_some(Mark::Ended(item)),
            Seen::Available(item) => Some(Mark::Ended(item)),
        };
        let marks: Vec<Mark> = self.seen.iter().filter_map(mark).collect();
        let waves = waves(&marks, self.items.len());
        let mut under_way = vec![0; self.seen.len() + 1];
        for (place, seen) in self.seen.iter().enumerate() {
            under_way[place + 1] = match seen {
                Seen::Began(item) => waves[*item].max(under_way[place]),
                _ => under_way[place],
            };
        }
        let levels = self
            .levels
            .iter()
            .map(|(place, count)| (under_way[*place], *count))
            .collect();
        (waves, levels)
    }
}

/// Managers do not read what keeps a pod that is being deleted.
fn complete(wait: &mut Wait, cluster: &Cluster, set: &ObjectKey) {
    let WaitCause::PodTerminating { finalizers, .. } = &mut wait.cause else {
        return;
    };
    let pod = cluster.server.get(Resource::Pods, &set.sibling(wait.subject.as_str()));
    let names = pod
        .map(|pod| pod.value()["metadata"]["finalizers"].clone())
        .unwrap_or_default();
    *finalizers = state::list(&names)
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
}

/// Whether a pod was updated where it is: its containers, or nothing but labels and annotations, which need no restart.
fn is_updated(entry: &Entry, (before, after): (&PodRecord, &PodRecord)) -> bool {
    has_new_spec(entry) || before.node.is_some() && before.revision() != after.revision()
}

/// Whether something of the spec of a pod that has a node has changed.
pub(crate) fn has_new_spec(entry: &Entry) -> bool {
    let spec = |stored: &Option<Stored>| stored.as_ref().map(Stored::value).unwrap_or_default()["spec"].clone();
    spec(&entry.before) != spec(&entry.after) && spec(&entry.before)["nodeName"] != Value::Null
}

fn pod_of(stored: Option<&Stored>) -> Option<Arc<PodRecord>> {
    match stored?.object.as_ref()? {
        Object::Pod(pod) => Some(pod.clone()),
        _ => None,
    }
}

/// Whether a pod serves.
pub(crate) fn is_available(pod: &PodRecord, min_ready: std::time::Duration, now: Timestamp) -> bool {
    pod.is_available(min_ready, now) && !pod.is_terminating()
}

/// All sets.
fn sets(cluster: &Cluster) -> impl Iterator<Item = &Arc<SetRecord>> + Clone {
    let kinds = [SetKind::Native, SetKind::Advanced, SetKind::Clone];
    let stored = kinds
        .map(|kind| cluster.server.all(kind.resource()).collect::<Vec<_>>())
        .concat();
    stored.into_iter().filter_map(|stored| match &stored.object {
        Some(Object::Set(set)) => Some(set),
        _ => None,
    })
}

/// Whether a claim has the name that one of a claim template of the set has.
fn is_named_for(set: &SetRecord, name: &str) -> bool {
    let Some((head, ordinal)) = name.rsplit_once('-') else {
        return false;
    };
    let is_ordinal = !ordinal.is_empty() && ordinal.bytes().all(|b| b.is_ascii_digit());
    let mut templates = set.spec.claim_templates.iter();
    (is_ordinal || set.kind == SetKind::Clone)
        && templates.any(|t| head.strip_prefix(&*t.name).and_then(|r| r.strip_prefix('-')) == Some(set.name()))
}

/// All claims of the cluster.
fn claims(cluster: &Cluster) -> impl Iterator<Item = &Arc<ClaimRecord>> {
    let all = cluster.server.all(Resource::Claims);
    all.filter_map(|stored| match &stored.object {
        Some(Object::Claim(claim)) => Some(claim),
        _ => None,
    })
}

/// A set, if it is there.
pub(crate) fn set_of(cluster: &Cluster, kind: SetKind, key: &ObjectKey) -> Option<Arc<SetRecord>> {
    match cluster.server.get(kind.resource(), key)?.object.as_ref()? {
        Object::Set(set) => Some(set.clone()),
        _ => None,
    }
}
