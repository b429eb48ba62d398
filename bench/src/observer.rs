//! Watches the pods of a set, at next to no cost: in protobuf, which the API server has encoded for others already.

use bytes::Bytes;
use flotilla_e2e::{Api, sets};
use flotilla_engine::wire::watch::{Frame, Frames};
use flotilla_engine::wire::{self, Encoding, Object, split_list};
use flotilla_model::records::Phase;
use flotilla_model::{Interner, PodRecord, Resource};
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A watch under way; it ends when this is dropped.
pub(crate) struct Observer {
    watching: JoinHandle<()>,
}

/// Is shown every pod as it is now, and says whether all has been seen.
type See = Box<dyn FnMut(Arc<PodRecord>) -> bool + Send + Sync>;

impl Observer {
    /// Watches the pods labelled `app=<app>` until `see` has seen all. Returns once the watch stands.
    pub(crate) async fn start(
        client: kube::Client,
        namespace: &str,
        app: &str,
        see: impl FnMut(Arc<PodRecord>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (begun, has_begun) = oneshot::channel();
        let watch = Watch {
            client,
            pods: format!("{}?labelSelector=app%3D{app}", sets::pods(namespace)),
            interner: Interner::new(),
            see: Box::new(see),
            is_over: false,
        };
        let watching = tokio::spawn(watch.run(begun));
        has_begun.await.expect("the watch begins");
        Observer { watching }
    }

    /// Watches until there are `count` pods and all run. Gates that somebody else has to open need not be open.
    pub(crate) async fn until_running(api: &Api, namespace: &str, app: &str, count: usize) -> Self {
        let mut running: BTreeMap<String, bool> = BTreeMap::new();
        let see = move |pod: Arc<PodRecord>| {
            running.insert(pod.name().to_owned(), pod.phase == Phase::Running);
            running.len() == count && running.values().all(|running| *running)
        };
        Observer::start(api.client().clone(), namespace, app, see).await
    }

    /// Waits until all has been seen.
    pub(crate) async fn finish(mut self, within: Duration) {
        let watched = tokio::time::timeout(within, &mut self.watching).await;
        watched
            .expect("all is seen in time")
            .expect("the observer does not panic");
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

struct Watch {
    client: kube::Client,
    /// Path and query of the pods.
    pods: String,
    interner: Interner,
    see: See,
    is_over: bool,
}

impl Watch {
    /// Lists, then watches, and again if the API server ends the watch, which it does when a watcher falls behind.
    async fn run(mut self, begun: oneshot::Sender<()>) {
        let mut begun = Some(begun);
        loop {
            let list = self.request(&self.pods, Encoding::Protobuf.media_type()).await;
            let list = list.collect_bytes().await.expect("the list arrives whole");
            let list = split_list(Encoding::Protobuf, &list).expect("the list can be split");
            list.items.iter().for_each(|pod| self.show(pod));
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
        while !self.is_over {
            let piece = events.frame().await?.ok()?;
            frames.push(piece.data_ref()?);
            while let Some(frame) = frames.next_frame().expect("frames can be read") {
                match frame {
                    Frame::Upsert(pod) => self.show(&pod),
                    Frame::Delete(_) | Frame::Bookmark(_) => {}
                    Frame::Error(_) => return None,
                }
            }
        }
        Some(())
    }

    fn show(&mut self, pod: &Bytes) {
        let pod = wire::decode(Resource::Pods, Encoding::Protobuf, pod, &mut self.interner);
        let Ok(Object::Pod(pod)) = pod else {
            panic!("not a pod: {pod:?}")
        };
        self.is_over = (self.see)(pod);
    }
}
