//! Advanced StatefulSet, `apps.kruise.io/v1beta1`.
//!
//! The types are what a client in Rust reads and writes; the schema of the custom resource definition is derived from them, so the
//! comments on fields are what `kubectl explain` shows. Rules that reach beyond one field are in `rules`.

pub(crate) mod rules;
pub mod v1alpha1;

use crate::common::{Condition, LabelSelector, claim_templates, int_or_string, pod_template};
use crate::workload::{InPlaceUpdateStrategy, Lifecycle, PriorityStrategy};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

// The columns of `kubectl get` repeat their parameters; clippy takes these for attributes of the struct.
#[allow(clippy::duplicated_attributes)]
/// An Advanced StatefulSet manages pods with stable names and storage, as a StatefulSet does, and can update several at a time,
/// out of order, in part, and with ordinals left out.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1beta1",
    kind = "StatefulSet",
    plural = "statefulsets",
    singular = "statefulset",
    shortname = "sts",
    shortname = "asts",
    namespaced,
    status = "StatefulSetStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.labelSelector"
    ),
    printcolumn(
        name = "DESIRED",
        type_ = "integer",
        json_path = ".spec.replicas",
        description = "How many pods are wanted."
    ),
    printcolumn(
        name = "CURRENT",
        type_ = "integer",
        json_path = ".status.replicas",
        description = "How many pods there are."
    ),
    printcolumn(
        name = "UPDATED",
        type_ = "integer",
        json_path = ".status.updatedReplicas",
        description = "How many pods are at the update revision."
    ),
    printcolumn(
        name = "READY",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "How many pods are ready."
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "When the set was created."
    ),
    printcolumn(
        name = "CONTAINERS",
        type_ = "string",
        json_path = ".spec.template.spec.containers[*].name",
        priority = 1,
        description = "Names of the containers."
    ),
    printcolumn(
        name = "IMAGES",
        type_ = "string",
        json_path = ".spec.template.spec.containers[*].image",
        priority = 1,
        description = "Images of the containers."
    )
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
    /// the claim. A change concerns claims that are made from then on; see volumeClaimUpdateStrategy for existing ones. At most 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "claim_templates")]
    pub volume_claim_templates: Option<Vec<Value>>,
    /// What happens to existing claims when their template changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim_update_strategy: Option<VolumeClaimUpdateStrategy>,
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
    /// Whether claims are deleted with the set, or with pods that are scaled away. Default: neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_retention_policy: Option<RetentionPolicy>,
    /// Where ordinals begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordinals: Option<StatefulSetOrdinals>,
    /// Ordinals that no pod may have, as numbers (3) or inclusive ranges ("3-5"). The set makes as many pods as replicas says, with the
    /// ordinals that follow. Reserving the ordinal of a pod moves that pod to a new ordinal at the end. At most 8192 entries; use
    /// ranges for more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "ordinals")]
    pub reserve_ordinals: Option<Vec<IntOrString>>,
    /// What has to happen before pods are deleted, updated in place or taken into service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// How fast the set grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_strategy: Option<ScaleStrategy>,
    /// Pods that match one of these selectors keep container resources of their own: if their revision differs from the update
    /// revision only in those, they are not updated, and count as updated. An extension of Flotilla.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub special_pods_selectors: Option<Vec<LabelSelector>>,
}

/// What happens to existing claims when their template changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeClaimUpdateStrategy {
    /// OnDelete (default): nothing; claims made from then on follow the new template. OnPodRollingUpdate: when more storage is
    /// requested, claims are expanded pod by pod, in the order and within the budget of a rolling update; the storage class must allow
    /// expansion, and templates may not be added or removed, nor made smaller except back to what was asked for before.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
}

/// How pods are replaced when the template changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// RollingUpdate (default): Flotilla replaces pods, as rollingUpdate says. OnDelete: a pod follows the new template when somebody
    /// deletes it.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// Details of a rolling update. Not with OnDelete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// Details of a rolling update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// How many pods stay at the old revision: those with the lowest ordinals, or any if unorderedUpdate is set. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub partition: Option<i32>,
    /// How many pods may be unavailable during the update, as a number or a percentage of replicas (rounded down, at least 1).
    /// Default: 1. Only 1 unless podManagementPolicy is Parallel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    pub max_unavailable: Option<IntOrString>,
    /// ReCreate (default): a pod is deleted and made anew. InPlaceIfPossible: its containers are restarted without the pod being
    /// deleted where the change allows it. InPlaceOnly: never deleted. The latter two need the readiness gate InPlaceUpdateReady in
    /// the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_update_policy: Option<String>,
    /// Stops replacing pods until it is false again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Replace pods in another order than from the highest ordinal down. Only if podManagementPolicy is Parallel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unordered_update: Option<UnorderedUpdate>,
    /// Details of updates in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update_strategy: Option<InPlaceUpdateStrategy>,
    /// For how many seconds a pod must have been ready before it counts as available, 0 to 300. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 300))]
    pub min_ready_seconds: Option<i32>,
}

/// In which order pods are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnorderedUpdate {
    /// Which pods come first. Without it: from the highest ordinal down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_strategy: Option<PriorityStrategy>,
}

/// Whether claims are deleted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionPolicy {
    /// When the set is deleted: Retain (default) or Delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_deleted: Option<String>,
    /// When a pod is scaled away: Retain (default) or Delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_scaled: Option<String>,
}

/// Where ordinals begin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetOrdinals {
    /// The lowest ordinal. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub start: Option<i32>,
}

/// How fast the set grows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleStrategy {
    /// How many pods may be unavailable while pods are added, as a number or a percentage of replicas (rounded down, at least 1).
    /// Default: no limit. Only 1 unless podManagementPolicy is Parallel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    pub max_unavailable: Option<IntOrString>,
}

/// How the set is, as Flotilla last saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many pods there are.
    #[serde(default)]
    pub replicas: i32,
    /// How many of them are running and ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// How many have been ready for minReadySeconds.
    #[serde(default)]
    pub available_replicas: i32,
    /// How many are at the current revision.
    #[serde(default)]
    pub current_replicas: i32,
    /// How many are at the update revision.
    #[serde(default)]
    pub updated_replicas: i32,
    /// How many at the update revision are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_ready_replicas: Option<i32>,
    /// How many at the update revision are available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_available_replicas: Option<i32>,
    /// The revision before the rollout; equal to updateRevision when the rollout is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// The revision of the present template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// How often the name of a new revision was taken already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// spec.selector as text, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// What is wrong or waited for: FailedCreatePod, FailedUpdatePod, InvalidSpec, Progressing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// Claims of pods that were made from claim templates which the set no longer has, and that no pod uses any more. They are kept
    /// until you delete them. An extension of Flotilla.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused_volume_claims: Option<Vec<String>>,
    /// How many claims follow each template, if claims are expanded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claims: Option<Vec<VolumeClaimStatus>>,
}

/// How many claims follow a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeClaimStatus {
    /// Name of the template.
    pub volume_claim_name: String,
    /// How many claims of existing pods request what the template asks for.
    pub compatible_replicas: i32,
    /// How many of those have got it.
    pub compatible_ready_replicas: i32,
}

/// Schema of `reserveOrdinals`.
fn ordinals(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "array", "maxItems": 8192, "items": {"x-kubernetes-int-or-string": true, "maxLength": 32}})
}
