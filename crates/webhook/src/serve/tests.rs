use super::*;
use crate::certificates::{Lifetimes, Stored, decide, renew, serving_key};
use crate::probe;
use crate::registrations::Place;
use flotilla_admission::Nothing;
use flotilla_model::Timestamp;
use http_body::Frame;
use http_body_util::Full;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

fn shared(answering: Answering) -> Arc<Shared> {
    Arc::new(Shared::new(Arc::new(Nothing), answering))
}

#[allow(clippy::unnecessary_wraps)] // As all that answer.
fn allow(_: Hook, _: &[u8], _: &dyn Memory) -> Result<Answer, Unreadable> {
    Ok(Answer {
        body: b"{}".to_vec(),
        verdict: "allowed",
    })
}

fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(path).body(Full::new(body.into())).unwrap()
}

fn told(response: Response<Bytes>) -> (u16, String) {
    let code = response.status().as_u16();
    (code, String::from_utf8(response.into_body().to_vec()).unwrap())
}

/// ADM-5: nothing is served but the six paths, and by POST alone.
#[tokio::test]
async fn other_paths_are_told_what_there_is() {
    let shared = shared(allow);
    let (code, text) = told(respond(&shared, post("/mutate", "")).await);
    assert_eq!(code, 404);
    assert!(
        text.contains("nothing is served at /mutate") && text.contains("/convert"),
        "{text}"
    );
    let get = Request::get("/convert").body(Full::new(Bytes::new())).unwrap();
    assert_eq!(told(respond(&shared, get).await).0, 405);
    for hook in Hook::ALL {
        assert_eq!(
            told(respond(&shared, post(hook.path(), "{}")).await).0,
            200,
            "{}",
            hook.path()
        );
        assert_eq!(shared.metrics.count(hook, "allowed"), 1);
    }
}

/// ADM-5: bodies have a limit, whether it is told in advance or found out.
#[tokio::test]
async fn large_bodies_are_refused() {
    let shared = shared(allow);
    let fits = post("/protect", vec![b'x'; BODY_BYTES_MAX]);
    assert_eq!(told(respond(&shared, fits).await).0, 200);
    let (code, text) = told(respond(&shared, post("/protect", vec![b'x'; BODY_BYTES_MAX + 1])).await);
    assert_eq!(code, 413);
    assert!(text.contains("8388608"), "{text}");
    let endless = Request::post("/protect").body(Endless(true)).unwrap();
    assert_eq!(told(respond(&shared, endless).await).0, 413);
    assert_eq!(shared.metrics.count(Hook::Protect, "too-large"), 2);
}

/// A body that does not tell its length: pieces for ever, or nothing for ever.
struct Endless(bool);

impl Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.0 {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16384])))))
        } else {
            Poll::Pending
        }
    }
}

/// ADM-5: who does not send within the API server's own timeout is not waited for.
#[tokio::test(start_paused = true)]
async fn the_deadline_is_that_of_the_request() {
    let shared = shared(allow);
    let begun = Instant::now();
    let request = Request::post("/protect?timeout=3s").body(Endless(false)).unwrap();
    let (code, text) = told(respond(&shared, request).await);
    assert_eq!((code, begun.elapsed().as_secs()), (504, 3));
    assert!(text.contains("3s"), "{text}");
    assert_eq!(shared.metrics.count(Hook::Protect, "late"), 1);
}

/// ADM-5: one more than 512 requests in flight is sent away with Retry-After; when one has ended there is room again.
#[tokio::test]
async fn too_many_requests_are_sent_away() {
    let shared = shared(allow);
    let all = u32::try_from(REQUESTS_MAX).unwrap();
    let taken = shared.requests.clone().try_acquire_many_owned(all).unwrap();
    let response = respond(&shared, post("/protect", "{}")).await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(shared.metrics.count(Hook::Protect, "shed"), 1);
    drop(taken);
    assert_eq!(respond(&shared, post("/protect", "{}")).await.status(), 200);
}

/// A body of which so many bytes come, and then nothing.
struct Stalled(usize);

impl Body for Stalled {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.0 == 0 {
            return Poll::Pending;
        }
        let bytes = vec![b' '; std::mem::take(&mut self.0)];
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }
}

/// ADM-5: whoever sends bodies and never ends them, many or large ones, takes no room of others: the oldest are sent away.
#[tokio::test(start_paused = true)]
async fn bodies_that_never_end_make_room() {
    for (count, bytes) in [(BODIES.connections_max, 10), (8, BODY_BYTES_MAX)] {
        let shared = shared(allow);
        let ask = |shared: Arc<Shared>| async move {
            let request = Request::post("/protect").body(Stalled(bytes)).unwrap();
            respond(&shared, request).await.status()
        };
        let mut stalled = tokio::task::JoinSet::new();
        for _ in 0..count {
            stalled.spawn(ask(shared.clone()));
        }
        let taken = count * usize::div_ceil(bytes, 1024);
        while shared.kilobytes.available_permits() > BODIES_KB_MAX - taken {
            tokio::task::yield_now().await;
        }
        let begun = Instant::now();
        assert_eq!(respond(&shared, post("/protect", "{}")).await.status(), 200);
        assert_eq!(begun.elapsed(), Duration::ZERO, "it waits for nobody");
        assert_eq!(stalled.join_next().await.unwrap().unwrap(), 503);
        assert_eq!(shared.metrics.count(Hook::Protect, "shed"), 1);
        // The others have their time.
        assert_eq!(stalled.join_next().await.unwrap().unwrap(), 504);
        assert_eq!(begun.elapsed(), DEADLINE_DEFAULT);
    }
}

/// ADM-5: bodies that nobody else is to make room for are refused, and memory has a bound.
#[tokio::test]
async fn all_bodies_together_have_a_limit() {
    let shared = shared(allow);
    let all = u32::try_from(BODIES_KB_MAX).unwrap();
    let taken = shared.kilobytes.clone().try_acquire_many_owned(all).unwrap();
    assert_eq!(respond(&shared, post("/protect", "{}")).await.status(), 503);
    drop(taken);
    assert_eq!(respond(&shared, post("/protect", "{}")).await.status(), 200);
}

/// ADM-5: a panic costs one request its answer, and is counted.
#[tokio::test]
async fn a_panic_ends_one_request() {
    fn panicking(hook: Hook, body: &[u8], memory: &dyn Memory) -> Result<Answer, Unreadable> {
        assert_ne!(body, b"boom", "meant for the test");
        allow(hook, body, memory)
    }
    let shared = shared(panicking);
    let (code, text) = told(respond(&shared, post("/mutate-pods", "boom")).await);
    assert_eq!(code, 500);
    assert!(text.contains("defect"), "{text}");
    assert_eq!(respond(&shared, post("/mutate-pods", "{}")).await.status(), 200);
    assert_eq!(shared.metrics.count(Hook::MutatePods, "panicked"), 1);
    assert_eq!(shared.metrics.count(Hook::MutatePods, "allowed"), 1);
}

/// ADM-5: what is no review is answered with a sentence.
#[tokio::test]
async fn nonsense_is_answered_with_a_sentence() {
    let shared = shared(review::answer);
    let (code, text) = told(respond(&shared, post("/mutate-pods", "nonsense")).await);
    assert_eq!(code, 400);
    assert!(text.contains("AdmissionReview"), "{text}");
    assert_eq!(shared.metrics.count(Hook::MutatePods, "unreadable"), 1);
}

fn certificates() -> Stored {
    let (names, lifetimes) = (["127.0.0.1".to_owned()], Lifetimes::default());
    let now = flotilla_engine::io::clock::Clock::new().now();
    let made = renew(&decide(None, &names, &lifetimes, now), None, &names, &lifetimes, now);
    made.unwrap().unwrap()
}

fn place(address: SocketAddr) -> Place {
    Place::Url {
        host: address.ip().to_string(),
        port: address.port(),
    }
}

/// ADM-4, ADM-5: over a socket: without a certificate there is no connection; with one, whoever trusts its authority is answered; with another,
/// new connections see it while those that stand go on; and at the end the port is free.
#[tokio::test]
async fn certificates_change_while_connections_stand() {
    let shared = shared(review::answer);
    let (server, address) = Server::start((Ipv4Addr::LOCALHOST, 0).into(), shared.clone()).unwrap();
    let (first, second) = (certificates(), certificates());
    assert!(probe::answers(&place(address), &first.authorities, "u").await.is_err());

    shared.show(serving_key(&first).unwrap());
    probe::answers(&place(address), &first.authorities, "u").await.unwrap();
    let why = probe::answers(&place(address), &second.authorities, "u")
        .await
        .unwrap_err();
    assert!(why.contains("does not answer as the endpoint does"), "{why}");

    let mut standing = Standing::connect(address, &first).await;
    assert_eq!(standing.ask().await, 200);
    shared.show(serving_key(&second).unwrap());
    assert_eq!(standing.ask().await, 200);
    probe::answers(&place(address), &second.authorities, "u").await.unwrap();
    assert!(probe::answers(&place(address), &first.authorities, "u").await.is_err());

    drop(standing);
    tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

/// ADM-5: at the end a connection is told to go, and the answers that were asked for before are given: the client counts as many as it
/// has asked for.
#[tokio::test]
async fn what_is_asked_before_the_end_is_answered() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    fn counting(hook: Hook, body: &[u8], memory: &dyn Memory) -> Result<Answer, Unreadable> {
        ASKED.fetch_add(1, Ordering::SeqCst);
        allow(hook, body, memory)
    }
    let shared = shared(counting);
    let stored = certificates();
    shared.show(serving_key(&stored).unwrap());
    let (server, address) = Server::start((Ipv4Addr::LOCALHOST, 0).into(), shared.clone()).unwrap();
    let mut standing = Standing::connect(address, &stored).await;
    assert_eq!(standing.ask().await, 200);
    let stopping = tokio::task::spawn_blocking(move || server.stop());
    let mut answered = 1;
    // Until the connection tells that it takes no more.
    while standing.sender.ready().await.is_ok() {
        match standing.sender.send_request(Standing::question()).await {
            Ok(response) => assert_eq!(response.status(), 200),
            Err(_) => break,
        }
        answered += 1;
    }
    stopping.await.unwrap();
    assert_eq!(ASKED.load(Ordering::SeqCst), answered);
}

/// ADM-5: a connection that is old is told to go, so that what the API server asks next may reach another replica; whatever was asked is answered.
#[tokio::test]
async fn old_connections_make_room_for_others() {
    let mut own = Shared::new(Arc::new(Nothing), allow);
    own.age_max = Duration::from_secs(2);
    let (shared, stored) = (Arc::new(own), certificates());
    shared.show(serving_key(&stored).unwrap());
    let (_server, address) = Server::start((Ipv4Addr::LOCALHOST, 0).into(), shared).unwrap();
    for _ in 0..2 {
        let mut standing = Standing::connect(address, &stored).await;
        let mut answered = 0;
        while standing.sender.ready().await.is_ok() {
            // One that comes after the farewell was not taken, and its client sends it elsewhere.
            match standing.sender.send_request(Standing::question()).await {
                Ok(response) => {
                    assert_eq!(response.status(), 200);
                    answered += 1;
                }
                Err(error) => assert!(error.is_canceled() || error.is_closed(), "{error:?}"),
            }
        }
        assert!(answered > 0);
        standing.connection.await.unwrap().unwrap();
    }
}

/// A connection over HTTP/2, as the API server keeps them.
struct Standing {
    sender: hyper::client::conn::http2::SendRequest<Full<Bytes>>,
    connection: tokio::task::JoinHandle<hyper::Result<()>>,
}

async fn secured(address: SocketAddr, trusted: &Stored, protocol: &str) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut config = probe::trusting(&trusted.authorities).unwrap();
    config.alpn_protocols = vec![protocol.into()];
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(address).await.unwrap();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    connector.connect(name, stream).await.unwrap()
}

impl Standing {
    async fn connect(address: SocketAddr, trusted: &Stored) -> Self {
        Self::with_window(address, trusted, None).await
    }

    /// So many bytes are taken of an answer that nobody has begun to read.
    async fn with_window(address: SocketAddr, trusted: &Stored, bytes: impl Into<Option<u32>>) -> Self {
        let stream = TokioIo::new(secured(address, trusted, "h2").await);
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(bytes)
            .handshake(stream)
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        Standing { sender, connection }
    }

    async fn ask(&mut self) -> u16 {
        self.sender.ready().await.unwrap();
        self.sender
            .send_request(Self::question())
            .await
            .unwrap()
            .status()
            .as_u16()
    }

    fn question() -> Request<Full<Bytes>> {
        Request::post("https://127.0.0.1/convert")
            .body(Full::new(review::probe("u").into()))
            .unwrap()
    }
}

/// ADM-4: a certificate whose time is over is not made by us, and not believed by clients; see the table in `certificates`.
#[tokio::test]
async fn an_expired_certificate_is_noticed_by_the_probe() {
    let (names, lifetimes) = (["127.0.0.1".to_owned()], Lifetimes::default());
    let long_ago: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    let stored = renew(
        &decide(None, &names, &lifetimes, long_ago),
        None,
        &names,
        &lifetimes,
        long_ago,
    );
    let stored = stored.unwrap().unwrap();
    let shared = shared(review::answer);
    shared.show(serving_key(&stored).unwrap());
    let (_server, address) = Server::start((Ipv4Addr::LOCALHOST, 0).into(), shared).unwrap();
    let why = probe::answers(&place(address), &stored.authorities, "u")
        .await
        .unwrap_err();
    assert!(why.contains("expired"), "{why}");
}

/// ADM-5: whoever connects and says nothing, agreed on TLS or not, keeps nobody out.
#[tokio::test]
async fn silent_connections_make_room() {
    let patience = Patience {
        connections_max: 4,
        ..PATIENCE
    };
    let mut own = Shared::new(Arc::new(Nothing), review::answer);
    own.patience = patience;
    let shared = Arc::new(own);
    let (server, address) = Server::start((Ipv4Addr::LOCALHOST, 0).into(), shared.clone()).unwrap();
    let stored = certificates();
    shared.show(serving_key(&stored).unwrap());
    let mut standing = Standing::connect(address, &stored).await;
    assert_eq!(standing.ask().await, 200);
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    probe::answers(&place(address), &stored.authorities, "u").await.unwrap();
    assert_eq!(
        standing.ask().await,
        200,
        "one that has asked outlasts those that have not"
    );
    drop(standing);
    tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
}

/// An endpoint whose answers are large, with these limits for answers on their way.
fn start_large(answering: Answering, limits: Limits) -> (Server, SocketAddr, Arc<Shared>, Stored) {
    let mut own = Shared::new(Arc::new(Nothing), answering);
    own.sending = Sending::new(limits);
    let (shared, stored) = (Arc::new(own), certificates());
    shared.show(serving_key(&stored).unwrap());
    let (server, address) = Server::start((Ipv4Addr::LOCALHOST, 0).into(), shared.clone()).unwrap();
    (server, address, shared, stored)
}

#[allow(clippy::unnecessary_wraps)] // As all that answer.
fn large<const KILOBYTES: usize>(_: Hook, _: &[u8], _: &dyn Memory) -> Result<Answer, Unreadable> {
    Ok(Answer {
        body: vec![b' '; KILOBYTES << 10],
        verdict: "allowed",
    })
}

/// Waits for the endpoint to come to this, which it does by itself.
async fn comes_to(what: impl Fn() -> bool) -> bool {
    let waiting = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(10), waiting).await.is_ok()
}

/// ADM-5: whoever asks and never reads is cut off in time, and what it was answered is in memory no longer; whether it takes nothing of an
/// answer or its first byte.
#[tokio::test]
async fn who_does_not_read_answers_is_cut_off() {
    let limits = Limits {
        longest: Duration::from_secs(1),
        ..SENDING
    };
    for window in [0, 1, 60_000] {
        let (server, address, shared, stored) = start_large(large::<256>, limits);
        let mut stuck = Standing::with_window(address, &stored, window).await;
        let mut answers = vec![stuck.sender.send_request(Standing::question()).await.unwrap()];
        assert!(shared.sending.bytes() >= 256 << 10, "window {window}: it is not sent");
        // As many more as it takes until it is cut off.
        while answers.len() < 20 && stuck.sender.ready().await.is_ok() {
            answers.extend(stuck.sender.send_request(Standing::question()).await);
        }
        let ended = timeout(Duration::from_secs(10), &mut stuck.connection).await;
        assert!(ended.is_ok(), "window {window}: the connection stands");
        assert!(
            comes_to(|| shared.sending.bytes() == 0).await,
            "window {window}: answers are kept"
        );
        assert_eq!(shared.metrics.given_up("too-long"), 1);
        tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
    }
}

/// The same of a client that speaks HTTP/1.1: it asks, and takes nothing from its socket.
#[tokio::test]
async fn who_does_not_read_a_plain_answer_is_cut_off() {
    use tokio::io::AsyncWriteExt;
    let limits = Limits {
        longest: Duration::from_secs(1),
        ..SENDING
    };
    let (server, address, shared, stored) = start_large(large::<{ 32 << 10 }>, limits);
    let mut stuck = secured(address, &stored, "http/1.1").await;
    let question = "POST /convert HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
    stuck.write_all(question.as_bytes()).await.unwrap();
    stuck.flush().await.unwrap();
    assert!(
        comes_to(|| shared.sending.bytes() >= 32 << 20).await,
        "it is on its way"
    );
    assert!(comes_to(|| shared.sending.bytes() == 0).await, "and kept");
    assert_eq!(shared.metrics.given_up("too-long"), 1);
    tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
}

/// ADM-5: answers that nobody reads take no more memory than there is for them, and no room of others: clients that read are answered, and
/// are not cut off.
#[tokio::test]
async fn answers_that_nobody_reads_make_room() {
    let limits = Limits {
        bytes_max: 2 << 20,
        longest: Duration::from_secs(3600),
    };
    let (server, address, shared, stored) = start_large(large::<256>, limits);
    let mut reads = Standing::connect(address, &stored).await;
    let mut stuck = Standing::with_window(address, &stored, 0).await;
    let mut answers = Vec::new();
    for _ in 0..30 {
        if stuck.connection.is_finished() {
            stuck = Standing::with_window(address, &stored, 0).await;
        }
        if stuck.sender.ready().await.is_ok() {
            answers.push(stuck.sender.send_request(Standing::question()).await);
        }
        reads.sender.ready().await.unwrap();
        let answer = reads.sender.send_request(Standing::question()).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 256 << 10);
        assert!(shared.sending.bytes() <= 2 << 20);
    }
    assert!(shared.metrics.given_up("makes-room") >= 2);
    assert!(!reads.connection.is_finished());
    tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
}
