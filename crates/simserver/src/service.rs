//! The simulated API server as a tower service.

use crate::host::{Host, Shared};
use crate::stream::{self, Body};
use flotilla_apiserver::{Reply, handle};
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::json;
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Larger bodies are refused, as the real server refuses them.
const BODY_BYTES_MAX: usize = 3 << 20;

/// Answers requests of any client that speaks HTTP in memory.
pub struct Service<H> {
    shared: Arc<Shared<H>>,
}

impl<H> Clone for Service<H> {
    fn clone(&self) -> Self {
        Service {
            shared: self.shared.clone(),
        }
    }
}

impl<H: Host> Service<H> {
    /// Answers from this host.
    pub fn new(shared: Arc<Shared<H>>) -> Self {
        Service { shared }
    }

    /// Answers one request.
    pub async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let body = match Limited::new(body, BODY_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(why) => return too_large(&why.to_string()),
        };
        let request = Request::from_parts(head, body);
        match self.shared.with(|host| handle(host.server(), &request)) {
            Reply::Answer(response) => response.map(stream::full),
            Reply::Watch(watch) => {
                let mut response = Response::new(stream::events(self.shared, *watch));
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, json);
                response
            }
        }
    }
}

fn too_large(why: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("the request cannot be read: {why}"), "reason": "RequestEntityTooLarge", "code": 413});
    let mut response = Response::new(stream::full(status.to_string().into()));
    *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
    response
}

impl<H, B> tower::Service<Request<B>> for Service<H>
where
    H: Host,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}
