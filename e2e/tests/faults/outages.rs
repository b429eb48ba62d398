//! The manager is killed, the API server and etcd are restarted.

use flotilla_e2e::api::{Api, Objects, is_ready, is_terminating, revision, text};
use flotilla_e2e::sets::{all_ready, image, pods, rolled_out_within};
use flotilla_e2e::{Kind, Manager, clock, suite};
use flotilla_localcluster::{Cluster, Component};
use http::Method;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a whole scenario may take.
const LONG: Duration = Duration::from_secs(300);
const PODS: usize = 50;
const BUDGET: usize = 5;

/// Fifty pods, five at a time, and the manager dies twenty times on the way. A watcher beside it checks every state it sees.
pub(crate) async fn killed_twenty_times_during_a_rollout() {
    let cluster = Cluster::disposable("e2e-kill")
        .nodes(3)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let api = suite::enter(cluster.kubeconfig_path(), "kill").await;
    suite::install_crds(&api, std::convert::identity).await;
    let mut manager = Some(Manager::alone(cluster.kubeconfig_path()));
    let mut set = Kind::Advanced.manifest("web", i64::try_from(PODS).expect("small"));
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    set["spec"]["updateStrategy"] = json!({"rollingUpdate": {"maxUnavailable": BUDGET}});
    set["spec"]["template"]["metadata"]["annotations"] =
        json!({"sim.flotilla.rs/start": "400ms", "sim.flotilla.rs/stop": "200ms"});
    api.create(&Kind::Advanced.sets("kill"), &set).await;
    api.until(&pods("kill"), LONG, "all pods ready", |p| all_ready(p, PODS))
        .await;
    rolled_out_within(&api, Kind::Advanced, "kill", "web", LONG).await;

    let watcher = tokio::spawn(watch_the_rollout(api.clone()));
    api.patch(&Kind::Advanced.set("kill", "web"), &image("app:v2")).await;
    for round in 0..20_u64 {
        // Moments that differ from round to round and from request to request.
        tokio::time::sleep(Duration::from_millis(137 + round * 61 % 700)).await;
        if let Some(mut running) = manager.take() {
            running.kill();
        }
        manager = Some(Manager::alone(cluster.kubeconfig_path()));
    }
    let worst = tokio::time::timeout(LONG, watcher)
        .await
        .expect("the rollout ends")
        .expect("the watcher saw no violation");
    println!("killed 20 times; at most {worst} of {PODS} unavailable at once (budget {BUDGET})");
    rolled_out_within(&api, Kind::Advanced, "kill", "web", LONG).await;
}

/// Follows the pods until all are new and ready. Never more than the budget unavailable, never two live pods with one ordinal, and
/// pods are taken from the highest ordinal down. Returns the greatest number of unavailable pods seen.
async fn watch_the_rollout(api: Api) -> usize {
    let mut worst = 0;
    let mut live: BTreeMap<String, String> = BTreeMap::new();
    let mut taken: Vec<i64> = Vec::new();
    let mut old = String::new();
    api.follow(&pods("kill"), |pods, seen| {
        if old.is_empty() {
            old = pods.values().next().map(|p| revision(p).to_owned()).unwrap_or_default();
        }
        let available = pods.values().filter(|p| is_ready(p) && !is_terminating(p)).count();
        worst = worst.max(PODS - available.min(PODS));
        assert!(PODS - available.min(PODS) <= BUDGET, "{} unavailable", PODS - available);
        if let Some(seen) = seen {
            let (name, uid) = (
                text(&seen.object, "/metadata/name").to_owned(),
                text(&seen.object, "/metadata/uid").to_owned(),
            );
            match seen.event {
                "DELETED" => {
                    live.remove(&name);
                }
                _ => {
                    let before = live.insert(name.clone(), uid.clone());
                    assert!(before.is_none_or(|b| b == uid), "two pods named {name}");
                }
            }
            if is_terminating(&seen.object) && revision(&seen.object) == old {
                let ordinal: i64 = name
                    .rsplit('-')
                    .next()
                    .and_then(|n| n.parse().ok())
                    .expect("an ordinal");
                if !taken.contains(&ordinal) {
                    taken.push(ordinal);
                }
            }
        }
        pods.len() == PODS
            && pods
                .values()
                .all(|p| is_ready(p) && revision(p) != old && !is_terminating(p))
    })
    .await;
    // Pods of one batch are deleted at the same time; between batches the order is from the top.
    for (position, ordinal) in taken.iter().enumerate() {
        let higher_later = taken[position..].iter().filter(|later| *later > ordinal).count();
        assert!(
            higher_later < BUDGET,
            "ordinal {ordinal} was taken before {higher_later} higher ones: {taken:?}"
        );
    }
    worst
}

/// A scale-out goes on through restarts of the API server and of etcd, without a restart of the manager.
pub(crate) async fn api_server_and_etcd_restart_during_a_scale_out() {
    const WANTED: usize = 120;
    let cluster = Cluster::disposable("e2e-outage")
        .nodes(3)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let api = suite::enter(cluster.kubeconfig_path(), "outage").await;
    suite::install_crds(&api, std::convert::identity).await;
    let mut manager = Manager::alone(cluster.kubeconfig_path());
    let mut set = Kind::Advanced.manifest("web", i64::try_from(WANTED).expect("small"));
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    // A few at a time, so that the outages fall into the middle.
    set["spec"]["scaleStrategy"] = json!({"maxUnavailable": 6});
    set["spec"]["template"]["metadata"]["annotations"] = json!({"sim.flotilla.rs/start": "300ms"});
    api.create(&Kind::Advanced.sets("outage"), &set).await;

    let reached = |count: usize| move |pods: &Objects| pods.len() >= count;
    api.until(&pods("outage"), LONG, "twenty pods", reached(20)).await;
    let reminders = tokio::spawn(remind_nodes(Api::connect(cluster.kubeconfig_path()).await));
    for (component, count) in [(Component::Apiserver, 50), (Component::Etcd, 80)] {
        let begun = clock::now();
        cluster.kill(component).expect("it can be killed");
        cluster.start(component).expect("it starts again");
        api.until(&pods("outage"), LONG, "more pods after the outage", reached(count))
            .await;
        println!(
            "{component:?} killed and restarted; {count} pods {:.1} s later",
            begun.elapsed().as_secs_f32()
        );
    }
    api.until(&pods("outage"), LONG, "all pods ready", |p| all_ready(p, WANTED))
        .await;
    reminders.abort();
    assert!(
        manager.is_running(),
        "the manager went on without a restart: {}",
        manager.log()
    );
}

/// Changes an annotation of pods that are not ready, again and again, until it is ended.
///
/// A kubelet whose request breaks asks again. kwok does so only after "connection refused", timeouts, 429 and 503: what it was about to
/// tell of a pod when the connection broke is lost, and the pod stays Pending for ever, unless it changes.
async fn remind_nodes(api: Api) {
    for round in 0_u32.. {
        tokio::time::sleep(Duration::from_secs(2)).await;
        // The servers are away at times; what fails now is done in the next round.
        let Ok(list) = api.send(Method::GET, &pods("outage"), None).await else {
            continue;
        };
        for pod in list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|pod| !is_ready(pod))
        {
            let path = format!("{}/{}", pods("outage"), text(pod, "/metadata/name"));
            let body = json!({"metadata": {"annotations": {"sim.flotilla.rs/reminder": round.to_string()}}});
            let patch = Some(("application/merge-patch+json", &body));
            drop(api.send(Method::PATCH, &path, patch).await);
        }
    }
}
