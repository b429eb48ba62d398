//! The connection to the API server: a few, over HTTP/2 where the server speaks it.
//!
//! The client library's own stack speaks HTTP/1.1 only: each watch and each request in flight is then a connection with a handshake of
//! its own, which costs the server and us more than the request. Everything else (credentials, certificates, the base path of the
//! kubeconfig's URL) is the library's.
//!
//! The API server allows a hundred requests at a time on one connection, watches included, so requests take turns on several.

use crate::error::Error;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::{Client as HttpClient, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tower::{BoxError, Service, ServiceBuilder};

/// Connections over HTTP/2. Each is opened when its turn first comes.
const CONNECTIONS: usize = 4;

/// A connection on which nothing has arrived for so long is asked for a sign of life.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// If none comes within this time it is given up, and all that is on its way with it.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that the server may send ahead of us, over the connection and over one answer: enough that lists of thousands of pods do not
/// stop and go.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// A client for this configuration. Through a proxy it is the library's own.
pub fn connect(config: Config) -> Result<Client, Error> {
    if config.proxy_url.is_some() {
        return Client::try_from(config).map_err(|e| Error::Config(e.to_string()));
    }
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(|e| Error::Config(e.to_string()))?)
        .layer(config.extra_headers_layer().map_err(|e| Error::Config(e.to_string()))?)
        .map_err(BoxError::from)
        .service(TakingTurns::new(&config)?);
    Ok(Client::new(service, config.default_namespace))
}

type Http = HttpClient<TimeoutConnector<hyper_rustls::HttpsConnector<HttpConnector>>, Body>;

/// Several clients, each with a connection of its own.
#[derive(Clone)]
struct TakingTurns {
    clients: Arc<[Http]>,
    turn: Arc<AtomicUsize>,
}

impl TakingTurns {
    fn new(config: &Config) -> Result<Self, Error> {
        let clients = (0..CONNECTIONS)
            .map(|_| http_client(config))
            .collect::<Result<_, _>>()?;
        Ok(TakingTurns {
            clients,
            turn: Arc::default(),
        })
    }
}

impl Service<http::Request<Body>> for TakingTurns {
    type Response = <Http as Service<http::Request<Body>>>::Response;
    type Error = <Http as Service<http::Request<Body>>>::Error;
    type Future = <Http as Service<http::Request<Body>>>::Future;

    /// Always ready: each client queues for its connection by itself.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.clients[turn % self.clients.len()].request(request)
    }
}

fn http_client(config: &Config) -> Result<Http, Error> {
    let tls = config
        .rustls_client_config()
        .map_err(|e| Error::Config(e.to_string()))?;
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let resolver = FixedServerNameResolver::new(name.clone().try_into().map_err(|e| {
            Error::Config(format!(
                "tls-server-name {name:?} of the kubeconfig is not a host name: {e}"
            ))
        })?);
        https = https.with_server_name_resolver(resolver);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let mut connector = TimeoutConnector::new(https.enable_all_versions().wrap_connector(tcp));
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    Ok(HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true)
        .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
        .build(connector))
}
