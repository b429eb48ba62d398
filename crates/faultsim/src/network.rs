//! Between managers and the server: requests that travel, answers that get lost, watches that lag, repeat and break.
//!
//! What the API guarantees is kept, since the engine rests on it: a watch delivers a kind in order of versions and leaves out nothing
//! but what a later event of the same object supersedes; a list shows one moment, which is not before it was asked for.

use crate::defect::Defect;
use crate::event::{Basis, Event, Life, Reply};
use crate::judge::Writing;
use crate::managers::{WatchState, ignores_fence};
use crate::run::World;
use crate::schedule::Loss;
use crate::spy::Decided;
use flotilla_engine::core::WatchEvent;
use flotilla_engine::core::lease::LeaseReply;
use flotilla_engine::core::request::{Answer, Call, Request, RequestId};
use flotilla_engine::wire::Object;
use flotilla_model::{Command, ObjectKey, Resource};
use flotilla_sim::server::{Actor, DeleteOptions, Told, refusal};
use flotilla_sim::service::{self, event_of, refused};
use flotilla_why::Leader;
use serde_json::Value;
use std::collections::BTreeMap;

/// For some time, some requests suffer something.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) loss: Loss,
    pub(crate) until_ms: u64,
    pub(crate) percent: u32,
    pub(crate) rng: fastrand::Rng,
}

impl World {
    fn loss(&mut self) -> Option<Loss> {
        let now_ms = self.now_ms;
        self.windows.retain(|window| window.until_ms > now_ms);
        self.windows
            .iter_mut()
            .find_map(|window| (window.rng.u32(0..100) < window.percent).then_some(window.loss))
    }

    /// Who leads, as the lease says.
    pub(crate) fn lease_holder(&self) -> Option<Value> {
        let lease = self.cluster.server.get(Resource::Leases, &lease_key());
        lease?.value().pointer("/spec/holderIdentity").cloned()
    }

    /// What the lease says of whoever leads.
    pub(crate) fn leader(&self) -> Leader {
        let lease = self.cluster.server.get(Resource::Leases, &lease_key());
        lease.map_or_else(Leader::default, |lease| Leader::of(&lease.value(), self.time()))
    }

    /// A request leaves its manager, provided that it may still be sent.
    pub(crate) fn depart(&mut self, life: Life, request: Box<Request>, basis: Basis) {
        if !self.is_alive(life) {
            return;
        }
        let clock = self.clock_of(life.manager);
        let id = request.id;
        let may_send = self.managers[life.manager]
            .core
            .as_ref()
            .is_some_and(|core| core.may_send(&request.call, clock));
        if !may_send && !ignores_fence(self.defect) {
            return self.answer_in(0, life, &request, Answer::Fenced);
        }
        let travel_ms = self.rng.u64(1..10);
        let arrive = |reply| Event::Arrive(life, request.clone(), basis.clone(), reply);
        let loss = self.loss();
        if loss == Some(Loss::Throttle) {
            let generation = basis.as_ref().map(|decided| decided.set.generation);
            self.managers[life.manager].sent.throttled(&request.call, generation);
        }
        let (arrival, answer) = match loss {
            None => (Some((travel_ms, arrive(Reply::Comes))), None),
            Some(Loss::Request) => (None, Some((3_000, Answer::Lost("no answer".into())))),
            Some(Loss::Answer) => (
                Some((travel_ms, arrive(Reply::Lost))),
                Some((3_000, Answer::Lost("no answer".into()))),
            ),
            Some(Loss::Late) => {
                let late_ms = self.rng.u64(10..2_000);
                let answer = Answer::Lost("connection reset".into());
                (Some((late_ms, arrive(Reply::Late))), Some((1, answer)))
            }
            Some(Loss::Unsent) => (None, Some((1, Answer::NotSent("connection refused".into())))),
            Some(Loss::Throttle) => (
                None,
                Some((travel_ms, refused(&refusal(429, "TooManyRequests", "busy")))),
            ),
            Some(Loss::Error) => (None, Some((travel_ms, refused(&refusal(500, "InternalError", "etcd"))))),
            Some(Loss::Timeout) if self.rng.bool() => (Some((travel_ms, arrive(Reply::Timeout))), None),
            Some(Loss::Timeout) => (
                None,
                Some((travel_ms, refused(&refusal(503, "ServiceUnavailable", "later")))),
            ),
        };
        if let Some((delay_ms, event)) = arrival {
            self.plan(delay_ms, event);
        }
        if let Some((delay_ms, answer)) = answer {
            let word = format!("{answer:?}");
            self.say(|| format!("    request {} of manager {}: {word}", id.0, life.manager));
            self.answer_in(delay_ms, life, &request, answer);
        }
    }

    fn answer_in(&mut self, delay_ms: u64, life: Life, request: &Request, answer: Answer) {
        let answer = match (&request.call, answer) {
            (Call::Lease(_), Answer::Lease(reply)) => Answer::Lease(reply),
            (Call::Lease(_), _) => Answer::Lease(LeaseReply::Failed),
            (Call::Write(_) | Call::Status(_), Answer::Object(_)) if self.defect == Some(Defect::NoOverlay) => {
                Answer::Success
            }
            (_, answer) => answer,
        };
        let event = Event::Answer(life, request.id, Box::new(answer));
        self.plan(delay_ms, event);
    }

    /// An answer reaches its manager.
    pub(crate) fn answered(&mut self, life: Life, id: RequestId, answer: Answer) {
        if !self.is_alive(life) {
            return;
        }
        let clock = self.clock_of(life.manager);
        let manager = &mut self.managers[life.manager];
        if matches!(&answer, Answer::Refused(refusal) if refusal.status.code == 409) {
            manager.sent.hears_of_others(self.now_ms);
        }
        if let Some(core) = &mut manager.core {
            core.answer(id, answer, clock);
        }
        self.drive(life);
    }

    /// A request reaches the server.
    pub(crate) fn arrive(&mut self, life: Life, request: &Request, basis: Basis, reply: Reply) {
        let is_write = request.call.needs_lease();
        if is_write {
            self.writes += 1;
            self.judge_write(life, &request.call, basis.as_deref());
        }
        self.writing = basis.clone().map(|decided| Writing {
            decided_at: self.true_time(life.manager, decided.now),
            decided,
            is_late: reply == Reply::Late,
        });
        let before = self.cluster.server.version();
        let answer = self.perform(life.manager, &request.call);
        if is_write {
            if reply == Reply::Comes && self.is_alive(life) {
                self.note_own(life, request, basis.as_deref(), &answer, before);
            }
            self.settle();
            self.count_write(life);
        }
        self.writing = None;
        if let Answer::Refused(refusal) = &answer {
            let text = format!("{} {}", refusal.status.reason, refusal.status.message);
            self.say(|| format!("    refused: {text}"));
        }
        let delay_ms = self.rng.u64(1..10);
        match reply {
            Reply::Comes => self.answer_in(delay_ms, life, request, answer),
            Reply::Timeout => self.answer_in(delay_ms, life, request, refused(&refusal(504, "Timeout", "too slow"))),
            Reply::Lost | Reply::Late => {}
        }
    }

    /// What a manager has done by a request since this version, and what it was refused: it will hear of both.
    fn note_own(&mut self, life: Life, request: &Request, basis: Option<&Decided>, answer: &Answer, before: u64) {
        let versions = before + 1..=self.cluster.server.version();
        let sent = &mut self.managers[life.manager].sent;
        sent.own(versions);
        let Some(decided) = basis else { return };
        match answer {
            Answer::Refused(refusal) if matches!(refusal.status.code, 403 | 422) => {
                let verdict = sent.refused(&request.call, decided, self.now_ms);
                self.judge.refused(&request.call);
                self.fail(verdict);
            }
            Answer::Object(_) | Answer::Success => {
                sent.accepted(&request.call, decided);
                let verdict = sent.made(&request.call, decided, self.now_ms);
                self.fail(verdict);
            }
            _ => {}
        }
    }

    /// Carries a request out.
    fn perform(&mut self, manager: usize, call: &Call) -> Answer {
        if let Some(answer) = self.stubbornly_refused(call) {
            return answer;
        }
        let actor = Actor::Manager(manager);
        let server = &mut self.cluster.server;
        match call {
            Call::Write(Command::Delete { resource, key, .. }) if self.defect == Some(Defect::DeleteByName) => {
                service::result(server.delete(actor, *resource, key, &DeleteOptions::default()))
            }
            Call::Write(Command::Create {
                resource: Resource::Pods,
                body,
                ..
            }) => service::result(self.store_pod(actor, body)),
            Call::Write(Command::Try { pod }) => {
                let answer = service::perform(server, actor, &lease_key(), call);
                self.tried(pod, &answer);
                answer
            }
            call => service::perform(server, actor, &lease_key(), call),
        }
    }

    /// A manager lists a kind, and watches it from there.
    pub(crate) fn begin_list(&mut self, life: Life, resource: Resource) {
        let clock = self.clock_of(life.manager);
        let manager = &mut self.managers[life.manager];
        let watch = manager.watches.entry(resource).or_default();
        if matches!(watch.state, WatchState::Listing | WatchState::ListingTwice) {
            watch.state = WatchState::ListingTwice;
            return;
        }
        watch.stream += 1;
        watch.state = WatchState::Listing;
        watch.is_due = false;
        let stream = watch.stream;
        if let Some(core) = &mut manager.core {
            core.watch(WatchEvent::ListBegan(resource, clock), clock);
        }
        let delay_ms = self.rng.u64(1..20);
        let event = match self.loss() {
            Some(_) => Event::Again(life, resource, stream),
            None => Event::List(life, resource, stream),
        };
        self.plan(delay_ms, event);
    }

    fn is_stream(&self, life: Life, resource: Resource, stream: u32) -> bool {
        let watch = self.managers[life.manager].watches.get(&resource);
        self.is_alive(life) && watch.is_some_and(|watch| watch.stream == stream)
    }

    /// A list reaches the server.
    pub(crate) fn list(&mut self, life: Life, resource: Resource, stream: u32) {
        let objects = self
            .cluster
            .server
            .all(resource)
            .filter_map(|s| s.object.clone())
            .collect();
        let event = Event::Listed(life, resource, stream, objects, self.cluster.server.version());
        let delay_ms = self.rng.u64(1..30);
        self.plan(delay_ms, event);
    }

    /// The answer to a list reaches its manager.
    pub(crate) fn listed(
        &mut self,
        life: Life,
        (resource, stream): (Resource, u32),
        objects: Vec<Object>,
        version: u64,
    ) {
        if !self.is_stream(life, resource, stream) {
            return;
        }
        let clock = self.clock_of(life.manager);
        let manager = &mut self.managers[life.manager];
        manager.sent.hears_of_others(self.now_ms);
        if let Some(core) = &mut manager.core {
            for object in objects {
                core.watch(WatchEvent::Listed(object), clock);
            }
            core.watch(WatchEvent::ListEnded(resource, version), clock);
        }
        let watch = manager.watches.entry(resource).or_default();
        let twice = watch.state == WatchState::ListingTwice;
        watch.cursor = version;
        watch.state = WatchState::Open;
        self.say(|| format!("manager {} has listed {resource} at {version}", life.manager));
        self.plan_delivery(life.manager, resource);
        if twice {
            self.begin_list(life, resource);
        }
        self.drive(life);
    }

    /// A watch ends, and its manager hears of it some time later.
    pub(crate) fn break_watch(&mut self, manager: usize, resource: Resource) {
        let delay_ms = self.rng.u64(50..3_000);
        let life = Life {
            manager,
            life: self.managers[manager].life,
        };
        let Some(watch) = self.managers[manager].watches.get_mut(&resource) else {
            return;
        };
        if watch.state == WatchState::Open {
            watch.state = WatchState::Broken;
            let stream = watch.stream;
            self.plan(delay_ms, Event::Again(life, resource, stream));
        }
    }

    /// A watch goes on from an earlier version, as after a reconnection.
    pub(crate) fn repeat(&mut self, manager: usize, resource: Resource, count: usize) {
        let Some(watch) = self.managers[manager].watches.get_mut(&resource) else {
            return;
        };
        let Ok(all) = self.cluster.server.told(resource, 0) else {
            return;
        };
        let told = all.partition_point(|told| told.version() <= watch.cursor);
        if let Some(last) = told.checked_sub(count + 1).and_then(|index| all.get(index)) {
            watch.cursor = last.version();
        }
        self.plan_delivery(manager, resource);
    }

    /// A broken watch, or a failed list, begins again.
    pub(crate) fn again(&mut self, life: Life, resource: Resource, stream: u32) {
        if !self.is_stream(life, resource, stream) {
            return;
        }
        let Some(watch) = self.managers[life.manager].watches.get_mut(&resource) else {
            return;
        };
        match watch.state {
            WatchState::Broken => {
                watch.state = WatchState::Open;
                self.plan_delivery(life.manager, resource);
            }
            WatchState::Listing | WatchState::ListingTwice => {
                watch.state = WatchState::Off;
                self.begin_list(life, resource);
            }
            WatchState::Off | WatchState::Open => {}
        }
    }

    /// Plans the next delivery of a watch, if there is something to bring and none is planned.
    pub(crate) fn plan_delivery(&mut self, manager: usize, resource: Resource) {
        let delay_ms = self.rng.u64(1..8);
        let life = Life {
            manager,
            life: self.managers[manager].life,
        };
        let newest = self.cluster.server.watch(resource, u64::MAX).is_ok();
        let Some(watch) = self.managers[manager].watches.get_mut(&resource) else {
            return;
        };
        if watch.state != WatchState::Open || watch.is_due || !newest {
            return;
        }
        watch.is_due = true;
        let at_ms = (self.now_ms + delay_ms).max(watch.lags_until_ms);
        let stream = watch.stream;
        self.plan_at(at_ms, Event::Watch(life, resource, stream));
    }

    /// A watch brings what has happened, all of it or the first part.
    pub(crate) fn deliver(&mut self, life: Life, resource: Resource, stream: u32) {
        if !self.is_stream(life, resource, stream) {
            return;
        }
        let clock = self.clock_of(life.manager);
        let Some(watch) = self.managers[life.manager].watches.get_mut(&resource) else {
            return;
        };
        watch.is_due = false;
        if watch.state != WatchState::Open {
            return;
        }
        if self.now_ms < watch.lags_until_ms {
            return self.plan_delivery(life.manager, resource);
        }
        let coalesces = self.now_ms < watch.coalesces_until_ms;
        let Ok(all) = self.cluster.server.told(resource, watch.cursor) else {
            return self.begin_list(life, resource);
        };
        let is_all = self.rng.u8(0..8) != 0;
        let news = if is_all { &all[..] } else { &all[..all.len() / 2] };
        let news: Vec<Told> = if coalesces { coalesced(news) } else { news.to_vec() };
        watch.cursor = news.last().map_or(watch.cursor, Told::version);
        let bookmark = (is_all && self.rng.u8(0..8) == 0).then(|| self.cluster.server.version());
        watch.cursor = bookmark.unwrap_or(watch.cursor);
        let count = news.len();
        for told in &news {
            self.managers[life.manager].sent.hears(told.version(), self.now_ms);
        }
        if let Some(core) = &mut self.managers[life.manager].core {
            for told in news {
                core.watch(event_of(resource, told), clock);
            }
            if let Some(version) = bookmark {
                core.watch(WatchEvent::Bookmark(resource, version), clock);
            }
        }
        self.say(|| format!("manager {} sees {count} events of {resource}", life.manager));
        if !is_all {
            self.plan_delivery(life.manager, resource);
        }
        self.drive(life);
    }
}

/// Of several events about one incarnation the last.
fn coalesced(news: &[Told]) -> Vec<Told> {
    let last: BTreeMap<_, _> = news.iter().map(|told| (told.uid(), told.version())).collect();
    news.iter()
        .filter(|told| last.get(told.uid()) == Some(&told.version()))
        .cloned()
        .collect()
}

/// Where the managers' lease is.
pub(crate) fn lease_key() -> ObjectKey {
    ObjectKey::new("flotilla-system", "flotilla-manager")
}
