//! How the manager is run.

use crate::core::lease::LeaseTimes;
use crate::core::{CoreOptions, Election};
use flotilla_model::ObjectKey;
use std::net::SocketAddr;
use std::time::Duration;

/// How the manager is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace and name of the lease. The namespace must exist.
    pub lease: ObjectKey,
    /// Who we are in the election; must differ between processes.
    pub identity: String,
    /// Whether to take part in an election. Without one, nothing keeps two managers apart.
    pub leader_election: bool,
    /// The election's times.
    pub lease_times: LeaseTimes,
    /// Where to serve metrics and health; nowhere if `None`.
    pub serve: Option<SocketAddr>,
    /// The only namespace to watch; all if `None`.
    pub namespace: Option<String>,
    /// How long a shutdown may take, from the signal to the released lease.
    pub shutdown: Duration,
    /// Everything that concerns the logic.
    pub core: CoreOptions,
}

impl Options {
    /// The defaults, for a process of this identity.
    pub fn new(identity: impl Into<String>) -> Self {
        Options {
            lease: ObjectKey::new("flotilla-system", "flotilla-manager"),
            identity: identity.into(),
            leader_election: true,
            lease_times: LeaseTimes::default(),
            serve: None,
            namespace: None,
            shutdown: Duration::from_secs(10),
            core: CoreOptions::default(),
        }
    }

    /// Options for the core, the election included.
    pub(super) fn for_core(&self) -> CoreOptions {
        let election = Election {
            identity: self.identity.clone(),
            times: self.lease_times,
        };
        CoreOptions {
            election: self.leader_election.then_some(election),
            ..self.core.clone()
        }
    }
}
