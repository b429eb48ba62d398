//! A set changes its kind and its pods do not notice.

use super::{flotilla, says};
use flotilla_e2e::api::{Objects, text};
use flotilla_e2e::sets::{SOON, claims, pods, ready, revisions, rolled_out, set_image};
use flotilla_e2e::{Api, Kind, Manager, suite};
use flotilla_localcluster::{Cluster, Component};
use serde_json::{Value, json};

const NS: &str = "migrating";

async fn cluster(name: &str) -> (Cluster, Api, Manager) {
    let cluster = Cluster::disposable(name)
        .nodes(3)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let api = suite::enter(cluster.kubeconfig_path(), NS).await;
    suite::install_crds(&api, std::convert::identity).await;
    let manager = Manager::alone(cluster.kubeconfig_path());
    (cluster, api, manager)
}

/// A set with claims that follow it, whose second revision is rolled out.
async fn running(api: &Api, kind: Kind) {
    let mut set = kind.manifest("web", 3);
    set["metadata"]["annotations"] = json!({"note": "stays", "kubectl.kubernetes.io/last-applied-configuration": "{}"});
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
    set["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    let container = &mut set["spec"]["template"]["spec"]["containers"][0];
    container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    container["resources"] = json!({"limits": {"cpu": "1000m", "memory": "0.5Gi"}});
    api.create(&kind.sets(NS), &set).await;
    rolled_out(api, kind, NS, "web").await;
    let first = text(&api.read(&kind.set(NS, "web")).await, "/status/updateRevision").to_owned();
    set_image(api, &kind.set(NS, "web"), "app:v2").await;
    let moved = |sets: &Objects| text(&sets["web"], "/status/updateRevision") != first;
    api.until(&kind.sets(NS), SOON, "a second revision", moved).await;
    rolled_out(api, kind, NS, "web").await;
    ready(api, NS, 3).await;
}

/// What must not change of the pods: who they are, when they were made, how often their containers were started.
async fn identities(api: &Api) -> Vec<Value> {
    let of = |pod: &Value| {
        let restarts: Vec<Value> = pod["status"]["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| json!([c["restartCount"], c["containerID"], c["state"]]))
            .collect();
        json!([
            pod["metadata"]["name"],
            pod["metadata"]["uid"],
            pod["metadata"]["labels"],
            pod["spec"],
            restarts
        ])
    };
    api.list(&pods(NS)).await.values().map(of).collect()
}

async fn names_of_revisions(api: &Api) -> Vec<String> {
    api.list(&revisions(NS)).await.into_keys().collect()
}

/// Everything belongs to the set of this kind, once its controller has got around to it.
async fn everything_belongs_to(api: &Api, kind: Kind) {
    let set = api.read(&kind.set(NS, "web")).await;
    let belongs = |objects: &Objects| {
        objects.values().all(|object| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| {
                owners.len() == 1
                    && owners[0]["uid"] == set["metadata"]["uid"]
                    && owners[0]["apiVersion"] == kind.api_version()
            })
        })
    };
    for collection in [pods(NS), claims(NS), revisions(NS)] {
        api.until(&collection, SOON, "all owned by the set", belongs).await;
    }
    let marks: Vec<String> = api
        .list(&revisions(NS))
        .await
        .into_iter()
        .filter(|(_, revision)| revision["metadata"]["annotations"]["flotilla.rs/migration"].is_string())
        .map(|(name, _)| name)
        .collect();
    assert!(marks.is_empty(), "the record is taken away: {marks:?}");
    assert_eq!(set["metadata"]["annotations"], json!({"note": "stays"}));
}

async fn autoscaler(api: &Api) {
    let path = format!("/apis/autoscaling/v2/namespaces/{NS}/horizontalpodautoscalers");
    let scaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "scaler"},
        "spec": {"minReplicas": 1, "maxReplicas": 9, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}},
    });
    api.create(&path, &scaler).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "budget"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    api.create(
        &format!("/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets"),
        &budget,
    )
    .await;
}

async fn target_of_autoscaler(api: &Api) -> Value {
    let path = format!("/apis/autoscaling/v2/namespaces/{NS}/horizontalpodautoscalers/scaler");
    api.read(&path).await["spec"]["scaleTargetRef"]["apiVersion"].clone()
}

/// Native to Advanced and back, with a manager that runs: the same pods, containers, claims and revisions.
pub(crate) async fn there_and_back() {
    let (cluster, api, manager) = cluster("e2e-migrate").await;
    let kubeconfig = cluster.kubeconfig_path();
    running(&api, Kind::Native).await;
    autoscaler(&api).await;
    let (before, history) = (identities(&api).await, names_of_revisions(&api).await);

    let planned = flotilla(kubeconfig, &["migrate", "statefulset/web", "-n", NS, "--dry-run"]).done();
    says(
        &planned,
        &[
            "would migrate: statefulset.apps/web becomes statefulset.apps.kruise.io/web",
            "horizontalpodautoscaler.autoscaling/scaler names apps/v1",
            "--retarget",
            "poddisruptionbudget.policy/budget goes on",
        ],
    );
    assert!(
        api.get(&Kind::Advanced.set(NS, "web")).await.is_none(),
        "a dry run does nothing"
    );

    let steps = [
        (Kind::Native, Kind::Advanced),
        (Kind::Advanced, Kind::Native),
        (Kind::Native, Kind::Advanced),
    ];
    for (from, to) in steps {
        let told = flotilla(kubeconfig, &["migrate", "statefulset/web", "-n", NS, "--retarget"]);
        assert_eq!(told.code, 0, "{}{}\n{}", told.out, told.err, manager.log());
        says(
            &told.out,
            &["has its pods; none was restarted", "scaler follows the set"],
        );
        assert!(api.get(&from.set(NS, "web")).await.is_none());
        everything_belongs_to(&api, to).await;
        assert_eq!(identities(&api).await, before, "no pod was touched");
        assert_eq!(names_of_revisions(&api).await, history, "no revision was made");
        assert_eq!(target_of_autoscaler(&api).await, to.api_version());
    }
    let again = flotilla(kubeconfig, &["migrate", "asts/web", "-n", NS, "--to=advanced"]).done();
    says(&again, &["is of that kind already"]);

    // It goes on living: a rollback to the revision that the other kind had made.
    set_image(&api, &Kind::Advanced.set(NS, "web"), "app:v1").await;
    let is_first = |sets: &Objects| {
        text(&sets["web"], "/status/currentRevision") == text(&sets["web"], "/status/updateRevision")
            && sets["web"]["status"]["observedGeneration"] == sets["web"]["metadata"]["generation"]
            && sets["web"]["status"]["readyReplicas"] == 3
    };
    api.until(&Kind::Advanced.sets(NS), SOON, "rolled back", is_first).await;
    assert_eq!(
        names_of_revisions(&api).await,
        history,
        "the rollback found its revision"
    );
}

/// Interrupted while the garbage collector is away, and again when the old object has gone: it goes on where it was.
pub(crate) async fn goes_on_after_an_interruption() {
    let (cluster, api, _manager) = cluster("e2e-migrate-on").await;
    let kubeconfig = cluster.kubeconfig_path();
    running(&api, Kind::Advanced).await;
    let (before, history) = (identities(&api).await, names_of_revisions(&api).await);
    cluster.kill(Component::ControllerManager).expect("it ends");

    let stuck = flotilla(
        kubeconfig,
        &["migrate", "statefulset/web", "-n", NS, "--timeout-seconds=2"],
    )
    .refused();
    says(&stuck, &["is not gone after 2 s", "Run it again"]);
    let stuck = flotilla(
        kubeconfig,
        &["migrate", "statefulset/web", "-n", NS, "--timeout-seconds=2"],
    )
    .refused();
    says(&stuck, &["is not gone after 2 s"]);
    cluster.start(Component::ControllerManager).expect("it starts");
    api.until(
        &Kind::Advanced.sets(NS),
        SOON,
        "the old object has gone",
        Objects::is_empty,
    )
    .await;
    assert!(api.get(&Kind::Native.set(NS, "web")).await.is_none());

    let told = flotilla(kubeconfig, &["migrate", "statefulset/web", "-n", NS]).done();
    says(
        &told,
        &[
            "goes on with a migration that was interrupted",
            "has its pods; none was restarted",
        ],
    );
    everything_belongs_to(&api, Kind::Native).await;
    assert_eq!(identities(&api).await, before);
    assert_eq!(names_of_revisions(&api).await, history);
}

/// What the other kind cannot express, and what would touch pods.
pub(crate) async fn refuses() {
    let (cluster, api, manager) = cluster("e2e-migrate-no").await;
    let kubeconfig = cluster.kubeconfig_path();
    let migrate = |set: &str| flotilla(kubeconfig, &["migrate", set, "-n", NS]);
    says(
        &migrate("statefulset/web").refused(),
        &["statefulset/web was not found in namespace migrating"],
    );

    let mut reserved = Kind::Advanced.manifest("reserved", 2);
    reserved["spec"]["reserveOrdinals"] = json!([1]);
    api.create(&Kind::Advanced.sets(NS), &reserved).await;
    rolled_out(&api, Kind::Advanced, NS, "reserved").await;
    let refused = migrate("asts/reserved").refused();
    says(
        &refused,
        &[
            "spec.reserveOrdinals: a native StatefulSet has no such field",
            "nothing was changed",
        ],
    );

    let mut held = Kind::Advanced.manifest("held", 2);
    held["spec"]["podManagementPolicy"] = json!("Parallel");
    held["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 2}});
    api.create(&Kind::Advanced.sets(NS), &held).await;
    rolled_out(&api, Kind::Advanced, NS, "held").await;
    // This API server does not keep the field in native sets.
    says(
        &migrate("asts/held").refused(),
        &["would drop spec.updateStrategy.rollingUpdate.maxUnavailable"],
    );

    // Without a manager nothing settles.
    api.create(&Kind::Native.sets(NS), &Kind::Native.manifest("rolling", 2))
        .await;
    let set = rolled_out(&api, Kind::Native, NS, "rolling").await;
    drop(manager);
    api.delete(&format!("{}/rolling-1", pods(NS)), false).await;
    let is_gone = |pods: &Objects| !pods.contains_key("rolling-1");
    api.until(&pods(NS), SOON, "a pod is missing", is_gone).await;
    says(
        &migrate("statefulset/rolling").refused(),
        &["pod rolling-1 would be created", "nothing was changed"],
    );
    set_image(&api, &Kind::Native.set(NS, "rolling"), "app:v2").await;
    says(
        &migrate("statefulset/rolling").refused(),
        &["its controller has not seen its last change yet", "nothing was changed"],
    );
    let after = api.read(&Kind::Native.set(NS, "rolling")).await;
    assert_eq!(after["metadata"]["uid"], set["metadata"]["uid"]);
}
