//! From what a set waits for to the causes: each once, the root first, with what it holds up.

use super::facts::{Facts, last_warning, named, time};
use flotilla_model::lines::in_command;
use flotilla_model::{Timestamp, Wait, WaitCause, Whom};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The default class bears this.
const IS_DEFAULT: &str = flotilla_api::names::DEFAULT_STORAGE_CLASS;

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
    rank: u8,
}

/// The causes of these waits. `whom` tells for whom advice about a subject is.
pub(super) fn causes<'w>(waits: &[Wait], facts: &Facts, whom: &dyn Fn(&str) -> Whom<'w>) -> Vec<Cause> {
    let mut found = Found::default();
    let (consequences, own): (Vec<&Wait>, Vec<&Wait>) = waits.iter().partition(|wait| blockers(&wait.cause).is_some());
    for wait in &own {
        // It goes when the hook lets it, and whether it starts until then matters to nobody.
        if is_down(&wait.cause) && is_held_by_its_deletion(&own, wait) {
            continue;
        }
        let root = if is_of_a_pod(&wait.cause) {
            root(wait, facts, whom)
        } else {
            None
        };
        match root {
            Some(root) => found.root(root, wait),
            None if is_vague(&wait.cause) && has_better(&own, wait) => {}
            None if is_unfinished(&wait.cause) && cannot_start(&own, wait) => {}
            None => found.own(wait, whom),
        }
    }
    found.follow(&consequences, &own, whom);
    found.causes.sort_by_key(|cause| cause.rank);
    found.causes
}

/// What is known so far.
#[derive(Default)]
struct Found {
    causes: Vec<Cause>,
    /// The cause of what each subject waits for.
    of: BTreeMap<String, usize>,
}

impl Found {
    /// Something outside of the set is the cause.
    fn root(&mut self, mut root: Cause, wait: &Wait) {
        let place = self.causes.iter().position(|cause| cause.subject == root.subject);
        let place = place.unwrap_or_else(|| {
            root.since = wait.since;
            self.causes.push(root);
            self.causes.len() - 1
        });
        self.hold(place, wait);
    }

    fn hold(&mut self, place: usize, wait: &Wait) {
        let cause = &mut self.causes[place];
        cause.since = [cause.since, wait.since].into_iter().flatten().min();
        if cause.subject != wait.subject && !cause.holds_up.contains(&wait.subject) {
            cause.holds_up.push(wait.subject.clone());
        }
        self.of.entry(wait.subject.clone()).or_insert(place);
    }

    /// The wait is a cause itself; what fails alike is told once.
    fn own<'w>(&mut self, wait: &Wait, whom: &dyn Fn(&str) -> Whom<'w>) {
        let message = wait.cause.to_string();
        let whom_is = whom(&wait.subject);
        let alike = self.causes.iter().position(|cause| {
            let first = cause.subject.split(", ").next().unwrap_or_default();
            let other = whom(first);
            let stands_alike = other.is_former == whom_is.is_former && other.kept_by == whom_is.kept_by;
            cause.message == message && cause.rule == wait.cause.rule() && stands_alike
        });
        if let Some(place) = alike {
            let cause = &mut self.causes[place];
            if cause.subject.split(", ").any(|subject| subject == wait.subject) {
                return;
            }
            cause.subject = format!("{}, {}", cause.subject, wait.subject);
            // The advice stays that for the first: what helps one may help the others, or have to wait for it; and what is pasted should not take
            // down more than one pod.
            cause.since = [cause.since, wait.since].into_iter().flatten().min();
            self.of.entry(wait.subject.clone()).or_insert(place);
            return;
        }
        self.of.entry(wait.subject.clone()).or_insert(self.causes.len());
        self.causes.push(Cause {
            subject: wait.subject.clone(),
            message,
            rule: wait.cause.rule(),
            advice: wait.cause.advice(&wait.subject, &whom_is),
            since: wait.since,
            holds_up: Vec::new(),
            rank: rank(&wait.cause),
        });
    }

    /// What waits for others is told with the cause of theirs, if there is one.
    fn follow<'w>(&mut self, consequences: &[&Wait], own: &[&Wait], whom: &dyn Fn(&str) -> Whom<'w>) {
        let mut left: Vec<&Wait> = consequences.to_vec();
        loop {
            let before = left.len();
            left.retain(|wait| {
                let blockers = blockers(&wait.cause).unwrap_or_default();
                let unnamed = own
                    .iter()
                    .filter(|other| holds(&wait.cause, &other.cause, whom(&other.subject).is_old()));
                let mut all = blockers.iter().chain(unnamed.map(|other| &other.subject));
                let place = all.find_map(|blocker| self.of.get(blocker).copied());
                match place {
                    Some(place) => {
                        self.hold(place, wait);
                        false
                    }
                    None => true,
                }
            });
            if left.len() == before {
                break;
            }
        }
        for wait in left {
            self.own(wait, whom);
        }
    }
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

/// Whether the pod that waits is on its way out, and a hook holds it.
fn is_held_by_its_deletion(own: &[&Wait], wait: &Wait) -> bool {
    let holds = |cause: &WaitCause| matches!(cause, WaitCause::HookHolds { hook, .. } if *hook == "preDelete");
    own.iter()
        .any(|other| other.subject == wait.subject && holds(&other.cause))
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

fn has_better(own: &[&Wait], wait: &Wait) -> bool {
    own.iter().any(|other| {
        let says_more = !is_vague(&other.cause)
            || matches!(wait.cause, WaitCause::PodStarting) && matches!(other.cause, WaitCause::PodNotReady { .. });
        other.subject == wait.subject && says_more && !other.cause.is_intended()
    })
}

/// Says no more of a pod than that it is in the middle of an update in place.
fn is_unfinished(cause: &WaitCause) -> bool {
    matches!(cause, WaitCause::InPlaceRestart { .. } | WaitCause::InPlaceBatch { .. })
}

/// Whether a container of the pod that waits cannot start, which is why the update of the pod is not over.
fn cannot_start(own: &[&Wait], wait: &Wait) -> bool {
    let is_root = |other: &&Wait| matches!(other.cause, WaitCause::ContainerCannotStart { .. });
    own.iter().filter(|other| other.subject == wait.subject).any(is_root)
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

/// The node or the claim because of which a pod waits.
fn root<'w>(wait: &Wait, facts: &Facts, whom: &dyn Fn(&str) -> Whom<'w>) -> Option<Cause> {
    let pod = facts.pod(&wait.subject)?;
    let whom = whom(&wait.subject);
    // Whatever becomes of its node, it stays for those.
    if matches!(&wait.cause, WaitCause::PodTerminating { finalizers, .. } if !finalizers.is_empty()) {
        return None;
    }
    // One that goes needs no claim for that.
    let needs_claims = !matches!(wait.cause, WaitCause::PodTerminating { .. });
    let claim = || claim(pod, facts, &whom).filter(|_| needs_claims);
    node(pod, facts, whom.loses_claims).or_else(claim)
}

/// The node of the pod, if it is not up. What helps costs data where pods that others delete take their claims along: volumes may well have
/// survived their node.
fn node(pod: &Value, facts: &Facts, loses_claims: bool) -> Option<Cause> {
    let cost = cost(loses_claims);
    let name = pod["spec"]["nodeName"].as_str()?;
    let nodes = facts.nodes.as_deref()?;
    let cause = |message: String, advice: String| Cause {
        subject: format!("node {name}"),
        message,
        rule: "a pod runs on its node",
        advice: Some(advice),
        since: None,
        holds_up: Vec::new(),
        rank: 1,
    };
    let Some(node) = named(nodes, name) else {
        let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        return Some(cause(
            "is gone from the cluster".to_owned(),
            format!(
                "if it is off for good, let its pod go: kubectl delete pod {} -n {} --force --grace-period=0{cost}",
                in_command(pod_name),
                in_command(namespace)
            ),
        ));
    };
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready")?;
    let text = |field: &str| ready[field].as_str().unwrap_or_default();
    let what = match text("status") {
        "True" => return None,
        "False" => "is not ready",
        _ => "is lost: it does not answer",
    };
    Some(cause(
        format!("{what} ({}: {})", text("reason"), text("message")),
        format!(
            "bring it back; or, only if it is off for good, let all of its pods go, also those of others: kubectl delete node {}{cost}",
            in_command(name)
        ),
    ))
}

/// What the deletion of a pod costs, for a shell a comment.
fn cost(loses_claims: bool) -> &'static str {
    if loses_claims {
        "  # claims go with their pods, and the data in them"
    } else {
        ""
    }
}

/// A claim of the pod that has no volume.
fn claim(pod: &Value, facts: &Facts, whom: &Whom<'_>) -> Option<Cause> {
    let claims = facts.claims.as_deref()?;
    let volumes = pod["spec"]["volumes"].as_array()?;
    let mounted = volumes
        .iter()
        .filter_map(|volume| Some((volume, volume["persistentVolumeClaim"]["claimName"].as_str()?)));
    mounted.into_iter().find_map(|(volume, name)| {
        let (message, advice) = match named(claims, name) {
            None => ("does not exist".to_owned(), provide(pod, volume, whom)),
            Some(claim) => unbound(name, claim, facts, whom.namespace)?,
        };
        Some(Cause {
            subject: format!("claim {name}"),
            message,
            rule: "a pod needs its claims",
            advice: Some(advice),
            since: None,
            holds_up: Vec::new(),
            rank: 3,
        })
    })
}

/// What helps a pod that mounts a claim which is not there. Those of claim templates are made with pods that the set wants, so that one that lacks its own
/// is none of these, or is about to be replaced.
fn provide(pod: &Value, volume: &Value, whom: &Whom<'_>) -> String {
    let namespace = in_command(whom.namespace);
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let claim = volume["persistentVolumeClaim"]["claimName"]
        .as_str()
        .unwrap_or_default();
    let mut templates = whom.claim_templates.iter();
    let is_of_a_template = templates.any(|template| template["metadata"]["name"] == volume["name"])
        || volume["name"]
            .as_str()
            .is_some_and(|volume| claim == format!("{volume}-{name}"));
    if is_of_a_template {
        return format!(
            "create it, if its data can be restored; or let the pod go, which has never run: kubectl delete pod {} -n {namespace}{}",
            in_command(name),
            cost(whom.loses_claims)
        );
    }
    format!("create it; see which there are: kubectl get pvc -n {namespace}")
}

/// Why a claim has no volume, and what can be done.
fn unbound(name: &str, claim: &Value, facts: &Facts, namespace: &str) -> Option<(String, String)> {
    let namespace = in_command(namespace);
    let describe = format!("kubectl describe pvc {} -n {namespace}", in_command(name));
    match claim["status"]["phase"].as_str() {
        Some("Bound") => return None,
        Some("Lost") => {
            return Some((
                "has lost its volume".to_owned(),
                format!("see which it was: {describe}"),
            ));
        }
        _ => {}
    }
    let said = facts
        .events
        .as_deref()
        .and_then(|events| last_warning(events.iter(), claim));
    let said = said.and_then(|event| event["message"].as_str());
    let Some(classes) = facts.classes.as_deref() else {
        let why = said.map_or_else(String::new, |said| format!(": {said}"));
        return Some((format!("is not bound{why}"), format!("see why: {describe}")));
    };
    let class_name = claim["spec"]["storageClassName"].as_str();
    let class = match class_name {
        // No default class is for it, whichever there is.
        Some("") => {
            return Some((
                "is not bound: it asks for a volume of no storage class, and none fits it".to_owned(),
                "make a volume of no class by hand; see which there are: kubectl get pv".to_owned(),
            ));
        }
        Some(class) => {
            let Some(class) = named(classes, class) else {
                return Some((
                    format!("is not bound: storage class {class} does not exist"),
                    "create that class, under this name; see which there are: kubectl get storageclass".to_owned(),
                ));
            };
            Some(class)
        }
        None => default_class(classes),
    };
    let Some(class) = class else {
        return Some((
            "is not bound: it names no storage class, there is no default one, and no volume fits it".to_owned(),
            "make one class the default, or make a volume by hand; see which there are: kubectl get storageclass,pv"
                .to_owned(),
        ));
    };
    if let Some(said) = said {
        return Some((format!("is not bound: {said}"), format!("see more: {describe}")));
    }
    if class["volumeBindingMode"] == "WaitForFirstConsumer" {
        return None;
    }
    let provisioner = class["provisioner"].as_str().unwrap_or("its provisioner");
    Some((
        format!("is not bound: {provisioner} has made no volume for it yet"),
        format!("see that this provisioner runs, and what it says: {describe}"),
    ))
}

/// The class of claims that name none: the newest that is marked so, as the API server takes it, and of several the first by name.
fn default_class(classes: &[Value]) -> Option<&Value> {
    let marked = classes
        .iter()
        .filter(|class| class["metadata"]["annotations"][IS_DEFAULT] == "true");
    marked.max_by_key(|class| {
        let meta = &class["metadata"];
        (time(&meta["creationTimestamp"]), Reverse(meta["name"].as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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

    /// Whoever pastes what is advised takes down one pod, and not all that are told of in one line.
    #[test]
    fn advice_for_many_is_about_the_first_of_them() {
        let cannot = || WaitCause::InPlaceNotPossible {
            reason: "spec.containers[0].env was added".into(),
        };
        let waits = ["web-0", "web-1", "web-2"].map(|pod| wait(pod, cannot()));
        let whom = |_: &str| Whom::of("cloneset.apps.kruise.io/web", "ns");
        let all = causes(&waits, &Facts::default(), &whom);
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
        causes(waits, facts, &whom).iter().map(line).collect()
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
        for loses_claims in [false, true] {
            let whom = |_: &str| Whom {
                loses_claims,
                ..Whom::of("cloneset.apps.kruise.io/web", "ns")
            };
            let all = causes(&waits, &facts, &whom);
            let advice = all.iter().filter_map(|cause| cause.advice.as_deref());
            let costs = |advice: &&str| advice.ends_with("  # claims go with their pods, and the data in them");
            assert_eq!(advice.filter(costs).count(), if loses_claims { 2 } else { 0 });
        }
    }

    /// What a claim template makes is made with a pod that the set wants: one that lacks its own had better go.
    #[test]
    fn a_pod_whose_own_claim_is_gone_may_go_and_another_claim_has_to_be_made() {
        let templates = [json!({"metadata": {"name": "data"}})];
        let advice = |volume: &str, claim: &str| {
            let volume = json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}});
            let pod = json!({"metadata": {"name": "web-1"}, "spec": {"volumes": [volume.clone()]}});
            let whom = Whom {
                claim_templates: &templates,
                ..Whom::of("statefulset.apps/web", "ns")
            };
            provide(&pod, &volume, &whom)
        };
        let own = advice("data", "data-web-9");
        assert!(own.ends_with(": kubectl delete pod web-1 -n ns"), "{own}");
        // Its template is gone by now.
        assert_eq!(advice("logs", "logs-web-1"), own);
        let shared = advice("shared", "library");
        assert!(shared.ends_with(": kubectl get pvc -n ns"), "{shared}");
    }

    #[test]
    fn an_unbound_claim_is_the_cause_and_says_why() {
        let claim = |class: Value, phase: &str| json!({"metadata": {"name": "d"}, "spec": {"storageClassName": class}, "status": {"phase": phase}});
        let class =
            |mode: &str| json!({"metadata": {"name": "slow"}, "provisioner": "disk", "volumeBindingMode": mode});
        let event = json!({"type": "Warning", "involvedObject": {"name": "d"}, "message": "no space left"});
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
                vec![event],
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
        let all = causes(&waits, &facts, &|_| Whom::of("statefulset.apps/web", "ns"));
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
            let all = causes(waits, &Facts::default(), &whom);
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
            let all = causes(waits, &Facts::default(), &|_: &str| {
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
    fn what_is_said_of_a_claim_does_not_depend_on_the_order_of_lists() {
        let claim = |class: Value| json!({"metadata": {"name": "d", "uid": "now"}, "spec": {"storageClassName": class}, "status": {"phase": "Pending"}});
        let event = |message: &str, at: &str| {
            json!({"type": "Warning", "message": message, "lastTimestamp": at,
            "involvedObject": {"name": "d", "uid": "now"}})
        };
        let class = |name: &str, provisioner: &str, made: &str| {
            json!({"provisioner": provisioner, "volumeBindingMode": "Immediate",
            "metadata": {"name": name, "creationTimestamp": made, "annotations": {IS_DEFAULT: "true"}}})
        };
        let said = |class_name: Value, mut classes: Vec<Value>, mut events: Vec<Value>| {
            let mut all = std::collections::BTreeSet::new();
            for _ in 0..2 {
                classes.reverse();
                events.reverse();
                let facts = Facts {
                    classes: Some(classes.clone()),
                    events: Some(events.clone()),
                    ..Facts::default()
                };
                all.insert(unbound("d", &claim(class_name.clone()), &facts, "ns").unwrap().0);
            }
            all.into_iter().collect::<Vec<_>>()
        };
        // The last word counts, however events are named.
        let classes = vec![class("slow", "disk", "2026-01-01T00:00:00Z")];
        let mut last = event("", "");
        last["lastTimestamp"] = Value::Null;
        last["eventTime"] = json!("2026-01-01T00:00:07.500000Z");
        last["message"] = json!("quota is used up");
        let events = vec![
            event("no space left", "2026-01-01T00:00:07Z"),
            last,
            event("timeout", "2026-01-01T00:00:05Z"),
        ];
        assert_eq!(
            said(json!("slow"), classes.clone(), events),
            ["is not bound: quota is used up"]
        );
        // What was said of a claim of that name that is gone is no word about this one.
        let mut of_another = event("no space left", "2026-01-01T00:00:07Z");
        of_another["involvedObject"]["uid"] = json!("before");
        assert_eq!(
            said(json!("slow"), classes, vec![of_another]),
            ["is not bound: disk has made no volume for it yet"]
        );
        // Of several default classes the API server takes the newest, and of those the first by name.
        let classes = vec![
            class("a", "oldest", "2026-01-01T00:00:00Z"),
            class("c", "second", "2026-02-01T00:00:00Z"),
            class("b", "newest", "2026-02-01T00:00:00Z"),
        ];
        assert_eq!(
            said(Value::Null, classes, vec![]),
            ["is not bound: newest has made no volume for it yet"]
        );
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
