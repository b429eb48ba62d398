//! A thousand pods, made by one Parallel set under Flotilla, by the built-in controller, and by a client that does nothing else. Beside a
//! CloneSet the built-in controller is that of ReplicaSets.
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
use crate::workload::{Measured, Workload};
use flotilla_e2e::{Api, Manager, suite};
use flotilla_localcluster::Cluster;
use flotilla_model::SetKind;
use std::time::Duration;

/// The set of every run.
pub(crate) const SET: &str = "web";
/// Its namespace.
const NAMESPACE: &str = "run";
/// Who Flotilla is to the API server.
const USER: &str = "bench-flotilla";
/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Writes in flight that are tried for the bare client.
const CONCURRENCIES: [usize; 5] = [16, 32, 64, 128, 256];

/// What one run took.
#[derive(Clone, Copy, Debug)]
struct Run {
    pods_per_second: f64,
    /// Requests of the maker that write something, for each pod.
    writes_a_pod: f64,
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

impl Maker {
    /// What makes the pods, or owns them.
    fn workload(self, measured: Measured) -> Workload {
        match (measured, self) {
            (Measured::Statefulset, _) => Workload::Set(SetKind::Native),
            (Measured::Cloneset, Maker::BuiltIn) => Workload::ReplicaSet,
            (Measured::Cloneset, _) => Workload::Set(SetKind::Clone),
        }
    }
}

/// Runs all three, `rounds` times; the bare client with so many requests in flight, or the best number of several.
pub(crate) async fn measure(
    measured: Measured,
    replicas: i64,
    rounds: usize,
    concurrency: Option<usize>,
) -> Vec<Figure> {
    let concurrency = match concurrency {
        Some(concurrency) => concurrency,
        None => best_concurrency(measured, replicas).await,
    };
    let mut runs = Runs {
        bare: Vec::new(),
        flotilla: Vec::new(),
        built_in: Vec::new(),
    };
    for _ in 0..rounds {
        runs.bare.push(run(Maker::Bare(concurrency), measured, replicas).await);
        runs.flotilla.push(run(Maker::Flotilla, measured, replicas).await);
        runs.built_in.push(run(Maker::BuiltIn, measured, replicas).await);
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
        let lines = [
            self.rates(),
            self.writes(),
            self.cpu(),
            self.cpu_of_the_server(),
            self.memory(),
        ];
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

    fn writes(&self) -> Vec<Figure> {
        let writes = |runs| of(runs, |run| run.writes_a_pod);
        let figure = |peer| figure("writes", Unit::PerPod, writes(&self.flotilla), peer, Bar::None);
        vec![
            figure(("bare client", writes(&self.bare))),
            figure(("built-in controller", writes(&self.built_in))),
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
async fn best_concurrency(measured: Measured, replicas: i64) -> usize {
    let mut best = (0.0, CONCURRENCIES[0]);
    for concurrency in CONCURRENCIES {
        let rate = run(Maker::Bare(concurrency), measured, replicas).await.pods_per_second;
        if rate > best.0 {
            best = (rate, concurrency);
        }
    }
    eprintln!("create: the bare client is fastest with {} requests in flight", best.1);
    best.1
}

/// One run in a fresh cluster.
async fn run(maker: Maker, measured: Measured, replicas: i64) -> Run {
    let mut builder = Cluster::disposable("bench-create").nodes(5).audit_log();
    if maker != Maker::BuiltIn {
        builder = builder.without_statefulset_controller();
    }
    let cluster = builder.start().expect("a cluster");
    let api = Api::connect(cluster.kubeconfig_path()).await;
    suite::install_crds(&api, std::convert::identity).await;
    suite::make_namespace(&api, NAMESPACE).await;
    let bench = Bench {
        workload: maker.workload(measured),
        cluster,
        api,
        replicas,
    };
    let manager = (maker == Maker::Flotilla).then(|| {
        let kubeconfig = bench.cluster.user_kubeconfig(USER, &["system:masters"]);
        Manager::alone(&kubeconfig.expect("a kubeconfig"))
    });
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
    workload: Workload,
    cluster: Cluster,
    api: Api,
    replicas: i64,
}

impl Bench {
    /// One pod of another set: whoever makes it is then running.
    async fn warm_up(&self) {
        let warm = self.workload.manifest("warm", 1);
        self.api.create(&self.workload.collection(NAMESPACE), &warm).await;
        self.rolled_out("warm").await;
    }

    async fn rolled_out(&self, name: &str) {
        self.workload.rolled_out(&self.api, NAMESPACE, name, PATIENCE).await;
    }

    /// Makes the pods and takes the time.
    async fn make(&self, maker: Maker, manager: Option<&Manager>) -> Run {
        let set = self.workload.manifest(SET, self.replicas);
        let replicas = usize::try_from(self.replicas).expect("not negative");
        let sets_path = self.workload.collection(NAMESPACE);
        let observer = Observer::until_running(&self.api, NAMESPACE, SET, replicas).await;
        let before = if let (Maker::Bare(concurrency), Workload::Set(kind)) = (maker, self.workload) {
            // The set is there, as the pods' owner, but nobody acts on it.
            self.api.create(&sets_path, &set).await;
            let drafts = Drafts::of_set(kind, &self.api, NAMESPACE).await;
            assert_eq!(drafts.len(), replicas, "a Parallel set asks for all its pods at once");
            let before = Spent::now(&self.cluster, manager);
            post_all(self.api.client().clone(), drafts, concurrency).await;
            observer.finish(PATIENCE).await;
            before
        } else {
            let before = Spent::now(&self.cluster, manager);
            self.api.create(&sets_path, &set).await;
            observer.finish(PATIENCE).await;
            self.rolled_out(SET).await;
            before
        };
        let after = Spent::now(&self.cluster, manager);
        let log = Log::read(&self.cluster, self.workload);
        assert_eq!(log.pods.len(), replicas, "the log tells of every pod");
        let begun = match maker {
            Maker::Bare(_) => log.pods.iter().map(|pod| pod.received).min().expect("some pod"),
            Maker::Flotilla | Maker::BuiltIn => log.set,
        };
        let done = log.pods.iter().map(|pod| pod.done).max().expect("some pod");
        #[allow(clippy::cast_precision_loss)] // Thousands of pods, millions of microseconds.
        let (pods, microseconds, writes) = (replicas as f64, (done - begun) as f64, log.writes_since(begun) as f64);
        Run {
            pods_per_second: pods * 1e6 / microseconds,
            writes_a_pod: writes / pods,
            spent: after - before,
        }
    }
}

/// What the API server's audit log tells of one run, in microseconds since the epoch.
struct Log {
    /// When the request to create the set arrived.
    set: i64,
    /// The requests that created its pods.
    pods: Vec<Entry>,
    /// All writes.
    all: Vec<Entry>,
}

impl Log {
    fn read(cluster: &Cluster, workload: Workload) -> Self {
        let all = audit::read(cluster);
        let is_created = |entry: &&Entry| entry.verb == "create" && entry.code == 201 && entry.namespace == NAMESPACE;
        let mut sets = all.iter().filter(is_created);
        let set = sets.find(|entry| entry.resource == workload.plural() && entry.name == SET);
        let set = set.expect("the set was created").received;
        // Nobody else makes pods then; not every maker's requests tell their names.
        let is_of_set = |entry: &&Entry| entry.resource == "pods" && entry.received >= set;
        let pods = all.iter().filter(is_created).filter(is_of_set).cloned().collect();
        Log { set, pods, all }
    }

    /// How many requests whoever made the pods has sent since then.
    fn writes_since(&self, begun: i64) -> usize {
        let maker = &self.pods[0].user;
        let own = self.all.iter().filter(|e| &e.user == maker && e.received >= begun);
        own.count()
    }
}
