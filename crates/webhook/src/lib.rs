//! Admission and conversion over HTTPS, for the API server.
//!
//! Verdicts are `flotilla-admission`'s. Here they are served ([`review`]: bytes in, bytes out), from a thread of its own; the
//! certificates are made, renewed and shared ([`certificates`]: what is stored and the time decide), and the API server is told where
//! the endpoint is ([`registrations`]: facts in, objects out). Whoever holds the manager's lease writes; every replica serves.

pub mod certificates;
mod knowledge;
mod metrics;
mod probe;
pub mod registrations;
pub mod review;
mod seek;
mod serve;
mod upkeep;
mod weight;

pub use knowledge::Knowledge;
pub use registrations::Place;
pub use serve::{BODY_BYTES_MAX, REQUESTS_MAX};

use certificates::Lifetimes;
use flotilla_engine::core::census::Census;
use flotilla_engine::io::fence::Fence;
use flotilla_engine::io::manager::Beside;
use prometheus_client::registry::Registry;
use serve::{Server, Shared};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;
use upkeep::Upkeep;

/// How the endpoint is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    pub address: SocketAddr,
    /// Where the API server finds it.
    pub place: Place,
    /// Our own namespace, where the certificates are stored.
    pub namespace: String,
    /// The only namespace that the manager works in; all if `None`.
    pub only_namespace: Option<String>,
    /// Certificates from outside: `tls.crt`, `tls.key` and `ca.crt` in this directory. Without it they are made and stored.
    pub tls_directory: Option<PathBuf>,
    /// How long certificates live.
    pub lifetimes: Lifetimes,
    /// The manager runs with gate `CloneSetShortHash`: new pods of CloneSets are labelled with the hash of their revision alone.
    pub labels_with_hashes: bool,
}

/// The address for the endpoint is not to be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve webhooks on {0}: {1}; choose another address with --webhook-address, or none")]
pub struct Error(SocketAddr, #[source] std::io::Error);

/// The running endpoint, and the task that keeps certificates and registrations right.
pub struct Webhooks {
    shared: Arc<Shared>,
    /// Before it knew anything.
    knowledge: Knowledge,
    running: Mutex<Option<(Server, JoinHandle<()>)>>,
}

impl Webhooks {
    /// Begins to serve, in a thread, and to look after certificates and registrations, in a task of this runtime.
    pub fn start(options: Options, client: kube::Client, fence: Fence) -> Result<Self, Error> {
        let knowledge = Knowledge::new(Census::default(), options.only_namespace.clone())
            .labelling_with_hashes(options.labels_with_hashes);
        let shared = Shared::new(Arc::new(knowledge.clone()), review::answer);
        let lookup = seek::lookup(client.clone(), shared.metrics.clone());
        let shared = Arc::new(shared.asking(lookup));
        let (server, address) =
            Server::start(options.address, shared.clone()).map_err(|why| Error(options.address, why))?;
        tracing::info!(%address, place = options.place.host(), "serving webhooks");
        let upkeep = Upkeep::new(options, client, fence, shared.clone());
        let task = tokio::spawn(upkeep.run());
        Ok(Webhooks {
            shared,
            knowledge,
            running: Mutex::new(Some((server, task))),
        })
    }

    /// Ends: requests on their way are still answered, for a moment.
    pub fn stop(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((server, task)) = running {
            task.abort();
            server.stop();
        }
    }
}

impl Beside for Webhooks {
    fn register(&self, registry: &mut Registry) {
        self.shared.metrics.register(registry);
    }

    fn not_ready(&self) -> Vec<String> {
        if self.shared.shows() {
            Vec::new()
        } else {
            vec!["webhooks: there is no certificate to serve with yet".to_owned()]
        }
    }

    fn learn(&self, census: Census) {
        self.shared.know(Arc::new(self.knowledge.after(census)));
    }
}
