//! The controller-manager's HorizontalPodAutoscaler, which knows a set by its scale subresource alone (CS-2).

use crate::Lab;
use flotilla_e2e::Manager;
use flotilla_e2e::api::{Api, Objects, number};
use flotilla_e2e::clones::{manifest, sets, settled, uids, web};
use flotilla_e2e::metrics::Metrics;
use flotilla_e2e::sets::{SOON, pods, ready};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Half of what the pods ask for is what they are to use. The bounds are what is aimed at: while pods come and go an autoscaler multiplies
/// metrics of some pods by the number of others, and would pass by its aim for a moment, make a pod that was not there before, and be right.
fn autoscaler() -> Value {
    let at_once =
        json!({"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 10, "periodSeconds": 1}]});
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web"},
            "minReplicas": 2, "maxReplicas": 5, "behavior": {"scaleUp": at_once, "scaleDown": at_once},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 50}}}]}})
}

fn is_true(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let conditions = conditions.into_iter().flatten();
    conditions
        .into_iter()
        .any(|c| c["type"] == kind && c["status"] == "True")
}

/// Waits until autoscaler and set agree on so many pods, at this use of what they ask for.
async fn agreed(api: &Api, ns: &str, replicas: i64, utilization: i64) {
    let autoscalers = format!("/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers");
    let what = format!("{replicas} wanted at {utilization} %");
    api.until(&autoscalers, SOON, &what, |all| {
        let seen = all.get("web").unwrap_or(&Value::Null);
        number(seen, "/status/desiredReplicas") == replicas
            && number(seen, "/status/currentReplicas") == replicas
            && number(seen, "/status/currentMetrics/0/resource/current/averageUtilization") == utilization
            && is_true(seen, "AbleToScale")
            && is_true(seen, "ScalingActive")
    })
    .await;
    let set = settled(api, ns, SOON).await;
    assert_eq!(set["spec"]["replicas"], replicas);
    assert_eq!(set["status"]["replicas"], replicas);
}

/// More load, more pods; less load, fewer of the same pods.
pub(crate) async fn goes_up_and_down(lab: &Lab) {
    let ns = "autoscaler";
    let api = lab.enter(ns).await;
    let _manager = Manager::alone(&lab.kubeconfig);
    let mut set = manifest(2);
    set["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    api.create(&sets(ns), &set).await;
    ready(&api, ns, 2).await;
    let metrics = Metrics::serve(&api, ns, 100).await;
    let autoscalers = format!("/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers");
    api.create(&autoscalers, &autoscaler()).await;
    agreed(&api, ns, 2, 50).await;
    let few: BTreeSet<String> = uids(&api.list(&pods(ns)).await).into_values().collect();

    metrics.set_load(250);
    agreed(&api, ns, 5, 50).await;
    let many: BTreeSet<String> = uids(&ready(&api, ns, 5).await).into_values().collect();
    assert!(many.is_superset(&few), "those that were there stay");

    metrics.set_load(100);
    agreed(&api, ns, 2, 50).await;
    let left: BTreeSet<String> = uids(&ready(&api, ns, 2).await).into_values().collect();
    assert!(left.is_subset(&many), "none was made while others went");

    metrics.end().await;
    api.delete(&format!("{autoscalers}/web"), false).await;
    api.delete(&web(ns), false).await;
    api.until(&pods(ns), SOON, "pods go with their set", Objects::is_empty)
        .await;
}
