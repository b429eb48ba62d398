//! How sets come to have three revisions: Flotilla's own core updates them, in simulated time, on a simulated cluster.
//!
//! What a manager finds settled is what a manager has left, so nothing here is written by hand: names and contents of revisions, notes of
//! updates in place and statuses are the controllers' own.

use super::template::{change_of_images, manifest};
use flotilla_controllers::cloneset::Defaults;
use flotilla_engine::core::{Core, CoreOptions, Effect, WatchEvent};
use flotilla_model::{Controller, ObjectKey, PatchKind, Resource, SetKind, Timestamp};
use flotilla_sim::Cluster;
use flotilla_sim::server::Actor;
use flotilla_sim::service::{event_of, perform};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// When nothing is due for so long, nothing will happen.
const QUIET: Duration = Duration::from_secs(300);
/// Steps after which a batch that has not come to rest never will.
const STEPS_MAX: usize = 200_000;

/// A set that is to be made.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) kind: SetKind,
    pub(super) key: ObjectKey,
    /// Its number, from which its template comes.
    pub(super) number: usize,
    /// One or none.
    pub(super) pods: usize,
    pub(super) template_bytes: usize,
}

/// Everything that belongs to one set, as it is at rest.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    pub(super) kind: SetKind,
    pub(super) key: ObjectKey,
    pub(super) set: Value,
    pub(super) revisions: Vec<Value>,
    pub(super) pods: Vec<Value>,
}

/// Makes the sets, brings them from revision to revision, and lets each come to rest.
///
/// # Panics
/// When one does not, or does not have as many revisions as are asked for: then nothing could be measured.
pub(super) fn settle(wanted: &[Wanted], revisions: usize, now: Timestamp) -> Vec<Settled> {
    let mut run = Run::new(now);
    for set in wanted {
        let mut body = manifest(set.kind, &set.key.name, set.number, set.pods, set.template_bytes);
        body["metadata"]["namespace"] = Value::from(&*set.key.namespace);
        let made = run.cluster.server.create(Actor::User, set.kind.resource(), body);
        made.unwrap_or_else(|why| panic!("creating {} in the simulation: {why}", set.key));
    }
    run.come_to_rest();
    for revision in 2..=revisions {
        for set in wanted {
            let change = change_of_images(set.number, revision);
            let patch = (PatchKind::Json, &change);
            let patched = run
                .cluster
                .server
                .patch(Actor::User, set.kind.resource(), &set.key, patch);
            patched.unwrap_or_else(|why| panic!("changing {} in the simulation: {why}", set.key));
        }
        run.come_to_rest();
    }
    let all = wanted.iter().map(|set| run.settled(set));
    all.inspect(|set| {
        let found = set.revisions.len();
        assert_eq!(found, revisions, "revisions of {} after it was updated", set.key);
        set.assert_updated_in_place(revisions);
    })
    .collect()
}

impl Settled {
    /// Makes sure that the pods have gone through all revisions, and were never made anew.
    fn assert_updated_in_place(&self, revisions: usize) {
        let newest = &self.set["status"]["updateRevision"];
        for pod in &self.pods {
            let (name, revision) = (
                &pod["metadata"]["name"],
                &pod["metadata"]["labels"]["controller-revision-hash"],
            );
            let is_newest = newest.as_str().zip(revision.as_str());
            assert!(
                is_newest.is_some_and(|(newest, revision)| newest.ends_with(revision)),
                "pod {name} is at revision {revision}, not at {newest}"
            );
            let containers = pod["status"]["containerStatuses"].as_array();
            let mut containers = containers.into_iter().flatten();
            assert!(
                containers.all(|container| container["restartCount"] == revisions - 1),
                "containers of pod {name} have not restarted once for each update: {}",
                pod["status"]
            );
        }
    }
}

/// A cluster and a core that looks after it.
struct Run {
    cluster: Cluster,
    core: Core,
    /// Up to which version each kind has been told.
    cursors: BTreeMap<Resource, u64>,
}

impl Run {
    fn new(now: Timestamp) -> Self {
        let options = CoreOptions {
            resources: vec![
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
            ..CoreOptions::new("bench")
        };
        let of_kind = |kind| flotilla_controllers::of_kind(kind, Defaults::default());
        let controllers: Vec<Box<dyn Controller>> = vec![of_kind(SetKind::Advanced), of_kind(SetKind::Clone)];
        Run {
            cluster: Cluster::new(1, now),
            core: Core::new(options, controllers, now),
            cursors: BTreeMap::new(),
        }
    }

    /// Lets time pass until nothing is left to happen.
    fn come_to_rest(&mut self) {
        self.cluster.react();
        for _ in 0..STEPS_MAX {
            let now = self.cluster.now();
            self.act(now);
            let next = [self.cluster.next_due(), self.core.next_wake(now)];
            match next.into_iter().flatten().min() {
                Some(next) if next <= now + QUIET => self.cluster.advance(next.max(now + Duration::from_millis(1))),
                _ => return,
            }
        }
        panic!("sets of the simulation did not come to rest within {STEPS_MAX} steps");
    }

    /// Everything that needs no time to pass.
    fn act(&mut self, now: Timestamp) {
        loop {
            self.tell(now);
            self.core.advance(now);
            let effects = self.core.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::List(resource) => self.list(resource, now),
                    Effect::Send(request) => {
                        let nobody = ObjectKey::new("", "");
                        let answer = perform(&mut self.cluster.server, Actor::Manager(0), &nobody, &request.call);
                        self.cluster.react();
                        self.core.answer(request.id, answer, now);
                    }
                }
            }
        }
    }

    fn list(&mut self, resource: Resource, now: Timestamp) {
        self.core.watch(WatchEvent::ListBegan(resource, now), now);
        for object in self.cluster.server.all(resource).filter_map(|s| s.object.clone()) {
            self.core.watch(WatchEvent::Listed(object), now);
        }
        let version = self.cluster.server.version();
        self.core.watch(WatchEvent::ListEnded(resource, version), now);
        self.cursors.insert(resource, version);
    }

    fn tell(&mut self, now: Timestamp) {
        let mut old = Vec::new();
        for (resource, cursor) in &mut self.cursors {
            let Ok(news) = self.cluster.server.told(*resource, *cursor) else {
                old.push(*resource);
                continue;
            };
            for told in news {
                *cursor = told.version();
                self.core.watch(event_of(*resource, told), now);
            }
        }
        for resource in old {
            self.list(resource, now);
        }
    }

    fn settled(&self, wanted: &Wanted) -> Settled {
        let server = &self.cluster.server;
        let set = server.get(wanted.kind.resource(), &wanted.key);
        let set = set.unwrap_or_else(|| panic!("{} is gone from the simulation", wanted.key));
        let uid = set.value()["metadata"]["uid"].clone();
        let owned = |resource: Resource| -> Vec<Value> {
            let all = server.after(resource, Some(&wanted.key.namespace), None);
            let values = all.map(|(_, stored)| stored.value());
            let own = values.filter(|value| value["metadata"]["ownerReferences"][0]["uid"] == uid);
            own.map(|value| (*value).clone()).collect()
        };
        Settled {
            kind: wanted.kind,
            key: wanted.key.clone(),
            set: set.to_value(),
            revisions: owned(Resource::Revisions),
            pods: owned(Resource::Pods),
        }
    }
}
