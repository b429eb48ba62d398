//! What is looked at before anything is changed: what the API server would keep of the new object, and whether any pod would be touched.

use super::convert::lost;
use crate::cluster::{Cluster, describe};
use crate::commands::plan::live;
use crate::error::Error;
use flotilla_model::lines::one_line;
use flotilla_model::template::{Digest, normal_form};
use flotilla_plan::{Action, Change, Plan, Reach, State, plan};
use http::Method;
use serde_json::Value;
use std::collections::BTreeSet;

/// Refuses if the API server would not take the new object as it is.
pub(super) async fn server_takes(cluster: &Cluster, collection: &str, new: &Value) -> Result<(), Error> {
    let path = format!("{collection}?dryRun=All&fieldManager=flotilla-cli");
    let what = || "make the set of the other kind, as a trial".to_owned();
    let sent = cluster.send(Method::POST, &path, Some(("application/json", new))).await;
    let kept = match sent {
        Ok(kept) => kept,
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let why = "failed to migrate: Advanced StatefulSets are not known to this cluster; install them with flotilla install";
            return Err(Error::NotPossible(why.to_owned()));
        }
        Err(error) => return Err(describe(what(), &error)),
    };
    let lost = lost(&new["spec"], &kept["spec"], "spec");
    if !lost.is_empty() {
        let why = format!(
            "failed to migrate: the API server would drop {} from the new object; without it the set would behave otherwise",
            lost.join(", ")
        );
        return Err(Error::NotPossible(why));
    }
    let digest = |set: &Value| Digest::of(&normal_form(&set["spec"]["template"]));
    if digest(&kept) != digest(new) {
        let why = "failed to migrate: the API server would change the template of the new object, and with it restart all pods";
        return Err(Error::NotPossible(why.to_owned()));
    }
    Ok(())
}

/// Refuses if a pod, a claim or a revision would be touched, by what `flotilla plan` knows. Says what could not be looked at.
pub(super) async fn nothing_is_touched(cluster: &Cluster, old: &Value, new: &Value) -> Result<Vec<String>, Error> {
    let wanted = live::Wanted {
        namespaces: BTreeSet::from([cluster.namespace.clone()]),
        ..live::Wanted::default()
    };
    let (state, unseen) = live::read(cluster, &wanted).await?;
    let state = without(state, old);
    let change = Change::Apply(new.clone());
    let plan = plan(&state, &[change], Reach::SECONDS)
        .map_err(|why| Error::NotPossible(format!("failed to plan the migration: {why}")))?;
    let touched = touched(&plan);
    if touched.is_empty() {
        return Ok(unseen);
    }
    Err(Error::NotPossible(format!(
        "failed to migrate: it would not leave everything as it is:\n{}nothing was changed; if a rollout is under way, wait until it is \
         complete",
        touched
            .iter()
            .map(|line| format!("  {}\n", one_line(line)))
            .collect::<Vec<_>>()
            .concat()
    )))
}

/// The state as it is once the old object has gone and has left everything.
fn without(mut state: State, old: &Value) -> State {
    let uid = &old["metadata"]["uid"];
    state
        .objects
        .retain(|foreign| foreign.object["metadata"]["uid"] != *uid);
    for foreign in &mut state.objects {
        if let Some(owners) = foreign
            .object
            .pointer_mut("/metadata/ownerReferences")
            .and_then(Value::as_array_mut)
        {
            owners.retain(|owner| owner["uid"] != *uid);
        }
    }
    state
}

/// What a plan would do to what is there, in words.
fn touched(plan: &Plan) -> Vec<String> {
    let mut lines: Vec<String> = plan
        .refused
        .iter()
        .map(|refusal| format!("the API server refuses: {}", refusal.message))
        .collect();
    if plan.is_cut_short {
        lines.extend(plan.warnings.iter().cloned());
    }
    let unknown = plan.unknowns.iter();
    lines.extend(unknown.map(|unknown| format!("it is not known whether pods would be touched: {unknown}")));
    for set in &plan.sets {
        let steps = set.waves.iter().flat_map(|wave| &wave.steps);
        lines.extend(steps.map(|step| format!("pod {} would be {}", step.pod, word(step.action))));
        lines.extend(
            set.revisions_made
                .iter()
                .map(|name| format!("revision {name} would be made, and all pods would be old")),
        );
        lines.extend(
            set.claims
                .iter()
                .map(|claim| format!("claim {} would be touched", claim.claim)),
        );
    }
    lines
}

const fn word(action: Action) -> &'static str {
    match action {
        Action::Create => "created",
        Action::Update => "updated",
        Action::MakeUnready => "made not ready",
        Action::Replace => "replaced",
        Action::Delete => "deleted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_plan_does_not_know_may_touch_pods() {
        let mut plan = Plan {
            summary: String::new(),
            disrupts: false,
            sets: vec![],
            refused: vec![],
            not_looked_at: vec![],
            unknowns: vec![],
            unknown_fields: vec![],
            missing: vec![],
            is_cut_short: false,
            warnings: vec![],
        };
        assert_eq!(touched(&plan), [""; 0]);
        plan.unknowns = vec!["spec.replicas holds 1.5".to_owned()];
        assert_eq!(
            touched(&plan),
            ["it is not known whether pods would be touched: spec.replicas holds 1.5"]
        );
    }
}
