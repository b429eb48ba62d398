//! Where objects of an installation are in the API.

use serde_json::Value;

/// Kinds of an installation: group and version, kind, the resource in URLs, whether it lives in namespaces.
const KINDS: &[(&str, &str, &str, bool)] = &[
    ("v1", "Namespace", "namespaces", false),
    ("v1", "ServiceAccount", "serviceaccounts", true),
    ("v1", "Service", "services", true),
    (
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        false,
    ),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false),
    (
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        false,
    ),
    ("rbac.authorization.k8s.io/v1", "Role", "roles", true),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true),
    (
        "flowcontrol.apiserver.k8s.io/v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        false,
    ),
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "flowschemas", false),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        false,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        false,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        false,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        false,
    ),
    ("apps/v1", "Deployment", "deployments", true),
    ("apps/v1", "DaemonSet", "daemonsets", true),
    ("monitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors", true),
];

/// An object of an installation: its path in the API, and its name for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path of the object.
    pub path: String,
    /// As kubectl names it: `deployment.apps/flotilla-manager`.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// Whether it lives in a namespace.
    pub is_namespaced: bool,
}

/// Where an object of an installation is.
///
/// # Panics
/// If it is of a kind that no installation holds: the tests place all of them.
pub fn place(object: &Value) -> Place {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    let known = KINDS.iter().find(|k| (k.0, k.1) == (version, kind));
    let (_, kind, resource, is_namespaced) = *known.unwrap_or_else(|| panic!("no place for {version} {kind}"));
    let (name, namespace) = (text("/metadata/name"), text("/metadata/namespace"));
    let root = if version.contains('/') { "apis" } else { "api" };
    let path = if is_namespaced {
        format!("/{root}/{version}/namespaces/{namespace}/{resource}/{name}")
    } else {
        format!("/{root}/{version}/{resource}/{name}")
    };
    let group = version
        .split_once('/')
        .map_or(String::new(), |(group, _)| format!(".{group}"));
    Place {
        path,
        name: format!("{}{group}/{name}", kind.to_lowercase()),
        kind,
        is_namespaced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_a_place_of_its_own() {
        let objects = crate::superset("here");
        let mut paths: Vec<String> = objects.iter().map(|object| place(object).path).collect();
        assert!(paths.contains(&"/apis/apps/v1/namespaces/here/deployments/flotilla-manager".to_owned()));
        assert!(paths.contains(&"/api/v1/namespaces/here".to_owned()));
        assert!(
            objects
                .iter()
                .any(|o| place(o).name == "clusterrole.rbac.authorization.k8s.io/flotilla-manager")
        );
        paths.sort();
        let count = paths.len();
        paths.dedup();
        assert_eq!(paths.len(), count);
    }
}
