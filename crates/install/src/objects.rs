//! All objects of an installation, in the order in which they are applied.

use crate::agent;
use crate::hooks;
use crate::marks::{self, Comments};
use crate::permissions::{Scope, role_of_manager};
use crate::policies;
use crate::settings::{Condition, Options};
use crate::yaml::{self, Form};
use crate::{HEALTH_PORT, HTTP_PORT, LEASE, NAME, PART_OF, PART_OF_LABEL, WEBHOOK_PORT, WEBHOOK_SERVICE, workload};
use serde_json::{Value, json};

/// An object of an installation, with its marks.
#[derive(Clone, Debug)]
pub struct Part {
    /// The file of the chart that it stands in, without its extension.
    pub file: &'static str,
    /// Only if all of these hold.
    pub when: Vec<Condition>,
    /// Who applies it.
    pub applied_by: AppliedBy,
    /// The object.
    pub object: Value,
}

/// Who applies an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppliedBy {
    /// `flotilla install`, and Helm as part of a release.
    Both,
    /// `flotilla install`. The namespace is Helm's own business, and definitions are no part of a release.
    Install,
    /// Helm: what the commands do by themselves.
    Helm,
}

/// Labels of every object of the managers.
pub(crate) fn labels() -> Value {
    labels_of(NAME)
}

/// Labels of every object of this account.
pub(crate) fn labels_of(name: &str) -> Value {
    json!({"app.kubernetes.io/name": name, PART_OF_LABEL: PART_OF})
}

/// Labels of the managers' pods, by which everything selects them.
pub(crate) fn selector() -> Value {
    json!({"app.kubernetes.io/name": NAME})
}

fn part(file: &'static str, object: Value) -> Part {
    Part {
        file,
        when: Vec::new(),
        applied_by: AppliedBy::Both,
        object,
    }
}

fn only_with(condition: Condition, mut part: Part) -> Part {
    part.when.push(condition);
    part
}

/// All parts. What others refer to comes before them.
pub(crate) fn parts() -> Vec<Part> {
    let mut parts = vec![Part {
        applied_by: AppliedBy::Install,
        ..part("namespace", namespace())
    }];
    parts.extend(definitions().into_iter().map(|definition| Part {
        applied_by: AppliedBy::Install,
        ..only_with(Condition::Crds, part("crds", definition))
    }));
    parts.push(part("rbac", service_account()));
    // Limits before the rights that they are for, so that rights without limits stand at no time, also when all of it goes in reverse.
    parts.extend(policies::of_config_maps().map(|object| part("policies", object)));
    for object in policies::of_registrations() {
        parts.push(only_with(Condition::Webhooks, part("policies", object)));
    }
    for object in policies::registrations() {
        parts.push(only_with(Condition::Webhooks, part("webhooks", object)));
    }
    for scope in [Scope::Cluster, Scope::Own] {
        parts.extend(role_of_manager(scope).map(|object| part("rbac", object)));
    }
    parts.extend(fairness().map(|object| part("fairness", object)));
    parts.push(only_with(
        Condition::NetworkPolicy,
        part("networkpolicy", network_policy()),
    ));
    parts.push(only_with(Condition::Webhooks, part("services", webhook_service())));
    parts.push(only_with(
        Condition::ServiceMonitor,
        part("servicemonitor", metrics_service()),
    ));
    parts.push(part("deployment", workload::disruption_budget()));
    parts.push(part("deployment", workload::deployment()));
    parts.push(only_with(
        Condition::ServiceMonitor,
        part("servicemonitor", service_monitor()),
    ));
    let of_agents = |object| only_with(Condition::Agent, part("agent", object));
    parts.extend(agent::limits_and_rights().into_iter().map(of_agents));
    parts.push(only_with(Condition::NetworkPolicy, of_agents(agent::network_policy())));
    parts.push(of_agents(agent::daemon_set()));
    for (object, condition) in hooks::objects() {
        let mut part = part("hooks", object);
        part.applied_by = AppliedBy::Helm;
        part.when.extend(condition);
        parts.push(part);
    }
    parts
}

/// The objects of an installation, in the order in which they are to be applied.
pub fn objects(options: &Options) -> Vec<Value> {
    chosen(options)
        .map(|part| marks::resolve(&part.object, options))
        .collect()
}

/// The same as YAML for people, with the reasons as comments.
pub fn manifests(options: &Options) -> String {
    let documents = chosen(options).map(|part| {
        let object = marks::fill(&part.object, options, Comments::Kept);
        format!("---\n{}", yaml::write(&object, Form::Plain))
    });
    documents.collect()
}

fn chosen(options: &Options) -> impl Iterator<Item = Part> {
    let holds =
        |part: &Part| part.applied_by != AppliedBy::Helm && part.when.iter().all(|condition| options.holds(*condition));
    parts().into_iter().filter(holds)
}

/// Every object that an installation in this namespace could consist of, whatever is chosen.
pub fn superset(namespace: &str) -> Vec<Value> {
    objects(&Options {
        namespace: namespace.to_owned(),
        chosen: Condition::ALL.into(),
        ..Options::default()
    })
}

fn namespace() -> Value {
    // The managers hold to the strictest standard; whatever else comes into this namespace is to do the same.
    let mut labels = labels();
    for mode in ["warn", "audit"] {
        labels[format!("pod-security.kubernetes.io/{mode}")] = json!("restricted");
    }
    // Agents need a directory of their node, which only the weakest standard allows.
    labels["$if:agent"] = json!({"pod-security.kubernetes.io/enforce": "privileged"});
    labels["$if:!agent"] = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "${namespace}", "labels": labels}})
}

/// The definitions, as they are where there are none.
fn definitions() -> Vec<Value> {
    let mut definitions = flotilla_api::crds();
    for definition in &mut definitions {
        definition["metadata"]["labels"] = labels();
        // Charts of before had them among their templates: removing them there must not delete everybody's sets.
        definition["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
        definition["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] = json!("Prune=false,Delete=false");
    }
    definitions
}

fn service_account() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": "${namespace}", "labels": labels()},
        // The managers' pods ask for it themselves; nothing else that runs under this account gets it unasked.
        "automountServiceAccountToken": false,
    })
}

/// Our requests have a queue of their own, so that neither we nor others wait for each other. Renewing the lease goes with the other
/// elections of the cluster: it must not wait behind our own writes.
fn fairness() -> [Value; 3] {
    const VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
    let account = json!([{"kind": "ServiceAccount", "serviceAccount": {"name": NAME, "namespace": "${namespace}"}}]);
    let schema = |name: &str, level: &str, precedence: u16, how: &str, rules: Value| {
        json!({
            "apiVersion": VERSION, "kind": "FlowSchema", "metadata": {"name": name, "labels": labels()},
            "spec": {
                "distinguisherMethod": {"type": how}, "matchingPrecedence": precedence,
                "priorityLevelConfiguration": {"name": level},
                "rules": [{"subjects": account, "resourceRules": rules}],
            },
        })
    };
    [
        json!({
            "apiVersion": VERSION, "kind": "PriorityLevelConfiguration", "metadata": {"name": "flotilla", "labels": labels()},
            "spec": {"type": "Limited", "limited": {
                "$why": "As many seats as the built-in controllers have, of which others may use half while we do not. A full queue answers \
                         with Retry-After, and the managers slow down.",
                "nominalConcurrencyShares": 40, "lendablePercent": 50,
                "limitResponse": {"type": "Queue", "queuing": {"queues": 32, "handSize": 4, "queueLengthLimit": 64}},
            }},
        }),
        schema(
            "flotilla-lease",
            "leader-election",
            150,
            "ByUser",
            json!([{
                "$why": "A lease that cannot be renewed in time is lost; it must not wait behind our own writes.",
                "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"],
                "namespaces": ["${namespace}"],
            }]),
        ),
        schema(
            "flotilla",
            "flotilla",
            700,
            "ByNamespace",
            json!([{
                "$why": "This grants nothing: it says which requests of the managers wait in this queue, which is all others.",
                "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "namespaces": ["*"], "clusterScope": true,
            }]),
        ),
    ]
}

fn network_policy() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": NAME, "namespace": "${namespace}", "labels": labels()},
        "spec": {
            "podSelector": {"matchLabels": selector()},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {
                    "$why": "Metrics on the first, and health alone on the second. Who asks cannot be told by labels: nobody knows where \
                             Prometheus runs, and kubelets are no pods.",
                    "ports": [{"port": HTTP_PORT, "protocol": "TCP"}, {"port": HEALTH_PORT, "protocol": "TCP"}],
                },
                {"$if:webhooks": {
                    "$why": "Webhooks. API servers are no pods either.",
                    "ports": [{"port": WEBHOOK_PORT, "protocol": "TCP"}],
                }},
            ],
            "egress": [
                {
                    "$why": "The API server. It is reached by its address.",
                    "ports": "${apiServerPorts}",
                },
                {"$if:webhooks": {
                    "$why": "Webhooks are registered once they have answered through their Service, whose name is looked up for that.",
                    "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
                }},
                {"$if:webhooks": {
                    "$why": "And what is behind that Service: the managers themselves.",
                    "to": [{"podSelector": {"matchLabels": selector()}}],
                    "ports": [{"port": WEBHOOK_PORT, "protocol": "TCP"}],
                }},
            ],
        },
    })
}

fn webhook_service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": WEBHOOK_SERVICE, "namespace": "${namespace}", "labels": labels()},
        "spec": {
            "type": "ClusterIP", "selector": selector(),
            "ports": [{"name": "webhooks", "port": 443, "targetPort": "webhooks", "protocol": "TCP"}],
        },
    })
}

fn metrics_service() -> Value {
    let mut labels = labels();
    labels["app.kubernetes.io/component"] = json!("metrics");
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "flotilla-metrics", "namespace": "${namespace}", "labels": labels},
        "spec": {
            "clusterIP": "None", "type": "ClusterIP", "selector": selector(),
            "ports": [{"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    })
}

fn service_monitor() -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor",
        "metadata": {"name": NAME, "namespace": "${namespace}", "labels": labels()},
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/component": "metrics", PART_OF_LABEL: PART_OF}},
            "endpoints": [{"port": "http", "path": "/metrics"}],
        },
    })
}

/// What the manager makes by itself in its namespace, and an uninstallation takes away: resource path and name.
pub fn made_by_the_manager() -> [(&'static str, &'static str); 2] {
    [("secrets", crate::CERTIFICATES), ("leases", LEASE)]
}

#[cfg(test)]
mod tests;
