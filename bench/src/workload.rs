//! What pods are made by: the kinds that Flotilla has, and the one that a CloneSet replaces.

use clap::ValueEnum;
use flotilla_controllers::cloneset::CloneSetController;
use flotilla_controllers::statefulset::StatefulSetController;
use flotilla_e2e::api::{Objects, number};
use flotilla_e2e::{Api, Kind, clones, sets};
use flotilla_engine::core::cache::Cache;
use flotilla_engine::io::clock::Clock;
use flotilla_model::{Controller, Decision, Hints, ObjectKey, PassContext, Reader, SetKind};
use serde_json::{Value, json};
use std::time::Duration;

/// Which kind is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measured {
    /// StatefulSets: the built-in kind for `create`, the Advanced one for `update`.
    #[default]
    Statefulset,
    /// CloneSets.
    Cloneset,
}

/// A kind of which a bench makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// One of ours.
    Set(SetKind),
    /// Of the controller-manager, and beside a CloneSet what makes pods without order.
    ReplicaSet,
}

impl Workload {
    /// Plural of the kind, as the audit log has it.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Workload::Set(kind) => kind.resource().plural(),
            Workload::ReplicaSet => "replicasets",
        }
    }

    /// Path of the collection.
    pub(crate) fn collection(self, namespace: &str) -> String {
        match self {
            Workload::Set(kind) => kind.resource().collection_path(Some(namespace)),
            Workload::ReplicaSet => format!("/apis/apps/v1/namespaces/{namespace}/replicasets"),
        }
    }

    /// One that makes its pods all at once. Its pods are labelled `app=<name>`.
    pub(crate) fn manifest(self, name: &str, replicas: i64) -> Value {
        let kind = match self {
            Workload::Set(SetKind::Native) => Kind::Native,
            Workload::Set(SetKind::Advanced) => Kind::Advanced,
            Workload::Set(SetKind::Clone) => return unordered(clones::manifest(replicas), name),
            Workload::ReplicaSet => {
                let mut set = clones::manifest(replicas);
                set["apiVersion"] = json!("apps/v1");
                set["kind"] = json!("ReplicaSet");
                return unordered(set, name);
            }
        };
        let mut set = kind.manifest(name, replicas);
        set["spec"]["podManagementPolicy"] = json!("Parallel");
        set
    }

    /// Waits until its status says that all its pods are ready and as it asks.
    pub(crate) async fn rolled_out(self, api: &Api, namespace: &str, name: &str, within: Duration) {
        let all_ready = |set: &Value| {
            let replicas = number(set, "/spec/replicas");
            number(set, "/status/observedGeneration") >= number(set, "/metadata/generation")
                && number(set, "/status/readyReplicas") == replicas
        };
        let done = |sets: &Objects| match self {
            Workload::Set(_) => sets.get(name).is_some_and(sets::is_rolled_out),
            Workload::ReplicaSet => sets.get(name).is_some_and(all_ready),
        };
        let what = format!("rollout of {name} complete");
        api.until(&self.collection(namespace), within, &what, done).await;
    }
}

/// Names a set of pods that have no order.
fn unordered(mut set: Value, name: &str) -> Value {
    set["metadata"]["name"] = json!(name);
    set["spec"]["selector"]["matchLabels"]["app"] = json!(name);
    set["spec"]["template"]["metadata"]["labels"]["app"] = json!(name);
    set
}

/// What Flotilla would do now for the set of this key. It asks the API server about no revision beforehand: bare clients are given
/// bodies that are known to be accepted.
pub(crate) fn look(kind: SetKind, cache: &Cache, key: &ObjectKey, clock: &Clock) -> Decision {
    let mut hints = Hints::default();
    if let Some(set) = cache.set(kind, key) {
        let revisions = cache.revisions_of(set.as_owner());
        hints.accepted = revisions.iter().map(|revision| revision.name().to_owned()).collect();
    }
    let now = clock.now();
    let context = PassContext {
        now,
        observing_since: now - Duration::from_secs(3600),
        entropy: 1,
        hints: &hints,
    };
    let decision = match kind {
        SetKind::Clone => CloneSetController::default().reconcile(cache, key, context),
        ordered => StatefulSetController::new(ordered).reconcile(cache, key, context),
    };
    decision.expect("the set is there")
}
