//! A thousand pods of one Parallel Advanced StatefulSet, or of one CloneSet, updated in place within a budget, by Flotilla and by a
//! client that sends the same patches and does nothing else.
//!
//! They take turns on the same pods, several rounds; Flotilla's process is a new one each time. What was asked of the API server, and
//! when, is read from its audit log, where each of the two is a user of its own. The figures are medians over the rounds, and a ratio is
//! that of the medians.

mod bare;

use crate::audit::{self, Entry};
use crate::figure::{Bar, Figure, Unit, median};
use crate::meter::{Spent, calm_down};
use crate::workload::{Measured, Workload};
use bare::Work;
use flotilla_e2e::{Api, Manager, sets, suite};
use flotilla_localcluster::Cluster;
use flotilla_model::SetKind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// The set.
const SET: &str = "web";
/// Its namespace.
const NAMESPACE: &str = "run";
/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// One of so many pods may be out of service at any time.
const BUDGET_OF: i64 = 10;
/// Requests about a pod, refused ones included, that its update in place may cost. Pods of a CloneSet carry a state of their lifecycle,
/// which tells of the end of an update too.
fn requests_a_pod(kind: SetKind) -> f64 {
    if kind == SetKind::Clone { 4.0 } else { 3.0 }
}

/// Who updates the pods; also the name of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Flotilla,
    Bare,
}

impl Maker {
    fn user(self) -> &'static str {
        match self {
            Maker::Flotilla => "bench-flotilla",
            Maker::Bare => "bench-bare",
        }
    }
}

/// What one run took.
#[derive(Clone, Debug)]
struct Run {
    /// From the first request (the set's change; of the bare client: about a pod) to the last write of a pod by anybody.
    seconds: f64,
    /// From the first request until the set's status says that the rollout is over; of the bare client: until all pods are ready.
    spent: Spent,
    /// Requests by verb and resource.
    requests: BTreeMap<String, Count>,
}

/// Requests of one verb about one resource.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: u32,
    /// Those of them that were refused, since the object was not as the request said.
    conflicts: u32,
}

/// Updates the pods of a set of `replicas`, `rounds` times each way.
pub(crate) async fn measure(measured: Measured, replicas: i64, rounds: usize) -> Vec<Figure> {
    let kind = match measured {
        Measured::Statefulset => SetKind::Advanced,
        Measured::Cloneset => SetKind::Clone,
    };
    let mut lab = Lab::start(kind, replicas).await;
    let before = lab.incarnations().await;
    let (mut flotilla, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        flotilla.push(lab.run(Maker::Flotilla).await);
        bare.push(lab.run(Maker::Bare).await);
    }
    assert_eq!(lab.incarnations().await, before, "no pod was made again");
    lab.cluster.down().expect("the cluster ends");
    let runs = Runs {
        kind,
        flotilla,
        bare,
        replicas,
    };
    runs.figures()
}

/// A cluster with the set, all its pods ready.
struct Lab {
    cluster: Cluster,
    api: Api,
    kubeconfigs: BTreeMap<&'static str, PathBuf>,
    kind: SetKind,
    replicas: i64,
    /// Version of the image that the set asks for.
    version: u32,
}

impl Lab {
    async fn start(kind: SetKind, replicas: i64) -> Self {
        let cluster = Cluster::disposable("bench-update").nodes(5).audit_reads();
        let cluster = cluster.without_statefulset_controller().start().expect("a cluster");
        let api = Api::connect(cluster.kubeconfig_path()).await;
        suite::install_crds(&api, std::convert::identity).await;
        suite::make_namespace(&api, NAMESPACE).await;
        let kubeconfig = |maker: Maker| {
            let path = cluster.user_kubeconfig(maker.user(), &["system:masters"]);
            (maker.user(), path.expect("a kubeconfig"))
        };
        let kubeconfigs = [Maker::Flotilla, Maker::Bare].map(kubeconfig).into();
        let lab = Lab {
            cluster,
            api,
            kubeconfigs,
            kind,
            replicas,
            version: 1,
        };
        eprintln!("update: making {replicas} pods …");
        let manager = lab.manager();
        let collection = Workload::Set(kind).collection(NAMESPACE);
        lab.api.create(&collection, &manifest(kind, replicas)).await;
        lab.rolled_out().await;
        drop(manager);
        lab
    }

    fn manager(&self) -> Manager {
        Manager::alone(&self.kubeconfigs[Maker::Flotilla.user()])
    }

    async fn rolled_out(&self) {
        let set = Workload::Set(self.kind);
        set.rolled_out(&self.api, NAMESPACE, SET, PATIENCE).await;
    }

    /// UIDs of the pods.
    async fn incarnations(&self) -> BTreeSet<String> {
        let pods = self.api.list(&sets::pods(NAMESPACE)).await;
        pods.values().map(|pod| pod["metadata"]["uid"].to_string()).collect()
    }

    /// Gives the set another image, and updates its pods.
    async fn run(&mut self, maker: Maker) -> Run {
        self.version += 1;
        let run = match maker {
            Maker::Flotilla => self.run_flotilla().await,
            Maker::Bare => self.run_bare().await,
        };
        eprintln!("update: {maker:?}: {run:.3?}");
        run
    }

    async fn run_flotilla(&self) -> Run {
        let manager = self.manager();
        // It catches up with what the bare client did.
        self.rolled_out().await;
        calm_down(&self.cluster, "update").await;
        let before = Spent::now(&self.cluster, Some(&manager));
        self.change_image().await;
        self.rolled_out().await;
        let spent = Spent::now(&self.cluster, Some(&manager)) - before;
        drop(manager);
        let log = audit::read(&self.cluster);
        let plural = self.kind.resource().plural();
        let changes = log.iter().filter(|e| e.verb == "patch" && e.resource == plural);
        let begun = changes.map(|e| e.received).max().expect("the set was changed");
        Self::run_of(Maker::Flotilla, begun, spent, &log)
    }

    async fn run_bare(&self) -> Run {
        self.change_image().await;
        let client = Api::connect(&self.kubeconfigs[Maker::Bare.user()]).await;
        let work = Work::prepare(self.kind, client.client().clone(), &self.api).await;
        assert_eq!(work.len(), usize::try_from(self.replicas).expect("not negative"));
        let earlier = audit::read(&self.cluster).len();
        calm_down(&self.cluster, "update").await;
        let before = Spent::now(&self.cluster, None);
        work.run(self.budget(), PATIENCE).await;
        let spent = Spent::now(&self.cluster, None) - before;
        let log = audit::read(&self.cluster).split_off(earlier);
        let own = log.iter().filter(|e| e.user == Maker::Bare.user());
        let begun = own.map(|e| e.received).min().expect("it asked for something");
        Self::run_of(Maker::Bare, begun, spent, &log)
    }

    fn budget(&self) -> usize {
        usize::try_from(self.replicas / BUDGET_OF).expect("not negative").max(1)
    }

    async fn change_image(&self) {
        let image = format!("app:v{}", self.version);
        let set = format!("{}/{SET}", Workload::Set(self.kind).collection(NAMESPACE));
        sets::set_image(&self.api, &set, &image).await;
    }

    /// What the log tells of a run that began at `begun`.
    fn run_of(maker: Maker, begun: i64, spent: Spent, log: &[Entry]) -> Run {
        let since: Vec<&Entry> = log.iter().filter(|e| e.received >= begun).collect();
        let is_of_pod = |e: &&&Entry| e.namespace == NAMESPACE && e.resource.starts_with("pods") && e.is_success();
        let written = since.iter().filter(is_of_pod).filter(|e| e.verb != "list");
        let ended = written.map(|e| e.done).max().expect("pods were written");
        let mut requests: BTreeMap<String, Count> = BTreeMap::new();
        for entry in since.iter().filter(|e| e.user == maker.user()) {
            let count = requests
                .entry(format!("{} {}", entry.verb, entry.resource))
                .or_default();
            count.all += 1;
            count.conflicts += u32::from(matches!(entry.code, 409 | 422));
        }
        #[allow(clippy::cast_precision_loss)] // Microseconds of minutes.
        let seconds = (ended - begun) as f64 / 1e6;
        Run {
            seconds,
            spent,
            requests,
        }
    }
}

fn manifest(kind: SetKind, replicas: i64) -> Value {
    let mut set = Workload::Set(kind).manifest(SET, replicas);
    set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {
        "podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": format!("{}%", 100 / BUDGET_OF)}});
    set["spec"]["template"]["spec"]["readinessGates"] = json!([{"conditionType": "InPlaceUpdateReady"}]);
    set
}

/// The runs of each.
struct Runs {
    kind: SetKind,
    flotilla: Vec<Run>,
    bare: Vec<Run>,
    replicas: i64,
}

impl Runs {
    fn figures(&self) -> Vec<Figure> {
        let lines = [self.requests(), self.each_request(), self.time(), self.processes()];
        lines.into_iter().flatten().collect()
    }

    /// A value of both sides, as a figure beside the bare client's.
    fn beside_bare(&self, what: &str, unit: Unit, bar: Bar, pick: impl Fn(&Run) -> f64) -> Figure {
        let of = |runs: &[Run]| median(runs.iter().map(&pick).collect());
        self.figure(what, unit, of(&self.flotilla), ("bare client", of(&self.bare)), bar)
    }

    fn figure(&self, what: &str, unit: Unit, ours: f64, peer: (&'static str, f64), bar: Bar) -> Figure {
        Figure {
            what: format!("{} pods updated in place: {what}", self.replicas),
            unit,
            ours,
            peer,
            bar,
        }
    }

    /// Of these requests, how many there were for each pod.
    fn a_pod(&self, run: &Run, picks: impl Fn(&str) -> bool, count: fn(&Count) -> u32) -> f64 {
        let picked = run.requests.iter().filter(|(what, _)| picks(what));
        let sum: u32 = picked.map(|(_, c)| count(c)).sum();
        #[allow(clippy::cast_precision_loss)] // Thousands.
        let pods = self.replicas as f64;
        f64::from(sum) / pods
    }

    fn requests(&self) -> Vec<Figure> {
        let about_pods = |what: &str| what.contains(" pods");
        vec![
            self.beside_bare(
                "requests about pods",
                Unit::PerPod,
                Bar::AtMost(requests_a_pod(self.kind)),
                |run| self.a_pod(run, about_pods, |c| c.all),
            ),
            self.beside_bare("of these, conflicts", Unit::PerPod, Bar::None, |run| {
                self.a_pod(run, about_pods, |c| c.conflicts)
            }),
            self.beside_bare("requests of all kinds", Unit::PerPod, Bar::None, |run| {
                self.a_pod(run, |_| true, |c| c.all)
            }),
        ]
    }

    fn each_request(&self) -> Vec<Figure> {
        let runs = self.flotilla.iter().chain(&self.bare);
        let kinds: BTreeSet<&String> = runs.flat_map(|run| run.requests.keys()).collect();
        let line = |kind: &String| {
            self.beside_bare(kind, Unit::PerPod, Bar::None, |run| {
                self.a_pod(run, |what| what == kind, |c| c.all)
            })
        };
        kinds.into_iter().map(line).collect()
    }

    fn time(&self) -> Vec<Figure> {
        vec![self.beside_bare("time", Unit::Seconds, Bar::RatioAtMost(1.25), |run| run.seconds)]
    }

    fn processes(&self) -> Vec<Figure> {
        let of = |pick: fn(&Spent) -> f64| median(self.flotilla.iter().map(|run| pick(&run.spent)).collect());
        vec![
            self.figure(
                "CPU of the manager",
                Unit::CpuSeconds,
                of(|s| s.flotilla_cpu),
                ("API server meanwhile", of(|s| s.apiserver_cpu)),
                Bar::RatioBelow(0.05),
            ),
            self.beside_bare("CPU of the API server", Unit::CpuSeconds, Bar::None, |run| {
                run.spent.apiserver_cpu
            }),
            self.figure(
                "peak memory",
                Unit::Megabytes,
                of(|s| s.flotilla_rss),
                ("controller-manager, whole", of(|s| s.controller_manager_rss)),
                Bar::Below(32.0),
            ),
        ]
    }
}
