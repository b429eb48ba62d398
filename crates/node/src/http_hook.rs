//! A hook that is a request (AGT-9.6).

use flotilla_agent::stopping::HttpHook;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// So much of an answer is read, as the kubelet does: an agent has little memory, and a program may answer without end.
const ANSWER_BYTES_MAX: usize = 10 << 10;

/// Sends the request and waits for the answer; any that is no refusal will do.
pub(crate) async fn send(hook: &HttpHook) -> Result<(), String> {
    let host = hook.host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let stream = TcpStream::connect((host.as_str(), hook.port)).await;
    let stream = stream.map_err(|e| format!("{host} port {}: {e}", hook.port))?;
    if !hook.over_tls {
        return exchange(hook, stream).await;
    }
    let name = ServerName::try_from(host).map_err(|e| e.to_string())?;
    let connector = TlsConnector::from(Arc::new(any_certificate()?));
    let stream = connector.connect(name, stream).await;
    exchange(hook, stream.map_err(|e| e.to_string())?).await
}

async fn exchange(hook: &HttpHook, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<(), String> {
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|e| e.to_string())?;
    let host = if hook.host.contains(':') && !hook.host.starts_with('[') {
        format!("[{}]:{}", hook.host, hook.port)
    } else {
        format!("{}:{}", hook.host, hook.port)
    };
    let mut request = Request::get(hook.path.as_str()).header("user-agent", "flotilla-agent");
    let names_host = hook.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
    if !names_host {
        request = request.header("host", host);
    }
    for (name, value) in &hook.headers {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|e| e.to_string())?;
    let asking = async {
        let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let status = answer.status();
        read_on(answer.into_body()).await;
        if status.is_client_error() || status.is_server_error() {
            return Err(format!("it answered {status}"));
        }
        Ok(())
    };
    // What ends the connection ends the request too, with its answer or with an error: the request alone tells.
    let driving = async {
        drop(connection.await);
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        answer = asking => answer,
        never = driving => match never {},
    }
}

/// Reads an answer to its end, which is when the program has done what it was asked for, and keeps none of it. The status has told already
/// how it went: one that breaks off, or does not end, changes nothing.
async fn read_on(mut body: Incoming) {
    let mut left = ANSWER_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// As the kubelet does, whatever certificate the program shows is taken: it is asked for nothing that is worth protecting.
fn any_certificate() -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let config = config.map_err(|e| e.to_string())?;
    let verifier = Arc::new(AnyCertificate(provider));
    Ok(config
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// What a program is asked when it answers like this, and what the hook says of it.
    async fn asked(answer: &'static str) -> (String, Result<(), String>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let hook = HttpHook {
            over_tls: false,
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().expect("it listens").port(),
            path: "/bye?now".to_owned(),
            headers: vec![("X-Why".to_owned(), "update".to_owned())],
        };
        let program = async {
            let (mut stream, _) = listener.accept().await.expect("a request");
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.expect("it can be read");
            stream.write_all(answer.as_bytes()).await.expect("it can be answered");
            String::from_utf8_lossy(&request[..length]).to_lowercase()
        };
        let (request, outcome) = tokio::join!(program, send(&hook));
        (request, outcome)
    }

    #[tokio::test]
    async fn agt_9_6_a_request_goes_to_the_pod_with_its_headers() {
        let (request, outcome) = asked("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        assert!(request.starts_with("get /bye?now http/1.1"), "{request}");
        assert!(
            request.contains("x-why: update") && request.contains("host: 127.0.0.1:"),
            "{request}"
        );
        assert_eq!(outcome, Ok(()));
    }

    #[tokio::test]
    async fn agt_9_6_an_answer_without_end_is_not_read_to_its_end() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let hook = HttpHook {
            over_tls: false,
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().expect("it listens").port(),
            path: "/".to_owned(),
            headers: Vec::new(),
        };
        let program = async {
            let (mut stream, _) = listener.accept().await.expect("a request");
            // An answer that comes before its question is none.
            let asked = stream.read(&mut [0; 4096]).await.expect("it can be read");
            assert_ne!(asked, 0, "something is asked");
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n";
            stream.write_all(head.as_bytes()).await.expect("it is read");
            // Until nobody reads any more.
            while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
        };
        let ((), outcome) = tokio::join!(program, send(&hook));
        assert_eq!(outcome, Ok(()));
    }

    #[tokio::test]
    async fn agt_9_6_a_refusal_is_a_failure() {
        let (_, outcome) = asked("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").await;
        assert!(outcome.unwrap_err().contains("503"));
    }
}
