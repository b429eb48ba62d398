//! What the manager would do next, in words.

use crate::trial::{instance_id, of_any};
use flotilla_model::{Command, Decision, Resource};
use std::collections::{BTreeMap, BTreeSet};

/// What the manager would do next, in order; what it would do to several alike, once. `kept_ids` are instance ids that the CloneSet's claims
/// have already: new pods get these.
pub(crate) fn next_steps(decision: &Decision, kept_ids: &BTreeSet<&str>) -> Vec<String> {
    let mut steps: Vec<(String, usize)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for scoped in decision.commands() {
        let step = words(&scoped.command, kept_ids);
        let place = *places.entry(step.clone()).or_insert(steps.len());
        match steps.get_mut(place) {
            Some((_, times)) => *times += 1,
            None => steps.push((step, 1)),
        }
    }
    let text = |(step, times): (String, usize)| {
        if times == 1 {
            step
        } else {
            format!("{step}, {times} times")
        }
    };
    steps.into_iter().map(text).collect()
}

/// A command in words.
fn words(command: &Command, kept_ids: &BTreeSet<&str>) -> String {
    let noun = match command.resource() {
        Resource::Pods => "pod",
        Resource::Claims => "claim",
        Resource::Revisions => "revision",
        _ => "object",
    };
    let verb = match command {
        Command::Create { .. } => "create",
        Command::Patch { .. } => "change",
        Command::Delete { .. } => "delete",
        Command::Read { .. } => "read",
        Command::Try { .. } => "try",
    };
    let text = format!("{verb} {noun} {}", command.key().name);
    let Command::Create { body, .. } = command else {
        return text;
    };
    let body = body.render();
    let made_up = instance_id(&body).filter(|id| !kept_ids.contains(id));
    made_up.map_or(text.clone(), |id| of_any(id, &text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_api::names;
    use flotilla_model::decision::{Body, Report as Told, Stage};
    use flotilla_model::{ObjectKey, Scope, ScopedCommand};
    use serde_json::json;

    /// Names that are drawn anew in each try would be gone from the next answer; those that claims have already are kept.
    #[test]
    fn what_comes_next_names_no_pod_by_a_name_that_is_made_up() {
        let create = |name: &str, id: Option<&str>| {
            let resource = Resource::Pods;
            let body = json!({"metadata": {"name": name, "labels": {names::INSTANCE_ID_LABEL: id}}});
            ScopedCommand {
                scope: Scope::Named(name.to_owned()),
                command: Command::Create {
                    resource,
                    key: ObjectKey::new("ns", name),
                    body: Body::Json(body.into()),
                    exists_is_fine: false,
                    guard: None,
                    report: Told::Silent,
                },
            }
        };
        let commands = vec![
            create("web-kept1", Some("kept1")),
            create("web-aaaaa", Some("aaaaa")),
            create("web-bbbbb", Some("bbbbb")),
            create("db-0", None),
        ];
        let stages = vec![Stage {
            name: "create",
            commands,
            ..Stage::default()
        }];
        let decision = Decision {
            stages,
            ..Decision::default()
        };
        assert_eq!(
            next_steps(&decision, &BTreeSet::from(["kept1"])),
            ["create pod web-kept1", "create pod web-…, 2 times", "create pod db-0"]
        );
    }
}
