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
const MIGRATION: &str = "flotilla.rs/migration";
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
    pub(super) fn find(revisions: &[Value], name: &str) -> Option<Self> {
        revisions
            .iter()
            .find_map(|revision| Record::read(revision).filter(|r| r.new["metadata"]["name"] == name))
    }

    fn read(revision: &Value) -> Option<Self> {
        let text = revision["metadata"]["annotations"][MIGRATION].as_str()?;
        let stored: Value = serde_json::from_str(text).ok()?;
        let mut new = stored["new"].clone();
        new["spec"]["template"] = template(revision)?;
        let to = match stored["to"].as_str()? {
            "native" => SetKind::Native,
            "advanced" => SetKind::Advanced,
            _ => return None,
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some(Record {
            to,
            old: text(&stored["old"])?,
            new,
            current_revision: text(&stored["currentRevision"])?,
            revision: ObjectKey::new(
                text(&revision["metadata"]["namespace"])?,
                text(&revision["metadata"]["name"])?,
            ),
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
        assert_eq!(Record::find(&[other.clone(), revision.clone()], "web"), Some(record));
        assert_eq!(Record::find(&[other, revision], "db"), None);
    }
}
