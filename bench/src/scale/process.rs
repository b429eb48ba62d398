//! The manager as a process, as it is seen from outside.

use super::stage::Stage;
use flotilla_e2e::webhooks::Ports;
use flotilla_e2e::{Manager, clock};
use flotilla_localcluster::{anonymous_rss_bytes_of, cpu_seconds_of, peak_rss_bytes_of, rss_bytes_of};
use flotilla_model::Resource;
use std::time::{Duration, Instant};

/// How often it is looked at while something is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long it may take to come to rest, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// For how long it must have done nothing.
const QUIET: Duration = Duration::from_secs(3);
/// How long its allocator gets to give back what it used on the way, before its memory counts as settled.
const GIVE_BACK: Duration = Duration::from_secs(10);

/// A manager that competes for the lease.
pub(super) struct Process {
    pub(super) manager: Manager,
    ports: Ports,
    begun: Instant,
}

/// What the first minutes of a manager were like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// From its start until it knew everything.
    pub(super) seconds_to_list: f64,
    pub(super) cpu_to_list: f64,
    /// Until it had looked at a set for the first time.
    pub(super) seconds_to_pass: f64,
    pub(super) cpu_to_pass: f64,
    /// Until it had looked at each set and had nothing left to do.
    pub(super) cpu_to_rest: f64,
    pub(super) settled_mb: f64,
    /// Of that, what is no page of the binary.
    pub(super) heap_mb: f64,
    pub(super) peak_mb: f64,
    pub(super) longest_advance_ms: f64,
}

#[allow(clippy::cast_precision_loss)] // Megabytes.
fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

impl Process {
    /// Starts one with its default options.
    pub(super) fn start(stage: &Stage, name: &str) -> Self {
        let ports = Ports::free();
        let http = format!("--http-address=127.0.0.1:{}", ports.http);
        let begun = clock::now();
        let manager = Manager::run(
            &stage.kubeconfig(),
            name,
            &["manager", "--identity", name, http.as_str()],
            &[],
        );
        Process { manager, ports, begun }
    }

    /// Processor time so far, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        cpu_seconds_of(self.manager.pid()).expect("the manager runs")
    }

    /// Resident memory now, in megabytes.
    fn rss_mb(&self) -> f64 {
        mb(rss_bytes_of(self.manager.pid()).expect("the manager runs"))
    }

    /// Resident memory at the worst moment so far, in megabytes.
    pub(super) fn peak_mb(&self) -> f64 {
        mb(peak_rss_bytes_of(self.manager.pid()).expect("the manager runs"))
    }

    /// What it serves at a path. Others run meanwhile: they share the runtime with the API server that it waits for.
    async fn page(&self, path: &'static str) -> (u16, String) {
        let ports = self.ports;
        let asked = tokio::task::spawn_blocking(move || ports.http(path)).await;
        asked.unwrap_or_else(|why| panic!("asking the manager for {path}: {why}"))
    }

    pub(super) async fn numbers(&self) -> Numbers {
        Numbers(self.page("/metrics").await.1)
    }

    /// Waits until its allocator has given back what it can, and says how much memory is left, in megabytes.
    pub(super) async fn settled_mb(&self) -> f64 {
        tokio::time::sleep(GIVE_BACK).await;
        self.rss_mb()
    }

    /// Waits until it could go on from another at once.
    pub(super) async fn ready(&self) {
        while self.page("/readyz").await.0 != 200 {
            assert!(
                self.begun.elapsed() < PATIENCE,
                "not ready within {PATIENCE:?}: {}",
                self.manager.log()
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Follows it from its start until it is at rest.
    ///
    /// # Panics
    /// When it writes anything, or does not know all that there is: the sets are settled, and other figures would mean nothing.
    pub(super) async fn follow_start(&self, stage: &Stage) -> Start {
        let before = stage.changes();
        let (seconds_to_list, cpu_to_list) = self.until("it has listed everything", |n| n.knows_all(stage)).await;
        let has_sets = !stage.sets.is_empty();
        let looked = move |n: &Numbers| n.sum("flotilla_reconcile_total") > 0.0 || !has_sets;
        let (seconds_to_pass, cpu_to_pass) = self.until("it has looked at a set", looked).await;
        self.rest(stage).await;
        let cpu_to_rest = self.cpu();
        let settled_mb = self.settled_mb().await;
        let numbers = self.numbers().await;
        stage.assert_unchanged(&before);
        Start {
            seconds_to_list,
            cpu_to_list,
            seconds_to_pass,
            cpu_to_pass,
            cpu_to_rest,
            settled_mb,
            heap_mb: mb(anonymous_rss_bytes_of(self.manager.pid()).expect("the manager runs")),
            peak_mb: self.peak_mb(),
            longest_advance_ms: numbers.longest_advance_ms(),
        }
    }

    /// Waits for something, and says after how many seconds it was so, and what that had cost.
    async fn until(&self, what: &str, is_so: impl Fn(&Numbers) -> bool) -> (f64, f64) {
        loop {
            let (cpu, numbers) = (self.cpu(), self.numbers().await);
            if is_so(&numbers) {
                return (self.begun.elapsed().as_secs_f64(), cpu);
            }
            assert!(
                self.begun.elapsed() < PATIENCE,
                "waited {PATIENCE:?} until {what}: {}",
                self.manager.log()
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until it has looked at each set and has done nothing for a while.
    pub(super) async fn rest(&self, stage: &Stage) {
        let (mut passes, mut since) = (-1.0, clock::now());
        let begun = clock::now();
        #[allow(clippy::cast_precision_loss)] // Thousands.
        let sets = stage.sets.len() as f64;
        loop {
            let numbers = self.numbers().await;
            let now = numbers.sum("flotilla_reconcile_total");
            let is_idle = numbers.sum("flotilla_workqueue_depth") + numbers.sum("flotilla_workqueue_active") < 0.5;
            if (now - passes).abs() > 0.5 || !is_idle || now < sets {
                (passes, since) = (now, clock::now());
            }
            if since.elapsed() >= QUIET {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "not at rest within {PATIENCE:?}, after {now} passes over {sets} sets: {}",
                self.manager.log()
            );
            tokio::time::sleep(10 * LOOK_EVERY).await;
        }
    }
}

/// A page of the manager's metrics.
pub(super) struct Numbers(String);

impl Numbers {
    /// The sum of all samples of this name.
    pub(super) fn sum(&self, name: &str) -> f64 {
        self.samples(name).map(|(_, value)| value).sum()
    }

    /// Labels and values of the samples of this name.
    fn samples(&self, name: &str) -> impl Iterator<Item = (&str, f64)> {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            (labels.is_empty() || labels.starts_with('{')).then_some((labels, value.parse().ok()?))
        })
    }

    /// Whether the cache holds as many objects of each kind as there are.
    fn knows_all(&self, stage: &Stage) -> bool {
        let kinds = [
            Resource::AdvancedSets,
            Resource::CloneSets,
            Resource::Revisions,
            Resource::Pods,
            Resource::Nodes,
        ];
        kinds.into_iter().all(|resource| {
            let label = format!("{{resource=\"{resource}\"}}");
            let known = self
                .samples("flotilla_cache_objects")
                .find(|(labels, _)| *labels == label);
            #[allow(clippy::cast_precision_loss)] // Thousands.
            let there = stage.count(resource) as f64;
            known.is_some_and(|(_, known)| (known - there).abs() < 0.5)
        })
    }

    /// The longest advance of the core so far.
    ///
    /// # Panics
    /// When the manager does not tell, because it is an older one.
    pub(super) fn longest_advance_ms(&self) -> f64 {
        let mut told = self.samples("flotilla_core_longest_advance_milliseconds");
        let told = told.next().map(|(_, value)| value);
        told.expect("the manager's metrics tell of its longest advance; FLOTILLA_BINARY may name an older one")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_their_whole_name() {
        let page = "# TYPE a counter\na_total{x=\"1\"} 2\na_total{x=\"2\"} 3\na_total_more 7\nb 4\n";
        let numbers = Numbers(page.to_owned());
        assert!((numbers.sum("a_total") - 5.0).abs() < f64::EPSILON);
        assert!((numbers.sum("b") - 4.0).abs() < f64::EPSILON);
        assert!(numbers.sum("c").abs() < f64::EPSILON);
    }
}
