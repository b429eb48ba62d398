//! The volume binder, and the protection of claims that pods still use.

use crate::cluster::{Cluster, Event};
use crate::server::{Actor, Entry, Stored};
use flotilla_engine::wire::Object;
use flotilla_model::{ObjectKey, PodRecord, Resource, Timestamp};
use serde_json::json;
use std::time::Duration;

/// Between two looks at a claim that is to go and is still used.
const LOOK_AGAIN_MS: u64 = 500;

/// How the file system of a volume grows that has grown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileSystems {
    /// With the volume.
    #[default]
    AtOnce,
    /// Mounted, so many milliseconds later.
    Online(u64),
    /// When it is mounted the next time.
    AtMount,
}

/// Whether a bound claim asks for another size than it has.
fn is_growing(claim: &Stored) -> bool {
    let claim = claim.value();
    let asked = &claim["spec"]["resources"]["requests"]["storage"];
    claim["status"]["phase"] == "Bound" && claim["status"]["capacity"]["storage"] != *asked
}

impl Cluster {
    /// Something changed: new claims are to be bound, and those under deletion to be let go.
    pub(crate) fn volumes_react(&mut self, entry: &Entry) {
        if entry.resource != Resource::Claims || entry.after.is_none() {
            return;
        }
        let is_new = entry.before.is_none();
        if is_new || entry.verb == "delete" || entry.after.as_ref().is_some_and(is_growing) {
            let delay_ms = self.between(self.nodes.pace.claim_ms.clone());
            self.plan(delay_ms, Event::Claim(entry.key.clone()));
        }
    }

    /// Whether the file system on the volume of a claim has nothing to wait for. It begins to wait when its volume has grown.
    fn file_system_grows(&mut self, key: &ObjectKey) -> bool {
        let Some(Object::Claim(claim)) = self.server.get(Resource::Claims, key).and_then(|s| s.object.clone()) else {
            return false;
        };
        let is_growing = self.server.get(Resource::Claims, key).is_some_and(is_growing);
        if self.file_systems == FileSystems::AtOnce || !is_growing {
            return true;
        }
        let mounts = |pod: &PodRecord, before: Option<Timestamp>| {
            let runs = pod.node.is_some() && !pod.is_terminal() && before.is_none_or(|since| pod.meta.created < since);
            runs && pod.meta.key.namespace == key.namespace && pod.claims().any(|(_, claim)| claim == key.name.as_str())
        };
        let since = claim.resize_pending_since;
        let is_mounted = self.server.all(Resource::Pods).any(|s| match &s.object {
            Some(Object::Pod(pod)) => mounts(pod, since),
            _ => false,
        });
        let waited = since.map(|since| self.now().since(since));
        match (self.file_systems, waited) {
            _ if !is_mounted => true,
            (FileSystems::Online(after_ms), Some(waited)) if waited >= Duration::from_millis(after_ms) => true,
            (FileSystems::Online(after_ms), Some(_)) => {
                self.plan(after_ms.min(LOOK_AGAIN_MS), Event::Claim(key.clone()));
                false
            }
            (_, Some(_)) => false,
            (_, None) => {
                let condition = json!({
                    "type": "FileSystemResizePending", "status": "True", "lastTransitionTime": self.wall(),
                    "message": "Waiting for user to (re-)start a pod to finish file system resize of volume on node.",
                });
                let status = json!({"status": {"conditions": [condition]}});
                // As below.
                let _ = self.server.patch_status(Actor::System, Resource::Claims, key, &status);
                false
            }
        }
    }

    /// A pod is bound: its volumes are mounted.
    pub(crate) fn volumes_mounted(&mut self, pod: &PodRecord) {
        if self.file_systems == FileSystems::AtOnce {
            return;
        }
        for (_, claim) in pod.claims() {
            self.plan(0, Event::Claim(pod.meta.key.sibling(claim)));
        }
    }

    /// Looks after a claim whose deletion began before this cluster was simulated.
    pub fn go_on_with_claim(&mut self, key: &ObjectKey) {
        let delay_ms = self.between(self.nodes.pace.claim_ms.clone());
        self.plan(delay_ms, Event::Claim(key.clone()));
    }

    /// Binds a claim, or lets it go once no pod uses it.
    pub(crate) fn tend_claim(&mut self, key: &ObjectKey) {
        let Some(stored) = self.server.get(Resource::Claims, key) else {
            return;
        };
        let Some(Object::Claim(claim)) = &stored.object else {
            return;
        };
        if claim.meta.deleted.is_none() {
            let size = stored.value()["spec"]["resources"]["requests"]["storage"].clone();
            if !self.file_system_grows(key) {
                return;
            }
            let status = json!({"status": {"phase": "Bound", "capacity": {"storage": size}, "conditions": null}});
            // It is there, and there are no preconditions.
            let _ = self.server.patch_status(Actor::System, Resource::Claims, key, &status);
            return;
        }
        // A pod that is not bound yet does not count, as in Kubernetes: no kubelet would start it with a claim that is on its way out.
        let uses = |pod: &PodRecord| {
            let runs = pod.node.is_some() && !pod.is_terminal();
            runs && pod.meta.key.namespace == key.namespace && pod.claims().any(|(_, claim)| claim == key.name.as_str())
        };
        let is_used = self.server.all(Resource::Pods).any(|s| match &s.object {
            Some(Object::Pod(pod)) => uses(pod),
            _ => false,
        });
        if is_used {
            return self.plan(LOOK_AGAIN_MS, Event::Claim(key.clone()));
        }
        let mut value = (*stored.value()).clone();
        if let Some(list) = value["metadata"]["finalizers"].as_array_mut() {
            list.retain(|f| f != "kubernetes.io/pvc-protection");
        }
        // As before.
        let _ = self.server.update(Actor::System, Resource::Claims, value);
    }
}
