//! Tables: given a cluster like this, expect these commands and these waits.

mod cases;
mod claiming;
mod known_problems;
mod properties;
mod replica_phase;
mod revisions;
mod status;
mod storage;
mod switches;
mod template_properties;
mod update_phase;
mod waits;
mod world;

use crate::testing::{Cluster, NOW, at};
use flotilla_model::{Failure, Report, Scope};

/// The cluster, after the API server refused a command of this scope a moment ago.
fn refused(mut cluster: Cluster, scope: Scope, attempt: Report, reason: &str) -> Cluster {
    let failure = Failure::follow(None, attempt, reason.to_owned(), "it says why".to_owned(), at(NOW));
    cluster.hints.failures.insert(scope, failure);
    cluster
}
