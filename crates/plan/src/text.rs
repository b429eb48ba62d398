//! The plan for people: one sentence that says it all, a drawing of the waves, and what else there is to know.

use crate::report::{Action, Blocked, ClaimAction, Plan, Refusal, SetPlan, Step, Verb, Wave};
use flotilla_model::Lines;
use flotilla_model::lines::in_command;
use std::collections::BTreeSet;

/// Waves drawn at most; of more, the first and the last.
const WAVES_SHOWN: usize = 12;
/// Names shown in one line, at most.
const NAMES_SHOWN: usize = 10;
/// The drawing of available pods is at most so wide.
const BAR_WIDTH: usize = 20;

/// One sentence that says it all.
pub(crate) fn summary(plan: &Plan) -> String {
    let refused = plan
        .refused
        .iter()
        .map(|refusal| format!("{}: refused: {}", refusal.object, refusal.message));
    let sets = plan.sets.iter().map(sentence);
    let all: Vec<String> = refused.chain(sets).collect();
    if all.is_empty() {
        return "nothing that Flotilla looks at changes".to_owned();
    }
    let cut = if plan.is_cut_short {
        "; that is not all, what comes later is left out"
    } else {
        ""
    };
    let unknown = if plan.unknowns.is_empty() {
        ""
    } else {
        "; but not all that could touch pods is known"
    };
    let missing = plan.missing.first().map_or_else(String::new, |missing| {
        format!("; but new pods do not come up, since something is missing: {missing}")
    });
    format!("{}{cut}{unknown}{missing}", all.join("; "))
}

/// One set in one sentence.
fn sentence(set: &SetPlan) -> String {
    let mut parts = Vec::new();
    for (action, word) in [
        (Action::Create, "created"),
        (Action::Update, "updated in place"),
        (Action::MakeUnready, "made not ready"),
        (Action::Replace, "replaced"),
        (Action::Delete, "deleted"),
    ] {
        let steps = set.steps().filter(|step| step.action == action);
        // A pod may come up in several waves.
        let concerned: BTreeSet<&str> = steps.map(|step| step.pod.as_str()).collect();
        if !concerned.is_empty() {
            parts.push(format!("{} {word}", pods(concerned.len())));
        }
    }
    let verb = match set.change {
        Verb::Created => " is created",
        Verb::Deleted => " is deleted",
        Verb::Unchanged => " does not change",
        Verb::Changed => "",
    };
    if parts.is_empty() {
        let tail = if set.blocked.is_empty() {
            ""
        } else {
            ", and something is waited for"
        };
        return format!("{}{verb}: no pod is touched{tail}{}{}", set.set, kept(set), lost(set));
    }
    format!(
        "{}{verb}: {}{}, never fewer than {} available{}{}{}",
        set.set,
        parts.join(", "),
        pace(set),
        set.lowest_available.pods,
        kept(set),
        lost(set),
        end(set),
    )
}

/// A set that nobody changes goes on with what it was held up in.
pub(crate) fn goes_on((set, namespace): &(String, String), pods: &BTreeSet<String>) -> String {
    let names: Vec<&str> = pods.iter().take(NAMES_SHOWN).map(String::as_str).collect();
    let more = match pods.len().saturating_sub(NAMES_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{set} in namespace {namespace} is not what is changed, and goes on by it: pods {}{more} are touched",
        names.join(", ")
    )
}

/// How waves follow each other.
fn pace(set: &SetPlan) -> String {
    let widest = set.waves.iter().map(|wave| wave.steps.len()).max().unwrap_or(0);
    match (set.waves.len(), widest) {
        (1, 1) => String::new(),
        (1, _) => " all at once".to_owned(),
        (_, 1) => " one after the other".to_owned(),
        (waves, _) => format!(" in {waves} waves"),
    }
}

fn kept(set: &SetPlan) -> String {
    let kept: usize = set.stays.iter().map(|stays| stays.pods.len()).max().unwrap_or(0);
    match kept {
        0 => String::new(),
        count => format!("; {} on the old revision", stay(count)),
    }
}

/// Claims that go.
fn lost(set: &SetPlan) -> String {
    let all = set.claims.iter();
    match all.filter(|claim| claim.action == ClaimAction::Delete).count() {
        0 => String::new(),
        1 => "; 1 claim is removed with its data".to_owned(),
        count => format!("; {count} claims are removed with their data"),
    }
}

fn stay(count: usize) -> String {
    match count {
        1 => "1 pod stays".to_owned(),
        count => format!("{count} pods stay"),
    }
}

fn end(set: &SetPlan) -> String {
    match set.blocked.first() {
        None => String::new(),
        Some(blocked) => format!("; then it stops: {} {}", blocked.subject, blocked.message),
    }
}

fn pods(count: usize) -> String {
    match count {
        1 => "1 pod is".to_owned(),
        count => format!("{count} pods are"),
    }
}

/// The whole plan.
pub(crate) fn plan(plan: &Plan) -> String {
    let mut text = Lines::default();
    text.put(&plan.summary);
    plan.refused.iter().for_each(|refusal| refused(&mut text, refusal));
    plan.sets.iter().for_each(|set| one(&mut text, set));
    for missing in &plan.missing {
        text.put(format_args!(
            "missing: {missing}; as long as that is so, new pods do not come up"
        ));
    }
    for unknown in &plan.unknowns {
        text.put(format_args!("not known: {unknown}"));
    }
    for other in &plan.not_looked_at {
        text.put(format_args!("not looked at: {other}"));
    }
    for warning in &plan.warnings {
        text.put(format_args!("note: {warning}"));
    }
    text.into_text()
}

fn refused(text: &mut Lines, refusal: &Refusal) {
    let place = refusal.place.as_ref();
    let place = place.map_or_else(String::new, |place| format!(", in {place}"));
    text.put("");
    text.put(format_args!(
        "{} in namespace {}: refused ({}){place}",
        refusal.object, refusal.namespace, refusal.reason
    ));
    for field in &refusal.fields {
        let place = field
            .place
            .as_ref()
            .map_or_else(String::new, |place| format!("{place}: "));
        text.put(format_args!(
            "  {place}{}: {} ({})",
            field.field, field.message, field.rule
        ));
    }
}

fn one(text: &mut Lines, set: &SetPlan) {
    text.put("");
    text.put(format_args!("{} in namespace {}", set.set, set.namespace));
    if let Some((from, to)) = revisions(set) {
        text.put(format_args!("  {from} -> {to}"));
    }
    draw(text, set);
    for stays in &set.stays {
        let who = if stays.pods.is_empty() {
            String::new()
        } else {
            format!(": {}", names(&stays.pods))
        };
        text.put(format_args!("  stays ({}): {}{who}", stays.rule, stays.message));
    }
    claims(text, set);
    claims_that_stay(text, set);
    for blocked in &set.blocked {
        waits(text, blocked);
    }
    if let Some(doubt) = &set.if_new_pods_are_not_ready {
        let after = match doubt.pods.as_slice() {
            [] => String::new(),
            touched => format!(" after {}", names(touched)),
        };
        text.put(format_args!(
            "  if the new pods do not become ready: it stops with {} available{after}",
            doubt.available
        ));
    }
}

fn waits(text: &mut Lines, blocked: &Blocked) {
    text.put(format_args!("  stops: {} {}", blocked.subject, blocked.message));
    text.put(format_args!("      rule: {}", blocked.rule));
    if let Some(advice) = &blocked.advice {
        text.put(format_args!("      you can: {advice}"));
    }
}

/// From which revision to which most pods go.
fn revisions(set: &SetPlan) -> Option<(&str, &str)> {
    let changed = |step: &&Step| step.from_revision.is_some() && step.to_revision.is_some();
    let step = set
        .steps()
        .filter(changed)
        .find(|step| step.from_revision != step.to_revision)?;
    Some((step.from_revision.as_deref()?, step.to_revision.as_deref()?))
}

fn claims(text: &mut Lines, set: &SetPlan) {
    for (action, word) in [
        (ClaimAction::Create, "made"),
        (ClaimAction::Expand, "expanded"),
        (ClaimAction::Delete, "removed"),
    ] {
        let concerned: Vec<String> = set
            .claims
            .iter()
            .filter(|c| c.action == action)
            .map(|c| c.claim.clone())
            .collect();
        if !concerned.is_empty() {
            text.put(format_args!("  claims {word}: {}", names(&concerned)));
        }
    }
}

/// Claims that stay although one might think otherwise.
fn claims_that_stay(text: &mut Lines, set: &SetPlan) {
    if !set.claims_left.is_empty() {
        let all = names(&set.claims_left);
        let claims: Vec<&str> = set.claims_left.iter().map(|claim| in_command(claim)).collect();
        let command = format!(
            "kubectl delete pvc {} -n {}",
            claims.join(" "),
            in_command(&set.namespace)
        );
        let remove = if set.claims_left.len() > NAMES_SHOWN {
            String::new()
        } else {
            format!(" ({command} removes them)")
        };
        text.put(format_args!("  claims stay, with their data: {all}{remove}"));
    }
    if !set.claim_templates_changed.is_empty() {
        let expands = set.claims.iter().any(|claim| claim.action == ClaimAction::Expand);
        let tail = if expands {
            "claims that are there are expanded; nothing else of them follows"
        } else {
            "the claims that are there stay as they are, only new ones follow it"
        };
        let all = names(&set.claim_templates_changed);
        text.put(format_args!("  claim templates change: {all}; {tail}"));
    }
}

/// The waves, a line each, with how many pods are available at the least.
fn draw(text: &mut Lines, set: &SetPlan) {
    let most = usize::try_from(set.replicas.max(set.replicas_before)).unwrap_or(0);
    let shown =
        |index: usize| set.waves.len() <= WAVES_SHOWN || index < WAVES_SHOWN - 2 || index + 1 == set.waves.len();
    let width = set
        .waves
        .iter()
        .map(|wave| words(wave).chars().count())
        .max()
        .unwrap_or(0);
    let mut left_out = 0;
    for (index, wave) in set.waves.iter().enumerate() {
        if !shown(index) {
            left_out += 1;
            continue;
        }
        if left_out > 0 {
            text.put(format_args!("  … {left_out} waves more (-o json lists all)"));
            left_out = 0;
        }
        let done = words(wave);
        let bar = bar(wave.lowest_available, most);
        text.put_row(format_args!("  wave {:>2}  {done:<width$}  {bar}", wave.wave));
    }
}

/// What a wave does.
fn words(wave: &Wave) -> String {
    let mut all = Vec::new();
    for (action, sign) in [
        (Action::Delete, "delete"),
        (Action::Replace, "replace"),
        (Action::Update, "update"),
        (Action::MakeUnready, "make not ready"),
        (Action::Create, "create"),
    ] {
        let concerned: Vec<String> = wave
            .steps
            .iter()
            .filter(|s| s.action == action)
            .map(|s| s.pod.clone())
            .collect();
        if !concerned.is_empty() {
            all.push(format!("{sign} {}", names(&concerned)));
        }
    }
    all.join(", ")
}

fn bar(available: usize, most: usize) -> String {
    let most = most.max(available);
    let width = most.min(BAR_WIDTH);
    let full = (available * width).checked_div(most).unwrap_or(0);
    format!(
        "{}{} {available}/{most} available",
        "█".repeat(full),
        "░".repeat(width - full)
    )
}

fn names(all: &[String]) -> String {
    let shown = all.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(" ");
    match all.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
