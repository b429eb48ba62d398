//! Claims of existing pods: who owns them, whether they fit their templates, and their growth (rules 1.4 and 3.9).

use super::plan::Plan;
use crate::shared::adoption::controller_ref;
use crate::shared::claim::{self, Fit, Keeper};
use flotilla_model::decision::{Command, Scope};
use flotilla_model::set::ClaimTemplate;
use flotilla_model::{ClaimRecord, PodRecord, Resource, RevisionRecord, WaitCause};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// What the growth of a pod's claims asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Growth {
    /// Nothing: all claims fit, or following templates is not asked for.
    Done,
    /// These claims have to grow first.
    Needed(Vec<Command>),
    /// Asked for, not finished; or it cannot be done. A wait says so.
    Waiting,
    /// The volume has grown, and the file system grows when the pod is made again.
    NeedsRestart,
}

impl Plan<'_> {
    /// The claim templates that pods of a revision use (rule 8.6).
    pub(super) fn claim_templates_of(&self, revision: &RevisionRecord) -> Cow<'_, [ClaimTemplate]> {
        let set = &self.view.set;
        claim::templates_of(set.kind, &set.spec.claim_templates, revision, &self.pass.update)
    }

    /// Marks pods whose volumes do not match the claim templates. They are not patched, which the API server would refuse, but made
    /// again by the update (rule 8.6).
    pub(super) fn mark_storage(&mut self) {
        let spec = self.view.set.spec.clone();
        if spec.claim_templates.is_empty() && self.view.members.iter().all(|m| m.pod.volumes.is_none()) {
            return;
        }
        for slot in &mut self.slots {
            let Some(occupant) = slot.occupant.as_mut().filter(|o| o.labels.is_updated) else {
                continue;
            };
            let pod = &occupant.pod;
            let lacks = spec
                .claim_templates
                .iter()
                .any(|t| !pod.mounts(&t.name, &claim::claim_name(t, pod.name())));
            let volumes = pod.volumes.iter().flat_map(|list| &**list);
            let leftover = volumes.filter(|v| v.claim.is_none()).any(|v| {
                spec.claim_templates.iter().all(|t| t.name != v.volume)
                    && !template_mounts(&spec.template, &v.volume, pod.name())
            });
            occupant.storage_differs = lacks || leftover;
        }
    }

    /// Creates claims that a pod which has not started is missing (rule 1.4.3).
    pub(super) fn missing_claims(&self, pod: &PodRecord) -> Vec<Command> {
        let view = self.view;
        let spec = &view.set.spec;
        let missing = claim::missing(pod, &spec.claim_templates, |name| view.claim(name).is_some());
        let owner = spec.retention.delete_with_set.then_some(&view.owner);
        missing
            .into_iter()
            .map(|(t, name)| claim::create(t, self.key(&name), &spec.selector, &[], owner))
            .collect()
    }

    /// The patch that gives a claim the owner that the retention policy asks for, if it has not got it (rule 1.4.4).
    pub(super) fn keep_claim(
        &self,
        found: &ClaimRecord,
        pod: &str,
        uid: Option<&PodRecord>,
        condemned: bool,
    ) -> Option<Command> {
        let view = self.view;
        let retention = view.set.spec.retention;
        let pod_ref = uid.map(|p| controller_ref(Resource::Pods, pod, &p.meta.uid));
        let keeper = match (
            condemned && retention.delete_with_pod,
            retention.delete_with_set,
            &pod_ref,
        ) {
            (true, _, Some(pod_ref)) => Keeper::Owner(pod_ref.clone()),
            (false, true, _) => Keeper::Owner(view.owner.clone()),
            _ => Keeper::Nobody,
        };
        let ours: Vec<_> = std::iter::once(view.owner.clone()).chain(pod_ref).collect();
        claim::owners_to_set(found, &keeper, &ours).map(|owners| claim::set_owners(found, &owners))
    }

    /// Gives the claims of a pod their owners; `condemned` pods take theirs along where the policy says so.
    pub(super) fn keep_claims_of(&mut self, ordinal: i64, pod: &Arc<PodRecord>, condemned: bool) {
        let view = self.view;
        let mut commands = Vec::new();
        for template in &view.set.spec.claim_templates {
            let found = view
                .claim(&claim::claim_name(template, pod.name()))
                .filter(|c| c.meta.deleted.is_none());
            if let Some(found) = found {
                commands.extend(self.keep_claim(found, pod.name(), Some(pod), condemned));
            }
        }
        if !commands.is_empty() && !self.pass.is_backing_off(&Scope::Slot(ordinal), pod.name()) {
            self.pass.write_claims(&Scope::Slot(ordinal), commands);
        }
    }

    /// Keeps owners and, where opted in, labels of the claims of wanted pods.
    pub(super) fn tend_claims(&mut self) {
        let view = self.view;
        if view.set.spec.claim_templates.is_empty() {
            return;
        }
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let Some(pod) = slot.occupant.as_ref().map(|o| o.pod.clone()) else {
                continue;
            };
            let ordinal = slot.ordinal;
            self.keep_claims_of(ordinal, &pod, false);
            if view.set.spec.switches.propagate_claim_labels
                && !self.pass.is_backing_off(&Scope::Slot(ordinal), pod.name())
            {
                self.relabel_claims(ordinal, &pod);
            }
        }
    }

    fn relabel_claims(&mut self, ordinal: i64, pod: &PodRecord) {
        let view = self.view;
        for template in &view.set.spec.claim_templates {
            let found = view
                .claim(&claim::claim_name(template, pod.name()))
                .filter(|c| c.meta.deleted.is_none());
            if let Some(command) = found.and_then(|c| claim::relabel(c, template, &view.set.spec.selector)) {
                self.pass.write_claims(&Scope::Slot(ordinal), [command]);
            }
        }
    }

    /// What has to happen to a pod's claims before the pod may be updated (rule 3.9).
    pub(super) fn growth(&mut self, pod: &PodRecord) -> Growth {
        let view = self.view;
        if !self.is_advanced() || !view.set.spec.expand_claims {
            return Growth::Done;
        }
        let mut commands = Vec::new();
        let mut result = Growth::Done;
        for template in &view.set.spec.claim_templates {
            let name = claim::claim_name(template, pod.name());
            let Some(found) = view.claim(&name).filter(|c| c.meta.deleted.is_none()).cloned() else {
                continue;
            };
            match claim::fit(&found, template) {
                Fit::Compatible if found.resize_pending_since.is_some_and(|since| pod.meta.created < since) => {
                    result = Growth::NeedsRestart;
                }
                Fit::Compatible
                    if claim::is_expanded(&found) || !found.is_bound || found.resize_pending_since.is_some() => {}
                Fit::Compatible => {
                    self.pass.wait(name, WaitCause::ClaimExpanding, None);
                    return Growth::Waiting;
                }
                Fit::TooSmall => match self.expansion_obstacle(&found) {
                    None => commands.push(claim::expand(&found, template, view.set.name())),
                    Some(difference) => return self.cannot_grow(name, difference),
                },
                Fit::Different(difference) => return self.cannot_grow(name, difference),
            }
        }
        if commands.is_empty() {
            result
        } else {
            Growth::Needed(commands)
        }
    }

    /// Whether a claim of the pod has been asked to grow and has not yet.
    pub(super) fn is_expanding(&self, pod: &PodRecord) -> bool {
        let view = self.view;
        if !self.is_advanced() || !view.set.spec.expand_claims {
            return false;
        }
        let templates = view.set.spec.claim_templates.iter();
        templates
            .filter_map(|t| view.claim(&claim::claim_name(t, pod.name())))
            .any(|found| {
                found.is_bound
                    && found.meta.deleted.is_none()
                    && found.resize_pending_since.is_none()
                    && !claim::is_expanded(found)
            })
    }

    /// Why a claim cannot be expanded: its class must say that it can; not saying means no.
    fn expansion_obstacle(&self, claim: &ClaimRecord) -> Option<String> {
        let Some(class) = &claim.storage_class else {
            return Some("it has no storage class that could expand it".to_owned());
        };
        match self.view.storage_class(class) {
            Some(found) if found.allows_expansion => None,
            Some(_) => Some(format!("storage class {class} does not allow expansion")),
            None => Some(format!("storage class {class} does not exist")),
        }
    }

    fn cannot_grow(&mut self, claim: String, difference: String) -> Growth {
        self.pass.event_once(
            true,
            "FailedUpdatePVC",
            format!("claim {claim} cannot follow its template: {difference}"),
        );
        self.pass.wait(claim, WaitCause::ClaimIncompatible { difference }, None);
        Growth::Waiting
    }
}

/// Whether the pod template itself has this volume, with a claim that happens to be named like one made from a claim template.
fn template_mounts(template: &Value, volume: &str, pod: &str) -> bool {
    let volumes = template
        .pointer("/spec/volumes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut claims = volumes
        .filter(|v| v.get("name").and_then(Value::as_str) == Some(volume))
        .filter_map(|v| v.pointer("/persistentVolumeClaim/claimName").and_then(Value::as_str));
    claims.any(|claim| claim.strip_prefix(volume).and_then(|rest| rest.strip_prefix('-')) == Some(pod))
}
