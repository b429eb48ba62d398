//! The owner of what is known: pods, runtimes, and what is remembered. It starts looks and stops, and takes in what comes of them.

mod pods;
mod trouble;

use crate::api::Api;
use crate::cri::Runtime;
use crate::events::{Teller, Type};
use crate::look::{Looked, Tools, look};
use crate::metrics::Metrics;
use crate::runtimes::{Keeper, News};
use crate::stop::{self, Outcome};
use flotilla_agent::{Pod, RESTARTS_MAX, Restart};
use flotilla_engine::io::clock::Clock;
use flotilla_engine::io::http::{self, Query};
use flotilla_engine::io::versions::Versions;
use flotilla_engine::io::watch::{Feed, Watcher};
use flotilla_model::{ObjectKey, Resource, Timestamp, Uid};
use futures::FutureExt;
use pods::Pods;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use trouble::Trouble;

/// Feeds of the watch that may wait: each holds a page of pods at most.
const FEED_MAX: usize = 2;
/// Questions of the HTTP side that may wait.
const QUERIES_MAX: usize = 16;
/// A stop that is under way when the agent has to end may take this long (AGT-10).
const STOPS_WITHIN: Duration = Duration::from_secs(8);
/// Without a runtime for this long the agent is not ready.
const RUNTIME_MISSED_AFTER: Duration = Duration::from_secs(120);
/// What has failed is tried again after this, and later each time, up to the cap.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(50));
/// What right before was not wanted any more is decided anew after this, should the watch not tell before.
const UNWANTED_AGAIN_AFTER: Duration = Duration::from_secs(3);

/// How an agent runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node.
    pub node: String,
    /// Where metrics, health and readiness are served, if at all.
    pub address: Option<SocketAddr>,
    /// Where runtimes are looked for; see [`crate::endpoints`].
    pub endpoints: Vec<String>,
    /// Pods that are looked at at the same time.
    pub workers: usize,
    /// Containers that are stopped at the same time.
    pub restart_workers: usize,
}

/// Why an agent could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No signals.
    #[error("failed to listen to signals: {0}")]
    Signals(#[source] std::io::Error),
    /// The address is not to be had.
    #[error("failed to serve metrics and health on {0}: {1}; choose another address with --addr, or none")]
    Serve(SocketAddr, #[source] std::io::Error),
    /// The watch ended, which it does not while the agent runs.
    #[error("the watch of pods ended unexpectedly; please report this")]
    Watch,
}

/// Runs the agent until SIGTERM or SIGINT.
///
/// # Errors
/// See [`Error`]. A runtime or an API server that does not answer is waited for.
pub async fn run(options: Options, client: kube::Client) -> Result<(), Error> {
    let mut stop = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    let (queries, asked) = mpsc::channel(QUERIES_MAX);
    let mut tasks = JoinSet::new();
    if let Some(address) = options.address {
        let listener = http::bind(address).map_err(|e| Error::Serve(address, e))?;
        tasks.spawn(http::serve(listener, http::Pages::All, queries.clone()));
    }
    let shutdown = async move {
        tokio::select! {
            _ = stop.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    // `queries` is kept, so that without a server its other end is silent instead of closed.
    let ended = Agent::start(options, client, &mut tasks).run(asked, shutdown).await;
    drop(queries);
    ended
}

/// A defect of ours in what is done for one pod must not end what is done for the others.
async fn guarded<T>(task: impl Future<Output = T>) -> Result<T, String> {
    let outcome = AssertUnwindSafe(task).catch_unwind().await;
    outcome.map_err(|_| "it panicked; please report this".to_owned())
}

struct Agent {
    options: Options,
    clock: Arc<Clock>,
    tools: Tools,
    teller: Teller,
    pods: Pods,
    /// Those that have answered, by name; one that does so no longer is asked all the same, and says so itself.
    runtimes: BTreeMap<String, Runtime>,
    /// When a runtime answered last.
    answered_at: Option<Timestamp>,
    trouble: Trouble,
    feeds: mpsc::Receiver<(Resource, Feed)>,
    news: mpsc::Receiver<(News, Option<Runtime>)>,
    looks: JoinSet<(ObjectKey, Uid, Result<Looked, String>)>,
    stops: JoinSet<(ObjectKey, Uid, Restart, Outcome)>,
    /// Keeps the watch going.
    _wanted: watch::Sender<u64>,
}

impl Agent {
    fn start(options: Options, client: kube::Client, tasks: &mut JoinSet<()>) -> Self {
        let (clock, metrics) = (Arc::new(Clock::new()), Arc::new(Metrics::new()));
        let (feed, feeds) = mpsc::channel(FEED_MAX);
        let (wanted, wants) = watch::channel(0);
        let watcher = Watcher {
            client: client.clone(),
            clock: clock.clone(),
            resource: Resource::Pods,
            namespace: None,
            fields: Some(format!("spec.nodeName={}", options.node)),
            versions: Versions::default(),
            feed,
            wanted: wants,
        };
        tasks.spawn(watcher.run());
        wanted.send_replace(1);
        let (tell, news) = mpsc::channel(1);
        let keeper = Keeper {
            endpoints: options.endpoints.clone(),
            metrics: metrics.clone(),
            news: tell,
        };
        tasks.spawn(keeper.run());
        let api = Api { client };
        let teller = Teller::new(
            api.clone(),
            clock.clone(),
            options.node.as_str().into(),
            metrics.clone(),
        );
        Agent {
            tools: Tools {
                api,
                clock: clock.clone(),
                metrics,
            },
            options,
            clock,
            teller,
            pods: Pods::default(),
            runtimes: BTreeMap::new(),
            answered_at: None,
            trouble: Trouble::default(),
            feeds,
            news,
            looks: JoinSet::new(),
            stops: JoinSet::new(),
            _wanted: wanted,
        }
    }

    async fn run(
        mut self,
        mut queries: mpsc::Receiver<Query>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            self.start_looks();
            let now = self.clock.now();
            let has_room = self.looks.len() < self.options.workers;
            let wake = self.pods.next_due().filter(|_| has_room).map(|due| due.since(now));
            tokio::select! {
                () = &mut shutdown => return self.end().await,
                feed = self.feeds.recv() => match feed {
                    Some((_, feed)) => self.take_feed(feed),
                    None => return Err(Error::Watch),
                },
                Some((news, runtime)) = self.news.recv() => self.take_news(news, runtime),
                // Nobody aborts them while this loop turns, and they catch their panics.
                Some(Ok((key, uid, looked))) = self.looks.join_next() => self.take_look(&key, &uid, looked),
                Some(Ok((key, uid, restart, outcome))) = self.stops.join_next() => {
                    self.take_stop(&key, &uid, &restart, outcome);
                }
                Some(query) = queries.recv() => self.answer(query),
                () = tokio::time::sleep(wake.unwrap_or_default()), if wake.is_some() => {}
            }
        }
    }

    /// Lets stops that are under way end, for a while. Looks have nothing to lose.
    async fn end(mut self) -> Result<(), Error> {
        self.looks.abort_all();
        let all = async { while self.stops.join_next().await.is_some() {} };
        if tokio::time::timeout(STOPS_WITHIN, all).await.is_err() {
            tracing::warn!(
                containers = self.stops.len(),
                "ending although containers are still being stopped"
            );
        }
        Ok(())
    }

    fn take_feed(&mut self, feed: Feed) {
        let now = self.clock.now();
        let unreadable = self.pods.take(feed, now);
        self.tools.metrics.unreadable.inc_by(unreadable);
    }

    fn take_news(&mut self, news: News, runtime: Option<Runtime>) {
        let now = self.clock.now();
        match (news, runtime) {
            (News::Up { endpoint, version }, Some(runtime)) => {
                self.answered_at = Some(now);
                if self.trouble.is_over() {
                    let note = format!("runtime {} {} answers at {endpoint}", version.name, version.version);
                    self.teller.of_node(Type::Normal, "RuntimeReady", &note);
                }
                if self.runtimes.insert(version.name, runtime).is_none() {
                    self.pods.look_at_all(now);
                }
            }
            (News::Down(cause), _) => {
                if self.trouble.tell(cause.word, now) {
                    self.teller
                        .of_node(Type::Warning, "RuntimeUnavailable", &cause.sentence);
                }
            }
            (News::Up { .. }, None) => {}
        }
    }

    /// Begins looks at pods that are due, as many as there is room for.
    fn start_looks(&mut self) {
        let now = self.clock.now();
        while self.looks.len() < self.options.workers {
            let Some((pod, memory)) = self.pods.begin(now) else {
                return;
            };
            let (key, uid) = (pod.key.clone(), pod.uid.clone());
            let Some(runtime) = self.runtime_of(&pod) else {
                // It is looked at when a runtime appears, or when something about it changes.
                self.pods.put_off(&key, None);
                continue;
            };
            let tools = self.tools.clone();
            self.looks.spawn(async move {
                let looked = guarded(look(&tools, &runtime, &pod, memory)).await;
                (key, uid, looked.and_then(|looked| looked.map_err(|e| e.to_string())))
            });
        }
    }

    /// The runtime that runs a pod.
    fn runtime_of(&self, pod: &Pod) -> Option<Runtime> {
        self.runtimes.get(pod.runtime()?).cloned()
    }

    fn take_look(&mut self, key: &ObjectKey, uid: &Uid, looked: Result<Looked, String>) {
        let now = self.clock.now();
        let Some(entry) = self.pods.ended(key, uid) else { return };
        let (looked, failed) = match looked {
            Ok(mut looked) => {
                let failed = looked.failed.take();
                (Some(looked), failed)
            }
            Err(why) => (None, Some(why)),
        };
        let mut given_up = Vec::new();
        let mut restarts = Vec::new();
        if let Some(looked) = looked {
            for (id, hash) in &looked.readings {
                match hash {
                    Some(hash) => entry.memory.has_read(id, *hash),
                    None => entry.memory.could_not_read(id, now),
                }
            }
            given_up = entry.memory.take(&looked.decision, now);
            for hold in &looked.decision.holds {
                tracing::debug!(pod = %key, container = hold.container, rule = hold.reason.rule(), "{}", hold.reason.words());
            }
            if let Some(at) = looked.decision.again_at() {
                entry.wake(at);
            }
            if let Some(pod) = looked.written {
                tracing::info!(pod = %key, "noted its containers");
                entry.update(pod);
            }
            restarts = looked.decision.restart;
        }
        match failed {
            None => entry.failures = 0,
            Some(why) => {
                let delay = RETRY.0.saturating_mul(1 << entry.failures.min(10)).min(RETRY.1);
                entry.failures += 1;
                entry.wake(now + delay);
                tracing::warn!(pod = %key, %why, "looking at a pod failed; it is tried again in {} ms", delay.as_millis());
            }
        }
        let pod = entry.pod.clone();
        for container in given_up {
            let note = format!(
                "Container {container} was restarted {RESTARTS_MAX} times for revision {}, and its environment still is not what the pod's \
                 metadata says; it is left as it is",
                pod.revision
            );
            self.teller
                .of_container(&pod, &container, Type::Warning, "EnvRestartLimit", &note);
        }
        for restart in restarts {
            self.start_stop(&pod, restart, now);
        }
    }

    fn start_stop(&mut self, pod: &Arc<Pod>, restart: Restart, now: Timestamp) {
        let Some(runtime) = self.runtime_of(pod) else { return };
        let Some(entry) = self.pods.get_mut(&pod.key) else {
            return;
        };
        if entry.stopping.contains(&restart.id) {
            return;
        }
        if self.stops.len() >= self.options.restart_workers {
            entry.wake(now + RETRY.0);
            return;
        }
        entry.stopping.insert(restart.id.clone());
        tracing::info!(pod = %pod.key, container = restart.container, "restarting a container for its environment");
        let (pod, memory, tools, teller) = (
            pod.clone(),
            entry.memory.clone(),
            self.tools.clone(),
            self.teller.clone(),
        );
        self.stops.spawn(async move {
            let outcome = guarded(stop::restart(&tools, &teller, &runtime, &pod, &memory, &restart)).await;
            let outcome = outcome.unwrap_or_else(Outcome::Failed);
            (pod.key.clone(), pod.uid.clone(), restart, outcome)
        });
    }

    fn take_stop(&mut self, key: &ObjectKey, uid: &Uid, restart: &Restart, outcome: Outcome) {
        let now = self.clock.now();
        match &outcome {
            Outcome::Stopped => self.tools.metrics.killed("environment"),
            Outcome::NotWanted => {}
            Outcome::Failed(why) => {
                tracing::warn!(pod = %key, container = restart.container, %why, "a container could not be stopped; it is tried again");
            }
        }
        let Some(entry) = self.pods.get_mut(key).filter(|entry| entry.pod.uid == *uid) else {
            return;
        };
        entry.stopping.remove(&restart.id);
        if outcome == Outcome::NotWanted {
            // The watch is behind what was read; it will tell.
            entry.wake(now + UNWANTED_AGAIN_AFTER);
            return;
        }
        let revision = entry.pod.revision.clone();
        entry
            .memory
            .is_stopping(&restart.container, &restart.id, &revision, now);
        entry.wake(now + RETRY.0);
    }

    fn answer(&self, query: Query) {
        // Whoever asked may have gone away.
        match query {
            Query::Metrics(reply) => drop(reply.send(self.tools.metrics.render())),
            Query::Readiness(reply) => drop(reply.send(self.not_ready())),
            Query::Health(reply) => drop(reply.send(())),
        }
    }

    /// What is missing.
    fn not_ready(&self) -> Vec<String> {
        let now = self.clock.now();
        let mut missing = Vec::new();
        if !self.pods.is_synced() {
            missing.push("the node's pods have not been listed".to_owned());
        }
        if self.answered_at.is_none_or(|at| now.since(at) > RUNTIME_MISSED_AFTER) {
            missing.push("no container runtime answers".to_owned());
        }
        missing
    }
}
