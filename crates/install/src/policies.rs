//! What roles cannot say: policies that hold an account to a part of what its rights would let it write.

use crate::objects::labels;
use crate::{MANAGER_CONFIG_MAP_POLICY, MANAGER_WEBHOOK_POLICY, NAME};
use flotilla_api::names::LAUNCH_BARRIER_LABEL;
use flotilla_api::registration::{SUFFIX, condition_of_pods};
use serde_json::{Value, json};

/// The account that a policy is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Labels of its objects.
    pub(crate) labels: &'a Value,
}

/// What a policy looks at: resources of a group, and operations on them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writes<'a> {
    pub(crate) group: &'a str,
    pub(crate) resources: &'a [&'a str],
    pub(crate) operations: &'a [&'a str],
}

/// A policy on what an account writes, with its binding. It refuses, also where it cannot be evaluated.
pub(crate) fn policy(name: &str, account: Account<'_>, writes: Writes<'_>, validations: &[Value]) -> [Value; 2] {
    let metadata = || json!({"name": name, "labels": account.labels});
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata(),
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [writes.group], "apiVersions": ["v1"], "operations": writes.operations, "resources": writes.resources,
                }]},
                "matchConditions": [{
                    "name": "of-this-account",
                    "expression": format!(
                        "request.userInfo.username == 'system:serviceaccount:${{namespace}}:{}'",
                        account.name
                    ),
                }],
                "validations": validations,
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata(),
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}

/// One condition of a policy, and what is said where it does not hold.
pub(crate) fn rule(expression: String, message: &str) -> Value {
    json!({"expression": expression, "message": message, "reason": "Forbidden"})
}

/// Config maps: barriers of pods, which are known by name, owner and label.
pub(crate) fn of_config_maps() -> [Value; 2] {
    let labels = labels();
    policy(
        MANAGER_CONFIG_MAP_POLICY,
        Account { name: NAME, labels: &labels },
        Writes {
            group: "",
            resources: &["configmaps"],
            operations: &["CREATE", "UPDATE", "DELETE"],
        },
        &[
            rule(
                "(request.operation == 'DELETE' ? oldObject : object).metadata.name.endsWith('-barrier')".to_owned(),
                "the manager may write no config maps but those of launch priority, whose names end with -barrier",
            ),
            rule(
                "request.operation == 'CREATE' || oldObject.metadata.?ownerReferences.orValue([]).exists(o, o.apiVersion == 'v1' && o.kind == 'Pod')"
                    .to_owned(),
                "the manager may change and delete no config maps but those that belong to a pod",
            ),
            rule(
                format!("request.operation == 'DELETE' || object.metadata.?labels[?'{LAUNCH_BARRIER_LABEL}'].hasValue()"),
                "the manager writes config maps with its label only",
            ),
        ],
    )
}

/// Registrations of webhooks, which could otherwise see and change everything: ours, about our kinds, about pods of ours, and about deletions.
/// Those of others in the same configuration stay as they are.
pub(crate) fn of_registrations() -> [Value; 2] {
    let labels = labels();
    let all = |of: &str, webhook: &str, holds: &str| format!("{of}.?webhooks.orValue([]).all({webhook}, {holds})");
    let kept = |of: &str, other: &str| {
        let is_there = format!("{other}.?webhooks.orValue([]).exists(other, other == w)");
        all(of, "w", &format!("w.name.endsWith('{SUFFIX}') || {is_there}"))
    };
    let is_about_pods_of_ours = format!(
        "r.apiGroups == [''] && r.resources == ['pods'] && r.operations == ['CREATE'] && \
         w.?matchConditions.orValue([]).exists(c, c.expression == \"{}\")",
        condition_of_pods()
    );
    let ours = |allowed: &str| {
        let rules = format!("w.?rules.orValue([]).all(r, r.apiGroups == ['apps.kruise.io'] || {allowed})");
        all("object", "w", &format!("!w.name.endsWith('{SUFFIX}') || {rules}"))
    };
    let mutates = "request.resource.resource == 'mutatingwebhookconfigurations'";
    policy(
        MANAGER_WEBHOOK_POLICY,
        Account {
            name: NAME,
            labels: &labels,
        },
        Writes {
            group: "admissionregistration.k8s.io",
            resources: &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            operations: &["CREATE", "UPDATE"],
        },
        &[
            rule(
                "request.operation == 'UPDATE'".to_owned(),
                "the manager may not make registrations of webhooks: the installation does",
            ),
            rule(
                format!(
                    "request.operation != 'UPDATE' || {} && {}",
                    kept("object", "oldObject"),
                    kept("oldObject", "object")
                ),
                "the manager may not change webhooks of others",
            ),
            rule(
                format!("!({mutates}) || {}", ours(&format!("({is_about_pods_of_ours})"))),
                "the manager may register to change our kinds and pods of ours, and nothing else",
            ),
            rule(
                format!("{mutates} || {}", ours("r.operations == ['DELETE']")),
                "the manager may register to be asked about our kinds and about deletions, and about nothing else",
            ),
        ],
    )
}

/// Where the manager registers its webhooks: made by the installation, so that the manager need not be allowed to make any, and so that they
/// go with it. The manager fills them in once it serves.
pub(crate) fn registrations() -> [Value; 2] {
    ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"].map(|kind| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": flotilla_api::registration::NAME, "labels": labels()},
        })
    })
}
