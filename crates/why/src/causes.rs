//! From what a set waits for to the causes: each once, the root first, with what it holds up.

use super::facts::Index;
use super::roots::root;
use flotilla_model::{Failure, Keeper, Timestamp, Wait, WaitCause, Whom};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::{Discriminant, discriminant};

/// One cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// What it is about, such as `node node-1`, `claim data-web-0` or the pods `web-0, web-1`.
    pub subject: String,
    /// A sentence.
    pub message: String,
    /// The rule that asks for the wait.
    pub rule: &'static str,
    /// What can be done.
    pub advice: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// What waits for it.
    pub holds_up: Vec<String>,
    /// Roots first.
    pub(super) rank: u8,
}

/// The causes of these waits. `whom` tells for whom advice about a subject is.
pub(super) fn causes<'w>(waits: &[Wait], facts: &Index<'_>, whom: &dyn Fn(&str) -> Whom<'w>) -> Vec<Cause> {
    let mut found = Found::default();
    let (consequences, own): (Vec<&Wait>, Vec<&Wait>) = waits.iter().partition(|wait| blockers(&wait.cause).is_some());
    let mut about: BTreeMap<&str, Vec<&Wait>> = BTreeMap::new();
    for &wait in &own {
        about.entry(wait.subject.as_str()).or_default().push(wait);
    }
    for wait in &own {
        let all = &about[wait.subject.as_str()];
        // It goes when the hook lets it, and whether it starts until then matters to nobody.
        if is_down(&wait.cause) && is_held_by_its_deletion(all) {
            continue;
        }
        let root = if is_of_a_pod(&wait.cause) {
            root(wait, facts, &whom(&wait.subject))
        } else {
            None
        };
        match root {
            Some(root) => found.root(root, wait),
            None if is_vague(&wait.cause) && has_better(all, wait) => {}
            None if is_unfinished(&wait.cause) && cannot_start(all) => {}
            None => found.own(wait, whom),
        }
    }
    found.follow(&consequences, &own, whom);
    let mut causes: Vec<Cause> = found.causes.into_iter().map(Known::into_cause).collect();
    causes.sort_by_key(|cause| cause.rank);
    causes
}

/// What is known so far. It is asked for each wait, of which a large set has many.
#[derive(Default)]
struct Found {
    causes: Vec<Known>,
    /// The cause of what each subject waits for.
    of: BTreeMap<String, usize>,
    /// Causes outside of the set, by their subject.
    roots: BTreeMap<String, usize>,
    /// The same, by what is said of them and what helps: several claims may lack one class.
    roots_alike: BTreeMap<(String, Option<String>), usize>,
    /// Waits that are causes themselves, by what makes two of them one.
    alike: BTreeMap<Alike, usize>,
}

/// What two waits have in common that are told as one: words, rule, and how their pods stand to the template.
type Alike = (String, &'static str, bool, Option<Keeper>);

/// What waits for others.
struct Chain<'w> {
    consequences: &'w [&'w Wait],
    /// Whoever waits for a pod or claim of which no cause is known yet.
    behind: BTreeMap<String, Vec<usize>>,
    /// Whose cause is known.
    is_told: Vec<bool>,
}

/// One of them, with what was counted already.
struct Known {
    cause: Cause,
    subjects: Vec<String>,
    counted: BTreeSet<String>,
}

impl Known {
    fn of(cause: Cause) -> Known {
        let subjects = vec![cause.subject.clone()];
        let counted = subjects.iter().cloned().collect();
        Known {
            cause,
            subjects,
            counted,
        }
    }

    fn since(&mut self, since: Option<Timestamp>) {
        self.cause.since = [self.cause.since, since].into_iter().flatten().min();
    }

    fn into_cause(self) -> Cause {
        Cause {
            subject: self.subjects.join(", "),
            ..self.cause
        }
    }
}

impl Found {
    /// Something outside of the set is the cause.
    fn root(&mut self, root: Cause, wait: &Wait) {
        let next = self.causes.len();
        let known = self.roots.get(&root.subject).copied();
        let place = known.unwrap_or_else(|| {
            let alike = (root.message.clone(), root.advice.clone());
            *self.roots_alike.entry(alike).or_insert(next)
        });
        if known.is_none() {
            self.roots.insert(root.subject.clone(), place);
        }
        if place == next {
            let since = wait.since;
            self.causes.push(Known::of(Cause { since, ..root }));
        } else if known.is_none() {
            self.causes[place].subjects.push(root.subject);
        }
        self.hold(place, wait);
    }

    fn hold(&mut self, place: usize, wait: &Wait) {
        let known = &mut self.causes[place];
        known.since(wait.since);
        if known.counted.insert(wait.subject.clone()) {
            known.cause.holds_up.push(wait.subject.clone());
        }
        self.of.entry(wait.subject.clone()).or_insert(place);
    }

    /// The wait is a cause itself; what fails alike is told once.
    fn own<'w>(&mut self, wait: &Wait, whom: &dyn Fn(&str) -> Whom<'w>) {
        let whom = whom(&wait.subject);
        let message = wait.cause.to_string();
        let alike = (message.clone(), wait.cause.rule(), whom.is_former, whom.kept_by);
        let next = self.causes.len();
        let place = *self.alike.entry(alike).or_insert(next);
        self.of.entry(wait.subject.clone()).or_insert(place);
        if let Some(known) = self.causes.get_mut(place) {
            // The advice stays that for the first: what helps one may help the others, or have to wait for it; and what is pasted should not take
            // down more than one pod.
            if known.counted.insert(wait.subject.clone()) {
                known.subjects.push(wait.subject.clone());
                known.since(wait.since);
            }
            return;
        }
        self.causes.push(Known::of(Cause {
            subject: wait.subject.clone(),
            message,
            rule: wait.cause.rule(),
            advice: wait.cause.advice(&wait.subject, &whom),
            since: wait.since,
            holds_up: Vec::new(),
            rank: rank(&wait.cause),
        }));
    }

    /// What waits for others is told with the cause of theirs, if there is one.
    fn follow<'w>(&mut self, consequences: &[&Wait], own: &[&Wait], whom: &dyn Fn(&str) -> Whom<'w>) {
        // By what they count, of which there are few kinds.
        let mut unnamed: Vec<(Discriminant<WaitCause>, Option<usize>)> = Vec::new();
        let mut chain = Chain {
            consequences,
            behind: BTreeMap::new(),
            is_told: vec![false; consequences.len()],
        };
        for (first, &wait) in consequences.iter().enumerate() {
            let named = waited_for(wait, whom);
            let place = named.iter().find_map(|blocker| self.of.get(blocker).copied());
            let place = place.or_else(|| {
                let kind = discriminant(&wait.cause);
                let known = unnamed.iter().find(|(known, _)| *known == kind);
                let place = known.map_or_else(|| self.place_of_who_holds(&wait.cause, own, whom), |(_, place)| *place);
                if known.is_none() {
                    unnamed.push((kind, place));
                }
                place
            });
            let Some(place) = place else {
                for blocker in named {
                    chain.behind.entry(blocker).or_default().push(first);
                }
                continue;
            };
            self.hold_with_others(place, first, &mut chain);
        }
        // Of what no cause is known of: first what waits for nothing of all this.
        let left: BTreeSet<&str> = (0..consequences.len())
            .filter(|index| !chain.is_told[*index])
            .map(|index| consequences[index].subject.as_str())
            .collect();
        let comes_after = |wait: &Wait| {
            waited_for(wait, whom)
                .iter()
                .any(|blocker| left.contains(blocker.as_str()))
        };
        let (last, first): (Vec<usize>, Vec<usize>) =
            (0..consequences.len()).partition(|index| comes_after(consequences[*index]));
        for index in first.into_iter().chain(last) {
            if !chain.is_told[index] {
                self.own(consequences[index], whom);
                let place = self.of[&consequences[index].subject];
                self.hold_with_others(place, index, &mut chain);
            }
        }
    }

    /// What waits is told with this cause, and so is whoever waits for it.
    fn hold_with_others(&mut self, place: usize, first: usize, chain: &mut Chain<'_>) {
        let mut next = vec![first];
        while let Some(index) = next.pop() {
            if !std::mem::replace(&mut chain.is_told[index], true) {
                let wait = chain.consequences[index];
                self.hold(place, wait);
                let others = chain.behind.remove(&wait.subject);
                next.extend(others.into_iter().flatten().rev());
            }
        }
    }

    /// The cause of the first pod that holds up what names nobody.
    fn place_of_who_holds<'w>(
        &self,
        cause: &WaitCause,
        own: &[&Wait],
        whom: &dyn Fn(&str) -> Whom<'w>,
    ) -> Option<usize> {
        let mut all = own
            .iter()
            .filter(|other| holds(cause, &other.cause, whom(&other.subject).is_old()));
        all.find_map(|other| self.of.get(&other.subject).copied())
    }
}

/// The pods that a consequence waits for, and their claims: a pod that is to be made waits for these, and is not named by anything else.
fn waited_for<'w>(wait: &Wait, whom: &dyn Fn(&str) -> Whom<'w>) -> Vec<String> {
    let pods = blockers(&wait.cause).unwrap_or_default();
    let templates = whom(&wait.subject).claim_templates;
    let templates = templates
        .iter()
        .filter_map(|template| template["metadata"]["name"].as_str());
    let claims: Vec<String> = templates
        .flat_map(|template| pods.iter().map(move |pod| format!("{template}-{pod}")))
        .collect();
    [pods, claims].concat()
}

/// The pods that a wait is for, if it is a consequence of what these wait for.
fn blockers(cause: &WaitCause) -> Option<Vec<String>> {
    match cause {
        WaitCause::Order { behind } | WaitCause::ScaleDownBehindUnhealthy { pod: behind } => Some(vec![behind.clone()]),
        WaitCause::UpdateBudget { used_by, .. } | WaitCause::ScaleBudget { used_by, .. } => Some(used_by.clone()),
        WaitCause::KeepsAvailable { .. } | WaitCause::Brake { .. } | WaitCause::OldPodsRemain { .. } => {
            Some(Vec::new())
        }
        WaitCause::SetTerminating { finalizers } if goes_last(finalizers) => Some(Vec::new()),
        // The quota that is told of a pod that is missing is the same.
        WaitCause::RevisionUnproven { reason, .. } if reason == Failure::QUOTA_EXCEEDED => Some(Vec::new()),
        _ => None,
    }
}

/// Whether the garbage collector alone keeps it, until what it owns has gone.
fn goes_last(finalizers: &[String]) -> bool {
    matches!(finalizers, [only] if only == "foregroundDeletion")
}

/// Whether a wait that names nobody is for a pod that waits so, by what they count.
fn holds(cause: &WaitCause, of_a_pod: &WaitCause, is_old: bool) -> bool {
    let is_on_its_way_out = match of_a_pod {
        WaitCause::PodTerminating { .. } => true,
        WaitCause::HookHolds { hook, .. } => *hook == "preDelete",
        _ => false,
    };
    match cause {
        // Pods that the update has made or changed, and that are not available.
        WaitCause::Brake { .. } => is_down(of_a_pod) && !is_old,
        WaitCause::KeepsAvailable { .. } => is_down(of_a_pod) || is_on_its_way_out,
        WaitCause::OldPodsRemain { .. } | WaitCause::SetTerminating { .. } => is_on_its_way_out,
        WaitCause::RevisionUnproven { .. } => {
            matches!(of_a_pod, WaitCause::Refused { reason, .. } if reason == Failure::QUOTA_EXCEEDED)
        }
        _ => false,
    }
}

/// Whether a pod that waits so is there, and not available.
fn is_down(cause: &WaitCause) -> bool {
    matches!(
        cause,
        WaitCause::PodNotReady { .. }
            | WaitCause::ContainerCannotStart { .. }
            | WaitCause::LaunchBarrier { .. }
            | WaitCause::LifecycleState { .. }
            | WaitCause::PodNotAvailable { .. }
            | WaitCause::PodStarting
            | WaitCause::HookLacks { .. }
            | WaitCause::InPlaceGrace { .. }
            | WaitCause::InPlaceBatch { .. }
            | WaitCause::InPlaceRestart { .. }
            | WaitCause::InPlaceEnvironment { .. }
            | WaitCause::InPlaceUnreadable
    )
}

/// Whether the pod of which all this is said is on its way out, and a hook holds it.
fn is_held_by_its_deletion(all: &[&Wait]) -> bool {
    let holds = |cause: &WaitCause| matches!(cause, WaitCause::HookHolds { hook, .. } if *hook == "preDelete");
    all.iter().any(|wait| holds(&wait.cause))
}

/// Whether it may be due to the node or a claim of a pod.
fn is_of_a_pod(cause: &WaitCause) -> bool {
    matches!(
        cause,
        WaitCause::PodNotReady { .. }
            | WaitCause::ContainerCannotStart { .. }
            | WaitCause::LaunchBarrier { .. }
            | WaitCause::PodStarting
            | WaitCause::PodTerminating { .. }
            | WaitCause::InPlaceRestart { .. }
            | WaitCause::InPlaceResize { .. }
            | WaitCause::InPlaceEnvironment { .. }
            | WaitCause::InPlaceBatch { .. }
    )
}

/// Says no more than that the pod is not up.
fn is_vague(cause: &WaitCause) -> bool {
    matches!(cause, WaitCause::PodNotReady { .. } | WaitCause::PodStarting)
}

/// Whether something of all that is said of a subject says more than this.
fn has_better(all: &[&Wait], wait: &Wait) -> bool {
    all.iter().any(|other| {
        let says_more = !is_vague(&other.cause)
            || matches!(wait.cause, WaitCause::PodStarting) && matches!(other.cause, WaitCause::PodNotReady { .. });
        says_more && !other.cause.is_intended()
    })
}

/// Says no more of a pod than that it is in the middle of an update in place.
fn is_unfinished(cause: &WaitCause) -> bool {
    matches!(cause, WaitCause::InPlaceRestart { .. } | WaitCause::InPlaceBatch { .. })
}

/// Whether a container of the pod of which all this is said cannot start, which is why the update of the pod is not over.
fn cannot_start(all: &[&Wait]) -> bool {
    let is_root = |wait: &&Wait| matches!(wait.cause, WaitCause::ContainerCannotStart { .. });
    all.iter().any(is_root)
}

/// Roots first.
fn rank(cause: &WaitCause) -> u8 {
    match cause {
        // A switch that cannot be read counts as off, and is the cause of nothing else.
        WaitCause::FieldUnreadable { path, .. } if path.starts_with("metadata.annotations") => 8,
        WaitCause::NamespaceTerminating { .. }
        | WaitCause::SetTerminating { .. }
        | WaitCause::FieldUnreadable { .. } => 0,
        WaitCause::ForeignWriter { .. } => 2,
        WaitCause::Refused { .. } | WaitCause::RevisionRefused { .. } | WaitCause::RevisionUnproven { .. } => 4,
        WaitCause::ContainerCannotStart { .. } => 5,
        cause if cause.is_intended() => 9,
        _ => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use serde_json::{Value, json};

    fn causes_of<'w>(waits: &[Wait], facts: &Facts, whom: &dyn Fn(&str) -> Whom<'w>) -> Vec<Cause> {
        causes(waits, &Index::of(facts, Timestamp::from_seconds(3600)), whom)
    }

    fn wait(subject: &str, cause: WaitCause) -> Wait {
        Wait {
            subject: subject.to_owned(),
            cause,
            since: None,
        }
    }

    fn not_ready() -> WaitCause {
        WaitCause::PodNotReady {
            reason: String::new(),
            message: String::new(),
        }
    }

    /// Each of many pods comes after the next, fails in its own words, and mounts a claim: what is asked for each of them is looked up.
    #[test]
    fn causes_of_a_large_set_are_found_in_one_go() {
        const PODS: usize = 20_000;
        let name = |index: usize| format!("web-{index}");
        let failing = |index: usize| WaitCause::PodNotReady {
            reason: "Unhealthy".into(),
            message: format!("probe of {index} failed"),
        };
        let mut waits: Vec<Wait> = (0..PODS)
            .map(|index| wait(&name(index), behind(&name(index + 1))))
            .collect();
        waits.push(wait(&name(PODS), failing(PODS)));
        waits.extend((PODS + 1..2 * PODS).map(|index| wait(&name(index), failing(index))));
        let facts = Facts {
            pods: Some(
                (0..2 * PODS)
                    .map(|index| pod(&name(index), json!("n1"), &format!("d{index}")))
                    .collect(),
            ),
            nodes: Some(vec![json!({"metadata": {"name": "n1"}})]),
            claims: Some(
                (0..2 * PODS)
                    .map(|index| json!({"metadata": {"name": format!("d{index}")}, "status": {"phase": "Bound"}}))
                    .collect(),
            ),
            ..Facts::default()
        };
        let all = causes_of(&waits, &facts, &|_| Whom::of("statefulset.apps/web", "ns"));
        assert_eq!((all.len(), all[0].holds_up.len()), (PODS, PODS));
    }

    /// Whoever pastes what is advised takes down one pod, and not all that are told of in one line.
    #[test]
    fn advice_for_many_is_about_the_first_of_them() {
        let cannot = || WaitCause::InPlaceNotPossible {
            reason: "spec.containers[0].env was added".into(),
        };
        let waits = ["web-0", "web-1", "web-2"].map(|pod| wait(pod, cannot()));
        let whom = |_: &str| Whom::of("cloneset.apps.kruise.io/web", "ns");
        let all = causes_of(&waits, &Facts::default(), &whom);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].subject, "web-0, web-1, web-2");
        let advice = all[0].advice.as_deref().unwrap();
        assert!(advice.ends_with("kubectl delete pod web-0 -n ns"), "{advice}");
    }

    fn behind(pod: &str) -> WaitCause {
        WaitCause::Order { behind: pod.to_owned() }
    }

    fn told(waits: &[Wait], facts: &Facts) -> Vec<String> {
        let whom = |_: &str| Whom::of("statefulset.apps/web", "ns");
        let line = |cause: &Cause| format!("{} {} <- {}", cause.subject, cause.message, cause.holds_up.join(" "));
        causes_of(waits, facts, &whom).iter().map(line).collect()
    }

    fn pod(name: &str, node: Value, claim: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns"},
            "spec": {"nodeName": node, "volumes": [{"persistentVolumeClaim": {"claimName": claim}}]}})
    }

    #[test]
    fn a_lost_node_is_the_one_cause_of_all_its_pods() {
        let lost = json!({"metadata": {"name": "n1"}, "status": {"conditions": [
            {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}]}});
        let facts = Facts {
            pods: Some(vec![
                pod("web-0", json!("n1"), "d"),
                pod("web-1", json!("n1"), "d"),
                pod("web-3", json!("n9"), "d"),
            ]),
            nodes: Some(vec![lost]),
            ..Facts::default()
        };
        let budget = WaitCause::UpdateBudget {
            budget: 1,
            used_by: vec!["web-0".into()],
        };
        let waits = [
            wait("web-2", budget),
            wait("web-0", not_ready()),
            wait(
                "web-1",
                WaitCause::PodTerminating {
                    node: Some("n1".into()),
                    finalizers: vec![],
                },
            ),
            wait("web-3", not_ready()),
        ];
        assert_eq!(
            told(&waits, &facts),
            [
                "node n1 is lost: it does not answer (NodeStatusUnknown: Kubelet stopped posting node status.) <- web-0 web-1 web-2",
                "node n9 is gone from the cluster <- web-3",
            ]
        );
        // A node has pods of others, too, and whether those take their claims along nobody knows.
        let of_others = ["web-3".to_owned()];
        let may = "  # claims that pods own go with them, and the data in them";
        for (loses_claims, of_others, costs) in [
            (false, &[][..], [may, ""]),
            (false, &of_others, [may, may]),
            (
                true,
                &[],
                [
                    "  # claims go with their pods, and the data in them",
                    "  # its claims go with it, and the data in them",
                ],
            ),
        ] {
            let whom = |_: &str| Whom {
                loses_claims,
                of_others,
                ..Whom::of("cloneset.apps.kruise.io/web", "ns")
            };
            let all = causes_of(&waits, &facts, &whom);
            let advice = all.iter().filter_map(|cause| cause.advice.as_deref());
            let told = advice.map(|advice| advice.find("  #").map_or("", |at| &advice[at..]));
            assert_eq!(told.collect::<Vec<_>>(), costs);
        }
    }

    #[test]
    fn an_unbound_claim_is_the_cause_and_says_why() {
        let claim = |class: Value, phase: &str| json!({"metadata": {"name": "d"}, "spec": {"storageClassName": class}, "status": {"phase": phase}});
        let class =
            |mode: &str| json!({"metadata": {"name": "slow"}, "provisioner": "disk", "volumeBindingMode": mode});
        let event = |at: &str| json!({"type": "Warning", "involvedObject": {"name": "d"}, "message": "no space left", "lastTimestamp": at});
        for (claims, classes, events, expected) in [
            (vec![], vec![], vec![], "claim d does not exist"),
            (
                vec![claim(json!("gone"), "Pending")],
                vec![class("Immediate")],
                vec![],
                "claim d is not bound: storage class gone does not exist",
            ),
            (
                vec![claim(Value::Null, "Pending")],
                vec![class("Immediate")],
                vec![],
                "claim d is not bound: it names no storage class, there is no default one, and no volume fits it",
            ),
            (
                vec![claim(json!(""), "Pending")],
                vec![class("Immediate")],
                vec![],
                "claim d is not bound: it asks for a volume of no storage class, and none fits it",
            ),
            (
                vec![claim(json!("slow"), "Pending")],
                vec![class("Immediate")],
                vec![],
                "claim d is not bound: disk has made no volume for it yet",
            ),
            (
                vec![claim(json!("slow"), "Pending")],
                vec![class("WaitForFirstConsumer")],
                vec![event("1970-01-01T00:55:00Z")],
                "claim d is not bound: no space left",
            ),
            // No node was found for the pod since, and the scheduler says why.
            (
                vec![claim(json!("slow"), "Pending")],
                vec![class("WaitForFirstConsumer")],
                vec![event("1970-01-01T00:40:00Z")],
                "web-0 is not ready",
            ),
            (
                vec![claim(json!("slow"), "Pending")],
                vec![class("Immediate")],
                vec![event("1970-01-01T00:40:00Z")],
                "claim d is not bound: no space left",
            ),
            (
                vec![claim(json!("slow"), "Pending")],
                vec![class("WaitForFirstConsumer")],
                vec![],
                "web-0 is not ready",
            ),
            (
                vec![claim(json!("slow"), "Lost")],
                vec![],
                vec![],
                "claim d has lost its volume",
            ),
            (
                vec![claim(json!("slow"), "Bound")],
                vec![],
                vec![],
                "web-0 is not ready",
            ),
        ] {
            let facts = Facts {
                pods: Some(vec![pod("web-0", Value::Null, "d")]),
                nodes: Some(vec![]),
                claims: Some(claims),
                classes: Some(classes),
                events: Some(events),
                ..Facts::default()
            };
            let waits = [
                wait("web-2", behind("web-1")),
                wait("web-1", behind("web-0")),
                wait("web-0", not_ready()),
            ];
            let all = told(&waits, &facts);
            let [only] = all.as_slice() else {
                panic!("one cause: {all:?}")
            };
            assert!(only.starts_with(expected), "{only}");
            assert!(only.contains("web-2") && only.contains("web-1"), "{only}");
        }
    }

    /// What helps is one thing, however many claims lack it.
    #[test]
    fn claims_that_lack_the_same_class_are_one_cause() {
        let claim = |name: &str, class: &str| json!({"metadata": {"name": name}, "spec": {"storageClassName": class}, "status": {"phase": "Pending"}});
        let slow = json!({"metadata": {"name": "slow"}, "provisioner": "disk", "volumeBindingMode": "Immediate"});
        let claims = [
            ("d0", "gone"),
            ("d1", "gone"),
            ("d2", "other"),
            ("d3", "slow"),
            ("d4", "slow"),
        ];
        let pods = (0..5).map(|n| pod(&format!("web-{n}"), Value::Null, &format!("d{n}")));
        let facts = Facts {
            pods: Some(pods.collect()),
            nodes: Some(vec![]),
            claims: Some(claims.map(|(name, class)| claim(name, class)).into()),
            classes: Some(vec![slow]),
            ..Facts::default()
        };
        let mut waits: Vec<Wait> = (0..5).map(|n| wait(&format!("web-{n}"), not_ready())).collect();
        waits.push(wait("web-1", WaitCause::PodStarting));
        assert_eq!(
            told(&waits, &facts),
            [
                "claim d0, claim d1 is not bound: storage class gone does not exist <- web-0 web-1",
                "claim d2 is not bound: storage class other does not exist <- web-2",
                // What is to be looked at is each of these.
                "claim d3 is not bound: disk has made no volume for it yet <- web-3",
                "claim d4 is not bound: disk has made no volume for it yet <- web-4",
            ]
        );
    }

    /// A pod that is to be made waits for its claim, and nothing waits under its name: whoever comes after it waits for that claim. Nobody is
    /// told to delete a pod that is not there.
    #[test]
    fn whoever_comes_after_a_pod_that_is_missing_waits_for_its_claim() {
        let templates = [json!({"metadata": {"name": "data"}})];
        let missing = ["web-2".to_owned()];
        let whom = |_: &str| Whom {
            claim_templates: &templates,
            missing: &missing,
            ..Whom::of("statefulset.apps/web", "ns")
        };
        let waits = [
            wait("data-web-2", WaitCause::CLAIM_TERMINATING),
            wait("web-4", behind("web-3")),
            wait("web-3", behind("web-2")),
        ];
        let all = causes_of(&waits, &Facts::default(), &whom);
        let [only] = all.as_slice() else {
            panic!("one cause: {all:?}")
        };
        assert_eq!(
            (only.subject.as_str(), only.holds_up.join(" ")),
            ("data-web-2", "web-3 web-4".to_owned())
        );
        // Nothing is known of its claim.
        let all = causes_of(&waits[1..], &Facts::default(), &whom);
        let [only] = all.as_slice() else {
            panic!("one cause: {all:?}")
        };
        assert_eq!(
            (only.subject.as_str(), only.holds_up.join(" "), only.advice.as_deref()),
            ("web-3", "web-4".to_owned(), None)
        );
    }

    #[test]
    fn a_pod_in_an_update_in_place_is_told_once() {
        let stuck = || WaitCause::InPlaceRestart {
            container: "main".into(),
            stays_ready: false,
        };
        let waits = [
            wait("web-2", stuck()),
            wait("web-2", not_ready()),
            wait("web-1", stuck()),
            wait("web-1", WaitCause::PodStarting),
        ];
        let all = told(&waits, &Facts::default());
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].starts_with("web-2, web-1 "), "{all:?}");
    }

    /// The image is why its container has not restarted.
    #[test]
    fn a_container_that_cannot_start_is_the_one_cause_of_an_update_in_place_that_does_not_end() {
        let stuck = || WaitCause::InPlaceRestart {
            container: "main".into(),
            stays_ready: false,
        };
        let batch = || WaitCause::InPlaceBatch {
            containers: vec!["main".into()],
        };
        let cannot = || WaitCause::ContainerCannotStart {
            container: "main".into(),
            reason: "ImagePullBackOff".into(),
            message: String::new(),
        };
        let budget = WaitCause::UpdateBudget {
            budget: 2,
            used_by: vec!["web-4".into(), "web-3".into()],
        };
        let waits = [
            wait("web-4", stuck()),
            wait("web-4", cannot()),
            wait("web-3", cannot()),
            wait("web-3", batch()),
            wait("web-2", budget),
        ];
        assert_eq!(
            told(&waits, &Facts::default()),
            ["web-4, web-3 container main cannot start: ImagePullBackOff <- web-2"]
        );
        // What is not to blame on a container stays.
        assert_eq!(told(&waits[..1], &Facts::default()).len(), 1);
    }

    /// A pod that its preDelete hook holds is not told to be deleted, one that finalizers hold not to be forced, and one whose container
    /// cannot start may be on a node that is lost. A switch that cannot be read comes last.
    #[test]
    fn what_holds_a_pod_comes_before_what_ails_it() {
        let cannot_start = || WaitCause::ContainerCannotStart {
            container: "main".into(),
            reason: "CrashLoopBackOff".into(),
            message: String::new(),
        };
        let hook = WaitCause::HookHolds {
            hook: "preDelete",
            markers: vec!["example.com/serves".into()],
            stays_ready: false,
        };
        let held = WaitCause::PodTerminating {
            node: Some("gone".into()),
            finalizers: vec!["example.com/keep".into()],
        };
        let switch = WaitCause::FieldUnreadable {
            path: "metadata.annotations[flotilla.rs/unblock]".into(),
            found: "\"x\"".into(),
            rule: "must be \"broken-first\"".into(),
        };
        let waits = [
            wait("web", switch),
            wait("web-0", cannot_start()),
            wait("web-0", hook),
            wait("web-1", held),
            wait("web-2", cannot_start()),
        ];
        let pod = |name: &str, node: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": node}});
        let lost =
            json!({"metadata": {"name": "lost"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        let facts = Facts {
            pods: Some(vec![pod("web-1", "gone"), pod("web-2", "lost")]),
            nodes: Some(vec![lost]),
            ..Facts::default()
        };
        let all = causes_of(&waits, &facts, &|_| Whom::of("statefulset.apps/web", "ns"));
        let subjects: Vec<&str> = all.iter().map(|cause| cause.subject.as_str()).collect();
        assert_eq!(subjects, ["node lost", "web-0", "web-1", "web"]);
        assert!(all[1].message.contains("hook preDelete holds it"), "{}", all[1].message);
        assert!(
            all[2].message.contains("held by finalizer example.com/keep"),
            "{}",
            all[2].message
        );
    }

    /// What these waits are for, they do not name.
    #[test]
    fn a_brake_is_told_with_the_pod_that_puts_it_on() {
        let held_up = |waits: &[Wait], former: &[&str]| {
            let whom = |subject: &str| Whom {
                is_former: former.contains(&subject),
                ..Whom::of("cloneset.apps.kruise.io/web", "ns")
            };
            let line = |cause: &Cause| format!("{}: {}", cause.subject, cause.holds_up.join(" "));
            let all = causes_of(waits, &Facts::default(), &whom);
            all.iter().map(line).collect::<Vec<_>>()
        };
        let unreadable = || WaitCause::FieldUnreadable {
            path: "spec.x".into(),
            found: "1".into(),
            rule: "must be 2".into(),
        };
        let crash = || WaitCause::ContainerCannotStart {
            container: "main".into(),
            reason: "CrashLoopBackOff".into(),
            message: String::new(),
        };
        let terminating = || WaitCause::PodTerminating {
            node: None,
            finalizers: vec![],
        };
        let brake = || wait("web-c", WaitCause::Brake { unavailable: 1 });
        let keeps = || {
            let cause = WaitCause::KeepsAvailable { keep: 2, available: 2 };
            wait("web-c", cause)
        };
        let remain = || wait("web", WaitCause::OldPodsRemain { left: 1 });
        let waits = [
            wait("web", unreadable()),
            wait("web-a", crash()),
            wait("web-b", not_ready()),
        ];
        let with = |last: Wait| [waits.as_slice(), &[last]].concat();
        // The brake is put on by updated pods, and an old one that fails is none.
        assert_eq!(
            held_up(&with(brake()), &["web-a"]),
            ["web: ", "web-a: ", "web-b: web-c"]
        );
        assert_eq!(held_up(&with(brake()), &[]), ["web: ", "web-a: web-c", "web-b: "]);
        // Any pod that is down counts as unavailable.
        assert_eq!(
            held_up(&with(keeps()), &["web-a"]),
            ["web: ", "web-a: web-c", "web-b: "]
        );
        // Old pods that are left are on their way out.
        let waits = [wait("web-a", crash()), wait("web-b", terminating()), remain()];
        assert_eq!(held_up(&waits, &["web-a", "web-b"]), ["web-a: ", "web-b: web"]);
        // With nobody who is down, none of the others is to blame.
        let waits = [wait("web", unreadable()), brake(), keeps(), remain()];
        assert_eq!(held_up(&waits, &[]), ["web: ", "web-c: ", "web-c: ", "web: "]);
    }

    /// The set goes when its pods have gone: whatever holds one of them holds the set.
    #[test]
    fn a_set_that_goes_after_its_pods_waits_for_the_one_that_does_not_go() {
        let held_by = |finalizer: &str| {
            let cause = WaitCause::SetTerminating {
                finalizers: vec![finalizer.to_owned()],
            };
            wait("web", cause)
        };
        let pod = || {
            let cause = WaitCause::PodTerminating {
                node: None,
                finalizers: vec!["example.com/keep".to_owned()],
            };
            wait("web-1", cause)
        };
        let order = |waits: &[Wait]| -> Vec<String> {
            let all = causes_of(waits, &Facts::default(), &|_: &str| {
                Whom::of("statefulset.apps/web", "ns")
            });
            let line = |cause: Cause| format!("{}: {}", cause.subject, cause.holds_up.join(" "));
            all.into_iter().map(line).collect()
        };
        assert_eq!(order(&[held_by("foregroundDeletion"), pod()]), ["web-1: web"]);
        assert_eq!(order(&[held_by("foregroundDeletion")]), ["web: "]);
        // Somebody else's is in the way whatever the pods do.
        assert_eq!(order(&[held_by("example.com/bill"), pod()]), ["web: ", "web-1: "]);
    }

    #[test]
    fn what_nobody_else_explains_stays() {
        let budget = WaitCause::UpdateBudget {
            budget: 1,
            used_by: vec!["web-0".into()],
        };
        assert_eq!(told(&[wait("web-2", budget)], &Facts::default()).len(), 1);
        let paused = [
            wait("web", WaitCause::Paused),
            wait("web-2", behind("web-1")),
            wait("web-1", not_ready()),
        ];
        let all = told(&paused, &Facts::default());
        assert_eq!(all, ["web-1 is not ready <- web-2", "web the update is paused <- "]);
    }
}
