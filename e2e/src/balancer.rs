//! What stands before several replicas, as a Service does: it leads new connections to those that are listed, in turn, and hears of changes
//! only when it is told.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A running balancer. Dropping it cuts everything.
pub struct Balancer {
    address: SocketAddr,
    listed: Arc<Mutex<Vec<u16>>>,
    _serving: JoinSet<()>,
}

impl Balancer {
    /// Begins to lead connections to a port of its own to nobody, as long as nobody is listed.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let listed: Arc<Mutex<Vec<u16>>> = Arc::default();
        let mut serving = JoinSet::new();
        serving.spawn(lead(listener, listed.clone()));
        Balancer {
            address,
            listed,
            _serving: serving,
        }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on connections may be led to this port of this machine.
    pub fn list(&self, port: u16) {
        ports(&self.listed).push(port);
    }

    /// New connections are led there no more; those that stand stay.
    pub fn delist(&self, port: u16) {
        ports(&self.listed).retain(|listed| *listed != port);
    }
}

fn ports(listed: &Mutex<Vec<u16>>) -> MutexGuard<'_, Vec<u16>> {
    listed.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn lead(listener: TcpListener, listed: Arc<Mutex<Vec<u16>>>) {
    let mut connections = JoinSet::new();
    for turn in 0_usize.. {
        let (mut inner, _) = listener.accept().await.expect("it can accept");
        while connections.try_join_next().is_some() {}
        let port = {
            let listed = ports(&listed);
            (!listed.is_empty()).then(|| listed[turn % listed.len()])
        };
        let Some(port) = port else { continue };
        connections.spawn(async move {
            // Whoever is listed and is not there refuses, as behind a Service.
            if let Ok(mut outer) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                // How a connection ends is the business of those at its ends.
                let _ended = copy_bidirectional(&mut inner, &mut outer).await;
            }
        });
    }
}
