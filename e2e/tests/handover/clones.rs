//! CloneSets that a Go manager left half-way, with full and short labels, under each gate that changes what it writes: no pod goes and no
//! container restarts that need not, no update is lost, and no claim is lost or made twice.

use super::{Place, STATE, TOLD, items, recorded, uids};
use flotilla_e2e::api::{Api, Objects, is_ready, is_terminating, name, number, revision, text};
use flotilla_e2e::clones::{is_settled, sets, web};
use flotilla_e2e::sets::{SOON, claims, pods, set_image};
use flotilla_e2e::suite;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Recordings that go to one manager.
pub struct Group {
    pub name: &'static str,
    /// The gates of the manager that takes over.
    pub gates: &'static str,
    /// Whether the recordings of Advanced StatefulSets go there too.
    pub with_advanced: bool,
    folders: &'static [(&'static str, &'static [Expected])],
}

/// What is left of a recording when all is done.
struct Expected {
    recording: &'static str,
    /// How often each container of the recorded pods that are still there has restarted, sorted, the recorded restarts included.
    restarts: &'static [i64],
    /// How many of the recorded claims are left.
    claims: usize,
}

const fn is(recording: &'static str, restarts: &'static [i64], claims: usize) -> Expected {
    Expected {
        recording,
        restarts,
        claims,
    }
}

/// A container takes its environment from a label, and no agent restarts it.
const WAITING: &str = "environment-awaits-the-agent";

const STOCK: &[Expected] = &[
    is("settled", &[0, 0], 0),
    is("settled-after-an-image", &[1, 1], 0),
    is("metadata-only", &[0, 0], 0),
    is("out-of-service-not-changed", &[1, 1], 0),
    is("grace-period", &[1, 1], 0),
    // What was kept is applied first (CS-16.3 and STS-4.3).
    is("overtaken-in-the-grace-period", &[1, 2], 0),
    is("changed-not-restarted", &[1, 1], 0),
    is("restarted-not-told", &[1, 1], 0),
    is("restarted-not-ready", &[1, 1], 0),
    is("image-not-pulled", &[0, 1], 0),
    is("same-image-id", &[1, 1], 0),
    is("overtaken", &[1, 2], 0),
    is("batches", &[1, 1, 1, 1], 0),
    is(WAITING, &[0, 0], 0),
    is("preparing-update", &[1, 1], 0),
    is("preparing-update-out-of-service", &[1, 1], 0),
    is("preparing-update-while-scaled", &[0, 0, 1], 0),
    is("updating-under-a-hook", &[1, 1], 0),
    is("updating-restarted-not-told", &[1, 1], 0),
    is("updated-awaits-markers", &[1, 1], 0),
    is("preparing-delete", &[0, 0], 0),
    is("preparing-delete-for-an-update", &[], 0),
    is("preparing-normal", &[0, 0], 0),
    is("recreate-not-deleted", &[], 0),
    is("surge-old-pod-not-deleted", &[0], 0),
    is("surge-pod-not-in-service", &[0], 0),
    is("scale-down-claim-left", &[0, 0], 3),
    is("scale-up-claim-without-pod", &[0, 0], 3),
    is("recreate-claim-left", &[], 1),
    is("recreate-claim-gone", &[], 1),
    is("lost-pod-not-replaced", &[0], 2),
    is("named-not-deleted", &[0, 0], 2),
    is("named-gone-claim-left", &[0, 0], 3),
    is("named-replaced-name-left", &[0, 0], 2),
    is("claim-templates-and-image", &[1, 1], 2),
    is("partition", &[0, 1, 1], 0),
    is("partition-half-way", &[0, 1, 1], 0),
    is("revision-not-in-the-status", &[1, 1], 0),
];

/// One manager after the other.
pub const GROUPS: &[Group] = &[
    Group {
        name: "stock",
        gates: "",
        with_advanced: true,
        folders: &[
            ("full", STOCK),
            ("short", STOCK),
            ("environment", &[is("environment-not-followed", &[0, 0], 0)]),
        ],
    },
    Group {
        name: "short-hash",
        gates: "CloneSetShortHash=true",
        with_advanced: false,
        folders: &[("short", STOCK)],
    },
    Group {
        name: "partition-rollback",
        gates: "CloneSetPartitionRollback=true",
        with_advanced: false,
        folders: &[(
            "rollback",
            &[
                is("rollback-not-changed", &[0, 1, 2], 0),
                is("rollback-not-ready", &[0, 1, 2], 0),
                is("rolled-back", &[0, 1, 2], 0),
            ],
        )],
    },
    Group {
        name: "preparing-as-updated",
        gates: "PreparingUpdateAsUpdate=true",
        with_advanced: false,
        folders: &[("preparing", &[is("preparing-update-while-scaled", &[0, 0, 1], 0)])],
    },
    Group {
        name: "recreate-on-claim-change",
        gates: "RecreatePodWhenChangeVCTInCloneSetGate=true",
        with_advanced: false,
        folders: &[(
            "claims",
            &[
                is("claim-templates-not-deleted", &[], 0),
                is("claim-templates-changed", &[0, 0], 2),
            ],
        )],
    },
];

impl Group {
    pub fn places(&'static self) -> Vec<Place> {
        let mut places: Vec<Place> = self.clones().map(|(place, ..)| place).collect();
        if self.with_advanced {
            let names = super::RECORDINGS.iter().map(|(recording, _)| *recording);
            places.extend(names.chain([super::WAITING]).map(Place::advanced));
        }
        places
    }

    fn clones(&'static self) -> impl Iterator<Item = (Place, &'static str, &'static Expected)> {
        self.folders.iter().flat_map(move |(folder, expected)| {
            expected.iter().map(move |expected| {
                let place = Place {
                    namespace: format!("{}-{folder}-{}", self.name, expected.recording),
                    file: recordings(folder).join(format!("{}.json", expected.recording)),
                    kind: "cloneset",
                };
                (place, *folder, expected)
            })
        })
    }
}

/// Where the recordings of CloneSets of one kind are.
pub fn recordings(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("recordings/openkruise-1.8.0")
        .join(folder)
}

pub fn trials(kubeconfig: &Arc<PathBuf>, group: &'static Group) -> Vec<Trial> {
    let trial = |(place, folder, expected): (Place, &str, &'static Expected)| {
        let kubeconfig = Arc::clone(kubeconfig);
        let short = group.gates.contains("ShortHash");
        suite::trial(
            format!("{}::{folder}::{}", group.name, expected.recording),
            move || async move {
                let api = Api::connect(&kubeconfig).await;
                if expected.recording == WAITING {
                    super::waits_for_the_agent(&api, &place, &kubeconfig).await;
                } else {
                    finished(&api, &place, expected, short).await;
                }
            },
        )
    };
    group.clones().map(trial).collect()
}

/// A set of any kind in the version that Flotilla stores: the API server asks Flotilla to convert what a Go manager has stored.
pub fn as_served(set: Value) -> Value {
    let converted = flotilla_admission::convert(vec![set], "apps.kruise.io/v1beta1").expect("it can be converted");
    converted.into_iter().next().expect("one for one")
}

/// A claim as it was before a volume was found for it, marked as restored.
pub fn unbound(mut claim: Value) -> Value {
    let object = claim.as_object_mut().expect("an object");
    object.remove("status");
    claim["spec"].as_object_mut().expect("a spec").remove("volumeName");
    claim["metadata"]["annotations"] = json!({TOLD: "true"});
    claim
}

/// Whether it was restored, and not made since under the same name.
fn was_there(object: &Value) -> bool {
    object["metadata"]["annotations"][TOLD] == "true"
}

/// Does what users of the set would do, until all is done.
async fn finished(api: &Api, place: &Place, expected: &Expected, short: bool) {
    let namespace = &place.namespace;
    if expected.recording == "image-not-pulled" {
        set_image(api, &web(namespace), "app:v1").await;
    }
    let before = recorded(place);
    let set = until_done(api, namespace).await;
    assert_eq!(
        items(&set["spec"]["scaleStrategy"]["podsToDelete"]).count(),
        0,
        "names of pods that are gone are taken out"
    );
    let after = api.list(&pods(namespace)).await;
    let (staying, made): (Vec<&Value>, Vec<&Value>) = after.values().partition(|pod| was_there(pod));
    let mut restarts: Vec<i64> = staying
        .iter()
        .flat_map(|pod| items(&pod["status"]["containerStatuses"]))
        .map(|container| number(container, "/restartCount"))
        .collect();
    restarts.sort_unstable();
    assert_eq!(restarts, expected.restarts, "restarts of the pods that were there");
    let labels: Vec<&str> = after.values().map(revision).collect();
    let updates = after.values().filter(|pod| is_updated(&set, pod)).count();
    assert_eq!(
        updates,
        expected_updates(&set),
        "pods of the update revision: {labels:?}"
    );
    for pod in made {
        let full = revision(pod).starts_with("web-");
        assert_eq!(
            full,
            !short,
            "{} is labelled as the gate says: {}",
            name(pod),
            revision(pod)
        );
    }
    claims_are_whole(api, &before, namespace, expected).await;
}

/// No claim is lost, none is made twice, and one that nobody used is used by the next pod.
async fn claims_are_whole(api: &Api, before: &Value, namespace: &str, expected: &Expected) {
    let recorded: BTreeSet<String> = items(&before["claims"]).map(name).collect();
    let left = api.list(&claims(namespace)).await;
    let kept = left.values().filter(|claim| was_there(claim)).count();
    let names: Vec<&String> = left.keys().collect();
    assert_eq!(
        kept, expected.claims,
        "of the recorded claims {recorded:?}; there are {names:?}"
    );
    if recorded.is_empty() {
        return;
    }
    let there = api.list(&pods(namespace)).await;
    if left.len() > there.len() {
        let replicas = json!({"spec": {"replicas": left.len()}});
        api.patch(&web(namespace), &replicas).await;
        until_done(api, namespace).await;
    }
    let (there, now) = (api.list(&pods(namespace)).await, api.list(&claims(namespace)).await);
    assert_eq!(
        uids(&left),
        uids(&now),
        "claims that were left are used, and there are no others"
    );
    let used: BTreeSet<String> = there
        .values()
        .flat_map(|pod| items(&pod["spec"]["volumes"]))
        .map(|volume| text(volume, "/persistentVolumeClaim/claimName").to_owned())
        .filter(|claim| !claim.is_empty())
        .collect();
    assert_eq!(used, now.into_keys().collect(), "each pod has its claim");
}

/// Does what users would do, until the set is at rest with all pods in service.
async fn until_done(api: &Api, namespace: &str) -> Value {
    let collection = pods(namespace);
    let mut released = BTreeSet::new();
    loop {
        let set = api.read(&web(namespace)).await;
        let found = api
            .until(&collection, SOON, "an act of the user's, or the end", |pods| {
                pods.values().any(|pod| super::wants_user(pod, &released)) || are_done(&set, pods)
            })
            .await;
        let wanted: Vec<&Value> = found.values().filter(|pod| super::wants_user(pod, &released)).collect();
        if wanted.is_empty() {
            break;
        }
        for pod in wanted {
            act(api, &format!("{collection}/{}", name(pod)), pod).await;
            released.insert((name(pod), text(pod, STATE).to_owned()));
        }
    }
    let rests = |set: &Value| is_settled(set) && items(&set["spec"]["scaleStrategy"]["podsToDelete"]).count() == 0;
    let done = |sets: &Objects| sets.get("web").is_some_and(rests);
    let mut found = api.until(&sets(namespace), SOON, "the status says so", done).await;
    found.remove("web").expect("it was there a moment ago")
}

/// What the owner of a hook does. The pod may be gone by then, if somebody else's act has let it go.
async fn act(api: &Api, path: &str, pod: &Value) {
    let change = match text(pod, STATE) {
        "PreparingNormal" => json!({"metadata": {"labels": {"registered": "yes"}}}),
        "Updated" => json!({"metadata": {"labels": {"hold": "yes"}}}),
        _ => json!({"metadata": {"labels": {"hold": null}}}),
    };
    api.patch(path, &change).await;
}

/// Whether a pod has the set's template: images, requests and labels.
fn has_template(set: &Value, pod: &Value) -> bool {
    let shape = |c: &Value| ["/name", "/image", "/resources/requests/cpu"].map(|pointer| text(c, pointer).to_owned());
    let shapes = |containers: &Value| -> Vec<[String; 3]> { items(containers).map(shape).collect() };
    let template = &set["spec"]["template"];
    let wanted = template["metadata"]["labels"].as_object().into_iter().flatten();
    // The label of a hook is its owner's.
    let is_labelled = wanted
        .filter(|(key, _)| *key != "hold")
        .all(|(key, value)| pod["metadata"]["labels"][key] == *value);
    is_labelled && shapes(&template["spec"]["containers"]) == shapes(&pod["spec"]["containers"])
}

/// How many pods are to be updated; the partitions that are recorded are numbers.
fn expected_updates(set: &Value) -> usize {
    let count = number(set, "/spec/replicas") - number(set, "/spec/updateStrategy/rollingUpdate/partition");
    usize::try_from(count).expect("a partition is at most all")
}

fn is_updated(set: &Value, pod: &Value) -> bool {
    let hash = |text: &str| text.rsplit('-').next().unwrap_or_default().to_owned();
    hash(revision(pod)) == hash(text(set, "/status/updateRevision")) && has_template(set, pod)
}

/// As many pods as there are to be, all in service, and as many updated as the partition says.
fn are_done(set: &Value, pods: &Objects) -> bool {
    let in_service = |pod: &Value| is_ready(pod) && !is_terminating(pod) && matches!(text(pod, STATE), "" | "Normal");
    let updated = pods.values().filter(|pod| has_template(set, pod)).count();
    i64::try_from(pods.len()) == Ok(number(set, "/spec/replicas"))
        && pods.values().all(in_service)
        && updated == expected_updates(set)
        && items(&set["spec"]["scaleStrategy"]["podsToDelete"])
            .all(|named| !pods.contains_key(named.as_str().unwrap_or_default()))
}
