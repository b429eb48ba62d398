//! Sets that a Go manager left in the middle of something: Flotilla goes on, and no container restarts that need not.
//!
//! The objects are recorded (`e2e/recordings`). They are restored before any kubelet or manager looks at them. Those of CloneSets can be
//! recorded anew: `cargo xtask generate recordings`.

#[path = "handover/clones.rs"]
mod clones;
#[path = "handover/record.rs"]
mod record;
#[path = "handover/scenes.rs"]
mod scenes;

use flotilla_e2e::api::{Objects, is_ready, name, number, text};
use flotilla_e2e::sets::{Kind, SOON, claims, pods, revisions, set_image};
use flotilla_e2e::{Api, Manager, suite};
use flotilla_localcluster::{Cluster, Component};
use http::Method;
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// The node of all recorded pods.
const NODE: &str = "recorded";
const NODES: &str = "/api/v1/nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
/// What the recorded pods are held by.
const FINALIZER: &str = "example.com/hold";
/// The annotation of what was restored.
const TOLD: &str = "example.com/told";
const STATE: &str = "/metadata/labels/lifecycle.apps.kruise.io~1state";

/// Each recording with how often each container of `web-1` has restarted when all is done, the restart that was recorded included.
const RECORDINGS: &[(&str, &[(&str, i64)])] = &[
    ("settled", &[("main", 0)]),
    ("settled-after-an-image", &[("main", 1)]),
    ("metadata-only", &[("main", 0)]),
    ("out-of-service-not-changed", &[("main", 1)]),
    ("resized-not-changed", &[("main", 1)]),
    ("grace-period", &[("main", 1)]),
    ("changed-not-restarted", &[("main", 1)]),
    ("restarted-not-told", &[("main", 1)]),
    ("restarted-not-ready", &[("main", 1)]),
    ("image-and-resize", &[("main", 1)]),
    ("image-not-pulled", &[("main", 1)]),
    ("same-image-id", &[("main", 1)]),
    ("batches", &[("free", 1), ("main", 1), ("side", 1)]),
    ("batches-with-resources", &[("main", 0), ("side", 1)]),
    ("resize-deferred", &[("main", 0)]),
    ("overtaken", &[("main", 2)]),
    ("preparing-update", &[("main", 1)]),
    ("updating-under-a-hook", &[("main", 1)]),
    ("updated-awaits-markers", &[("main", 1)]),
    ("preparing-delete", &[]),
    ("preparing-normal", &[("main", 0)]),
];

/// The one that cannot go on: the node agent is not there.
const WAITING: &str = "environment-awaits-the-agent";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(&Arc::default())).exit_code();
    }
    if let (Some(source), Some(manager)) = (
        std::env::var_os("FLOTILLA_RECORD"),
        std::env::var_os("FLOTILLA_GO_MANAGER"),
    ) {
        record::record(Path::new(&source), Path::new(&manager));
        return ExitCode::SUCCESS;
    }
    arguments.test_threads.get_or_insert(6);
    let cluster = Cluster::disposable("e2e-handover")
        .nodes(0)
        .without_statefulset_controller()
        .start()
        .expect("a cluster");
    let kubeconfig: Arc<PathBuf> = Arc::new(cluster.kubeconfig_path().to_owned());
    suite::wait_for(async {
        let api = Api::connect(&kubeconfig).await;
        suite::install_crds(&api, std::convert::identity).await;
        api.create(NODES, &node()).await;
    });
    let mut has_failed = false;
    for group in clones::GROUPS {
        has_failed |= hand_over(&cluster, &kubeconfig, &arguments, group);
    }
    drop(cluster);
    ExitCode::from(u8::from(has_failed))
}

/// Hands the sets of a group over to a manager with the group's gates.
fn hand_over(
    cluster: &Cluster,
    kubeconfig: &Arc<PathBuf>,
    arguments: &Arguments,
    group: &'static clones::Group,
) -> bool {
    // Nobody looks at what is restored until all of it is there.
    cluster.kill(Component::Kwok).expect("the kubelets can be ended");
    let places = group.places();
    suite::wait_for(async {
        let api = Api::connect(kubeconfig).await;
        for place in &places {
            restore(&api, place).await;
        }
        start_kubelets(cluster, &api).await;
        begin(&api, &places).await;
    });
    let gates = format!("--feature-gates={}", group.gates);
    let mut alone = vec!["--leader-elect=false", "--observation-seconds=0", "--http-address=none"];
    if !group.gates.is_empty() {
        alone.push(&gates);
    }
    let manager = Manager::start(kubeconfig, group.name, &alone);
    let conclusion = libtest_mimic::run(arguments, group_trials(kubeconfig, group));
    if conclusion.has_failed() {
        eprintln!("the manager's log:\n{}", manager.log());
    }
    drop(manager);
    // What is over is no business of the next manager, whose gates are others.
    suite::wait_for(async {
        let api = Api::connect(kubeconfig).await;
        for place in &places {
            api.delete(&format!("/api/v1/namespaces/{}", place.namespace), false)
                .await;
        }
    });
    conclusion.has_failed()
}

/// Starts the kubelets that were killed. Their simulator looks after a node while it has the node's lease, which the one before still has.
async fn start_kubelets(cluster: &Cluster, api: &Api) {
    for lease in api.list(LEASES).await.keys() {
        api.delete(&format!("{LEASES}/{lease}"), false).await;
    }
    cluster.start(Component::Kwok).expect("there is a kubelet again");
    let nodes = api.list(NODES).await;
    let are_all = |leases: &Objects| nodes.keys().all(|node| leases.contains_key(node));
    api.until(LEASES, SOON, "a lease for each node", are_all).await;
}

/// A recording, and the namespace in which it is restored.
pub struct Place {
    namespace: String,
    file: PathBuf,
    kind: &'static str,
}

impl Place {
    fn advanced(recording: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings/openkruise-1.9.0");
        Place {
            namespace: recording.to_owned(),
            file: folder.join(format!("{recording}.json")),
            kind: "statefulset",
        }
    }

    fn sets(&self) -> String {
        format!(
            "/apis/apps.kruise.io/v1beta1/namespaces/{}/{}s",
            self.namespace, self.kind
        )
    }

    fn set(&self) -> String {
        format!("{}/web", self.sets())
    }
}

fn trials(kubeconfig: &Arc<PathBuf>) -> Vec<Trial> {
    let of = |group| group_trials(kubeconfig, group);
    clones::GROUPS.iter().flat_map(of).collect()
}

fn group_trials(kubeconfig: &Arc<PathBuf>, group: &'static clones::Group) -> Vec<Trial> {
    let mut trials = clones::trials(kubeconfig, group);
    if group.with_advanced {
        trials.extend(advanced_trials(kubeconfig));
    }
    trials
}

fn advanced_trials(kubeconfig: &Arc<PathBuf>) -> Vec<Trial> {
    let finished = RECORDINGS.iter().map(|(recording, restarts)| {
        let kubeconfig = Arc::clone(kubeconfig);
        suite::trial(format!("go_to_flotilla::{recording}"), move || async move {
            finished(&Api::connect(&kubeconfig).await, recording, restarts).await;
        })
    });
    let kubeconfig = Arc::clone(kubeconfig);
    let waits = suite::trial(format!("go_to_flotilla::{WAITING}"), move || async move {
        waits_for_the_agent(&Api::connect(&kubeconfig).await, &Place::advanced(WAITING), &kubeconfig).await;
    });
    finished.chain([waits]).collect()
}

fn node() -> Value {
    let room = json!({"cpu": "64", "memory": "64Gi", "pods": "500"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": NODE,
            "labels": {"type": "kwok", "kubernetes.io/hostname": NODE},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"capacity": room, "allocatable": room},
    })
}

/// Waits for the node's kubelet, and tells it of each pod: the simulator of kubelets passes over pods of which it learns before it knows
/// their node.
async fn begin(api: &Api, places: &[Place]) {
    let is_there = |nodes: &Objects| nodes.get(NODE).is_some_and(is_ready);
    api.until(NODES, SOON, "the node is ready", is_there).await;
    for place in places {
        let collection = pods(&place.namespace);
        for pod in api.list(&collection).await.keys() {
            let told = json!({"metadata": {"annotations": {TOLD: "true"}}});
            api.patch(&format!("{collection}/{pod}"), &told).await;
        }
    }
}

fn recorded(place: &Place) -> Value {
    let path = &place.file;
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Removes what only the server that had it can say, and puts it into another namespace.
fn strip(object: &mut Value, namespace: &str) {
    object["metadata"]["namespace"] = json!(namespace);
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        object["metadata"].as_object_mut().expect("metadata").remove(field);
    }
}

/// Makes the recorded objects anew, with their status. New UIDs are the only difference, what a simulated kubelet derives from them, and
/// volumes, which the other cluster had.
async fn restore(api: &Api, place: &Place) {
    let namespace = &place.namespace;
    suite::make_namespace(api, namespace).await;
    let recorded = recorded(place);
    let mut set = recorded["set"].clone();
    let has_seen = set["status"]["observedGeneration"] == set["metadata"]["generation"];
    strip(&mut set, namespace);
    // A shorter grace period for the pods that are still to come; the one that had begun is over.
    shorten_grace(&mut set["spec"]["updateStrategy"]);
    let set = clones::as_served(set);
    let made = api.create(&place.sets(), &set).await;
    let mut status = set["status"].clone();
    status["observedGeneration"] = json!(i64::from(has_seen));
    api.patch(&format!("{}/status", place.set()), &json!({"status": status}))
        .await;
    let own = |object: &Value| {
        let mut object = object.clone();
        strip(&mut object, namespace);
        object["metadata"]["ownerReferences"][0]["uid"] = made["metadata"]["uid"].clone();
        object
    };
    for revision in items(&recorded["revisions"]) {
        api.create(&revisions(namespace), &own(revision)).await;
    }
    for claim in items(&recorded["claims"]) {
        api.create(&claims(namespace), &clones::unbound(own(claim))).await;
    }
    for old in items(&recorded["pods"]) {
        let mut pod = own(old);
        pod["spec"]["nodeName"] = json!(NODE);
        if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
            // What the simulated kubelet held back, it holds back no longer.
            annotations.retain(|key, _| !key.starts_with("sim.flotilla.rs/"));
            // A grace period in which recordings could be made is too long for a test.
            if let Some(Value::String(note)) = annotations.get_mut("apps.kruise.io/inplace-update-grace") {
                *note = note.replace("\"graceSeconds\":900", "\"graceSeconds\":3");
            }
        }
        let made = api.create(&pods(namespace), &pod).await;
        let mut now = made.clone();
        now["status"] = status_of(old, &made);
        api.put(&format!("{}/{}/status", pods(namespace), name(old)), &now)
            .await;
    }
}

fn shorten_grace(strategy: &mut Value) {
    for above in ["/rollingUpdate", ""] {
        let pointer = format!("{above}/inPlaceUpdateStrategy/gracePeriodSeconds");
        if let Some(grace) = strategy.pointer_mut(&pointer) {
            *grace = json!(3);
        }
    }
}

/// A recorded status for a pod with another UID: a simulated kubelet names containers by the pod's.
fn status_of(old: &Value, made: &Value) -> Value {
    let mut status = old["status"].clone();
    let has_seen = old["status"]["observedGeneration"] == old["metadata"]["generation"];
    status["observedGeneration"] = json!(i64::from(has_seen));
    for container in status["containerStatuses"].as_array_mut().into_iter().flatten() {
        let (name, count) = (text(container, "/name").to_owned(), number(container, "/restartCount"));
        let id = |pod: &Value, image: &str| {
            let source = format!("{}/{name}/{image}/{count}", text(pod, "/metadata/uid"));
            let mut id = "containerd://".to_owned();
            for byte in Sha256::digest(source.as_bytes()) {
                write!(id, "{byte:02x}").expect("a string can be written to");
            }
            id
        };
        let started_from = ["app:v1", "app:v2", "app:v3", "app:v1-same"];
        let image = started_from
            .iter()
            .find(|image| container["containerID"] == id(old, image));
        let image = image.unwrap_or_else(|| panic!("{}: started from none of these images", container["containerID"]));
        container["containerID"] = json!(id(made, image));
    }
    status
}

/// Does what users of the set would do, until all is done. Nothing restarts, and no pod goes, that need not.
async fn finished(api: &Api, namespace: &str, restarts: &[(&str, i64)]) {
    if namespace == "image-not-pulled" {
        set_image(api, &Kind::Advanced.set(namespace, "web"), "app:v1").await;
    }
    let collection = pods(namespace);
    let before = uids(&api.list(&collection).await);
    let set = api.read(&Kind::Advanced.set(namespace, "web")).await;
    let mut released = BTreeSet::new();
    loop {
        let what = "an act of the user's, or the end";
        let found = api
            .until(&collection, SOON, what, |pods| {
                pods.values().any(|pod| wants_user(pod, &released)) || are_done(&set, pods)
            })
            .await;
        let wanted: Vec<&Value> = found.values().filter(|pod| wants_user(pod, &released)).collect();
        if wanted.is_empty() {
            break;
        }
        for pod in wanted {
            act(api, &format!("{collection}/{}", name(pod)), pod).await;
            released.insert((name(pod), text(pod, STATE).to_owned()));
        }
    }
    api.until(&Kind::Advanced.sets(namespace), SOON, "the status says so", is_complete)
        .await;
    let after = api.list(&collection).await;
    let stays = |(name, _): &(&String, &String)| after.contains_key(*name);
    assert_eq!(
        before.iter().filter(stays).collect::<Vec<_>>(),
        uids(&after).iter().collect::<Vec<_>>(),
        "the pods are the ones that were there"
    );
    let counted: Vec<(&str, i64)> = after.get("web-1").map_or_else(Vec::new, |pod| {
        let statuses = items(&pod["status"]["containerStatuses"]);
        let mut counted: Vec<_> = statuses
            .map(|c| (text(c, "/name"), number(c, "/restartCount")))
            .collect();
        counted.sort_unstable();
        counted
    });
    assert_eq!(counted, restarts, "restarts of the containers of web-1");
}

fn uids(pods: &Objects) -> BTreeMap<String, String> {
    let uid = |(name, pod): (&String, &Value)| (name.clone(), text(pod, "/metadata/uid").to_owned());
    pods.iter().map(uid).collect()
}

/// Whether a pod waits for whoever owns its hook, who has not acted yet.
fn wants_user(pod: &Value, released: &BTreeSet<(String, String)>) -> bool {
    let state = text(pod, STATE);
    let waits = ["PreparingUpdate", "PreparingDelete", "PreparingNormal", "Updated"].contains(&state);
    waits && !released.contains(&(name(pod), state.to_owned()))
}

async fn act(api: &Api, path: &str, pod: &Value) {
    let has_finalizer = |pod: &Value| items(&pod["metadata"]["finalizers"]).any(|f| f == FINALIZER);
    let change = match text(pod, STATE) {
        "PreparingNormal" => json!({"metadata": {"labels": {"registered": "yes"}}}),
        "Updated" => json!({"metadata": {"labels": {"hold": "yes"}, "finalizers": [FINALIZER]}}),
        _ if has_finalizer(pod) => json!({"metadata": {"labels": {"hold": null}, "finalizers": null}}),
        _ => json!({"metadata": {"labels": {"hold": null}}}),
    };
    api.patch(path, &change).await;
}

/// Every pod is in service with the images and resources of the set.
fn are_done(set: &Value, pods: &Objects) -> bool {
    let shapes = |containers: &Value| -> Vec<[String; 3]> {
        let shape =
            |c: &Value| ["/name", "/image", "/resources/requests/cpu"].map(|pointer| text(c, pointer).to_owned());
        items(containers).map(shape).collect()
    };
    let wanted = shapes(&set["spec"]["template"]["spec"]["containers"]);
    let in_service = |pod: &Value| is_ready(pod) && matches!(text(pod, STATE), "" | "Normal");
    i64::try_from(pods.len()) == Ok(number(set, "/spec/replicas"))
        && pods
            .values()
            .all(|pod| in_service(pod) && shapes(&pod["spec"]["containers"]) == wanted)
}

/// The rollout is over, and all pods are ready.
fn is_complete(sets: &Objects) -> bool {
    sets.get("web").is_some_and(|set| {
        let status = &set["status"];
        let all = number(set, "/spec/replicas");
        status["currentRevision"] == status["updateRevision"]
            && status["observedGeneration"] == set["metadata"]["generation"]
            && [number(status, "/readyReplicas"), number(status, "/updatedReplicas")] == [all, all]
    })
}

/// Without an agent nobody can tell a container's environment: nothing restarts, the pod stays out of service, and `why` says it.
async fn waits_for_the_agent(api: &Api, place: &Place, kubeconfig: &Path) {
    let namespace = &place.namespace;
    let asked = std::process::Command::new(flotilla_e2e::manager::binary())
        .args(["why", "--kubeconfig"])
        .arg(kubeconfig)
        .args(["-n", namespace, &format!("{}.apps.kruise.io/web", place.kind)])
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&asked.stdout);
    assert!(said.contains("only the node agent can tell"), "{said}");
    let found = api.list(&pods(namespace)).await;
    let waiting: Vec<&Value> = found.values().filter(|pod| !is_ready(pod)).collect();
    assert_eq!(waiting.len(), 1, "one is out of service");
    assert_eq!(text(waiting[0], "/metadata/labels/role"), "leader");
    assert_eq!(waiting[0]["status"]["containerStatuses"][0]["restartCount"], 0);
    // Its owner gives up: the label goes back, and whether that has arrived nobody can tell either (STS-4.6).
    let role = |role: &str| json!({"spec": {"template": {"metadata": {"labels": {"role": role}}}}});
    api.send(
        Method::PATCH,
        &place.set(),
        Some(("application/merge-patch+json", &role("follower"))),
    )
    .await
    .expect("the set can be changed");
    let found = api
        .until(&pods(namespace), SOON, "the label is taken back", |pods| {
            pods.values()
                .all(|pod| text(pod, "/metadata/labels/role") == "follower")
        })
        .await;
    assert!(
        found
            .values()
            .all(|pod| pod["status"]["containerStatuses"][0]["restartCount"] == 0),
        "nothing restarted"
    );
}
