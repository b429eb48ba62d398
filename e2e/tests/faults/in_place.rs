//! The manager dies in the middle of an update in place.

use flotilla_e2e::api::{Api, Objects, is_ready, text};
use flotilla_e2e::real::{container, incarnation};
use flotilla_e2e::sets::{SOON, pods, ready, rolled_out, set_image};
use flotilla_e2e::{Kind, Manager, suite};
use flotilla_localcluster::Cluster;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NS: &str = "in-place";
const PODS: usize = 20;
const BUDGET: usize = 4;

/// Twenty pods, four at a time. Whenever a few more have the new image, the manager is killed, whatever it was about to write. No pod is
/// made again, and each is restarted exactly once.
pub(crate) async fn killed_during_an_update_in_place() {
    let cluster = Cluster::disposable("e2e-kill-in-place")
        .nodes(3)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let api = suite::enter(cluster.kubeconfig_path(), NS).await;
    suite::install_crds(&api, std::convert::identity).await;
    let mut manager = Manager::alone(cluster.kubeconfig_path());
    api.create(&Kind::Advanced.sets(NS), &set()).await;
    let before = uids(&ready(&api, NS, PODS).await);
    rolled_out(&api, Kind::Advanced, NS, "web").await;

    let watcher = tokio::spawn(watch_the_budget(api.clone()));
    set_image(&api, &Kind::Advanced.set(NS, "web"), "app:v2").await;
    let begun = |pods: &Objects| {
        let is_new = |pod: &&Value| text(pod, "/spec/containers/0/image") == "app:v2";
        pods.values().filter(is_new).count()
    };
    for count in [1, 4, 7, 11, 15, 18] {
        api.until(&pods(NS), SOON, &format!("{count} begun"), |pods| begun(pods) >= count)
            .await;
        manager.kill();
        manager = Manager::alone(cluster.kubeconfig_path());
    }
    rolled_out(&api, Kind::Advanced, NS, "web").await;
    watcher.await.expect("the watcher saw no violation");
    let after = ready(&api, NS, PODS).await;
    assert_eq!(uids(&after), before, "no pod was made again");
    for (name, pod) in &after {
        assert_eq!(incarnation(pod, "main").0, 1, "{name} was restarted once");
        assert_eq!(text(container(pod, "main"), "/image"), "app:v2", "{name}");
    }
    assert!(manager.is_running(), "{}", manager.log());
}

fn set() -> Value {
    let mut set = Kind::Advanced.manifest("web", i64::try_from(PODS).expect("small"));
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    set["spec"]["updateStrategy"] = json!({
        "type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": BUDGET},
    });
    let template = &mut set["spec"]["template"];
    template["metadata"]["annotations"] = json!({"sim.flotilla.rs/restart": "300ms"});
    template["spec"]["readinessGates"] = json!([{"conditionType": "InPlaceUpdateReady"}]);
    set
}

fn uids(pods: &Objects) -> BTreeMap<String, String> {
    let uid = |pod: &Value| text(pod, "/metadata/uid").to_owned();
    pods.iter().map(|(name, pod)| (name.clone(), uid(pod))).collect()
}

/// Follows the pods until all run the new image and are ready: never are more than the budget out of service.
async fn watch_the_budget(api: Api) {
    api.follow(&pods(NS), |pods, _| {
        let out: Vec<&String> = pods
            .iter()
            .filter(|(_, pod)| !is_ready(pod))
            .map(|(name, _)| name)
            .collect();
        assert!(out.len() <= BUDGET, "out of service: {out:?}");
        let is_new = |pod: &Value| text(container(pod, "main"), "/image") == "app:v2";
        out.is_empty() && pods.values().all(is_new)
    })
    .await;
}
