//! Storage: objects, versions, watch history, and the verbs in [`verbs`].
//!
//! Nothing here waits and nothing reads a clock: [`Server::now`] is set by whoever drives it. Beside its JSON each object of a kind that
//! managers watch keeps the record that they read, decoded once when it is stored. Every change is noted in a journal, with the object
//! before and after it; whatever follows from a change (kubelets, garbage collection, invariants) reads that.

mod collect;
mod delete;
mod export;
mod history;
mod patch;
mod stored;
mod verbs;

pub(crate) use delete::Deleted;
pub use delete::{DeleteOptions, Propagation};
pub use export::Foreign;
pub use history::{Change, Gone, Told};
pub use stored::{StoreId, Stored};
pub(crate) use verbs::{Part, key_of};

use crate::types::Types;
use collect::Litter;
use flotilla_apimachinery::schema;
use flotilla_apimachinery::status::{Qualified, Status};
use flotilla_engine::wire;
use flotilla_model::{Interner, ObjectKey, Resource, Timestamp};
use history::History;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Who changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A person, or another controller of theirs.
    User,
    /// The cluster: scheduler, kubelets, volume binder, garbage collector.
    System,
    /// A manager, by its place.
    Manager(usize),
}

/// One change, for those who follow from it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Who made it.
    pub actor: Actor,
    /// What was asked: create, update, patch, status, delete, or remove when a deletion ends.
    pub verb: &'static str,
    /// Of which kind.
    pub resource: StoreId,
    /// Which object.
    pub key: ObjectKey,
    /// The object before.
    pub before: Option<Stored>,
    /// The object after; `None` if it is gone.
    pub after: Option<Stored>,
}

/// What admission does to pods, beyond what the API server itself checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// A resource quota: no more pods than this in a namespace.
    pub pods_max: Option<usize>,
    /// A webhook of someone else refuses every new pod.
    pub refuses_pods: bool,
    /// A webhook of someone else adds a label and a volume to every new pod.
    pub changes_pods: bool,
    /// What a webhook of someone else does to the claims that new pods mount.
    pub volumes: Volumes,
    /// What a webhook of someone else does to the label of a new pod that names its revision.
    pub revision_label: RevisionLabel,
    /// A policy of the cluster refuses pods whose containers have a variable of this name.
    pub forbidden_variable: Option<&'static str>,
    /// What is not there: pods that name any of it are refused.
    pub absent: Vec<Absent>,
}

/// Something that is not there, and without which no pod is made that names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Absent {
    /// What it would be.
    pub kind: AbsentKind,
    /// Its namespace; empty if it is of a kind that belongs to none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What has to be there before a pod is made that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AbsentKind {
    /// A service account.
    ServiceAccount,
    /// A priority class.
    PriorityClass,
    /// A runtime class.
    RuntimeClass,
}

impl Absent {
    /// Why a pod is refused that names it, in the words of the API server; `None` if this one does not.
    fn refuses(&self, pod: &Value) -> Option<String> {
        let name = self.name.as_str();
        let field = match self.kind {
            AbsentKind::ServiceAccount => "serviceAccountName",
            AbsentKind::PriorityClass => "priorityClassName",
            AbsentKind::RuntimeClass => "runtimeClassName",
        };
        let is_here = self.namespace.is_empty() || pod["metadata"]["namespace"] == self.namespace.as_str();
        let names_it = is_here && pod["spec"][field] == name;
        names_it.then(|| match self.kind {
            AbsentKind::ServiceAccount => format!(
                "error looking up service account {}/{name}: serviceaccount \"{name}\" not found",
                self.namespace
            ),
            AbsentKind::PriorityClass => format!("no PriorityClass with name {name} was found"),
            AbsentKind::RuntimeClass => format!("pod rejected: RuntimeClass \"{name}\" not found"),
        })
    }
}

/// What becomes of the claims that a new pod mounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Volumes {
    /// They stay.
    #[default]
    AsAsked,
    /// One is added, named as one of a claim template `logs` would be.
    OneMore,
    /// In the place of each stands the claim `swapped`.
    Swapped,
}

/// What becomes of the label of a new pod that names its revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RevisionLabel {
    /// It stays.
    #[default]
    AsAsked,
    /// It names none that there is: `web-theirs`.
    Swapped,
    /// It is taken off.
    Stripped,
}

/// How the UIDs that are given here begin.
const UID_HEAD: &str = "5eed0000-0000-4000-8000-";

/// Changes kept of a kind; a watch from before is answered 410, as etcd's compaction makes it.
const CHANGES_MAX: usize = 4096;
/// The same where memory is dear.
const ECONOMICAL_CHANGES_MAX: usize = 1000;

/// All objects of a kind.
#[derive(Debug)]
struct Collection {
    objects: BTreeMap<ObjectKey, Stored>,
    history: History,
}

/// Where an object is.
pub(crate) type Place = (StoreId, ObjectKey);

/// The API server.
#[derive(Debug, Default)]
pub struct Server {
    /// The moment.
    pub now: Timestamp,
    /// What admission does.
    pub admission: Admission,
    /// Whether a pod that is taken away at once is first shown with no time left, as the real server does. Managers do not look at
    /// that; simulations of them save the version.
    pub shows_end: bool,
    /// The kinds that the HTTP face serves.
    pub types: Types,
    is_compact: bool,
    /// Changes kept of each kind, if it has been said how many.
    changes_max: Option<usize>,
    version: u64,
    uids_made: u64,
    collections: BTreeMap<StoreId, Collection>,
    /// Every object by UID.
    uids: BTreeMap<String, Place>,
    /// UIDs of objects that are there, though not in this store.
    elsewhere: BTreeSet<String>,
    /// What names an owner, by the owner's UID.
    dependents: BTreeMap<String, BTreeSet<Place>>,
    journal: Vec<Entry>,
    litter: Litter,
    interner: Interner,
    schemas: Option<schema::Types>,
}

/// A refusal with these words.
pub fn refusal(code: u16, reason: &'static str, message: impl Into<String>) -> Status {
    Status::new(code, reason, message)
}

/// A refusal as managers read it.
pub fn wire_status(status: &Status) -> wire::status::Status {
    let body = status.to_json().to_string();
    wire::status::Status::read(status.code, wire::Encoding::Json, &body.into())
}

impl Server {
    /// An empty server.
    pub fn new() -> Self {
        Server::default()
    }

    /// A server that keeps objects as texts and only a short history: for many objects and few changes.
    pub fn economical() -> Self {
        Server {
            is_compact: true,
            ..Server::default()
        }
    }

    /// Keeps so many changes of each kind, for whoever follows them more slowly than they come.
    pub fn keep_changes(&mut self, changes_max: usize) {
        self.changes_max = Some(changes_max);
        for collection in self.collections.values_mut() {
            collection.history.keep(changes_max);
        }
    }

    /// One object.
    pub fn get(&self, resource: impl Into<StoreId>, key: &ObjectKey) -> Option<&Stored> {
        self.collections.get(&resource.into())?.objects.get(key)
    }

    /// All objects of a kind, by key.
    pub fn all(&self, resource: impl Into<StoreId>) -> impl Iterator<Item = &Stored> {
        let collection = self.collections.get(&resource.into());
        collection.into_iter().flat_map(|c| c.objects.values())
    }

    /// Objects of a kind in a namespace, or in all, that come after `key`.
    pub fn after<'s>(
        &'s self,
        resource: impl Into<StoreId>,
        namespace: Option<&'s str>,
        key: Option<ObjectKey>,
    ) -> impl Iterator<Item = (&'s ObjectKey, &'s Stored)> {
        let start = match (key, namespace) {
            (Some(key), _) => Bound::Excluded(key),
            (None, Some(namespace)) => Bound::Included(ObjectKey::new(namespace, "")),
            (None, None) => Bound::Unbounded,
        };
        let collection = self.collections.get(&resource.into());
        let all = collection
            .into_iter()
            .flat_map(move |c| c.objects.range((start.clone(), Bound::Unbounded)));
        all.take_while(move |(key, _)| namespace.is_none_or(|ns| *key.namespace == *ns))
    }

    /// How many objects of a kind there are, in a namespace or in all.
    pub fn count(&self, resource: impl Into<StoreId>, namespace: Option<&str>) -> usize {
        let resource = resource.into();
        match namespace {
            Some(_) => self.after(resource, namespace, None).count(),
            None => self.collections.get(&resource).map_or(0, |c| c.objects.len()),
        }
    }

    /// The version of the newest change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether an object with this UID exists.
    pub fn has_uid(&self, uid: &str) -> bool {
        self.uids.contains_key(uid) || self.elsewhere.contains(uid)
    }

    /// These are UIDs of objects that exist, and were not brought here: what they own is not collected.
    pub fn note_elsewhere(&mut self, uids: impl IntoIterator<Item = String>) {
        self.elsewhere.extend(uids);
    }

    /// Takes out what has changed since this was asked last.
    pub fn take_journal(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.journal)
    }

    /// What happened to a kind after `version`, oldest first, if that is still known.
    pub fn watch(
        &self,
        resource: impl Into<StoreId>,
        version: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Change>, Gone> {
        let changes = self.collections.get(&resource.into()).map(|c| c.history.since(version));
        Ok(changes.transpose()?.into_iter().flatten())
    }

    /// The same as managers are told of it; nothing for kinds that they do not watch.
    pub fn told(&self, resource: impl Into<StoreId>, version: u64) -> Result<Vec<Told>, Gone> {
        Ok(self.watch(resource, version)?.filter_map(Change::told).collect())
    }

    /// Forgets the history of a kind: watches from an older version are answered 410.
    pub fn compact(&mut self, resource: impl Into<StoreId>) {
        let version = self.version;
        self.collection(resource.into()).history.compact(version);
    }

    fn collection(&mut self, resource: StoreId) -> &mut Collection {
        let usual = if self.is_compact {
            ECONOMICAL_CHANGES_MAX
        } else {
            CHANGES_MAX
        };
        let changes_max = self.changes_max.unwrap_or(usual);
        self.collections.entry(resource).or_insert_with(|| Collection {
            objects: BTreeMap::new(),
            history: History::new(changes_max),
        })
    }

    /// Types of all kinds, put together when they are first asked for: simulations need only the built-in ones.
    pub(crate) fn schemas(&mut self) -> &schema::Types {
        let types = &self.types;
        self.schemas.get_or_insert_with(|| {
            let mut schemas = crate::face::builtin_schemas().clone();
            types.all().iter().for_each(|info| add_custom(&mut schemas, info));
            schemas
        })
    }

    /// The same, if they have been asked for.
    pub(crate) fn known_schemas(&self) -> &schema::Types {
        static NONE: std::sync::LazyLock<schema::Types> = std::sync::LazyLock::new(schema::Types::default);
        self.schemas.as_ref().unwrap_or(&NONE)
    }

    /// Serves what a definition says.
    pub(crate) fn define(&mut self, crd: &Value) {
        self.types.define(crd);
        // Of the time before, nothing is known.
        let version = self.version;
        for store in self.types.stores_of(crd) {
            if !self.collections.contains_key(&store) {
                self.collection(store).history.compact(version);
            }
        }
        // What the definition said before is not to linger.
        self.schemas = None;
        self.schemas();
    }

    /// Serves a kind no more.
    pub(crate) fn undefine(&mut self, crd: &Value) {
        let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        self.types.undefine(text("/spec/group"), text("/spec/names/plural"));
        self.schemas = None;
    }

    /// Group and plural, as refusals name a kind.
    pub(crate) fn qualified(&self, resource: StoreId) -> Qualified {
        if let Some(info) = self.types.of_store(resource) {
            return info.resource();
        }
        let watched = resource.watched().unwrap_or(Resource::Pods);
        let group = watched.group();
        Qualified::new(group, watched.plural())
    }

    /// Group and kind, as other refusals name it.
    pub(crate) fn qualified_kind(&self, resource: StoreId) -> Qualified {
        if let Some(info) = self.types.of_store(resource) {
            return info.qualified_kind();
        }
        let kind = resource.watched().map_or("", Resource::kind);
        Qualified::new(self.qualified(resource).group, kind)
    }

    /// The API server cuts times to seconds.
    pub(crate) fn time(&self) -> Value {
        json!(Timestamp::from_seconds(self.now.as_millis().div_euclid(1000)).to_string())
    }

    pub(crate) fn next_uid(&mut self) -> String {
        self.uids_made += 1;
        format!("{UID_HEAD}{:012x}", self.uids_made)
    }

    /// Stores an object under a new version and tells of it.
    pub(crate) fn put(
        &mut self,
        (actor, verb): (Actor, &'static str),
        resource: StoreId,
        key: &ObjectKey,
        mut value: Value,
    ) -> Result<Stored, Status> {
        let version = self.version + 1;
        strip_type(&mut value);
        value["metadata"]["resourceVersion"] = json!(version.to_string());
        let object = match resource.watched() {
            None | Some(Resource::Leases | Resource::Events) => None,
            Some(watched) => {
                let read = wire::read(watched, &value, &mut self.interner);
                Some(read.map_err(|why| Status::bad_request(why.clone()))?)
            }
        };
        self.version = version;
        let before = self.get(resource, key).cloned();
        let known = before.as_ref().map(|b| owner_uids(&b.value())).unwrap_or_default();
        let (owners, uid) = (owner_uids(&value), uid_of(&value).to_owned());
        self.index_owners(resource, key, known, owners);
        if value["metadata"].get("deletionTimestamp").is_some() {
            self.note_deletion(resource, key, &value);
        }
        let stored = Stored::new(value, object, version, self.is_compact);
        if before.is_none() {
            self.uids.insert(uid, (resource, key.clone()));
        }
        self.collection(resource).objects.insert(key.clone(), stored.clone());
        self.tell((actor, verb), resource, key, before, Some(stored.clone()));
        Ok(stored)
    }

    /// Takes an object out for good.
    pub(crate) fn remove(&mut self, actor: Actor, resource: StoreId, key: &ObjectKey) {
        let collection = self.collections.get_mut(&resource);
        let Some(before) = collection.and_then(|kind| kind.objects.remove(key)) else {
            return;
        };
        self.version += 1;
        let value = before.value();
        self.uids.remove(uid_of(&value));
        self.index_owners(resource, key, owner_uids(&value), Vec::new());
        self.note_removal(resource, key, uid_of(&value));
        self.tell((actor, "remove"), resource, key, Some(before), None);
    }

    /// Notes a change for watches and in the journal.
    fn tell(
        &mut self,
        (actor, verb): (Actor, &'static str),
        resource: StoreId,
        key: &ObjectKey,
        before: Option<Stored>,
        after: Option<Stored>,
    ) {
        let change = Change {
            version: self.version,
            key: key.clone(),
            before: before.clone(),
            after: after.clone(),
        };
        self.collection(resource).history.push(change);
        self.note((actor, verb), resource, key, before, after);
    }

    fn note(
        &mut self,
        (actor, verb): (Actor, &'static str),
        resource: StoreId,
        key: &ObjectKey,
        before: Option<Stored>,
        after: Option<Stored>,
    ) {
        self.journal.push(Entry {
            actor,
            verb,
            resource,
            key: key.clone(),
            before,
            after,
        });
    }

    fn index_owners(&mut self, resource: StoreId, key: &ObjectKey, before: Vec<String>, after: Vec<String>) {
        if before == after {
            return;
        }
        // Whoever makes an object names as many owners as fit into it.
        let after: BTreeSet<String> = after.into_iter().collect();
        for uid in before.iter().filter(|uid| !after.contains(*uid)) {
            if let Some(places) = self.dependents.get_mut(uid) {
                places.remove(&(resource, key.clone()));
                if places.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
        for uid in after {
            if !self.has_uid(&uid) {
                self.litter.note_orphan(uid.clone());
            }
            self.dependents.entry(uid).or_default().insert((resource, key.clone()));
        }
    }
}

fn owner_uids(value: &Value) -> Vec<String> {
    let owners = value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let uids = owners.into_iter().flatten().filter_map(|owner| owner["uid"].as_str());
    uids.map(str::to_owned).collect()
}

/// The kind is known by the place; lists of built-in kinds do not repeat it.
pub(crate) fn strip_type(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
}

pub(crate) fn uid_of(value: &Value) -> &str {
    value
        .pointer("/metadata/uid")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn add_custom(schemas: &mut schema::Types, info: &crate::types::TypeInfo) {
    if let Some(custom) = &info.custom {
        // The definition was accepted, so that its schema can be read.
        let _ = schemas.add_custom(&info.group, &info.kind, &custom.version);
    }
}
