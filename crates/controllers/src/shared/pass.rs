//! What the steps of a pass have in common, whatever the kind: what they look at, and what they write down.

use crate::shared::adoption;
use crate::shared::conditions;
use crate::shared::course::{Held, Trouble};
use crate::shared::health::{Health, cause, since};
use crate::shared::inplace::UpdateSpec;
use crate::shared::lifecycle::{self, State, since_state};
use crate::shared::moment::Moment;
use crate::shared::readiness::PRE_DELETE;
use crate::shared::renewal::Compared;
use crate::shared::revision::{self, Revisions};
use crate::shared::trial::Acceptance;
use crate::shared::{waits, withheld};
use flotilla_model::decision::{Command, Scope, ScopedCommand, Stage};
use flotilla_model::{
    Decision, Failure, Hints, PodRecord, Report, Resource, RevisionRecord, SetKind, Timestamp, Wait, WaitCause,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How many notes are remembered that are not the case any more.
const MOST_REMEMBERED: usize = 64;
/// How many pods a quota has to refuse before it is clear that it has no room for others.
pub(crate) const QUOTA_TRIES: usize = 8;

/// Commands of a pass, by what they are for. Executed in this order.
#[derive(Default)]
pub(crate) struct Stages {
    /// Adoption, release, revisions.
    pub(crate) claim: Vec<ScopedCommand>,
    /// Whether pods of a revision are accepted.
    pub(crate) trial: Vec<ScopedCommand>,
    /// Claims of new pods, and owner references of existing claims.
    pub(crate) claims: Vec<ScopedCommand>,
    /// New pods.
    pub(crate) create: Vec<ScopedCommand>,
    /// Labels of pods.
    pub(crate) repair: Vec<ScopedCommand>,
    /// Conditions that take pods out of service; in the end also those of `back` that wait for nothing.
    pub(crate) unready: Vec<ScopedCommand>,
    /// Pods that are changed, and states of their lifecycle.
    pub(crate) in_place: Vec<ScopedCommand>,
    /// Resources of containers.
    pub(crate) resize: Vec<ScopedCommand>,
    /// Conditions that put pods back into service.
    pub(crate) back: Vec<ScopedCommand>,
    /// Pods that end, are not wanted, or are old.
    pub(crate) delete: Vec<ScopedCommand>,
    /// Unused revisions.
    pub(crate) history: Vec<ScopedCommand>,
}

impl Stages {
    /// All commands.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ScopedCommand> {
        self.vectors().into_iter().flatten()
    }

    fn vectors(&self) -> [&Vec<ScopedCommand>; 11] {
        [
            &self.claim,
            &self.trial,
            &self.claims,
            &self.create,
            &self.repair,
            &self.unready,
            &self.in_place,
            &self.resize,
            &self.back,
            &self.delete,
            &self.history,
        ]
    }

    /// How many commands there are.
    pub(crate) fn len(&self) -> usize {
        self.vectors().into_iter().map(Vec::len).sum()
    }

    /// What goes back into service waits for no other pod: it goes with what leaves service, if anything does, unless its own pod is
    /// changed before. In a rolling update every pass would otherwise hold it up for two round trips.
    fn hurry_back(&mut self) {
        if self.unready.is_empty() {
            return;
        }
        let changed = [&self.unready, &self.resize, &self.in_place].into_iter().flatten();
        let changed: BTreeSet<Scope> = changed.map(|c| c.scope.clone()).collect();
        let back = std::mem::take(&mut self.back);
        let (after, now): (Vec<_>, Vec<_>) = back.into_iter().partition(|c| changed.contains(&c.scope));
        self.unready.splice(0..0, now);
        self.back = after;
    }
}

/// Everything that the steps of one pass write down.
pub(crate) struct Pass<'v> {
    pub(crate) moment: Moment<'v>,
    pub(crate) revisions: Revisions,
    /// The update revision, which exists when there is a plan.
    pub(crate) update: Arc<RevisionRecord>,
    /// The current revision.
    pub(crate) current: Arc<RevisionRecord>,
    /// The revision that the update brings pods to; all but always the update revision.
    pub(crate) target: Arc<RevisionRecord>,
    /// The update does not look at pods in this pass, so pods that it prepared are left as they are.
    pub(crate) update_rests: bool,
    pub(crate) stages: Stages,
    pub(crate) waits: Vec<Wait>,
    pub(crate) wake_after: Option<Duration>,
    pub(crate) hints: Hints,
    /// Scopes whose pod is to be made again instead of being changed.
    pub(crate) given_up: BTreeSet<Scope>,
    /// Scopes in which something is wanted and not tried, because it failed a moment ago.
    pub(crate) held_back: BTreeSet<Scope>,
    pub(crate) events: Vec<flotilla_model::EventNote>,
    /// What this pass has to tell, whether it is told now or was before.
    told: BTreeSet<String>,
    /// What conditions tell about updates in place.
    pub(crate) troubles: Vec<Trouble>,
    /// An update in place is late, and not for as long as we have watched: that it is stuck is not told anew, nor that it is over.
    pub(crate) may_be_stuck: bool,
    /// Whether what pods are made of is accepted, as far as this pass has asked.
    pub(crate) acceptances: BTreeMap<String, Acceptance>,
    /// What revisions differ in from the target, as far as it was asked.
    pub(crate) differences: BTreeMap<Compared, Result<UpdateSpec, String>>,
}

impl<'v> Pass<'v> {
    pub(crate) fn new(moment: Moment<'v>, revisions: Revisions, update: Arc<RevisionRecord>) -> Self {
        let current = revisions.current.clone().unwrap_or_else(|| update.clone());
        let mut hints = moment.hints.clone();
        if hints.generation != moment.set.generation {
            // An edit of the set clears what failed, as it may have removed the cause.
            hints.generation = moment.set.generation;
            hints.failures.clear();
        }
        Pass {
            moment,
            current,
            target: update.clone(),
            update,
            revisions,
            update_rests: false,
            stages: Stages::default(),
            waits: Vec::new(),
            wake_after: None,
            hints,
            given_up: BTreeSet::new(),
            held_back: BTreeSet::new(),
            events: Vec::new(),
            told: BTreeSet::new(),
            troubles: Vec::new(),
            may_be_stuck: false,
            acceptances: BTreeMap::new(),
            differences: BTreeMap::new(),
        }
    }

    /// Step *claim*: pods and revisions are adopted and released.
    pub(crate) fn claim_objects(&mut self, release: &[Arc<PodRecord>], adopt: &[Arc<PodRecord>]) {
        let commands = std::mem::take(&mut self.revisions.commands);
        // A revision that cannot be adopted does not hold up the pods; it is tried again.
        for command in commands {
            self.claim_object(command);
        }
        let moment = self.moment;
        for pod in release {
            self.claim_object(adoption::release(Resource::Pods, &pod.meta, &moment.set.meta.uid));
        }
        for pod in adopt {
            let resource = moment.set.kind.resource();
            self.claim_object(adoption::adopt(Resource::Pods, &pod.meta, moment.owner, resource));
        }
    }

    /// Revisions beyond the limit that nobody uses go; none while a pod may yet come of a request that was lost, at a revision that nobody
    /// names any more.
    pub(crate) fn drop_history<'p>(&mut self, in_use: impl Iterator<Item = &'p str>) {
        let moment = self.moment;
        let limit = moment.set.spec.history_limit;
        let dropped = revision::truncate(&self.revisions, limit, &moment.set.meta.uid, in_use);
        if let Some(until) = self.hints.arrivals_until.filter(|until| *until > moment.now) {
            if !dropped.is_empty() {
                self.wake_within(until.since(moment.now));
            }
            return;
        }
        for command in dropped {
            let scope = Scope::Named(command.key().name.to_string());
            if self.hints.failures.get(&scope).is_none_or(|f| f.retry_at <= moment.now) {
                self.stages.history.push(ScopedCommand { scope, command });
            } else {
                self.held_back.insert(scope);
            }
        }
    }

    /// Notes on the update revision which claim templates there are, and puts back labels of revisions that were taken off.
    pub(crate) fn refresh_revision(&mut self, owner: &revision::Owner<'_>) {
        let history = self.revisions.history.iter();
        let labels = history.filter_map(|r| Some((r.name().to_owned(), revision::relabel(owner, r)?)));
        let claims = revision::refresh_claims(owner, &self.update);
        let claims = claims.map(|command| (self.update.name().to_owned(), command));
        let commands: Vec<_> = labels.chain(claims).collect();
        for (name, command) in commands {
            let scope = Scope::Named(name.clone());
            if !self.is_backing_off(&scope, &name) {
                self.stages.claim.push(ScopedCommand { scope, command });
            }
        }
    }

    pub(crate) fn wait(&mut self, subject: String, cause: WaitCause, since: Option<Timestamp>) {
        self.waits.push(Wait { subject, cause, since });
    }

    /// Whether no pods are wanted, and there is a partition for those that will be. What is true of all pods is true of none: it would
    /// make the update revision the current one, and the partition would keep nothing back when the set is scaled up again (STS-3.10
    /// and CS-21.2).
    pub(crate) fn is_held_at_nothing(&self) -> bool {
        let spec = &self.moment.set.spec;
        spec.replicas == 0 && spec.has_partition() && self.current.meta.uid != self.update.meta.uid
    }

    /// Each wait once.
    pub(crate) fn merge_waits(&mut self) {
        waits::merge(&mut self.waits);
    }

    /// Notes since when each wait that has no time of its own has been there; the first few, as memory is bounded.
    pub(crate) fn date_waits(&mut self) {
        const DATED: usize = 64;
        let known = std::mem::take(&mut self.hints.waiting);
        let undated = self
            .waits
            .iter()
            .filter(|w| w.since.is_none() && !w.cause.is_intended());
        for wait in undated.take(DATED) {
            let key = wait.key();
            let since = known.get(&key).copied().unwrap_or(self.moment.now);
            self.hints.waiting.insert(key, since);
        }
    }

    /// Waits for a pod to become available, and wakes up when it does so by the clock.
    pub(crate) fn wait_for(&mut self, pod: &PodRecord, health: Health) {
        if let Health::NotAvailable(left) = health {
            self.wake_within(left);
        }
        let cause = cause(pod, health);
        // Labels have no time of their own, and how long the pod has been ready says nothing of them.
        let is_dated = !matches!(cause, WaitCause::LifecycleState { .. });
        let since = is_dated.then(|| since(pod, health));
        self.wait(pod.name().to_owned(), cause, since);
    }

    pub(crate) fn wake_within(&mut self, delay: Duration) {
        self.wake_after = Some(self.wake_after.map_or(delay, |known| known.min(delay)));
    }

    /// Whether a slot's last command failed a moment ago. Then it is said, and not repeated yet.
    pub(crate) fn is_backing_off(&mut self, scope: &Scope, subject: &str) -> bool {
        let Some(failure) = self.hints.failures.get(scope).cloned() else {
            return false;
        };
        // One that is to be made again instead of being changed: what was refused is not what is tried.
        let is_given_up =
            self.given_up.contains(scope) && !matches!(failure.attempt, Report::Delete | Report::ReCreate);
        if failure.retry_at <= self.moment.now || is_given_up {
            return false;
        }
        self.held_back.insert(scope.clone());
        self.wake_within(failure.retry_at.since(self.moment.now));
        let cause = failure.wait_cause();
        let is_said = self
            .waits
            .last()
            .is_some_and(|w| w.subject == subject && w.cause == cause);
        if !is_said {
            self.wait(subject.to_owned(), cause, Some(failure.since));
        }
        true
    }

    /// Where a quota has refused pods that were to be made.
    pub(crate) fn refused_by_quota(&self) -> impl Iterator<Item = &Scope> {
        let is_refused = |f: &Failure| f.attempt == Report::Create && f.reason == Failure::QUOTA_EXCEEDED;
        let failures = self.hints.failures.iter();
        failures.filter(move |(_, f)| is_refused(f)).map(|(scope, _)| scope)
    }

    /// The same of a patch that saves something of a pod that stays: that its deletion was refused holds up nothing any more.
    pub(crate) fn is_backing_off_from_patches(&mut self, scope: &Scope, subject: &str) -> bool {
        let failure = self.hints.failures.get(scope);
        let is_of_deletion = failure.is_some_and(|f| matches!(f.attempt, Report::Delete | Report::ReCreate));
        !is_of_deletion && self.is_backing_off(scope, subject)
    }

    /// Deletes a pod of ours, once no hook holds it (STS-3.8). Until then it is out of service as far as the hook asks for it. One that
    /// is unavailable, and uses no budget, only as it was seen. Whether it is deleted now.
    pub(crate) fn take_away(&mut self, scope: &Scope, pod: &PodRecord, only_as_seen: bool, report: Report) -> bool {
        let hook = self.moment.set.spec.lifecycle.pre_delete.clone();
        if lifecycle::held_by(hook.as_ref(), pod).is_empty() || pod.detail.is_none() {
            self.delete(scope, pod, report);
            return true;
        }
        if State::of(pod) == State::PreparingDelete {
            let since = pod.detail.as_ref().and_then(|d| since_state(d));
            let cause = lifecycle::hold_of("preDelete", hook.as_ref(), pod);
            self.wait(pod.name().to_owned(), cause, since);
        }
        let held = Held {
            pod,
            state: State::PreparingDelete,
            key: PRE_DELETE,
            marks: hook.is_some_and(|h| h.mark_not_ready),
            only_as_seen,
            metadata: serde_json::json!({}),
        };
        self.hold(scope, held);
        false
    }

    /// Deletes a pod of ours: only this incarnation, only as it was seen (STS-1.6).
    pub(crate) fn delete(&mut self, scope: &Scope, pod: &PodRecord, report: Report) {
        let command = Command::Delete {
            resource: Resource::Pods,
            key: pod.meta.key.clone(),
            uid: pod.meta.uid.clone(),
            resource_version: Some(pod.meta.resource_version),
            report,
        };
        self.stages.delete.push(ScopedCommand {
            scope: scope.clone(),
            command,
        });
    }

    /// Says which of the commands of this pass the engine holds back, since the same were sent again and again.
    pub(crate) fn say_held_back(&mut self) {
        let now = self.moment.now;
        let wanted: BTreeMap<&Scope, &str> = self
            .stages
            .all()
            .map(|c| (&c.scope, c.command.key().name.as_str()))
            .collect();
        let held = self.hints.repeated.iter().filter(|(_, held)| held.retry_at > now);
        let waits = held.filter_map(|(scope, held)| {
            Some(Wait {
                subject: (*wanted.get(scope)?).to_owned(),
                cause: held.wait_cause(),
                since: Some(held.since),
            })
        });
        let waits: Vec<Wait> = waits.collect();
        self.waits.extend(waits);
    }

    /// A failure is over when nothing is wanted any more where it happened. It need not have been our doing: the write whose answer was
    /// lost took effect after all, somebody else deleted the pod, or it was adopted.
    pub(crate) fn forget_failures(&mut self) {
        let wanted: BTreeSet<&Scope> = self.stages.all().map(|c| &c.scope).chain(&self.held_back).collect();
        let mut failures = std::mem::take(&mut self.hints.failures);
        failures.retain(|scope, failure| wanted.contains(scope) || self.is_still_refused(scope, failure.retry_at));
        self.hints.failures = failures;
        self.forget_acceptances();
    }

    /// Writes to claims of a pod, which come before the pod.
    pub(crate) fn write_claims(&mut self, scope: &Scope, commands: impl IntoIterator<Item = Command>) {
        let scoped = |command| ScopedCommand {
            scope: scope.clone(),
            command,
        };
        self.stages.claims.extend(commands.into_iter().map(scoped));
    }

    /// The stages, as a decision. Under OrderedReady a failure ends the pass.
    pub(crate) fn into_decision(mut self, status: flotilla_model::StatusWrite) -> Decision {
        if let Some(delay) = conditions::next_report(self.moment, &self.hints, &self.waits) {
            self.wake_within(delay);
        }
        let all_or_stop = self.moment.set.spec.is_monotonic();
        self.stages.hurry_back();
        let stage = |name, commands: Vec<ScopedCommand>, slow_start| Stage {
            name,
            commands,
            all_or_stop,
            slow_start,
        };
        let stages = [
            stage("claim", self.stages.claim, false),
            Stage {
                name: "trial",
                commands: self.stages.trial,
                // A revision that is refused stops nothing but the update to it.
                all_or_stop: false,
                slow_start: false,
            },
            stage("claims", self.stages.claims, true),
            stage("create", self.stages.create, true),
            stage("repair", self.stages.repair, true),
            stage("unready", self.stages.unready, true),
            stage("in-place", self.stages.in_place, true),
            stage("resize", self.stages.resize, true),
            stage("ready", self.stages.back, true),
            stage("delete", self.stages.delete, true),
            stage("history", self.stages.history, false),
        ];
        Decision {
            stages: stages.into_iter().filter(|s| !s.commands.is_empty()).collect(),
            status: Some(status),
            events: self.events,
            waits: self.waits,
            wake_after: self.wake_after,
            hints: (self.hints != *self.moment.hints).then_some(self.hints),
        }
    }

    /// Adds a claiming command, unless it failed a moment ago.
    pub(crate) fn claim_object(&mut self, command: Command) {
        let name = command.key().name.to_string();
        let scope = Scope::Named(name.clone());
        let failure = self
            .hints
            .failures
            .get(&scope)
            .filter(|f| f.retry_at > self.moment.now)
            .cloned();
        match failure {
            None => self.stages.claim.push(ScopedCommand { scope, command }),
            Some(f) => {
                self.held_back.insert(scope);
                self.wake_within(f.retry_at.since(self.moment.now));
                self.wait(name, f.wait_cause(), Some(f.since));
            }
        }
    }

    /// An event that is not repeated while nothing about it changes.
    pub(crate) fn event_once(&mut self, warning: bool, reason: &'static str, message: String) {
        let text = format!("{reason}: {message}");
        self.told.insert(text.clone());
        if self.hints.reported.insert(text) {
            self.events.push(flotilla_model::EventNote {
                warning,
                reason,
                message,
            });
        }
    }

    /// Fields that cannot be read are told in an event, once for each state of the set's spec.
    pub(crate) fn note_unreadable_fields(&mut self) {
        self.waits.splice(0..0, self.moment.unreadable_fields());
        for problem in &self.moment.set.spec.problems {
            let message = format!("{} holds {}, and {}", problem.path, problem.found, problem.rule);
            self.event_once(true, "UnreadableField", message);
        }
        self.note_withheld();
        self.note_idle_switches();
        self.forget_what_was_told();
    }

    /// What is the case now has just been told and stays known. What is not is forgotten once nothing is in the way that nobody asked for:
    /// should it come back, it is told again. In the course of a rollout it may come and go from pass to pass, and is kept so that it is
    /// told once; but not without end.
    fn forget_what_was_told(&mut self) {
        let is_over = self.waits.iter().all(|wait| wait.cause.is_intended());
        if is_over || self.hints.reported.len() > self.told.len() + MOST_REMEMBERED {
            self.hints.reported.retain(|text| self.told.contains(text));
        }
    }

    /// Switches that do nothing are told once. Of other kinds admission warns; of native sets it is not asked, so that none waits for us.
    fn note_idle_switches(&mut self) {
        if self.moment.set.kind != SetKind::Native {
            return;
        }
        for (key, what) in &self.moment.set.spec.switches.idle {
            let message = format!("the annotation {key} {what}");
            self.event_once(true, "SwitchWithoutEffect", message);
        }
    }

    /// What pods do not get from their template is told once.
    fn note_withheld(&mut self) {
        let (kind, spec) = (self.moment.set.kind, &self.moment.set.spec);
        for key in withheld::of(kind, &spec.template, &spec.selector) {
            let message = format!(
                "{key} of the template is not given to pods: it says something of one pod, and would hold for each"
            );
            self.event_once(true, "TemplateKeyIgnored", message);
        }
    }
}
