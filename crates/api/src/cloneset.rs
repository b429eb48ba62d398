//! CloneSet, `apps.kruise.io/v1beta1`: pods that can stand in for one another.

pub(crate) mod rules;
pub mod v1alpha1;

use crate::common::{LabelSelector, claim_templates, int_or_string, pod_template};
use crate::workload::{InPlaceUpdateStrategy, Lifecycle, PriorityStrategy};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

// The columns of `kubectl get` repeat their parameters; clippy takes these for attributes of the struct.
#[allow(clippy::duplicated_attributes)]
/// A CloneSet manages pods that can stand in for one another, as a Deployment does, and can change them in place, give each pod claims
/// of its own, delete the pods that you name, and keep any number of them at the old revision.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1beta1",
    kind = "CloneSet",
    plural = "clonesets",
    singular = "cloneset",
    shortname = "clone",
    namespaced,
    status = "CloneSetStatus",
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
        name = "UPDATED",
        type_ = "integer",
        json_path = ".status.updatedReplicas",
        description = "How many pods are at the update revision."
    ),
    printcolumn(
        name = "UPDATED_READY",
        type_ = "integer",
        json_path = ".status.updatedReadyReplicas",
        description = "How many pods at the update revision are ready."
    ),
    printcolumn(
        name = "UPDATED_AVAILABLE",
        type_ = "integer",
        json_path = ".status.updatedAvailableReplicas",
        description = "How many pods at the update revision are available."
    ),
    printcolumn(
        name = "READY",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "How many pods are ready."
    ),
    printcolumn(
        name = "TOTAL",
        type_ = "integer",
        json_path = ".status.replicas",
        description = "How many pods there are."
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
    ),
    printcolumn(
        name = "SELECTOR",
        type_ = "string",
        json_path = ".status.labelSelector",
        priority = 1,
        description = "Which pods belong to the set."
    )
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
    /// How pods are added and removed.
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
    /// Whether claims of pods that were deleted by others than Flotilla are kept, and used by the pods that replace these. Default: they
    /// are deleted.
    #[serde(default, rename = "enablePVCReuse", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub enable_pvc_reuse: Option<bool>,
    /// Whether pods that wait for their preDelete hook are replaced at once, instead of when they are gone. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_preparing_delete: Option<bool>,
}

/// How pods come to a new template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// RollingUpdate (default): Flotilla updates pods, as rollingUpdate says. OnDelete: a pod is made from the new template when
    /// somebody deletes the old one.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// Details. With OnDelete, maxUnavailable and maxSurge are about pods that you ask to have deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// Details of a rolling update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
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
    /// ReCreate (default): a pod is deleted and another made. InPlaceIfPossible: its containers are restarted without the pod being
    /// deleted where the change allows it. InPlaceOnly: never deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_update_policy: Option<String>,
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
    /// Details of updates in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update_strategy: Option<InPlaceUpdateStrategy>,
}

/// Pods with this label are not updated one right after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScatterTerm {
    /// The label's key.
    #[schemars(length(max = 317))]
    pub key: String,
    /// The label's value.
    #[schemars(length(max = 63))]
    pub value: String,
}

/// How the set is, as Flotilla last saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloneSetStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many pods there are that have neither ended nor been deleted.
    #[serde(default)]
    pub replicas: i32,
    /// How many of them are running and ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// How many have been ready for minReadySeconds.
    #[serde(default)]
    pub available_replicas: i32,
    /// How many are at the update revision.
    #[serde(default)]
    pub updated_replicas: i32,
    /// How many at the update revision are ready.
    #[serde(default)]
    pub updated_ready_replicas: i32,
    /// How many at the update revision are available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_available_replicas: Option<i32>,
    /// How many pods should come to the update revision: all but those that the partition keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_updated_replicas: Option<i32>,
    /// The last revision that all pods were at; equal to updateRevision when the rollout is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// The revision of the present template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// How often the name of a new revision was taken already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// What is wrong or waited for: FailedScale, FailedUpdate, InvalidSpec, InPlaceUpdateStuck, and Progressing with a progress deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<CloneSetCondition>>,
    /// spec.selector as text, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
}

/// A condition of a set, as Flotilla last saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloneSetCondition {
    /// What the condition is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// When anything about it last changed; of Progressing, when there last was progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_update_time: Option<String>,
    /// When the status last changed from one value to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: Option<String>,
    /// A word for programs: why the condition has this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people: what is the case, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
