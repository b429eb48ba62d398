//! Whose the claims of a StatefulSet become by a decision, judged by what its controller saw.

use super::view::Sight;
use super::{Verdict, ordinal_in, require};
use crate::in_place::holds;
use flotilla_model::{ClaimRecord, Command, Decision, ObjectKey, OwnerRef, PodRecord, Resource, SetRecord, Uid};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const RULE: &str = "STS-1.4.4 claims go with their pods";

impl Sight<'_> {
    /// A claim is given only to a pod that goes, and to one that scaling down deletes in the same decision, where the policy says so.
    pub(super) fn claims_go_with_pods(&self, decision: &Decision) -> Verdict {
        let deleted: BTreeSet<&ObjectKey> = decision
            .commands()
            .filter(|c| c.command.resource() == Resource::Pods && matches!(c.command, Command::Delete { .. }))
            .map(|c| c.command.key())
            .collect();
        let given = given(decision);
        for (claim, owner) in &given {
            let pod = self.reader.pod(&self.set.meta.key.sibling(*owner));
            let stays = pod.filter(|pod| !pod.is_terminating() && !deleted.contains(&pod.meta.key));
            require(stays.is_none(), RULE, || {
                format!("{} is to go with {owner}, which stays", claim.name)
            })?;
            let early = pod.filter(|pod| !deleted.contains(&pod.meta.key) && !self.is_due(pod));
            require(early.is_none(), RULE, || {
                format!(
                    "{} is to go with {owner}, whose turn has not come: others delete it",
                    claim.name
                )
            })?;
        }
        if !self.set.spec.retention.delete_with_pod {
            return Ok(());
        }
        let pods = deleted.into_iter().filter_map(|key| self.reader.pod(key));
        for pod in pods.filter(|pod| !self.is_wanted(pod)) {
            let left = self.claims_of(pod).find(|claim| {
                // One that a former pod of the slot owns is stale, and goes by itself (STS-1.4.4).
                let is_former = |owner: &OwnerRef| &*owner.kind == "Pod" && &*owner.name == pod.name();
                let mut owners = claim.meta.owners().iter();
                let goes = owners.any(|owner| owner.uid == pod.meta.uid || is_former(owner));
                !goes && !given.contains_key(&claim.meta.key)
            });
            require(left.is_none(), RULE, || {
                let claim = left.map_or("", |claim| &claim.meta.key.name);
                format!("{} is scaled away, and {claim} stays", pod.name())
            })?;
        }
        Ok(())
    }

    /// No pod is made on a claim that goes with a former pod of its name, or with a former set, which the garbage collector takes away.
    pub(super) fn mounts_what_stays(&self, pod: &str, claim: &ClaimRecord) -> Verdict {
        let former = former_owner(claim, self.set, pod, None);
        require(former.is_none(), RULE, || {
            let kind = former.map_or("", |owner| &owner.kind);
            format!(
                "{pod} is made on {}, which goes with a former {kind}",
                claim.meta.key.name
            )
        })
    }

    /// Whether scaling down would take this pod away now: under OrderedReady it is the highest that is not wanted, and its hook lets it go.
    fn is_due(&self, pod: &PodRecord) -> bool {
        let set = self.set;
        let ordinal = |pod: &PodRecord| ordinal_in(pod.name(), set.name());
        let others = self.reader.pods_of(set.as_owner()).iter();
        let is_above = |other: &&Arc<PodRecord>| {
            let fits = set.spec.selector.matches(|label| other.label(label));
            fits && !self.is_wanted(other) && ordinal(other) > ordinal(pod)
        };
        let is_next = !set.spec.is_monotonic() || others.filter(is_above).count() == 0;
        is_next && !holds(set.spec.lifecycle.pre_delete.as_ref(), pod)
    }

    fn is_wanted(&self, pod: &PodRecord) -> bool {
        let ordinal = ordinal_in(pod.name(), self.set.name());
        ordinal.is_some_and(|ordinal| self.set.spec.ordinals().contains(ordinal))
    }

    /// Claims of a pod that are there to stay, and that nobody but the set and the pod owns: others are not touched.
    fn claims_of(&self, pod: &PodRecord) -> impl Iterator<Item = &Arc<ClaimRecord>> {
        let (set, pod) = (self.set.meta.uid.clone(), pod.clone());
        let templates = self.set.spec.claim_templates.iter();
        templates
            .map(move |template| self.set.meta.key.sibling(format!("{}-{}", template.name, pod.name())))
            .filter_map(|key| self.reader.claim(&key))
            .filter(move |claim| {
                let mut owners = claim.meta.owners().iter();
                claim.meta.deleted.is_none() && owners.all(|o| o.uid == set || &*o.kind == "Pod")
            })
    }
}

/// The owner of a claim that is a former set of this name, or a former pod of the name that the claim is made for, which may be there anew.
pub(crate) fn former_owner<'c>(
    claim: &'c ClaimRecord,
    set: &SetRecord,
    pod: &str,
    present: Option<&Uid>,
) -> Option<&'c OwnerRef> {
    let resource = set.kind.resource();
    let is_former = |owner: &&OwnerRef| match &*owner.kind {
        "Pod" => &*owner.name == pod && Some(&owner.uid) != present,
        kind => {
            let is_of_kind = kind == resource.kind() && *owner.api_version == *resource.api_version();
            is_of_kind && *owner.name == *set.name() && owner.uid != set.meta.uid
        }
    };
    claim.meta.owners().iter().find(is_former)
}

/// Claims that a decision gives to pods, with the names of these.
fn given(decision: &Decision) -> BTreeMap<&ObjectKey, &str> {
    let pod_in = |body: &'_ Value| {
        let owners = body.pointer("/metadata/ownerReferences")?.as_array()?;
        owners.iter().position(|owner| owner["kind"] == "Pod")
    };
    let patches = decision.commands().filter_map(|c| match &c.command {
        Command::Patch {
            resource: Resource::Claims,
            key,
            body,
            ..
        } => {
            let place = pod_in(body)?;
            Some((key, body["metadata"]["ownerReferences"][place]["name"].as_str()?))
        }
        _ => None,
    });
    patches.collect()
}
