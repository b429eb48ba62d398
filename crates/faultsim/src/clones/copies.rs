//! Users who copy pods of a CloneSet (`kubectl get pod -o json`, another name, `kubectl create`), and who change the ids by which pods and
//! claims belong together.
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use super::by_user;
use super::truth::{INSTANCE_ID, Writes};
use crate::asks::comes;
use crate::judge::{Scene, Verdict, require};
use crate::run::World;
use crate::schedule::{BUSY_MS, FaultKind, Item, SetPlan, UserAct, Wanted};
use crate::tenants;
use fastrand::Rng;
use flotilla_engine::wire::Object;
use flotilla_model::{ClaimRecord, ObjectKey, PodRecord, Resource, SetRecord, Uid};
use flotilla_sim::server::{Actor, DeleteOptions};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Names of copies begin like this.
const COPY: &str = "web-copy";

/// What users do.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Copy the nth pod under another name: with the same owner, or with none.
    Copy(i64, bool),
    /// Delete the nth copy.
    Drop(i64),
    /// Another id for the nth pod.
    OfPod(i64, Id),
    /// Another id for the nth claim.
    OfClaim(i64, Id),
}

/// What users write in the place of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    /// Nothing: the label is gone.
    Missing,
    /// Nothing: the label is empty.
    Empty,
    /// What no other has.
    Unknown,
    /// That of the nth pod.
    OfPod(i64),
    /// That which stands in its name.
    Own,
}

impl Id {
    fn by_chance(rng: &mut Rng) -> Self {
        match rng.u8(0..6) {
            0 | 1 => Id::Missing,
            2 => Id::Empty,
            3 => Id::Unknown,
            4 => Id::OfPod(rng.i64(0..8)),
            _ => Id::Own,
        }
    }
}

/// When users do so.
pub(super) fn by_chance(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x00c0_b1e5);
    if !comes(&mut rng, wanted, FaultKind::Copies, 6) {
        return Vec::new();
    }
    set.claims |= rng.u8(0..8) > 0;
    let changes_ids = rng.bool();
    let act = |rng: &mut Rng| match rng.u8(0..8) {
        0 | 1 if changes_ids => Act::OfPod(rng.i64(0..8), Id::by_chance(rng)),
        2 | 3 if changes_ids => Act::OfClaim(rng.i64(0..8), Id::by_chance(rng)),
        4 => Act::Drop(rng.i64(0..3)),
        _ => Act::Copy(rng.i64(0..8), rng.u8(0..3) > 0),
    };
    let acts: Vec<Act> = (0..rng.usize(1..7)).map(|_| act(&mut rng)).collect();
    let acts = acts.into_iter().map(|act| UserAct::Clone(super::Act::Copies(act)));
    acts.map(|act| by_user(act, rng.u64(3_000..BUSY_MS))).collect()
}

/// Whether a pod of this name is a copy.
pub(crate) fn is_copy(name: &str) -> bool {
    name.starts_with(COPY)
}

/// Whether a pod mounts a claim.
pub(super) fn mounts(pod: &PodRecord, claim: &str) -> bool {
    pod.claims().any(|(_, name)| name == claim)
}

/// Whether a claim is a pod's: by the id that both have, or by a mount.
pub(in crate::clones) fn has(pod: &PodRecord, claim: &ClaimRecord) -> bool {
    let id = claim.meta.labels.get(INSTANCE_ID);
    id.is_some() && pod.label(INSTANCE_ID) == id || mounts(pod, &claim.meta.key.name)
}

/// Whether a pod is called otherwise than its id says: somebody copied it, or changed its id.
pub(super) fn has_another_id(pod: &PodRecord) -> bool {
    pod.label(INSTANCE_ID) != pod.name().rsplit_once('-').map(|(_, id)| id)
}

/// What users have mixed up, so that which pod was the last that had a claim depends on what was seen.
#[derive(Debug, Default)]
pub(super) struct Mingled {
    /// Ids of pods that are called otherwise.
    ids: BTreeSet<String>,
    /// Claims to which they have given other ids.
    claims: BTreeSet<Uid>,
}

impl Mingled {
    /// Takes notice of a pod.
    pub(super) fn see_pod(&mut self, pod: Option<&Arc<PodRecord>>) {
        let pod = pod.filter(|pod| has_another_id(pod));
        self.ids
            .extend(pod.and_then(|pod| pod.label(INSTANCE_ID)).map(str::to_owned));
    }

    /// Takes notice of what others do to a claim.
    pub(super) fn see_claim(&mut self, before: &ClaimRecord, after: &ClaimRecord) {
        let id = |claim: &ClaimRecord| claim.meta.labels.get(INSTANCE_ID).map(str::to_owned);
        if id(before) != id(after) {
            self.claims.insert(after.meta.uid.clone());
        }
    }

    /// Whether users have given the claim another id, of which whoever wrote may not have known.
    fn has_changed(&self, claim: &ClaimRecord) -> bool {
        self.claims.contains(&claim.meta.uid)
    }

    /// Whether a claim is such.
    pub(super) fn knows(&self, claim: &ClaimRecord) -> bool {
        let id = claim.meta.labels.get(INSTANCE_ID);
        self.claims.contains(&claim.meta.uid) || id.is_some_and(|id| self.ids.contains(id))
    }
}

fn claims_of<'s>(scene: &Scene<'s>, owner: &Uid) -> Vec<&'s Arc<ClaimRecord>> {
    let claims = tenants::all(scene.server, Resource::Claims).filter_map(|s| match &s.object {
        Some(Object::Claim(claim)) => Some(claim),
        _ => None,
    });
    claims.filter(|claim| claim.meta.is_controlled_by(owner)).collect()
}

impl Writes {
    /// CS-14.7 and CS-15.4: what was given to a pod goes with it, and no other has that. Where users have changed the claim, what the manager saw
    /// as it decided is judged instead (`claims.rs`).
    pub(super) fn takes_along(&self, pod: &PodRecord, set: &SetRecord, scene: &Scene<'_>) -> Verdict {
        let mut own = claims_of(scene, &pod.meta.uid);
        own.retain(|claim| !self.mingled.has_changed(claim));
        let mut others = scene.pods_of(&set.meta.uid).filter(|other| {
            other.meta.uid != pod.meta.uid && !other.is_terminal() && !other.is_terminating() && self.must_know(other)
        });
        let other = others.find(|other| own.iter().any(|claim| has(other, claim)));
        require(other.is_none(), "CS-15.4 claims", || {
            let other = other.map_or("", |other| other.name());
            format!("a claim goes with {}, and {other} stays, and has it", pod.name())
        })
    }
}

impl World {
    /// Users copy pods, and change ids.
    pub(super) fn copy(&mut self, act: &Act) {
        match act {
            Act::Copy(place, is_owned) => self.copy_pod(*place, *is_owned),
            Act::Drop(place) => {
                let copies = self.keys_of(Resource::Pods, |key| is_copy(&key.name));
                if let Some(key) = copies.get(usize::try_from(*place).unwrap_or(0)) {
                    // It was there a moment ago.
                    let options = DeleteOptions::default();
                    let _ = self.cluster.server.delete(Actor::User, Resource::Pods, key, &options);
                }
            }
            Act::OfPod(place, id) => {
                let key = self.pod_key(*place);
                self.change_id(Resource::Pods, &key, *id);
            }
            Act::OfClaim(place, id) => {
                let claims = self.keys_of(Resource::Claims, |_| true);
                if let Some(key) = claims.get(usize::try_from(*place).unwrap_or(0)) {
                    self.change_id(Resource::Claims, key, *id);
                }
            }
        }
    }

    fn keys_of(&self, resource: Resource, fits: impl Fn(&ObjectKey) -> bool) -> Vec<ObjectKey> {
        let all = tenants::all(&self.cluster.server, resource);
        let keys = all.filter_map(|s| s.object.as_ref().map(|o| o.meta().key.clone()));
        keys.filter(fits).collect()
    }

    fn change_id(&mut self, resource: Resource, key: &ObjectKey, id: Id) {
        let text = match id {
            Id::Missing => None,
            Id::Empty => Some(String::new()),
            Id::Unknown => Some("zzzzz".to_owned()),
            Id::Own => key.name.rsplit_once('-').map(|(_, id)| id.to_owned()),
            Id::OfPod(place) => {
                let pod = self.cluster.server.get(Resource::Pods, &self.pod_key(place));
                match pod.and_then(|s| s.object.as_ref()) {
                    Some(Object::Pod(pod)) => pod.label(INSTANCE_ID).map(str::to_owned),
                    _ => return,
                }
            }
        };
        self.edit(resource, key, &json!({"metadata": {"labels": {INSTANCE_ID: text}}}));
    }

    /// What says where and since when a pod runs does not go into the copy, and no uid.
    fn copy_pod(&mut self, place: i64, is_owned: bool) {
        let Some(stored) = self.cluster.server.get(Resource::Pods, &self.pod_key(place)) else {
            return;
        };
        let original = stored.value();
        let mut metadata = json!({"namespace": "ns", "name": format!("{COPY}{}", self.now_ms)});
        for field in ["labels", "annotations", "ownerReferences", "finalizers"] {
            if let Some(found) = original["metadata"]
                .get(field)
                .filter(|_| is_owned || field != "ownerReferences")
            {
                metadata[field] = found.clone();
            }
        }
        // What its node does not give the original is no matter of the copy.
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(crate::resizes::WISH);
        }
        let mut spec = original["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.remove("nodeName");
        }
        let copy: Value = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        // What admission refuses is a copy less.
        let _ = self.cluster.server.create(Actor::User, Resource::Pods, copy);
    }
}
