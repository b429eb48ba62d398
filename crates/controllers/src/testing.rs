//! Fixtures that say only what matters: a cluster in memory, and pods, claims and revisions made by a few words.

use crate::shared::identity::{Membership, membership};
use flotilla_api::names;
use flotilla_model::decision::Scope;
use flotilla_model::records::{
    ContainerSpec, ContainerStatus, DetailSpec, GateCondition, Phase, PodDetail, PodTrouble, ReadyCondition,
    VolumeClaim,
};
use flotilla_model::set::read_set;
use flotilla_model::{
    ClaimRecord, ConfigMapRecord, Hints, ImagePullJobRecord, Interner, Labels, Meta, NodeRecord, ObjectKey, Owner,
    OwnerRef, PassContext, PodRecord, Reader, RecordedClaims, Resource, RevisionRecord, SetKind, SetRecord,
    StorageClassRecord, Timestamp, Uid,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) const NS: &str = "ns";

/// Seconds at which tests take place, unless they say otherwise.
pub(crate) const NOW: i64 = 100_000;

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

pub(crate) fn set_uid(set: &str) -> Uid {
    Uid::new(&format!("uid-of-{set}"))
}

fn meta(name: &str) -> Meta {
    Meta {
        key: ObjectKey::new(NS, name),
        uid: Uid::new(&format!("uid-of-{name}")),
        resource_version: 1,
        created: at(NOW - 5000),
        deleted: None,
        labels: Labels::default(),
        owners: None,
    }
}

pub(crate) fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerRef {
    OwnerRef {
        api_version: api_version.into(),
        kind: kind.into(),
        name: name.into(),
        uid: Uid::new(uid),
        controller: false,
        block_owner_deletion: false,
    }
}

/// What is visible of a pod with these containers and their launch priorities: running image `v1`, in service, both gates.
pub(crate) fn detail(containers: &[(&str, Option<i64>)]) -> PodDetail {
    let spec = |(name, priority): &(&str, Option<i64>)| ContainerSpec {
        name: (*name).into(),
        image: "v1".into(),
        priority: *priority,
        ..ContainerSpec::default()
    };
    let gate = |index| {
        Some(GateCondition {
            index,
            is_true: true,
            message: "".into(),
            since: Some(at(NOW - 3600)),
        })
    };
    PodDetail {
        spec: Arc::new(DetailSpec {
            gates: vec![names::IN_PLACE_UPDATE_READY.into(), names::KRUISE_POD_READY.into()],
            containers: containers.iter().map(spec).collect(),
            never_restarts: false,
        }),
        finalizers: Arc::new([]),
        annotations: Labels::default(),
        is_annotated: false,
        statuses: containers.iter().map(|_| Some(container_status("v1"))).collect(),
        observed_generation: 0,
        generation: 1,
        containers_ready: true,
        in_place_ready: gate(0),
        kruise_ready: gate(1),
        resize_pending: None,
        resize_in_progress: None,
        plainly_done: flotilla_model::Memo::default(),
        spec_bytes: flotilla_model::Memo::default(),
    }
}

/// What the kubelet says of a container that has run this image since long ago.
pub(crate) fn container_status(image: &str) -> ContainerStatus {
    ContainerStatus {
        image: image.into(),
        image_id: format!("id-of-{image}").into(),
        container_id: "containerd://1".into(),
        restart_count: 0,
        started_at: Some(at(NOW - 3600)),
        is_ready: true,
        is_started: true,
        resources: None,
    }
}

/// A pod: running, ready for an hour, made from no revision, until told otherwise.
#[derive(Clone, Debug)]
pub(crate) struct PodFixture {
    name: String,
    labels: BTreeMap<String, String>,
    record: PodRecord,
    orphan: bool,
}

pub(crate) fn pod(name: &str) -> PodFixture {
    let record = PodRecord {
        meta: meta(name),
        phase: Phase::Running,
        ready: ReadyCondition {
            is_true: true,
            since: Some(at(NOW - 3600)),
        },
        has_been_ready: true,
        has_name_label: true,
        has_index_label: true,
        has_instance_label: false,
        node: Some("node-0".into()),
        volumes: None,
        trouble: None,
        detail: None,
    };
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    PodFixture {
        name: name.to_owned(),
        labels,
        record,
        orphan: false,
    }
}

impl PodFixture {
    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }
    pub(crate) fn without_label(mut self, key: &str) -> Self {
        self.labels.remove(key);
        self
    }
    /// With what updates in place look at, one container `main` to begin with.
    pub(crate) fn detailed(mut self, change: impl FnOnce(&mut PodDetail)) -> Self {
        let mut known = self
            .record
            .detail
            .take()
            .map_or_else(|| detail(&[("main", None)]), |d| (*d).clone());
        change(&mut known);
        self.record.detail = Some(Arc::new(known));
        self
    }
    pub(crate) fn annotated(self, key: &str, value: &str) -> Self {
        self.detailed(|d| {
            let kept: Vec<(String, String)> = d
                .annotations
                .iter()
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect();
            let all = kept.iter().map(|(k, v)| (k.as_str(), v.as_str())).chain([(key, value)]);
            d.annotations = all.collect();
            d.is_annotated = true;
        })
    }
    pub(crate) fn on(mut self, node: Option<&str>) -> Self {
        self.record.node = node.map(Into::into);
        self
    }
    pub(crate) fn unlabelled(mut self) -> Self {
        self.labels.clear();
        self
    }
    pub(crate) fn revision(self, name: &str) -> Self {
        self.label(names::REVISION_LABEL, name)
    }
    pub(crate) fn unready(mut self) -> Self {
        self.record.ready.is_true = false;
        self
    }
    pub(crate) fn never_ready(mut self) -> Self {
        self.record.ready = ReadyCondition {
            is_true: false,
            since: Some(self.record.meta.created),
        };
        self.record.has_been_ready = false;
        self
    }
    pub(crate) fn ready_since(mut self, seconds: i64) -> Self {
        self.record.ready = ReadyCondition {
            is_true: true,
            since: Some(at(seconds)),
        };
        self
    }
    pub(crate) fn unready_since(mut self, seconds: i64) -> Self {
        self.record.ready = ReadyCondition {
            is_true: false,
            since: Some(at(seconds)),
        };
        self
    }
    pub(crate) fn phase(mut self, phase: Phase) -> Self {
        self.record.phase = phase;
        self.record.ready.is_true &= phase == Phase::Running;
        self
    }
    pub(crate) fn terminating(mut self) -> Self {
        self.record.meta.deleted = Some(at(NOW - 5));
        self
    }
    pub(crate) fn created(mut self, seconds: i64) -> Self {
        self.record.meta.created = at(seconds);
        self
    }
    pub(crate) fn no_name_label(mut self) -> Self {
        self.record.has_name_label = false;
        self
    }
    pub(crate) fn mounts(mut self, volumes: &[&str]) -> Self {
        let list = volumes
            .iter()
            .map(|v| VolumeClaim {
                volume: (*v).into(),
                claim: None,
            })
            .collect();
        self.record.volumes = Some(Arc::new(list));
        self
    }
    /// With a volume from a claim that is not named after the pod.
    pub(crate) fn mounting(mut self, volume: &str, claim: &str) -> Self {
        let list = vec![VolumeClaim {
            volume: volume.into(),
            claim: Some(claim.into()),
        }];
        self.record.volumes = Some(Arc::new(list));
        self
    }
    pub(crate) fn trouble(mut self, container: &str, reason: &str) -> Self {
        let trouble = PodTrouble {
            container: container.into(),
            reason: reason.into(),
            message: "it says so".into(),
        };
        self.record.trouble = Some(Arc::new(trouble));
        self
    }
    pub(crate) fn orphan(mut self) -> Self {
        self.orphan = true;
        self
    }
    pub(crate) fn owned_by(mut self, owner: OwnerRef) -> Self {
        self.record.meta.owners = Some(Arc::new(vec![OwnerRef {
            controller: true,
            ..owner
        }]));
        self
    }

    pub(crate) fn build(mut self, set: &str) -> PodRecord {
        self.record.meta.labels = self.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        if !self.orphan && self.record.meta.owners.is_none() {
            let owner = OwnerRef {
                uid: set_uid(set),
                controller: true,
                ..owner("apps/v1", "StatefulSet", set, "")
            };
            self.record.meta.owners = Some(Arc::new(vec![owner]));
        }
        debug_assert_eq!(self.name, self.record.name());
        self.record
    }
}

/// A claim of 10 bytes, bound.
#[derive(Clone, Debug)]
pub(crate) struct ClaimFixture(ClaimRecord);

pub(crate) fn claim(name: &str) -> ClaimFixture {
    ClaimFixture(ClaimRecord {
        meta: meta(name),
        storage_class: None,
        access_modes: None,
        requested_bytes: 10,
        capacity_bytes: 10,
        resize_pending_since: None,
        is_bound: true,
        expanded_by: None,
        annotations: Labels::default(),
    })
}

impl ClaimFixture {
    pub(crate) fn owners(mut self, owners: Vec<OwnerRef>) -> Self {
        self.0.meta.owners = (!owners.is_empty()).then(|| Arc::new(owners));
        self
    }
    /// A claim of the CloneSet, for the pod with this id.
    pub(crate) fn of_clone(mut self, id: &str) -> Self {
        self.0.meta.labels = [(names::INSTANCE_ID_LABEL, id)].into_iter().collect();
        self.owners(vec![OwnerRef {
            uid: set_uid("web"),
            controller: true,
            ..owner("apps.kruise.io/v1beta1", "CloneSet", "web", "")
        }])
    }
    pub(crate) fn annotated(mut self, key: &str, value: &str) -> Self {
        self.0.annotations = [(key, &*ClaimRecord::kept_value(value))].into_iter().collect();
        self
    }
    pub(crate) fn without_labels(mut self) -> Self {
        self.0.meta.labels = Labels::default();
        self
    }
    pub(crate) fn size(mut self, bytes: u64) -> Self {
        self.0.requested_bytes = bytes;
        self.0.capacity_bytes = bytes;
        self
    }
    pub(crate) fn capacity(mut self, bytes: u64) -> Self {
        self.0.capacity_bytes = bytes;
        self
    }
    pub(crate) fn class(mut self, class: &str) -> Self {
        self.0.storage_class = Some(class.into());
        self
    }
    pub(crate) fn modes(mut self, modes: &str) -> Self {
        self.0.access_modes = Some(modes.into());
        self
    }
    pub(crate) fn terminating(mut self) -> Self {
        self.0.meta.deleted = Some(at(NOW - 5));
        self
    }
    pub(crate) fn resize_pending_since(mut self, seconds: i64) -> Self {
        self.0.resize_pending_since = Some(at(seconds));
        self
    }
    pub(crate) fn build(self) -> ClaimRecord {
        self.0
    }
}

/// A set as a user writes it, and everything around it: what a test starts from.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) set: Value,
    pub(crate) kind: SetKind,
    pub(crate) now: Timestamp,
    pub(crate) observing_since: Timestamp,
    pub(crate) hints: Hints,
    pub(crate) record: Option<Arc<SetRecord>>,
    pub(crate) pods: BTreeMap<String, Arc<PodRecord>>,
    /// Names of pods by what they mount.
    pub(crate) pods_by_claim: BTreeMap<String, BTreeSet<String>>,
    pub(crate) own_pods: Vec<Arc<PodRecord>>,
    pub(crate) orphan_pods: Vec<Arc<PodRecord>>,
    pub(crate) claims: BTreeMap<String, Arc<ClaimRecord>>,
    pub(crate) config_maps: BTreeMap<String, Arc<ConfigMapRecord>>,
    pub(crate) revisions: BTreeMap<String, Arc<RevisionRecord>>,
    pub(crate) own_revisions: Vec<Arc<RevisionRecord>>,
    pub(crate) orphan_revisions: Vec<Arc<RevisionRecord>>,
    classes: BTreeMap<String, Arc<StorageClassRecord>>,
    /// Claims by their managing owner.
    pub(crate) claims_by_owner: BTreeMap<Uid, Vec<Arc<ClaimRecord>>>,
    pub(crate) nodes: BTreeMap<String, Arc<NodeRecord>>,
    /// Those of the set, where the kind is known.
    pub(crate) jobs: Option<Vec<Arc<ImagePullJobRecord>>>,
    pub(crate) other_jobs: Vec<Arc<ImagePullJobRecord>>,
    /// What holds for all CloneSets.
    pub(crate) defaults: crate::cloneset::Defaults,
}

pub(crate) fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

/// An Advanced set `web` of `replicas` pods with image `v2`, rolling from revision `old` (image v1) to `new` (image v2), Parallel.
pub(crate) fn advanced(replicas: i32) -> Cluster {
    Cluster::new(SetKind::Advanced, replicas)
}

/// The same as a native set.
pub(crate) fn native(replicas: i32) -> Cluster {
    Cluster::new(SetKind::Native, replicas)
}

/// A CloneSet `web` of `replicas` pods, from revision `web-old` (image v1) to `web-new` (image v2).
pub(crate) fn clones(replicas: i32) -> Cluster {
    let mut cluster = Cluster::new(SetKind::Clone, replicas).no_revisions();
    cluster.set["status"] = json!({"currentRevision": "web-old", "updateRevision": "web-new"});
    for field in ["serviceName", "podManagementPolicy"] {
        cluster.set["spec"].as_object_mut().expect("a spec").remove(field);
    }
    cluster.revision("web-old", 1, "v1").revision("web-new", 2, "v2")
}

/// Claim templates of these names that ask for 10 bytes.
pub(crate) fn templates_of_claims(names: &[&str]) -> Value {
    let of_name =
        |name: &&str| json!({"metadata": {"name": name}, "spec": {"resources": {"requests": {"storage": "10"}}}});
    names.iter().map(of_name).collect()
}

impl Cluster {
    fn new(kind: SetKind, replicas: i32) -> Self {
        let set = json!({
            "metadata": {"name": "web", "namespace": NS, "uid": set_uid("web").to_string(), "resourceVersion": "7", "generation": 1},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "serviceName": "svc",
                "template": template("v2"), "podManagementPolicy": "Parallel",
            },
            "status": {"currentRevision": "old", "updateRevision": "new"},
        });
        let mut cluster = Cluster {
            set,
            kind,
            now: at(NOW),
            observing_since: at(0),
            hints: Hints {
                generation: 1,
                // Those that tests name: what is tried is shown where it is the subject.
                accepted: ["old", "new", "web-old", "web-new"].map(str::to_owned).into(),
                ..Hints::default()
            },
            record: None,
            pods: BTreeMap::new(),
            pods_by_claim: BTreeMap::new(),
            own_pods: Vec::new(),
            orphan_pods: Vec::new(),
            claims: BTreeMap::new(),
            config_maps: BTreeMap::new(),
            revisions: BTreeMap::new(),
            own_revisions: Vec::new(),
            orphan_revisions: Vec::new(),
            classes: BTreeMap::new(),
            claims_by_owner: BTreeMap::new(),
            nodes: BTreeMap::new(),
            jobs: None,
            other_jobs: Vec::new(),
            defaults: crate::cloneset::Defaults::default(),
        };
        cluster = cluster.revision("old", 1, "v1").revision("new", 2, "v2");
        cluster
    }

    pub(crate) fn ordered(mut self) -> Self {
        self.set["spec"]["podManagementPolicy"] = json!("OrderedReady");
        self
    }
    /// Sets a field of the spec by its JSON pointer; parents are made.
    pub(crate) fn spec(mut self, pointer: &str, value: Value) -> Self {
        put(&mut self.set["spec"], pointer, value);
        self
    }
    pub(crate) fn rolling(self, value: Value) -> Self {
        self.spec("/updateStrategy/rollingUpdate", value)
    }
    pub(crate) fn status(mut self, pointer: &str, value: Value) -> Self {
        put(&mut self.set["status"], pointer, value);
        self
    }
    pub(crate) fn annotation(mut self, key: &str, value: &str) -> Self {
        self.set["metadata"]["annotations"][key] = json!(value);
        self
    }
    pub(crate) fn deleted(mut self) -> Self {
        self.set["metadata"]["deletionTimestamp"] = json!(at(NOW).to_string());
        self
    }
    pub(crate) fn claim_templates(mut self, names: &[&str]) -> Self {
        let mut sorted = names.to_vec();
        sorted.sort_unstable();
        let words: String = sorted.iter().flat_map(|name| ["_", *name]).collect();
        let revisions = self.hints.accepted.iter().map(|of| Scope::revision_tried(of));
        let accepted: Vec<String> = revisions.map(|revision| format!("{revision}{words}")).collect();
        self.hints.accepted.extend(accepted);
        self.spec("/volumeClaimTemplates", templates_of_claims(names))
    }
    pub(crate) fn hints(mut self, hints: Hints) -> Self {
        self.hints = hints;
        self
    }

    pub(crate) fn revision(self, name: &str, number: i64, image: &str) -> Self {
        self.revision_of(name, number, &template(image))
    }
    pub(crate) fn revision_of(self, name: &str, number: i64, template: &Value) -> Self {
        let owner = OwnerRef {
            uid: set_uid("web"),
            controller: true,
            ..owner("apps/v1", "StatefulSet", "web", "")
        };
        self.revision_record(name, number, template, Some(owner))
    }
    /// The revision added last was made when the set had these claim templates.
    pub(crate) fn recording_claims(mut self, names: &[&str]) -> Self {
        let last = self.own_revisions.last_mut().expect("a revision was added");
        Arc::make_mut(last).claim_templates = Some(Arc::new(RecordedClaims::new(&templates_of_claims(names))));
        self.revisions.insert(last.name().to_owned(), last.clone());
        self
    }
    /// On the revisions that are there it is recorded that claims of the template `data` have asked for these sizes.
    pub(crate) fn recording_sizes(mut self, sizes: &[u64]) -> Self {
        let sizes = Arc::new([("data".to_owned(), sizes.to_vec())].into_iter().collect());
        for revision in &mut self.own_revisions {
            Arc::make_mut(revision).claim_sizes = Some(Arc::clone(&sizes));
            self.revisions.insert(revision.name().to_owned(), revision.clone());
        }
        self
    }
    pub(crate) fn revision_record(
        mut self,
        name: &str,
        number: i64,
        template: &Value,
        owner: Option<OwnerRef>,
    ) -> Self {
        let mut meta = meta(name);
        meta.labels = [("app", "web")].into_iter().collect();
        meta.owners = owner.map(|o| Arc::new(vec![o]));
        let record = Arc::new(RevisionRecord::new(
            meta,
            number,
            &json!({"spec": {"template": template}}),
            None,
        ));
        match record.meta.controller() {
            Some(o) if o.uid == set_uid("web") => self.own_revisions.push(record.clone()),
            None => self.orphan_revisions.push(record.clone()),
            Some(_) => {}
        }
        self.revisions.insert(name.to_owned(), record);
        self
    }
    /// Labels a revision.
    pub(crate) fn labelled(mut self, revision: &str, label: &str) -> Self {
        let found = self.own_revisions.iter_mut().find(|r| r.name() == revision);
        let record = found.expect("a revision of the set");
        let labels: Vec<(String, String)> = record
            .meta
            .labels
            .iter()
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect();
        let all = labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        Arc::make_mut(record).meta.labels = all.chain([(label, "true")]).collect();
        self.revisions.insert(revision.to_owned(), record.clone());
        self
    }
    /// Takes all labels off the set's revisions.
    pub(crate) fn unlabelled_revisions(mut self) -> Self {
        for record in &mut self.own_revisions {
            Arc::make_mut(record).meta.labels = std::iter::empty().collect();
            self.revisions.insert(record.name().to_owned(), record.clone());
        }
        self
    }
    /// Deletes a revision of the set, which something keeps.
    pub(crate) fn deleted_revision(mut self, name: &str) -> Self {
        for record in self.own_revisions.iter_mut().filter(|record| record.name() == name) {
            Arc::make_mut(record).meta.deleted = Some(at(990));
            self.revisions.insert(name.to_owned(), record.clone());
        }
        self
    }
    /// An `ImagePullJob` of the set, for the revision with this hash; the kind is known.
    pub(crate) fn job(self, name: &str, hash: &str) -> Self {
        self.job_meta(name, hash, |_| {})
    }
    pub(crate) fn job_meta(mut self, name: &str, hash: &str, change: impl FnOnce(&mut Meta)) -> Self {
        let mut meta = meta(name);
        meta.labels = [(names::REVISION_HASH_LABEL, hash)].into_iter().collect();
        meta.owners = Some(Arc::new(vec![OwnerRef {
            uid: set_uid("web"),
            controller: true,
            ..owner("apps.kruise.io/v1beta1", "CloneSet", "web", "")
        }]));
        change(&mut meta);
        let own = self.jobs.get_or_insert_default();
        let is_own = meta.is_controlled_by(&set_uid("web"));
        let list = if is_own { own } else { &mut self.other_jobs };
        list.push(Arc::new(ImagePullJobRecord { meta }));
        self
    }
    pub(crate) fn no_revisions(mut self) -> Self {
        self.revisions.clear();
        self.own_revisions.clear();
        self
    }
    pub(crate) fn pod(self, fixture: PodFixture) -> Self {
        let record = fixture.build("web");
        self.pod_record(record)
    }
    pub(crate) fn pod_record(mut self, record: PodRecord) -> Self {
        let record = Arc::new(record);
        match record.meta.controller() {
            Some(o) if o.uid == set_uid("web") => insert(&mut self.own_pods, record.clone()),
            None => insert(&mut self.orphan_pods, record.clone()),
            Some(_) => {}
        }
        self.put(record);
        self
    }
    /// A pod by its name alone, whoever manages it.
    pub(crate) fn put(&mut self, record: Arc<PodRecord>) {
        for (_, claim) in record.claims() {
            let names = self.pods_by_claim.entry(claim).or_default();
            names.insert(record.name().to_owned());
        }
        self.pods.insert(record.name().to_owned(), record);
    }
    /// Pods `web-<ordinal>` at a revision, available.
    pub(crate) fn pods(mut self, ordinals: impl IntoIterator<Item = i64>, revision: &str) -> Self {
        for ordinal in ordinals {
            self = self.pod(pod(&format!("web-{ordinal}")).revision(revision));
        }
        self
    }
    pub(crate) fn claim(mut self, fixture: ClaimFixture) -> Self {
        let record = Arc::new(fixture.build());
        if let Some(owner) = record.owner() {
            let of_owner = self.claims_by_owner.entry(owner.uid.clone()).or_default();
            of_owner.push(record.clone());
        }
        self.claims.insert(record.meta.key.name.to_string(), record);
        self
    }
    pub(crate) fn class(mut self, name: &str, allows_expansion: bool) -> Self {
        let record = StorageClassRecord {
            meta: meta(name),
            allows_expansion,
            is_default: false,
        };
        self.classes.insert(name.to_owned(), Arc::new(record));
        self
    }

    /// Reads the set as it stands.
    pub(crate) fn record(&self) -> Arc<SetRecord> {
        Arc::new(read_set(self.kind, &self.set, &mut Interner::new()).expect("the fixture has metadata"))
    }

    /// Runs one pass.
    pub(crate) fn decide(&self) -> flotilla_model::Decision {
        let mut cluster = self.clone();
        cluster.record = Some(cluster.record());
        cluster.pass()
    }

    /// Runs one pass over the set that was read before; tests of many passes read it once.
    pub(crate) fn pass(&self) -> flotilla_model::Decision {
        let record = self.record.clone().expect("the set has been read");
        let context = PassContext {
            now: self.now,
            observing_since: self.observing_since,
            entropy: 0,
            hints: &self.hints,
        };
        if record.kind == SetKind::Clone {
            let view = crate::cloneset::view::View::observe(record, self, self.defaults, context).expect("a CloneSet");
            return crate::cloneset::decide::decide(&view);
        }
        let view = crate::statefulset::view::View::observe(record, self, context);
        crate::statefulset::decide::decide(&view)
    }

    /// The pods that the set manages and wants to keep managing, with their ordinals.
    pub(crate) fn members(&self) -> impl Iterator<Item = (i64, &Arc<PodRecord>)> {
        let selected = self.own_pods.iter().filter(|p| p.label("app") == Some("web"));
        selected.filter_map(|p| match membership("web", p.name()) {
            Membership::Member(ordinal) => Some((ordinal, p)),
            _ => None,
        })
    }
}

/// Puts a pod where the cache has it: pods are sorted by name.
fn insert(pods: &mut Vec<Arc<PodRecord>>, pod: Arc<PodRecord>) {
    let place = pods.partition_point(|other| other.name() <= pod.name());
    pods.insert(place, pod);
}

fn put(target: &mut Value, pointer: &str, value: Value) {
    let mut place = target;
    for field in pointer.split('/').skip(1) {
        place = &mut place[field];
    }
    *place = value;
}

impl Reader for Cluster {
    fn set(&self, _kind: SetKind, key: &ObjectKey) -> Option<&Arc<SetRecord>> {
        self.record.as_ref().filter(|s| s.meta.key == *key)
    }
    fn sets_in(&self, _kind: SetKind, _namespace: &str) -> Vec<Arc<SetRecord>> {
        self.record.iter().cloned().collect()
    }
    fn all_sets(&self, kind: SetKind) -> Vec<Arc<SetRecord>> {
        self.sets_in(kind, "")
    }
    fn pod(&self, key: &ObjectKey) -> Option<&Arc<PodRecord>> {
        self.pods.get(key.name.as_str())
    }
    fn pods_of(&self, owner: Owner<'_>) -> &[Arc<PodRecord>] {
        if *owner.uid == set_uid("web") {
            &self.own_pods
        } else {
            &[]
        }
    }
    fn orphan_pods(&self, _namespace: &str) -> &[Arc<PodRecord>] {
        &self.orphan_pods
    }
    fn pods_mounting(&self, claim: &ObjectKey) -> Vec<&Arc<PodRecord>> {
        let found = self.pods_by_claim.get(claim.name.as_str());
        found
            .into_iter()
            .flatten()
            .filter_map(|name| self.pods.get(name))
            .collect()
    }
    fn claim(&self, key: &ObjectKey) -> Option<&Arc<ClaimRecord>> {
        self.claims.get(key.name.as_str())
    }
    fn claims_of(&self, owner: Owner<'_>) -> &[Arc<ClaimRecord>] {
        self.claims_by_owner.get(owner.uid).map_or(&[], Vec::as_slice)
    }
    fn node(&self, name: &str) -> Option<&Arc<NodeRecord>> {
        self.nodes.get(name)
    }
    fn config_map(&self, key: &ObjectKey) -> Option<&Arc<ConfigMapRecord>> {
        self.config_maps.get(key.name.as_str())
    }
    fn revision(&self, key: &ObjectKey) -> Option<&Arc<RevisionRecord>> {
        self.revisions.get(key.name.as_str())
    }
    fn revisions_of(&self, owner: Owner<'_>) -> &[Arc<RevisionRecord>] {
        if *owner.uid == set_uid("web") {
            &self.own_revisions
        } else {
            &[]
        }
    }
    fn orphan_revisions(&self, _namespace: &str) -> &[Arc<RevisionRecord>] {
        &self.orphan_revisions
    }
    fn storage_class(&self, name: &str) -> Option<&Arc<StorageClassRecord>> {
        self.classes.get(name)
    }
    fn knows_image_pull_jobs(&self) -> bool {
        self.jobs.is_some()
    }
    fn image_pull_job(&self, key: &ObjectKey) -> Option<&Arc<ImagePullJobRecord>> {
        let mut all = self.jobs.iter().flatten().chain(&self.other_jobs);
        all.find(|job| job.meta.key == *key)
    }
    fn image_pull_jobs_of(&self, owner: Owner<'_>) -> &[Arc<ImagePullJobRecord>] {
        match &self.jobs {
            Some(jobs) if *owner.uid == set_uid("web") => jobs,
            _ => &[],
        }
    }
}

/// Commands in short form, in order: `+web-0@new`, `-web-1`, `+claim data-web-0`, `~claim data-web-0`, `~pod web-0`, `+revision`,
/// `~revision old`, `-revision old`.
pub(crate) fn brief(decision: &flotilla_model::Decision) -> Vec<String> {
    use flotilla_model::{Body, Command};
    let noun = |resource: Resource| match resource {
        Resource::Pods => "pod ",
        Resource::Claims => "claim ",
        Resource::Revisions => "revision ",
        Resource::ImagePullJobs => "job ",
        _ => "object ",
    };
    let line = |command: &Command| match command {
        Command::Create {
            body: Body::Pod(draft), ..
        } => {
            let revision = draft
                .labels
                .iter()
                .find(|(k, _)| *k == names::REVISION_LABEL)
                .map_or("", |(_, v)| v.as_str());
            format!("+{}@{revision}", draft.key.name)
        }
        Command::Create {
            resource: Resource::Revisions,
            ..
        } => "+revision".to_owned(),
        Command::Create { resource, key, .. } => format!("+{}{}", noun(*resource), key.name),
        Command::Delete {
            resource: Resource::Pods,
            key,
            ..
        } => format!("-{}", key.name),
        Command::Delete { resource, key, .. } => format!("-{}{}", noun(*resource), key.name),
        Command::Patch { resource, key, .. } => format!("~{}{}", noun(*resource), key.name),
        Command::Try { pod } => format!("({})", pod.key.name),
        Command::Read { resource, key } => format!("?{}{}", noun(*resource), key.name),
    };
    decision.commands().map(|c| line(&c.command)).collect()
}

/// What a patch of a pod sets: of a JSON patch, the merge patch that sets the same.
pub(crate) fn folded(body: &Value) -> Value {
    if !body.is_array() {
        return body.clone();
    }
    let mut all = Value::Null;
    let operations = || body.as_array().into_iter().flatten();
    let names = operations().filter(|o| o["op"] == "test" && o["path"].as_str().is_some_and(|p| p.ends_with("/name")));
    let names: BTreeMap<String, Value> = names
        .filter_map(|o| {
            Some((
                o["path"].as_str()?.strip_suffix("/name")?.to_owned(),
                o["value"].clone(),
            ))
        })
        .collect();
    for operation in operations().filter(|o| o["op"] != "test") {
        let path = operation["path"].as_str().unwrap_or_default();
        if let Some((container, name)) = names.iter().find(|(at, _)| path.starts_with(at.as_str())) {
            let fields = path[container.len()..].split('/').skip(1);
            let list = &mut all["spec"]["containers"];
            if list.is_null() {
                *list = Value::Array(Vec::new());
            }
            let list = list.as_array_mut().expect("it was made here");
            if !list.iter().any(|c| c["name"] == *name) {
                list.push(json!({"name": name}));
            }
            let entry = list.iter_mut().find(|c| c["name"] == *name).expect("it is there");
            *fields.fold(entry, |at, field| &mut at[field]) = operation["value"].clone();
        } else if path.starts_with("/metadata/") && operation["value"] != json!({}) {
            let fields = path.split('/').skip(1).map(|f| f.replace("~1", "/"));
            *fields.fold(&mut all, |at, field| &mut at[field]) = operation["value"].clone();
        }
    }
    all
}
