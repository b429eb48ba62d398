//! The connection to the API server: a few, over HTTP/2 where the server speaks it.
//!
//! The client library's own stack speaks HTTP/1.1 only: each watch and each request in flight is then a connection with a handshake of
//! its own, which costs the server and us more than the request. Everything else (credentials, certificates, the base path of the
//! kubeconfig's URL) is the library's.
//!
//! The API server reads a connection's requests one after the other and writes its answers in turn, so under load a few connections
//! with many requests each fall behind a client with a connection for each request. Here a further connection is opened when those
//! that are open are busy, up to `CONNECTIONS_MAX`. `flotilla-bench create` shows the difference.
//!
//! Which version the server speaks is known from the first answer. From then on a connection that is not open yet is opened once, and all that is
//! to go over it waits for that: a client that does not know opens one for each request of a burst, and throws all but one of them away.
//!
//! None is kept for ever: what stands between may have led all of them to one of several API servers, and one that comes back later would get none.
//! A connection of that age is left to what is still on its way over it, and what follows opens another.
//!
//! Without much to do, a few take turns, each for a moment: should one connection hang, what is asked once more goes to another, and what
//! is asked in one burst shares a connection, so that it costs few system calls.

use super::clock::Clock;
use http::Version;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::{Builder, Client as HttpClient, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceBuilder};

/// Connections over HTTP/2 at most. Each is opened when it is first needed.
const CONNECTIONS_MAX: usize = 16;
/// Connections that take turns while none of them is busy.
const CONNECTIONS_IN_TURN: usize = 4;
/// How long a turn is: longer than a burst of requests, shorter than any wait before something is asked once more; and such that what was
/// given up after 30 s or 60 s does not meet the same connection.
const TURN_MS: i64 = 29;
/// A connection on which so many answers are awaited is busy: a request goes to another, as long as there is one that is not.
const BUSY: usize = 16;

/// For how long requests begin on one connection; see [`connect_for`].
const AGE_MAX: Duration = Duration::from_secs(30 * 60);
/// The second connection becomes older by this part of the age than the first, and so on: not all are opened at once.
const AGE_SPREAD: u32 = 32;

/// A connection on which nothing has arrived for so long is asked for a sign of life.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// If none comes within this time it is given up, and all that is on its way with it.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that the server may send ahead of us, over the connection and over one answer: enough that lists of thousands of pods do not
/// stop and go.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// A client for this configuration. Through a proxy it is the library's own.
///
/// # Errors
/// Says what of the configuration cannot be used.
pub fn connect(config: Config) -> Result<Client, String> {
    connect_for(config, AGE_MAX)
}

/// The same, with connections over HTTP/2 on which requests begin for `age_max`, or somewhat longer.
///
/// # Errors
/// Says what of the configuration cannot be used.
pub fn connect_for(config: Config, age_max: Duration) -> Result<Client, String> {
    if config.proxy_url.is_some() {
        return Client::try_from(config).map_err(|e| e.to_string());
    }
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(|e| e.to_string())?)
        .layer(config.extra_headers_layer().map_err(|e| e.to_string())?)
        .map_err(BoxError::from)
        .service(Connections::new(&config, age_max)?);
    Ok(Client::new(service, config.default_namespace))
}

type Connector = TimeoutConnector<hyper_rustls::HttpsConnector<HttpConnector>>;
type Http = HttpClient<Connector, Body>;

/// Several clients, each with a connection of its own.
#[derive(Clone)]
struct Connections {
    /// For either version: until it is known, and where the server does not speak HTTP/2.
    either: Http,
    /// For HTTP/2, which the server speaks.
    all: Arc<[Connection]>,
    speaks_http2: Arc<AtomicBool>,
    clock: Arc<Clock>,
    connector: Connector,
    age_max: Duration,
}

struct Connection {
    /// The client, which has one connection, and when another takes its place.
    client: Mutex<(Http, Instant)>,
    load: Arc<Load>,
}

/// How many answers are awaited on a connection. What comes after the head of an answer, as on a watch, is not counted.
#[derive(Default)]
struct Load(AtomicUsize);

/// One awaited answer; also when nobody awaits it any more.
struct Awaited(Arc<Load>);

impl Load {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn add(self: &Arc<Self>) -> Awaited {
        self.0.fetch_add(1, Ordering::Relaxed);
        Awaited(self.clone())
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connections {
    fn new(config: &Config, age_max: Duration) -> Result<Self, String> {
        // One for all of them: the second and later connections resume the session of the first, which saves both sides most of a handshake.
        let connector = connector(config)?;
        let clock = Arc::new(Clock::new());
        let born = Instant::now();
        let connection = |index| Connection {
            client: Mutex::new((http2_client(&connector), born + age_of(index, age_max))),
            load: Arc::default(),
        };
        let all = (0..CONNECTIONS_MAX).map(connection).collect();
        Ok(Connections {
            either: http_client().build(connector.clone()),
            all,
            speaks_http2: Arc::default(),
            clock,
            connector,
            age_max,
        })
    }

    /// The client of one connection: another one once it is old. What is on its way over the one before it, watches included, goes on.
    fn client_of(&self, index: usize) -> Http {
        let now = Instant::now();
        // What it holds is right after each statement that changes it.
        let mut client = self.all[index].client.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= client.1 {
            *client = (http2_client(&self.connector), now + age_of(index, self.age_max));
        }
        client.0.clone()
    }
}

/// The connection for a request in this turn: the one whose turn it is, else the first that is not busy, else the one with the fewest awaited
/// answers.
fn choose(turn: i64, loads: impl Iterator<Item = usize> + Clone) -> usize {
    let turn = usize::try_from(turn).unwrap_or(0) % CONNECTIONS_IN_TURN;
    if loads.clone().nth(turn).is_some_and(|load| load < BUSY) {
        return turn;
    }
    let free = loads.clone().position(|load| load < BUSY);
    free.or_else(|| loads.enumerate().min_by_key(|(_, load)| *load).map(|(index, _)| index))
        .unwrap_or(0)
}

impl Service<http::Request<Body>> for Connections {
    type Response = <Http as Service<http::Request<Body>>>::Response;
    type Error = <Http as Service<http::Request<Body>>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    /// Always ready: each client queues for its connection by itself.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let speaks_http2 = self.speaks_http2.clone();
        if !speaks_http2.load(Ordering::Relaxed) {
            let answer = self.either.request(request);
            return Box::pin(async move {
                let answer = answer.await?;
                speaks_http2.store(answer.version() == Version::HTTP_2, Ordering::Relaxed);
                Ok(answer)
            });
        }
        let turn = self.clock.now().as_millis() / TURN_MS;
        let index = choose(turn, self.all.iter().map(|c| c.load.get()));
        let awaited = self.all[index].load.add();
        let answer = self.client_of(index).request(request);
        Box::pin(async move {
            let answer = answer.await;
            drop(awaited);
            if answer.is_err() {
                // Whoever answers at this address next may be another one.
                speaks_http2.store(false, Ordering::Relaxed);
            }
            answer
        })
    }
}

/// How old the connection at this place becomes.
fn age_of(index: usize, age_max: Duration) -> Duration {
    age_max + age_max / AGE_SPREAD * u32::try_from(index).unwrap_or(0)
}

/// A client with one connection.
fn http2_client(connector: &Connector) -> Http {
    http_client().http2_only(true).build(connector.clone())
}

fn connector(config: &Config) -> Result<Connector, String> {
    let tls = config.rustls_client_config().map_err(|e| e.to_string())?;
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let resolver = FixedServerNameResolver::new(
            name.clone()
                .try_into()
                .map_err(|e| format!("tls-server-name {name:?} of the kubeconfig is not a host name: {e}"))?,
        );
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
    Ok(connector)
}

fn http_client() -> Builder {
    let mut builder = HttpClient::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true)
        .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_initial_stream_window_size(STREAM_WINDOW_BYTES);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(turn: i64, loads: &[usize]) -> usize {
        choose(turn, loads.iter().copied())
    }

    #[test]
    fn connections_take_turns_so_that_a_second_try_goes_another_way() {
        let turns: Vec<usize> = (0..6).map(|turn| chosen(turn, &[0, 0, 1, 0, 0, 0])).collect();
        assert_eq!(turns, [0, 1, 2, 3, 0, 1]);
    }

    #[test]
    fn a_further_connection_is_taken_when_those_before_are_busy() {
        for (turn, loads, expected) in [
            (0, [BUSY - 1, 0, 0, 0, 0, 0], 0),
            (0, [BUSY, BUSY, 0, 0, 0, 0], 2),
            (3, [BUSY, BUSY, BUSY, BUSY, BUSY - 1, 0], 4),
            (3, [BUSY, BUSY, BUSY, BUSY, BUSY, 0], 5),
        ] {
            assert_eq!(chosen(turn, &loads), expected, "{turn} {loads:?}");
        }
    }

    #[test]
    fn when_all_are_busy_the_least_busy_one_is_taken() {
        assert_eq!(chosen(0, &[BUSY + 3, BUSY + 1, BUSY + 2]), 1);
    }

    #[test]
    fn an_answer_is_awaited_until_it_is_there_or_nobody_asks_any_more() {
        let load = Arc::new(Load::default());
        let (first, second) = (load.add(), load.add());
        assert_eq!(load.get(), 2);
        drop(first);
        assert_eq!(load.get(), 1);
        drop(second);
        assert_eq!(load.get(), 0);
    }
}
