//! Native StatefulSets.

use super::{Errors, claim, default, items, pod, pod_defaults, text};
use flotilla_apimachinery::field;
use flotilla_apimachinery::selector::LabelSelector;
use serde_json::{Value, json};

pub(super) fn defaults(set: &mut Value) {
    let Some(spec) = set.get_mut("spec").filter(|s| s.is_object()) else {
        return;
    };
    default(spec, "podManagementPolicy", "OrderedReady");
    default(spec, "replicas", 1);
    default(spec, "revisionHistoryLimit", 10);
    default(spec, "updateStrategy", json!({}));
    let strategy = &mut spec["updateStrategy"];
    default(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        default(strategy, "rollingUpdate", json!({}));
        default(&mut strategy["rollingUpdate"], "partition", 0);
    }
    default(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
    for field in ["whenDeleted", "whenScaled"] {
        default(&mut spec["persistentVolumeClaimRetentionPolicy"], field, "Retain");
    }
    if spec["template"]["spec"].is_object() {
        pod_defaults::spec(&mut spec["template"]["spec"]);
    }
    for template in items(spec, "volumeClaimTemplates") {
        template["apiVersion"] = json!("v1");
        template["kind"] = json!("PersistentVolumeClaim");
        claim::defaults(template);
        template["status"] = json!({"phase": "Pending"});
    }
}

/// Fields that may change after creation.
const MUTABLE: [&str; 8] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
    "maxUnavailable",
];

pub(super) fn validate(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let spec = &new["spec"];
    if let Some(old) = old {
        let counts = |fields: &Value| {
            let mut fields = fields.clone();
            if let Some(map) = fields.as_object_mut() {
                map.retain(|name, _| !MUTABLE.contains(&name.as_str()));
            }
            fields
        };
        if counts(&old["spec"]) != counts(spec) {
            let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
            errors.push(field::Error::without_value(field::Fault::Forbidden, "spec", why));
        }
    }
    let replicas = spec["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let why = "must be greater than or equal to 0";
        errors.push(field::Error::invalid("spec.replicas", json!(replicas), why));
    }
    selector(spec, errors);
    let templates = spec["volumeClaimTemplates"].as_array().into_iter().flatten();
    let claims = templates.filter_map(|claim| claim["metadata"]["name"].as_str());
    pod::validate_template(&spec["template"]["spec"], "spec.template.spec", claims, errors);
    let policy = text(&spec["template"]["spec"], "restartPolicy");
    if matches!(policy, "OnFailure" | "Never") {
        let path = "spec.template.spec.restartPolicy";
        errors.push(field::Error::not_supported(path, json!(policy), ["Always"]));
    }
}

fn selector(spec: &Value, errors: &mut Errors) {
    match LabelSelector::from_json(&spec["selector"]) {
        Ok(None) => errors.push(field::Error::required("spec.selector", "")),
        Ok(Some(selector)) if selector.is_empty() => {
            let why = "empty selector is invalid for statefulset";
            errors.push(field::Error::invalid("spec.selector", spec["selector"].clone(), why));
        }
        Ok(Some(selector)) => {
            let labels = &spec["template"]["metadata"]["labels"];
            if !selector.matches(Some(labels)) {
                let why = "`selector` does not match template `labels`";
                errors.push(field::Error::invalid(
                    "spec.template.metadata.labels",
                    labels.clone(),
                    why,
                ));
            }
        }
        Err(why) => errors.push(field::Error::invalid("spec.selector", spec["selector"].clone(), why)),
    }
}

pub(super) fn validate_status(set: &Value, errors: &mut Errors) {
    let status = &set["status"];
    for count in [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    ] {
        let number = status[count].as_i64().unwrap_or(0);
        if number < 0 {
            let why = "must be greater than or equal to 0";
            errors.push(field::Error::invalid(format!("status.{count}"), json!(number), why));
        }
    }
    let replicas = status["replicas"].as_i64().unwrap_or(0);
    for count in [
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    ] {
        let number = status[count].as_i64().unwrap_or(0);
        if number > replicas {
            let why = "cannot be greater than status.replicas";
            errors.push(field::Error::invalid(format!("status.{count}"), json!(number), why));
        }
    }
}
