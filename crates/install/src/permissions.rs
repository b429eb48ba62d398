//! What the manager may do: one table, each line with its reason.
//!
//! `e2e/tests/install` holds the table to what the manager does: a line that is missing is a refusal in the audit log, and a line that is
//! never used fails the suite. Whoever adds a feature adds its lines here, and what uses them there.

use crate::settings::Condition;
use crate::{CERTIFICATES, LEASE, NAME};
use serde_json::{Value, json};

/// Where a permission holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the whole cluster.
    Cluster,
    /// In the namespace of the installation.
    Own,
}

/// Something that the manager may do.
#[derive(Clone, Copy, Debug)]
pub struct Permission {
    /// Where.
    pub scope: Scope,
    /// Group of the API; empty for the core.
    pub group: &'static str,
    /// Resource, with its subresource if it has one.
    pub resource: &'static str,
    /// Only objects of these names; empty for all.
    pub names: &'static [&'static str],
    /// What.
    pub verbs: &'static [&'static str],
    /// Why.
    pub why: &'static str,
    /// Only if this holds.
    pub when: Option<Condition>,
}

const fn cluster(
    (group, resource): (&'static str, &'static str),
    verbs: &'static [&'static str],
    why: &'static str,
) -> Permission {
    Permission {
        scope: Scope::Cluster,
        group,
        resource,
        names: &[],
        verbs,
        why,
        when: None,
    }
}

const fn own(
    (group, resource): (&'static str, &'static str),
    names: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Permission {
    Permission {
        scope: Scope::Own,
        names,
        ..cluster((group, resource), verbs, why)
    }
}

impl Permission {
    const fn only_with(mut self, condition: Condition) -> Self {
        self.when = Some(condition);
        self
    }

    const fn named(mut self, names: &'static [&'static str]) -> Self {
        self.names = names;
        self
    }
}

/// Everything that the manager may do.
pub const PERMISSIONS: &[Permission] = &[
    cluster(
        ("", "pods"),
        &["get", "list", "watch", "create", "patch", "delete"],
        "Pods are what sets are about. They are read anew when the outcome of a write is unknown, patched to adopt or release them and to \
         set their labels, and never replaced as a whole.",
    ),
    cluster(
        ("", "pods/status"),
        &["patch"],
        "Conditions behind the readiness gates of updates in place and of lifecycle hooks.",
    ),
    cluster(
        ("", "pods/resize"),
        &["patch"],
        "Updates in place of cpu and memory go through this subresource only.",
    ),
    cluster(
        ("", "pods/finalizers"),
        &["update"],
        "A claim that goes with its pod names it as an owner which it holds up; clusters with OwnerReferencesPermissionEnforcement ask for \
         this. Nothing is ever sent to it.",
    ),
    cluster(
        ("", "persistentvolumeclaims"),
        &["get", "list", "watch", "create", "patch", "delete"],
        "Claims of the sets' templates, their owners and their growth. Those of StatefulSets are never deleted by Flotilla: the garbage \
         collector does that where the retention policy gives them an owner. But clusters with OwnerReferencesPermissionEnforcement let \
         nobody change the owners of what he may not delete. Those of a CloneSet are given to its pods, too, and deleted where there is no pod.",
    ),
    cluster(
        ("", "configmaps"),
        &["get", "list", "watch", "create", "patch", "delete"],
        "The barriers of the launch priority: a ConfigMap beside each pod that asks for it, whose keys let its containers start. Only those \
         with our label are listed and watched, which no role can say; a policy holds what is written to them. One is read when it is in \
         the way of ours, and deleted when it is that of a pod which had the name before.",
    ),
    cluster(
        ("apps", "controllerrevisions"),
        &["get", "list", "watch", "create", "patch", "delete"],
        "The history of each set's template: made, adopted, renumbered at a rollback, and removed beyond the limit.",
    ),
    cluster(
        ("apps.kruise.io", "statefulsets"),
        &["get", "list", "watch"],
        "Advanced StatefulSets are read, and looked at afresh before anything is adopted for them. What users wrote is not changed.",
    ),
    cluster(
        ("apps.kruise.io", "statefulsets/status"),
        &["patch"],
        "The status of Advanced StatefulSets.",
    ),
    cluster(
        ("apps.kruise.io", "statefulsets/finalizers"),
        &["update"],
        "Pods and revisions name their set as an owner which they hold up; clusters with OwnerReferencesPermissionEnforcement ask for this.",
    ),
    cluster(
        ("apps.kruise.io", "clonesets"),
        &["get", "list", "watch", "patch"],
        "CloneSets are read, and looked at afresh before anything is adopted for them. One field of what users wrote is changed: names of \
         pods that are gone are taken out of podsToDelete.",
    ),
    cluster(
        ("apps.kruise.io", "clonesets/status"),
        &["patch"],
        "The status of CloneSets.",
    ),
    cluster(
        ("apps.kruise.io", "clonesets/finalizers"),
        &["update"],
        "As for Advanced StatefulSets.",
    ),
    cluster(
        ("", "nodes"),
        &["list", "watch"],
        "Which pods of a CloneSet go first depends on where they stand, which labels of nodes say. Nothing else of a node is kept.",
    ),
    cluster(
        ("apps", "statefulsets"),
        &["get", "list", "watch"],
        "Native StatefulSets are read, and looked at afresh before anything is adopted for them.",
    )
    .only_with(Condition::NativeStatefulSet),
    cluster(
        ("apps", "statefulsets/status"),
        &["patch"],
        "The status of native StatefulSets.",
    )
    .only_with(Condition::NativeStatefulSet),
    cluster(
        ("apps", "statefulsets/finalizers"),
        &["update"],
        "As for Advanced StatefulSets.",
    )
    .only_with(Condition::NativeStatefulSet),
    cluster(
        ("apps.kruise.io", "imagepulljobs"),
        &["get", "list", "watch", "create", "delete"],
        "Images are pulled ahead of updates in place by jobs of OpenKruise: made for an update, and deleted when it is done or overtaken. Of \
         those of others no more than metadata is read.",
    )
    .only_with(Condition::PreDownload),
    cluster(
        ("storage.k8s.io", "storageclasses"),
        &["list", "watch"],
        "Whether a claim can grow is a property of its class.",
    ),
    cluster(
        ("events.k8s.io", "events"),
        &["create", "patch"],
        "Events in the namespaces of the sets; one that repeats is counted up instead of made again.",
    ),
    own(
        ("coordination.k8s.io", "leases"),
        &[],
        &["create"],
        "The lease without which nothing is written, the first time. Creation cannot be restricted to a name.",
    ),
    own(
        ("coordination.k8s.io", "leases"),
        &[LEASE],
        &["get", "patch"],
        "Taking and renewing the lease.",
    ),
    own(
        ("", "namespaces"),
        &["${namespace}"],
        &["get"],
        "At the start it is looked whether the namespace of the lease is there; without it nothing would ever be done.",
    ),
    own(
        ("", "secrets"),
        &[],
        &["create"],
        "The Secret of the webhooks' certificates, the first time. Creation cannot be restricted to a name.",
    )
    .only_with(Condition::Webhooks),
    own(
        ("", "secrets"),
        &[CERTIFICATES],
        &["get", "patch"],
        "The certificates of the webhooks: all managers serve them, one renews them. No other Secret is ever read.",
    )
    .only_with(Condition::Webhooks),
    cluster(
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        &["get", "patch"],
        "Our own registration, which the installation makes: where the webhooks are, what they are asked about, whom to trust. A policy \
         holds the manager to that.",
    )
    .named(REGISTRATIONS)
    .only_with(Condition::Webhooks),
    cluster(
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        &["get", "patch"],
        "Our own registration, which the installation makes: where the webhooks are, what they are asked about, whom to trust. A policy \
         holds the manager to that.",
    )
    .named(REGISTRATIONS)
    .only_with(Condition::Webhooks),
    cluster(
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        &["get", "patch"],
        "Where the conversion between versions of our kinds is served, and with which certificates.",
    )
    .named(DEFINITIONS)
    .only_with(Condition::Webhooks),
];

/// Everything that the agent of a node may do. Policies hold what it writes to its own node, and on pods to one annotation, which roles
/// cannot.
pub const AGENT_PERMISSIONS: &[Permission] = &[
    cluster(
        ("", "pods"),
        &["get", "list", "watch"],
        "The pods of the agent's node, which it always asks for by their node, so that an authorizer that looks at selectors can hold it to \
         that. One is read anew right before a container of it is stopped.",
    ),
    cluster(
        ("", "pods/status"),
        &["patch"],
        "What is found of a pod's containers is noted on it, in one annotation.",
    ),
    cluster(
        ("events.k8s.io", "events"),
        &["create"],
        "Events of pods whose containers are stopped, and of a node without a runtime.",
    ),
];

/// Names of our registrations.
const REGISTRATIONS: &[&str] = &[flotilla_api::registration::NAME];
/// Names of our definitions.
pub(crate) const DEFINITIONS: &[&str] = &["statefulsets.apps.kruise.io", "clonesets.apps.kruise.io"];

/// The role of the manager in a scope, with its binding, as marked objects.
pub fn role_of_manager(scope: Scope) -> [Value; 2] {
    role_of(NAME, PERMISSIONS, scope, &crate::objects::labels())
}

/// The role of an account in a scope, with its binding.
pub(crate) fn role_of(account: &str, permissions: &[Permission], scope: Scope, labels: &Value) -> [Value; 2] {
    let (role, binding) = match scope {
        Scope::Cluster => ("ClusterRole", "ClusterRoleBinding"),
        Scope::Own => ("Role", "RoleBinding"),
    };
    let rules: Vec<Value> = permissions.iter().filter(|p| p.scope == scope).map(rule).collect();
    let metadata = || {
        let mut metadata = json!({"name": account, "labels": labels});
        if scope == Scope::Own {
            metadata["namespace"] = json!("${namespace}");
        }
        metadata
    };
    [
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": role, "metadata": metadata(), "rules": rules}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": binding, "metadata": metadata(),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": account},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "${namespace}"}],
        }),
    ]
}

fn rule(permission: &Permission) -> Value {
    let mut rule = json!({
        "$why": permission.why, "apiGroups": [permission.group], "resources": [permission.resource], "verbs": permission.verbs,
    });
    if !permission.names.is_empty() {
        rule["resourceNames"] = json!(permission.names);
    }
    match permission.when {
        None => rule,
        Some(condition) => json!({format!("{}{}", crate::marks::IF, condition.name()): rule}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row of a permission in the tables of `SECURITY.md`.
    fn told(permission: &Permission) -> String {
        let group = if permission.group.is_empty() {
            "core"
        } else {
            permission.group
        };
        let names = permission
            .names
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>();
        let mut held = vec![match permission.scope {
            Scope::Cluster => "the whole cluster".to_owned(),
            Scope::Own => "its own namespace".to_owned(),
        }];
        held.extend((!names.is_empty()).then(|| format!("named {}", names.join(", "))));
        held.extend(
            permission
                .when
                .map(|condition| format!("only with `{}`", condition.name())),
        );
        let (resource, verbs, why) = (permission.resource, permission.verbs.join(", "), permission.why);
        format!("| `{resource}` of {group} | {verbs} | {} | {why} |", held.join("; "))
    }

    /// Whoever decides whether to trust the manager reads that page, not this file.
    #[test]
    fn every_right_and_its_reason_stand_in_security_md() {
        let page = include_str!("../../../SECURITY.md");
        let rights = |permissions: &[Permission]| permissions.iter().map(told).collect::<Vec<_>>().join("\n");
        for table in [rights(PERMISSIONS), rights(AGENT_PERMISSIONS)] {
            let whole = format!("| --- | --- | --- | --- |\n{table}\n\n");
            assert!(page.contains(&whole), "SECURITY.md lacks this table:\n{table}");
        }
    }

    /// what is granted there is granted to the account that an installation has.
    #[test]
    fn r_38_the_right_that_users_may_add_is_one_of_this_account() {
        let page = include_str!("../../../SECURITY.md");
        let account = format!("--serviceaccount={}:{}\n", crate::NAMESPACE, crate::NAME);
        assert!(page.contains(&account), "SECURITY.md lacks {account}");
    }

    #[test]
    fn nothing_is_granted_that_need_not_be() {
        for p in PERMISSIONS.iter().chain(AGENT_PERMISSIONS) {
            assert!(p.why.ends_with('.') && p.why.len() > 20, "{p:?}");
            assert!(
                !p.verbs.is_empty() && !p.resource.contains('*') && !p.group.contains('*'),
                "{p:?}"
            );
            assert!(
                !p.verbs.contains(&"*") && !p.verbs.contains(&"deletecollection"),
                "{p:?}"
            );
            // Rights that are as good as all rights.
            assert!(
                !["escalate", "bind", "impersonate"].iter().any(|v| p.verbs.contains(v)),
                "{p:?}"
            );
            assert!(
                ![
                    "pods/exec",
                    "pods/attach",
                    "nodes/proxy",
                    "nodes/status",
                    "serviceaccounts/token"
                ]
                .contains(&p.resource),
                "{p:?}"
            );
            assert!(p.resource != "nodes" || p.verbs == ["list", "watch"], "{p:?}");
            if p.resource == "secrets" {
                let only_ours = p.names == [CERTIFICATES] || p.verbs == ["create"];
                assert!(p.scope == Scope::Own && only_ours, "{p:?}");
            }
        }
        for (i, p) in PERMISSIONS.iter().enumerate() {
            let twice =
                |q: &&Permission| (q.scope, q.group, q.resource, q.names) == (p.scope, p.group, p.resource, p.names);
            assert!(PERMISSIONS.iter().skip(i + 1).all(|q| !twice(&q)), "{p:?} stands twice");
        }
    }

    #[test]
    fn definitions_are_all_of_ours() {
        let crds = flotilla_api::crds();
        let names: Vec<_> = crds.iter().filter_map(|crd| crd["metadata"]["name"].as_str()).collect();
        assert_eq!(names, DEFINITIONS);
    }
}
