//! Whether the endpoint answers where the API server will look for it: name, route, certificate and all.

use crate::registrations::Place;
use crate::review::{Hook, is_answer_to_probe, probe};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A probe that takes longer has failed.
const PROBE_MAX: Duration = Duration::from_secs(5);
/// More than our answer is not ours.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Asks once. An error says what is in the way.
pub(crate) async fn answers(place: &Place, bundle: &str, uid: &str) -> Result<(), String> {
    let (host, port) = (place.host(), place.port());
    match tokio::time::timeout(PROBE_MAX, ask(&host, port, bundle, uid)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(format!(
            "https://{host}:{port} does not answer as the endpoint does: {why}"
        )),
        Err(_) => Err(format!("https://{host}:{port} does not answer within {PROBE_MAX:?}")),
    }
}

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn ask(host: &str, port: u16, bundle: &str, uid: &str) -> Result<(), Failure> {
    let stream = TcpStream::connect((host, port)).await?;
    let name = ServerName::try_from(host.to_owned())?;
    let stream = TlsConnector::from(Arc::new(trusting(bundle)?))
        .connect(name, stream)
        .await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::post(Hook::Convert.path())
        .header(header::HOST, format!("{host}:{port}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(probe(uid))))?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?;
        Ok::<_, Failure>(body.to_bytes())
    };
    let body = tokio::select! {
        body = exchange => body?,
        ended = connection => {
            ended?;
            return Err("the connection was closed".into());
        }
    };
    if is_answer_to_probe(uid, &body) {
        Ok(())
    } else {
        Err("somebody else answers there".into())
    }
}

pub(crate) fn trusting(bundle: &str) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
