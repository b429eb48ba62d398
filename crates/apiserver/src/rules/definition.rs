//! CustomResourceDefinitions: their defaults, and the conditions by which they say that they are served.

use super::{Errors, default, each, items, text};
use flotilla_apimachinery::field;
use serde_json::{Value, json};

pub(super) fn defaults(crd: &mut Value) {
    let spec = &mut crd["spec"];
    default(spec, "conversion", json!({"strategy": "None"}));
    let kind = text(&spec["names"], "kind").to_owned();
    default(&mut spec["names"], "singular", kind.to_lowercase());
    default(&mut spec["names"], "listKind", format!("{kind}List"));
    for version in items(spec, "versions") {
        for column in items(version, "additionalPrinterColumns") {
            if column["priority"] == 0 {
                column.as_object_mut().map(|c| c.remove("priority"));
            }
        }
    }
    status(crd);
}

/// The server has not yet looked at it; see the caretaker.
fn status(crd: &mut Value) {
    if crd["status"].get("acceptedNames").is_none() {
        let stored: Vec<Value> = each(&crd["spec"], "versions")
            .filter(|v| v["storage"] == true)
            .map(|v| v["name"].clone())
            .collect();
        crd["status"] =
            json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored});
    }
}

/// The status of a definition whose names are accepted and which is served.
pub(crate) fn established(crd: &Value, now: &Value) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now, "observedGeneration": 1});
    json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": crd["spec"]["names"],
        "storedVersions": crd["status"]["storedVersions"],
    })
}

pub(super) fn validate(crd: &Value, errors: &mut Errors) {
    let spec = &crd["spec"];
    let expected = format!("{}.{}", text(&spec["names"], "plural"), text(spec, "group"));
    let name = text(&crd["metadata"], "name");
    if name != expected {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(field::Error::invalid("metadata.name", json!(name), why));
    }
    if each(spec, "versions").filter(|v| v["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(field::Error::invalid("spec.versions", spec["versions"].clone(), why));
    }
}
