//! What a decision does to claims of a CloneSet, judged by what its controller saw (CS-14.7 and CS-15).

use super::copies::{has, mounts};
use super::kept::{KEPT_FROM, kept_from_by};
use super::surge::was_made_as_surge;
use super::truth::{INSTANCE_ID, REPLACED};
use super::view::Clones;
use crate::clones::SPECIFIED_DELETE;
use crate::judge::{Verdict, require};
use flotilla_model::{ClaimRecord, Command, Decision, ObjectKey, Owner, PodDraft, PodRecord, Resource};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Clones<'_> {
    /// A claim is given only to a pod that goes, in the decision that deletes it or before; and no claim of a pod that stays goes: the other
    /// may have it by its id, or mount it, as a copy does, whoever it belongs to.
    pub(super) fn claims(&self, decision: &Decision) -> Verdict {
        let deleted: BTreeSet<&str> = decision
            .commands()
            .filter(|c| c.command.resource() == Resource::Pods && matches!(c.command, Command::Delete { .. }))
            .map(|c| &*c.command.key().name)
            .collect();
        let mut given: BTreeSet<(&ObjectKey, &str)> = BTreeSet::new();
        let mut taken_back: BTreeSet<&ObjectKey> = BTreeSet::new();
        for scoped in decision.commands() {
            let (key, pod) = match &scoped.command {
                Command::Delete {
                    resource: Resource::Claims,
                    key,
                    ..
                } => (key, None),
                Command::Patch {
                    resource: Resource::Claims,
                    key,
                    body,
                    ..
                } => match pod_named(body) {
                    Some(pod) => (key, Some(pod)),
                    None => {
                        self.keeps_for_a_replacement(key, body)?;
                        taken_back.insert(key);
                        continue;
                    }
                },
                _ => continue,
            };
            given.extend(pod.map(|pod| (key, pod)));
            let Some(claim) = self.sight.reader.claim(key) else {
                continue;
            };
            let goes = |other: &&Arc<PodRecord>| pod == Some(other.name()) && deleted.contains(other.name());
            let stays = self.there_to_stay().find(|other| has(other, claim) && !goes(other));
            require(stays.is_none(), "CS-15.4 claims", || {
                let pod = stays.map_or("", |pod| pod.name());
                format!("{} is to go, and {pod} stays", key.name)
            })?;
        }
        // One that was some other pod's by its label goes by itself, and at once.
        let gone = decision.commands().filter_map(|c| match &c.command {
            Command::Delete {
                resource: Resource::Claims,
                key,
                ..
            } => Some(key),
            _ => None,
        });
        let gone: BTreeSet<&ObjectKey> = gone.collect();
        for name in deleted {
            self.goes_with_its_claims(name, (&given, &gone), &taken_back)?;
        }
        Ok(())
    }

    /// CS-15.5: a claim is noted as kept only where an update makes its pod again, so that the note tells it from what a lost pod leaves.
    fn keeps_for_a_replacement(&self, claim: &ObjectKey, patch: &serde_json::Value) -> Verdict {
        let Some(uid) = kept_from_by(patch) else { return Ok(()) };
        let pods = self.sight.reader.pods_of(self.sight.set.as_owner()).iter();
        let is_marked = |pod: &&Arc<PodRecord>| {
            let annotations = pod.detail.as_ref().map(|detail| &detail.annotations);
            annotations.is_some_and(|a| a.get(REPLACED).is_some())
        };
        let from = pods.filter(is_marked).find(|pod| pod.meta.uid.to_string() == uid);
        require(from.is_some(), "CS-15.5 kept for a replacement", || {
            format!(
                "{} is noted as kept from {uid}, which no update makes again",
                claim.name
            )
        })
    }

    /// Pods that have neither ended nor begun to go, of the set and of nobody.
    fn there_to_stay(&self) -> impl Iterator<Item = &Arc<PodRecord>> {
        self.seen().filter(|pod| !pod.is_terminal() && !pod.is_terminating())
    }

    /// Pods of the set and of nobody.
    fn seen(&self) -> impl Iterator<Item = &Arc<PodRecord>> {
        let set = self.sight.set;
        let own = self.sight.reader.pods_of(set.as_owner()).iter();
        own.chain(self.sight.reader.orphan_pods(&set.meta.key.namespace))
    }

    /// CS-14.7 and CS-15.5: what a pod has alone goes with it, unless it is for its replacement, and what another has does not.
    fn goes_with_its_claims(
        &self,
        pod: &str,
        (given, gone): (&BTreeSet<(&ObjectKey, &str)>, &BTreeSet<&ObjectKey>),
        taken_back: &BTreeSet<&ObjectKey>,
    ) -> Verdict {
        let (set, reader) = (self.sight.set, self.sight.reader);
        let Some(pod) = reader.pod(&set.meta.key.sibling(pod)) else {
            return Ok(());
        };
        let other_with = |claim: &ClaimRecord| {
            let mut others = self.there_to_stay().filter(|other| other.meta.uid != pod.meta.uid);
            others.find(|other| has(other, claim))
        };
        let own = Owner {
            namespace: &set.meta.key.namespace,
            uid: &pod.meta.uid,
            kind: Resource::Pods.kind(),
            name: pod.name(),
        };
        for claim in reader
            .claims_of(own)
            .iter()
            .filter(|claim| claim.meta.deleted.is_none())
        {
            let other = other_with(claim).filter(|_| !taken_back.contains(&claim.meta.key));
            require(other.is_none(), "CS-15.4 claims", || {
                let other = other.map_or("", |pod| pod.name());
                format!("{} goes with {}, and {other} has it", claim.meta.key.name, pod.name())
            })?;
        }
        let annotations = pod.detail.as_ref().map(|detail| &detail.annotations);
        let is_replaced = annotations.is_some_and(|a| a.get(REPLACED).is_some());
        if is_replaced && self.spec.switches.keep_claims_on_recreate {
            return Ok(());
        }
        // Without an id nobody knows whose it is, and an empty one is none.
        let is_labelled = |claim: &ClaimRecord| claim.meta.labels.get(INSTANCE_ID).is_some_and(|id| !id.is_empty());
        let claims = reader.claims_of(set.as_owner()).iter();
        let mut own = claims.filter(|claim| claim.meta.deleted.is_none() && is_labelled(claim) && has(pod, claim));
        // With the pod, or with another that has it and has ended or is going, too.
        let is_given = |claim: &ClaimRecord| {
            let to =
                |name: &str| name == pod.name() || self.seen().any(|other| other.name() == name && has(other, claim));
            given.iter().any(|(key, name)| **key == claim.meta.key && to(name))
        };
        // A copy under another name has nothing of what is noted as kept for the replacement of its original (CS-15.4, CS-15.5).
        let is_for_another = |claim: &ClaimRecord| {
            let from = claim.annotations.get(KEPT_FROM);
            let id = claim.meta.labels.get(INSTANCE_ID);
            let is_copy = id.is_some_and(|id| *pod.name() != format!("{}-{id}", set.name()));
            let is_kept = self.spec.switches.keep_claims_on_recreate && !self.spec.reuses_claims;
            is_kept && is_copy && from.is_some_and(|from| *from != *pod.meta.uid.to_string())
        };
        let left = own.find(|claim| {
            let goes = gone.contains(&claim.meta.key) || is_given(claim);
            !goes && other_with(claim).is_none() && !is_for_another(claim)
        });
        require(left.is_none(), "CS-14.7 claims go with their pod", || {
            let name = left.map_or("", |claim| &claim.meta.key.name);
            format!("{} is deleted, and its claim {name} stays", pod.name())
        })
    }

    /// CS-15.1 and CS-15.3: nobody has the id of a new pod, and nobody mounts its claims, in whatever phase.
    pub(super) fn is_of_its_own(&self, draft: &PodDraft) -> Verdict {
        let id = draft.labels.iter().find(|(key, _)| *key == INSTANCE_ID);
        let id = id.map(|(_, id)| id.as_str());
        let twin = self.seen().find(|pod| pod.label(INSTANCE_ID) == id);
        require(id.is_some() && twin.is_none(), "CS-15.1 id", || {
            let twin = twin.map_or("nobody", |pod| pod.name());
            format!("{} has the id {id:?}, which {twin} has", draft.key.name)
        })?;
        let mut mounted = draft.claims.iter().map(|(_, claim)| claim);
        let held = mounted.find_map(|claim| Some((claim, self.seen().find(|pod| mounts(pod, claim))?)));
        require(held.is_none(), "CS-15.3 free ids", || {
            let (claim, pod) = held.map_or(("", ""), |(claim, pod)| (claim, pod.name()));
            format!("{} mounts {claim}, which {pod} has", draft.key.name)
        })
    }

    /// How many pods that are no replicas any more, on their way out, have claims that are for their replacements (CS-15.5, R-34): those that were
    /// not given to the pod.
    pub(super) fn handing_over(&self) -> i32 {
        let set = self.sight.set;
        let claims = self.sight.reader.claims_of(set.as_owner());
        let hands_over = |pod: &&Arc<PodRecord>| {
            let annotations = pod.detail.as_ref().map(|detail| &detail.annotations);
            let is_replaced = annotations.is_some_and(|a| a.get(REPLACED).is_some());
            let is_kept = is_replaced && self.spec.switches.keep_claims_on_recreate;
            // It has its claims until it is deleted, whether or not it counts as a replica.
            let is_left_out = pod.is_terminal() || self.spec.excludes_preparing_delete && Self::is_leaving(pod);
            let is_marked = pod.label(SPECIFIED_DELETE) == Some("true");
            let is_for_replacement =
                pod.is_terminating() && (self.spec.reuses_claims || is_kept) || is_left_out && is_kept && is_marked;
            let mut own = claims.iter().filter(|claim| claim.meta.deleted.is_none());
            is_for_replacement
                && !was_made_as_surge(pod)
                && set.spec.selector.matches(|key| pod.label(key))
                && own.any(|claim| has_id_of(pod, claim))
        };
        let pods = self.sight.reader.pods_of(set.as_owner()).iter();
        i32::try_from(pods.filter(hands_over).count()).unwrap_or(i32::MAX)
    }
}

/// Whether a claim is a pod's by the id that both have.
fn has_id_of(pod: &PodRecord, claim: &ClaimRecord) -> bool {
    pod.label(INSTANCE_ID).is_some() && claim.meta.labels.get(INSTANCE_ID) == pod.label(INSTANCE_ID)
}

/// The pod to which a patch gives its object.
fn pod_named(body: &serde_json::Value) -> Option<&str> {
    let mut owners = body["metadata"]["ownerReferences"].as_array()?.iter();
    owners.find(|owner| owner["kind"] == "Pod")?["name"].as_str()
}
