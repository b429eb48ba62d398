//! A thousand pods, made by one Parallel set under Flotilla, by the built-in controller, and by a client that does nothing else.
//!
//! All three run in one cluster, in turn, several rounds; each makes the same pods in a namespace of its own, which is emptied before
//! the next. Each has made one pod before the clock starts, so that connections stand and caches are filled. The figures are medians
//! over the rounds, and a ratio is that of the medians.

use crate::bare::{Drafts, post_all};
use crate::figure::{Bar, Figure, Unit, median};
use crate::observer::Observer;
use flotilla_e2e::{Api, Kind, Manager, clock, sets, suite};
use flotilla_localcluster::{Cluster, Component, cpu_seconds_of, peak_rss_bytes_of};
use http::Method;
use serde_json::json;
use std::time::Duration;

/// The set of every run.
pub(crate) const SET: &str = "web";
/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Writes in flight that are tried for the bare client.
const CONCURRENCIES: [usize; 5] = [8, 16, 32, 64, 128];

/// What one run took.
#[derive(Clone, Copy, Debug)]
struct Run {
    pods_per_second: f64,
    /// Processor time from the first request until all pods ran and the set's status said so.
    apiserver_cpu: f64,
    controller_manager_cpu: f64,
    flotilla_cpu: f64,
    /// Peak memory, in MB.
    flotilla_rss: f64,
    controller_manager_rss: f64,
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
    let cluster = Cluster::builder("bench-create")
        .nodes(5)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let api = Api::connect(cluster.kubeconfig_path()).await;
    suite::install_crds(&api, std::convert::identity).await;
    let mut bench = Bench {
        cluster,
        api,
        replicas,
        runs: 0,
    };
    let concurrency = match concurrency {
        Some(concurrency) => concurrency,
        None => bench.best_concurrency().await,
    };
    let mut runs = Runs {
        bare: Vec::new(),
        flotilla: Vec::new(),
        built_in: Vec::new(),
    };
    for _ in 0..rounds {
        runs.bare.push(bench.run(Maker::Bare(concurrency)).await);
        runs.flotilla.push(bench.run(Maker::Flotilla).await);
        runs.built_in.push(bench.run(Maker::BuiltIn).await);
    }
    bench.cluster.down().expect("the cluster ends");
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
        let apiserver = of(&self.flotilla, |run| run.apiserver_cpu);
        // What the controller-manager's other controllers do with a thousand new pods is in both; the difference is the set's.
        let whole = of(&self.built_in, |run| run.controller_manager_cpu);
        let share = whole - of(&self.flotilla, |run| run.controller_manager_cpu);
        let ours = of(&self.flotilla, |run| run.flotilla_cpu);
        let figure = |peer, bar| figure("CPU of the controller", Unit::CpuSeconds, ours, peer, bar);
        vec![
            figure(("API server meanwhile", apiserver), Bar::RatioBelow(0.05)),
            figure(("controller-manager, set's share", share), Bar::None),
            figure(("controller-manager, whole", whole), Bar::None),
        ]
    }

    fn cpu_of_the_server(&self) -> Vec<Figure> {
        let cpu = |runs| of(runs, |run| run.apiserver_cpu);
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
        let ours = of(&self.flotilla, |run| run.flotilla_rss);
        let peer = of(&self.built_in, |run| run.controller_manager_rss);
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

struct Bench {
    cluster: Cluster,
    api: Api,
    replicas: i64,
    runs: usize,
}

impl Bench {
    /// With how many requests in flight the bare client is fastest here.
    async fn best_concurrency(&mut self) -> usize {
        let mut best = (0.0, CONCURRENCIES[0]);
        for concurrency in CONCURRENCIES {
            let rate = self.run(Maker::Bare(concurrency)).await.pods_per_second;
            if rate > best.0 {
                best = (rate, concurrency);
            }
        }
        eprintln!("create: the bare client is fastest with {} requests in flight", best.1);
        best.1
    }

    /// One run in a fresh namespace, which is empty again afterwards.
    async fn run(&mut self, maker: Maker) -> Run {
        self.runs += 1;
        let namespace = format!("run-{}", self.runs);
        suite::make_namespace(&self.api, &namespace).await;
        let mut manager = None;
        match maker {
            Maker::Bare(_) => {}
            Maker::Flotilla => manager = Some(Manager::alone(self.cluster.kubeconfig_path())),
            Maker::BuiltIn => self
                .cluster
                .set_statefulset_controller(true)
                .expect("the controller-manager restarts"),
        }
        if !matches!(maker, Maker::Bare(_)) {
            self.warm_up(&namespace).await;
        }
        self.calm_down().await;
        let run = self.make(maker, &namespace, manager.as_ref()).await;
        if maker == Maker::BuiltIn {
            self.cluster
                .set_statefulset_controller(false)
                .expect("the controller-manager restarts");
        }
        drop(manager);
        self.clean(&namespace).await;
        eprintln!("create: {maker:?}: {run:.2?}");
        run
    }

    /// One pod of another set: whoever makes it is then running.
    async fn warm_up(&self, namespace: &str) {
        self.api
            .create(&Kind::Native.sets(namespace), &Kind::Native.manifest("warm", 1))
            .await;
        sets::rolled_out_within(&self.api, Kind::Native, namespace, "warm", PATIENCE).await;
    }

    /// Makes the pods and takes the time.
    async fn make(&self, maker: Maker, namespace: &str, manager: Option<&Manager>) -> Run {
        let mut set = Kind::Native.manifest(SET, self.replicas);
        set["spec"]["podManagementPolicy"] = json!("Parallel");
        let replicas = usize::try_from(self.replicas).expect("not negative");
        let sets_path = Kind::Native.sets(namespace);
        let observer = Observer::start(&self.api, namespace, SET, replicas).await;
        let created = if let Maker::Bare(concurrency) = maker {
            // The set is there, as the pods' owner, but nobody acts on it.
            self.api.create(&sets_path, &set).await;
            let drafts = Drafts::of_set(&self.api, namespace).await;
            assert_eq!(drafts.len(), replicas, "a Parallel set asks for all its pods at once");
            let before = self.spent(manager);
            let begun = clock::now();
            let posting = tokio::spawn(post_all(self.api.client().clone(), drafts, concurrency));
            let seen = observer.finish(PATIENCE).await;
            posting.await.expect("every pod is created");
            (before, seen.all_created.duration_since(begun))
        } else {
            let before = self.spent(manager);
            let begun = clock::now();
            self.api.create(&sets_path, &set).await;
            let seen = observer.finish(PATIENCE).await;
            sets::rolled_out_within(&self.api, Kind::Native, namespace, SET, PATIENCE).await;
            (before, seen.all_created.duration_since(begun))
        };
        let (before, taken) = created;
        let after = self.spent(manager);
        Run {
            #[allow(clippy::cast_precision_loss)] // Thousands.
            pods_per_second: replicas as f64 / taken.as_secs_f64(),
            apiserver_cpu: after.apiserver_cpu - before.apiserver_cpu,
            controller_manager_cpu: after.controller_manager_cpu - before.controller_manager_cpu,
            flotilla_cpu: after.flotilla_cpu - before.flotilla_cpu,
            ..after
        }
    }

    /// Counters as they stand.
    fn spent(&self, manager: Option<&Manager>) -> Run {
        let cpu = |component| self.cluster.cpu_seconds(component).expect("it runs");
        #[allow(clippy::cast_precision_loss)] // Megabytes.
        let mb = |bytes: u64| bytes as f64 / 1e6;
        Run {
            pods_per_second: 0.0,
            apiserver_cpu: cpu(Component::Apiserver),
            controller_manager_cpu: cpu(Component::ControllerManager),
            flotilla_cpu: manager.map_or(0.0, |m| cpu_seconds_of(m.pid()).expect("it runs")),
            flotilla_rss: manager.map_or(0.0, |m| mb(peak_rss_bytes_of(m.pid()).expect("it runs"))),
            controller_manager_rss: mb(self
                .cluster
                .peak_rss_bytes(Component::ControllerManager)
                .expect("it runs")),
        }
    }

    /// Waits until the API server and the controller-manager have next to nothing left to do.
    async fn calm_down(&self) {
        for _ in 0..60 {
            let before = self.spent(None);
            tokio::time::sleep(Duration::from_secs(1)).await;
            let after = self.spent(None);
            let apiserver = after.apiserver_cpu - before.apiserver_cpu;
            if apiserver < 0.15 && after.controller_manager_cpu - before.controller_manager_cpu < 0.1 {
                return;
            }
        }
        eprintln!("create: the cluster did not calm down within a minute; going on");
    }

    /// Takes away all that a run has left.
    async fn clean(&self, namespace: &str) {
        self.api.delete(&Kind::Native.sets(namespace), true).await;
        let pods = sets::pods(namespace);
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        let sent = self
            .api
            .send(Method::DELETE, &pods, Some(("application/json", &options)))
            .await;
        sent.expect("pods can be deleted");
        let one = format!("{pods}?limit=1");
        for _ in 0..1200 {
            if self.api.list(&one).await.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{namespace} still holds pods after two minutes");
    }
}
