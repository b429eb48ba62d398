//! The core's numbers in the text format of OpenMetrics.

use super::manager::Beside;
use crate::core::Core;
use crate::core::metrics::{BUCKETS_SECONDS, Histogram};
use crate::core::queue::Queue;
use flotilla_model::{Resource, Timestamp};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::time::Duration;

/// Everything as text.
pub(super) fn metrics(core: &Core, beside: Option<&dyn Beside>, now: Timestamp) -> String {
    let mut registry = Registry::with_prefix("flotilla");
    registry.register_collector(Box::new(Numbers::of(core, now)));
    if let Some(beside) = beside {
        beside.register(&mut registry);
    }
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = text::encode(&mut text, &registry);
    text
}

type Labels = Vec<(&'static str, String)>;

/// One number with its labels.
type Sample<T> = (Labels, T);

/// A copy of the core's numbers: the registry wants to own what it encodes.
#[derive(Debug)]
struct Numbers {
    counters: Vec<(&'static str, &'static str, Vec<Sample<u64>>)>,
    gauges: Vec<(&'static str, &'static str, Vec<Sample<i64>>)>,
    histograms: Vec<(&'static str, &'static str, Histogram)>,
}

fn one<T>(value: T) -> Vec<Sample<T>> {
    vec![(Vec::new(), value)]
}

fn gauge(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Numbers {
    fn of(core: &Core, now: Timestamp) -> Self {
        let metrics = core.metrics();
        Numbers {
            counters: counters(core),
            gauges: gauges(core, now),
            histograms: vec![
                (
                    "workqueue_queue_duration_seconds",
                    "How long ready keys waited",
                    metrics.queue_latency.clone(),
                ),
                (
                    "workqueue_work_duration_seconds",
                    "How long passes took",
                    metrics.pass_duration.clone(),
                ),
                (
                    "request_duration_seconds",
                    "How long requests took",
                    metrics.request_duration.clone(),
                ),
            ],
        }
    }
}

fn counters(core: &Core) -> Vec<(&'static str, &'static str, Vec<Sample<u64>>)> {
    let metrics = core.metrics();
    let passes = metrics.passes.iter().map(|((controller, result), n)| {
        (
            vec![
                ("controller", (*controller).to_owned()),
                ("result", (*result).to_owned()),
            ],
            *n,
        )
    });
    let requests = metrics.requests.iter().map(|((verb, resource, result), n)| {
        let labels = vec![
            ("verb", (*verb).to_owned()),
            ("resource", resource.to_string()),
            ("result", (*result).to_owned()),
        ];
        (labels, *n)
    });
    let by_resource = |(resource, n): (&Resource, &u64)| (vec![("resource", resource.to_string())], *n);
    let lists = metrics.lists.iter().map(by_resource);
    let unreadable = metrics.unreadable.iter().map(by_resource);
    vec![
        (
            "workqueue_adds",
            "Keys added to the queue, merged ones included",
            one(core.turns().queues().map(Queue::adds).sum()),
        ),
        (
            "workqueue_retries",
            "Keys added again after a failure",
            one(core.turns().queues().map(Queue::retries).sum()),
        ),
        ("reconcile", "Passes by result", passes.collect()),
        ("reconcile_panics", "Panics caught in controllers", one(metrics.panics)),
        ("requests", "Requests by what became of them", requests.collect()),
        (
            "repetitions_held_back",
            "Writes not sent yet, since the same was sent just before",
            one(core.repeats().held()),
        ),
        (
            "watch_lists",
            "Lists begun: the first, and one for each watch that had to start over",
            lists.collect(),
        ),
        (
            "unreadable_objects",
            "Objects that could not be read",
            unreadable.collect(),
        ),
        (
            "lease_acquisitions",
            "Times the lease was acquired",
            one(metrics.acquisitions),
        ),
        ("lease_losses", "Times the lease was lost", one(metrics.losses)),
        (
            "events_dropped",
            "Notes for users that no event tells of",
            one(core.events_dropped()),
        ),
        (
            "foreign_writes",
            "Writes of another controller to native sets",
            one(core.foreign().noticed()),
        ),
    ]
}

fn gauges(core: &Core, now: Timestamp) -> Vec<(&'static str, &'static str, Vec<Sample<i64>>)> {
    let milliseconds = |length: Duration| one(i64::try_from(length.as_millis()).unwrap_or(i64::MAX));
    let oldest = core.oldest_pass().map(|since| now.since(since));
    let mut gauges = vec![
        (
            "workqueue_depth",
            "Keys that wait for their turn",
            one(gauge(core.turns().depth())),
        ),
        (
            "workqueue_delayed",
            "Keys that wait for their time",
            one(gauge(core.turns().queues().map(Queue::delayed).sum())),
        ),
        (
            "workqueue_active",
            "Keys being processed",
            one(gauge(core.passes_in_progress())),
        ),
        (
            "workqueue_longest_running_milliseconds",
            "Age of the oldest pass",
            milliseconds(oldest.unwrap_or_default()),
        ),
        (
            "core_longest_advance_milliseconds",
            "The longest time so far in which the core did what was due and nothing else was taken in",
            milliseconds(core.metrics().longest_advance),
        ),
        (
            "unsettled_objects",
            "Objects with a write of unknown outcome",
            one(gauge(core.unsettled_len())),
        ),
        (
            "writes_in_flight",
            "Writes in flight",
            one(gauge(core.limiter().in_flight())),
        ),
        (
            "writes_window",
            "Writes that may be in flight",
            one(gauge(core.limiter().window())),
        ),
        (
            "lease_held",
            "Whether we may write",
            one(i64::from(core.holds_lease(now))),
        ),
        (
            "foreign_paused_sets",
            "Native sets left alone because of another controller",
            one(gauge(core.foreign().paused())),
        ),
    ];
    gauges.extend(sizes_of_cache(core));
    gauges
}

fn sizes_of_cache(core: &Core) -> Vec<(&'static str, &'static str, Vec<Sample<i64>>)> {
    let sizes = |pick: fn((usize, usize, usize)) -> usize| {
        let rows = core.resources();
        rows.map(|r| (vec![("resource", r.to_string())], gauge(pick(core.cache.sizes(r)))))
            .collect()
    };
    vec![
        ("cache_objects", "Objects in the cache", sizes(|s| s.0)),
        (
            "cache_overlay",
            "Objects of which we know more than the watch",
            sizes(|s| s.1),
        ),
        (
            "cache_tombstones",
            "Deletions of which we know and the watch does not",
            sizes(|s| s.2),
        ),
    ]
}

impl Collector for Numbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, samples) in &self.counters {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, value) in samples {
                ConstCounter::new(*value).encode(family.encode_family(labels)?)?;
            }
        }
        for (name, help, samples) in &self.gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in samples {
                ConstGauge::new(*value).encode(family.encode_family(labels)?)?;
            }
        }
        for (name, help, histogram) in &self.histograms {
            let bounds = BUCKETS_SECONDS.into_iter().chain([f64::MAX]);
            let buckets: Vec<(f64, u64)> = bounds.zip(histogram.counts).collect();
            encoder
                .encode_descriptor(name, help, None, MetricType::Histogram)?
                .encode_histogram::<Labels>(histogram.sum_seconds, histogram.count(), &buckets, None)?;
        }
        Ok(())
    }
}

/// Proves at compile time that what is used as labels is a set of labels.
const _: fn(&Labels) -> &dyn fmt::Debug = |labels| {
    fn is_label_set<T: EncodeLabelSet>(_: &T) {}
    is_label_set(labels);
    labels
};
