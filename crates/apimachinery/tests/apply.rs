//! Managed fields and server-side apply, step by step, against what kube-apiserver 1.36 answered: `data/apply.json`.

use flotilla_apimachinery::apply::{Writer, apply, track};
use flotilla_apimachinery::openapi::Builtin;
use flotilla_apimachinery::schema::{Schema, Types, drop_empty};
use serde_json::{Value, json};

/// Fields that the API server fills in or keeps besides what was sent.
const FILLED_IN: &[&str] = &[
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "resources",
    "dnsPolicy",
    "schedulerName",
    "terminationGracePeriodSeconds",
    "restartPolicy",
    "securityContext",
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "generation",
    "revisionHistoryLimit",
    "podManagementPolicy",
    "updateStrategy",
    "persistentVolumeClaimRetentionPolicy",
    "internalTrafficPolicy",
    "ipFamilies",
    "ipFamilyPolicy",
    "sessionAffinity",
    "clusterIPs",
    "type",
    "protocol",
    "targetPort",
    "replicas",
    "status",
    "managedFields",
];

fn types() -> Types {
    let mut types = Builtin::load().types().expect("the built-in types can be read");
    for definition in flotilla_api::crds() {
        let version = &definition["spec"]["versions"][0];
        types
            .add_custom(
                "apps.kruise.io",
                definition["spec"]["names"]["kind"].as_str().expect("a kind"),
                version,
            )
            .expect("a structural schema");
    }
    types
}

fn plain(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !FILLED_IN.contains(&name.as_str()));
            Value::Object(kept.map(|(name, value)| (name.clone(), plain(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(plain).collect()),
        other => other.clone(),
    }
}

/// The entries, in an order that does not depend on times: what happens within a second is not told apart.
fn entries(object: &Value) -> Vec<Value> {
    let mut entries = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    entries.sort_by_key(Value::to_string);
    entries
}

/// The time of the newest entry, which is when the step was taken if it changed anything.
fn newest(object: &Value) -> String {
    let times = entries(object)
        .into_iter()
        .filter_map(|entry| entry["time"].as_str().map(str::to_owned));
    times.max().unwrap_or_default()
}

/// A step, and what this crate makes of it.
struct Step<'s> {
    record: &'s Value,
    version: String,
    now: String,
}

impl<'s> Step<'s> {
    fn of(record: &'s Value) -> Self {
        let text = |name: &str| record[name].as_str().unwrap_or_default();
        let version = match text("group") {
            "" => text("version").to_owned(),
            group => format!("{group}/{}", text("version")),
        };
        Step {
            record,
            version,
            now: newest(&record["after"]),
        }
    }

    fn text(&self, name: &str) -> &'s str {
        self.record[name].as_str().unwrap_or_default()
    }

    fn writer(&self) -> Writer<'_> {
        let ignored: &[&str] = match self.text("subresource") {
            "status" => &["spec", "metadata"],
            _ if self.text("kind") == "StatefulSet" => &["status"],
            _ => &[],
        };
        Writer {
            manager: self.text("manager"),
            version: &self.version,
            subresource: self.text("subresource"),
            ignored,
            now: &self.now,
        }
    }

    fn live(&self) -> Option<&'s Value> {
        Some(&self.record["before"]).filter(|live| live.is_object())
    }

    /// Expected and got.
    fn applied(&self, schema: Schema<'_>) -> (String, String) {
        let (body, after) = (&self.record["body"], &self.record["after"]);
        match apply(self.live(), body, schema, &self.writer(), self.record["force"] == true) {
            // Refused for what the merged object is, which is not for apply to see.
            Ok(_) if self.record["code"] == 422 => (String::new(), String::new()),
            Ok(mut new) => {
                let managers = entries(&new);
                drop_empty(&mut new, schema);
                let expected = format!("{}\n  {:?}\n  {}", plain(after), entries(after), self.record["refusal"]);
                (expected, format!("{}\n  {managers:?}\n  null", plain(&new)))
            }
            Err(refusal) => {
                let (body, expected) = (refusal.to_json(), &self.record["refusal"]);
                let said = expected
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(k, _)| (k.clone(), body[k].clone()));
                (expected.to_string(), Value::Object(said.collect()).to_string())
            }
        }
    }

    fn tracked(&self, schema: Schema<'_>) -> (String, String) {
        let (before, after) = (entries(&self.record["before"]), entries(&self.record["after"]));
        let mut new = self.record["after"].clone();
        // An answer without entries was to a request that took them away, and not to one that said nothing of them.
        let is_reset = after.is_empty() && !before.is_empty();
        new["metadata"]["managedFields"] = if is_reset { json!([{}]) } else { Value::Null };
        track(self.live(), &mut new, schema, &self.writer());
        (format!("{after:?}"), format!("{:?}", entries(&new)))
    }
}

#[test]
fn managed_fields_are_those_of_the_api_server() {
    let types = types();
    let records: Vec<Value> = serde_json::from_str(include_str!("data/apply.json")).expect("the records are JSON");
    let mut wrong = Vec::new();
    for (number, record) in records.iter().enumerate() {
        let step = Step::of(record);
        let schema = types
            .kind(step.text("group"), step.text("version"), step.text("kind"))
            .expect("a known kind");
        let (expected, got) = match step.text("operation") {
            "apply" => step.applied(schema),
            _ => step.tracked(schema),
        };
        if expected != got {
            let (story, operation, manager) = (step.text("story"), step.text("operation"), step.text("manager"));
            wrong.push(format!(
                "step {number}, {story} {operation} {manager}\n  expected {expected}\n  got      {got}"
            ));
        }
    }
    assert!(records.len() > 50, "the records are complete");
    assert!(
        wrong.is_empty(),
        "{} of {} steps:\n{}",
        wrong.len(),
        records.len(),
        wrong.join("\n")
    );
}
