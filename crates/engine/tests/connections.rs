//! How many connections the client opens, against a server that counts them.

use bytes::Bytes;
use flotilla_engine::io::connection::{connect, connect_for};
use futures::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::client::Body;
use kube::{Client, Config};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;

/// A server that answers everything, over TLS, in these versions of HTTP.
struct Server {
    address: SocketAddr,
    opened: Arc<AtomicUsize>,
}

impl Server {
    async fn start(versions: &[&str]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("the test can set this up");
        let (address, opened) = (
            listener.local_addr().expect("the test can set this up"),
            Arc::new(AtomicUsize::new(0)),
        );
        let (acceptor, count) = (acceptor(versions), opened.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let answer = |_| async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"{}")))) };
                    // Whoever closes the connection has what it wanted.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let server = auto::Builder::new(TokioExecutor::new());
                        let _closed = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
                    }
                });
            }
        });
        Server { address, opened }
    }

    fn client(&self) -> Client {
        connect(self.config()).expect("the test can set this up")
    }

    fn config(&self) -> Config {
        let mut config = Config::new(
            format!("https://{}", self.address)
                .parse()
                .expect("the test can set this up"),
        );
        config.accept_invalid_certs = true;
        config
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

fn acceptor(versions: &[&str]) -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("the test can set this up");
    let key = made
        .signing_key
        .serialize_der()
        .try_into()
        .expect("the test can set this up");
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("the test can set this up")
        .with_no_client_auth();
    let mut config = builder
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("the test can set this up");
    config.alpn_protocols = versions.iter().map(|version| version.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

async fn ask(client: &Client) {
    let request = Request::get("/api")
        .body(Body::empty())
        .expect("the test can set this up");
    let answer = client.send(request).await.expect("the server answers");
    assert!(answer.status().is_success());
}

#[tokio::test]
async fn a_burst_opens_each_connection_once() {
    let server = Server::start(&["h2", "http/1.1"]).await;
    let client = server.client();
    ask(&client).await;
    assert_eq!(server.opened(), 1, "by which the version becomes known");
    for burst in 1..=3 {
        join_all((0..300).map(|_| ask(&client))).await;
        assert!(server.opened() <= 17, "burst {burst}: {} connections", server.opened());
    }
}

/// A balancer led all connections to one of several API servers; another one comes back.
#[tokio::test]
async fn connections_that_are_old_make_room_for_others() {
    let server = Server::start(&["h2"]).await;
    let lasting = server.client();
    for _ in 0..100 {
        ask(&lasting).await;
    }
    let opened = server.opened();
    assert!(opened <= 5, "one to learn the version, and four in turn; {opened}");
    // Each is old at once, so that a request never finds the one before it.
    let aging = connect_for(server.config(), Duration::ZERO).expect("the test can set this up");
    for _ in 0..20 {
        ask(&aging).await;
    }
    assert_eq!(server.opened() - opened, 20);
    // Whatever is on its way is answered all the same.
    join_all((0..50).map(|_| ask(&aging))).await;
}

#[tokio::test]
async fn a_server_that_does_not_speak_http_2_is_asked_as_well() {
    let server = Server::start(&["http/1.1"]).await;
    let client = server.client();
    ask(&client).await;
    join_all((0..20).map(|_| ask(&client))).await;
    ask(&client).await;
    assert!(server.opened() <= 21, "{} connections", server.opened());
}

#[tokio::test]
async fn another_server_at_the_same_address_may_speak_another_version() {
    let (first, second) = (
        Server::start(&["h2", "http/1.1"]).await,
        Server::start(&["http/1.1"]).await,
    );
    let address = Arc::new(std::sync::Mutex::new(first.address));
    // What stands before them, as a load balancer does.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let front = Server {
        address: listener.local_addr().unwrap(),
        opened: Arc::default(),
    };
    let target = address.clone();
    let (cut, cuts) = tokio::sync::broadcast::channel::<()>(1);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (target, mut cut) = (*target.lock().unwrap(), cuts.resubscribe());
            tokio::spawn(async move {
                let mut server = tokio::net::TcpStream::connect(target).await.unwrap();
                tokio::select! {
                    _ended = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    _cut = cut.recv() => {}
                }
            });
        }
    });
    let client = front.client();
    join_all((0..40).map(|_| ask(&client))).await;
    join_all((0..40).map(|_| ask(&client))).await;
    *address.lock().unwrap() = second.address;
    cut.send(()).unwrap();
    // Connections that are cut cost an answer each at most; then the version is found out anew.
    let mut failures = 0;
    let request = || Request::get("/api").body(Body::empty()).unwrap();
    while client.send(request()).await.is_err() {
        failures += 1;
        assert!(failures < 20, "it does not find its way to the new server");
    }
    join_all((0..40).map(|_| ask(&client))).await;
    assert!(second.opened() > 0);
}
