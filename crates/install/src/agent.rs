//! The agents of the nodes: their account, what it may do, the policy that holds each to its own node, and their pods.

use crate::objects::labels_of;
use crate::permissions::{AGENT_PERMISSIONS, Scope, role_of};
use crate::policies::{Account, Writes, policy, rule};
use crate::{AGENT, AGENT_EVENT_POLICY, AGENT_POD_POLICY, AGENT_PORT};
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

/// What is there before the agents' pods, in the order in which it is applied: limits before the rights that they are for, so that rights
/// without limits stand at no time, also when all of it goes in reverse.
pub(crate) fn limits_and_rights() -> Vec<Value> {
    let mut objects = vec![service_account()];
    // Roles know no nodes, so that an agent could write to what belongs to others. Policies hold it to its own.
    let labels = labels();
    for (name, (group, resource), operation, validations) in [
        (AGENT_POD_POLICY, ("", "pods/status"), "UPDATE", of_pods()),
        (AGENT_EVENT_POLICY, ("events.k8s.io", "events"), "CREATE", of_events()),
    ] {
        let writes = Writes {
            group,
            resources: &[resource],
            operations: &[operation],
        };
        let account = Account {
            name: AGENT,
            labels: &labels,
        };
        objects.extend(policy(name, account, writes, &validations));
    }
    objects.extend(role_of(AGENT, AGENT_PERMISSIONS, Scope::Cluster, &labels));
    objects
}

fn service_account() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": AGENT, "namespace": "${namespace}", "labels": labels()},
        "automountServiceAccountToken": false,
    })
}

/// That this is the name of the agent's node. Tokens that are not bound to a pod tell of none, and nothing holds for them.
fn is_own_node(name: &str) -> String {
    let node = "authentication.kubernetes.io/node-name";
    format!("request.userInfo.?extra[?'{node}'].orValue(['']).exists(n, n != '' && n == {name}.orValue(''))")
}

/// Pods of its own node, and of these its one annotation.
fn of_pods() -> Vec<Value> {
    let same = |field: &str| format!("object.metadata.?{field} == oldObject.metadata.?{field}");
    let kept = |of: &str, other: &str| {
        format!(
            "{of}.metadata.?annotations.orValue({{}}).all(k, k == '{NOTE}' || \
             optional.of({of}.metadata.annotations[k]) == {other}.metadata.?annotations[?k])"
        )
    };
    vec![
        rule(
            is_own_node("oldObject.spec.?nodeName"),
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
        rule(
            "object.?status == oldObject.?status".to_owned(),
            "an agent may not change the status",
        ),
    ]
}

/// In the name of its own node, about that node and pods. On which node a pod is cannot be seen here.
fn of_events() -> Vec<Value> {
    vec![
        rule(
            is_own_node("object.?reportingInstance"),
            "an agent may write events in the name of its own node only",
        ),
        rule(
            "object.?regarding.?kind.orValue('') == 'Pod' || object.?regarding.?kind.orValue('') == 'Node' && \
             object.regarding.?name == object.?reportingInstance"
                .to_owned(),
            "an agent may write events about pods and its own node only",
        ),
    ]
}

/// Who may talk to agents. Whom they may talk to cannot be told.
pub(crate) fn network_policy() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": AGENT, "namespace": "${namespace}", "labels": labels()},
        "spec": {
            "$why": "What agents ask is not limited: hooks of pods name any host and port, and who has the runtime's socket has the node's \
                     network anyway.",
            "podSelector": {"matchLabels": selector()},
            "policyTypes": ["Ingress"],
            "ingress": [{
                "$why": "Metrics, health and readiness, which kubelets ask for, and Prometheus, wherever it runs.",
                "ports": [{"port": AGENT_PORT, "protocol": "TCP"}],
            }],
        },
    })
}

pub(crate) fn daemon_set() -> Value {
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
        "args": ["agent", format!("--addr=:{AGENT_PORT}"), "--log-format=json", "--log=${log}"],
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
