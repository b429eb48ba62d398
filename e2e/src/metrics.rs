//! The API of a metrics server, served by the test itself and reached through the API server's aggregator: what pods use is made up.

use crate::api::{Api, text};
use crate::clock;
use crate::sets::SOON;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Where the aggregator keeps what it leads on.
const REGISTRATIONS: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// Name of the registration.
const NAME: &str = "v1beta1.metrics.k8s.io";
/// What is served.
const ROOT: &str = "/apis/metrics.k8s.io/v1beta1";

/// A metrics server: all pods that a question selects share a load evenly.
pub struct Metrics {
    api: Api,
    load: watch::Sender<i64>,
    serving: JoinHandle<()>,
}

impl Metrics {
    /// Serves, with a load in thousandths of a core, and registers itself by a Service in the namespace. Returns once the API server leads
    /// questions here.
    pub async fn serve(api: &Api, namespace: &str, millicores: i64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("there is a free port");
        let port = listener.local_addr().expect("it listens").port();
        let (load, told) = watch::channel(millicores);
        let answers = Answers {
            api: api.clone(),
            load: told,
        };
        let serving = tokio::spawn(accept(listener, acceptor().0, answers));
        // The API server connects to an external name by itself; to an address of a Service it could not without a proxy.
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics"},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}});
        api.create(&format!("/api/v1/namespaces/{namespace}/services"), &service)
            .await;
        let registration = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME},
            "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true, "service": {"namespace": namespace, "name": "metrics", "port": port}}});
        api.create(REGISTRATIONS, &registration).await;
        api.until(REGISTRATIONS, SOON, "the metrics API is available", |all| {
            let conditions = all.get(NAME).and_then(|r| r["status"]["conditions"].as_array());
            let is_true = |c: &Value| c["type"] == "Available" && c["status"] == "True";
            conditions.is_some_and(|conditions| conditions.iter().any(is_true))
        })
        .await;
        Metrics {
            api: api.clone(),
            load,
            serving,
        }
    }

    /// From now on the pods have this load.
    pub fn set_load(&self, millicores: i64) {
        self.load.send_replace(millicores);
    }

    /// Takes the registration away, without which others would be told that a part of the API does not answer.
    pub async fn end(self) {
        self.api.delete(&format!("{REGISTRATIONS}/{NAME}"), false).await;
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What takes connections as `localhost`, and its certificate as PEM.
pub(crate) fn acceptor() -> (TlsAcceptor, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the usual versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("the key is the certificate's");
    (TlsAcceptor::from(Arc::new(config)), made.cert.pem())
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, answers: Answers) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, answers) = (tls.clone(), answers.clone());
        tokio::spawn(async move {
            // The API server also tries whether anybody is there, and goes away.
            let Ok(stream) = tls.accept(stream).await else { return };
            let answer = service_fn(move |request| {
                let answers = answers.clone();
                async move { Ok::<_, Infallible>(answers.answer(&request).await) }
            });
            // It ends with the API server, or with the test.
            let _ended = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

/// What questions are answered from.
#[derive(Clone)]
struct Answers {
    api: Api,
    load: watch::Receiver<i64>,
}

impl Answers {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let uri = request.uri();
        let (status, body) = match uri.path().strip_prefix(ROOT) {
            Some("") => (StatusCode::OK, kinds()),
            Some(rest) if rest.starts_with("/namespaces/") && rest.ends_with("/pods") => {
                let query = uri.query().unwrap_or_default();
                (StatusCode::OK, self.usage(&format!("/api/v1{rest}?{query}")).await)
            }
            _ => (
                StatusCode::NOT_FOUND,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}),
            ),
        };
        Response::builder()
            .status(status)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::from(body.to_string()))
            .expect("the answer is valid")
    }

    /// What the running pods of this path use: the same share each.
    async fn usage(&self, pods: &str) -> Value {
        let pods = self.api.list(pods).await;
        let running: Vec<&Value> = pods
            .values()
            .filter(|pod| text(pod, "/status/phase") == "Running")
            .collect();
        let count = i64::try_from(running.len()).expect("a few");
        let share = *self.load.borrow() / count.max(1);
        let item = |pod: &&Value| {
            json!({"metadata": {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]},
                "timestamp": clock::wall().to_string(), "window": "1s",
                "containers": [{"name": "main", "usage": {"cpu": format!("{share}m"), "memory": "1Mi"}}]})
        };
        let items: Vec<Value> = running.iter().map(item).collect();
        json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items})
    }
}

/// What the group holds, by which clients and the aggregator find it.
fn kinds() -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [
        {"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": ["get", "list"]}]})
}
