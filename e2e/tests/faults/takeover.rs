//! Taking over native sets from the built-in controller.

use flotilla_e2e::api::{Objects, number, revision, text};
use flotilla_e2e::sets::{SOON, all_ready, pods, revisions, rolled_out, set_image};
use flotilla_e2e::{Api, Kind, Manager, suite};
use flotilla_localcluster::Cluster;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const NS: &str = "takeover";
/// For how long nothing may be touched.
const UNTOUCHED_FOR: Duration = Duration::from_secs(60);

/// Sets made, rolled and rolled back by the built-in controller, some with claims. It is stopped and Flotilla started: no pod is
/// touched and no revision added; then a rollback re-uses an old revision by its name.
pub(crate) async fn takeover_from_the_built_in_controller() {
    let mut cluster = Cluster::disposable("e2e-takeover").nodes(3).start().expect("a cluster");
    let api = suite::enter(cluster.kubeconfig_path(), NS).await;
    suite::install_crds(&api, std::convert::identity).await;
    for set in sets() {
        api.create(&Kind::Native.sets(NS), &set).await;
    }
    let names: Vec<String> = sets().iter().map(|s| text(s, "/metadata/name").to_owned()).collect();
    for name in &names {
        rolled_out(&api, Kind::Native, NS, name).await;
    }
    let first = update_revisions(&api).await;
    for name in &names {
        set_image(&api, &Kind::Native.set(NS, name), "app:v2").await;
    }
    for name in &names {
        moved_on(&api, name, &first).await;
    }
    // Half of them are rolled back by the built-in controller.
    for name in names.iter().step_by(2) {
        set_image(&api, &Kind::Native.set(NS, name), "app:v1").await;
        let back = |sets: &Objects| text(&sets[name], "/status/currentRevision") == first[name];
        api.until(
            &Kind::Native.sets(NS),
            SOON,
            "rolled back by the built-in controller",
            back,
        )
        .await;
    }
    let total = usize::try_from(sets().iter().map(|s| number(s, "/spec/replicas")).sum::<i64>()).expect("small");
    let pods_before = api.until(&pods(NS), SOON, "all ready", |p| all_ready(p, total)).await;
    let revisions_before = api.list(&revisions(NS)).await;

    cluster
        .set_statefulset_controller(false)
        .expect("the controller-manager restarts");
    let manager = Manager::start(
        cluster.kubeconfig_path(),
        "takeover",
        &["--leader-elect=false", "--http-address=none"],
    );
    let versions = |objects: &Objects| -> BTreeMap<String, String> {
        objects
            .iter()
            .map(|(n, o)| (n.clone(), text(o, "/metadata/resourceVersion").to_owned()))
            .collect()
    };
    let (wanted_pods, wanted_revisions) = (versions(&pods_before), revisions_before.len());
    api.throughout(&pods(NS), UNTOUCHED_FOR, "no pod is touched", |p| {
        versions(p) == wanted_pods
    })
    .await;
    let revisions_after = api.list(&revisions(NS)).await;
    assert_eq!(revisions_after.len(), wanted_revisions, "no revision was added");

    println!("{total} pods untouched for {UNTOUCHED_FOR:?}, {wanted_revisions} revisions and no more");

    // The same templates in new sets: Flotilla gives their revisions the hashes that the built-in controller gave.
    hashes_agree(&api, &revisions_before).await;

    for name in &names {
        set_image(&api, &Kind::Native.set(NS, name), "app:v1").await;
        let back = |sets: &Objects| {
            text(&sets[name], "/status/currentRevision") == first[name]
                && number(&sets[name], "/status/readyReplicas") >= 2
        };
        api.until(
            &Kind::Native.sets(NS),
            SOON,
            &format!("{name} rolled back by Flotilla: {}", manager.log()),
            back,
        )
        .await;
    }
    let after = api.list(&revisions(NS)).await;
    let added = after
        .keys()
        .filter(|n| !revisions_before.contains_key(*n) && !n.starts_with("twin-"))
        .count();
    assert_eq!(added, 0, "the rollbacks re-used old revisions");
    let at_first = |pod: &Value| first.values().any(|r| revision(pod) == r);
    assert!(
        api.list(&pods(NS))
            .await
            .iter()
            .filter(|(n, _)| !n.starts_with("twin-"))
            .all(|(_, p)| at_first(p))
    );
}

/// Sets of several shapes: plain, with claims, parallel, and with a template full of defaults and odd characters.
fn sets() -> Vec<Value> {
    let mut claims = Kind::Native.manifest("claims", 2);
    claims["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    claims["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}]);
    let mut parallel = Kind::Native.manifest("parallel", 3);
    parallel["spec"]["podManagementPolicy"] = json!("Parallel");
    let mut rich = Kind::Native.manifest("rich", 2);
    rich["spec"]["template"]["metadata"]["annotations"] = json!({"note": "a<b>&c \u{2028} \"quoted\" ünï"});
    rich["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["--expr=x<y && y>z"]);
    rich["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"limits": {"cpu": "1000m", "memory": "0.5Gi"}, "requests": {"cpu": "0.1"}});
    rich["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "tmp", "emptyDir": {}}, {"name": "cfg", "configMap": {"name": "c", "optional": true}}]);
    vec![Kind::Native.manifest("plain", 3), claims, parallel, rich]
}

async fn update_revisions(api: &Api) -> BTreeMap<String, String> {
    let sets = api.list(&Kind::Native.sets(NS)).await;
    sets.into_iter()
        .map(|(name, set)| (name, text(&set, "/status/updateRevision").to_owned()))
        .collect()
}

async fn moved_on(api: &Api, name: &str, first: &BTreeMap<String, String>) {
    let moved = |sets: &Objects| {
        let set = &sets[name];
        text(set, "/status/currentRevision") != first[name]
            && text(set, "/status/currentRevision") == text(set, "/status/updateRevision")
    };
    api.until(
        &Kind::Native.sets(NS),
        SOON,
        &format!("{name} rolled out by the built-in controller"),
        moved,
    )
    .await;
}

/// Makes a twin of each set under the name `twin-…`, scaled to zero, with the template of its first revision, and compares the hash
/// parts of the revisions' names.
async fn hashes_agree(api: &Api, by_go: &Objects) {
    let mut compared = 0;
    for set in sets() {
        let name = text(&set, "/metadata/name").to_owned();
        let mut twin = set.clone();
        twin["metadata"]["name"] = json!(format!("twin-{name}"));
        twin["spec"]["replicas"] = json!(0);
        api.create(&Kind::Native.sets(NS), &twin).await;
        let prefix = format!("twin-{name}-");
        let history = api
            .until(&revisions(NS), SOON, "the twin's revision", |r| {
                r.keys().any(|n| n.starts_with(&prefix))
            })
            .await;
        let ours = history
            .keys()
            .find_map(|n| n.strip_prefix(&prefix))
            .expect("it is there")
            .to_owned();
        let theirs = by_go
            .keys()
            .filter_map(|n| n.strip_prefix(&format!("{name}-")))
            .any(|hash| hash == ours);
        assert!(
            theirs,
            "hash {ours} of {name} is none of those that the built-in controller gave: {:?}",
            by_go.keys()
        );
        compared += 1;
    }
    println!("hashes of {compared} templates equal those of the built-in controller");
}
