//! The agents of the nodes: their account, what it may do, the policy that holds each to its own node, and their pods.

use crate::objects::labels_of;
use crate::permissions::{AGENT_PERMISSIONS, Scope, role_of};
use crate::{AGENT, AGENT_POLICY, AGENT_PORT};
use serde_json::{Value, json};

/// The only annotation that an agent writes.
const NOTE: &str = "apps.kruise.io/runtime-containers-meta";
/// Where the directory with the runtime's socket is mounted.
const SOCKETS: &str = "/run/host-cri";

/// Labels by which the agents' pods are selected.
fn selector() -> Value {
    json!({"app.kubernetes.io/name": AGENT})
}

fn labels() -> Value {
    let mut labels = labels_of(AGENT);
    labels["app.kubernetes.io/component"] = json!("agent");
    labels
}

/// All objects, in the order in which they are applied: rights and limits before whoever they are for.
pub(crate) fn objects() -> Vec<Value> {
    let mut objects = vec![service_account()];
    objects.extend(role_of(AGENT, AGENT_PERMISSIONS, Scope::Cluster, &labels()));
    objects.extend([policy(), binding(), daemon_set()]);
    objects
}

fn service_account() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": AGENT, "namespace": "${namespace}", "labels": labels()},
        "automountServiceAccountToken": false,
    })
}

/// Roles know no nodes, so that an agent could write to all pods. This holds it to those of its own, and to its one annotation.
fn policy() -> Value {
    let node = "authentication.kubernetes.io/node-name";
    let same = |field: &str| format!("object.metadata.?{field} == oldObject.metadata.?{field}");
    let kept = |of: &str, other: &str| {
        format!(
            "{of}.metadata.?annotations.orValue({{}}).all(k, k == '{NOTE}' || \
             optional.of({of}.metadata.annotations[k]) == {other}.metadata.?annotations[?k])"
        )
    };
    let rule = |expression: String, message: &str| json!({"expression": expression, "message": message, "reason": "Forbidden"});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": AGENT_POLICY, "labels": labels()},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]},
            ]},
            "matchConditions": [{
                "name": "of-an-agent",
                "expression": format!("request.userInfo.username == 'system:serviceaccount:${{namespace}}:{AGENT}'"),
            }],
            "validations": [
                rule(
                    format!(
                        "request.userInfo.?extra[?'{node}'].orValue(['']).exists(n, n != '' && n == oldObject.spec.?nodeName.orValue(''))"
                    ),
                    "an agent may write to pods of its own node only",
                ),
                rule(
                    [same("labels"), same("finalizers"), same("ownerReferences")].join(" && "),
                    "an agent may not change labels, finalizers or owners",
                ),
                rule(
                    [kept("object", "oldObject"), kept("oldObject", "object")].join(" && "),
                    "an agent may change no annotation but its own",
                ),
                rule("object.?status == oldObject.?status".to_owned(), "an agent may not change the status"),
            ],
        },
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": AGENT_POLICY, "labels": labels()},
        "spec": {"policyName": AGENT_POLICY, "validationActions": ["Deny"]},
    })
}

fn daemon_set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": AGENT, "namespace": "${namespace}", "labels": labels()},
        "spec": {
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": selector()},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {
                "metadata": {"labels": labels(), "annotations": {"kubectl.kubernetes.io/default-container": "agent"}},
                "spec": pod(),
            },
        },
    })
}

fn pod() -> Value {
    json!({
        "serviceAccountName": AGENT,
        "automountServiceAccountToken": true,
        "enableServiceLinks": false,
        "hostNetwork": false,
        "hostPID": false,
        "imagePullSecrets": "${imagePullSecrets}",
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 10,
        "tolerations": [{"$why": "Pods are everywhere, so is their agent.", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
            "matchExpressions": [
                {"$why": "Virtual nodes have no runtime.", "key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]},
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            ],
        }]}}},
        "securityContext": {
            "$why": "Sockets of runtimes belong to root. Nothing else of being root is left.",
            "runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": false, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container()],
        "volumes": [{"name": "runtime", "hostPath": {"path": "${agentRuntimeDirectory}", "type": "Directory"}}],
    })
}

fn container() -> Value {
    let probe = |path: &str, failures: u8| {
        json!({
            "httpGet": {"path": path, "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": failures,
        })
    };
    json!({
        "name": "agent",
        "image": "${image}",
        "imagePullPolicy": "${imagePullPolicy}",
        "args": ["agent", format!("--addr=0.0.0.0:{AGENT_PORT}"), "--log-format=json", "--log=${log}"],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "ports": [{"name": "http", "containerPort": AGENT_PORT, "protocol": "TCP"}],
        "resources": "${agentResources}",
        "livenessProbe": probe("/healthz", 6),
        "readinessProbe": probe("/readyz", 1),
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "privileged": false, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{
            "$why": "The directory and not the socket, which a runtime makes anew when it starts. Sockets can be asked all the same.",
            "name": "runtime", "mountPath": SOCKETS, "readOnly": true,
        }],
    })
}
