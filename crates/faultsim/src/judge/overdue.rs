//! Updates in place that do not end in time: that is told, and their pods are made again where users ask for that (STS-8.12).

use super::view::Sight;
use super::{Verdict, partition_of, place_of, require, unordered};
use crate::containers::has_all_its_resources;
use crate::deferrals::tells_of_deferral;
use crate::in_place::{
    awaits_restart, began, is_in_grace, is_in_service, lacks_resources, runs, runs_what_is_asked, state,
};
use crate::switches::{Switch, in_place_deadline};
use flotilla_model::decision::Scope;
use flotilla_model::set::{PodUpdatePolicy, UpdateKind};
use flotilla_model::{Command, Decision, PodRecord, Resource, SetKind, SetRecord, Timestamp, WaitCause};
use serde_json::Value;
use std::time::Duration;

const RULE: &str = "STS-8.12 deadline";
const TOLD: &str = "InPlaceUpdateStuck";

/// How long ago the update in place of a pod began that has noted one, and neither waits for anything else nor goes.
fn noted_for(pod: &PodRecord, now: Timestamp, not_before: Timestamp) -> Option<Duration> {
    let is_over = pod.is_terminal() || pod.is_terminating() || is_in_grace(pod);
    let began = began(pod).filter(|_| !is_over)?;
    Some(now.since(began.max(not_before)))
}

/// Whether a pod that is up to date may be made again, since its update did not end in time.
pub(crate) fn may_be_made_again(pod: &PodRecord, set: &SetRecord, now: Timestamp) -> bool {
    let deadline = in_place_deadline(set).filter(|_| Switch::DeadlineAction.value(set) == Some("recreate"));
    // What is pulled in vain has the name of the image already, and does not run; a node that has no room gives no resources; and what
    // came of a restart may not be known yet, so that the pod is still out of service. One that its hook has held since then may have come
    // to its end meanwhile: it goes nevertheless.
    let is_unfinished = !runs_what_is_asked(pod)
        || !is_in_service(pod)
        || !runs(pod)
        || !has_all_its_resources(pod)
        || lacks_resources(pod)
        || awaits_restart(pod)
        || state(pod) == "PreparingDelete";
    let lasted = noted_for(pod, now, Timestamp::from_millis(0)).filter(|_| is_unfinished);
    deadline
        .zip(lasted)
        .is_some_and(|(deadline, lasted)| lasted >= deadline)
}

impl Sight<'_> {
    /// Who is overdue is named by the condition, and is made again where users ask for that and the policy lets it be.
    pub(crate) fn minds_the_deadline(&self, decision: &Decision) -> Verdict {
        let set = self.set;
        if set.is_deleted() {
            return Ok(());
        }
        let said = decision
            .status
            .as_ref()
            .and_then(|status| status.desired.get("conditions"));
        let all = said.or_else(|| set.status.get("conditions")).and_then(Value::as_array);
        let told = all
            .into_iter()
            .flatten()
            .find(|c| c["type"] == TOLD && c["status"] == "True");
        // Before the revision is there, a pass looks at no pod.
        let knows = self.reader.revisions_of(set.as_owner()).iter();
        let knows_template = knows.clone().any(|r| r.digest == set.spec.template_digest);
        let Some(deadline) = in_place_deadline(set) else {
            let is_computed = said.is_some() && knows_template;
            // That resources are put off is another matter.
            return require(told.is_none_or(tells_of_deferral) || !is_computed, RULE, || {
                format!(
                    "there is no deadline, and {TOLD} says: {}",
                    told.map_or(&Value::Null, |c| &c["message"])
                )
            });
        };
        let pods = self.reader.pods_of(set.as_owner()).iter();
        let overdue = pods.filter(|pod| {
            let is_wanted = set.kind == SetKind::Clone || self.place_of_pod(pod).is_some();
            is_wanted && self.is_overdue(pod, deadline)
        });
        for pod in overdue.filter(|_| knows_template) {
            require(told.is_some(), RULE, || {
                format!(
                    "the update in place of {} takes longer than {deadline:?}, and {TOLD} does not say so",
                    pod.name()
                )
            })?;
            require(
                !self.has_to_be_made_again(pod) || is_tended(decision, pod),
                RULE,
                || {
                    format!(
                        "the update in place of {} takes longer than {deadline:?}, and it is not made again",
                        pod.name()
                    )
                },
            )?;
        }
        Ok(())
    }

    /// Whether the update in place of a pod takes longer than that, as far as this manager has watched it.
    pub(crate) fn is_overdue(&self, pod: &PodRecord, deadline: Duration) -> bool {
        let fits = self.set.spec.selector.matches(|label| pod.label(label));
        let lasted =
            noted_for(pod, self.now, self.observing_since).filter(|_| !runs_what_is_asked(pod) && !awaits_restart(pod));
        fits && lasted.is_some_and(|lasted| lasted >= deadline)
    }

    /// Whether nothing is in the way of making a pod again that is overdue: it is unavailable, and costs none of the budget. Of CloneSets these
    /// go one by one (CS-13.11), which is looked at elsewhere.
    fn has_to_be_made_again(&self, pod: &PodRecord) -> bool {
        if self.set.kind == SetKind::Clone {
            return false;
        }
        let spec = &self.set.spec;
        let slot = super::ordinal_in(pod.name(), self.set.name());
        let is_in_window = unordered::is_unordered(self.set)
            || slot.and_then(|ordinal| place_of(ordinal, self.set)) >= Some(partition_of(self.set));
        let has_failed = slot.is_some_and(|ordinal| {
            let scope = Scope::Slot(ordinal);
            self.hints.failures.contains_key(&scope) || self.hints.repeated.contains_key(&scope)
        });
        let asks = Switch::DeadlineAction.value(self.set) == Some("recreate");
        let may = spec.pod_update_policy() != PodUpdatePolicy::InPlaceOnly;
        let rests =
            spec.update != UpdateKind::RollingUpdate || spec.is_paused() || !spec.problems.iter().all(is_harmless);
        let keeps = unordered::is_unordered(self.set) && partition_of(self.set) > 0;
        asks && may && !rests && is_in_window && !keeps && !has_failed && state(pod) != "PreparingDelete"
    }
}

/// Whether what cannot be read stops nothing.
fn is_harmless(problem: &flotilla_model::set::FieldProblem) -> bool {
    problem.path.starts_with("metadata.annotations")
}

/// Whether a command notes on a revision to what sizes claims are to grow.
fn records_sizes(command: &Command) -> bool {
    let Command::Patch { body, .. } = command else {
        return false;
    };
    let sizes = body.pointer("/metadata/annotations/flotilla.rs~1claim-sizes");
    sizes.is_some()
}

/// Whether a decision does something about a pod, or waits for what the API server says of the revision, or for a claim.
fn is_tended(decision: &Decision, pod: &PodRecord) -> bool {
    // Its claims grow first (STS-3.9), and before them it is recorded to what size.
    let is_of_it = |name: &str| name.ends_with(&format!("-{}", pod.name()));
    let touches = |command: &Command| match command.resource() {
        Resource::Pods => *command.key() == pod.meta.key,
        Resource::Claims => is_of_it(&command.key().name),
        Resource::Revisions => records_sizes(command),
        _ => false,
    };
    let mut waits = decision.waits.iter();
    decision.commands().any(|c| touches(&c.command))
        || waits.any(|wait| {
            matches!(
                wait.cause,
                WaitCause::RevisionUntried | WaitCause::RevisionUnproven { .. } | WaitCause::RevisionRefused { .. }
            ) || is_of_it(&wait.subject)
        })
}
