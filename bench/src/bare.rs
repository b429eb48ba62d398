//! A client that does nothing but create pods: as fast as this API server can be driven.

use crate::create::SET;
use crate::workload::look;
use bytes::Bytes;
use flotilla_e2e::Api;
use flotilla_engine::io::clock::Clock;
use flotilla_engine::io::snapshot::snapshot;
use flotilla_model::{Command, ObjectKey, Resource, ScopedCommand, SetKind};
use futures::StreamExt;
use http::Request;
use serde_json::Value;

/// Bodies of requests, ready to be sent.
pub(crate) struct Drafts {
    path: String,
    bodies: Vec<Bytes>,
}

impl Drafts {
    /// The pods that Flotilla would create for the set, byte for byte. What it would create before them is created now.
    pub(crate) async fn of_set(kind: SetKind, api: &Api, namespace: &str) -> Self {
        for Creation { resource, body } in creations(kind, api, namespace).await {
            if resource != Resource::Pods {
                api.create(&resource.collection_path(Some(namespace)), &body).await;
            }
        }
        let pods = creations(kind, api, namespace)
            .await
            .into_iter()
            .filter(|c| c.resource == Resource::Pods);
        Drafts {
            path: Resource::Pods.collection_path(Some(namespace)),
            bodies: pods.map(|pod| Bytes::from(pod.body.to_string())).collect(),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.bodies.len()
    }
}

struct Creation {
    resource: Resource,
    body: Value,
}

/// What a pass of Flotilla over the set would create.
async fn creations(kind: SetKind, api: &Api, namespace: &str) -> Vec<Creation> {
    let resources = [kind.resource(), Resource::Revisions, Resource::Pods];
    let (cache, _) = snapshot(api.client().clone(), &resources, Some(namespace))
        .await
        .expect("the cluster can be read");
    let decision = look(kind, &cache, &ObjectKey::new(namespace, SET), &Clock::new());
    let creation = |scoped: &ScopedCommand| match &scoped.command {
        Command::Create { resource, body, .. } => Some(Creation {
            resource: *resource,
            body: body.render(),
        }),
        _ => None,
    };
    decision.commands().filter_map(creation).collect()
}

/// Posts them all, so many at a time.
pub(crate) async fn post_all(client: kube::Client, drafts: Drafts, concurrency: usize) {
    let path = drafts.path;
    let posts = drafts.bodies.into_iter().map(|body| {
        let (client, path) = (client.clone(), path.clone());
        // A task each, so that both cores can serve them.
        async move {
            tokio::spawn(post(client, path, body))
                .await
                .expect("the request does not panic");
        }
    });
    futures::stream::iter(posts)
        .buffer_unordered(concurrency)
        .for_each(|()| async {})
        .await;
}

async fn post(client: kube::Client, path: String, body: Bytes) {
    let request = Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::ACCEPT, "application/vnd.kubernetes.protobuf")
        .body(kube::client::Body::from(body.to_vec()))
        .expect("the path is valid");
    let response = client.send(request).await.expect("the API server answers");
    let status = response.status();
    let answer = response
        .into_body()
        .collect_bytes()
        .await
        .expect("the answer arrives whole");
    assert!(
        status.is_success(),
        "creating a pod: {status}: {}",
        String::from_utf8_lossy(&answer)
    );
}
