//! What a controller answers: commands in stages, a status, events, and a reason for everything it waits for.

mod draft;

pub use draft::PodDraft;

use crate::hints::Hints;
use crate::meta::{ObjectKey, Uid};
use crate::resource::Resource;
use crate::wait::Wait;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The answer of one look at one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What to do, in order.
    pub stages: Vec<Stage>,
    /// What the status subresource should say. Written only if it differs from what is stored.
    pub status: Option<StatusWrite>,
    /// Notes for the user that no command carries.
    pub events: Vec<EventNote>,
    /// Everything that is held back, and why.
    pub waits: Vec<Wait>,
    /// Look again after this long, even if nothing changes.
    pub wake_after: Option<Duration>,
    /// Memory for the next pass, if it is to change.
    pub hints: Option<Hints>,
}

impl Decision {
    /// All commands, in order of stages.
    pub fn commands(&self) -> impl Iterator<Item = &ScopedCommand> {
        self.stages.iter().flat_map(|stage| &stage.commands)
    }

    /// Look again after `delay` at the latest.
    pub fn wake_within(&mut self, delay: Duration) {
        self.wake_after = Some(self.wake_after.map_or(delay, |known| known.min(delay)));
    }
}

/// Commands that may run at the same time. The next stage starts when this one has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stage {
    /// What this stage is for, in a word or two; for traces.
    pub name: &'static str,
    /// The commands, in order of weight: with slow start, earlier ones go first.
    pub commands: Vec<ScopedCommand>,
    /// Any failure ends the whole pass, not only its own scope (OrderedReady).
    pub all_or_stop: bool,
    /// Run batches of 1, 2, 4, ... so that a command that cannot work is not sent a thousand times.
    pub slow_start: bool,
}

/// A command and what it belongs to: a failed command cancels later stages of its own scope only.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopedCommand {
    /// What the command is about.
    pub scope: Scope,
    /// The command.
    pub command: Command,
}

/// What a command is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The object itself: revisions, adoption.
    Object,
    /// The pod slot with this ordinal, claims included.
    Slot(i64),
    /// Something found by its name: a pod to release, a revision to delete.
    Named(String),
    /// Whether the API server accepts pods that are made of this: the name of a revision, and behind an underscore each, which no such name
    /// has, the names of claim templates.
    Acceptance(String),
}

impl Scope {
    /// The revision in what is said of the pods of [`Scope::Acceptance`].
    pub fn revision_tried(made_of: &str) -> &str {
        made_of.split_once('_').map_or(made_of, |(revision, _)| revision)
    }
}

/// One effect on the cluster. A closed set, so that it can be printed, compared and counted.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Create an object.
    Create {
        /// Of which resource.
        resource: Resource,
        /// Where.
        key: ObjectKey,
        /// What.
        body: Body,
        /// Whether an object that is there already will do (a claim), or means that the view was stale (a pod).
        exists_is_fine: bool,
        /// Checked against the server before.
        guard: Option<Guard>,
        /// Which events tell of it.
        report: Report,
    },
    /// Change exactly the fields in `body`.
    Patch {
        /// Of which resource.
        resource: Resource,
        /// Which object.
        key: ObjectKey,
        /// Which incarnation: the patch carries it as a precondition.
        uid: Uid,
        /// Which part of the object, if it is one that is written by itself.
        subresource: Option<Subresource>,
        /// How `body` is read.
        kind: PatchKind,
        /// The patch; the executor adds the UID.
        body: Value,
        /// Only if the object is still at this version.
        resource_version: Option<u64>,
        /// Checked against the server before.
        guard: Option<Guard>,
        /// Which events tell of it.
        report: Report,
    },
    /// Delete an object.
    Delete {
        /// Of which resource.
        resource: Resource,
        /// Which object.
        key: ObjectKey,
        /// Which incarnation.
        uid: Uid,
        /// Only if the object is still at this version: for deletions that disrupt (STS-1.6).
        resource_version: Option<u64>,
        /// Which events tell of it.
        report: Report,
    },
    /// Ask the server whether it would accept a pod, and make none (`dryRun=All`).
    Try {
        /// The pod, just as it would be made. Its name may be taken: the server looks at that last.
        pod: Box<PodDraft>,
    },
    /// Read an object from the server into the cache before the next pass.
    Read {
        /// Of which resource.
        resource: Resource,
        /// Which object.
        key: ObjectKey,
    },
}

impl Command {
    /// The resource it acts on.
    pub fn resource(&self) -> Resource {
        match self {
            Command::Create { resource, .. }
            | Command::Patch { resource, .. }
            | Command::Delete { resource, .. }
            | Command::Read { resource, .. } => *resource,
            Command::Try { .. } => Resource::Pods,
        }
    }

    /// The object it acts on.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Command::Create { key, .. }
            | Command::Patch { key, .. }
            | Command::Delete { key, .. }
            | Command::Read { key, .. } => key,
            Command::Try { pod } => &pod.key,
        }
    }

    /// What must hold at the server before it is sent.
    pub fn guard(&self) -> Option<&Guard> {
        match self {
            Command::Create { guard, .. } | Command::Patch { guard, .. } => guard.as_ref(),
            Command::Delete { .. } | Command::Try { .. } | Command::Read { .. } => None,
        }
    }

    /// Which events tell of it.
    pub fn report(&self) -> Report {
        match self {
            Command::Create { report, .. } | Command::Patch { report, .. } | Command::Delete { report, .. } => *report,
            Command::Try { .. } => Report::Try,
            Command::Read { .. } => Report::Silent,
        }
    }
}

/// The object to create. Pods are kept as the few things in which they differ, and rendered when they are sent: a thousand
/// of them share one template until then.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// As it stands.
    Json(Arc<Value>),
    /// A pod from a template.
    Pod(Box<PodDraft>),
}

impl Body {
    /// The JSON document to send.
    pub fn render(&self) -> Value {
        match self {
            Body::Json(value) => (**value).clone(),
            Body::Pod(draft) => draft.render(),
        }
    }
}

/// A part of an object that is written by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subresource {
    /// `status`.
    Status,
    /// `resize` of a pod: cpu and memory of its containers.
    Resize,
}

impl Subresource {
    /// Its name in URLs.
    pub const fn name(self) -> &'static str {
        match self {
            Subresource::Status => "status",
            Subresource::Resize => "resize",
        }
    }
}

/// How the body of a patch is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 7386: lists are replaced.
    Merge,
    /// Kubernetes' own: lists such as owner references are merged by their key.
    Strategic,
    /// RFC 6902.
    Json,
}

/// Something that must hold at the server right before a command is sent (ruling: `decide` never reads).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The resource of the object to look at.
    pub resource: Resource,
    /// The object.
    pub key: ObjectKey,
    /// It must still be this incarnation, and must not be under deletion.
    pub uid: Uid,
}

/// Which events on the set tell of a command: reasons for success and failure (STS-1.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// None.
    Silent,
    /// SuccessfulCreate / FailedCreate.
    Create,
    /// FailedCreate: that a pod would be accepted is nothing to tell.
    Try,
    /// FailedCreate: that a new pod may have a claim which is there already is nothing to tell.
    Take,
    /// SuccessfulDelete / FailedDelete.
    Delete,
    /// SuccessfulUpdate / FailedUpdate.
    Update,
    /// SuccessfulResize / FailedResize.
    Resize,
    /// SuccessfulUpdatePodInPlace / FailedUpdatePodInPlace.
    InPlace,
    /// SuccessfulUpdatePodReCreate / FailedUpdatePodReCreate.
    ReCreate,
    /// CreatedImagePullJob / FailedCreateImagePullJob.
    PullImage,
    /// RecreatingFailedPod (Warning) / FailedDelete.
    RecreateFailed,
    /// RecreatingTerminatedPod (Normal) / FailedDelete.
    RecreateTerminated,
}

/// The status that an object should have.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// Of which resource.
    pub resource: Resource,
    /// Which object.
    pub key: ObjectKey,
    /// Which incarnation.
    pub uid: Uid,
    /// The version it was computed from; a later one means: look again.
    pub resource_version: u64,
    /// What is stored now, whole.
    pub observed: Arc<Value>,
    /// What our fields should say. Fields of `observed` that are not named here stay; null removes one.
    pub desired: Value,
}

impl StatusWrite {
    /// The merge patch for the status, or `None` if nothing differs.
    pub fn diff(&self) -> Option<Value> {
        let desired = self.desired.as_object()?;
        let changed: serde_json::Map<String, Value> = desired
            .iter()
            .filter(|(field, value)| self.observed.get(*field).unwrap_or(&Value::Null) != *value)
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect();
        (!changed.is_empty()).then_some(Value::Object(changed))
    }

    /// Whether only numbers differ: such a write may be put off for a moment, so that a thousand pods becoming ready do not
    /// make a thousand writes.
    pub fn only_counts_differ(&self) -> bool {
        self.diff().is_some_and(|diff| {
            diff.as_object().is_some_and(|d| {
                d.iter()
                    .all(|(field, value)| value.is_number() && field != "observedGeneration")
            })
        })
    }
}

/// A note for the user on the object of the pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventNote {
    /// Whether it is a Warning.
    pub warning: bool,
    /// A word programs match.
    pub reason: &'static str,
    /// The sentence.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn status_diff_names_only_what_changes() {
        let mut write = StatusWrite {
            resource: Resource::NativeSets,
            key: ObjectKey::new("ns", "web"),
            uid: Uid::new("u"),
            resource_version: 7,
            observed: Arc::new(json!({"replicas": 2, "foreign": true, "updateRevision": "a"})),
            desired: json!({"replicas": 3, "updateRevision": "a", "collisionCount": null}),
        };
        assert_eq!(write.diff(), Some(json!({"replicas": 3})));
        assert!(write.only_counts_differ());
        write.desired = json!({"replicas": 3, "updateRevision": "b"});
        assert!(!write.only_counts_differ());
        write.desired = json!({"replicas": 2});
        assert_eq!(write.diff(), None);
    }
}
