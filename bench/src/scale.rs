//! One manager of many sets: what it holds, how long it takes to know them, to take over, and to keep up.
//!
//! The manager is the release binary as a process of its own. This machine cannot hold so many real pods, so the simulated API server of
//! this repository serves them over HTTPS, from this process; it is filled straight in its memory with sets that Flotilla's own core has
//! brought through their revisions. They are settled: a manager that writes anything before it is given a reason fails the bench. The
//! simulated server answers in JSON only, where a real one answers in protobuf, so that listing costs the manager more here.

mod bare;
mod churn;
mod fill;
mod losses;
mod process;
mod settle;
mod stage;
mod takeover;
mod template;

pub(crate) use bare::be as be_bare_client;

use crate::figure::{Bar, Figure, Unit};
use bare::BareClient;
use churn::Churn;
use fill::{Fill, Kinds};
use flotilla_model::SetKind;
use losses::Loss;
use process::{Process, Start};
use stage::Stage;
use std::time::Duration;
use takeover::{Going, take_over};

/// Length of a template of the large control plane, and of the CloneSets without pods.
const TEMPLATE_BYTES: usize = 6_000;
const SMALL_TEMPLATE_BYTES: usize = 4_600;
const REVISIONS: usize = 3;
/// Of the pods of the large control plane, one set by itself has so many percent.
const ONE_SET_PERCENT: usize = 40;

/// Most memory of a settled manager of everything, and of CloneSets without pods, in megabytes.
const SETTLED_MB: f64 = 64.0;
const SETTLED_WITHOUT_PODS_MB: f64 = 30.0;
/// How much more it may be at the worst moment.
const PEAK: f64 = 1.25;
/// Most processor time to list, in seconds.
const LIST_CPU_SECONDS: f64 = 2.0;
/// How much more processor time than a bare client may be used to list.
const OF_BARE_CLIENT: f64 = 1.25;
/// Longest time until a standby has written, in seconds.
const KILLED_SECONDS: f64 = 19.0;
const GRACEFUL_SECONDS: f64 = 2.0;
/// Under churn.
const CHURN_CORES: f64 = 0.05;
const CHURN_P99_MS: f64 = 100.0;
/// Longest pass of the core, in milliseconds.
const ADVANCE_MS: f64 = 250.0;

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) pods: usize,
    pub(crate) sets: usize,
    /// For how long pods change.
    pub(crate) churn: Duration,
}

impl Size {
    /// Sets of both kinds, with so many revisions each and these pods.
    fn fill(self, revisions: usize, pods: usize) -> Fill {
        Fill {
            kinds: Kinds::Both,
            sets: self.sets,
            revisions,
            pods,
            template_bytes: TEMPLATE_BYTES,
        }
    }

    /// CloneSets without pods: half as many as there are sets.
    fn without_pods(self) -> Fill {
        Fill {
            kinds: Kinds::Only(SetKind::Clone),
            sets: self.sets / 2,
            revisions: REVISIONS,
            pods: 0,
            template_bytes: SMALL_TEMPLATE_BYTES,
        }
    }

    /// One set with many pods.
    fn one_set(self, kind: SetKind) -> Fill {
        Fill {
            kinds: Kinds::Only(kind),
            sets: 1,
            revisions: REVISIONS,
            pods: self.pods * ONE_SET_PERCENT / 100,
            template_bytes: TEMPLATE_BYTES,
        }
    }
}

/// Runs once.
pub(crate) async fn measure(size: Size) -> Vec<Figure> {
    let mut figures = Vec::new();
    let empty = start_alone("empty", None).await;
    let one = start_alone("one-revision", Some(size.fill(1, 0))).await;
    let three = start_alone("three-revisions", Some(size.fill(REVISIONS, 0))).await;
    let clones = start_alone("without-pods", Some(size.without_pods())).await;
    figures.extend(without_pods(size, clones, empty));
    let full = large(size).await;
    let steps = Steps {
        size,
        empty,
        one,
        three,
        full: full.start,
    };
    figures.extend(steps.figures());
    figures.extend(full.figures(size));
    for (kind, name) in [(SetKind::Advanced, "Advanced set"), (SetKind::Clone, "CloneSet")] {
        figures.extend(one_set(size.one_set(kind), name).await);
    }
    figures
}

/// Starts the one manager of a control plane, follows it until it is at rest, and ends both.
async fn start_alone(what: &str, fill: Option<Fill>) -> Start {
    let stage = Stage::open(fill).await;
    let manager = Process::start(&stage, "alone");
    let start = manager.follow_start(&stage).await;
    eprintln!("scale: {what}: {start:.2?}");
    start
}

#[allow(clippy::cast_precision_loss)] // Thousands.
fn float(number: usize) -> f64 {
    number as f64
}

fn line(what: String, unit: Unit, ours: f64, peer: (&'static str, f64), bar: Bar) -> Figure {
    Figure {
        what,
        unit,
        ours,
        peer,
        bar,
    }
}

fn without_pods(size: Size, clones: Start, empty: Start) -> Vec<Figure> {
    let sets = size.without_pods().sets;
    let row = |what: &str, ours, peer, bar| {
        let what = format!("{sets} CloneSets without pods: {what}");
        line(what, Unit::Megabytes, ours, ("no sets", peer), Bar::AtMost(bar))
    };
    vec![
        row(
            "resident, settled",
            clones.settled_mb,
            empty.settled_mb,
            SETTLED_WITHOUT_PODS_MB,
        ),
        line(
            format!("{sets} CloneSets without pods: resident, settled, without pages of the binary"),
            Unit::Megabytes,
            clones.heap_mb,
            ("no sets", empty.heap_mb),
            Bar::None,
        ),
        row(
            "resident, peak",
            clones.peak_mb,
            empty.peak_mb,
            SETTLED_WITHOUT_PODS_MB * PEAK,
        ),
    ]
}

/// Managers of more and more, whose differences say what each thing takes.
struct Steps {
    size: Size,
    empty: Start,
    /// Sets with one revision, with three, and with three and pods.
    one: Start,
    three: Start,
    full: Start,
}

impl Steps {
    fn figures(&self) -> Vec<Figure> {
        let bytes = |more: Start, less: Start, count: usize| (more.heap_mb - less.heap_mb) * 1e6 / float(count);
        let sets = self.size.sets;
        let revision = bytes(self.three, self.one, (REVISIONS - 1) * sets);
        let with_revision = bytes(self.one, self.empty, sets);
        let pod = bytes(self.full, self.three, self.size.pods);
        let template = ("template", float(TEMPLATE_BYTES));
        let row = |what: &str, bytes| {
            let what = format!("resident bytes per {what}");
            line(what, Unit::Bytes, bytes, template, Bar::None)
        };
        vec![
            row("set, its first revision left out", with_revision - revision),
            row("revision", revision),
            row("pod of three containers, updated in place", pod),
        ]
    }
}

/// What was measured of the large control plane.
struct Large {
    start: Start,
    /// Processor time and seconds of the bare client, to list.
    bare_cpu: f64,
    bare_seconds: f64,
    standby: Start,
    killed_seconds: f64,
    graceful_seconds: f64,
    churn: Churn,
    loss: Loss,
    /// The longest advance of the manager that met churn and losses.
    longest_advance_ms: f64,
}

async fn large(size: Size) -> Large {
    let stage = Stage::open(Some(size.fill(REVISIONS, size.pods))).await;
    let first = Process::start(&stage, "first");
    let start = first.follow_start(&stage).await;
    eprintln!("scale: everything: {start:.2?}");
    let bare = BareClient::start(&stage).await;
    let (bare_cpu, bare_seconds) = (bare.cpu_to_list, bare.seconds_to_list);
    drop(bare);
    let second = Process::start(&stage, "second");
    second.ready().await;
    let standby = Start {
        settled_mb: second.settled_mb().await,
        peak_mb: second.peak_mb(),
        ..start
    };
    let (killed_seconds, second) = take_over(&stage, (first, second), Going::Killed, 0).await;
    eprintln!("scale: leader killed: {killed_seconds:.2} s");
    let third = Process::start(&stage, "third");
    let (graceful_seconds, third) = take_over(&stage, (second, third), Going::Gracefully, 1).await;
    eprintln!("scale: leader gracefully gone: {graceful_seconds:.2} s");
    third.rest(&stage).await;
    let bare = BareClient::start(&stage).await;
    let churn = churn::churn(&stage, &third, &bare, size.churn).await;
    eprintln!(
        "scale: churn: {:.3} cores, p50 {:.1} ms, p99 {:.1} ms, worst {:.1} ms",
        churn.cores,
        churn.quantile(0.5),
        churn.quantile(0.99),
        churn.quantile(1.0)
    );
    drop(bare);
    third.rest(&stage).await;
    let loss = losses::lose_one_each(&stage, &third).await;
    eprintln!("scale: a pod of each set lost: {loss:.2?}");
    Large {
        start,
        bare_cpu,
        bare_seconds,
        standby,
        killed_seconds,
        graceful_seconds,
        churn,
        loss,
        longest_advance_ms: third.numbers().await.longest_advance_ms(),
    }
}

impl Large {
    fn figures(&self, size: Size) -> Vec<Figure> {
        let head = format!("{} pods in {} sets", size.pods, size.sets);
        let rows = [self.listing(), self.takeovers(), self.work(size)];
        let rows = rows.into_iter().flatten();
        rows.map(|figure| Figure {
            what: format!("{head}: {}", figure.what),
            ..figure
        })
        .collect()
    }

    fn listing(&self) -> Vec<Figure> {
        let Start {
            seconds_to_list,
            cpu_to_list,
            seconds_to_pass,
            cpu_to_pass,
            cpu_to_rest,
            settled_mb,
            heap_mb,
            peak_mb,
            longest_advance_ms,
        } = self.start;
        let mb = |what: &str, ours, peer, bar| line(what.into(), Unit::Megabytes, ours, peer, bar);
        let bare = |value| ("bare client, to list", value);
        let cpu = |what: &str, ours, bar| line(what.into(), Unit::CpuSeconds, ours, bare(self.bare_cpu), bar);
        let seconds = |what: &str, ours| {
            let peer = bare(self.bare_seconds);
            line(what.into(), Unit::Seconds, ours, peer, Bar::None)
        };
        let (limit, pass) = (("bar", SETTLED_MB), ("bar", ADVANCE_MS));
        vec![
            mb("resident, settled", settled_mb, limit, Bar::AtMost(SETTLED_MB)),
            mb(
                "resident, settled, without pages of the binary",
                heap_mb,
                ("settled", settled_mb),
                Bar::None,
            ),
            mb(
                "resident, peak",
                peak_mb,
                ("settled", settled_mb),
                Bar::AtMost(SETTLED_MB * PEAK),
            ),
            mb(
                "resident, standby",
                self.standby.settled_mb,
                ("its peak", self.standby.peak_mb),
                Bar::None,
            ),
            seconds("until all is listed", seconds_to_list),
            cpu("until all is listed", cpu_to_list, Bar::AtMost(LIST_CPU_SECONDS)),
            cpu(
                "until all is listed, beside a bare client",
                cpu_to_list,
                Bar::RatioAtMost(OF_BARE_CLIENT),
            ),
            seconds("until the first pass", seconds_to_pass),
            cpu("until the first pass", cpu_to_pass, Bar::None),
            cpu("until each set was looked at", cpu_to_rest, Bar::None),
            line(
                "longest advance until then".into(),
                Unit::Milliseconds,
                longest_advance_ms,
                pass,
                Bar::AtMost(ADVANCE_MS),
            ),
        ]
    }

    fn takeovers(&self) -> Vec<Figure> {
        let row = |what: &str, ours, peer, bar| line(what.into(), Unit::Seconds, ours, peer, Bar::AtMost(bar));
        let (lease, look) = (("its lease lasts", 15.0), ("the standby looks every", 1.0));
        vec![
            row(
                "leader killed, standby's first write",
                self.killed_seconds,
                lease,
                KILLED_SECONDS,
            ),
            row(
                "leader gone, standby's first write",
                self.graceful_seconds,
                look,
                GRACEFUL_SECONDS,
            ),
        ]
    }

    fn work(&self, size: Size) -> Vec<Figure> {
        let (churn, loss) = (&self.churn, &self.loss);
        let ms = |what: &str, ours, peer, bar| line(what.into(), Unit::Milliseconds, ours, peer, bar);
        let (rate, lost) = (churn.events_a_second, churn.latencies_ms.len());
        let bare = ("bare client meanwhile", churn.bare_cores);
        let p50 = ("p50", churn.quantile(0.5));
        vec![
            line(
                format!("{rate:.0} pod events a second for {} s", size.churn.as_secs()),
                Unit::Cores,
                churn.cores,
                bare,
                Bar::AtMost(CHURN_CORES),
            ),
            ms(
                &format!("meanwhile {lost} lost pods, each until another is made, p99"),
                churn.quantile(0.99),
                p50,
                Bar::AtMost(CHURN_P99_MS),
            ),
            line(
                "passes meanwhile".into(),
                Unit::Writes,
                churn.passes,
                ("lost pods", float(lost)),
                Bar::None,
            ),
            line(
                "each set loses a pod, until the last is made".into(),
                Unit::Seconds,
                loss.seconds,
                ("CPU until at rest", loss.cpu),
                Bar::None,
            ),
            line(
                "resident after that".into(),
                Unit::Megabytes,
                loss.settled_mb,
                ("peak", loss.peak_mb),
                Bar::None,
            ),
            ms(
                "longest advance of all that",
                self.longest_advance_ms,
                ("bar", ADVANCE_MS),
                Bar::AtMost(ADVANCE_MS),
            ),
        ]
    }
}

/// One set with many pods: what its manager holds, and what it takes to notice that one pod is gone.
async fn one_set(fill: Fill, name: &str) -> Vec<Figure> {
    let stage = Stage::open(Some(fill)).await;
    let manager = Process::start(&stage, "alone");
    let start = manager.follow_start(&stage).await;
    let set = &stage.sets[0];
    let cpu = manager.cpu();
    let lost_at = stage.lose(&set.pods[fill.pods / 2]);
    let made_at = stage.until_created(set, lost_at, Duration::from_secs(120)).await;
    manager.rest(&stage).await;
    let (cpu, longest) = (manager.cpu() - cpu, manager.numbers().await.longest_advance_ms());
    eprintln!("scale: one {name}: {start:.2?}");
    let what = |what: &str| format!("one {name} of {} pods: {what}", fill.pods);
    let latency = made_at.duration_since(lost_at).as_secs_f64() * 1e3;
    vec![
        line(
            what("resident, settled"),
            Unit::Megabytes,
            start.settled_mb,
            ("peak", start.peak_mb),
            Bar::None,
        ),
        line(
            what("until each pod was looked at"),
            Unit::CpuSeconds,
            start.cpu_to_rest,
            ("to list", start.cpu_to_list),
            Bar::None,
        ),
        line(
            what("a lost pod, until another is made"),
            Unit::Milliseconds,
            latency,
            ("CPU until at rest, ms", cpu * 1e3),
            Bar::None,
        ),
        line(
            what("longest advance"),
            Unit::Milliseconds,
            longest,
            ("bar", ADVANCE_MS),
            Bar::AtMost(ADVANCE_MS),
        ),
    ]
}
