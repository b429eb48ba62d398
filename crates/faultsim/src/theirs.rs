//! What others have on claims: finalizers and owners of their own, which come and go, and requests that somebody raises by hand; and users
//! who change the storage class of claim templates.
//!
//! By luck of its own: everything else of a seed is the same with and without it.

use crate::asks::{by_users, comes};
use crate::judge::{Verdict, require};
use crate::run::World;
use crate::schedule::{FaultKind, Item, SetPlan, UserAct, Wanted};
use crate::tenants;
use fastrand::Rng;
use flotilla_engine::wire::Object;
use flotilla_model::{Command, Decision, ObjectKey, OwnerRef, Reader, Resource, SetKind};
use flotilla_sim::server::Actor;
use serde_json::{Value, json};

/// Their finalizer.
const FINALIZER: &str = "example.com/backup";
/// The kind and the name of their owner.
const OWNER: (&str, &str) = ("ConfigMap", "backup");

/// What others do to the nth claim, or users to the templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Put their finalizer on it, or take it off.
    Hold(i64, bool),
    /// Name their own object as one of its owners, or not any more.
    Own(i64, bool),
    /// Ask for so many Gi by hand.
    Raise(i64, u64),
    /// Another storage class for claims to come.
    Class(bool),
}

/// When they do so, if claims do not grow with their templates.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted, set: &mut SetPlan) -> Vec<Item> {
    let mut rng = Rng::with_seed(seed ^ 0x7e11_5c1a);
    let is_asked_for = wanted.faults.contains(&FaultKind::Claims);
    if !comes(&mut rng, wanted, FaultKind::Claims, 4) || !(set.claims || is_asked_for) {
        return Vec::new();
    }
    set.claims = true;
    // Native sets do not let anybody change their templates, and growth is asked for by them.
    let may_change_class = set.kind != SetKind::Native && set.storage.is_none();
    let act = |rng: &mut Rng| {
        let place = rng.i64(0..8);
        match rng.u8(0..9) {
            0..=2 => Act::Hold(place, rng.u8(0..3) > 0),
            3..=5 => Act::Own(place, rng.u8(0..3) > 0),
            8 if may_change_class => Act::Class(rng.bool()),
            _ => Act::Raise(place, rng.u64(2..5)),
        }
    };
    let acts: Vec<Act> = (0..rng.usize(1..7)).map(|_| act(&mut rng)).collect();
    let acts = acts.into_iter();
    acts.map(|act| by_users(&mut rng, UserAct::Claim(act))).collect()
}

/// Whether an owner of a claim is theirs.
pub(crate) fn is_theirs(owner: &OwnerRef) -> bool {
    *owner.kind == *OWNER.0
}

/// What of a claim is theirs.
fn theirs(claim: &Value) -> (bool, bool) {
    let has = |field: &str, fits: &dyn Fn(&Value) -> bool| {
        let list = claim["metadata"][field].as_array();
        list.is_some_and(|list| list.iter().any(fits))
    };
    (
        has("finalizers", &|finalizer| finalizer == FINALIZER),
        has("ownerReferences", &|owner| owner["kind"] == OWNER.0),
    )
}

/// What a manager writes to a claim leaves alone what others have there (STS-1.4.4 and CS-15.5).
pub(crate) fn stay(before: &Value, after: &Value) -> Verdict {
    require(theirs(before) == theirs(after), "STS-1.4.4 what others have", || {
        let name = &after["metadata"]["name"];
        format!("a finalizer or an owner that others have put on claim {name} is taken away")
    })
}

/// No claim is asked to shrink, whoever asked for so much (STS-3.9, R-35).
pub(crate) fn nothing_shrinks(reader: &dyn Reader, decision: &Decision) -> Verdict {
    for scoped in decision.commands() {
        let Command::Patch {
            resource: Resource::Claims,
            key,
            body,
            ..
        } = &scoped.command
        else {
            continue;
        };
        let asked = size_of(body);
        let has = reader.claim(key).map_or(0, |claim| claim.requested_bytes);
        require(asked.is_none_or(|asked| asked >= has), "STS-3.9 growth", || {
            format!("claim {} is asked to shrink from {has} to {asked:?}", key.name)
        })?;
    }
    Ok(())
}

/// What a claim, or a patch of one, asks for.
fn size_of(claim: &Value) -> Option<u64> {
    let text = claim.pointer("/spec/resources/requests/storage")?.as_str()?;
    flotilla_model::template::parse_bytes(text)
}

impl World {
    fn claims(&self) -> impl Iterator<Item = (ObjectKey, Value)> {
        tenants::all(&self.cluster.server, Resource::Claims).filter_map(|s| {
            let key = s.object.as_ref().map(Object::meta)?.key.clone();
            key.name.starts_with("data-web-").then(|| (key, (*s.value()).clone()))
        })
    }

    fn claim_in_place(&self, place: i64) -> Option<(ObjectKey, Value)> {
        self.claims().nth(usize::try_from(place).unwrap_or(0))
    }

    /// Others act on a claim.
    pub(crate) fn act_on_claims(&mut self, act: Act) {
        match act {
            Act::Hold(place, holds) => self.change_list(place, "finalizers", &json!(FINALIZER), holds),
            Act::Own(place, owns) => {
                let owner = self.their_owner();
                self.change_list(place, "ownerReferences", &owner, owns);
            }
            Act::Raise(place, gi) => {
                let Some((key, claim)) = self.claim_in_place(place) else {
                    return;
                };
                if size_of(&claim).is_none_or(|size| size < gi << 30) {
                    let requests = json!({"storage": format!("{gi}Gi")});
                    self.edit(
                        Resource::Claims,
                        &key,
                        &json!({"spec": {"resources": {"requests": requests}}}),
                    );
                }
            }
            Act::Class(is_fast) => self.change_class(if is_fast { "fast" } else { "slow" }),
        }
    }

    /// Their object, which there is as long as anything goes on.
    fn their_owner(&mut self) -> Value {
        let key = ObjectKey::new("ns", OWNER.1);
        if self.cluster.server.get(Resource::ConfigMaps, &key).is_none() {
            let body = json!({
                "apiVersion": "v1", "kind": OWNER.0, "metadata": {"name": OWNER.1, "namespace": "ns"},
            });
            // There is none of this name.
            let _ = self.cluster.server.create(Actor::User, Resource::ConfigMaps, body);
        }
        let stored = self.cluster.server.get(Resource::ConfigMaps, &key);
        let uid = stored.map_or(Value::Null, |s| s.value()["metadata"]["uid"].clone());
        json!({"apiVersion": "v1", "kind": OWNER.0, "name": OWNER.1, "uid": uid})
    }

    fn change_list(&mut self, place: i64, field: &str, entry: &Value, is_there: bool) {
        if let Some((key, claim)) = self.claim_in_place(place) {
            self.change_list_of(&key, &claim, (field, entry), is_there);
        }
    }

    fn change_list_of(&mut self, key: &ObjectKey, claim: &Value, (field, entry): (&str, &Value), is_there: bool) {
        let list = claim["metadata"][field].as_array().cloned().unwrap_or_default();
        let mut list: Vec<Value> = list.into_iter().filter(|known| known != entry).collect();
        if is_there {
            list.push(entry.clone());
        }
        self.edit(Resource::Claims, key, &json!({"metadata": {field: list}}));
    }

    fn change_class(&mut self, class: &str) {
        let resource = self.schedule.set.kind.resource();
        let set = self.cluster.server.get(resource, &Self::set_key());
        let templates = set.and_then(|s| s.value().pointer("/spec/volumeClaimTemplates").cloned());
        if let Some(mut templates) = templates.filter(|templates| templates[0].is_object()) {
            templates[0]["spec"]["storageClassName"] = json!(class);
            self.edit(
                resource,
                &Self::set_key(),
                &json!({"spec": {"volumeClaimTemplates": templates}}),
            );
        }
    }

    /// Whoever is told that a claim on its way out is waited for lets it go.
    pub(crate) fn others_let_go(&mut self, claim: &ObjectKey) {
        let Some(stored) = self.cluster.server.get(Resource::Claims, claim) else {
            return;
        };
        let value = stored.value().as_ref().clone();
        let finalizers = value["metadata"]["finalizers"].as_array();
        if finalizers.is_some_and(|all| all.contains(&json!(FINALIZER))) {
            self.change_list_of(claim, &value, ("finalizers", &json!(FINALIZER)), false);
        }
    }
}
