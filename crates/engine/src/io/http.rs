//! Metrics, health and readiness over HTTP.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Connections served at the same time.
const CONNECTIONS_MAX: usize = 32;
/// A loop that does not answer for this long does not turn.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A connection is closed after this long, whatever it does.
const CONNECTION_LIFE: Duration = Duration::from_secs(120);

/// What is asked of the loop that is served.
pub enum Query {
    /// All metrics, as text.
    Metrics(oneshot::Sender<String>),
    /// What is missing before we are ready.
    Readiness(oneshot::Sender<Vec<String>>),
    /// Whether the loop turns.
    Health(oneshot::Sender<()>),
}

/// Takes the address.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves until dropped.
pub async fn serve(listener: TcpListener, queries: mpsc::Sender<Query>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely; accepting at once again would only spin.
                tracing::warn!(%error, "cannot accept a connection for metrics and health");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let queries = queries.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, queries.clone()));
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A client that goes away, or stays too long, is nothing to report.
            let _ = tokio::time::timeout(CONNECTION_LIFE, connection).await;
            drop(slot);
        });
    }
}

async fn answer(request: Request<Incoming>, queries: mpsc::Sender<Query>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(match request.uri().path() {
        "/metrics" => match ask(&queries, Query::Metrics).await {
            Some(text) => response(StatusCode::OK, render_type(), text),
            None => stuck(),
        },
        "/healthz" => match ask(&queries, Query::Health).await {
            Some(()) => response(StatusCode::OK, PLAIN, "ok\n".into()),
            None => stuck(),
        },
        "/readyz" => match ask(&queries, Query::Readiness).await {
            Some(missing) if missing.is_empty() => response(StatusCode::OK, PLAIN, "ok\n".into()),
            Some(missing) => response(StatusCode::SERVICE_UNAVAILABLE, PLAIN, missing.join("\n") + "\n"),
            None => stuck(),
        },
        _ => response(
            StatusCode::NOT_FOUND,
            PLAIN,
            "try /metrics, /healthz or /readyz\n".into(),
        ),
    })
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn render_type() -> &'static str {
    "application/openmetrics-text; version=1.0.0; charset=utf-8"
}

async fn ask<T>(queries: &mpsc::Sender<Query>, query: impl FnOnce(oneshot::Sender<T>) -> Query) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    let asking = async {
        queries.send(query(reply)).await.ok()?;
        answer.await.ok()
    };
    tokio::time::timeout(ANSWER_WITHIN, asking).await.ok()?
}

fn stuck() -> Response<Full<Bytes>> {
    response(
        StatusCode::INTERNAL_SERVER_ERROR,
        PLAIN,
        "the loop does not turn\n".into(),
    )
}

fn response(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        hyper::header::CONTENT_TYPE,
        hyper::header::HeaderValue::from_static(content_type),
    );
    response
}
