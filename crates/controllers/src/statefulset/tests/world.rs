//! A small world for property tests: it carries out what `decide` says, lets pods start, fail and leave in random order, and decides
//! again. Nothing is random but a number that the test generator draws, so every failing case can be run again.

use crate::testing::{Cluster, NS, at};
use flotilla_api::names;
use flotilla_model::decision::{Body, Command, PatchKind};
use flotilla_model::records::Phase;
use flotilla_model::{
    ClaimRecord, Decision, Failure, Hints, Labels, Meta, ObjectKey, OwnerRef, PodDraft, PodRecord, RecordedClaims,
    Report, Resource, RevisionRecord, Scope, SetKind, SetRecord, Uid,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Counts that the native API leaves out of what it stores when they are zero.
const OMITTED_WHEN_ZERO: &[&str] = &["readyReplicas", "currentReplicas", "updatedReplicas"];

/// How the world behaves between two passes.
// Independent ways of being unkind, not a state.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manners {
    /// Pods may fail, be deleted by others, or lose readiness.
    pub(super) rough: bool,
    /// Pods that do not run yet never will.
    pub(super) stuck: bool,
    /// The engine forgets its hints now and then.
    pub(super) forgetful: bool,
    /// The engine stops between any two writes, now and then.
    pub(super) crashing: bool,
    /// A quota is full: no pod can be tried while there are as many as the set wants.
    pub(super) full_quota: bool,
    /// A webhook takes no dry runs: no pod can be tried at all.
    pub(super) no_dry_runs: bool,
    /// Pods of the revision `old` that are not ready never will be.
    pub(super) broken_old: bool,
}

/// A cluster that changes.
#[derive(Clone)]
pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) manners: Manners,
    /// How often containers were restarted, by UID of the pod.
    pub(super) restarts: BTreeMap<String, u32>,
    /// Pods are made with what updates in place look at.
    is_seen_whole: bool,
    seed: u64,
    serial: u64,
}

impl World {
    pub(super) fn new(mut cluster: Cluster, seed: u64) -> Self {
        cluster.record = Some(cluster.record());
        World {
            is_seen_whole: cluster.pods.values().any(|pod| pod.detail.is_some()),
            cluster,
            manners: Manners::default(),
            restarts: BTreeMap::new(),
            seed: seed | 1,
            serial: 0,
        }
    }

    pub(super) fn set(&self) -> &SetRecord {
        self.cluster.record.as_ref().expect("the world was made with a set")
    }

    /// One in `n`.
    pub(super) fn chance(&mut self, n: u64) -> bool {
        // xorshift64: as good as needed, and the same on every machine.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 33).is_multiple_of(n)
    }

    /// Decides, carries it out, and hands back what was decided.
    pub(super) fn pass(&mut self) -> Result<Decision, String> {
        let decision = self.cluster.pass();
        for command in decision.clone().commands() {
            if self.manners.crashing && self.chance(4) {
                self.cluster.hints = Hints::default();
                return Ok(decision);
            }
            self.carry_out(&command.command)?;
        }
        self.write_status(&decision);
        if let Some(hints) = &decision.hints {
            self.cluster.hints = hints.clone();
        }
        for command in decision.commands() {
            if let Scope::Acceptance(revision) = &command.scope {
                self.answer_trial(&command.scope, revision);
            }
        }
        if self.manners.forgetful && self.chance(4) {
            self.cluster.hints = Hints::default();
        }
        Ok(decision)
    }

    /// The API server says whether it would accept a pod of a revision, or why it cannot say.
    fn answer_trial(&mut self, scope: &Scope, revision: &str) {
        let wanted = usize::try_from(self.set().spec.replicas).unwrap_or(0);
        let is_full = self.manners.full_quota && self.cluster.pods.len() >= wanted;
        let reason = match (self.manners.no_dry_runs, is_full) {
            (true, _) => "DryRunUnsupported",
            (false, true) => "QuotaExceeded",
            (false, false) => {
                self.cluster.hints.accepted.insert(revision.to_owned());
                return;
            }
        };
        let (now, failures) = (self.cluster.now, &mut self.cluster.hints.failures);
        let (reason, message) = (reason.to_owned(), "it says why".to_owned());
        let failure = Failure::follow(failures.get(scope), Report::Try, reason, message, now);
        failures.insert(scope.clone(), failure);
    }

    fn write_status(&mut self, decision: &Decision) {
        let Some(diff) = decision.status.as_ref().and_then(flotilla_model::StatusWrite::diff) else {
            return;
        };
        let native = self.set().kind == SetKind::Native;
        let mut status = (*self.set().status).clone();
        for (field, value) in diff.as_object().into_iter().flatten() {
            let omitted = native && OMITTED_WHEN_ZERO.contains(&field.as_str()) && value == 0;
            match status.as_object_mut() {
                Some(fields) if value.is_null() || omitted => drop(fields.remove(field)),
                Some(fields) => drop(fields.insert(field.clone(), value.clone())),
                None => {}
            }
        }
        let record = self.cluster.record.as_mut().expect("the world was made with a set");
        Arc::make_mut(record).status = Arc::new(status);
    }

    fn carry_out(&mut self, command: &Command) -> Result<(), String> {
        match command {
            Command::Create {
                body: Body::Pod(draft), ..
            } => self.create_pod(draft),
            Command::Create {
                resource: Resource::Claims,
                key,
                body,
                ..
            } => self.create_claim(key, &body.render()),
            Command::Create { body, .. } => self.create_revision(&body.render()),
            Command::Delete {
                resource: Resource::Pods,
                key,
                uid,
                ..
            } => self.delete_pod(key, uid),
            Command::Delete {
                resource: Resource::Revisions,
                key,
                ..
            } => {
                self.cluster.revisions.remove(key.name.as_str());
                self.index_revisions();
                Ok(())
            }
            Command::Patch {
                resource: Resource::Pods,
                key,
                kind,
                body,
                ..
            } => self.patch_pod(key, *kind, body),
            Command::Patch {
                resource: Resource::Revisions,
                key,
                body,
                ..
            } => self.patch_revision(key, body),
            Command::Patch {
                resource: Resource::Claims,
                key,
                body,
                ..
            } => self.patch_claim(key, body),
            Command::Try { .. } => Ok(()),
            other => Err(format!("nobody should want {other:?}")),
        }
    }

    fn meta(&mut self, name: &str, labels: Labels, owners: Vec<OwnerRef>) -> Meta {
        self.serial += 1;
        Meta {
            key: ObjectKey::new(NS, name),
            uid: Uid::new(&format!("made-{}", self.serial)),
            resource_version: self.serial,
            created: self.cluster.now,
            deleted: None,
            labels,
            owners: (!owners.is_empty()).then(|| Arc::new(owners)),
        }
    }

    fn create_pod(&mut self, draft: &PodDraft) -> Result<(), String> {
        let name = draft.key.name.as_str();
        if self.cluster.pods.contains_key(name) {
            return Err(format!("pod {name} is created although one of its name exists"));
        }
        let kept = [
            names::REVISION_LABEL,
            names::LIFECYCLE_STATE_LABEL,
            names::MADE_AS_LABEL,
        ];
        let kept = draft.labels.iter().filter(|(key, _)| kept.contains(key));
        let kept = kept.map(|(key, value)| (*key, value.as_str()));
        let labels = [("app", "web")].into_iter().chain(kept).collect();
        let meta = self.meta(name, labels, vec![(*draft.owner).clone()]);
        let record = PodRecord {
            meta,
            phase: Phase::Pending,
            ready: flotilla_model::records::ReadyCondition::default(),
            has_been_ready: false,
            has_name_label: true,
            has_index_label: true,
            has_instance_label: false,
            node: None,
            volumes: (!draft.claims.is_empty()).then(|| {
                let volume = |(volume, _): &(Arc<str>, String)| flotilla_model::records::VolumeClaim {
                    volume: volume.clone(),
                    claim: None,
                };
                Arc::new(draft.claims.iter().map(volume).collect())
            }),
            trouble: None,
            detail: self.is_seen_whole.then(|| Arc::new(super::kubelet::detail_of(draft))),
        };
        self.put_pod(record);
        Ok(())
    }

    /// Somebody deletes a pod.
    pub(super) fn delete_pod(&mut self, key: &ObjectKey, uid: &Uid) -> Result<(), String> {
        let Some(pod) = self.cluster.pods.get(key.name.as_str()).cloned() else {
            return Err(format!("pod {} is deleted although it is not there", key.name));
        };
        if pod.meta.uid != *uid || pod.is_terminating() {
            return Err(format!("pod {} is deleted again, or another one is meant", key.name));
        }
        // What nobody runs is gone at once.
        if pod.node.is_none() || self.chance(3) {
            self.take_pod(&key.name);
        } else {
            let mut pod = (*pod).clone();
            pod.meta.deleted = Some(self.cluster.now);
            self.put_pod(pod);
        }
        Ok(())
    }

    fn patch_pod(&mut self, key: &ObjectKey, kind: PatchKind, body: &Value) -> Result<(), String> {
        let Some(pod) = self.cluster.pods.get(key.name.as_str()) else {
            return Err(format!("pod {} is patched although it is not there", key.name));
        };
        let mut pod = (**pod).clone();
        if pod.detail.is_some() {
            super::kubelet::patch(&mut pod, kind, body, self.cluster.now)?;
        }
        if body
            .pointer("/metadata/labels")
            .is_some_and(|l| l.get(names::POD_NAME_LABEL).is_some())
        {
            pod.has_name_label = true;
        }
        if let Some(owner) = body.pointer("/metadata/ownerReferences/0") {
            let gone = owner.get("$patch").is_some();
            pod.meta.owners = (!gone).then(|| Arc::new(vec![owner_of(owner)]));
        }
        self.put_pod(pod);
        Ok(())
    }

    fn create_revision(&mut self, body: &Value) -> Result<(), String> {
        let name = body
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if self.cluster.revisions.contains_key(name) {
            return Err(format!("revision {name} is created although one of its name exists"));
        }
        let owner = owner_of(&body["metadata"]["ownerReferences"][0]);
        let labels = [("app", "web")].into_iter().collect();
        let meta = self.meta(name, labels, vec![owner]);
        let number = body["revision"].as_i64().unwrap_or(0);
        let claims = body["metadata"]["annotations"][names::CLAIM_TEMPLATES].as_str();
        let record = RevisionRecord::new(meta, number, &body["data"], claims);
        self.cluster.revisions.insert(name.to_owned(), Arc::new(record));
        self.index_revisions();
        Ok(())
    }

    fn patch_revision(&mut self, key: &ObjectKey, body: &Value) -> Result<(), String> {
        let Some(revision) = self.cluster.revisions.get_mut(key.name.as_str()) else {
            return Err(format!("revision {} is patched although it is not there", key.name));
        };
        let revision = Arc::make_mut(revision);
        if let Some(number) = body.get("revision").and_then(Value::as_i64) {
            revision.number = number;
        }
        if let Some(owner) = body.pointer("/metadata/ownerReferences/0") {
            revision.meta.owners = Some(Arc::new(vec![owner_of(owner)]));
        }
        if let Some(labels) = body.pointer("/metadata/labels").and_then(Value::as_object) {
            let put = labels
                .iter()
                .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
            let kept = revision
                .meta
                .labels
                .iter()
                .filter(|(key, _)| !labels.contains_key(*key));
            revision.meta.labels = kept.chain(put).collect();
        }
        let annotation = |key: &str| body.pointer("/metadata/annotations")?.get(key)?.as_str();
        if let Some(claims) = annotation(names::CLAIM_TEMPLATES) {
            let claims = serde_json::from_str(claims).map_err(|e| e.to_string())?;
            revision.claim_templates = Some(Arc::new(RecordedClaims::new(&claims)));
        }
        if let Some(sizes) = annotation(names::CLAIM_SIZES) {
            revision.claim_sizes = RevisionRecord::claim_sizes_of(sizes);
        }
        self.index_revisions();
        Ok(())
    }

    fn create_claim(&mut self, key: &ObjectKey, body: &Value) -> Result<(), String> {
        let owners = body.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let owners = owners.into_iter().flatten().map(owner_of).collect();
        let record = ClaimRecord {
            meta: self.meta(&key.name, Labels::default(), owners),
            storage_class: None,
            access_modes: None,
            requested_bytes: 10,
            capacity_bytes: 10,
            resize_pending_since: None,
            is_bound: true,
            expanded_by: None,
            annotations: Labels::default(),
        };
        let before = self.cluster.claims.insert(key.name.to_string(), Arc::new(record));
        before.map_or(Ok(()), |_| Err(format!("claim {} is created twice", key.name)))
    }

    fn patch_claim(&mut self, key: &ObjectKey, body: &Value) -> Result<(), String> {
        let Some(claim) = self.cluster.claims.get_mut(key.name.as_str()) else {
            return Err(format!("claim {} is patched although it is not there", key.name));
        };
        let owners = body.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let owners: Vec<OwnerRef> = owners.into_iter().flatten().map(owner_of).collect();
        Arc::make_mut(claim).meta.owners = (!owners.is_empty()).then(|| Arc::new(owners));
        Ok(())
    }

    pub(super) fn put_pod(&mut self, record: PodRecord) {
        self.cluster.pods.insert(record.name().to_owned(), Arc::new(record));
        self.index_pods();
    }

    pub(super) fn take_pod(&mut self, name: &str) {
        self.cluster.pods.remove(name);
        self.index_pods();
    }

    fn index_pods(&mut self) {
        let uid = self.set().meta.uid.clone();
        let own = |pod: &&Arc<PodRecord>| pod.meta.is_controlled_by(&uid);
        let orphan = |pod: &&Arc<PodRecord>| pod.meta.controller().is_none();
        self.cluster.own_pods = self.cluster.pods.values().filter(own).cloned().collect();
        self.cluster.orphan_pods = self.cluster.pods.values().filter(orphan).cloned().collect();
    }

    fn index_revisions(&mut self) {
        let uid = self.set().meta.uid.clone();
        let own = |r: &&Arc<RevisionRecord>| r.meta.is_controlled_by(&uid);
        let orphan = |r: &&Arc<RevisionRecord>| r.meta.controller().is_none();
        self.cluster.own_revisions = self.cluster.revisions.values().filter(own).cloned().collect();
        self.cluster.orphan_revisions = self.cluster.revisions.values().filter(orphan).cloned().collect();
    }

    /// Time passes, and pods go on with what they are about.
    pub(super) fn go_on(&mut self) {
        let seconds = if self.chance(2) { 3 } else { 20 };
        self.cluster.now = self.cluster.now + Duration::from_secs(seconds);
        for name in self.cluster.pods.keys().cloned().collect::<Vec<_>>() {
            let pod = (*self.cluster.pods[&name]).clone();
            self.go_on_with(pod);
        }
    }

    fn go_on_with(&mut self, mut pod: PodRecord) {
        let name = pod.name().to_owned();
        if pod.is_terminating() {
            if self.chance(2) {
                self.take_pod(&name);
            }
            return;
        }
        if pod.detail.is_some() {
            return self.go_on_in_place(&pod);
        }
        let is_broken = self.manners.broken_old && pod.revision() == Some("old");
        let starts = !pod.is_terminal() && !pod.is_running_and_ready() && !is_broken;
        if starts && !self.manners.stuck && self.chance(2) {
            pod.phase = Phase::Running;
            pod.node = Some("node-0".into());
            pod.has_been_ready = true;
            pod.ready.is_true = true;
            pod.ready.since = Some(self.cluster.now);
            self.put_pod(pod);
        } else if self.manners.rough && self.chance(6) {
            match self.seed % 3 {
                0 => return self.take_pod(&name),
                1 => pod.phase = Phase::Failed,
                _ => pod.ready.since = Some(self.cluster.now),
            }
            pod.ready.is_true = false;
            self.put_pod(pod);
        }
    }

    /// Somebody changes a field of the set's spec.
    pub(super) fn edit(&mut self, pointer: &str, value: Value) {
        self.change(|cluster| cluster.spec(pointer, value));
    }

    /// Somebody changes the set.
    pub(super) fn change(&mut self, change: impl FnOnce(Cluster) -> Cluster) {
        let status = (*self.set().status).clone();
        let mut cluster = change(self.cluster.clone());
        cluster.set["status"] = status;
        cluster.record = Some(cluster.record());
        self.cluster = cluster;
    }

    /// Claims whose owner is a pod or a set that is not there any more go.
    pub(super) fn collect_garbage(&mut self) {
        let pods = self.cluster.pods.values().map(|pod| &pod.meta.uid);
        let there: BTreeSet<Uid> = pods.chain([&self.set().meta.uid]).cloned().collect();
        let is_left = |owner: &OwnerRef| !there.contains(&owner.uid);
        self.cluster
            .claims
            .retain(|_, claim| !claim.meta.owners().iter().any(is_left));
    }

    /// Strangers leave and whatever stands in the way of pods heals, so that nothing excuses a set for not getting there.
    pub(super) fn calm_down(&mut self) {
        self.manners.rough = false;
        self.manners.stuck = false;
        let uid = self.set().meta.uid.clone();
        let strangers: Vec<String> = self
            .cluster
            .pods
            .values()
            .filter(|pod| !pod.meta.is_controlled_by(&uid))
            .map(|pod| pod.name().to_owned())
            .collect();
        for name in strangers {
            self.take_pod(&name);
        }
    }

    /// The pods of wanted slots, ascending; `None` for an empty one.
    pub(super) fn slots(&self) -> Vec<(i64, Option<Arc<PodRecord>>)> {
        let mut members: BTreeMap<i64, Arc<PodRecord>> = self.cluster.members().map(|(o, p)| (o, p.clone())).collect();
        let wanted = self.set().spec.ordinals();
        wanted
            .iter()
            .map(|ordinal| (ordinal, members.remove(&ordinal)))
            .collect()
    }

    /// Whether a pod counts as available in this world.
    pub(super) fn is_available(&self, pod: &PodRecord) -> bool {
        !pod.is_terminating() && pod.is_available(self.set().spec.min_ready, self.cluster.now)
    }

    /// How many wanted slots have no available pod.
    pub(super) fn unavailable(&self) -> usize {
        let is_up = |pod: &Option<Arc<PodRecord>>| pod.as_ref().is_some_and(|pod| self.is_available(pod));
        self.slots().iter().filter(|(_, pod)| !is_up(pod)).count()
    }

    /// Moves the clock so far that no wait is excused by being young.
    pub(super) fn let_a_minute_pass(&mut self) {
        self.cluster.now = self.cluster.now + Duration::from_secs(61);
        debug_assert!(self.cluster.now > at(0));
    }
}

fn owner_of(json: &Value) -> OwnerRef {
    let text = |field: &str| json.get(field).and_then(Value::as_str).unwrap_or_default();
    let flag = |field: &str| json.get(field).and_then(Value::as_bool).unwrap_or(false);
    OwnerRef {
        api_version: text("apiVersion").into(),
        kind: text("kind").into(),
        name: text("name").into(),
        uid: Uid::new(text("uid")),
        controller: flag("controller"),
        block_owner_deletion: flag("blockOwnerDeletion"),
    }
}
