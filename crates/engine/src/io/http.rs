//! Metrics, health and readiness over HTTP.

use super::listen;
use super::patience::{Connections, Patience, Silence};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// A probe always gets in, whoever else holds connections and says nothing; Prometheus asks at least once a minute.
const PATIENCE: Patience = Patience {
    connections_max: 32,
    first_request: Duration::from_secs(5),
    between_requests: Duration::from_secs(90),
};
/// A loop that does not answer for this long does not turn.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// What is asked of the loop that is served.
pub enum Query {
    /// All metrics, as text.
    Metrics(oneshot::Sender<String>),
    /// What is missing before we are ready.
    Readiness(oneshot::Sender<Vec<String>>),
    /// Whether the loop turns.
    Health(oneshot::Sender<()>),
}

/// How long an answer may be on its way once another connection needs the room.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// Takes the address; see [`listen::bind`].
///
/// # Errors
/// If it is not to be had.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = listen::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// What is served at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Metrics, health and readiness.
    All,
    /// Health and readiness alone: where kubelets ask, with connections that nobody takes from them who is after metrics.
    Probes,
}

/// Serves until dropped.
pub async fn serve(listener: TcpListener, pages: Pages, queries: mpsc::Sender<Query>) {
    let connections = Connections::new(PATIENCE);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely; accepting at once again would only spin.
                tracing::warn!(%error, "cannot accept a connection for metrics and health");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let connection = connections.enter().await;
        let queries = queries.clone();
        tokio::spawn(async move {
            let asker = connection.asker();
            let service = service_fn(|request| {
                let (asking, queries) = (asker.asks(), queries.clone());
                async move {
                    let answered = answer(request, pages, queries).await;
                    drop(asking);
                    answered
                }
            });
            let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let mut served = std::pin::pin!(served);
            // A client that goes away, is silent, or reads no answer, is nothing to report.
            tokio::select! {
                _ = &mut served => {}
                silence = connection.silence() => if silence == Silence::HasBeenAnswered {
                    served.as_mut().graceful_shutdown();
                    let _ = tokio::time::timeout(GOODBYE_MAX, served).await;
                }
            }
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    pages: Pages,
    queries: mpsc::Sender<Query>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(match request.uri().path() {
        "/metrics" if pages == Pages::All => match ask(&queries, Query::Metrics).await {
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
            match pages {
                Pages::All => "try /metrics, /healthz or /readyz\n".into(),
                Pages::Probes => "try /healthz or /readyz; metrics are served on the port of --http-address\n".into(),
            },
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn where_kubelets_ask_there_are_no_metrics() {
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let (queries, mut asked) = mpsc::channel(1);
        let serving = tokio::spawn(serve(listener, Pages::Probes, queries));
        let loops = tokio::spawn(async move {
            while let Some(query) = asked.recv().await {
                match query {
                    Query::Readiness(reply) => reply.send(vec!["the lease".to_owned()]).unwrap(),
                    Query::Health(reply) => reply.send(()).unwrap(),
                    Query::Metrics(_) => panic!("nobody asks for metrics here"),
                }
            }
        });
        for (path, expected) in [
            ("/healthz", "200 OK"),
            ("/readyz", "503 Service Unavailable"),
            ("/metrics", "404 Not Found"),
        ] {
            let mut probe = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: flotilla\r\nConnection: close\r\n\r\n");
            probe.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            probe.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{path}: {answer}");
        }
        serving.abort();
        loops.abort();
    }

    #[tokio::test]
    async fn a_probe_is_answered_whoever_else_is_connected_and_silent() {
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let (queries, mut asked) = mpsc::channel(1);
        let serving = tokio::spawn(serve(listener, Pages::All, queries));
        let loops = tokio::spawn(async move {
            while let Some(query) = asked.recv().await {
                if let Query::Health(reply) = query {
                    // Who has asked may have gone.
                    let _ = reply.send(());
                }
            }
        });
        let mut silent = Vec::new();
        for n in 0..2 * PATIENCE.connections_max {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if n % 2 == 0 {
                // A head that never ends is as good as silence.
                stream.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
            }
            silent.push(stream);
        }
        let mut probe = TcpStream::connect(address).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nHost: flotilla\r\nConnection: close\r\n\r\n";
        probe.write_all(request).await.unwrap();
        let mut answer = String::new();
        let reading = probe.read_to_string(&mut answer);
        // A kubelet gives a probe a second.
        tokio::time::timeout(Duration::from_secs(1), reading)
            .await
            .expect("an answer in time")
            .unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        serving.abort();
        loops.abort();
    }
}
