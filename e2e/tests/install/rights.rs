//! Each right of the manager is used, and none is missing: the audit log of its account, held against the table of permissions.

use super::{added, arguments, deployed, flotilla, held, kubectl};
use flotilla_e2e::api::{Objects, text};
use flotilla_e2e::audit::{self, Use};
use flotilla_e2e::sets::{SOON, claims, pods, ready, revisions, rolled_out, set_image};
use flotilla_e2e::webhooks::{self, Ports};
use flotilla_e2e::{Api, Kind, Manager, Proxy, clock, clones, jobs, suite};
use flotilla_install::PERMISSIONS;
use flotilla_localcluster::Cluster;
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SYSTEM: &str = "flotilla-system";
const INSTALL: [&str; 5] = [
    "install",
    "--yes",
    "--native-statefulset",
    "--pre-download",
    "--timeout-seconds=0",
];
const USER: &str = "system:serviceaccount:flotilla-system:flotilla-manager";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/flotilla-manager";
/// How long the API server may keep answering by a role that has been changed.
const ROLES_SPREAD_WITHIN: Duration = Duration::from_secs(20);
/// How long connections are cut until every kind of object was read anew.
const CUTTING: Duration = Duration::from_secs(150);

/// The manager, as the account and with the arguments of the installed Deployment, through everything that it can do.
pub(crate) async fn each_is_used_and_none_is_missing() {
    let cluster = Cluster::disposable("e2e-rights")
        .nodes(3)
        .without_statefulset_controller()
        .audit_reads()
        .admission_plugin("OwnerReferencesPermissionEnforcement")
        .start()
        .expect("a cluster");
    let api = Api::connect(cluster.kubeconfig_path()).await;
    flotilla(cluster.kubeconfig_path(), &INSTALL).done();
    // As OpenKruise before 1.9 defined them.
    jobs::define(&api, &["v1alpha1"]).await;
    let proxy = Proxy::start(cluster.apiserver_port()).await;
    let kubeconfig = account(&api, cluster.kubeconfig_path(), &proxy).await;
    let ports = Ports::free();
    let manager = start(&api, &kubeconfig, ports).await;
    webhooks::registered(&api, ports.webhooks).await;
    held::to_what_is_its_own(&api, cluster.kubeconfig_path(), USER).await;
    let before = api.read(webhooks::DEFINITION).await["spec"].take();
    flotilla(cluster.kubeconfig_path(), &INSTALL).done();
    let after = api.read(webhooks::DEFINITION).await["spec"].take();
    assert_eq!(after, before, "installing again leaves conversion to the managers");

    for (kind, word) in Kind::BOTH {
        everything(&api, kind, &format!("rights-{word}")).await;
        let refused = refusals(cluster.audit_log_path());
        assert!(
            refused.is_empty(),
            "the manager lacks rights: {refused:?}\n{}",
            manager.log()
        );
    }
    in_place(&api).await;
    clone_set(&api).await;
    pulled_ahead(&api).await;
    launch_priority(&api, cluster.audit_log_path()).await;
    refused_pods_repeat_an_event(&api).await;
    unknown_outcomes(&api, &proxy, cluster.audit_log_path()).await;

    let refused = refusals(cluster.audit_log_path());
    assert!(
        refused.is_empty(),
        "the manager lacks rights: {refused:?}\n{}",
        manager.log()
    );
    nothing_is_granted_for_nothing(&uses(cluster.audit_log_path()));
    added::by_what_the_page_says(&api, cluster.kubeconfig_path()).await;
    drop(manager);
    holding_owners_up(&api, cluster.kubeconfig_path()).await;
}

/// A kubeconfig of the manager's account, whose requests go through the proxy.
async fn account(api: &Api, admin: &Path, proxy: &Proxy) -> PathBuf {
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let path = format!("/api/v1/namespaces/{SYSTEM}/serviceaccounts/flotilla-manager/token");
    let token = api.create(&path, &request).await["status"]["token"].clone();
    suite::kubeconfig_with(admin, "account", &token, Some(proxy.url()))
}

/// The manager, as its Deployment says.
async fn start(api: &Api, kubeconfig: &Path, ports: Ports) -> Manager {
    let container = deployed(api).await;
    let mut args = arguments(&container, &format!("127.0.0.1:{}", ports.http));
    // Outside of the cluster no service leads here.
    args.push(format!("--webhook-address=127.0.0.1:{}", ports.webhooks));
    args.push(format!("--webhook-url=https://127.0.0.1:{}", ports.webhooks));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert!(args.contains(&"--native-statefulset"), "{args:?}");
    let names: Vec<&str> = container["env"]
        .as_array()
        .expect("variables")
        .iter()
        .map(|v| text(v, "/name"))
        .collect();
    assert_eq!(names, ["POD_NAME", "POD_NAMESPACE"]);
    Manager::run(
        kubeconfig,
        "account",
        &args,
        &[("POD_NAME", "manager-0"), ("POD_NAMESPACE", SYSTEM)],
    )
}

/// A set whose claims follow it and its pods.
fn set(kind: Kind, name: &str, replicas: i64) -> Value {
    let mut set = kind.manifest(name, replicas);
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    set["spec"]["revisionHistoryLimit"] = json!(1);
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    set["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    set
}

/// Making, updating, going back, forgetting revisions, letting a pod go and taking it back, shrinking.
async fn everything(api: &Api, kind: Kind, namespace: &str) {
    suite::make_namespace(api, namespace).await;
    api.create(&kind.sets(namespace), &set(kind, "web", 3)).await;
    rolled_out(api, kind, namespace, "web").await;
    let path = kind.set(namespace, "web");
    for image in ["app:v2", "app:v3", "app:v4"] {
        let before = text(&api.read(&path).await, "/status/updateRevision").to_owned();
        set_image(api, &path, image).await;
        let moved = |sets: &Objects| text(&sets["web"], "/status/updateRevision") != before;
        api.until(&kind.sets(namespace), SOON, "a new revision", moved).await;
        rolled_out(api, kind, namespace, "web").await;
    }
    set_image(api, &path, "app:v3").await;
    let is_third = |sets: &Objects| {
        text(&sets["web"], "/spec/template/spec/containers/0/image") == "app:v3"
            && text(&sets["web"], "/status/currentRevision") == text(&sets["web"], "/status/updateRevision")
            && sets["web"]["status"]["observedGeneration"] == sets["web"]["metadata"]["generation"]
            && sets["web"]["status"]["readyReplicas"] == 3
    };
    api.until(&kind.sets(namespace), SOON, "back at the revision before", is_third)
        .await;
    api.until(&revisions(namespace), SOON, "old revisions are forgotten", |r| {
        r.len() == 2
    })
    .await;

    let pod = format!("{}/web-2", pods(namespace));
    api.patch(&pod, &json!({"metadata": {"labels": {"app": "other"}}}))
        .await;
    let is_free = |pods: &Objects| {
        pods.get("web-2")
            .is_some_and(|pod| pod["metadata"]["ownerReferences"].is_null())
    };
    api.until(&pods(namespace), SOON, "a pod that is not selected is let go", is_free)
        .await;
    api.patch(&pod, &json!({"metadata": {"labels": {"app": "web"}}})).await;
    let is_taken = |pods: &Objects| {
        pods.get("web-2")
            .is_some_and(|pod| pod["metadata"]["ownerReferences"].is_array())
    };
    api.until(&pods(namespace), SOON, "and taken back", is_taken).await;

    api.patch(&path, &json!({"spec": {"replicas": 1}})).await;
    api.until(&claims(namespace), SOON, "claims go with their pods", |claims| {
        claims.len() == 1
    })
    .await;
    ready(api, namespace, 1).await;
}

/// Pods with claims: one let go and taken back, one named to be deleted, all with another image, and then fewer.
async fn clone_set(api: &Api) {
    let namespace = "rights-clones";
    suite::make_namespace(api, namespace).await;
    let sets = format!("/apis/apps.kruise.io/v1beta1/namespaces/{namespace}/clonesets");
    let path = format!("{sets}/web");
    let mut manifest = set(Kind::Advanced, "web", 3);
    manifest["kind"] = json!("CloneSet");
    manifest["metadata"]["annotations"] = json!({"flotilla.rs/adopt-orphans": "true"});
    if let Some(spec) = manifest["spec"].as_object_mut() {
        spec.retain(|field, _| ["replicas", "selector", "template", "volumeClaimTemplates"].contains(&field.as_str()));
    }
    api.create(&sets, &manifest).await;
    let is_up = |sets: &Objects| {
        let (status, metadata) = (&sets["web"]["status"], &sets["web"]["metadata"]);
        status["observedGeneration"] == metadata["generation"]
            && status["updatedAvailableReplicas"] == 3
            && status["replicas"] == 3
            && status["currentRevision"] == status["updateRevision"]
    };
    api.until(&sets, SOON, "a CloneSet that is up", is_up).await;

    let names: Vec<String> = api.list(&pods(namespace)).await.into_keys().collect();
    let pod = format!("{}/{}", pods(namespace), names[0]);
    api.patch(&pod, &json!({"metadata": {"labels": {"app": "other"}}}))
        .await;
    let owned = |pods: &Objects| {
        pods.get(&names[0])
            .is_some_and(|pod| pod["metadata"]["ownerReferences"].is_array())
    };
    api.until(&pods(namespace), SOON, "a pod that is not selected is let go", |pods| {
        !owned(pods)
    })
    .await;
    api.patch(&pod, &json!({"metadata": {"labels": {"app": "web"}}})).await;
    api.until(
        &pods(namespace),
        SOON,
        "and taken back, or deleted as one too many",
        |pods| owned(pods) || !pods.contains_key(&names[0]),
    )
    .await;
    api.until(&sets, SOON, "three pods again", is_up).await;

    let named = api.list(&pods(namespace)).await.into_keys().next().expect("a pod");
    api.patch(&path, &json!({"spec": {"scaleStrategy": {"podsToDelete": [named]}}}))
        .await;
    let is_forgotten = |sets: &Objects| sets["web"]["spec"]["scaleStrategy"]["podsToDelete"] == json!([]);
    api.until(&sets, SOON, "the name of a pod that is gone is forgotten", is_forgotten)
        .await;
    set_image(api, &path, "app:v2").await;
    api.until(&sets, SOON, "another image", is_up).await;
    api.patch(&path, &json!({"spec": {"replicas": 1}})).await;
    api.until(&claims(namespace), SOON, "claims go with their pods", |claims| {
        claims.len() == 1
    })
    .await;
    // One that has no pod, as a manager leaves it that ends before it makes the pod.
    let uid = api.read(&path).await["metadata"]["uid"].clone();
    let stray = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data-web-stray",
            "labels": {"app": "web", "apps.kruise.io/cloneset-instance-id": "stray"},
            "ownerReferences": [{
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": uid, "controller": true,
            }],
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    api.create(&claims(namespace), &stray).await;
    api.until(&claims(namespace), SOON, "a claim without a pod goes", |claims| {
        !claims.contains_key("data-web-stray")
    })
    .await;
}

/// Another image, and then other resources, without the pod being made again.
async fn in_place(api: &Api) {
    let namespace = "rights-in-place";
    suite::make_namespace(api, namespace).await;
    let mut set = Kind::Advanced.manifest("web", 1);
    set["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible"}});
    let template = &mut set["spec"]["template"]["spec"];
    template["readinessGates"] = json!([{"conditionType": "InPlaceUpdateReady"}]);
    template["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    api.create(&Kind::Advanced.sets(namespace), &set).await;
    rolled_out(api, Kind::Advanced, namespace, "web").await;
    let path = Kind::Advanced.set(namespace, "web");
    let before = ready(api, namespace, 1).await;
    let changes = [("/image", json!("app:v2")), ("/resources/requests/cpu", json!("200m"))];
    for (field, value) in changes {
        let revision = text(&api.read(&path).await, "/status/updateRevision").to_owned();
        let container = "/spec/template/spec/containers/0";
        let change = json!([{"op": "replace", "path": format!("{container}{field}"), "value": value}]);
        let sent = api
            .send(Method::PATCH, &path, Some(("application/json-patch+json", &change)))
            .await;
        sent.expect("the template is changed");
        let moved = |sets: &Objects| text(&sets["web"], "/status/updateRevision") != revision;
        api.until(&Kind::Advanced.sets(namespace), SOON, "a new revision", moved)
            .await;
        rolled_out(api, Kind::Advanced, namespace, "web").await;
        let after = ready(api, namespace, 1).await;
        let found = after["web-0"].pointer(&format!("/spec/containers/0{field}"));
        assert_eq!(found, Some(&value), "{after:?}");
        assert_eq!(after["web-0"]["metadata"]["uid"], before["web-0"]["metadata"]["uid"]);
    }
}

/// Where the jobs are, in the only version that there is.
fn old_jobs(namespace: &str) -> String {
    jobs::jobs(namespace).replace("v1beta1", "v1alpha1")
}

/// A set whose pods are updated in place, all of them kept back for now.
fn kept_back(name: &str) -> Value {
    let mut set = clones::manifest(4);
    set["metadata"]["name"] = json!(name);
    set["spec"]["updateStrategy"] =
        json!({"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "partition": 4, "maxUnavailable": 1}});
    for labels in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        *set.pointer_mut(labels).expect("labels") = json!({"app": name});
    }
    set
}

/// An image pulled ahead of its update, and the job deleted when the update is done.
async fn pulled_ahead(api: &Api) {
    let namespace = "rights-ahead";
    suite::make_namespace(api, namespace).await;
    api.create(&clones::sets(namespace), &kept_back("web")).await;
    clones::settled(api, namespace, SOON).await;
    set_image(api, &clones::web(namespace), "app:v2").await;
    api.until(&old_jobs(namespace), SOON, "a job", |jobs| jobs.len() == 1)
        .await;
    let all = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}});
    api.patch(&clones::web(namespace), &all).await;
    api.until(
        &old_jobs(namespace),
        SOON,
        "it goes when the update is done",
        Objects::is_empty,
    )
    .await;
}

/// Pods whose containers start one after the other: one whose barrier is made and gets keys, and one that has to get rid of the barrier
/// of the pod which had its name.
async fn launch_priority(api: &Api, log: &Path) {
    let namespace = "rights-launch";
    suite::make_namespace(api, namespace).await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    // The garbage collector would take it away; so that it is there when the pod is, something holds it.
    let former = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "again-barrier", "labels": {"flotilla.rs/launch-barrier": "true"}, "finalizers": ["example.test/held"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "again", "uid": "former", "controller": true}],
        },
    });
    api.create(&maps, &former).await;
    for name in ["first", "again"] {
        let mut pod = webhooks::pod(name, None);
        pod["metadata"]["annotations"] =
            json!({"apps.kruise.io/container-launch-priority": "Ordered", "sim.flotilla.rs/start": "2s"});
        pod["spec"]["containers"] = json!([{"name": "a", "image": "a"}, {"name": "b", "image": "b"}]);
        api.create(&pods(namespace), &pod).await;
    }
    let deletion = (String::new(), "configmaps".to_owned(), "delete".to_owned());
    let begun = clock::now();
    while !uses(log).contains(&deletion) {
        assert!(begun.elapsed() < SOON, "the former barrier is not deleted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    api.patch(
        &format!("{maps}/again-barrier"),
        &json!({"metadata": {"finalizers": null}}),
    )
    .await;
    let is_whole = |maps: &Objects, pod: &str| {
        let map = maps.get(&format!("{pod}-barrier"));
        map.and_then(|map| map["data"].as_object())
            .is_some_and(|data| data.len() == 2)
    };
    api.until(&maps, SOON, "all containers may start", |maps| {
        ["first", "again"].iter().all(|pod| is_whole(maps, pod))
    })
    .await;
}

/// A quota refuses a pod again and again: one event, counted up.
async fn refused_pods_repeat_an_event(api: &Api) {
    let namespace = "rights-quota";
    suite::make_namespace(api, namespace).await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    api.create(&format!("/api/v1/namespaces/{namespace}/resourcequotas"), &quota)
        .await;
    let quotas = format!("/api/v1/namespaces/{namespace}/resourcequotas");
    let is_counted = |quotas: &Objects| quotas.values().all(|quota| quota["status"]["hard"].is_object());
    api.until(&quotas, SOON, "the quota is in force", is_counted).await;
    api.create(&Kind::Advanced.sets(namespace), &Kind::Advanced.manifest("web", 1))
        .await;
    let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let repeated = |events: &Objects| {
        events
            .values()
            .any(|event| event["series"]["count"].as_i64().unwrap_or(0) > 1)
    };
    api.until(&events, 2 * SOON, "an event that is counted up", repeated)
        .await;
    api.delete(&Kind::Advanced.set(namespace, "web"), false).await;
}

/// Connections are cut while much is being made, until the manager has read pods, claims, revisions and jobs anew.
async fn unknown_outcomes(api: &Api, proxy: &Proxy, log: &Path) {
    let namespace = "rights-cut";
    suite::make_namespace(api, namespace).await;
    let wanted: BTreeSet<Use> = [
        ("", "pods"),
        ("", "persistentvolumeclaims"),
        ("apps", "controllerrevisions"),
        ("apps.kruise.io", "imagepulljobs"),
    ]
    .map(|(group, resource)| (group.to_owned(), resource.to_owned(), "get".to_owned()))
    .into();
    let ahead: Vec<String> = (0..8).map(|i| format!("ahead-{i}")).collect();
    for name in &ahead {
        api.create(&clones::sets(namespace), &kept_back(name)).await;
    }
    for name in &ahead {
        clones::named_settled(api, namespace, name, SOON).await;
    }
    let begun = clock::now();
    for round in 0_u64.. {
        if wanted.is_subset(&uses(log)) {
            println!("every kind of object was read anew after {round} rounds of cutting");
            return;
        }
        assert!(
            begun.elapsed() < CUTTING,
            "not all of {wanted:?} within {CUTTING:?}; there was {:?}",
            uses(log)
        );
        let names: Vec<String> = (0..12).map(|i| format!("cut-{round}-{i}")).collect();
        for name in &names {
            api.create(&Kind::Advanced.sets(namespace), &set(Kind::Advanced, name, 4))
                .await;
            proxy.cut();
        }
        let image = format!("app:r{round}");
        for name in &ahead {
            set_image(api, &format!("{}/{name}", clones::sets(namespace)), &image).await;
        }
        let are_for_it = |jobs: &Objects| {
            let images = jobs::images(jobs);
            images.len() == ahead.len() && images.iter().all(|(_, of)| *of == image)
        };
        api.until(&old_jobs(namespace), 2 * SOON, "jobs are made", |jobs| {
            proxy.cut_sometimes();
            are_for_it(jobs)
        })
        .await;
        // Everything comes about in spite of it.
        let is_whole = |pods: &Objects| {
            names
                .iter()
                .all(|name| (0..4).all(|i| pods.contains_key(&format!("{name}-{i}"))))
        };
        api.until(&pods(namespace), 2 * SOON, "all pods are made", |pods| {
            proxy.cut_sometimes();
            is_whole(pods)
        })
        .await;
        for name in &names {
            api.delete(&Kind::Advanced.set(namespace, name), false).await;
        }
    }
}

fn uses(log: &Path) -> BTreeSet<Use> {
    audit::uses(log, USER)
}

fn refusals(log: &Path) -> BTreeSet<Use> {
    audit::refusals(log, USER)
}

/// Every verb of every line of the table.
fn nothing_is_granted_for_nothing(uses: &BTreeSet<Use>) {
    let asked_for = PERMISSIONS.iter().filter(|p| !p.resource.ends_with("/finalizers"));
    let granted = asked_for.flat_map(|p| p.verbs.iter().map(|verb| (p.group, p.resource, *verb)));
    audit::assert_same(&audit::set(granted), uses);
}

/// The rights to finalizers are asked for by admission: with each, an owner may be held up, and without it not.
async fn holding_owners_up(api: &Api, admin: &Path) {
    let uid = "00000000-0000-0000-0000-000000000001";
    let owners = [
        (
            "apps.kruise.io/v1beta1",
            "StatefulSet",
            "apps.kruise.io",
            "statefulsets/finalizers",
        ),
        (
            "apps.kruise.io/v1beta1",
            "CloneSet",
            "apps.kruise.io",
            "clonesets/finalizers",
        ),
        ("apps/v1", "StatefulSet", "apps", "statefulsets/finalizers"),
        ("v1", "Pod", "", "pods/finalizers"),
    ];
    for (version, kind, group, resource) in owners {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "held", "namespace": "default", "ownerReferences": [
                {"apiVersion": version, "kind": kind, "name": "x", "uid": uid, "controller": true, "blockOwnerDeletion": true},
            ]},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        let file = admin.with_file_name("held.json");
        std::fs::write(&file, claim.to_string()).expect("it can be written");
        let attempt = || {
            let mut kubectl = std::process::Command::new(kubectl());
            kubectl.args(["--kubeconfig".as_ref(), admin.as_os_str()]);
            kubectl
                .args(["--as", USER, "create", "--dry-run=server", "-f"])
                .arg(&file);
            super::said(kubectl)
        };
        attempt().done();
        let role = api.read(ROLE).await;
        let mut less = role.clone();
        let rules = less["rules"].as_array_mut().expect("rules");
        let count = rules.len();
        rules.retain(|rule| rule["apiGroups"] != json!([group]) || rule["resources"] != json!([resource]));
        assert_eq!(rules.len(), count - 1, "{group} {resource}");
        api.put(ROLE, &less).await;
        let begun = clock::now();
        // Roles spread through the API server's own watches, which nobody can follow from outside.
        while attempt().code == 0 {
            assert!(
                begun.elapsed() < ROLES_SPREAD_WITHIN,
                "allowed without {group} {resource}"
            );
        }
        let mut back = role;
        back["metadata"]["resourceVersion"] = Value::Null;
        api.put(ROLE, &back).await;
        let begun = clock::now();
        while attempt().code != 0 {
            assert!(begun.elapsed() < ROLES_SPREAD_WITHIN, "refused with {group} {resource}");
        }
    }
    let body = json!({"propagationPolicy": "Background"});
    let sent = api
        .send(
            Method::DELETE,
            "/api/v1/namespaces/rights-cut",
            Some(("application/json", &body)),
        )
        .await;
    sent.expect("the namespace goes");
}
