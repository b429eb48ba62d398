//! What new pods refer to, and was not found in the cluster: they would not come up, however well the rest goes.

use crate::report::{Action, ClaimAction, SetPlan};
use crate::state::{State, list};
use serde_json::Value;

/// One sentence for each thing that new pods of the set need and that was not found. `spec` is that of the set.
pub(crate) fn missing(state: &State, set: &SetPlan, spec: &Value) -> Vec<String> {
    let pod = &spec["template"]["spec"];
    let mut missing = Vec::new();
    let is_there = |kind: (&str, &str), namespace: Option<&str>, name: &str| {
        let mut all = state.all(kind.0, kind.1).map(|object| &object["metadata"]);
        all.any(|meta| meta["name"] == name && namespace.is_none_or(|namespace| meta["namespace"] == namespace))
    };
    let here = Some(set.namespace.as_str());
    let makes_pods = set
        .steps()
        .any(|step| matches!(step.action, Action::Create | Action::Replace));
    if makes_pods {
        let account = pod["serviceAccountName"].as_str().unwrap_or_default();
        // Every namespace is given the account `default`.
        if !matches!(account, "" | "default") && !is_there(("", "serviceaccounts"), here, account) {
            missing.push(format!("service account {account} was not found"));
        }
        let templates: Vec<&Value> = list(&spec["volumeClaimTemplates"])
            .map(|template| &template["metadata"]["name"])
            .collect();
        for volume in list(&pod["volumes"]).filter(|volume| !templates.contains(&&volume["name"])) {
            let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
            if let Some(claim) = claim.filter(|claim| !is_there(("", "persistentvolumeclaims"), here, claim)) {
                missing.push(format!("claim {claim} was not found"));
            }
        }
        let class = pod["priorityClassName"].as_str().unwrap_or_default();
        let is_built_in = class.is_empty() || class.starts_with("system-");
        if !is_built_in && !is_there(("scheduling.k8s.io", "priorityclasses"), None, class) {
            missing.push(format!("priority class {class} was not found"));
        }
    }
    if set.claims.iter().any(|claim| claim.action == ClaimAction::Create) {
        for template in list(&spec["volumeClaimTemplates"]) {
            let class = template["spec"]["storageClassName"].as_str().unwrap_or_default();
            if !class.is_empty() && !is_there(("storage.k8s.io", "storageclasses"), None, class) {
                missing.push(format!("storage class {class} was not found"));
            }
        }
    }
    missing.sort();
    missing.dedup();
    let of = |what: String| format!("{} in namespace {}: {what}", set.set, set.namespace);
    missing.into_iter().map(of).collect()
}
