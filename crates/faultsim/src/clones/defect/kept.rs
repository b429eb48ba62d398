//! Defects of claims that are kept for the replacements of pods which an update makes again (CS-15.5).

use super::{CloneDefect, gives_to_a_pod, retain};
use crate::clones::copies::has;
use crate::clones::kept::KEPT_FROM;
use flotilla_model::decision::Command;
use flotilla_model::set::CloneSpec;
use flotilla_model::{ClaimRecord, Decision, PodRecord, Reader, Resource, SetRecord};
use serde_json::json;
use std::sync::Arc;

/// Claims as a controller sees them: those of no pod seem to be kept for a replacement.
pub(super) fn claims_seen(defect: CloneDefect, reader: &dyn Reader, set: &SetRecord) -> Option<Vec<Arc<ClaimRecord>>> {
    let pods = reader.pods_of(set.as_owner());
    let is_short = || {
        let stays = |pod: &&Arc<PodRecord>| !pod.is_terminal() && !pod.is_terminating();
        i32::try_from(pods.iter().filter(stays).count()).is_ok_and(|there| there < set.spec.replicas)
    };
    // Elsewhere nobody asks for it.
    let keeps = |spec: &CloneSpec| spec.switches.keep_claims_on_recreate && !spec.reuses_claims;
    if !set.spec.clones.as_deref().is_some_and(keeps) {
        return None;
    }
    match defect {
        CloneDefect::KeepLeftovers => {}
        CloneDefect::TakeLeftovers if is_short() => {}
        _ => return None,
    }
    let as_seen = |claim: &Arc<ClaimRecord>| {
        let orphans = reader.orphan_pods(&set.meta.key.namespace);
        if pods.iter().chain(orphans).any(|pod| has(pod, claim)) {
            return claim.clone();
        }
        let mut seen = (**claim).clone();
        seen.annotations = [(KEPT_FROM, "somebody")].into_iter().collect();
        Arc::new(seen)
    };
    Some(reader.claims_of(set.as_owner()).iter().map(as_seen).collect())
}

/// What it makes of a decision.
pub(super) fn spoil(defect: CloneDefect, decision: &mut Decision, set: &SetRecord) {
    match defect {
        CloneDefect::KeepNotes => retain(decision, |c| {
            let Command::Patch {
                resource: Resource::Claims,
                body,
                ..
            } = c
            else {
                return true;
            };
            let annotations = body["metadata"]["annotations"].as_object();
            annotations.is_none_or(|all| all.get(KEPT_FROM).is_none_or(|note| !note.is_null()))
        }),
        CloneDefect::KeepOfAny
            if set
                .spec
                .clones
                .as_deref()
                .is_some_and(|s| s.switches.keep_claims_on_recreate) =>
        {
            for scoped in decision.stages.iter_mut().flat_map(|stage| &mut stage.commands) {
                let gives = gives_to_a_pod(&scoped.command);
                if let Command::Patch { body, .. } = &mut scoped.command
                    && gives
                {
                    let owners = body["metadata"]["ownerReferences"].as_array();
                    let owner = owners.and_then(|owners| owners.iter().find(|owner| owner["kind"] == "Pod"));
                    let uid = owner.map(|owner| owner["uid"].clone());
                    *body = json!({"metadata": {"annotations": {KEPT_FROM: uid}}});
                }
            }
        }
        _ => {}
    }
}
