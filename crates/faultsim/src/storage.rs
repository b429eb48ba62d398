//! Sets whose volumes grow, and webhooks of others that change what pods mount.

use crate::judge::{Verdict, require};
use crate::run::World;
use crate::schedule::{BUSY_MS, Fault, FaultKind, Item, SetPlan, UserAct, Wanted, What};
use crate::tenants;
use fastrand::Rng;
use flotilla_engine::wire::Object;
use flotilla_model::set::{ClaimTemplate, PodUpdatePolicy};
use flotilla_model::{ClaimRecord, ObjectKey, PodRecord, Resource, SetKind, SetRecord, Timestamp};
use flotilla_sim::server::{Actor, Server};
use flotilla_sim::volumes::FileSystems;
use serde_json::{Value, json};
use std::time::Duration;

/// The storage class of growing claims.
pub(crate) const CLASS: &str = "disks";
/// What claims ask for at first.
const FIRST_GI: u64 = 1;
const GI: u64 = 1 << 30;
/// With InPlaceIfPossible, a file system has so long to grow by itself (STS-3.9).
const GROWS_MOUNTED_WITHIN: Duration = Duration::from_secs(300);

/// What the driver of the volumes can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// File systems of mounted volumes grow by themselves, so many milliseconds after the volume.
    Online(u64),
    /// They grow when they are mounted.
    Offline,
    /// The storage class allows no growth.
    Fixed,
}

impl Storage {
    /// What a manifest says of growth, whatever the driver.
    pub(crate) fn complete(set: &mut Value) {
        set["spec"]["volumeClaimUpdateStrategy"] = json!({"type": "OnPodRollingUpdate"});
        set["spec"]["volumeClaimTemplates"] = templates(FIRST_GI);
    }
}

fn templates(gi: u64) -> Value {
    json!([{
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
            "resources": {"requests": {"storage": format!("{gi}Gi")}},
        },
    }])
}

/// What of a seed concerns storage, if anything does, by luck of its own: everything else of the seed is the same with and without it.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x0005_70a6);
    let is_asked_for = wanted.faults.contains(&FaultKind::Storage);
    let by_chance = wanted.faults.is_empty() && set.claims && !set.on_delete && rng.bool();
    if set.kind != SetKind::Advanced || !(is_asked_for || by_chance) {
        return Vec::new();
    }
    (set.claims, set.on_delete) = (true, false);
    set.storage = Some(match rng.u8(0..5) {
        0 | 1 => Storage::Online(rng.u64(500..60_000)),
        2 | 3 => Storage::Offline,
        _ => Storage::Fixed,
    });
    let mut items = back_and_forth(seed, is_asked_for);
    for _ in 0..rng.usize(1..5) {
        let what = match rng.u8(0..6) {
            0 | 1 => What::Fault(Fault::Volumes(rng.bool(), [3_000, 15_000, 40_000][rng.usize(0..3)])),
            2 => What::User(UserAct::MarkClaim(rng.i64(0..6))),
            _ => What::User(UserAct::Storage(rng.u64(1..4))),
        };
        items.push(Item {
            at_ms: rng.u64(0..BUSY_MS),
            what,
            seed: 0,
        });
    }
    items
}

/// Users grow volumes twice, and go back; now and then another manager has made the revision, which records nothing of claims.
fn back_and_forth(seed: u64, is_asked_for: bool) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0xbac4_f047);
    if rng.u8(0..if is_asked_for { 2 } else { 8 }) > 0 {
        return Vec::new();
    }
    let mut acts = Vec::new();
    if rng.bool() {
        acts.push(UserAct::ForgetClaims);
    }
    acts.extend([2, 3, rng.u64(1..3)].map(UserAct::Storage));
    let mut at_ms = rng.u64(0..4_000);
    let item = |act| {
        at_ms += rng.u64(3_000..18_000);
        Item {
            at_ms: at_ms.min(BUSY_MS - 1),
            what: What::User(act),
            seed: 0,
        }
    };
    acts.into_iter().map(item).collect()
}

/// What claims of the set ask for.
fn claims(server: &Server) -> impl Iterator<Item = &ClaimRecord> {
    tenants::all(server, Resource::Claims).filter_map(|s| match &s.object {
        Some(Object::Claim(claim)) if claim.meta.key.name.starts_with("data-web-") => Some(&**claim),
        _ => None,
    })
}

impl World {
    /// What there is before anything happens.
    pub(crate) fn prepare_storage(&mut self) {
        let Some(storage) = self.schedule.set.storage else {
            return;
        };
        let body = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
            "provisioner": "disks.example.com", "allowVolumeExpansion": storage != Storage::Fixed,
        });
        // The first of its name; so are those below.
        let _ = self.cluster.server.create(Actor::User, Resource::StorageClasses, body);
        self.cluster.file_systems = match storage {
            Storage::Online(after_ms) => FileSystems::Online(after_ms),
            Storage::Offline => FileSystems::AtMount,
            Storage::Fixed => FileSystems::AtOnce,
        };
        let logs = (0..24).map(|ordinal| format!("logs-web-{ordinal}"));
        for name in logs.chain(["swapped".to_owned()]) {
            let body = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "ns"},
                "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
            });
            let _ = self.cluster.server.create(Actor::User, Resource::Claims, body);
        }
    }

    /// Whether no file system is about to grow by itself: its end is news, also of a pod that the partition keeps as it is.
    pub(crate) fn volumes_are_at_rest(&self) -> Result<(), String> {
        if !matches!(self.schedule.set.storage, Some(Storage::Online(_))) {
            return Ok(());
        }
        let server = &self.cluster.server;
        let mut mounted = tenants::all(server, Resource::Pods).filter_map(|s| match &s.object {
            Some(Object::Pod(pod)) => Some(format!("data-{}", pod.name())),
            _ => None,
        });
        // One on its way out does not grow any more.
        let is_due = |c: &ClaimRecord| c.meta.deleted.is_none() && c.capacity_bytes < c.requested_bytes;
        let grows = |name: &String| claims(server).any(|c| *c.meta.key.name == **name && is_due(c));
        match mounted.find(grows) {
            Some(claim) => Err(format!("the file system of claim {claim} grows")),
            None => Ok(()),
        }
    }

    /// The revisions that are there are those of a manager that records nothing of claims.
    pub(crate) fn forget_claims(&mut self) {
        let items = &self.schedule.items;
        if items
            .iter()
            .any(|item| matches!(item.what, What::User(UserAct::ClaimTemplate(_))))
        {
            // What was left over of former templates would be nobody's.
            return;
        }
        let revisions = tenants::all(&self.cluster.server, Resource::Revisions);
        let keys = revisions.filter_map(|s| s.object.as_ref().map(|o| o.meta().key.clone()));
        let nothing = json!({"flotilla.rs/claim-templates": null, "flotilla.rs/claim-sizes": null});
        for key in keys.collect::<Vec<_>>() {
            self.edit(
                Resource::Revisions,
                &key,
                &json!({"metadata": {"annotations": nothing}}),
            );
        }
        self.judge.asked.clear();
    }

    /// Users ask for so much storage. They go back only to what R-35 lets them go back to, and nobody may refuse that: what a recorded
    /// revision, or each claim before it grew, had asked for, and whatever is not below the smallest claim.
    pub(crate) fn ask_for_storage(&mut self, gi: u64) {
        let set = self.cluster.server.get(Resource::AdvancedSets, &Self::set_key());
        let Some(Object::Set(set)) = set.and_then(|s| s.object.clone()) else {
            return;
        };
        let asks = set
            .spec
            .claim_templates
            .first()
            .and_then(|t| t.requested_bytes)
            .unwrap_or(0);
        let smallest = claims(&self.cluster.server).map(|c| c.requested_bytes).min();
        let is_recorded = self.judge.asked.has(&self.cluster.server, &set, gi * GI);
        let is_back = smallest.is_some_and(|smallest| smallest <= gi * GI) || is_recorded;
        if gi * GI < asks && !is_back {
            return;
        }
        let body = json!({"spec": {"volumeClaimTemplates": templates(gi)}});
        self.edit(Resource::AdvancedSets, &Self::set_key(), &body);
    }

    /// Somebody marks a claim with what is his own.
    pub(crate) fn mark_claim(&mut self, ordinal: i64) {
        let name = format!("data-web-{ordinal}");
        let body = json!({"metadata": {"labels": {"theirs": "yes"}, "annotations": {"theirs": "yes"}}});
        self.edit(Resource::Claims, &ObjectKey::new("ns", name), &body);
    }

    /// Where the class allows no growth, users go back at the end to what claims have: they are told why it does not go on.
    pub(crate) fn users_take_growth_back(&mut self) {
        if self.schedule.set.storage != Some(Storage::Fixed) {
            return;
        }
        let smallest = claims(&self.cluster.server).map(|c| c.requested_bytes / GI).min();
        self.ask_for_storage(smallest.unwrap_or(FIRST_GI).max(FIRST_GI));
    }

    /// Under InPlaceOnly nobody but users restarts a pod whose file system grows at the next mount, and they are told to.
    pub(crate) fn waits_for_restart(&self, pod: &PodRecord) -> bool {
        let key = pod.meta.key.sibling(format!("data-{}", pod.name()));
        let claim = self.cluster.server.get(Resource::Claims, &key);
        match claim.and_then(|s| s.object.as_ref()) {
            Some(Object::Claim(claim)) => claim.resize_pending_since.is_some_and(|since| pod.meta.created < since),
            _ => false,
        }
    }
}

/// Whether a claim has what its template asks for. One that asks for more counts as it is.
pub(crate) fn is_grown(claim: &ClaimRecord, template: &ClaimTemplate) -> bool {
    let wants = template.requested_bytes.unwrap_or(0);
    claim.requested_bytes >= wants && claim.capacity_bytes >= wants
}

/// Whether a set may make a pod again at a moment for a file system that has waited since (STS-3.9, R-16).
pub(crate) fn may_restart(set: &SetRecord, pod: &PodRecord, since: Timestamp, now: Timestamp) -> bool {
    let is_older = pod.meta.created < since;
    let is_due = match set.spec.pod_update_policy() {
        PodUpdatePolicy::ReCreate => true,
        PodUpdatePolicy::InPlaceIfPossible => now.since(since) >= GROWS_MOUNTED_WITHIN,
        PodUpdatePolicy::InPlaceOnly => false,
    };
    set.spec.expand_claims && is_older && is_due
}

/// What a manager writes to a claim leaves alone what others have there, and claims never shrink (STS-1.4.4 and STS-3.9, R-35).
pub(crate) fn claim_written(before: &Value, after: &Value) -> Verdict {
    let name = &after["metadata"]["name"];
    let theirs = |claim: &Value| {
        [
            &claim["metadata"]["labels"]["theirs"],
            &claim["metadata"]["annotations"]["theirs"],
        ]
        .map(Value::clone)
    };
    require(theirs(before) == theirs(after), "STS-1.4.4 what others have", || {
        format!("what others put on claim {name} is taken away")
    })?;
    let size = |claim: &Value| {
        let text = claim
            .pointer("/spec/resources/requests/storage")
            .and_then(Value::as_str);
        text.and_then(flotilla_model::template::parse_bytes)
    };
    require(size(after) >= size(before), "STS-3.9 growth", || {
        format!("claim {name} is asked to shrink")
    })
}
