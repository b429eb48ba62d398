//! Defaults of CloneSets (CS-7).

use super::table::{Default, Literal, always, fill};
use super::template::leaves_policy_out;
use crate::json::{at, list_mut, text};
use serde_json::{Value, json};

const fn rolling(path: &'static str, value: Literal) -> Default {
    Default {
        path,
        value,
        when: |set| text(set, &["spec", "updateStrategy", "type"]) == "RollingUpdate",
    }
}

const TABLE: &[Default] = &[
    always("spec.replicas", Literal::Int(1)),
    always("spec.revisionHistoryLimit", Literal::Int(10)),
    always("spec.minReadySeconds", Literal::Int(0)),
    always("spec.updateStrategy.type", Literal::Text("RollingUpdate")),
    rolling("spec.updateStrategy.rollingUpdate.partition", Literal::Int(0)),
    rolling("spec.updateStrategy.rollingUpdate.maxUnavailable", Literal::Text("20%")),
    rolling("spec.updateStrategy.rollingUpdate.maxSurge", Literal::Int(0)),
    rolling(
        "spec.updateStrategy.rollingUpdate.podUpdatePolicy",
        Literal::Text("ReCreate"),
    ),
];

pub(super) fn fill_in(set: &mut Value) {
    fill(set, TABLE);
    let rolling = set.pointer_mut("/spec/updateStrategy/rollingUpdate");
    let in_place = rolling.filter(|r| text(r, &["podUpdatePolicy"]).starts_with("InPlace"));
    if let Some(rolling) = in_place.filter(|r| at(r, &["inPlaceUpdateStrategy"]).is_none()) {
        rolling["inPlaceUpdateStrategy"] = json!({});
    }
}

/// Init containers have the rule of Kubernetes itself: what moves is pulled always.
pub(super) fn before_template(template: &mut Value, before: Option<&Value>) {
    let Some(spec) = template.get_mut("spec") else { return };
    for container in list_mut(spec, "initContainers") {
        let image = text(container, &["image"]);
        let last = image.rsplit('/').next().unwrap_or_default();
        let is_moving = !last.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest");
        let is_left_out = text(container, &["imagePullPolicy"]).is_empty() && container.is_object();
        if is_left_out && !leaves_policy_out(before, "initContainers", container) {
            container["imagePullPolicy"] = json!(if is_moving { "Always" } else { "IfNotPresent" });
        }
    }
}
