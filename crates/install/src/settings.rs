//! What can be chosen about an installation: flags of `flotilla install`, and values of the chart.

use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What can be chosen, with the defaults of the chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Where to install.
    pub namespace: String,
    /// The image of the manager.
    pub image: String,
    /// When nodes pull it.
    pub image_pull_policy: String,
    /// Secrets to pull it with.
    pub image_pull_secrets: Vec<String>,
    /// How many managers; one acts, the others stand by.
    pub replicas: u16,
    /// What the managers log.
    pub log: String,
    /// What is part of it.
    pub chosen: BTreeSet<Condition>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            namespace: crate::NAMESPACE.to_owned(),
            image: default_image(),
            image_pull_policy: "IfNotPresent".to_owned(),
            image_pull_secrets: Vec::new(),
            replicas: 2,
            log: "info".to_owned(),
            chosen: BTreeSet::from([Condition::Webhooks, Condition::NetworkPolicy, Condition::Crds]),
        }
    }
}

/// The image that belongs to this version.
fn default_image() -> String {
    concat!("ghcr.io/flotilla-rs/flotilla:v", env!("CARGO_PKG_VERSION")).to_owned()
}

impl Options {
    /// The value of a setting, by its name.
    pub fn value(&self, name: &str) -> Option<Value> {
        let secrets = || {
            self.image_pull_secrets
                .iter()
                .map(|name| json!({"name": name}))
                .collect()
        };
        Some(match name {
            "namespace" => json!(self.namespace),
            "image" => json!(self.image),
            "imagePullPolicy" => json!(self.image_pull_policy),
            "imagePullSecrets" => Value::Array(secrets()),
            "replicas" => json!(self.replicas),
            "log" => json!(self.log),
            // What only the chart lets users choose.
            other => SETTINGS.iter().find(|s| s.name == other)?.default(),
        })
    }

    /// Whether a condition holds.
    pub fn holds(&self, condition: Condition) -> bool {
        self.chosen.contains(&condition)
    }

    /// The same with a condition that holds, or does not.
    #[must_use]
    pub fn with(mut self, condition: Condition, holds: bool) -> Self {
        if holds {
            self.chosen.insert(condition);
        } else {
            self.chosen.remove(&condition);
        }
        self
    }
}

/// What parts of an installation depend on. Each is a value of the chart of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// Native StatefulSets are controlled too.
    NativeStatefulSet,
    /// Images are pulled ahead of updates in place.
    PreDownload,
    /// There are admission webhooks.
    Webhooks,
    /// Who may talk to managers and agents, and to whom managers may talk, is restricted.
    NetworkPolicy,
    /// The Prometheus operator collects metrics.
    ServiceMonitor,
    /// The custom resource definitions are part of the installation.
    Crds,
    /// Every node has an agent.
    Agent,
}

impl Condition {
    /// All of them.
    pub const ALL: [Condition; 7] = [
        Condition::NativeStatefulSet,
        Condition::PreDownload,
        Condition::Webhooks,
        Condition::NetworkPolicy,
        Condition::ServiceMonitor,
        Condition::Crds,
        Condition::Agent,
    ];

    /// Its name in marks and among the values of the chart.
    pub const fn name(self) -> &'static str {
        match self {
            Condition::NativeStatefulSet => "nativeStatefulSet",
            Condition::PreDownload => "preDownload",
            Condition::Webhooks => "webhooks",
            Condition::NetworkPolicy => "networkPolicy",
            Condition::ServiceMonitor => "serviceMonitor",
            Condition::Crds => "crds",
            Condition::Agent => "agent",
        }
    }

    /// The condition of this name.
    pub fn named(name: &str) -> Option<Self> {
        Condition::ALL.into_iter().find(|c| c.name() == name)
    }
}

/// Something that can be chosen in the chart.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in marks and among the chart's values.
    pub name: &'static str,
    /// What it is, for whoever edits values.
    pub about: &'static str,
    /// What may be given, as a JSON schema.
    schema: &'static str,
    /// The default as JSON, if it is not a field of [`Options`].
    default: Option<&'static str>,
}

impl Setting {
    /// What may be given.
    ///
    /// # Panics
    /// Never: the tests read all of them.
    pub fn schema(&self) -> Value {
        serde_json::from_str(self.schema).expect("schemas of settings are JSON")
    }

    /// What holds if nothing is given.
    ///
    /// # Panics
    /// Never: the tests read all of them.
    pub fn default(&self) -> Value {
        match (self.default, Condition::named(self.name)) {
            (Some(text), _) => serde_json::from_str(text).expect("defaults of settings are JSON"),
            (None, Some(condition)) => json!(Options::default().holds(condition)),
            (None, None) => Options::default().value(self.name).expect("a field of the options"),
        }
    }
}

const fn field(name: &'static str, about: &'static str, schema: &'static str) -> Setting {
    Setting {
        name,
        about,
        schema,
        default: None,
    }
}

const fn extra(name: &'static str, about: &'static str, schema: &'static str, default: &'static str) -> Setting {
    Setting {
        name,
        about,
        schema,
        default: Some(default),
    }
}

const BOOLEAN: &str = r#"{"type": "boolean"}"#;

/// The values of the chart, in the order in which users care. The namespace is the release's and no value.
pub const SETTINGS: &[Setting] = &[
    field(
        "image",
        "The image of the manager. Give a digest to pin it: ghcr.io/flotilla-rs/flotilla@sha256:...",
        r#"{"type": "string", "minLength": 1}"#,
    ),
    field(
        "imagePullPolicy",
        "When nodes pull the image.",
        r#"{"enum": ["Always", "IfNotPresent", "Never"]}"#,
    ),
    field(
        "imagePullSecrets",
        "Secrets of the release's namespace to pull the image with, as a list of {name: ...}.",
        r#"{"type": "array", "items": {"type": "object", "required": ["name"], "additionalProperties": false,
            "properties": {"name": {"type": "string", "minLength": 1}}}}"#,
    ),
    field(
        "replicas",
        "How many managers there are. One acts, the others stand by and take over within seconds; all of them serve webhooks.",
        r#"{"type": "integer", "minimum": 1, "maximum": 20}"#,
    ),
    field(
        "nativeStatefulSet",
        "Control native StatefulSets (apps/v1) too. Only in clusters whose kube-controller-manager runs with \
         --controllers=*,-statefulset-controller; where it does not, Flotilla notices the other writer and leaves the sets alone.",
        BOOLEAN,
    ),
    field(
        "preDownload",
        "Have nodes pull the images of an update in place ahead of it, by ImagePullJobs: the feature gate PreDownloadImageForInPlaceUpdate. \
         Their definition, and who carries them out, come from OpenKruise; without them nothing is done.",
        BOOLEAN,
    ),
    field(
        "webhooks",
        "Admission webhooks: defaults, checks that the definitions cannot express, and protection from deletion. Without them the \
         definitions still refuse most of what is wrong, and everything is defaulted when it is read.",
        BOOLEAN,
    ),
    field(
        "crds",
        "Have a Job make the custom resource definitions, or bring them up to date, before the release is installed or upgraded, as \
         `flotilla install --only-crds` does: conversion and versions stay as the managers have them. They are no part of the release and stay \
         when it is removed, since removing them would delete all sets; a Job then ends their conversion, and where it cannot run, `flotilla uninstall \
         --only-conversions --namespace=NAMESPACE --yes` does. Turn this off if something else installs them, and bring them up to date with \
         `flotilla install --only-crds --yes`.",
        BOOLEAN,
    ),
    field(
        "networkPolicy",
        "Let only the webhooks', metrics' and health ports of managers and agents be reached, and let managers reach only the API server.",
        BOOLEAN,
    ),
    extra(
        "apiServerPorts",
        "The ports on which the managers may reach the API server, as in a NetworkPolicy: those of the Service `kubernetes` and of what \
         is behind it.",
        r#"{"type": "array", "minItems": 1, "items": {"type": "object", "required": ["port"], "additionalProperties": false,
            "properties": {"port": {"type": "integer", "minimum": 1, "maximum": 65535}, "protocol": {"enum": ["TCP"]}}}}"#,
        r#"[{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}, {"port": 8443, "protocol": "TCP"}]"#,
    ),
    field(
        "serviceMonitor",
        "A ServiceMonitor, so that the Prometheus operator collects the managers' metrics. The operator's definitions must be there.",
        BOOLEAN,
    ),
    field(
        "log",
        "What the managers log: a level such as info, or directives such as info,flotilla_engine=debug.",
        r#"{"type": "string", "minLength": 1}"#,
    ),
    field(
        "agent",
        "An agent on every node, so that updates in place can change the environment that containers take from labels and annotations. It \
         asks the container runtime through its socket, which is as good as being root on the node: the namespace has to allow that, with \
         pod-security.kubernetes.io/enforce=privileged. It pulls no images ahead and recreates no containers on request.",
        BOOLEAN,
    ),
    extra(
        "agentRuntimeDirectory",
        "The directory of the nodes in or below which the socket of their container runtime is. Better name the runtime's own, such as \
         /run/containerd or /run/crio, than let agents see all of /run.",
        r#"{"type": "string", "pattern": "^/."}"#,
        r#""/run""#,
    ),
    extra(
        "agentResources",
        "What an agent may use.",
        r#"{"type": "object"}"#,
        r#"{"requests": {"cpu": "5m", "memory": "24Mi"}, "limits": {"memory": "64Mi"}}"#,
    ),
    extra(
        "extraArguments",
        "More arguments for the managers; `flotilla manager --help` lists them.",
        r#"{"type": "array", "items": {"type": "string", "pattern": "^--"}}"#,
        "[]",
    ),
    extra(
        "resources",
        "What a manager may use. 150,000 pods take below 128 MiB.",
        r#"{"type": "object"}"#,
        r#"{"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}"#,
    ),
    extra(
        "nodeSelector",
        "Labels of the nodes that managers may run on.",
        r#"{"type": "object", "additionalProperties": {"type": "string"}}"#,
        "{}",
    ),
    extra(
        "tolerations",
        "Taints that managers tolerate.",
        r#"{"type": "array", "items": {"type": "object"}}"#,
        "[]",
    ),
    extra(
        "priorityClassName",
        "The priority class of the managers' pods; empty for the cluster's default.",
        r#"{"type": "string"}"#,
        r#""system-cluster-critical""#,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_schema_a_default_and_words() {
        for setting in SETTINGS {
            assert!(setting.schema().is_object(), "{}", setting.name);
            assert!(!setting.default().is_null(), "{}", setting.name);
            assert!(
                setting.about.ends_with(['.', '`', ')']) || setting.about.ends_with("..."),
                "{}",
                setting.about
            );
        }
        for condition in Condition::ALL {
            assert!(SETTINGS.iter().any(|s| s.name == condition.name()), "{condition:?}");
        }
    }
}
