//! Known defects that can be planted, to see whether the simulator finds them. Never in the code of the manager itself: each one
//! alters what a controller sees or says, or what the simulated shell does with it.

mod altered;
mod arrival;
mod asks;
mod claims;
mod in_place;
mod let_go;
mod repeats;
mod revisions;
mod switches;
mod ways;

pub(crate) use altered::Altered;
pub(crate) use claims::without_records;
pub(crate) use in_place::{empty, says};

use crate::judge::{is_at_nothing, is_available, ordinal_in};
use flotilla_model::decision::{Command, Report, ScopedCommand, Stage};
use flotilla_model::{Decision, PodRecord, Reader, Resource, SetRecord, Timestamp};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// A planted defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Defect {
    /// Answers to writes do not reach the cache: decisions are made on what the watch has told.
    NoOverlay,
    /// Deletes carry neither UID nor version.
    DeleteByName,
    /// The partition is not looked at.
    NoPartition,
    /// The budget of the update is one too large.
    LargerBudget,
    /// OrderedReady is treated as Parallel.
    NoOrder,
    /// The status claims to be of an older generation than the one it was computed from.
    StatusOfOlderGeneration,
    /// Adoption without a fresh look at the set.
    AdoptUnseen,
    /// A revision that another set with such a selector has left is adopted.
    AdoptAnothers,
    /// A request that waited is sent although the lease has ended meanwhile.
    NoFence,
    /// A set under deletion is treated as if it stayed.
    CreateWhileDeleting,
    /// Scaling down deletes the claims itself.
    DeleteClaims,
    /// Only the newest revision is looked at: a rollback makes a new one.
    ForgetRevisions,
    /// A pod that has ended is never replaced.
    KeepFailedPods,
    /// The status is written on every pass.
    RestlessStatus,
    /// Nobody looks again when only time passes.
    NoWake,
    /// A pod that is ready counts as available at once.
    NoMinReady,
    /// An old pod that is broken is not replaced: it counts against the budget.
    BrokenBlocks,
    /// Scaling down begins with the lowest pod that is not wanted.
    LowestFirst,
    /// Every revision but the newest is dropped at once.
    ForgetHistory,
    /// Of the revisions that nobody needs the newest goes first.
    DropNewest,
    /// The update revision becomes the current one as soon as it exists.
    PromoteEarly,
    /// The update revision becomes the current one when the set is scaled to nothing, whatever the partition.
    PromoteAtNothing,
    /// No condition says what is in the way.
    SilentWait,
    /// The hook is not looked at before a pod is updated in place.
    NoUpdateHook,
    /// The hook is not looked at before a pod is deleted.
    NoDeleteHook,
    /// Containers change as soon as their pod has left service, without the grace period.
    NoGracePeriod,
    /// Containers change although their pod has not left service.
    ChangeInService,
    /// A pod that a hook holds stays in service although the hook asks for the contrary.
    HookKeepsServing,
    /// A pod that has left service for its update is not put back.
    GateLeftDown,
    /// The key by which a hook keeps a pod out of service is left behind.
    KeyLeftBehind,
    /// InPlaceOnly makes pods again.
    InPlaceOnlyDeletes,
    /// The image in a pod's spec is taken for the one that runs.
    DoneByImageText,
    /// A pod leaves service for other resources, as for another image.
    ResizeLeavesService,
    /// What puts a pod back into service holds whatever has happened since it was decided.
    PutBackUntested,
    /// What changes a pod in place holds whatever has happened since it was decided.
    ChangeUntested,
    /// The budget forgets pods whose update in place is on its way.
    ForgetInFlight,
    /// A pod whose resources change without a restart uses the budget.
    ResizeUsesBudget,
    /// Pods are made with the gates of their template alone, as if a webhook put others in.
    NoHookGate,
    /// What old pods were made from is not known: InPlaceOnly changes none.
    LoseOldTemplates,
    /// The webhook fills in a template that its user does not touch, as if it were new.
    FillInEverything,
    /// An update begins with the lowest pod of the partition window.
    UpdateLowestFirst,
    /// A pod is made again for its file system whatever the policy says.
    RestartForAnyFileSystem,
    /// Nobody sees that a file system waits for its pod to be made again.
    ForgetFileSystems,
    /// What pods mount is compared with what was asked for, whoever changed it.
    JudgeByVolumes,
    /// A claim that is larger than its template asks has to have what it asks for itself.
    LargerIsUnlike,
    /// Admission refuses every smaller claim template.
    RefuseShrink,
    /// What claims asked for before they grew is not known to admission.
    ForgetSizes,
    /// What the smallest claim asks for is not known to admission.
    ForgetSmallClaims,
    /// Pods go for a revision of which the API server was never asked.
    NoTrial,
    /// What a full quota said of a pod on trial is taken for a yes.
    QuotaProves,
    /// Pods that are not wanted own their claims before it is their turn to go.
    OwnEarly,
    /// Pods that are scaled away leave their claims, whatever the policy says.
    LeaveClaims,
    /// Claims that have no pod keep the set as their owner, whatever the policy says.
    KeepOwners,
    /// Images change together with resources, and not after them.
    ImageBeforeResize,
    /// Of containers of a pod only the first is changed in place.
    FirstContainerAlone,
    /// With an owner of a claim the finalizers of others go.
    TakeFinalizers,
    /// With an owner of a claim the owners of others go.
    TakeOwners,
    /// Pods of an old revision are made with the claims of today's templates, whatever was recorded.
    ClaimsOfToday,
    /// Pods that have the claims of other templates than today's stay as they are.
    KeepOtherClaims,
    /// What is recorded of claim templates stays as it was at first.
    RecordOnce,
    /// Nobody says which claims of former templates are left.
    SilentLeftovers,
    /// What its node will never give a pod is waited for.
    AwaitInfeasible,
    /// A pod that could be updated in place is made again.
    RemakeAlways,
    /// A pod whose node cannot give it what one revision asks for is made again for the next one, too, which asks for less.
    RemakeOvertaken,
    /// Claims that somebody raised by hand are asked to shrink.
    ShrinkRaised,
    /// Reserved ordinals are used.
    ForgetReserved,
    /// Ordinals begin with 0, whatever their start.
    ForgetStart,
    /// Pods are scaled away although nobody can read which ordinals are reserved.
    ScaleDownUnread,
    /// However many pods are on their way up, all others follow at once.
    ScaleAtOnce,
    /// That a pod was up is known from memory alone: one that is broken counts as on its way up, once that is lost.
    UpByMemoryAlone,
    /// That a pod is to be made again is not seen.
    ForgetMadeAgain,
    /// All pods that are to be made again go at once.
    MakeAgainAtOnce,
    /// What was refused is forgotten at once, and tried again (the core does not hold it back).
    RepeatAtOnce,
    /// One pass takes back what the one before it did (the core does not hold it back).
    UndoEachOther,
    /// The core holds nothing back.
    NoGuard,
    /// That its clock was set back does not reach the core: it believes the clock that was ahead.
    FollowClock,
    /// That its clock was set ahead does not reach the core: what it waits for is over, whatever others did meanwhile.
    LeaseByClock,
    /// New pods have the gates of updates in place and of hooks, whoever needs them.
    GatesAnyway,
    /// Whatever names the UID of the set belongs to it, in any namespace.
    OwnersByUid,
    /// An update in place shows in the state of its pod, though no hook follows it.
    UpdatingAnyway,
    /// Nobody looks at which pods of an unordered update are to go first.
    NoPriority,
    /// Of the pods that an unordered update has to keep, one is not.
    KeepOneLess,
    /// That the update is paused is not seen.
    ForgetPause,
    /// A set whose update is paused makes no pods either.
    PauseAll,
    /// While the update is paused, pods come back as the partition says, whatever users ask for.
    ForgetKeptRevision,
    /// Broken old pods are replaced although the order would wait for them, and nobody asked for that.
    UnblockAnyway,
    /// They are not, although users ask for it.
    NeverUnblock,
    /// Under OrderedReady three pods are updated at once, whoever asked for that.
    BatchAnyway,
    /// Scaling down waits for no pod that stays, and nobody asked for that.
    IgnoreUnhealthy,
    /// It does, although users ask for the contrary.
    HeedUnhealthy,
    /// A set that is to recreate its pods rolls.
    RollRecreate,
    /// All old pods of one in order go, although a broken pod that the partition keeps lets none come back.
    TakeUnmakeable,
    /// Nobody says that a switch cannot be read.
    SilentNonsense,
    /// A pod whose update in place has a deadline is made again at once.
    RecreateEarly,
    /// A pod whose update in place is overdue stays as it is, whatever users ask for.
    NeverRecreate,
    /// Nobody says that an update in place is overdue.
    SilentDeadline,
    /// The end of the partition is reckoned in 32 bits: one that is huge is none.
    PartitionWraps,
    /// A pass makes one pod more than it may, where as many as that are missing.
    BeyondTheBurst,
    /// A pod that was drained and is let go again is in service at once, whatever its hook has yet to bring back.
    LetGoServes,
    /// While the update is paused, pods that were prepared for it stay so.
    KeepPrepared,
    /// A grace period that cannot be read counts as none.
    ForgetUnread,
    /// That a claim goes with a former pod, or a former set, is not seen.
    MountStale,
    /// A pod leaves service whatever containers users name that keep it ready.
    ForgetKeptReady,
    /// Any container may change its image while its pod serves.
    KeepAllReady,
    /// The budget forgets pods whose containers change while they serve.
    FreeWhenKept,
    /// A container is taken to have its new environment as soon as that was asked for.
    ForgetEnvironment,
    /// Metadata to which containers refer changes although their pod has not left service.
    EnvironmentInService,
    /// Nobody says that resources are put off.
    SilentDeferral,
    /// That resources are put off is said at once.
    HastyDeferral,
    /// Labels of claim templates reach no claim that is there, whatever users ask for.
    NeverPropagate,
    /// They do, and nobody asked for that.
    PropagateAnyway,
    /// `flotilla why` names nothing.
    SilentWhy,
    /// `flotilla why` does not say whom a cause holds up.
    ForgetHeldUp,
    /// `flotilla why` takes every pod for one of the template's revision, and advises to correct that.
    StaleAdvice,
}

impl Defect {
    /// All of them.
    pub const ALL: [Defect; 114] = [
        Defect::NoOverlay,
        Defect::DeleteByName,
        Defect::NoPartition,
        Defect::LargerBudget,
        Defect::NoOrder,
        Defect::StatusOfOlderGeneration,
        Defect::AdoptUnseen,
        Defect::AdoptAnothers,
        Defect::NoFence,
        Defect::CreateWhileDeleting,
        Defect::DeleteClaims,
        Defect::ForgetRevisions,
        Defect::KeepFailedPods,
        Defect::RestlessStatus,
        Defect::NoWake,
        Defect::NoMinReady,
        Defect::BrokenBlocks,
        Defect::LowestFirst,
        Defect::ForgetHistory,
        Defect::DropNewest,
        Defect::PromoteEarly,
        Defect::PromoteAtNothing,
        Defect::SilentWait,
        Defect::NoUpdateHook,
        Defect::NoDeleteHook,
        Defect::NoGracePeriod,
        Defect::ChangeInService,
        Defect::HookKeepsServing,
        Defect::GateLeftDown,
        Defect::KeyLeftBehind,
        Defect::InPlaceOnlyDeletes,
        Defect::DoneByImageText,
        Defect::ResizeLeavesService,
        Defect::PutBackUntested,
        Defect::ChangeUntested,
        Defect::ForgetInFlight,
        Defect::ResizeUsesBudget,
        Defect::NoHookGate,
        Defect::LoseOldTemplates,
        Defect::FillInEverything,
        Defect::UpdateLowestFirst,
        Defect::RestartForAnyFileSystem,
        Defect::ForgetFileSystems,
        Defect::JudgeByVolumes,
        Defect::LargerIsUnlike,
        Defect::RefuseShrink,
        Defect::ForgetSizes,
        Defect::ForgetSmallClaims,
        Defect::NoTrial,
        Defect::QuotaProves,
        Defect::OwnEarly,
        Defect::LeaveClaims,
        Defect::KeepOwners,
        Defect::ImageBeforeResize,
        Defect::FirstContainerAlone,
        Defect::TakeFinalizers,
        Defect::TakeOwners,
        Defect::ShrinkRaised,
        Defect::AwaitInfeasible,
        Defect::RemakeAlways,
        Defect::RemakeOvertaken,
        Defect::ClaimsOfToday,
        Defect::KeepOtherClaims,
        Defect::RecordOnce,
        Defect::SilentLeftovers,
        Defect::ForgetReserved,
        Defect::ForgetStart,
        Defect::ScaleDownUnread,
        Defect::ScaleAtOnce,
        Defect::UpByMemoryAlone,
        Defect::ForgetMadeAgain,
        Defect::MakeAgainAtOnce,
        Defect::RepeatAtOnce,
        Defect::UndoEachOther,
        Defect::NoGuard,
        Defect::FollowClock,
        Defect::LeaseByClock,
        Defect::OwnersByUid,
        Defect::GatesAnyway,
        Defect::UpdatingAnyway,
        Defect::NoPriority,
        Defect::KeepOneLess,
        Defect::ForgetPause,
        Defect::PauseAll,
        Defect::ForgetKeptRevision,
        Defect::UnblockAnyway,
        Defect::NeverUnblock,
        Defect::BatchAnyway,
        Defect::IgnoreUnhealthy,
        Defect::HeedUnhealthy,
        Defect::RollRecreate,
        Defect::TakeUnmakeable,
        Defect::SilentNonsense,
        Defect::RecreateEarly,
        Defect::NeverRecreate,
        Defect::SilentDeadline,
        Defect::PartitionWraps,
        Defect::BeyondTheBurst,
        Defect::LetGoServes,
        Defect::KeepPrepared,
        Defect::ForgetUnread,
        Defect::MountStale,
        Defect::ForgetKeptReady,
        Defect::KeepAllReady,
        Defect::FreeWhenKept,
        Defect::ForgetEnvironment,
        Defect::EnvironmentInService,
        Defect::SilentDeferral,
        Defect::HastyDeferral,
        Defect::NeverPropagate,
        Defect::PropagateAnyway,
        Defect::SilentWhy,
        Defect::ForgetHeldUp,
        Defect::StaleAdvice,
    ];

    /// Those of the shell, and of what all kinds share, that are looked for in CloneSets, too.
    pub const OF_CLONES: [Defect; 45] = [
        Defect::SilentDeferral,
        Defect::HastyDeferral,
        Defect::ForgetKeptReady,
        Defect::KeepAllReady,
        Defect::ForgetEnvironment,
        Defect::EnvironmentInService,
        Defect::SilentWhy,
        Defect::ForgetHeldUp,
        Defect::StaleAdvice,
        Defect::NoOverlay,
        Defect::NoFence,
        Defect::DeleteByName,
        Defect::NoDeleteHook,
        Defect::NoGracePeriod,
        Defect::ChangeInService,
        Defect::HookKeepsServing,
        Defect::GateLeftDown,
        Defect::KeyLeftBehind,
        Defect::DoneByImageText,
        Defect::ResizeLeavesService,
        Defect::PutBackUntested,
        Defect::ChangeUntested,
        Defect::NoHookGate,
        Defect::NoTrial,
        Defect::QuotaProves,
        Defect::ImageBeforeResize,
        Defect::FirstContainerAlone,
        Defect::TakeFinalizers,
        Defect::TakeOwners,
        Defect::ShrinkRaised,
        Defect::AwaitInfeasible,
        Defect::RemakeAlways,
        Defect::RemakeOvertaken,
        Defect::RepeatAtOnce,
        Defect::UndoEachOther,
        Defect::NoGuard,
        Defect::OwnersByUid,
        Defect::GatesAnyway,
        Defect::UpdatingAnyway,
        Defect::RecreateEarly,
        Defect::NeverRecreate,
        Defect::SilentDeadline,
        Defect::LetGoServes,
        Defect::KeepPrepared,
        Defect::ForgetUnread,
    ];

    /// Whether it is one that the core holds back, unless it is kept from that.
    pub(crate) fn turns_guard_off(self) -> bool {
        matches!(self, Defect::RepeatAtOnce | Defect::UndoEachOther | Defect::NoGuard)
    }

    /// What the defect makes of a decision.
    pub(crate) fn spoil(self, decision: &mut Decision, reader: &dyn Reader, set: &SetRecord, now: Timestamp) {
        match self {
            Defect::StatusOfOlderGeneration => {
                if let Some(status) = &mut decision.status
                    && status.desired.get("observedGeneration").is_some()
                {
                    status.desired["observedGeneration"] = json!((set.generation - 1).max(1));
                }
            }
            Defect::AdoptUnseen => {
                for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
                    if let Command::Patch { guard, .. } = &mut scoped.command {
                        *guard = None;
                    }
                }
            }
            Defect::AdoptAnothers => revisions::adopt_anothers(decision, reader, set),
            Defect::DeleteClaims => claims::delete_claims(decision, reader, set),
            Defect::SilentWait => {
                if let Some(fields) = decision.status.as_mut().and_then(|s| s.desired.as_object_mut()) {
                    fields.remove("conditions");
                }
            }
            Defect::NoWake => decision.wake_after = None,
            Defect::RepeatAtOnce if decision.commands().next().is_some() => {
                decision.wake_within(Duration::from_millis(1));
            }
            Defect::UndoEachOther => repeats::mark_or_unmark(decision, reader, set),
            Defect::BrokenBlocks => keep_broken_pods(decision, reader, set, now),
            Defect::LowestFirst => lowest_first(decision, reader, set),
            Defect::UpdateLowestFirst => update_lowest_first(decision, reader, set, now),
            Defect::ForgetHistory => revisions::forget_history(decision, reader, set),
            Defect::DropNewest => revisions::drop_newest(decision, reader, set),
            Defect::PromoteEarly => promote(decision),
            Defect::PromoteAtNothing if is_at_nothing(set) && says_nothing_is_left(decision) => promote(decision),
            Defect::PauseAll => switches::pause_all(decision, set),
            Defect::TakeUnmakeable => switches::take_unmakeable(decision, reader, set),
            Defect::BeyondTheBurst => asks::make_one_more(decision, set),
            Defect::RemakeAlways | Defect::RemakeOvertaken => ways::spoil(self, decision, reader, set),
            Defect::LetGoServes | Defect::KeepPrepared => let_go::spoil(self, decision, reader, set),
            Defect::EnvironmentInService => arrival::change_in_service(decision),
            Defect::MakeAgainAtOnce => asks::make_again_at_once(decision, reader, set),
            Defect::RestartForAnyFileSystem => claims::restart_for_any_file_system(decision, reader, set),
            Defect::KeepFailedPods => {
                for stage in &mut decision.stages {
                    stage.commands.retain(|c| c.command.report() != Report::RecreateFailed);
                }
            }
            Defect::RestlessStatus => {
                if let Some(status) = &mut decision.status {
                    status.desired["passes"] = json!(status.resource_version);
                }
            }
            Defect::TakeFinalizers | Defect::TakeOwners | Defect::ShrinkRaised => {
                claims::take_theirs(self, decision, reader, set);
            }
            Defect::OwnEarly | Defect::LeaveClaims | Defect::KeepOwners => claims::spoil(self, decision, reader, set),
            Defect::KeepOtherClaims | Defect::RecordOnce | Defect::SilentLeftovers => {
                claims::forget_templates(self, decision, reader, set);
            }
            _ => in_place::spoil(self, decision),
        }
    }
}

/// Whether a command deletes a pod, and which.
fn deleted_pod<'r>(command: &Command, reader: &'r dyn Reader) -> Option<&'r Arc<PodRecord>> {
    match command {
        Command::Delete {
            resource: Resource::Pods,
            key,
            ..
        } => reader.pod(key),
        _ => None,
    }
}

fn keep_broken_pods(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord, now: Timestamp) {
    let is_broken = |pod: &Arc<PodRecord>| !pod.is_terminal() && !is_available(pod, set, now);
    for stage in &mut decision.stages {
        stage
            .commands
            .retain(|c| !deleted_pod(&c.command, reader).is_some_and(is_broken));
    }
}

fn lowest_first(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let unwanted = |pod: &&Arc<PodRecord>| {
        let ordinal = ordinal_in(pod.name(), set.name());
        !pod.is_terminating() && ordinal.is_some_and(|ordinal| !set.spec.ordinals().contains(ordinal))
    };
    let lowest = reader
        .pods_of(set.as_owner())
        .iter()
        .filter(unwanted)
        .min_by_key(|pod| pod.name().to_owned());
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        let Some(pod) = deleted_pod(&scoped.command, reader).filter(|pod| unwanted(pod)) else {
            continue;
        };
        if let Some(lowest) = lowest.filter(|_| set.spec.is_monotonic() && !pod.is_terminal()) {
            scoped.command = delete(lowest);
        }
    }
}

/// In place of an available pod goes the lowest available one of its revision.
fn update_lowest_first(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord, now: Timestamp) {
    let ordinals = set.spec.ordinals();
    let partition = usize::try_from(set.spec.partition()).unwrap_or(0);
    let keys = ordinals
        .iter()
        .skip(partition)
        .map(|o| set.meta.key.sibling(format!("{}-{o}", set.name())));
    let window: Vec<&Arc<PodRecord>> = keys.filter_map(|key| reader.pod(&key)).collect();
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        let Some(pod) = deleted_pod(&scoped.command, reader) else {
            continue;
        };
        if !is_available(pod, set, now) || !window.iter().any(|other| other.meta.uid == pod.meta.uid) {
            continue;
        }
        let mut alike = window
            .iter()
            .filter(|other| other.revision() == pod.revision() && is_available(other, set, now));
        if let Some(lowest) = alike.next() {
            scoped.command = delete(lowest);
        }
    }
}

fn delete(pod: &PodRecord) -> Command {
    Command::Delete {
        resource: Resource::Pods,
        key: pod.meta.key.clone(),
        uid: pod.meta.uid.clone(),
        resource_version: Some(pod.meta.resource_version),
        report: Report::Delete,
    }
}

/// Adds a stage of commands to a decision, if there are any.
pub(crate) fn plant(decision: &mut Decision, commands: impl IntoIterator<Item = ScopedCommand>) {
    let commands: Vec<ScopedCommand> = commands.into_iter().collect();
    if !commands.is_empty() {
        decision.stages.push(Stage {
            name: "planted",
            commands,
            ..Stage::default()
        });
    }
}

/// The update revision becomes the current one in what the status says.
pub(crate) fn promote(decision: &mut Decision) {
    if let Some(status) = &mut decision.status
        && let Some(update) = status.desired.get("updateRevision").cloned()
    {
        status.desired["currentRevision"] = update;
    }
}

/// Whether the status says that there are no pods.
pub(crate) fn says_nothing_is_left(decision: &Decision) -> bool {
    let status = decision.status.as_ref();
    status.is_some_and(|status| status.desired["replicas"] == 0)
}
