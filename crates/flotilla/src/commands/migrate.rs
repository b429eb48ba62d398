//! `flotilla migrate`: a native StatefulSet becomes an Advanced one, or the other way round, and no pod notices.
//!
//! Both kinds keep their revisions in the same objects and give pods the same names and labels. So the old object is deleted with
//! everything that it owns left behind, the new one is made with the same selector and template, and its controller adopts what it
//! finds. Until the new object is seen there, a record on the newest revision says how to go on.

mod check;
mod convert;
mod made;
mod others;
mod record;

use crate::args::{ClusterArgs, MigrateArgs, MigrateTo};
use crate::cluster::{Cluster, describe};
use crate::error::{Error, Exit};
use crate::follow::{self, Followed};
use crate::target::kind_name;
use convert::{convert, other};
use flotilla_model::template::{Digest, normal_form};
use flotilla_model::{Lines, ObjectKey, Resource, SetKind};
use http::Method;
use others::Others;
use record::Record;
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::Duration;

/// The manager's own field manager: what a status begins with is written as it would write it.
const MANAGER: &str = "flotilla";
const MERGE: &str = "application/merge-patch+json";

/// Migrates a set, or goes on with a migration that was interrupted.
pub async fn run(cluster_args: &ClusterArgs, args: MigrateArgs) -> Result<Exit, Error> {
    let cluster = Cluster::connect(cluster_args).await?;
    let migration = Migration {
        key: ObjectKey::new(cluster.namespace.as_str(), args.target.name.as_str()),
        cluster: &cluster,
        args: &args,
    };
    let there = There::look(&cluster, &migration.key).await?;
    match migration.situation(&there)? {
        Situation::Nothing(kind) => {
            tell(&format!(
                "{} is of that kind already",
                kind_name(kind, &migration.key.name)
            ))?;
            Ok(Exit::Done)
        }
        Situation::Begin(from, set) => migration.begin(from, set, &there.revisions).await,
        Situation::Resume(record) => {
            if args.dry_run {
                tell(&format!(
                    "would go on with a migration that was interrupted: {}",
                    migration.arrow(record.from())
                ))?;
                return Ok(Exit::Done);
            }
            tell(&format!(
                "goes on with a migration that was interrupted: {}",
                migration.arrow(record.from())
            ))?;
            migration.finish(&record).await
        }
    }
}

fn tell(line: &str) -> Result<(), Error> {
    let mut lines = Lines::default();
    lines.put(line);
    Ok(write!(std::io::stdout().lock(), "{lines}")?)
}

/// What there is under the name.
struct There {
    native: Option<Value>,
    advanced: Option<Value>,
    revisions: Vec<Value>,
}

impl There {
    async fn look(cluster: &Cluster, key: &ObjectKey) -> Result<Self, Error> {
        Ok(There {
            native: cluster.get(Resource::NativeSets, key).await?,
            advanced: cluster.get(Resource::AdvancedSets, key).await?,
            revisions: cluster.list(Resource::Revisions).await?,
        })
    }

    fn of(&self, kind: SetKind) -> Option<&Value> {
        match kind {
            SetKind::Native => self.native.as_ref(),
            SetKind::Advanced => self.advanced.as_ref(),
            SetKind::Clone => None,
        }
    }
}

/// Where a migration stands.
enum Situation<'t> {
    /// The set has the kind that it is to have.
    Nothing(SetKind),
    /// It has the other kind.
    Begin(SetKind, &'t Value),
    /// The old object is going or gone, or the new one is there and the record too.
    Resume(Box<Record>),
}

struct Migration<'a> {
    key: ObjectKey,
    cluster: &'a Cluster,
    args: &'a MigrateArgs,
}

impl Migration<'_> {
    fn arrow(&self, from: SetKind) -> String {
        format!(
            "{} becomes {}",
            kind_name(from, &self.key.name),
            kind_name(other(from), &self.key.name)
        )
    }

    fn situation<'t>(&self, there: &'t There) -> Result<Situation<'t>, Error> {
        if self.args.target.kind == Some(SetKind::Clone) {
            let why = format!(
                "failed to migrate {}: only StatefulSets become sets of another kind",
                self.args.target
            );
            return Err(Error::NotPossible(why));
        }
        let is_going = |set: &Value| set.pointer("/metadata/deletionTimestamp").is_some();
        if let Some(record) = Record::find(&there.revisions, &self.key.name)? {
            let old = there
                .of(record.from())
                .filter(|old| old["metadata"]["uid"] == record.old.as_str());
            // If the old object stands there untouched, nothing has happened yet but the note: everything is looked at afresh.
            if old.is_none_or(is_going) {
                return Ok(Situation::Resume(Box::new(record)));
            }
        }
        let (kind, set) = match (self.args.target.kind, &there.native, &there.advanced) {
            (None, Some(_), Some(_)) => {
                return Err(Error::Ambiguous {
                    name: self.key.to_string(),
                });
            }
            (None | Some(SetKind::Native), Some(set), None) => (SetKind::Native, set),
            (None | Some(SetKind::Advanced), None, Some(set)) => (SetKind::Advanced, set),
            (Some(_), Some(_), Some(_)) => {
                let why = format!(
                    "failed to migrate {}: there is a set of this name of the other kind already",
                    self.key
                );
                return Err(Error::NotPossible(why));
            }
            (Some(_), Some(_), None) | (Some(_), None, Some(_)) | (_, None, None) => {
                return Err(Error::NotFound {
                    target: self.args.target.kind.map_or_else(
                        || format!("statefulset/{}", self.key.name),
                        |kind| kind_name(kind, &self.key.name),
                    ),
                    namespace: self.cluster.namespace.clone(),
                });
            }
        };
        let wanted = self.args.to.map_or(other(kind), |to| match to {
            MigrateTo::Native => SetKind::Native,
            MigrateTo::Advanced => SetKind::Advanced,
        });
        if wanted == kind {
            return Ok(Situation::Nothing(kind));
        }
        if is_going(set) {
            let why = format!(
                "failed to migrate {}: it is being deleted, and not by a migration",
                self.key
            );
            return Err(Error::NotPossible(why));
        }
        Ok(Situation::Begin(kind, set))
    }

    /// Checks everything, notes it down, and goes on.
    async fn begin(&self, from: SetKind, set: &Value, revisions: &[Value]) -> Result<Exit, Error> {
        let new = convert(set, from).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(|problem| format!("  {problem}\n")).collect();
            Error::NotPossible(format!(
                "failed to migrate {}: the other kind cannot express it:\n{}nothing was changed",
                kind_name(from, &self.key.name),
                lines.concat()
            ))
        })?;
        let record = self.record(from, set, new, revisions)?;
        check::server_takes(self.cluster, &collection(record.to, &self.key), &record.new).await?;
        let unseen = check::nothing_is_touched(self.cluster, set, &record.new).await?;
        let others = Others::look(self.cluster, from, set).await?;
        tell(&format!(
            "{}{}",
            if self.args.dry_run { "would migrate: " } else { "" },
            self.arrow(from)
        ))?;
        for note in unseen.iter().chain(&others.notes(from, self.args.retarget)) {
            tell(&format!("  {note}"))?;
        }
        if self.args.dry_run {
            return Ok(Exit::Done);
        }
        record.write(self.cluster).await?;
        self.orphan(from, set).await?;
        self.finish(&record).await
    }

    /// What has to be known once the old object has gone.
    fn record(&self, from: SetKind, set: &Value, new: Value, revisions: &[Value]) -> Result<Record, Error> {
        let refuse = |why: &str| {
            let message = format!(
                "failed to migrate {}: {why}; nothing was changed",
                kind_name(from, &self.key.name)
            );
            Err(Error::NotPossible(message))
        };
        let text = |pointer: &str| {
            set.pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (update, current) = (text("/status/updateRevision"), text("/status/currentRevision"));
        let number = |pointer: &str| set.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        if number("/status/observedGeneration") < number("/metadata/generation") {
            return refuse("its controller has not seen its last change yet; is there one that runs?");
        }
        let Some(revision) = revisions.iter().find(|r| r["metadata"]["name"] == update.as_str()) else {
            return refuse("its newest revision is not there; has its controller ever run?");
        };
        let digest = |template: &Value| Digest::of(&normal_form(template));
        if record::template(revision).is_none_or(|held| digest(&held) != digest(&set["spec"]["template"])) {
            return refuse("its newest revision does not hold its template");
        }
        // The status of a native set is its controller's: whoever else writes it is taken for a second controller.
        if from == SetKind::Advanced && current != update {
            return refuse("its rollout is not complete; finish it, or undo it, first");
        }
        Ok(Record {
            to: other(from),
            old: text("/metadata/uid"),
            new,
            current_revision: current,
            revision: ObjectKey::new(self.cluster.namespace.as_str(), update.as_str()),
        })
    }

    /// Deletes the old object, provided it is still as it was looked at, and leaves what it owns.
    async fn orphan(&self, from: SetKind, set: &Value) -> Result<(), Error> {
        let metadata = &set["metadata"];
        let options = json!({
            "propagationPolicy": "Orphan", "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        });
        let path = from.resource().object_path(&self.key, None);
        let what = format!("delete {} and leave its pods", kind_name(from, &self.key.name));
        self.cluster.delete_at(&path, &options, &what).await.map(|_| ())
    }

    /// Everything from the deletion of the old object on. Each step may have been done already.
    async fn finish(&self, record: &Record) -> Result<Exit, Error> {
        let from = record.from();
        self.old_is_gone(record).await?;
        self.make(record).await?;
        self.begin_status(record).await?;
        if self.args.retarget {
            let others = Others::look(self.cluster, from, &record.new).await?;
            others.retarget(self.cluster, &self.key.namespace, from).await?;
        }
        record.clear(self.cluster).await?;
        self.adopted(record).await
    }

    async fn old_is_gone(&self, record: &Record) -> Result<(), Error> {
        let path = format!(
            "{}?fieldSelector=metadata.name%3D{}",
            collection(record.from(), &self.key),
            self.key.name
        );
        let is_gone = |objects: &follow::Objects| objects.values().all(|o| o["metadata"]["uid"] != record.old.as_str());
        match follow::until(self.cluster, &path, self.within(), is_gone).await? {
            Followed::Done => Ok(()),
            Followed::TimeUp(_) => Err(Error::NotPossible(format!(
                "{} is not gone after {} s: the garbage collector of kube-controller-manager has to let go of its pods first. Run it again, \
                 it goes on from here",
                kind_name(record.from(), &self.key.name),
                self.args.timeout_seconds
            ))),
        }
    }

    /// While a rollout is held, pods that are made anew come from the revision that the status names.
    async fn begin_status(&self, record: &Record) -> Result<(), Error> {
        let is_held = record.current_revision != *record.revision.name;
        if record.to != SetKind::Advanced || !is_held {
            return Ok(());
        }
        let body = json!({"status": {
            "currentRevision": record.current_revision, "updateRevision": &*record.revision.name,
            "replicas": 0, "readyReplicas": 0, "availableReplicas": 0, "currentReplicas": 0, "updatedReplicas": 0,
        }});
        let path = format!(
            "{}?fieldManager={MANAGER}",
            record.to.resource().object_path(&self.key, Some("status"))
        );
        let sent = self.cluster.send(Method::PATCH, &path, Some((MERGE, &body))).await;
        sent.map(|_| ()).map_err(|e| {
            describe(
                format!("begin the status of {}", kind_name(record.to, &self.key.name)),
                &e,
            )
        })
    }

    /// Waits until a controller has taken the pods.
    async fn adopted(&self, record: &Record) -> Result<Exit, Error> {
        let path = format!(
            "{}?fieldSelector=metadata.name%3D{}",
            collection(record.to, &self.key),
            self.key.name
        );
        let is_seen = |objects: &follow::Objects| {
            objects.get(&*self.key.name).is_some_and(|set| {
                let number = |pointer: &str| set.pointer(pointer).and_then(Value::as_i64);
                number("/status/observedGeneration") >= number("/metadata/generation")
                    && number("/status/replicas") == number("/spec/replicas")
            })
        };
        match follow::until(self.cluster, &path, self.within(), is_seen).await? {
            Followed::Done => {
                tell(&format!(
                    "{} has its pods; none was restarted",
                    kind_name(record.to, &self.key.name)
                ))?;
                Ok(Exit::Done)
            }
            Followed::TimeUp(_) => Err(Error::NotPossible(format!(
                "{} is made, but nobody has adopted its pods after {} s: does a controller of this kind run? For native sets that is \
                 kube-controller-manager's, or Flotilla's with --native-statefulset. The pods go on running",
                kind_name(record.to, &self.key.name),
                self.args.timeout_seconds
            ))),
        }
    }

    fn within(&self) -> Duration {
        Duration::from_secs(self.args.timeout_seconds)
    }
}

fn collection(kind: SetKind, key: &ObjectKey) -> String {
    kind.resource().collection_path(Some(&key.namespace))
}
