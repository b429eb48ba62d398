//! What the engine asks of a controller.

use crate::decision::Decision;
use crate::hints::Hints;
use crate::meta::ObjectKey;
use crate::reader::Reader;
use crate::records::{ClaimRecord, ConfigMapRecord, ImagePullJobRecord, PodRecord, RevisionRecord, StorageClassRecord};
use crate::resource::Resource;
use crate::set::SetRecord;
use crate::time::Timestamp;
use std::sync::Arc;

/// One object changed in the cache: what it was and what it is. At least one side is there.
#[derive(Clone, Debug)]
pub enum Change {
    /// A pod.
    Pod(Option<Arc<PodRecord>>, Option<Arc<PodRecord>>),
    /// A claim.
    Claim(Option<Arc<ClaimRecord>>, Option<Arc<ClaimRecord>>),
    /// A config map.
    ConfigMap(Option<Arc<ConfigMapRecord>>, Option<Arc<ConfigMapRecord>>),
    /// A revision.
    Revision(Option<Arc<RevisionRecord>>, Option<Arc<RevisionRecord>>),
    /// An `ImagePullJob`.
    ImagePullJob(Option<Arc<ImagePullJobRecord>>, Option<Arc<ImagePullJobRecord>>),
    /// A storage class.
    StorageClass(Option<Arc<StorageClassRecord>>, Option<Arc<StorageClassRecord>>),
    /// A set of either kind.
    Set(Option<Arc<SetRecord>>, Option<Arc<SetRecord>>),
}

impl Change {
    /// The object that changed.
    pub fn object(&self) -> Option<(Resource, &ObjectKey)> {
        match self {
            Change::Pod(old, new) => new.as_ref().or(old.as_ref()).map(|r| (Resource::Pods, &r.meta.key)),
            Change::Claim(old, new) => new.as_ref().or(old.as_ref()).map(|r| (Resource::Claims, &r.meta.key)),
            Change::ConfigMap(old, new) => new
                .as_ref()
                .or(old.as_ref())
                .map(|r| (Resource::ConfigMaps, &r.meta.key)),
            Change::Revision(old, new) => new
                .as_ref()
                .or(old.as_ref())
                .map(|r| (Resource::Revisions, &r.meta.key)),
            Change::ImagePullJob(old, new) => new
                .as_ref()
                .or(old.as_ref())
                .map(|r| (Resource::ImagePullJobs, &r.meta.key)),
            Change::StorageClass(old, new) => new
                .as_ref()
                .or(old.as_ref())
                .map(|r| (Resource::StorageClasses, &r.meta.key)),
            Change::Set(old, new) => new.as_ref().or(old.as_ref()).map(|r| (r.kind.resource(), &r.meta.key)),
        }
    }
}

/// What a pass knows beside the cluster.
#[derive(Clone, Copy, Debug)]
pub struct PassContext<'a> {
    /// The one clock value of the pass.
    pub now: Timestamp,
    /// Since when this process has been watching, and could have acted; deadlines do not run before.
    pub observing_since: Timestamp,
    /// A number that differs from pass to pass: the only source of jitter or random choice.
    pub entropy: u64,
    /// What earlier passes remembered.
    pub hints: &'a Hints,
}

/// A controller: pure functions from what is seen to what is wanted.
pub trait Controller: Send + Sync {
    /// Its name in logs, metrics and events.
    fn name(&self) -> &'static str;

    /// The resource whose keys it reconciles.
    fn resource(&self) -> Resource;

    /// Adds the keys that a change concerns to `keys`. A change that cannot matter adds none.
    fn route(&self, change: &Change, reader: &dyn Reader, keys: &mut Vec<ObjectKey>);

    /// Looks at one key and decides. `None` if the object is not there (any more).
    fn reconcile(&self, reader: &dyn Reader, key: &ObjectKey, context: PassContext<'_>) -> Option<Decision>;
}
