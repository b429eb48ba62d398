//! Events for users: rare, and nothing waits for one.

use crate::api::Api;
use crate::metrics::Metrics;
use flotilla_agent::Pod;
use flotilla_engine::io::clock::Clock;
use flotilla_model::Timestamp;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One event in this time on average (AGT-12).
const EVERY: Duration = Duration::from_secs(10);
/// So many may come together.
const BURST: u32 = 25;
/// The API server refuses longer notes.
const NOTE_BYTES_MAX: usize = 1024;

/// Whether something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Normal,
    Warning,
}

/// Tells users.
#[derive(Clone)]
pub(crate) struct Teller {
    api: Api,
    clock: Arc<Clock>,
    node: Arc<str>,
    metrics: Arc<Metrics>,
    bucket: Arc<Mutex<Bucket>>,
}

impl Teller {
    pub(crate) fn new(api: Api, clock: Arc<Clock>, node: Arc<str>, metrics: Arc<Metrics>) -> Self {
        let bucket = Arc::new(Mutex::new(Bucket { full_at: clock.now() }));
        Teller {
            api,
            clock,
            node,
            metrics,
            bucket,
        }
    }

    /// Of a container of a pod.
    pub(crate) fn of_container(&self, pod: &Pod, container: &str, type_: Type, reason: &str, note: &str) {
        let regarding = json!({
            "apiVersion": "v1", "kind": "Pod", "namespace": &*pod.key.namespace, "name": pod.key.name.as_str(),
            "uid": pod.uid.to_string(), "fieldPath": format!("spec.containers{{{container}}}"),
        });
        self.tell(&regarding, type_, reason, note);
    }

    /// Of the node itself. As the kubelet does, its name stands for its UID, which is not known here.
    pub(crate) fn of_node(&self, type_: Type, reason: &str, note: &str) {
        let regarding = json!({"apiVersion": "v1", "kind": "Node", "name": &*self.node, "uid": &*self.node});
        self.tell(&regarding, type_, reason, note);
    }

    fn tell(&self, regarding: &Value, type_: Type, reason: &str, note: &str) {
        // Events about what lives in no namespace are kept in this one.
        let namespace = regarding["namespace"].as_str().unwrap_or("default");
        let name = regarding["name"].as_str().unwrap_or_default();
        let now = self.clock.now();
        if !self.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(now) {
            self.metrics.events_dropped.inc();
            return;
        }
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"namespace": namespace, "name": format!("{name}.{:x}", now.as_millis() * 1000 + i64::from(salt()))},
            "regarding": regarding, "type": format!("{type_:?}"), "reason": reason, "action": reason, "note": cut(note),
            "eventTime": micro_time(now), "reportingController": "flotilla.rs/agent", "reportingInstance": &*self.node,
        });
        let (api, metrics, namespace) = (self.api.clone(), self.metrics.clone(), namespace.to_owned());
        tokio::spawn(async move {
            if let Err(error) = api.event(&namespace, event).await {
                metrics.events_dropped.inc();
                tracing::warn!(%error, "users are not told");
            }
        });
    }
}

/// Tells events of one millisecond apart.
fn salt() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) % 1000
}

/// Kubernetes' MicroTime.
fn micro_time(at: Timestamp) -> String {
    let text = at.to_string();
    let whole = text.split(['.', 'Z']).next().unwrap_or_default();
    format!("{whole}.{:03}000Z", at.as_millis().rem_euclid(1000))
}

fn cut(note: &str) -> &str {
    let mut end = note.len().min(NOTE_BYTES_MAX);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    &note[..end]
}

/// Lets [`BURST`] through at once, and then one in [`EVERY`].
struct Bucket {
    /// When it would be full again.
    full_at: Timestamp,
}

impl Bucket {
    fn take(&mut self, now: Timestamp) -> bool {
        let full_at = self.full_at.max(now);
        if full_at.since(now) > EVERY * (BURST - 1) {
            return false;
        }
        self.full_at = full_at + EVERY;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agt_12_events_are_rare() {
        let at = |seconds: i64| Timestamp::from_seconds(1000 + seconds);
        let mut bucket = Bucket { full_at: at(0) };
        let taken = (0..30).filter(|_| bucket.take(at(0))).count();
        assert_eq!(taken, 25);
        assert!(!bucket.take(at(9)));
        assert!(bucket.take(at(10)) && !bucket.take(at(10)));
    }

    #[test]
    fn times_have_six_digits_behind_the_second() {
        assert_eq!(
            micro_time(Timestamp::from_millis(1_700_000_000_007)),
            "2023-11-14T22:13:20.007000Z"
        );
        assert_eq!(cut(&"ü".repeat(600)).len(), 1024);
    }
}
