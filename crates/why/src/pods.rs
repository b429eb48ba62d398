//! What pods say of themselves, and kubelets of them, beyond what the manager looks at: finalizers, readiness gates, the last warning.

use super::facts::{Index, Looked, happened, last_warning, time};
use super::set::{LiveSet, finalizers};
use flotilla_controllers::wait_of_pod;
use flotilla_engine::core::cache::Cache;
use flotilla_engine::wire::NORMAL_WAITS;
use flotilla_model::wait::Lack;
use flotilla_model::{Command, Decision, ObjectKey, PodRecord, Reader as _, SetRecord, Timestamp, Wait, WaitCause};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The word of kubelets for a pod that lacks what others have to say of it.
const GATES_NOT_READY: &str = "ReadinessGatesNotReady";

/// So many claims that go are named.
const CLAIMS_NAMED: usize = 10;

/// The finalizer of claims that pods use.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// A container that ends so soon has not done what it was started for.
const SHORT_RUN: Duration = Duration::from_secs(60);

/// Warnings that tell why a pod is not ready. Others, such as of name servers or policies, are repeated about pods that serve, too.
const OF_READINESS: [&str; 10] = [
    "BackOff",
    "Failed",
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
    "FailedMount",
    "FailedPostStartHook",
    "FailedScheduling",
    "NetworkNotReady",
    "ProbeError",
    "Unhealthy",
];

/// Pods of the set that are terminating, and for which nothing waits: a CloneSet makes others under other names.
pub(super) fn unnamed(cache: &Cache, set: &SetRecord, waits: &[Wait]) -> Vec<Arc<PodRecord>> {
    let named = subjects(waits);
    let pods = cache.pods_of(set.as_owner()).iter();
    pods.filter(|pod| pod.is_terminating() && !named.contains(pod.name()))
        .cloned()
        .collect()
}

/// Pods of the set that are not ready, or have ended, stay, and for which nothing waits: where pods come one after the other, only the first is waited
/// for.
pub(super) fn down(cache: &Cache, set: &SetRecord, decision: &Decision, waits: &[Wait]) -> Vec<Wait> {
    let goes = decision.commands().filter_map(|scoped| match &scoped.command {
        Command::Delete { key, .. } => Some(&*key.name),
        _ => None,
    });
    let mut named = subjects(waits);
    named.extend(goes);
    let pods = cache.pods_of(set.as_owner()).iter();
    let has_ended = |pod: &PodRecord| pod.is_terminal() && !pod.is_terminating();
    let ended: BTreeSet<&str> = pods
        .clone()
        .filter(|pod| has_ended(pod))
        .map(|pod| pod.name())
        .collect();
    let first_ended = waits
        .iter()
        .find(|wait| matches!(wait.cause, WaitCause::Order { .. }) && ended.contains(wait.subject.as_str()));
    // Of those that come after another the manager names the first.
    let in_order = |pod: &PodRecord| {
        let first = first_ended.filter(|_| has_ended(pod))?;
        Some(Wait {
            subject: pod.name().to_owned(),
            ..first.clone()
        })
    };
    // That a container has not restarted says nothing of why it cannot.
    let is_of_start = |wait: &Wait| matches!(wait.cause, WaitCause::ContainerCannotStart { .. });
    let (said, unsaid): (Vec<&Wait>, Vec<&Wait>) = waits.iter().partition(|wait| is_of_start(wait));
    let said: BTreeSet<&str> = said.into_iter().map(|wait| wait.subject.as_str()).collect();
    let restarts = unsaid
        .into_iter()
        .filter(|wait| matches!(wait.cause, WaitCause::InPlaceRestart { .. }));
    let restarts: BTreeSet<&str> = restarts.map(|wait| wait.subject.as_str()).collect();
    let cannot = |pod: &Arc<PodRecord>| wait_of_pod(pod).filter(is_of_start);
    let of_restarts = pods
        .clone()
        .filter(|pod| restarts.contains(pod.name()) && !said.contains(pod.name()));
    let others = pods.clone().filter(|pod| !named.contains(pod.name()));
    others
        .filter_map(|pod| wait_of_pod(pod).or_else(|| in_order(pod)))
        .chain(of_restarts.filter_map(cannot))
        .collect()
}

fn subjects(waits: &[Wait]) -> BTreeSet<&str> {
    waits.iter().map(|wait| wait.subject.as_str()).collect()
}

/// Those of them that do not go by themselves: their grace period is over, finalizers hold them, or their node is not there to end them.
pub(super) fn that_do_not_go(pods: &[Arc<PodRecord>], facts: &Index<'_>) -> Vec<Wait> {
    let wait = |pod: &Arc<PodRecord>| does_not_go(pod.name(), pod.node.as_deref(), pod.meta.deleted, facts);
    pods.iter().filter_map(wait).collect()
}

/// The wait for a pod that was to be gone at this time, if it does not go by itself.
fn does_not_go(name: &str, node: Option<&str>, until: Option<Timestamp>, facts: &Index<'_>) -> Option<Wait> {
    let is_overdue = until.is_some_and(|until| until < facts.now);
    let pod = facts.pod(name);
    let is_held = pod.is_some_and(|pod| !finalizers(&pod["metadata"]).is_empty());
    let stays = is_overdue || is_held || node.is_some_and(|node| is_down(node, facts));
    stays.then(|| Wait {
        subject: name.to_owned(),
        cause: WaitCause::PodTerminating {
            node: node.map(str::to_owned),
            finalizers: Vec::new(),
        },
        since: until,
    })
}

/// Whether a node is known to be gone, or not ready.
fn is_down(name: &str, facts: &Index<'_>) -> bool {
    let is_down = |node: &Value| condition(node, "Ready").is_some_and(|ready| ready["status"] != "True");
    match facts.node(name) {
        Looked::Unread => false,
        Looked::Missing => true,
        Looked::There(node) => is_down(node),
    }
}

fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind)
}

/// Pods that others come after, and that are not there.
pub(super) fn missing(waits: &[Wait], facts: &Index<'_>) -> Vec<String> {
    let behind = |wait: &Wait| match &wait.cause {
        WaitCause::Order { behind } | WaitCause::ScaleDownBehindUnhealthy { pod: behind } => Some(behind.clone()),
        _ => None,
    };
    let is_missing = |pod: &String| facts.knows_pods && facts.pod(pod).is_none();
    let all: BTreeSet<String> = waits.iter().filter_map(behind).filter(is_missing).collect();
    all.into_iter().collect()
}

/// Pods that these waits name, and that are not the set's own: they are not for its owner to delete without a thought.
pub(super) fn of_others(live: &LiveSet, waits: &[Wait], facts: &Index<'_>) -> Vec<String> {
    let uid = &live.object["metadata"]["uid"];
    let is_of_others = |name: &String| facts.pod(name).is_some_and(|pod| !is_controlled_by(pod, uid));
    let named = |wait: &Wait| match &wait.cause {
        WaitCause::NameTaken { .. } => Some(wait.subject.clone()),
        // Advice is about the first of them.
        WaitCause::ClaimTerminating { used_by, .. } => used_by.first().cloned().filter(is_of_others),
        WaitCause::PodTerminating { .. } => Some(wait.subject.clone()).filter(is_of_others),
        _ => None,
    };
    let all: BTreeSet<String> = waits.iter().filter_map(named).collect();
    all.into_iter().collect()
}

fn is_controlled_by(pod: &Value, uid: &Value) -> bool {
    let mut owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|owner| owner["controller"] == true && owner["uid"] == *uid)
}

/// Pods that hold claims which are to go, are to go themselves, and do not: whosever they are.
fn that_hold_claims(waits: &[Wait], facts: &Index<'_>) -> Vec<Wait> {
    let mut named = subjects(waits);
    let claims = waits
        .iter()
        .filter(|wait| matches!(wait.cause, WaitCause::ClaimTerminating { .. }));
    let users = claims.flat_map(|wait| facts.leaving_users_of(&wait.subject));
    let users = users.filter(|name| named.insert(name));
    let wait = |name: &&str| {
        let pod = facts.pod(name)?;
        let until = time(&pod["metadata"]["deletionTimestamp"]);
        does_not_go(name, pod["spec"]["nodeName"].as_str(), until, facts)
    };
    users.filter_map(wait).collect()
}

/// Completes waits for pods by what their objects say, and by what was said of them last.
pub(super) fn add_what_is_known(waits: &mut Vec<Wait>, facts: &Index<'_>) {
    let held = that_hold_claims(waits, facts);
    waits.extend(held);
    let others: Vec<Wait> = waits.iter().flat_map(|wait| other_containers(wait, facts)).collect();
    for wait in waits.iter_mut() {
        if let WaitCause::ClaimTerminating { used_by, finalizers } = &mut wait.cause {
            let users = facts.users_of(&wait.subject).iter();
            (*used_by, *finalizers) = (
                users.map(ToString::to_string).collect(),
                holders_of(&wait.subject, facts),
            );
            continue;
        }
        let Some(pod) = facts.pod(&wait.subject) else {
            continue;
        };
        match &mut wait.cause {
            WaitCause::PodTerminating { finalizers: held, .. } => {
                if let Some(at) = asked_to_go(pod) {
                    *held = finalizers(&pod["metadata"]);
                    wait.since = Some(at);
                }
            }
            WaitCause::PodNotReady { reason, message } if reason.is_empty() && message.is_empty() => {
                if let Some(cause) = ends_again_and_again(pod, facts.now) {
                    wait.cause = cause;
                } else if let Some((why, said)) = gates(pod).or_else(|| warning(pod, facts)) {
                    (*reason, *message) = (why, said);
                }
            }
            _ => {}
        }
    }
    waits.extend(others);
}

/// Statuses of a pod's containers, in the order in which they start.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = [
        &pod["status"]["initContainerStatuses"],
        &pod["status"]["containerStatuses"],
    ];
    lists.into_iter().filter_map(Value::as_array).flatten()
}

/// The other containers of a pod of which one cannot start: each has its own reason, and the manager looks at the first.
fn other_containers(wait: &Wait, facts: &Index<'_>) -> Vec<Wait> {
    let WaitCause::ContainerCannotStart { container: first, .. } = &wait.cause else {
        return Vec::new();
    };
    let Some(pod) = facts.pod(&wait.subject) else {
        return Vec::new();
    };
    let cause = |status: &Value| {
        let waiting = &status["state"]["waiting"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (container, reason) = (text(&status["name"]), text(&waiting["reason"]));
        let is_normal = reason.is_empty() || NORMAL_WAITS.contains(&reason.as_str());
        (!is_normal && container != *first).then(|| WaitCause::ContainerCannotStart {
            container,
            reason,
            message: text(&waiting["message"]),
        })
    };
    let causes = containers(pod).filter_map(cause);
    let others = causes.map(|cause| Wait {
        cause,
        subject: wait.subject.clone(),
        since: wait.since,
    });
    others.collect()
}

/// That a container which runs at the moment ends again and again. One that was restarted by an update in place had run for longer.
fn ends_again_and_again(pod: &Value, now: Timestamp) -> Option<WaitCause> {
    let cause = |status: &Value| {
        let last = &status["lastState"]["terminated"];
        let (started, ended) = (time(&last["startedAt"])?, time(&last["finishedAt"])?);
        let running = time(&status["state"]["running"]["startedAt"])?;
        let restarts = status["restartCount"].as_i64()?;
        let code = last["exitCode"].as_i64().filter(|code| *code != 0)?;
        let is_loop = restarts > 1 && ended.since(started) < SHORT_RUN && now.since(running) < SHORT_RUN;
        (is_loop && status["ready"] != true).then(|| WaitCause::ContainerCannotStart {
            container: status["name"].as_str().unwrap_or_default().to_owned(),
            reason: "CrashLoopBackOff".to_owned(),
            message: format!("restarted {restarts} times, and ended last with exit code {code}"),
        })
    };
    containers(pod).find_map(cause)
}

/// The finalizers of a claim, but for that which goes by itself when no pod uses the claim.
fn holders_of(claim: &str, facts: &Index<'_>) -> Vec<String> {
    let Looked::There(claim) = facts.claim(claim) else {
        return Vec::new();
    };
    let all = finalizers(&claim["metadata"]);
    all.into_iter().filter(|finalizer| finalizer != PROTECTION).collect()
}

/// Claims of the set's pods that are being deleted and are held by nothing but these pods, each in a sentence: nothing waits for them, and the data
/// goes when the pod ends next. What waits name is told there.
pub(super) fn claims_that_go(cache: &Cache, set: &SetRecord, waits: &[Wait]) -> Vec<String> {
    let named = subjects(waits);
    let namespace = &*set.meta.key.namespace;
    let is_going = |name: &str| {
        let claim = cache.claim(&ObjectKey::new(namespace, name));
        claim.is_some_and(|claim| claim.meta.deleted.is_some())
    };
    let mut going: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in cache.pods_of(set.as_owner()).iter().filter(|pod| !pod.is_terminating()) {
        for (_, claim) in pod.claims() {
            if !named.contains(claim.as_str()) && is_going(&claim) {
                going.entry(claim).or_default().push(pod.name());
            }
        }
    }
    let note = |(claim, pods): (String, Vec<&str>)| {
        let when = match pods.as_slice() {
            [only] => format!("when pod {only} ends"),
            [first, others @ ..] => format!("when pod {first}, and {} more, have ended", others.len()),
            [] => return None,
        };
        Some(format!(
            "claim {claim} is being deleted: it goes, with its data, {when}"
        ))
    };
    let more = going.len().saturating_sub(CLAIMS_NAMED);
    let more = (more > 0)
        .then(|| format!("{more} more claims are being deleted, and go, with their data, when their pods end"));
    going
        .into_iter()
        .take(CLAIMS_NAMED)
        .filter_map(note)
        .chain(more)
        .collect()
}

/// When a pod's deletion was asked for: its time of deletion is when its grace period ends.
fn asked_to_go(pod: &Value) -> Option<Timestamp> {
    let metadata = &pod["metadata"];
    let until = time(&metadata["deletionTimestamp"])?;
    let grace = metadata["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
    Some(until - Duration::from_secs(grace))
}

/// Readiness gates that are not open, where containers are ready and nothing else is in the way.
fn gates(pod: &Value) -> Option<(String, String)> {
    condition(pod, "ContainersReady").filter(|containers| containers["status"] == "True")?;
    let gates = pod["spec"]["readinessGates"].as_array().into_iter().flatten();
    let closed = gates.filter_map(|gate| {
        let gate = gate["conditionType"].as_str()?;
        let Some(set) = condition(pod, gate) else {
            return Some(format!("{gate} is not set"));
        };
        let texts = ["status", "reason", "message"].map(|field| set[field].as_str().unwrap_or_default());
        let said: Vec<&str> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        (set["status"] != "True").then(|| format!("{gate} is {}", said.join(": ")))
    });
    let closed: Vec<String> = closed.collect();
    (!closed.is_empty()).then(|| {
        (
            GATES_NOT_READY.to_owned(),
            format!("readiness gate {}", closed.join(", ")),
        )
    })
}

/// What was said last against a pod, if that may be why it is not ready.
fn warning(pod: &Value, facts: &Index<'_>) -> Option<(String, String)> {
    let tells = |event: &&Value| OF_READINESS.iter().any(|reason| event["reason"] == *reason);
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let event = last_warning(facts.warnings_of_pod(name).filter(tells), pod, facts.now)?;
    let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
    // A node was found since.
    let is_scheduled = pod["spec"]["nodeName"].is_string() && event["reason"] == "FailedScheduling";
    // What kept containers from starting is over once they run.
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let started = statuses
        .filter_map(|status| time(&status["state"]["running"]["startedAt"]))
        .max();
    // Whoever may write events says what they like; nobody is led to what the pod does not refer to.
    if Lack::of(event["message"].as_str().unwrap_or_default()).is_some_and(|lack| !lack.is_of(pod)) {
        return None;
    }
    let is_over = is_scheduled || started.is_some_and(|started| happened(event).is_some_and(|at| at < started));
    (!is_over).then(|| (text("reason"), text("message")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use serde_json::json;

    fn facts(pod: Value, events: Value) -> Facts {
        Facts {
            pods: Some(vec![pod]),
            pod_events: events.as_array().cloned(),
            ..Facts::default()
        }
    }

    fn known(cause: WaitCause, facts: &Facts) -> Wait {
        let subject = "web-0".to_owned();
        let mut waits = vec![Wait {
            subject,
            cause,
            since: None,
        }];
        let now = time(&json!("2026-01-01T00:01:00Z")).expect("a time");
        add_what_is_known(&mut waits, &Index::of(facts, now));
        waits.swap_remove(0)
    }

    #[test]
    fn a_pod_that_does_not_go_is_told_with_what_holds_it_since_that_was_asked() {
        let pod = json!({"metadata": {"name": "web-0", "finalizers": ["example.com/keep"],
            "deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}});
        let terminating = WaitCause::PodTerminating {
            node: Some("n".into()),
            finalizers: vec![],
        };
        let wait = known(terminating, &facts(pod, Value::Null));
        assert_eq!(
            wait.cause.to_string(),
            "is terminating on node n, and held by finalizer example.com/keep"
        );
        assert_eq!(wait.since, time(&json!("2026-01-01T00:00:00Z")));
    }

    #[test]
    fn each_container_that_cannot_start_is_told() {
        let waiting = |name: &str, reason: &str, message: &str| json!({"name": name, "state": {"waiting": {"reason": reason, "message": message}}});
        let statuses = [
            waiting("main", "CreateContainerConfigError", "secret \"login\" not found"),
            waiting("side", "CreateContainerConfigError", "configmap \"conf\" not found"),
            waiting("last", "ContainerCreating", ""),
        ];
        let pod = json!({"metadata": {"name": "web-0"}, "status": {"containerStatuses": statuses}});
        let cause = WaitCause::ContainerCannotStart {
            container: "main".into(),
            reason: "CreateContainerConfigError".into(),
            message: "secret \"login\" not found".into(),
        };
        let subject = "web-0".to_owned();
        let mut waits = vec![Wait {
            subject,
            cause,
            since: None,
        }];
        add_what_is_known(
            &mut waits,
            &Index::of(&facts(pod, Value::Null), Timestamp::from_seconds(0)),
        );
        let told: Vec<String> = waits.iter().map(|wait| wait.cause.to_string()).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[1].starts_with("container side cannot start") && told[1].contains("conf"),
            "{told:?}"
        );
    }

    #[test]
    fn a_container_that_ends_again_and_again_is_told_so_also_while_it_runs() {
        let pod = |restarts: i64, code: i64, ended: &str, running: &str| {
            let last = json!({"exitCode": code, "startedAt": "1970-01-01T00:00:10Z", "finishedAt": ended});
            let status = json!({"name": "side", "ready": false, "restartCount": restarts, "state": {"running": {"startedAt": running}},
                "lastState": {"terminated": last}});
            json!({"metadata": {"name": "web-0"}, "status": {"containerStatuses": [status]}})
        };
        let said = |pod: Value| {
            let cause = WaitCause::PodNotReady {
                reason: String::new(),
                message: String::new(),
            };
            let subject = "web-0".to_owned();
            let mut waits = vec![Wait {
                subject,
                cause,
                since: None,
            }];
            add_what_is_known(
                &mut waits,
                &Index::of(&facts(pod, Value::Null), Timestamp::from_seconds(100)),
            );
            waits[0].cause.to_string()
        };
        let (soon, now) = ("1970-01-01T00:00:12Z", "1970-01-01T00:01:35Z");
        assert_eq!(
            said(pod(3, 1, soon, now)),
            "container side cannot start: CrashLoopBackOff: restarted 3 times, and ended last with exit code 1"
        );
        for (what, pod) in [
            ("restarted once", pod(1, 1, soon, now)),
            ("ended well", pod(3, 0, soon, now)),
            (
                "had run for long, as before an update in place",
                pod(3, 143, "1970-01-01T00:01:30Z", now),
            ),
            ("runs for long by now", pod(3, 1, soon, "1970-01-01T00:00:20Z")),
        ] {
            assert_eq!(said(pod), "is not ready", "{what}");
        }
    }

    #[test]
    fn pods_of_others_are_known_by_who_controls_them() {
        let pod = |name: &str, owner: &str| json!({"metadata": {"name": name, "ownerReferences": [{"uid": owner, "controller": true}]}});
        let facts = Facts {
            pods: Some(vec![
                pod("web-0", "u"),
                pod("web-1", "u"),
                pod("db-0", "other"),
                pod("db-1", "other"),
            ]),
            ..Facts::default()
        };
        let wait = |subject: &str, cause: WaitCause| Wait {
            subject: subject.to_owned(),
            cause,
            since: None,
        };
        let used_by = |pod: &str| WaitCause::ClaimTerminating {
            used_by: vec![pod.to_owned()],
            finalizers: vec![],
        };
        let terminating = || WaitCause::PodTerminating {
            node: None,
            finalizers: vec![],
        };
        let waits = [
            wait("data-web-0", used_by("web-0")),
            wait("data-web-2", used_by("db-1")),
            wait("web-1", terminating()),
            wait("db-0", terminating()),
            // Whether pods could be read or not.
            wait("web-3", WaitCause::NameTaken { owner: None }),
        ];
        let live = LiveSet {
            kind: flotilla_model::SetKind::Advanced,
            key: flotilla_model::ObjectKey::new("ns", "web"),
            object: json!({"metadata": {"uid": "u"}}),
        };
        let index = Index::of(&facts, Timestamp::from_seconds(0));
        assert_eq!(of_others(&live, &waits, &index), ["db-0", "db-1", "web-3"]);
    }

    /// Events are anybody's.
    #[test]
    fn what_a_pod_does_not_name_it_does_not_lack() {
        let pod = json!({"metadata": {"name": "web-0", "uid": "now"},
            "spec": {"volumes": [{"name": "v", "secret": {"secretName": "login"}}]}, "status": {}});
        let said_so = |message: String| {
            let event = json!({"type": "Warning", "reason": "FailedMount", "message": message, "lastTimestamp": "2026-01-01T00:00:00Z",
                "involvedObject": {"name": "web-0", "uid": "now"}});
            let cause = WaitCause::PodNotReady {
                reason: String::new(),
                message: String::new(),
            };
            known(cause, &facts(pod.clone(), json!([event]))).cause.to_string()
        };
        let said = |name: &str| {
            said_so(format!(
                "MountVolume.SetUp failed for volume \"v\" : secret \"{name}\" not found"
            ))
        };
        assert!(said("login").contains("login"), "{}", said("login"));
        // Nor is the name of a volume, or of a container, that of a secret.
        for name in ["admin", "v"] {
            assert_eq!(said(name), "is not ready");
            let lacks_key = format!("couldn't find key admin in Secret s3/{name}");
            assert_eq!(said_so(lacks_key), "is not ready");
        }
    }

    #[test]
    fn a_pod_that_is_not_ready_is_told_with_its_gates_or_the_last_warning() {
        let pod = |status: Value| {
            json!({"metadata": {"name": "web-0", "uid": "now"}, "status": status, "spec": {"nodeName": "n",
                "readinessGates": [{"conditionType": "example.com/lb"}, {"conditionType": "example.com/dns"}]}})
        };
        let event = |uid: &str, reason: &str, message: &str, at: &str| {
            json!({"type": "Warning", "reason": reason, "message": message, "lastTimestamp": at,
                "involvedObject": {"name": "web-0", "uid": uid}})
        };
        let events = json!([
            event("before", "FailedMount", "of another", "2026-01-01T00:00:09Z"),
            event(
                "now",
                "DNSConfigForming",
                "Nameserver limits were exceeded",
                "2026-01-01T00:00:09Z"
            ),
            event(
                "now",
                "PolicyViolation",
                "secret \"evil\" not found",
                "2026-01-01T00:00:09Z"
            ),
            event("now", "Unhealthy", "Readiness probe failed", "2026-01-01T00:00:08Z"),
            event("now", "FailedMount", "in a year to come", "2099-01-01T00:00:00Z"),
            {"type": "Warning", "reason": "FailedMount", "message": "of any pod", "lastTimestamp": "2026-01-01T00:00:09Z",
                "involvedObject": {"name": "web-0"}},
            event("now", "FailedMount", "secret \"s\" not found", "2026-01-01T00:00:03Z"),
        ]);
        let unscheduled = json!([event("now", "FailedScheduling", "no node fits", "2026-01-01T00:00:03Z")]);
        let said = |status: Value, events: &Value| {
            let cause = WaitCause::PodNotReady {
                reason: String::new(),
                message: String::new(),
            };
            known(cause, &facts(pod(status), events.clone())).cause.to_string()
        };
        let running = |at: &str| json!({"containerStatuses": [{"state": {"running": {"startedAt": at}}}]});
        assert_eq!(
            said(json!({}), &events),
            "is not ready: Unhealthy: Readiness probe failed"
        );
        assert_eq!(
            said(running("2026-01-01T00:00:04Z"), &events),
            "is not ready: Unhealthy: Readiness probe failed"
        );
        // What kept it from starting is over, and so is that no node was found.
        assert_eq!(said(running("2026-01-01T00:00:09Z"), &events), "is not ready");
        assert_eq!(said(json!({}), &unscheduled), "is not ready");
        let gated = json!({"conditions": [{"type": "ContainersReady", "status": "True"},
            {"type": "example.com/dns", "status": "False", "reason": "NoAddress"}]});
        assert_eq!(
            said(gated, &events),
            "is not ready: ReadinessGatesNotReady: readiness gate example.com/lb is not set, example.com/dns is False: NoAddress"
        );
    }

    /// Somebody has deleted the claim of a pod that runs: all is well until the pod ends.
    #[test]
    fn claims_that_go_with_the_next_end_of_their_pods_are_noted() {
        use flotilla_engine::core::store::Source;
        use flotilla_engine::wire::Encoding;
        use flotilla_model::{Resource, SetKind};
        let meta = |name: &str, uid: &str| json!({"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let set = json!({"metadata": meta("web", "u"), "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}}});
        let pod = |name: &str, owner: &str, claims: &[&str]| {
            let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
            let volumes: Vec<Value> = claims.iter().map(volume).collect();
            let mut pod = json!({"metadata": meta(name, name), "spec": {"containers": [], "volumes": volumes}, "status": {"phase": "Running"}});
            pod["metadata"]["labels"] = json!({"app": "web"});
            pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "name": if owner == "u" { "web" } else { owner }, "uid": owner, "controller": true}]);
            pod
        };
        let claim = |name: &str, goes: bool| {
            let mut claim = json!({"metadata": meta(name, name), "spec": {}, "status": {"phase": "Bound"}});
            if goes {
                claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                claim["metadata"]["finalizers"] = json!([PROTECTION]);
            }
            claim
        };
        let mut leaving = pod("web-2", "u", &["data-web-2"]);
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let objects = [
            (Resource::AdvancedSets, set),
            (Resource::Pods, pod("web-0", "u", &["data-web-0", "shared"])),
            (Resource::Pods, pod("web-1", "u", &["data-web-1", "shared"])),
            (Resource::Pods, leaving),
            (Resource::Pods, pod("db-0", "other", &["data-db-0"])),
            (Resource::Claims, claim("data-web-0", true)),
            (Resource::Claims, claim("data-web-1", false)),
            (Resource::Claims, claim("data-web-2", true)),
            (Resource::Claims, claim("data-db-0", true)),
            (Resource::Claims, claim("shared", true)),
        ];
        let mut cache = Cache::default();
        for (resource, object) in objects {
            let read = cache.read(resource, Encoding::Json, &object.to_string().into());
            let object = read.unwrap_or_else(|_| panic!("{resource}: {object}"));
            drop(cache.apply(object, Source::List));
        }
        let set = cache
            .set(SetKind::Advanced, &ObjectKey::new("ns", "web"))
            .cloned()
            .expect("a set");
        let notes = claims_that_go(&cache, &set, &[]);
        assert_eq!(
            notes,
            [
                "claim data-web-0 is being deleted: it goes, with its data, when pod web-0 ends",
                "claim shared is being deleted: it goes, with its data, when pod web-0, and 1 more, have ended",
            ]
        );
        let wait = Wait {
            subject: "data-web-0".to_owned(),
            cause: WaitCause::CLAIM_TERMINATING,
            since: None,
        };
        assert_eq!(claims_that_go(&cache, &set, &[wait]), notes[1..]);
    }

    /// What goes by itself within its grace period is nothing to wait for.
    #[test]
    fn a_pod_that_its_set_does_not_wait_for_is_told_when_it_does_not_go() {
        let object = |finalizers: Value| {
            json!({"metadata": {"name": "web-0", "namespace": "ns", "uid": "u", "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:30Z", "finalizers": finalizers},
                "spec": {"nodeName": "n", "containers": []}})
        };
        let record = |object: &Value| {
            use flotilla_engine::wire::{Encoding, Object};
            let bytes = object.to_string().into();
            let read = Cache::default().read(flotilla_model::Resource::Pods, Encoding::Json, &bytes);
            let Ok(Object::Pod(pod)) = read else { panic!("a pod") };
            pod
        };
        let node = |status: &str| json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": status}]}});
        for (what, finalizers, node, at, is_told) in [
            ("in time", json!([]), vec![node("True")], "2026-01-01T00:00:10Z", false),
            ("overdue", json!([]), vec![node("True")], "2026-01-01T00:00:40Z", true),
            (
                "held",
                json!(["example.com/keep"]),
                vec![node("True")],
                "2026-01-01T00:00:10Z",
                true,
            ),
            (
                "on a lost node",
                json!([]),
                vec![node("Unknown")],
                "2026-01-01T00:00:10Z",
                true,
            ),
            (
                "on a node that is gone",
                json!([]),
                vec![],
                "2026-01-01T00:00:10Z",
                true,
            ),
        ] {
            let object = object(finalizers);
            let facts = Facts {
                nodes: Some(node),
                ..facts(object.clone(), Value::Null)
            };
            let now = time(&json!(at)).expect("a time");
            let told = that_do_not_go(&[record(&object)], &Index::of(&facts, now));
            assert_eq!(told.len(), usize::from(is_told), "{what}");
        }
    }
}
