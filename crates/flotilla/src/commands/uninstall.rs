//! `flotilla uninstall`: the reverse, in an order in which nothing can block.
//!
//! What could hold up others goes first: registrations of webhooks, and conversions through our Service. A manager that still runs may
//! put them back, so they are looked at again once it has ended. Definitions go last, and only with their objects.

mod plan;

use crate::args::{ClusterArgs, UninstallArgs};
use crate::cluster::{Cluster, describe};
use crate::commands::install::{MANAGERS, place as namespace_of};
use crate::error::{Error, Exit};
use crate::follow::{self, Followed};
use flotilla_install::NAME;
use http::Method;
use plan::{Action, Found};
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::Duration;

/// Sets that a refusal names.
const NAMES_TOLD: usize = 5;
const JSON_PATCH: &str = "application/json-patch+json";

/// Uninstalls, or prints what would be done.
pub async fn run(cluster_args: &ClusterArgs, args: UninstallArgs) -> Result<Exit, Error> {
    if !args.yes && !args.dry_run {
        let why = "uninstalling stops what controls sets. Look at what would be done with --dry-run, then say --yes";
        return Err(Error::NotPossible(why.to_owned()));
    }
    let cluster = Cluster::connect(cluster_args).await?;
    let namespace = namespace_of(cluster_args);
    let found = if args.only_conversions {
        Found::conversions(&cluster, &namespace).await?
    } else {
        Found::look(&cluster, &namespace).await?
    };
    if args.only_conversions && found.unblocking(false).is_empty() {
        let mut out = std::io::stdout().lock();
        writeln!(out, "no version is converted behind a Service in namespace {namespace}")?;
        return Ok(Exit::Done);
    }
    if !args.and_delete_objects && !args.keep_objects && !found.sets.is_empty() {
        return Err(sets_are_there(&found.sets));
    }
    let mut out = std::io::stdout().lock();
    let actions = found.actions(args.and_delete_objects);
    if actions.is_empty() {
        writeln!(out, "nothing of Flotilla is installed in namespace {namespace}")?;
        return Ok(Exit::Done);
    }
    let doing = Doing {
        cluster: &cluster,
        within: Duration::from_secs(args.timeout_seconds),
    };
    for action in &actions {
        if args.dry_run {
            writeln!(out, "would {action}")?;
        } else if doing.perform(action).await? {
            writeln!(out, "{}", action.done())?;
        }
        // A manager that was still running may have put back what went before it.
        if !args.dry_run && matches!(action, Action::EndManagers { .. }) {
            for again in Found::look(&cluster, &namespace)
                .await?
                .unblocking(args.and_delete_objects)
            {
                doing.perform(&again).await?;
                writeln!(out, "{}, once more: a manager had put it back", again.done())?;
            }
        }
    }
    if args.only_conversions {
        return Ok(Exit::Done);
    }
    let rest = format!(
        "namespace {namespace} stays, as it may hold what is not Flotilla's: kubectl delete namespace {namespace}"
    );
    writeln!(out, "{rest}")?;
    if !args.and_delete_objects && found.has_definitions() {
        writeln!(out, "the definitions stay, and with them all sets")?;
    }
    Ok(Exit::Done)
}

fn sets_are_there(sets: &[String]) -> Error {
    let mut names = sets.iter().take(NAMES_TOLD).cloned().collect::<Vec<_>>().join(", ");
    if sets.len() > NAMES_TOLD {
        names = format!("{names} and {} more", sets.len() - NAMES_TOLD);
    }
    Error::NotPossible(format!(
        "there are {} Advanced StatefulSets and CloneSets ({names}); without a manager nobody makes their pods anew. Say what is to become of them: \
         --keep-objects leaves them, and their pods running, for another controller; --and-delete-objects deletes them with their pods. \
         `flotilla migrate` turns them into native sets",
        sets.len()
    ))
}

struct Doing<'c> {
    cluster: &'c Cluster,
    within: Duration,
}

impl Doing<'_> {
    /// Does it. False if there was nothing left to do.
    async fn perform(&self, action: &Action) -> Result<bool, Error> {
        let what = action.to_string();
        match action {
            Action::Delete { path, .. } => self.cluster.delete_at(path, &json!({}), &what).await,
            Action::StopConverting { path, unserved, .. } => {
                let mut operations =
                    vec![json!({"op": "replace", "path": "/spec/conversion", "value": {"strategy": "None"}})];
                for (index, name) in unserved {
                    // Only if it is still the version that was read there.
                    operations
                        .push(json!({"op": "test", "path": format!("/spec/versions/{index}/name"), "value": name}));
                    operations.push(
                        json!({"op": "replace", "path": format!("/spec/versions/{index}/served"), "value": false}),
                    );
                }
                let body = Value::Array(operations);
                // In the managers' name, who wrote what this takes back: a later installation is not refused because of it.
                let path = format!("{path}?fieldManager={MANAGERS}");
                let sent = self.cluster.send(Method::PATCH, &path, Some((JSON_PATCH, &body))).await;
                sent.map(|_| true).map_err(|e| describe(what, &e))
            }
            Action::EndManagers { path, namespace } => {
                let options = json!({"propagationPolicy": "Foreground"});
                let was_there = self.cluster.delete_at(path, &options, &what).await?;
                let pods =
                    format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app.kubernetes.io%2Fname%3D{NAME}");
                self.gone(&pods, "the managers' pods").await?;
                Ok(was_there)
            }
            Action::DeleteSets { .. } => self.delete_sets().await,
            Action::DeleteDefinition { path, name } => {
                let was_there = self.cluster.delete_at(path, &json!({}), &what).await?;
                let collection = format!(
                    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldSelector=metadata.name%3D{name}"
                );
                self.gone(&collection, name).await?;
                Ok(was_there)
            }
        }
    }

    /// All sets, with their pods, in all namespaces; and waits until they have gone. In the foreground: once the definition is gone too, the
    /// garbage collector cannot tell any more that the owner of what is left has gone.
    async fn delete_sets(&self) -> Result<bool, Error> {
        let options = json!({"propagationPolicy": "Foreground"});
        let mut going = Vec::new();
        for (collection, kind) in plan::SETS {
            let sets = self.cluster.list_at(collection, &format!("list {kind}s")).await?;
            for set in &sets {
                let text = |field: &str| set["metadata"][field].as_str().unwrap_or_default();
                let path = plan::set_path(kind, text("namespace"), text("name"));
                let what = format!("delete {kind}.apps.kruise.io/{}", text("name"));
                self.cluster.delete_at(&path, &options, &what).await?;
            }
            // A kind that is not served has none.
            if !sets.is_empty() {
                going.push((collection, format!("{kind}s")));
            }
        }
        for (collection, what) in going {
            self.gone(collection, &what).await?;
        }
        Ok(true)
    }

    async fn gone(&self, collection: &str, what: &str) -> Result<(), Error> {
        match follow::until(self.cluster, collection, self.within, follow::Objects::is_empty).await? {
            Followed::Done => Ok(()),
            Followed::TimeUp(left) => Err(Error::NotPossible(format!(
                "{what} are still there after {} s: {}; what holds them up are mostly finalizers: {}. Run it again, it goes on from here",
                self.within.as_secs(),
                left.keys().cloned().collect::<Vec<_>>().join(", "),
                finalizers(left.values())
            ))),
        }
    }
}

fn finalizers<'o>(objects: impl Iterator<Item = &'o Value>) -> String {
    let lists = objects.filter_map(|o| o.pointer("/metadata/finalizers").and_then(Value::as_array));
    let mut names: Vec<&str> = lists.flatten().filter_map(Value::as_str).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        "none here".to_owned()
    } else {
        names.join(", ")
    }
}
