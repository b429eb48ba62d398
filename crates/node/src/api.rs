//! What an agent asks of the API server, apart from its watch: a pod, the note on a pod, an event.

use crate::wire;
use bytes::Bytes;
use flotilla_agent::Pod;
use flotilla_api::names;
use flotilla_engine::wire::status::Status;
use flotilla_engine::wire::{Encoding, body};
use flotilla_model::{PatchKind, Resource, Subresource};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use std::time::Duration;

/// The API server itself gives up on a request after a minute.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Under this name our writes stand in managed fields.
pub(crate) const FIELD_MANAGER: &str = "flotilla-agent";

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// It is not there, or no longer the one that was meant.
    #[error("failed to {0}: it is gone")]
    Gone(String),
    /// The API server said no.
    #[error("failed to {what}: the API server answered {code}: {message}")]
    Refused {
        what: String,
        code: StatusCode,
        message: String,
    },
    /// No answer came, so that nobody knows whether it was done.
    #[error("failed to {what}: {cause}")]
    Unknown { what: String, cause: String },
}

/// The API server.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) client: kube::Client,
}

impl Api {
    /// A pod as it is now.
    pub(crate) async fn pod(&self, pod: &Pod) -> Result<Pod, ApiError> {
        let what = format!("read pod {}", pod.key);
        let path = Resource::Pods.object_path(&pod.key, None);
        let (encoding, answer) = self.send(&what, Method::GET, &path, None).await?;
        let live = wire::pod(encoding, &answer).map_err(|cause| ApiError::Unknown {
            what: what.clone(),
            cause,
        })?;
        if live.uid != pod.uid {
            return Err(ApiError::Gone(what));
        }
        Ok(live)
    }

    /// Writes the note on a pod, and returns the pod as it is then.
    pub(crate) async fn note(&self, pod: &Pod, text: &str) -> Result<Pod, ApiError> {
        let what = format!("note the containers on pod {}", pod.key);
        let path = Resource::Pods.object_path(&pod.key, Some(Subresource::Status.name()));
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        let note = json!({"metadata": {"annotations": {names::RUNTIME_CONTAINERS_META: text}}});
        let note = body::patch(PatchKind::Strategic, note, &pod.uid, None);
        let content = Some(("application/strategic-merge-patch+json", note));
        let (encoding, answer) = self.send(&what, Method::PATCH, &path, content).await?;
        wire::pod(encoding, &answer).map_err(|cause| ApiError::Unknown { what, cause })
    }

    /// Makes an event in a namespace.
    pub(crate) async fn event(&self, namespace: &str, event: Value) -> Result<(), ApiError> {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events?fieldManager={FIELD_MANAGER}");
        let content = Some(("application/json", event));
        self.send("make an event", Method::POST, &path, content).await?;
        Ok(())
    }

    async fn send(
        &self,
        what: &str,
        method: Method,
        path: &str,
        content: Option<(&'static str, Value)>,
    ) -> Result<(Encoding, Bytes), ApiError> {
        let unknown = |cause: String| ApiError::Unknown {
            what: what.to_owned(),
            cause,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, Encoding::preferred(Resource::Pods).media_type());
        let mut sent = Body::empty();
        if let Some((media_type, content)) = content {
            request = request.header(CONTENT_TYPE, media_type);
            sent = Body::from(content.to_string().into_bytes());
        }
        let request = request.body(sent).map_err(|e| unknown(e.to_string()))?;
        let exchange = async {
            let response = self.client.send(request).await.map_err(|e| e.to_string())?;
            let (head, body) = response.into_parts();
            let body = body.collect_bytes().await.map_err(|e| e.to_string())?;
            Ok((head, body))
        };
        let answer = tokio::time::timeout(TIMEOUT, exchange).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
        let (head, body) = answer.map_err(unknown)?;
        let media_type = head.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let encoding = Encoding::of_content_type(media_type.unwrap_or_default());
        match head.status {
            code if code.is_success() => Ok((encoding, body)),
            // A patch that names another incarnation than there is, is a conflict.
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Err(ApiError::Gone(what.to_owned())),
            code => Err(ApiError::Refused {
                what: what.to_owned(),
                code,
                message: Status::read(code.as_u16(), encoding, &body).message,
            }),
        }
    }
}
