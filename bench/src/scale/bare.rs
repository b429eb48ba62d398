//! A client that lists and watches what the manager lists and watches, reads each object, and forgets it: no cache, no queue, no passes.
//!
//! It is this program, started once more, so that what it costs is counted like what the manager costs. It asks for the same pages in the
//! same way, by the manager's own watchers.

use super::stage::Stage;
use flotilla_e2e::clock;
use flotilla_engine::io::clock::Clock;
use flotilla_engine::io::connection::connect;
use flotilla_engine::io::versions::Versions;
use flotilla_engine::io::watch::{Feed, Watcher};
use flotilla_engine::wire::watch::Frame;
use flotilla_engine::wire::{self, Encoding};
use flotilla_localcluster::cpu_seconds_of;
use flotilla_model::{Interner, Resource};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// What the manager watches by default.
const KINDS: [Resource; 8] = [
    Resource::AdvancedSets,
    Resource::CloneSets,
    Resource::Nodes,
    Resource::Pods,
    Resource::Claims,
    Resource::ConfigMaps,
    Resource::Revisions,
    Resource::StorageClasses,
];
/// How many pages and batches wait to be read, as in the manager.
const FEED_MAX: usize = 4;
/// How long it may take to list, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// How its line begins that says that it has listed.
const LISTED: &str = "listed ";

/// Is the client, until it is killed. Says on standard output how many objects it has read when it has listed all kinds.
pub(crate) async fn be(kubeconfig: &Path) {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the bench wrote a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.expect("the kubeconfig is complete");
    config.default_retry = false;
    let client = connect(config).unwrap_or_else(|why| panic!("connecting the bare client: {why}"));
    let (clock, versions) = (Arc::new(Clock::new()), Versions::default());
    let (feed, mut feeds) = mpsc::channel(FEED_MAX);
    let mut wants = Vec::new();
    for resource in KINDS {
        let (want, wanted) = watch::channel(0);
        let watcher = Watcher {
            client: client.clone(),
            clock: clock.clone(),
            resource,
            namespace: None,
            fields: None,
            versions: versions.clone(),
            feed: feed.clone(),
            wanted,
        };
        tokio::spawn(watcher.run());
        want.send_modify(|lists| *lists += 1);
        wants.push(want);
    }
    let (mut interner, mut read, mut ended) = (Interner::new(), 0_usize, 0);
    while let Some((resource, news)) = feeds.recv().await {
        match news {
            Feed::Page(encoding, items) => {
                for item in &items {
                    read += look_at(resource, encoding, item, &mut interner);
                }
            }
            Feed::Frames(encoding, frames) => {
                for frame in &frames {
                    if let Frame::Upsert(object) = frame {
                        look_at(resource, encoding, object, &mut interner);
                    }
                }
            }
            Feed::Ended(_) => {
                ended += 1;
                if ended == KINDS.len() {
                    println!("{LISTED}{read}");
                }
            }
            Feed::Failing(why) => panic!("the bare client cannot watch {resource}: {why}"),
            Feed::Began(_) | Feed::Missing => {}
        }
    }
}

/// Reads an object and forgets it; counts it.
fn look_at(resource: Resource, encoding: Encoding, bytes: &bytes::Bytes, interner: &mut Interner) -> usize {
    let read = wire::decode(resource, encoding, bytes, interner);
    read.unwrap_or_else(|why| panic!("the bare client: {why}"));
    1
}

/// The client as a process. Dropping it ends it.
pub(super) struct BareClient {
    child: Child,
    /// Processor time until it had listed, in seconds.
    pub(super) cpu_to_list: f64,
    pub(super) seconds_to_list: f64,
}

impl BareClient {
    /// Starts it, and waits until it has listed.
    ///
    /// # Panics
    /// When it does not, or has read fewer objects than there are.
    pub(super) async fn start(stage: &Stage) -> Self {
        let own = std::env::current_exe().expect("the bench has a program");
        let said = stage.directory().join("bare-client.log");
        let out = File::create(&said).expect("the bare client's log can be written");
        let begun = clock::now();
        let child = Command::new(own)
            .arg("--bare-client")
            .arg(stage.kubeconfig())
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("its log can be shared"))
            .stderr(out)
            .spawn()
            .expect("the bare client starts");
        let mut client = BareClient {
            child,
            cpu_to_list: 0.0,
            seconds_to_list: 0.0,
        };
        loop {
            let (cpu, text) = (client.cpu(), std::fs::read_to_string(&said).unwrap_or_default());
            if let Some(read) = text.lines().find_map(|line| line.strip_prefix(LISTED)) {
                let there: usize = KINDS.into_iter().map(|kind| stage.count(kind)).sum();
                let least = [Resource::AdvancedSets, Resource::CloneSets, Resource::Pods];
                let least: usize = least.into_iter().map(|kind| stage.count(kind)).sum();
                let read: usize = read.parse().expect("the bare client says a number");
                assert!(
                    (least..=there).contains(&read),
                    "the bare client has read {read} of {there} objects"
                );
                client.cpu_to_list = cpu;
                client.seconds_to_list = begun.elapsed().as_secs_f64();
                return client;
            }
            let is_over = client.child.try_wait().expect("its state can be asked").is_some();
            assert!(
                !is_over && begun.elapsed() < PATIENCE,
                "the bare client has not listed: {text}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Processor time so far, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        cpu_seconds_of(self.child.id()).expect("the bare client runs")
    }
}

impl Drop for BareClient {
    fn drop(&mut self) {
        // It may have ended by itself, with a message that its log has.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
