//! The control plane that the manager meets: the simulated API server over HTTPS, with nodes, in this process.

use super::fill::{Fill, Filled};
use bytes::Bytes;
use flotilla_apiserver::{Actor, DeleteOptions, Reply, Server, Stored, handle};
use flotilla_e2e::clock;
use flotilla_engine::io::clock::Clock as Wall;
use flotilla_model::{ObjectKey, Resource, Timestamp};
use flotilla_playground::World;
use flotilla_simserver::{Clock, Host, Service, Shared, serve};
use http::Request;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Where the sets are.
pub(super) const NAMESPACES: [&str; 10] = [
    "team-0", "team-1", "team-2", "team-3", "team-4", "team-5", "team-6", "team-7", "team-8", "team-9",
];
/// What a manager writes, other than its lease and what becomes of nodes.
const WRITTEN: [Resource; 6] = [
    Resource::AdvancedSets,
    Resource::CloneSets,
    Resource::Revisions,
    Resource::Pods,
    Resource::Claims,
    Resource::Events,
];

/// A cluster with the namespaces of the bench, and nothing in them.
pub(super) fn world(nodes: usize) -> World {
    let mut world = World::new(nodes, 1.0, Wall::new().now());
    for name in NAMESPACES {
        let body = Bytes::from(json!({"metadata": {"name": name}}).to_string());
        let request = Request::post("/api/v1/namespaces")
            .body(body)
            .expect("the path is valid");
        match handle(world.server(), &request) {
            Reply::Answer(answer) if answer.status().is_success() => {}
            other => panic!("creating namespace {name} in the simulation: {other:?}"),
        }
    }
    let now = world.server().now;
    world.advance(now);
    world
}

/// A world whose changes are noted at the moment at which they happen.
pub(super) struct Watched {
    world: World,
    /// Up to which version changes have been noted.
    cursor: u64,
    /// How many changes there were, by kind.
    changes: BTreeMap<Resource, usize>,
    /// For each set, when a pod of it was created last.
    created: BTreeMap<String, Instant>,
}

impl Watched {
    /// Takes note of what has happened since the last time.
    fn note(&mut self) {
        let (server, moment) = (self.world.server(), clock::now());
        for resource in WRITTEN {
            let Ok(news) = server.watch(resource, self.cursor) else {
                panic!("the simulated server has forgotten changes of {resource} before the bench saw them")
            };
            for change in news {
                *self.changes.entry(resource).or_default() += 1;
                let (None, Some(pod), Resource::Pods) = (&change.before, &change.after, resource) else {
                    continue;
                };
                let owner = &pod.value()["metadata"]["ownerReferences"][0]["name"];
                self.created
                    .insert(owner.as_str().unwrap_or_default().to_owned(), moment);
            }
        }
        self.cursor = server.version();
    }
}

impl Host for Watched {
    fn server(&mut self) -> &mut Server {
        self.world.server()
    }

    fn advance(&mut self, now: Timestamp) {
        self.world.advance(now);
        if self.world.server().version() != self.cursor {
            self.note();
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.world.next_due()
    }
}

/// A control plane that is served.
pub(super) struct Stage {
    shared: Arc<Shared<Watched>>,
    time: JoinHandle<()>,
    /// Holds kubeconfig and logs.
    directory: tempfile::TempDir,
    pub(super) sets: Vec<Filled>,
}

impl Stage {
    /// Fills a control plane, or leaves it empty, and serves it.
    pub(super) async fn open(fill: Option<Fill>) -> Self {
        let pods = fill.map_or(0, |fill| fill.pods);
        let nodes = pods.div_ceil(100).max(3);
        let begun = clock::now();
        let mut world = world(nodes);
        let sets = fill.map(|fill| fill.pour(&mut world, nodes)).unwrap_or_default();
        eprintln!(
            "scale: filled in {} sets with {pods} pods on {nodes} nodes within {:.1} s",
            sets.len(),
            begun.elapsed().as_secs_f64()
        );
        let cursor = world.server().version();
        let watched = Watched {
            world,
            cursor,
            changes: BTreeMap::new(),
            created: BTreeMap::new(),
        };
        let shared = Shared::new(watched, Clock::new(1.0));
        let endpoint = serve(Service::new(shared.clone()), 0).await;
        let endpoint = endpoint.unwrap_or_else(|why| panic!("serving the simulated API server: {why}"));
        let directory = tempfile::tempdir().expect("a directory for kubeconfig and logs can be made");
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(&kubeconfig, endpoint.kubeconfig("scale", "default")).expect("the kubeconfig can be written");
        Stage {
            time: tokio::spawn(shared.clone().run()),
            shared,
            directory,
            sets,
        }
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Where processes write what they have to say.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Does something with the API server.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        self.shared.with(|host| act(host.server()))
    }

    /// How many objects of a kind there are.
    pub(super) fn count(&self, resource: Resource) -> usize {
        self.with(|server| server.count(resource, None))
    }

    /// How many changes there were of what managers write, since the stage was opened.
    pub(super) fn changes(&self) -> BTreeMap<Resource, usize> {
        self.shared.with(|host| host.changes.clone())
    }

    /// Some of the events about sets, in words.
    fn some_events(&self) -> Vec<String> {
        self.with(|server| {
            let events = server.all(Resource::Events).map(Stored::value);
            let about_sets = events.filter(|event| event["involvedObject"]["kind"] != "Pod");
            let words = |event: Arc<Value>| {
                format!(
                    "{} {}: {}",
                    event["involvedObject"]["name"], event["reason"], event["message"]
                )
            };
            about_sets.map(words).take(3).collect()
        })
    }

    /// Makes sure that nothing was written about sets since then.
    ///
    /// # Panics
    /// When something was.
    pub(super) fn assert_unchanged(&self, before: &BTreeMap<Resource, usize>) {
        let after = self.changes();
        assert!(
            *before == after,
            "the manager wrote something about sets that were settled: changes were {before:?} and are {after:?}; events: {:?}",
            self.some_events()
        );
    }

    /// A pod is gone at once, without its node being asked. Returns when that was.
    pub(super) fn lose(&self, pod: &ObjectKey) -> Instant {
        self.lose_all(std::slice::from_ref(pod))
    }

    /// The same of several. Returns when the first was gone.
    pub(super) fn lose_all(&self, pods: &[ObjectKey]) -> Instant {
        let options = DeleteOptions {
            grace_seconds: Some(0),
            ..DeleteOptions::default()
        };
        self.with(|server| {
            let begun = clock::now();
            for pod in pods {
                let deleted = server.delete(Actor::System, Resource::Pods, pod, &options);
                deleted.unwrap_or_else(|why| panic!("taking pod {pod} away: {why}"));
                assert!(server.get(Resource::Pods, pod).is_none(), "pod {pod} is still there");
            }
            begun
        })
    }

    /// When a pod of this set was created last, if that was after `since`.
    pub(super) fn created_since(&self, set: &Filled, since: Instant) -> Option<Instant> {
        let at = self
            .shared
            .with(|host| host.created.get(set.key.name.as_str()).copied());
        at.filter(|at| *at >= since)
    }

    /// Waits until a pod of this set has been created after `since`, and returns when.
    ///
    /// # Panics
    /// When none is within the time.
    pub(super) async fn until_created(&self, set: &Filled, since: Instant, within: Duration) -> Instant {
        loop {
            if let Some(at) = self.created_since(set, since) {
                return at;
            }
            assert!(
                since.elapsed() < within,
                "no pod of {} was created in the place of a lost one within {within:?}",
                set.key
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The pods of a set that are there now.
    pub(super) fn pods_of(&self, set: &Filled) -> Vec<ObjectKey> {
        self.with(|server| {
            let head = format!("{}-", set.key.name);
            let first = ObjectKey::new(set.key.namespace.clone(), head.as_str());
            let there = server.after(Resource::Pods, Some(&set.key.namespace), Some(first));
            let own = there.take_while(|(key, _)| key.name.starts_with(&head));
            own.map(|(key, _)| key.clone()).collect()
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.time.abort();
        // Connections live as long as the runtime; what they lead to need not.
        self.shared
            .with(|host| host.world = World::new(1, 1.0, Wall::new().now()));
    }
}
