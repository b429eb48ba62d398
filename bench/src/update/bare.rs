//! A client that updates pods in place as fast as the budget allows, and does nothing else.
//!
//! What it sends is what Flotilla's controller decides for a set of that one pod, so that both send the same patches, byte for byte, and
//! wait for the same. What it spares is everything about the set: the cache, the queue, passes over a thousand pods, the status. As
//! soon as a pod is ready again, the next one's turn has come.

use super::{NAMESPACE, SET};
use crate::observer::Observer;
use crate::workload::look;
use flotilla_e2e::Api;
use flotilla_engine::core::cache::Cache;
use flotilla_engine::core::store::Source;
use flotilla_engine::io::clock::Clock;
use flotilla_engine::io::request_of;
use flotilla_engine::io::snapshot::snapshot;
use flotilla_engine::wire::{Encoding, Object};
use flotilla_model::{Command, ObjectKey, PodRecord, Reader, Resource, SetKind, SetRecord};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Everything that is needed before the clock starts.
pub(super) struct Work {
    pods: Vec<Drive>,
    watch: Observer,
}

impl Work {
    /// For the pods of the set, which asks for another revision already. Creates that.
    pub(super) async fn prepare(kind: SetKind, client: kube::Client, api: &Api) -> Self {
        let clock = Arc::new(Clock::new());
        let cache = look_around(kind, &client).await;
        for command in look(kind, &cache, &key(), &clock)
            .commands()
            .map(|scoped| &scoped.command)
        {
            let Command::Create { resource, body, .. } = command else {
                panic!("before there is a revision there is nothing to do but to create it: {command:?}")
            };
            api.create(&resource.collection_path(Some(NAMESPACE)), &body.render())
                .await;
        }
        let cache = look_around(kind, &client).await;
        let set = cache.set(kind, &key()).expect("the set is there").clone();
        let (mut tell, mut pods) = (BTreeMap::new(), Vec::new());
        for pod in cache.pods_of(set.as_owner()) {
            let (news, told) = watch::channel(pod.clone());
            tell.insert(pod.name().to_owned(), news);
            pods.push(Drive {
                kind,
                client: client.clone(),
                clock: clock.clone(),
                cache: alone(&cache, &set, pod),
                ordinal: ordinal(kind, pod),
                pod: pod.meta.key.clone(),
                news: told,
            });
        }
        // Flotilla's order.
        pods.sort_by_key(|drive| -drive.ordinal);
        let forward = move |pod: Arc<PodRecord>| {
            if let Some(news) = tell.get(pod.name()) {
                // Whoever is done listens no more.
                news.send_replace(pod);
            }
            false
        };
        let watch = Observer::start(client, NAMESPACE, SET, forward).await;
        Work { pods, watch }
    }

    /// How many pods there are.
    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    /// Updates them all, at most `budget` being out of service at any time.
    pub(super) async fn run(self, budget: usize, within: Duration) {
        let driven = self.pods.into_iter().map(|drive| async move {
            // A task each, so that both cores can serve them.
            tokio::spawn(drive.run()).await.expect("no request fails");
        });
        let all = futures::stream::iter(driven)
            .buffer_unordered(budget)
            .for_each(|()| async {});
        tokio::time::timeout(within, all)
            .await
            .expect("all pods are updated in time");
        drop(self.watch);
    }
}

fn key() -> ObjectKey {
    ObjectKey::new(NAMESPACE, SET)
}

/// The number of a pod; 0 where pods have none.
fn ordinal(kind: SetKind, pod: &PodRecord) -> i64 {
    if kind == SetKind::Clone {
        return 0;
    }
    let digits = pod.name().rsplit_once('-').map(|(_, digits)| digits);
    digits.and_then(|d| d.parse().ok()).expect("pods of sets are numbered")
}

async fn look_around(kind: SetKind, client: &kube::Client) -> Cache {
    let resources = [kind.resource(), Resource::Revisions, Resource::Pods];
    let (cache, _) = snapshot(client.clone(), &resources, Some(NAMESPACE))
        .await
        .expect("the cluster can be read");
    cache
}

/// The set as if it had this pod only.
fn alone(all: &Cache, set: &Arc<SetRecord>, pod: &Arc<PodRecord>) -> Cache {
    let mut spec = (*set.spec).clone();
    (spec.replicas, spec.start) = (1, ordinal(set.kind, pod));
    let set = SetRecord {
        spec: Arc::new(spec),
        ..(**set).clone()
    };
    let mut cache = Cache::default();
    for revision in all.revisions_of(set.as_owner()) {
        cache.apply(Object::Revision(revision.clone()), Source::List);
    }
    cache.apply(Object::Set(Arc::new(set)), Source::List);
    cache.apply(Object::Pod(pod.clone()), Source::List);
    cache
}

/// The update of one pod.
struct Drive {
    kind: SetKind,
    client: kube::Client,
    clock: Arc<Clock>,
    /// Its set, its revisions and itself.
    cache: Cache,
    ordinal: i64,
    pod: ObjectKey,
    /// The latest that the watch tells of it.
    news: watch::Receiver<Arc<PodRecord>>,
}

impl Drive {
    async fn run(mut self) {
        let before = self.pod().revision().map(str::to_owned);
        loop {
            self.take_news();
            let decision = look(self.kind, &self.cache, &key(), &self.clock);
            let mut is_overtaken = false;
            let mut has_sent = false;
            for scoped in decision.commands() {
                has_sent = true;
                if !self.send(&scoped.command).await {
                    is_overtaken = true;
                    break;
                }
            }
            if has_sent && !is_overtaken {
                continue;
            }
            let pod = self.pod();
            if !is_overtaken && pod.is_running_and_ready() && pod.revision().map(str::to_owned) != before {
                return;
            }
            self.news.changed().await.expect("the watch goes on");
        }
    }

    fn take_news(&mut self) {
        let news = self.news.borrow_and_update().clone();
        self.cache.apply(Object::Pod(news), Source::Watch);
    }

    fn pod(&self) -> &PodRecord {
        self.cache.pod(&self.pod).expect("nobody deletes it")
    }

    /// Whether it was done; not if the pod had changed meanwhile.
    async fn send(&mut self, command: &Command) -> bool {
        let request = request_of(command.clone()).expect("the path is valid");
        let response = self.client.send(request).await.expect("the API server answers");
        let (head, body) = response.into_parts();
        let body = body.collect_bytes().await.expect("the answer arrives whole");
        if matches!(head.status.as_u16(), 409 | 422) {
            return false;
        }
        let said = String::from_utf8_lossy(&body);
        assert!(head.status.is_success(), "{command:?}: {}: {said}", head.status);
        let object = self.cache.read(command.resource(), Encoding::Protobuf, &body);
        self.cache.apply(object.expect("a pod"), Source::Answer);
        true
    }
}
