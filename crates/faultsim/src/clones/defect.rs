//! Defects of CloneSets that can be planted. As those of StatefulSets: never in the manager's code, but in what a controller sees or says.

mod copies;
mod hooks;
mod kept;
pub(crate) mod older;

use super::surge;
use crate::clones::SPECIFIED_DELETE;
use crate::clones::truth::INSTANCE_ID;
use crate::defect::{promote, says_nothing_is_left, without_records};
use crate::judge::is_at_nothing;
use flotilla_model::decision::{Command, Report, Scope, ScopedCommand, Stage};
use flotilla_model::set::CloneSpec;
use flotilla_model::{ClaimRecord, Decision, Hints, PodRecord, Reader, Resource, RevisionRecord, SetRecord, Share};
use serde_json::{Value, json};
use std::sync::Arc;

/// A planted defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum CloneDefect {
    /// One pod more than the surge allows.
    LargerSurge,
    /// One pod more may be unavailable than the budget allows.
    LargerBudget,
    /// The partition is not looked at.
    NoPartition,
    /// Pods that were asked to be deleted stay.
    KeepSpecified,
    /// Names of pods that are gone stay in the spec.
    KeepNames,
    /// Claims of deleted pods stay, although they are not to be used again.
    KeepClaims,
    /// What was refused of a claim is forgotten when it is to be tried again.
    ForgetRefusedClaims,
    /// A pod that is ready counts as available at once.
    NoMinReady,
    /// Claims are made after the pods that mount them, if at all.
    NoClaims,
    /// The update goes on although its new pods are not available.
    NoBrake,
    /// The update revision becomes the current one as soon as it exists.
    PromoteEarly,
    /// The update revision becomes the current one when the set is scaled to nothing, whatever the partition.
    PromoteAtNothing,
    /// Deletes carry a UID that nobody has seen.
    DeleteUnseen,
    /// One pod is deleted that nobody asked for.
    DeleteForNothing,
    /// The status is written on every pass.
    RestlessStatus,
    /// The set counts as paused for ever.
    NeverUpdates,
    /// Nothing says what is in the way.
    SilentWait,
    /// Pods are deleted whatever has happened since it was decided.
    DeleteUntested,
    /// The claims of a pod are deleted also where the pod could not be.
    SweepAnyway,
    /// The claims of pods are deleted once all these pods are.
    SweepLate,
    /// Pods that an update has marked go also where it was taken back.
    ReplaceAnyway,
    /// Claims that were given to pods which stay after all are not taken back.
    NeverSpare,
    /// The replacement of a pod that others deleted comes before that has gone, with a claim of its own.
    ReplaceAtOnce,
    /// Pods are made beyond the replicas although the old ones can be updated in place.
    SurgeForNothing,
    /// InPlaceIfPossible makes pods again that could be updated in place.
    RecreateAnyway,
    /// InPlaceOnly makes pods again.
    InPlaceOnlyRecreates,
    /// Pods that wait for their preDelete hook are replaced at once, though nobody asked for that.
    LeavingDoNotCount,
    /// The hook is not looked at before a new pod counts.
    NoPreNormalHook,
    /// The hook is not looked at before a pod is updated in place.
    NoUpdateHook,
    /// Pods that users have asked to be deleted go although their hook holds them.
    HooksPassNamed,
    /// The claims of a pod go when it begins to wait for its hook.
    SweepHeld,
    /// Pods that wait for their hook are taken back although it takes them out of service.
    TakeBackAnyway,
    /// The budget forgets pods whose update in place is on its way.
    ForgetInFlight,
    /// A pass that makes pods updates one, too.
    UpdateWhileScaling,
    /// A partition that is raised brings pods back, though nobody asked for that.
    GoBackAnyway,
    /// A partition that is raised brings no pods back, though somebody asked for that.
    NeverGoBack,
    /// The claims of pods that are made again go, though they are to be kept.
    LoseKeptClaims,
    /// What a lost pod leaves is kept, as if an update made the pod again.
    KeepLeftovers,
    /// What a lost pod leaves is taken by the next pod that is missing.
    TakeLeftovers,
    /// The note that a claim is kept for a replacement stays when that is there.
    KeepNotes,
    /// The claims of all pods that managers delete are noted as kept, not only of those that are made again.
    KeepOfAny,
    /// A new pod waits in PreparingNormal, though it has no hook to wait for.
    PrepareAnyway,
    /// The claims of a pod go with it although another pod has them, too.
    SweepShared,
    /// A new pod gets the id of a pod that is there.
    IdOfAnother,
    /// Claims go with their pod only where the ids of both say so.
    KeepMounted,
    /// A label with the hash alone of a revision names none.
    FullNamesOnly,
    /// New pods are labelled with the full names of their revisions, whatever the gate says.
    FullLabels,
    /// What a note says that names its revision by the hash alone is about none.
    NotesByName,
    /// A pod is of the revision that its label names, whatever it was made as.
    JudgeByLabel,
    /// Pods go in place although their claim templates changed with the template, and users ask for the contrary.
    InPlaceForClaims,
    /// Pods of an old revision are made with the claims of today's templates, whatever was recorded.
    ClaimsOfToday,
    /// Pods that are prepared for their update count as old when others are made, whatever the gate says.
    IgnorePrepared,
    /// They count as updated, whatever the gate says.
    PreparedAnyway,
    /// Nothing says of a new pod that it was made as surge.
    ForgetSurge,
    /// At the end of a surge other pods go than those that were made for it.
    KeepSurge,
}

impl CloneDefect {
    /// All of them.
    pub const ALL: [CloneDefect; 55] = [
        CloneDefect::LargerSurge,
        CloneDefect::LargerBudget,
        CloneDefect::NoPartition,
        CloneDefect::KeepSpecified,
        CloneDefect::KeepNames,
        CloneDefect::KeepClaims,
        CloneDefect::ForgetRefusedClaims,
        CloneDefect::NoMinReady,
        CloneDefect::NoClaims,
        CloneDefect::NoBrake,
        CloneDefect::PromoteEarly,
        CloneDefect::PromoteAtNothing,
        CloneDefect::DeleteUnseen,
        CloneDefect::DeleteForNothing,
        CloneDefect::RestlessStatus,
        CloneDefect::NeverUpdates,
        CloneDefect::SilentWait,
        CloneDefect::DeleteUntested,
        CloneDefect::SweepAnyway,
        CloneDefect::SweepLate,
        CloneDefect::NeverSpare,
        CloneDefect::ReplaceAtOnce,
        CloneDefect::SurgeForNothing,
        CloneDefect::RecreateAnyway,
        CloneDefect::InPlaceOnlyRecreates,
        CloneDefect::LeavingDoNotCount,
        CloneDefect::NoPreNormalHook,
        CloneDefect::NoUpdateHook,
        CloneDefect::HooksPassNamed,
        CloneDefect::SweepHeld,
        CloneDefect::TakeBackAnyway,
        CloneDefect::ForgetInFlight,
        CloneDefect::UpdateWhileScaling,
        CloneDefect::GoBackAnyway,
        CloneDefect::NeverGoBack,
        CloneDefect::LoseKeptClaims,
        CloneDefect::KeepLeftovers,
        CloneDefect::TakeLeftovers,
        CloneDefect::KeepNotes,
        CloneDefect::KeepOfAny,
        CloneDefect::ReplaceAnyway,
        CloneDefect::PrepareAnyway,
        CloneDefect::SweepShared,
        CloneDefect::IdOfAnother,
        CloneDefect::KeepMounted,
        CloneDefect::FullNamesOnly,
        CloneDefect::FullLabels,
        CloneDefect::NotesByName,
        CloneDefect::JudgeByLabel,
        CloneDefect::InPlaceForClaims,
        CloneDefect::ClaimsOfToday,
        CloneDefect::ForgetSurge,
        CloneDefect::KeepSurge,
        CloneDefect::IgnorePrepared,
        CloneDefect::PreparedAnyway,
    ];

    /// What the controller sees of the set.
    pub(crate) fn altered(self, set: &SetRecord, pods: &[Arc<PodRecord>]) -> SetRecord {
        let mut altered = set.clone();
        let replicas = set.spec.replicas;
        let spec = Arc::make_mut(&mut altered.spec);
        let Some(mut clones) = spec.clones.as_deref().cloned() else {
            return altered;
        };
        match self {
            CloneDefect::LargerSurge => clones.max_surge = Share::Int(clones.max_surge.ceil_of(replicas) + 1),
            CloneDefect::LargerBudget => {
                clones.max_unavailable = Share::Int(clones.max_unavailable.ceil_of(replicas) + 1);
            }
            CloneDefect::NoPartition => clones.partition = Share::Int(0),
            CloneDefect::NoMinReady => spec.min_ready = std::time::Duration::ZERO,
            CloneDefect::NeverUpdates => {
                if let Some(rolling) = &mut spec.rolling {
                    rolling.paused = true;
                }
            }
            CloneDefect::GoBackAnyway => clones.switches.partition_rollback = true,
            CloneDefect::NeverGoBack => clones.switches.partition_rollback = false,
            CloneDefect::InPlaceForClaims => clones.switches.recreate_on_claim_change = false,
            CloneDefect::LoseKeptClaims => clones.switches.keep_claims_on_recreate = false,
            _ => hooks::alter(self, spec, &mut clones, pods),
        }
        spec.clones = Some(Box::<CloneSpec>::new(clones));
        altered
    }

    /// What it makes of what was refused before.
    pub(crate) fn forget(self, decision: &mut Decision, hints: &Hints) {
        if self != CloneDefect::ForgetRefusedClaims {
            return;
        }
        for stage in &mut decision.stages {
            stage.commands.retain(|c| {
                let is_of_claim =
                    c.command.resource() == Resource::Claims && !matches!(c.command, Command::Create { .. });
                if !is_of_claim || !hints.failures.contains_key(&c.scope) {
                    return true;
                }
                let hints = decision.hints.get_or_insert_with(|| hints.clone());
                hints.failures.remove(&c.scope);
                false
            });
        }
        decision.stages.retain(|stage| !stage.commands.is_empty());
    }

    /// What it makes of a decision.
    pub(crate) fn spoil(self, decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
        match self {
            CloneDefect::KeepSpecified => retain(decision, |c| {
                let pod = match c {
                    Command::Delete {
                        resource: Resource::Pods,
                        key,
                        ..
                    } => reader.pod(key),
                    _ => None,
                };
                pod.is_none_or(|pod| pod.label(SPECIFIED_DELETE).is_none())
            }),
            CloneDefect::KeepNames => retain(decision, |c| {
                !matches!(
                    c,
                    Command::Patch {
                        resource: Resource::CloneSets,
                        ..
                    }
                )
            }),
            CloneDefect::KeepClaims => retain(decision, |c| {
                !(c.resource() == Resource::Claims && matches!(c, Command::Delete { .. }))
            }),
            CloneDefect::NoClaims => retain(decision, |c| {
                !(c.resource() == Resource::Claims && matches!(c, Command::Create { .. }))
            }),
            CloneDefect::NoBrake => update_all(decision, reader, set),
            CloneDefect::PromoteEarly => promote(decision),
            CloneDefect::PromoteAtNothing if is_at_nothing(set) && says_nothing_is_left(decision) => promote(decision),
            CloneDefect::SilentWait => decision.waits.clear(),
            CloneDefect::DeleteForNothing => delete_for_nothing(decision, reader, set),
            CloneDefect::RestlessStatus => {
                if let Some(status) = &mut decision.status {
                    status.desired["passes"] = json!(status.resource_version);
                }
            }
            _ => {
                self.spoil_deletions(decision, set);
                older::spoil(self, decision);
                kept::spoil(self, decision, set);
                hooks::spoil(self, decision, reader, set);
                copies::spoil(self, decision, reader, set);
                surge::spoil(self, decision, reader, set);
            }
        }
    }

    /// What it makes of deletions.
    fn spoil_deletions(self, decision: &mut Decision, set: &SetRecord) {
        match self {
            CloneDefect::DeleteUnseen => {
                for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
                    if let Command::Delete {
                        resource: Resource::Pods,
                        uid,
                        ..
                    } = &mut scoped.command
                    {
                        *uid = set.meta.uid.clone();
                    }
                }
            }
            CloneDefect::DeleteUntested => {
                for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
                    if let Command::Delete { resource_version, .. } = &mut scoped.command {
                        *resource_version = None;
                    }
                }
            }
            CloneDefect::SweepAnyway | CloneDefect::SweepLate => sweep(decision, self == CloneDefect::SweepLate),
            CloneDefect::NeverSpare => retain(decision, |c| !gives_to_the_set(c)),
            CloneDefect::ReplaceAnyway => delete_unmarked(decision),
            _ => {}
        }
    }
}

/// Deletes pods instead of taking the mark of an update off.
fn delete_unmarked(decision: &mut Decision) {
    for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        if let Command::Patch {
            resource: Resource::Pods,
            key,
            uid,
            resource_version: Some(seen),
            body,
            ..
        } = &scoped.command
            && body["metadata"]["labels"]
                .get(SPECIFIED_DELETE)
                .is_some_and(Value::is_null)
        {
            scoped.command = Command::Delete {
                resource: Resource::Pods,
                key: key.clone(),
                uid: uid.clone(),
                resource_version: Some(*seen),
                report: Report::Delete,
            };
        }
    }
}

/// Deletes claims instead of giving them to their pods: at the end, or where they would be given, whatever becomes of the pod.
fn sweep(decision: &mut Decision, is_late: bool) {
    let mut late = Vec::new();
    for stage in &mut decision.stages {
        let (given, mut rest): (Vec<_>, Vec<_>) = stage.commands.drain(..).partition(|c| gives_to_a_pod(&c.command));
        let deletions = given.into_iter().map(deletion_of_claim);
        if is_late {
            late.extend(deletions);
        } else {
            rest.extend(deletions.map(|deletion| ScopedCommand {
                scope: Scope::Named(deletion.command.key().name.to_string()),
                ..deletion
            }));
        }
        stage.commands = rest;
    }
    decision.stages.push(Stage {
        name: "sweep",
        commands: late,
        all_or_stop: false,
        slow_start: true,
    });
    decision.stages.retain(|stage| !stage.commands.is_empty());
}

/// Revisions that the controller sees of the set, if not as they are.
pub(crate) fn revisions_seen(
    defect: CloneDefect,
    reader: &dyn Reader,
    set: &SetRecord,
) -> Option<Vec<Arc<RevisionRecord>>> {
    (defect == CloneDefect::ClaimsOfToday).then(|| without_records(reader, set))
}

/// Claims that the controller sees of the set, if not all.
pub(crate) fn claims_seen(defect: CloneDefect, reader: &dyn Reader, set: &SetRecord) -> Option<Vec<Arc<ClaimRecord>>> {
    if defect != CloneDefect::ReplaceAtOnce {
        return kept::claims_seen(defect, reader, set);
    }
    let pods = reader.pods_of(set.as_owner()).iter().filter(|pod| pod.is_terminating());
    let going: Vec<&str> = pods.filter_map(|pod| pod.label(INSTANCE_ID)).collect();
    let stays = |claim: &&Arc<ClaimRecord>| !claim.meta.labels.get(INSTANCE_ID).is_some_and(|id| going.contains(&id));
    Some(reader.claims_of(set.as_owner()).iter().filter(stays).cloned().collect())
}

fn owner_in(command: &Command, kind: &str) -> bool {
    let Command::Patch {
        resource: Resource::Claims,
        body,
        ..
    } = command
    else {
        return false;
    };
    let owners = body["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == kind))
}

fn gives_to_a_pod(command: &Command) -> bool {
    owner_in(command, "Pod")
}

fn gives_to_the_set(command: &Command) -> bool {
    owner_in(command, "CloneSet")
}

/// In the place of what gives a claim to its pod.
fn deletion_of_claim(scoped: ScopedCommand) -> ScopedCommand {
    let command = match scoped.command {
        Command::Patch {
            resource,
            key,
            uid,
            resource_version,
            ..
        } => Command::Delete {
            resource,
            key,
            uid,
            resource_version,
            report: Report::Delete,
        },
        other => other,
    };
    ScopedCommand { command, ..scoped }
}

/// Marks every old pod as soon as one is marked.
fn update_all(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let marks = |c: &ScopedCommand| c.command.report() == Report::ReCreate;
    let Some(place) = decision
        .stages
        .iter()
        .position(|stage| stage.commands.iter().any(marks))
    else {
        return;
    };
    let Some(first) = decision.stages[place].commands.iter().find(|c| marks(c)).cloned() else {
        return;
    };
    let marked: Vec<_> = decision.stages[place]
        .commands
        .iter()
        .map(|c| c.command.key().clone())
        .collect();
    let old = reader.pods_of(set.as_owner()).iter().filter(|pod| {
        let is_old = reader
            .pod(first.command.key())
            .is_some_and(|p| p.revision() == pod.revision());
        is_old && !pod.is_terminating() && !pod.is_terminal() && !marked.contains(&pod.meta.key)
    });
    let more: Vec<ScopedCommand> = old
        .map(|pod| {
            let mut command = first.command.clone();
            if let Command::Patch { key, uid, .. } = &mut command {
                (*key, *uid) = (pod.meta.key.clone(), pod.meta.uid.clone());
            }
            ScopedCommand {
                scope: Scope::Named(pod.name().to_owned()),
                command,
            }
        })
        .collect();
    decision.stages[place].commands.extend(more);
}

fn retain(decision: &mut Decision, keeps: impl Fn(&Command) -> bool) {
    for stage in &mut decision.stages {
        stage.commands.retain(|c| keeps(&c.command));
    }
    decision.stages.retain(|stage| !stage.commands.is_empty());
}

/// Whenever a pod is deleted, another goes with it.
fn delete_for_nothing(decision: &mut Decision, reader: &dyn Reader, set: &SetRecord) {
    let gone: Vec<_> = decision.commands().map(|c| c.command.key().clone()).collect();
    let is_deletion = |c: &ScopedCommand| {
        matches!(
            c.command,
            Command::Delete {
                resource: Resource::Pods,
                ..
            }
        )
    };
    let Some(stage) = decision
        .stages
        .iter_mut()
        .find(|stage| stage.commands.iter().any(is_deletion))
    else {
        return;
    };
    let mut others = reader.pods_of(set.as_owner()).iter();
    let Some(pod) = others.find(|pod| !pod.is_terminating() && !pod.is_terminal() && !gone.contains(&pod.meta.key))
    else {
        return;
    };
    stage.commands.push(ScopedCommand {
        scope: Scope::Named(pod.name().to_owned()),
        command: Command::Delete {
            resource: Resource::Pods,
            key: pod.meta.key.clone(),
            uid: pod.meta.uid.clone(),
            resource_version: Some(pod.meta.resource_version),
            report: Report::Delete,
        },
    });
}
