//! The endpoint: HTTPS on one port, in a thread of its own.
//!
//! The thread has a runtime of its own, so that a long pass of the controllers delays no admission. What it knows are the certificate
//! to show and a snapshot of the caches, both replaced from outside without a connection noticing. Every request costs one parse and
//! no request to anybody, but for one that names a pod, or is about a definition, of which nobody remembers enough.

use crate::metrics::Metrics;
use crate::review::{self, Answer, Hook, Unreadable};
use crate::seek::{Lookup, Seeking};
use bytes::{Bytes, BytesMut};
use flotilla_admission::Memory;
use flotilla_engine::io::listen;
use flotilla_engine::io::patience::{Connection, Connections, Patience, Silence};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sending::{Limits, Sending};
use std::convert::Infallible;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

mod sending;

/// Larger bodies are refused: an object, its old form and the envelope fit easily.
pub const BODY_BYTES_MAX: usize = 8 << 20;
/// Requests answered at the same time.
pub const REQUESTS_MAX: usize = 512;
/// All bodies being read together, in kilobytes.
const BODIES_KB_MAX: usize = 64 << 10;
/// Bodies being read at the same time. Whoever sends one slowly makes room for others as whoever is silent does: the oldest goes, and an
/// API server's are read at once.
const BODIES: Patience = Patience {
    connections_max: REQUESTS_MAX * 4,
    first_request: DEADLINE_MAX,
    between_requests: DEADLINE_MAX,
};
/// Answers on their way. By the end of that time the API server has stopped waiting, whatever its deadline was.
const SENDING: Limits = Limits {
    bytes_max: 64 << 20,
    longest: DEADLINE_MAX,
};
/// An API server needs one connection or two, and keeps them.
const PATIENCE: Patience = Patience {
    connections_max: 1024,
    first_request: Duration::from_secs(15),
    between_requests: Duration::from_secs(600),
};
/// How long a client may take to agree on TLS.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// A connection without a sign of life for so long is asked for one, and given up after the same time.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The deadline of a request that names none, which is the API server's own default; and the latest one.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(10);
const DEADLINE_MAX: Duration = Duration::from_secs(30);
/// How long requests on their way may take when the process ends.
const GOODBYE_MAX: Duration = Duration::from_secs(3);
/// For how long requests begin on one connection.
const AGE_MAX: Duration = Duration::from_secs(30 * 60);

type Knowledge = Arc<dyn Memory + Send + Sync>;
type Answering = fn(Hook, &[u8], &dyn Memory) -> Result<Answer, Unreadable>;

/// What the thread and its owner share.
pub(crate) struct Shared {
    shown: RwLock<Option<Arc<CertifiedKey>>>,
    memory: RwLock<Knowledge>,
    requests: Arc<Semaphore>,
    bodies: Arc<Connections>,
    kilobytes: Arc<Semaphore>,
    sending: Arc<Sending>,
    pub(crate) metrics: Metrics,
    answering: Answering,
    lookup: Option<Lookup>,
    patience: Patience,
    age_max: Duration,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl Shared {
    pub(crate) fn new(memory: Knowledge, answering: Answering) -> Self {
        Shared {
            shown: RwLock::default(),
            memory: RwLock::new(memory),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            bodies: Connections::new(BODIES),
            kilobytes: Arc::new(Semaphore::new(BODIES_KB_MAX)),
            sending: Sending::new(SENDING),
            metrics: Metrics::default(),
            answering,
            lookup: None,
            patience: PATIENCE,
            age_max: AGE_MAX,
        }
    }

    /// What nobody remembers is asked for so.
    pub(crate) fn asking(mut self, lookup: Lookup) -> Self {
        self.lookup = Some(lookup);
        self
    }

    /// From now on new connections see this certificate; those that stand stay.
    pub(crate) fn show(&self, key: CertifiedKey) {
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(key));
    }

    /// Whether there is a certificate to show.
    pub(crate) fn shows(&self) -> bool {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// From now on requests are answered from this knowledge.
    pub(crate) fn know(&self, memory: Knowledge) {
        *self.memory.write().unwrap_or_else(PoisonError::into_inner) = memory;
    }
}

impl ResolvesServerCert for Shared {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The running endpoint. It is served until [`Server::stop`], or until the process ends.
pub(crate) struct Server {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Takes the address and begins to serve. Connections fail until there is a certificate to show.
    pub(crate) fn start(address: SocketAddr, shared: Arc<Shared>) -> std::io::Result<(Self, SocketAddr)> {
        let listener = listen::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let tls = TlsAcceptor::from(Arc::new(tls_config(shared.clone()).map_err(std::io::Error::other)?));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new().name("webhook".to_owned()).spawn(move || {
            if let Err(why) = runtime.block_on(serve(listener, tls, shared, stopped)) {
                tracing::error!(%why, "the webhook endpoint has ended");
            }
        })?;
        Ok((Server { stop, thread }, address))
    }

    /// Takes no more connections, and gives requests that are on their way a moment to end.
    pub(crate) fn stop(self) {
        // If the thread has ended, it has said why.
        let _ = self.stop.send(true);
        let _ = self.thread.join();
    }
}

fn tls_config(shared: Arc<Shared>) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(shared);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let connections = Connections::new(shared.patience);
    loop {
        let accepted = async {
            let (stream, _) = listener.accept().await?;
            Ok::<_, std::io::Error>((stream, connections.enter().await))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            // Its owner has gone, too.
            _ = stopped.changed() => break,
        };
        match accepted {
            Ok((stream, entered)) => {
                tokio::spawn(connection(
                    stream,
                    entered,
                    tls.clone(),
                    shared.clone(),
                    stopped.clone(),
                ));
            }
            Err(why) => {
                // Out of file descriptors, most likely; accepting at once again would only spin.
                tracing::warn!(%why, "cannot accept a connection of the API server");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    // Those that take longer are cut.
    let _ = timeout(GOODBYE_MAX, connections.ended()).await;
    Ok(())
}

async fn connection(
    stream: TcpStream,
    entered: Connection,
    tls: TlsAcceptor,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    // Small answers are not to wait for more. If it cannot be had, they do.
    let _ = stream.set_nodelay(true);
    let agreed = tokio::select! {
        agreed = timeout(HANDSHAKE_MAX, tls.accept(stream)) => agreed,
        _ = entered.silence() => return,
    };
    let Ok(Ok(stream)) = agreed else {
        shared.metrics.handshake_failed();
        return;
    };
    let (asker, reader) = (entered.asker(), shared.sending.reader());
    let service = service_fn({
        let (shared, reader) = (shared.clone(), reader.clone());
        move |request: Request<Incoming>| {
            let (shared, reader, asking) = (shared.clone(), reader.clone(), asker.asks());
            async move {
                let response = respond(&shared, request).await;
                drop(asking);
                Ok::<_, Infallible>(response.map(|body| reader.send(body)))
            }
        }
    });
    let builder = builder();
    let mut served = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = &mut served => Ok(ended),
        silence = entered.silence() => match silence {
            // Nothing of it is being answered.
            Silence::MakesRoom => return,
            Silence::TooLong | Silence::HasBeenAnswered => {
                served.as_mut().graceful_shutdown();
                timeout(GOODBYE_MAX, served).await
            }
        },
        // An API server keeps a connection for as long as it lasts: without an end all that one asks would stay with one replica.
        () = tokio::time::sleep(shared.age_max) => {
            served.as_mut().graceful_shutdown();
            tokio::select! {
                ended = timeout(DEADLINE_MAX, &mut served) => ended,
                why = reader.is_unread() => return shared.metrics.reader_given_up(why.word()),
                _ = stopped.changed() => timeout(GOODBYE_MAX, served).await,
            }
        }
        // Whoever does not read would not read a farewell.
        why = reader.is_unread() => return shared.metrics.reader_given_up(why.word()),
        _ = stopped.changed() => {
            // Tells the client to send what follows elsewhere; what it has sent is still answered.
            served.as_mut().graceful_shutdown();
            timeout(GOODBYE_MAX, served).await
        }
    };
    if let Ok(Err(why)) = ended {
        tracing::debug!(%why, "a connection of the API server has ended");
    }
}

/// How connections are spoken over.
fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // What is being sent is kept as it is: a copy would be a second one, and nobody would know when it has gone.
        .writev(true)
        .header_read_timeout(PING_INTERVAL * 4);
    builder
        .http2()
        .timer(TokioTimer::new())
        // More than are answered at once, so that one too many is told so instead of waiting.
        .max_concurrent_streams(u32::try_from(REQUESTS_MAX * 2).ok())
        .keep_alive_interval(Some(PING_INTERVAL))
        .keep_alive_timeout(PING_INTERVAL);
    builder
}

/// What a request is answered with when there is no verdict.
struct Trouble {
    code: StatusCode,
    verdict: &'static str,
    text: String,
}

impl Trouble {
    fn new(code: StatusCode, verdict: &'static str, text: impl Into<String>) -> Self {
        Trouble {
            code,
            verdict,
            text: text.into(),
        }
    }
}

pub(crate) async fn respond<B>(shared: &Shared, request: Request<B>) -> Response<Bytes>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Some(hook) = Hook::at(request.uri().path()) else {
        let paths: Vec<_> = Hook::ALL.iter().map(|hook| hook.path()).collect();
        let text = format!(
            "nothing is served at {}: try {}",
            request.uri().path(),
            paths.join(", ")
        );
        return trouble(Trouble::new(StatusCode::NOT_FOUND, "", text));
    };
    if request.method() != Method::POST {
        let text = format!("reviews are sent to {} by POST", hook.path());
        return trouble(Trouble::new(StatusCode::METHOD_NOT_ALLOWED, "", text));
    }
    let begun = Instant::now();
    let in_flight = shared.metrics.begin();
    let mut question = None;
    let answered = decide(shared, hook, request, begun, &mut question).await;
    drop(in_flight);
    let (bytes, since) = question.unzip();
    let verdict = answered
        .as_ref()
        .map_or_else(|trouble| trouble.verdict, |answer| answer.verdict);
    shared
        .metrics
        .answered(hook, verdict, since.unwrap_or(begun).elapsed().as_secs_f64(), bytes);
    match answered {
        Ok(answer) => {
            let mut response = Response::new(Bytes::from(answer.body));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(why) => trouble(why),
    }
}

/// Reads the body and answers it within the time that the API server gives. `question` is told how large it was and when it was there:
/// a busy API server sends a body some time after its head, which is not our time.
async fn decide<B>(
    shared: &Shared,
    hook: Hook,
    request: Request<B>,
    begun: Instant,
    question: &mut Option<(usize, Instant)>,
) -> Result<Answer, Trouble>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let deadline = request
        .uri()
        .query()
        .and_then(review::timeout)
        .unwrap_or(DEADLINE_DEFAULT)
        .min(DEADLINE_MAX);
    let late = || {
        let text = format!("there is no answer within the {deadline:?} that the request gives");
        Trouble::new(StatusCode::GATEWAY_TIMEOUT, "late", text)
    };
    let read = timeout(deadline, read(shared, request.into_body())).await;
    let (body, _room) = read.map_err(|_| late())??;
    *question = Some((body.len(), Instant::now()));
    // Only what is there whole is answered: who sends slowly takes no place of others.
    let _slot = shared.requests.clone().try_acquire_owned().map_err(|_| shed())?;
    let answered = answer(shared, hook, &body).await;
    match answered {
        // The API server has stopped waiting, and has done what the failure policy says.
        Ok(_) if begun.elapsed() > deadline => Err(late()),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(why)) => Err(Trouble::new(StatusCode::BAD_REQUEST, "unreadable", why.to_string())),
        Err(_) => {
            tracing::error!(
                webhook = hook.name(),
                "answering a request panicked; please report this"
            );
            let text = "answering this request failed by a defect of Flotilla; its log says where";
            Err(Trouble::new(StatusCode::INTERNAL_SERVER_ERROR, "panicked", text))
        }
    }
}

/// Answers from memory; what is not remembered, the API server is asked for, and it is answered once more.
async fn answer(shared: &Shared, hook: Hook, body: &[u8]) -> std::thread::Result<Result<Answer, Unreadable>> {
    let memory = shared.memory.read().unwrap_or_else(PoisonError::into_inner).clone();
    let answer = |found| {
        catch_unwind(AssertUnwindSafe(|| {
            let seeking = Seeking::new(memory.as_ref(), found);
            let answered = (shared.answering)(hook, body, &seeking);
            (answered, seeking.into_sought())
        }))
    };
    match (answer(None), &shared.lookup) {
        (Ok((_, Some(sought))), Some(lookup)) => {
            let found = lookup(sought.clone()).await;
            answer(Some((sought, found))).map(|(answered, _)| answered)
        }
        (answered, _) => answered.map(|(answered, _)| answered),
    }
}

/// Reads a body, which takes room by what has come of it, and not by what is told that will come.
async fn read<B>(shared: &Shared, body: B) -> Result<(Bytes, OwnedSemaphorePermit), Trouble>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let entered = shared.bodies.enter().await;
    let pieces = async {
        let mut body = std::pin::pin!(Limited::new(body, BODY_BYTES_MAX));
        let (mut whole, mut room) = (BytesMut::new(), room(shared, 1).await);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|why| {
                if why.is::<LengthLimitError>() {
                    return too_large();
                }
                let text = format!("the body could not be read: {why}");
                Trouble::new(StatusCode::BAD_REQUEST, "unreadable", text)
            })?;
            // Trailers say nothing to us.
            let Ok(data) = frame.into_data() else { continue };
            let needed = (whole.len() + data.len()).div_ceil(1024);
            let more = needed.saturating_sub(room.num_permits());
            if more > 0 {
                room.merge(self::room(shared, more).await);
            }
            whole.extend_from_slice(&data);
        }
        Ok((whole.freeze(), room))
    };
    tokio::select! {
        read = pieces => read,
        _ = entered.silence() => Err(shed()),
    }
}

/// Room for so many more kilobytes of bodies. Where there is none, those that have been on their way for longest make it.
async fn room(shared: &Shared, kilobytes: usize) -> OwnedSemaphorePermit {
    let kilobytes = u32::try_from(kilobytes).unwrap_or(u32::MAX);
    loop {
        if let Ok(room) = shared.kilobytes.clone().try_acquire_many_owned(kilobytes) {
            return room;
        }
        shared.bodies.make_room();
        // Those that go, go now.
        tokio::task::yield_now().await;
    }
}

fn shed() -> Trouble {
    Trouble::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "shed",
        format!(
            "{REQUESTS_MAX} requests are being answered already, or too many are on their way; try again in a second"
        ),
    )
}

fn too_large() -> Trouble {
    let text = format!("the body is larger than the {BODY_BYTES_MAX} bytes that are read");
    Trouble::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", text)
}

fn trouble(why: Trouble) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(why.text + "\n"));
    *response.status_mut() = why.code;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    if why.code == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

#[cfg(test)]
mod tests;
