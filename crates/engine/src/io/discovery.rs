//! What the API server serves of what not every version does. Its version says nothing: providers name theirs as they like.

use std::time::Duration;
use tokio::sync::oneshot;

/// Between two tries while the API server does not answer.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// The subresource `pods/resize`.
    pub(super) resize: bool,
}

/// Asks once, until there is an answer.
pub(super) fn ask(client: kube::Client) -> oneshot::Receiver<Served> {
    let (reply, answer) = oneshot::channel();
    tokio::spawn(async move {
        loop {
            match client.list_core_api_resources("v1").await {
                Ok(list) => {
                    let resize = list.resources.iter().any(|resource| resource.name == "pods/resize");
                    tracing::debug!(resize, "asked what the API server serves");
                    // If nobody listens, the manager has ended.
                    let _ = reply.send(Served { resize });
                    return;
                }
                Err(error) => tracing::warn!(%error, "the API server does not say what it serves; trying again"),
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    });
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;

    async fn served_by(names: &'static [&'static str]) -> Served {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            assert_eq!(request.uri().path(), "/api/v1");
            let resources: Vec<_> = names
                .iter()
                .map(|name| json!({"name": name, "singularName": "", "namespaced": true, "kind": "Pod", "verbs": ["get"]}))
                .collect();
            let list = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources});
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(list.to_string()))))
        });
        let client = kube::Client::new(service, "default");
        ask(client).await.expect("an answer")
    }

    #[tokio::test]
    async fn sts_4_3_resizing_is_found_by_discovery() {
        assert!(served_by(&["pods", "pods/status", "pods/resize"]).await.resize);
        assert!(!served_by(&["pods", "pods/status"]).await.resize);
    }
}
