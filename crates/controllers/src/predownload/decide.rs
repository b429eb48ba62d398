//! One pass over a set: is there an update to pull images for, which of its jobs are missing, and which have served their time.

use super::job::{self, Wanted};
use crate::cloneset::Defaults;
use crate::shared::adoption::controller_ref;
use crate::shared::inplace::eligible;
use crate::shared::moment::Moment;
use crate::shared::renewal::may_update_in_place;
use crate::shared::revision;
use flotilla_api::names;
use flotilla_model::decision::{Command, PatchKind, Scope, ScopedCommand, Stage};
use flotilla_model::set::{Area, PodUpdatePolicy};
use flotilla_model::{
    Decision, Failure, ImagePullJobRecord, OwnerRef, PassContext, Reader, Report, Resource, RevisionRecord, SetRecord,
    Wait,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Sets of no more pods are updated without (STS-5.3).
const FEW_REPLICAS: i32 = 3;

/// Decides what to pull ahead for a set.
pub(super) fn decide(set: &SetRecord, reader: &dyn Reader, clones: Defaults, context: PassContext<'_>) -> Decision {
    let owner = controller_ref(set.kind.resource(), set.name(), &set.meta.uid);
    let mut plan = Plan {
        set,
        owner: &owner,
        reader,
        clones,
        context,
        commands: Vec::new(),
        wanted: BTreeSet::new(),
        decision: Decision::default(),
    };
    // Jobs of a deleted set go by garbage collection.
    if reader.knows_image_pull_jobs() && !set.is_deleted() && !set.spec.is_stopped(Area::Everything) {
        plan.look();
    }
    plan.into_decision()
}

/// What comes of whether images are pulled for an update revision.
enum Verdict {
    /// Not as things are; that may change with the set, so nothing is noted.
    NotNow,
    /// Not for this revision, whatever becomes of the set.
    Never,
    /// These, one job each.
    Pull(Vec<Wanted>),
}

struct Plan<'v> {
    set: &'v SetRecord,
    owner: &'v OwnerRef,
    reader: &'v dyn Reader,
    clones: Defaults,
    context: PassContext<'v>,
    commands: Vec<ScopedCommand>,
    /// Scopes in which something is wanted, whether it is tried now or not.
    wanted: BTreeSet<Scope>,
    decision: Decision,
}

impl<'v> Plan<'v> {
    fn look(&mut self) {
        let Some((current, update)) = self.revisions() else {
            return;
        };
        let jobs = self.reader.image_pull_jobs_of(self.set.as_owner());
        let is_over = current.meta.uid == update.meta.uid;
        let hash = revision::short(update.name());
        for job in jobs.iter().filter(|job| job.meta.deleted.is_none()) {
            // STS-5.5, and at once those of an update that another one has overtaken.
            if is_over || job.meta.labels.get(names::REVISION_HASH_LABEL) != Some(hash) {
                self.command(&job.meta.key.name, delete(job));
            }
        }
        let has = |label| update.meta.labels.get(label).is_some();
        let is_noted = has(names::PRE_DOWNLOAD_CREATED_LABEL);
        let is_decided = has(names::PRE_DOWNLOAD_IGNORED_LABEL) || is_noted && self.context.hints.failures.is_empty();
        if is_over || is_decided || self.set.spec.is_stopped(Area::Update) {
            return;
        }
        match self.verdict(&current, &update) {
            Verdict::Never if !is_noted => self.label(&update, names::PRE_DOWNLOAD_IGNORED_LABEL),
            Verdict::Never | Verdict::NotNow => {}
            Verdict::Pull(wanted) => self.pull(&update, &wanted, is_noted),
        }
    }

    /// The current and the update revision, once the latter is there and need not be raised: until a former one has been, it carries what was
    /// noted on it then.
    fn revisions(&self) -> Option<(Arc<RevisionRecord>, Arc<RevisionRecord>)> {
        let moment = Moment {
            set: self.set,
            owner: self.owner,
            now: self.context.now,
            observing_since: self.context.observing_since,
            hints: self.context.hints,
            supports_resize: self.reader.supports_resize(),
        };
        let candidates = revision::candidates(self.set, self.reader);
        let named = |name: &str| self.reader.revision(&self.set.meta.key.sibling(name)).cloned();
        let found = revision::resolve(moment.revision_owner(), candidates, [], named);
        let update = found.update.filter(|_| !found.is_to_rise)?;
        Some((found.current?, update))
    }

    /// STS-5.2 and STS-5.3. What depends on the set is asked again whenever it changes, and noted nowhere.
    fn verdict(&self, current: &RevisionRecord, update: &RevisionRecord) -> Verdict {
        let spec = &self.set.spec;
        let for_recreation = spec.pre_download.also_for_recreation;
        let changes_pods = may_update_in_place(self.set) && !self.recreates_for_claims(current, update);
        let is_small = spec.replicas <= FEW_REPLICAS || self.fits_one_batch();
        let is_early = self.updated_ready(update) < spec.pre_download.min_updated_ready.ceil_of(spec.replicas);
        if is_small || is_early || !changes_pods && !for_recreation {
            return Verdict::NotNow;
        }
        let (Some(old), Some(new)) = (&current.template, &update.template) else {
            return Verdict::NotNow;
        };
        let (old, new) = (old.tree(), new.tree());
        let wanted = job::wanted(&old, update);
        if wanted.is_empty() || !for_recreation && eligible::compare(self.set.kind, &old, &new).is_err() {
            return Verdict::Never;
        }
        Verdict::Pull(wanted)
    }

    /// Whether all pods may be updated at once.
    fn fits_one_batch(&self) -> bool {
        let spec = &self.set.spec;
        let (partition, unavailable) = match &spec.clones {
            Some(clones) => (
                clones.partition.kept_of(spec.replicas),
                clones.max_unavailable.floor_of(spec.replicas),
            ),
            None => {
                let budget = spec.rolling.as_ref().and_then(|r| r.max_unavailable);
                (spec.partition(), budget.map_or(1, |b| b.floor_of(spec.replicas)))
            }
        };
        partition == 0 && unavailable >= spec.replicas
    }

    /// Whether pods are made anew since their claim templates have changed too (CS-15.6).
    fn recreates_for_claims(&self, current: &RevisionRecord, update: &RevisionRecord) -> bool {
        let spec = &self.set.spec;
        let clones = spec.clones.as_ref().map(|clones| self.clones.apply(clones));
        let asked = clones.is_some_and(|clones| clones.switches.recreate_on_claim_change);
        let hashes = current.claim_hash.as_ref().zip(update.claim_hash.as_ref());
        asked && spec.pod_update_policy() != PodUpdatePolicy::InPlaceOnly && hashes.is_some_and(|(old, new)| old != new)
    }

    /// As the status says; what it says of another revision does not count.
    fn updated_ready(&self, update: &RevisionRecord) -> i32 {
        if self.set.status_text("updateRevision") == update.name() {
            self.set.status_count("updatedReadyReplicas")
        } else {
            0
        }
    }

    /// Makes the jobs that are missing. Once each is there or was refused, and one is there, that is noted, and what is gone by then is
    /// not made again; what was refused is still tried.
    fn pull(&mut self, update: &RevisionRecord, wanted: &[Wanted], is_noted: bool) {
        let (mut there, mut untried) = (false, false);
        for job in wanted {
            let key = self.set.meta.key.sibling(&*job.name);
            let was_refused = self.failure(&job.name).is_some();
            match self.reader.image_pull_job(&key) {
                Some(found) if found.meta.deleted.is_none() => there = true,
                // The name is free in a moment.
                Some(_) => untried |= !was_refused,
                None if was_refused || !is_noted => {
                    untried |= !was_refused;
                    self.command(&job.name, job::create(self.set, self.owner, update, job));
                }
                None => {}
            }
        }
        if there && !untried && !is_noted {
            self.label(update, names::PRE_DOWNLOAD_CREATED_LABEL);
        }
    }

    fn label(&mut self, update: &RevisionRecord, label: &str) {
        let command = Command::Patch {
            resource: Resource::Revisions,
            key: update.meta.key.clone(),
            uid: update.meta.uid.clone(),
            subresource: None,
            kind: PatchKind::Merge,
            body: json!({"metadata": {"labels": {label: Value::from("true")}}}),
            resource_version: None,
            guard: None,
            report: Report::Silent,
        };
        self.command(update.name(), command);
    }

    fn failure(&self, name: &str) -> Option<&'v Failure> {
        self.context.hints.failures.get(&Scope::Named(name.to_owned()))
    }

    /// Adds a command in a scope of its own, unless it was refused a moment ago.
    fn command(&mut self, name: &str, command: Command) {
        let scope = Scope::Named(name.to_owned());
        self.wanted.insert(scope.clone());
        let now = self.context.now;
        match self.failure(name).filter(|failure| failure.retry_at > now) {
            None => self.commands.push(ScopedCommand { scope, command }),
            Some(failure) => {
                self.decision.wake_within(failure.retry_at.since(now));
                self.decision.waits.push(Wait {
                    subject: name.to_owned(),
                    cause: failure.wait_cause(),
                    since: Some(failure.since),
                });
            }
        }
    }

    fn into_decision(mut self) -> Decision {
        if !self.commands.is_empty() {
            self.decision.stages.push(Stage {
                name: "pull-ahead",
                commands: self.commands,
                all_or_stop: false,
                slow_start: false,
            });
        }
        // A failure is over when nothing is wanted any more where it happened.
        let mut hints = self.context.hints.clone();
        hints.failures.retain(|scope, _| self.wanted.contains(scope));
        if hints != *self.context.hints {
            self.decision.hints = Some(hints);
        }
        self.decision
    }
}

fn delete(job: &ImagePullJobRecord) -> Command {
    Command::Delete {
        resource: Resource::ImagePullJobs,
        key: job.meta.key.clone(),
        uid: job.meta.uid.clone(),
        resource_version: None,
        report: Report::Silent,
    }
}
