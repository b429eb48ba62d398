//! An API server with the few verbs that the engine uses, as plain data: what it answers, and what its watches will tell.
#![allow(dead_code, reason = "each test binary uses another part of it")]
#![allow(missing_docs, reason = "test support")]

use flotilla_engine::core::lease::{LeaseCall, LeaseOptions, LeaseRecord, LeaseReply, LeaseSpec};
use flotilla_engine::core::request::{Answer, Call, Refusal, StatusPatch};
use flotilla_engine::core::{Core, CoreOptions, Effect, WatchEvent};
use flotilla_engine::wire::status::Status;
use flotilla_engine::wire::{self, Encoding, Object};
use flotilla_model::decision::{Body, PodDraft};
use flotilla_model::records::{Phase, ReadyCondition};
use flotilla_model::{
    Change, ClaimRecord, Command, Controller, Decision, Interner, Labels, Meta, ObjectKey, OwnerRef, PassContext,
    PodRecord, Reader, Resource, RevisionRecord, Timestamp, Uid,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A controller of whose passes somebody hears: since when each believes that somebody has been watching, and what it decided, if it did.
pub struct Overheard<F>(pub Box<dyn Controller>, pub F);

impl<F: Fn(Timestamp, Option<&Decision>) + Send + Sync> Controller for Overheard<F> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn resource(&self) -> Resource {
        self.0.resource()
    }

    fn route(&self, change: &Change, reader: &dyn Reader, keys: &mut Vec<ObjectKey>) {
        self.0.route(change, reader, keys);
    }

    fn reconcile(&self, reader: &dyn Reader, key: &ObjectKey, context: PassContext<'_>) -> Option<Decision> {
        let observing_since = context.observing_since;
        let decision = self.0.reconcile(reader, key, context);
        (self.1)(observing_since, decision.as_ref());
        decision
    }
}

/// A moment of virtual time, in milliseconds.
pub fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

pub fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

/// A manager that watches what native sets need, and acts on them at once.
pub fn options(identity: &str) -> CoreOptions {
    CoreOptions {
        resources: vec![
            Resource::NativeSets,
            Resource::Pods,
            Resource::Claims,
            Resource::Revisions,
            Resource::StorageClasses,
        ],
        observation_period: Duration::ZERO,
        ..CoreOptions::new(identity)
    }
}

/// The same, for CloneSets.
pub fn clone_options(identity: &str) -> CoreOptions {
    let mut options = options(identity);
    options.resources[0] = Resource::CloneSets;
    options
}

/// The same, which writes only while it holds a lease.
pub fn options_with_lease(identity: &str) -> CoreOptions {
    CoreOptions {
        lease: Some(LeaseOptions::new("flotilla-system", "flotilla-manager")),
        ..options(identity)
    }
}

#[derive(Default)]
pub struct World {
    pub version: u64,
    pub now: i64,
    /// How far the time that drives cores is ahead, since their clock was set back.
    pub cores_ahead: i64,
    pub pods: BTreeMap<ObjectKey, PodRecord>,
    pub claims: BTreeMap<ObjectKey, ClaimRecord>,
    pub revisions: BTreeMap<ObjectKey, RevisionRecord>,
    pub sets: BTreeMap<ObjectKey, Value>,
    pub lease: Option<LeaseRecord>,
    /// What the watches will tell, oldest first.
    pub news: VecDeque<WatchEvent>,
    /// Pods are ready as soon as they are created.
    pub is_quick: bool,
    /// Its sets are CloneSets.
    pub has_clones: bool,
    /// A webhook of others gives each new pod this label.
    pub webhook: Option<(&'static str, &'static str)>,
    /// Every write that took effect, in words.
    pub log: Vec<String>,
    interner: Interner,
}

impl World {
    /// One whose pods are ready at once.
    pub fn quick() -> Self {
        World {
            is_quick: true,
            ..World::default()
        }
    }

    /// The same, with CloneSets.
    pub fn quick_clones() -> Self {
        World {
            has_clones: true,
            ..World::quick()
        }
    }

    fn sets_are(&self) -> Resource {
        if self.has_clones {
            Resource::CloneSets
        } else {
            Resource::NativeSets
        }
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn meta(&mut self, key: &ObjectKey, owners: Vec<OwnerRef>, labels: Labels) -> Meta {
        let version = self.next_version();
        Meta {
            key: key.clone(),
            uid: Uid::new(&format!("{}-{version}", key.name)),
            resource_version: version,
            created: at(self.now),
            deleted: None,
            labels,
            owners: (!owners.is_empty()).then(|| Arc::new(owners)),
        }
    }

    /// Stores a native set of this many replicas whose pods run `image`; a later call changes it.
    pub fn put_set(&mut self, name: &str, replicas: i32, image: &str) {
        self.put_set_of("OrderedReady", &key(name), replicas, image);
    }

    /// The same, of a set whose pods come all at once.
    pub fn put_parallel_set(&mut self, name: &str, replicas: i32, image: &str) {
        self.put_set_of("Parallel", &key(name), replicas, image);
    }

    /// The same, of a set with this policy for its pods.
    pub fn put_set_of(&mut self, policy: &str, key: &ObjectKey, replicas: i32, image: &str) {
        let version = self.next_version();
        let name = key.name.as_str();
        let old = self.sets.get(key);
        let status = old.map_or_else(|| json!({}), |s| s["status"].clone());
        let generation = old
            .and_then(|s| s.pointer("/metadata/generation")?.as_i64())
            .unwrap_or(0)
            + 1;
        let template = json!({
            "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": "main", "image": image }] },
        });
        let set = json!({
            "metadata": {
                "name": name, "namespace": &*key.namespace, "uid": format!("uid-of-{name}"),
                "resourceVersion": version.to_string(), "generation": generation,
                "creationTimestamp": at(0).to_string(),
            },
            "spec": {
                "replicas": replicas, "serviceName": name, "podManagementPolicy": policy,
                "selector": { "matchLabels": { "app": name } },
                "template": template,
            },
            "status": status,
        });
        self.sets.insert(key.clone(), set);
        self.tell_set(key);
    }

    /// A set is gone.
    pub fn lose_set(&mut self, name: &str) {
        let (key, version) = (key(name), self.next_version());
        self.sets.remove(&key).expect("the set exists");
        let uid = Uid::new(&format!("uid-of-{name}"));
        self.news
            .push_back(WatchEvent::Deleted(self.sets_are(), key, uid, version));
    }

    fn tell_set(&mut self, key: &ObjectKey) {
        let object = self.set_object(key).expect("the set was just stored");
        self.news.push_back(WatchEvent::Upsert(object));
    }

    fn set_object(&mut self, key: &ObjectKey) -> Option<Object> {
        let bytes = serde_json::to_vec(self.sets.get(key)?).expect("JSON is serialisable");
        let resource = self.sets_are();
        wire::decode(resource, Encoding::Json, &bytes.into(), &mut self.interner).ok()
    }

    /// Changes a pod as a kubelet would.
    /// Somebody stores a pod or a revision, which becomes an object of its own.
    pub fn store(&mut self, mut object: Object) {
        let version = self.next_version();
        let own = |meta: &mut Meta| {
            meta.uid = Uid::new(&format!("{}-{version}", meta.key.name));
            meta.resource_version = version;
        };
        match &mut object {
            Object::Pod(pod) => {
                own(&mut Arc::make_mut(pod).meta);
                self.pods.insert(pod.meta.key.clone(), (**pod).clone());
            }
            Object::Revision(revision) => {
                own(&mut Arc::make_mut(revision).meta);
                self.revisions.insert(revision.meta.key.clone(), (**revision).clone());
            }
            other => panic!("neither a pod nor a revision: {other:?}"),
        }
        self.news.push_back(WatchEvent::Upsert(object));
    }

    pub fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut PodRecord)) {
        self.change_pod_of(&key(name), change);
    }

    fn change_pod_of(&mut self, key: &ObjectKey, change: impl FnOnce(&mut PodRecord)) {
        let version = self.next_version();
        let pod = self.pods.get_mut(key).expect("the pod exists");
        pod.meta.resource_version = version;
        change(pod);
        self.news
            .push_back(WatchEvent::Upsert(Object::Pod(Arc::new(pod.clone()))));
    }

    pub fn make_ready(&mut self, name: &str) {
        self.make_ready_of(&key(name));
    }

    fn make_ready_of(&mut self, key: &ObjectKey) {
        let since = at(self.now);
        self.change_pod_of(key, |pod| {
            pod.phase = Phase::Running;
            pod.ready = ReadyCondition {
                is_true: true,
                since: Some(since),
            };
            pod.has_been_ready = true;
        });
    }

    /// Ends the grace period of a pod.
    pub fn finish_deletion(&mut self, name: &str) {
        let version = self.next_version();
        let pod = self.pods.remove(&key(name)).expect("the pod exists");
        self.news
            .push_back(WatchEvent::Deleted(Resource::Pods, pod.meta.key, pod.meta.uid, version));
    }

    pub fn pod_names(&self) -> Vec<&str> {
        self.pods.keys().map(|k| k.name.as_str()).collect()
    }

    /// Carries out a request.
    pub fn call(&mut self, call: &Call) -> Answer {
        match call {
            Call::Write(Command::Create {
                resource, key, body, ..
            }) => self.create(*resource, key, body),
            Call::Write(Command::Delete {
                resource: Resource::Pods,
                key,
                uid,
                resource_version,
                ..
            }) => self.delete_pod(key, uid, *resource_version),
            Call::Write(Command::Delete {
                resource: Resource::Revisions,
                key,
                ..
            }) => self.delete_revision(key),
            Call::Write(Command::Try { pod }) => {
                self.log.push(format!("try pods {}", pod.key.name));
                Answer::Success
            }
            Call::Write(Command::Patch {
                resource: Resource::Pods,
                key,
                body,
                subresource: None,
                ..
            }) => self.patch_pod(key, &body["metadata"]),
            Call::Write(other) => panic!("not supported here: {other:?}"),
            Call::Status(patch) => self.patch_status(patch),
            Call::Get { resource, key } => self.get(*resource, key),
            Call::Lease(call) => Answer::Lease(self.lease_call(call)),
            Call::Event(_) => Answer::Success,
        }
    }

    /// Labels are set, or the pod is let go.
    fn patch_pod(&mut self, key: &ObjectKey, metadata: &Value) -> Answer {
        if !self.pods.contains_key(key) {
            return refuse(404, "NotFound");
        }
        let lets_go = metadata.get("ownerReferences").is_some();
        self.log
            .push(format!("{} {}", if lets_go { "release" } else { "mark" }, key.name));
        self.change_pod_of(key, |pod| {
            if lets_go {
                pod.meta.owners = None;
            }
            let labels = pod.meta.labels.iter().map(|(k, v)| (k.to_owned(), v.to_owned()));
            let mut labels: BTreeMap<String, String> = labels.collect();
            for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
                match value.as_str() {
                    Some(value) => labels.insert(key.clone(), value.to_owned()),
                    None => labels.remove(key),
                };
            }
            pod.meta.labels = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        });
        Answer::Object(Object::Pod(Arc::new(self.pods[key].clone())))
    }

    fn create(&mut self, resource: Resource, key: &ObjectKey, body: &Body) -> Answer {
        if self.exists(resource, key) {
            return refuse(409, "AlreadyExists");
        }
        self.log.push(format!("create {resource} {}", key.name));
        let object = match body {
            Body::Pod(draft) => Object::Pod(Arc::new(self.create_pod(draft))),
            Body::Json(body) if resource == Resource::Revisions => {
                Object::Revision(Arc::new(self.create_revision(key, body)))
            }
            Body::Json(body) => panic!("not supported here: {body}"),
        };
        self.news.push_back(WatchEvent::Upsert(object.clone()));
        if self.is_quick && resource == Resource::Pods {
            self.make_ready_of(key);
        }
        Answer::Object(object)
    }

    fn exists(&self, resource: Resource, key: &ObjectKey) -> bool {
        match resource {
            Resource::Pods => self.pods.contains_key(key),
            Resource::Revisions => self.revisions.contains_key(key),
            other => panic!("not supported here: {other}"),
        }
    }

    fn create_pod(&mut self, draft: &PodDraft) -> PodRecord {
        let rendered = draft.render();
        let labels = rendered
            .pointer("/metadata/labels")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        let labels = labels.iter().filter_map(|(k, v)| Some((k.as_str(), v.as_str()?)));
        let labels: Labels = labels.chain(self.webhook).collect();
        let pod = PodRecord {
            meta: self.meta(&draft.key, vec![(*draft.owner).clone()], labels),
            phase: Phase::Pending,
            ready: ReadyCondition::default(),
            has_been_ready: false,
            has_name_label: true,
            has_index_label: true,
            has_instance_label: false,
            node: None,
            volumes: None,
            trouble: None,
            detail: None,
        };
        self.pods.insert(draft.key.clone(), pod.clone());
        pod
    }

    fn create_revision(&mut self, key: &ObjectKey, body: &Value) -> RevisionRecord {
        let owner = body
            .pointer("/metadata/ownerReferences/0")
            .expect("a revision has an owner");
        let text = |field: &str| owner[field].as_str().expect("owner fields are texts").to_owned();
        let mut owner = self.interner.owner(
            &text("apiVersion"),
            &text("kind"),
            &text("name"),
            &text("uid"),
            (true, true),
        );
        owner.controller = true;
        let labels = body
            .pointer("/metadata/labels")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        let labels: Labels = labels
            .iter()
            .filter_map(|(k, v)| Some((k.as_str(), v.as_str()?)))
            .collect();
        let meta = self.meta(key, vec![owner], labels);
        let record = RevisionRecord::new(meta, body["revision"].as_i64().unwrap_or(0), &body["data"], None);
        self.revisions.insert(key.clone(), record.clone());
        record
    }

    fn delete_pod(&mut self, key: &ObjectKey, uid: &Uid, resource_version: Option<u64>) -> Answer {
        let Some(pod) = self.pods.get(key) else {
            return refuse(404, "NotFound");
        };
        if pod.meta.uid != *uid || resource_version.is_some_and(|v| v != pod.meta.resource_version) {
            return refuse(409, "Conflict");
        }
        self.log.push(format!("delete pods {}", key.name));
        let deleted = at(self.now);
        self.change_pod(&key.name.clone(), |pod| pod.meta.deleted = Some(deleted));
        Answer::Object(Object::Pod(Arc::new(self.pods[key].clone())))
    }

    fn delete_revision(&mut self, key: &ObjectKey) -> Answer {
        let Some(revision) = self.revisions.remove(key) else {
            return refuse(404, "NotFound");
        };
        let version = self.next_version();
        self.news.push_back(WatchEvent::Deleted(
            Resource::Revisions,
            key.clone(),
            revision.meta.uid,
            version,
        ));
        Answer::Success
    }

    fn patch_status(&mut self, patch: &StatusPatch) -> Answer {
        let Some(set) = self.sets.get(&patch.key) else {
            return refuse(404, "NotFound");
        };
        if set.pointer("/metadata/resourceVersion") != Some(&json!(patch.resource_version.to_string())) {
            return refuse(409, "Conflict");
        }
        let version = self.next_version();
        let set = self.sets.get_mut(&patch.key).expect("just looked up");
        for (field, value) in patch.status.as_object().into_iter().flatten() {
            set["status"][field] = value.clone();
        }
        set["metadata"]["resourceVersion"] = json!(version.to_string());
        self.log.push("status".into());
        self.tell_set(&patch.key);
        Answer::Object(self.set_object(&patch.key).expect("the set exists"))
    }

    fn get(&mut self, resource: Resource, key: &ObjectKey) -> Answer {
        let found = match resource {
            Resource::Pods => self.pods.get(key).map(|p| Object::Pod(Arc::new(p.clone()))),
            Resource::Revisions => self.revisions.get(key).map(|r| Object::Revision(Arc::new(r.clone()))),
            sets if sets == self.sets_are() => self.set_object(key),
            other => panic!("not supported here: {other}"),
        };
        found.map_or_else(|| refuse(404, "NotFound"), Answer::Object)
    }

    fn lease_call(&mut self, call: &LeaseCall) -> LeaseReply {
        let spec: LeaseSpec = match (call, &self.lease) {
            (LeaseCall::Get, Some(record)) => return LeaseReply::Found(record.clone()),
            (LeaseCall::Get | LeaseCall::Update { .. }, None) => return LeaseReply::Missing,
            (LeaseCall::Create(_), Some(_)) => return LeaseReply::Conflict,
            (LeaseCall::Update { resource_version, .. }, Some(r)) if *resource_version != r.resource_version => {
                return LeaseReply::Conflict;
            }
            (LeaseCall::Create(spec) | LeaseCall::Update { spec, .. }, _) => spec.clone(),
        };
        let record = LeaseRecord {
            resource_version: self.next_version(),
            spec,
        };
        self.lease = Some(record.clone());
        LeaseReply::Found(record)
    }

    /// Tells the core everything of one kind, as a list does.
    pub fn list(&mut self, core: &mut Core, resource: Resource) {
        let now = self.time_of_cores();
        let objects: Vec<Object> = match resource {
            Resource::Pods => self.pods.values().map(|p| Object::Pod(Arc::new(p.clone()))).collect(),
            Resource::Revisions => self
                .revisions
                .values()
                .map(|r| Object::Revision(Arc::new(r.clone())))
                .collect(),
            sets if sets == self.sets_are() => {
                let keys: Vec<ObjectKey> = self.sets.keys().cloned().collect();
                keys.iter().filter_map(|key| self.set_object(key)).collect()
            }
            _ => Vec::new(),
        };
        core.watch(WatchEvent::ListBegan(resource, now), now);
        for object in objects {
            core.watch(WatchEvent::Listed(object), now);
        }
        core.watch(WatchEvent::ListEnded(resource, self.version), now);
        self.news.retain(|event| kind_of(event) != resource);
    }

    /// The time that drives cores.
    pub fn time_of_cores(&self) -> Timestamp {
        at(self.now + self.cores_ahead)
    }

    /// Tells the core all news.
    pub fn deliver_news(&mut self, core: &mut Core) {
        while let Some(event) = self.news.pop_front() {
            let now = self.time_of_cores();
            core.watch(event, now);
        }
    }

    /// Lets core and server talk until both have nothing more to say at this moment.
    pub fn settle(&mut self, core: &mut Core) {
        loop {
            core.advance(self.time_of_cores());
            let effects = core.take_effects();
            if effects.is_empty() && self.news.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::List(resource) => self.list(core, resource),
                    Effect::Send(request) => {
                        let answer = self.call(&request.call);
                        core.answer(request.id, answer, self.time_of_cores());
                    }
                }
            }
            self.deliver_news(core);
        }
    }

    /// The same, while virtual time passes.
    pub fn run_for(&mut self, core: &mut Core, millis: i64) {
        let end = self.now + millis;
        loop {
            self.settle(core);
            let wake = core
                .next_wake(self.time_of_cores())
                .map_or(end, |wake| wake.as_millis() - at(self.cores_ahead).as_millis());
            if self.now >= end {
                return;
            }
            self.now = wake.clamp(self.now + 1, end);
        }
    }
}

pub fn kind_of(event: &WatchEvent) -> Resource {
    match event {
        WatchEvent::Upsert(object) | WatchEvent::Listed(object) => object.resource(),
        WatchEvent::Deleted(resource, ..)
        | WatchEvent::ListBegan(resource, _)
        | WatchEvent::ListEnded(resource, _)
        | WatchEvent::Bookmark(resource, _)
        | WatchEvent::Missing(resource) => *resource,
        WatchEvent::Unreadable(what) => what.resource,
    }
}

pub fn refuse(code: i32, reason: &str) -> Answer {
    refuse_with(code, reason, &reason.to_lowercase())
}

pub fn refuse_with(code: i32, reason: &str, message: &str) -> Answer {
    let status = Status {
        code,
        reason: reason.into(),
        message: message.into(),
        ..Status::default()
    };
    Answer::Refused(Refusal {
        status,
        retry_after: None,
    })
}
