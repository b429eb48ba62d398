//! An admission webhook of somebody in the cluster, served by the test itself: it denies pods in words of its own.

use crate::api::Api;
use crate::metrics::acceptor;
use crate::suite;
use crate::webhooks::VALIDATING;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

/// A webhook that denies all pods of a namespace.
pub struct Denier {
    api: Api,
    registration: String,
    name: String,
    /// As long as this is there, it serves.
    _serving: oneshot::Sender<()>,
}

impl Denier {
    /// Serves, and registers itself under the name of the namespace; it denies with this code, in these words. It has a thread of its own, since scenarios keep theirs while they run
    /// commands.
    pub async fn serve(api: &Api, namespace: &str, (code, message): (u16, &str)) -> Self {
        let (tls, certificate) = acceptor();
        let (serving, ended) = oneshot::channel();
        let (listening, port) = oneshot::channel();
        let message: Arc<str> = message.into();
        std::thread::spawn(move || {
            suite::wait_for(async {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
                let listener = listener.expect("there is a free port");
                let port = listener.local_addr().expect("it listens").port();
                listening.send(port).expect("the scenario waits for it");
                tokio::select! {
                    () = accept(listener, tls, (code, message)) => {}
                    _gone = ended => {}
                }
            });
        });
        let port = port.await.expect("it listens");
        let name = format!("{namespace}.example.com");
        let registration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": namespace},
            "webhooks": [{
                "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
                "clientConfig": {
                    "url": format!("https://localhost:{port}/"), "caBundle": ByteString(certificate.into_bytes()),
                },
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            }],
        });
        api.create(VALIDATING, &registration).await;
        Denier {
            api: api.clone(),
            registration: format!("{VALIDATING}/{namespace}"),
            name,
            _serving: serving,
        }
    }

    /// Its name, as the API server says it to those whose pods are denied.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the registration away.
    pub async fn end(self) {
        self.api.delete(&self.registration, false).await;
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, (code, message): (u16, Arc<str>)) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, message) = (tls.clone(), message.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let answer = service_fn(move |request| {
                let message = message.clone();
                async move { Ok::<_, Infallible>(deny(request, code, &message).await) }
            });
            // It ends with the API server, or with the test.
            let _ended = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

async fn deny(request: Request<Incoming>, code: u16, message: &str) -> Response<Full<Bytes>> {
    let body = request
        .into_body()
        .collect()
        .await
        .expect("the API server sends all of it");
    let review: Value = serde_json::from_slice(&body.to_bytes()).expect("a review");
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": review["request"]["uid"], "allowed": false, "status": {"code": code, "message": message},
        },
    });
    Response::builder()
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Full::from(answer.to_string()))
        .expect("the answer is valid")
}
