//! A webhook of one tenant that hangs: sets of others are served as before.

use flotilla_e2e::api::Api;
use flotilla_e2e::sets::{SOON, all_ready, pods};
use flotilla_e2e::webhooks::VALIDATING;
use flotilla_e2e::{Kind, Manager, clock, suite};
use flotilla_localcluster::Cluster;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Sets of the tenant, each of so many pods that none of which is ever made.
const HANGING: (i64, i64) = (64, 10);
/// How often the other set grows by a pod.
const GROWTHS: usize = 100;
/// What is within this is quick, whatever it was without the tenant: on a machine with two processors, one of which the tenant's requests
/// may have at that moment.
const QUICK: Duration = Duration::from_millis(100);

/// What the first pods may wait longer, once: a second, after which the manager takes a write for one that hangs, and two for a busy
/// machine, on which the tenant's sets are all made at that moment. Whoever waited for the webhook would wait for 30 s.
const ONCE: Duration = Duration::from_secs(3);

/// 64 sets behind a webhook that answers nobody: the API server waits for it for thirty seconds, each time. How long pods of another
/// namespace take from the change of their set on, before and meanwhile.
pub(crate) async fn a_webhook_of_a_tenant_that_hangs() {
    let cluster = Cluster::disposable("e2e-hanging")
        .nodes(3)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let api = suite::enter(cluster.kubeconfig_path(), "other").await;
    suite::install_crds(&api, std::convert::identity).await;
    suite::make_namespace(&api, "tenant").await;
    let _manager = Manager::alone(cluster.kubeconfig_path());
    let mut web = Kind::Advanced.manifest("web", 1);
    web["spec"]["podManagementPolicy"] = json!("Parallel");
    api.create(&Kind::Advanced.sets("other"), &web).await;
    api.until(&pods("other"), SOON, "the first pod is ready", |p| all_ready(p, 1))
        .await;

    let before = growths(&api, 1).await;
    let silent = Silent::listen().await;
    register(&api, silent.address).await;
    let (sets, replicas) = HANGING;
    for number in 0..sets {
        let mut set = Kind::Advanced.manifest(&format!("tenant-{number}"), replicas);
        set["spec"]["podManagementPolicy"] = json!("Parallel");
        api.create(&Kind::Advanced.sets("tenant"), &set).await;
    }
    silent.until_connected().await;
    // The first of these meets the requests that were sent before anybody knew that they would hang: for a second.
    let first = growths(&api, 1 + GROWTHS).await;
    let meanwhile = growths(&api, 1 + 2 * GROWTHS).await;
    let made = api.list(&pods("tenant")).await.len();
    assert_eq!(
        made, 0,
        "the webhook let pods of the tenant through, so it did not hang"
    );
    println!(
        "{GROWTHS} pods of another namespace, seconds from the change of their set until they are there, p50 and p99: \
         {:.3} and {:.3} before, {:.3} and {:.3} (longest {:.3}) from the first request that hangs on, {:.3} and {:.3} after that",
        percentile(&before, 50),
        percentile(&before, 99),
        percentile(&first, 50),
        percentile(&first, 99),
        percentile(&first, 100),
        percentile(&meanwhile, 50),
        percentile(&meanwhile, 99),
    );
    let bar = (2.0 * percentile(&before, 99)).max(QUICK.as_secs_f64());
    assert!(percentile(&meanwhile, 99) <= bar, "p99 is above {bar:.3} s");
    let bar = bar + ONCE.as_secs_f64();
    assert!(percentile(&first, 100) <= bar, "one took more than {bar:.3} s");
}

/// The set of the other namespace grows from `from` pods by one at a time; seconds until each new pod is there, ascending.
async fn growths(api: &Api, from: usize) -> Vec<f64> {
    let mut seconds = Vec::new();
    let mut replicas = from;
    let mut sent = None;
    let set = Kind::Advanced.set("other", "web");
    // One watch over all, so that nothing but the pods' coming is measured.
    let (grow, mut asked) = tokio::sync::mpsc::channel(1);
    let writer = tokio::spawn({
        let api = api.clone();
        async move {
            while let Some(replicas) = asked.recv().await {
                api.patch(&set, &json!({"spec": {"replicas": replicas}})).await;
            }
        }
    });
    let others = pods("other");
    let follow = api.follow(&others, |pods, _| {
        if pods.len() < replicas {
            return false;
        }
        if let Some(sent) = sent.take() {
            seconds.push(clock::now().duration_since(sent).as_secs_f64());
        }
        if seconds.len() == GROWTHS {
            return true;
        }
        replicas += 1;
        sent = Some(clock::now());
        grow.try_send(replicas).expect("the change before has been made");
        false
    });
    let ended = tokio::time::timeout(Duration::from_secs(120), follow).await;
    assert!(
        ended.is_ok(),
        "{} of {GROWTHS} pods of another namespace came within two minutes",
        seconds.len()
    );
    drop(grow);
    writer.await.expect("the set could be changed");
    seconds.sort_by(f64::total_cmp);
    seconds
}

fn percentile(ascending: &[f64], percent: usize) -> f64 {
    let index = (ascending.len() * percent).div_ceil(100).max(1) - 1;
    ascending[index]
}

/// A server that takes connections and says nothing.
struct Silent {
    address: SocketAddr,
    connected: tokio::sync::watch::Receiver<usize>,
    accepting: JoinHandle<()>,
}

impl Silent {
    async fn listen() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("there is a free port");
        let address = listener.local_addr().expect("it listens");
        let (count, connected) = tokio::sync::watch::channel(0);
        let accepting = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
                count.send_replace(held.len());
            }
        });
        Silent {
            address,
            connected,
            accepting,
        }
    }

    /// Waits until somebody waits for an answer.
    async fn until_connected(&self) {
        let mut connected = self.connected.clone();
        let some = tokio::time::timeout(SOON, connected.wait_for(|count| *count > 0)).await;
        let some = some.expect("the API server asks the webhook soon");
        assert!(some.is_ok(), "the webhook goes on");
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Registers the server for pods of the tenant: none is made without its word.
async fn register(api: &Api, address: SocketAddr) {
    let webhook = json!({
        "name": "hangs.tenant.example.com", "failurePolicy": "Fail", "timeoutSeconds": 30, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": format!("https://{address}/")},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "tenant"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"], "scope": "Namespaced"}],
    });
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "tenant"}, "webhooks": [webhook],
    });
    api.create(VALIDATING, &configuration).await;
}
