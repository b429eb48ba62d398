//! What an installation of Flotilla consists of: one source for `flotilla install` and for the Helm chart.
//!
//! Objects are written once, as JSON with marks: `${setting}` in a text, `$if:condition` as a key or in front of a list's item, and `$why`
//! as a comment. [`objects`] fills the marks from [`Options`]; [`chart`] turns them into expressions of Helm. Nothing here talks to a
//! cluster.

mod agent;
mod chart;
pub mod definition;
mod hooks;
mod marks;
mod objects;
mod permissions;
mod place;
mod policies;
mod settings;
mod workload;
mod yaml;

pub use chart::{File, chart};
pub use marks::resolve;
pub use objects::{AppliedBy, Part, made_by_the_manager, manifests, objects, superset};
pub use permissions::{AGENT_PERMISSIONS, PERMISSIONS, Permission, Scope, role_of_manager};
pub use place::{Place, place};
pub use settings::{Condition, Options, SETTINGS, Setting};

/// Name of nearly everything: ServiceAccount, Deployment, roles and their bindings.
pub const NAME: &str = "flotilla-manager";
/// Name of the Service in front of the webhooks.
pub const WEBHOOK_SERVICE: &str = "flotilla-webhook";
/// Name of the Secret in which the manager keeps the webhooks' certificates.
pub const CERTIFICATES: &str = "flotilla-webhook-certificates";
/// Name of the manager's lease.
pub const LEASE: &str = "flotilla-manager";
/// Where it is installed unless told otherwise.
pub const NAMESPACE: &str = "flotilla-system";
/// Label of everything that an installation consists of, with [`PART_OF`] as its value.
pub const PART_OF_LABEL: &str = "app.kubernetes.io/part-of";
/// Value of [`PART_OF_LABEL`].
pub const PART_OF: &str = "flotilla";
/// Port of the webhooks in a manager's pod.
pub const WEBHOOK_PORT: u16 = 9443;
/// Port of metrics, health and readiness in a manager's pod.
pub const HTTP_PORT: u16 = 8080;
/// Port of health and readiness alone, which kubelets ask.
pub const HEALTH_PORT: u16 = 8081;
/// Name of the agents: ServiceAccount, DaemonSet, role and its binding.
pub const AGENT: &str = "flotilla-agent";
/// Name of the policy that holds the manager to the config maps of launch priority.
pub const MANAGER_CONFIG_MAP_POLICY: &str = "flotilla-manager-configmap";
/// Name of the policy that holds the manager to registrations of its own webhooks.
pub const MANAGER_WEBHOOK_POLICY: &str = "flotilla-manager-webhook";
/// Name of the policy that holds an agent to the pods of its node.
pub const AGENT_POD_POLICY: &str = "flotilla-agent-pod";
/// Name of the policy that holds an agent to events of its node.
pub const AGENT_EVENT_POLICY: &str = "flotilla-agent-event";
/// Port of metrics, health and readiness in an agent's pod.
pub const AGENT_PORT: u16 = 10221;
