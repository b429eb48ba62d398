//! Pods that change all the time, and now and then one that is lost.
//!
//! Of ten events nine say something in a pod's status that decides nothing, as those do who probe and report; they go round all pods. The
//! tenth takes a pod of one of ten restless sets out of service, or back into it, so that the set's status changes, too.

use super::bare::BareClient;
use super::process::Process;
use super::stage::Stage;
use flotilla_apiserver::Server;
use flotilla_e2e::clock;
use flotilla_model::{ObjectKey, Resource};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Events of pods in a second.
const RATE: f64 = 500.0;
/// Sets whose pods become ready and not ready.
const RESTLESS: usize = 10;
/// Of so many events one is about readiness.
const FLIP_EVERY: usize = 10;
/// How often a pod is lost.
const LOSE_EVERY: Duration = Duration::from_millis(500);
/// How often it is looked at what is due.
const TICK: Duration = Duration::from_millis(20);
/// How long a lost pod may stay lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// The part of the events that must have been sent: less is no churn of that rate.
const ENOUGH: f64 = 0.95;

/// What it came to.
#[derive(Clone, Debug)]
pub(super) struct Churn {
    pub(super) events_a_second: f64,
    pub(super) cores: f64,
    pub(super) bare_cores: f64,
    /// From the loss of a pod to the creation of another, in milliseconds, in order.
    pub(super) latencies_ms: Vec<f64>,
    pub(super) passes: f64,
}

impl Churn {
    /// So much of the latencies is below this, in milliseconds.
    pub(super) fn quantile(&self, quantile: f64) -> f64 {
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        let index = ((self.latencies_ms.len() as f64 * quantile).ceil() as usize).saturating_sub(1);
        self.latencies_ms[index.min(self.latencies_ms.len() - 1)]
    }
}

/// Lets pods change for so long.
///
/// # Panics
/// When the events do not come at their rate, when the manager does not notice those that it has to act upon, or when lost pods stay lost.
pub(super) async fn churn(stage: &Stage, manager: &Process, bare: &BareClient, length: Duration) -> Churn {
    let passes = async || manager.numbers().await.sum("flotilla_reconcile_total");
    let (passes_before, cpu_before, bare_before) = (passes().await, manager.cpu(), bare.cpu());
    let mut events = Events::of(stage);
    let (mut sent, mut lost) = (0, 0);
    let (mut pending, mut latencies_ms) = (Vec::new(), Vec::new());
    let begun = clock::now();
    while begun.elapsed() < length {
        let elapsed = begun.elapsed();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let due = (elapsed.as_secs_f64() * RATE) as usize;
        stage.with(|server| (sent..due).for_each(|number| events.happen(server, number)));
        sent = due.max(sent);
        if elapsed >= LOSE_EVERY * lost {
            pending.push(lose(stage, lost as usize));
            lost += 1;
        }
        pending.retain(|(set, at)| {
            let made = stage.created_since(&stage.sets[*set], *at);
            latencies_ms.extend(made.map(|made| milliseconds(*at, made)));
            made.is_none()
        });
        tokio::time::sleep(TICK).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let (cores, bare_cores) = (
        (manager.cpu() - cpu_before) / seconds,
        (bare.cpu() - bare_before) / seconds,
    );
    for (set, at) in pending {
        let made = stage.until_created(&stage.sets[set], at, PATIENCE).await;
        latencies_ms.push(milliseconds(at, made));
    }
    latencies_ms.sort_by(f64::total_cmp);
    let passes = passes().await - passes_before;
    #[allow(clippy::cast_precision_loss)] // Thousands.
    let events_a_second = sent as f64 / seconds;
    assert!(
        events_a_second >= RATE * ENOUGH,
        "{events_a_second:.0} events a second came, not {RATE}"
    );
    assert!(
        passes > f64::from(lost),
        "{passes} passes for {lost} lost pods: the manager has not noticed the churn"
    );
    Churn {
        events_a_second,
        cores,
        bare_cores,
        latencies_ms,
        passes,
    }
}

fn milliseconds(from: Instant, to: Instant) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}

/// What can happen to whom.
struct Events {
    /// Pods of sets that are not restless, in turns over the sets.
    pods: Vec<ObjectKey>,
    restless: Vec<ObjectKey>,
    /// Of these, who is out of service.
    out: BTreeSet<usize>,
}

impl Events {
    fn of(stage: &Stage) -> Self {
        let pods = |sets: &[super::fill::Filled]| sets.iter().flat_map(|set| stage.pods_of(set)).collect();
        assert!(
            stage.sets.len() > 2 * RESTLESS,
            "there are more than {} sets",
            2 * RESTLESS
        );
        let (restless, others) = stage.sets.split_at(RESTLESS);
        Events {
            pods: pods(others),
            restless: pods(restless),
            out: BTreeSet::new(),
        }
    }

    /// An event.
    fn happen(&mut self, server: &mut Server, number: usize) {
        if number.is_multiple_of(FLIP_EVERY) {
            let index = number / FLIP_EVERY % self.restless.len();
            let is_ready = self.out.remove(&index) || !self.out.insert(index);
            change(server, &self.restless[index], |status| set_ready(status, is_ready));
        } else {
            // A number without a common divisor, so that neighbours in time are not of one set.
            let key = &self.pods[number.wrapping_mul(7_919) % self.pods.len()];
            let probed = json!({"type": "example.com/Probed", "status": "True", "message": format!("probe {number}")});
            change(server, key, |status| put(status, probed));
        }
    }
}

/// Takes a pod of a set away that is not restless; another set each time. Says which, and when.
fn lose(stage: &Stage, number: usize) -> (usize, Instant) {
    let index = RESTLESS + number % (stage.sets.len() - RESTLESS);
    let pods = stage.pods_of(&stage.sets[index]);
    let pod = pods
        .last()
        .unwrap_or_else(|| panic!("{} has no pod to lose", stage.sets[index].key));
    (index, stage.lose(pod))
}

/// Changes the status of a pod; one that is lost just now is left out.
fn change(server: &mut Server, key: &ObjectKey, change: impl FnOnce(&mut Value)) {
    let Some(stored) = server.get(Resource::Pods, key) else {
        return;
    };
    let mut status = stored.value()["status"].clone();
    change(&mut status);
    let written = server.replace_status(Resource::Pods, key, status);
    written.unwrap_or_else(|why| panic!("changing the status of pod {key}: {why}"));
}

fn put(status: &mut Value, condition: Value) {
    // One that was made just now may have none.
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|known| known["type"] != condition["type"]);
        conditions.push(condition);
    }
}

fn set_ready(status: &mut Value, is_ready: bool) {
    let word = if is_ready { "True" } else { "False" };
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if condition["type"] == "Ready" || condition["type"] == "ContainersReady" {
            condition["status"] = json!(word);
        }
    }
    let containers = status.get_mut("containerStatuses").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        container["ready"] = json!(is_ready);
    }
}
