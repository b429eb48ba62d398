//! Applying objects on the server's side, under a field manager of our own.

use crate::cluster::{Cluster, describe};
use crate::error::Error;
use flotilla_install::{Options, PART_OF, PART_OF_LABEL, Place, definition, place};
use http::Method;
use serde_json::{Value, json};
use std::fmt;

/// The name under which our fields are recorded.
const FIELD_MANAGER: &str = "flotilla-install";
/// The name under which our managers write their part of what is installed: conversion, and which versions are served.
pub(in crate::commands) const MANAGERS: &str = "flotilla-webhooks";
const APPLY: &str = "application/apply-patch+yaml";

/// How objects are applied.
pub(super) struct Applying<'c> {
    pub(super) cluster: &'c Cluster,
    /// Take over what belongs to others.
    pub(super) force: bool,
}

/// An object to apply.
pub(super) struct Step {
    object: Value,
    pub(super) place: Place,
    /// What is there now, as it is compared.
    live: Option<Value>,
    /// What whoever installs should know.
    pub(super) notes: Vec<String>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applied {
    Created,
    Changed,
    Unchanged,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Applied::Created => "created",
            Applied::Changed => "changed",
            Applied::Unchanged => "unchanged",
        })
    }
}

impl Applying<'_> {
    /// Looks at what is there, and says what is to be applied over it.
    pub(super) async fn prepare(&self, objects: Vec<Value>) -> Result<Vec<Step>, Error> {
        let mut steps = Vec::new();
        for object in objects {
            let place = place(&object);
            let live = self
                .cluster
                .get_at(&place.path, &format!("read {}", place.name))
                .await?;
            let mut step = Step {
                live: live.clone().map(compared),
                notes: Vec::new(),
                object,
                place,
            };
            if let Some(live) = live.filter(|_| step.place.kind == "CustomResourceDefinition") {
                step.keep_versions(&live);
            }
            steps.push(step);
        }
        Ok(steps)
    }

    /// Tries everything that can be tried before anything is there. All conflicts are told at once.
    pub(super) async fn try_all(&self, steps: &[Step], namespace: &str) -> Result<(), Error> {
        let path = format!("/api/v1/namespaces/{namespace}");
        let what = format!("read namespace {namespace}");
        let is_there =
            steps.iter().any(|step| step.place.is_namespaced) && self.cluster.get_at(&path, &what).await?.is_some();
        let mut conflicts = Vec::new();
        for step in steps.iter().filter(|step| is_there || !step.place.is_namespaced) {
            match self.send_or_take_back(step, true).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    conflicts.push(conflict(&step.place.name, &status));
                }
                Err(error) => return Err(step.refused(&error)),
            }
        }
        if conflicts.is_empty() {
            return Ok(());
        }
        let message = format!(
            "failed to apply: some fields belong to other field managers, who would set them back:\n{}nothing was changed; take these \
             fields over with --force-conflicts, once the others have stopped setting them",
            conflicts.concat()
        );
        Err(Error::NotPossible(message))
    }

    /// Applies one object.
    pub(super) async fn apply(&self, step: &Step) -> Result<Applied, Error> {
        let stored = match self.send_or_take_back(step, false).await {
            Ok(stored) => stored,
            Err(kube::Error::Api(status)) if status.code == 409 => {
                return Err(Error::NotPossible(format!(
                    "failed to apply:\n{}",
                    conflict(&step.place.name, &status)
                )));
            }
            Err(error) => return Err(step.refused(&error)),
        };
        Ok(match &step.live {
            None => Applied::Created,
            Some(live) if *live == compared(stored) => Applied::Unchanged,
            Some(_) => Applied::Changed,
        })
    }

    /// Applies one object. What our own managers wrote is no reason to stop: it goes on as they have it, and belongs to both.
    async fn send_or_take_back(&self, step: &Step, is_trial: bool) -> Result<Value, kube::Error> {
        match self.send(step, &step.object, self.force, is_trial).await {
            Err(kube::Error::Api(status)) if status.code == 409 && is_between_us(&status) => {
                let live = self.cluster.send(Method::GET, &step.place.path, None).await?;
                let mut object = definition::over(&step.object, &live);
                // Only what was looked at: since then, somebody else may have come.
                object["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
                self.send(step, &object, true, is_trial).await
            }
            other => other,
        }
    }

    async fn send(&self, step: &Step, object: &Value, force: bool, is_trial: bool) -> Result<Value, kube::Error> {
        let trial = if is_trial { "&dryRun=All" } else { "" };
        let path = format!("{}?fieldManager={FIELD_MANAGER}&force={force}{trial}", step.place.path);
        self.cluster.send(Method::PATCH, &path, Some((APPLY, object))).await
    }

    /// Removes what an earlier installation had and this one has not, what was applied last first: rights go when nobody uses them any
    /// more, and limits after them. Definitions stay: there are objects behind them.
    pub(super) async fn prune(&self, options: &Options) -> Result<Vec<String>, Error> {
        let chosen: Vec<Place> = flotilla_install::objects(options).iter().map(place).collect();
        let possible = flotilla_install::superset(&options.namespace);
        let left_out = possible.iter().rev().map(place).filter(|place| !chosen.contains(place));
        let mut gone = Vec::new();
        for place in left_out.filter(|place| place.kind != "CustomResourceDefinition") {
            let live = self
                .cluster
                .get_at(&place.path, &format!("read {}", place.name))
                .await?;
            let is_ours = live.is_some_and(|live| live["metadata"]["labels"][PART_OF_LABEL] == PART_OF);
            let what = format!("delete {}", place.name);
            if is_ours && self.cluster.delete_at(&place.path, &json!({}), &what).await? {
                gone.push(place.name);
            }
        }
        Ok(gone)
    }
}

impl Step {
    fn keep_versions(&mut self, live: &Value) {
        let kept = definition::kept(&self.object, live);
        self.object = definition::over(&self.object, live);
        if !kept.is_empty() {
            self.notes.push(format!(
                "version {} stays as it was, since objects may be stored in it",
                kept.join(", ")
            ));
        }
        if let Some(service) = live.pointer("/spec/conversion/webhook/clientConfig/service/name")
            && service != flotilla_install::WEBHOOK_SERVICE
        {
            self.notes.push(format!(
                "its versions are still converted by the webhook behind service {service}, which has to go on running"
            ));
        }
    }

    fn refused(&self, error: &kube::Error) -> Error {
        if let kube::Error::Api(status) = error
            && status.code == 404
            && self.place.kind == "ServiceMonitor"
        {
            let why = "failed to apply the ServiceMonitor: the Prometheus operator's definitions are not there; install it first, or leave \
                       out --service-monitor";
            return Error::NotPossible(why.to_owned());
        }
        describe(format!("apply {}", self.place.name), error)
    }
}

/// What of an object tells whether applying changed it: others write its status meanwhile, and with each write it has another version.
fn compared(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for kept_by_the_server in ["resourceVersion", "managedFields", "generation"] {
            metadata.remove(kept_by_the_server);
        }
    }
    object
}

/// One object's conflicts: each field, and whose it is.
fn conflict(name: &str, status: &kube::core::Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let lines: Vec<String> = causes
        .map(|cause| {
            let whose = cause.message.trim_start_matches("conflict with ").replace('"', "");
            format!("  {name}: {} belongs to {whose}\n", cause.field)
        })
        .collect();
    if lines.is_empty() {
        format!("  {name}: {}\n", status.message)
    } else {
        lines.concat()
    }
}

/// Whether all that stands against an object is what our own managers wrote.
fn is_between_us(status: &kube::core::Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes).peekable();
    let is_ours = |cause: &kube::core::response::StatusCause| manager_of(&cause.message) == Some(MANAGERS);
    causes.peek().is_some() && causes.all(is_ours)
}

/// The field manager that a conflict is with: the API server names it in quotes.
fn manager_of(message: &str) -> Option<&str> {
    let rest = message.strip_prefix("conflict with \"")?;
    rest.split_once('"').map(|(manager, _)| manager)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_write_meanwhile_is_no_change() {
        let object = |version: &str, status: Value, image: &str| {
            json!({"metadata": {"name": "x", "resourceVersion": version, "generation": 1, "managedFields": [version]},
                "spec": {"image": image}, "status": status})
        };
        let live = compared(object("1", json!({}), "a"));
        assert_eq!(compared(object("2", json!({"typeChecking": {}}), "a")), live);
        assert_ne!(compared(object("2", json!({}), "b")), live);
    }

    fn conflicts(messages: &[&str]) -> kube::core::Status {
        let causes: Vec<Value> = messages
            .iter()
            .map(|message| json!({"reason": "FieldManagerConflict", "message": message, "field": ".spec.versions"}))
            .collect();
        let status = json!({"status": "Failure", "code": 409, "message": "conflicts", "reason": "Conflict",
            "details": {"causes": causes}});
        serde_json::from_value(status).expect("a Status")
    }

    /// TKO-1, step 5: fields are taken from our own managers alone.
    #[test]
    fn only_conflicts_with_our_own_managers_are_ours_to_settle() {
        let (ours, helm) = (
            "conflict with \"flotilla-webhooks\" using apiextensions.k8s.io/v1 at 2026-07-01T09:00:00Z",
            "conflict with \"helm\" using apiextensions.k8s.io/v1",
        );
        let odd = "conflict with \"flotilla-webhooks-of-mine\"";
        for (messages, expected) in [
            (&[ours][..], true),
            (&[ours, ours], true),
            (&[ours, helm], false),
            (&[helm], false),
            (&[odd], false),
            (&["something else"], false),
            (&[], false),
        ] {
            assert_eq!(is_between_us(&conflicts(messages)), expected, "{messages:?}");
        }
        let told = conflict("the definition", &conflicts(&[ours, helm]));
        assert!(
            told.contains("the definition: .spec.versions belongs to helm using"),
            "{told}"
        );
    }
}
