//! What must be true of claims in the end.

use super::place_of;
use crate::storage::is_grown;
use flotilla_engine::wire::Object;
use flotilla_model::{Resource, SetRecord};
use flotilla_sim::server::Server;

/// Every wanted pod has its claims, and they belong to whom the policy says (invariant 6, table 1.4.4).
pub(super) fn claims(server: &Server, set: &SetRecord) -> Result<(), String> {
    for ordinal in set.spec.ordinals().iter() {
        for template in &set.spec.claim_templates {
            let name = format!("{}-{}-{ordinal}", template.name, set.name());
            let stored = server.get(Resource::Claims, &set.meta.key.sibling(name.as_str()));
            let Some(Object::Claim(claim)) = stored.and_then(|s| s.object.as_ref()) else {
                return Err(format!("there is no claim {name}"));
            };
            let place = place_of(ordinal, set).unwrap_or(0);
            let partition = usize::try_from(set.spec.partition()).unwrap_or(0);
            // The file system of a volume that nobody mounts cannot grow: a webhook of others has given its pod another.
            let is_mounted = server.all(Resource::Pods).any(|s| match &s.object {
                Some(Object::Pod(pod)) => pod.mounts(&template.name, &name),
                _ => false,
            });
            let is_asked = Some(claim.requested_bytes) >= template.requested_bytes;
            let is_grown = is_grown(claim, template) || is_asked && !is_mounted;
            if set.spec.expand_claims && place >= partition && !is_grown {
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
            if let Some(other) = owners.iter().find(|o| o.uid != set.meta.uid) {
                return Err(format!("claim {name} belongs to {} {}", other.kind, other.name));
            }
        }
    }
    Ok(())
}
