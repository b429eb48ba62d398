//! Connections of clients that nobody knows: how many there are at once, how long they may be silent, and which makes room for another.
//!
//! Whoever reaches a port can open connections and say nothing. So a connection that asks nothing is given up soon, one that has not
//! asked for a while later, and if there is no room left, the most silent goes at once; where all are being answered, the first that has
//! been goes. So a client that does ask always gets in, however many others do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// How many connections there are at once, and how long they may be silent.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Connections at the same time.
    pub connections_max: usize,
    /// How long a connection may take to its first request, agreement on TLS included.
    pub first_request: Duration,
    /// How long it may be without a request afterwards.
    pub between_requests: Duration,
}

/// The connections of one port.
#[derive(Debug)]
pub struct Connections {
    patience: Patience,
    room: Arc<Semaphore>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    lines: Vec<Arc<Line>>,
    /// How many that enter wait for an answer to end, since none was silent.
    waiting: usize,
}

/// What is known of a connection.
#[derive(Debug)]
struct Line {
    state: Mutex<State>,
    /// Told once when it is to make room.
    makes_room: Notify,
}

#[derive(Clone, Copy, Debug)]
struct State {
    has_asked: bool,
    /// Requests that are being answered.
    answering: usize,
    silent_since: Instant,
    goes: Option<Silence>,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        // A number and a time are whole whatever panicked while they were held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn go(&self, why: Silence) {
        self.state().goes = Some(why);
        self.makes_room.notify_one();
    }
}

impl Connections {
    /// None yet.
    pub fn new(patience: Patience) -> Arc<Self> {
        Arc::new(Connections {
            patience,
            room: Arc::new(Semaphore::new(patience.connections_max)),
            open: Mutex::default(),
        })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a connection that has just been accepted. If there is none, the most silent one makes room; if all are being answered,
    /// the first that has been does.
    pub async fn enter(self: &Arc<Self>) -> Connection {
        let slot = if let Ok(slot) = self.room.clone().try_acquire_owned() {
            Some(slot)
        } else {
            self.make_room();
            // It is closed never.
            self.room.clone().acquire_owned().await.ok()
        };
        let line = Arc::new(Line {
            state: Mutex::new(State {
                has_asked: false,
                answering: 0,
                silent_since: Instant::now(),
                goes: None,
            }),
            makes_room: Notify::new(),
        });
        self.open().lines.push(line.clone());
        Connection {
            line,
            all: self.clone(),
            _slot: slot,
        }
    }

    /// The most silent connection goes: one that has never asked anything before all others. If all are being answered, or have been told
    /// to go, the next that has been answered does.
    pub fn make_room(&self) {
        let mut open = self.open();
        let silent = open.lines.iter().filter_map(|line| {
            let state = *line.state();
            let is_silent = state.answering == 0 && state.goes.is_none();
            is_silent.then_some(((state.has_asked, state.silent_since), line))
        });
        if let Some((_, line)) = silent.min_by_key(|(rank, _)| *rank) {
            line.go(Silence::MakesRoom);
        } else {
            open.waiting += 1;
        }
    }

    /// Waits until there is no connection any more.
    pub async fn ended(&self) {
        let all = u32::try_from(self.patience.connections_max).unwrap_or(u32::MAX);
        // It is closed never.
        let _ = self.room.acquire_many(all).await;
    }
}

/// A connection, as long as this is kept.
#[derive(Debug)]
pub struct Connection {
    line: Arc<Line>,
    all: Arc<Connections>,
    _slot: Option<OwnedSemaphorePermit>,
}

/// Why a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It has not asked for too long, or never.
    TooLong,
    /// Another needs the room, and nothing is being answered.
    MakesRoom,
    /// Another needs the room, and an answer may still be on its way.
    HasBeenAnswered,
}

impl Connection {
    /// Says when a request of this connection is being answered.
    pub fn asker(&self) -> Asker {
        Asker {
            line: self.line.clone(),
            all: self.all.clone(),
        }
    }

    /// Waits until the connection is to be given up.
    pub async fn silence(&self) -> Silence {
        loop {
            let patience = self.all.patience;
            let state = *self.line.state();
            let limit = if state.has_asked {
                patience.between_requests
            } else {
                patience.first_request
            };
            let since = if state.answering > 0 {
                Instant::now()
            } else {
                state.silent_since
            };
            match state.goes {
                // It has asked since it was told.
                Some(_) if state.answering > 0 => return Silence::HasBeenAnswered,
                Some(why) => return why,
                None if since.elapsed() >= limit => return Silence::TooLong,
                None => {}
            }
            tokio::select! {
                () = self.line.makes_room.notified() => {}
                () = sleep_until(since + limit) => {}
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut open = self.all.open();
        open.lines.retain(|line| !Arc::ptr_eq(line, &self.line));
        if self.line.state().goes.is_none() {
            // Its room is one that nobody had been told to make.
            open.waiting = open.waiting.saturating_sub(1);
        }
    }
}

/// Says when a request is being answered.
#[derive(Clone, Debug)]
pub struct Asker {
    line: Arc<Line>,
    all: Arc<Connections>,
}

impl Asker {
    /// A request is being answered, as long as what is returned is kept.
    #[must_use]
    pub fn asks(&self) -> Asking {
        let mut state = self.line.state();
        state.has_asked = true;
        state.answering += 1;
        Asking(self.clone())
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub struct Asking(Asker);

impl Drop for Asking {
    fn drop(&mut self) {
        let Asker { line, all } = &self.0;
        let mut open = all.open();
        let mut state = line.state();
        state.answering = state.answering.saturating_sub(1);
        state.silent_since = Instant::now();
        if open.waiting > 0 && state.answering == 0 && state.goes.is_none() {
            open.waiting -= 1;
            drop(state);
            line.go(Silence::HasBeenAnswered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        connections_max: 2,
        first_request: Duration::from_secs(10),
        between_requests: Duration::from_secs(60),
    };

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_never_asks_goes_soon_and_one_that_has_asked_later() {
        let connections = Connections::new(PATIENCE);
        let (never, once) = (connections.enter().await, connections.enter().await);
        drop(once.asker().asks());
        let begun = Instant::now();
        assert_eq!(never.silence().await, Silence::TooLong);
        assert_eq!(begun.elapsed().as_secs(), 10);
        assert_eq!(once.silence().await, Silence::TooLong);
        assert_eq!(begun.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_being_answered_is_not_silent() {
        let connections = Connections::new(PATIENCE);
        let busy = connections.enter().await;
        let asking = busy.asker().asks();
        let given_up = tokio::time::timeout(Duration::from_secs(3600), busy.silence()).await;
        assert!(given_up.is_err(), "{given_up:?}");
        drop(asking);
        let begun = Instant::now();
        assert_eq!(busy.silence().await, Silence::TooLong);
        assert_eq!(begun.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_silent_makes_room_and_never_one_that_is_being_answered() {
        let connections = Connections::new(PATIENCE);
        let (first, second) = (connections.enter().await, connections.enter().await);
        drop(first.asker().asks());
        let third = tokio::spawn({
            let connections = connections.clone();
            async move { connections.enter().await }
        });
        assert_eq!(second.silence().await, Silence::MakesRoom, "it has never asked");
        drop(second);
        let third = third.await.unwrap();
        let (a, b) = (first.asker().asks(), third.asker().asks());
        let mut fourth = std::pin::pin!(connections.enter());
        let waiting = tokio::time::timeout(Duration::from_secs(5), &mut fourth).await;
        assert!(waiting.is_err(), "both are being answered");
        drop((a, first));
        fourth.await;
        drop(b);
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_are_being_answered_the_first_that_has_been_makes_room() {
        let connections = Connections::new(PATIENCE);
        let (first, second) = (connections.enter().await, connections.enter().await);
        let (one, other) = (first.asker().asks(), second.asker().asks());
        let third = tokio::spawn({
            let connections = connections.clone();
            async move { connections.enter().await }
        });
        let waiting = tokio::time::timeout(Duration::from_secs(5), async {
            tokio::join!(first.silence(), second.silence())
        });
        assert!(waiting.await.is_err(), "what is asked is answered");
        drop(one);
        // Also where it asks the next thing at once.
        let _next = first.asker().asks();
        let goes = tokio::time::timeout(Duration::from_secs(5), first.silence());
        assert_eq!(goes.await, Ok(Silence::HasBeenAnswered));
        drop(first);
        let third = third.await.unwrap();
        drop(other);
        let nobody_waits = tokio::time::timeout(Duration::from_secs(5), second.silence());
        assert!(nobody_waits.await.is_err());
        drop(third);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_asks_once_it_was_told_to_go_is_answered_before() {
        let connections = Connections::new(PATIENCE);
        let one = connections.enter().await;
        connections.make_room();
        let _asking = one.asker().asks();
        assert_eq!(one.silence().await, Silence::HasBeenAnswered);
    }

    #[tokio::test(start_paused = true)]
    async fn all_have_ended_when_none_is_kept() {
        let connections = Connections::new(PATIENCE);
        let one = connections.enter().await;
        let waiting = tokio::time::timeout(Duration::from_secs(1), connections.ended()).await;
        assert!(waiting.is_err());
        drop(one);
        connections.ended().await;
    }
}
