//! Waiting until what was installed works, and saying what is in the way.

use crate::cluster::Cluster;
use crate::error::Error;
use crate::follow::{self, Followed, Objects};
use flotilla_install::{AGENT, NAME};
use serde_json::Value;
use std::time::Duration;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Definitions are served within moments, or never.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
/// Lines about what is in the way, at most: with agents there is one for each node.
const LINES_TOLD: usize = 10;

/// Waits until the kinds of the definitions can be used.
pub(super) async fn definitions_are_served(cluster: &Cluster) -> Result<(), Error> {
    for crd in flotilla_api::crds() {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        // By name: clusters have hundreds of others, which are large.
        let collection = format!("{DEFINITIONS}?fieldSelector=metadata.name%3D{name}");
        let is_served = |objects: &Objects| {
            objects
                .get(name)
                .is_some_and(|crd| condition(crd, "Established") == Some(true))
        };
        if let Followed::TimeUp(_) = follow::until(cluster, &collection, SERVED_WITHIN, is_served).await? {
            return Err(Error::NotPossible(format!(
                "{name} is not served after {} s: see its conditions with kubectl describe crd",
                SERVED_WITHIN.as_secs()
            )));
        }
    }
    Ok(())
}

/// What is rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    Managers,
    Agents,
}

impl Workload {
    fn words(self) -> &'static str {
        match self {
            Workload::Managers => "managers",
            Workload::Agents => "agents",
        }
    }

    /// Kind, for kubectl, and name, by which its pods are labelled too.
    fn object(self) -> (&'static str, &'static str) {
        match self {
            Workload::Managers => ("deployment", NAME),
            Workload::Agents => ("daemonset", AGENT),
        }
    }

    /// How many pods there are to be.
    fn wanted(self, object: &Value) -> i64 {
        match self {
            Workload::Managers => number(object, "/spec/replicas"),
            Workload::Agents => number(object, "/status/desiredNumberScheduled"),
        }
    }

    fn available(self, object: &Value) -> i64 {
        match self {
            Workload::Managers => number(object, "/status/availableReplicas"),
            Workload::Agents => number(object, "/status/numberAvailable"),
        }
    }

    /// Whether all pods are there, are of the newest template, and are available.
    fn is_rolled_out(self, object: &Value) -> bool {
        let fields: &[&str] = match self {
            Workload::Managers => &["/status/updatedReplicas", "/status/replicas"],
            Workload::Agents => &["/status/updatedNumberScheduled", "/status/currentNumberScheduled"],
        };
        let wanted = self.wanted(object);
        // Without a generation nobody has looked at it yet, and numbers that are not there are no zeros.
        let is_seen = number(object, "/metadata/generation") > 0
            && number(object, "/status/observedGeneration") >= number(object, "/metadata/generation");
        is_seen && self.available(object) == wanted && fields.iter().all(|field| number(object, field) == wanted)
    }
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// Waits until all managers are ready, and says so.
pub(super) async fn managers_are_ready(cluster: &Cluster, namespace: &str, within: Duration) -> Result<String, Error> {
    is_ready(cluster, namespace, Workload::Managers, within).await?;
    Ok(format!(
        "the managers are ready in namespace {namespace}; try: kubectl get statefulsets.apps.kruise.io --all-namespaces"
    ))
}

/// Waits until there is a ready agent on every node that takes one, and says so.
pub(super) async fn agents_are_ready(cluster: &Cluster, namespace: &str, within: Duration) -> Result<String, Error> {
    let nodes = is_ready(cluster, namespace, Workload::Agents, within).await?;
    Ok(format!("the agents are ready, on nodes: {nodes}"))
}

/// Waits until a workload is rolled out; with the number of its pods.
async fn is_ready(cluster: &Cluster, namespace: &str, workload: Workload, within: Duration) -> Result<i64, Error> {
    let (kind, name) = workload.object();
    let collection = format!("/apis/apps/v1/namespaces/{namespace}/{kind}s?fieldSelector=metadata.name%3D{name}");
    let mut pods_there = 0;
    let is_there = |objects: &Objects| {
        let object = objects.get(name).filter(|object| workload.is_rolled_out(object));
        pods_there = object.map_or(0, |object| workload.wanted(object));
        object.is_some()
    };
    match follow::until(cluster, &collection, within, is_there).await? {
        Followed::Done => Ok(pods_there),
        Followed::TimeUp(objects) => {
            let object = objects.get(name).cloned().unwrap_or_default();
            let words = workload.words();
            let pods = format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app.kubernetes.io%2Fname%3D{name}");
            let pods = cluster.list_at(&pods, &format!("look at the {words}' pods")).await?;
            Err(Error::NotPossible(format!(
                "installed, but the {words} are not ready after {} s:\n{}what was applied stays; run it again once this is mended, or see \
                 kubectl -n {namespace} describe {kind}/{name}",
                within.as_secs(),
                in_the_way(workload, &object, &pods, namespace)
            )))
        }
    }
}

/// What keeps pods from being ready, in lines.
fn in_the_way(workload: Workload, object: &Value, pods: &[Value], namespace: &str) -> String {
    let mut lines = Vec::new();
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    for condition in conditions.into_iter().flatten() {
        // Quotas, pod security and admission webhooks of others refuse pods here.
        if condition["type"] == "ReplicaFailure" && condition["status"] == "True" {
            lines.push(format!("  {}\n", condition["message"].as_str().unwrap_or_default()));
        }
    }
    lines.extend(pods.iter().filter_map(|pod| pod_problem(pod, namespace)));
    if lines.is_empty() {
        lines.push(format!(
            "  {} of {} {} are available; nothing says why\n",
            workload.available(object),
            workload.wanted(object),
            workload.words()
        ));
    }
    let more = lines.len().saturating_sub(LINES_TOLD);
    if more > 0 {
        lines.truncate(LINES_TOLD);
        lines.push(format!("  and {more} more\n"));
    }
    lines.concat()
}

/// What keeps a pod from being ready.
fn pod_problem(pod: &Value, namespace: &str) -> Option<String> {
    if condition(pod, "Ready") == Some(true) {
        return None;
    }
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let containers = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let waiting = containers
        .into_iter()
        .flatten()
        .find_map(|c| c.pointer("/state/waiting"));
    let unscheduled = pod.pointer("/status/conditions").and_then(Value::as_array);
    let unscheduled = unscheduled
        .into_iter()
        .flatten()
        .find(|c| c["type"] == "PodScheduled" && c["status"] == "False");
    let problem = waiting.or(unscheduled);
    let text = |field: &str| problem.and_then(|p| p[field].as_str()).unwrap_or_default();
    Some(match problem {
        Some(_) => format!("  pod {name}: {} {}\n", text("reason"), text("message")),
        None => format!("  pod {name}: runs, and is not ready; see kubectl -n {namespace} logs {name}\n"),
    })
}

fn condition(object: &Value, kind: &str) -> Option<bool> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|c| c["type"] == kind)?;
    Some(found["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_in_the_way_is_said() {
        let deployment = json!({"spec": {"replicas": 2}, "status": {"availableReplicas": 1, "conditions": [
            {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"},
        ]}});
        let pods = [
            json!({"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
            json!({"metadata": {"name": "b"}, "status": {"containerStatuses": [
                {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
            ]}}),
            json!({"metadata": {"name": "c"}, "status": {"conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"},
            ]}}),
            json!({"metadata": {"name": "d"}, "status": {}}),
        ];
        assert_eq!(
            in_the_way(Workload::Managers, &deployment, &pods, "here"),
            "  exceeded quota: small\n  pod b: ImagePullBackOff no such image\n  pod c: Unschedulable 0/1 nodes\n  \
             pod d: runs, and is not ready; see kubectl -n here logs d\n"
        );
        let quiet = json!({"spec": {"replicas": 2}, "status": {}});
        assert_eq!(
            in_the_way(Workload::Managers, &quiet, &[], "here"),
            "  0 of 2 managers are available; nothing says why\n"
        );
        let many: Vec<Value> = (0..12)
            .map(|n| json!({"metadata": {"name": format!("p{n}")}}))
            .collect();
        let told = in_the_way(Workload::Agents, &json!({}), &many, "here");
        assert!(told.ends_with("logs p9\n  and 2 more\n"), "{told}");
    }

    #[test]
    fn a_rollout_has_ended_when_all_pods_are_new_and_available() {
        let deployment = |seen: i64, updated: i64, available: i64, all: i64| {
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": {
                "observedGeneration": seen, "updatedReplicas": updated, "availableReplicas": available, "replicas": all,
            }})
        };
        let agents = |seen: i64, updated: i64, available: i64, all: i64| {
            json!({"metadata": {"generation": 2}, "status": {
                "observedGeneration": seen, "desiredNumberScheduled": 2, "updatedNumberScheduled": updated,
                "numberAvailable": available, "currentNumberScheduled": all,
            }})
        };
        for (what, numbers, expected) in [
            ("all", (2, 2, 2, 2), true),
            ("not seen yet", (1, 2, 2, 2), false),
            ("some are old", (2, 1, 2, 2), false),
            ("some are not available", (2, 2, 1, 2), false),
            ("some are missing", (2, 2, 2, 1), false),
        ] {
            let (seen, updated, available, all) = numbers;
            let found = [
                Workload::Managers.is_rolled_out(&deployment(seen, updated, available, all)),
                Workload::Agents.is_rolled_out(&agents(seen, updated, available, all)),
            ];
            assert_eq!(found, [expected; 2], "{what}");
        }
        let unseen = json!({"metadata": {"generation": 1}});
        assert!(!Workload::Agents.is_rolled_out(&unseen), "no numbers are no agents");
    }
}
