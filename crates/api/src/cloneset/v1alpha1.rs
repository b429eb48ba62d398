//! CloneSet, `apps.kruise.io/v1alpha1`: what clients of that time read and write. The strategies have another shape than in `v1beta1`;
//! conversion carries what this version lacks in an annotation.

use super::{CloneSetStatus, ScatterTerm};
use crate::common::{LabelSelector, claim_templates, int_or_string, pod_template};
use crate::workload::{InPlaceUpdateStrategy, Lifecycle, PriorityStrategy};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

// Columns, names and subresources are those of the hub; the definition takes them from there.
/// A CloneSet, as v1alpha1 has it. What this version lacks of a stored set stands in the annotation flotilla.rs/hub-fields, which is to be
/// left as it is. Use v1beta1.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1alpha1",
    kind = "CloneSet",
    plural = "clonesets",
    singular = "cloneset",
    namespaced,
    status = "CloneSetStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct CloneSetSpec {
    /// How many pods there should be, at most 1000000. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub replicas: Option<i32>,
    /// Which pods belong to the set. Must not be empty, must match the labels of the template, and cannot be changed.
    pub selector: LabelSelector,
    /// The pod to make. A change of it starts a rollout. Fields that this version of Flotilla does not know are kept. restartPolicy must
    /// be Always or absent, and activeDeadlineSeconds cannot be used.
    #[schemars(schema_with = "pod_template")]
    pub template: Value,
    /// Claims that each pod gets, one of each template, named TEMPLATE-SET-ID. A pod's volume of the same name is replaced by the claim.
    /// A change concerns pods that are made from then on, and is no rollout by itself. At most 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "claim_templates")]
    pub volume_claim_templates: Option<Vec<Value>>,
    /// How pods are added and removed. The label apps.kruise.io/cloneset-scaling-exclude-preparing-delete says what v1beta1 has a field for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_strategy: Option<ScaleStrategy>,
    /// How pods come to a new template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,
    /// How many revisions that no pod uses are kept for going back. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: Option<i32>,
    /// For how many seconds a pod must have been ready before it counts as available. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: Option<i32>,
    /// What has to happen before pods are deleted, updated in place or taken into service. A hook without marks holds nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// After how many seconds without progress the condition Progressing says so. Nothing else follows from it. Must be more than
    /// minReadySeconds. Default, and at 2147483647: never, and there is no such condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub progress_deadline_seconds: Option<i32>,
}

/// How pods are added and removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleStrategy {
    /// Names of pods to delete, each once. While replicas stays as it is, others are made for them. Flotilla takes away the names of
    /// pods that are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(inner(length(max = 253)))]
    pub pods_to_delete: Option<Vec<String>>,
    /// No pod is added while this many are unavailable, as a number or a percentage of replicas (rounded up). Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    pub max_unavailable: Option<IntOrString>,
    /// Whether claims of pods that were deleted by others than Flotilla are deleted. Default: they are kept, and used by the pods that
    /// replace these.
    #[serde(default, rename = "disablePVCReuse", skip_serializing_if = "Option::is_none")]
    pub disable_pvc_reuse: Option<bool>,
}

/// How pods come to a new template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// ReCreate (default): a pod is deleted and another made. InPlaceIfPossible: its containers are restarted without the pod being
    /// deleted where the change allows it. InPlaceOnly: never deleted. OnDelete: a pod is made from the new template when somebody
    /// deletes the old one.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// How many pods stay at the old revision, as a number or a percentage of replicas (rounded up, but below 100% at least one pod is
    /// updated). Default: 0. Raising it takes nothing back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    pub partition: Option<IntOrString>,
    /// How many pods may be unavailable because of updates and deletions, as a number or a percentage of replicas (rounded up, or down
    /// if maxSurge is set). Default: 20%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    pub max_unavailable: Option<IntOrString>,
    /// How many pods more than replicas there may be, so that new ones are available before old ones go, as a number or a percentage of
    /// replicas (rounded up). Default: 0. Must be 0 with InPlaceOnly; not used for pods that can be updated in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    pub max_surge: Option<IntOrString>,
    /// Stops updating pods until it is false again. Pods are added and removed all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Which pods are updated first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_strategy: Option<PriorityStrategy>,
    /// Pods that are updated as far from one another as possible. At most 64 terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub scatter_strategy: Option<Vec<ScatterTerm>>,
    /// Details of updates in place. What it says of images pulled ahead counts where the annotation of that meaning is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update_strategy: Option<InPlaceUpdateStrategy>,
}
