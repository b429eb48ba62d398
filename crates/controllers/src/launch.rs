//! Container launch priority: the containers of a pod start one group after the other (ADM-3).
//!
//! Admission gives each container an environment entry that refers to a key of the config map `POD-barrier`; the kubelet does not start
//! a container whose key is missing. The controller makes that config map with the key of the highest priority, and adds the key of the
//! next lower one when all containers of the higher ones are up. Keys are never taken away: a container that restarts needs its own.
//!
//! Of the config maps of a cluster only those with label `flotilla.rs/launch-barrier` are watched. One without it (of OpenKruise, or
//! of somebody who took the label away) is found when ours cannot be created, and labelled.

mod decide;

#[cfg(test)]
mod tests;

use flotilla_api::names;
use flotilla_model::records::PodTrouble;
use flotilla_model::{Change, Controller, Decision, ObjectKey, PassContext, PodRecord, Reader, Resource, WaitCause};

/// What a pod's name gets behind it as the name of its barrier.
const SUFFIX: &str = "-barrier";

/// The controller of barriers. Its keys are those of pods.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaunchController;

/// Whether containers of the pod wait for a barrier.
fn has_barrier(pod: &PodRecord) -> bool {
    let detail = pod.detail.as_ref();
    detail.is_some_and(|d| d.spec.containers.iter().any(|c| c.priority.is_some()))
}

/// The key of a pod's barrier.
fn barrier_of(pod: &ObjectKey) -> ObjectKey {
    pod.sibling(format!("{}{SUFFIX}", pod.name))
}

/// Why the kubelet does not start a container, if it misses the key of its barrier: what it says of a config map, in our words.
pub(crate) fn held_at_barrier(pod: &PodRecord, trouble: &PodTrouble) -> Option<WaitCause> {
    let barrier = barrier_of(&pod.meta.key).name;
    // Another config map of the container may be what is missing.
    if trouble.reason != "CreateContainerConfigError" || !trouble.message.contains(&*barrier) {
        return None;
    }
    let detail = pod.detail.as_ref()?;
    let priority = detail.container(&trouble.container)?.0.priority?;
    Some(WaitCause::LaunchBarrier {
        container: trouble.container.clone(),
        barrier: barrier.to_string(),
        key: names::launch_barrier_key(priority),
        behind: decide::not_up_above(detail, priority),
    })
}

impl Controller for LaunchController {
    fn name(&self) -> &'static str {
        "container-launch-priority"
    }

    fn resource(&self) -> Resource {
        Resource::Pods
    }

    fn route(&self, change: &Change, reader: &dyn Reader, keys: &mut Vec<ObjectKey>) {
        match change {
            // Also of one that is gone: what is remembered of it is forgotten.
            Change::Pod(_, Some(pod)) | Change::Pod(Some(pod), None) if has_barrier(pod) => {
                keys.push(pod.meta.key.clone());
            }
            Change::ConfigMap(old, new) => {
                let Some(map) = new.as_ref().or(old.as_ref()) else {
                    return;
                };
                let pod = map.meta.key.name.strip_suffix(SUFFIX);
                let pod = pod.and_then(|name| reader.pod(&map.meta.key.sibling(name)));
                keys.extend(pod.filter(|pod| has_barrier(pod)).map(|pod| pod.meta.key.clone()));
            }
            Change::Pod(..)
            | Change::Claim(..)
            | Change::Revision(..)
            | Change::ImagePullJob(..)
            | Change::StorageClass(..)
            | Change::Set(..) => {}
        }
    }

    fn reconcile(&self, reader: &dyn Reader, key: &ObjectKey, context: PassContext<'_>) -> Option<Decision> {
        let pod = reader.pod(key).filter(|pod| has_barrier(pod))?;
        let map = reader.config_map(&barrier_of(key));
        Some(decide::decide(pod, map.map(|map| &**map), context))
    }
}
