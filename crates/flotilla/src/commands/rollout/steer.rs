//! Pause, resume and restart: small patches of the set.

use super::{find, tell};
use crate::args::RolloutTarget;
use crate::clock;
use crate::cluster::Cluster;
use crate::error::{Error, Exit};
use crate::target::Found;
use flotilla_model::SetKind;
use serde_json::{Value, json};

/// Annotation that keeps a native set's partition while it is paused.
const PARTITION_BEFORE_PAUSE: &str = "flotilla.rs/partition-before-pause";
/// A partition above every ordinal: no pod is replaced.
const PARTITION_OF_ALL: i32 = i32::MAX;
/// The annotation of a template that kubectl changes to restart all pods.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
const MERGE: &str = "application/merge-patch+json";

/// Stops the replacing of pods. A native set has no such switch: its partition is raised above all ordinals, and remembered.
pub async fn pause(cluster: &Cluster, of: &RolloutTarget) -> Result<Exit, Error> {
    let found = find(cluster, of).await?;
    refuse_unless_rolling(&found)?;
    let body = match found.kind {
        SetKind::Advanced | SetKind::Clone if is_paused(&found) => {
            return tell(of, &found, "is paused already", Value::Null);
        }
        SetKind::Advanced | SetKind::Clone => json!({"spec": {"updateStrategy": {"rollingUpdate": {"paused": true}}}}),
        SetKind::Native if remembered(&found).is_some() => return tell(of, &found, "is paused already", Value::Null),
        SetKind::Native => json!({
            "metadata": {"annotations": {PARTITION_BEFORE_PAUSE: partition(&found).to_string()}},
            "spec": {"updateStrategy": {"rollingUpdate": {"partition": PARTITION_OF_ALL}}},
        }),
    };
    write(cluster, &found, body).await?;
    tell(of, &found, "paused", Value::Null)
}

/// Goes on replacing pods.
pub async fn resume(cluster: &Cluster, of: &RolloutTarget) -> Result<Exit, Error> {
    let found = find(cluster, of).await?;
    let body = match (found.kind, remembered(&found)) {
        (SetKind::Advanced | SetKind::Clone, _) if !is_paused(&found) => {
            return tell(of, &found, "is not paused", Value::Null);
        }
        (SetKind::Advanced | SetKind::Clone, _) => {
            json!({"spec": {"updateStrategy": {"rollingUpdate": {"paused": false}}}})
        }
        (SetKind::Native, None) => return tell(of, &found, "is not paused", Value::Null),
        (SetKind::Native, Some(partition)) => json!({
            "metadata": {"annotations": {PARTITION_BEFORE_PAUSE: null}},
            "spec": {"updateStrategy": {"rollingUpdate": {"partition": partition}}},
        }),
    };
    write(cluster, &found, body).await?;
    tell(of, &found, "resumed", Value::Null)
}

/// Replaces all pods: the template is changed in an annotation that nothing reads, as kubectl does.
pub async fn restart(cluster: &Cluster, of: &RolloutTarget) -> Result<Exit, Error> {
    let found = find(cluster, of).await?;
    if found.kind != SetKind::Native && is_paused(&found) {
        let message = format!(
            "failed to restart {}: it is paused; resume it first with flotilla rollout resume",
            found.display()
        );
        return Err(Error::NotPossible(message));
    }
    let at = clock::now().to_string();
    let body = json!({"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: at}}}}});
    write(cluster, &found, body).await?;
    tell(of, &found, "restarted", Value::Null)
}

/// Patches the set, provided it is still as it was read.
async fn write(cluster: &Cluster, found: &Found, mut body: Value) -> Result<(), Error> {
    body["metadata"]["resourceVersion"] = found.object["metadata"]["resourceVersion"].clone();
    cluster
        .patch(found.kind.resource(), &found.key, MERGE, &body)
        .await
        .map(|_| ())
}

fn refuse_unless_rolling(found: &Found) -> Result<(), Error> {
    let kind = found
        .object
        .pointer("/spec/updateStrategy/type")
        .and_then(Value::as_str)
        .unwrap_or("RollingUpdate");
    if kind == "RollingUpdate" {
        return Ok(());
    }
    let message = format!(
        "failed to pause {}: its update strategy is {kind}, which replaces no pod by itself",
        found.display()
    );
    Err(Error::NotPossible(message))
}

fn is_paused(found: &Found) -> bool {
    found.object.pointer("/spec/updateStrategy/rollingUpdate/paused") == Some(&json!(true))
}

fn partition(found: &Found) -> i64 {
    found
        .object
        .pointer("/spec/updateStrategy/rollingUpdate/partition")
        .and_then(Value::as_i64)
        .unwrap_or(0)
}

fn remembered(found: &Found) -> Option<i64> {
    found
        .object
        .pointer("/metadata/annotations")?
        .get(PARTITION_BEFORE_PAUSE)?
        .as_str()?
        .parse()
        .ok()
}
