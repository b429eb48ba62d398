//! Watches until all pods of a set are ready, at next to no cost: in protobuf, which the API server has encoded for others already.

use bytes::Bytes;
use flotilla_e2e::{Api, sets};
use flotilla_engine::wire::watch::{Frame, Frames};
use flotilla_engine::wire::{self, Encoding, Object, split_list};
use flotilla_model::{Interner, Resource};
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A watch under way.
pub(crate) struct Observer {
    watching: JoinHandle<()>,
}

impl Observer {
    /// Watches the pods labelled `app=<app>` until there are `count` and all are ready. Returns once the watch stands.
    pub(crate) async fn start(api: &Api, namespace: &str, app: &str, count: usize) -> Self {
        let (begun, has_begun) = oneshot::channel();
        let watch = Watch {
            client: api.client().clone(),
            pods: format!("{}?labelSelector=app%3D{app}", sets::pods(namespace)),
            count,
            interner: Interner::new(),
            ready: BTreeMap::new(),
        };
        let watching = tokio::spawn(watch.run(begun));
        has_begun.await.expect("the watch begins");
        Observer { watching }
    }

    /// Waits until all are ready.
    pub(crate) async fn finish(self, within: Duration) {
        let watched = tokio::time::timeout(within, self.watching).await;
        watched
            .expect("all pods become ready in time")
            .expect("the observer does not panic");
    }
}

struct Watch {
    client: kube::Client,
    /// Path and query of the pods.
    pods: String,
    count: usize,
    interner: Interner,
    /// Whether each pod is ready.
    ready: BTreeMap<String, bool>,
}

impl Watch {
    /// Lists, then watches, and again if the API server ends the watch, which it does when a watcher falls behind.
    async fn run(mut self, begun: oneshot::Sender<()>) {
        let mut begun = Some(begun);
        loop {
            let list = self.request(&self.pods, Encoding::Protobuf.media_type()).await;
            let list = list.collect_bytes().await.expect("the list arrives whole");
            let list = split_list(Encoding::Protobuf, &list).expect("the list can be split");
            list.items.iter().for_each(|pod| self.see(pod));
            let path = format!("{}&watch=true&resourceVersion={}", self.pods, list.resource_version);
            let events = self.request(&path, Encoding::Protobuf.watch_media_type()).await;
            if let Some(begun) = begun.take() {
                // Whoever waits for it may have given up.
                let _ = begun.send(());
            }
            if self.follow(events).await.is_some() {
                return;
            }
        }
    }

    async fn request(&self, path: &str, accept: &str) -> Body {
        let request = Request::get(path)
            .header(http::header::ACCEPT, accept)
            .body(Body::empty());
        let request = request.expect("the path is valid");
        let response = self.client.send(request).await.expect("the API server answers");
        assert!(response.status().is_success(), "GET {path}: {}", response.status());
        response.into_body()
    }

    /// One watch; `None` when the server has ended it.
    async fn follow(&mut self, mut events: Body) -> Option<()> {
        let mut frames = Frames::new(Encoding::Protobuf);
        loop {
            if self.ready.len() == self.count && self.ready.values().all(|ready| *ready) {
                return Some(());
            }
            let piece = events.frame().await?.ok()?;
            frames.push(piece.data_ref()?);
            while let Some(frame) = frames.next_frame().expect("frames can be read") {
                match frame {
                    Frame::Upsert(pod) => self.see(&pod),
                    Frame::Delete(_) | Frame::Bookmark(_) => {}
                    Frame::Error(_) => return None,
                }
            }
        }
    }

    fn see(&mut self, pod: &Bytes) {
        let pod = wire::decode(Resource::Pods, Encoding::Protobuf, pod, &mut self.interner);
        let Ok(Object::Pod(pod)) = pod else {
            panic!("not a pod: {pod:?}")
        };
        self.ready.insert(pod.name().to_owned(), pod.is_running_and_ready());
    }
}
