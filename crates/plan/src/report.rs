//! The plan, as data. Its JSON form is what `flotilla plan -o json` prints; the names of its fields are kept.

use crate::change::kind_name;
use crate::refers;
use crate::run::Outcome;
use crate::text;
use crate::trace::Traced;
use flotilla_controllers::shared::revision::label_names;
use flotilla_model::{GoBack, SetRecord, Wait, WaitCause, Whom};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a change would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// One sentence that says it all.
    pub summary: String,
    /// Whether a pod that exists is deleted, replaced, updated or taken out of service, or a claim removed with its data.
    pub disrupts: bool,
    /// The sets that are changed, in the order of the changes.
    pub sets: Vec<SetPlan>,
    /// Changes that the API server would refuse.
    pub refused: Vec<Refusal>,
    /// What was given and is no set: kind, name and place of each.
    pub not_looked_at: Vec<String>,
    /// What could touch pods, and the plan does not know, in sentences. With any of it the plan is no all-clear.
    pub unknowns: Vec<String>,
    /// Which of these are about a field of a set.
    #[serde(skip)]
    pub unknown_fields: Vec<UnknownField>,
    /// What new pods refer to and was not found, in sentences: they do not come up without it.
    pub missing: Vec<String>,
    /// Whether it ends before the change does, so that what comes later is left out: a warning says why. What stays on the old
    /// revision and what blocks is not known then, and what happens if new pods are not ready may not be.
    pub is_cut_short: bool,
    /// What else is to be known, in sentences.
    pub warnings: Vec<String>,
}

/// That one of [`Plan::unknowns`] is about a field of a set, so that whoever has its manifest can tell where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// The sentence.
    pub sentence: String,
    /// The set in the words of kubectl.
    pub object: String,
    /// Its namespace.
    pub namespace: String,
    /// The field's path.
    pub field: String,
}

/// What becomes of the set itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// It is new.
    Created,
    /// Its specification changes.
    Changed,
    /// Nothing of its specification changes.
    Unchanged,
    /// It goes.
    Deleted,
}

impl Verb {
    /// Both, one after the other.
    pub(crate) fn then(self, next: Verb) -> Verb {
        match (self, next) {
            (first, Verb::Unchanged) => first,
            (Verb::Created, Verb::Changed) => Verb::Created,
            (_, next) => next,
        }
    }
}

/// What happens to one set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetPlan {
    /// The set in the words of kubectl: `statefulset.apps/web`.
    pub set: String,
    /// Its namespace.
    pub namespace: String,
    /// `apps/v1` or `apps.kruise.io/v1beta1`.
    pub kind: &'static str,
    /// What becomes of the set itself.
    pub change: Verb,
    /// Pods asked for before.
    pub replicas_before: i32,
    /// Pods asked for afterwards.
    pub replicas: i32,
    /// The revision that its status names as current at the end.
    pub current_revision: String,
    /// The revision that its status names as the newest at the end.
    pub update_revision: String,
    /// What is done together, in order.
    pub waves: Vec<Wave>,
    /// Old pods that stay, and by which rule.
    pub stays: Vec<Stays>,
    /// The fewest available pods on the way.
    pub lowest_available: Lowest,
    /// Available pods at the end, or where the plan is cut short.
    pub available_at_end: usize,
    /// Revisions that are made.
    pub revisions_made: Vec<String>,
    /// Claims that are made, removed or expanded, in order.
    pub claims: Vec<Claim>,
    /// Claims that the set leaves behind when it is deleted.
    pub claims_left: Vec<String>,
    /// Claim templates that are new, are gone or are others than before.
    pub claim_templates_changed: Vec<String>,
    /// What is waited for at the end: the rollout goes no further by itself.
    pub blocked: Vec<Blocked>,
    /// Whether at the end there are exactly as many pods as are wanted, those that were made or changed are available, and none is at another
    /// revision but on purpose.
    pub is_carried_out: bool,
    /// What would happen if the pods that are made do not become ready; absent if none is made.
    pub if_new_pods_are_not_ready: Option<Doubt>,
}

/// What is done together before the next has to wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wave {
    /// Counted from 1.
    pub wave: usize,
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// The fewest available pods while it is under way.
    pub lowest_available: usize,
}

/// What is done to one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The pod.
    pub pod: String,
    /// What is done.
    pub action: Action,
    /// The revision it had.
    pub from_revision: Option<String>,
    /// The revision it gets.
    pub to_revision: Option<String>,
}

/// What is done to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// It is made.
    Create,
    /// It is updated where it is: its containers, or nothing but its labels and annotations.
    Update,
    /// The manager takes it out of service, as a lifecycle hook asks, and nothing else happens to it as far as is known.
    MakeUnready,
    /// It is deleted and made again.
    Replace,
    /// It is deleted for good.
    Delete,
}

/// Pods that are left as they are, on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stays {
    /// The pods.
    pub pods: Vec<String>,
    /// The field that asks for it.
    pub rule: &'static str,
    /// A sentence.
    pub message: String,
}

/// The fewest available pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lowest {
    /// How many.
    pub pods: usize,
    /// The first wave in which it is so; 0 for before the first.
    pub wave: usize,
}

/// What happens to a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Its name.
    pub claim: String,
    /// What is done.
    pub action: ClaimAction,
}

/// What is done to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ClaimAction {
    /// It is made.
    Create,
    /// It asks for more.
    Expand,
    /// It is removed, and the volume by its reclaim policy.
    Delete,
}

/// Something that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blocked {
    /// The pod or claim; the set's name if it is the set as a whole.
    pub subject: String,
    /// A word for programs, as in `flotilla why -o json`.
    pub cause: String,
    /// A sentence.
    pub message: String,
    /// The rule that asks for the wait.
    pub rule: &'static str,
    /// What can be done about it.
    pub advice: Option<String>,
}

/// A change that the API server would refuse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The set in the words of kubectl.
    pub object: String,
    /// Its namespace.
    pub namespace: String,
    /// A word for programs, such as Invalid.
    pub reason: String,
    /// What the server would say.
    pub message: String,
    /// File and line of its manifest, if it comes from one.
    pub place: Option<String>,
    /// The fields that are wrong.
    pub fields: Vec<Field>,
}

/// A field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Field {
    /// Its path.
    pub field: String,
    /// File and line of it, or of what should hold it, if it comes from a file.
    pub place: Option<String>,
    /// Which kind of rule it breaks.
    pub rule: String,
    /// The rule in words.
    pub message: String,
}

/// How far it would come if the pods that are made do not become ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Doubt {
    /// Pods that are taken down or made before it stops.
    pub pods: Vec<String>,
    /// What is done together, in order.
    pub waves: Vec<Wave>,
    /// The fewest available pods on the way.
    pub lowest_available: Lowest,
    /// Available pods when it has stopped.
    pub available: usize,
    /// What it waits for then.
    pub blocked: Vec<Blocked>,
}

/// Where the second run is left out.
const DOUBT_LEFT_OUT: &str = "what happens if the new pods do not become ready takes long to find out, and is left out \
                              (--to-the-end tells it)";

impl Plan {
    /// What is seen if all goes well.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let sets: Vec<SetPlan> = outcome.sets.iter().map(SetPlan::of).collect();
        let mut plan = Plan {
            summary: String::new(),
            disrupts: sets.iter().any(SetPlan::disrupts),
            sets,
            refused: outcome.refused.clone(),
            not_looked_at: Vec::new(),
            unknowns: Vec::new(),
            unknown_fields: Vec::new(),
            missing: Vec::new(),
            is_cut_short: !outcome.is_over,
            warnings: outcome.warnings.clone(),
        };
        plan.summary = text::summary(&plan);
        plan
    }

    /// Adds what is seen if new pods do not become ready.
    pub(crate) fn doubt(&mut self, outcome: &Outcome, doubtful: &Outcome) {
        if !doubtful.is_over {
            // Half a doubt would tell of fewer pods than come down.
            self.warnings.push(DOUBT_LEFT_OUT.to_owned());
            return;
        }
        for (plan, set) in self.sets.iter_mut().zip(&outcome.sets) {
            let same = |d: &&Traced| d.kind == set.kind && d.key == set.key;
            // A pod on a lost node is taken down, and never made again; where its successor is refused, it is not.
            let makes_pods = set.makes_pods() || refers::makes_pods(plan);
            let doubtful = doubtful.sets.iter().find(same).filter(|_| makes_pods);
            plan.if_new_pods_are_not_ready = doubtful.map(|doubtful| {
                let (waves, lowest_available) = waves(doubtful);
                Doubt {
                    pods: doubtful.items.iter().map(|item| item.pod.clone()).collect(),
                    waves,
                    lowest_available,
                    available: doubtful.available_now(),
                    blocked: blocked(
                        doubtful,
                        &whom(set, &plan.set, &missing(doubtful)),
                        &former(doubtful, &stays(doubtful)),
                    ),
                }
            });
        }
    }

    /// Tells what was given and is not looked at, and what of it could touch pods all the same.
    pub fn leave_out(&mut self, others: Vec<String>, unknowns: Vec<String>) {
        self.not_looked_at.extend(others);
        self.unknowns.extend(unknowns);
        self.summary = text::summary(self);
    }

    /// Tells of fields that could touch pods, and that the plan does not know.
    pub(crate) fn leave_out_fields(&mut self, fields: Vec<UnknownField>) {
        let sentences = fields.iter().map(|field| field.sentence.clone()).collect();
        self.unknown_fields.extend(fields);
        self.leave_out(Vec::new(), sentences);
    }

    /// Puts where its field stands before each sentence about one, as far as that is known.
    pub fn place_unknown_fields(&mut self, place: impl Fn(&UnknownField) -> Option<String>) {
        for field in &self.unknown_fields {
            let Some(place) = place(field) else { continue };
            let mut told = self.unknowns.iter_mut();
            if let Some(sentence) = told.find(|sentence| **sentence == field.sentence) {
                *sentence = format!("{place}: {sentence}");
            }
        }
    }

    /// Whether something that is asked for is refused, or cannot be done, however long one waits.
    pub fn is_stopped(&self) -> bool {
        const FOR_GOOD: [&str; 4] = ["Refused", "RevisionRefused", "InPlaceNotPossible", "NameTaken"];
        self.sets.iter().any(|set| {
            let mut causes = set.blocked.iter().map(|blocked| blocked.cause.as_str());
            !set.is_carried_out && !set.blocked.is_empty() || causes.any(|cause| FOR_GOOD.contains(&cause))
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        text::plan(self)
    }
}

impl SetPlan {
    fn of(set: &Traced) -> Self {
        let replicas = |set: Option<&std::sync::Arc<flotilla_model::SetRecord>>| set.map_or(0, |s| s.spec.replicas);
        let status = |field: &str| {
            set.after
                .as_ref()
                .map(|s| s.status_text(field).to_owned())
                .unwrap_or_default()
        };
        let (waves, lowest_available) = waves(set);
        let name = kind_name(set.kind, &set.key.name);
        let stays = stays(set);
        let former = former(set, &stays);
        SetPlan {
            set: name.clone(),
            namespace: set.key.namespace.to_string(),
            kind: set.kind.resource().api_version(),
            change: set.verb,
            replicas_before: replicas(set.before.as_ref()),
            replicas: replicas(set.after.as_ref()),
            current_revision: status("currentRevision"),
            update_revision: status("updateRevision"),
            stays,
            waves,
            lowest_available,
            available_at_end: set.available_now(),
            revisions_made: set.revisions.clone(),
            claims: set
                .claims
                .iter()
                .map(|(claim, action)| Claim {
                    claim: claim.clone(),
                    action: *action,
                })
                .collect(),
            claims_left: set.claims_left.clone(),
            claim_templates_changed: set.claim_templates_changed(),
            blocked: blocked(set, &whom(set, &name, &missing(set)), &former),
            is_carried_out: former.is_empty()
                && set.serves_with_what_was_made()
                && set.after.as_ref().is_none_or(|record| has_all_pods(set, record)),
            if_new_pods_are_not_ready: None,
        }
    }

    /// All steps, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.waves.iter().flat_map(|wave| &wave.steps)
    }

    /// Whether a pod that exists is deleted, replaced, updated or taken out of service, or a claim removed with its data.
    pub fn disrupts(&self) -> bool {
        let mut claims = self.claims.iter();
        self.steps().any(|step| step.action != Action::Create)
            || claims.any(|claim| claim.action == ClaimAction::Delete)
    }
}

/// Pods that others wait for, and that are not there at the end.
fn missing(set: &Traced) -> Vec<String> {
    let awaited = set.waits.iter().filter_map(|wait| match &wait.cause {
        WaitCause::Order { behind } | WaitCause::ScaleDownBehindUnhealthy { pod: behind } => Some(behind),
        _ => None,
    });
    let is_missing = |name: &&String| set.pods.iter().all(|pod| pod.name() != name.as_str());
    awaited.filter(is_missing).cloned().collect()
}

/// To whom advice about a set of this name is given.
fn whom<'w>(set: &'w Traced, name: &'w str, missing: &'w [String]) -> Whom<'w> {
    let mut sets = [&set.before, &set.after].into_iter().flatten();
    Whom {
        loses_claims: sets.any(|set| set.loses_claims()),
        go_back: if set.can_go_back {
            GoBack::ToTheOneBefore
        } else {
            GoBack::No
        },
        missing,
        ..Whom::of(name, &set.key.namespace)
    }
}

fn waves(set: &Traced) -> (Vec<Wave>, Lowest) {
    let (numbers, levels) = set.waves();
    let mut waves: BTreeMap<usize, Wave> = BTreeMap::new();
    for (item, number) in set.items.iter().zip(numbers) {
        let wave = waves.entry(number).or_insert_with(|| Wave {
            wave: number,
            steps: Vec::new(),
            // At first as many as when it began.
            lowest_available: levels
                .iter()
                .rev()
                .find(|(wave, _)| *wave < number)
                .map_or(0, |(_, pods)| *pods),
        });
        wave.steps.push(Step {
            pod: item.pod.clone(),
            action: set.action(item),
            from_revision: item.from.clone(),
            to_revision: item.to.clone(),
        });
    }
    let mut lowest: Option<Lowest> = None;
    for (wave, pods) in levels {
        if let Some(wave) = waves.get_mut(&wave) {
            wave.lowest_available = wave.lowest_available.min(pods);
        }
        if lowest.is_none_or(|known| pods < known.pods) {
            lowest = Some(Lowest { pods, wave });
        }
    }
    let lowest = lowest.unwrap_or(Lowest { pods: 0, wave: 0 });
    (waves.into_values().collect(), lowest)
}

/// What is left as it is on purpose.
fn stays(set: &Traced) -> Vec<Stays> {
    let Some(record) = &set.after else { return Vec::new() };
    let newest = record.status_text("updateRevision");
    let old = set
        .pods
        .iter()
        .filter(|pod| !label_names(pod, newest) && !pod.is_terminating());
    let pods: Vec<String> = old.map(|pod| pod.name().to_owned()).collect();
    let intended = set.waits.iter().filter(|wait| wait.cause.is_intended());
    intended
        .map(|wait| Stays {
            pods: pods.clone(),
            rule: wait.cause.rule(),
            message: wait.cause.to_string(),
        })
        .collect()
}

/// Pods at another revision than the set wants, which nothing keeps there: whoever went back to theirs would go back to what is broken.
fn former(set: &Traced, stays: &[Stays]) -> BTreeSet<String> {
    let Some(record) = set.after.as_ref().filter(|_| stays.is_empty()) else {
        return BTreeSet::new();
    };
    let newest = record.status_text("updateRevision");
    let old = set
        .pods
        .iter()
        .filter(|pod| !newest.is_empty() && !label_names(pod, newest));
    old.map(|pod| pod.name().to_owned()).collect()
}

/// Whether exactly as many pods are there as are wanted, none of them on its way out.
fn has_all_pods(set: &Traced, record: &SetRecord) -> bool {
    let there = set
        .pods
        .iter()
        .filter(|pod| !pod.is_terminating() && !pod.is_terminal());
    there.count() == usize::try_from(record.spec.replicas).unwrap_or(0)
}

fn blocked(set: &Traced, whom: &Whom<'_>, former: &BTreeSet<String>) -> Vec<Blocked> {
    let unintended = set.waits.iter().filter(|wait| !wait.cause.is_intended());
    let advice = |wait: &Wait| {
        match set.on_silent_nodes.get(&wait.subject) {
            // Nobody ends, starts or changes it, whatever is done to it.
            Some(node) => Some(format!(
                "it is on node {node}, which is silent: {}",
                whom.bring_back(node)
            )),
            None => wait.cause.advice(
                &wait.subject,
                &Whom {
                    is_former: former.contains(&wait.subject),
                    ..*whom
                },
            ),
        }
    };
    unintended
        .map(|wait| Blocked {
            subject: wait.subject.clone(),
            cause: serde_json::to_value(&wait.cause)
                .ok()
                .and_then(|cause| cause["cause"].as_str().map(str::to_owned))
                .unwrap_or_default(),
            message: message(&wait.cause),
            rule: wait.cause.rule(),
            advice: advice(wait),
        })
        .collect()
}

/// A wait in words, without moments of simulated time.
fn message(cause: &WaitCause) -> String {
    match cause {
        WaitCause::Refused { reason, message, .. } => format!("the API server refuses: {reason}: {message}"),
        WaitCause::RevisionRefused { reason, message, .. } => {
            format!("the API server does not accept pods of this revision: {reason}: {message}")
        }
        WaitCause::RevisionUnproven {
            reason,
            message,
            all_at_once,
            ..
        } => format!("{}: {reason}: {message}", WaitCause::why_unproven(reason, *all_at_once)),
        WaitCause::Repeated { message, .. } => format!("held back: {message}"),
        WaitCause::StartBackOff { failed, .. } => format!("its last {failed} pods ended right after their start"),
        other => other.to_string(),
    }
}
