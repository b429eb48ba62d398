//! What a decision does to claims of a CloneSet, judged by what its controller saw (rules 14.7 and 15).

use super::truth::{INSTANCE_ID, REPLACED};
use super::view::Clones;
use crate::judge::{Verdict, require};
use flotilla_model::{ClaimRecord, Command, Decision, PodRecord, Resource};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Clones<'_> {
    /// A claim is given only to a pod that goes, in the decision that deletes it or before; and no claim of a pod that stays is deleted.
    pub(super) fn claims(&self, decision: &Decision) -> Verdict {
        let deleted: BTreeSet<&str> = decision
            .commands()
            .filter(|c| c.command.resource() == Resource::Pods && matches!(c.command, Command::Delete { .. }))
            .map(|c| &*c.command.key().name)
            .collect();
        for scoped in decision.commands() {
            let (key, is_deletion) = match &scoped.command {
                Command::Delete {
                    resource: Resource::Claims,
                    key,
                    ..
                } => (key, true),
                Command::Patch {
                    resource: Resource::Claims,
                    key,
                    body,
                    ..
                } if names_a_pod(body) => (key, false),
                _ => continue,
            };
            let Some(claim) = self.sight.reader.claim(key) else {
                continue;
            };
            let stays = self.active.iter().find(|pod| has(pod, claim));
            let stays = stays.filter(|pod| is_deletion || !deleted.contains(pod.name()));
            require(stays.is_none(), "15.4 claims", || {
                let pod = stays.map_or("", |pod| pod.name());
                format!("{} is to go, and {pod} stays", key.name)
            })?;
        }
        Ok(())
    }

    /// How many pods are on their way out and have claims that are for their replacements (rule 15.5, ruling 34): those that were not given
    /// to the pod.
    pub(super) fn handing_over(&self) -> i32 {
        let set = self.sight.set;
        let claims = self.sight.reader.claims_of(set.as_owner());
        let hands_over = |pod: &&Arc<PodRecord>| {
            let annotations = pod.detail.as_ref().map(|detail| &detail.annotations);
            let is_replaced = annotations.is_some_and(|a| a.get(REPLACED).is_some());
            let is_for_replacement =
                self.spec.reuses_claims || is_replaced && self.spec.switches.keep_claims_on_recreate;
            let mut own = claims.iter().filter(|claim| claim.meta.deleted.is_none());
            pod.is_terminating()
                && set.spec.selector.matches(|key| pod.label(key))
                && is_for_replacement
                && own.any(|claim| has(pod, claim))
        };
        let pods = self.sight.reader.pods_of(set.as_owner()).iter();
        i32::try_from(pods.filter(hands_over).count()).unwrap_or(i32::MAX)
    }
}

/// Whether a claim is a pod's, by the id that both have.
fn has(pod: &PodRecord, claim: &ClaimRecord) -> bool {
    pod.label(INSTANCE_ID).is_some() && claim.meta.labels.get(INSTANCE_ID) == pod.label(INSTANCE_ID)
}

/// Whether a patch gives its object to a pod.
fn names_a_pod(body: &serde_json::Value) -> bool {
    let owners = body["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "Pod"))
}
