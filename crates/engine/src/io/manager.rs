//! The loop: whatever comes in goes to the core, whatever the core wants is done.
//!
//! One task owns the core. Requests run in tasks of their own, which ask once more, right before they send, whether the lease is
//! still held: the loop may have been stopped between deciding and sending, and the clock runs on meanwhile.

use super::clock::Clock;
use super::fence::Fence;
use super::http::{self, Pages, Query};
use super::requests::{Asked, Raw, read, send};
use super::versions::Versions;
use super::watch::{Feed, Watcher};
use super::{discovery, render};
use crate::core::census::Census;
use crate::core::lease::LeaseTimes;
use crate::core::refusals::{self, Tried};
use crate::core::request::{Request, RequestId};
use crate::core::{ClockSteps, Core, CoreOptions, Effect, WatchEvent};
use crate::wire::watch::Frame;
use crate::wire::{self, Encoding, Unreadable};
use bytes::Bytes;
use flotilla_model::{Controller, ObjectKey, Resource, Timestamp};
use futures::FutureExt;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// Pages and batches waiting to be taken in, all kinds together.
const FEED_MAX: usize = 4;
/// Answers waiting to be taken in.
const ANSWERS_MAX: usize = 256;
/// Scrapes and probes waiting to be answered.
const QUERIES_MAX: usize = 16;
/// Inputs taken in before the core gets to act.
const INPUTS_MAX: usize = 128;

/// How long a shutdown waits for answers. After the last one that is lost, it waits for as long as a request may be on its way
/// ([`LeaseTimes::on_its_way`]), together fifteen seconds; Kubernetes gives a pod thirty.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// How often whoever runs beside the manager is told what there is.
const CENSUS_EVERY: Duration = Duration::from_secs(2);

/// How the manager is run.
#[derive(Clone)]
pub struct ManagerOptions {
    /// Everything that concerns the logic.
    pub core: CoreOptions,
    /// The only namespace to watch; all if `None`.
    pub namespace: Option<String>,
    /// Where to serve metrics and health; nowhere if `None`.
    pub http_address: Option<SocketAddr>,
    /// Where to serve health once more, and nothing else; nowhere if `None`.
    pub health_address: Option<SocketAddr>,
    /// Until when this process may write; shared with whoever else does.
    pub fence: Fence,
    /// What else runs in this process, if anything does.
    pub beside: Option<Arc<dyn Beside>>,
}

/// Something that runs beside the manager: it shares its metrics, its readiness, and what it knows.
pub trait Beside: Send + Sync {
    /// Adds its metrics to a page that is being made.
    fn register(&self, registry: &mut Registry);

    /// What is missing before it is ready, in words; empty if nothing is.
    fn not_ready(&self) -> Vec<String>;

    /// What the caches say now. Called again and again; must return soon.
    fn learn(&self, census: Census);
}

/// Why the manager could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address is not to be had: which, what it is for, and the option that names it.
    #[error("cannot serve {purpose} on {address}: {source}; choose another address with {option}")]
    Serve {
        /// The address.
        address: SocketAddr,
        /// What was to be served there.
        purpose: &'static str,
        /// The option that names it.
        option: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// No signals.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
    /// The namespace of the lease does not exist.
    #[error("the namespace {0} of the lease does not exist; create it, or name another with --lease-namespace")]
    LeaseNamespace(String),
    /// A watch task ended, which none does while the manager runs.
    #[error("a watch ended unexpectedly: {0}; please report this")]
    Watch(String),
}

/// Runs the manager until SIGTERM or SIGINT: finishes what is on its way, releases the lease, returns. Where that takes longer than
/// fifteen seconds it returns with the lease held: others take it once it has run out.
///
/// `client` must have been made with `default_retry = false`: the queue repeats what failed, and a client that did so underneath
/// would hide it and hold up the pass.
pub async fn run(
    options: ManagerOptions,
    controllers: Vec<Box<dyn Controller>>,
    client: kube::Client,
) -> Result<(), Error> {
    let mut stop = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    if let Some(lease) = &options.core.lease {
        require_namespace(&client, &lease.key.namespace).await?;
    }
    let (queries, asked) = mpsc::channel(QUERIES_MAX);
    // Ends with this function.
    let mut servers = JoinSet::new();
    for (address, pages, purpose, option) in [
        (options.http_address, Pages::All, "metrics and health", "--http-address"),
        (options.health_address, Pages::Probes, "health", "--health-address"),
    ] {
        let Some(address) = address else { continue };
        let listener = http::bind(address).map_err(|source| Error::Serve {
            address,
            purpose,
            option,
            source,
        })?;
        servers.spawn(http::serve(listener, pages, queries.clone()));
    }
    drop(queries);
    let shutdown = async move {
        tokio::select! {
            _ = stop.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Shell::new(options, controllers, client).run(asked, shutdown).await
}

/// A missing namespace would otherwise look like an election that never ends. Any other answer is left to the election.
async fn require_namespace(client: &kube::Client, namespace: &str) -> Result<(), Error> {
    let request = ::http::Request::get(format!("/api/v1/namespaces/{namespace}")).body(kube::client::Body::empty());
    let Ok(request) = request else {
        return Err(Error::LeaseNamespace(namespace.to_owned()));
    };
    match client.send(request).await {
        Ok(response) if response.status() == ::http::StatusCode::NOT_FOUND => {
            Err(Error::LeaseNamespace(namespace.to_owned()))
        }
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, "the API server does not answer yet");
            Ok(())
        }
    }
}

struct Shell {
    core: Core,
    clock: Arc<Clock>,
    /// How the wall clock has been set, as far as the core was told.
    clock_steps: ClockSteps,
    client: kube::Client,
    /// Where the lease is.
    lease: ObjectKey,
    /// Until when writes may be sent; request tasks look at it right before they send.
    fence: Fence,
    beside: Option<Arc<dyn Beside>>,
    /// When whoever runs beside is told again.
    census_at: Timestamp,
    feeds: mpsc::Receiver<(Resource, Feed)>,
    answers: mpsc::Receiver<(RequestId, Asked, Raw)>,
    answer_to: mpsc::Sender<(RequestId, Asked, Raw)>,
    /// What the API server serves, once it has been asked.
    served: oneshot::Receiver<discovery::Served>,
    /// In which versions kinds are served.
    versions: Versions,
    /// Tells each kind's task to list.
    wanted: BTreeMap<Resource, watch::Sender<u64>>,
    watchers: JoinSet<()>,
    was_leading: bool,
    /// How long a shutdown may take.
    shutdown_max: Duration,
}

impl Shell {
    fn new(options: ManagerOptions, controllers: Vec<Box<dyn Controller>>, client: kube::Client) -> Self {
        let clock = options.fence.clock();
        let core = Core::new(options.core.clone(), controllers, clock.now());
        let (feed_to, feeds) = mpsc::channel(FEED_MAX);
        let (answer_to, answers) = mpsc::channel(ANSWERS_MAX);
        let versions = Versions::default();
        let (mut wanted, mut watchers) = (BTreeMap::new(), JoinSet::new());
        for resource in core.resources() {
            let (want, wants) = watch::channel(0);
            wanted.insert(resource, want);
            let watcher = Watcher {
                client: client.clone(),
                clock: clock.clone(),
                resource,
                namespace: options.namespace.clone(),
                fields: None,
                versions: versions.clone(),
                feed: feed_to.clone(),
                wanted: wants,
            };
            watchers.spawn(watcher.run());
        }
        let served = discovery::ask(client.clone());
        let times = options.core.lease.as_ref().map(|lease| lease.times);
        let shutdown_max = shutdown_max(times);
        let lease = options
            .core
            .lease
            .map_or_else(|| ObjectKey::new("", ""), |lease| lease.key);
        Shell {
            core,
            clock,
            clock_steps: ClockSteps::default(),
            client,
            lease,
            fence: options.fence,
            beside: options.beside,
            census_at: Timestamp::default(),
            feeds,
            answers,
            answer_to,
            served,
            versions,
            wanted,
            watchers,
            was_leading: false,
            shutdown_max,
        }
    }

    async fn run(
        mut self,
        mut queries: mpsc::Receiver<Query>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut give_up_at: Option<Timestamp> = None;
        loop {
            let now = self.now();
            self.core.advance(now);
            self.core.note_advance(self.clock.now().since(now));
            self.carry_out();
            self.tell_beside(now);
            if self.core.is_stopped() {
                return Ok(());
            }
            let wake = self.core.next_wake(now).into_iter().chain(give_up_at);
            let wake = wake.chain(self.beside.as_ref().map(|_| self.census_at)).min();
            let pause = wake.map_or(Duration::from_secs(3600), |at| at.since(now));
            tokio::select! {
                biased;
                Some((id, asked, raw)) = self.answers.recv() => self.take_answers(id, asked, raw),
                Some((resource, feed)) = self.feeds.recv() => self.take_feeds(resource, feed),
                Ok(served) = &mut self.served, if !self.served.is_terminated() => {
                    self.core.cache.note_resize(served.resize);
                }
                Some(query) = queries.recv() => self.answer_query(query),
                () = &mut shutdown, if give_up_at.is_none() => {
                    tracing::info!("stopping: finishing what is on its way");
                    give_up_at = Some(self.clock.now() + self.shutdown_max);
                    self.core.begin_shutdown();
                }
                Some(ended) = self.watchers.join_next() => {
                    return Err(Error::Watch(ended.err().map_or_else(String::new, |e| e.to_string())));
                }
                () = tokio::time::sleep(pause) => {}
            }
            if give_up_at.is_some_and(|at| self.clock.now() >= at) {
                self.give_up();
                return Ok(());
            }
        }
    }

    /// Now. If the clock of the machine was set, the core knows it before anything that happens after that.
    fn now(&mut self) -> Timestamp {
        let (now, steps) = self.clock.read();
        if steps != self.clock_steps {
            let seconds = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f32();
            let ahead_seconds = seconds(steps.ahead, self.clock_steps.ahead);
            let back_seconds = seconds(steps.back, self.clock_steps.back);
            tracing::warn!(
                ahead_seconds,
                back_seconds,
                "the clock of this machine was set, or the machine slept; while a clock is ahead, pods count as available too early"
            );
            self.clock_steps = steps;
            self.core.note_clock_steps(steps, now);
        }
        now
    }

    /// The time for a shutdown is over. What is still on its way may take effect after our end, when nobody else may write yet: the lease
    /// is not released, but runs out.
    fn give_up(&self) {
        tracing::warn!("requests are still on their way; not waiting any longer, and leaving the lease to run out");
        self.fence.close();
    }

    fn take_answers(&mut self, id: RequestId, asked: Asked, raw: Raw) {
        let mut next = Some((id, asked, raw));
        for _ in 0..INPUTS_MAX {
            let Some((id, asked, raw)) = next else { return };
            let answer = read(asked, raw, &mut self.core.cache);
            let now = self.now();
            self.core.answer(id, answer, now);
            next = self.answers.try_recv().ok();
        }
        if let Some((id, asked, raw)) = next {
            let answer = read(asked, raw, &mut self.core.cache);
            let now = self.now();
            self.core.answer(id, answer, now);
        }
    }

    fn take_feeds(&mut self, resource: Resource, feed: Feed) {
        let mut next = Some((resource, feed));
        for _ in 0..INPUTS_MAX {
            let Some((resource, feed)) = next.take() else { return };
            self.take_feed(resource, feed);
            next = self.feeds.try_recv().ok();
        }
        if let Some((resource, feed)) = next {
            self.take_feed(resource, feed);
        }
    }

    fn take_feed(&mut self, resource: Resource, feed: Feed) {
        let now = self.now();
        match feed {
            Feed::Began(at) => self.core.watch(WatchEvent::ListBegan(resource, at), now),
            Feed::Ended(version) => {
                tracing::debug!(%resource, version, "listed");
                self.core.watch(WatchEvent::ListEnded(resource, version), now);
            }
            Feed::Page(encoding, items) => {
                for item in items {
                    let event = self.decode(resource, encoding, &item, WatchEvent::Listed);
                    self.core.watch(event, now);
                }
            }
            Feed::Frames(encoding, frames) => {
                for frame in frames {
                    if let Some(event) = self.watch_event(resource, encoding, frame) {
                        self.core.watch(event, now);
                    }
                }
            }
            Feed::Missing => {
                if !self.core.is_missing(resource) {
                    tracing::warn!(%resource, "the API server does not know this kind; trying again");
                }
                self.core.watch(WatchEvent::Missing(resource), now);
            }
            Feed::Failing(why) => tracing::warn!(%resource, why, "cannot watch; trying again"),
        }
    }

    fn decode(
        &mut self,
        resource: Resource,
        encoding: Encoding,
        bytes: &Bytes,
        event: impl FnOnce(wire::Object) -> WatchEvent,
    ) -> WatchEvent {
        match self.core.cache.read(resource, encoding, bytes) {
            Ok(object) => event(object),
            Err(unreadable) => {
                tracing::warn!(%resource, "{unreadable}");
                WatchEvent::Unreadable(unreadable)
            }
        }
    }

    fn watch_event(&mut self, resource: Resource, encoding: Encoding, frame: Frame) -> Option<WatchEvent> {
        match frame {
            Frame::Upsert(object) => Some(self.decode(resource, encoding, &object, WatchEvent::Upsert)),
            Frame::Delete(object) => Some(match wire::identity(encoding, &object) {
                Some((key, uid, version)) => WatchEvent::Deleted(resource, key, uid, version),
                None => {
                    // What is not there any more is not in the next list either.
                    self.ask_for_list(resource);
                    tracing::warn!(%resource, "a deletion cannot be read; listing again");
                    WatchEvent::Unreadable(Unreadable {
                        resource,
                        key: None,
                        reason: "a deletion of something nameless".into(),
                    })
                }
            }),
            Frame::Bookmark(version) => Some(WatchEvent::Bookmark(resource, version)),
            // The watch task ends with it, and says why.
            Frame::Error(_) => None,
        }
    }

    fn ask_for_list(&self, resource: Resource) {
        if let Some(want) = self.wanted.get(&resource) {
            want.send_modify(|lists| *lists += 1);
        }
    }

    fn carry_out(&mut self) {
        self.fence.set(self.core.fence());
        for effect in self.core.take_effects() {
            match effect {
                Effect::Send(request) => self.send(request),
                Effect::List(resource) => self.ask_for_list(resource),
            }
        }
        if let Some((key, message)) = self.core.take_trouble() {
            tracing::warn!(key = %key.key, why = message, "a pass failed and will be repeated");
        }
        self.log_refusals();
        self.log_leadership();
    }

    fn log_refusals(&mut self) {
        for refusal in self.core.take_refusals() {
            let refusals::Refusal {
                key,
                tried,
                subject,
                reason,
                message,
                count,
                since,
                left_out,
            } = refusal;
            let controller = self.core.controller_name(&key);
            let what = match tried {
                Tried::Write => "a write",
                Tried::Status => "a status",
                Tried::Read => "a read",
            };
            tracing::warn!(
                controller, key = %key.key, subject, reason, why = message, count, %since, left_out,
                "the API server refuses {what}; it is tried again at growing intervals"
            );
        }
    }

    fn log_leadership(&mut self) {
        let leading = self.core.holds_lease(self.clock.now());
        if leading != self.was_leading {
            self.was_leading = leading;
            let holder = self.core.lease_holder().unwrap_or_default();
            if leading {
                tracing::info!("leading");
            } else {
                tracing::warn!(holder, "not leading any more");
            }
        }
    }

    fn send(&self, Request { id, call }: Request) {
        let (client, fence) = (self.client.clone(), self.fence.clone());
        let (answer_to, lease) = (self.answer_to.clone(), self.lease.clone());
        let versions = self.versions.clone();
        tokio::spawn(async move {
            let asked = Asked::of(&call);
            let raw = if call.needs_lease() && !fence.may_write() {
                Raw::Fenced
            } else {
                // A request that was never answered would hold up its pass for ever.
                let sent = AssertUnwindSafe(send(&client, (&lease, &versions), call))
                    .catch_unwind()
                    .await;
                sent.unwrap_or_else(|_| Raw::Lost("the request panicked".into()))
            };
            // If nobody listens, the manager has ended.
            let _ = answer_to.send((id, asked, raw)).await;
        });
    }

    fn tell_beside(&mut self, now: Timestamp) {
        let Some(beside) = &self.beside else { return };
        if now >= self.census_at {
            self.census_at = now + CENSUS_EVERY;
            beside.learn(self.core.census());
        }
    }

    fn answer_query(&self, query: Query) {
        // Whoever asked may have gone away.
        match query {
            Query::Metrics(reply) => {
                let beside = self.beside.as_deref();
                drop(reply.send(render::metrics(&self.core, beside, self.clock.now())));
            }
            Query::Readiness(reply) => {
                let mut missing = self.core.not_ready();
                missing.extend(self.beside.iter().flat_map(|beside| beside.not_ready()));
                drop(reply.send(missing));
            }
            Query::Health(reply) => drop(reply.send(())),
        }
    }
}

/// How long a shutdown may take, from the signal to the released lease.
fn shutdown_max(times: Option<LeaseTimes>) -> Duration {
    ANSWERED_WITHIN + times.map(|times| times.on_its_way()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shutdown_lasts_until_what_was_lost_can_take_no_effect() {
        let times = LeaseTimes::default();
        assert_eq!(shutdown_max(Some(times)), Duration::from_secs(15));
        assert!(shutdown_max(Some(times)) >= times.on_its_way());
        assert_eq!(shutdown_max(None), ANSWERED_WITHIN);
    }
}
