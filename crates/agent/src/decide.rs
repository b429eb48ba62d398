//! What is done about a pod: what is noted on it, whose environment is read, and what is restarted (AGT-8.3 and AGT-8.5).

use crate::memory::{Memory, Mismatch, RESTARTS_MAX, Reading};
use crate::pod::{Container, Pod};
use crate::told::{State, Told, newest};
use flotilla_model::Timestamp;
use flotilla_model::containers_meta::{self, ContainerMeta};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// If the kubelet has not restarted a container for its new image by then, it will not: it may be one that hashes more than the image.
const KUBELET_WITHIN: Duration = Duration::from_secs(60);

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub struct View<'v> {
    /// The pod.
    pub pod: &'v Pod,
    /// What the runtime tells of its containers.
    pub told: &'v [Told],
    /// What is remembered of it.
    pub memory: &'v Memory,
    /// Now.
    pub now: Timestamp,
}

/// What is to be done. Environments are read before anything is written: with what comes of that, it is decided anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// IDs of containers whose environment is to be read.
    pub read: Vec<String>,
    /// The annotation that the pod is to carry, if it carries another.
    pub note: Option<String>,
    /// Containers to be stopped, so that the kubelet starts them anew.
    pub restart: Vec<Restart>,
    /// What is held back, and why.
    pub holds: Vec<Hold>,
    /// IDs of all containers that were looked at.
    pub seen: BTreeSet<String>,
    /// IDs of those whose environment is not what the pod says while it is out of service, with what they ought to be.
    pub mismatched: BTreeMap<String, Asked>,
}

/// What a container ought to be started from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Hash of its environment.
    pub environment: u64,
    /// The kubelet's hash of its spec.
    pub spec: u64,
}

/// A container to be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    /// Its name.
    pub container: String,
    /// Its ID.
    pub id: String,
}

/// Something that is held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The container.
    pub container: String,
    /// Why.
    pub reason: Reason,
    /// When to look again; `None` if a change of the pod will tell.
    pub until: Option<Timestamp>,
}

/// Why something is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The kubelet has not told yet of the container that runs.
    StatusIsOld,
    /// Its environment could not be read.
    Unread,
    /// It does not run.
    NotRunning,
    /// The pod is in service: what its environment ought to be may still change, and nobody waits for it.
    InService,
    /// The kubelet would not start it again.
    WouldNotRestart,
    /// The kubelet is about to restart it for its image.
    ImageFirst,
    /// The kubelet, which may be about to restart it, has a moment; or it was stopped a short while ago.
    Delay,
    /// It has been restarted often enough for this revision.
    GivenUp,
}

impl Reason {
    /// The rule behind it.
    pub const fn rule(self) -> &'static str {
        match self {
            Reason::StatusIsOld => "AGT-8.3",
            Reason::Unread => "AGT-8.4",
            _ => "AGT-8.5",
        }
    }

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Reason::StatusIsOld => "the kubelet has not told of the container that runs now",
            Reason::Unread => "its environment could not be read; it is tried again",
            Reason::NotRunning => "it does not run",
            Reason::InService => "the pod is in service",
            Reason::WouldNotRestart => "its restart policy would not start it again",
            Reason::ImageFirst => "the kubelet restarts it for its image first",
            Reason::Delay => "the kubelet may restart it by itself, or it was stopped a short while ago",
            Reason::GivenUp => {
                "it was restarted several times for this revision, and its environment never was as it should be"
            }
        }
    }
}

impl Decision {
    /// When to look again although nothing has changed.
    pub fn again_at(&self) -> Option<Timestamp> {
        self.holds.iter().filter_map(|hold| hold.until).min()
    }

    /// Names of containers that are not restarted any more.
    pub fn given_up(&self) -> impl Iterator<Item = &str> {
        let holds = self.holds.iter().filter(|hold| hold.reason == Reason::GivenUp);
        holds.map(|hold| hold.container.as_str())
    }

    fn hold(&mut self, container: &Container, reason: Reason, until: Option<Timestamp>) {
        self.holds.push(Hold {
            container: container.name.clone(),
            reason,
            until,
        });
    }
}

/// What is to be done about a pod.
pub fn decide(view: View<'_>) -> Decision {
    let pod = view.pod;
    let mut decision = Decision::default();
    if !pod.is_concerned {
        return decision;
    }
    // A runtime that has just started may not know its containers yet; what is noted is not taken back for that.
    if view.told.is_empty() {
        return decision;
    }
    let noted = pod.noted.as_deref().map(containers_meta::parse).unwrap_or_default();
    let mut entries = Vec::new();
    for container in pod.containers.iter().filter(|c| !c.id.is_empty()) {
        let before = noted.iter().find(|entry| entry.name == container.name);
        let Some(told) = newest(view.told, &container.name) else {
            continue;
        };
        decision.seen.insert(told.id.clone());
        if told.id != container.id {
            // What the controllers compare is this status; as long as it is old, a new entry is of no use to them (STS-4.6).
            decision.hold(container, Reason::StatusIsOld, None);
            entries.extend(before.cloned());
            continue;
        }
        let entry = entry(view, container, told, before, &mut decision);
        restart(view, container, told, entry.env_hash, &mut decision);
        entries.push(entry);
    }
    // One write for all that is new.
    if decision.read.is_empty() && entries != noted {
        decision.note = Some(containers_meta::to_text(&entries));
    }
    decision
}

/// What is noted of a container: as before, as long as it is the same container (AGT-8.3).
fn entry(
    view: View<'_>,
    container: &Container,
    told: &Told,
    before: Option<&ContainerMeta>,
    decision: &mut Decision,
) -> ContainerMeta {
    let before = before.filter(|entry| entry.container_id == told.id);
    let mut entry = before.cloned().unwrap_or_else(|| ContainerMeta {
        name: container.name.clone(),
        container_id: told.id.clone(),
        restart_count: told.restart_count(),
        plain_hash: told.plain_hash(),
        env_hash: None,
    });
    if entry.env_hash.is_some() || told.state != State::Running {
        return entry;
    }
    match view.memory.reading(&told.id) {
        _ if container.environment.is_empty() => entry.env_hash = Some(container.expected_hash()),
        Some(Reading::Known(hash)) => entry.env_hash = Some(hash),
        Some(Reading::Failed { again_at, .. }) if again_at > view.now => {
            decision.hold(container, Reason::Unread, Some(again_at));
        }
        Some(Reading::Failed { .. }) | None => decision.read.push(told.id.clone()),
    }
    entry
}

/// Whether a container is stopped, so that the kubelet starts it with the environment that the pod says (AGT-8.5).
fn restart(view: View<'_>, container: &Container, told: &Told, has: Option<u64>, decision: &mut Decision) {
    if has.is_none_or(|hash| hash == container.expected_hash()) {
        return;
    }
    if !view.pod.is_out_of_service {
        // Delays count from when it matters.
        decision.hold(container, Reason::InService, None);
        return;
    }
    let asked = Asked {
        environment: container.expected_hash(),
        spec: container.plain_hash(),
    };
    decision.mismatched.insert(told.id.clone(), asked);
    let known = view.memory.mismatch(&told.id);
    let mismatch = known.map_or(Mismatch::new(asked, view.now), |known| known.asked_for(asked, view.now));
    match guard(view, container, told, mismatch) {
        Ok(()) => decision.restart.push(Restart {
            container: container.name.clone(),
            id: told.id.clone(),
        }),
        Err((reason, until)) => decision.hold(container, reason, until),
    }
}

/// What speaks against stopping a container now.
fn guard(
    view: View<'_>,
    container: &Container,
    told: &Told,
    mismatch: Mismatch,
) -> Result<(), (Reason, Option<Timestamp>)> {
    let pod = view.pod;
    if told.state != State::Running {
        return Err((Reason::NotRunning, None));
    }
    if !container.always_restarts {
        return Err((Reason::WouldNotRestart, None));
    }
    let bound = mismatch.since + KUBELET_WITHIN;
    if told.plain_hash() != Some(container.plain_hash()) && view.now < bound {
        return Err((Reason::ImageFirst, Some(bound)));
    }
    if view.memory.restarts(&container.name, &pod.revision) >= RESTARTS_MAX {
        return Err((Reason::GivenUp, None));
    }
    if view.now < mismatch.not_before {
        return Err((Reason::Delay, Some(mismatch.not_before)));
    }
    Ok(())
}
