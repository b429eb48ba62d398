//! Defaults of Advanced StatefulSets.

use super::table::{Default, Literal, always};
use crate::json::text;

const fn rolling(path: &'static str, value: Literal) -> Default {
    Default {
        path,
        value,
        when: |set| text(set, &["spec", "updateStrategy", "type"]) == "RollingUpdate",
    }
}

/// In the order of STS-7.2.
pub(super) const TABLE: &[Default] = &[
    always("spec.podManagementPolicy", Literal::Text("OrderedReady")),
    always("spec.updateStrategy.type", Literal::Text("RollingUpdate")),
    rolling("spec.updateStrategy.rollingUpdate.partition", Literal::Int(0)),
    rolling("spec.updateStrategy.rollingUpdate.maxUnavailable", Literal::Int(1)),
    rolling(
        "spec.updateStrategy.rollingUpdate.podUpdatePolicy",
        Literal::Text("ReCreate"),
    ),
    rolling("spec.updateStrategy.rollingUpdate.minReadySeconds", Literal::Int(0)),
    always(
        "spec.persistentVolumeClaimRetentionPolicy.whenDeleted",
        Literal::Text("Retain"),
    ),
    always(
        "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
        Literal::Text("Retain"),
    ),
    always("spec.volumeClaimUpdateStrategy.type", Literal::Text("OnDelete")),
    always("spec.replicas", Literal::Int(1)),
    always("spec.revisionHistoryLimit", Literal::Int(10)),
];
