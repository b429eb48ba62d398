//! What Helm does around a release, by Jobs under an account of their own that goes with them.
//!
//! Definitions are no part of a release. They hold everybody's sets and stay when it goes, and the managers write into them by whom versions are
//! converted and which are served: Helm would take that back with each upgrade, or be refused because of it.
//!
//! - Before a release is installed or upgraded, they are made or brought up to date, keeping what is there of this.
//! - When the release is gone, nobody converts any more: whoever asks for a version that is not the stored one would get an error, and so would
//!   the garbage collector, which then collects nothing of the kind. So conversion ends, when no manager has the right to put it back, and
//!   versions that are not the stored one are not served any more.
//!
//! `flotilla install` and `flotilla uninstall` do the same by themselves.

use crate::NAME as MANAGER;
use crate::objects::labels_of;
use crate::permissions::DEFINITIONS;
use crate::settings::Condition;
use crate::workload::{container_security, pod_security};
use serde_json::{Value, json};

/// Name of the account and its role.
pub(crate) const NAME: &str = "flotilla-definitions";

/// When Helm applies an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Installing,
    Removal,
}

impl Moment {
    fn hook(self) -> &'static str {
        match self {
            Moment::Installing => "pre-install,pre-upgrade",
            Moment::Removal => "post-delete",
        }
    }
}

/// The objects, in the order in which they are needed, with what they depend on.
pub(crate) fn objects() -> Vec<(Value, Option<Condition>)> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let both = [Moment::Installing, Moment::Removal];
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(NAME, &both, 0, true), "automountServiceAccountToken": false,
    });
    let role = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": metadata(NAME, &both, 0, false),
        "rules": [
            {
                "$why": "Our definitions are brought up to date, it is waited for that they are served, and where versions are converted is taken \
                         out.",
                "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "resourceNames": DEFINITIONS,
                "verbs": ["get", "list", "watch", "patch"],
            },
            {
                "$why": "They are made where there are none.",
                "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["create"],
            },
            {
                "$why": "They are left alone while OpenKruise's manager runs, and conversion while ours do.",
                "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["kruise-controller-manager", MANAGER],
                "verbs": ["get"],
            },
        ],
    });
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata(NAME, &both, 0, false),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": "${namespace}"}],
    });
    let installing = ["install", "--only-crds", "--yes"];
    let removal = ["uninstall", "--only-conversions", "--yes", "--namespace=${namespace}"];
    let network = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata(NAME, &both, 0, true),
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": NAME}},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{"$why": "The API server. It is reached by its address.", "ports": "${apiServerPorts}"}],
        },
    });
    vec![
        (account, None),
        (role, None),
        (binding, None),
        (network, Some(Condition::NetworkPolicy)),
        (job(Moment::Installing, &installing), Some(Condition::Crds)),
        (job(Moment::Removal, &removal), None),
    ]
}

fn job(moment: Moment, args: &[&str]) -> Value {
    let name = match moment {
        Moment::Installing => "flotilla-install-definitions",
        Moment::Removal => "flotilla-end-conversion",
    };
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(name, &[moment], 1, true),
        "spec": {
            "$why": "What is refused for good is not tried for long, and its pods stay, with their logs.",
            "backoffLimit": 2,
            "template": {
                "metadata": {"labels": labels_of(NAME)},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": NAME,
                    "automountServiceAccountToken": true,
                    "enableServiceLinks": false,
                    "imagePullSecrets": "${imagePullSecrets}",
                    "nodeSelector": "${nodeSelector}",
                    "tolerations": "${tolerations}",
                    "priorityClassName": "${priorityClassName}",
                    "securityContext": pod_security(),
                    "containers": [{
                        "name": "definitions",
                        "image": "${image}",
                        "imagePullPolicy": "${imagePullPolicy}",
                        "args": args,
                        "$why": "As quotas and limits of the namespace ask for it.",
                        "resources": "${resources}",
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                        "securityContext": container_security(),
                    }],
                },
            },
        },
    })
}

/// Of an object that is there only while Helm does this.
fn metadata(name: &str, moments: &[Moment], weight: u8, is_namespaced: bool) -> Value {
    let hooks: Vec<&str> = moments.iter().map(|moment| moment.hook()).collect();
    let mut metadata = json!({
        "name": name, "labels": labels_of(NAME),
        "annotations": {
            "helm.sh/hook": hooks.join(","), "helm.sh/hook-weight": weight.to_string(),
            "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded", "helm.sh/hook-output-log-policy": "hook-failed",
        },
    });
    if is_namespaced {
        metadata["namespace"] = json!("${namespace}");
    }
    metadata
}
