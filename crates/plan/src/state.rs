//! The live state, and the simulated cluster that goes on from it.

use crate::apply;
use crate::change::Going;
use flotilla_api::names::DEFAULT_STORAGE_CLASS;
use flotilla_apimachinery::patch::merge_patch;
use flotilla_controllers::cloneset::Defaults;
use flotilla_engine::wire::Object;
use flotilla_model::records::{Phase, storage_class_of};
use flotilla_model::template::Amounts;
use flotilla_model::{ObjectKey, PodRecord, Resource, SetKind, Timestamp};
use flotilla_sim::Cluster;
use flotilla_sim::nodes::{Failing, Nodes, Pace};
use flotilla_sim::placement;
use flotilla_sim::room::Room;
use flotilla_sim::server::Foreign;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What can be read of a cluster.
#[derive(Clone, Debug)]
pub struct State {
    /// When it was read.
    pub now: Timestamp,
    /// How many nodes there are, if that is known.
    pub nodes: Option<usize>,
    /// Objects, as the API server has them. Kinds that do not matter here are left out on loading. Nodes among them say where pods fit, and
    /// which pods nobody can end; without them, all nodes are up and have room.
    pub objects: Vec<Foreign>,
    /// What the manager decides for all CloneSets, by its feature gates and flags: nothing that is stored in the cluster tells it.
    pub clones: Defaults,
    /// What pods take of nodes that are in none of the namespaces that were read, by the names of nodes.
    pub taken_by_others: BTreeMap<String, Amounts>,
    /// What could not be read: whether something of it is there is not known.
    pub unread: Vec<Unread>,
    /// Which of the objects are there only from when the change is made.
    pub brought: Vec<Brought>,
}

/// An object that a change brings along, beside sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brought {
    /// Its place among the objects.
    place: usize,
    /// As it is there now; none if it is new.
    before: Option<Value>,
}

/// Objects of a kind that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Their group.
    pub group: String,
    /// Their kind, as plural.
    pub resource: String,
    /// Their namespace; none if it is a kind that belongs to none.
    pub namespace: Option<String>,
}

/// What a plan looks at, as group and plural.
const LOOKED_AT: [(&str, &str); 11] = [
    ("", "namespaces"),
    ("", "pods"),
    ("", "persistentvolumeclaims"),
    ("", "resourcequotas"),
    ("", "limitranges"),
    ("apps", "statefulsets"),
    ("apps", "controllerrevisions"),
    ("apps.kruise.io", "statefulsets"),
    ("apps.kruise.io", "clonesets"),
    ("storage.k8s.io", "storageclasses"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
];
/// Kinds of owners that are among it: group, kind, and plural.
const OWNERS: [(&str, &str, &str); 5] = [
    ("", "Pod", "pods"),
    ("", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("apps", "StatefulSet", "statefulsets"),
    ("apps.kruise.io", "StatefulSet", "statefulsets"),
    ("apps.kruise.io", "CloneSet", "clonesets"),
];
/// Volumes of storage, as plural.
pub(crate) const VOLUMES: &str = "persistentvolumes";
/// Labels of volumes that say where they are.
pub const ZONES: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];
/// The only definitions that matter.
const DEFINITIONS: [&str; 2] = ["statefulsets.apps.kruise.io", "clonesets.apps.kruise.io"];
/// Reasons for which containers wait, of which time alone is no cure.
const FAILURES: [&str; 3] = ["ImagePullBackOff", "ErrImagePull", "CrashLoopBackOff"];
/// A pod that is younger may be starting; one whose deletion is overdue for longer is stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// Chance begins here; everything that depends on it is fixed below.
const SEED: u64 = 1;

impl State {
    /// Objects of a kind.
    pub fn all<'s>(&'s self, group: &'s str, resource: &'s str) -> impl Iterator<Item = &'s Value> {
        let wanted = self
            .objects
            .iter()
            .filter(move |o| o.group == group && o.resource == resource);
        wanted.map(|o| &o.object)
    }

    /// Whether objects of a kind, by group and plural, could not be read; in a namespace, if it is a kind that belongs to one.
    pub(crate) fn is_unread(&self, (group, resource): (&str, &str), namespace: Option<&str>) -> bool {
        self.unread.iter().any(|unread| {
            (unread.group.as_str(), unread.resource.as_str()) == (group, resource)
                && unread.namespace.as_deref() == namespace
        })
    }

    /// Adds objects that somebody is about to apply. One that is there already keeps what the file does not name, such as the volume
    /// that a claim is bound to.
    pub fn bring(&mut self, objects: impl IntoIterator<Item = Foreign>) {
        for mut new in objects {
            let name = |object: &Value| {
                let meta = &object["metadata"];
                (meta["namespace"].clone(), meta["name"].clone())
            };
            let same = |old: &Foreign| {
                (&old.group, &old.resource) == (&new.group, &new.resource) && name(&old.object) == name(&new.object)
            };
            match self.objects.iter_mut().enumerate().find(|(_, old)| same(old)) {
                Some((place, old)) => {
                    // A file may name it twice.
                    if self.brought.iter().all(|known| known.place != place) {
                        let before = Some(old.object.clone());
                        self.brought.push(Brought { place, before });
                    }
                    let patch = apply::patch(&old.object, &new.object, None);
                    // Only what is no object cannot be patched; what such a file says is refused elsewhere.
                    if let Ok(patched) = merge_patch(&old.object, &patch) {
                        old.object = patched;
                    }
                }
                None => {
                    // The server would give it one.
                    if new.object["metadata"]["uid"].is_null() {
                        new.object["metadata"]["uid"] = format!("brought-{}", self.objects.len()).into();
                    }
                    // What is in the file is no news of the cluster.
                    if let Some(object) = new.object.as_object_mut() {
                        object.remove("status");
                    }
                    self.brought.push(Brought {
                        place: self.objects.len(),
                        before: None,
                    });
                    self.objects.push(new);
                }
            }
        }
    }

    /// The state before the change, without what it brings along.
    pub(crate) fn before(&self) -> Cow<'_, State> {
        if self.brought.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut state = self.clone();
        let brought = std::mem::take(&mut state.brought);
        let mut is_new = BTreeSet::new();
        for Brought { place, before } in brought {
            match before {
                Some(before) => state.objects[place].object = before,
                None => {
                    is_new.insert(place);
                }
            }
        }
        let mut place = 0;
        state.objects.retain(|_| {
            place += 1;
            !is_new.contains(&(place - 1))
        });
        Cow::Owned(state)
    }

    /// Whether the change brings along an object of such a kind, by its plural, to a namespace.
    pub(crate) fn brings(&self, namespace: &str, is_such: impl Fn(&str) -> bool) -> bool {
        let mut brought = self.brought.iter().map(|brought| &self.objects[brought.place]);
        brought.any(|object| is_such(&object.resource) && object.object["metadata"]["namespace"] == namespace)
    }

    /// Puts into the cluster what the change brings along.
    pub(crate) fn bring_into(&self, cluster: &mut Cluster) -> Result<(), String> {
        let brought = self.brought.iter().map(|brought| &self.objects[brought.place]);
        let mut looked_at = brought.filter(|object| matters(object));
        looked_at.try_for_each(|object| cluster.server.bring(self.as_loaded(object)))
    }

    /// The simulated cluster in this state.
    pub(crate) fn load(&self) -> Result<Cluster, String> {
        let mut cluster = Cluster::new(SEED, self.now);
        cluster.nodes = Nodes::new(self.nodes.unwrap_or(1).max(1), usize::MAX);
        cluster.nodes.pace = pace();
        // Their names alone are read.
        cluster.nodes.takes_maps_for_full = true;
        cluster.nodes.failing_images = self.failing_images();
        cluster.nodes.real = Room::new(
            self.nodes().cloned().collect(),
            self.taken_by_others.clone(),
            self.reach(),
        );
        cluster.server.note_elsewhere(self.owners_elsewhere());
        cluster.server.restore(self.what_matters())?;
        let going = self.all("", "persistentvolumeclaims").map(|claim| &claim["metadata"]);
        for meta in going.filter(|meta| !meta["deletionTimestamp"].is_null()) {
            let text = |field: &str| meta[field].as_str().unwrap_or_default();
            cluster.go_on_with_claim(&ObjectKey::new(text("namespace"), text("name")));
        }
        cluster.nodes.cut_off = self
            .cut_off(&cluster)
            .iter()
            .map(|(pod, _)| pod.meta.uid.clone())
            .collect();
        let starting = pods(&cluster).filter(|pod| self.goes_on(pod) && !is_cut_off(&cluster, pod));
        let starting: Vec<_> = starting.cloned().collect();
        for pod in starting {
            cluster.go_on(&pod.meta.key);
        }
        Ok(cluster)
    }

    /// Owners that are not looked for, by UID. They are taken to be there: nothing of theirs is collected because of what was not read.
    fn owners_elsewhere(&self) -> BTreeSet<String> {
        let objects = self.objects.iter().filter(|object| matters(object));
        let owners = objects.flat_map(|object| owners(&object.object).map(|owner| (&object.object, owner)));
        let elsewhere = owners.filter(|(object, owner)| !self.is_looked_for(owner, object));
        elsewhere
            .filter_map(|(_, owner)| owner["uid"].as_str().map(str::to_owned))
            .collect()
    }

    /// Whether an owner of an object would be among what was read, if it were there.
    fn is_looked_for(&self, owner: &Value, object: &Value) -> bool {
        let version = owner["apiVersion"].as_str().unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let found = OWNERS
            .iter()
            .find(|(known, kind, _)| *known == group && owner["kind"] == *kind);
        found.is_some_and(|(group, _, resource)| {
            !self.is_unread((group, resource), object["metadata"]["namespace"].as_str())
        })
    }

    /// From which nodes volumes can be reached, by their names. Whom one was reserved for once does not matter: claims name theirs.
    fn reach(&self) -> BTreeMap<String, Value> {
        let volumes = self.all("", VOLUMES);
        volumes
            .filter_map(|volume| Some((volume["metadata"]["name"].as_str()?.to_owned(), reached_from(volume)?)))
            .collect()
    }

    /// A set as the API server has it.
    pub(crate) fn set(&self, kind: SetKind, key: &ObjectKey) -> Option<&Value> {
        self.all(kind.resource().group(), kind.resource().plural())
            .find(|object| {
                let meta = &object["metadata"];
                meta["name"] == key.name.as_str() && meta["namespace"] == key.namespace.as_ref()
            })
    }

    /// Sets that are being deleted.
    pub(crate) fn going(&self) -> Going {
        let kinds = [SetKind::Native, SetKind::Advanced, SetKind::Clone].into_iter();
        let going = kinds.flat_map(|kind| {
            let sets = self
                .all(kind.resource().group(), kind.resource().plural())
                .map(|set| &set["metadata"]);
            let going = sets.filter(|meta| !meta["deletionTimestamp"].is_null());
            going.map(move |meta| {
                let text = |field: &str| meta[field].as_str().unwrap_or_default();
                (kind, ObjectKey::new(text("namespace"), text("name")))
            })
        });
        going.collect()
    }

    /// The nodes, if they could be read.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Value> {
        self.all("", "nodes")
    }

    /// Pods whose node is silent, and its name: nobody ends, starts or changes them.
    pub(crate) fn cut_off(&self, cluster: &Cluster) -> Vec<(Arc<PodRecord>, String)> {
        let silent = self.nodes().filter(|node| placement::is_silent(node));
        let silent: BTreeSet<&str> = silent.filter_map(|node| node["metadata"]["name"].as_str()).collect();
        let on_one = pods(cluster).filter_map(|pod| Some((pod.clone(), pod.node.as_deref()?.to_owned())));
        on_one.filter(|(_, node)| silent.contains(node.as_str())).collect()
    }

    fn what_matters(&self) -> Vec<Foreign> {
        let looked_at = self.objects.iter().filter(|object| matters(object));
        let mut objects: Vec<Foreign> = looked_at.map(|object| self.as_loaded(object)).collect();
        let known: BTreeSet<&str> = self
            .all("", "namespaces")
            .filter_map(|n| n["metadata"]["name"].as_str())
            .collect();
        let used = self
            .objects
            .iter()
            .filter_map(|o| o.object["metadata"]["namespace"].as_str());
        let missing: BTreeSet<&str> = used.filter(|namespace| !known.contains(namespace)).collect();
        objects.extend(missing.into_iter().map(|name| Foreign {
            group: String::new(),
            resource: "namespaces".to_owned(),
            object: json!({"metadata": {"name": name}}),
        }));
        objects
    }

    /// An object as the simulated server is to have it. Who wrote what decides nothing here, and the controller that wrote the status so far is
    /// not there any more.
    fn as_loaded(&self, foreign: &Foreign) -> Foreign {
        let mut foreign = foreign.clone();
        foreign.object["metadata"]
            .as_object_mut()
            .map(|meta| meta.remove("managedFields"));
        self.keep_owners_that_count(&mut foreign.object);
        if foreign.resource == "persistentvolumeclaims" && self.waits_for_a_pod(&foreign.object) {
            bind(&mut foreign.object);
        }
        foreign
    }

    /// Of owners that are not looked for, one keeps an object as well as many: whoever may make objects can name very many.
    fn keep_owners_that_count(&self, object: &mut Value) {
        let mut seen = BTreeSet::new();
        let mut has_one_elsewhere = false;
        let kept: Vec<Value> = owners(object)
            .filter(|owner| {
                let is_new = seen.insert(owner["uid"].as_str());
                let is_plain = owner["controller"] != true && !self.is_looked_for(owner, object);
                is_new && !(is_plain && std::mem::replace(&mut has_one_elsewhere, true))
            })
            .cloned()
            .collect();
        if !kept.is_empty() {
            object["metadata"]["ownerReferences"] = Value::Array(kept);
        }
    }

    /// Whether a claim has no volume because it is not made yet, or because no pod that mounts it was scheduled yet. That one is found then is
    /// taken for granted, as it is for claims of templates; unless a pod waits for it in vain already.
    fn waits_for_a_pod(&self, claim: &Value) -> bool {
        let meta = &claim["metadata"];
        // Nobody has looked at one that is about to be made.
        if claim["status"]["phase"].is_null() {
            return true;
        }
        if claim["status"]["phase"] != "Pending" || !meta["deletionTimestamp"].is_null() {
            return false;
        }
        let mounts = |pod: &&Value| {
            let mut volumes = list(&pod["spec"]["volumes"]);
            pod["metadata"]["namespace"] == meta["namespace"]
                && volumes.any(|volume| volume["persistentVolumeClaim"]["claimName"] == meta["name"])
        };
        let is_starting = |pod: &Value| {
            let made = pod["metadata"]["creationTimestamp"]
                .as_str()
                .and_then(|at| at.parse().ok());
            made.is_some_and(|made| self.now.since(made) <= PATIENCE)
        };
        self.binds_late(storage_class_of(claim)) && self.all("", "pods").filter(mounts).all(is_starting)
    }

    /// Whether volumes of a class are made for the first pod; without a name, those of the default class.
    fn binds_late(&self, name: Option<&str>) -> bool {
        let mut classes = self.all("storage.k8s.io", "storageclasses").filter(|class| match name {
            Some(name) => class["metadata"]["name"] == name,
            None => is_default_class(class),
        });
        classes.any(|class| class["volumeBindingMode"] == "WaitForFirstConsumer")
    }

    /// Whether a pod that is not as it should be will come right by itself.
    fn goes_on(&self, pod: &PodRecord) -> bool {
        if let Some(deadline) = pod.meta.deleted {
            return self.now.since(deadline) <= PATIENCE;
        }
        let is_starting = matches!(pod.phase, Phase::Pending | Phase::Running) && !pod.ready.is_true;
        is_starting && pod.trouble.is_none() && self.now.since(pod.meta.created) <= PATIENCE
    }

    /// Pods that are not ready and stay so, or are stuck in their deletion.
    pub(crate) fn stuck(&self, cluster: &Cluster) -> Vec<Arc<PodRecord>> {
        let comes_right = |pod: &PodRecord| self.goes_on(pod) && !is_cut_off(cluster, pod);
        let stuck = pods(cluster).filter(|pod| !pod.is_healthy() && !comes_right(pod));
        stuck.cloned().collect()
    }

    /// Images whose containers wait for ever somewhere and run nowhere.
    fn failing_images(&self) -> BTreeMap<String, Failing> {
        let mut failing = BTreeMap::new();
        let mut running = BTreeSet::new();
        for pod in self.all("", "pods") {
            let images = [
                ("containers", "containerStatuses"),
                ("initContainers", "initContainerStatuses"),
            ];
            for (containers, statuses) in images {
                for container in list(&pod["spec"][containers]) {
                    let status = list(&pod["status"][statuses]).find(|s| s["name"] == container["name"]);
                    let (Some(image), Some(status)) = (container["image"].as_str(), status) else {
                        continue;
                    };
                    let waiting = &status["state"]["waiting"];
                    let text = |field: &str| waiting[field].as_str().unwrap_or_default().to_owned();
                    if FAILURES.contains(&text("reason").as_str()) {
                        failing.entry(image.to_owned()).or_insert_with(|| Failing {
                            reason: text("reason"),
                            message: text("message"),
                        });
                    } else if status["ready"] == true {
                        running.insert(image);
                    }
                }
            }
        }
        failing.retain(|image, _| !running.contains(image.as_str()));
        failing
    }
}

/// The owners that an object names.
fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    list(&object["metadata"]["ownerReferences"])
}

/// Whether an object decides anything in the simulated cluster.
fn matters(object: &Foreign) -> bool {
    let name = object.object["metadata"]["name"].as_str().unwrap_or_default();
    let is_ours = object.resource != "customresourcedefinitions" || DEFINITIONS.contains(&name);
    is_ours && LOOKED_AT.contains(&(object.group.as_str(), object.resource.as_str()))
}

/// Whether claims that name no class are of this storage class.
pub(crate) fn is_default_class(class: &Value) -> bool {
    let annotations = &class["metadata"]["annotations"];
    DEFAULT_STORAGE_CLASS.iter().any(|name| annotations[*name] == "true")
}

/// The node selector of a volume, with what its labels say of zones and regions, in which several are joined by `__`.
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/#topologykubernetesiozone>
fn reached_from(volume: &Value) -> Option<Value> {
    let labels = volume["metadata"]["labels"].as_object().into_iter().flatten();
    let places: Vec<Value> = labels
        .filter(|(name, _)| ZONES.contains(&name.as_str()))
        .filter_map(|(name, value)| {
            let values: Vec<&str> = value.as_str()?.split("__").collect();
            Some(json!({"key": name, "operator": "In", "values": values}))
        })
        .collect();
    let required = &volume["spec"]["nodeAffinity"]["required"];
    if places.is_empty() {
        return required.is_object().then(|| required.clone());
    }
    let mut terms: Vec<Value> = list(&required["nodeSelectorTerms"])
        .filter(|term| term.is_object())
        .cloned()
        .collect();
    if !required.is_object() {
        terms.push(json!({}));
    }
    for term in &mut terms {
        let rules = list(&term["matchExpressions"]).cloned().chain(places.clone());
        term["matchExpressions"] = rules.collect();
    }
    Some(json!({"nodeSelectorTerms": terms}))
}

/// Gives a claim the volume that it asks for.
fn bind(claim: &mut Value) {
    let asked = &claim["spec"]["resources"]["requests"];
    let capacity = if asked.is_object() { asked.clone() } else { json!({}) };
    claim["status"] = json!({"phase": "Bound", "capacity": capacity});
}

/// The items of a list, none if it is not there.
pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Whether nobody ends, starts or changes a pod, however young it is.
fn is_cut_off(cluster: &Cluster, pod: &PodRecord) -> bool {
    cluster.nodes.cut_off.contains(&pod.meta.uid)
}

/// All pods.
pub(crate) fn pods(cluster: &Cluster) -> impl Iterator<Item = &Arc<PodRecord>> {
    let all = cluster.server.all(Resource::Pods);
    all.filter_map(|stored| match &stored.object {
        Some(Object::Pod(pod)) => Some(pod),
        _ => None,
    })
}

/// Everything takes the same time always, so that pods that begin together are ready together.
fn pace() -> Pace {
    let exactly = |ms: u64| ms..ms + 1;
    Pace {
        bind_ms: exactly(50),
        start_ms: exactly(500),
        ready_ms: exactly(500),
        see_ms: exactly(50),
        restart_ms: exactly(500),
        end_ms: exactly(500),
        slow_start_ms: 500,
        slow_end_ms: 500,
        claim_ms: exactly(100),
        collect_ms: exactly(100),
    }
}
