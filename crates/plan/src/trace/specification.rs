//! What is told of a set's specification, before and after the change.

use super::Traced;
use crate::report::{SetPlan, Step, UnknownField};
use flotilla_model::set::{Area, FieldProblem};
use serde_json::Value;
use std::collections::BTreeSet;

impl Traced {
    /// The set, once for each template of which pods are made or changed, with what happens to these, and the specification with that template.
    pub(crate) fn by_templates(&self, set: &SetPlan) -> Vec<(SetPlan, Value)> {
        let is_of = |name: &str, label: &str| name == label || name.ends_with(&format!("-{label}"));
        let newest = set.update_revision.as_str();
        let of_step = |step: &Step| {
            let label = step.to_revision.as_deref().filter(|label| !is_of(newest, label))?;
            self.templates.keys().find(|name| is_of(name, label))
        };
        let revisions: BTreeSet<Option<&String>> = set.steps().map(of_step).chain([None]).collect();
        let part = |revision: Option<&String>| {
            let mut part = set.clone();
            for wave in &mut part.waves {
                wave.steps.retain(|step| of_step(step) == revision);
            }
            let mut spec = self.spec.clone();
            if let Some(template) = revision.and_then(|name| self.templates.get(name)) {
                spec["template"] = template.clone();
            }
            (part, spec)
        };
        revisions.into_iter().map(part).collect()
    }

    /// That claims go with the set, or with pods that are scaled away, from the change on, if they did not before.
    pub(crate) fn claims_go_from_now_on(&self) -> Option<String> {
        let (before, after) = (self.before.as_ref()?, self.after.as_ref()?);
        let (before, after) = (&before.spec.retention, &after.spec.retention);
        let with_set = (after.delete_with_set && !before.delete_with_set).then_some("the set");
        let with_pods = (after.delete_with_pod && !before.delete_with_pod).then_some("pods that are scaled away");
        let with: Vec<&str> = [with_set, with_pods].into_iter().flatten().collect();
        (!with.is_empty()).then(|| {
            format!(
                "{} in namespace {}: from this change on claims, and the data in them, go with {}",
                self.kind.describe(&self.key.name),
                self.key.namespace,
                with.join(" and with ")
            )
        })
    }

    /// Claim templates that differ from those before, or are in one of both only.
    pub(crate) fn claim_templates_changed(&self) -> Vec<String> {
        let (Some(before), Some(after)) = (&self.before, &self.after) else {
            return Vec::new();
        };
        let (before, after) = (&before.spec.claim_templates, &after.spec.claim_templates);
        let changed = after.iter().filter(|template| !before.contains(template));
        let gone = before
            .iter()
            .filter(|old| !after.iter().any(|template| template.name == old.name));
        changed.chain(gone).map(|template| template.name.to_string()).collect()
    }

    /// Each field of the set that cannot be read: it cannot be told what was meant.
    pub(crate) fn unreadable_fields(&self) -> Vec<UnknownField> {
        let problems = self.after.iter().flat_map(|set| &set.spec.problems);
        let words = |problem: &FieldProblem| {
            let consequence = match problem.stops {
                Area::Nothing => "it counts as not there",
                _ => "what depends on it is not done until it is corrected",
            };
            let (object, namespace) = (self.kind.describe(&self.key.name), self.key.namespace.to_string());
            UnknownField {
                sentence: format!(
                    "{object} in namespace {namespace}: {} holds {}, and {}; {consequence}",
                    problem.path, problem.found, problem.rule
                ),
                object,
                namespace,
                field: problem.path.clone(),
            }
        };
        problems.map(words).collect()
    }
}
