//! Users who add claim templates and take them away, with and without another image, of Advanced StatefulSets and of CloneSets.
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use crate::asks::{by_users, comes};
use crate::run::World;
use crate::schedule::{FaultKind, Item, SetPlan, UserAct, Wanted};
use crate::storage;
use fastrand::Rng;
use flotilla_model::{Command, Decision, PodRecord, Resource, RevisionRecord, SetKind, SetRecord};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Claim templates that users ask for. Volumes of other names are none of theirs.
pub(crate) const NAMES: [&str; 3] = ["data", "cache", "spool"];

/// One of them comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// Its place among the names.
    place: usize,
    /// Whether it comes.
    is_there: bool,
    /// Another image in the same edit.
    image: Option<u32>,
}

impl Act {
    fn by_chance(rng: &mut Rng) -> Self {
        Act {
            place: rng.usize(0..NAMES.len()),
            is_there: rng.u8(0..5) > 1,
            image: rng.bool().then(|| rng.u32(1..4)),
        }
    }
}

/// When they do so.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, has_webhook: bool, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x7c1a_1e57);
    if !comes(&mut rng, wanted, FaultKind::ClaimTemplates, 5) || set.kind == SetKind::Native {
        return Vec::new();
    }
    // Where claims follow their templates webhooks let none come or go; and under InPlaceOnly no user asks for what cannot be done, while pods
    // of CloneSets keep the claims that they have.
    let is_refused = has_webhook && set.storage.is_some();
    let is_in_vain = set.kind == SetKind::Advanced && set.in_place.is_some_and(|in_place| in_place.only);
    let is_asked_for = wanted.faults.contains(&FaultKind::ClaimTemplates);
    if is_asked_for && rng.u8(0..4) > 0 {
        set.claims = true;
    }
    if let Some(clones) = &mut set.clones {
        clones.recreates_for_claims = rng.bool();
        clones.keeps_claims |= is_asked_for && rng.u8(0..4) == 0;
    }
    let acts: Vec<Act> = (0..rng.usize(1..6)).map(|_| Act::by_chance(&mut rng)).collect();
    let acts = acts.into_iter().filter(|_| !is_refused && !is_in_vain);
    acts.map(|act| by_users(&mut rng, UserAct::ClaimTemplate(act)))
        .collect()
}

/// The names that a set has today.
pub(crate) fn of_set(set: &SetRecord) -> BTreeSet<String> {
    set.spec.claim_templates.iter().map(|t| t.name.to_string()).collect()
}

/// The templates that a set has today by their names, whole.
pub(crate) fn bodies_of_set(set: &SetRecord) -> BTreeMap<String, Value> {
    let templates = set.spec.claim_templates.iter();
    templates
        .map(|t| (t.name.to_string(), (*t.body.tree()).clone()))
        .collect()
}

/// The templates of a record by their names, whole, without those that were marked as former.
pub(crate) fn bodies_in_record(record: &Value) -> BTreeMap<String, Value> {
    let all = record.as_array().into_iter().flatten().filter(|t| !is_former(t));
    let named = all.filter_map(|t| Some((t["metadata"]["name"].as_str()?.to_owned(), t.clone())));
    named.collect()
}

fn is_former(recorded: &Value) -> bool {
    !recorded["metadata"]["annotations"]["flotilla.rs/former"].is_null()
}

/// The names of a record, without those that were marked as former, and these.
pub(crate) fn in_record(record: &Value) -> [BTreeSet<String>; 2] {
    let all = record.as_array().into_iter().flatten();
    let (former, there): (Vec<&Value>, Vec<&Value>) = all.partition(|t| is_former(t));
    let names = |list: Vec<&Value>| {
        let names = list.into_iter().filter_map(|t| t["metadata"]["name"].as_str());
        names.map(str::to_owned).collect()
    };
    [names(there), names(former)]
}

/// The claim templates that pods of a revision use, by their names: of an old one those of our record, if there is one, else those of today
/// (R-11; CS-12.5).
pub(crate) fn of_revision(revision: Option<&RevisionRecord>, set: &SetRecord) -> BTreeMap<String, Value> {
    let is_old = |r: &&RevisionRecord| r.digest != set.spec.template_digest;
    let record = revision.filter(is_old).and_then(|r| r.claim_templates.as_deref());
    record.map_or_else(|| bodies_of_set(set), |record| bodies_in_record(&record.tree()))
}

/// The names of those whose volumes a pod has.
pub(crate) fn of_pod(pod: &PodRecord) -> BTreeSet<String> {
    let volumes = pod.volumes.iter().flat_map(|list| &**list);
    let names = volumes.map(|v| v.volume.to_string());
    names.filter(|name| NAMES.contains(&name.as_str())).collect()
}

/// Whether a pod of an Advanced set was made with other claim templates than its set has today: it has to be made again (STS-8.6).
pub(crate) fn has_others(pod: &PodRecord, set: &SetRecord) -> bool {
    set.kind == SetKind::Advanced && of_pod(pod) != of_set(set)
}

/// Whether a decision makes claims of a pod that is there: those of its successor come first (STS-8.6), and its turn has come.
pub(crate) fn makes_claims_of(decision: &Decision, pod: &str) -> bool {
    let made = decision
        .commands()
        .filter(|c| matches!(c.command, Command::Create { .. }));
    let mut claims = made
        .filter(|c| c.command.resource() == Resource::Claims)
        .map(|c| &c.command.key().name);
    claims.any(|claim| claim.split_once('-').map(|(_, of)| of) == Some(pod))
}

impl World {
    /// A claim template comes or goes.
    pub(crate) fn change_claim_templates(&mut self, act: Act) {
        let resource = self.schedule.set.kind.resource();
        let set = self.cluster.server.get(resource, &Self::set_key());
        let Some(set) = set.map(|s| (*s.value()).clone()) else {
            return;
        };
        let name = NAMES[act.place];
        let templates = set.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array);
        let mut templates = templates.cloned().unwrap_or_default();
        templates.retain(|t| act.is_there || t["metadata"]["name"] != name);
        if act.is_there && !templates.iter().any(|t| t["metadata"]["name"] == name) {
            templates.push(self.claim_template(name));
        }
        let mut body = json!({"spec": {"volumeClaimTemplates": templates}});
        if let Some(number) = act.image {
            let image = json!(format!("app:v{number}"));
            let containers = self.changed_containers(|container| container["image"] = image.clone());
            body["spec"]["template"] = json!({"spec": {"containers": containers}});
        }
        self.edit(resource, &Self::set_key(), &body);
    }

    fn claim_template(&self, name: &str) -> Value {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        if self.schedule.set.storage.is_some() {
            spec["storageClassName"] = json!(storage::CLASS);
        }
        json!({"metadata": {"name": name}, "spec": spec})
    }
}
