//! A client that gives up a server which takes connections and says nothing.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::Client;
use kube::client::Body;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};
use tower::BoxError;

/// Nothing has come for so long.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the server did not answer within {} s", .0.as_secs())]
pub struct Silence(pub Duration);

/// The client with bounds: an answer begins within this time, and what it consists of comes without longer pauses. Only a watch, once it
/// has begun, may be silent: it says when something happens.
pub fn bounded(client: Client, within: Duration) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| send(client.clone(), request, within));
    Client::new(service, namespace)
}

fn send(
    client: Client,
    request: Request<Body>,
    within: Duration,
) -> BoxFuture<'static, Result<Response<Unhurried>, BoxError>> {
    let query = request.uri().query().unwrap_or_default();
    let is_watch = query.split('&').any(|part| part == "watch=true");
    Box::pin(async move {
        let answer = tokio::time::timeout(within, client.send(request)).await;
        let answer = answer.map_err(|_elapsed| Silence(within))??;
        let bound = (!is_watch).then(|| (within, Box::pin(sleep(within))));
        Ok(answer.map(|body| Unhurried { body, bound }))
    })
}

/// A body of which each part may take its time, and no longer.
struct Unhurried {
    body: Body,
    bound: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl HttpBody for Unhurried {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            if let Some((within, sleep)) = &mut this.bound {
                sleep.as_mut().reset(Instant::now() + *within);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        match &mut this.bound {
            Some((within, sleep)) => {
                ready!(sleep.as_mut().poll(cx));
                Poll::Ready(Some(Err(Silence(*within).into())))
            }
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// A body that begins, and never goes on.
    struct Stuck(bool);

    impl HttpBody for Stuck {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Pending;
            }
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"{")))))
        }
    }

    fn stuck() -> Client {
        let answer = |_: Request<Body>| std::future::ready(Ok::<_, Infallible>(Response::new(Stuck(false))));
        bounded(Client::new(tower::service_fn(answer), "ns"), Duration::from_secs(1))
    }

    fn ask(path: &str) -> Request<Vec<u8>> {
        Request::get(path).body(Vec::new()).unwrap()
    }

    #[tokio::test]
    async fn an_answer_that_stops_half_way_ends_with_a_sentence() {
        let error = stuck().request::<serde_json::Value>(ask("/api")).await.unwrap_err();
        assert!(error.to_string().contains("did not answer within 1 s"), "{error}");
    }

    #[tokio::test]
    async fn a_watch_may_be_silent() {
        use futures::{StreamExt, TryStreamExt};
        let client = stuck();
        let events = client.request_events::<serde_json::Value>(ask("/api?watch=true&resourceVersion=1"));
        let mut events = std::pin::pin!(events.await.unwrap().into_stream());
        let waited = tokio::time::timeout(Duration::from_secs(3), events.next()).await;
        assert!(waited.is_err(), "it has nothing to say");
    }
}
