//! Bodies of answers: a text, or the events of a watch as they happen.

use crate::host::{Host, Shared};
use bytes::{Bytes, BytesMut};
use flotilla_apiserver::Watch;
use futures::stream;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// How often a watch that wants bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before its end a watch gets its last one.
const LAST_BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// A body that is there at once.
pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes).boxed_unsync()
}

struct Open<H> {
    shared: Arc<Shared<H>>,
    watch: Watch,
    versions: tokio::sync::watch::Receiver<u64>,
    bookmark_at: Instant,
    end_at: Instant,
    is_over: bool,
}

/// The events of a watch.
pub(crate) fn events<H: Host>(shared: Arc<Shared<H>>, watch: Watch) -> Body {
    // The runtime's clock, which tests can pause.
    let now = Instant::now();
    let timeout = Duration::from_secs(watch.timeout_seconds);
    let open = Open {
        versions: shared.versions(),
        shared,
        bookmark_at: now + BOOKMARK_EVERY.min(timeout.saturating_sub(LAST_BOOKMARK_BEFORE_END)),
        end_at: now + timeout,
        watch,
        is_over: false,
    };
    let frames = stream::unfold(open, |mut open| async move {
        let bytes = open.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(bytes)), open))
    });
    StreamBody::new(frames).boxed_unsync()
}

impl<H: Host> Open<H> {
    /// What to send next; `None` when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.is_over {
                return None;
            }
            self.versions.borrow_and_update();
            let watch = &mut self.watch;
            let (frames, is_over) = self.shared.with(|host| watch.poll(host.server()));
            self.is_over = is_over;
            if !frames.is_empty() {
                return Some(joined(&frames));
            }
            tokio::select! {
                changed = self.versions.changed() => self.is_over |= changed.is_err(),
                () = sleep_until(self.end_at) => self.is_over = true,
                () = sleep_until(self.bookmark_at) => {
                    self.bookmark_at = Instant::now() + BOOKMARK_EVERY;
                    let watch = &mut self.watch;
                    if let Some(frame) = self.shared.with(|host| watch.bookmark(host.server())) {
                        return Some(frame);
                    }
                }
            }
        }
    }
}

fn joined(frames: &[Bytes]) -> Bytes {
    match frames {
        [one] => one.clone(),
        many => {
            let mut all = BytesMut::with_capacity(many.iter().map(Bytes::len).sum());
            for frame in many {
                all.extend_from_slice(frame);
            }
            all.freeze()
        }
    }
}
