//! Claims of existing pods: who owns them, whether they fit their templates, and their growth (STS-1.4 and STS-3.9).

use super::plan::Plan;
use crate::shared::adoption::controller_ref;
use crate::shared::claim::{self, Additions, Claimant, Fit, Keeper, Templates};
use crate::shared::identity::{Membership, membership};
use crate::shared::revision;
use flotilla_model::decision::{Command, Scope, ScopedCommand};
use flotilla_model::set::{ClaimTemplate, PodUpdatePolicy, SetSpec};
use flotilla_model::{ClaimRecord, PodRecord, Resource, RevisionRecord, Timestamp, Uid, WaitCause};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Where pods are changed in place, a driver has so long to grow the file system of a mounted volume. A kubelet looks at each volume within
/// a minute or two, and tries again after two at the latest; a driver that has not done it then needs the pod to be made again.
const GROWS_MOUNTED_WITHIN: Duration = Duration::from_secs(300);

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
    /// The claim templates that pods of a revision use.
    pub(super) fn claim_templates_of(&self, revision: &RevisionRecord) -> Templates<'_> {
        self.pass.claim_templates_of(revision)
    }

    /// Marks pods that were not made with the claims of today's templates. They are not patched, which the API server would refuse, but made
    /// again by the update (STS-8.6). A pod that its set made says by its label with what it was made, and that counts: a webhook that adds
    /// a volume, or swaps one, does so to the next pod, too, and making pods again would never end. Of others their volumes tell. Pods of old
    /// revisions are marked as well, so that they are not changed in place only to go afterwards.
    pub(super) fn mark_storage(&mut self) {
        let spec = self.view.set.spec.clone();
        if spec.claim_templates.is_empty() && self.view.members.iter().all(|m| m.pod.volumes.is_none()) {
            return;
        }
        let former = self.former_templates().clone();
        let mut differences = Vec::new();
        for slot in &mut self.slots {
            let Some(occupant) = slot.occupant.as_mut() else {
                continue;
            };
            let pod = &occupant.pod;
            let lacking = claim::not_mounted(pod, &spec.claim_templates);
            let made_with_these = claim::was_made_with(pod, &spec.claim_templates);
            occupant.storage_differs = match made_with_these {
                Some(made_with_these) => !made_with_these,
                None => lacking.is_some() || leftovers(pod, &spec, &former).next().is_some(),
            };
            let is_changed = occupant.labels.is_updated && made_with_these == Some(true);
            if let Some(template) = lacking.filter(|_| is_changed) {
                let difference = format!(
                    "volume {} does not mount claim {}",
                    template.name,
                    claim::claim_name(template, pod.name())
                );
                differences.push((pod.clone(), difference));
            }
        }
        for (pod, difference) in differences {
            self.pass.changed_on_the_way(&pod, difference);
        }
    }

    /// Names of templates that recorded revisions had and that the set has no more.
    pub(super) fn former_templates(&self) -> &Arc<BTreeSet<Arc<str>>> {
        self.former_templates.get_or_init(|| {
            let history = self.pass.revisions.history.iter();
            let names = history.flat_map(|r| claim::recorded_names(r));
            let today = &self.view.set.spec.claim_templates;
            let names = names.filter(|name| today.iter().all(|t| *t.name != **name));
            Arc::new(names.map(Arc::from).collect())
        })
    }

    /// Creates claims that a pod which has not started is missing (STS-1.4.3): those that pods of its revision have.
    pub(super) fn missing_claims(&self, pod: &PodRecord) -> Vec<Command> {
        if !claim::has_to_start(pod) {
            return Vec::new();
        }
        let view = self.view;
        let set = pod.meta.controller().map_or("", |owner| &*owner.name);
        let own = pod
            .revision()
            .and_then(|label| self.pass.revisions.names.named(set, label));
        let templates = self.claim_templates_of(own.unwrap_or(&self.pass.update));
        let missing = claim::missing(pod, &templates, |name| view.claim(name).is_some());
        missing.into_iter().map(|(t, name)| self.new_claim(t, &name)).collect()
    }

    /// Creates a claim, owned as the retention policy asks.
    pub(super) fn new_claim(&self, template: &ClaimTemplate, name: &str) -> Command {
        let spec = &self.view.set.spec;
        let owner = spec.retention.delete_with_set.then_some(&self.view.owner);
        claim::create(template, self.key(name), &spec.selector, Additions::default(), owner)
    }

    /// Creates the claims that a pod of a revision would lack in a slot: they are made before the pod of today goes for it, since what is
    /// wrong with them shows only then (STS-8.6, R-31). Whether all are there; one on its way out may wait for the pod to go.
    pub(super) fn has_claims(&mut self, index: usize, revision: &RevisionRecord) -> bool {
        let ordinal = self.slots[index].ordinal;
        let (pod, scope) = (self.name(ordinal), Scope::Slot(ordinal));
        let templates = self.claim_templates_of(revision);
        let named = templates.iter().map(|t| (t, claim::claim_name(t, &pod)));
        let missing = named.filter(|(_, name)| self.view.claim(name).is_none());
        let commands: Vec<_> = missing.map(|(t, name)| self.new_claim(t, &name)).collect();
        if commands.is_empty() {
            return true;
        }
        // A pod that has yet to start may have been given some of them by now.
        let (asked, staged) = (&self.pass.stages.claims, &mut self.staged_claims);
        let is_new = |c: &Command| !staged.contains(asked, ordinal, &c.key().name);
        let commands: Vec<_> = commands.into_iter().filter(is_new).collect();
        if !commands.is_empty() && !self.pass.is_backing_off(&scope, &pod) {
            self.pass.write_claims(&scope, commands);
        }
        false
    }

    /// The patch that gives a claim the owner that the retention policy asks for, if it has not got it (STS-1.4.4).
    pub(super) fn keep_claim(
        &self,
        found: &ClaimRecord,
        name: &str,
        pod: Option<&PodRecord>,
        condemned: bool,
    ) -> Option<Command> {
        let retention = self.view.set.spec.retention;
        let keeper = match (condemned && retention.delete_with_pod, retention.delete_with_set, pod) {
            (true, _, Some(pod)) => Keeper::Owner(controller_ref(Resource::Pods, name, &pod.meta.uid)),
            (false, true, _) => Keeper::Owner(self.view.owner.clone()),
            _ => Keeper::Nobody,
        };
        let ours = self.claimants(name, pod);
        claim::owners_to_set(found, &keeper, &ours).map(|owners| claim::set_owners(found, &owners))
    }

    /// The two to whom claims of a slot may belong. A slot without a pod has none either.
    pub(super) fn claimants(&self, name: &str, pod: Option<&PodRecord>) -> [Claimant; 2] {
        let nobody = Uid::new("");
        let uid = pod.map_or(&nobody, |pod| &pod.meta.uid);
        [
            self.set_as_claimant(),
            Claimant {
                reference: controller_ref(Resource::Pods, name, uid),
                takes_claims: self.view.set.spec.retention.delete_with_pod,
            },
        ]
    }

    fn set_as_claimant(&self) -> Claimant {
        Claimant {
            reference: self.view.owner.clone(),
            takes_claims: self.view.set.spec.retention.delete_with_set,
        }
    }

    /// Takes claims of an empty slot from a former pod or set where they are to outlive it. The garbage collector is after them, and may be
    /// faster: the pod comes once they are seen without such an owner, and not on their way out. Whether there were any.
    pub(super) fn takes_claims_back(&mut self, ordinal: i64, pod: &str, revision: &RevisionRecord) -> bool {
        let ours = self.claimants(pod, None);
        let mut commands = Vec::new();
        let mut waits = Vec::new();
        for template in self.claim_templates_of(revision).iter() {
            let name = claim::claim_name(template, pod);
            let found = self.view.claim(&name).filter(|c| c.meta.deleted.is_none());
            let Some((found, former)) = found.and_then(|c| Some((c, claim::former_owner(c, &ours)?))) else {
                continue;
            };
            if let Some(command) = self.keep_claim(found, pod, None, false) {
                commands.push(command);
                let owner = format!("{} {}", former.kind, former.name);
                waits.push((name, WaitCause::ClaimStale { owner, stays: true }));
            }
        }
        for (name, cause) in waits {
            self.pass.wait(name, cause, None);
        }
        let is_any = !commands.is_empty();
        self.pass.write_claims(&Scope::Slot(ordinal), commands);
        is_any
    }

    /// Gives the claims of a pod their owners; `condemned` pods take theirs along where the policy says so. They are those of today's templates,
    /// and those that it mounts of templates that the set has no more.
    pub(super) fn keep_claims_of(&mut self, ordinal: i64, pod: &Arc<PodRecord>, condemned: bool) {
        let view = self.view;
        let spec = &view.set.spec;
        let today = spec.claim_templates.iter().map(|t| &*t.name);
        let templates = today.chain(leftovers(pod, spec, self.former_templates()));
        let mut commands = Vec::new();
        for template in templates {
            let found = view
                .claim(&format!("{template}-{}", pod.name()))
                .filter(|c| c.meta.deleted.is_none());
            if let Some(found) = found {
                commands.extend(self.keep_claim(found, pod.name(), Some(pod), condemned));
            }
        }
        if !commands.is_empty() && !self.holds_owners_back(ordinal) {
            self.pass.write_claims(&Scope::Slot(ordinal), commands);
        }
    }

    /// Whether owners of a slot's claims are not written yet, since something was refused there a moment ago.
    fn holds_owners_back(&mut self, ordinal: i64) -> bool {
        let (scope, pod) = (Scope::Slot(ordinal), self.name(ordinal));
        if self.slots.binary_search_by_key(&ordinal, |s| s.ordinal).is_ok() {
            self.pass.is_backing_off_from_patches(&scope, &pod)
        } else {
            self.pass.is_backing_off(&scope, &pod)
        }
    }

    /// Where claims are to outlive the set, takes it off those that still name it and that no step has come by: their pod was scaled away, or
    /// is yet to be made, or mounts them no more. They would go with the set, whenever it is deleted (table STS-1.4.4). None is given to it so:
    /// what has no pod is kept.
    pub(super) fn let_claims_go(&mut self) {
        let view = self.view;
        let owned = view.claims();
        if view.set.spec.retention.delete_with_set || owned.is_empty() {
            return;
        }
        let written = self.pass.stages.claims.iter().map(|c| c.command.key().name.as_str());
        let written: BTreeSet<&str> = written.collect();
        let ours = [self.set_as_claimant()];
        let patch = |claim: &Arc<ClaimRecord>| {
            let is_left = claim.meta.deleted.is_none() && !written.contains(claim.meta.key.name.as_str());
            let ordinal = self.ordinal_of(claim).filter(|_| is_left)?;
            let owners = claim::owners_to_set(claim, &Keeper::Nobody, &ours)?;
            Some((ordinal, claim::set_owners(claim, &owners)))
        };
        let patches: Vec<_> = owned.iter().filter_map(patch).collect();
        for (ordinal, command) in patches {
            if !self.holds_owners_back(ordinal) {
                self.pass.write_claims(&Scope::Slot(ordinal), [command]);
            }
        }
    }

    /// The ordinal of the pod for which a claim of the set was made, by its name: also where nobody knows its template any more, since the last
    /// revision that recorded it is gone from the history.
    fn ordinal_of(&self, claim: &ClaimRecord) -> Option<i64> {
        let set = self.view.set.name();
        let (rest, ordinal) = claim.meta.key.name.rsplit_once('-')?;
        let template = rest.strip_suffix(set)?.strip_suffix('-')?;
        match membership(set, &format!("{set}-{ordinal}")) {
            Membership::Member(ordinal) if !template.is_empty() => Some(ordinal),
            _ => None,
        }
    }

    /// Keeps owners and, where opted in, labels of the claims of wanted pods.
    pub(super) fn tend_claims(&mut self) {
        let view = self.view;
        if view.set.spec.claim_templates.is_empty() && self.former_templates().is_empty() {
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

    /// Records what claims ask for before they grow, and what their templates ask for: users may go back to it. Claims that have
    /// grown tell it no more, so nothing grows before it is on record.
    pub(super) fn record_sizes(&mut self) {
        let view = self.view;
        if !self.is_advanced() || !view.set.spec.expand_claims {
            return;
        }
        let mut asked = BTreeMap::new();
        for template in &view.set.spec.claim_templates {
            let Some(wanted) = template.requested_bytes else {
                continue;
            };
            let occupants = self.slots.iter().filter_map(|slot| slot.occupant.as_ref());
            let claims = occupants.filter_map(|o| view.claim(&claim::claim_name(template, o.pod.name())));
            let smaller = claims.map(|found| found.requested_bytes).filter(|size| *size < wanted);
            let sizes: BTreeSet<u64> = smaller.chain([wanted]).collect();
            asked.insert(&*template.name, sizes);
        }
        let Some(command) = revision::record_sizes(&view.set.spec.claim_templates, &self.pass.update, &asked) else {
            return;
        };
        self.sizes_are_unrecorded = true;
        let name = self.pass.update.name().to_owned();
        let scope = Scope::Named(name.clone());
        if !self.pass.is_backing_off(&scope, &name) {
            self.pass.stages.claim.push(ScopedCommand { scope, command });
        }
    }

    /// What has to happen to a pod's claims before the pod may be updated (STS-3.9). What is waited for is said.
    pub(super) fn growth(&mut self, pod: &PodRecord) -> Growth {
        let (growth, waits) = self.look_at_growth(pod);
        let is_begun = matches!(growth, Growth::Needed(_) | Growth::NeedsRestart);
        for (claim, cause) in waits.into_iter().filter(|_| !is_begun) {
            self.say_of_growth(pod, claim, cause);
        }
        growth
    }

    /// Whether claims of a pod have to grow, or are about to: whatever holds the update back keeps them so.
    pub(super) fn claims_lag(&self, pod: &PodRecord) -> bool {
        let (growth, waits) = self.look_at_growth(pod);
        growth != Growth::Done || !waits.is_empty()
    }

    /// Asks the claims of a slot's pod to grow where they have to before it goes. Whether it stays for that.
    pub(super) fn grows_first(&mut self, index: usize) -> bool {
        let Some(pod) = self.slots[index].occupant.as_ref().map(|o| o.pod.clone()) else {
            return false;
        };
        match self.growth(&pod) {
            Growth::Needed(commands) => {
                self.expand(index, commands);
                true
            }
            Growth::Waiting => true,
            Growth::Done | Growth::NeedsRestart => false,
        }
    }

    /// Asks the claims of a slot's pod to grow. Whether they do, or will once their sizes are on record.
    pub(super) fn expand(&mut self, index: usize, commands: Vec<Command>) -> bool {
        let ordinal = self.slots[index].ordinal;
        if self.sizes_are_unrecorded {
            // Its turn has come, and nobody else's.
            return true;
        }
        let (scope, pod) = (Scope::Slot(ordinal), self.name(ordinal));
        if self.pass.is_backing_off(&scope, &pod) {
            return false;
        }
        self.pass.write_claims(&scope, commands);
        true
    }

    /// Whether a pod has to be made again for the file system of a volume, and may be.
    pub(super) fn needs_restart(&self, pod: &PodRecord) -> bool {
        matches!(self.look_at_growth(pod).0, Growth::NeedsRestart)
    }

    /// Whether what the growth of a pod's claims asks for now uses the budget, whatever else changes with it (STS-3.9).
    pub(super) fn growth_is_costly(&self, pod: &PodRecord) -> bool {
        matches!(self.look_at_growth(pod).0, Growth::Needed(_) | Growth::NeedsRestart)
    }

    /// The same, and what is waited for, without a word.
    pub(super) fn look_at_growth(&self, pod: &PodRecord) -> (Growth, Vec<(String, WaitCause)>) {
        let view = self.view;
        let (mut commands, mut waits) = (Vec::new(), Vec::new());
        let mut result = Growth::Done;
        if !self.is_advanced() || !view.set.spec.expand_claims {
            return (result, waits);
        }
        for template in &view.set.spec.claim_templates {
            let name = claim::claim_name(template, pod.name());
            let Some(found) = view.claim(&name) else {
                continue;
            };
            if found.meta.deleted.is_some() {
                // It goes with its pod, and the next one has what is asked for.
                let is_grown = claim::fit(found, template) == Fit::Compatible && claim::is_expanded(found, template);
                if !is_grown {
                    waits.push((name, WaitCause::CLAIM_TERMINATING));
                }
                continue;
            }
            let obstacle = match claim::fit(found, template) {
                Fit::Compatible if !found.is_bound || claim::is_expanded(found, template) => None,
                Fit::Compatible => match found.resize_pending_since {
                    None => Some(WaitCause::ClaimExpanding),
                    // It was made since, and its kubelet grows the file system as it mounts the volume.
                    Some(since) if pod.meta.created >= since => None,
                    Some(since) => match self.file_system_pending(&name, since) {
                        None => {
                            result = Growth::NeedsRestart;
                            None
                        }
                        Some(cause) => {
                            waits.push((name.clone(), cause));
                            None
                        }
                    },
                },
                // It cannot be asked to grow before it is bound, which may take this very update.
                Fit::TooSmall if !found.is_bound => None,
                Fit::TooSmall => match self.expansion_obstacle(found) {
                    None => {
                        commands.push(claim::expand(found, template, view.set.name()));
                        None
                    }
                    Some(difference) => Some(WaitCause::ClaimIncompatible { difference }),
                },
                Fit::Different(difference) => Some(WaitCause::ClaimIncompatible { difference }),
            };
            if let Some(cause) = obstacle {
                waits.push((name, cause));
                return (Growth::Waiting, waits);
            }
        }
        if commands.is_empty() {
            (result, waits)
        } else {
            (Growth::Needed(commands), waits)
        }
    }

    /// What is waited for while the file system of a grown volume has yet to grow; nothing, if the pod is to be made again for it. The policy
    /// decides: with `ReCreate` at once; with `InPlaceIfPossible` if it does not pass by itself within [`GROWS_MOUNTED_WITHIN`];
    /// with `InPlaceOnly` never, and the pod keeps its file system as it is until somebody restarts it.
    fn file_system_pending(&self, claim: &str, since: Timestamp) -> Option<WaitCause> {
        let policy = self.view.set.spec.pod_update_policy();
        let until = since.max(self.view.observing_since) + GROWS_MOUNTED_WITHIN;
        let is_over = self.view.now >= until;
        match policy {
            PodUpdatePolicy::ReCreate => None,
            PodUpdatePolicy::InPlaceIfPossible if is_over => None,
            PodUpdatePolicy::InPlaceIfPossible => Some(WaitCause::FileSystemPending {
                restart_at: Some(until),
            }),
            PodUpdatePolicy::InPlaceOnly if is_over => Some(WaitCause::InPlaceNotPossible {
                reason: format!("the file system of the volume of claim {claim} grows only when the pod is made again"),
            }),
            PodUpdatePolicy::InPlaceOnly => Some(WaitCause::FileSystemPending { restart_at: None }),
        }
    }

    fn say_of_growth(&mut self, pod: &PodRecord, claim: String, cause: WaitCause) {
        let policy = self.view.set.spec.pod_update_policy();
        match cause {
            WaitCause::InPlaceNotPossible { reason } => return self.pass.bar(pod, reason),
            WaitCause::ClaimIncompatible { ref difference } => self.pass.event_once(
                true,
                "FailedUpdatePVC",
                format!("claim {claim} cannot follow its template: {difference}"),
            ),
            WaitCause::FileSystemPending { restart_at } => {
                let now = self.view.now;
                // Under InPlaceOnly it is told then that somebody has to restart the pod.
                let found = self.view.claim(&claim).and_then(|c| c.resize_pending_since);
                let tell_at = found
                    .filter(|_| policy == PodUpdatePolicy::InPlaceOnly)
                    .map(|since| since.max(self.view.observing_since) + GROWS_MOUNTED_WITHIN);
                if let Some(at) = restart_at.or(tell_at) {
                    self.pass.wake_within(at.since(now));
                }
            }
            _ => {}
        }
        self.pass.wait(claim, cause, None);
    }

    /// Whether a claim of the pod has been asked to grow and has not yet.
    pub(super) fn is_expanding(&self, pod: &PodRecord) -> bool {
        let view = self.view;
        if !self.is_advanced() || !view.set.spec.expand_claims {
            return false;
        }
        let is_expanding = |template: &ClaimTemplate| {
            let found = view.claim(&claim::claim_name(template, pod.name()));
            found.is_some_and(|found| {
                found.is_bound
                    && found.meta.deleted.is_none()
                    && found.resize_pending_since.is_none()
                    && claim::fit(found, template) == Fit::Compatible
                    && !claim::is_expanded(found, template)
            })
        };
        view.set.spec.claim_templates.iter().any(is_expanding)
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
}

/// Names of claim templates that are no more, and of which a pod has volumes.
fn leftovers<'p>(
    pod: &'p PodRecord,
    spec: &'p SetSpec,
    former: &'p BTreeSet<Arc<str>>,
) -> impl Iterator<Item = &'p str> {
    let volumes = pod.volumes.iter().flat_map(|list| &**list);
    volumes
        .filter(|v| v.claim.is_none() && former.contains(&v.volume))
        .map(|v| &*v.volume)
        .filter(|volume| !template_mounts(&spec.template.tree(), volume, pod.name()))
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
