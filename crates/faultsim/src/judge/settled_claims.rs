//! What must be true of claims in the end.

use super::truth::pod_of;
use super::{Places, partition_of, place_of, unordered};
use crate::claim_templates::{of_pod, of_set};
use crate::storage::is_grown;
use crate::tenants;
use crate::theirs::is_theirs;
use flotilla_engine::wire::Object;
use flotilla_model::set::{ClaimTemplate, UpdateKind};
use flotilla_model::{Resource, SetKind, SetRecord};
use flotilla_sim::server::Server;
use serde_json::Value;

/// The status counts the claims of pods that have what their template asks for (STS-3.9).
pub(super) fn counted(server: &Server, kind: SetKind, set: &SetRecord) -> Result<(), String> {
    if !set.spec.expand_claims {
        return Ok(());
    }
    let stored = server.get(kind.resource(), &set.meta.key);
    let said = stored.map_or(Value::Null, |s| s.value()["status"]["volumeClaims"].clone());
    for template in &set.spec.claim_templates {
        let names = Places::of(set)
            .iter()
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

/// Whether a revision of the set tells of a claim template of this name.
fn is_recorded(server: &Server, set: &SetRecord, template: &str) -> bool {
    let revisions = tenants::all(server, Resource::Revisions).filter_map(|s| match s.object.as_ref() {
        Some(Object::Revision(revision)) => Some(revision),
        _ => None,
    });
    let mut own = revisions.filter(|revision| revision.meta.is_controlled_by(&set.meta.uid));
    own.any(|revision| {
        let mut recorded = revision.claim_templates.iter().flat_map(|record| record.names());
        recorded.any(|name| name == template)
    })
}

/// Which wanted ordinals the update has to bring to what is asked for today.
pub(super) fn targets<'s>(server: &Server, set: &'s SetRecord) -> impl Fn(i64) -> bool + use<'s> {
    let counted = unordered::is_unordered(set).then(|| unordered::targets(server, set));
    move |ordinal| match &counted {
        Some(targets) => targets.contains(&ordinal),
        None => place_of(ordinal, set).unwrap_or(0) >= partition_of(set),
    }
}

/// Every wanted pod has its claims, and they belong to whom the policy says (STS-I6, table STS-1.4.4); where claims are to outlive the set,
/// none goes with it, whether or not it has a pod.
pub(super) fn claims(server: &Server, set: &SetRecord) -> Result<(), String> {
    if !set.spec.retention.delete_with_set {
        let all = tenants::all(server, Resource::Claims).filter_map(|s| s.object.as_ref().map(Object::meta));
        let mut kept = all.filter(|meta| meta.deleted.is_none());
        if let Some(meta) = kept.find(|meta| meta.is_controlled_by(&set.meta.uid)) {
            return Err(format!("claim {} goes with the set, and should not", meta.key.name));
        }
    }
    let is_target = targets(server, set);
    for ordinal in Places::of(set).iter() {
        let pod = set.meta.key.sibling(format!("{}-{ordinal}", set.name()));
        let pod = pod_of(server.get(Resource::Pods, &pod));
        let is_target = is_target(ordinal);
        // What stays as it is keeps the claims with which it was made.
        let kept = pod.filter(|_| !is_target || set.spec.update == UpdateKind::OnDelete);
        let names = kept.map_or_else(|| of_set(set), |pod| of_pod(pod));
        for name_of_template in names {
            let mut templates = set.spec.claim_templates.iter();
            let template = templates.find(|t| *t.name == *name_of_template);
            let name = format!("{name_of_template}-{}-{ordinal}", set.name());
            let stored = server.get(Resource::Claims, &set.meta.key.sibling(name.as_str()));
            let mounts = |claim: &str| pod.is_some_and(|pod| pod.mounts(&name_of_template, claim));
            // The file system of a volume that nobody mounts cannot grow: a webhook of others has given its pod another.
            let is_mounted = mounts(&name);
            let Some(Object::Claim(claim)) = stored.and_then(|s| s.object.as_ref()) else {
                // Where it went with a former set it is not made anew for a pod that runs with another in its place.
                if mounts("swapped") {
                    continue;
                }
                return Err(format!("there is no claim {name}"));
            };
            let is_asked = |t: &ClaimTemplate| Some(claim.requested_bytes) >= t.requested_bytes;
            let is_grown = template.is_none_or(|t| is_grown(claim, t) || is_asked(t) && !is_mounted);
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
            // The table is about claims of templates. That of a pod which was taken over from a set that had the template, and of which no
            // revision tells any more, may be anybody's: it is not given to a set with which it would go. Nor is one of a former template that
            // the pod does not mount, since a webhook gave it another: it is one that nobody uses.
            let is_former = template.is_none() && (!is_mounted || !is_recorded(server, set, &name_of_template));
            if !goes_with_set && is_former {
                continue;
            }
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
