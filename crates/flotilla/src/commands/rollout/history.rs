//! Revisions of a set: listing them, and going back to one.

use super::steer::{held, notes};
use super::{find, tell};
use crate::args::{Output, RolloutTarget, RolloutUndoArgs};
use crate::clock;
use crate::cluster::Cluster;
use crate::error::{Error, Exit};
use flotilla_controllers::shared::revision::names_it;
use flotilla_model::lines::{cell, visible_json};
use flotilla_model::template::{Digest, normal_form};
use flotilla_model::{Lines, Resource, Timestamp};
use flotilla_why::LiveSet;
use flotilla_why::ago;
use serde_json::{Value, json};
use std::io::Write;

const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";
const JSON_PATCH: &str = "application/json-patch+json";

/// Lists the revisions, oldest first, with how many pods each has.
pub async fn list(cluster: &Cluster, of: &RolloutTarget) -> Result<Exit, Error> {
    let found = find(cluster, of).await?;
    let revisions = revisions_of(cluster, &found).await?;
    let pods = cluster.list(Resource::Pods).await?;
    let rows: Vec<Value> = revisions.iter().map(|revision| row(revision, &pods, &found)).collect();
    let mut out = std::io::stdout().lock();
    if of.output == Output::Json {
        let json = json!({"set": found.display(), "revisions": rows});
        writeln!(out, "{}", visible_json(&format!("{json:#}")))?;
        return Ok(Exit::Done);
    }
    write!(out, "{}", table(&rows, clock::now()))?;
    Ok(Exit::Done)
}

/// The rows for people.
fn table(rows: &[Value], now: Timestamp) -> String {
    let mut lines = Lines::default();
    lines.put_row(format_args!(
        "{:>8}  {:<40} {:>5}  {:<14} CHANGE-CAUSE",
        "REVISION", "NAME", "PODS", "AGE"
    ));
    for row in rows {
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let age = text("created")
            .parse()
            .map_or_else(|_| String::new(), |then| ago(now, then));
        let cause = cell(row["changeCause"].as_str().unwrap_or("<none>"));
        lines.put_row(format_args!(
            "{:>8}  {:<40} {:>5}  {age:<14} {cause}",
            row["revision"].to_string(),
            cell(&text("name")),
            row["pods"].to_string()
        ));
    }
    lines.into_text()
}

fn row(revision: &Value, pods: &[Value], found: &LiveSet) -> Value {
    let name = &revision["metadata"]["name"];
    let uid = &found.object["metadata"]["uid"];
    let set = found.object["metadata"]["name"].as_str().unwrap_or_default();
    let of_set = pods.iter().filter(|pod| is_controlled_by(pod, uid));
    let is_of_it = |pod: &&Value| {
        let label = pod.pointer("/metadata/labels/controller-revision-hash");
        let named = label.and_then(Value::as_str).zip(name.as_str());
        named.is_some_and(|(label, name)| names_it(set, name, label))
    };
    let count = of_set.filter(is_of_it).count();
    json!({
        "revision": revision["revision"], "name": name, "pods": count, "created": revision["metadata"]["creationTimestamp"],
        "changeCause": revision.pointer("/metadata/annotations").and_then(|a| a.get(CHANGE_CAUSE)),
        "current": found.object.pointer("/status/currentRevision") == Some(name),
        "update": found.object.pointer("/status/updateRevision") == Some(name),
    })
}

/// Puts the template of an earlier revision back.
pub async fn undo(cluster: &Cluster, args: RolloutUndoArgs) -> Result<Exit, Error> {
    let found = find(cluster, &args.of).await?;
    let revisions = revisions_of(cluster, &found).await?;
    let present = digest(found.object.pointer("/spec/template"));
    let chosen = match args.to_revision {
        0 => revisions
            .iter()
            .rev()
            .find(|r| template_of(r).is_some_and(|t| digest(Some(&t)) != present)),
        number => revisions.iter().find(|r| r["revision"].as_i64() == Some(number)),
    };
    let Some(chosen) = chosen else {
        let which = if args.to_revision == 0 {
            "an earlier revision".to_owned()
        } else {
            format!("revision {}", args.to_revision)
        };
        let message = format!(
            "failed to undo {}: {which} was not found; see flotilla rollout history",
            found.display()
        );
        return Err(Error::NotPossible(message));
    };
    let Some(template) = template_of(chosen) else {
        let message = format!(
            "failed to undo {}: revision {} holds no pod template",
            found.display(),
            chosen["revision"]
        );
        return Err(Error::NotPossible(message));
    };
    let mut details = json!({"toRevision": chosen["revision"], "revisionName": chosen["metadata"]["name"]});
    if digest(Some(&template)) == present {
        return tell(&args.of, &found, "has that template already", details);
    }
    let patch = json!([
        // Whoever changes the spec meanwhile is not overruled; the manager's status writes do not matter.
        {"op": "test", "path": "/metadata/generation", "value": found.object["metadata"]["generation"]},
        {"op": "replace", "path": "/spec/template", "value": template},
    ]);
    cluster
        .patch(found.kind.resource(), &found.key, JSON_PATCH, &patch)
        .await?;
    let name = chosen
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if let Some(note) = notes(&found) {
        details["note"] = json!(note);
    }
    let done = undone(&chosen["revision"], name, held(&found).is_some());
    tell(&args.of, &found, &done, details)
}

/// What was done. Where no pod is replaced for now, only the template is back.
fn undone(revision: &Value, name: &str, is_held: bool) -> String {
    if is_held {
        format!("has the template of revision {revision} ({name}) again")
    } else {
        format!("rolled back to revision {revision} ({name})")
    }
}

/// The revisions that the set manages, oldest first.
async fn revisions_of(cluster: &Cluster, found: &LiveSet) -> Result<Vec<Value>, Error> {
    let uid = &found.object["metadata"]["uid"];
    let mut revisions = cluster.list(Resource::Revisions).await?;
    revisions.retain(|r| is_controlled_by(r, uid));
    revisions.sort_by_key(|r| r["revision"].as_i64());
    Ok(revisions)
}

fn is_controlled_by(object: &Value, uid: &Value) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners
        .into_iter()
        .flatten()
        .any(|o| o["uid"] == *uid && o["controller"] == json!(true))
}

/// The template of a revision, whole, without the directive that makes it a patch.
fn template_of(revision: &Value) -> Option<Value> {
    let mut template = revision.pointer("/data/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    Some(template)
}

fn digest(template: Option<&Value>) -> Option<Digest> {
    template.map(|t| Digest::of(&normal_form(t)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_rolled_back_where_no_pod_is_replaced() {
        assert_eq!(undone(&json!(1), "web-a", false), "rolled back to revision 1 (web-a)");
        assert_eq!(
            undone(&json!(1), "web-a", true),
            "has the template of revision 1 (web-a) again"
        );
    }

    #[test]
    fn nobody_forges_a_revision_by_its_change_cause() {
        let row = json!({"revision": 1, "name": "web-a", "pods": 2, "created": "2026-01-01T00:00:00Z", "changeCause": "ok\n       9  web-b\u{1b}[31m"});
        let text = table(&[row], Timestamp::from_seconds(1_767_225_605));
        let lines: Vec<&str> = text.lines().collect();
        let shown =
            "       1  web-a                                        2  5 s            ok\\n   9  web-b\\u{1b}[31m";
        assert_eq!(lines[1..], [shown], "{text}");
    }
}
