//! The agent's numbers.

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;
use tonic::Code;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Called {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failed {
    method: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuntimeLabels {
    name: String,
    version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: &'static str,
}

/// All of them (AGT-12). No names of pods or images.
pub(crate) struct Metrics {
    registry: Registry,
    seconds: Family<Called, Histogram>,
    errors: Family<Failed, Counter>,
    runtimes: Family<RuntimeLabels, Gauge>,
    patches: Family<ResultLabel, Counter>,
    kills: Family<SourceLabel, Counter>,
    /// Environments that could not be read.
    pub(crate) env_failures: Counter,
    /// Events that were not sent.
    pub(crate) events_dropped: Counter,
    /// Pods that could not be read.
    pub(crate) unreadable: Counter,
    resident: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 4.0, 8));
        let mut metrics = Metrics {
            registry: Registry::with_prefix("flotilla_agent"),
            seconds: Family::new_with_constructor(histogram),
            errors: Family::default(),
            runtimes: Family::default(),
            patches: Family::default(),
            kills: Family::default(),
            env_failures: Counter::default(),
            events_dropped: Counter::default(),
            unreadable: Counter::default(),
            resident: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let all = &mut self.registry;
        all.register(
            "cri_seconds",
            "How long calls of the runtime took",
            self.seconds.clone(),
        );
        all.register("cri_errors", "Calls of the runtime that failed", self.errors.clone());
        all.register("runtime_info", "Runtimes of the node", self.runtimes.clone());
        all.register(
            "status_patches",
            "Notes on pods, by what became of them",
            self.patches.clone(),
        );
        all.register("kills", "Containers that were stopped", self.kills.clone());
        all.register(
            "env_hash_failures",
            "Environments that could not be read",
            self.env_failures.clone(),
        );
        all.register(
            "events_dropped",
            "Events that were not sent",
            self.events_dropped.clone(),
        );
        all.register(
            "unreadable_pods",
            "Pods that could not be read",
            self.unreadable.clone(),
        );
        all.register("resident_bytes", "Memory of this process", self.resident.clone());
    }

    pub(crate) fn called(&self, method: &'static str, took: Duration, failed: Option<Code>) {
        self.seconds
            .get_or_create(&Called { method })
            .observe(took.as_secs_f64());
        if let Some(code) = failed {
            let code = format!("{code:?}");
            self.errors.get_or_create(&Failed { method, code }).inc();
        }
    }

    pub(crate) fn runtime(&self, name: &str, version: &str, is_up: bool) {
        let labels = RuntimeLabels {
            name: name.to_owned(),
            version: version.to_owned(),
        };
        self.runtimes.get_or_create(&labels).set(i64::from(is_up));
    }

    pub(crate) fn patched(&self, result: &'static str) {
        self.patches.get_or_create(&ResultLabel { result }).inc();
    }

    pub(crate) fn killed(&self, source: &'static str) {
        self.kills.get_or_create(&SourceLabel { source }).inc();
    }

    /// All of them as text.
    pub(crate) fn render(&self) -> String {
        self.resident.set(resident_bytes().unwrap_or_default());
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }
}

/// What the kernel says of this process.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: i64 = line.split_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1024)
}
