//! One task per kind: list, watch from there, and again when that ends.
//!
//! Each task has its own back-off, so that a kind in trouble does not hold up the others. It grows over failed lists and failed
//! watches alike, and starts anew only after a watch has lived for a while.

use super::clock::Clock;
use super::requests::encoding_of;
use super::versions::Versions;
use crate::wire::watch::{Frame, Frames};
use crate::wire::{Encoding, split_list};
use bytes::{Bytes, BytesMut};
use flotilla_model::{Resource, Timestamp};
use futures::FutureExt;
use http::header::ACCEPT;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use std::hash::{BuildHasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// How many objects the first page of a list has: nobody knows yet how large they are.
const FIRST_PAGE: usize = 20;
/// How many a page has at most.
const LARGEST_PAGE: usize = 500;
/// How many times as many as on the page before.
const PAGE_GROWTH: usize = 4;
/// How many bytes a page is meant to have, going by the objects of the page before. A few pages of each kind may be in memory at once; and a
/// list must end before its continue token is too old, some minutes after it began.
const PAGE_BYTES: usize = 1 << 20;
/// A page that is larger is not read to its end: fewer objects are asked for. One object alone may have any size.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// A list page that takes longer has failed.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// The server ends a watch after this long, so that watches spread over its replicas again.
const WATCH_SECONDS: u64 = 300;
/// Bookmarks come every minute; a connection that is silent for longer than two is dead.
const SILENCE_MAX: Duration = Duration::from_secs(150);
/// A watch that lived this long ends the back-off.
const HEALTHY_AFTER: Duration = Duration::from_secs(10);
const BACKOFF_BASE: Duration = Duration::from_millis(200);
const BACKOFF_CAP: Duration = Duration::from_secs(10);

/// What a watch task brings. Objects are not decoded yet: their strings are shared by whoever holds the cache.
#[derive(Debug)]
pub enum Feed {
    /// A list was begun at this moment.
    Began(Timestamp),
    /// A page of it.
    Page(Encoding, Vec<Bytes>),
    /// It has ended, at this version.
    Ended(u64),
    /// Watch events, as many as came together.
    Frames(Encoding, Vec<Frame>),
    /// The server does not know the kind.
    Missing,
    /// Listing or watching failed; it will be tried again.
    Failing(String),
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// List everything.
    List,
    /// Watch from this version.
    Watch(u64),
}

/// Why a list or a watch ended without bringing us further.
#[derive(Debug)]
enum End {
    /// The version, or the continue token, is too old.
    Expired,
    /// The server does not know the kind.
    Missing,
    /// It failed.
    Failed(String),
    /// Nobody listens any more.
    Stopped,
}

/// One kind's task.
pub struct Watcher {
    /// How to reach the API server.
    pub client: kube::Client,
    /// Tells when a list was begun.
    pub clock: Arc<Clock>,
    /// What is watched.
    pub resource: Resource,
    /// The only namespace; all if `None`.
    pub namespace: Option<String>,
    /// A field selector, such as `spec.nodeName=node-1`: nothing else is asked for.
    pub fields: Option<String>,
    /// In which versions kinds are served.
    pub versions: Versions,
    /// Where to bring it.
    pub feed: mpsc::Sender<(Resource, Feed)>,
    /// Counts the lists that were asked for; the first one starts the task.
    pub wanted: watch::Receiver<u64>,
}

impl Watcher {
    /// Runs until nobody listens.
    pub async fn run(mut self) {
        if self.wanted.changed().await.is_err() {
            return;
        }
        let (mut state, mut backoff) = (State::List, Backoff::default());
        loop {
            let began = self.clock.now();
            // The bytes that come are chosen by whoever may store objects. Should any of them make a decoder panic, this kind is listed
            // again, and others never notice.
            let step = AssertUnwindSafe(self.step(state)).catch_unwind().await;
            let step = match step {
                Ok(step) => step,
                Err(_) => {
                    let why = End::Failed("reading what came panicked; this is a defect of Flotilla".into());
                    self.ended(why, State::List).await
                }
            };
            let Some((next, went_well)) = step else {
                return;
            };
            state = next;
            if matches!(state, State::Watch(_)) && self.clock.now().since(began) >= HEALTHY_AFTER {
                backoff.reset();
            } else if !went_well {
                let relist = tokio::select! {
                    () = tokio::time::sleep(backoff.next_delay()) => false,
                    wanted = self.wanted.changed() => match wanted {
                        Ok(()) => true,
                        Err(_) => return,
                    },
                };
                state = if relist { State::List } else { state };
            }
        }
    }

    /// Lists, or watches until the watch ends or the core wants a list. Says what to do next, and whether at once; `None` if
    /// nobody listens any more.
    async fn step(&mut self, state: State) -> Option<(State, bool)> {
        let mut wanted = self.wanted.clone();
        match state {
            State::List => match self.list().await {
                Ok(version) => Some((State::Watch(version), true)),
                Err(end) => self.ended(end, State::List).await,
            },
            State::Watch(mut version) => {
                let relist = tokio::select! {
                    changed = wanted.changed() => Some(changed),
                    end = self.watch(&mut version) => match end {
                        Ok(()) => None,
                        Err(end) => return self.ended(end, State::Watch(version)).await,
                    },
                };
                match relist {
                    None => Some((State::Watch(version), false)),
                    Some(Ok(())) => {
                        self.wanted.borrow_and_update();
                        Some((State::List, true))
                    }
                    Some(Err(_)) => None,
                }
            }
        }
    }

    async fn ended(&mut self, end: End, again: State) -> Option<(State, bool)> {
        match end {
            End::Stopped => None,
            End::Expired => Some((State::List, false)),
            End::Missing => self.tell(Feed::Missing).await.ok().map(|()| (State::List, false)),
            End::Failed(why) => self.tell(Feed::Failing(why)).await.ok().map(|()| (again, false)),
        }
    }

    async fn tell(&self, feed: Feed) -> Result<(), End> {
        self.feed.send((self.resource, feed)).await.map_err(|_| End::Stopped)
    }

    /// Brings the whole collection, page by page, and returns its version.
    async fn list(&self) -> Result<u64, End> {
        self.tell(Feed::Began(self.clock.now())).await?;
        let (mut token, mut limit) = (String::new(), FIRST_PAGE);
        loop {
            let Some((encoding, body)) = self.page_in_time(&token, limit).await? else {
                limit = (limit / (2 * PAGE_GROWTH)).max(1);
                continue;
            };
            let list = split_list(encoding, &body).map_err(End::Failed)?;
            limit = next_limit(limit, body.len(), list.items.len());
            drop(body);
            self.tell(Feed::Page(encoding, list.items)).await?;
            if list.continue_token.is_empty() {
                self.tell(Feed::Ended(list.resource_version)).await?;
                return Ok(list.resource_version);
            }
            token = list.continue_token;
        }
    }

    /// A page, in whichever version of the kind the server knows.
    async fn page_in_time(&self, token: &str, limit: usize) -> Result<Option<(Encoding, Bytes)>, End> {
        let page = async || {
            let page = timeout(LIST_TIMEOUT, self.page(token, limit)).await;
            page.unwrap_or_else(|_| Err(End::Failed("listing: no answer in time".into())))
        };
        match page().await {
            Err(End::Missing) if self.versions.turn(self.resource) => {
                let other = page().await;
                if matches!(other, Err(End::Missing)) {
                    self.versions.turn(self.resource);
                }
                other
            }
            answered => answered,
        }
    }

    /// So many objects from where the last page ended; `None` if these are too large to be read at once.
    async fn page(&self, token: &str, limit: usize) -> Result<Option<(Encoding, Bytes)>, End> {
        // No resourceVersion: the answer is at least as new as the moment of asking.
        let mut query = format!("limit={limit}");
        if !token.is_empty() {
            query.push_str("&continue=");
            query.push_str(&percent_encoded(token));
        }
        let response = self.get(&query, Encoding::accepted(self.resource).0).await?;
        let encoding = encoding_of(response.headers());
        let (mut body, mut page) = (response.into_body(), BytesMut::new());
        while let Some(piece) = body.frame().await {
            let piece = piece.map_err(|e| End::Failed(format!("listing: {e}")))?;
            page.extend_from_slice(piece.data_ref().unwrap_or(&Bytes::new()));
            if limit > 1 && page.len() > PAGE_BYTES_MAX {
                return Ok(None);
            }
        }
        Ok(Some((encoding, page.freeze())))
    }

    /// Brings what happens after `version`, which it moves along, until the server closes the watch.
    async fn watch(&self, version: &mut u64) -> Result<(), End> {
        let query = format!(
            "watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={}",
            WATCH_SECONDS + jitter(60)
        );
        let response = timeout(LIST_TIMEOUT, self.get(&query, Encoding::accepted(self.resource).1)).await;
        let response = response.map_err(|_| End::Failed("watching: no answer in time".into()))??;
        let encoding = encoding_of(response.headers());
        let (mut frames, mut body) = (Frames::new(encoding), response.into_body());
        loop {
            let piece = timeout(SILENCE_MAX, body.frame()).await;
            let piece = match piece.map_err(|_| End::Failed("watching: the connection is silent".into()))? {
                None => return Ok(()),
                Some(piece) => piece.map_err(|e| End::Failed(format!("watching: {e}")))?,
            };
            if let Some(data) = piece.data_ref() {
                frames.push(data);
                self.forward(&mut frames, encoding, version).await?;
            }
        }
    }

    /// Brings all complete frames.
    async fn forward(&self, frames: &mut Frames, encoding: Encoding, version: &mut u64) -> Result<(), End> {
        let mut batch = Vec::new();
        let mut end = Ok(());
        while let Some(frame) = frames.next_frame().map_err(End::Failed)? {
            match frame {
                Frame::Error(status) if status.code == i32::from(StatusCode::GONE.as_u16()) => end = Err(End::Expired),
                Frame::Error(status) => end = Err(End::Failed(format!("watching: {}", status.message))),
                frame => batch.push(frame),
            }
        }
        // Events come in order of versions.
        *version = batch
            .last()
            .and_then(|frame| frame.version(encoding))
            .unwrap_or(*version)
            .max(*version);
        if !batch.is_empty() {
            self.tell(Feed::Frames(encoding, batch)).await?;
        }
        end
    }

    async fn get(&self, query: &str, accept: &str) -> Result<Response<Body>, End> {
        let labels = self.resource.selector().map(|label| format!("&labelSelector={label}"));
        let fields = self
            .fields
            .as_deref()
            .map(|fields| format!("&fieldSelector={}", percent_encoded(fields)));
        let uri = format!(
            "{}?{query}{}{}",
            self.versions
                .path(self.resource, self.resource.collection_path(self.namespace.as_deref())),
            labels.unwrap_or_default(),
            fields.unwrap_or_default()
        );
        let request = Request::get(uri).header(ACCEPT, accept).body(Body::empty());
        let request = request.map_err(|e| End::Failed(e.to_string()))?;
        let response = self
            .client
            .send(request)
            .await
            .map_err(|e| End::Failed(e.to_string()))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            StatusCode::GONE => Err(End::Expired),
            StatusCode::NOT_FOUND => Err(End::Missing),
            status => {
                let encoding = encoding_of(response.headers());
                let body = response.into_body().collect_bytes().await.unwrap_or_default();
                let said = crate::wire::status::Status::read(status.as_u16(), encoding, &body).message;
                Err(End::Failed(format!("the API server answered {status}: {said}")))
            }
        }
    }
}

/// How many objects to ask for after a page of these.
fn next_limit(limit: usize, bytes: usize, objects: usize) -> usize {
    let fitting = PAGE_BYTES * objects.max(1) / bytes.max(1);
    fitting.min(limit * PAGE_GROWTH).clamp(1, LARGEST_PAGE)
}

/// Delays that double up to a cap, each shortened by chance, so that watches do not come back in step.
#[derive(Debug, Default)]
struct Backoff {
    failures: u32,
}

impl Backoff {
    fn next_delay(&mut self) -> Duration {
        let full = BACKOFF_BASE
            .saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX))
            .min(BACKOFF_CAP);
        self.failures = self.failures.saturating_add(1);
        let kept_percent = 100 - u32::try_from(jitter(50)).unwrap_or(0);
        full.mul_f64(f64::from(kept_percent) / 100.0)
    }

    fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A number below `below` that differs from call to call. Spreads load; nothing is decided by it.
fn jitter(below: u64) -> u64 {
    RandomState::new().hash_one(0_u8) % below
}

/// A continue token is base64, of which `+`, `/` and `=` mean something in a query. So does the sign of equality in a selector.
fn percent_encoded(text: &str) -> String {
    text.replace('%', "%25")
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D")
}

#[cfg(test)]
mod tests;
