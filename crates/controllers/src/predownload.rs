//! Images pulled ahead: before pods are updated in place, the nodes on which they run are made to pull the new images, so that a container
//! is down for no longer than it takes to start (STS-5, CS-20).
//!
//! A controller of its own over the same sets, since an update must never wait for it: its passes, failures and back-offs touch no other.
//! It makes `ImagePullJob`s, which somebody else carries out, and notes on the update revision that it has. It exists only where it was
//! asked for, and does nothing where the API server does not know that kind.

mod decide;
mod job;

#[cfg(test)]
mod tests;

use crate::cloneset::Defaults;
use crate::shared::routing;
use flotilla_model::{Change, Controller, Decision, ObjectKey, PassContext, Reader, Resource, SetKind};

/// The controller that pulls images ahead of the updates of one kind of set.
#[derive(Clone, Copy, Debug)]
pub struct PreDownloadController {
    kind: SetKind,
    clones: Defaults,
}

impl PreDownloadController {
    /// For sets of this kind.
    pub fn new(kind: SetKind) -> Self {
        PreDownloadController {
            kind,
            clones: Defaults::default(),
        }
    }

    /// With what holds for all CloneSets.
    #[must_use]
    pub fn with(mut self, clones: Defaults) -> Self {
        self.clones = clones;
        self
    }
}

impl Controller for PreDownloadController {
    fn name(&self) -> &'static str {
        match self.kind {
            SetKind::Native => "statefulset-native-image-predownload",
            SetKind::Advanced => "statefulset-image-predownload",
            SetKind::Clone => "cloneset-image-predownload",
        }
    }

    fn resource(&self) -> Resource {
        self.kind.resource()
    }

    fn route(&self, change: &Change, reader: &dyn Reader, keys: &mut Vec<ObjectKey>) {
        if !reader.knows_image_pull_jobs() {
            // Every set is looked at once they are known.
            return;
        }
        match change {
            // How many pods are updated and ready is read from the status.
            Change::Set(old, new) => keys.extend(routing::of_set(self.kind, old.as_deref(), new.as_deref())),
            Change::Revision(old, new) => {
                for revision in [old, new].into_iter().flatten() {
                    routing::route_revision(self.kind, revision, reader, keys);
                }
            }
            Change::ImagePullJob(old, new) => {
                let owners = [old, new].into_iter().flatten();
                keys.extend(owners.filter_map(|job| routing::owner_key(self.kind, &job.meta, reader)));
            }
            Change::Pod(..) | Change::Claim(..) | Change::ConfigMap(..) | Change::StorageClass(..) => {}
        }
    }

    fn reconcile(&self, reader: &dyn Reader, key: &ObjectKey, context: PassContext<'_>) -> Option<Decision> {
        let set = reader.set(self.kind, key)?;
        Some(decide::decide(set, reader, self.clones, context))
    }
}
