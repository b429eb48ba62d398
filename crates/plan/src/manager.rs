//! The engine's core with the real controllers, driven without any fault: what it asks is answered at once, what happens it is told
//! at once.

use flotilla_controllers::cloneset::Defaults;
use flotilla_engine::core::request::Answer;
use flotilla_engine::core::{Core, CoreOptions, Effect, WatchEvent};
use flotilla_model::{
    Change, Controller, Decision, ObjectKey, PassContext, Reader, Resource, SetKind, Timestamp, Wait,
};
use flotilla_sim::Cluster;
use flotilla_sim::server::Actor;
use flotilla_sim::service::{event_of, perform};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Rounds of questions and answers in one moment, at most: a core that never comes to rest is not to hang a command.
const ROUNDS_MAX: usize = 100_000;

/// Waits by set.
type Known = BTreeMap<(SetKind, ObjectKey), Vec<Wait>>;

/// What the controllers said last that they wait for.
#[derive(Clone, Debug, Default)]
struct Waits {
    // Controllers may be shared between threads, and so is what they hold, though here there is but one.
    known: Arc<Mutex<Known>>,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A controller whose reasons are remembered.
struct Witnessed {
    inner: Box<dyn Controller>,
    kind: SetKind,
    waits: Waits,
}

impl Controller for Witnessed {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn resource(&self) -> Resource {
        self.inner.resource()
    }

    fn route(&self, change: &Change, reader: &dyn Reader, keys: &mut Vec<ObjectKey>) {
        self.inner.route(change, reader, keys);
    }

    fn reconcile(&self, reader: &dyn Reader, key: &ObjectKey, context: PassContext<'_>) -> Option<Decision> {
        let decision = self.inner.reconcile(reader, key, context);
        let waits = decision.as_ref().map(|d| d.waits.clone()).unwrap_or_default();
        self.waits.lock().insert((self.kind, key.clone()), waits);
        decision
    }
}

/// The manager.
pub(crate) struct Manager {
    core: Core,
    waits: Waits,
    /// Up to which version each kind has been told.
    cursors: BTreeMap<Resource, u64>,
}

impl Manager {
    /// A manager of all kinds of sets that begins now, and decides so for all CloneSets.
    pub(crate) fn new(now: Timestamp, clones: Defaults) -> Self {
        let waits = Waits::default();
        let options = CoreOptions {
            resources: vec![
                Resource::NativeSets,
                Resource::AdvancedSets,
                Resource::CloneSets,
                Resource::Nodes,
                Resource::Pods,
                Resource::Claims,
                Resource::Revisions,
                Resource::StorageClasses,
            ],
            // There is nobody else.
            lease: None,
            observation_period: Duration::ZERO,
            ..CoreOptions::new("plan")
        };
        let controllers = [SetKind::Native, SetKind::Advanced, SetKind::Clone].map(|kind| {
            let controller: Box<dyn Controller> = Box::new(Witnessed {
                inner: flotilla_controllers::of_kind(kind, clones),
                kind,
                waits: waits.clone(),
            });
            controller
        });
        Manager {
            core: Core::new(options, controllers.into(), now),
            waits,
            cursors: BTreeMap::new(),
        }
    }

    /// Lets the manager do everything that needs no time to pass.
    pub(crate) fn drive(&mut self, cluster: &mut Cluster) {
        for _ in 0..ROUNDS_MAX {
            let now = cluster.now();
            self.tell(cluster);
            self.core.advance(now);
            let effects = self.core.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::List(resource) => self.list(cluster, resource),
                    Effect::Send(request) => {
                        let may_send = self.core.may_send(&request.call, now);
                        let answer = if may_send {
                            perform(&mut cluster.server, Actor::Manager(0), &nobody(), &request.call)
                        } else {
                            Answer::Fenced
                        };
                        cluster.react();
                        self.core.answer(request.id, answer, now);
                    }
                }
            }
        }
    }

    fn list(&mut self, cluster: &Cluster, resource: Resource) {
        let now = cluster.now();
        self.core.watch(WatchEvent::ListBegan(resource, now), now);
        for object in cluster.server.all(resource).filter_map(|s| s.object.clone()) {
            self.core.watch(WatchEvent::Listed(object), now);
        }
        let version = cluster.server.version();
        self.core.watch(WatchEvent::ListEnded(resource, version), now);
        self.cursors.insert(resource, version);
    }

    /// Tells what has happened.
    fn tell(&mut self, cluster: &Cluster) {
        let now = cluster.now();
        let mut old = Vec::new();
        for (resource, cursor) in &mut self.cursors {
            let Ok(news) = cluster.server.told(*resource, *cursor) else {
                old.push(*resource);
                continue;
            };
            for told in news {
                *cursor = told.version();
                self.core.watch(event_of(*resource, told), now);
            }
        }
        for resource in old {
            self.list(cluster, resource);
        }
    }

    /// When it has something to do by itself.
    pub(crate) fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        self.core.next_wake(now)
    }

    /// What a set waits for, as its controller said last.
    pub(crate) fn waits(&self, kind: SetKind, key: &ObjectKey) -> Vec<Wait> {
        self.waits.lock().get(&(kind, key.clone())).cloned().unwrap_or_default()
    }
}

/// There is no election, and so no lease.
fn nobody() -> ObjectKey {
    ObjectKey::new("", "")
}
