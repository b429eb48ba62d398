//! Numbers about the endpoint, for the manager's /metrics.

use crate::review::Hook;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds of the buckets for latency, in seconds: an answer from memory takes well below a millisecond.
const SECONDS: [f64; 12] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0,
];
/// The same for sizes, in bytes.
const BYTES: [f64; 8] = [1e3, 4e3, 16e3, 64e3, 256e3, 1e6, 3e6, 8e6];

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Histograms = Family<Labels<1>, Histogram, fn() -> Histogram>;

/// All numbers. A clone shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<Labels<2>, Counter>,
    seconds: Histograms,
    bytes: Histograms,
    in_flight: Gauge,
    handshakes_failed: Counter,
    readers_given_up: Family<Labels<1>, Counter>,
    lookups: Family<Labels<2>, Counter>,
    certificate_ends: Gauge,
    certificates: Family<Labels<1>, Counter>,
    registrations: Family<Labels<2>, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            bytes: Family::new_with_constructor(|| Histogram::new(BYTES)),
            in_flight: Gauge::default(),
            handshakes_failed: Counter::default(),
            readers_given_up: Family::default(),
            lookups: Family::default(),
            certificate_ends: Gauge::default(),
            certificates: Family::default(),
            registrations: Family::default(),
        }
    }
}

/// One request that is being answered.
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn begin(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// A request has been answered, and what its body weighed if it was read.
    pub(crate) fn answered(&self, hook: Hook, verdict: &'static str, seconds: f64, bytes: Option<usize>) {
        let webhook = ("webhook", hook.name());
        self.requests.get_or_create(&[webhook, ("verdict", verdict)]).inc();
        self.seconds.get_or_create(&[webhook]).observe(seconds);
        if let Some(bytes) = bytes {
            #[allow(clippy::cast_precision_loss)] // Megabytes.
            self.bytes.get_or_create(&[webhook]).observe(bytes as f64);
        }
    }

    pub(crate) fn handshake_failed(&self) {
        self.handshakes_failed.inc();
    }

    /// A connection was given up whose client did not read its answers.
    pub(crate) fn reader_given_up(&self, reason: &'static str) {
        self.readers_given_up.get_or_create(&[("reason", reason)]).inc();
    }

    /// The API server was to be asked about something that memory did not know.
    pub(crate) fn looked_up(&self, about: &'static str, outcome: &'static str) {
        self.lookups
            .get_or_create(&[("about", about), ("outcome", outcome)])
            .inc();
    }

    pub(crate) fn certificate_changed(&self, step: &'static str) {
        self.certificates.get_or_create(&[("step", step)]).inc();
    }

    pub(crate) fn certificate_ends(&self, seconds: i64) {
        self.certificate_ends.set(seconds);
    }

    pub(crate) fn registered(&self, object: &'static str, is_done: bool) {
        let result = if is_done { "done" } else { "failed" };
        self.registrations
            .get_or_create(&[("object", object), ("result", result)])
            .inc();
    }

    /// How many requests had this verdict, for tests.
    #[cfg(test)]
    pub(crate) fn count(&self, hook: Hook, verdict: &'static str) -> u64 {
        self.requests
            .get_or_create(&[("webhook", hook.name()), ("verdict", verdict)])
            .get()
    }

    /// How many connections were cut for this, for tests.
    #[cfg(test)]
    pub(crate) fn given_up(&self, reason: &'static str) -> u64 {
        self.readers_given_up.get_or_create(&[("reason", reason)]).get()
    }

    /// How many questions ended so, for tests.
    #[cfg(test)]
    pub(crate) fn lookups(&self, about: &'static str, outcome: &'static str) -> u64 {
        self.lookups
            .get_or_create(&[("about", about), ("outcome", outcome)])
            .get()
    }

    /// Hands them over.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "webhook_requests",
            "Requests of the API server by verdict",
            self.requests.clone(),
        );
        registry.register(
            "webhook_duration_seconds",
            "How long answers took, from the last byte of the question",
            self.seconds.clone(),
        );
        registry.register("webhook_request_bytes", "How large requests were", self.bytes.clone());
        registry.register("webhook_in_flight", "Requests being answered", self.in_flight.clone());
        registry.register(
            "webhook_handshakes_failed",
            "Connections that did not agree on TLS",
            self.handshakes_failed.clone(),
        );
        registry.register(
            "webhook_readers_given_up",
            "Connections that were cut since their clients did not read answers",
            self.readers_given_up.clone(),
        );
        registry.register(
            "webhook_lookups",
            "Questions to the API server about what memory did not know, by what became of them",
            self.lookups.clone(),
        );
        registry.register(
            "webhook_certificate_ends_seconds",
            "When the serving certificate expires, since the epoch; 0 while there is none",
            self.certificate_ends.clone(),
        );
        registry.register(
            "webhook_certificate_changes",
            "Steps in which stored certificates were changed by this process",
            self.certificates.clone(),
        );
        registry.register(
            "webhook_registration_writes",
            "Writes of registrations and conversions",
            self.registrations.clone(),
        );
    }
}
