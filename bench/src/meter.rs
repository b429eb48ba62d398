//! What the processes of a run have used, and waiting until they use next to nothing.

use flotilla_e2e::Manager;
use flotilla_localcluster::{Cluster, Component, cpu_seconds_of, peak_rss_bytes_of};
use std::ops::Sub;
use std::time::Duration;

/// Counters of the processes, or what they grew by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// Processor time, in seconds.
    pub(crate) apiserver_cpu: f64,
    pub(crate) controller_manager_cpu: f64,
    /// Of the manager, if there is one.
    pub(crate) flotilla_cpu: f64,
    /// Peak memory so far, in MB; it has no difference.
    pub(crate) flotilla_rss: f64,
    pub(crate) controller_manager_rss: f64,
}

impl Spent {
    /// Counters as they stand.
    pub(crate) fn now(cluster: &Cluster, manager: Option<&Manager>) -> Self {
        let cpu = |component| cluster.cpu_seconds(component).expect("it runs");
        #[allow(clippy::cast_precision_loss)] // Megabytes.
        let mb = |bytes: u64| bytes as f64 / 1e6;
        Spent {
            apiserver_cpu: cpu(Component::Apiserver),
            controller_manager_cpu: cpu(Component::ControllerManager),
            flotilla_cpu: manager.map_or(0.0, |m| cpu_seconds_of(m.pid()).expect("it runs")),
            flotilla_rss: manager.map_or(0.0, |m| mb(peak_rss_bytes_of(m.pid()).expect("it runs"))),
            controller_manager_rss: mb(cluster.peak_rss_bytes(Component::ControllerManager).expect("it runs")),
        }
    }
}

impl Sub for Spent {
    type Output = Spent;

    fn sub(self, before: Spent) -> Spent {
        Spent {
            apiserver_cpu: self.apiserver_cpu - before.apiserver_cpu,
            controller_manager_cpu: self.controller_manager_cpu - before.controller_manager_cpu,
            flotilla_cpu: self.flotilla_cpu - before.flotilla_cpu,
            ..self
        }
    }
}

/// Waits until the API server and the controller-manager have next to nothing left to do.
pub(crate) async fn calm_down(cluster: &Cluster, bench: &str) {
    for _ in 0..60 {
        let before = Spent::now(cluster, None);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let spent = Spent::now(cluster, None) - before;
        if spent.apiserver_cpu < 0.15 && spent.controller_manager_cpu < 0.1 {
            return;
        }
    }
    eprintln!("{bench}: the cluster did not calm down within a minute; going on");
}
