//! Flotilla's own webhooks, where a schedule has them. They fill in and validate what users say of the set, and complete pods, before
//! it is stored. While they are away everything is stored as it comes: they are registered to be left out then.

use crate::defect::Defect;
use crate::judge::Violation;
use crate::run::World;
use crate::schedule::{BUSY_MS, Fault, FaultKind, Item, Wanted, What};
use crate::switches::are_spoiled;
use crate::tenants;
use fastrand::Rng;
use flotilla_admission::{
    Counted, CustomResource, Found, Memory, NamedPod, Operation, Reply, Request, RevisionInUse, StorageAsked, Verdict,
    apply, mutate, mutate_pod, validate,
};
use flotilla_apimachinery::patch::merge_patch;
use flotilla_engine::wire::Object;
use flotilla_model::decision::Body;
use flotilla_model::{ObjectKey, PodRecord, Resource, SetKind};
use flotilla_sim::server::{Actor, Server, Status, Stored};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the webhook's process knows of pods and revisions: all there is.
struct Cache<'a> {
    server: &'a Server,
    defect: Option<Defect>,
}

impl Memory for Cache<'_> {
    fn storage_class_expands(&self, _: &str) -> Found<bool> {
        Found::Unknown
    }

    fn default_class_expands(&self) -> Found<bool> {
        Found::Unknown
    }

    fn active_pods_in(&self, _: &str) -> Option<usize> {
        None
    }

    fn bound_claims_in(&self, _: &str) -> Option<usize> {
        None
    }

    fn active_objects(&self, _: &CustomResource<'_>) -> Counted {
        Counted::Unknown
    }

    /// Only CloneSets name pods, and they have no webhook here.
    fn named_pod(&self, _: &str, _: &str, _: &str) -> Found<NamedPod> {
        Found::Unknown
    }

    fn labels_with_hashes(&self) -> bool {
        false
    }

    fn storage_asked(&self, namespace: &str, set: &str, template: &str) -> Option<StorageAsked> {
        if self.defect == Some(Defect::RefuseShrink) {
            return Some(StorageAsked::default());
        }
        let key = ObjectKey::new(namespace, set);
        let uid = self
            .server
            .get(Resource::AdvancedSets, &key)?
            .object
            .as_ref()?
            .meta()
            .uid
            .clone();
        let own = tenants::all(self.server, Resource::Revisions).filter_map(|s| match &s.object {
            Some(Object::Revision(revision)) if revision.meta.is_controlled_by(&uid) => Some(revision),
            _ => None,
        });
        let forgets = self.defect == Some(Defect::ForgetSizes);
        let recorded = own.flat_map(|revision| {
            let mut revision = (**revision).clone();
            revision.claim_sizes = revision.claim_sizes.filter(|_| !forgets);
            revision.sizes_asked(template).collect::<Vec<_>>()
        });
        let prefix = format!("{template}-{set}-");
        let claims = tenants::all(self.server, Resource::Claims).filter_map(|s| match &s.object {
            Some(Object::Claim(claim)) if claim.meta.key.name.starts_with(&prefix) => Some(claim.requested_bytes),
            _ => None,
        });
        Some(StorageAsked {
            recorded: recorded.collect(),
            smallest_claim: claims.min().filter(|_| self.defect != Some(Defect::ForgetSmallClaims)),
        })
    }

    fn revisions_in_use(&self, namespace: &str, set: &str) -> Option<Vec<RevisionInUse>> {
        let set = self
            .server
            .get(Resource::AdvancedSets, &ObjectKey::new(namespace, set))?;
        let uid = &set.object.as_ref()?.meta().uid;
        let pods = tenants::all(self.server, Resource::Pods).filter_map(|s| match &s.object {
            Some(Object::Pod(pod)) if pod.meta.is_controlled_by(uid) => Some(pod),
            _ => None,
        });
        let names: BTreeSet<ObjectKey> = pods
            .filter_map(|pod: &Arc<PodRecord>| Some(pod.meta.key.sibling(pod.revision()?)))
            .collect();
        let in_use = |key: &ObjectKey| match &self.server.get(Resource::Revisions, key)?.object {
            Some(Object::Revision(revision)) => Some(RevisionInUse {
                name: Arc::from(key.name.as_str()),
                template: revision.template.as_ref()?.tree(),
            }),
            _ => None,
        };
        Some(names.iter().filter_map(in_use).collect())
    }
}

/// A request about an object in the namespace of the run.
fn request<'a>(
    (group, version, kind): (&'a str, &'a str, &'a str),
    old: Option<&'a Value>,
    new: &'a Value,
) -> Request<'a> {
    Request {
        uid: "",
        operation: if old.is_some() {
            Operation::Update
        } else {
            Operation::Create
        },
        group,
        version,
        kind,
        namespace: "ns",
        name: new
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default(),
        object: Some(new),
        old_object: old,
        dry_run: false,
    }
}

/// The object after what a webhook says of it, or why it is refused.
fn after(object: &Value, reply: Reply) -> Result<Value, String> {
    match reply.verdict {
        Verdict::Allow => Ok(object.clone()),
        Verdict::Deny(refusal) => Err(refusal.message),
        Verdict::Mutate(operations) => apply(object, &operations).ok_or_else(|| format!("{operations:?} do not fit")),
    }
}

impl World {
    /// Whether the webhooks answer.
    fn webhook_answers(&self) -> bool {
        self.schedule.has_webhook && self.now_ms >= self.webhook_away_until_ms
    }

    /// A user changes the set, or makes it, if `old` is not there. What users do here is always right, so nothing of it may be refused, but
    /// a template of which no API server would accept a pod.
    pub(crate) fn store_set(&mut self, old: Option<&Value>, new: Value) {
        let is_spoiled = Self::breaks_template(old, &new) || are_spoiled(old, &new);
        let value = match self.admitted_set(old, &new) {
            Ok(_) if self.webhook_answers() && is_spoiled => {
                let what = "a template of which no API server accepts a pod, or an unreadable switch, is accepted";
                return self.fail(Err(Violation::new("STS-7.3 validation", what)));
            }
            Ok(value) => value,
            // An edit that is refused is an edit less.
            Err(_) if is_spoiled => return,
            Err(violation) => return self.fail(Err(violation)),
        };
        let (resource, server) = (self.schedule.set.kind.resource(), &mut self.cluster.server);
        // An edit that comes too late is an edit less.
        let _ = match old {
            Some(_) => server.update(Actor::User, resource, value),
            None => server.create(Actor::User, resource, value),
        };
    }

    /// The set with a merge patch.
    pub(crate) fn edit_set(&mut self, body: &Value) {
        let stored = self
            .cluster
            .server
            .get(self.schedule.set.kind.resource(), &Self::set_key());
        let Some(old) = stored.map(Stored::value) else { return };
        // A patch that does not fit is no edit.
        if let Ok(new) = merge_patch(&old, body) {
            self.store_set(Some(&old), new);
        }
    }

    fn admitted_set(&self, old: Option<&Value>, new: &Value) -> Result<Value, Violation> {
        if !self.webhook_answers() {
            return Ok(new.clone());
        }
        let refused =
            |why: String| Violation::new("STS-7.3 validation", format!("an edit by a user is refused: {why}"));
        let kind = ("apps.kruise.io", "v1beta1", "StatefulSet");
        let memory = Cache {
            server: &self.cluster.server,
            defect: self.defect,
        };
        let known = old.filter(|_| self.defect != Some(Defect::FillInEverything));
        let filled = after(new, mutate(&request(kind, known, new), &memory)).map_err(refused)?;
        let template = |set: &Value| set.pointer("/spec/template").cloned();
        if old.is_some_and(|old| template(old) == template(new)) && template(new) != template(&filled) {
            let what = "a template that its user does not touch is filled in".to_owned();
            return Err(Violation::new("STS-7.2 defaults", what));
        }
        after(&filled, validate(&request(kind, old, &filled), &memory)).map_err(refused)
    }

    /// A manager makes a pod of an Advanced set.
    pub(crate) fn store_pod(&mut self, actor: Actor, body: &Body) -> Result<Stored, Status> {
        let mut pod = body.render();
        self.takers_change(&mut pod);
        if self.webhook_answers() {
            let reply = mutate_pod(
                &request(("", "v1", "Pod"), None, &pod),
                &Cache {
                    server: &self.cluster.server,
                    defect: self.defect,
                },
            );
            pod = after(&pod, reply).map_err(|why| flotilla_sim::server::refusal(422, "Invalid", why))?;
        }
        self.cluster.server.create(actor, Resource::Pods, pod)
    }
}

/// When Flotilla's webhooks are away, if there are any: often from the beginning on. By luck of its own, so that everything else of a seed
/// is the same with and without them.
pub(crate) fn absences(seed: u64, wanted: &Wanted, kind: SetKind) -> Option<Vec<Item>> {
    let mut rng = Rng::with_seed(seed ^ 0x00ad_3175);
    let by_chance = wanted.faults.is_empty() && rng.u8(0..3) == 0;
    let is_there = by_chance || wanted.faults.contains(&FaultKind::Webhook);
    let mut away = || Item {
        at_ms: if rng.bool() { 0 } else { rng.u64(0..BUSY_MS) },
        what: What::Fault(Fault::Away([3_000, 15_000, 40_000][rng.usize(0..3)])),
        seed: 0,
    };
    let items = (0..2).map(|_| away()).collect();
    (is_there && kind == SetKind::Advanced).then_some(items)
}
