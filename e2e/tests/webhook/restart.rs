//! A rolling update of the manager itself, while sets and pods are made all the time.

use crate::Lab;
use flotilla_e2e::balancer::Balancer;
use flotilla_e2e::webhooks::{self, Ports};
use flotilla_e2e::{Manager, clock};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How long it takes until whoever leads the API server to a replica has heard that this one ends.
const NEWS_TAKE: Duration = Duration::from_secs(2);
/// How many ask at the same time.
const ASKING: usize = 4;

struct Replica {
    manager: Manager,
    ports: Ports,
}

impl Replica {
    fn start(kubeconfig: &Path, name: &str, registered: u16) -> Self {
        let ports = Ports::free();
        let mut arguments = ports.arguments(registered);
        arguments.push("--webhook-linger-seconds=5".to_owned());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let manager = Manager::start(kubeconfig, name, &arguments);
        Replica { manager, ports }
    }
}

/// Two replicas are restarted, one after the other, under a constant load of creations (on trial): none fails, and none goes unseen.
pub(crate) async fn of_both_replicas_fails_no_admission(lab: &Lab) {
    let api = lab.enter("restart").await;
    let balancer = Balancer::start().await;
    let mut replicas = Vec::new();
    for name in ["restart-a", "restart-b"] {
        let replica = Replica::start(&lab.kubeconfig, name, balancer.port());
        balancer.list(replica.ports.webhooks);
        replicas.push(replica);
    }
    webhooks::registered(&api, balancer.port()).await;
    for replica in &replicas {
        replica.ports.ready().await;
    }

    let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let askers: Vec<_> = (0..ASKING)
        .map(|_| {
            let (api, over, asked) = (api.clone(), over.clone(), asked.clone());
            tokio::spawn(async move {
                let begun = clock::now();
                let mut failed = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    if !webhooks::asks(&api).await {
                        failed.push(begun.elapsed());
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                }
                failed
            })
        })
        .collect();
    for (index, name) in ["restart-c", "restart-d"].into_iter().enumerate() {
        let next = Replica::start(&lab.kubeconfig, name, balancer.port());
        next.ports.ready().await;
        balancer.list(next.ports.webhooks);
        let mut leaving = std::mem::replace(&mut replicas[index], next);
        leaving.manager.signal("TERM");
        tokio::time::sleep(NEWS_TAKE).await;
        balancer.delist(leaving.ports.webhooks);
        let status = leaving.manager.ended(Duration::from_secs(20)).await;
        assert!(status.success(), "{status}");
    }
    over.store(true, Ordering::Relaxed);
    let mut failed = Vec::new();
    for asker in askers {
        failed.extend(asker.await.expect("nothing panics"));
    }
    let asked = asked.load(Ordering::Relaxed);
    println!(
        "two replicas restarted under load: {asked} pods and as many sets, {} not seen by a webhook",
        failed.len()
    );
    assert!(asked > 100, "only {asked} were asked about");
    assert!(failed.is_empty(), "not admitted as they should be, after: {failed:?}");
}
