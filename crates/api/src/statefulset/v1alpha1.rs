//! Advanced StatefulSet, `apps.kruise.io/v1alpha1`: what clients of that time read and write. It lacks fields of `v1beta1`; conversion
//! carries these in an annotation.

use super::{StatefulSetStatus, UpdateStrategy};
use crate::common::{LabelSelector, claim_templates, pod_template};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// This version.
pub const VERSION: &str = "v1alpha1";
/// The version that is stored, and that this one is converted from and to.
pub const HUB: &str = "v1beta1";

/// All fields of `spec` in this version. Others of the hub go into the annotation.
pub const SPEC_FIELDS: &[&str] = &[
    "replicas",
    "selector",
    "template",
    "volumeClaimTemplates",
    "serviceName",
    "podManagementPolicy",
    "updateStrategy",
    "revisionHistoryLimit",
];

// Columns, names and subresources are those of the hub; the definition takes them from there.
/// An Advanced StatefulSet, as v1alpha1 has it. It lacks fields of v1beta1: those of a stored set stand in the annotation
/// flotilla.rs/hub-fields, which is to be left as it is. Use v1beta1.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1alpha1",
    kind = "StatefulSet",
    plural = "statefulsets",
    singular = "statefulset",
    namespaced,
    status = "StatefulSetStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetSpec {
    /// How many pods there should be, at most 1000000. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub replicas: Option<i32>,
    /// Which pods belong to the set. Must not be empty, must match the labels of the template, and cannot be changed.
    pub selector: LabelSelector,
    /// The pod to make for each ordinal. A change of it starts a rollout. Fields that this version of Flotilla does not know are
    /// kept. restartPolicy must be Always or absent, and activeDeadlineSeconds cannot be used.
    #[schemars(schema_with = "pod_template")]
    pub template: Value,
    /// Claims that each pod gets, one of each template, named TEMPLATE-SET-ORDINAL. A pod's volume of the same name is replaced by
    /// the claim. A change concerns claims that are made from then on. At most 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "claim_templates")]
    pub volume_claim_templates: Option<Vec<Value>>,
    /// The headless Service that gives the pods their names in DNS. It must exist before the set, and cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_name: Option<String>,
    /// OrderedReady (default): pods are created one after the other, each when those before it are available, and removed in
    /// reverse. Parallel: all at once. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_management_policy: Option<String>,
    /// How pods are replaced when the template changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,
    /// How many revisions that no pod uses are kept for going back. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: Option<i32>,
}
