//! The node or the claim because of which a pod waits: what is outside of the set.

use super::causes::Cause;
use super::facts::{Index, Looked, claims_of, happened, last_warning, named, time};
use flotilla_api::names::{DEFAULT_STORAGE_CLASS as IS_DEFAULT, NO_PROVISIONER};
use flotilla_model::lines::in_command;
use flotilla_model::records::storage_class_of;
use flotilla_model::{Wait, WaitCause, Whom};
use serde_json::Value;
use std::cmp::Reverse;
use std::time::Duration;

/// Provisioners that fail try again, and say so, at least that often.
const RECENTLY: Duration = Duration::from_secs(600);

/// The node or the claim because of which a pod waits.
pub(super) fn root(wait: &Wait, facts: &Index<'_>, whom: &Whom<'_>) -> Option<Cause> {
    let pod = facts.pod(&wait.subject)?;
    // Whatever becomes of its node, it stays for those.
    if matches!(&wait.cause, WaitCause::PodTerminating { finalizers, .. } if !finalizers.is_empty()) {
        return None;
    }
    // One that goes needs no claim for that.
    let needs_claims = !matches!(wait.cause, WaitCause::PodTerminating { .. });
    let claim = || claim(pod, facts, whom).filter(|_| needs_claims);
    node(pod, facts, whom).or_else(claim)
}

/// The node of the pod, if it is not up. What helps costs data where pods that others delete take their claims along: volumes may well have
/// survived their node.
fn node(pod: &Value, facts: &Index<'_>, whom: &Whom<'_>) -> Option<Cause> {
    let name = pod["spec"]["nodeName"].as_str()?;
    let cause = |message: String, advice: String| Cause {
        subject: format!("node {name}"),
        message,
        rule: "a pod runs on its node",
        advice: Some(advice),
        since: None,
        holds_up: Vec::new(),
        rank: 1,
    };
    let node = match facts.node(name) {
        Looked::Unread => return None,
        Looked::There(node) => node,
        Looked::Missing => {
            let named = |field: &str| in_command(pod["metadata"][field].as_str().unwrap_or_default());
            let is_of_others = whom
                .of_others
                .iter()
                .any(|other| pod["metadata"]["name"] == other.as_str());
            let cost = whom.cost_of(is_of_others);
            return Some(cause(
                "is gone from the cluster".to_owned(),
                format!(
                    "if it is off for good, let its pod go: kubectl delete pod {} -n {} --force --grace-period=0{cost}",
                    named("name"),
                    named("namespace")
                ),
            ));
        }
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
        whom.bring_back(name),
    ))
}

/// A claim of the pod that has no volume.
fn claim(pod: &Value, facts: &Index<'_>, whom: &Whom<'_>) -> Option<Cause> {
    claims_of(pod).find_map(|(volume, name)| {
        let name = name.as_str();
        let (message, advice) = match facts.claim(name) {
            Looked::Unread => return None,
            Looked::Missing => ("does not exist".to_owned(), provide(pod, volume, whom)),
            Looked::There(claim) => unbound(name, claim, facts, whom.namespace)?,
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
    if volume["ephemeral"].is_object() {
        return format!(
            "it is made by itself; see why it is not: kubectl describe pod {} -n {namespace}",
            in_command(name)
        );
    }
    if is_of_a_template {
        return format!(
            "create it, if its data can be restored; or let the pod go, and have it made anew with an empty one: kubectl delete pod {} -n {namespace}{}",
            in_command(name),
            whom.cost_of(false)
        );
    }
    format!("create it; see which there are: kubectl get pvc -n {namespace}")
}

/// Why a claim has no volume, and what can be done.
fn unbound(name: &str, claim: &Value, facts: &Index<'_>, namespace: &str) -> Option<(String, String)> {
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
    let warning = last_warning(facts.events_of_claim(name), claim, facts.now);
    let said = warning.and_then(|event| event["message"].as_str());
    let Some(classes) = facts.classes else {
        let why = said.map_or_else(String::new, |said| format!(": {said}"));
        return Some((format!("is not bound{why}"), format!("see why: {describe}")));
    };
    let class = match class_of(claim, classes) {
        Ok(class) => class,
        Err(without) => return Some(without),
    };
    // Its provisioner begins when a node was found for the pod, so that what it said long ago is not what is waited for.
    let waits_for_the_pod = class["volumeBindingMode"] == "WaitForFirstConsumer";
    let is_recent = || {
        warning
            .and_then(happened)
            .is_some_and(|at| facts.now.since(at) <= RECENTLY)
    };
    if waits_for_the_pod && !is_recent() {
        return None;
    }
    let provisioner = class["provisioner"].as_str().unwrap_or("its provisioner");
    // What is said of such a claim is that nothing provisions it, which nobody expects.
    if provisioner == NO_PROVISIONER {
        return Some((
            "is not bound: somebody makes the volumes of its storage class by hand, and none that is free fits it"
                .to_owned(),
            "make a volume of that class; see which there are: kubectl get pv".to_owned(),
        ));
    }
    if let Some(said) = said {
        return Some((format!("is not bound: {said}"), format!("see more: {describe}")));
    }
    Some((
        format!("is not bound: {provisioner} has made no volume for it yet"),
        format!("see that this provisioner runs, and what it says: {describe}"),
    ))
}

/// The class of a claim that is not bound; without one, what is said of it, and what can be done.
fn class_of<'c>(claim: &Value, classes: &'c [Value]) -> Result<&'c Value, (String, String)> {
    match storage_class_of(claim) {
        // No default class is for it, whichever there is.
        Some("") => Err((
            "is not bound: it asks for a volume of no storage class, and none fits it".to_owned(),
            "make a volume of no class by hand; see which there are: kubectl get pv".to_owned(),
        )),
        Some(class) => named(classes, class).ok_or_else(|| {
            (
                format!("is not bound: storage class {class} does not exist"),
                "create that class, under this name; see which there are: kubectl get storageclass".to_owned(),
            )
        }),
        None => default_class(classes).ok_or_else(|| {
            (
                "is not bound: it names no storage class, there is no default one, and no volume fits it".to_owned(),
                "make one class the default, or make a volume by hand; see which there are: kubectl get storageclass,pv"
                    .to_owned(),
            )
        }),
    }
}

/// The class of claims that name none: the newest that is marked so, as the API server takes it, and of several the first by name.
fn default_class(classes: &[Value]) -> Option<&Value> {
    let marked = classes.iter().filter(|class| {
        IS_DEFAULT
            .iter()
            .any(|name| class["metadata"]["annotations"][*name] == "true")
    });
    marked.max_by_key(|class| {
        let meta = &class["metadata"];
        (time(&meta["creationTimestamp"]), Reverse(meta["name"].as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use flotilla_model::Timestamp;
    use serde_json::json;

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

    /// Its claim is named after pod and volume.
    #[test]
    fn the_claim_of_an_ephemeral_volume_is_looked_at() {
        let pod = json!({"metadata": {"name": "web-0", "namespace": "ns"}, "spec": {"volumes": [{"name": "scratch", "ephemeral": {}}]}});
        let claim = json!({"metadata": {"name": "web-0-scratch"}, "spec": {"storageClassName": "gone"}, "status": {"phase": "Pending"}});
        let facts = Facts {
            pods: Some(vec![pod]),
            claims: Some(vec![claim]),
            classes: Some(vec![]),
            ..Facts::default()
        };
        let wait = Wait {
            subject: "web-0".to_owned(),
            cause: WaitCause::PodStarting,
            since: None,
        };
        let found = root(
            &wait,
            &Index::of(&facts, Timestamp::from_seconds(0)),
            &Whom::of("statefulset.apps/web", "ns"),
        );
        let found = found.expect("a root");
        assert_eq!(
            (found.subject.as_str(), found.message.as_str()),
            ("claim web-0-scratch", "is not bound: storage class gone does not exist")
        );
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
            "metadata": {"name": name, "creationTimestamp": made, "annotations": {IS_DEFAULT[1]: "true"}}})
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
                let facts = Index::of(&facts, time(&json!("2026-01-01T00:00:10Z")).unwrap());
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
        let by_hand = vec![class("slow", NO_PROVISIONER, "2026-01-01T00:00:00Z")];
        let no_plugin = vec![event("no volume plugin matched name", "2026-01-01T00:00:07Z")];
        assert_eq!(
            said(json!("slow"), by_hand, no_plugin),
            ["is not bound: somebody makes the volumes of its storage class by hand, and none that is free fits it"]
        );
        // What was said of a claim of that name that is gone is no word about this one.
        let mut of_another = event("no space left", "2026-01-01T00:00:07Z");
        of_another["involvedObject"]["uid"] = json!("before");
        assert_eq!(
            said(json!("slow"), classes.clone(), vec![of_another]),
            ["is not bound: disk has made no volume for it yet"]
        );
        // Nor is what names no incarnation, or was said in a year to come.
        let mut of_any = event("no space left", "2026-01-01T00:00:07Z");
        of_any["involvedObject"]["uid"] = Value::Null;
        let to_come = event("delete everything", "2099-01-01T00:00:00Z");
        let a_little_ahead = event("timeout", "2026-01-01T00:01:00Z");
        assert_eq!(
            said(json!("slow"), classes.clone(), vec![of_any, to_come, a_little_ahead]),
            ["is not bound: timeout"]
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
}
