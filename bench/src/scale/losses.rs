//! Each set loses a pod, all at the same moment.

use super::process::Process;
use super::stage::Stage;
use flotilla_e2e::clock;
use flotilla_model::ObjectKey;
use std::time::Duration;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// What it came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    /// Until the last set had another pod, in seconds.
    pub(super) seconds: f64,
    /// What the manager used until it was at rest again.
    pub(super) cpu: f64,
    pub(super) peak_mb: f64,
    pub(super) settled_mb: f64,
}

/// Takes a pod of each set away, and waits until each has another.
pub(super) async fn lose_one_each(stage: &Stage, manager: &Process) -> Loss {
    let cpu = manager.cpu();
    let last = |set| stage.pods_of(set).pop();
    let pods: Vec<ObjectKey> = stage.sets.iter().filter_map(last).collect();
    assert_eq!(pods.len(), stage.sets.len(), "each set has a pod to lose");
    let lost_at = stage.lose_all(&pods);
    // The server has been busy with them until now.
    let begun = clock::now();
    let mut made_at = begun;
    for set in &stage.sets {
        made_at = made_at.max(stage.until_created(set, lost_at, PATIENCE).await);
    }
    manager.rest(stage).await;
    let cpu = manager.cpu() - cpu;
    Loss {
        seconds: made_at.duration_since(begun).as_secs_f64(),
        cpu,
        peak_mb: manager.peak_mb(),
        settled_mb: manager.settled_mb().await,
    }
}
