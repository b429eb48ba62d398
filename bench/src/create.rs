//! A thousand pods, made by one Parallel set under Flotilla, by the built-in controller, and by a client that does nothing else.
//!
//! They take turns, several rounds, each run in a cluster of its own: one that has made and lost thousands of pods gets slower from run
//! to run. Each has made one pod before the clock starts, so that connections stand and caches are filled. When a pod was created is read
//! from the API server's audit log: under this load a watch may tell of it a second later. The figures are medians over the rounds, and
//! a ratio is that of the medians.

use crate::audit::{self, Entry};
use crate::bare::{Drafts, post_all};
use crate::figure::{Bar, Figure, Unit, median};
use crate::meter::{Spent, calm_down};
use crate::observer::Observer;
use flotilla_e2e::{Api, Kind, Manager, sets, suite};
use flotilla_localcluster::Cluster;
use serde_json::json;
use std::time::Duration;

/// The set of every run.
pub(crate) const SET: &str = "web";
/// Its namespace.
const NAMESPACE: &str = "run";
/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Writes in flight that are tried for the bare client.
const CONCURRENCIES: [usize; 5] = [16, 32, 64, 128, 256];

/// What one run took.
#[derive(Clone, Copy, Debug)]
struct Run {
    pods_per_second: f64,
    /// From the first request until all pods ran and the set's status said so.
    spent: Spent,
}

/// Who makes the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Bare(usize),
    Flotilla,
    BuiltIn,
}

/// Runs all three, `rounds` times; the bare client with so many requests in flight, or the best number of several.
pub(crate) async fn measure(replicas: i64, rounds: usize, concurrency: Option<usize>) -> Vec<Figure> {
    let concurrency = match concurrency {
        Some(concurrency) => concurrency,
        None => best_concurrency(replicas).await,
    };
    let mut runs = Runs {
        bare: Vec::new(),
        flotilla: Vec::new(),
        built_in: Vec::new(),
    };
    for _ in 0..rounds {
        runs.bare.push(run(Maker::Bare(concurrency), replicas).await);
        runs.flotilla.push(run(Maker::Flotilla, replicas).await);
        runs.built_in.push(run(Maker::BuiltIn, replicas).await);
    }
    runs.figures(replicas)
}

/// The runs of each maker.
struct Runs {
    bare: Vec<Run>,
    flotilla: Vec<Run>,
    built_in: Vec<Run>,
}

impl Runs {
    fn figures(&self, replicas: i64) -> Vec<Figure> {
        let lines = [self.rates(), self.cpu(), self.cpu_of_the_server(), self.memory()];
        let named = |figure: Figure| Figure {
            what: format!("{replicas} pods: {}", figure.what),
            ..figure
        };
        lines.into_iter().flatten().map(named).collect()
    }

    fn rates(&self) -> Vec<Figure> {
        let rate = |runs| of(runs, |run| run.pods_per_second);
        let figure = |peer, bar| {
            figure(
                "created per second",
                Unit::PodsPerSecond,
                rate(&self.flotilla),
                peer,
                bar,
            )
        };
        vec![
            figure(("bare client", rate(&self.bare)), Bar::RatioAtLeast(0.9)),
            figure(("built-in controller", rate(&self.built_in)), Bar::None),
        ]
    }

    fn cpu(&self) -> Vec<Figure> {
        let apiserver = of(&self.flotilla, |run| run.spent.apiserver_cpu);
        // What the controller-manager's other controllers do with a thousand new pods is in both; the difference is the set's.
        let whole = of(&self.built_in, |run| run.spent.controller_manager_cpu);
        let share = whole - of(&self.flotilla, |run| run.spent.controller_manager_cpu);
        let ours = of(&self.flotilla, |run| run.spent.flotilla_cpu);
        let figure = |peer, bar| figure("CPU of the controller", Unit::CpuSeconds, ours, peer, bar);
        vec![
            figure(("API server meanwhile", apiserver), Bar::RatioBelow(0.05)),
            figure(("controller-manager, set's share", share), Bar::None),
            figure(("controller-manager, whole", whole), Bar::None),
        ]
    }

    fn cpu_of_the_server(&self) -> Vec<Figure> {
        let cpu = |runs| of(runs, |run| run.spent.apiserver_cpu);
        let figure = |peer| {
            figure(
                "CPU of the API server",
                Unit::CpuSeconds,
                cpu(&self.flotilla),
                peer,
                Bar::None,
            )
        };
        vec![
            figure(("under the built-in controller", cpu(&self.built_in))),
            figure(("under the bare client", cpu(&self.bare))),
        ]
    }

    fn memory(&self) -> Vec<Figure> {
        let ours = of(&self.flotilla, |run| run.spent.flotilla_rss);
        let peer = of(&self.built_in, |run| run.spent.controller_manager_rss);
        let peer = ("controller-manager, whole", peer);
        vec![figure("peak memory", Unit::Megabytes, ours, peer, Bar::Below(32.0))]
    }
}

fn of(runs: &[Run], pick: fn(&Run) -> f64) -> f64 {
    median(runs.iter().map(pick).collect())
}

fn figure(what: &str, unit: Unit, ours: f64, peer: (&'static str, f64), bar: Bar) -> Figure {
    Figure {
        what: what.to_owned(),
        unit,
        ours,
        peer,
        bar,
    }
}

/// With how many requests in flight the bare client is fastest here.
async fn best_concurrency(replicas: i64) -> usize {
    let mut best = (0.0, CONCURRENCIES[0]);
    for concurrency in CONCURRENCIES {
        let rate = run(Maker::Bare(concurrency), replicas).await.pods_per_second;
        if rate > best.0 {
            best = (rate, concurrency);
        }
    }
    eprintln!("create: the bare client is fastest with {} requests in flight", best.1);
    best.1
}

/// One run in a fresh cluster.
async fn run(maker: Maker, replicas: i64) -> Run {
    let mut builder = Cluster::disposable("bench-create").nodes(5).audit_log();
    if maker != Maker::BuiltIn {
        builder = builder.without_statefulset_controller();
    }
    let cluster = builder.start().expect("a cluster");
    let api = Api::connect(cluster.kubeconfig_path()).await;
    suite::install_crds(&api, std::convert::identity).await;
    suite::make_namespace(&api, NAMESPACE).await;
    let bench = Bench { cluster, api, replicas };
    let manager = (maker == Maker::Flotilla).then(|| Manager::alone(bench.cluster.kubeconfig_path()));
    if !matches!(maker, Maker::Bare(_)) {
        bench.warm_up().await;
    }
    calm_down(&bench.cluster, "create").await;
    let run = bench.make(maker, manager.as_ref()).await;
    drop(manager);
    bench.cluster.down().expect("the cluster ends");
    eprintln!("create: {maker:?}: {run:.2?}");
    run
}

struct Bench {
    cluster: Cluster,
    api: Api,
    replicas: i64,
}

impl Bench {
    /// One pod of another set: whoever makes it is then running.
    async fn warm_up(&self) {
        self.api
            .create(&Kind::Native.sets(NAMESPACE), &Kind::Native.manifest("warm", 1))
            .await;
        sets::rolled_out_within(&self.api, Kind::Native, NAMESPACE, "warm", PATIENCE).await;
    }

    /// Makes the pods and takes the time.
    async fn make(&self, maker: Maker, manager: Option<&Manager>) -> Run {
        let mut set = Kind::Native.manifest(SET, self.replicas);
        set["spec"]["podManagementPolicy"] = json!("Parallel");
        let replicas = usize::try_from(self.replicas).expect("not negative");
        let sets_path = Kind::Native.sets(NAMESPACE);
        let observer = Observer::until_ready(&self.api, NAMESPACE, SET, replicas).await;
        let before = if let Maker::Bare(concurrency) = maker {
            // The set is there, as the pods' owner, but nobody acts on it.
            self.api.create(&sets_path, &set).await;
            let drafts = Drafts::of_set(&self.api, NAMESPACE).await;
            assert_eq!(drafts.len(), replicas, "a Parallel set asks for all its pods at once");
            let before = Spent::now(&self.cluster, manager);
            post_all(self.api.client().clone(), drafts, concurrency).await;
            observer.finish(PATIENCE).await;
            before
        } else {
            let before = Spent::now(&self.cluster, manager);
            self.api.create(&sets_path, &set).await;
            observer.finish(PATIENCE).await;
            sets::rolled_out_within(&self.api, Kind::Native, NAMESPACE, SET, PATIENCE).await;
            before
        };
        let after = Spent::now(&self.cluster, manager);
        let log = Log::read(&self.cluster);
        let begun = match maker {
            Maker::Bare(_) => log.pods.iter().map(|pod| pod.received).min(),
            Maker::Flotilla | Maker::BuiltIn => log.set,
        };
        assert_eq!(log.pods.len(), replicas, "the log tells of every pod");
        let done = log.pods.iter().map(|pod| pod.done).max();
        let microseconds = begun.zip(done).map(|(begun, done)| done - begun);
        #[allow(clippy::cast_precision_loss)] // Thousands of pods, millions of microseconds.
        let pods_per_second = replicas as f64 * 1e6 / microseconds.expect("the log tells when it began") as f64;
        Run {
            pods_per_second,
            spent: after - before,
        }
    }
}

/// What the API server's audit log tells of one run, in microseconds since the epoch.
struct Log {
    /// When the request to create the set arrived.
    set: Option<i64>,
    /// The requests that created its pods.
    pods: Vec<Entry>,
}

impl Log {
    fn read(cluster: &Cluster) -> Self {
        let mut log = Log {
            set: None,
            pods: Vec::new(),
        };
        let is_created = |entry: &Entry| entry.verb == "create" && entry.code == 201 && entry.namespace == NAMESPACE;
        for entry in audit::read(cluster).into_iter().filter(is_created) {
            if entry.resource == "statefulsets" && entry.name == SET {
                log.set = Some(entry.received);
            }
            let is_of_set = entry.name.strip_prefix(SET).is_some_and(|rest| rest.starts_with('-'));
            if entry.resource == "pods" && is_of_set {
                log.pods.push(entry);
            }
        }
        log
    }
}
