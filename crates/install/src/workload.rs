//! The managers' pods.

use crate::objects::{labels, selector};
use crate::{HEALTH_PORT, HTTP_PORT, NAME, WEBHOOK_PORT};
use serde_json::{Value, json};

/// The Deployment of the managers.
pub(crate) fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": "${namespace}", "labels": labels()},
        "spec": {
            "replicas": "${replicas}",
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": selector()},
            // A new manager is ready, and stands by, before an old one is asked to end.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {
                    "labels": labels(),
                    "annotations": {"kubectl.kubernetes.io/default-container": "manager"},
                },
                "spec": pod(),
            },
        },
    })
}

fn pod() -> Value {
    json!({
        "serviceAccountName": NAME,
        "automountServiceAccountToken": true,
        "enableServiceLinks": false,
        "imagePullSecrets": "${imagePullSecrets}",
        "nodeSelector": "${nodeSelector}",
        "tolerations": "${tolerations}",
        "priorityClassName": "${priorityClassName}",
        "terminationGracePeriodSeconds": 30,
        "securityContext": pod_security(),
        "affinity": {"podAntiAffinity": {
            "$why": "Apart from each other where that is possible. Not demanded, so that a cluster of one node, or a rollout in one that \
                     is full, is not stuck.",
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": selector()}}},
                {"weight": 50, "podAffinityTerm": {
                    "topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": selector()},
                }},
            ],
        }},
        "containers": [container()],
    })
}

fn container() -> Value {
    let from_field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let probe = |path: &str, failures: u8| {
        json!({
            "httpGet": {"path": path, "port": "health"}, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": failures,
        })
    };
    json!({
        "name": "manager",
        "image": "${image}",
        "imagePullPolicy": "${imagePullPolicy}",
        "args": [
            "manager",
            format!("--http-address=:{HTTP_PORT}"),
            format!("--health-address=:{HEALTH_PORT}"),
            "--log-format=json",
            "--log=${log}",
            {"$if:nativeStatefulSet": "--native-statefulset"},
            {"$if:preDownload": "--feature-gates=PreDownloadImageForInPlaceUpdate=true"},
            // Inside a pod webhooks are served unless told otherwise.
            {"$if:!webhooks": "--webhook-address=none"},
            "${extraArguments}",
        ],
        // Who it is in the election, and where the lease is.
        "env": [from_field("POD_NAME", "metadata.name"), from_field("POD_NAMESPACE", "metadata.namespace")],
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
            {"$if:webhooks": {"name": "webhooks", "containerPort": WEBHOOK_PORT, "protocol": "TCP"}},
        ],
        "resources": "${resources}",
        "livenessProbe": probe("/healthz", 6),
        "readinessProbe": probe("/readyz", 1),
        "securityContext": container_security(),
    })
}

/// What the strictest standard asks of a pod.
pub(crate) fn pod_security() -> Value {
    json!({
        "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// What it asks of a container.
pub(crate) fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true, "privileged": false,
        "capabilities": {"drop": ["ALL"]},
    })
}

/// Draining nodes leaves a manager.
pub(crate) fn disruption_budget() -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": NAME, "namespace": "${namespace}", "labels": labels()},
        "spec": {
            "$why": "Of several managers one at a time; a single one can still be drained away.",
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector()},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    })
}
