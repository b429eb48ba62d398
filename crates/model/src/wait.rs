//! Why something is held back: as data for programs, as a sentence for people, with what they can do about it.

mod advice;
mod refusal;
mod trial;
mod words;

pub use self::advice::{GoBack, Keeper, Lack, Whom};
pub use self::refusal::{Refusal, Right};

use self::words::{held_by, labelled, seconds, short_list, takers};
use crate::time::Timestamp;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// One thing that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The pod or claim that waits, or is waited for; the set's name if it is the set as a whole.
    pub subject: String,
    /// What for.
    pub cause: WaitCause,
    /// Since when, as far as the cluster tells.
    pub since: Option<Timestamp>,
}

impl Wait {
    /// The same for the same wait in every pass, whatever numbers move.
    pub fn key(&self) -> String {
        format!("{}: {}", self.subject, self.cause.rule())
    }
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "cause", rename_all_fields = "camelCase")]
pub enum WaitCause {
    /// The pod is not ready.
    PodNotReady {
        /// What kubelet or scheduler say about it: a reason and a sentence.
        reason: String,
        /// The sentence.
        message: String,
    },
    /// The image or command of a container cannot start.
    ContainerCannotStart {
        /// The container.
        container: String,
        /// ImagePullBackOff, CrashLoopBackOff, ...
        reason: String,
        /// What the kubelet says.
        message: String,
    },
    /// A container must not start before others (container launch priority), and the key that lets it go is not there yet.
    LaunchBarrier {
        /// The container.
        container: String,
        /// The config map that the kubelet looks into.
        barrier: String,
        /// The key that it misses.
        key: String,
        /// Containers that have to be up before; none if the key should be there already.
        behind: Vec<String>,
    },
    /// The pod is ready, and its label says that it is in a state of its lifecycle in which it does not count.
    LifecycleState {
        /// What the label says.
        state: String,
    },
    /// The pod is ready, but not yet for as long as is asked.
    PodNotAvailable {
        /// What is left, in milliseconds.
        #[serde(rename = "remainingMilliseconds", serialize_with = "milliseconds")]
        remaining: Duration,
    },
    /// The pod's deletion has been asked for, and it is not gone yet.
    PodTerminating {
        /// The node it was on.
        node: Option<String>,
        /// What keeps its object, as far as whoever says so has read it.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        finalizers: Vec<String>,
    },
    /// The set's deletion has been asked for, and it is not gone yet.
    SetTerminating {
        /// What keeps its object.
        finalizers: Vec<String>,
    },
    /// The set's namespace is being deleted: nothing can be made in it any more.
    NamespaceTerminating {
        /// What is in its way, in the words of whoever empties it.
        message: String,
    },
    /// The pod's object is new and has no phase yet, or was just created.
    PodStarting,
    /// Another pod has to come first (OrderedReady).
    Order {
        /// That pod.
        behind: String,
    },
    /// The update's budget is used up.
    UpdateBudget {
        /// How many pods may be unavailable.
        budget: i32,
        /// Pods that use it.
        used_by: Vec<String>,
    },
    /// The budget of scaling is used up.
    ScaleBudget {
        /// How many pods may be unavailable.
        budget: i32,
        /// Pods that use it.
        used_by: Vec<String>,
    },
    /// As many pods as may be are unavailable: one that is available stays for now.
    KeepsAvailable {
        /// How many pods have to be available.
        keep: i32,
        /// How many are.
        available: i32,
    },
    /// The update waits until pods that it made or changed are available.
    Brake {
        /// How many of them are not.
        unavailable: i32,
    },
    /// The template of an old revision mounts a claim for which there is no template any more.
    ClaimTemplateMissing {
        /// The volume.
        volume: String,
    },
    /// The partition keeps pods on the old revision.
    Partition {
        /// How many; 0 where there are none, and the next would be at it.
        kept: usize,
    },
    /// The update is paused.
    Paused,
    /// Pods are replaced when somebody deletes them.
    OnDelete {
        /// How many are old.
        old: usize,
    },
    /// Claims grow in rolling updates alone, and users delete the pods (OnDelete).
    ClaimsLeftBehind {
        /// How many pods have such claims.
        pods: usize,
    },
    /// All old pods have to go first (Recreate).
    OldPodsRemain {
        /// How many are left.
        left: usize,
    },
    /// Pods have ordinals that fill no slot: they are counted, and never acted upon.
    OrdinalTooLarge {
        /// Their names.
        pods: Vec<String>,
    },
    /// The claim is being deleted; a pod that mounted it would never start.
    ClaimTerminating {
        /// Pods that mount it and are not on their way out, as far as whoever tells of it has looked.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        used_by: Vec<String>,
        /// What others hold it by, as far as whoever tells of it has looked.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        finalizers: Vec<String>,
    },
    /// The claim still belongs to a pod, or a set, that is gone: the garbage collector takes it away, however late.
    ClaimStale {
        /// Kind and name of that owner.
        owner: String,
        /// The claim is to outlive its owner, and is taken from it before a pod mounts it.
        stays: bool,
    },
    /// The claim is being expanded.
    ClaimExpanding,
    /// The volume has grown, and its file system has yet to: by itself, where its driver can do that, or when the pod is made again.
    FileSystemPending {
        /// When the pod is made again for it, if it may be.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "rfc3339_if_any")]
        restart_at: Option<Timestamp>,
    },
    /// The claim differs from its template in more than size, or its class cannot be expanded.
    ClaimIncompatible {
        /// In what.
        difference: String,
    },
    /// The API server refused a request of ours.
    Refused {
        /// A word for programs: QuotaExceeded, ServiceAccountMissing, Forbidden, Invalid, ...
        reason: String,
        /// What the API server said.
        message: String,
        /// When it is tried again, if that is known: only its manager knows it.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "rfc3339_if_any")]
        retry_at: Option<Timestamp>,
    },
    /// No pod is replaced before the API server has accepted one of this revision, and it has not answered yet.
    RevisionUntried,
    /// Whether the API server accepts pods of this revision cannot be known before one goes: then no other goes before that one's successor
    /// is there. Where all go at once, they do so only for a full quota, and out of a set that lacks none.
    RevisionUnproven {
        /// A word for programs, as of [`WaitCause::Refused`].
        reason: String,
        /// What the API server said.
        message: String,
        /// When it is asked again, if that is known.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "rfc3339_if_any")]
        retry_at: Option<Timestamp>,
        /// Whether the update takes all pods at once.
        all_at_once: bool,
    },
    /// The API server does not accept pods of this revision, so none is replaced.
    RevisionRefused {
        /// A word for programs, as of [`WaitCause::Refused`].
        reason: String,
        /// What the API server said.
        message: String,
        /// When it is asked again, if that is known.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "rfc3339_if_any")]
        retry_at: Option<Timestamp>,
    },
    /// The same request was sent again and again, and is held back for longer each time.
    Repeated {
        /// What is known of it.
        message: String,
        /// When it is tried again.
        #[serde(serialize_with = "rfc3339")]
        retry_at: Timestamp,
    },
    /// The manager holds it back, for a reason that only it knows, in its words.
    HeldBack {
        /// What the set's conditions say.
        message: String,
    },
    /// The slot's pods end right after their start.
    StartBackOff {
        /// How many in a row.
        failed: u32,
        /// When the next is made.
        #[serde(serialize_with = "rfc3339")]
        retry_at: Timestamp,
    },
    /// The revision of the template still belongs to a former set of this name.
    RevisionLeaving,
    /// A pod that is not ours has the name.
    NameTaken {
        /// Who manages it, or nobody.
        owner: Option<String>,
    },
    /// A scale-down waits for pods that are not healthy (OrderedReady).
    ScaleDownBehindUnhealthy {
        /// The lowest unhealthy pod.
        pod: String,
    },
    /// A field of the set cannot be read; what depends on it is not done.
    FieldUnreadable {
        /// Path of the field.
        path: String,
        /// What it holds.
        found: String,
        /// What it should hold.
        rule: String,
    },
    /// Somebody changed the pod as it was made, such as a webhook. It is left so.
    ChangedByOthers {
        /// In what it differs from what was asked for.
        difference: String,
    },
    /// A lifecycle hook holds the pod: somebody has to take these markers away.
    HookHolds {
        /// preDelete or inPlaceUpdate.
        hook: &'static str,
        /// Labels and finalizers.
        markers: Vec<String>,
        /// The hook asks for it not to be ready meanwhile, and it lacks the gate for that: it was made before.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        stays_ready: bool,
    },
    /// A lifecycle hook waits for the pod: somebody has to put these markers on before it counts as normal.
    HookLacks {
        /// preNormal or inPlaceUpdate.
        hook: &'static str,
        /// Labels and finalizers.
        markers: Vec<String>,
    },
    /// The pod is out of service, and its containers change when the grace period has ended.
    InPlaceGrace {
        /// What is left, in milliseconds.
        #[serde(rename = "remainingMilliseconds", serialize_with = "milliseconds")]
        remaining: Duration,
    },
    /// Containers of a lower launch priority change when these are ready.
    InPlaceBatch {
        /// Containers that were changed before.
        containers: Vec<String>,
    },
    /// A container has not been restarted with what it was changed to.
    InPlaceRestart {
        /// The container.
        container: String,
        /// The pod serves meanwhile: it lacks the gate by which it would leave service (CS-16.7).
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        stays_ready: bool,
    },
    /// The environment of a container is not known to be what labels and annotations say now.
    InPlaceEnvironment {
        /// The container.
        container: String,
    },
    /// The node has not given a container its new resources yet.
    InPlaceResize {
        /// What the kubelet says.
        message: String,
    },
    /// The node will never give a container its new resources.
    ResizeInfeasible {
        /// What the kubelet says.
        message: String,
    },
    /// The change cannot be made in place, and nothing else is allowed.
    InPlaceNotPossible {
        /// Why.
        reason: String,
    },
    /// The pod says of itself that it is being updated in place, in words that cannot be read.
    InPlaceUnreadable,
    /// The pod does not agree with the template in a way that only making it again mends.
    InPlaceAbandoned {
        /// Why.
        reason: String,
    },
    /// Another controller writes to this set.
    ForeignWriter {
        /// Its field manager, or what it did.
        writer: String,
        /// When we look again.
        #[serde(serialize_with = "rfc3339")]
        retry_at: Timestamp,
    },
    /// The manager watches for other controllers before its first write.
    Observing {
        /// Until when.
        #[serde(serialize_with = "rfc3339")]
        until: Timestamp,
    },
}

fn milliseconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

// serde hands the field over by reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn rfc3339<S: serde::Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

// serde hands the field over by reference.
#[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref)]
fn rfc3339_if_any<S: serde::Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(time),
        None => serializer.serialize_none(),
    }
}

impl WaitCause {
    /// A claim on its way out, of which nothing else is known.
    pub const CLAIM_TERMINATING: WaitCause = WaitCause::ClaimTerminating {
        used_by: Vec::new(),
        finalizers: Vec::new(),
    };

    /// The rule behind it, as a name: the field or behaviour of Kubernetes that asks for the wait.
    pub fn rule(&self) -> &'static str {
        match self {
            WaitCause::PodNotReady { .. } | WaitCause::ContainerCannotStart { .. } | WaitCause::PodStarting => {
                "readiness"
            }
            WaitCause::LifecycleState { .. } => "lifecycle",
            WaitCause::PodNotAvailable { .. } => "minReadySeconds",
            WaitCause::RevisionLeaving => "one revision per template",
            WaitCause::PodTerminating { .. } | WaitCause::NameTaken { .. } => "one pod per name",
            WaitCause::OrdinalTooLarge { .. } => "an ordinal is a number of 32 bits",
            WaitCause::Order { .. } | WaitCause::ScaleDownBehindUnhealthy { .. } => "podManagementPolicy OrderedReady",
            WaitCause::UpdateBudget { .. } | WaitCause::KeepsAvailable { .. } | WaitCause::Brake { .. } => {
                "updateStrategy.rollingUpdate.maxUnavailable"
            }
            WaitCause::ScaleBudget { .. } => "scaleStrategy.maxUnavailable",
            WaitCause::Partition { .. } => "updateStrategy.rollingUpdate.partition",
            WaitCause::Paused => "updateStrategy.rollingUpdate.paused",
            WaitCause::OnDelete { .. } | WaitCause::ClaimsLeftBehind { .. } => "updateStrategy.type OnDelete",
            WaitCause::OldPodsRemain { .. } => "update type Recreate",
            WaitCause::ClaimTerminating { .. }
            | WaitCause::ClaimStale { .. }
            | WaitCause::ClaimTemplateMissing { .. } => "a pod needs its claims",
            WaitCause::ClaimExpanding | WaitCause::FileSystemPending { .. } | WaitCause::ClaimIncompatible { .. } => {
                "volumeClaimUpdateStrategy OnPodRollingUpdate"
            }
            WaitCause::Refused { .. } => "the API server's answer",
            WaitCause::RevisionUntried | WaitCause::RevisionUnproven { .. } | WaitCause::RevisionRefused { .. } => {
                "no pod goes for a revision of which none is accepted"
            }
            WaitCause::Repeated { .. } => "no request is repeated without end",
            WaitCause::HeldBack { .. } => "what the set's conditions say",
            WaitCause::StartBackOff { .. } => "back-off for failing pods",
            WaitCause::FieldUnreadable { .. } => "nothing is deleted on the strength of a field that cannot be read",
            WaitCause::ChangedByOthers { .. } => "what others change is left so",
            WaitCause::HookHolds { hook, .. } | WaitCause::HookLacks { hook, .. } => match *hook {
                "preDelete" => "lifecycle.preDelete",
                "preNormal" => "lifecycle.preNormal",
                _ => "lifecycle.inPlaceUpdate",
            },
            WaitCause::InPlaceGrace { .. } => "inPlaceUpdateStrategy.gracePeriodSeconds",
            WaitCause::InPlaceBatch { .. } | WaitCause::LaunchBarrier { .. } => "container launch priority",
            WaitCause::InPlaceRestart { .. } | WaitCause::InPlaceEnvironment { .. } | WaitCause::InPlaceUnreadable => {
                "an update in place is complete when its containers are"
            }
            WaitCause::InPlaceResize { .. } | WaitCause::ResizeInfeasible { .. } => "resize of pods",
            WaitCause::InPlaceNotPossible { .. } | WaitCause::InPlaceAbandoned { .. } => {
                "updateStrategy.rollingUpdate.podUpdatePolicy"
            }
            WaitCause::ForeignWriter { .. } | WaitCause::Observing { .. } => "one controller per set",
            WaitCause::SetTerminating { .. } => "an object goes when its finalizers are done",
            WaitCause::NamespaceTerminating { .. } => "nothing is made in a namespace that is being deleted",
        }
    }

    /// Whether it is what the user asked for, or what others have made, and nothing is in the way.
    pub fn is_intended(&self) -> bool {
        matches!(
            self,
            WaitCause::Partition { .. }
                | WaitCause::Paused
                | WaitCause::OnDelete { .. }
                | WaitCause::ClaimsLeftBehind { .. }
                | WaitCause::Observing { .. }
                | WaitCause::ChangedByOthers { .. }
                | WaitCause::OrdinalTooLarge { .. }
        )
    }
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitCause::PodNotReady { reason, message } => labelled(f, "is not ready", reason, message),
            WaitCause::ContainerCannotStart {
                container,
                reason,
                message,
            } => labelled(f, &format!("container {container} cannot start"), reason, message),
            WaitCause::PodNotAvailable { remaining } => {
                write!(f, "is ready, and available in {}", seconds(*remaining))
            }
            WaitCause::PodTerminating { node, finalizers } => {
                f.write_str("is terminating")?;
                node.iter().try_for_each(|node| write!(f, " on node {node}"))?;
                held_by(f, finalizers)
            }
            WaitCause::PodStarting => f.write_str("is starting"),
            WaitCause::Order { behind } => write!(f, "comes after {behind}"),
            WaitCause::UpdateBudget { budget, used_by } => {
                write!(f, "budget of {budget} unavailable used up by {}", takers(used_by))
            }
            WaitCause::ScaleBudget { budget, used_by } => {
                write!(
                    f,
                    "scaling budget of {budget} unavailable used up by {}",
                    takers(used_by)
                )
            }
            WaitCause::Partition { kept: 0 } => f.write_str("the partition keeps the old revision for pods to come"),
            WaitCause::Partition { kept } => write!(f, "the partition keeps {kept} on the old revision"),
            WaitCause::Paused => f.write_str("the update is paused"),
            WaitCause::OnDelete { old } => write!(f, "{old} old, replaced when they are deleted"),
            WaitCause::OldPodsRemain { left } => write!(f, "{left} old pods have to go first"),
            WaitCause::StartBackOff { failed, retry_at } => {
                write!(
                    f,
                    "its last {failed} pods ended right after their start; next try {retry_at}"
                )
            }
            WaitCause::RevisionLeaving => f.write_str("this revision still belongs to a former set of the same name"),
            WaitCause::NameTaken { owner: Some(owner) } => write!(f, "a pod of that name belongs to {owner}"),
            WaitCause::NameTaken { owner: None } => {
                f.write_str("a pod of that name belongs to nobody and does not match the selector")
            }
            WaitCause::OrdinalTooLarge { pods } => {
                write!(
                    f,
                    "{} fills no slot, as its ordinal is above {}: it is counted, and left alone",
                    short_list(pods),
                    i32::MAX
                )
            }
            WaitCause::ScaleDownBehindUnhealthy { pod } => write!(f, "scale-down waits until {pod} is healthy"),
            WaitCause::FieldUnreadable { path, found, rule } => write!(f, "{path} holds {found}, and {rule}"),
            WaitCause::ForeignWriter { writer, retry_at } => {
                write!(f, "{writer} acts on this set too; left alone until {retry_at}")
            }
            WaitCause::Observing { until } => write!(f, "watching for other controllers until {until}"),
            other => other.fmt_of_claims(f),
        }
    }
}
