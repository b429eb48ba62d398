//! Watches pods appear and become ready, at next to no cost: in protobuf, which the API server has encoded for others already.

use flotilla_e2e::{Api, clock, sets};
use flotilla_engine::wire::watch::{Frame, Frames};
use flotilla_engine::wire::{self, Encoding, Object};
use flotilla_model::{Interner, Resource};
use http::Request;
use http_body_util::BodyExt;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// A watch under way.
pub(crate) struct Observer {
    watching: JoinHandle<Seen>,
}

/// When there were as many pods as expected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) all_created: Instant,
}

impl Observer {
    /// Watches the pods labelled `app=<app>`, of which there is none yet, until `count` of them are ready.
    pub(crate) async fn start(api: &Api, namespace: &str, app: &str, count: usize) -> Self {
        let pods = format!("{}?labelSelector=app%3D{app}", sets::pods(namespace));
        let list = api.read(&pods).await;
        let version = list["metadata"]["resourceVersion"]
            .as_str()
            .expect("a list has a version");
        let request = Request::get(format!("{pods}&watch=true&resourceVersion={version}"))
            .header(http::header::ACCEPT, Encoding::Protobuf.watch_media_type())
            .body(kube::client::Body::empty())
            .expect("the path is valid");
        let response = api.client().send(request).await.expect("the API server answers");
        assert!(response.status().is_success(), "watching pods: {}", response.status());
        Observer {
            watching: tokio::spawn(watch(response.into_body(), count)),
        }
    }

    /// Waits until all are ready.
    pub(crate) async fn finish(self, within: Duration) -> Seen {
        let watched = tokio::time::timeout(within, self.watching).await;
        watched
            .expect("all pods become ready in time")
            .expect("the watch goes on")
    }
}

async fn watch(mut body: kube::client::Body, count: usize) -> Seen {
    let (mut frames, mut interner) = (Frames::new(Encoding::Protobuf), Interner::new());
    let mut pods = BTreeMap::new();
    let mut all_created = None;
    loop {
        let piece = body
            .frame()
            .await
            .expect("the watch goes on")
            .expect("the watch goes on");
        frames.push(piece.data_ref().expect("a watch has no trailers"));
        while let Some(frame) = frames.next_frame().expect("frames can be read") {
            let Frame::Upsert(bytes) = frame else { continue };
            let pod = wire::decode(Resource::Pods, Encoding::Protobuf, &bytes, &mut interner).expect("a pod");
            let Object::Pod(pod) = pod else {
                unreachable!("pods were asked for")
            };
            pods.insert(pod.meta.key.name.clone(), pod.is_running_and_ready());
            if pods.len() == count && all_created.is_none() {
                all_created = Some(clock::now());
            }
        }
        if let Some(all_created) = all_created.filter(|_| pods.values().all(|ready| *ready)) {
            return Seen { all_created };
        }
    }
}
