//! What is kept of a pod.

use super::detail::PodDetail;
use crate::meta::Meta;
use crate::time::Timestamp;
use flotilla_api::names;
use std::sync::Arc;
use std::time::Duration;

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Phase {
    /// Empty, or a word we do not know: the pod counts as not created (STS-1.5).
    #[default]
    None,
    /// Accepted; containers not all started.
    Pending,
    /// Bound to a node, containers started.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one of them badly; or the pod was evicted.
    Failed,
    /// Its node does not answer.
    Unknown,
}

impl Phase {
    /// From its wire form.
    pub fn parse(text: &str) -> Self {
        match text {
            "Pending" => Phase::Pending,
            "Running" => Phase::Running,
            "Succeeded" => Phase::Succeeded,
            "Failed" => Phase::Failed,
            "Unknown" => Phase::Unknown,
            _ => Phase::None,
        }
    }
}

/// The condition of type Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReadyCondition {
    /// Whether its status is True.
    pub is_true: bool,
    /// `lastTransitionTime`, if it has one.
    pub since: Option<Timestamp>,
}

/// A volume of a pod that mounts a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeClaim {
    /// Name of the volume.
    pub volume: Arc<str>,
    /// The claim's name; `None` if it is `<volume>-<pod name>`, as for every claim made from a template. Written so, all pods
    /// of a set share one list.
    pub claim: Option<Arc<str>>,
}

/// What the kubelet or the scheduler says is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PodTrouble {
    /// The container it is about; empty for the pod as a whole.
    pub container: String,
    /// A word programs match, such as ImagePullBackOff, CrashLoopBackOff, Unschedulable, Evicted.
    pub reason: String,
    /// The sentence beside it.
    pub message: String,
}

/// One pod, as decisions see it.
// Independent facts, not a state.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRecord {
    /// Who it is. Labels that repeat the pod's own name are not in `meta.labels`: use [`PodRecord::label`].
    pub meta: Meta,
    /// `status.phase`.
    pub phase: Phase,
    /// Condition Ready.
    pub ready: ReadyCondition,
    /// Whether it has ever been ready. A pod that is not ready and whose Ready condition is as old as its start never was.
    pub has_been_ready: bool,
    /// Whether label `statefulset.kubernetes.io/pod-name` is there and equals the name.
    pub has_name_label: bool,
    /// Whether label `apps.kubernetes.io/pod-index` is there and equals the digits at the end of the name.
    pub has_index_label: bool,
    /// Whether label `apps.kruise.io/cloneset-instance-id` is there and equals what stands behind the last dash of the name.
    pub has_instance_label: bool,
    /// The node it is bound to.
    pub node: Option<Arc<str>>,
    /// Volumes that mount claims.
    pub volumes: Option<Arc<Vec<VolumeClaim>>>,
    /// What is wrong with it, if something is.
    pub trouble: Option<Arc<PodTrouble>>,
    /// What updates in place, hooks and launch priorities look at, for pods that these concern.
    pub detail: Option<Arc<PodDetail>>,
}

impl PodRecord {
    /// The pod's name.
    pub fn name(&self) -> &str {
        &self.meta.key.name
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        match key {
            names::POD_NAME_LABEL if self.has_name_label => Some(self.name()),
            names::POD_INDEX_LABEL if self.has_index_label => Some(index_of(self.name())),
            names::INSTANCE_ID_LABEL if self.has_instance_label => Some(index_of(self.name())),
            _ => self.meta.labels.get(key),
        }
    }

    /// The name of the ControllerRevision that its label says it was made from.
    pub fn revision(&self) -> Option<&str> {
        self.label(names::REVISION_LABEL)
    }

    /// Whether the API server has taken it on (STS-1.5 "created").
    pub fn is_created(&self) -> bool {
        self.phase != Phase::None
    }

    /// Whether its deletion has been asked for.
    pub fn is_terminating(&self) -> bool {
        self.meta.deleted.is_some()
    }

    /// Whether it has ended for good: Failed or Succeeded.
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Failed | Phase::Succeeded)
    }

    /// Running, and condition Ready is True.
    pub fn is_running_and_ready(&self) -> bool {
        self.phase == Phase::Running && self.ready.is_true
    }

    /// Running and ready and not on its way out.
    pub fn is_healthy(&self) -> bool {
        self.is_running_and_ready() && !self.is_terminating()
    }

    /// How long until it has been ready for `min_ready`: zero if it is available now, `None` if it is not ready at all.
    ///
    /// A Ready condition without a time does not count yet, and a time in the future (clock skew) counts as just now (STS-1.5).
    pub fn available_in(&self, min_ready: Duration, now: Timestamp) -> Option<Duration> {
        if !self.is_running_and_ready() {
            return None;
        }
        if min_ready.is_zero() {
            return Some(Duration::ZERO);
        }
        Some(min_ready.saturating_sub(now.since(self.ready.since?)))
    }

    /// Whether it is available: ready for at least `min_ready`. Terminating pods may be; see [`PodRecord::is_terminating`].
    pub fn is_available(&self, min_ready: Duration, now: Timestamp) -> bool {
        self.available_in(min_ready, now) == Some(Duration::ZERO)
    }

    /// Names of the claims its volumes mount, with the volume's name.
    pub fn claims(&self) -> impl Iterator<Item = (&str, String)> {
        self.volumes.iter().flat_map(|list| &**list).map(|v| {
            (
                &*v.volume,
                v.claim
                    .as_ref()
                    .map_or_else(|| format!("{}-{}", v.volume, self.name()), ToString::to_string),
            )
        })
    }

    /// Whether its volume `volume` mounts the claim named `claim`.
    pub fn mounts(&self, volume: &str, claim: &str) -> bool {
        self.volumes.iter().flat_map(|list| &**list).any(|v| {
            *v.volume == *volume
                && match &v.claim {
                    Some(name) => **name == *claim,
                    None => claim.strip_prefix(volume).and_then(|rest| rest.strip_prefix('-')) == Some(self.name()),
                }
        })
    }
}

/// The part of a name behind its last dash.
fn index_of(name: &str) -> &str {
    name.rsplit_once('-').map_or("", |(_, index)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{Labels, ObjectKey, Uid};

    fn pod() -> PodRecord {
        PodRecord {
            meta: Meta {
                key: ObjectKey::new("ns", "web-3"),
                uid: Uid::new("u"),
                resource_version: 1,
                created: Timestamp::from_seconds(0),
                deleted: None,
                labels: Labels::default(),
                owners: None,
            },
            phase: Phase::Running,
            ready: ReadyCondition {
                is_true: true,
                since: Some(Timestamp::from_seconds(100)),
            },
            has_been_ready: true,
            has_name_label: true,
            has_index_label: true,
            has_instance_label: false,
            node: None,
            volumes: Some(Arc::new(vec![
                VolumeClaim {
                    volume: "data".into(),
                    claim: None,
                },
                VolumeClaim {
                    volume: "logs".into(),
                    claim: Some("shared".into()),
                },
            ])),
            trouble: None,
            detail: None,
        }
    }

    #[test]
    fn sts_1_5_available_counts_from_the_ready_transition() {
        let ten = Duration::from_secs(10);
        let at = Timestamp::from_seconds;
        let mut p = pod();
        assert_eq!(p.available_in(ten, at(104)), Some(Duration::from_secs(6)));
        assert!(p.is_available(ten, at(110)));
        assert_eq!(
            p.available_in(ten, at(50)),
            Some(ten),
            "a transition in the future is just now"
        );
        p.ready.since = None;
        assert_eq!(
            p.available_in(ten, at(500)),
            None,
            "a zero transition time is not yet available"
        );
        assert!(p.is_available(Duration::ZERO, at(0)));
        p.phase = Phase::Pending;
        assert_eq!(p.available_in(Duration::ZERO, at(0)), None);
    }

    #[test]
    fn claims_made_from_templates_are_named_after_the_pod() {
        let p = pod();
        let claims: Vec<_> = p.claims().collect();
        assert_eq!(
            claims,
            [("data", "data-web-3".to_owned()), ("logs", "shared".to_owned())]
        );
        assert!(p.mounts("data", "data-web-3"));
        assert!(!p.mounts("data", "data-web-4"));
        assert!(!p.mounts("logs", "logs-web-3"));
    }

    #[test]
    fn labels_that_repeat_the_name_are_answered_from_the_name() {
        let p = pod();
        assert_eq!(p.label(names::POD_NAME_LABEL), Some("web-3"));
        assert_eq!(p.label(names::POD_INDEX_LABEL), Some("3"));
    }

    #[test]
    fn a_record_stays_small() {
        assert!(
            std::mem::size_of::<PodRecord>() <= 192,
            "{}",
            std::mem::size_of::<PodRecord>()
        );
    }
}
