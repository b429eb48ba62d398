//! The client against a runtime made of a socket and a few answers.

use super::*;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Response};
use prost::Message;
use std::sync::Mutex;
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};

/// How the runtime answers a call.
enum Answer {
    Message(Vec<u8>),
    Refusal(Code),
    Silence,
}

type Answers = fn(&str, &[u8]) -> Answer;

/// Paths of the calls that were made.
type Calls = Arc<Mutex<Vec<String>>>;

/// A runtime that answers so, and a client for it.
fn runtime(directory: &TempDir, answers: Answers) -> (Runtime, Calls) {
    let path = directory.path().join("c.sock");
    let listener = UnixListener::bind(&path).expect("the socket can be made");
    let calls = Calls::default();
    let noted = calls.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, answers, noted.clone()));
        }
    });
    let endpoint = format!("unix://{}", path.display());
    let runtime = Runtime::at(&endpoint, Arc::new(Metrics::new())).expect("an address");
    (runtime, calls)
}

async fn serve(stream: UnixStream, answers: Answers, calls: Calls) {
    let mut connection = h2::server::handshake(stream).await.expect("a client of HTTP/2");
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let calls = calls.clone();
        tokio::spawn(async move {
            let path = request.uri().path().to_owned();
            let mut body = request.into_body();
            let mut message = BytesMut::new();
            while let Some(Ok(data)) = body.data().await {
                message.extend_from_slice(&data);
            }
            calls.lock().expect("nobody panicked").push(path.clone());
            let head = || Response::builder().header("content-type", "application/grpc");
            // One byte that says "not compressed", and four of length, stand before a message.
            match answers(&path, &message[5..]) {
                Answer::Message(bytes) => {
                    let head = head().body(()).expect("a head");
                    let mut stream = respond.send_response(head, false).expect("it is taken");
                    let mut frame = BytesMut::new();
                    frame.put_u8(0);
                    frame.put_u32(u32::try_from(bytes.len()).expect("small"));
                    frame.extend_from_slice(&bytes);
                    stream.send_data(frame.freeze(), false).expect("it is taken");
                    let trailers = HeaderMap::from_iter([(
                        http::HeaderName::from_static("grpc-status"),
                        http::HeaderValue::from_static("0"),
                    )]);
                    stream.send_trailers(trailers).expect("it is taken");
                }
                Answer::Refusal(code) => {
                    let head = head().header("grpc-status", code as i32).body(()).expect("a head");
                    respond.send_response(head, true).expect("it is taken");
                }
                Answer::Silence => std::future::pending().await,
            }
        });
    }
}

fn container(id: &str, uid: &str) -> m::Container {
    let labels = [(POD_UID, uid), (CONTAINER_NAME, "main")];
    m::Container {
        id: id.to_owned(),
        state: 1,
        created_at: 7,
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        annotations: [("io.kubernetes.container.hash".to_owned(), "ff".to_owned())].into(),
        ..m::Container::default()
    }
}

#[tokio::test]
async fn agt_2_3_each_call_asks_for_what_it_says() {
    let directory = TempDir::new().expect("a directory");
    let (runtime, calls) = runtime(&directory, |path, message| {
        Answer::Message(match path.rsplit('/').next() {
            Some("Version") => m::VersionResponse {
                name: "containerd".to_owned(),
                version: "2".to_owned(),
                api: "v1".to_owned(),
            }
            .encode_to_vec(),
            Some("ListContainers") => {
                let request = m::ListContainersRequest::decode(Bytes::copy_from_slice(message)).expect("a request");
                assert_eq!(request.filter.expect("a filter").label_selector[POD_UID], "u");
                // A runtime that does not know the filter.
                let containers = vec![container("1", "u"), container("2", "other")];
                m::ListContainersResponse { containers }.encode_to_vec()
            }
            Some("ContainerStatus") => {
                let request = m::ContainerStatusRequest::decode(Bytes::copy_from_slice(message)).expect("a request");
                assert_eq!((request.container_id.as_str(), request.verbose), ("1", true));
                let info = [("info".to_owned(), "{}".to_owned())].into();
                m::ContainerStatusResponse { info }.encode_to_vec()
            }
            Some("StopContainer") => {
                let request = m::StopContainerRequest::decode(Bytes::copy_from_slice(message)).expect("a request");
                assert_eq!((request.container_id.as_str(), request.timeout), ("1", 9));
                Vec::new()
            }
            other => panic!("{other:?}"),
        })
    });
    assert_eq!(runtime.version().await.expect("an answer").name, "containerd");
    let told = runtime.containers("containerd", "u").await.expect("an answer");
    let ids: Vec<_> = told.iter().map(|t| (t.id.as_str(), t.name.as_str(), t.state)).collect();
    assert_eq!(ids, [("containerd://1", "main", State::Running)]);
    assert_eq!(told[0].plain_hash(), Some(255));
    let info = runtime.verbose("containerd://1").await.expect("an answer");
    assert_eq!(info.as_deref(), Some("{}"));
    let stopped = runtime.stop("containerd://1", Duration::from_secs(9)).await;
    stopped.expect("it is done");
    let calls = calls.lock().expect("nobody panicked");
    assert!(
        calls.iter().all(|path| path.starts_with("/runtime.v1.RuntimeService/")),
        "{calls:?}"
    );
}

#[tokio::test]
async fn agt_2_2_refusals_are_told_apart() {
    let directory = TempDir::new().expect("a directory");
    let (runtime, _) = runtime(&directory, |path, _| {
        Answer::Refusal(if path.ends_with("Version") {
            Code::Unimplemented
        } else {
            Code::NotFound
        })
    });
    let error = runtime.version().await.expect_err("a refusal");
    assert!(error.is_unimplemented() && !error.is_not_found(), "{error}");
    let error = runtime
        .stop("containerd://1", Duration::ZERO)
        .await
        .expect_err("a refusal");
    assert!(error.is_not_found(), "{error}");
}

#[tokio::test]
async fn agt_2_3_a_runtime_that_hangs_or_is_gone_ends_each_call() {
    let directory = TempDir::new().expect("a directory");
    let (silent, _) = runtime(&directory, |_, _| Answer::Silence);
    let error = silent.version().await.expect_err("no answer");
    assert!(
        matches!(error.code, Code::DeadlineExceeded | Code::Cancelled),
        "{error}"
    );
    let nobody = format!("unix://{}", directory.path().join("nobody.sock").display());
    let nobody = Runtime::at(&nobody, Arc::new(Metrics::new())).expect("an address");
    let error = nobody.version().await.expect_err("nobody there");
    assert_eq!(error.code, Code::Unavailable, "{error}");
    assert!(error.to_string().contains("nobody.sock"), "{error}");
}
