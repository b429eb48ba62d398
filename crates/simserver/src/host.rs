//! What lives around the API server, and how requests and time share it.

use crate::clock::Clock;
use flotilla_apiserver::{Caretaker, Server};
use flotilla_model::Timestamp;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// A simulation with an API server in it.
pub trait Host: Send + 'static {
    /// The API server.
    fn server(&mut self) -> &mut Server;

    /// Does what is due until `now`, and takes notice of what was written.
    fn advance(&mut self, now: Timestamp);

    /// When something happens by itself next.
    fn next_due(&self) -> Option<Timestamp>;
}

/// Nothing but the API server, and what the control plane does close to it.
#[derive(Debug, Default)]
pub struct Bare {
    server: Server,
    caretaker: Caretaker,
}

impl Bare {
    /// Around this server.
    pub fn new(server: Server) -> Self {
        Bare {
            server,
            caretaker: Caretaker::default(),
        }
    }
}

impl Host for Bare {
    fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    fn advance(&mut self, now: Timestamp) {
        self.server.now = self.server.now.max(now);
        loop {
            let news = self.server.take_journal();
            if news.is_empty() && !self.server.has_litter() {
                return;
            }
            self.caretaker.tend(&mut self.server, &news);
            if self.server.has_litter() {
                self.server.collect_garbage();
            }
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        None
    }
}

/// Longest nap of the driver, so that a changed agenda is never missed for long.
const NAP_MAX: Duration = Duration::from_millis(500);

/// A host that requests, watches and time share.
pub struct Shared<H> {
    host: Mutex<H>,
    clock: Clock,
    /// The newest version: watches look again when it moves.
    version: watch::Sender<u64>,
    /// Something was written, and the cluster may have to react.
    written: Notify,
}

impl<H: Host> Shared<H> {
    /// Shares a host.
    pub fn new(host: H, clock: Clock) -> Arc<Self> {
        let shared = Shared {
            host: Mutex::new(host),
            clock,
            version: watch::Sender::new(0),
            written: Notify::new(),
        };
        Arc::new(shared)
    }

    fn lock(&self) -> MutexGuard<'_, H> {
        // A panic in a request has been answered 500; what it left behind is still a consistent store.
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the host, at the present moment, and lets everybody know what has changed.
    pub fn with<T>(&self, act: impl FnOnce(&mut H) -> T) -> T {
        let mut host = self.lock();
        let now = self.clock.now();
        host.advance(now);
        let before = host.server().version();
        let done = act(&mut host);
        host.advance(now);
        let after = host.server().version();
        drop(host);
        self.tell(after);
        if before != after {
            self.written.notify_one();
        }
        done
    }

    fn tell(&self, version: u64) {
        self.version.send_if_modified(|known| {
            let is_new = *known != version;
            *known = version;
            is_new
        });
    }

    /// The newest version, to be waited for.
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Lets time pass, until dropped.
    pub async fn run(self: Arc<Self>) {
        loop {
            let due = {
                let mut host = self.lock();
                host.advance(self.clock.now());
                let version = host.server().version();
                let due = host.next_due();
                drop(host);
                self.tell(version);
                due
            };
            let nap = due.map_or(NAP_MAX, |due| self.clock.until(due).min(NAP_MAX));
            tokio::select! {
                () = tokio::time::sleep(nap.max(Duration::from_millis(1))) => {}
                () = self.written.notified() => {}
            }
        }
    }
}
