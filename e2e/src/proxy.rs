//! A proxy in front of the API server whose connections can be cut, so that nobody knows what became of the requests on them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// A running proxy. Dropping it cuts everything.
pub struct Proxy {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
    listening: AbortHandle,
    asked: AtomicUsize,
}

impl Proxy {
    /// Begins to pass on what is sent to a port of its own to `port` of this machine. Runs on the runtime of the caller.
    pub async fn start(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let connections: Arc<Mutex<Vec<AbortHandle>>> = Arc::default();
        let opened = connections.clone();
        let listening = tokio::spawn(async move {
            loop {
                let (mut inner, _) = listener.accept().await.expect("it can accept");
                let passing = tokio::spawn(async move {
                    if let Ok(mut outer) = TcpStream::connect(("127.0.0.1", port)).await {
                        // How a connection ends is the business of those at its ends.
                        let _ended = copy_bidirectional(&mut inner, &mut outer).await;
                    }
                });
                let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
                opened.retain(|connection| !connection.is_finished());
                opened.push(passing.abort_handle());
            }
        });
        Proxy {
            address,
            connections,
            listening: listening.abort_handle(),
            asked: AtomicUsize::new(0),
        }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Cuts all connections every fifth time.
    pub fn cut_sometimes(&self) {
        if self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(5) {
            self.cut();
        }
    }

    /// Cuts all connections. New ones are passed on as before.
    pub fn cut(&self) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.drain(..).for_each(|connection| connection.abort());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
        self.cut();
    }
}
