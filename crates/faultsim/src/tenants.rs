//! Somebody with every right in a namespace of his own, who names the set as the owner of what he stores there: its UID stands in each of
//! its pods, and anybody who sees one knows it. Nothing of that concerns the set.
//!
//! At the same time a neighbour of the set, with the same selector and the same template, is deleted and leaves its revision to nobody: it
//! will look for it when it is made again.

use crate::run::World;
use crate::schedule::{BUSY_MS, FaultKind, Item, UserAct, Wanted, What};
use fastrand::Rng;
use flotilla_model::{Meta, Owner, Resource, SetRecord};
use flotilla_sim::server::{Actor, Server, Stored};
use serde_json::{Value, json};

/// His namespace.
pub(crate) const ELSEWHERE: &str = "elsewhere";
/// What the neighbour's revision is called.
const NEIGHBOURS: &str = "blue-5d74cb7549";

/// When he does so; by luck of its own.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x0b01_e15e);
    let by_chance = wanted.faults.is_empty() && rng.u8(0..16) == 0;
    if !by_chance && !wanted.faults.contains(&FaultKind::Tenants) {
        return Vec::new();
    }
    let mut one = || Item {
        at_ms: rng.u64(0..BUSY_MS),
        what: What::User(UserAct::NameOwner(rng.i64(0..6))),
        seed: 0,
    };
    (0..4).map(|_| one()).collect()
}

/// What there is of a kind, but for what is his, or the neighbour's.
pub(crate) fn all(server: &Server, resource: Resource) -> impl Iterator<Item = &Stored> {
    server.all(resource).filter(|stored| {
        let meta = stored.object.as_ref().map(flotilla_engine::wire::Object::meta);
        meta.is_none_or(|meta| &*meta.key.namespace != ELSEWHERE && !is_neighbours(meta))
    })
}

/// Whether it is what the neighbour has left.
pub(crate) fn is_neighbours(meta: &Meta) -> bool {
    meta.key.name == NEIGHBOURS
}

/// The set as the owner that he names.
pub(crate) fn as_named(set: &SetRecord) -> Owner<'_> {
    Owner {
        namespace: ELSEWHERE,
        ..set.as_owner()
    }
}

impl World {
    /// He stores a pod under the name of one of the set's, a revision that is newer than all of them, and a claim. The neighbour's revision is
    /// newer than all as well.
    pub(crate) fn name_owner(&mut self, ordinal: i64) {
        let resource = self.schedule.set.kind.resource();
        let Some(set) = self.cluster.server.get(resource, &Self::set_key()) else {
            return;
        };
        let set = set.value();
        let (version, kind) = (resource.api_version(), resource.kind());
        let owners = json!([{
            "apiVersion": version, "kind": kind, "name": "web", "uid": set["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true,
        }]);
        let name = self.pod_key(ordinal).name.to_string();
        let meta = |name: &str| {
            let labels = &set["spec"]["template"]["metadata"]["labels"];
            json!({"namespace": ELSEWHERE, "name": name, "labels": labels, "ownerReferences": owners})
        };
        let container = json!({"name": "main", "image": "evil:v1"});
        let mut template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta(&name), "spec": template["spec"]});
        template["$patch"] = json!("replace");
        let revision = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta("web-evil"), "revision": 1_000,
            "data": {"spec": {"template": template}},
        });
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta(&format!("data-{name}")),
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        let mut template = set["spec"]["template"].clone();
        let labels = template["metadata"]["labels"].clone();
        template["$patch"] = json!("replace");
        let left = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1_000,
            "metadata": {"namespace": set["metadata"]["namespace"], "name": NEIGHBOURS, "labels": labels},
            "data": {"spec": {"template": template}},
        });
        self.store_for_others(Resource::Pods, pod);
        self.store_for_others(Resource::Revisions, revision);
        self.store_for_others(Resource::Claims, claim);
        self.store_for_others(Resource::Revisions, left);
    }

    fn store_for_others(&mut self, resource: Resource, object: Value) {
        // What is there already is theirs, too.
        let _ = self.cluster.server.create(Actor::User, resource, object);
    }
}
