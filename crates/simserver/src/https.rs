//! HTTPS on loopback, with certificates of its own.

use crate::host::Host;
use crate::service::Service;
use flotilla_apiserver::base64;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Why the server cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody else has the port.
    #[error("port {0} of 127.0.0.1 is in use; name another with --port, or leave it out for a free one")]
    PortInUse(u16),
    /// The port cannot be had.
    #[error("failed to listen on port {0} of 127.0.0.1: {1}")]
    Listen(u16, std::io::Error),
    /// No certificate could be made.
    #[error("failed to make a certificate: {0}")]
    Certificate(String),
}

/// Where the server is, and what a client needs to trust it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its address.
    pub address: SocketAddr,
    /// The certificate of its authority.
    pub authority_pem: String,
}

impl Endpoint {
    /// A kubeconfig by which every client finds the server.
    pub fn kubeconfig(&self, name: &str, namespace: &str) -> String {
        let cluster = json!({
            "server": format!("https://{}", self.address),
            "certificate-authority-data": base64(self.authority_pem.as_bytes()),
        });
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"token": "anything"}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        });
        // JSON is YAML.
        format!("{config:#}\n")
    }
}

/// Offers `service` on a port of loopback; 0 takes a free one. It is served until the runtime ends.
pub async fn serve<H: Host>(service: Service<H>, port: u16) -> Result<Endpoint, ServeError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(|why| match why.kind() {
            std::io::ErrorKind::AddrInUse => ServeError::PortInUse(port),
            _ => ServeError::Listen(port, why),
        })?;
    let address = listener.local_addr().map_err(|why| ServeError::Listen(port, why))?;
    let (config, authority_pem) = certificates().map_err(|why| ServeError::Certificate(why.to_string()))?;
    tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), service));
    Ok(Endpoint { address, authority_pem })
}

fn certificates() -> Result<(ServerConfig, String), Box<dyn std::error::Error>> {
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::default();
    authority
        .distinguished_name
        .push(DnType::CommonName, "flotilla playground");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&authority_key)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    let certificate = params.signed_by(&key, &Issuer::new(authority, authority_key))?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((config, authority_certificate.pem()))
}

async fn accept<H: Host>(listener: TcpListener, tls: TlsAcceptor, service: Service<H>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream, tls.clone(), service.clone()))),
            Err(why) => {
                // Too many open files, most likely; others will be closed.
                tracing::warn!(%why, "cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection<H: Host>(stream: TcpStream, tls: TlsAcceptor, service: Service<H>) {
    // A client that goes away in the middle is no news.
    let Ok(stream) = tls.accept(stream).await else { return };
    let answer = service_fn(move |request: http::Request<Incoming>| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.answer(request).await) }
    });
    let served = Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(why) = served {
        tracing::debug!(%why, "a connection has ended");
    }
}
