//! Answers on their way to clients that nobody knows: how much they weigh together, and how long one may take.
//!
//! An answer stays in memory until the socket has taken its last byte, and whoever reaches the port can ask and never read: a thousand streams
//! on a connection, all of closed windows. So an answer takes room until it has been sent or its connection has been dropped. It never waits
//! for room, since the next to be answered is as likely as not the API server: the connection of the oldest answer goes instead, as that of
//! an answer goes that has not been sent in time. An API server reads at once, and asks again where it was cut off.

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// What an answer takes besides its body: its stream, its head, its task.
const BESIDE_BYTES: usize = 4 << 10;

/// How much may be on its way, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// All answers together.
    pub(super) bytes_max: usize,
    /// How long an answer may take until the socket has all of it.
    pub(super) longest: Duration,
}

/// The answers of one port that are on their way.
#[derive(Debug)]
pub(super) struct Sending {
    limits: Limits,
    on_way: Mutex<OnWay>,
}

#[derive(Debug, Default)]
struct OnWay {
    /// The number of the next answer.
    next: u64,
    /// What all weigh.
    bytes: usize,
    /// By number, which is by age.
    answers: BTreeMap<u64, Sent>,
}

#[derive(Debug)]
struct Sent {
    bytes: usize,
    line: Arc<Line>,
}

/// The connection that answers are sent over.
#[derive(Debug, Default)]
struct Line {
    state: Mutex<State>,
    /// Told when there is a first answer on its way, and when the connection is to make room.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Its answers, by number, with the moment since which each is on its way.
    unsent: BTreeMap<u64, Instant>,
    makes_room: bool,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a connection is given up whose client does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// An answer has been on its way for too long.
    TooLong,
    /// Other answers need the room.
    MakesRoom,
}

impl Unread {
    /// A word for metrics.
    pub(super) fn word(self) -> &'static str {
        match self {
            Unread::TooLong => "too-long",
            Unread::MakesRoom => "makes-room",
        }
    }
}

impl Sending {
    /// Nothing yet.
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Sending {
            limits,
            on_way: Mutex::default(),
        })
    }

    /// A connection over which answers will be sent.
    pub(super) fn reader(self: &Arc<Self>) -> Reader {
        Reader {
            all: self.clone(),
            line: Arc::default(),
        }
    }

    fn on_way(&self) -> MutexGuard<'_, OnWay> {
        self.on_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is on its way weighs so much.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.on_way().bytes
    }
}

impl OnWay {
    /// Takes an answer out; it may have been before, with its connection.
    fn remove(&mut self, number: u64) {
        if let Some(sent) = self.answers.remove(&number) {
            self.bytes -= sent.bytes;
        }
    }

    /// The connections of the oldest go until the others, and this one, have room. What they hold counts no more: they are gone as soon as
    /// their tasks run.
    fn make_room(&mut self, bytes_max: usize, newest: u64) {
        while self.bytes > bytes_max {
            let Some((_, oldest)) = self.answers.first_key_value().filter(|(number, _)| **number != newest) else {
                return;
            };
            let line = oldest.line.clone();
            let numbers: Vec<u64> = {
                let mut state = line.state();
                state.makes_room = true;
                state.unsent.keys().copied().collect()
            };
            for number in numbers {
                self.remove(number);
            }
            line.changed.notify_one();
        }
    }
}

/// A client, which reads or does not.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    all: Arc<Sending>,
    line: Arc<Line>,
}

impl Reader {
    /// An answer is on its way, as long as what is returned is kept.
    pub(super) fn send(&self, bytes: Bytes) -> Answer {
        let mut on_way = self.all.on_way();
        let (number, since) = (on_way.next, Instant::now());
        let weight = bytes.len() + BESIDE_BYTES;
        on_way.next += 1;
        on_way.bytes += weight;
        let sent = Sent {
            bytes: weight,
            line: self.line.clone(),
        };
        on_way.answers.insert(number, sent);
        let is_first = {
            let mut state = self.line.state();
            state.unsent.insert(number, since);
            state.unsent.len() == 1
        };
        on_way.make_room(self.all.limits.bytes_max, number);
        drop(on_way);
        if is_first {
            self.line.changed.notify_one();
        }
        let reader = self.clone();
        Answer(Some(Piece {
            bytes,
            _unsent: Unsent { reader, number },
        }))
    }

    /// Waits until the connection is to be given up.
    pub(super) async fn is_unread(&self) -> Unread {
        let longest = self.all.limits.longest;
        loop {
            let oldest = {
                let state = self.line.state();
                if state.makes_room {
                    return Unread::MakesRoom;
                }
                state.unsent.first_key_value().map(|(_, since)| *since)
            };
            let changed = self.line.changed.notified();
            match oldest {
                Some(since) if since.elapsed() >= longest => return Unread::TooLong,
                Some(since) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(since + longest) => {}
                },
                None => changed.await,
            }
        }
    }
}

/// An answer takes room as long as this is kept.
#[derive(Debug)]
struct Unsent {
    reader: Reader,
    number: u64,
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.reader.all.on_way().remove(self.number);
        self.reader.line.state().unsent.remove(&self.number);
    }
}

/// The body of an answer, in one piece.
#[derive(Debug)]
pub(super) struct Answer(Option<Piece>);

/// What is written to the socket. Whoever writes keeps it until its last byte is out, or the connection has gone.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    _unsent: Unsent,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Body for Answer {
    type Data = Piece;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, Infallible>>> {
        Poll::Ready(self.0.take().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |piece| piece.bytes.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        bytes_max: 100 << 10,
        longest: Duration::from_secs(30),
    };

    fn kilobytes(count: usize) -> Bytes {
        vec![b'x'; count << 10].into()
    }

    async fn outlasts(reader: &Reader, seconds: u64) -> bool {
        let waiting = tokio::time::timeout(Duration::from_secs(seconds), reader.is_unread());
        waiting.await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_takes_room_until_all_of_it_is_written() {
        let sending = Sending::new(LIMITS);
        let mut answer = Box::pin(sending.reader().send(kilobytes(10)));
        assert_eq!(answer.size_hint().exact(), Some(10 << 10));
        let frame = std::future::poll_fn(|context| answer.as_mut().poll_frame(context)).await;
        let mut piece = frame.unwrap().unwrap().into_data().unwrap();
        assert!(answer.is_end_stream());
        drop(answer);
        piece.advance((10 << 10) - 1);
        assert_eq!(sending.bytes(), (10 << 10) + BESIDE_BYTES, "a byte is left");
        drop(piece);
        assert_eq!(sending.bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_its_time_for_each_answer_and_none_beyond_it() {
        let sending = Sending::new(LIMITS);
        let reader = sending.reader();
        assert!(outlasts(&reader, 3600).await, "nothing is on its way");
        let first = reader.send(kilobytes(1));
        assert!(outlasts(&reader, 20).await);
        let _second = reader.send(kilobytes(1));
        drop(first);
        assert!(outlasts(&reader, 29).await, "the time of the second began later");
        let begun = Instant::now();
        assert_eq!(reader.is_unread().await, Unread::TooLong);
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_makes_room_with_all_that_its_connection_holds() {
        let sending = Sending::new(LIMITS);
        let (stuck, reads) = (sending.reader(), sending.reader());
        let mut held = vec![stuck.send(kilobytes(20))];
        let _read = reads.send(kilobytes(20));
        held.push(stuck.send(kilobytes(30)));
        assert!(outlasts(&stuck, 1).await && outlasts(&reads, 1).await);
        let _more = reads.send(kilobytes(30));
        assert_eq!(stuck.is_unread().await, Unread::MakesRoom);
        assert!(outlasts(&reads, 1).await, "the room of one was enough");
        let all = sending.bytes();
        drop(held);
        assert_eq!(sending.bytes(), all, "what has made room counts once");
    }

    #[tokio::test(start_paused = true)]
    async fn many_small_answers_are_no_smaller_than_what_they_take() {
        let sending = Sending::new(LIMITS);
        let stuck = sending.reader();
        let held: Vec<_> = (0..25).map(|_| stuck.send(Bytes::from_static(b"no\n"))).collect();
        assert_eq!(stuck.is_unread().await, Unread::MakesRoom);
        drop(held);
        let reads = sending.reader();
        let _large = reads.send(kilobytes(200));
        assert!(outlasts(&reads, 1).await, "one answer of any size is sent");
    }
}
