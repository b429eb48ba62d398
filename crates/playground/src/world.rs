//! The world: what happens when, and what follows from what.

use crate::trouble::Trouble;
use flotilla_apiserver::{Caretaker, Entry, Server};
use flotilla_model::{ObjectKey, Resource, Timestamp};
use flotilla_sim::Agenda;
use flotilla_simserver::Host;
use std::collections::BTreeMap;
use std::time::Duration;

/// Something that happens at its time.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The scheduler looks at a pod.
    Schedule(ObjectKey),
    /// The kubelet looks at a pod.
    Look(ObjectKey),
    /// A pod whose deletion was asked for has ended.
    End(ObjectKey, String),
    /// The volume binder looks at a claim.
    Claim(ObjectKey),
    /// Trouble begins.
    Trouble(Trouble),
    /// A lost node comes back.
    Return(usize),
}

/// One node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) is_lost: bool,
    pub(crate) pods: usize,
}

/// A cluster to play with.
#[derive(Debug)]
pub struct World {
    pub(crate) server: Server,
    pub(crate) nodes: Vec<Node>,
    agenda: Agenda<Event>,
    caretaker: Caretaker,
    /// Everything that nodes do takes so many times less time.
    speed: f64,
    pub(crate) events_made: u64,
    /// Containers that were restarted in place, and when they are ready again.
    pub(crate) ready_at: BTreeMap<String, Timestamp>,
}

impl World {
    /// An empty cluster with so many nodes, `node-0` and on.
    pub fn new(nodes: usize, speed: f64, now: Timestamp) -> Self {
        let mut world = World::bare(nodes, speed, now);
        crate::stock::furnish(&mut world);
        world.react();
        world
    }

    /// A cluster without any object.
    pub(crate) fn bare(nodes: usize, speed: f64, now: Timestamp) -> Self {
        let mut server = Server::economical();
        server.shows_end = true;
        server.now = now;
        World {
            server,
            nodes: vec![Node::default(); nodes],
            agenda: Agenda::default(),
            caretaker: Caretaker::default(),
            speed,
            events_made: 0,
            ready_at: BTreeMap::new(),
        }
    }

    /// Goes on where it was saved.
    pub(crate) fn resume(&mut self) {
        self.resume_nodes();
        self.resume_pods();
    }

    /// Plans trouble, so long from now.
    pub fn plan_trouble(&mut self, after: Duration, trouble: Trouble) {
        let at = self.server.now + after;
        self.agenda.plan(at, Event::Trouble(trouble));
    }

    /// Plans something that nodes do.
    pub(crate) fn plan(&mut self, delay: Duration, event: Event) {
        let at = self.server.now + delay.div_f64(self.speed);
        self.agenda.plan(at, event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Schedule(key) => self.schedule(&key),
            Event::Look(key) => self.look(&key),
            Event::End(key, uid) => self.end(&key, &uid),
            Event::Claim(key) => self.tend_claim(&key),
            Event::Trouble(trouble) => self.befall(&trouble),
            Event::Return(node) => self.return_node(node),
        }
    }

    /// Takes notice of what was written, until nothing follows any more.
    pub(crate) fn react(&mut self) {
        loop {
            let news = self.server.take_journal();
            if news.is_empty() && !self.server.has_litter() {
                return;
            }
            for entry in &news {
                self.notice(entry);
            }
            self.caretaker.tend(&mut self.server, &news);
            if self.server.has_litter() {
                self.server.collect_garbage();
            }
        }
    }

    fn notice(&mut self, entry: &Entry) {
        if entry.resource == Resource::Pods {
            self.pod_changed(entry);
        }
        if entry.resource == Resource::Claims && entry.after.is_some() {
            self.plan(Duration::from_millis(100), Event::Claim(entry.key.clone()));
        }
    }
}

impl Host for World {
    fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    fn advance(&mut self, now: Timestamp) {
        self.react();
        while let Some((at, event)) = self.agenda.pop(now) {
            self.server.now = self.server.now.max(at);
            self.happen(event);
            self.react();
        }
        self.server.now = self.server.now.max(now);
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.agenda.next_due()
    }
}
