//! Sets as people write them: three containers with environment, probes and volumes, of which a third is as random as keys are.

use flotilla_model::SetKind;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Containers of each pod, whose images change from revision to revision.
pub(super) const CONTAINERS: [&str; 3] = ["main", "sidecar", "exporter"];

/// Hexadecimal digits that look random and are the same in each run: nothing of them repeats.
fn noise(seed: usize, digits: usize) -> String {
    let mut state = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::new();
    while text.len() < digits {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // A text grows without failing.
        let _ = write!(text, "{state:016x}");
    }
    text.truncate(digits);
    text
}

/// The image of a container at a revision, by its digest.
pub(super) fn image(set: usize, container: &str, revision: usize) -> String {
    let digest = noise(set * 16 + container.len() + 1_000_000 * revision, 64);
    format!("registry.example.com/shop/{container}@sha256:{digest}")
}

fn container(name: &str, set: usize, key_digits: usize) -> Value {
    let seed = set * 16 + name.len();
    json!({
        "name": name,
        "image": image(set, name, 1),
        "imagePullPolicy": "IfNotPresent",
        "args": ["--listen=:8080", format!("--shard={set}"), "--log-format=json"],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            {"name": "DATABASE_URL", "value": format!("postgres://shop-{set}.db.svc.cluster.local:5432/{name}")},
            {"name": "API_KEY", "value": noise(seed + 7, key_digits)},
            {"name": "SIGNING_KEY", "value": noise(seed + 8, key_digits)},
            {"name": "CACHE_SIZE", "value": "512Mi"},
        ],
        "ports": [{"name": format!("http-{}", name.len()), "containerPort": 8080 + name.len(), "protocol": "TCP"}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "failureThreshold": 3},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 5, "failureThreshold": 3},
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/shop"}, {"name": "cache", "mountPath": "/var/cache/shop"}],
        "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}},
    })
}

fn template_with(name: &str, set: usize, key_digits: usize) -> Value {
    json!({
        "metadata": {"labels": {"app": name, "tier": "web"}, "annotations": {"prometheus.io/scrape": "true"}},
        "spec": {
            "containers": CONTAINERS.map(|container| self::container(container, set, key_digits)),
            "readinessGates": [{"conditionType": "InPlaceUpdateReady"}],
            "volumes": [{"name": "config", "configMap": {"name": name}}, {"name": "cache", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 30,
            "serviceAccountName": "default",
        },
    })
}

/// The template of a set, as long as it is asked to be: the keys in it grow.
fn template(name: &str, set: usize, bytes: usize) -> Value {
    let keys = 2 * CONTAINERS.len();
    let bare = template_with(name, set, 0).to_string().len();
    template_with(name, set, bytes.saturating_sub(bare) / keys)
}

/// The set of this number, which updates its pods in place.
pub(super) fn manifest(kind: SetKind, name: &str, set: usize, replicas: usize, template_bytes: usize) -> Value {
    let mut manifest = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": kind.resource().kind(),
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, set, template_bytes),
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": "25%"},
            },
        },
    });
    if kind != SetKind::Clone {
        manifest["spec"]["serviceName"] = json!(name);
        manifest["spec"]["podManagementPolicy"] = json!("Parallel");
    }
    manifest
}

/// The JSON patch that brings a set to another revision: other images, and nothing else.
pub(super) fn change_of_images(set: usize, revision: usize) -> Value {
    let replace = |(index, name): (usize, &&str)| {
        let path = format!("/spec/template/spec/containers/{index}/image");
        json!({"op": "replace", "path": path, "value": image(set, name, revision)})
    };
    CONTAINERS.iter().enumerate().map(replace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_the_length_that_is_asked_for() {
        for bytes in [4_600, 6_000] {
            let length = template("adv-00007", 7, bytes).to_string().len();
            assert!((bytes - 10..=bytes).contains(&length), "{length} for {bytes}");
        }
    }
}
