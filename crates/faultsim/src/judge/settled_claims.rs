//! What must be true of claims in the end.

use super::{partition_of, place_of, unordered, wanted};
use crate::storage::is_grown;
use crate::tenants;
use crate::theirs::is_theirs;
use flotilla_engine::wire::Object;
use flotilla_model::{Resource, SetKind, SetRecord};
use flotilla_sim::server::Server;
use serde_json::Value;

/// The status counts the claims of pods that have what their template asks for (rule 3.9).
pub(super) fn counted(server: &Server, kind: SetKind, set: &SetRecord) -> Result<(), String> {
    if !set.spec.expand_claims {
        return Ok(());
    }
    let stored = server.get(kind.resource(), &set.meta.key);
    let said = stored.map_or(Value::Null, |s| s.value()["status"]["volumeClaims"].clone());
    for template in &set.spec.claim_templates {
        let names = wanted(set)
            .into_iter()
            .map(|ordinal| format!("{}-{}-{ordinal}", template.name, set.name()));
        let grown = names.filter(|name| {
            let stored = server.get(Resource::Claims, &set.meta.key.sibling(name.as_str()));
            matches!(stored.and_then(|s| s.object.as_ref()), Some(Object::Claim(claim)) if is_grown(claim, template))
        });
        let grown = grown.count();
        let mut rows = said.as_array().into_iter().flatten();
        let row = rows.find(|row| row["volumeClaimName"] == *template.name);
        let found = row.map_or(&Value::Null, |row| &row["compatibleReadyReplicas"]);
        if *found != grown {
            return Err(format!(
                "the status says that {found} claims of {} are as large as asked, of {grown}",
                template.name
            ));
        }
    }
    Ok(())
}

/// Every wanted pod has its claims, and they belong to whom the policy says (invariant 6, table 1.4.4); where claims are to outlive the set,
/// none goes with it, whether or not it has a pod.
pub(super) fn claims(server: &Server, set: &SetRecord) -> Result<(), String> {
    if !set.spec.retention.delete_with_set {
        let all = tenants::all(server, Resource::Claims).filter_map(|s| s.object.as_ref().map(Object::meta));
        let mut kept = all.filter(|meta| meta.deleted.is_none());
        if let Some(meta) = kept.find(|meta| meta.is_controlled_by(&set.meta.uid)) {
            return Err(format!("claim {} goes with the set, and should not", meta.key.name));
        }
    }
    let counted = unordered::is_unordered(set).then(|| unordered::targets(server, set));
    for ordinal in wanted(set) {
        let place = place_of(ordinal, set).unwrap_or(0);
        let is_target = match &counted {
            Some(targets) => targets.contains(&ordinal),
            None => place >= partition_of(set),
        };
        for template in &set.spec.claim_templates {
            let name = format!("{}-{}-{ordinal}", template.name, set.name());
            let stored = server.get(Resource::Claims, &set.meta.key.sibling(name.as_str()));
            let pod = set.meta.key.sibling(format!("{}-{ordinal}", set.name()));
            let pod = server.get(Resource::Pods, &pod).and_then(|s| s.object.as_ref());
            let mounts = |claim: &str| matches!(pod, Some(Object::Pod(pod)) if pod.mounts(&template.name, claim));
            // The file system of a volume that nobody mounts cannot grow: a webhook of others has given its pod another.
            let is_mounted = mounts(&name);
            let Some(Object::Claim(claim)) = stored.and_then(|s| s.object.as_ref()) else {
                // Where it went with a former set it is not made anew for a pod that runs with another in its place.
                if mounts("swapped") {
                    continue;
                }
                return Err(format!("there is no claim {name}"));
            };
            let is_asked = Some(claim.requested_bytes) >= template.requested_bytes;
            let is_grown = is_grown(claim, template) || is_asked && !is_mounted;
            if set.spec.expand_claims && is_target && !is_grown {
                return Err(format!("claim {name} has not grown"));
            }
            // Users took its pod out of a former set, with which the claim was to go. It stays until that pod goes; a pod that is not
            // running yet would not start with it, and so would not be available.
            if claim.meta.deleted.is_some() {
                continue;
            }
            let owners = claim.meta.owners();
            let goes_with_set = owners.iter().any(|o| o.uid == set.meta.uid);
            if goes_with_set != set.spec.retention.delete_with_set {
                return Err(format!(
                    "claim {name} goes with the set: {goes_with_set}, and should not be so"
                ));
            }
            if let Some(other) = owners.iter().find(|o| o.uid != set.meta.uid && !is_theirs(o)) {
                return Err(format!("claim {name} belongs to {} {}", other.kind, other.name));
            }
        }
    }
    Ok(())
}
