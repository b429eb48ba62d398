//! Parts that the kinds which own pods have in common.

use crate::common::{LabelSelector, int_or_string, label_map};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which pods come first: one of the two ways.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PriorityStrategy {
    /// By the number at the end of a label's value: the first of these labels that a pod has counts, higher numbers first. Pods that
    /// have none of the labels come last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub order_priority: Option<Vec<OrderPriorityTerm>>,
    /// By weight: the weights of all terms that match a pod add up, and higher sums come first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub weight_priority: Option<Vec<WeightPriorityTerm>>,
}

/// A label by which pods are ranked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrderPriorityTerm {
    /// The label's key.
    #[schemars(length(max = 317))]
    pub ordered_key: String,
}

/// A weight for the pods that match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WeightPriorityTerm {
    /// The weight, 0 to 100.
    pub weight: i32,
    /// Which pods get it.
    pub match_selector: LabelSelector,
}

/// Details of updates in place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceUpdateStrategy {
    /// For how many seconds a pod is not ready before its containers are changed, so that no more requests reach it. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub grace_period_seconds: Option<i32>,
    /// On how many nodes images are pulled at once ahead of an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    pub image_pre_download_parallelism: Option<IntOrString>,
    /// How many seconds a pull may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub image_pre_download_timeout_seconds: Option<i32>,
    /// How many pods must be updated and ready before images are pulled ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub image_pre_download_min_updated_ready_pods: Option<i32>,
}

/// What has to happen around changes of pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// A pod with one of these marks is deleted only after they have been taken away. Only for deletions by Flotilla.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_delete: Option<LifecycleHook>,
    /// A pod with one of these marks is updated in place only after they have been taken away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update: Option<LifecycleHook>,
    /// A new pod counts as available only after it has got all of these marks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_normal: Option<LifecycleHook>,
}

/// Marks on a pod by which somebody else takes part in its life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleHook {
    /// Labels, with exactly these values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_map")]
    pub labels_handler: Option<BTreeMap<String, String>>,
    /// Finalizers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(max = 317)))]
    pub finalizers_handler: Option<Vec<String>>,
    /// Whether the pod is not ready while it waits for this hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_pod_not_ready: Option<bool>,
}
