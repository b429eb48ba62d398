//! The caches of all kinds, and how controllers read them.

use super::store::{Changed, Source, Store};
use crate::wire::{self, Encoding, Object, Unreadable};
use bytes::Bytes;
use flotilla_model::{
    Change, ClaimRecord, ConfigMapRecord, ImagePullJobRecord, Interner, NodeRecord, ObjectKey, Owner, PodRecord,
    Reader, Resource, RevisionRecord, SetKind, SetRecord, StorageClassRecord, Uid,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Everything that is known of the cluster.
#[derive(Debug, Default)]
pub struct Cache {
    pub(super) pods: Store<PodRecord>,
    pub(super) claims: Store<ClaimRecord>,
    pub(super) revisions: Store<RevisionRecord>,
    native_sets: Store<SetRecord>,
    pub(super) advanced_sets: Store<SetRecord>,
    pub(super) clone_sets: Store<SetRecord>,
    nodes: Store<NodeRecord>,
    pub(super) storage_classes: Store<StorageClassRecord>,
    config_maps: Store<ConfigMapRecord>,
    image_pull_jobs: Store<ImagePullJobRecord>,
    /// Shares strings between records; what is decoded for this cache goes through it.
    pub interner: Interner,
    /// The API server does not serve `pods/resize`.
    lacks_resize: bool,
    /// Images can be pulled ahead.
    pub(super) knows_image_pull_jobs: bool,
    /// No controller looks after native sets: templates of their revisions are not kept.
    leaves_native_sets: bool,
}

/// Calls one method on the store of a resource, whatever it holds; the second arm answers for resources that are not cached.
macro_rules! on_store {
    ($cache:expr, $resource:expr, $store:ident => $body:expr, else $none:expr) => {
        match $resource {
            Resource::Pods => {
                let $store = &$cache.pods;
                $body
            }
            Resource::Claims => {
                let $store = &$cache.claims;
                $body
            }
            Resource::ConfigMaps => {
                let $store = &$cache.config_maps;
                $body
            }
            Resource::Revisions => {
                let $store = &$cache.revisions;
                $body
            }
            Resource::NativeSets => {
                let $store = &$cache.native_sets;
                $body
            }
            Resource::AdvancedSets => {
                let $store = &$cache.advanced_sets;
                $body
            }
            Resource::CloneSets => {
                let $store = &$cache.clone_sets;
                $body
            }
            Resource::Nodes => {
                let $store = &$cache.nodes;
                $body
            }
            Resource::StorageClasses => {
                let $store = &$cache.storage_classes;
                $body
            }
            Resource::ImagePullJobs => {
                let $store = &$cache.image_pull_jobs;
                $body
            }
            Resource::Leases | Resource::Events => $none,
        }
    };
    (mut $cache:expr, $resource:expr, $store:ident => $body:expr, else $none:expr) => {
        match $resource {
            Resource::Pods => {
                let $store = &mut $cache.pods;
                $body
            }
            Resource::Claims => {
                let $store = &mut $cache.claims;
                $body
            }
            Resource::ConfigMaps => {
                let $store = &mut $cache.config_maps;
                $body
            }
            Resource::Revisions => {
                let $store = &mut $cache.revisions;
                $body
            }
            Resource::NativeSets => {
                let $store = &mut $cache.native_sets;
                $body
            }
            Resource::AdvancedSets => {
                let $store = &mut $cache.advanced_sets;
                $body
            }
            Resource::CloneSets => {
                let $store = &mut $cache.clone_sets;
                $body
            }
            Resource::Nodes => {
                let $store = &mut $cache.nodes;
                $body
            }
            Resource::StorageClasses => {
                let $store = &mut $cache.storage_classes;
                $body
            }
            Resource::ImagePullJobs => {
                let $store = &mut $cache.image_pull_jobs;
                $body
            }
            Resource::Leases | Resource::Events => $none,
        }
    };
}

/// How a change of one record kind is told to controllers; `None` where no controller is told.
trait Tell: Sized {
    fn tell(changed: Changed<Self>) -> Option<Change>;
}

macro_rules! tell {
    ($($record:ty => $variant:ident),*) => { $(
        impl Tell for $record {
            fn tell(changed: Changed<Self>) -> Option<Change> {
                Some(Change::$variant(changed.old, changed.new))
            }
        }
    )* };
}
tell!(PodRecord => Pod, ClaimRecord => Claim, ConfigMapRecord => ConfigMap, RevisionRecord => Revision, SetRecord => Set,
    ImagePullJobRecord => ImagePullJob, StorageClassRecord => StorageClass);

impl Tell for NodeRecord {
    /// Where nodes stand is looked up when pods go; nothing waits for a node.
    fn tell(_: Changed<Self>) -> Option<Change> {
        None
    }
}

impl Cache {
    /// An empty one, for controllers that leave native sets alone or do not.
    pub(super) fn new(leaves_native_sets: bool) -> Self {
        Cache {
            leaves_native_sets,
            ..Cache::default()
        }
    }

    /// Reads an object of `resource`. A pod that is in the cache at the same version is taken from there: the answer to a write and the
    /// watch both tell of it, and the whole of a pod costs many times as much to read as its name and version. Of one that is there at
    /// another version, what its spec said is.
    ///
    /// # Errors
    ///
    /// If the bytes are not such an object.
    pub fn read(&mut self, resource: Resource, encoding: Encoding, bytes: &Bytes) -> Result<Object, Unreadable> {
        let (pods, interner) = (&self.pods, &mut self.interner);
        // Whoever may store objects chooses these bytes. Should any of them make a decoder panic, one object is not read, and all others are.
        // The interner only ever gains whole entries.
        let read = catch_unwind(AssertUnwindSafe(|| match known_pod(pods, resource, encoding, bytes) {
            Some((pod, version)) if pod.meta.resource_version == version => Ok(Object::Pod(pod.clone())),
            Some((pod, _)) => wire::decode_again(encoding, bytes, pod, interner),
            None => wire::decode(resource, encoding, bytes, interner),
        }));
        let mut read = read.unwrap_or_else(|_| {
            Err(Unreadable {
                resource,
                key: wire::identity(encoding, bytes).map(|(key, ..)| key),
                reason: "the decoder panicked; this is a defect of Flotilla".into(),
            })
        });
        if let Ok(Object::Revision(revision)) = &mut read
            && self.leaves_native_sets
        {
            leave_native(revision);
        }
        read
    }

    /// Takes in that an object exists and is like this.
    pub fn apply(&mut self, object: Object, source: Source) -> Option<Change> {
        match object {
            Object::Pod(pod) => self.pods.apply(pod, source).and_then(Tell::tell),
            Object::Claim(claim) => self.claims.apply(claim, source).and_then(Tell::tell),
            Object::ConfigMap(map) => self.config_maps.apply(map, source).and_then(Tell::tell),
            Object::Revision(revision) => self.revisions.apply(revision, source).and_then(Tell::tell),
            Object::StorageClass(class) => self.storage_classes.apply(class, source).and_then(Tell::tell),
            Object::ImagePullJob(job) => self.image_pull_jobs.apply(job, source).and_then(Tell::tell),
            Object::Node(node) => self.nodes.apply(node, source).and_then(Tell::tell),
            Object::Set(set) => match set.kind {
                SetKind::Native => self.native_sets.apply(set, source).and_then(Tell::tell),
                SetKind::Advanced => self.advanced_sets.apply(set, source).and_then(Tell::tell),
                SetKind::Clone => self.clone_sets.apply(set, source).and_then(Tell::tell),
            },
        }
    }

    /// The watch saw an incarnation deleted.
    pub fn apply_deleted(&mut self, resource: Resource, key: &ObjectKey, uid: &Uid, version: u64) -> Option<Change> {
        on_store!(mut self, resource, store => store.apply_deleted(key, uid, version).and_then(Tell::tell), else None)
    }

    /// An answer of the server shows that an incarnation is gone.
    pub fn apply_gone(&mut self, resource: Resource, key: &ObjectKey, uid: &Uid) -> Option<Change> {
        on_store!(mut self, resource, store => store.apply_gone(key, uid).and_then(Tell::tell), else None)
    }

    /// A list of a kind begins.
    pub fn begin_list(&mut self, resource: Resource) {
        on_store!(mut self, resource, store => store.begin_list(), else ());
    }

    /// A list of a kind names an object that cannot be read.
    pub fn names(&mut self, resource: Resource, key: &ObjectKey) {
        on_store!(mut self, resource, store => store.names(key), else ());
    }

    /// That list has ended; what it did not name is gone.
    pub fn end_list(&mut self, resource: Resource, version: u64) -> Vec<Change> {
        fn told<R: Tell>(gone: Vec<Changed<R>>) -> Vec<Change> {
            gone.into_iter().filter_map(Tell::tell).collect()
        }
        on_store!(mut self, resource, store => told(store.end_list(version)), else Vec::new())
    }

    /// There are no objects of a kind any more.
    pub fn empty(&mut self, resource: Resource) -> Vec<Change> {
        fn told<R: Tell>(gone: Vec<Changed<R>>) -> Vec<Change> {
            gone.into_iter().filter_map(Tell::tell).collect()
        }
        on_store!(mut self, resource, store => told(store.empty()), else Vec::new())
    }

    /// Nothing older than `version` will come from the watch of a kind.
    pub fn bookmark(&mut self, resource: Resource, version: u64) {
        on_store!(mut self, resource, store => store.bookmark(version), else ());
    }

    /// The incarnation stored under a key.
    pub fn uid_of(&self, resource: Resource, key: &ObjectKey) -> Option<Uid> {
        use flotilla_model::Record as _;
        on_store!(self, resource, store => store.get(key).map(|r| r.meta().uid.clone()), else None)
    }

    /// Objects, keys ahead of the watch, and tombstones of a kind.
    pub fn sizes(&self, resource: Resource) -> (usize, usize, usize) {
        on_store!(self, resource, store => (store.len(), store.overlay_len(), store.tombstones_len()), else (0, 0, 0))
    }

    /// All sets of a kind, sorted by namespace and name.
    pub fn all_sets(&self, kind: SetKind) -> Vec<Arc<SetRecord>> {
        let mut sets: Vec<_> = self.sets(kind).iter().cloned().collect();
        sets.sort_by(|a, b| a.meta.key.cmp(&b.meta.key));
        sets
    }

    /// Whether there is such an object of a kind about which controllers decide.
    pub(super) fn has(&self, resource: Resource, key: &ObjectKey) -> bool {
        match crate::wire::set_kind(resource) {
            Some(kind) => self.sets(kind).get(key).is_some(),
            None => self.pods.get(key).is_some(),
        }
    }

    fn sets(&self, kind: SetKind) -> &Store<SetRecord> {
        match kind {
            SetKind::Native => &self.native_sets,
            SetKind::Advanced => &self.advanced_sets,
            SetKind::Clone => &self.clone_sets,
        }
    }
}

impl Cache {
    /// What the API server's discovery says of `pods/resize`. Until it has been asked, it counts as served.
    pub fn note_resize(&mut self, is_served: bool) {
        self.lacks_resize = !is_served;
    }
}

/// The same incarnation of a pod as it is in the cache, and the version of the one in `bytes`.
fn known_pod<'a>(
    pods: &'a Store<PodRecord>,
    resource: Resource,
    encoding: Encoding,
    bytes: &Bytes,
) -> Option<(&'a Arc<PodRecord>, u64)> {
    if resource != Resource::Pods {
        return None;
    }
    let (key, uid, version) = wire::identity(encoding, bytes)?;
    let known = pods.get(&key)?;
    (known.meta.uid == uid).then_some((known, version))
}

/// Lets go of what only the controller of native sets reads of their revisions. The digest stays: a native set that becomes an Advanced one
/// knows its revisions by it. Once they are nobody's, which they become on the way, they are read anew.
fn leave_native(revision: &mut Arc<RevisionRecord>) {
    let owner = revision.meta.controller();
    let is_native =
        owner.is_some_and(|o| &*o.kind == SetKind::Native.resource().kind() && &*o.api_version == "apps/v1");
    if is_native && let Some(revision) = Arc::get_mut(revision) {
        (revision.template, revision.claim_templates) = (None, None);
    }
}

impl Reader for Cache {
    fn set(&self, kind: SetKind, key: &ObjectKey) -> Option<&Arc<SetRecord>> {
        self.sets(kind).get(key)
    }

    fn sets_in(&self, kind: SetKind, namespace: &str) -> Vec<Arc<SetRecord>> {
        self.sets(kind).in_namespace(namespace).to_vec()
    }

    fn all_sets(&self, kind: SetKind) -> Vec<Arc<SetRecord>> {
        self.sets(kind).iter().cloned().collect()
    }

    fn pod(&self, key: &ObjectKey) -> Option<&Arc<PodRecord>> {
        self.pods.get(key)
    }

    fn pods_of(&self, owner: Owner<'_>) -> &[Arc<PodRecord>] {
        self.pods.of_owner(owner)
    }

    fn orphan_pods(&self, namespace: &str) -> &[Arc<PodRecord>] {
        self.pods.in_namespace(namespace)
    }

    fn pods_mounting(&self, claim: &ObjectKey) -> Vec<&Arc<PodRecord>> {
        self.pods.mounting(claim)
    }

    fn claim(&self, key: &ObjectKey) -> Option<&Arc<ClaimRecord>> {
        self.claims.get(key)
    }

    fn claims_of(&self, owner: Owner<'_>) -> &[Arc<ClaimRecord>] {
        self.claims.of_owner(owner)
    }

    fn node(&self, name: &str) -> Option<&Arc<NodeRecord>> {
        self.nodes.get(&ObjectKey::new("", name))
    }

    fn config_map(&self, key: &ObjectKey) -> Option<&Arc<ConfigMapRecord>> {
        self.config_maps.get(key)
    }

    fn revision(&self, key: &ObjectKey) -> Option<&Arc<RevisionRecord>> {
        self.revisions.get(key)
    }

    fn revisions_of(&self, owner: Owner<'_>) -> &[Arc<RevisionRecord>] {
        self.revisions.of_owner(owner)
    }

    fn orphan_revisions(&self, namespace: &str) -> &[Arc<RevisionRecord>] {
        self.revisions.in_namespace(namespace)
    }

    fn storage_class(&self, name: &str) -> Option<&Arc<StorageClassRecord>> {
        self.storage_classes.get(&ObjectKey::new("", name))
    }

    fn supports_resize(&self) -> bool {
        !self.lacks_resize
    }

    fn knows_image_pull_jobs(&self) -> bool {
        self.knows_image_pull_jobs
    }

    fn image_pull_job(&self, key: &ObjectKey) -> Option<&Arc<ImagePullJobRecord>> {
        self.image_pull_jobs.get(key)
    }

    fn image_pull_jobs_of(&self, owner: Owner<'_>) -> &[Arc<ImagePullJobRecord>] {
        self.image_pull_jobs.of_owner(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(cache: &mut Cache, pod: &Value) -> Arc<PodRecord> {
        let bytes = Bytes::from(pod.to_string().into_bytes());
        match cache.read(Resource::Pods, Encoding::Json, &bytes) {
            Ok(Object::Pod(pod)) => pod,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pod_is_read_once_in_each_version_of_each_incarnation() {
        let mut cache = Cache::default();
        let metadata = json!({"name": "web-0", "namespace": "ns", "uid": "one", "resourceVersion": "7"});
        let mut pod = json!({"metadata": metadata, "spec": {}, "status": {"phase": "Running"}});
        let first = read(&mut cache, &pod);
        cache.apply(Object::Pod(first.clone()), Source::Answer);
        assert!(
            Arc::ptr_eq(&read(&mut cache, &pod), &first),
            "the watch tells what the answer told"
        );

        pod["metadata"]["resourceVersion"] = json!("8");
        pod["status"]["phase"] = json!("Failed");
        let second = read(&mut cache, &pod);
        assert!(second.is_terminal() && !first.is_terminal());
        cache.apply(Object::Pod(second), Source::Watch);
        pod["metadata"]["resourceVersion"] = json!("7");
        pod["status"]["phase"] = json!("Running");
        assert!(
            !read(&mut cache, &pod).is_terminal(),
            "an older version is read as it was"
        );

        pod["metadata"]["resourceVersion"] = json!("8");
        pod["metadata"]["uid"] = json!("another");
        assert!(!read(&mut cache, &pod).is_terminal(), "another incarnation");
    }
}
