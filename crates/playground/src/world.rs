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

/// How long something takes on nodes that are so many times faster: whole milliseconds, and at least one. What is looked at again and again
/// until its time has come would otherwise be looked at for ever within the same millisecond.
pub(crate) fn shortened(delay: Duration, speed: f64) -> Duration {
    let millis = delay.div_f64(speed).as_secs_f64() * 1000.0;
    Duration::from_secs_f64(millis.ceil().max(1.0) / 1000.0)
}

/// A cluster to play with.
#[derive(Debug)]
pub struct World {
    pub(crate) server: Server,
    pub(crate) nodes: Vec<Node>,
    agenda: Agenda<Event>,
    caretaker: Caretaker,
    /// Everything that nodes do takes so many times less time.
    pub(crate) speed: f64,
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
        let at = self.server.now + shortened(delay, self.speed);
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
        if entry.resource == Resource::StorageClasses && entry.after.is_some() {
            self.claims_of_class(&entry.key.name);
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

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use flotilla_apiserver::{Reply, handle};
    use http::Request;
    use serde_json::{Value, json};

    const PODS: &str = "/api/v1/namespaces/default/pods";

    fn ask(world: &mut World, request: http::request::Builder, body: &Value) -> Value {
        let request = request.body(Bytes::from(body.to_string())).unwrap();
        let Reply::Answer(answer) = handle(&mut world.server, &request) else {
            panic!("a watch")
        };
        serde_json::from_slice(answer.body()).unwrap()
    }

    fn is_ready(world: &mut World) -> bool {
        let pod = ask(world, Request::get(format!("{PODS}/p")), &Value::Null);
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
    }

    /// How long a container that is restarted in place keeps its pod from being ready, in milliseconds.
    fn restarts_in(speed: f64) -> i64 {
        let begun = Timestamp::from_seconds(1_700_000_000);
        let mut world = World::new(1, speed, begun);
        let object = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "a:1"}]}});
        ask(&mut world, Request::post(PODS), &object);
        world.advance(begun + Duration::from_secs(10));
        assert!(is_ready(&mut world));
        let image = json!({"spec": {"containers": [{"name": "c", "image": "a:2"}]}});
        let patch =
            Request::patch(format!("{PODS}/p")).header("content-type", "application/strategic-merge-patch+json");
        ask(&mut world, patch, &image);
        let changed = world.server.now;
        let mut was_out = false;
        for millis in 0..5000 {
            world.advance(changed + Duration::from_millis(millis));
            match (was_out, is_ready(&mut world)) {
                (true, true) => return i64::try_from(millis).unwrap(),
                (_, is_ready) => was_out |= !is_ready,
            }
        }
        panic!("not ready again");
    }

    /// At any speed: a wait that is over in less than a millisecond must not begin anew for ever.
    #[test]
    fn a_container_that_is_restarted_in_place_is_ready_again_the_sooner_the_faster_nodes_are() {
        for speed in [1.0, 3.0, 20.0, 400.0, 10_000.0] {
            let took = restarts_in(speed);
            // Seen after 150 ms, and held back for 500.
            let expected = 650.0 / speed;
            #[allow(clippy::cast_precision_loss)]
            let took_f64 = took as f64;
            assert!(
                (expected..=expected + 4.0).contains(&took_f64),
                "{took} ms at speed {speed}"
            );
        }
    }
}
