//! Others who take each new pod of a set away, for a while: a webhook that changes the label by which the set finds it, somebody who gives it
//! another label or no owner, or who deletes it, as a taint does.
//!
//! The set would have enough pods if they lasted, so it makes others, and these go the same way. How many it makes is bounded: it gets
//! slower while what it makes does not last. They come only if they are asked for.

use crate::event::Event;
use crate::judge::{Verdict, require};
use crate::run::World;
use crate::schedule::{BUSY_MS, Fault, FaultKind, Item, UserAct, Wanted, What};
use fastrand::Rng;
use flotilla_model::{ObjectKey, Resource, SetRecord, Uid};
use flotilla_sim::server::{Actor, DeleteOptions, Entry};
use serde_json::{Value, json};

/// How pods are taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// A webhook gives them another label when they are made.
    Webhook,
    /// They get another label.
    Relabel,
    /// They get another label, and lose their owner.
    Disown,
    /// They are deleted, at once or after their grace period.
    Delete(bool),
}

/// Somebody who does so, until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taker {
    way: Taking,
    after_ms: u64,
    until_ms: u64,
}

/// When they are about; by luck of its own.
pub(crate) fn by_chance(seed: u64, wanted: &Wanted) -> Vec<Item> {
    if !wanted.faults.contains(&FaultKind::Takers) {
        return Vec::new();
    }
    let mut rng = Rng::with_seed(seed ^ 0x7a_4e25);
    let way = [
        Taking::Webhook,
        Taking::Relabel,
        Taking::Disown,
        Taking::Delete(true),
        Taking::Delete(false),
    ][rng.usize(0..5)];
    let after_ms = [0, 0, 20, 1_000, 5_000][rng.usize(0..5)];
    let at_ms = rng.u64(0..BUSY_MS / 4);
    let fault = What::Fault(Fault::Takers(way, after_ms, [60_000, 180_000][rng.usize(0..2)]));
    // Something has to be made: also where the set was complete before.
    let scaled = What::User(UserAct::Scale(rng.i64(3..7)));
    [(at_ms, fault), (at_ms + 5_000, scaled)]
        .map(|(at_ms, what)| Item { at_ms, what, seed: 0 })
        .into()
}

/// How many pods of one generation of a set a manager may make in a minute: what is made before anybody can know that it does not last, and
/// then ever less, as the waits of half a second, one, two and so on allow, with as much again for what happens besides.
pub(crate) fn made_in_a_minute_max(set: &SetRecord) -> usize {
    let replicas = usize::try_from(set.spec.replicas).unwrap_or(0);
    40 + 20 * replicas
}

/// That a manager has not made too many pods lately.
pub(crate) fn are_few(made: usize, set: &SetRecord) -> Verdict {
    let most = made_in_a_minute_max(set);
    require(made <= most, "STS-8.5 churn", || {
        let wanted = set.spec.replicas;
        format!("{made} pods were made within a minute for a set of {wanted}; at most {most} may be")
    })
}

impl World {
    /// From now on, each new pod of the set is taken away.
    pub(crate) fn takers_come(&mut self, way: Taking, after_ms: u64, for_ms: u64) {
        self.taker = Some(Taker {
            way,
            after_ms,
            until_ms: self.now_ms + for_ms,
        });
    }

    fn taker(&self) -> Option<Taker> {
        self.taker.filter(|taker| self.now_ms < taker.until_ms)
    }

    /// What becomes of a pod that is about to be stored.
    pub(crate) fn takers_change(&self, pod: &mut Value) {
        if self.taker().is_some_and(|taker| taker.way == Taking::Webhook) {
            pod["metadata"]["labels"]["app"] = json!("taken");
        }
    }

    /// Something was written: if it is a new pod, it is taken away before long.
    pub(crate) fn takers_see(&mut self, entry: &Entry) {
        let Some(taker) = self.taker().filter(|_| entry.before.is_none()) else {
            return;
        };
        let new = entry.after.as_ref().and_then(|after| after.object.as_ref());
        if let Some(meta) = new.map(flotilla_engine::wire::Object::meta)
            && entry.resource.watched() == Some(Resource::Pods)
            && *meta.key.namespace == *Self::set_key().namespace
        {
            let event = Event::Take(meta.key.clone(), meta.uid.clone());
            self.plan(taker.after_ms, event);
        }
    }

    /// A pod is taken away.
    pub(crate) fn take_pod(&mut self, key: &ObjectKey, uid: &Uid) {
        let Some(taker) = self.taker() else { return };
        let is_there = |stored: &flotilla_sim::server::Stored| {
            stored.object.as_ref().is_some_and(|object| object.meta().uid == *uid)
        };
        if !self.cluster.server.get(Resource::Pods, key).is_some_and(is_there) {
            return;
        }
        let labels = json!({"app": "taken"});
        match taker.way {
            Taking::Webhook => {}
            Taking::Relabel => self.edit(Resource::Pods, key, &json!({"metadata": {"labels": labels}})),
            Taking::Disown => {
                let metadata = json!({"labels": labels, "ownerReferences": null});
                self.edit(Resource::Pods, key, &json!({"metadata": metadata}));
            }
            Taking::Delete(at_once) => {
                let options = DeleteOptions {
                    grace_seconds: at_once.then_some(0),
                    ..DeleteOptions::default()
                };
                // One that is on its way out already goes all the same.
                let _ = self.cluster.server.delete(Actor::User, Resource::Pods, key, &options);
            }
        }
    }
}
