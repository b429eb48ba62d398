//! What the pod webhook adds to the creation of pods, while its certificate changes again and again.
//!
//! Pods that the webhook is asked about and pods that it is not take turns, in the same cluster, so that both meet the same API server.
//! They differ in the group of their owner alone. What the client sees is timed; what the handler takes is read from the manager's own
//! histogram, whose buckets give upper bounds; what the API server waits for it, from the API server's.

use crate::figure::{Bar, Figure, Unit};
use flotilla_e2e::webhooks::{self, Ports, SECRET};
use flotilla_e2e::{Api, clock, sets, suite};
use flotilla_localcluster::{Cluster, thread_cpu_seconds_of};
use futures::StreamExt;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NAMESPACE: &str = "run";
/// Pods with and pods without.
const PODS: usize = 1000;
/// Creations in flight.
const CONCURRENCY: usize = 64;
/// Pods of one kind in a row.
const TURN: usize = 100;
/// The registered webhook.
const WEBHOOK: &str = "\"mutate-pods.flotilla.rs\"";
/// How often the certificate changes at least.
const CHANGES: usize = 10;
/// The thread of the manager in which webhooks are answered.
const THREAD: &str = "webhook";
/// Most processor time that one request may take, in milliseconds.
const CPU_MS: f64 = 0.1;

/// Runs once.
pub(crate) async fn measure() -> Vec<Figure> {
    let cluster = Cluster::disposable("bench-webhook")
        .nodes(5)
        .start()
        .expect("a cluster");
    let api = Api::connect(cluster.kubeconfig_path()).await;
    suite::install_crds(&api, std::convert::identity).await;
    for namespace in ["flotilla-system", NAMESPACE] {
        suite::make_namespace(&api, namespace).await;
    }
    let short = ["--certificate-seconds=6"];
    let (manager, ports) = webhooks::start(&api, cluster.kubeconfig_path(), "bench", &short).await;
    create(&api, "warm", true, 0..CONCURRENCY).await;
    let cpu = || thread_cpu_seconds_of(manager.pid(), THREAD).expect("webhooks have a thread");
    let (before, cpu_before, waits_before) = (Handler::read(ports), cpu(), Waits::read(&cluster));
    let writes = writes(ports);
    let (mut with, mut without, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut made = 0;
    while made < PODS || seen.len() <= CHANGES {
        without.extend(create(&api, "other", false, made..made + TURN).await);
        with.extend(create(&api, "ours", true, made..made + TURN).await);
        made += TURN;
        seen.insert(api.read(SECRET).await["data"]["tls.crt"].to_string());
    }
    let after = Handler::read(ports);
    let (cpu, waits) = (cpu() - cpu_before, Waits::read(&cluster).since(&waits_before));
    let written = self::writes(ports) - writes;
    #[allow(clippy::cast_precision_loss)] // Thousands.
    let asked = made as f64;
    assert!(
        (after.count - before.count - asked).abs() < 0.5,
        "the webhook was asked once for each pod of ours"
    );
    drop(manager);
    cluster.down().expect("the cluster ends");
    eprintln!(
        "webhook: {made} pods of each kind, {} certificates, {cpu:.3} s CPU of the webhooks' thread",
        seen.len()
    );
    let run = Run {
        made,
        cpu,
        written,
        waits,
        handlers: [before, after],
        with,
        without,
    };
    run.figures()
}

/// What one run gave.
struct Run {
    made: usize,
    /// Of the thread that answers.
    cpu: f64,
    written: f64,
    /// Of the API server for the webhook.
    waits: Waits,
    /// The handler before and after it.
    handlers: [Handler; 2],
    /// How long each creation took, in milliseconds.
    with: Vec<f64>,
    without: Vec<f64>,
}

impl Run {
    fn figures(&self) -> Vec<Figure> {
        let Run {
            made,
            cpu,
            written,
            waits,
            handlers: [before, after],
            with,
            without,
        } = self;
        #[allow(clippy::cast_precision_loss)] // Thousands.
        let asked = *made as f64;
        let handler = |quantile| after.quantile_since(before, quantile) * 1e3;
        let line = |what: &str, unit, ours, peer: (&'static str, f64), bar| Figure {
            what: format!("pod webhook, {made} pods: {what}"),
            unit,
            ours,
            peer,
            bar,
        };
        let client = |what, quantile| {
            let (ours, peer) = (
                quantile_of(&mut with.clone(), quantile),
                quantile_of(&mut without.clone(), quantile),
            );
            line(what, Unit::Milliseconds, ours, ("not asked about", peer), Bar::None)
        };
        let ms = |what, ours, peer, bar| line(what, Unit::Milliseconds, ours, peer, bar);
        let timeout = ("its timeout", 2000.0);
        let waited = waits.seconds * 1e3 / waits.count;
        // With the handshakes, which new certificates make necessary.
        let cpu = *cpu * 1e3 / asked;
        let (written, none) = (*written, Bar::AtMost(0.0));
        vec![
            client("creation, p50", 0.5),
            client("creation, p99", 0.99),
            ms("handler, p50 at most", handler(0.5), timeout, Bar::None),
            ms("handler, p99 at most", handler(0.99), timeout, Bar::AtMost(1.0)),
            ms("the API server waits for it, mean", waited, timeout, Bar::None),
            ms("CPU each, of its thread", cpu, ("bar", CPU_MS), Bar::Below(CPU_MS)),
            line(
                "API writes by the controllers",
                Unit::Writes,
                written,
                ("pods", asked),
                none,
            ),
        ]
    }
}

/// Creates pods and returns how long each took, in milliseconds.
async fn create(api: &Api, name: &str, is_ours: bool, numbers: std::ops::Range<usize>) -> Vec<f64> {
    let path = sets::pods(NAMESPACE);
    // No such kinds: nobody deletes pods whose owner cannot be looked up.
    let owner = if is_ours {
        "apps.kruise.io/v1alpha1"
    } else {
        "apps.example.test/v1"
    };
    let pods: Vec<Value> = numbers
        .map(|number| {
            let mut pod = webhooks::pod(&format!("{name}-{number}"), Some(owner));
            pod["metadata"]["ownerReferences"][0]["kind"] = json!("CloneSet");
            pod
        })
        .collect();
    let creating = pods.iter().map(async |pod| {
        let begun = clock::now();
        let made = api.create(&path, pod).await;
        assert_eq!(webhooks::has_gate(&made), is_ours);
        begun.elapsed().as_secs_f64() * 1e3
    });
    futures::stream::iter(creating)
        .buffer_unordered(CONCURRENCY)
        .collect()
        .await
}

fn quantile_of(values: &mut [f64], quantile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    let place = ((values.len() - 1) as f64 * quantile).round() as usize;
    values[place]
}

/// Writes by the controllers so far; certificates and registrations are not theirs.
fn writes(ports: Ports) -> f64 {
    let (_, page) = ports.http("/metrics");
    let lines = page.lines().filter(|line| line.starts_with("flotilla_requests_total{"));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// How long the API server has waited for our webhook on the creation of pods, and how often.
#[derive(Clone, Copy)]
struct Waits {
    seconds: f64,
    count: f64,
}

impl Waits {
    fn read(cluster: &Cluster) -> Self {
        let output = cluster.kubectl(&["get", "--raw", "/metrics"]).expect("kubectl runs");
        let page = String::from_utf8_lossy(&output.stdout);
        let sum = |suffix: &str| {
            let name = format!("apiserver_admission_webhook_admission_duration_seconds_{suffix}{{");
            let is_ours = |line: &&str| line.starts_with(&name) && line.contains(WEBHOOK);
            let numbers = page.lines().filter(is_ours).filter_map(|l| l.rsplit(' ').next());
            numbers.filter_map(|n| n.parse::<f64>().ok()).sum::<f64>()
        };
        Waits {
            seconds: sum("sum"),
            count: sum("count"),
        }
    }

    fn since(self, before: &Waits) -> Self {
        Waits {
            seconds: self.seconds - before.seconds,
            count: self.count - before.count,
        }
    }
}

/// The handler's histogram: how many took at most so long.
struct Handler {
    buckets: Vec<(f64, f64)>,
    count: f64,
}

impl Handler {
    fn read(ports: Ports) -> Self {
        let (_, page) = ports.http("/metrics");
        let buckets: Vec<(f64, f64)> = page
            .lines()
            .filter(|line| {
                line.starts_with("flotilla_webhook_duration_seconds_bucket{") && line.contains("\"mutate-pods\"")
            })
            .filter_map(|line| {
                let bound = line.split("le=\"").nth(1)?.split('"').next()?;
                let bound = if bound == "+Inf" {
                    f64::INFINITY
                } else {
                    bound.parse().ok()?
                };
                Some((bound, line.rsplit(' ').next()?.parse().ok()?))
            })
            .collect();
        let count = buckets.last().map_or(0.0, |(_, count)| *count);
        Handler { buckets, count }
    }

    /// An upper bound of the quantile of what came after `before`, in seconds.
    fn quantile_since(&self, before: &Handler, quantile: f64) -> f64 {
        let wanted = (self.count - before.count) * quantile;
        let earlier = |bound: f64| {
            before
                .buckets
                .iter()
                .find(|(b, _)| b.total_cmp(&bound).is_eq())
                .map_or(0.0, |(_, n)| *n)
        };
        let found = self
            .buckets
            .iter()
            .find(|(bound, count)| count - earlier(*bound) >= wanted);
        found.map_or(f64::INFINITY, |(bound, _)| *bound)
    }
}
