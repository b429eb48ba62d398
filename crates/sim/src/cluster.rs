//! The cluster that acts by itself, around the API server.
//!
//! Its driver sets the time with [`Cluster::advance`], writes to [`Cluster::server`] and calls [`Cluster::react`] afterwards.
//! [`Cluster::next_due`] says until when nothing happens by itself. What has changed, by whom, is kept until
//! [`Cluster::take_changes`].

use crate::Agenda;
use crate::nodes::{Nodes, PodStep};
use crate::server::{Entry, Server};
use crate::volumes::FileSystems;
use fastrand::Rng;
use flotilla_model::{ObjectKey, Timestamp};
use std::ops::Range;
use std::time::Duration;

/// Something that the cluster does at its time.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The next step of the life of this incarnation of a pod.
    Pod(ObjectKey, String, PodStep),
    /// The volume binder looks at a claim.
    Claim(ObjectKey),
    /// A lost node has been lost for a while.
    NodeDown(usize),
    /// The garbage collector looks.
    Collect,
}

/// The simulated control plane with its nodes.
#[derive(Debug)]
pub struct Cluster {
    /// The API server.
    pub server: Server,
    /// The nodes, and what befalls the pods on them.
    pub nodes: Nodes,
    /// How file systems grow.
    pub file_systems: FileSystems,
    agenda: Agenda<Event>,
    rng: Rng,
    /// The garbage collector will look.
    collects: bool,
    changes: Vec<Entry>,
}

impl Cluster {
    /// An empty cluster whose luck comes from `seed`.
    pub fn new(seed: u64, now: Timestamp) -> Self {
        let mut server = Server::default();
        server.now = now;
        Cluster {
            server,
            nodes: Nodes::default(),
            file_systems: FileSystems::default(),
            agenda: Agenda::default(),
            rng: Rng::with_seed(seed),
            collects: false,
            changes: Vec::new(),
        }
    }

    /// The moment.
    pub fn now(&self) -> Timestamp {
        self.server.now
    }

    /// When something happens by itself next.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.agenda.next_due()
    }

    /// Does everything that is due until `to`, in order; then it is `to`.
    pub fn advance(&mut self, to: Timestamp) {
        while let Some((at, event)) = self.agenda.pop(to) {
            self.server.now = self.server.now.max(at);
            match event {
                Event::Pod(key, uid, step) => self.pod_step(&key, &uid, step),
                Event::Claim(key) => self.tend_claim(&key),
                Event::NodeDown(node) => self.node_down(node),
                Event::Collect => {
                    self.collects = false;
                    self.server.collect_garbage();
                }
            }
            self.react();
        }
        self.server.now = self.server.now.max(to);
    }

    /// Takes notice of what was written to the server. To be called after each write, or each few.
    pub fn react(&mut self) {
        let news = self.server.take_journal();
        for entry in &news {
            self.nodes_react(entry);
            self.volumes_react(entry);
        }
        self.changes.extend(news);
        if self.server.has_litter() && !self.collects {
            self.collects = true;
            let delay_ms = self.between(self.nodes.pace.collect_ms.clone());
            self.plan(delay_ms, Event::Collect);
        }
    }

    /// Takes out what has changed since this was asked last, oldest first.
    pub fn take_changes(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn plan(&mut self, delay_ms: u64, event: Event) {
        self.agenda.plan(self.now() + Duration::from_millis(delay_ms), event);
    }

    pub(crate) fn between(&mut self, range: Range<u64>) -> u64 {
        self.rng.u64(range)
    }
}
