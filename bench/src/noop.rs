//! A look at a settled set: how long it takes to find that there is nothing to do.

use crate::corpus::{BIG, BIG_SET, Corpus};
use crate::figure::{Bar, Figure, Unit, median};
use crate::workload;
use flotilla_e2e::{Api, Kind, clock};
use flotilla_engine::core::cache::Cache;
use flotilla_engine::io::clock::Clock;
use flotilla_localcluster::Cluster;
use flotilla_model::{Decision, ObjectKey, SetKind, StatusWrite};
use serde_json::json;
use std::hint::black_box;
use std::time::Duration;

/// Passes timed.
const PASSES: usize = 501;
/// Passes of the built-in controller that are averaged.
const BUILTIN_PASSES: u32 = 20;
/// Longest pass allowed, in milliseconds.
const BAR_MS: f64 = 1.0;

/// Times passes over the big set.
pub(crate) fn measure(corpus: &Corpus) -> Vec<Figure> {
    assert!(is_settled(&corpus.settled), "the set must be settled");
    let clock = Clock::new();
    let timed = (0..PASSES).map(|_| {
        let begun = clock::now();
        let decision = look(black_box(&corpus.settled), &clock);
        let quiet = has_nothing_to_write(&decision);
        let taken = begun.elapsed();
        assert!(quiet, "a pass over a settled set writes nothing");
        taken.as_secs_f64() * 1e3
    });
    vec![Figure {
        what: format!("no-op pass over a set of {BIG} pods, median"),
        unit: Unit::Milliseconds,
        ours: median(timed.collect()),
        peer: ("built-in controller, mean", corpus.builtin_pass_ms),
        bar: Bar::Below(BAR_MS),
    }]
}

/// One pass over the big set, as the manager makes it.
fn look(cache: &Cache, clock: &Clock) -> Decision {
    workload::look(SetKind::Native, cache, &ObjectKey::new(BIG_SET.0, BIG_SET.1), clock)
}

fn has_nothing_to_write(decision: &Decision) -> bool {
    decision.commands().next().is_none() && decision.status.as_ref().and_then(StatusWrite::diff).is_none()
}

/// Whether a manager has nothing left to write.
pub(crate) fn is_settled(cache: &Cache) -> bool {
    has_nothing_to_write(&look(cache, &Clock::new()))
}

/// The mean time of a pass of the built-in controller over the big set, from its own metrics. An annotation that nothing reads makes
/// it look again.
pub(crate) async fn builtin_pass_ms(cluster: &Cluster, api: &Api) -> f64 {
    let path = Kind::Native.set(BIG_SET.0, BIG_SET.1);
    // Its first passes over all sets fill caches and write statuses; they do not count.
    look_again(api, &path, "warm-up", 5).await;
    let before = work(cluster);
    look_again(api, &path, "measure", BUILTIN_PASSES).await;
    let after = work(cluster);
    let passes = after.count - before.count;
    assert!(
        passes >= f64::from(BUILTIN_PASSES),
        "the built-in controller made {passes} passes, not {BUILTIN_PASSES}"
    );
    (after.seconds - before.seconds) / passes * 1e3
}

/// Makes the controller look at a set again, so many times, with time enough for each.
async fn look_again(api: &Api, path: &str, word: &str, times: u32) {
    for number in 0..times {
        api.patch(
            path,
            &json!({"metadata": {"annotations": {"bench.flotilla.rs/look": format!("{word}-{number}")}}}),
        )
        .await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What the built-in controller's queue has worked off.
struct Work {
    seconds: f64,
    count: f64,
}

fn work(cluster: &Cluster) -> Work {
    let server = format!("https://127.0.0.1:{}", cluster.controller_manager_port());
    let output = cluster
        .kubectl(&["--server", &server, "get", "--raw", "/metrics"])
        .expect("kubectl runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |suffix: &str| {
        let name = format!("workqueue_work_duration_seconds_{suffix}{{name=\"statefulset\"}} ");
        text.lines()
            .find_map(|line| line.strip_prefix(&name)?.parse().ok())
            .unwrap_or(0.0)
    };
    Work {
        seconds: value("sum"),
        count: value("count"),
    }
}
