//! Parts that several kinds have in common.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Selects objects by their labels. All parts must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that an object must have, with exactly these values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_map")]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Requirements on labels; all must be met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelectorRequirement {
    /// The label's key.
    #[schemars(length(max = 317))]
    pub key: String,
    /// In, NotIn, Exists or DoesNotExist.
    #[schemars(length(max = 16))]
    pub operator: String,
    /// Values for In and NotIn; must be absent for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub values: Option<Vec<String>>,
}

/// A condition of an object, as an observer last saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
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

/// Schema of labels and their values: valid values only, and no more of them than rules can look at.
pub(crate) fn label_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "maxProperties": 128, "additionalProperties": label_value()})
}

/// Schema of the value of a label
/// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>).
fn label_value() -> Value {
    serde_json::json!({"type": "string", "maxLength": 63, "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"})
}

/// Schema of a number or a text.
pub(crate) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "maxLength": 32})
}

/// Schema of a pod template: only the fields that rules look at are declared; all others are kept as they are, also those of a newer
/// Kubernetes than the one that this was written for.
pub(crate) fn pod_template(_: &mut SchemaGenerator) -> Schema {
    let text = || serde_json::json!({"type": "string"});
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "metadata": open(&serde_json::json!({
                "labels": {"type": "object", "maxProperties": 256, "additionalProperties": label_value()},
                "annotations": {"type": "object", "maxProperties": 1024, "additionalProperties": text()},
                "finalizers": {"type": "array", "items": text()},
                // Written by Go clients, always null.
                "creationTimestamp": {"type": "string", "nullable": true},
            })),
            "spec": open(&serde_json::json!({
                "restartPolicy": text(),
                "activeDeadlineSeconds": {"type": "integer", "format": "int64"},
                "readinessGates": {"type": "array", "maxItems": 64, "items": open(&serde_json::json!({"conditionType": {"type": "string", "maxLength": 317}}))},
                "containers": {"type": "array", "items": open(&serde_json::json!({"name": text(), "image": text()}))},
            })),
        },
    })
}

/// Schema of claim templates, with the same openness as [`pod_template`].
pub(crate) fn claim_templates(_: &mut SchemaGenerator) -> Schema {
    let quantities = serde_json::json!({
        "type": "object",
        "additionalProperties": {"x-kubernetes-int-or-string": true, "maxLength": 64},
    });
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "metadata": open(&serde_json::json!({
                    "name": {"type": "string", "maxLength": 253},
                    "creationTimestamp": {"type": "string", "nullable": true},
                })),
                "spec": open(&serde_json::json!({
                    "storageClassName": {"type": "string", "maxLength": 253},
                    "accessModes": {"type": "array", "maxItems": 8, "items": {"type": "string", "maxLength": 64}},
                    "volumeMode": {"type": "string", "maxLength": 64},
                    "resources": open(&serde_json::json!({"requests": quantities})),
                })),
            },
        },
    })
}

/// An object with some declared fields that keeps all others.
fn open(properties: &Value) -> Value {
    serde_json::json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": properties})
}
