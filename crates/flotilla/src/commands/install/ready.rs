//! Waiting until what was installed works, and saying what is in the way.

use crate::cluster::Cluster;
use crate::error::Error;
use crate::follow::{self, Followed, Objects};
use flotilla_install::NAME;
use serde_json::Value;
use std::time::Duration;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Definitions are served within moments, or never.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// Waits until the kinds of the definitions can be used.
pub(super) async fn definitions_are_served(cluster: &Cluster) -> Result<(), Error> {
    let names: Vec<String> = flotilla_api::crds()
        .iter()
        .filter_map(|crd| crd["metadata"]["name"].as_str().map(str::to_owned))
        .collect();
    let are_served = |objects: &Objects| {
        let is_served = |name: &String| {
            objects
                .get(name)
                .is_some_and(|crd| condition(crd, "Established") == Some(true))
        };
        names.iter().all(is_served)
    };
    match follow::until(cluster, DEFINITIONS, SERVED_WITHIN, are_served).await? {
        Followed::Done => Ok(()),
        Followed::TimeUp(_) => Err(Error::NotPossible(format!(
            "{} is not served after {} s: see its conditions with kubectl describe crd",
            names.join(", "),
            SERVED_WITHIN.as_secs()
        ))),
    }
}

/// Waits until all managers are ready, and says so.
pub(super) async fn managers_are_ready(cluster: &Cluster, namespace: &str, within: Duration) -> Result<String, Error> {
    let collection = format!("/apis/apps/v1/namespaces/{namespace}/deployments?fieldSelector=metadata.name%3D{NAME}");
    let are_ready = |objects: &Objects| objects.get(NAME).is_some_and(is_rolled_out);
    match follow::until(cluster, &collection, within, are_ready).await? {
        Followed::Done => Ok(format!(
            "the managers are ready in namespace {namespace}; try: kubectl get statefulsets.apps.kruise.io --all-namespaces"
        )),
        Followed::TimeUp(objects) => {
            let deployment = objects.get(NAME).cloned().unwrap_or_default();
            let pods = format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app.kubernetes.io%2Fname%3D{NAME}");
            let pods = cluster.list_at(&pods, "look at the managers' pods").await?;
            Err(Error::NotPossible(format!(
                "installed, but the managers are not ready after {} s:\n{}what was applied stays; run it again once this is mended, or see \
                 kubectl -n {namespace} describe deployment/{NAME}",
                within.as_secs(),
                in_the_way(&deployment, &pods)
            )))
        }
    }
}

fn is_rolled_out(deployment: &Value) -> bool {
    let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let wanted = number("/spec/replicas");
    number("/status/observedGeneration") >= number("/metadata/generation")
        && number("/status/updatedReplicas") == wanted
        && number("/status/availableReplicas") == wanted
        && number("/status/replicas") == wanted
}

/// What keeps the managers from being ready, in lines.
fn in_the_way(deployment: &Value, pods: &[Value]) -> String {
    let mut lines = Vec::new();
    let conditions = deployment.pointer("/status/conditions").and_then(Value::as_array);
    for condition in conditions.into_iter().flatten() {
        // Quotas, pod security and admission webhooks of others refuse pods here.
        if condition["type"] == "ReplicaFailure" && condition["status"] == "True" {
            lines.push(format!("  {}\n", condition["message"].as_str().unwrap_or_default()));
        }
    }
    lines.extend(pods.iter().filter_map(pod_problem));
    if lines.is_empty() {
        let number = |field: &str| deployment["status"][field].as_i64().unwrap_or(0);
        lines.push(format!(
            "  {} of {} managers are available; nothing says why\n",
            number("availableReplicas"),
            deployment["spec"]["replicas"]
        ));
    }
    lines.concat()
}

/// What keeps a pod from being ready.
fn pod_problem(pod: &Value) -> Option<String> {
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
        None => format!("  pod {name}: runs, and is not ready; see kubectl logs {name}\n"),
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
            in_the_way(&deployment, &pods),
            "  exceeded quota: small\n  pod b: ImagePullBackOff no such image\n  pod c: Unschedulable 0/1 nodes\n  \
             pod d: runs, and is not ready; see kubectl logs d\n"
        );
        let quiet = json!({"spec": {"replicas": 2}, "status": {}});
        assert_eq!(
            in_the_way(&quiet, &[]),
            "  0 of 2 managers are available; nothing says why\n"
        );
    }
}
