//! How far a migration has come: an annotation on the set's newest revision, which outlives the set.
//!
//! It is written before the old object goes, and taken away once the new one is there. It holds the new object without its template,
//! which the revision itself holds.

use super::convert::other;
use crate::cluster::{Cluster, describe};
use crate::error::Error;
use flotilla_model::{ObjectKey, Resource, SetKind};
use http::Method;
use serde_json::{Value, json};

/// The annotation.
pub(super) const MIGRATION: &str = "flotilla.rs/migration";
const MERGE: &str = "application/merge-patch+json";

/// What has to be known to go on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    /// The kind that the set is to have.
    pub(super) to: SetKind,
    /// UID of the old object.
    pub(super) old: String,
    /// The new object.
    pub(super) new: Value,
    /// What the new object's status has to begin with.
    pub(super) current_revision: String,
    /// The revision that holds the record.
    pub(super) revision: ObjectKey,
}

impl Record {
    /// The record of a migration of the set of this name that has begun and not ended.
    ///
    /// # Errors
    /// If there is one that cannot be read: nobody knows then what is to become of the set's pods.
    pub(super) fn find(revisions: &[Value], name: &str) -> Result<Option<Self>, Error> {
        for revision in revisions {
            let Some(text) = revision["metadata"]["annotations"][MIGRATION].as_str() else {
                continue;
            };
            let revision_name = revision["metadata"]["name"].as_str().unwrap_or_default();
            match Record::read(revision, text) {
                Ok(record) if record.new["metadata"]["name"] == name => return Ok(Some(record)),
                Err(why) if revision_name.rsplit_once('-').is_some_and(|(set, _)| set == name) => {
                    return Err(Error::NotPossible(format!(
                        "failed to go on with the migration of {name}: annotation {MIGRATION} of controllerrevision.apps/{revision_name} \
                         {why}; run the version of Flotilla that began it, or remove the annotation if the set is there"
                    )));
                }
                // Of another set.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(None)
    }

    fn read(revision: &Value, text: &str) -> Result<Self, String> {
        let stored: Value = serde_json::from_str(text).map_err(|e| format!("is no JSON: {e}"))?;
        let field = |name: &str| {
            let text = stored[name].as_str().map(str::to_owned);
            text.ok_or_else(|| format!("has no field {name}"))
        };
        let mut new = stored["new"].clone();
        if !new["spec"].is_object() {
            return Err("has no new object".to_owned());
        }
        new["spec"]["template"] = template(revision).ok_or("stands on a revision without a template")?;
        let to = match field("to")?.as_str() {
            "native" => SetKind::Native,
            "advanced" => SetKind::Advanced,
            other => return Err(format!("names the kind {other:?}, which this version does not know")),
        };
        let place = |name: &str| revision["metadata"][name].as_str().unwrap_or_default();
        Ok(Record {
            to,
            old: field("old")?,
            new,
            current_revision: field("currentRevision")?,
            revision: ObjectKey::new(place("namespace"), place("name")),
        })
    }

    fn text(&self) -> String {
        let mut new = self.new.clone();
        new["spec"].as_object_mut().map(|spec| spec.remove("template"));
        let to = match self.to {
            SetKind::Native => "native",
            SetKind::Advanced => "advanced",
            SetKind::Clone => "clone",
        };
        json!({"to": to, "old": self.old, "new": new, "currentRevision": self.current_revision}).to_string()
    }

    /// The kind that the set had.
    pub(super) fn from(&self) -> SetKind {
        other(self.to)
    }

    /// Notes it down.
    pub(super) async fn write(&self, cluster: &Cluster) -> Result<(), Error> {
        self.annotate(cluster, json!(self.text())).await
    }

    /// Takes it away: the migration is over.
    pub(super) async fn clear(&self, cluster: &Cluster) -> Result<(), Error> {
        self.annotate(cluster, Value::Null).await
    }

    async fn annotate(&self, cluster: &Cluster, value: Value) -> Result<(), Error> {
        let body = json!({"metadata": {"annotations": {MIGRATION: value}}});
        let path = format!(
            "{}?fieldManager=flotilla-cli",
            Resource::Revisions.object_path(&self.revision, None)
        );
        let sent = cluster.send(Method::PATCH, &path, Some((MERGE, &body))).await;
        let what = || format!("note the migration on revision {}", self.revision);
        sent.map(|_| ()).map_err(|e| describe(what(), &e))
    }
}

/// The template that a revision holds.
pub(super) fn template(revision: &Value) -> Option<Value> {
    let mut template = revision.pointer("/data/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    Some(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let record = Record {
            to: SetKind::Advanced,
            old: "uid".to_owned(),
            new: json!({"metadata": {"name": "web"}, "spec": {"replicas": 2, "template": {"a": 1}}}),
            current_revision: "web-1".to_owned(),
            revision: ObjectKey::new("n", "web-2"),
        };
        assert!(!record.text().contains("template"), "the revision holds it already");
        let revision = json!({
            "metadata": {"name": "web-2", "namespace": "n", "annotations": {MIGRATION: record.text()}},
            "data": {"spec": {"template": {"$patch": "replace", "a": 1}}},
        });
        let other = json!({"metadata": {"name": "x"}});
        let found = |revisions: &[Value], name: &str| Record::find(revisions, name).expect("it can be read");
        assert_eq!(found(&[other.clone(), revision.clone()], "web"), Some(record));
        assert_eq!(found(&[other, revision], "db"), None);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_no_missing_one() {
        let with = |text: &str| {
            json!({
                "metadata": {"name": "web-2", "namespace": "n", "annotations": {MIGRATION: text}},
                "data": {"spec": {"template": {"a": 1}}},
            })
        };
        for (text, why) in [
            ("{", "is no JSON"),
            ("{}", "has no new object"),
            (r#"{"new": {"spec": {}}, "to": "third"}"#, "the kind \"third\""),
            (r#"{"new": {"spec": {}}, "to": "native"}"#, "has no field old"),
        ] {
            let error = Record::find(&[with(text)], "web").expect_err(text).to_string();
            assert!(error.contains(why) && error.contains("web-2"), "{error}");
            assert_eq!(
                Record::find(&[with(text)], "db").ok(),
                Some(None),
                "that of another set"
            );
        }
    }
}
